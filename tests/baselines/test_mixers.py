"""State-space mixers against their plain recurrences, one step at a time in float64, with numpy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.baselines.small import SMALL
from tides import baselines
from tides.baselines import s6
from tides.baselines.linoss import LinOSSMixer
from tides.baselines.lru import LRUMixer
from tides.baselines.mamba import MambaMixer
from tides.baselines.pair_scan import Matrix, Pair, convolve, impulse_response, pair_scan
from tides.baselines.s5 import S5Mixer
from tides.baselines.s6 import SelectiveScan
from tides.errors import ConfigError

B, L, H = 2, 23, 8


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(B, L, H, dtype=torch.float64), torch.rand(B, L, dtype=torch.float64) * 2


def numbers(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def complexes(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1]


def run(module: nn.Module, u: torch.Tensor, steps: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        result: np.ndarray = module(u, steps).numpy()
    return result


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def small(name: str) -> Any:
    return baselines.config_of(name, **SMALL[name])


@pytest.mark.parametrize("physical", [False, True])
def test_lru(physical: bool) -> None:
    module = LRUMixer(small("lru")).double()
    u, steps = inputs()
    steps = steps if physical else torch.ones(1, L, dtype=torch.float64)
    w, expected = numbers(module), np.zeros((B, L, H))
    lam = np.exp(-np.exp(w["log_decay"]) + 1j * np.exp(w["log_angle"]))
    assert (np.abs(lam) < 1).all()
    np.testing.assert_allclose(np.exp(w["log_gain"]) ** 2, 1 - np.abs(lam) ** 2, rtol=1e-5)
    for series in range(B):
        s = np.zeros(len(lam), complex)
        for k in range(L):
            x = u[series, k].numpy()
            gap = float(steps[series if physical else 0, k])
            # λ^g turns by the learned angle itself, which the principal logarithm of λ would lose.
            s = np.exp(gap * (-np.exp(w["log_decay"]) + 1j * np.exp(w["log_angle"]))) * s
            s = s + np.exp(w["log_gain"]) * (complexes(w["drive"]) @ x)
            expected[series, k] = (complexes(w["readout"]) @ s).real + w["skip"] * x
    check(run(module, u, steps), expected)


def test_s5() -> None:
    module = S5Mixer(small("s5")).double()
    u, steps = inputs()
    w, expected = numbers(module), np.zeros((B, L, H))
    lam = w["decay"] + 1j * w["frequency"]
    np.testing.assert_allclose(w["decay"], -0.5, atol=1e-6)
    for series in range(B):
        s = np.zeros(len(lam), complex)
        for k in range(L):
            x = u[series, k].numpy()
            lam_bar = np.exp(lam * np.exp(w["log_step"]) * float(steps[series, k]))
            s = lam_bar * s + (lam_bar - 1) / lam * (complexes(w["drive"]) @ x)
            expected[series, k] = 2 * (complexes(w["readout"]) @ s).real + w["skip"] * x
    check(run(module, u, steps), expected)


def scan(w: dict[str, np.ndarray], prefix: str, u: np.ndarray, steps: np.ndarray, rank: int, n: int) -> np.ndarray:
    """The selective scan of one series, channel by channel."""
    e = u.shape[1]
    a = -np.exp(w[f"{prefix}log_decay"])
    s, out = np.zeros((e, n)), np.zeros_like(u)
    for k, x in enumerate(u):
        selected = w[f"{prefix}select.weight"] @ x
        tau, drive, readout = selected[:rank], selected[rank : rank + n], selected[rank + n :]
        delta = np.log1p(np.exp(w[f"{prefix}step.weight"] @ tau + w[f"{prefix}step.bias"])) * steps[k]
        for channel in range(e):
            s[channel] = np.exp(delta[channel] * a[channel]) * s[channel] + delta[channel] * drive * x[channel]
            out[k, channel] = readout @ s[channel] + w[f"{prefix}skip"][channel] * x[channel]
    return out


def test_s6() -> None:
    module = SelectiveScan(H, 3, 2).double()
    u, steps = inputs()
    w = numbers(module)
    expected = [scan(w, "", u[i].numpy(), steps[i].numpy(), 2, 3) for i in range(B)]
    check(run(module, u, steps), np.stack(expected))


def test_s6_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that do not fit into memory are made some channels at a time, with the same outputs and gradients."""
    module = SelectiveScan(H, 3, 2).double()
    u, steps = inputs()
    results = []
    for most in (2**27, B * L * 3 * 3):
        monkeypatch.setattr(s6, "_MOST", most)
        module.zero_grad()
        y = module(u, steps)
        y.square().sum().backward()
        results.append([y.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)])
    assert len(results[0]) == 6
    torch.testing.assert_close(results[1], results[0])


