"""Small-sample statistics against scipy and against cases worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tides.reports.published import published
from tides.reports.statistics import bootstrap_mean, mean_std, ranks, ratio_to_best, spread, wilcoxon, wilson, wins


@given(st.lists(st.integers(0, 6).map(float), min_size=1, max_size=8))
def test_ranks_average_ties(values: list[float]) -> None:
    np.testing.assert_allclose(ranks(values), stats.rankdata(values))
    np.testing.assert_allclose(ranks(values, higher=True), stats.rankdata([-value for value in values]))


def test_what_is_missing_ranks_last() -> None:
    assert ranks([2.0, math.nan, 1.0]).tolist() == [2.0, 3.0, 1.0]
    assert ranks([2.0, math.nan, 1.0], higher=True).tolist() == [1.0, 3.0, 2.0]


@pytest.mark.parametrize(("correct", "cases"), [(0, 57), (1, 36), (49, 57), (85, 85)])
def test_wilson_equals_scipy(correct: int, cases: int) -> None:
    wanted = stats.binomtest(correct, cases).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(wilson(correct, cases), (wanted.low, wanted.high), atol=1e-12)


@pytest.mark.parametrize("n", [3, 5, 10, 25])
def test_signed_ranks_are_exact_without_ties(n: int) -> None:
    generator = np.random.default_rng(n)
    one, other = generator.normal(size=n), generator.normal(0.5, size=n)
    assert wilcoxon(one, other).p == pytest.approx(stats.wilcoxon(one, other, method="exact").pvalue)


def test_signed_ranks_with_ties_are_approximate() -> None:
    one = np.array([0.9, 0.8, 0.8, 0.7, 0.6, 0.9, 1.0, 0.5, 0.4, 0.9])
    other = np.array([0.8, 0.7, 0.9, 0.7, 0.5, 0.7, 0.8, 0.6, 0.2, 0.7])
    wanted = stats.wilcoxon(one.round(1) * 10, other.round(1) * 10, method="asymptotic", correction=True)
    found = wilcoxon(np.rint(one * 10), np.rint(other * 10))
    assert found == (9, pytest.approx(wanted.pvalue))
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == (0, 1.0)


def test_wins_of_one_and_of_all() -> None:
    single, shared = wins([[0.1, 0.1, 0.3], [0.5, 0.2, 0.2], [0.1, 0.4, 0.9]])
    assert single.tolist() == [2, 1, 0]
    assert shared.tolist() == [2, 2, 1]


def test_mean_std_intervals_and_ratios() -> None:
    assert mean_std([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    assert spread([1.0, 3.0], 1) == "2.0 ± 1.4"
    assert spread([1.0], 2) == "1.00"
    low, high = bootstrap_mean([0.0, 1.0, 2.0, 3.0])
    assert 0.0 < low < 1.5 < high < 3.0
    np.testing.assert_allclose(ratio_to_best([[1.0, 2.0], [4.0, 1.0]]), [2.0, math.sqrt(2)])


def test_published_ranks_are_reproduced_where_ties_are_averaged() -> None:
    """The paper's UEA ranks average ties and put out-of-memory last."""
    models = published("uea")["model"]
    found = ranks(np.array([model["mean"] for model in models]).T, higher=True).mean(axis=0)
    np.testing.assert_allclose(found, [model["rank"] for model in models], atol=0.006)


def test_published_physiome_counts() -> None:
    """Known from the printed table: ranks with ties averaged, shared wins, ratios; the paper breaks ties unseen."""
    rows = published("physiome")["rows"]
    table = np.array([row["mse"] for row in rows])
    assert table.shape == (50, 7)
    np.testing.assert_allclose(ranks(table).mean(axis=0)[:3], [2.43, 2.69, 2.88], atol=1e-9)
    assert wins(table)[1].tolist() == [17, 17, 7, 14, 4, 0, 0]
    np.testing.assert_allclose(table.mean(axis=0)[:3], [0.3115, 0.3065, 0.3251], atol=6e-5)
    np.testing.assert_allclose(ratio_to_best(table)[:3], [1.180, 1.077, 1.209], atol=6e-4)
    assert sum(published("physiome")["wins"]) == 50
    assert [row["jgd"] for row in rows] == sorted((row["jgd"] for row in rows), reverse=True)
