"""The first sweep of the guide, from its own file, gives the line that the page shows."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna")

from tests.docs.blocks import ROOT, assert_same_output, blocks
from tides.cli.main import app


@pytest.mark.slow
def test_first_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = blocks(ROOT / "docs" / "guide" / "sweeps.md")
    monkeypatch.chdir(tmp_path)
    Path("classify.toml").write_text(next(block.text for block in page if block.language == "toml"), encoding="utf-8")
    shown = next(block.text for block in page if block.language == "text")
    command = next(block.text for block in page if "sweep classify.toml" in block.text)
    result = CliRunner().invoke(app, command.removeprefix("$ tides ").split())
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("classify: ")]
    # Another processor may round differently, and training carries that on.
    assert_same_output(line, shown, "±0.002", "docs/guide/sweeps.md")
    assert CliRunner().invoke(app, ["report", "sweep"]).exit_code == 0
    assert Path("runs/sweep/report/index.html").is_file()
