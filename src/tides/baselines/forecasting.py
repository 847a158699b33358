"""What every forecasting baseline shares: one call contract, units of channels and time, checks at the door."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from tides.baselines.config import BaselineConfig
from tides.errors import DataError
from tides.functional.gaps import values_can_be_checked
from tides.nn.calibration import Calibration
from tides.nn.checks import check_observed, check_queries, check_signal, check_valid
from tides.nn.timeline import Timeline, timeline

# The published models see times as shares of an interval of about this many observations.
_MEDIAN_GAPS = 100.0


@dataclass(frozen=True, kw_only=True)
class ForecastConfig(BaselineConfig):
    """What every forecaster has. The channels that it forecasts are those that it sees."""

    time_scale: float | Literal["median"] = "median"
    """Times are divided by it: a hundred training median gaps, or a number (the published runs: the length of the
    whole interval, observations and queries together)."""


class Question(NamedTuple):
    """A batch in the model's units: values standardised and 0 where missing, times divided by the time scale."""

    values: Float[Tensor, "b l c"]
    times: Float64[Tensor, "b l"]
    observed: Bool[Tensor, "b l c"]
    """False on padding too."""
    valid: Bool[Tensor, "b l"]
    query_times: Float64[Tensor, "b q"]
    query_valid: Bool[Tensor, "b q"]

    @property
    def moments(self) -> Float[Tensor, "b l 1"]:
        """Times in the precision of the values."""
        return self.times.to(self.values.dtype).unsqueeze(-1)

    @property
    def query_moments(self) -> Float[Tensor, "b q 1"]:
        return self.query_times.to(self.values.dtype).unsqueeze(-1)


class Events(NamedTuple):
    """Observations and questions in temporal order, n = l + q rows; nothing is observed at questions and padding."""

    values: Float[Tensor, "b n c"]
    observed: Bool[Tensor, "b n c"]
    gaps: Float[Tensor, "b n"]
    """Time since the row before, in the model's unit; 0 in padding."""
    line: Timeline


class ForecastModel(nn.Module, ABC):
    """ŷ (b, q, c) = model(values (b, l, c), times, observed, query_times); subclasses write `answer`.

    Padding, marked by `valid` and `query_valid`, changes no answer. Answers are given in the units of the values.
    """

    stackable: bool = True
    """Whether several models run side by side under `torch.vmap` and inside a CUDA graph."""
    trainable: ClassVar[bool] = True
    """False for predictors without parameters."""

    def __init__(self, config: ForecastConfig) -> None:
        super().__init__()
        self.config, self.channels = config, config.input_size
        self.calibration = Calibration(config)
        self.time_factor = _MEDIAN_GAPS if config.time_scale == "median" else 1.0

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
        """ŷ (b, q, c) at query_times (b, q) from values (b, l, c) observed at times (b, l); 0 at padded queries."""
        values = check_signal(values, self.channels, self.calibration.shift, name="values")
        valid = check_valid(valid, values)
        values, observed = check_observed(observed, values, valid, name="values")
        check_queries(values, times, query_times, valid, query_valid)
        present = torch.ones_like(times, dtype=torch.bool) if valid is None else valid
        seen = present.unsqueeze(-1).expand_as(values) if observed is None else observed & present.unsqueeze(-1)
        asked = torch.ones_like(query_times, dtype=torch.bool) if query_valid is None else query_valid
        question = Question(
            values=self.calibration.scaled_values(values).masked_fill(~seen, 0),
            times=self._scaled(times, present),
            observed=seen,
            valid=present,
            query_times=self._scaled(query_times, asked),
            query_valid=asked,
        )
        answers = self.calibration.unscaled_values(self.answer(question))
        return answers.masked_fill(~asked.unsqueeze(-1), 0)

    @abstractmethod
    def answer(self, question: Question) -> Tensor:
        """Standardised values (b, q, c) at the queries."""

    @torch.no_grad()
    def calibrate(
        self,
        gaps: Tensor,
        shift: Tensor | None = None,
        scale: Tensor | None = None,
        output_shift: Tensor | None = None,
        output_scale: Tensor | None = None,
    ) -> Self:
        """Store the training data's scales. Outputs have those of the inputs, because these models compare their
        forecasts with what they observe: `output_shift` and `output_scale` are accepted and not needed.
        """
        self.calibration.fit_time(gaps)
        if shift is not None or scale is not None:
            self.calibration.fit_values(shift, scale)
        return self

    def count_parameters(self) -> int:
        """Learned numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    def events(self, question: Question) -> Events:
        """The rows that a recurrent model walks through; `line.answers` picks those at the questions."""
        line = timeline(question.times, question.query_times, question.valid, question.query_valid)
        b, q = question.query_times.shape
        begin = self.begin(question)
        # A question before the beginning is answered from the start and moves nothing behind it.
        moments = line.moments.maximum(begin)
        nothing = question.values.new_zeros(b, q, self.channels)
        return Events(
            values=line.merge(question.values, nothing),
            observed=line.merge(question.observed, nothing.bool()),
            gaps=moments.diff(dim=1, prepend=begin).masked_fill(~line.real, 0).to(nothing.dtype),
            line=line,
        )

    def begin(self, question: Question) -> Float64[Tensor, "b 1"]:
        """When the state's start holds: one first gap before the first observation, or time 0 (`start`)."""
        first = question.times[:, :1]
        if self.config.first_gap != "start":
            return first - self.calibration.first_gap / self._unit
        if values_can_be_checked(first) and bool((first < 0).any()):
            series = int((first < 0).nonzero()[0, 0])
            raise DataError(
                f"times: series {series} begins before time 0, at which every series starts under first_gap='start'"
            )
        return torch.zeros_like(first)

    @property
    def _unit(self) -> Tensor:
        return self.calibration.time_scale * self.time_factor

    def _scaled(self, times: Tensor, real: Tensor) -> Tensor:
        """Times in the model's unit, in float64; whatever stands in padding becomes 0."""
        return times.double().masked_fill(~real, 0) / self._unit
