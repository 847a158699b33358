"""Products in registers and column norms of the `cpu` backend against their definitions, at sizes that fill no tile."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="the cpu backend needs numba")

from tests.tolerances import FLOAT32_FORWARD
from tides.kernels.cpu.column_loops import add_symmetric, gram, inverse_norms, triangle, turned_panels
from tides.kernels.cpu.mix_products import inputs_backward, mix_forward
from tides.kernels.cpu.products import add_products, add_rows, linear_rows
from tides.kernels.cpu.vectors import VECTOR

LANES = VECTOR // 4


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def panels(matrix: Any) -> Any:
    width = 2 * LANES
    return np.concatenate([matrix[:, c : c + width].ravel() for c in range(0, matrix.shape[1], width)])


@pytest.mark.parametrize(("count", "depth", "vectors"), [(1, 1, 1), (13, 5, 3), (24, 32, 2)])
def test_rows_times_a_matrix(count: int, depth: int, vectors: int) -> None:
    columns = vectors * LANES
    x, matrix, out = draw(count, depth), draw(depth, columns), draw(count, columns)
    wanted = out + x @ matrix
    add_rows(x.ravel(), depth, count, panels(matrix), depth, out.reshape(-1), columns, columns)
    np.testing.assert_allclose(out, wanted, rtol=FLOAT32_FORWARD, atol=FLOAT32_FORWARD)


MIXES = pytest.mark.parametrize(("count", "size", "depth", "vectors"), [(1, 1, 1, 1), (13, 3, 5, 3), (24, 9, 32, 2)])


@MIXES
def test_mix_of_rows(count: int, size: int, depth: int, vectors: int) -> None:
    columns = vectors * LANES
    x, code, kernels = draw(count, depth), draw(count, size), draw(size, depth, columns)
    kernel, out = np.concatenate([panels(each) for each in kernels]), np.empty((count, columns), np.float32)
    later = (x.ravel(), x.ravel(), x.ravel(), x.ravel())
    mix_forward(x.ravel(), depth, depth, count, code.ravel(), size, size, kernel, out.reshape(-1), columns, later)
    wanted = np.einsum("ti,tk,iko->to", *(each.astype(np.float64) for each in (code, x, kernels)))
    np.testing.assert_allclose(out, wanted, rtol=FLOAT32_FORWARD, atol=FLOAT32_FORWARD * size * depth)


@MIXES
def test_gradients_behind_a_mix(count: int, size: int, depth: int, vectors: int) -> None:
    columns = vectors * LANES
    gradient, code, x = draw(count, depth), draw(count, size), draw(count, columns) / 2
    back = draw(size, depth, columns)
    kernel, later = np.concatenate([panels(each) for each in back]), (x.ravel(), x.ravel(), x.ravel(), x.ravel())
    d_x, d_code = np.empty((count, columns), np.float32), draw(size, count)
    scaled = np.empty((size, count, columns), np.float32)
    products = np.einsum("tk,iko->ito", gradient.astype(np.float64), back)
    wanted_code = d_code + np.einsum("ito,to->it", products, x)
    inputs_backward(
        gradient.ravel(), depth, depth, count, code.ravel(), size, size, kernel, x.ravel(), d_x.reshape(-1), columns,
        d_code.reshape(-1), count, scaled.reshape(-1), count * columns, later,
    )  # fmt: skip
    tolerance = FLOAT32_FORWARD * size * depth
    np.testing.assert_allclose(d_x, np.einsum("ti,ito->to", code, products), rtol=FLOAT32_FORWARD, atol=tolerance)
    np.testing.assert_allclose(d_code, wanted_code, rtol=FLOAT32_FORWARD, atol=tolerance * columns)
    np.testing.assert_array_equal(scaled, code.T[:, :, None] * x)


@pytest.mark.parametrize(("pairs", "blocks", "vectors"), [(1, 1, 1), (13, 3, 2)])
def test_rows_times_steps_that_were_turned(pairs: int, blocks: int, vectors: int) -> None:
    steps, columns = 2 * LANES * blocks, vectors * LANES
    forms, x = draw(pairs, columns), draw(steps, columns)
    matrix, out = np.zeros((columns + 1) * steps, np.float32), np.empty((pairs, steps), np.float32)
    turned_panels(x.ravel(), steps, columns, matrix)
    linear_rows(forms.ravel(), columns, pairs, matrix, columns, out.reshape(-1), steps, steps)
    np.testing.assert_allclose(out, forms @ x.T, rtol=FLOAT32_FORWARD, atol=FLOAT32_FORWARD)


def test_symmetric_matrices_of_pairs() -> None:
    size = 5
    pairs, code, out = draw(size * (size + 1) // 2, LANES), draw(size, LANES), draw(size, LANES)
    matrix = np.empty((size, size, LANES), np.float32)
    first, second = np.triu_indices(size)
    matrix[first, second] = matrix[second, first] = pairs
    wanted = out + np.einsum("ijt,jt->it", matrix, code)
    add_symmetric(pairs.ravel(), code.ravel(), size, LANES, LANES, out.reshape(-1))
    np.testing.assert_allclose(out, wanted, rtol=FLOAT32_FORWARD, atol=FLOAT32_FORWARD)


@pytest.mark.parametrize(("count", "depth", "vectors"), [(1, 1, 1), (13, 11, 3)])
def test_products_summed_over_rows(count: int, depth: int, vectors: int) -> None:
    columns = vectors * LANES
    x, y, out = draw(count, depth), draw(count, columns), draw(depth, columns)
    wanted = out + x.T @ y
    add_products(x.ravel(), depth, 1, count, depth, y.ravel(), columns, columns, out.reshape(-1))
    np.testing.assert_allclose(out, wanted, rtol=FLOAT32_FORWARD, atol=FLOAT32_FORWARD)


def test_column_norms_keep_their_digits_in_float32() -> None:
    """Columns that cancel to a thousandth, and fewer rows than entries of the code, so that the form is singular."""
    size, rows, steps = 5, 4, 30
    columns = np.random.default_rng(0).standard_normal((rows, size, LANES))
    columns[:, -1] = -columns[:, 0] * (1 + 1e-3)
    code = draw(steps + 1, LANES)
    code[:, 0] = code[:, size - 1] = 1
    form, root = np.empty((size, size, LANES)), np.zeros((size, size, LANES))
    gram(columns, form)
    triangle(form, root)
    triangles = np.concatenate([root[i, i:] for i in range(size)]).astype(np.float32).ravel()
    out = np.empty((steps, LANES), np.float32)
    inverse_norms(code.ravel(), LANES, steps, size, triangles, np.float32(1e-6), out.reshape(-1), LANES)
    exact = code[:steps, :size].astype(np.float64)
    square = np.square(np.einsum("cih,ti->cth", columns, exact)).sum(0) * 2 / rows
    np.testing.assert_allclose(out, 1 / np.sqrt(square + 1e-6), rtol=FLOAT32_FORWARD)


def test_a_norm_that_overflows_is_no_norm() -> None:
    code = np.ones((2, LANES), np.float32)
    code[0] = 1e30
    out = np.empty((1, LANES), np.float32)
    inverse_norms(code.ravel(), LANES, 1, 1, np.ones(LANES, np.float32), np.float32(1e-6), out.reshape(-1), LANES)
    assert np.isnan(out).all()
