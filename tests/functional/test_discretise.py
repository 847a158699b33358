"""Discretisation: exact against matrix exponentials, stable for every step size, finite at the extremes."""

import cmath
import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from torch import Tensor

from tests.comparison import assert_close
from tests.tolerances import EXACT, FLOAT32_FORWARD, FLOAT32_GRADIENT
from tides.errors import ConfigError, ShapeError
from tides.functional import discretise, expm1, phi1

METHODS = ("zoh", "bilinear", "dirac")
stable_modes = st.builds(complex, st.floats(-5, 0), st.floats(-50, 50))
steps = st.floats(0, 10)


def complex_scalar(x: complex) -> Tensor:
    return torch.tensor([x], dtype=torch.complex128)


def real_scalar(x: float) -> Tensor:
    return torch.tensor([x], dtype=torch.float64)


@given(lam=stable_modes, delta=steps)
def test_zero_order_hold_is_the_exponential_of_the_augmented_matrix(lam: complex, delta: float) -> None:
    wanted = expm(delta * np.array([[lam, 1], [0, 0]], dtype=complex))
    lam_bar, gain = discretise(complex_scalar(lam), real_scalar(delta), "zoh")
    # The exponential of a matrix has an error relative to its norm, not to each entry.
    assert abs(complex(lam_bar) - wanted[0, 0]) <= EXACT * (1 + abs(delta))
    assert abs(complex(gain) - wanted[0, 1]) <= EXACT * (1 + abs(delta))


def test_zero_order_hold_of_a_coupled_system() -> None:
    """The diagonal form gives the same step as exp(AΔ) and A⁻¹(exp(AΔ) − I)B of the matrix itself."""
    generator = np.random.default_rng(0)
    skew = generator.normal(size=(5, 5))
    a_mat = skew - skew.T - 0.3 * np.eye(5)
    b_mat, delta = generator.normal(size=(5, 2)), 0.7
    augmented = expm(delta * np.block([[a_mat, b_mat], [np.zeros((2, 7))]]))
    values, vectors = np.linalg.eig(a_mat)
    lam_bar, gain = discretise(torch.from_numpy(values), torch.full((5,), delta, dtype=torch.float64), "zoh")
    back = np.linalg.inv(vectors)
    assert np.abs(vectors @ np.diag(lam_bar.numpy()) @ back - augmented[:5, :5]).max() < EXACT
    assert np.abs(vectors @ np.diag(gain.numpy()) @ back @ b_mat - augmented[:5, 5:]).max() < EXACT


@given(lam=stable_modes, first=steps, second=steps)
def test_two_steps_of_a_held_input_are_one(lam: complex, first: float, second: float) -> None:
    def step(s: Tensor, delta: float) -> Tensor:
        lam_bar, gain = discretise(complex_scalar(lam), real_scalar(delta), "zoh")
        return lam_bar * s + gain * (0.7 - 0.2j)

    start = complex_scalar(1.3 + 0.4j)
    in_two, in_one = step(step(start, first), second), step(start, first + second)
    # The phase Im λ·δ is known to an ulp of itself only.
    tolerance = EXACT * (1 + abs(lam.imag) * (first + second) / 50)
    assert abs(complex(in_two - in_one)) <= tolerance * (1 + abs(complex(in_one)) + first + second)


def integrate(method: str, lam: complex, steps_taken: int) -> complex:
    lam_bar, gain = discretise(complex_scalar(lam), real_scalar(1 / steps_taken), method)
    s = complex_scalar(1.0)
    for _ in range(steps_taken):
        s = lam_bar * s + gain
    return complex(s)


@pytest.mark.parametrize("lam", [-0.8 + 0j, -0.5 + 4j, 0 + 2j])
def test_bilinear_converges_with_order_two(lam: complex) -> None:
    exact = cmath.exp(lam) + (cmath.exp(lam) - 1) / lam
    counts = np.array([16, 32, 64, 128, 256])
    errors = [abs(integrate("bilinear", lam, int(n)) - exact) for n in counts]
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert 1.9 < order < 2.1
    assert abs(integrate("zoh", lam, 16) - exact) < EXACT


@given(lam=stable_modes, delta=steps)
def test_bilinear_keeps_stable_modes_stable(lam: complex, delta: float) -> None:
    lam_bar, _ = discretise(complex_scalar(lam), real_scalar(delta), "bilinear")
    assert float(lam_bar.abs()) <= 1 + EXACT