def test_mamba() -> None:
    config = small("mamba")
    module = MambaMixer(config).double()
    u, steps = inputs()
    w, expected = numbers(module), []
    for i in range(B):
        both = u[i].numpy() @ w["inward.weight"].T
        v, z = both[:, : 2 * H], both[:, 2 * H :]
        padded = np.concatenate([np.zeros((2, 2 * H)), v])
        kernel = w["conv.weight"][:, 0]  # (e, 3)
        v = np.stack([(padded[k : k + 3] * kernel.T).sum(0) + w["conv.bias"] for k in range(L)])
        v = v / (1 + np.exp(-v))
        y = scan(w, "scan.", v, steps[i].numpy(), 1, 3)
        expected.append((y * z / (1 + np.exp(-z))) @ w["out.weight"].T)
    check(run(module, u, steps), np.stack(expected))


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("scheme", ["im", "imex", "damped"])
def test_linoss(scheme: str, equal: bool) -> None:
    """Against the schemes in their implicit form: every step solves its own equations."""
    name = {"im": "linoss-im", "imex": "linoss-imex", "damped": "d-linoss"}[scheme]
    module = LinOSSMixer(small(name)).double()
    u, steps = inputs()
    given = torch.full((1, 1), 0.7, dtype=torch.float64) if equal else steps
    steps = given.expand_as(steps)
    w, expected = numbers(module), np.zeros((B, L, H))
    m = len(w["stiffness"])
    for series in range(B):
        z, y = np.zeros(m, complex), np.zeros(m, complex)
        for k in range(L):
            x = u[series, k].numpy()
            force = complexes(w["drive"]) @ x
            for j in range(m):
                delta = float(steps[series, k]) / (1 + np.exp(-w["raw_step"][j]))
                g = max(w["damping"][j], 0.0) if scheme == "damped" else 0.0
                a = max(w["stiffness"][j], 0.0)
                if scheme == "damped":
                    # Where the discriminant of the transition is negative it oscillates; A is held there.
                    middle, half = 2 + delta * g, 2 * np.sqrt(1 + delta * g)
                    a = min(max(a, (middle - half) / delta**2), (middle + half) / delta**2)
                elif scheme == "imex":
                    a = min(a, 4 / delta**2)
                if scheme == "im":
                    # z' = z − δA y' + δ f and y' = y + δ z'.
                    system = np.array([[1.0, delta * a], [-delta, 1.0]])
                    z[j], y[j] = np.linalg.solve(system, [z[j] + delta * force[j], y[j]])
                else:
                    # z' = z + δ(−A y − G z' + f) and y' = y + δ z'.
                    z[j] = (z[j] + delta * (-a * y[j] + force[j])) / (1 + delta * g)
                    y[j] = y[j] + delta * z[j]
            expected[series, k] = (complexes(w["readout"]) @ y).real + w["skip"] * x
    np.testing.assert_allclose(run(module, u, given), expected, rtol=1e-7, atol=1e-8)


def test_implicit_oscillators_lose_energy_in_steps_of_any_length() -> None:
    """|z|² + A|y|² never grows, which is what makes physical steps safe there and only there."""
    module = LinOSSMixer(small("linoss-im")).double()
    steps = torch.tensor([0.01, 3.0, 0.5, 40.0, 1e3, 0.2], dtype=torch.float64)
    stiffness = torch.relu(module.stiffness)
    matrices, _, _ = module.transition(steps[None, :, None] * torch.sigmoid(module.raw_step))
    state = Pair(torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64))
    energy = state.first.square() + stiffness * state.second.square()
    for k in range(len(steps)):
        state = Matrix(*(x[0, k] for x in matrices)).apply(state)
        after = state.first.square() + stiffness * state.second.square()
        assert (after <= energy).all()
        energy = after
    for scheme in ("linoss-imex", "d-linoss"):
        with pytest.raises(ConfigError, match="steps: 'physical' needs scheme 'im'"):
            small(scheme).replace(steps="physical")


def test_damped_oscillators_start_in_their_ring() -> None:
    module = LinOSSMixer(small("d-linoss").replace(state_size=200, radius_min=0.9, radius_max=0.95))
    matrix, _, _ = module.transition(torch.sigmoid(module.raw_step)[None, None])
    moduli = np.abs(np.linalg.eigvals(np.stack([x.detach().numpy()[0, 0] for x in matrix], -1).reshape(-1, 2, 2)))
    assert moduli.min() > 0.899
    assert moduli.max() < 0.951


@pytest.mark.parametrize("l", [1, 2, 3, 17, 36])
def test_pair_scan(l: int) -> None:
    matrices = Matrix(*(torch.randn(1, l, 3, dtype=torch.float64) / 2 for _ in range(4)))
    drive = Pair(*(torch.randn(2, l, 3, dtype=torch.complex128) for _ in range(2)))
    found = torch.stack(pair_scan(matrices, drive), -1)
    full = torch.stack(matrices, -1).view(l, 3, 2, 2).to(torch.complex128)
    state = torch.zeros(2, 3, 2, dtype=torch.complex128)
    for k in range(l):
        state = (full[k] @ state.unsqueeze(-1)).squeeze(-1) + torch.stack(drive, -1)[:, k]
        torch.testing.assert_close(found[:, k], state)


@pytest.mark.parametrize("l", [1, 2, 5, 32, 33])
def test_constant_pairs_are_a_convolution(l: int) -> None:
    """One matrix for all steps, also one without eigenvectors: an oscillator without stiffness moves uniformly."""
    matrix = torch.randn(3, 4, dtype=torch.float64) / 2
    matrix[0] = torch.tensor([1.0, 0.0, 1.0, 1.0])
    drive = Pair(torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64))
    u = torch.randn(2, 3, l, dtype=torch.complex128)
    response = impulse_response(Matrix(*matrix.unbind(-1)), drive, l)
    every = Matrix(*(x.expand(1, l, 3) for x in matrix.unbind(-1)))
    expected = pair_scan(every, Pair(*(part * u.mT for part in drive)))
    for found, wanted in zip(response, expected, strict=True):
        torch.testing.assert_close(convolve(found, u), wanted.mT)


def test_pair_scan_gradients() -> None:
    parts = [torch.randn(1, 7, 2, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    force = [torch.randn(2, 7, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda *x: tuple(pair_scan(Matrix(*x[:4]), Pair(*x[4:]))), (*parts, *force))
