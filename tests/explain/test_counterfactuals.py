"""Other times and fewer observations, compared with asking about series that really are so."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.explain.models import batch, classifier, forecaster
from tides.errors import DataError, ShapeError
from tides.explain import remove_each, sampled_later
from tides.explain.asking import ask, only_series


def test_the_gap_as_it_was_gives_the_answer_as_it_was() -> None:
    model, given = classifier(), batch()
    one = only_series(given, 2)
    gap = float(one.times[0, -1] - one.times[0, -2])
    found = sampled_later(model, given, [gap, 2 * gap, 0.0], series=2)
    assert found.gap == pytest.approx(gap)
    torch.testing.assert_close(found.answers[0], found.answer)
    torch.testing.assert_close(found.answer, ask(model, given)[2])
    assert not torch.allclose(found.answers[1], found.answer)


def test_a_later_last_observation_is_a_series_with_that_time() -> None:
    model, given = forecaster(), only_series(batch(queries=2), 0)
    found = sampled_later(model, given, [7.5])
    times = given.times.clone()
    times[:, -1] = times[:, -2] + 7.5
    gaps = given.gaps.clone()
    gaps[:, -1] = 7.5
    torch.testing.assert_close(found.answers, ask(model, replace(given, times=times, gaps=gaps)))


def test_removing_each_observation_is_asking_about_the_rest() -> None:
    model, given = classifier(), batch()
    found = remove_each(model, given, series=1)
    one = only_series(given, 1)
    n = one.times.shape[1]
    assert found.without.shape == (n, 3)
    for k in range(n):
        rest = [i for i in range(n) if i != k]
        times = one.times[:, rest]
        gaps = torch.cat([one.gaps[:, :1], times.diff(dim=1)], dim=1)
        parts = {"values": one.values[:, rest], "observed": one.observed[:, rest], "valid": one.valid[:, rest]}
        torch.testing.assert_close(found.without[k], ask(model, replace(one, times=times, gaps=gaps, **parts))[0])
    torch.testing.assert_close(found.change, found.answer - found.without)


def test_an_empty_row_of_a_bare_average_changes_what_it_should() -> None:
    """The last of the observations under `pool=last`: removing it leaves the answer of the prefix."""
    model, given = classifier(pool="last"), only_series(batch(), 0)
    found = remove_each(model, given)
    parts = {name: getattr(given, name)[:, :-1] for name in ("values", "times", "gaps", "observed", "valid")}
    torch.testing.assert_close(found.without[-1], ask(model, replace(given, **parts))[0])


def test_models_that_are_given_gaps_see_the_other_times_too() -> None:
    class Gaps(torch.nn.Module):
        def forward(self, x: torch.Tensor, gaps: torch.Tensor, **_: object) -> torch.Tensor:
            return gaps

    model, given = Gaps().eval(), only_series(batch(), 0)
    gaps = given.gaps[0].tolist()
    found = sampled_later(model, given, [7.5, gaps[-1]])
    assert found.answers.tolist() == [pytest.approx([*gaps[:-1], 7.5]), pytest.approx(gaps)]
    without = remove_each(model, given).without.tolist()
    for k in range(1, len(gaps)):
        merged = [*gaps[:k], *([gaps[k] + gaps[k + 1], *gaps[k + 2 :]] if k + 1 < len(gaps) else [])]
        assert without[k] == pytest.approx(merged)
    # Without the first one, the second begins the series after the first gap.
    assert without[0] == pytest.approx([gaps[0], *gaps[2:]])


def test_of_two_observations_one_may_go() -> None:
    model, given = classifier(), batch(b=1, l=2)
    assert remove_each(model, given).without.shape == (2, 3)
    assert sampled_later(model, given, [1.0]).answers.shape == (1, 3)


def test_too_short_a_series_is_refused() -> None:
    model, given = classifier(), batch(b=1, l=1)
    with pytest.raises(DataError, match="one observation"):
        remove_each(model, given)
    with pytest.raises(DataError, match="one observation"):
        sampled_later(model, given, [1.0])
    with pytest.raises(DataError, match="gaps"):
        sampled_later(model, batch(), [-1.0])
    with pytest.raises(ShapeError, match="series"):
        sampled_later(model, batch(), [1.0], series=3)


def test_arguments_of_another_kind_are_named() -> None:
    model, given = classifier(), batch()
    for gaps in (["a"], None, "ab"):
        with pytest.raises(DataError, match=r"gaps: found .*, wanted one or more finite numbers ≥ 0"):
            sampled_later(model, given, gaps)  # type: ignore[arg-type]
    for series in (1.5, "a", None):
        with pytest.raises(ShapeError, match=r"series: found .*, wanted an index into 3 series"):
            remove_each(model, given, series=series)  # type: ignore[arg-type]
    for call in (lambda: remove_each(forecaster(), given), lambda: sampled_later(forecaster(), given, [1.0])):
        with pytest.raises(DataError, match="batch: found no query times; a forecaster needs"):
            call()
    assert remove_each(model, given, series=np.int64(1)).answer.shape == (3,)  # type: ignore[arg-type]
