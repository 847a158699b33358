"""`tides data describe` on small tables."""

import json
from pathlib import Path

import pytest

from tides.cli import main
from tides.errors import ConfigError, DataError


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.app(["data", "describe", *words], prog_name="tides")
    return int(end.value.code or 0)


@pytest.fixture
def wide(tmp_path: Path) -> str:
    path = tmp_path / "wide.csv"
    path.write_text(
        "who,when,hr,[odd],out\na,2024-01-01,60,,home\na,2024-01-01 06:00,62,1,home\nb,2024-01-02,,2,died\n"
    )
    return str(path)


def test_wide_table(wide: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(wide, "--id", "who", "--time", "when", "--label", "out", "--unit", "h") == 0
    shown = capsys.readouterr().out
    for words in ("2 series, 3 steps, 2 channels; time unit h, counted from 2024-01-01", "[odd]", "33.3%", "died"):
        assert words in shown


def test_static_columns_with_commas_or_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("i,t,x,age,sex\na,0,1,40,f\na,1,2,40,f\nb,0,3,50,m\n")
    for words in (["--static", "age,sex"], ["--static", "age", "--static", "sex"]):
        assert run(str(tmp_path / "t.csv"), "--id", "i", "--time", "t", *words, "--json") == 0
        assert json.loads(capsys.readouterr().out)["static"] == ["age", "sex=f", "sex=m"]


def test_some_channels_of_a_long_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("i,t,item,x\na,0,hr,40\na,1,note,fine\nb,0,hr,50\nb,0,bp,90\n")
    words = ["--id", "i", "--time", "t", "--channel", "item", "--value", "x", "--channels", "hr,bp", "--json"]
    assert run(str(tmp_path / "t.csv"), *words) == 0
    assert [channel["name"] for channel in json.loads(capsys.readouterr().out)["channels"]] == ["hr", "bp"]


def test_some_columns_of_a_wide_table(wide: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As `tides train --channels`: what is neither a channel nor static is left alone."""
    assert run(wide, "--id", "who", "--time", "when", "--channels", "hr", "--json") == 0
    assert [channel["name"] for channel in json.loads(capsys.readouterr().out)["channels"]] == ["hr"]


def test_long_table_as_json_with_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "long.csv"
    path.write_text("i,t,c,v\n1,0,x,1\n1,2,y,2\n2,0,x,3\n")
    roles = ("--id", "i", "--time", "t", "--channel", "c", "--value", "v")
    assert run(str(path), *roles, "--json", "--plot", str(tmp_path / "page.svg")) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["series"] == 2
    assert [channel["observed"] for channel in summary["channels"]] == [2, 1]
    assert (tmp_path / "page.svg").read_text().startswith("<?xml")


def test_errors(wide: str) -> None:
    with pytest.raises(ConfigError, match="belong together"):
        main.app(["data", "describe", wide, "--id", "who", "--time", "when", "--channel", "hr"])
    with pytest.raises(DataError, match=r"wide.csv: id='patient' is not a column"):
        main.app(["data", "describe", wide, "--id", "patient", "--time", "when"])
