"""The floor of every table, entry by entry."""

import torch

from tests.baselines.small import answer, draw, make


def test_zero_is_the_calibrated_mean() -> None:
    model = make("zero")
    model.calibrate(torch.ones(3), torch.tensor([1.0, -2.0, 3.0]), torch.ones(3))  # type: ignore[operator]
    found = answer("zero", model, draw())
    torch.testing.assert_close(found[0], torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64).expand(4, 3))
    assert not found[1, -1].any()  # a padded query


def test_last_value_and_mean_of_the_observed() -> None:
    values = torch.tensor([[[1.0, 5.0], [2.0, 6.0], [4.0, 7.0]]])
    observed = torch.tensor([[[True, False], [True, False], [False, False]]])
    times, queries = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[-1.0, 0.5, 1.0, 9.0]])
    last = make("last-value", input_size=2)
    mean = make("observed-mean", input_size=2)
    for model in (last, mean):  # units of the channels come and go
        model.calibrate(torch.ones(1), torch.tensor([0.0, 3.0]), torch.tensor([2.0, 2.0]))  # type: ignore[operator]
    found = last(values, times, observed, queries)
    assert found[0, :, 0].tolist() == [0.0, 1.0, 2.0, 2.0]
    assert found[0, :, 1].tolist() == [3.0] * 4
    found = mean(values, times, observed, queries)
    assert found[0, :, 0].tolist() == [1.5] * 4
    assert found[0, :, 1].tolist() == [3.0] * 4
