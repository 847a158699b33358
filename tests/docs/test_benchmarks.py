"""Numbers that guide pages take from `benchmarks/results` are those of the files."""

import json
from typing import Any

import numpy as np

from tests.docs.blocks import ROOT


def measured(file: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / file).read_text(encoding="utf-8"))


def rows(page: str) -> dict[str, list[str]]:
    """The rows of the tables of a guide page by their first cell."""
    lines = (ROOT / "docs" / "guide" / page).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {first: rest for first, *rest in cells}


def test_when_to_measure_next() -> None:
    shown, curves = rows("next-time.md"), measured("next-time.json")["curves"]
    errors = {policy: np.array(found) for policy, found in curves.items()}
    for policy, row in (
        ("suggested", "suggested"),
        ("random", "random"),
        ("regular", "regular, the last one at the end"),
    ):
        mean, error = errors[policy].mean(0), errors[policy].std(0, ddof=1) / np.sqrt(len(errors[policy]))
        assert shown[row] == [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
    for rival in ("random", "regular"):
        share = (errors["suggested"] < errors[rival]).mean(0)
        assert shown[f"seeds in which suggested beats {rival}"] == [f"{s:.0%}".replace("%", " %") for s in share]


def test_streams() -> None:
    shown, found = rows("streaming.md"), measured("streams-2-cores.json")
    rate = {(call["threads"], call["batch"]): thousands(call["observations_per_second"]) for call in found["calls"]}
    arrival = next(one for one in found["arrivals"] if one["rate"] == 20_000)
    plain, journalled = (f"{round(one['lines_per_second'], -2):,.0f}" for one in found["command"])
    wanted = {
        "`step_many` with 256 observations of different streams": f"{rate[1, 256]} observations a second "
        f"on one thread, {rate[2, 256]} on two",
        "`step_many` with all 10,000 streams, two threads": f"{rate[2, 10_000]} observations a second",
        "two processes, each with half of the streams": f"{thousands(found['shards']['observations_per_second'])} "
        "observations a second",
        "observations that arrive at random, 20,000 a second": f"answered after {arrival['p50_ms']:.1f} ms (median), "
        f"{arrival['p99_ms']:.1f} ms (99 of 100)",
        "a snapshot of all streams": f"{found['snapshot']['megabytes']:.0f} MB, {found['snapshot']['seconds']:.2f} s",
        "`tides stream`, a line per observation": f"{plain} lines a second, {journalled} with a journal",
    }
    assert {row: shown[row] for row in wanted} == {row: [text] for row, text in wanted.items()}


def thousands(rate: float) -> str:
    return f"{round(rate, -3):,.0f}"


def test_small_tables() -> None:
    """Mean and spread over drawings: scores of all models, then the log loss of those that are networks."""
    shown, tasks = rows("classification.md"), measured("small-tables.json")["tasks"]
    for task, found in tasks.items():

        def over_drawings(model: str, metric: str, found: Any = found) -> str:
            values = np.array([one[model][metric] for one in found])
            return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"

        networks = ("defaults", "features", "shown")
        wanted = [over_drawings(model, "score") for model in (*networks, "tabular")]
        classes = "log_loss" in found[0]["defaults"]
        wanted += [over_drawings(model, "log_loss") if classes else "" for model in (*networks, "tabular")]
        [row] = [cells for first, cells in shown.items() if first.startswith(f"`{task}`")]
        assert row == wanted, task
