"""The numbers of a scorecard, counted again by plain loops over the same questions."""

from copy import copy

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from tests.estimators.series import FAST, levels, relaxing
from tides.data import IrregularDataset
from tides.errors import DataError
from tides.estimators import TIDESClassifier, TIDESForecaster, TIDESRegressor
from tides.estimators.scorecard import scorecard


def two_channels(n: int, seed: int) -> IrregularDataset:
    """A second channel of another size; a third of all values is missing."""
    rng = np.random.default_rng(seed)
    series = []
    for one in relaxing(n, seed, points=15):
        values = np.hstack([one.values, 100 * rng.normal(size=one.values.shape)])
        series.append(one.replace(values=values, observed=rng.random(values.shape) < 2 / 3))
    return IrregularDataset(series, channels=("x", "y"), unit="h")


@pytest.fixture(scope="module")
def forecaster() -> TIDESForecaster:
    return TIDESForecaster("3h", **{**FAST, "epochs": 1, "origins": 1}).fit(two_channels(60, 0))


def test_forecasts_are_scored_as_they_were_answered(forecaster: TIDESForecaster) -> None:
    data = two_channels(8, 1)
    card = scorecard(forecaster, data)
    found = forecaster.backtest(data)
    scale, centre = forecaster.task_.scale, forecaster.channel_means()
    assert scale is not None
    half = forecaster.calibrated_.width(0.9, "conformal", ("x", "y"))
    errors, inside, row = [], [], 0
    for one in found.questions:
        assert one.query_times is not None
        for t in one.query_times:
            for c in range(2):
                if found.scored[row, c]:
                    seen = [v for v, known in zip(one.values[:, c], one.observed[:, c], strict=True) if known]
                    truth, answer = found.truth[row, c], found.mean[row, c]
                    guesses = (answer, seen[-1] if seen else centre[c], centre[c])
                    errors.append((c, t - one.times[-1], *((guess - truth) / scale[c] for guess in guesses)))
                    inside.append(abs(answer - truth) <= half[c] * found.spread[row, c])
            row += 1
    table = np.array(errors)
    metrics = card["metrics"]
    wanted = {"mse": 2, "mse of the last value": 3, "mse of the mean": 4}
    for name, column in wanted.items():
        assert metrics[name][0] == pytest.approx(np.mean(table[:, column] ** 2), rel=1e-12), name
    assert metrics["mae"][0] == pytest.approx(np.mean(np.abs(table[:, 2])), rel=1e-12)
    assert metrics["coverage of 90% conformal intervals"][0] == pytest.approx(np.mean(inside), rel=1e-12)
    for c in range(2):
        own = table[table[:, 0] == c, 2] * scale[c]
        assert card["rmse"][c] == pytest.approx(np.sqrt(np.mean(own**2)), rel=1e-12)
    assert (card["series"], card["channels"], card["horizon"]) == (8, ["x", "y"], 3.0)
    # Every answer lies ahead, so each of them is in one bin of leads, about as many in each.
    assert len(card["by_lead"]) == 8
    edges = np.quantile([t - one.times[-1] for one in found.questions for t in one.query_times], np.linspace(0, 1, 9))
    edges[0] = 0
    for low, high, one in zip(edges[:-1], edges[1:], card["by_lead"], strict=True):
        chosen = (table[:, 1] > low) & (table[:, 1] <= high)
        assert one["lead"] == pytest.approx(np.mean(table[chosen, 1]), rel=1e-12)
        assert one["rmse"] == pytest.approx(np.sqrt(np.mean(table[chosen, 2] ** 2)), rel=1e-12)
        assert one["rmse_of_last_value"] == pytest.approx(np.sqrt(np.mean(table[chosen, 3] ** 2)), rel=1e-12)
        assert one["coverage"] == pytest.approx(np.mean(np.array(inside)[chosen]), rel=1e-12)


@pytest.mark.parametrize("per_unit", [1, 10, 12])
@pytest.mark.parametrize("horizon", [1, 3])
def test_leads_on_a_grid_are_told_apart(forecaster: TIDESForecaster, horizon: int, per_unit: int) -> None:
    """Rows every hour, tenth or twelfth of it: answers one, two and three steps ahead are three rows of the table."""
    grid = [one.replace(times=(i + np.arange(15)) / per_unit) for i, one in enumerate(two_channels(8, 1))]
    short = copy(forecaster)
    short.horizon_ = horizon / per_unit
    rows = scorecard(short, IrregularDataset(grid, channels=("x", "y"), unit="h"))["by_lead"]
    assert [one["lead"] * per_unit for one in rows] == pytest.approx([1, 2, 3][:horizon], rel=1e-12)


def test_a_backtest_answers_as_predictions_and_intervals_do(forecaster: TIDESForecaster) -> None:
    found = forecaster.backtest(two_channels(3, 1), per_series=1)
    half = forecaster.calibrated_.width(0.9, "conformal", ("x", "y"))
    row = 0
    for one in found.questions:
        assert one.query_times is not None
        known = one.replace(query_times=None, target=None, target_observed=None)
        rows = slice(row, row := row + len(one.query_times))
        mean = forecaster.predict([known], at=[one.query_times])[0]
        low, high = forecaster.predict_interval([known], at=[one.query_times])
        np.testing.assert_allclose(found.mean[rows], mean, rtol=1e-9)
        np.testing.assert_allclose(found.spread[rows], (high - low)[0] / (2 * half), rtol=1e-9)
        np.testing.assert_array_equal(found.truth[rows], one.target)
        np.testing.assert_array_equal(found.scored[rows], one.target_observed)
    assert row == len(found.mean)


