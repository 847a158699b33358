"""The benchmark's cells, its refusals and its bookkeeping; no timing is asserted."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tides.errors import BackendUnavailable, ConfigError
from tides.experiments import speed, speed_contract, speed_measure, speed_worker
from tides.experiments.speed_worker import Worker
from tides.kernels import chunked
from tides.records import read_records

MODEL = {"input_size": 1, "hidden_size": 6, "state_size": 4, "rank": 3, "depth": 1, "compat": "release"}


def config(backend: str = "torch", **change: Any) -> dict[str, Any]:
    shape = {"length": 20, "batch": 2, "classes": 3, "device": "cpu", "threads": 1}
    return {"workload": "paper-100k", "backend": backend, "model": MODEL, **shape, **change}


class FakeWorker:
    """Answers every cell with its length, and fails where told to."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.alive = True

    measured: list[int]
    failing: tuple[int, ...] = ()

    def fits(self, config: dict[str, Any]) -> bool:
        return True

    def measure(self, config: dict[str, Any], seconds: float) -> dict[str, Any]:
        FakeWorker.measured.append(config["length"])
        return {"status": "failed" if config["length"] in FakeWorker.failing else "ok", "seconds": seconds}

    def close(self) -> None:
        self.alive = False


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    monkeypatch.setattr(speed, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "measured", [], raising=False)
    monkeypatch.setattr(FakeWorker, "failing", ())
    return FakeWorker


def test_cells_cover_the_question_and_leave_out_what_is_too_long() -> None:
    cells = speed.cells("cpu", lengths=[1000, 20_000])
    labels = [cell.label for cell in cells]
    assert labels[0] == "cpu-ceiling"
    assert "cpu-paper-100k-cpu-20000" in labels
    assert "cpu-paper-100k-naive-1000" in labels
    assert "cpu-paper-100k-naive-20000" not in labels
    assert "cpu-streaming-module-1" in labels
    assert len({cell.id for cell in cells}) == len(cells)


def test_workloads_with_their_own_lengths_keep_them() -> None:
    cells = speed.cells("cpu", lengths=[7], workloads=["eigenworms", "wide"], backends=["torch"])
    assert [cell.config["length"] for cell in cells[1:]] == [17984, 1000, 5000]
    assert cells[1].config["model"]["bidirectional"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backends": ["tensorflow"]}, "backends: found 'tensorflow'"),
        ({"workloads": ["narrow"]}, "configs: found 'narrow'"),
        ({"lengths": [1]}, "lengths"),
    ],
)
def test_unknown_choices_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        speed.cells("cpu", **options)


def test_cuda_without_a_device_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(BackendUnavailable, match="no CUDA device"):
        speed.cells("cuda")


def test_measured_cells_are_not_measured_again(fake: type[FakeWorker], tmp_path: Path) -> None:
    fake.failing = (200,)
    cells = speed.cells("cpu", lengths=[100, 200], workloads=["paper-100k"], backends=["torch"])
    speed.run_all(cells, tmp_path)
    assert fake.measured == [0, 100, 200]
    assert [record.config["length"] for record in read_records(tmp_path)] == [0, 100]
    fake.failing = ()
    heard: list[bool] = []
    records = speed.run_all(cells, tmp_path, watch=lambda cell, record, cached: heard.append(cached))
    assert fake.measured == [0, 100, 200, 200]
    assert heard == [True, True, False]
    assert [record.config["length"] for record in records] == [0, 100, 200]
    speed.run_all(cells, tmp_path, fresh=True)
    assert fake.measured[4:] == [0, 100, 200]


@pytest.mark.parametrize("backend", ["torch", "naive", "transformer", "rformer", "reference"])
def test_a_cell_has_every_number(backend: str) -> None:
    found = speed_measure.measure_safely(config(backend), 1.0)
    assert found["status"] == "ok", found
    for name in ("step", "forward"):
        assert 0 < found[name]["min"] <= found[name]["median"]
        assert found[name]["repeats"] >= 1
    assert found["memory"]["before"] > 0
    assert found["tokens_per_second"] == pytest.approx(2 * 20 / found["step"]["median"])
    if backend in ("transformer", "rformer"):
        assert found["contract"] is None
    else:
        assert found["contract"]["dtype"] == ("float64" if backend == "naive" else "float32")
        assert found["contract"]["gradient"] < 1e-4


def test_a_backend_that_breaks_the_contract_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = chunked.OPS
    wrong = honest._replace(mix_out=lambda *args: 1.001 * honest.mix_out(*args))
    monkeypatch.setattr(chunked, "OPS", wrong)
    speed_contract._check.cache_clear()
    try:
        found = speed_measure.measure_safely(config(), 1.0)
    finally:
        speed_contract._check.cache_clear()
    assert found["status"] == "refused"
    assert "output off by" in found["reason"]
    assert "step" not in found


def test_a_missing_backend_is_unavailable_with_its_reason() -> None:
    found = speed_measure.measure_safely(config("triton"), 1.0)
    assert found["status"] == "unavailable"
    assert "triton" in found["reason"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
        (RuntimeError("an illegal memory access was encountered"), "failed"),
        (KeyError("gone"), "failed"),
    ],
)
def test_what_prevents_a_number_is_recorded(monkeypatch: pytest.MonkeyPatch, error: Exception, status: str) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(speed_measure, "Training", fail)
    found = speed_measure.measure_safely(config("transformer"), 1.0)
    assert found["status"] == status
    assert found.get("broken", False) == (status == "failed")


@pytest.mark.parametrize("backend", ["module", "compiled"])
def test_streaming_is_measured_per_observation(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    if backend == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr("tides.experiments.speed_streaming._STEPS", 20)
    monkeypatch.setattr("tides.experiments.speed_streaming._WARM_UP", 2)
    plain = {name: value for name, value in MODEL.items() if name != "compat"}
    found = speed_measure.measure(config(backend, workload="streaming", model=plain, length=1, batch=1), 1.0)
    assert found["step"]["repeats"] == 20
    assert 0 < found["step"]["median"] <= found["step"]["p99"]
    assert found["contract"]["forward"] < 1e-4


def test_a_step_that_drifts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tides.experiments.speed_streaming._deviation", lambda *_: 1e-3)
    plain = {name: value for name, value in MODEL.items() if name != "compat"}
    found = speed_measure.measure_safely(config("module", workload="streaming", model=plain, length=1, batch=1), 1.0)
    assert found["status"] == "refused"


@pytest.mark.slow
def test_a_worker_measures_in_its_own_process_and_is_ended_when_late(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(config())
    assert worker.measure(config(), 60.0)["status"] == "ok"
    assert not worker.fits(config())
    worker.close()
    monkeypatch.setattr(speed_worker, "_START", 0.0)
    late = Worker(config())
    assert late.measure(config(), 0.01)["status"] == "over the time limit"
    assert not late.fits(config())
