import os
import signal
import time
from typing import Any

import pytest

from tides.errors import ConfigError
from tides.experiments.engines import Engine, Failure, Processes, Progress


class Square:
    """A job that can be sent to another process."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, progress: Progress) -> tuple[int, int]:
        progress(0.5)
        if self.number == 13:
            raise ConfigError("number: found 13")
        if self.number == 14:
            raise ZeroDivisionError
        return self.number**2, os.getpid()


class Die:
    def __call__(self, progress: Progress) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def squares(*numbers: int) -> dict[str, Square]:
    return {f"n{number}": Square(number) for number in numbers}


def test_one_worker_is_this_process() -> None:
    seen: list[tuple[str, float]] = []
    engine: Engine = Processes()
    found = dict(engine.run(squares(2, 13, 3), post=lambda name, part: seen.append((name, part))))
    assert found == {"n2": (4, os.getpid()), "n13": Failure("number: found 13"), "n3": (9, os.getpid())}
    assert seen == [("n2", 0.5), ("n13", 0.5), ("n3", 0.5)]


def test_results_are_handed_over_one_by_one() -> None:
    results = Processes().run(squares(2, 14))
    assert next(results) == ("n2", (4, os.getpid()))
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_started_after_the_deadline(workers: int) -> None:
    assert list(Processes(workers).run(squares(2, 3, 4), deadline=time.perf_counter())) == []


@pytest.mark.slow
def test_several_workers_are_other_processes() -> None:
    seen: set[str] = set()
    found: dict[str, Any] = {}

    def collect() -> None:
        found.update(Processes(2).run(squares(2, 13, 14, 3), post=lambda name, part: seen.add(name)))

    with pytest.raises(ZeroDivisionError):
        collect()
    assert found.keys() == {"n2", "n13", "n3"}
    assert found["n13"] == Failure("number: found 13")
    assert [found[name][0] for name in ("n2", "n3")] == [4, 9]
    assert os.getpid() not in (found["n2"][1], found["n3"][1])
    assert seen <= {"n2", "n13", "n14", "n3"}


@pytest.mark.slow
def test_a_killed_worker_is_named_as_such() -> None:
    found: dict[str, Any] = dict(Processes(2).run({"a": Die(), "b": Die()}))
    assert [type(answer) for answer in found.values()] == [Failure, Failure]
    assert "its worker process was killed" in found["a"].message
