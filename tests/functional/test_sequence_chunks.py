"""The algebra of docs/maths/long-sequences.md: pieces that know each other by 4P numbers are the whole sequence."""

from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.functional.discretise import Discretisation
from tides.functional.evolve import Hold, evolve, transition
from tides.functional.scan import linear_scan

P, STEPS = 3, 24
# Bounds of pieces, some of them empty.
cuts = st.lists(st.integers(0, STEPS), max_size=5).map(lambda inner: [0, *sorted(inner), STEPS])


class Map(tuple[Tensor, Tensor]):
    """s ↦ A s + β: what a piece makes of the state that enters it."""

    def then(self, later: "Map") -> "Map":
        return Map((later[0] * self[0], later[0] * self[1] + later[1]))

    def __call__(self, s: Tensor) -> Tensor:
        return self[0] * s + self[1]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.complex128)


def map_of(a: Tensor, b: Tensor, *, reverse: bool = False) -> Map:
    """A = Π a_k, and β the state after the piece when nothing enters it; an empty piece is the identity."""
    beta = linear_scan(a, b, reverse=reverse)[1] if a.shape[1] else torch.zeros_like(a.sum(1))
    return Map((a.prod(1), beta))


def entering(maps: list[Map], first: Tensor) -> list[Tensor]:
    """The state that enters each piece: everyone composes everyone's maps."""
    none = Map((torch.ones_like(first), torch.zeros_like(first)))
    return [before(first) for before in accumulate(maps[:-1], Map.then, initial=none)]


def states(a: Tensor, b: Tensor, s0: Tensor) -> Tensor:
    return linear_scan(a, b, s0)[0] if a.shape[1] else b


@settings(max_examples=10)
@given(cuts)
def test_forward_carries_and_their_gradients(bounds: list[int]) -> None:
    """With messages that autograd sees through, as the rows of a joint batch norm are, nothing else is needed."""
    inputs = tuple(x.requires_grad_() for x in (0.9 * draw(2, STEPS, P), draw(2, STEPS, P), draw(2, P)))
    a, b, s0 = inputs
    whole = linear_scan(a, b, s0)[0]
    pieces = [(a[:, i:j], b[:, i:j]) for i, j in pairwise(bounds)]
    maps = [map_of(*piece) for piece in pieces]
    found = torch.cat([states(*piece, s) for piece, s in zip(pieces, entering(maps, s0), strict=True)], 1)
    assert_close(found, whole, EXACT)
    toward = draw(2, STEPS, P)
    for ours, theirs in zip(*(torch.autograd.grad(x, inputs, toward) for x in (found, whole)), strict=True):
        assert_close(ours, theirs, EXACT)
    # One piece's message about one sequence, in real numbers.
    assert sum(torch.view_as_real(part[0].detach()).numel() for part in maps[0]) == 4 * P


def adjoints(a: Tensor, g: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """μ_k = g_k + conj(a_{k+1}) μ_{k+1} in one piece, ν joining its last step; and what leaves it, conj(a_i) μ_i."""
    if a.shape[1] == 0:
        return g, nu
    g = torch.cat([g[:, :-1], g[:, -1:] + nu.unsqueeze(1)], 1)
    mu = linear_scan(a.roll(-1, 1).conj(), g, reverse=True)[0]
    return mu, a[:, 0].conj() * mu[:, 0]


@given(cuts)
def test_backward_carries(bounds: list[int]) -> None:
    """By hand: A is known from the way forward, so that 2P numbers, γ, are enough on the way back."""
    inputs = tuple(x.requires_grad_() for x in (0.9 * draw(2, STEPS, P), draw(2, STEPS, P), draw(2, P)))
    s, g = linear_scan(*inputs)[0], draw(2, STEPS, P)
    wanted = torch.autograd.grad(s, inputs, g)
    a, _, s0 = (x.detach() for x in inputs)
    pieces = [(a[:, i:j], g[:, i:j]) for i, j in pairwise(bounds)]
    zero = torch.zeros(2, P, dtype=torch.complex128)
    maps = [Map((x.prod(1).conj(), adjoints(x, local, zero)[1])) for x, local in pieces]
    arriving = entering(maps[::-1], zero)[::-1]
    mu = torch.cat([adjoints(*piece, nu)[0] for piece, nu in zip(pieces, arriving, strict=True)], 1)
    before = torch.cat([s0.unsqueeze(1), s.detach()[:, :-1]], 1)
    assert_close(mu * before.conj(), wanted[0], EXACT)
    assert_close(mu, wanted[1], EXACT)
    assert_close(maps[0](arriving[0]), wanted[2], EXACT)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("hold", ["following", "preceding"])
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear", "dirac"])
def test_a_layer_in_pieces(discretisation: Discretisation, hold: Hold, reverse: bool) -> None:
    """A piece maps over the intervals that its own observations govern; of its neighbours it knows one gap."""
    decay, frequency = -torch.rand(2, STEPS, P, dtype=torch.float64), torch.randn(P, dtype=torch.float64)
    gaps, scale = torch.rand(2, STEPS, 1, dtype=torch.float64), torch.rand(P, dtype=torch.float64)
    drive, s0 = draw(2, STEPS, P), draw(2, P)

    def over(piece: slice, initial: Tensor) -> Tensor:
        parts = decay[:, piece], frequency, gaps[:, piece], scale, drive[:, piece], initial
        return evolve(*parts, discretisation=discretisation, hold=hold, reverse=reverse)

    # Where (λ_k, v_k) governs the interval beyond step k, seen along the scan, its gap stands at the next step.
    ahead = 0 if hold == "preceding" else 1 if reverse else -1
    governed = gaps.roll(ahead, 1)
    bounds = [0, 1, 9, 10, 20, STEPS]
    pieces = [slice(i, j) for i, j in pairwise(bounds)]
    maps = []
    for piece in pieces:
        lam = torch.complex(decay[:, piece], frequency.expand_as(decay[:, piece]))
        a, b = transition(lam, governed[:, piece] * scale, drive[:, piece], discretisation, hold)
        maps.append(map_of(a, b, reverse=reverse))
    order = -1 if reverse else 1
    starts = entering(maps[::order], s0)[::order]
    found = torch.cat([over(piece, s) for piece, s in zip(pieces, starts, strict=True)], 1)
    assert_close(found, over(slice(None), s0), EXACT)
