"""A captured step leaves no trace of the runs that capturing needs."""

from collections.abc import Callable

import torch

from tides.training.replay import Replay
from tides.training.tracks import CPUTrack


class Capturing(CPUTrack):
    """Runs the work beforehand, as a track does that captures it."""

    def prepare(self, work: Callable[[], None], undo: Callable[[], None] = lambda: None) -> Callable[[], None]:
        for _ in range(3):
            work()
            undo()
        return work


def test_state_and_random_numbers_are_put_back_after_every_run() -> None:
    track, cursor, found = Capturing(0), torch.zeros((), dtype=torch.int64), torch.zeros(3)

    def work() -> None:
        # Fails on a second run that the first was not undone before.
        found[cursor : cursor + 3].copy_(torch.rand(3))
        cursor.add_(3)
        assert cursor <= 3

    with track.use():
        Replay(work, [cursor, found], track, captured=True)()
    assert cursor == 3
    torch.testing.assert_close(found, torch.rand(3, generator=torch.Generator().manual_seed(0)))
