"""Every Python block of README and documentation runs, in order per page, and prints what the page says."""

import io
import warnings
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.blocks import Block, assert_same_output, blocks, last_digit, name, pages

# Pages whose Python needs files that the page describes; each has a test of its own that provides them.
ELSEWHERE = {
    "docs/guide/your-own-data.md": "tests/data/test_your_own_data_page.py",
    "docs/guide/uea.md": "tests/docs/test_guide_pages.py",
    "docs/guide/physiome.md": "tests/docs/test_guide_pages.py",
    "docs/guide/simulate.md": "tests/docs/test_guide_pages.py",
    "docs/quickstart.md": "tests/docs/test_quickstart.py",
    "docs/reproduce/fading-flash.md": "tests/experiments/test_fading_flash.py",
}
HERE = [page for page in pages() if name(page) not in ELSEWHERE]
WITH_PYTHON = [page for page in HERE if any(block.language == "python" for block in blocks(page))]


def test_pages_are_found() -> None:
    found = {name(page) for page in pages()}
    assert len(found) >= 20
    assert set(ELSEWHERE) <= found
    assert len(WITH_PYTHON) >= 7
    for test in set(ELSEWHERE.values()):
        assert (pages()[0].parent / test).is_file()


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "page"}
    printed: str | None = None
    for block in blocks(page):
        where = f"{name(page)}:{block.line}"
        if block.language == "python" and block.order != "skip":
            printed = _run(block, scope, where)
        elif block.order == "output":
            assert printed is not None, f"{where}: there is no Python block before this output"
            assert_same_output(printed, block.text, block.note, where)
            printed = None


def _run(block: Block, scope: dict[str, object], where: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        exec(compile("\n" * block.line + block.text, where, "exec"), scope)
    return out.getvalue()


def test_every_output_is_checked_and_every_skip_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    skipped, outputs = [], 0
    for page in HERE:
        for block in blocks(page):
            where = f"{name(page)}:{block.line}"
            if block.order == "skip":
                assert block.note, f"{where}: skip needs a reason"
                skipped.append(f"{where}: {block.note}")
            outputs += block.order == "output"
        for code, after in pairwise(blocks(page)):
            # Two fences and an empty line: nothing stands between them.
            if code.language == "python" and after.language == "text" and after.order != "output":
                next_to_it = code.line + code.text.count("\n") + 3
                assert after.line > next_to_it, f"{name(page)}:{after.line}: no <!-- output -->"
    assert outputs >= 15
    with capsys.disabled():
        for line in skipped:
            print(f"\nblock not run: {line}", end="")


def test_every_block_says_its_language() -> None:
    # Commands in a block without one would be read by nobody.
    assert not [f"{name(page)}:{block.line}" for page in pages() for block in blocks(page) if not block.language]


@pytest.mark.parametrize(
    ("found", "wanted", "note", "same"),
    [
        ("loss 0.123", "loss 0.124", "", True),
        ("loss 0.123", "loss 0.125", "", False),
        ("loss 0.123", "loss 0.15", "±0.05", True),
        ("(8, 5)", "(8, 6)", "", False),
        ("loss 0.1", "cost 0.1", "", False),
        ("1.0e-07", "1.1e-07", "", True),
    ],
)
def test_outputs_are_compared(found: str, wanted: str, note: str, same: bool) -> None:
    if same:
        assert_same_output(found, wanted, note, "here")
    else:
        with pytest.raises(AssertionError):
            assert_same_output(found, wanted, note, "here")


def test_last_digit() -> None:
    assert last_digit("12") == 0
    assert last_digit("0.25") == pytest.approx(0.01)
    assert last_digit("2.5e-07") == pytest.approx(1e-8)
