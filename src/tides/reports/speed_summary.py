"""What the records of the speed benchmark say: ratios, slopes in length, and fractions of the machine's ceiling.

Ratios to the naive model are formed only where it lies near the anchors, the measured cost of the authors' release;
otherwise a straw man could be beaten.
"""

import math
from collections.abc import Sequence
from typing import Any

from tides.records import Record
from tides.reports.published import published

NAME = "speed"
# Models that are measured beside those of TIDES; attention has another floor.
_OTHERS, _ATTENTION = ("naive", "transformer", "rformer"), ("transformer", "rformer")
# Lengths over which time and memory should grow linearly.
_LINEAR = {"cpu": (500, 20_000), "cuda": (1000, 100_000)}
# Training costs about four forward passes: forward, recomputation, and two products per product in backward.
_TRAINING_FLOP = 4
_BYTES_PER_WIDTH = 20


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Rows, slopes and the naive model's standing for the records of one machine."""
    ceilings = [record.results for record in records if _workload(record) == "ceiling" and _ok(record)]
    ceiling = ceilings[-1] if ceilings else None
    order = list(dict.fromkeys(map(_workload, records)))
    cells = sorted((r for r in records if _workload(r) != "ceiling"), key=lambda r: order.index(_workload(r)))
    anchors = compare_with_anchors(cells)
    return {
        "ceiling": ceiling,
        "anchors": anchors,
        "rows": [_row(record, cells, ceiling, anchors) for record in cells],
        "slopes": _slopes(cells),
    }


def latest(records: Sequence[Record]) -> list[Record]:
    """The newest record of every cell, whatever code it was measured with."""
    newest: dict[tuple[str, ...], Record] = {}
    for record in sorted(records, key=lambda record: record.finished):
        config = record.config
        newest[(machine(record), config["workload"], config["backend"], str(config["length"]))] = record
    return list(newest.values())


def machine(record: Record) -> str:
    """Where a record was measured, in words."""
    config = record.config
    gpu = config["hardware"].get("gpu")
    return gpu or f"{config['hardware']['cpu']}, {config['threads']} thread{'s' if config['threads'] > 1 else ''}"


def step_seconds(record: Record) -> float:
    """Seconds of a training step that ratios are formed with.

    On a GPU the median of the wall time; with one CPU thread the processor's time, which is the same on an idle
    machine and does not count the time that other processes took on a busy one.
    """
    step = record.results["step"]
    on_one_thread = record.config["device"] == "cpu" and record.config["threads"] == 1
    return float(step.get("processor", step["median"]) if on_one_thread else step["median"])


def compare_with_anchors(cells: Sequence[Record]) -> list[dict[str, Any]]:
    """The naive model beside the release, for each anchor of this machine's kind that was measured."""
    numbers = published(NAME)["anchors"]
    found = []
    for anchor in numbers["measured"]:
        for length, time, memory in zip(anchor["lengths"], anchor["time"], anchor["memory"], strict=True):
            for record in cells:
                if not _is(record, anchor["configuration"], "naive", length) or not _comparable(record, anchor):
                    continue
                ratios = step_seconds(record) * 1e3 / time, record.results["memory"]["peak"] / 1e6 / memory
                found.append(
                    {
                        "workload": anchor["configuration"],
                        "length": length,
                        "source": anchor["source"],
                        "time_ratio": ratios[0],
                        "memory_ratio": ratios[1],
                        "within": all(abs(ratio - 1) <= numbers["tolerance"] for ratio in ratios),
                    }
                )
    return found


def naive_is_credible(anchors: Sequence[dict[str, Any]], workload: str, length: int) -> bool:
    """Near the anchor of this length; without one, near every anchor of the workload, of which there must be some."""
    same = [anchor for anchor in anchors if anchor["workload"] == workload]
    here = [anchor for anchor in same if anchor["length"] == length]
    return bool(same) and all(anchor["within"] for anchor in here or same)


