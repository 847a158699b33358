"""The sweeps of the guide give the lines that the page shows, beside the defaults that it names."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna")

from tests.docs.blocks import ROOT, assert_same_output, blocks
from tides.cli.main import app
from tides.experiments.sweep import file_sweep

PAGE = ROOT / "docs" / "guide" / "sweeps.md"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentence", "better"),
    [
        ("short", r"The shipped configuration reaches (0\.\d+)", True),
        ("classify", r"recipe's own arguments, which reach (0\.\d+)", False),
    ],
)
def test_sweeps(name: str, sentence: str, better: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, file = blocks(PAGE), Path(f"{name}.toml")
    monkeypatch.chdir(tmp_path)
    position = next(i for i, block in enumerate(page) if f"sweep {file}" in block.text)
    text, command, shown = (block.text for block in page[position - 1 : position + 2])
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, command.removeprefix("$ tides ").split())
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith(f"{name}: ")]
    # Another processor may round differently, and training carries that on.
    assert_same_output(line, shown, "±0.001", "docs/guide/sweeps.md")
    default = file_sweep(file, quick=False, settings=[], device="cpu").target.score({}, lambda part: None)
    (said,) = re.findall(sentence, PAGE.read_text(encoding="utf-8").replace("\n", " "))
    assert default == pytest.approx(float(said), abs=0.001)
    assert (float(line.rpartition(" ")[2]) < default) is better
    assert CliRunner().invoke(app, ["report", "sweep"]).exit_code == 0
    assert Path("runs/sweep/report/index.html").is_file()


def test_the_file_for_a_table_is_one_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = [block.text for block in blocks(PAGE) if "[task.table]" in block.text and block.language == "toml"]
    Path("ward.toml").write_text(text, encoding="utf-8")
    Path("visits.csv").touch()
    sweep = file_sweep(Path("ward.toml"), quick=False, settings=[], device="cpu")
    sweep.target.check_settings(sweep.space.example())
    assert set(sweep.space.parameters) == {"lr", "hidden_size", "dropout"}
