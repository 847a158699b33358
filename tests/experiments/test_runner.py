import errno
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tides.errors import ConfigError, DataError, Diverged
from tides.experiments import runner
from tides.experiments.engines import Answers, Failure
from tides.experiments.runner import Cell, Context, run_cells
from tides.records import Record, read_records, write_record


class Toy(ModuleType):
    """An experiment that squares seeds and remembers what it was asked to do."""

    def __init__(self) -> None:
        super().__init__("toy")
        self.calls: list[list[int]] = []

    def run(self, cell: Cell, context: Context) -> Record:
        return self.run_stack([cell], context)[0]

    def run_stack(self, cells: list[Cell], context: Context) -> list[Record]:
        self.calls.append([cell.config["seed"] for cell in cells])
        if any(cell.config["seed"] == 13 for cell in cells):
            raise Diverged("the loss became NaN")
        if any(cell.config["seed"] == 14 for cell in cells):
            raise torch.OutOfMemoryError("tried to allocate 20.00 MiB")
        context.progress(0.5)
        return [cell.record({"square": cell.config["seed"] ** 2}, 0.0) for cell in cells]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    module = Toy()
    monkeypatch.setattr(runner, "find", lambda name: module)
    return module


def cells(seeds: Iterable[int], stack: str | None = "s", **more: Any) -> list[Cell]:
    return [Cell("toy", f"seed{seed}", {"seed": seed, **more}, stack=stack) for seed in seeds]


def test_complete_records_are_never_recomputed(toy: Toy, tmp_path: Path) -> None:
    first = run_cells(cells(range(3)), tmp_path)
    again = run_cells(cells(range(5)), tmp_path)
    assert (first.cached, first.computed) == (0, 3)
    assert (again.cached, again.computed) == (3, 2)
    assert toy.calls == [[0, 1, 2], [3, 4]]
    assert sorted(record.results["square"] for record in read_records(tmp_path)) == [0, 1, 4, 9, 16]


def test_a_changed_configuration_is_another_cell(toy: Toy, tmp_path: Path) -> None:
    run_cells(cells(range(1)), tmp_path)
    run_cells(cells(range(1), steps=2), tmp_path)
    assert len(read_records(tmp_path)) == 2


def test_cells_without_a_stack_run_one_by_one(toy: Toy, tmp_path: Path) -> None:
    run_cells(cells(range(2), stack=None), tmp_path)
    assert toy.calls == [[0], [1]]


def test_one_failing_stack_does_not_stop_the_others(toy: Toy, tmp_path: Path) -> None:
    outcome = run_cells([*cells(range(13, 14), "bad"), *cells(range(2), "good")], tmp_path)
    assert outcome.failed == {"bad": "the loss became NaN"}
    assert outcome.computed == 2
    assert len(read_records(tmp_path)) == 2


def test_a_stack_without_memory_does_not_stop_the_others(toy: Toy, tmp_path: Path) -> None:
    outcome = run_cells(cells(range(12, 16), stack=None), tmp_path, device="cpu")
    assert outcome.computed == 2
    assert "out of memory on cpu" in outcome.failed["seed14"]


def test_a_damaged_record_is_not_overwritten(toy: Toy, tmp_path: Path) -> None:
    cell = cells(range(1))[0]
    run_cells([cell], tmp_path)
    cell.path(tmp_path).write_text("{")
    with pytest.raises(DataError, match="delete it to have it recomputed"):
        run_cells([cell], tmp_path)


