"""Statistics in one pass, in pieces and step by step, against numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from tests.comparison import assert_close
from tests.tolerances import EXACT, IDENTITY
from tides.functional.summary import (
    LARGEST_SCORE,
    SHORTEST,
    SMALLEST_SQUARE,
    STATISTICS,
    doubled_sums,
    scores,
    statistics,
    statistics_size,
    sums_size,
    take_in,
    wait,
)

CHANNELS = 2
Rows = tuple[Tensor, Tensor, Tensor, Tensor]


def rows(seed: int, b: int = 3, l: int = 9, share: float = 0.6) -> Rows:
    """Values, gaps (some of them zero), what is observed, and which steps there are."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(b, l, CHANNELS, generator=generator, dtype=torch.float64)
    gaps = 2 * torch.rand(b, l, generator=generator, dtype=torch.float64)
    gaps[:, 3:4] = 0
    observed = torch.rand(b, l, CHANNELS, generator=generator) < share
    lengths = torch.randint(1, l + 1, (b, 1), generator=generator)
    return x, gaps, observed, torch.arange(l) < lengths


def nothing(b: int = 3) -> Tensor:
    return torch.zeros(b, sums_size(CHANNELS), dtype=torch.float64)


def by_numpy(x: np.ndarray, gaps: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One series without padding, each statistic as its definition has it."""
    times = np.concatenate([[0.0], np.cumsum(gaps[1:])])
    found = np.zeros((STATISTICS, CHANNELS))
    for d in range(CHANNELS):
        values, moments = x[seen[:, d], d], times[seen[:, d]]
        found[0, d] = len(values)
        if len(values):
            slope = ((moments - moments.mean()) * (values - values.mean())).sum()
            slope /= ((moments - moments.mean()) ** 2).sum() + 1
            spread = np.sqrt(values.var() + SMALLEST_SQUARE)
            found[1:, d] = [values.mean(), spread, values[0], values[-1], values.min(), values.max(), slope]
    inner = gaps[1:] if len(gaps) > 1 else np.zeros(1)
    logs = np.log(np.maximum(gaps[1:], SHORTEST)).mean() if len(gaps) > 1 else 0.0
    known = np.ones((STATISTICS, CHANNELS), bool)
    known[1:] = seen.any(0)
    series = [len(x), times[-1], inner.mean(), logs]
    return np.concatenate([found.ravel(), series]), np.concatenate([known.ravel(), np.ones(4, bool)])


@settings(max_examples=20)
@given(seed=st.integers(0, 2**20), share=st.sampled_from([0.0, 0.3, 1.0]))
def test_equal_numpy(seed: int, share: float) -> None:
    x, gaps, observed, valid = rows(seed, share=share)
    found, known = statistics(take_in(nothing(), x, gaps, observed, valid), CHANNELS)
    assert found.shape == (3, statistics_size(CHANNELS))
    for k, length in enumerate(valid.sum(1).tolist()):
        one = (x[k, :length].numpy(), gaps[k, :length].numpy(), observed[k, :length].numpy())
        wanted, flags = by_numpy(*one)
        assert np.array_equal(known[k].numpy(), flags)
        assert_close(found[k][known[k]], torch.from_numpy(wanted)[known[k]], EXACT)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**20), cut=st.integers(1, 8))
def test_pieces_equal_the_whole(seed: int, cut: int) -> None:
    x, gaps, observed, valid = rows(seed)
    valid = torch.ones_like(valid)
    whole = take_in(nothing(), x, gaps, observed, valid)
    state = nothing()
    for part in (slice(cut), slice(cut, None)):
        state = take_in(state, x[:, part], gaps[:, part], observed[:, part], valid[:, part])
    assert_close(state, whole, EXACT, "pieces")
    state = nothing()
    for k in range(9):
        # Time that passes before a step is a part of the gap before it.
        state = wait(state, 0.25 * gaps[:, k])
        before = gaps[:, k] if k == 0 else 0.75 * gaps[:, k]
        state = take_in(state, x[:, k : k + 1], before.unsqueeze(1), observed[:, k : k + 1], valid[:, :1])
    assert_close(state, whole, EXACT, "steps")


@pytest.mark.parametrize("l", [1, 2, 7, 64, 65])
def test_sums_in_passes_are_running_sums(l: int) -> None:
    x = torch.rand(3, l, dtype=torch.float64)
    assert_close(doubled_sums(x), x.cumsum(1), EXACT)


@pytest.mark.gpu
def test_statistics_on_a_gpu_where_algorithms_must_be_deterministic() -> None:
    given = [x.cuda() for x in rows(3)]
    wanted = take_in(nothing(), *rows(3))
    torch.use_deterministic_algorithms(True)
    try:
        assert_close(take_in(nothing().cuda(), *given).cpu(), wanted, EXACT)
    finally:
        torch.use_deterministic_algorithms(False)


def test_padding_may_hold_anything() -> None:
    x, gaps, observed, valid = rows(1)
    wanted = take_in(nothing(), x, gaps, observed, valid)
    x = torch.where(valid.unsqueeze(-1), x, torch.full_like(x, torch.nan))
    gaps = torch.where(valid, gaps, torch.full_like(gaps, 1e9))
    assert torch.equal(take_in(nothing(), x, gaps, observed | ~valid.unsqueeze(-1), valid), wanted)


def test_a_long_stream_of_values_far_from_zero_does_not_drift() -> None:
    """In plain sums of squares and products nothing would be left of them."""
    l, piece = 20_000, 500
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, l, CHANNELS, generator=generator, dtype=torch.float64)
    gaps = 1e4 * torch.rand(1, l, generator=generator, dtype=torch.float64)
    x, state = 1e6 + noise, nothing(1)
    seen, valid = torch.ones_like(x, dtype=torch.bool), torch.ones_like(gaps, dtype=torch.bool)
    for begin in range(0, l, piece):
        part = slice(begin, begin + piece)
        state = take_in(state, x[:, part], gaps[:, part], seen[:, part], valid[:, part])
    found = statistics(state, CHANNELS)[0][0]
    wanted, _ = by_numpy(noise[0].numpy(), gaps[0].numpy(), seen[0].numpy())
    spread, slope = slice(2 * CHANNELS, 3 * CHANNELS), slice(7 * CHANNELS, 8 * CHANNELS)
    # A millionth of the values is what their own digits leave of the noise, of which the slope is a small part.
    assert_close(found[spread], torch.from_numpy(wanted)[spread], IDENTITY, "spread")
    assert_close(found[slope] * 1e4, torch.from_numpy(wanted)[slope] * 1e4, 1e-6, "slope")


def test_derivatives() -> None:
    """Of series with several values in each channel: the spread of a single one has a kink."""
    x, gaps, observed, valid = rows(2, share=0.8)
    valid = torch.ones_like(valid)
    assert bool((observed.sum(1) > 2).all())

    def found(x: Tensor, gaps: Tensor) -> Tensor:
        return statistics(take_in(nothing(), x, gaps, observed, valid), CHANNELS)[0]

    gaps = (gaps + 0.1).requires_grad_()
    assert gradcheck(found, [x.requires_grad_(), gaps], check_forward_ad=True)
    assert gradgradcheck(found, [x, gaps], fast_mode=True)


def test_equal_values_have_finite_derivatives() -> None:
    x = torch.ones(1, 4, CHANNELS, dtype=torch.float64, requires_grad=True)
    gaps, seen = torch.zeros(1, 4).double(), torch.ones(1, 4, CHANNELS, dtype=torch.bool)
    statistics(take_in(nothing(1), x, gaps, seen, seen[..., 0]), CHANNELS)[0].sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


def test_scores_are_bounded_and_zero_where_nothing_is_known() -> None:
    found = torch.tensor([[1.0, 1e30, -1e30, 7.0]]).double()
    known = torch.tensor([[True, True, True, False]])
    z = scores(found, known, torch.zeros(4), torch.ones(4))
    assert z.dtype == torch.float32
    wanted = [LARGEST_SCORE * np.tanh(1 / LARGEST_SCORE), LARGEST_SCORE, -LARGEST_SCORE, 0.0]
    assert z[0].tolist() == pytest.approx(wanted)
