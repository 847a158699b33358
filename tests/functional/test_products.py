"""Products over many rows in pieces, against the plain product."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tolerances import EXACT, FLOAT32_GRADIENT
from tides.functional.products import RowProducts, pieces_wanted, product_in_pieces, row_product


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(1, 7))
def test_pieces_add_up(m, i, o, pieces, rows):
    a, b = (torch.randn(m, pieces * rows, width, dtype=torch.float64) for width in (i, o))
    torch.testing.assert_close(product_in_pieces(a.mT, b, pieces), a.mT @ b, rtol=EXACT, atol=EXACT)


@given(st.integers(1, 8), st.integers(1, 600), st.integers(1, 100_000), st.integers(1, 600))
def test_pieces_divide_the_rows_and_are_long_enough(m, i, n, o):
    pieces = pieces_wanted(m, i, n, o)
    assert n % pieces == 0
    assert pieces == 1 or n // pieces >= 128


def test_few_numbers_of_many_rows_are_cut():
    assert pieces_wanted(5, 8, 96 * 100, 32) > 16
    assert pieces_wanted(5, 32, 100, 32) == 1


def test_every_batched_product_is_seen_backward_ones_too(monkeypatch):
    seen = []
    monkeypatch.setattr("tides.functional.products.row_product", lambda a, b: seen.append(a.shape) or torch.bmm(a, b))
    a, b = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 4, 5, requires_grad=True)
    with RowProducts():
        torch.vmap(torch.mm)(a, b).sum().backward()
    assert len(seen) == 3


@pytest.mark.gpu
def test_on_a_gpu():
    a, b = torch.randn(5, 9600, 8, device="cuda"), torch.randn(5, 9600, 32, device="cuda")
    torch.testing.assert_close(
        row_product(a.mT, b).double(), a.double().mT @ b.double(), rtol=FLOAT32_GRADIENT, atol=FLOAT32_GRADIENT
    )
