"""Checks that tensors are the state of a session, before the session gives anything up for them."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import torch
from torch import Tensor

from tides.errors import DataError
from tides.streaming.leaves import as_real
from tides.streaming.table import FIELDS, are_different

if TYPE_CHECKING:
    from tides.streaming.intake import Intake
    from tides.streaming.session import StreamSession

FORMAT = 1


class Form(NamedTuple):
    """The wanted dtype and shape of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {self.shape}"


def check_state(session: "StreamSession", state: Mapping[str, Tensor]) -> list[Any]:
    """The keys of a state that fits the session; everything else raises `DataError`."""
    about = _read_about(session, state)
    keys: list[Any] = about["keys"]
    n, intake = len(keys), session.intake
    _check_forms(state, _stream_forms(intake, n))
    # Without its history a stream begins a new one, unless that is all that its answers come from.
    needed = intake.profile.cut is not None and n > 0
    if needed or (intake.keeps_history and "history.counts" in state):
        _check_histories(intake, state, n)
    _check_sums(state, about)
    return keys


def checksum(content: Tensor | str) -> str:
    """A number that changes if the tensor is damaged."""
    data = content.encode() if isinstance(content, str) else content.contiguous().numpy(force=True).tobytes()
    return f"{crc32(data):08x}"


def check_keys(keys: list[Any]) -> None:
    """Check that keys are text or whole numbers, which survive a round trip through JSON."""
    for key in keys:
        if key is not None and not isinstance(key, (str, int)):
            raise DataError(f"keys: found {key!r}, wanted text or whole numbers to store a session")
    if not are_different(keys):
        raise DataError("state: found a key twice, wanted every stream once")


def _read_about(session: "StreamSession", state: Mapping[str, Tensor]) -> dict[str, Any]:
    try:
        about = json.loads(state["about"].numpy(force=True).tobytes())
        if about["format"] != FORMAT:
            raise DataError(f"state: found format {about['format']!r}, wanted {FORMAT}")
        identity, keys = str(about["identity"]), list(about["keys"])
        sums = dict(about.get("sums", {}))  # earlier versions wrote none
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"state: not the state of a session: {error!r}") from None
    if identity != session.identity:
        raise DataError(
            f"state: it belongs to another model (identity {identity[:12]}…, this one is {session.identity[:12]}…), "
            "which cannot continue its streams; start them again"
        )
    check_keys(keys)
    return {"keys": keys, "sums": sums}


def _check_sums(state: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    for name, wanted in about["sums"].items():
        found = json.dumps(about["keys"]) if name == "keys" else state.get(name)
        if found is not None and checksum(found) != wanted:
            raise DataError(f"state: {name!r} differs from its checksum: it was damaged, or changed by hand")


def _check_forms(state: Mapping[str, Tensor], forms: dict[str, Form]) -> None:
    for name, wanted in sorted(forms.items()):
        if name not in state:
            raise DataError(f"state: {name!r} is missing")
        found = Form(tuple(state[name].shape), state[name].dtype)
        if found != wanted:
            raise DataError(f"state: found {name!r} as {found}, wanted {wanted}")


def _stream_forms(intake: "Intake", n: int) -> dict[str, Form]:
    table = {name: torch.from_numpy(getattr(intake.table, name)) for name in FIELDS}
    forms = {f"table.{name}": Form((n, *array.shape[1:]), array.dtype) for name, array in table.items()}
    return forms | _leaf_forms(intake, "state", n)


def _leaf_forms(intake: "Intake", prefix: str, n: int) -> dict[str, Form]:
    fresh = as_real(intake.bank.fresh)
    return {f"{prefix}.{name}": Form((n, *leaf.shape[1:]), leaf.dtype) for name, leaf in fresh.items()}


def _check_histories(intake: "Intake", state: Mapping[str, Tensor], n: int) -> None:
    _check_forms(state, {f"history.{name}": Form((n,), torch.int64) for name in ("counts", "sizes")})
    for name, least in (("counts", 0), ("sizes", 1)):
        if bool((state[f"history.{name}"] < least).any()):
            raise DataError(f"state: found numbers below {least} in 'history.{name}'")
    kept = int(state["history.counts"].sum())
    forms = {
        "floor": Form((n,), torch.float64),
        "settled": Form((n,), torch.bool),
        "times": Form((kept,), torch.float64),
        "values": Form((kept, intake.channels), torch.float64),
    }
    for name in ("base", "middle"):
        forms[f"{name}.last"] = Form((n,), torch.float64)
    if "history.static" in state:  # earlier versions kept none
        forms["static"] = Form((kept, intake.static_size), torch.float64)
        forms["named"] = Form((kept, intake.static_size), torch.bool)
        forms |= {f"{name}.static": Form((n, intake.static_size), torch.float64) for name in ("base", "middle")}
    _check_forms(state, {f"history.{name}": form for name, form in forms.items()})
    for name in ("base", "middle"):
        _check_forms(state, _leaf_forms(intake, f"history.{name}", n))
