"""Fenced blocks of a Markdown page and the comments that say what to do with them.

<!-- skip: reason -->      above a block: it is not run, and the reason is counted and printed
<!-- output -->            above a text block: what the Python block before it prints, numbers to the last digit
<!-- output ±0.05 -->      the same, with numbers within 0.05
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!-- (skip|output)(?:: ?| )?(.*?) ?-->\s*\Z")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    """One fenced block; `order` is `skip`, `output` or empty, `note` the rest of the comment above it."""

    language: str
    text: str
    line: int
    order: str
    note: str


def pages() -> list[Path]:
    """README, contributing guide, the examples' page and every page of the documentation."""
    beside = [ROOT / page for page in ("README.md", "CONTRIBUTING.md", "examples/README.md")]
    return [*beside, *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        comment = _COMMENT.search(before)
        order, note = (comment[1], comment[2]) if comment else ("", "")
        found.append(Block(match[1], match[2], before.count("\n") + 1, order, note))
    return found


def assert_same_output(found: str, wanted: str, note: str, where: str) -> None:
    """Words must be equal; numbers to one unit of the last digit shown, or within the note's ±."""
    assert _NUMBER.sub("#", found).split() == _NUMBER.sub("#", wanted).split(), f"{where}: printed\n{found}"
    for ours, theirs in zip(_NUMBER.findall(found), _NUMBER.findall(wanted), strict=True):
        tolerance = float(note.removeprefix("±")) if note else last_digit(theirs)
        assert abs(float(ours) - float(theirs)) <= tolerance * 1.001, f"{where}: printed {ours}, the page says {theirs}"


def assert_printed(found: str, shown: str, note: str, where: str) -> None:
    """Every line that a page shows of a longer output was printed, with numbers within the note's ±."""
    said = {_words(line): line for line in found.splitlines()}
    for line in shown.splitlines():
        assert _words(line) in said, f"{where}: nothing like {line!r} was printed:\n{found}"
        assert_same_output(said[_words(line)], line, note, where)


def _words(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())


def last_digit(number: str) -> float:
    """One unit in the last digit of `number` as it is written; whole numbers are exact."""
    mantissa, _, exponent = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) if digits else 0.0