def test_a_folder_that_takes_no_records_is_found_before_anything_is_computed(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        run_cells(cells(range(2)), tmp_path / "file")
    assert toy.calls == []


def test_a_record_that_cannot_be_written_ends_what_is_at_work(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    class Busy:
        shares_files = True

        def run(self, jobs: Any, **_: Any) -> Answers[Any]:
            try:
                for name, job in jobs.items():
                    yield name, job(lambda fraction: None)
            finally:
                ended.extend(jobs)

    def full(path: Path, record: Record) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runner, "write_record", full)
    with pytest.raises(OSError, match="No space left") as error:
        run_cells(cells(range(2), stack=None), tmp_path, engine=Busy())
    # The exception, and with it everything that it saw, is still there.
    assert error.value.__traceback__ is not None
    assert len(ended) == 2
    assert toy.calls == [[0]]


@pytest.fixture
def training(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A toy that leaves something behind to continue from."""
    plain = toy.run_stack

    def run_stack(cells: list[Cell], context: Context) -> list[Record]:
        assert context.scratch is not None
        context.scratch.mkdir(parents=True, exist_ok=True)
        (context.scratch / "checkpoint").touch()
        return plain(cells, context)

    monkeypatch.setattr(toy, "run_stack", run_stack)
    return toy


def test_what_a_stack_continues_from_stays_until_it_is_complete(training: Toy, tmp_path: Path) -> None:
    assert run_cells([*cells(range(2), "good"), *cells(range(13, 14), "bad")], tmp_path).failed.keys() == {"bad"}
    (kept,) = (path for path in (tmp_path / "unfinished").iterdir() if path.is_dir())
    assert kept.name == cells(range(13, 14))[0].id
    assert run_cells(cells(range(3), "good"), tmp_path / "other").computed == 3
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["records"]


def test_nothing_is_left_of_a_stack_whose_run_was_killed_between_its_records(
    training: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_first(path: Path, record: Record) -> None:
        if record.config["seed"] == 1:
            raise KeyboardInterrupt
        write_record(path, record)

    monkeypatch.setattr(runner, "write_record", write_first)
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells(range(3)), tmp_path)
    assert (tmp_path / "unfinished").exists()
    monkeypatch.undo()
    monkeypatch.setattr(runner, "find", lambda name: training)
    assert run_cells(cells(range(3)), tmp_path).computed == 2
    assert not (tmp_path / "unfinished").exists()


def test_a_stack_that_another_run_computes_is_left_to_it(training: Toy, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    two = [*cells(range(2), "theirs"), *cells(range(2, 4), "ours")]
    with runner._claimed(runner._scratch(two[0], tmp_path)):
        outcome = run_cells(two, tmp_path)
    assert outcome.computed == 2
    assert list(outcome.failed) == ["theirs"]
    assert "another process computes it in" in outcome.failed["theirs"]
    assert training.calls == [[2, 3]]
    assert run_cells(two, tmp_path).computed == 2


def test_a_stack_that_another_run_completes_meanwhile_is_no_failure(training: Toy, tmp_path: Path) -> None:
    class Refused:
        shares_files = True

        def run(self, jobs: Any, **_: Any) -> Answers[Any]:
            yield next(iter(jobs)), Failure("another process computes it")
            run_cells(cells(range(2)), tmp_path)

    outcome = run_cells(cells(range(2)), tmp_path, engine=Refused())
    assert (outcome.cached, outcome.computed, outcome.failed) == (2, 0, {})


def test_a_stack_that_another_run_has_computed_meanwhile_is_not_computed_again(training: Toy, tmp_path: Path) -> None:
    class Later:
        """Another run is done before this one begins."""

        shares_files = True

        def run(self, jobs: Any, **_: Any) -> Answers[Any]:
            run_cells(cells(range(2)), tmp_path)
            for name, job in jobs.items():
                yield name, job(lambda fraction: None)

    assert run_cells(cells(range(3)), tmp_path, engine=Later()).failed == {}
    assert training.calls == [[0, 1], [2]]
    assert len(read_records(tmp_path)) == 3


def test_progress_counts_cells_and_ends_at_their_number(toy: Toy, tmp_path: Path) -> None:
    run_cells(cells(range(1)), tmp_path)
    seen: list[tuple[float, list[str]]] = []
    run_cells(cells(range(5)), tmp_path, watch=lambda done, labels: seen.append((done, labels)))
    assert seen == [(1, []), (3.0, ["s"]), (5.0, [])]


def test_file_names_are_readable_and_safe(tmp_path: Path) -> None:
    cell = Cell("toy", "my.pkg:build/seed0", {"seed": 0})
    assert cell.path(tmp_path) == tmp_path / "records" / f"my.pkg_build_seed0-{cell.id}.json"


def test_a_plan_has_every_cell_once_and_is_never_empty(monkeypatch: pytest.MonkeyPatch, toy: Toy) -> None:
    monkeypatch.setattr(toy, "cells", lambda config, **_: cells(config["seeds"]), raising=False)
    found = runner.plan(toy, {"seeds": [3, 4, 3]}, variant="paper", quick=False)
    assert [cell.config["seed"] for cell in found] == [3, 4]
    with pytest.raises(ConfigError, match="seeds: found nothing to run"):
        runner.plan(toy, {"seeds": []}, variant="paper", quick=False)


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(ConfigError, match="experiment: found 'nonsense', known are fading-flash"):
        runner.find("nonsense")


def test_nothing_new_is_started_after_the_time_limit(toy: Toy, tmp_path: Path) -> None:
    two = [*cells(range(2), "first"), *cells(range(5, 6), "second")]
    outcome = run_cells(two, tmp_path, time_limit=0)
    assert (outcome.computed, outcome.postponed, toy.calls) == (0, 3, [])
    assert run_cells(two, tmp_path).computed == 3


def test_cells_that_cannot_run_here_are_named_and_leave_no_record(toy: Toy, tmp_path: Path) -> None:
    toy.obstacle = lambda cell: "its data is not at hand" if cell.config["seed"] > 1 else None  # type: ignore[attr-defined]
    outcome = run_cells([*cells(range(2), "here"), *cells(range(2, 4), "lost")], tmp_path)
    assert outcome.unavailable == {"lost": "its data is not at hand"}
    assert (outcome.computed, outcome.failed, outcome.postponed) == (2, {}, 0)
    assert len(read_records(tmp_path)) == 2