def test_one_origin_is_enough_to_be_asked(forecaster: TIDESForecaster) -> None:
    short = [
        one.replace(times=np.array([0.0, gap]), values=one.values[:2], observed=np.ones((2, 2), bool))
        for one, gap in zip(two_channels(3, 1), (1.0, 3.0, 4.0), strict=True)
    ]
    found = forecaster.backtest(IrregularDataset(short, channels=("x", "y"), unit="h"), per_series=1)
    assert [(one.id, len(one), one.query_times.tolist()) for one in found.questions] == [(0, 1, [1.0]), (1, 1, [3.0])]
    with pytest.raises(DataError, match="no series has an observation within 3 after another one"):
        forecaster.backtest(IrregularDataset(short[2:], channels=("x", "y"), unit="h"))


def test_examples_show_what_was_known_and_what_came(forecaster: TIDESForecaster) -> None:
    data = two_channels(8, 1)
    examples = scorecard(forecaster, data)["examples"]
    assert [one["id"] for one in examples] == [str(i) for i in range(6)]
    questions = list(forecaster.backtest(data).questions)
    half = forecaster.calibrated_.width(0.9, "conformal", ("x", "y"))
    for i, one in enumerate(examples):
        asked = max((q for q in questions if q.group == i), key=len)
        assert len(one["times"]) == len(asked)
        known = len(one["times"])
        assert one["times"] == data[i].times[:known].tolist()
        np.testing.assert_array_equal(one["values"], np.where(data[i].observed, data[i].values, np.nan)[:known])
        rows = np.searchsorted(data[i].times, one["asked"])
        np.testing.assert_array_equal(one["truth"], np.where(data[i].observed, data[i].values, np.nan)[rows])
        np.testing.assert_allclose(one["grid"], one["times"][-1] + 3.0 * np.arange(1, 41) / 40, rtol=1e-12)
        past = data[i].replace(
            values=data[i].values[:known], times=data[i].times[:known], observed=data[i].observed[:known]
        )
        mean = forecaster.predict([past], at=[one["grid"]])[0]
        np.testing.assert_allclose(one["mean"], mean, rtol=1e-9)
        low, high = forecaster.predict_interval([past], at=[one["grid"]])
        np.testing.assert_allclose(one["low"], low[0], rtol=1e-9)
        np.testing.assert_allclose(one["high"], high[0], rtol=1e-9)
        assert (half > 0).all()


def test_classes_and_numbers_are_scored_as_they_were_answered() -> None:
    data = levels(24)
    classifier = TIDESClassifier(**{**FAST, "epochs": 1}).fit(data)
    card = scorecard(classifier, data)
    probabilities = classifier.predict_proba(data)
    assert card["classes"] == ["low", "high"]
    assert card["truth"] == [i % 2 for i in range(24)]
    np.testing.assert_allclose(card["probabilities"], probabilities, atol=5e-7)
    assert card["metrics"]["accuracy"][0] == pytest.approx(classifier.score(data), rel=1e-12)
    numbers = IrregularDataset([one.replace(label=float(i)) for i, one in enumerate(data)], channels=("a", "b"))
    regressor = TIDESRegressor(**{**FAST, "epochs": 1}).fit(numbers)
    card = scorecard(regressor, numbers)
    predicted = regressor.predict(numbers)
    assert card["truth"] == [[float(i)] for i in range(24)]
    np.testing.assert_allclose(np.ravel(card["predicted"]), predicted, rtol=1e-12)
    assert card["metrics"]["mse"][0] == pytest.approx(np.mean((predicted - np.arange(24)) ** 2), rel=1e-12)
    assert card["metrics"]["r2"] == [pytest.approx(regressor.score(numbers), rel=1e-12), None, None]
    assert scorecard(regressor, numbers[:1])["metrics"]["r2"] == [None, None, None]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("weighted", [False, True])
def test_average_precision_says_of_which_class(weighted: bool) -> None:
    """With one rare class that of the other is nearly 1, whatever the model knows."""
    few = [0, 6, 7]
    series = [one.replace(label=int(i in few)) for i, one in enumerate(levels(24))]
    if weighted:
        series = [one.replace(weight=1.0 + i) for i, one in enumerate(series)]
    data = IrregularDataset(series, channels=("a", "b"), class_names=("stays", "churns"))
    model = TIDESClassifier(**{**FAST, "epochs": 1}).fit(data)
    metrics, p = scorecard(model, data)["metrics"], model.predict_proba(data)
    churns = np.isin(np.arange(24), few)
    weights = 1.0 + np.arange(24) if weighted else np.ones(24)
    assert "auprc" not in metrics
    of = dict(zip(model.classes_, p.T, strict=True))
    for name, truth in (("churns", churns), ("stays", ~churns)):
        wanted = average_precision_score(truth, of[name], sample_weight=weights)
        assert metrics[f"auprc of {name}"][0] == pytest.approx(wanted, rel=1e-12)
    share, *interval = metrics["accuracy of always stays"]
    assert share == pytest.approx(np.average(~churns, weights=weights), rel=1e-12)
    assert interval == [None, None]


def test_classes_that_the_model_does_not_know_are_named() -> None:
    data = levels(24)
    model = TIDESClassifier(**{**FAST, "epochs": 1}).fit(data)
    other = IrregularDataset(list(data), channels=("a", "b"), unit="h", class_names=("low", "odd"))
    with pytest.raises(DataError, match=r"label: class 'odd' is not among those the model knows, \['low', 'high'\]"):
        scorecard(model, other)
    with pytest.raises(DataError, match="the data set is empty"):
        scorecard(model, data[:0])
