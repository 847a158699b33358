"""Sessions as tensors, and as one safetensors file that appears complete or not at all."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from tides.atomic import atomic_write
from tides.errors import DataError
from tides.streaming.history import History, Saved
from tides.streaming.leaves import Leaves, as_complex, as_real

if TYPE_CHECKING:
    from tides.streaming.session import StreamSession

FORMAT = 1
_TABLE = ("last", "newest", "count", "static", "told", "answers")


def session_state(session: "StreamSession") -> dict[str, Tensor]:
    """Every stream of a session, one row each; keys and the model's identity as JSON in the tensor `about`."""
    intake = session.intake
    keys = list(intake.table)
    rows = intake.table.rows(keys)
    strange = [key for key in keys if key is not None and not isinstance(key, (str, int))]
    if strange:
        raise DataError(f"keys: found {strange[0]!r}, wanted text or whole numbers to store a session")
    text = json.dumps({"format": FORMAT, "identity": session.identity, "keys": keys})
    state = {"about": torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)}
    state |= {f"table.{name}": torch.from_numpy(getattr(intake.table, name)[rows].copy()) for name in _TABLE}
    state |= {f"state.{name}": leaf.clone() for name, leaf in as_real(intake.bank.get(rows)).items()}
    if intake.histories:
        state |= _pack_histories([intake.histories[int(row)] for row in rows], intake.bank.fresh, intake.channels)
    return state


def restore_session(session: "StreamSession", state: dict[str, Tensor]) -> None:
    """Replace all streams of a session; a state of another model raises and changes nothing."""
    keys = _check(session, state)
    intake = session.intake
    fresh = intake.bank.fresh
    leaves = as_complex({name: state[f"state.{name}"] for name in fresh}, fresh)
    for key in list(intake.table):
        intake.forget(key)
    rows = np.array([intake.add(key) for key in keys], np.int64)
    for name in _TABLE:
        getattr(intake.table, name)[rows] = state[f"table.{name}"].numpy()
    intake.bank.put(rows, leaves)
    if intake.policy.late != "replay":
        return
    found = _unpack_histories(state, fresh) if "history.counts" in state else None
    for position, row in enumerate(rows.tolist()):
        if found is None:
            last = float(intake.table.last[row])
            intake.begin_history(row, -np.inf if np.isnan(last) else last)
        else:
            intake.histories[row] = found[position]


def write_snapshot(session: "StreamSession", path: Path, notes: dict[str, Any]) -> None:
    """The session in one file, with `notes` (JSON) beside it."""
    about = {"tides": json.dumps({"identity": session.identity, "notes": notes})}
    content = serialise({name: leaf.contiguous() for name, leaf in session_state(session).items()}, metadata=about)
    with atomic_write(path) as file:
        file.write(content)


def read_snapshot(session: "StreamSession", path: Path) -> dict[str, Any]:
    """Continue from a snapshot; its notes."""
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads(file.metadata()["tides"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a snapshot of streams: {error}") from error
    try:
        session.load_state_dict(state)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    notes: dict[str, Any] = about["notes"]
    return notes


def _check(session: "StreamSession", state: dict[str, Tensor]) -> list[Any]:
    """The keys of a state that fits the session."""
    try:
        about = json.loads(state["about"].numpy(force=True).tobytes())
        if about["format"] != FORMAT:
            raise DataError(f"state: found format {about['format']!r}, wanted {FORMAT}")
        identity, keys = about["identity"], list(about["keys"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"state: not the state of a session: {error!r}") from None
    if identity != session.identity:
        raise DataError(
            f"state: it belongs to another model (identity {identity[:12]}…, this one is {session.identity[:12]}…)"
        )
    wanted = {"about", *(f"table.{name}" for name in _TABLE), *(f"state.{name}" for name in session.intake.bank.fresh)}
    missing = sorted(wanted - set(state))
    if missing:
        raise DataError(f"state: {missing[0]!r} is missing")
    return keys


def _pack_histories(histories: list[History], fresh: Leaves, channels: int) -> dict[str, Tensor]:
    values = [value for history in histories for value in history.values]
    state = {
        "history.sizes": torch.tensor([history.size for history in histories], dtype=torch.int64),
        "history.counts": torch.tensor([len(history.times) for history in histories], dtype=torch.int64),
        "history.floor": torch.tensor([history.floor for history in histories], dtype=torch.float64),
        "history.times": torch.tensor([t for history in histories for t in history.times], dtype=torch.float64),
        "history.values": torch.from_numpy(np.stack(values) if values else np.zeros((0, channels))),
        "history.settled": torch.tensor([history.middle is not None for history in histories]),
    }
    for name, saved in (
        ("base", [history.base for history in histories]),
        ("middle", [history.middle or history.base for history in histories]),
    ):
        state[f"history.{name}.last"] = torch.tensor([one.last for one in saved], dtype=torch.float64)
        stacked = {leaf: torch.cat([one.leaves[leaf] for one in saved]) for leaf in fresh}
        state |= {f"history.{name}.{leaf}": tensor for leaf, tensor in as_real(stacked).items()}
    return state


def _unpack_histories(state: dict[str, Tensor], fresh: Leaves) -> list[History]:
    """Each with the size it was kept with: another policy holds for streams that begin under it."""

    def saved(name: str, row: int) -> Saved:
        leaves = {leaf: state[f"history.{name}.{leaf}"][row : row + 1] for leaf in fresh}
        return Saved(as_complex(leaves, fresh), float(state[f"history.{name}.last"][row]))

    histories, begin = [], 0
    times, values = state["history.times"].tolist(), state["history.values"].numpy()
    sizes = state["history.sizes"].tolist()
    for row, count in enumerate(state["history.counts"].tolist()):
        end = begin + count
        middle = saved("middle", row) if bool(state["history.settled"][row]) else None
        floor = float(state["history.floor"][row])
        kept = [value.copy() for value in values[begin:end]]
        histories.append(History(sizes[row], saved("base", row), floor, times[begin:end], kept, middle))
        begin = end
    return histories
