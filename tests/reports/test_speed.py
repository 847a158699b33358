"""The speed report: ratios only beside a credible naive model, slopes, ceilings, a page with a figure."""

from pathlib import Path
from typing import Any

import pytest

from tides.errors import DataError
from tides.records import Record, cell_id, write_record
from tides.reports import speed
from tides.reports.speed_summary import floor_seconds, summarise

MODEL = {"input_size": 1, "hidden_size": 32, "state_size": 16, "rank": 8, "depth": 4, "compat": "release"}
MACHINE = {"tides-ssm": "0", "torch": "0", "python": "3", "cuda": "0", "triton": "0", "numba": "0", "cpus": "2"}
CEILING = {
    "status": "ok",
    "copy_bytes_per_second": 4.3e12,
    "matmul_flop_per_second": {"float32": 50e12, "tf32": 250e12},
}


def make(backend: str, length: int, seconds: float, memory: float, **change: Any) -> Record:
    config = {"workload": "paper-100k", "backend": backend, "length": length, "batch": 8, "classes": 5, "model": MODEL}
    config |= {"device": "cuda", "threads": 1, "hardware": {"cpu": "C", "gpu": "NVIDIA H200"}, "code": "0"}
    times = {"median": seconds, "mean": seconds, "std": seconds / 10, "min": seconds, "processor": seconds / 2}
    results: dict[str, Any] = {"status": "ok", "step": times | {"repeats": 5}, "forward": times, "graph": None}
    results |= {"memory": {"peak": memory, "before": 1}, "tokens_per_second": 8 * length / seconds}
    results |= {"load_average": [0.5, 5.0]}
    if "workload" in change or "device" in change:
        config |= {name: value for name, value in change.items() if name in ("workload", "device", "hardware")}
    results |= {name: value for name, value in change.items() if name not in config}
    return Record("speed", cell_id(config), config, results, 1.0, False, MACHINE, "2026-01-01T00:00:00+00:00")


def failing(backend: str, length: int, status: str) -> Record:
    record = make(backend, length, 1.0, 1.0)
    record.results.clear()
    record.results.update({"status": status, "reason": "it would not fit"})
    return record


def ceiling() -> Record:
    record = make("none", 0, 1.0, 1.0, workload="ceiling")
    record.results.clear()
    record.results.update(CEILING)
    return record


def fast_lengths() -> list[Record]:
    return [make("triton", length, 2e-6 * length, 1e4 * length) for length in (1000, 10_000, 100_000)]


def test_a_credible_naive_model_gives_ratios() -> None:
    naive = [make("naive", 1000, 0.080, 1.2e9), make("naive", 100_000, 0.557, 118e9)]
    found = summarise([ceiling(), *fast_lengths(), *naive])
    rows = {(row["backend"], row["length"]): row for row in found["rows"]}
    assert rows["triton", 1000]["to_naive"]["time"] == pytest.approx(40)
    assert rows["triton", 100_000]["to_naive"]["memory"] == pytest.approx(118)
    assert "to_naive" not in rows["triton", 10_000]
    assert all(anchor["within"] for anchor in found["anchors"])


@pytest.mark.parametrize(("seconds", "memory"), [(0.2, 1.2e9), (0.080, 3e9), (0.03, 1.2e9)])
def test_a_naive_model_far_from_the_anchors_gives_none(seconds: float, memory: float) -> None:
    found = summarise([make("naive", 1000, seconds, memory), *fast_lengths()])
    assert not found["anchors"][0]["within"]
    assert all("to_naive" not in row for row in found["rows"])
    assert "no ratio to it is reported" in " ".join(speed.notes(found, fast_lengths()))


def test_an_unknown_machine_has_no_anchor_and_no_ratio() -> None:
    other = {"device": "cuda", "hardware": {"cpu": "C", "gpu": "NVIDIA A10"}}
    found = summarise([make("naive", 1000, 0.080, 1.2e9, **other), make("torch", 1000, 0.01, 1e8, **other)])
    assert not found["anchors"]
    assert all("to_naive" not in row for row in found["rows"])