@given(lam=stable_modes, delta=steps)
def test_dirac_decays_and_adds_the_impulse_whole(lam: complex, delta: float) -> None:
    lam_bar, gain = discretise(complex_scalar(lam), real_scalar(delta), "dirac")
    zoh, _ = discretise(complex_scalar(lam), real_scalar(delta), "zoh")
    assert torch.equal(lam_bar, zoh)
    assert complex(gain) == 1


@pytest.mark.parametrize("method", METHODS)
def test_real_modes_equal_complex_ones(method: str) -> None:
    lam, delta = -torch.rand(7, dtype=torch.float64), torch.rand(7, dtype=torch.float64)
    real, whole = discretise(lam, delta, method), discretise(lam.to(torch.complex128), delta, method)
    for found, wanted in zip(real, whole, strict=True):
        assert found.dtype == torch.float64
        assert_close(found, wanted.real, EXACT)


def test_modes_and_steps_broadcast() -> None:
    lam, delta = torch.randn(4, dtype=torch.complex128), torch.rand(3, 1, dtype=torch.float64)
    lam_bar, gain = discretise(lam, delta)
    assert lam_bar.shape == gain.shape == (3, 4)


# Steps are powers of two, so that λδ is exact in both precisions and only the formulas differ.
MODES = torch.tensor([-1.0, -0.75 + 0.5j, -0.125 + 1j, 1j, -1j, -0.5 + 0.001j], dtype=torch.complex64)
STEPS = torch.tensor([2.0**k for k in range(-40, 21)], dtype=torch.float32)


def entrywise(found: Tensor, wanted: Tensor) -> Tensor:
    """Relative error of every entry; entries that underflow in float32 are left out."""
    error = (found.to(wanted.dtype) - wanted).abs() / wanted.abs().clamp_min(1e-300)
    return error[wanted.abs() > 1e-30]


def values_and_gradients(lam: Tensor, delta: Tensor, rule: object) -> list[Tensor]:
    lam = lam.detach().unsqueeze(-1).expand(-1, delta.shape[0]).clone().requires_grad_()
    delta = delta.detach().expand(lam.shape).clone().requires_grad_()
    lam_bar, gain = rule(lam, delta)  # type: ignore[operator]
    results = [lam_bar.detach(), gain.detach()]
    for part in (lam_bar.real, lam_bar.imag, gain.real, gain.imag):
        if not part.requires_grad:
            continue
        gradients = torch.autograd.grad(part.sum(), [lam, delta], retain_graph=True)
        # Compared as a whole: one part of a complex derivative may vanish.
        results.append(gradients[0])
    return results


