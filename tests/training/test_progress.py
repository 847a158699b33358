"""Whoever watches a run hears fractions, and the monitored metric if it wants to."""

import pytest

from tides.training.progress import ProgressBar


class Listener:
    def __init__(self) -> None:
        self.fractions: list[float] = []
        self.epochs: list[tuple[int, float]] = []

    def __call__(self, fraction: float) -> None:
        self.fractions.append(fraction)

    def epoch(self, epoch: int, value: float) -> None:
        self.epochs.append((epoch, value))


def test_a_listener_hears_of_every_epoch_with_a_value() -> None:
    listener = Listener()
    with ProgressBar(4, 5, "loss", listener) as bar:
        bar.epoch(5, 0.5)
        bar.epoch(10, None)
        bar.epoch(15, 0.25)
    assert listener.epochs == [(1, 0.5), (3, 0.25)]
    assert listener.fractions == [0.25, 0.5, 0.75]


def test_a_plain_function_hears_fractions_alone() -> None:
    fractions: list[float] = []
    with ProgressBar(2, 1, "loss", fractions.append) as bar:
        bar.epoch(1, 0.5)
    assert fractions == [0.5]


def test_a_log_file_has_lines_instead_of_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tides.training.progress._SECONDS_BETWEEN_LINES", 0.0)
    bar = ProgressBar(2, 1, "loss", True)
    bar.epoch(1, 0.5)
    bar.epoch(2, 0.25)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["epoch 2/2  val loss 0.5", "epoch 2/2  val loss 0.25"]
