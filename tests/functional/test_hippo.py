"""HiPPO-LegS against a construction by its defining entries."""

import math

import numpy as np
import pytest
import torch

from tides.errors import ConfigError
from tides.functional import hippo_blocks, hippo_legs


def legs_matrix(size: int) -> np.ndarray:
    """The full HiPPO-LegS matrix entry by entry."""
    a = np.zeros((size, size))
    for n in range(size):
        for k in range(n + 1):
            a[n, k] = -(n + 1) if n == k else -math.sqrt((2 * n + 1) * (2 * k + 1))
    return a


@pytest.mark.parametrize("size", [1, 2, 5, 8, 16])
def test_the_diagonal_form_is_the_normal_part(size: int) -> None:
    lam, vectors = (part.numpy() for part in hippo_legs(size))
    low_rank = np.array([math.sqrt(n + 0.5) for n in range(size)])
    normal = vectors @ np.diag(lam) @ vectors.conj().T
    assert np.abs(normal - low_rank[:, None] * low_rank - legs_matrix(size)).max() < 1e-11
    assert np.abs(vectors.conj().T @ vectors - np.eye(size)).max() < 1e-12


def test_every_mode_decays_at_one_half_in_conjugate_pairs() -> None:
    lam = hippo_legs(8).lam.numpy()
    assert np.abs(lam.real + 0.5).max() < 1e-14
    assert np.abs(np.sort(lam.imag) + np.sort(lam.imag)[::-1]).max() < 1e-12
    normal = legs_matrix(8) + np.outer(*[np.sqrt(np.arange(8) + 0.5)] * 2)
    assert np.abs(np.sort(np.linalg.eigvals(normal).imag) - np.sort(lam.imag)).max() < 1e-10


def test_blocks_stand_side_by_side() -> None:
    one, three = hippo_legs(4), hippo_blocks(12, 3)
    assert all(torch.equal(found, wanted) for found, wanted in zip(hippo_blocks(4), one, strict=True))
    assert torch.equal(three.lam, one.lam.repeat(3))
    for i in range(3):
        rows = slice(4 * i, 4 * i + 4)
        assert torch.equal(three.eigenvectors[rows, rows], one.eigenvectors)
    assert int(three.eigenvectors.abs().gt(0).sum()) <= 48


def test_the_half_form_keeps_one_of_each_pair() -> None:
    whole, half = hippo_blocks(8, 2), hippo_blocks(8, 2, half=True)
    assert half.lam.shape == (4,)
    assert half.eigenvectors.shape == (8, 4)
    both = torch.cat([half.lam, half.lam.conj()])
    assert np.allclose(sorted(both.imag.tolist()), sorted(whole.lam.imag.tolist()), atol=1e-12)
    # A real vector is recovered from half of its coefficients: x = 2 Re(V V* x).
    x = torch.randn(8, dtype=torch.float64)
    again = 2 * (half.eigenvectors @ (half.eigenvectors.mH @ x.to(torch.complex128))).real
    assert torch.allclose(again, x, atol=1e-12)


def test_impossible_sizes_are_named() -> None:
    with pytest.raises(ConfigError, match="groups"):
        hippo_blocks(8, 3)
    with pytest.raises(ConfigError, match="groups"):
        hippo_blocks(8, 0)
    with pytest.raises(ConfigError, match="conjugate"):
        hippo_blocks(6, 2, half=True)
