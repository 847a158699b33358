"""Some channels of a long table: the data set is that of the table without the other rows."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.data.test_tables import same
from tides.data import csv_source, from_long
from tides.errors import DataError

ROLES: dict[str, Any] = {"id": "stay", "time": "at", "channel": "item", "value": "value", "unit": "h"}
WHOLE: dict[str, Any] = ROLES | {"label": "died", "static": ["ward"], "group": "person", "duplicates": "mean"}


def chart(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Five items, of which "note" holds words; the last stay has notes alone, with a ward and a label of their own."""
    rng = np.random.default_rng(seed)
    stay = rng.integers(0, 20, n)
    items = rng.choice(["220045", "220277", "51", "hr", "note"], n)
    items[stay == 19] = "note"
    values = np.where(items == "note", "sinus rhythm", rng.normal(size=n).round(3).astype(str))
    frame = pd.DataFrame({"stay": stay, "at": rng.uniform(0, 48, n).round(1), "item": items, "value": values})
    frame["died"] = np.where(stay == 19, "unknown", np.where(stay % 2, "yes", "no"))
    return frame.assign(ward=np.where(stay == 19, "attic", "icu"), person=stay // 2)


@pytest.mark.parametrize("names", [["220045", "51", "hr"], ["220277"]])
@pytest.mark.parametrize("kind", ["csv", "pieces", "parquet", "spill", "pandas", "polars", "text ids"])
def test_rows_of_other_channels_might_as_well_not_be_there(
    names: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = chart()
    if kind == "text ids":
        frame["stay"] = "s" + frame["stay"].astype(str)
    if kind == "pieces":
        monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 1500)
    table: Any = frame
    if kind in ("csv", "pieces", "spill"):
        table = tmp_path / "chart.csv"
        frame.to_csv(table, index=False)
    elif kind == "parquet":
        table = tmp_path / "chart.parquet"
        frame.astype({"item": "category"}).to_parquet(table)
    elif kind == "polars":
        table = pl.from_pandas(frame)
    without = frame[frame["item"].isin(names)].astype({"value": float})
    more: dict[str, Any] = {"spill": tmp_path / "rows"} if kind == "spill" else {}
    last = {*frame["stay"]} - {*without["stay"]}
    with pytest.warns(UserWarning, match=rf"column 'item': {len(last)} of 20 series have no row of the channels.*19"):
        found = from_long(table, **WHOLE, channels=names, **more)
    same(found, from_long(without.assign(item=without["item"].astype(str)), **WHOLE))
    assert found.class_names == ("no", "yes")
    assert found.static_names == ("ward=icu",)


def test_channels_come_in_the_order_in_which_they_were_chosen() -> None:
    frame = chart().query("stay < 19")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = from_long(frame, **WHOLE, channels=["hr", "51", "220045", "220277"])
    assert found.channels == ("hr", "51", "220045", "220277")
    sorted_ = from_long(frame[frame["item"] != "note"].astype({"value": float}), **WHOLE)
    assert sorted_.channels == ("220045", "220277", "51", "hr")
    for one, other in zip(found, sorted_, strict=True):
        np.testing.assert_array_equal(one.values, other.values[:, [3, 2, 0, 1]])


def test_new_data_may_lack_a_channel_and_have_others() -> None:
    frame = chart().query("stay < 19")
    names = ["220045", "220277"]
    schema = from_long(frame, **ROLES, duplicates="mean", channels=names).schema
    new = frame[frame["item"] != "220277"]
    with pytest.warns(UserWarning, match="column 'item': 1 of 19 series have no row of the channels that are read: 3;"):
        found = from_long(new, **{**ROLES, "unit": None}, duplicates="mean", channels=names, schema=schema)
    assert found.channels == ("220045", "220277")
    assert not any(one.observed[:, 1].any() for one in found)
    with pytest.raises(DataError, match=r"channels \['51'\] differ from the schema's"):
        from_long(new, **{**ROLES, "unit": None}, channels=["51"], schema=schema)


@pytest.mark.parametrize("kind", ["memory", "pieces", "spill"])
def test_rows_keep_their_numbers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = chart()
    at = frame.index[frame["item"] == "hr"][[30, 60]]
    frame.loc[at[1]] = frame.loc[at[0]]
    wrong = frame.copy()
    wrong.loc[at[0], "value"] = "high"
    monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 1500 if kind == "pieces" else 1 << 20)
    more: dict[str, Any] = {"spill": tmp_path / "rows"} if kind == "spill" else {}
    path = tmp_path / "chart.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(DataError, match=rf"twice at the same 'at', in rows {at[0]} and {at[1]};"):
        from_long(path, **ROLES, channels=["hr"], **more)
    wrong.to_csv(path, index=False)
    with pytest.raises(DataError, match=rf"column 'value', row {at[0]}: found 'high'; wanted a number"):
        from_long(path, **ROLES, channels=["hr"], **more)


def test_channels_that_do_not_occur_are_named() -> None:
    with pytest.raises(DataError, match=r"column 'item': channel 'note2' occurs in no row; did you mean 'note'\?"):
        from_long(chart(), **ROLES, channels=["hr", "note2"])
    with pytest.raises(DataError, match="the table has no rows of the channels 'pulse'"):
        from_long(chart(), **ROLES, channels=["pulse"])
    with pytest.raises(DataError, match="channels: found 'hr', wanted a list of column names"):
        from_long(chart(), **ROLES, channels="hr")