def floor_seconds(config: dict[str, Any], ceiling: dict[str, Any], precision: str) -> float:
    """The time of a training step at the measured copy bandwidth or matrix rate, whichever takes longer."""
    model = config["model"]
    h, p, r, depth = (model[name] for name in ("hidden_size", "state_size", "rank", "depth"))
    directions = 2 if model.get("bidirectional") else 1
    heads = 4 * h * r + 2 * h * p
    norms = 2 * h * (r + 1) * (r + 2)
    mixes = 4 * (1 + directions) * (r + 1) * h * p
    flop = _TRAINING_FLOP * (heads + norms + mixes + 6 * h * h)
    tokens = config["batch"] * config["length"] * depth
    compute = tokens * flop / ceiling["matmul_flop_per_second"][precision]
    return float(max(compute, tokens * _BYTES_PER_WIDTH * h / ceiling["copy_bytes_per_second"]))


def _row(
    record: Record, cells: Sequence[Record], ceiling: dict[str, Any] | None, anchors: list[dict[str, Any]]
) -> dict[str, Any]:
    config, results = record.config, record.results
    row = {name: config[name] for name in ("workload", "backend", "length", "batch", "device", "threads")}
    row |= {"status": results["status"], "reason": results.get("reason")}
    if not _ok(record):
        return row
    row |= {"step": results["step"], "forward": results.get("forward"), "graph": results.get("graph")}
    row |= {"in_a_row": results.get("in_a_row")}
    row |= {"memory": results["memory"], "tokens_per_second": results["tokens_per_second"]}
    for rival in ("naive", "transformer"):
        found = next((cell for cell in cells if _is(cell, config["workload"], rival, config["length"])), None)
        if found is None or config["backend"] in _OTHERS:
            continue
        if rival == "naive" and not naive_is_credible(anchors, config["workload"], config["length"]):
            continue
        row[f"to_{rival}"] = {
            "time": step_seconds(found) / step_seconds(record),
            "memory": found.results["memory"]["peak"] / max(results["memory"]["peak"], 1),
        }
    if ceiling is not None and config["backend"] not in _ATTENTION and config["workload"] != "streaming":
        row["ceiling_fraction"] = {
            precision: floor_seconds(config, ceiling, precision) / step_seconds(record)
            for precision in ceiling["matmul_flop_per_second"]
        }
    return row


def _slopes(cells: Sequence[Record]) -> list[dict[str, Any]]:
    """Exponents of length in time and memory, by least squares over the range where they should be one."""
    found = []
    for workload, backend in dict.fromkeys((_workload(cell), cell.config["backend"]) for cell in cells):
        points = [cell for cell in cells if _is(cell, workload, backend)]
        low, high = _LINEAR[cells[0].config["device"]]
        points = [cell for cell in points if low <= cell.config["length"] <= high]
        lengths = [cell.config["length"] for cell in points]
        if len(set(lengths)) < 2:
            continue
        found.append(
            {
                "workload": workload,
                "backend": backend,
                "lengths": [min(lengths), max(lengths)],
                "time": _slope(lengths, [step_seconds(cell) for cell in points]),
                "memory": _slope(lengths, [max(cell.results["memory"]["peak"], 1) for cell in points]),
            }
        )
    return found


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    a, b = [math.log(value) for value in x], [math.log(value) for value in y]
    centre = sum(a) / len(a)
    return sum((u - centre) * v for u, v in zip(a, b, strict=True)) / sum((u - centre) ** 2 for u in a)


def _comparable(record: Record, anchor: dict[str, Any]) -> bool:
    if anchor["device"] == "cpu":
        return bool(record.config["device"] == "cpu" and record.config["threads"] == 1)
    return anchor["device"] in record.config["hardware"].get("gpu", "")


def _is(record: Record, workload: str, backend: str, length: int | None = None) -> bool:
    config = record.config
    same = (config["workload"], config["backend"]) == (workload, backend) and length in (None, config["length"])
    return same and _ok(record)


def _ok(record: Record) -> bool:
    return bool(record.results["status"] == "ok")


def _workload(record: Record) -> str:
    return str(record.config["workload"])
