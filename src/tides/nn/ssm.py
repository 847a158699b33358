"""`SSM`: one selective state-space layer; all six variants are this class and a config."""

import math

import torch
from torch import Tensor, nn

from tides import functional as tf
from tides import kernels
from tides.functional.heads import StepHead
from tides.functional.ssm import SSMState, SSMWeights
from tides.nn.checks import (
    check_batch,
    check_config,
    check_gap_shape,
    check_layer,
    check_layer_step,
    check_model_dtype,
    in_every_row,
)
from tides.nn.config import TIDESConfig
from tides.nn.lookup import held
from tides.nn.precision import full_precision
from tides.nn.projections import MixProjector, ModeProjector, StaticModes, StaticProjection, final_weight, mirror
from tides.nn.tags import set_tags


class SSM(nn.Module):
    """s_k = λ̄_k s_{k−1} + gain_k ⊙ (B_k u_k), y_k = Re(C_k s_k) + skip ⊙ u_k (paper eq. 4 and 5).

    The variants differ in what u_k decides: Re λ, Im λ, (B, C), or Mamba_S's step size. Everything starts from
    HiPPO, and the gap enters through the discretisation only (Mamba_S excepted).
    """

    def __init__(self, config: TIDESConfig) -> None:
        super().__init__()
        check_config(config)
        self.config, self.spec = config, config.ssm_spec
        hidden, state = config.hidden_size, config.state_size
        hippo = tf.hippo_blocks(state, config.groups, half=config.conjugate)
        scale = 1 / math.sqrt(state)
        place = torch.get_default_device(), torch.get_default_dtype().to_complex()
        basis, lam = hippo.eigenvectors.to(*place), hippo.lam.to(*place)
        drive = basis.mH @ (scale * torch.randn(state, hidden)).to(basis.dtype)
        directions = 2 if config.bidirectional else 1
        readout = torch.cat(
            [basis.mT @ torch.view_as_complex(scale * torch.randn(state, hidden, 2)) for _ in range(directions)]
        )
        self._make_eigenvalues(lam)
        self.drive = self._make_mix(torch.view_as_real(drive).contiguous(), directions=1)
        self.readout = self._make_mix(torch.view_as_real(readout).contiguous(), directions=directions)
        self._make_step(lam.numel())
        self.skip = nn.Parameter(torch.randn(hidden))
        set_tags(self, skip="decayed" if config.decay_vectors else "plain")

    def _make_eigenvalues(self, lam: Tensor) -> None:
        config = self.config
        theta = tf.reparameterise_inverse(lam.real, config.reparam)
        frequency = lam.imag
        expand = config.conjugate and not config.halved
        self.decay: ModeProjector | StaticModes
        self.frequency: ModeProjector | StaticModes
        if config.selective_decay:
            self.decay = self._mode_projector(theta.repeat(2) if expand else theta)
        else:
            self.decay = StaticModes(theta, expand=expand)
        if config.variant == "tides-full":
            self.frequency = self._mode_projector(torch.cat([frequency, -frequency]) if expand else frequency)
        else:
            self.frequency = StaticModes(frequency, expand=expand, sign=-1.0)

    def _mode_projector(self, start: Tensor) -> ModeProjector:
        config = self.config
        return ModeProjector(
            start,
            config.hidden_size,
            depth=config.decay_depth,
            init=config.projector_init,
            norm_start=config.norm_start if config.projector_norm else None,
            eps=self.spec.eps,
            decay_vectors=config.decay_vectors,
        )

    def _make_mix(self, base: Tensor, directions: int) -> MixProjector | StaticProjection:
        config = self.config
        expand = config.conjugate and not config.halved
        if not config.selective_mixes:
            return StaticProjection(base, expand=expand, directions=directions)
        return MixProjector(
            mirror(base, directions) if expand else base,
            rank=config.rank,
            init=config.projector_init,
            norm_start=config.norm_start if config.projector_norm else None,
            rms=1 / math.sqrt(config.state_size),
            eps=self.spec.eps,
            decay_vectors=config.decay_vectors,
        )

    def _make_step(self, modes: int) -> None:
        config = self.config
        low, high = (math.log(bound) for bound in config.step_init)
        log_step = low + (high - low) * torch.rand(modes)
        expand = config.conjugate and not config.halved
        self.log_step = None if config.variant == "mamba-s" else StaticModes(log_step, expand=expand, tag="plain")
        if config.variant == "mamba-s":
            modes = config.state_size
            log_step = log_step.repeat(2) if expand else log_step
            self.step_weight = final_weight(modes, config.hidden_size + 1, init=config.projector_init)
            # softplus⁻¹(step) = log(e^step − 1), so the step starts log-uniform whatever the input is.
            self.step_bias = nn.Parameter(torch.log(torch.expm1(torch.exp(log_step))))

    def weights(self) -> SSMWeights:
        """The layer's tensors in the form `functional` and `kernels` take them."""
        log_step = held(self, "log_step")
        step = StepHead(self.step_weight, self.step_bias) if log_step is None else log_step.expanded()
        decay, frequency, drive, readout = (held(self, name) for name in ("decay", "frequency", "drive", "readout"))
        return SSMWeights(decay.head(), frequency.head(), drive.mix(), readout.mix(), step, held(self, "skip"))

    def operations(self, u: Tensor, weights: SSMWeights) -> tf.SSMOps:
        """The operations this layer is computed with, from the chosen backend. Override this to exchange one of
        them.
        """
        return kernels.current_ops(u, weights, self.spec)

    def forward(
        self, u: Tensor, gaps: Tensor, *, valid: Tensor | None = None, state: SSMState | None = None
    ) -> tuple[Tensor, SSMState]:
        u, gaps = check_layer(u, gaps, held(self, "skip"), self.config.modes, valid=valid, state=state)
        weights = self.weights()
        with full_precision(u):
            ops = self.operations(u, weights)
            return tf.selective_ssm(u, gaps, weights, self.spec, valid=valid, state=state, ops=ops)

    def step(self, u_t: Tensor, gap_t: Tensor, state: SSMState) -> tuple[Tensor, SSMState]:
        """`forward` at length one: the output for one observation u_t (b, h), `gap_t` (b,) after the previous one."""
        u_t, gap_t = check_layer_step(u_t, gap_t, self.skip)
        y, state = self(u_t.unsqueeze(1), gap_t.unsqueeze(1), state=state)
        return y[:, 0], state

    def trace(self, u: Tensor, gaps: Tensor, *, valid: Tensor | None = None) -> tuple[Tensor, SSMState]:
        """Outputs and the state *at every step* (b, l, p), from which `peek` can read any later time."""
        weights = self.weights()
        if valid is not None:
            u, gaps = u.masked_fill(~valid.unsqueeze(-1), 0), gaps.masked_fill(~valid, 0)
        ops = self.operations(u, weights)
        trace, _ = tf.ssm_states(u, gaps, weights, self.spec, valid=valid, ops=ops)
        return tf.read_out(trace.s, u, weights, self.spec, ops), trace

    def peek(self, u: Tensor, state: SSMState, gap: Tensor) -> Tensor:
        """y at `gap` after the state's last observation, with C projected from `u`; the state is not changed."""
        weights = self.weights()
        later = tf.advance(state, tf.step_sizes(u, gap, weights.step), self.spec)
        return tf.read_out(later.s, u, weights, self.spec)

    def advance(self, state: SSMState, gap: Tensor | float) -> SSMState:
        """Let time pass without an observation. Mamba_S, whose step needs an input, sees a zero one."""
        elapsed = in_every_row(gap, state.s.shape[:-1], self.skip)
        check_gap_shape(elapsed, state.s.shape[:-1])
        u = torch.zeros(*elapsed.shape, self.config.hidden_size, dtype=elapsed.dtype, device=elapsed.device)
        with full_precision(elapsed):
            return tf.advance(state, tf.step_sizes(u, elapsed, self.weights().step), self.spec)

    def init_state(self, batch: int) -> SSMState:
        check_model_dtype(self.skip)
        check_batch(batch)
        return tf.zero_state((batch,), self.weights())
