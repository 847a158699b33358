"""What the model would have answered if the last observation had come later, or an observation had not been made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tides.data.batch import IrregularBatch
from tides.errors import DataError
from tides.explain.asking import ask, numbers, only_series, require_evaluation


@dataclass(frozen=True, eq=False)
class LaterAnswers:
    """Answers (g, …) if the last gap of the series had been `gaps` (g,); `answer` is the one for the real gap."""

    gaps: Tensor
    answers: Tensor
    gap: float
    answer: Tensor


@torch.no_grad()
def sampled_later(model: nn.Module, batch: IrregularBatch, gaps: Sequence[float], series: int = 0) -> LaterAnswers:
    """The answer as a function of the time between the last two observations; values and query times stay the same."""
    require_evaluation(model, batch)
    one = only_series(batch, series)
    wanted = numbers(gaps, "gaps", "one or more finite numbers ≥ 0", one.times)
    if one.times.shape[1] < 2:
        raise DataError("series: found one observation, wanted two: there is no last gap to change")
    if wanted.ndim != 1 or len(wanted) == 0 or bool((wanted < 0).any()) or not bool(torch.isfinite(wanted).all()):
        raise DataError("gaps: wanted one or more finite numbers ≥ 0")
    many = one.rows(torch.zeros(len(wanted), dtype=torch.long))
    moments, steps = many.times.clone(), many.gaps.clone()
    moments[:, -1] = moments[:, -2] + wanted
    steps[:, -1] = wanted.to(steps.dtype)
    answers = ask(model, replace(many, times=moments, gaps=steps))
    last = float(one.times[0, -1] - one.times[0, -2])
    return LaterAnswers(wanted, answers, last, ask(model, one)[0])


@dataclass(frozen=True, eq=False)
class Removal:
    """`without` (l, …): the answers if one observation had not been made; `change` is the real answer minus these."""

    answer: Tensor
    without: Tensor

    @property
    def change(self) -> Tensor:
        return self.answer - self.without


@torch.no_grad()
def remove_each(model: nn.Module, batch: IrregularBatch, series: int = 0) -> Removal:
    """Remove each observation of one series in turn: its row goes, and the gaps around it become one.

    The first gap stays the same. A series keeps at least one observation.
    """
    require_evaluation(model, batch)
    one = only_series(batch, series)
    n = one.times.shape[1]
    if n < 2:
        raise DataError("series: found one observation, wanted two: nothing would be left to answer from")
    places = [[k for k in range(n) if k != removed] for removed in range(n)]
    kept = torch.tensor(places, device=one.times.device)  # (l, l − 1)
    many = one.rows(torch.zeros(n, dtype=torch.long))
    rows = kept.unsqueeze(-1).expand(-1, -1, one.values.shape[-1])
    times = many.times.gather(1, kept)
    first = one.gaps[:, :1].expand(n, -1)
    without = replace(
        many,
        values=many.values.gather(1, rows),
        observed=many.observed.gather(1, rows),
        valid=many.valid.gather(1, kept),
        times=times,
        gaps=torch.cat([first, times.diff(dim=1).to(first.dtype)], dim=1),
    )
    return Removal(ask(model, one)[0], ask(model, without))
