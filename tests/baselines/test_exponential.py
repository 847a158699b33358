"""Exponentials of fixed work against torch's and against closed forms."""

import math

import pytest
import torch

from tides.baselines.exponential import LONGEST, propagators, steps, taylor_exponential, transition


@pytest.mark.parametrize(("norm", "tolerance"), [(0.5, 2e-7), (0.1, 1e-12)])
def test_the_series_of_a_small_matrix(norm: float, tolerance: float) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(2, 5, 5, dtype=torch.float64)
    matrix = norm * matrix / torch.linalg.matrix_norm(matrix, 2)[:, None, None]
    torch.testing.assert_close(taylor_exponential(matrix), torch.matrix_exp(matrix), rtol=0, atol=tolerance)


def test_one_matrix_and_many_gaps() -> None:
    torch.manual_seed(1)
    matrix = 3 * torch.randn(6, 6, dtype=torch.float64) / math.sqrt(6)
    gaps = torch.tensor([0.0, 1e-4, 1 / 256, 1 / 99, 0.3, 1.0, 2.5, LONGEST], dtype=torch.float64)
    state = torch.randn(len(gaps), 6, dtype=torch.float64)
    flow = propagators(matrix)
    found = flow.advance(state, *steps(gaps))
    wanted = (torch.matrix_exp(matrix * gaps[:, None, None]) @ state[..., None])[..., 0]
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
    assert torch.equal(found[0], state[0])


def test_gaps_beyond_the_longest_count_as_it() -> None:
    flow = propagators(torch.tensor([[-0.5]], dtype=torch.float64))
    state = torch.ones(2, 1, dtype=torch.float64)
    found = flow.advance(state, *steps(torch.tensor([LONGEST, 1e9], dtype=torch.float64)))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.7, 5.0])
def test_moments_of_an_ornstein_uhlenbeck_process(gap: float) -> None:
    """Variance q/(2θ) (1 − e^{−2θΔ}), channel by channel."""
    theta, noise = torch.tensor([[0.1, 1.0, 4.0], [0.5, 2.0, 1.0]], dtype=torch.float64)
    transfer, covariance = transition(torch.diag(-theta), noise, torch.tensor(gap, dtype=torch.float64), squarings=8)
    torch.testing.assert_close(transfer, torch.diag(torch.exp(-theta * gap)))
    wanted = noise / (2 * theta) * -torch.expm1(-2 * theta * gap)
    torch.testing.assert_close(covariance, torch.diag(wanted), rtol=1e-9, atol=1e-12)


def test_moments_against_the_block_exponential() -> None:
    torch.manual_seed(2)
    matrix, noise = torch.randn(4, 4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    transfer, covariance = transition(matrix, noise, torch.tensor(0.8, dtype=torch.float64), squarings=6)
    block = torch.cat([torch.cat([-matrix, torch.diag(noise)], 1), torch.cat([torch.zeros_like(matrix), matrix.T], 1)])
    whole = torch.matrix_exp(0.8 * block)
    torch.testing.assert_close(transfer, whole[4:, 4:].T)
    torch.testing.assert_close(covariance, whole[4:, 4:].T @ whole[:4, 4:])
