"""`Block`: norm → SSM → GELU → GLU around a residual connection (paper, appendix A)."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tides import kernels
from tides.functional.ssm import SSMState
from tides.functional.tail import TailWeights
from tides.kernels.statistics import RunningNorm
from tides.nn.checks import check_config, check_layer, check_layer_step
from tides.nn.config import TIDESConfig
from tides.nn.glu import FeedForwardGLU
from tides.nn.lookup import held
from tides.nn.norm import MaskedBatchNorm, Statistics, make_norm
from tides.nn.precision import full_precision
from tides.nn.ssm import SSM
from tides.nn.watching import Hooks, everything_is_hooked, hooks_of


class BlockTrace(NamedTuple):
    """What queries need of a block: its state at every step and the statistics it normalised with."""

    state: SSMState
    statistics: Statistics | None


class Parts(NamedTuple):
    """A block's parts as they were built, for an operator that stands for all of them."""

    norm: MaskedBatchNorm
    ssm: SSM
    tail: TailWeights
    dropout: float


class Block(nn.Module):
    """x + drop(GLU(drop(GELU(SSM(norm(x)))))), GELU in its exact (erf) form.

    With `recompute`, only x is kept for the backward pass and the rest is computed again, except for the batch
    statistics, which must be counted once.
    """

    def __init__(self, config: TIDESConfig) -> None:
        super().__init__()
        check_config(config)
        self.norm = make_norm(config.norm, config.hidden_size)
        self.ssm = SSM(config)
        self.glu = FeedForwardGLU(config.hidden_size, config.expand)
        self.dropout = nn.Dropout(config.dropout)
        self.recompute = False
        self._looked_at: tuple[list[nn.Module | None], list[Hooks]] = [], []

    def forward(
        self, x: Tensor, gaps: Tensor, *, valid: Tensor | None = None, state: SSMState | None = None
    ) -> tuple[Tensor, SSMState]:
        ssm = held(self, "ssm")
        x, gaps = check_layer(x, gaps, held(ssm, "skip"), ssm.config.modes, valid=valid, state=state)
        with full_precision(x):
            fused = self._fused(x, gaps, valid) if state is None else None
            if fused is not None:
                return fused
            statistics = self.norm.statistics(x, valid)
            if self.recompute and torch.is_grad_enabled():
                result: tuple[Tensor, SSMState] = checkpoint(
                    kernels.keep_backend(self._transform), x, gaps, statistics, valid, state, use_reentrant=False
                )
                return result
            return self._transform(x, gaps, statistics, valid, state)

    def step(self, x_t: Tensor, gap_t: Tensor, state: SSMState) -> tuple[Tensor, SSMState]:
        """`forward` at length one: the output for one observation x_t (b, h), `gap_t` (b,) after the previous one."""
        x_t, gap_t = check_layer_step(x_t, gap_t, self.ssm.skip)
        y, state = self(x_t.unsqueeze(1), gap_t.unsqueeze(1), state=state)
        return y[:, 0], state

    def advance(self, state: SSMState, gap: Tensor | float) -> SSMState:
        """Let time pass without an observation."""
        return self.ssm.advance(state, gap)

    def init_state(self, batch: int) -> SSMState:
        return self.ssm.init_state(batch)

    def _transform(
        self, x: Tensor, gaps: Tensor, statistics: Statistics | None, valid: Tensor | None, state: SSMState | None
    ) -> tuple[Tensor, SSMState]:
        y, last = self.ssm(self.norm(x, statistics), gaps, valid=valid, state=state)
        return self._finish(x, y), last

    def _fused(self, x: Tensor, gaps: Tensor, valid: Tensor | None) -> tuple[Tensor, SSMState] | None:
        """The block as one operator, if the backend has one for it."""
        parts = self.own_parts()
        if parts is None:
            return None
        weights, spec, tail = parts.ssm.weights(), parts.ssm.spec, parts.tail
        operator = kernels.block_operator(x, weights, spec, tail)
        at_once = kernels.runs_at_once(x) and parts.norm.gather is None
        recompute = self.recompute and torch.is_grad_enabled()
        if operator is None:
            if at_once and not recompute:
                operator = kernels.wide_operator(x, weights, spec, tail)
            if operator is None:
                return None
        # On a GPU the operator keeps only its input anyway.
        again = recompute and x.device.type == "cpu"
        norm: RunningNorm | Tensor
        if at_once and not again:
            norm = parts.norm.running(x, valid)
        else:
            norm = torch.stack(parts.norm.affine(parts.norm.statistics(x, valid)))
        run = partial(operator, valid=valid, dropout=parts.dropout)
        if again:
            result: tuple[Tensor, SSMState] = checkpoint(run, x, norm, gaps, weights, spec, tail, use_reentrant=False)
            return result
        return run(x, norm, gaps, weights, spec, tail)

    def own_parts(self) -> Parts | None:
        """The parts for the fast path, or None if a part was replaced or is watched and must be called as a module."""
        norm, ssm, tail, dropout = held(self, "norm"), held(self, "ssm"), self.tail(), self._drop_rate()
        if type(norm) is not MaskedBatchNorm or type(ssm) is not SSM or tail is None or dropout is None:
            return None
        # Operators only do dropout in training; dropout in evaluation is left to the modules.
        if (dropout > 0 and not norm.training) or self._is_watched_inside():
            return None
        return Parts(norm, ssm, tail, dropout)

    def _drop_rate(self) -> float | None:
        """The dropout's rate in its own mode, which may be training alone; None if it was replaced."""
        dropout = held(self, "dropout")
        if type(dropout) is not nn.Dropout:
            return None
        return dropout.p if dropout.training else 0.0

    def tail(self) -> TailWeights | None:
        """The tensors of the feed-forward part, or None if it must be called as a module."""
        glu = held(self, "glu")
        return glu.weights() if type(glu) is FeedForwardGLU else None

    def is_watched(self) -> bool:
        """Whether hooks watch the inputs, outputs or gradients of the block itself."""
        return bool(self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks)

    def _is_watched_inside(self) -> bool:
        """Whether hooks watch a part. Hooks of the layer's heads do not count: the heads are never called."""
        own = self._modules
        parts = [*own.values(), *own["glu"]._modules.values()]  # type: ignore[union-attr]
        if torch.compiler.is_compiling():
            return any(hooks_of(parts)) or everything_is_hooked()
        known, hooks = self._looked_at
        if parts != known:
            # Cached: finding the dictionaries takes longer than looking into them, which every call does.
            hooks = hooks_of(parts)
            self._looked_at = parts, hooks
        return any(hooks) or everything_is_hooked()

    def trace(self, x: Tensor, gaps: Tensor, *, valid: Tensor | None = None) -> tuple[Tensor, BlockTrace]:
        """The same outputs, with the state at every step."""
        statistics = self.norm.statistics(x, valid)
        y, state = self.ssm.trace(self.norm(x, statistics), gaps, valid=valid)
        return self._finish(x, y), BlockTrace(state, statistics)

    def peek(self, x: Tensor, state: SSMState, gap: Tensor, statistics: Statistics | None = None) -> Tensor:
        """The output at `gap` after the state's last observation for block input `x`; nothing is written back."""
        return self._finish(x, self.ssm.peek(self.norm(x, statistics), state, gap))

    def _finish(self, x: Tensor, y: Tensor) -> Tensor:
        weights = self.tail()
        if weights is not None and self._drop_rate() == 0 and not self._is_watched_inside():
            return kernels.gated_tail(x, y, weights)
        result: Tensor = x + self.dropout(self.glu(self.dropout(F.gelu(y))))
        return result


def run_stack(
    blocks: list[Block], x: Tensor, gaps: Tensor, valid: Tensor | None
) -> tuple[Tensor, list[SSMState]] | None:
    """All blocks as one operator, starting without a state; None if the backend has none or something watches in
    between.
    """
    if gaps.requires_grad or not kernels.runs_at_once(x):
        return None
    found: list[Parts] = []
    for block in blocks:
        # A wrapped block must be called: the wrapper does something of its own.
        parts = block.own_parts() if type(block) is Block and not block.is_watched() else None
        if parts is None or parts.norm.gather is not None:
            return None
        first = found[0] if found else parts
        alike = parts.ssm.config is first.ssm.config and parts.norm.training == first.norm.training
        if not alike or parts.dropout != first.dropout:
            return None
        found.append(parts)
    spec, dropout = found[0].ssm.spec, found[0].dropout
    layers = [(parts.ssm.weights(), parts.tail) for parts in found]
    recompute = torch.is_grad_enabled() and any(block.recompute for block in blocks)
    operator = kernels.stack_operator(x, layers, spec, recompute=recompute)
    if operator is None:
        return None
    running = [parts.norm.running(x, valid) for parts in found]
    return operator(x, running, gaps, layers, spec, valid=valid, dropout=dropout)
