"""Static columns of a new table may have categories that training did not have."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")

from tides.data import from_long, from_wide  # noqa: E402
from tides.errors import DataError  # noqa: E402

ROLES: dict[str, Any] = {"id": "stay", "time": "hour", "static": ["ward", "age"]}


def table(wards: dict[str, Any]) -> "pd.DataFrame":
    """Two rows of each stay; stays come in reverse order."""
    rows = [(stay, hour, float(hour), ward, 40.0) for stay, ward in reversed(wards.items()) for hour in (0, 1)]
    return pd.DataFrame(rows, columns=["stay", "hour", "hr", "ward", "age"])


TRAINED = from_wide(table({"a": "icu", "b": "er", "c": "icu"}), **ROLES)
NEW = table({"a": "icu", "b": "burns", "c": None, "d": "eye"})


def test_the_error_names_row_series_and_category(tmp_path: Path) -> None:
    message = (
        r"column 'ward', row 4: category 'burns' of stay 'b' is not among 'er', 'icu' \(in 2 of 4 series\); "
        r"leave the cell empty, or let new_categories='missing' \(`--ignore-new` in commands\)"
    )
    NEW.to_csv(tmp_path / "new.csv", index=False)
    for source in (NEW, tmp_path / "new.csv"):
        with pytest.raises(DataError, match=message):
            from_wide(source, **ROLES, schema=TRAINED.schema)
    with pytest.raises(DataError, match="new_categories='drop'; wanted 'error' or 'missing'"):
        from_wide(NEW, **ROLES, new_categories="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize("ordinal", [False, True])
def test_they_may_count_as_not_recorded(ordinal: bool) -> None:
    trained = from_wide(table({"a": "icu", "b": "er"}), **ROLES, ordinal=ordinal)
    with pytest.warns(UserWarning, match=r"2 of 4 series have a category .* \('burns', 'eye'\)"):
        data = from_wide(NEW, **ROLES, ordinal=ordinal, schema=trained.schema, new_categories="missing")
    blank = from_wide(
        NEW.assign(ward=NEW.ward.where(NEW.ward == "icu")), **ROLES, ordinal=ordinal, schema=trained.schema
    )
    assert data.schema == trained.schema
    np.testing.assert_array_equal(data.static, blank.static)
    assert np.isnan(data.static[1:, :-1]).all()


def test_tables_without_new_ones_are_read_in_silence() -> None:
    long = NEW[NEW.ward == "icu"].melt(["stay", "hour", "ward", "age"], ["hr"], "item", "value")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = from_long(long, **ROLES, channel="item", value="value", schema=TRAINED.schema, new_categories="missing")
    assert data.static is not None
    assert data.static.tolist() == [[0.0, 1.0, 40.0]]
