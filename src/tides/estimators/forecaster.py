"""`TIDESForecaster`: values at any later (or earlier) times, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tides.data.arrays import Layout
from tides.data.clock import zone_of
from tides.data.dataset import IrregularDataset
from tides.data.ingest import Unlabelled
from tides.data.long_series import pieces
from tides.data.new_categories import NewCategories
from tides.data.pivot import Duplicates
from tides.data.scaling import Scaling
from tides.data.series import IrregularSeries
from tides.errors import ConfigError, DataError
from tides.estimators.base import TIDESEstimator
from tides.estimators.inputs import is_series, is_table
from tides.estimators.intervals import Array, Calibrated
from tides.estimators.origins import Backtest, Origins, ask_at, join_static, latest
from tides.estimators.questions import query_times, time_span
from tides.estimators.recipe import RECIPE, Split, require_count, split_off
from tides.estimators.scikit import check_is_fitted
from tides.estimators.weights import counted
from tides.nn.config import TIDESConfig
from tides.nn.forecaster import Forecaster
from tides.training.tasks import Forecasting


class TIDESForecaster(TIDESEstimator):
    """Forecasts irregular, partly observed series at any times; NaN is missing.

    Training uses random origins: of each series the network sees what was known at some observed time and is asked for
    what was observed within `horizon` after it (a number in the data's unit, or "24h"), `origins` times per epoch. X
    and the other arguments are those of `TIDESClassifier`; there is no y, and a `label` column is ignored. Static
    features join every row as channels. Weights of series (a data set's own, or a column) count in training and in the
    choice of the epoch; intervals and scores count all series equally.

    With `smoothing=True` the network reads series in both directions and also learns to fill in the past; otherwise a
    question about the past is answered from what was known before. `gaussian` makes the network predict a spread with
    the mean; a share `calibration` of the series is held out to calibrate intervals (`tides.estimators.intervals`).

    `cut` is for few long series, or a single one: the network learns from pieces of this duration ("7d"), and answers
    from the last such stretch of a series. The latest pieces choose the epoch and calibrate the intervals. A table that
    is one series needs no `id` then.

    Learnt: `model_` (a `tides.Forecaster`), `horizon_` and `cut_` (in the data's unit), `schema_`, `history_`,
    `best_epoch_`.
    """

    _calibration: ClassVar[str] = "none"
    _network_kind: ClassVar[type[nn.Module]] = Forecaster
    task_: Forecasting
    model_: Forecaster

    def __init__(
        self,
        horizon: float | str | None = None,
        *,
        cut: float | str | None = None,
        id: str | None = None,
        time: str | None = None,
        label: str | None = None,
        weight: str | None = None,
        channel: str | None = None,
        value: str | None = None,
        channels: Sequence[str] | None = None,
        static: Sequence[str] | None = None,
        group: str | None = None,
        unit: str | None = None,
        duplicates: Duplicates = "error",
        unlabelled: Unlabelled = "error",
        new_categories: NewCategories = "error",
        layout: Layout | None = None,
        hidden_size: int = RECIPE.hidden_size,
        state_size: int = RECIPE.state_size,
        depth: int = RECIPE.depth,
        dropout: float = RECIPE.dropout,
        input_drop: float = RECIPE.input_drop,
        model: Mapping[str, Any] | None = None,
        epochs: int = RECIPE.epochs,
        batch_size: int | None = None,
        lr: float = RECIPE.lr,
        weight_decay: float = RECIPE.weight_decay,
        patience: int | None = RECIPE.patience,
        validation: float = RECIPE.validation,
        training: Mapping[str, Any] | None = None,
        origins: int = 4,
        smoothing: bool = False,
        gaussian: bool = True,
        interval: Literal["conformal", "gaussian"] = "conformal",
        calibration: float = RECIPE.calibration,
        device: str = "cpu",
        folder: str | Path | None = None,
        verbose: bool | Callable[[float], None] = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            id=id,
            time=time,
            label=label,
            weight=weight,
            channel=channel,
            value=value,
            channels=channels,
            static=static,
            group=group,
            unit=unit,
            duplicates=duplicates,
            unlabelled=unlabelled,
            new_categories=new_categories,
            layout=layout,
            hidden_size=hidden_size,
            state_size=state_size,
            depth=depth,
            dropout=dropout,
            input_drop=input_drop,
            summary=False,  # of a series as a whole, which a forecast is not
            model=model,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            patience=patience,
            validation=validation,
            training=training,
            device=device,
            folder=folder,
            verbose=verbose,
            random_state=random_state,
        )
        self.horizon = horizon
        self.cut = cut
        self.origins = origins
        self.smoothing = smoothing
        self.gaussian = gaussian
        self.interval = interval
        self.calibration = calibration

    def fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Train on X; `y` is ignored."""
        if self.interval not in ("conformal", "gaussian"):
            raise ConfigError(f"interval: found {self.interval!r}, wanted 'conformal' or 'gaussian'")
        require_count(self.origins, "origins")
        data = counted(self._read(X, times, labels="ignored", fitted=False, weights=True))
        self.cut_ = None if self.cut is None else time_span(self.cut, data.unit, "cut")
        data = self._pieces(data)
        self._check_count(data, None)
        if int(data.lengths.max()) == 1:
            raise DataError("X: found 1 feature(s), that is one step in every series; a forecast needs two or more")
        if self.horizon is None:
            raise DataError("horizon: state how far ahead to forecast, in the data's unit or such as '24h'")
        self.horizon_ = time_span(self.horizon, data.unit, "horizon")
        if self.cut_ is not None and self.cut_ <= self.horizon_:
            raise DataError(
                f"cut: found {self.cut!r} with horizon={self.horizon!r}; wanted longer pieces, which hold what is "
                "known and what is asked"
            )
        self.schema_ = data.schema
        rows = IrregularDataset([join_static(one.replace(label=None)) for one in data], channels=self._inputs(data))
        asking = [len(self._origins.cuts(one)) > 0 for one in rows]
        if sum(asking) < 2:
            reach = f"{self.horizon_:g} {data.unit or ''}".rstrip()
            raise DataError(
                f"horizon: only {sum(asking)} of {len(rows)} series have an observation within {reach} after another "
                "one; wanted at least two"
            )
        split = self._fit_network(rows[np.flatnonzero(asking)])
        self.calibrated_ = self._calibrate(split)
        return self

    def predict(self, X: Any, at: Any = None, *, times: Any = None) -> Any:
        """Values (n, q, c) at the times `at`, by default one horizon after each series' last time.

        Dates are absolute, and so are numbers if times are numbers; "+6h" and "-30min" are relative to the last time of
        each series. Give one or several, the same for all series or one row for each (if rows differ in length, a list
        of arrays is returned).
        """
        return self._shaped([mean for mean, _ in self._moments(X, at, times)])

    def predict_interval(
        self,
        X: Any,
        at: Any = None,
        coverage: float = 0.9,
        *,
        method: Literal["conformal", "gaussian"] | None = None,
        times: Any = None,
    ) -> tuple[Any, Any]:
        """Lower and upper ends, each in the shape of `predict`, that should contain a share `coverage` of values.

        `method` defaults to `interval`; too few calibration series for a conformal interval raise `DataError`.
        """
        check_is_fitted(self)
        half = self.calibrated_.width(coverage, method or self.interval, self.schema_.channels)
        found = self._moments(X, at, times)
        low = [mean - half * spread for mean, spread in found]
        return self._shaped(low), self._shaped([mean + half * spread for mean, spread in found])

    def score(self, X: Any, y: Any = None, *, times: Any = None) -> float:
        """R² over random origins of these series, each channel in units of its training spread; `y` is ignored."""
        found = self.backtest(X, times=times)
        scale = np.array(self.task_.scale)
        error = ((found.mean - found.truth) / scale)[found.scored]
        centred = ((found.truth - self.channel_means()) / scale)[found.scored]
        return 1.0 - float((error**2).sum() / max((centred**2).sum(), 1e-300))

    def backtest(self, X: Any, *, per_series: int = 4, seed: int = 0, times: Any = None) -> Backtest:
        """Forecast from random origins of these series what was observed within the horizon after them."""
        check_is_fitted(self)
        require_count(per_series, "per_series")
        data = self._pieces(self._read(X, times, labels="ignored", fitted=True))
        rows = IrregularDataset([self._row(one) for one in data], channels=self._inputs(data))
        rows = rows[np.flatnonzero([len(self._origins.cuts(one)) > 0 for one in rows])]
        if len(rows) == 0:
            raise DataError(f"X: no series has an observation within {self.horizon_:g} after another one")
        questions = self._origins.fixed(rows, per_series, seed)
        return Backtest.of(questions, self.answer(questions))

    def ask(self, X: Any, at: Any = None, *, times: Any = None) -> IrregularDataset:
        """The questions that `predict` asks the network, for `tides.explain`: series with static features as channels,
        and query times in order.
        """
        return self._questions(*self._asked(X, at, times))

    def _pieces(self, data: IrregularDataset) -> IrregularDataset:
        """What is learnt from and scored: the series, or their pieces."""
        if self.cut_ is None:
            return data
        return pieces(data.map(lambda one: one.replace(label=None)), self.cut_)

    @property
    def _origins(self) -> Origins:
        return Origins(self.horizon_, len(self.schema_.channels), self.smoothing)

    def _inputs(self, data: IrregularDataset) -> tuple[str, ...]:
        static = data.static
        width = 0 if static is None else static.shape[1]
        return (*data.channels, *(data.static_names or tuple(f"static_{i}" for i in range(width))))

    def _row(self, series: IrregularSeries) -> IrregularSeries:
        blank = dict.fromkeys(("label", "weight", "query_times", "target", "target_observed"))
        row = join_static(series.replace(**blank))
        if row.values.shape[1] != self.model_.config.input_size:
            raise DataError(
                f"X: found {row.values.shape[1]} channels and static features; "
                f"the model was trained on {self.model_.config.input_size}"
            )
        return row

    def _split(self, data: IrregularDataset, seed: int) -> Split:
        in_time = self.cut_ is not None
        rest, kept = split_off(data, self.calibration, seed, "calibration", in_time=in_time)
        train, val = split_off(rest, self.validation, seed + 1, in_time=in_time)
        chosen, calibrated = (0 if part is None else len(part) for part in (val, kept))
        self.series_ = {"training": len(train), "validation": chosen, "calibration": calibrated}
        return Split(train, val, seed, kept)

    def _parts(self, split: Split) -> tuple[IrregularDataset, IrregularDataset | None]:
        train, val = split.training, split.validation
        repeated = train[np.tile(np.arange(len(train)), self.origins)]
        return repeated.map(self._origins.fresh), None if val is None else self._origins.fixed(val, 4, split.seed)

    def _network(self, config: TIDESConfig, train: IrregularDataset) -> nn.Module:
        c = len(self.schema_.channels)
        if self.smoothing:
            config = config.replace(bidirectional=True)
        readout = config.hold == "following" and not config.bidirectional
        network = Forecaster(config, 2 * c if self.gaussian else c, "readout" if readout else "steps")
        # From whole series: random windows would give other scales every time, and perhaps no gap at all.
        scaling = Scaling.fit(train)
        shift, scale = torch.from_numpy(scaling.mean), torch.from_numpy(scaling.std)
        gaps = torch.from_numpy(np.concatenate([np.diff(train.times(i)) for i in range(len(train))]))
        beyond = (0, c if self.gaussian else 0)
        return network.calibrate(gaps, shift, scale, pad(shift[:c], beyond), pad(scale[:c], beyond, value=1.0))

    def _task(self, train: IrregularDataset) -> Forecasting:
        scale = tuple(Scaling.fit(train).std[: len(self.schema_.channels)].tolist())
        return Forecasting(scale, self.gaussian, self.input_drop)

    def _calibrate(self, split: Split) -> Calibrated:
        kept = split.calibration
        if kept is None:
            return Calibrated.none(len(self.schema_.channels))
        questions = self._origins.fixed(kept, 4, split.seed + 2)
        found = Backtest.of(questions, self.answer(questions))
        return Calibrated.fit(found.mean, found.spread, found.truth, found.scored, len(kept))

    def _moments(self, X: Any, at: Any, times: Any) -> list[tuple[Array, Array]]:
        """Mean and spread (q, c) of every series, in the order of the questions."""
        data, asked = self._asked(X, at, times)
        found = self.answer(self._questions(data, asked))
        places = [np.argsort(np.argsort(moments, kind="stable"), kind="stable") for moments in asked]
        return [(mean[place], spread[place]) for (mean, spread), place in zip(found, places, strict=True)]

    def _asked(self, X: Any, at: Any, times: Any) -> tuple[IrregularDataset, list[Array]]:
        """The series, and the asked times of each as they were asked."""
        check_is_fitted(self)
        data = self._read(X, times, labels="ignored", fitted=True)
        at = f"+{self.horizon_!r}" if at is None else at
        zone = zone_of(X, self.time) if is_table(X) and self.time is not None else None
        return data, query_times(at, data, self.schema_, counted=is_series(X), zone=zone)

    def _questions(self, data: IrregularDataset, asked: Sequence[Array]) -> IrregularDataset:
        c = len(self.schema_.channels)
        questions = [
            ask_at(latest(self._row(one), self.cut_, moments), np.sort(moments), c)
            for one, moments in zip(data, asked, strict=True)
        ]
        return IrregularDataset(questions, channels=self._inputs(data), unit=data.unit)

    def answer(self, questions: IrregularDataset) -> list[tuple[Array, Array]]:
        """Mean and spread (q, c) at the query times of each question of a `backtest`."""
        counts = [len(one.query_times) for one in questions]  # type: ignore[arg-type]
        pairs: list[tuple[Tensor, Tensor]] = []
        for output in self._outputs(questions):
            mean, spread = self.task_.moments(output)
            if spread is None:
                spread = torch.tensor(self.task_.scale, dtype=mean.dtype).expand_as(mean)
            pairs += list(zip(mean.double().cpu(), spread.double().cpu(), strict=True))
        return [(m[:n].numpy(), s[:n].numpy()) for (m, s), n in zip(pairs, counts, strict=True)]

    def _shaped(self, rows: list[Array]) -> Any:
        return np.stack(rows) if len({len(row) for row in rows}) == 1 else rows

    def channel_means(self) -> Array:
        """Training means (c,)."""
        shift = self.model_.backbone.calibration.shift
        return shift.double().cpu().numpy()[: len(self.schema_.channels)]

    def _facts(self) -> dict[str, Any]:
        task = self.task_
        facts = {"horizon": self.horizon_, "cut": self.cut_, "gaussian": task.gaussian}
        return facts | {"spread_scale": list(task.scale or ())} | self.calibrated_.to_dict()

    def _width(self, facts: dict[str, Any]) -> int:
        return len(self.schema_.channels) * (2 if facts["gaussian"] else 1)

    def _restore(self, facts: dict[str, Any]) -> None:
        self.horizon_, self.cut_ = float(facts["horizon"]), facts.get("cut")
        self.task_ = Forecasting(tuple(facts["spread_scale"]), bool(facts["gaussian"]))
        self.calibrated_ = Calibrated.from_dict(facts)
