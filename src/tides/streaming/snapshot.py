"""Sessions as tensors, and as one safetensors file that appears complete or not at all."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from tides.atomic import atomic_write
from tides.errors import DataError
from tides.streaming.history import History, Past, Saved, Window
from tides.streaming.leaves import as_complex, as_real
from tides.streaming.profile import StaticRow
from tides.streaming.snapshot_check import FORMAT, check_keys, check_state, checksum
from tides.streaming.table import FIELDS

if TYPE_CHECKING:
    from tides.streaming.banks import Rows
    from tides.streaming.intake import Intake
    from tides.streaming.session import StreamSession


def session_state(session: "StreamSession") -> dict[str, Tensor]:
    """Every stream of a session, one row each; the tensor `about` holds keys, checksums and the model's identity."""
    intake = session.intake
    keys = list(intake.table)
    rows = intake.table.rows(keys)
    check_keys(keys)
    state = {f"table.{name}": torch.from_numpy(array) for name, array in intake.table.get(rows).items()}
    state |= {f"state.{name}": leaf.clone() for name, leaf in as_real(intake.bank.get(rows)).items()}
    if intake.histories:
        state |= _pack_histories([intake.histories[int(row)] for row in rows], intake)
    sums = {"keys": checksum(json.dumps(keys))} | {name: checksum(leaf) for name, leaf in state.items()}
    text = json.dumps({"format": FORMAT, "identity": session.identity, "keys": keys, "sums": sums})
    return {"about": torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)} | state


def restore_session(session: "StreamSession", state: dict[str, Tensor]) -> None:
    """Replace all streams of a session; a state that does not fit raises and changes nothing."""
    keys, intake = check_state(session, state), session.intake
    state = {name: tensor.detach().cpu() for name, tensor in state.items()}
    fresh = intake.bank.fresh
    leaves = as_complex({name: state[f"state.{name}"] for name in fresh}, fresh)
    for key in list(intake.table):
        intake.forget(key)
    rows = np.array([intake.add(key) for key in keys], np.int64)
    intake.table.put(rows, {name: state[f"table.{name}"].numpy() for name in FIELDS})
    intake.bank.put(rows, leaves)
    if not intake.keeps_history:
        return
    found = _unpack_histories(state, intake, rows) if "history.counts" in state else None
    for position, row in enumerate(rows.tolist()):
        if found is None:
            last = float(intake.table.last[row])
            intake.begin_history(row, -np.inf if np.isnan(last) else last)
        else:
            intake.histories[row] = found[position]


def write_snapshot(session: "StreamSession", path: Path, notes: dict[str, Any]) -> None:
    """The session in one file, with `notes` (JSON) beside it."""
    text = json.dumps({"identity": session.identity, "notes": notes})
    about = {"tides": text, "sum": checksum(text)}
    content = serialise({name: leaf.contiguous() for name, leaf in session_state(session).items()}, metadata=about)
    with atomic_write(path) as file:
        file.write(content)


def read_snapshot(session: "StreamSession", path: Path) -> dict[str, Any]:
    """Continue from a snapshot; its notes."""
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = file.metadata()
        notes: dict[str, Any] = json.loads(about["tides"])["notes"]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a snapshot of streams: {error}") from error
    if about.get("sum") not in (None, checksum(about["tides"])):  # earlier versions wrote none
        raise DataError(f"{path}: its notes differ from their checksum: the file was damaged")
    try:
        session.load_state_dict(state)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return notes


def _pack_histories(histories: list[Past], intake: "Intake") -> dict[str, Tensor]:
    values = [value for history in histories for value in history.values]
    untold = StaticRow(np.full(intake.static_size, np.nan), np.zeros(intake.static_size, bool))
    static = [told or untold for history in histories for told in history.static]
    middles = [history.middle if isinstance(history, History) else None for history in histories]
    sizes = [history.size if isinstance(history, History) else 1 for history in histories]
    state = {
        "history.sizes": torch.tensor(sizes, dtype=torch.int64),
        "history.counts": torch.tensor([len(history.times) for history in histories], dtype=torch.int64),
        "history.floor": torch.tensor([history.floor for history in histories], dtype=torch.float64),
        "history.times": torch.tensor([t for history in histories for t in history.times], dtype=torch.float64),
        "history.values": _stack(values, intake.channels, np.float64),
        "history.static": _stack([told.values for told in static], intake.static_size, np.float64),
        "history.named": _stack([told.named for told in static], intake.static_size, np.bool_),
        "history.settled": torch.tensor([middle is not None for middle in middles]),
    }
    for name, saved in (
        ("base", [history.base for history in histories]),
        ("middle", [middle or history.base for middle, history in zip(middles, histories, strict=True)]),
    ):
        state[f"history.{name}.last"] = torch.tensor([one.last for one in saved], dtype=torch.float64)
        state[f"history.{name}.static"] = _stack([one.static for one in saved], intake.static_size, np.float64)
        stacked = {leaf: torch.cat([one.leaves[leaf] for one in saved]) for leaf in intake.bank.fresh}
        state |= {f"history.{name}.{leaf}": tensor for leaf, tensor in as_real(stacked).items()}
    return state


def _stack(rows: list[NDArray[Any]], width: int, dtype: type[np.generic]) -> Tensor:
    return torch.from_numpy(np.array(rows, dtype).reshape(len(rows), width))


def _unpack_histories(state: dict[str, Tensor], intake: "Intake", rows: "Rows") -> list[Past]:
    """The histories of all streams, each with its own size: the policy may differ for streams that begin later."""
    fresh = intake.bank.fresh
    times, values = state["history.times"].tolist(), list(state["history.values"].numpy().copy())
    told: list[StaticRow | None] = [None] * len(times)
    # Earlier versions knew the present static covariates alone.
    present = torch.from_numpy(intake.table.static[rows])
    if "history.static" in state:
        static, named = (state[f"history.{name}"].numpy().copy() for name in ("static", "named"))
        told = [StaticRow(*pair) if pair[1].any() else None for pair in zip(static, named, strict=True)]

    def saved(name: str, row: int) -> Saved:
        leaves = {leaf: state[f"history.{name}.{leaf}"][row : row + 1] for leaf in fresh}
        static = state.get(f"history.{name}.static", present)[row].numpy().copy()
        return Saved(as_complex(leaves, fresh), float(state[f"history.{name}.last"][row]), static)

    histories: list[Past] = []
    begin = 0
    for row, (size, count) in enumerate(
        zip(state["history.sizes"].tolist(), state["history.counts"].tolist(), strict=True)
    ):
        kept = slice(begin, begin + count)
        floor = float(state["history.floor"][row])
        past: dict[str, Any] = {"base": saved("base", row), "floor": floor, "times": times[kept]}
        past |= {"values": values[kept], "static": told[kept]}
        if intake.profile.cut is not None:
            histories.append(Window(**past, span=intake.profile.cut))
        else:
            middle = saved("middle", row) if bool(state["history.settled"][row]) else None
            histories.append(History(**past, size=size, middle=middle))
        begin += count
    return histories
