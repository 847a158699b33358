"""CRU against Kalman filters that keep the whole covariance and know it in closed form."""

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from tests.baselines.small import make
from tides.baselines import build
from tides.baselines.cru import CRU, Belief, predict, update
from tides.baselines.exponential import transition
from tides.errors import ConfigError


def dense(belief: Belief) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the first series."""
    return belief.mean[0].numpy(), belief.covariance[0].numpy()


def moments(matrix: np.ndarray, noise: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """exp(A Δ) and the integrated noise by the block exponential."""
    n = len(matrix)
    block = np.block([[-matrix, np.diag(noise)], [np.zeros((n, n)), matrix.T]])
    whole = expm(block * gap)
    return whole[n:, n:].T, whole[n:, n:].T @ whole[:n, n:]


def test_a_walk_of_an_exact_kalman_filter() -> None:
    """With diagonal blocks the three diagonals are the whole covariance, so the two filters are the same."""
    m = 3
    source = np.random.default_rng(0)
    matrix = np.block([[np.diag(source.normal(size=m)) for _ in "ab"] for _ in "cd"])
    noise = source.uniform(0.1, 1.0, 2 * m)
    model = make("cru", latent_size=2 * m, bandwidth=0, bases=1)
    assert isinstance(model, CRU)
    with torch.no_grad():
        model.basis.copy_(torch.from_numpy(matrix)[None])
        model.log_noise.copy_(torch.from_numpy(noise).log())
        belief = model.start(1)
        mean, covariance = dense(belief)
        observe = np.hstack([np.eye(m), np.zeros((m, m))])
        for step in range(6):
            gap, seen = float(source.uniform(0, 1.5)), step != 3
            y, variance = source.normal(size=m), source.uniform(0.1, 1.0, m)
            belief = model.advanced(belief, torch.tensor([gap], dtype=torch.float64))
            y_row, v_row = torch.from_numpy(y)[None], torch.from_numpy(variance)[None]
            belief = update(belief, y_row, v_row, torch.tensor([[seen]]))
            transfer, integrated = moments(matrix, noise, gap)
            mean, covariance = transfer @ mean, transfer @ covariance @ transfer.T + integrated
            if seen:
                gain = covariance @ observe.T @ np.linalg.inv(observe @ covariance @ observe.T + np.diag(variance))
                mean = mean + gain @ (y - observe @ mean)
                covariance = covariance - gain @ observe @ covariance
            found_mean, found_covariance = dense(belief)
            np.testing.assert_allclose(found_mean, mean, rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(found_covariance, covariance, rtol=1e-8, atol=1e-9)


def test_closed_form_of_a_decaying_channel() -> None:
    """An Ornstein-Uhlenbeck process seen once: variance v e^{−2θΔ} + q/(2θ)(1 − e^{−2θΔ}), then the product rule."""
    theta, noise, gap, variance, y = 0.7, 0.4, 1.3, 0.2, 1.5
    identity = torch.eye(2, dtype=torch.float64)
    start = Belief(torch.tensor([[0.5, 0.0]], dtype=torch.float64), torch.diag(torch.tensor([2.0, 1.0])).double()[None])
    moving = transition(
        -theta * identity[None], torch.full((2,), noise).double(), torch.tensor([gap], dtype=torch.float64), squarings=6
    )
    prior = predict(start, *moving, torch.ones_like(identity))
    decay = np.exp(-theta * gap)
    expected = 2.0 * decay**2 + noise / (2 * theta) * (1 - decay**2)
    assert float(prior.covariance[0, 0, 0]) == pytest.approx(expected, rel=1e-7)
    seen = update(prior, torch.tensor([[y]]), torch.tensor([[variance]]), torch.tensor([[True]]))
    left = float(seen.covariance[0, 0, 0])
    assert left == pytest.approx(1 / (1 / expected + 1 / variance), rel=1e-6)
    assert float(seen.mean[0, 0]) == pytest.approx((0.5 * decay / expected + y / variance) * left, rel=1e-6)


def test_only_the_diagonals_of_the_blocks_are_kept() -> None:
    """Banded blocks: one prediction against the full product, and an update that makes no new entries."""
    torch.manual_seed(0)
    model = make("cru", latent_size=8)
    assert isinstance(model, CRU)
    matrix, noise = torch.randn(1, 8, 8, dtype=torch.float64), torch.rand(8, dtype=torch.float64)
    belief = Belief(torch.rand(1, 8, dtype=torch.float64), (torch.eye(8) + 0.2 * model.diagonals)[None])
    moving = transition(matrix, noise, torch.tensor([0.6], dtype=torch.float64), squarings=6)
    found = predict(belief, *moving, model.diagonals)
    transfer, integrated = moments(matrix[0].numpy(), noise.numpy(), 0.6)
    full = transfer @ dense(belief)[1] @ transfer.T + integrated
    np.testing.assert_allclose(dense(found)[1], full * model.diagonals.numpy(), rtol=1e-7)
    seen = update(found, torch.randn(1, 4).double(), torch.rand(1, 4).double(), torch.tensor([[True]]))
    assert not (seen.covariance * (1 - model.diagonals)).any()


def test_nothing_observed_leaves_the_belief() -> None:
    belief = Belief(torch.rand(2, 6, dtype=torch.float64), torch.eye(6, dtype=torch.float64).expand(2, 6, 6))
    after = update(belief, torch.full((2, 3), 1e9), torch.ones(2, 3), torch.tensor([[False], [False]]))
    assert all(torch.equal(a, b) for a, b in zip(after, belief, strict=True))


def test_two_halves() -> None:
    with pytest.raises(ConfigError, match="latent_size: found 7, wanted an even number"):
        build("cru", input_size=2, latent_size=7)
