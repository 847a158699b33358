"""Signatures against Chen's identity, shuffles, an independent library, and paths whose integrals are known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tides.baselines.signature import (
    Signature,
    between,
    extend,
    log_signature,
    log_signature_size,
    prefix_signatures,
    signature_size,
)


def random_path(l: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(2, l, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1)


def whole(path: Tensor, level: int = 3) -> Signature:
    """The signature of the whole path, (b, 1, …)."""
    return prefix_signatures(path, level).take(torch.full((len(path), 1), path.shape[1] - 1))


def product(a: Signature, b: Signature) -> Signature:
    """The tensor product, written out with einsum."""
    assert a.two is not None and a.three is not None and b.two is not None and b.three is not None  # noqa: PT018
    two = a.two + b.two + torch.einsum("bni,bnj->bnij", a.one, b.one)
    three = a.three + b.three
    three = three + torch.einsum("bnij,bnk->bnijk", a.two, b.one) + torch.einsum("bni,bnjk->bnijk", a.one, b.two)
    return Signature(a.one + b.one, two, three)


@given(st.integers(2, 9), st.integers(1, 4), st.integers(0, 100))
def test_chen(l: int, d: int, seed: int) -> None:
    """The signature of a path is the product of those of its pieces, and `between` undoes that."""
    path = random_path(l, d, seed)
    cut = l // 2
    head, tail = whole(path[:, : cut + 1]), whole(path[:, cut:])
    for found, expected in zip(product(head, tail), whole(path), strict=True):
        torch.testing.assert_close(found, expected)
    for found, expected in zip(between(head, whole(path)), tail, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_a_straight_line() -> None:
    """(v, v⊗v/2, v⊗v⊗v/6), however many points lie on it."""
    v = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    path = (torch.linspace(0, 1, 6, dtype=torch.float64)[:, None] * v).unsqueeze(0)
    one, two, three = whole(path)
    torch.testing.assert_close(one[0, 0], v)
    torch.testing.assert_close(two[0, 0], torch.outer(v, v) / 2)
    torch.testing.assert_close(three[0, 0], torch.einsum("i,j,k->ijk", v, v, v) / 6)


def test_shuffle_identity() -> None:
    """S^i S^j = S^ij + S^ji."""
    one, two, _ = whole(random_path(20, 3))
    torch.testing.assert_close(torch.einsum("bni,bnj->bnij", one, one), two + two.transpose(-1, -2))


def test_extend_is_one_more_point() -> None:
    path = random_path(6, 3)
    found = extend(whole(path[:, :5]), path[:, 5:] - path[:, 4:5])
    for level, expected in zip(found, whole(path), strict=True):
        torch.testing.assert_close(level, expected)


def test_area_of_a_unit_square() -> None:
    square = torch.tensor([[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]], dtype=torch.float64)
    torch.testing.assert_close(log_signature(square, 2)[0], torch.tensor([0.0, 0.0, 1.0]).double())


def test_log_signature_is_the_logarithm() -> None:
    """log S = (S¹, S² − S¹⊗S¹/2), whose second level is antisymmetric."""
    path = random_path(20, 3)
    one, two, _ = whole(path)
    assert two is not None
    second = (two - torch.einsum("bni,bnj->bnij", one, one) / 2)[:, 0]
    i, j = torch.triu_indices(3, 3, offset=1)
    torch.testing.assert_close(log_signature(path, 2), torch.cat([one[:, 0], second[:, i, j]], -1))
    torch.testing.assert_close(log_signature(path, 1), one[:, 0])


@pytest.mark.parametrize(("d", "level"), [(1, 1), (2, 3), (3, 2), (5, 2), (4, 3)])
def test_against_pysiglib(d: int, level: int) -> None:
    pysiglib = pytest.importorskip("pysiglib")
    path = random_path(15, d)
    expected = torch.as_tensor(pysiglib.sig(path, level))
    if expected.shape[-1] == signature_size(d, level) + 1:
        expected = expected[:, 1:]
    torch.testing.assert_close(whole(path, level).flat()[:, 0], expected.to(torch.float64))


def test_log_signature_against_pysiglib() -> None:
    pysiglib = pytest.importorskip("pysiglib")
    path = random_path(15, 4)
    pysiglib.prepare_log_sig(4, 2, method=2)
    expected = torch.as_tensor(pysiglib.log_sig(path, 2, method=2))
    found = log_signature(path, 2)
    assert found.shape[-1] == log_signature_size(4, 2) == 10
    torch.testing.assert_close(found, expected.to(torch.float64))


def test_long_paths_keep_their_digits() -> None:
    """A window at the end of ten thousand points in float32 is as good as the window alone."""
    path = random_path(10_000, 3).float()
    prefix = prefix_signatures(path, 3)
    ends = torch.tensor([[9_990], [9_999]]).T.expand(2, -1)
    window = between(prefix.take(ends[:, :1]), prefix.take(ends[:, 1:]))
    for found, expected in zip(window, whole(path[:, 9_990:]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
