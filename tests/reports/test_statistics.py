"""Small-sample statistics against scipy and against cases worked out by hand."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tides.reports.physiome_tables import best_published
from tides.reports.published import published
from tides.reports.statistics import bootstrap_mean, mean_std, ranks, ratio_to_best, spread, wilcoxon, wilson, wins


@given(st.lists(st.integers(0, 6).map(float), min_size=1, max_size=8))
def test_ranks_average_ties(values: list[float]) -> None:
    np.testing.assert_allclose(ranks(values), stats.rankdata(values))
    np.testing.assert_allclose(ranks(values, higher=True), stats.rankdata([-value for value in values]))
    np.testing.assert_allclose(ranks(values, ties="best"), stats.rankdata(values, method="min"))


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


@pytest.mark.parametrize("n", [2, 5, 9])
def test_signed_ranks_with_ties_count_every_sign(n: int) -> None:
    """Against all 2ⁿ signs, tried one by one."""
    generator = np.random.default_rng(n)
    sizes = generator.integers(1, 4, size=n).astype(float)
    sums = np.array([sizes_of(signs, sizes) for signs in itertools.product((False, True), repeat=n)])
    signs = generator.random(n) < 0.8
    observed = min(sizes_of(signs, sizes), sizes_of(~signs, sizes))
    found = wilcoxon(np.where(signs, sizes, -sizes), np.zeros(n))
    assert found == (n, pytest.approx(min(1.0, 2 * float((sums <= observed).mean()))))


def sizes_of(signs: Sequence[bool] | NDArray[np.bool_], sizes: NDArray[np.float64]) -> float:
    """The rank sum of those with a positive sign."""
    return float(stats.rankdata(sizes)[np.asarray(signs)].sum())


def test_five_pairs_never_give_less_than_one_in_sixteen() -> None:
    """Where all five agree, with ties of every kind; the normal approximation falls below it."""
    for sizes in ([1, 2, 3, 4, 5], [1, 1, 2, 2, 3], [4, 4, 4, 4, 4]):
        assert wilcoxon(sizes, np.zeros(5)) == (5, 0.0625)


def test_equal_differences_are_ties_also_in_their_last_bits() -> None:
    cases = np.array([52, 30, 23, 11, 40])
    ours, theirs = cases / 57, (cases - [5, 5, 5, -5, 0]) / 57
    assert len(np.unique(np.abs(ours - theirs))) > 2
    assert wilcoxon(ours, theirs) == wilcoxon([5, 5, 5, -5], [0, 0, 0, 0])
    assert wilcoxon([0.1 + 0.2, 2.0], [0.3, 1.0]).pairs == 1
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == (0, 1.0)


def test_many_pairs_with_ties_are_approximate() -> None:
    generator = np.random.default_rng(0)
    difference = generator.integers(-3, 5, size=80).astype(float)
    wanted = stats.wilcoxon(difference, method="asymptotic", correction=True)
    assert wilcoxon(difference, 0 * difference) == (int((difference != 0).sum()), pytest.approx(wanted.pvalue))


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


def test_the_paper_gives_ties_the_better_place_and_knows_more_digits_of_its_own_model() -> None:
    numbers = published("physiome")
    table = np.array([row["mse"] for row in numbers["rows"]])
    tied = (table[:, 1:] == table[:, :1]).any(axis=1)
    # Unseen digits of TIDES where its printed error ties: smaller or greater than the others'.
    unseen = {"DOK01": -1, "DUP02": -1, "MIT01": -1, "GUP01": -1, "GUY01": 1, "M01": 1, "NEL01": 1}
    assert {row["dataset"] for row, equal in zip(numbers["rows"], tied, strict=True) if equal} == set(unseen)
    table[:, 0] += [1e-4 * unseen.get(row["dataset"], 0) for row in numbers["rows"]]
    np.testing.assert_allclose(ranks(table, ties="best").mean(axis=0), numbers["rank"], atol=1e-9)
    assert np.abs(ranks(table).mean(axis=0) - numbers["rank"]).max() > 0.02


def test_published_physiome_counts() -> None:
    """Known from the printed table: ranks with ties averaged, shared wins, ratios."""
    rows = published("physiome")["rows"]
    table = np.array([row["mse"] for row in rows])
    assert table.shape == (50, 7)
    np.testing.assert_allclose(ranks(table).mean(axis=0)[:3], [2.43, 2.69, 2.88], atol=1e-9)
    assert wins(table)[1].tolist() == [17, 17, 7, 14, 4, 0, 0]
    np.testing.assert_allclose(table.mean(axis=0)[:3], [0.3115, 0.3065, 0.3251], atol=6e-5)
    np.testing.assert_allclose(ratio_to_best(table)[:3], [1.180, 1.077, 1.209], atol=6e-4)
    assert np.bincount(list(map(best_published, rows)), minlength=7).tolist() == published("physiome")["wins"]
    assert [row["jgd"] for row in rows] == sorted((row["jgd"] for row in rows), reverse=True)
