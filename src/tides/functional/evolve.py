"""The recurrence over a whole timeline: discretise every interval, then scan.

`hold="following"` lets (λ_k, v_k) govern the interval after observation k (the paper's equation),
`hold="preceding"` the one before it:

    following   s_k = λ̄(λ_{k−1}, δ_k) s_{k−1} + gain(λ_{k−1}, δ_k) ⊙ v_{k−1}
    preceding   s_k = λ̄(λ_k, δ_k) s_{k−1} + gain(λ_k, δ_k) ⊙ v_k
"""

from typing import Literal

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from tides.functional.discretise import Discretisation, discretise
from tides.functional.scan import Scan, linear_scan

Hold = Literal["following", "preceding"]


def transition(
    lam: Tensor, delta: Tensor, drive: Tensor, discretisation: Discretisation, hold: Hold
) -> tuple[Tensor, Tensor]:
    """(a, b) of s ← a s + b over one interval governed by (λ, v).

    An impulse that *precedes* the interval (dirac, following) decays together with the state.
    """
    lam_bar, gain = discretise(lam, delta, discretisation)
    if discretisation == "dirac" and hold == "following":
        gain = lam_bar
    return lam_bar, gain * drive


def evolve(
    decay: Float[Tensor, "b l p"],
    frequency: Float[Tensor, "*#b p"],
    gaps: Float[Tensor, "b l #p"],
    scale: Float[Tensor, "p"],
    drive: Complex[Tensor, "b l p"],
    s0: Complex[Tensor, "n p"] | None = None,
    *,
    discretisation: Discretisation = "zoh",
    hold: Hold = "following",
    reverse: bool = False,
    cu_seqlens: Int[Tensor, "n1"] | None = None,
    scan: Scan = linear_scan,
) -> Complex[Tensor, "b l p"]:
    """The state at every step, for λ = decay + i·frequency and δ = gaps·scale.

    `s0` is the state *at* the first step when following (nothing before it is known here), and the state before it
    when preceding. With `reverse` time runs backwards: `gaps[k]` then separates k from k+1, and the last step is the
    first. `cu_seqlens` marks packed sequences in a batch of one, each starting from its own row of `s0`.
    """
    lam = torch.complex(decay, frequency.expand_as(decay))
    if hold == "following":
        shift = -1 if reverse else 1
        lam, drive = lam.roll(shift, dims=1), drive.roll(shift, dims=1)
    a, b = transition(lam, gaps * scale, drive, discretisation, hold)
    first, initial = beginnings(a, s0, reverse, cu_seqlens)
    # With a = 0 at every beginning, one scan over the whole axis keeps packed sequences apart.
    b = torch.where(first, initial if hold == "following" else b + a * initial, b)
    s, _ = scan(torch.where(first, torch.zeros_like(a), a), b, reverse=reverse)
    return s


def beginnings(like: Tensor, s0: Tensor | None, reverse: bool, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """Which steps begin a sequence (l, 1), and the initial state that belongs to each step, broadcastable."""
    l, p = like.shape[-2:]
    if cu_seqlens is None:
        # A comparison, not an assignment: that would copy a number from the host, which no CUDA graph can hold.
        begins = torch.arange(l, device=like.device) == (l - 1 if reverse else 0)
        initial = like.new_zeros(1, 1, p) if s0 is None else s0.unsqueeze(-2)
        return begins.unsqueeze(-1), initial
    bounds = cu_seqlens.to(like.device).long()
    steps = torch.arange(l, device=like.device)
    begins = torch.isin(steps, bounds[1:] - 1 if reverse else bounds[:-1])
    owner = torch.searchsorted(bounds[1:].contiguous(), steps, right=True)
    initial = like.new_zeros(1, 1, p) if s0 is None else s0[owner].unsqueeze(0)
    return begins.unsqueeze(-1), initial
