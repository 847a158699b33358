"""Jobs that take turns in one process."""

import pytest

from tides.errors import TidesError
from tides.experiments.engines import Failure, Progress, Streams
from tides.turns import Turns, finished


class Job:
    """Takes three turns, or fails in its second one."""

    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.name, self.log, self.error = name, log, error

    def __call__(self, progress: Progress) -> str:
        return finished(self.turns(progress))

    def turns(self, progress: Progress) -> Turns[str]:
        for turn in range(3):
            self.log.append(self.name)
            if turn == 1 and self.error is not None:
                raise self.error
            yield
        return self.name


def test_jobs_take_turns_and_failures_are_their_own() -> None:
    log: list[str] = []
    jobs = {"a": Job("a", log), "b": Job("b", log, TidesError("no room")), "c": Job("c", log)}
    assert dict(Streams(2).run(jobs)) == {"a": "a", "b": Failure("no room"), "c": "c"}
    assert log == ["a", "b", "a", "b", "a", "c", "c", "c"]


def test_a_defect_is_raised_after_the_others_have_ended() -> None:
    log: list[str] = []
    results = Streams(2).run({"a": Job("a", log, ZeroDivisionError()), "b": Job("b", log)})
    assert next(results) == ("b", "b")
    with pytest.raises(ZeroDivisionError):
        next(results)