@pytest.mark.parametrize("method", METHODS)
def test_float32_is_stable_for_every_step(method: str) -> None:
    def rule(lam: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        return discretise(lam, delta, method)  # type: ignore[arg-type]

    found = values_and_gradients(MODES, STEPS, rule)
    wanted = values_and_gradients(MODES.to(torch.complex128), STEPS.double(), rule)
    for index, (ours, exact) in enumerate(zip(found, wanted, strict=True)):
        if method == "bilinear" and index == 0:
            # |λ̄| ≤ 1 passes through zero at λδ = −2, where only the absolute error means anything.
            assert float((ours.to(exact.dtype) - exact).abs().max()) <= FLOAT32_FORWARD
            continue
        tolerance = FLOAT32_FORWARD if index < 2 else FLOAT32_GRADIENT
        assert float(entrywise(ours, exact).max()) <= tolerance, f"output {index}"


def test_the_gradient_in_the_step_is_stable_too() -> None:
    for part in ("real", "imag"):
        gradients = []
        for lam, step in ((MODES, STEPS), (MODES.to(torch.complex128), STEPS.double())):
            delta = step.clone().requires_grad_()
            _, gain = discretise(lam.unsqueeze(-1), delta)
            gradients.append(torch.autograd.grad(getattr(gain, part).sum(), delta)[0])
        scale = gradients[1].abs().clamp_min(1.0 if part == "real" else 1e-30)
        keep = STEPS <= 1 if part == "real" else STEPS < 2**-2
        error = ((gradients[0].double() - gradients[1]).abs() / scale)[keep]
        assert float(error.max()) <= FLOAT32_GRADIENT


def test_the_textbook_form_fails_where_ours_does_not() -> None:
    """(e^z − 1)/λ in float32: no digit is left at small steps, and its derivative is lost far earlier."""

    def textbook(lam: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        lam_bar = torch.exp(lam * delta)
        return lam_bar, (lam_bar - 1) / lam

    def exact_rule(lam: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        return discretise(lam, delta)

    exact = values_and_gradients(MODES.to(torch.complex128), STEPS.double(), exact_rule)
    naive = values_and_gradients(MODES, STEPS, textbook)
    ours = values_and_gradients(MODES, STEPS, exact_rule)
    small, smallish = STEPS < 2**-25, STEPS < 2**-14
    assert float(entrywise(naive[1][:, small], exact[1][:, small]).max()) > 0.5
    assert float(entrywise(naive[4][:, smallish], exact[4][:, smallish]).max()) > 0.5
    assert float(entrywise(ours[1], exact[1]).max()) <= FLOAT32_FORWARD
    assert float(entrywise(ours[4], exact[4]).max()) <= FLOAT32_GRADIENT


@given(radius=st.floats(-14, 2.8), angle=st.floats(math.pi / 2, 3 * math.pi / 2))
def test_phi1_and_expm1_to_the_last_digits(radius: float, angle: float) -> None:
    """Against a series in exact rational steps where it converges fast, and the definition elsewhere."""
    z = cmath.rect(10**radius, angle)
    if abs(z) < 2:
        terms = [z**n / math.factorial(n + 1) for n in range(40)]
        wanted = complex(math.fsum(t.real for t in terms), math.fsum(t.imag for t in terms))
    else:
        wanted = (cmath.exp(z) - 1) / z
    assert abs(complex(phi1(complex_scalar(z))) - wanted) <= EXACT * abs(wanted)
    assert abs(complex(expm1(complex_scalar(z))) - wanted * z) <= EXACT * abs(wanted * z)


def test_phi1_at_zero() -> None:
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        z = torch.zeros(1, dtype=dtype, requires_grad=True)
        value = phi1(z)
        assert float(value.detach().real) == 1
        (gradient,) = torch.autograd.grad(value.real.sum(), z)
        assert_close(gradient.real.double(), torch.tensor([0.5], dtype=torch.float64), EXACT)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_finite_at_the_extremes(method: str, dtype: torch.dtype) -> None:
    """Gaps from 1e-12 to 1e12 and 0, |λ| down to 0, Re λ ≤ 0: values and gradients."""
    sizes = [0.0, 1e-30, 1e-12, 1e-3, 1.0, 1e4]
    modes = [-r + 0j for r in sizes] + [1j * r for r in sizes] + [-r + 1j * q for r in sizes for q in sizes]
    lam = torch.tensor(modes, dtype=dtype).unsqueeze(-1).requires_grad_()
    gaps = torch.tensor([0.0, *(10.0**k for k in range(-12, 13))], dtype=lam.real.dtype, requires_grad=True)
    lam_bar, gain = discretise(lam, gaps, method)  # type: ignore[arg-type]
    assert torch.isfinite(torch.view_as_real(lam_bar)).all()
    assert torch.isfinite(torch.view_as_real(gain)).all()
    assert float(lam_bar.detach().abs().max()) <= 1 + 1e-6
    loss = (lam_bar.real + lam_bar.imag + gain.real + gain.imag).sum()
    if method != "dirac":
        assert gain.requires_grad
    for gradient in torch.autograd.grad(loss, [lam, gaps]):
        assert torch.isfinite(torch.view_as_real(gradient) if gradient.is_complex() else gradient).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(method: str, dtype: torch.dtype) -> None:
    with pytest.raises(ShapeError, match=r"lam, delta: found torch\.b?float16, wanted float32 or float64"):
        discretise(-torch.ones(3, dtype=dtype), torch.ones(3, dtype=dtype), method)  # type: ignore[arg-type]


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^method: found 'euler', wanted one of zoh, bilinear, dirac"):
        inspect.unwrap(discretise)(complex_scalar(-1), real_scalar(1), "euler")  # without the shape checker


@pytest.mark.parametrize(
    ("lam", "delta"), [(torch.ones(3), torch.ones(2)), (torch.ones(4, 3), torch.ones(2, 3)), (None, torch.ones(2))]
)
def test_what_does_not_broadcast_is_named(lam: Any, delta: Any) -> None:
    with pytest.raises(ShapeError, match=r"lam, delta: found .* and \(2,.*, wanted tensors"):
        inspect.unwrap(discretise)(lam, delta)  # without the shape checker


def test_a_step_may_be_a_number() -> None:
    lam = -torch.ones(3, dtype=torch.float64)
    for found, wanted in zip(
        inspect.unwrap(discretise)(lam, 0.5), discretise(lam, torch.full_like(lam, 0.5)), strict=True
    ):
        assert_close(found, wanted, EXACT)
