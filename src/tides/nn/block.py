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
from tides.nn.ssm import SSM
from tides.nn.watching import Hooks, everything_is_hooked, hooks_of


class BlockTrace(NamedTuple):
    """What one block leaves behind for queries: its state at every step and the statistics it normalised with."""

    state: SSMState
    statistics: Statistics | None


class Block(nn.Module):
    """x + drop(GLU(drop(GELU(SSM(norm(x)))))), GELU in its exact (erf) form.

    With `recompute` only x is kept for the backward pass and the rest is made again (the statistics are not, so that
    they are counted once).
    """

    def __init__(self, config: TIDESConfig) -> None:
        super().__init__()
        check_config(config)
        self.norm = make_norm(config.norm, config.hidden_size)
        self.ssm = SSM(config)
        self.glu = FeedForwardGLU(config.hidden_size, config.expand)
        self.dropout = nn.Dropout(config.dropout)
        self.recompute = False
        self._parts: list[nn.Module | None] = []
        self._hooks: list[Hooks] = []

    def forward(
        self, x: Tensor, gaps: Tensor, *, valid: Tensor | None = None, state: SSMState | None = None
    ) -> tuple[Tensor, SSMState]:
        ssm = held(self, "ssm")
        x, gaps = check_layer(x, gaps, held(ssm, "skip"), ssm.config.modes, valid=valid, state=state)
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
        """One observation x_t (b, h) at gap_t (b,) after the last one: `forward` at length one."""
        x_t, gap_t = check_layer_step(x_t, gap_t, self.ssm.skip)
        y, state = self(x_t.unsqueeze(1), gap_t.unsqueeze(1), state=state)
        return y[:, 0], state

    def advance(self, state: SSMState, gap: Tensor) -> SSMState:
        """Time passes, nothing is observed."""
        return self.ssm.advance(state, gap)

    def init_state(self, batch: int) -> SSMState:
        return self.ssm.init_state(batch)

    def _transform(
        self, x: Tensor, gaps: Tensor, statistics: Statistics | None, valid: Tensor | None, state: SSMState | None
    ) -> tuple[Tensor, SSMState]:
        y, last = self.ssm(self.norm(x, statistics), gaps, valid=valid, state=state)
        return self._finish(x, y), last

    def _fused(self, x: Tensor, gaps: Tensor, valid: Tensor | None) -> tuple[Tensor, SSMState] | None:
        """The block as one operator, where the backend has one for it."""
        if not isinstance(self.norm, MaskedBatchNorm) or self.is_watched_inside():
            return None
        tail = self.tail()
        if tail is None:
            return None
        weights, spec = self.ssm.weights(), self.ssm.spec
        operator = kernels.block_operator(x, weights, spec, tail)
        at_once = kernels.runs_at_once(x) and self.norm.gather is None
        recompute = self.recompute and torch.is_grad_enabled()
        if operator is None:
            if at_once and not recompute:
                operator = kernels.wide_operator(x, weights, spec, tail)
            if operator is None:
                return None
        # On a GPU the operator keeps its input alone anyway.
        again = recompute and x.device.type == "cpu"
        norm: RunningNorm | Tensor
        if at_once and not again:
            norm = self.norm.running(x, valid)
        else:
            norm = torch.stack(self.norm.affine(self.norm.statistics(x, valid)))
        run = partial(operator, valid=valid, dropout=self.dropout.p if self.training else 0.0)
        if again:
            result: tuple[Tensor, SSMState] = checkpoint(run, x, norm, gaps, weights, spec, tail, use_reentrant=False)
            return result
        return run(x, norm, gaps, weights, spec, tail)

    def tail(self) -> TailWeights | None:
        """The feed-forward part's tensors, or None where it is to be called as the module it is."""
        glu = held(self, "glu")
        return glu.weights() if type(glu) is FeedForwardGLU else None

    def is_watched(self) -> bool:
        """Whether hooks want to see inputs, outputs or gradients of this block or of a part of it."""
        hooks = self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
        return bool(hooks) or self.is_watched_inside()

    def is_watched_inside(self) -> bool:
        """Whether hooks want to see a part. Those of the layer's heads are not asked: they hand out tensors only."""
        own = self._modules
        parts = [*own.values(), *own["glu"]._modules.values()]  # type: ignore[union-attr]
        if torch.compiler.is_compiling():
            return any(hooks_of(parts)) or everything_is_hooked()
        if parts != self._parts:
            # Looking for the dictionaries takes longer than looking into them, which every call has to.
            self._parts, self._hooks = parts, hooks_of(parts)
        return any(self._hooks) or everything_is_hooked()

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
        if weights is not None and not (self.training and self.dropout.p > 0) and not self.is_watched_inside():
            return kernels.gated_tail(x, y, weights)
        result: Tensor = x + self.dropout(self.glu(self.dropout(F.gelu(y))))
        return result


def run_stack(
    blocks: list[Block], x: Tensor, gaps: Tensor, valid: Tensor | None
) -> tuple[Tensor, list[SSMState]] | None:
    """All blocks as one operator, where the backend has one and nobody looks in between; they start from nothing."""
    first, layer = blocks[0], held(blocks[0], "ssm")
    norms, layers = [], []
    if gaps.requires_grad or not kernels.runs_at_once(x):
        return None
    for block in blocks:
        norm, ssm, tail = held(block, "norm"), held(block, "ssm"), block.tail()
        alike = ssm.config is layer.config and block.training == first.training
        if not alike or tail is None or block.is_watched() or not isinstance(norm, MaskedBatchNorm):
            return None
        if norm.gather is not None or norm.training != block.training:
            return None
        norms.append(norm)
        layers.append((ssm.weights(), tail))
    spec = layer.spec
    recompute = torch.is_grad_enabled() and any(block.recompute for block in blocks)
    operator = kernels.stack_operator(x, layers, spec, recompute=recompute)
    if operator is None:
        return None
    running = [norm.running(x, valid) for norm in norms]
    dropout = first.dropout.p if first.training else 0.0
    return operator(x, running, gaps, layers, spec, valid=valid, dropout=dropout)
