"""Sequence classification and regression: pooled features, static covariates, statistics, one linear map."""

from typing import Self

import torch
from torch import Tensor, nn

from tides.errors import ConfigError
from tides.nn.backbone import Backbone
from tides.nn.calibration import store_scales
from tides.nn.checks import (
    check_config,
    check_count,
    check_gaps,
    check_observed,
    check_pooled,
    check_signal,
    check_static,
    in_every_row,
)
from tides.nn.config import TIDESConfig
from tides.nn.pooling import divide, pool_steps
from tides.nn.state import PooledState
from tides.nn.summary import Summary


class SequenceHead(nn.Module):
    """Backbone → pooling over the valid steps → Linear. Static covariates join the pooled features.

    `mean` averages the steps (the paper); `last` takes the final one; `time` weights each step by the gap before it,
    which makes the answer independent of how densely a series was sampled. A static covariate that is NaN was not
    recorded and counts as its training mean. With `summary` in the config statistics of the raw series (`Summary`) join
    too, with weights that begin at zero.
    """

    _outputs = "outputs"
    static_shift: Tensor
    static_scale: Tensor

    def __init__(self, config: TIDESConfig, outputs: int, *, static_size: int = 0) -> None:
        super().__init__()
        check_config(config)
        outputs = check_count(outputs, self._outputs)
        self.config, self.static_size = config, check_count(static_size, "static_size", least=0)
        self.backbone = Backbone(config)
        self.summary = Summary(config.input_size) if config.summary else None
        known = 0 if self.summary is None else self.summary.size
        self.head = nn.Linear(config.hidden_size + self.static_size + known, outputs)
        if known:
            nn.init.zeros_(self.head.weight[:, -known:])
        if self.static_size:
            self.register_buffer("static_shift", torch.zeros(self.static_size))
            self.register_buffer("static_scale", torch.ones(self.static_size))

    def forward(
        self,
        x: Tensor,
        gaps: Tensor | float,
        *,
        observed: Tensor | None = None,
        valid: Tensor | None = None,
        static: Tensor | None = None,
        recorded: Tensor | None = None,
    ) -> Tensor:
        """One row per series: (b, outputs).

        x (b, l, d) float; gaps (b, l), (l,) or a number, gaps[k] = t_k − t_{k−1} ≥ 0 in the unit of `calibrate`;
        observed (b, l, d) bool, false = missing; valid (b, l) bool, padding at the end; static (b, static_size), NaN =
        not recorded; `recorded` (b, l, d) is what a summary counts where training hides a part of it from the features
        by `observed`. Wrong shapes raise `ShapeError`, NaN without `observed` and negative gaps `DataError`, missing
        values without mask channels `ConfigError` (values are looked at on a CPU only).
        """
        features, _ = self.backbone(x, gaps, observed=observed, valid=valid)
        sums = self._sums(x, gaps, observed if recorded is None else recorded, valid)
        padding = None if self.config.padding == "include" else valid
        pooled = pool_steps(features, gaps, padding, self.config.pool)
        return self._answer(pooled, static, sums)

    def step(
        self,
        x_t: Tensor,
        gap_t: Tensor | float,
        state: PooledState,
        *,
        observed: Tensor | None = None,
        static: Tensor | None = None,
    ) -> tuple[Tensor, PooledState]:
        """The answer (b, outputs) for the prefix that ends with this observation, and the new state.

        x_t (b, d) came `gap_t` after the last one, (b,) or a number; the running pool lives in the state, which begins
        as `init_state(b)`. Bidirectional models raise `NotStreamable`.
        """
        check_pooled(state, self.summary)
        elapsed = in_every_row(gap_t, state.weight.shape, state.backbone.held)
        features, backbone = self.backbone.step(x_t, elapsed, state.backbone, observed=observed)
        state = state._replace(backbone=backbone)
        seen = None if observed is None else observed.unsqueeze(1)
        return self.conclude(features.unsqueeze(1), elapsed.unsqueeze(1), state, x_t.unsqueeze(1), seen, static=static)

    def read(
        self,
        x: Tensor,
        gaps: Tensor,
        state: PooledState,
        *,
        observed: Tensor | None = None,
        static: Tensor | None = None,
    ) -> tuple[Tensor, PooledState]:
        """A piece (b, l, d) of every series at once: the answer and the state that `step` would end with."""
        check_pooled(state, self.summary)
        features, backbone = self.backbone(x, gaps, observed=observed, state=state.backbone)
        state = state._replace(backbone=backbone)
        return self.conclude(features, check_gaps(gaps, features), state, x, observed, static=static)

    def peek(self, state: PooledState, gap: Tensor | float, *, static: Tensor | None = None) -> Tensor:
        """The answer at `gap`, (b,) or a number, after the last observation if nothing else is observed.

        The state is not changed.

        The newest observation counts with its features of that later time (`time`: the time passed counts as well).
        A summary is of what was observed, and waiting does not change it.
        """
        check_pooled(state, self.summary)
        elapsed = in_every_row(gap, state.weight.shape, state.backbone.held)
        later = self.backbone.peek(state.backbone, elapsed).double()
        if self.config.pool == "last":
            return self._answer(later.to(state.backbone.held.dtype), static, state.summary)
        if self.config.pool == "time":
            passed = _waited(state, elapsed)
            total, weight = state.total + later * passed.unsqueeze(-1), state.weight + passed
        else:
            total, weight = state.total - self._newest(state) + later, state.weight
        return self._answer(divide(total, weight, later).to(state.backbone.held.dtype), static, state.summary)

    def conclude(
        self,
        features: Tensor,
        gaps: Tensor,
        state: PooledState,
        x: Tensor,
        observed: Tensor | None,
        *,
        static: Tensor | None = None,
    ) -> tuple[Tensor, PooledState]:
        """The answer after further steps x (b, l, d) whose features (b, l, h) are known, with the running pool."""
        newest, sums = features[:, -1], self._sums(x, gaps, observed, before=state.summary)
        if self.config.pool == "last":
            return self._answer(newest, static, sums), state._replace(summary=sums)
        weight = gaps.double() if self.config.pool == "time" else torch.ones_like(gaps, dtype=torch.float64)
        if state.waited is not None:
            weight = torch.cat([weight[:, :1] + state.waited.unsqueeze(1), weight[:, 1:]], dim=1)
        total = state.total + (features.double() * weight.unsqueeze(-1)).sum(1)
        state = PooledState(state.backbone, total, state.weight + weight.sum(1), summary=sums)
        pooled = divide(total, state.weight, newest.double()).to(features.dtype)
        return self._answer(pooled, static, sums), state

    def init_state(self, batch: int) -> PooledState:
        backbone = self.backbone.init_state(batch)
        zero = torch.zeros_like(backbone.held, dtype=torch.float64)
        summary = None if self.summary is None else self.summary.init_state(batch)
        return PooledState(backbone, zero, zero[:, 0], summary=summary)

    def advance(self, state: PooledState, gap: Tensor | float) -> PooledState:
        """Time passes, nothing is observed; the pool counts as `step` and `peek` would over the whole gap."""
        check_pooled(state, self.summary)
        elapsed = in_every_row(gap, state.weight.shape, state.backbone.held)
        later = self.backbone.advance(state.backbone, elapsed)
        if self.summary is not None and state.summary is not None:
            state = state._replace(summary=self.summary.wait(state.summary, self.backbone.calibration, elapsed))
        if self.config.pool == "time":
            return state._replace(backbone=later, waited=_waited(state, elapsed))
        if self.config.pool == "mean" and self.config.hold == "following":
            return state._replace(backbone=later, newest=self._newest(state))
        return state._replace(backbone=later)

    def _newest(self, state: PooledState) -> Tensor:
        """The newest observation's features (b, h) at its own time, in float64."""
        if state.newest is not None:
            return state.newest
        return self.backbone.peek(state.backbone, torch.zeros_like(state.backbone.held[:, 0])).double()

    def calibrate(self, gaps: Tensor, shift: Tensor | None = None, scale: Tensor | None = None) -> Self:
        """See `Backbone.calibrate`."""
        self.backbone.calibrate(gaps, shift, scale)
        return self

    def calibrate_static(self, shift: Tensor, scale: Tensor) -> Self:
        """Store mean and standard deviation of the training series' static covariates."""
        if not self.static_size:
            raise ConfigError("static_shift, static_scale: the model was built without static covariates")
        store_scales(self, shift, scale, "static_")
        return self

    def calibrate_summary(self, shift: Tensor, scale: Tensor) -> Self:
        """Store mean and standard deviation of what `summarise` finds in the training series."""
        if self.summary is None:
            raise ConfigError("summary_shift, summary_scale: the model was built without summary=True")
        self.summary.calibrate(shift, scale)
        return self

    def summarise(
        self, x: Tensor, gaps: Tensor | float, *, observed: Tensor | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The statistics (b, k) of every series in the model's units, and which of them are known."""
        sums = self._sums(x, gaps, observed, valid)
        if self.summary is None or sums is None:
            raise ConfigError("summary: the model was built without summary=True")
        return self.summary.statistics(sums)

    def gaps(self, times: Tensor, valid: Tensor | None = None) -> Tensor:
        """Gaps of these times with the stored first-gap policy."""
        return self.backbone.calibration.gaps(times, valid)

    def count_parameters(self, *, release_equivalent: bool = False) -> int:
        """See `Backbone.count_parameters`."""
        head = sum(parameter.numel() for parameter in self.head.parameters())
        return head + self.backbone.count_parameters(release_equivalent=release_equivalent)

    def _sums(
        self,
        x: Tensor,
        gaps: Tensor | float,
        observed: Tensor | None,
        valid: Tensor | None = None,
        before: Tensor | None = None,
    ) -> Tensor | None:
        """The summary's state after further steps, where the model has one."""
        if self.summary is None:
            return None
        x = check_signal(x, self.config.input_size, self.backbone.calibration.shift)
        x, observed = check_observed(observed, x, valid)
        before = self.summary.init_state(x.shape[0]) if before is None else before
        return self.summary.take_in(before, self.backbone.calibration, x, check_gaps(gaps, x, valid), observed, valid)

    def _answer(self, pooled: Tensor, static: Tensor | None, sums: Tensor | None) -> Tensor:
        check_static(static, (pooled.shape[0], self.static_size))
        if static is not None:
            scores = (static.to(pooled) - self.static_shift) / self.static_scale
            pooled = torch.cat([pooled, torch.where(scores.isnan(), torch.zeros_like(scores), scores)], dim=-1)
        if self.summary is not None and sums is not None:
            pooled = torch.cat([pooled, self.summary(sums).to(pooled.dtype)], dim=-1)
        answer: Tensor = self.head(pooled)
        return answer


class SequenceClassifier(SequenceHead):
    """Logits (b, classes) for every series; `softmax` makes probabilities of them.

    `static_size` covariates describe a whole series. `step`, `advance` and `peek` follow a stream, with equal answers.
    """

    _outputs = "classes"

    def __init__(self, config: TIDESConfig, classes: int, *, static_size: int = 0) -> None:
        super().__init__(config, classes, static_size=static_size)
        self.classes = self.head.out_features


class SequenceRegressor(SequenceHead):
    """Numbers (b, targets) for every series, in the targets' own units once calibrated.

    `static_size` covariates describe a whole series. `step`, `advance` and `peek` follow a stream, with equal answers.
    """

    _outputs = "targets"
    output_shift: Tensor
    output_scale: Tensor

    def __init__(self, config: TIDESConfig, targets: int = 1, *, static_size: int = 0) -> None:
        super().__init__(config, targets, static_size=static_size)
        self.targets = self.head.out_features
        self.register_buffer("output_shift", torch.zeros(self.targets))
        self.register_buffer("output_scale", torch.ones(self.targets))

    def calibrate(
        self,
        gaps: Tensor,
        shift: Tensor | None = None,
        scale: Tensor | None = None,
        output_shift: Tensor | None = None,
        output_scale: Tensor | None = None,
    ) -> Self:
        """See `Backbone.calibrate`; the output scales are e.g. mean and standard deviation of training targets."""
        super().calibrate(gaps, shift, scale)
        if output_shift is not None or output_scale is not None:
            store_scales(self, output_shift, output_scale, "output_")
        return self

    def _answer(self, pooled: Tensor, static: Tensor | None, sums: Tensor | None) -> Tensor:
        return super()._answer(pooled, static, sums) * self.output_scale + self.output_shift


def _waited(state: PooledState, gap: Tensor) -> Tensor:
    """The time (b,) from the last observation to `gap` after the state's own time, in float64."""
    return gap.double() if state.waited is None else state.waited + gap.double()
