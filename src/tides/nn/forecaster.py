"""`Forecaster`: values at any query times, asked as extra steps or read out between observations."""

from typing import Literal, Self

import torch
from torch import Tensor, nn

from tides.errors import ConfigError
from tides.functional.gaps import whole_difference
from tides.nn.backbone import Backbone, gather_states
from tides.nn.calibration import store_scales
from tides.nn.checks import (
    check_config,
    check_count,
    check_observed,
    check_offsets,
    check_queries,
    check_signal,
    check_state,
    check_valid,
)
from tides.nn.config import TIDESConfig
from tides.nn.state import BackboneState
from tides.nn.timeline import timeline

QueryMode = Literal["steps", "readout"]


class Forecaster(nn.Module):
    """ŷ at any times, before or after the observations.

    With `steps`, each query joins the sequence as a row with values 0, nothing observed and a query flag; at equal
    times observations come first. With `readout` (needs hold="following" and a causal model), every layer evolves its
    state from the last observation to the query time. Nothing is written back, so asking more questions changes no
    answer.
    """

    output_shift: Tensor
    output_scale: Tensor

    def __init__(self, config: TIDESConfig, channels: int, query_mode: QueryMode = "steps") -> None:
        super().__init__()
        check_config(config)
        if query_mode not in ("steps", "readout"):
            raise ConfigError(f"query_mode: found {query_mode!r}, wanted 'steps' or 'readout'")
        if query_mode == "readout" and (config.hold != "following" or config.bidirectional):
            raise ConfigError("query_mode: 'readout' needs hold='following' and bidirectional=False")
        if config.summary:
            raise ConfigError("summary: found True, wanted False: statistics of a whole series belong to no query")
        channels = check_count(channels, "channels")
        if config.mask_channels == "auto":
            # A forecaster always sees partly observed rows: at least its own queries.
            config = config.replace(mask_channels=True)
        self.config, self.channels, self.query_mode = config, channels, query_mode
        self.backbone = Backbone(config, query_channel=query_mode == "steps" and config.query_flag)
        self.head = nn.Linear(config.hidden_size, channels)
        self.register_buffer("output_shift", torch.zeros(channels))
        self.register_buffer("output_scale", torch.ones(channels))

    def forward(
        self,
        values: Tensor,
        times: Tensor,
        observed: Tensor | None,
        query_times: Tensor,
        *,
        valid: Tensor | None = None,
        query_valid: Tensor | None = None,
    ) -> Tensor:
        """ŷ (b, q, c) at query_times (b, q) from values (b, l, d) observed at times (b, l).

        Pass times as float64, or as integers of any size: gaps are formed in their precision and then cast.
        `query_valid` (b, q) marks real queries in a padded batch; the answers of the others are zero.
        """
        values = check_signal(values, self.config.input_size, self.output_shift, name="values")
        valid = check_valid(valid, values)
        values, observed = check_observed(observed, values, valid, name="values")
        check_queries(values, times, query_times, valid, query_valid)
        origin = None
        if times.is_floating_point():
            query_times = query_times.to(times.dtype)
        else:
            # Each series counts from its first time: large numbers would lose their differences in float64.
            origin = times[:, 0]
            times, query_times = (whole_difference(x, origin.unsqueeze(1)) for x in (times, query_times))
        ask = self._as_steps if self.query_mode == "steps" else self._as_readout
        answers = self._answer(ask(values, times, observed, query_times, valid, query_valid, origin))
        return answers if query_valid is None else answers.masked_fill(~query_valid.unsqueeze(-1), 0)

    def _as_steps(
        self,
        values: Tensor,
        times: Tensor,
        observed: Tensor | None,
        query_times: Tensor,
        valid: Tensor | None,
        query_valid: Tensor | None,
        origin: Tensor | None,
    ) -> Tensor:
        line = timeline(times, query_times, valid, query_valid)
        b, q = query_times.shape
        blank = torch.zeros_like(values[:, :1]).expand(b, q, -1)
        seen = torch.ones_like(values, dtype=torch.bool) if observed is None else observed
        unseen = torch.zeros_like(seen[:, :1]).expand(b, q, -1)
        features: Tensor
        features, _ = self.backbone(
            line.merge(values, blank),
            self.backbone.calibration.gaps(line.moments, line.real, origin=origin),
            observed=line.merge(seen, unseen),
            query=line.query,
            valid=None if valid is None and query_valid is None else line.real,
        )
        return line.answers(features)

    def _as_readout(
        self,
        values: Tensor,
        times: Tensor,
        observed: Tensor | None,
        query_times: Tensor,
        valid: Tensor | None,
        query_valid: Tensor | None,
        origin: Tensor | None,
    ) -> Tensor:
        gaps = self.backbone.calibration.gaps(times, valid, origin=origin)
        encoded, traces = self.backbone.trace(values, gaps, observed=observed, valid=valid)
        moments = times if valid is None else times.masked_fill(~valid, torch.inf)
        index = torch.searchsorted(moments.contiguous(), query_times.contiguous(), right=True) - 1
        since = times.gather(1, index.clamp_min(0))
        elapsed = torch.where(index >= 0, query_times - since, torch.zeros_like(since))
        if query_valid is not None:
            elapsed = elapsed.masked_fill(~query_valid, 0)
        state = gather_states(encoded, traces, index, self.backbone.empty_encoding())
        return self.backbone.peek(state, elapsed, traces=traces)

    def step(
        self,
        values: Tensor,
        gap: Tensor,
        state: BackboneState,
        *,
        observed: Tensor | None = None,
        at: Tensor | None = None,
    ) -> tuple[Tensor, BackboneState]:
        """Take in one row (b, d) and answer at offsets `at` (b, q) ≥ 0 after it (now, if not given): (b, q, c)."""
        _, state = self.backbone.step(values, gap, state, observed=observed)
        offsets = torch.zeros(values.shape[0], 1, dtype=gap.dtype, device=gap.device) if at is None else at
        return self.peek(state, offsets), state

    def peek(self, state: BackboneState, at: Tensor) -> Tensor:
        """Answers (b, q, c) at offsets `at` (b, q) after the state's last observation; the state is not changed."""
        self.backbone.require_causal("be read between observations")
        check_state(state, self.config, self.output_shift)
        check_offsets(at, state.held.shape[0], "at")
        b, q = at.shape
        if self.query_mode == "readout":
            wide = BackboneState(
                tuple(type(layer)(*(part.unsqueeze(1).expand(b, q, -1) for part in layer)) for layer in state.blocks),
                state.held.unsqueeze(1).expand(b, q, -1),
            )
            return self._answer(self.backbone.peek(wide, at))
        moments, order = at.sort(dim=1, stable=True)
        blank = torch.zeros(b, q, self.config.input_size, dtype=self.output_shift.dtype, device=at.device)
        features, _ = self.backbone(
            blank,
            torch.diff(moments, dim=1, prepend=torch.zeros_like(moments[:, :1])),
            observed=torch.zeros_like(blank, dtype=torch.bool),
            query=torch.ones_like(at, dtype=torch.bool),
            state=state,
        )
        return self._answer(features.gather(1, order.argsort(dim=1).unsqueeze(-1).expand_as(features)))

    def init_state(self, batch: int) -> BackboneState:
        return self.backbone.init_state(batch)

    def advance(self, state: BackboneState, gap: Tensor | float) -> BackboneState:
        """Let time pass without an observation."""
        return self.backbone.advance(state, gap)

    def calibrate(
        self,
        gaps: Tensor,
        shift: Tensor | None = None,
        scale: Tensor | None = None,
        output_shift: Tensor | None = None,
        output_scale: Tensor | None = None,
    ) -> Self:
        """See `Backbone.calibrate`; outputs are scaled like the inputs unless the target channels differ."""
        self.backbone.calibrate(gaps, shift, scale)
        shift = shift if output_shift is None else output_shift
        scale = scale if output_scale is None else output_scale
        if shift is not None or scale is not None:
            store_scales(self, shift, scale, "output_")
        return self

    def count_parameters(self, *, release_equivalent: bool = False) -> int:
        """See `Backbone.count_parameters`."""
        head = sum(parameter.numel() for parameter in self.head.parameters())
        return head + self.backbone.count_parameters(release_equivalent=release_equivalent)

    def _answer(self, features: Tensor) -> Tensor:
        answer: Tensor = self.head(features) * self.output_scale + self.output_shift
        return answer
