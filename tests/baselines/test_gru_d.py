"""GRU-D against its equations one step and one channel at a time; the prior against frequencies."""

import numpy as np
import torch

from tests.baselines.small import draw, make
from tides.baselines.gru_d import GRUD
from tides.baselines.prior import ClassPrior


def sigmoid(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-x))
    return result


def test_against_the_equations() -> None:
    model, batch = make("gru-d").eval(), draw()
    assert isinstance(model, GRUD)
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    h_size = model.cell.hidden_size
    expected = []
    for row in range(3):
        h = np.zeros(h_size)
        last, since = np.zeros(3), np.zeros(3)
        for k in range(int(batch.valid[row].sum())):
            x, m = batch.values[row, k].numpy(), batch.observed[row, k].numpy().astype(float)
            since = since + (float(batch.gaps[row, k]) if k else 0.0)
            gamma = np.exp(-np.maximum(0, w["input_rate"] * since + w["input_shift"]))
            filled = m * x + (1 - m) * (gamma * last)
            h = h * np.exp(-np.maximum(0, w["state_decay.weight"] @ since + w["state_decay.bias"]))
            both = np.concatenate([filled, m])
            from_x = w["cell.weight_ih"] @ both + w["cell.bias_ih"]
            from_h = w["cell.weight_hh"] @ h + w["cell.bias_hh"]
            reset = sigmoid(from_x[:h_size] + from_h[:h_size])
            update = sigmoid(from_x[h_size : 2 * h_size] + from_h[h_size : 2 * h_size])
            new = np.tanh(from_x[2 * h_size :] + reset * from_h[2 * h_size :])
            h = (1 - update) * new + update * h
            last, since = np.where(m > 0, x, last), np.where(m > 0, 0.0, since)
        expected.append(w["head.weight"] @ h + w["head.bias"])
    found = model(batch.values, batch.gaps, observed=batch.observed, valid=batch.valid)
    np.testing.assert_allclose(found.detach().numpy(), np.stack(expected), rtol=1e-9, atol=1e-11)


def test_prior_is_the_frequency_of_the_classes() -> None:
    model, batch = make("class-prior"), draw()
    assert isinstance(model, ClassPrior)
    model.fit(torch.tensor([0, 0, 0, 1, 3, 3]))
    logits = model(batch.values, batch.gaps, observed=batch.observed, valid=batch.valid)
    assert logits.shape == (3, 4)
    torch.testing.assert_close(logits.softmax(-1)[0], torch.tensor([4.0, 2.0, 1.0, 3.0]).double() / 10)
