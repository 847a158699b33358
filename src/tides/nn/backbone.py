"""`Backbone`: encoder and a stack of blocks; features for every observation, forwards, in chunks or step by step."""

from typing import Self, cast

import torch
from torch import Tensor, nn

from tides.errors import ConfigError, NotStreamable
from tides.functional.gaps import values_can_be_checked
from tides.functional.layout import last_rows
from tides.functional.ssm import SSMState
from tides.nn.block import Block, BlockTrace, run_stack
from tides.nn.calibration import Calibration
from tides.nn.checks import (
    check_batch,
    check_config,
    check_elapsed,
    check_gaps,
    check_model_dtype,
    check_observed,
    check_row_mask,
    check_signal,
    check_state,
    check_valid,
    missing_mask_channels,
)
from tides.nn.config import TIDESConfig
from tides.nn.glu import ResidualGLU, RowLinear
from tides.nn.precision import full_precision
from tides.nn.state import BackboneState


class Backbone(nn.Module):
    """Input → (deep) encoder → TIDES blocks → features (paper figure 3a).

    `x` holds only the data channels; observation flags, the query flag and Mamba_S's Δ channel are added inside. Values
    and gaps are first scaled with the calibration stored in the model.
    """

    def __init__(self, config: TIDESConfig, *, query_channel: bool = False) -> None:
        super().__init__()
        check_config(config)
        self.config, self.query_channel = config, query_channel
        self.calibration = Calibration(config)
        width = config.input_size * (2 if config.mask_channels is True else 1)
        width += int(query_channel) + int(config.variant == "mamba-s")
        self.encoder_width = width
        self.encoder = nn.Sequential(
            *(ResidualGLU(width) for _ in range(config.encoder_depth)), RowLinear(width, config.hidden_size)
        )
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))

    def forward(
        self,
        x: Tensor,
        gaps: Tensor | float,
        *,
        observed: Tensor | None = None,
        query: Tensor | None = None,
        valid: Tensor | None = None,
        state: BackboneState | None = None,
    ) -> tuple[Tensor, BackboneState]:
        """Features (b, l, h) and the state after the last valid step.

        x is (b, l, d); gaps are (b, l), (l,) or a number, with gaps[k] = t_k − t_{k−1}; observed is (b, l, d) bool,
        where false means missing; valid is (b, l) bool, with padding at the end. With `state` the sequence continues
        where that state ended.

        Wrong shapes raise `ShapeError`. NaN without `observed` and negative gaps raise `DataError`, missing values
        without mask channels `ConfigError` (values are checked on a CPU only). A state in a bidirectional model raises
        `NotStreamable`.
        """
        x, gaps, valid = self.prepare(x, gaps, observed=observed, query=query, valid=valid)
        if state is not None:
            self.require_causal("continue from a state")
            check_state(state, self.config, self.calibration.shift, x.shape[0])
        hidden = encoded = self._encode(x)
        with full_precision(x):
            hidden, states = self._run_blocks(hidden, gaps, valid, state)
        held = encoded[:, -1]
        if valid is not None:
            before = self.empty_encoding().expand_as(held) if state is None else state.held
            held = last_rows(encoded, before, valid)
            hidden = hidden.masked_fill(~valid.unsqueeze(-1), 0)
        return hidden, BackboneState(tuple(states), held)

    def _run_blocks(
        self, hidden: Tensor, gaps: Tensor, valid: Tensor | None, state: BackboneState | None
    ) -> tuple[Tensor, list[SSMState]]:
        blocks = self.typed_blocks()
        together = run_stack(blocks, hidden, gaps, valid) if state is None else None
        if together is not None:
            return together
        states = []
        for index, block in enumerate(blocks):
            hidden, last = block(hidden, gaps, valid=valid, state=None if state is None else state.blocks[index])
            states.append(last)
        return hidden, states

    def step(
        self, x_t: Tensor, gap_t: Tensor | float, state: BackboneState, *, observed: Tensor | None = None
    ) -> tuple[Tensor, BackboneState]:
        """`forward` at length one: features (b, h) for one observation x_t (b, d), `gap_t` after the previous one.

        `gap_t` is (b,) or a number; `observed` (b, d) says what was measured. Start with `init_state(b)`; the new state
        is returned.
        """
        self.require_causal("step")
        x_t = check_signal(x_t, self.config.input_size, self.calibration.shift, name="x_t", axes="(b, d)")
        elapsed = check_elapsed(gap_t, tuple(x_t.shape[:1]), x_t, name="gap_t")
        if observed is not None:
            observed = check_row_mask(observed, x_t).unsqueeze(1)
        y, state = self(x_t.unsqueeze(1), elapsed.unsqueeze(1), observed=observed, state=state)
        return y.squeeze(1), state

    def advance(self, state: BackboneState, gap: Tensor | float) -> BackboneState:
        """Let time pass without an observation: every layer's state evolves by `gap`, (b,) or a number, with its
        pending pair.
        """
        self.require_causal("advance")
        check_state(state, self.config, self.calibration.shift)
        gap = self.calibration.scaled_gaps(check_elapsed(gap, tuple(state.held.shape[:-1]), state.held))
        pairs = zip(self.typed_blocks(), state.blocks, strict=True)
        return state._replace(blocks=tuple(block.ssm.advance(layer, gap) for block, layer in pairs))

    def init_state(self, batch: int) -> BackboneState:
        """The state before any observation; the input that is held is the encoding of an empty row.

        A bidirectional model reads the future and raises `NotStreamable`.
        """
        self.require_causal("keep a state")
        check_model_dtype(self.calibration.shift)
        check_batch(batch)
        held = self.empty_encoding().expand(batch, -1)
        return BackboneState(tuple(block.ssm.init_state(batch) for block in self.typed_blocks()), held)

    def empty_encoding(self) -> Tensor:
        """The encoder's output (h) for a row in which nothing was observed."""
        return self._encode(self.calibration.shift.new_zeros(self.encoder_width))

    def _encode(self, x: Tensor) -> Tensor:
        encoded: Tensor = self.encoder(x)
        return encoded.to(x.dtype)

    def trace(
        self, x: Tensor, gaps: Tensor | float, *, observed: Tensor | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, tuple[BlockTrace, ...]]:
        """The encoder's output (b, l, h) and every block's state at every step: all that `peek` needs."""
        x, gaps, valid = self.prepare(x, gaps, observed=observed, valid=valid)
        hidden = encoded = self._encode(x)
        traces = []
        with full_precision(x):
            for block in self.typed_blocks():
                hidden, trace = block.trace(hidden, gaps, valid=valid)
                traces.append(trace)
        return encoded, tuple(traces)

    def peek(
        self, state: BackboneState, gap: Tensor | float, *, traces: tuple[BlockTrace, ...] | None = None
    ) -> Tensor:
        """Features at `gap` after the state's last observation; the state is not changed.

        Every layer evolves its own state; its input at that time is the output of the layer below at that time. State
        and gap may have any leading axes. `traces` supply the statistics of the batch that made the state.
        """
        self.require_following()
        self.require_causal("be read between observations")
        check_state(state, self.config, self.calibration.shift)
        gap = self.calibration.scaled_gaps(check_elapsed(gap, tuple(state.held.shape[:-1]), state.held))
        hidden = state.held
        with full_precision(hidden):
            for index, block in enumerate(self.typed_blocks()):
                statistics = None if traces is None else traces[index].statistics
                hidden = block.peek(hidden, state.blocks[index], gap, statistics)
        return hidden

    def prepare(
        self,
        x: Tensor,
        gaps: Tensor | float,
        *,
        observed: Tensor | None = None,
        query: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Checked and scaled inputs with all extra channels, scaled gaps, and the padding mask to use."""
        x = check_signal(x, self.config.input_size, self.calibration.shift)
        valid = check_valid(valid, x)
        padding = None if self.config.padding == "include" else valid
        gaps = check_gaps(gaps, x, padding)
        x, observed = check_observed(observed, x, valid)
        x = self.calibration.scaled_values(x)
        if observed is not None:
            x = x.masked_fill(~observed, 0)
            self._check_mask_channels(observed, valid)
        gaps = self.calibration.scaled_gaps(gaps)
        channels = [x]
        if self.config.mask_channels is True:
            channels.append(torch.ones_like(x) if observed is None else observed.to(x.dtype))
        if self.query_channel:
            channels.append(torch.zeros_like(x[..., :1]) if query is None else query.unsqueeze(-1).to(x.dtype))
        if self.config.variant == "mamba-s":
            channels.append(gaps.unsqueeze(-1))
        return x if len(channels) == 1 else torch.cat(channels, dim=-1), gaps, padding

    def _check_mask_channels(self, observed: Tensor, valid: Tensor | None) -> None:
        if self.config.mask_channels != "auto" or not values_can_be_checked(observed):
            return
        present = observed if valid is None else observed | ~valid.unsqueeze(-1)
        if not bool(present.all()):
            raise missing_mask_channels()

    def calibrate(self, gaps: Tensor, shift: Tensor | None = None, scale: Tensor | None = None) -> Self:
        """Store the scales of the training data: `gaps` set the time scale, `shift` and `scale` those of the
        channels.
        """
        self.calibration.fit_time(gaps)
        if shift is not None or scale is not None:
            self.calibration.fit_values(shift, scale)
        return self

    def recompute_blocks(self, enabled: bool = True) -> Self:
        """Keep only each block's input for the backward pass: far less memory for about a third more time."""
        for block in self.typed_blocks():
            block.recompute = enabled
        return self

    def require_causal(self, action: str) -> None:
        if self.config.bidirectional:
            raise NotStreamable(f"bidirectional: the model reads the future, so it cannot {action}")

    def require_following(self) -> None:
        if self.config.hold != "following":
            raise ConfigError("hold: reading out between observations needs hold='following'")

    def count_parameters(self, *, release_equivalent: bool = False) -> int:
        """The number of parameters; `release_equivalent` adds the static Λ, B and C that the release keeps beside its
        heads.
        """
        count = sum(parameter.numel() for parameter in self.parameters())
        if not release_equivalent:
            return count
        config = self.config
        modes = config.state_size // 2 if config.conjugate else config.state_size
        directions = 2 if config.bidirectional else 1
        unused = modes * (int(config.selective_decay) + int(config.variant == "tides-full"))
        if config.selective_mixes and config.rank != "diag":
            # A diagonal head modulates the static B and C, so there they are alive.
            unused += 2 * modes * config.hidden_size * (1 + directions)
        return count + config.depth * unused

    def typed_blocks(self) -> list[Block]:
        """All blocks; a wrapped block (by `torch.compile`, for sharding) still has the attributes of the block
        inside.
        """
        return cast(list[Block], list(self.blocks))


def gather_states(encoded: Tensor, traces: tuple[BlockTrace, ...], index: Tensor, empty: Tensor) -> BackboneState:
    """The state right after observation `index` (b, q) of each series; −1 is before the first, with `empty` held."""

    def pick(x: Tensor, before: Tensor) -> Tensor:
        rows = index.clamp_min(0).unsqueeze(-1).expand(*index.shape, x.shape[-1])
        return torch.where((index >= 0).unsqueeze(-1), x.gather(1, rows), before)

    layers = (SSMState(*(pick(part, torch.zeros_like(part[:, :1])) for part in trace.state)) for trace in traces)
    return BackboneState(tuple(layers), pick(encoded, empty))
