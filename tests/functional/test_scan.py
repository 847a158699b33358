"""The recurrence by itself."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.errors import ShapeError
from tides.functional import linear_scan
from tides.functional.scan import check_scan, sequence_bounds

DTYPES = [torch.float64, torch.complex128, torch.float32, torch.complex64]


def operands(b: int, l: int, p: int, dtype: torch.dtype = torch.complex128) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(b, l, p, dtype=dtype), torch.randn(b, l, p, dtype=dtype), torch.randn(b, p, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("given_state", [False, True])
def test_equals_numbers_computed_one_by_one(dtype: torch.dtype, reverse: bool, given_state: bool) -> None:
    a, b, s0 = operands(2, 5, 3, dtype)
    s, last = linear_scan(a, b, s0 if given_state else None, reverse=reverse)
    assert s.dtype == dtype
    for i in range(2):
        for p in range(3):
            state = s0[i, p].item() if given_state else 0.0
            for k in reversed(range(5)) if reverse else range(5):
                state = a[i, k, p].item() * state + b[i, k, p].item()
                assert abs(s[i, k, p].item() - state) < 1e-4 * (1 + abs(state))
            assert last[i, p] == s[i, 0 if reverse else 4, p]


@given(l1=st.integers(1, 5), l2=st.integers(1, 5), reverse=st.booleans())
def test_a_scan_continues_where_another_ended(l1: int, l2: int, reverse: bool) -> None:
    a, b, s0 = operands(2, l1 + l2, 3)
    whole, last = linear_scan(a, b, s0, reverse=reverse)
    first, second = (slice(l1, None), slice(0, l1)) if reverse else (slice(0, l1), slice(l1, None))
    s1, middle = linear_scan(a[:, first], b[:, first], s0, reverse=reverse)
    s2, end = linear_scan(a[:, second], b[:, second], middle, reverse=reverse)
    assert_close(torch.cat([s2, s1] if reverse else [s1, s2], dim=1), whole, EXACT)
    assert_close(end, last, EXACT)


@given(l=st.integers(1, 6))
def test_reverse_is_flip_scan_flip(l: int) -> None:
    a, b, s0 = operands(2, l, 3)
    s, last = linear_scan(a, b, s0, reverse=True)
    flipped, flipped_last = linear_scan(a.flip(1), b.flip(1), s0)
    assert torch.equal(s, flipped.flip(1))
    assert torch.equal(last, flipped_last)


@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4), reverse=st.booleans(), given_state=st.booleans())
def test_packed_sequences_equal_separate_ones(lengths: list[int], reverse: bool, given_state: bool) -> None:
    bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    a, b, _ = operands(1, bounds[-1], 3)
    s0 = torch.randn(len(lengths), 3, dtype=torch.complex128) if given_state else None
    s, last = linear_scan(a, b, s0, reverse=reverse, cu_seqlens=torch.tensor(bounds))
    assert last.shape == (len(lengths), 3)
    for i in range(len(lengths)):
        part = slice(bounds[i], bounds[i + 1])
        start = None if s0 is None else s0[i : i + 1]
        wanted, wanted_last = linear_scan(a[:, part], b[:, part], start, reverse=reverse)
        assert_close(s[:, part], wanted, EXACT)
        assert_close(last[i : i + 1], wanted_last, EXACT)


def test_gradients_flow_through_the_last_state_and_the_first() -> None:
    a, b, s0 = (x.requires_grad_() for x in operands(1, 4, 2, torch.float64))
    _, last = linear_scan(a, b, s0)
    grad_a, grad_b, grad_s0 = torch.autograd.grad(last.sum(), [a, b, s0])
    assert_close(grad_s0, a.detach().prod(1), EXACT)
    assert_close(grad_b[:, 1], a.detach()[:, 2:].prod(1), EXACT)
    assert_close(grad_a[:, 0], a.detach()[:, 1:].prod(1) * s0.detach(), EXACT)


def test_leading_axes_are_free() -> None:
    a, b = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    s, last = linear_scan(a, b)
    assert s.shape == (2, 3, 4, 5)
    assert last.shape == (2, 3, 5)
    unbatched, _ = linear_scan(a[0, 0], b[0, 0])
    assert torch.equal(unbatched, s[0, 0])


@pytest.mark.parametrize("bounds", [[0, 3], [1, 6], [0, 4, 4, 6], [0, 5, 3, 6], [6]])
def test_bad_boundaries_are_named(bounds: list[int]) -> None:
    a, b, _ = operands(1, 6, 2)
    with pytest.raises(ShapeError, match=r"cu_seqlens.*l = 6"):
        linear_scan(a, b, cu_seqlens=torch.tensor(bounds))


def test_packing_needs_a_batch_of_one() -> None:
    a, b, _ = operands(2, 6, 2)
    with pytest.raises(ShapeError, match=r"cu_seqlens.*\(2, 6, 2\)"):
        linear_scan(a, b, cu_seqlens=torch.tensor([0, 6]))


@pytest.mark.parametrize(
    ("boundaries", "message"),
    [
        ([0, 6], r"cu_seqlens: found list, wanted a tensor of whole numbers \(n \+ 1,\)"),
        (torch.tensor([0.0, 6.0]), r"cu_seqlens: found torch\.float32 of shape \(2,\)"),
        (torch.tensor([[0, 6]]), r"cu_seqlens: found torch\.int64 of shape \(1, 2\)"),
    ],
)
def test_boundaries_are_a_vector_of_whole_numbers(boundaries: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        sequence_bounds(boundaries, (1, 6, 2))
    with pytest.raises(ShapeError, match=message):
        check_scan(torch.ones(1, 6, 2), torch.ones(1, 6, 2), None, boundaries)


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (2, 0, 3)])
def test_a_scan_has_steps_and_modes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"b: found .*, wanted \(b, l, p\) with at least one step"):
        check_scan(torch.ones(shape), torch.ones(shape))


@pytest.mark.parametrize("name", ["a", "b", "s0"])
def test_whole_numbers_are_not_scanned(name: str) -> None:
    given = {"a": torch.ones(1, 3, 2), "b": torch.ones(1, 3, 2), "s0": torch.ones(1, 2)}
    with pytest.raises(ShapeError, match=f"{name}: found dtype torch.int64, wanted real or complex floating-point"):
        check_scan(**(given | {name: given[name].long()}))
