"""A model has as many threads as its batches keep busy, and whoever asked has theirs back."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tides.data import IrregularDataset, split, systems
from tides.nn import SequenceClassifier, TIDESConfig
from tides.training import Classification, TrainConfig, evaluate, fit, threads
from tides.training.threads import worthwhile_threads


class Watched(SequenceClassifier):
    """Writes down how many threads it had."""

    def __init__(self) -> None:
        super().__init__(
            TIDESConfig(input_size=2, hidden_size=4, state_size=2, depth=1, rank=1, mask_channels=True), classes=3
        )
        self.seen: set[int] = set()

    def forward(self, *arguments: Any, **named: Any) -> Tensor:
        self.seen.add(torch.get_num_threads())
        return super().forward(*arguments, **named)


@pytest.fixture
def data() -> IrregularDataset:
    return systems.classification(n=12, points=10)


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    assert torch.get_num_threads() == 4
    torch.set_num_threads(before)


def test_a_small_model_has_one(data: IrregularDataset) -> None:
    model = Watched()
    fit(model, Classification(), split(data, (0.5, 0.5)), TrainConfig(epochs=1, batch_size=3), progress=False)
    evaluate(model, Classification(), data, resamples=10)
    assert model.seen == {1}


@pytest.mark.parametrize(("share", "expected"), [(1.0, 1), (2.0, 2), (3.5, 3), (100.0, 4)])
def test_batches_with_work_for_several_have_several(
    share: float, expected: int, data: IrregularDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Watched()
    work = sum(parameter.numel() for parameter in model.parameters()) * float(data.lengths.mean()) * 5
    monkeypatch.setattr(threads, "_WORTH", work / share)
    with worthwhile_threads(model, data, 5):
        assert torch.get_num_threads() == expected


def test_threads_come_back_after_an_error(data: IrregularDataset) -> None:
    with pytest.raises(ZeroDivisionError), worthwhile_threads(Watched(), data, 5):
        raise ZeroDivisionError


def test_a_batch_is_no_larger_than_its_data(data: IrregularDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Watched()
    work = sum(parameter.numel() for parameter in model.parameters()) * int(data.lengths.sum())
    monkeypatch.setattr(threads, "_WORTH", work)
    with worthwhile_threads(model, data, 1000):
        assert torch.get_num_threads() == 1
