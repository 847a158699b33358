"""The tables of `docs/guide/speed.md` are those of the files in `benchmarks/results`."""

from typing import Any

from tests.docs.blocks import ROOT
from tests.docs.test_benchmarks import measured

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "MB": 1e6, "GB": 1e9}
WAYS = ("single", "in a row", "graph", "memory")
BACKENDS = ("naive", "torch", "cpu")


def section(title: str) -> dict[str, list[str]]:
    """The rows of the tables below a heading by their first cell."""
    text = (ROOT / "docs" / "guide" / "speed.md").read_text(encoding="utf-8")
    lines = text.partition(f"# {title}\n")[2].partition("\n#")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert len({row[0] for row in cells}) == len(cells), "two rows of one name"
    return {first: rest for first, *rest in cells}


def steps(file: str) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Seconds, bytes and ratios of every configuration, backend and length in a file of `tides bench speed`."""
    return {
        (row["workload"], row["backend"], row["length"]): {
            "single": row["step"]["median"],
            "in a row": (row.get("in_a_row") or {}).get("median"),
            "graph": ((row.get("graph") or {}).get("step") or {}).get("median"),
            "memory": row["memory"]["peak"],
            "ratio": row.get("to_naive"),
        }
        for row in measured(file)["summary"]["rows"]
        if row["status"] == "ok"
    }


def rounds(text: str, value: float | None) -> bool:
    """Whether `text`, which may be empty, is `value` with as many digits as it shows."""
    if not text or value is None:
        return not text and value is None
    number, _, unit = text.partition(" ")
    return f"{value / UNITS[unit]:,.{len(number.partition('.')[2])}f}" == number


def test_paper_100k_on_a_gpu() -> None:
    newest, models, oldest = (steps(f"cuda-h200{kind}.json") for kind in ("-triton", "-models", ""))
    shown = section("All measured steps")
    for length in (1_000, 5_000, 10_000, 100_000, 1_000_000):
        cells = [newest["paper-100k", "triton", length][way] for way in WAYS]
        for backend, file in (("naive", newest), ("transformer", models), ("rformer", models)):
            file = oldest if (backend, length) == ("transformer", 100_000) else file
            found = file.get(("paper-100k", backend, length), {})
            cells += [found.get("single"), found.get("memory")]
        row = shown[f"{length:,}"]
        wrong = [(text, value) for text, value in zip(row, cells, strict=True) if not rounds(text, value)]
        assert not wrong, length


def test_other_configurations_on_a_gpu() -> None:
    newest, shown = steps("cuda-h200-triton.json"), section("All measured steps")
    for workload, length, name in (
        ("eigenworms", 17_984, "`eigenworms`"),
        ("wide", 1_000, "`wide`, 1,000 steps"),
        ("wide", 5_000, "`wide`, 5,000 steps"),
    ):
        naive = newest.get((workload, "naive", length), {})
        cells = [newest[workload, "triton", length][way] for way in WAYS] + [naive.get("single"), naive.get("memory")]
        row = [text if text != "out of memory" else "" for text in shown[name]]
        wrong = [(text, value) for text, value in zip(row, cells, strict=True) if not rounds(text, value)]
        assert not wrong, name


def test_ratios_to_the_naive_model_on_a_gpu() -> None:
    newest, busy = (steps(f"cuda-h200-{kind}.json") for kind in ("triton", "busy"))
    anchors, others = (measured(f"cuda-h200-{kind}.json")["summary"]["anchors"] for kind in ("triton", "busy"))
    shown = section("Against the naive model")
    assert len(anchors) == 6
    for anchor in anchors:
        workload, length = anchor["workload"], anchor["length"]
        name = {"paper-100k": f"{length:,} steps", "wide": f"`wide`, {length:,} steps"}.get(workload, f"`{workload}`")
        release, time, memory, *beside = shown[name]
        assert rounds(release, anchor["time_ratio"]), name
        assert_ratio(newest[workload, "triton", length]["ratio"], anchor, {"time": time, "memory": memory})
        other = next(one for one in others if (one["workload"], one["length"]) == (workload, length))
        assert rounds(beside[0], other["time_ratio"]), name
        assert_ratio(busy[workload, "triton", length]["ratio"], other, {"time": beside[1]})


def assert_ratio(found: dict[str, float] | None, anchor: dict[str, Any], shown: dict[str, str]) -> None:
    """Ratios to the naive model are shown where it is within its bounds."""
    assert (found is not None) == anchor["within"]
    for kind, text in shown.items():
        assert text == "not reported" if found is None else rounds(text, found[kind]), (anchor, kind)


def test_one_cpu_thread() -> None:
    found, shown = steps("cpu-16-cores.json"), section("Steps on one thread")
    for length in (1_000, 2_000, 5_000, 20_000):
        *times, memory = shown[f"{length:,}"]
        assert_times(times, found, length)
        peaks = [peak.strip("–") for peak in memory.partition(" MB")[0].split(", ")]
        for backend, peak in zip(BACKENDS, peaks, strict=True):
            cell = found.get(("paper-100k", backend, length), {})
            assert rounds(peak and f"{peak} MB", cell.get("memory")), (backend, length)


def test_other_processors() -> None:
    shown = section("On other processors")
    for machine in ("2-cores", "2-cores-amd", "2-cores-zen5", "16-cores-alone", "16-cores-busy"):
        file = f"cpu-{machine}.json"
        for length in (1_000, 5_000):
            assert_times(shown[f"`{file}`, {length:,}"], steps(file), length)


def assert_times(texts: list[str], found: dict[tuple[str, str, int], dict[str, Any]], length: int) -> None:
    """The time of each backend and, behind a comma, how much less that is than the naive model's."""
    for backend, text in zip(BACKENDS, texts, strict=True):
        cell = found.get(("paper-100k", backend, length), {})
        time, _, ratio = text.partition(", ")
        assert rounds(time, cell.get("single")), (backend, length)
        assert rounds(ratio.partition(" ")[0], (cell.get("ratio") or {}).get("time")), (backend, length)