def test_the_transformer_needs_no_anchor() -> None:
    found = summarise([make("transformer", 1000, 0.01, 1e8), make("triton", 1000, 0.002, 1e7)])
    assert found["rows"][1]["to_transformer"] == {"time": pytest.approx(5), "memory": pytest.approx(10)}


def test_on_one_cpu_thread_ratios_are_of_processor_time() -> None:
    cpu = {"device": "cpu", "hardware": {"cpu": "C"}}
    naive = make("naive", 1000, 4.9, 1.7e9, **cpu)
    found = summarise([naive, make("cpu", 1000, 0.14, 3.4e7, **cpu)])
    assert found["anchors"][0]["time_ratio"] == pytest.approx(1.0)
    assert found["rows"][1]["to_naive"]["time"] == pytest.approx(35)


def test_slopes_are_exponents_of_length() -> None:
    quadratic = [make("transformer", length, 1e-9 * length**2, 1e3 * length) for length in (1000, 10_000)]
    found = summarise([*fast_lengths(), *quadratic])
    slopes = {slope["backend"]: slope for slope in found["slopes"]}
    assert slopes["triton"]["time"] == pytest.approx(1)
    assert slopes["transformer"]["time"] == pytest.approx(2)
    assert slopes["transformer"]["memory"] == pytest.approx(1)


def test_the_floor_is_the_known_count_of_operations() -> None:
    config = make("triton", 100_000, 1.0, 1.0).config
    # 50.8 k floating-point operations per token and layer forward, four times that in training.
    assert floor_seconds(config, CEILING, "float32") == pytest.approx(4 * 50.8e3 * 3.2e6 / 50e12, rel=2e-3)
    slow_memory = CEILING | {"copy_bytes_per_second": 1e9}
    assert floor_seconds(config, slow_memory, "float32") == pytest.approx(20 * 32 * 3.2e6 / 1e9)


def test_page_and_tables_from_a_folder_of_records(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [
        ceiling(),
        *fast_lengths(),
        make("naive", 1000, 0.080, 1.2e9),
        failing("naive", 100_000, "out of memory"),
    ]
    for record in records:
        write_record(tmp_path / "records" / f"{record.cell_id}.json", record)
    path, summary = speed.report(tmp_path)
    assert {file.name for file in path.parent.iterdir()} == {
        "index.html",
        "speed.csv",
        "tables.md",
        "speed.pdf",
        "speed.png",
    }
    text = path.read_text(encoding="utf-8")
    assert "NVIDIA H200" in text
    assert "out of memory" in summary
    assert "it would not fit" in summary
    assert "The machine was busy: load average up to 5.0 on 2 processors." in summary


def test_a_results_file_is_read_back_and_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    speed.write_results(file, fast_lengths(), {"step": "as described"})
    assert speed.read_results(file) == fast_lengths()
    with pytest.raises(DataError, match="--where"):
        speed.read_results(file, ["backend=triton"])
    for text in ('{"records": [{"name": 1}]}', '{"records": {"name": 1}}', "{"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="not a file of"):
            speed.read_results(file)
    speed.write_results(file, [Record(**{**vars(fast_lengths()[0]), "experiment": "uea"})], {})
    with pytest.raises(DataError, match="found records of uea, wanted speed or efficiency"):
        speed.read_results(file)


def test_only_the_newest_record_of_a_cell_counts(tmp_path: Path) -> None:
    old, new = make("triton", 1000, 1.0, 1.0), make("triton", 1000, 2.0, 1.0)
    changed = Record(**{**vars(new), "config": new.config | {"code": "1"}, "finished": "2026-01-02T00:00:00+00:00"})
    file = tmp_path / "result.json"
    speed.write_results(file, [changed, old], {})
    assert [record.results["step"]["median"] for record in speed.read_results(file)] == [2.0]
