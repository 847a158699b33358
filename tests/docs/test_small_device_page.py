"""The C sources of the page about small devices compile as shown and print what the page shows."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, assert_same_output, blocks

PAGE = ROOT / "docs" / "guide" / "small-device.md"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_example_compiles_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks(PAGE)
    shell = next(index for index, block in enumerate(found) if block.language == "bash")
    monkeypatch.chdir(tmp_path)
    exec(next(block for block in found if block.language == "python").text, {"__name__": "page"})
    done = subprocess.run(["bash", "-ec", found[shell].text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_same_output(done.stdout, found[shell + 1].text, "±0.5", "small-device.md")
