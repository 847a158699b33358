"""When to look next: the time whose observation is expected to reduce the predictive uncertainty most, per cost.

For a candidate time τ the model's own forecast there, mean and spread, gives a few values that might be found. Each is
added to the series, and the model is asked again how sure it is of the answers that matter:

    gain(τ) = (U − E_y[U | y at τ]) / cost(τ),        U = mean over asked times and channels of variance / scale²

The variance is a Gaussian head's, or the spread between the members of an ensemble, or the sum of both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tides.data.batch import IrregularBatch
from tides.errors import ConfigError, DataError
from tides.explain.asking import is_whole, numbers, only_series, require_evaluation
from tides.training.tasks import Forecasting


@dataclass(frozen=True, eq=False)
class Suggestion:
    """The best of the candidates, and how all of them (m,) compare."""

    time: float
    candidates: Tensor
    gain: Tensor
    """Expected reduction of the uncertainty per cost."""
    after: Tensor
    """Expected uncertainty with an observation at each candidate."""
    before: float


def suggest_next_time(
    models: nn.Module | Sequence[nn.Module],
    X: IrregularBatch,
    candidates: Sequence[float] | Tensor,
    *,
    cost: Callable[[Tensor], Tensor] | Tensor | None = None,
    task: Forecasting | None = None,
    series: int = 0,
    samples: int = 8,
    seed: int = 0,
) -> Suggestion:
    """The candidate time at which to observe one series next, to know best what `X.query_times` ask for.

    `models` is a forecaster with a Gaussian head (then `task` is the `Forecasting(gaussian=True, …)` it was trained
    with), or an ensemble of forecasters. `cost` is a function of the candidates or one number per candidate, all
    positive; by default every observation costs the same. All channels are observed at the suggested time; channels
    that are not forecast are static ones, the same in every row.
    """
    members = [models] if isinstance(models, nn.Module) else list(models)
    task = task or Forecasting()
    if not members or (len(members) == 1 and not task.gaussian):
        raise ConfigError(
            "models: one forecaster without a Gaussian head has no uncertainty; give several, or its task"
        )
    for member in members:
        require_evaluation(member, X)
    one = only_series(X, series)
    if one.query_times is None:
        raise DataError("X: the batch asks no question; its query_times say what should be known better")
    if not is_whole(samples) or samples < 1:
        raise ConfigError(f"samples: found {samples!r}, wanted at least 1")
    moments = numbers(candidates, "candidates", "times as numbers, in the batch's unit", one.times)
    if moments.ndim != 1 or len(moments) == 0 or not bool(torch.isfinite(moments).all()):
        raise DataError("candidates: wanted one or more finite times")
    price = _price(cost, moments)
    with torch.no_grad():
        before = _uncertainty(members, task, one)[0]
        after = _expected_after(members, task, one, moments, samples, seed)
    gain = (before - after) / price
    best = int(gain.argmax())
    return Suggestion(float(moments[best]), moments, gain, after, float(before))


def _price(cost: Callable[[Tensor], Tensor] | Tensor | None, moments: Tensor) -> Tensor:
    if cost is None:
        return torch.ones_like(moments)
    price = numbers(cost(moments) if callable(cost) else cost, "cost", "one number > 0 for each candidate", moments)
    if price.shape != moments.shape or not bool((price > 0).all()):
        raise DataError(f"cost: wanted {len(moments)} numbers > 0, one for each candidate")
    return price


def _forecast(members: Sequence[nn.Module], task: Forecasting, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
    """Mean and variance (b, q, c) of the mixture of all members."""
    means, variances = [], []
    for member in members:
        mean, spread = task.moments(task.predict(member, batch).double())
        means.append(mean)
        variances.append(torch.zeros_like(mean) if spread is None else spread.square())
    mean = torch.stack(means)
    between = mean.var(dim=0, correction=0)
    return mean.mean(0), torch.stack(variances).mean(0) + between


def _uncertainty(members: Sequence[nn.Module], task: Forecasting, batch: IrregularBatch) -> Tensor:
    """U (b,) of the asked times, in units of the task's scale."""
    _, variance = _forecast(members, task, batch)
    share = variance if task.scale is None else variance / variance.new_tensor(task.scale).square()
    asked = torch.ones_like(share[..., 0], dtype=torch.bool) if batch.query_valid is None else batch.query_valid
    weight = asked.unsqueeze(-1).expand_as(share).double()
    return (share * weight).sum((1, 2)) / weight.sum((1, 2))


def _expected_after(
    members: Sequence[nn.Module], task: Forecasting, one: IrregularBatch, moments: Tensor, samples: int, seed: int
) -> Tensor:
    """E_y[U | y at τ] for every candidate (m,)."""
    m = len(moments)
    asking = replace(one, query_times=moments.unsqueeze(0), query_valid=None, targets=None, target_observed=None)
    mean, variance = _forecast(members, task, asking)
    known = torch.isfinite(mean + variance).flatten(0, 1).all(-1)
    if not bool(known.all()):
        unknown = float(moments[int((~known).nonzero()[0])])
        raise DataError(f"candidates: the forecast at {unknown:g} is not finite; is it too far ahead?")
    if not _further_stay(one, mean.shape[-1]):
        raise ConfigError(
            f"models: they forecast {mean.shape[-1]} channels of {one.values.shape[-1]}, and the others change, so "
            "that no observation can be imagined; train a forecaster of all channels"
        )
    generator = torch.Generator().manual_seed(seed)
    half = torch.randn((samples + 1) // 2, mean.shape[-1], generator=generator, dtype=torch.float64)
    noise = torch.cat([half, -half])[:samples].to(mean.device)
    imagined = mean[0].unsqueeze(1) + variance[0].sqrt().unsqueeze(1) * noise  # (m, samples, c)
    many = with_observation(
        one.rows(torch.zeros(m * samples, dtype=torch.long)),
        moments.repeat_interleave(samples),
        imagined.flatten(0, 1).to(one.values.dtype),
    )
    return _uncertainty(members, task, many).view(m, samples).mean(1)


def _further_stay(one: IrregularBatch, c: int) -> bool:
    """Whether the channels after the first c are constant over all rows."""
    same = [torch.equal(part[:, 1:, c:], part[:, :-1, c:]) for part in (one.values, one.observed)]
    return one.values.shape[-1] >= c and all(same)


def with_observation(batch: IrregularBatch, times: Tensor, values: Tensor) -> IrregularBatch:
    """Every series (without padding) with one more row of values (b, c) at times (b,), all of them observed.

    The values belong to the first c channels; further channels, such as static ones, repeat the last row.
    """
    c = values.shape[-1]
    row = torch.cat([values, batch.values[:, -1, c:]], dim=-1).unsqueeze(1)
    known = torch.cat([torch.ones_like(values, dtype=torch.bool), batch.observed[:, -1, c:]], dim=-1).unsqueeze(1)
    moments = torch.cat([batch.times, times.to(batch.times).unsqueeze(1)], dim=1)
    order = moments.argsort(dim=1, stable=True)
    rows = order.unsqueeze(-1).expand(-1, -1, row.shape[-1])
    moments = moments.gather(1, order)
    seen = torch.cat([batch.observed, known], dim=1)
    first = batch.gaps[:, :1]
    return replace(
        batch,
        values=torch.cat([batch.values, row], dim=1).gather(1, rows),
        times=moments,
        gaps=torch.cat([first, moments.diff(dim=1).to(first.dtype)], dim=1),
        observed=seen.gather(1, rows),
        valid=torch.ones_like(moments, dtype=torch.bool),
    )
