"""README and documents say what the code says: links, navigation, rooms, fields, version and citation."""

import inspect
import re
import tomllib
from pathlib import Path

import pytest

import tides
from tides.cli.main import VERBS
from tides.nn import config

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
PAGES = [*(ROOT / name for name in BESIDE), *sorted(DOCS.rglob("*.md"))]
README = (ROOT / "README.md").read_text()


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as Markdown renderers make them."""
    found = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file.read_text()), f"{page.name}: {target}"


def test_pages_were_found() -> None:
    assert len(PAGES) >= 25


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert page.relative_to(DOCS).as_posix() in navigation, page.name


def test_pages_of_the_site_link_inside_it() -> None:
    # The site is built from docs/ alone, so that its pages cannot point to files beside it.
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text()):
            if not target.startswith("https://"):
                assert (page.parent / target).resolve().is_relative_to(DOCS), f"{page.name}: {target}"


def test_readme_has_its_parts_in_order() -> None:
    parts = ["# TIDES", "It is for people", "make demo", "make test", "```python", "Δ = 0.1", "## Where to go next"]
    positions = [README.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "pytorch.org/get-started" in README


def test_no_placeholder_is_left() -> None:
    for page in PAGES:
        assert not re.search(r"^[A-Z]+_TABLE$|TODO|FIXME|XXX", page.read_text(), re.MULTILINE), page.name


def test_readme_table_agrees_with_its_page() -> None:
    """Both show medians over ten seeds of the same run; a row of the README is part of the page's row."""
    page = (DOCS / "reproduce" / "fading-flash.md").read_text()
    rows = dict(re.findall(r"^\| ([\w ()-]+?) \| \d+ \| (.*) \|$", README.split("## Fading Flash")[1], re.MULTILINE))
    assert len(rows) == 6
    for model, numbers in rows.items():
        line = next(line for line in page.splitlines() if re.match(rf"\| \**{re.escape(model)}\** \|", line))
        shown = re.findall(r"\d+(?:\.\d+)?", re.sub(r"[(\[].*?[)\]]", "", line.split("|", 2)[2]))
        for number in numbers.split(" | "):
            assert number in shown, f"{model}: {number} is not in {line}"


def test_house_names_every_room() -> None:
    house = (DOCS / "develop" / "house.md").read_text()
    source = ROOT / "src" / "tides"
    rooms = [path.name for path in source.iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    assert len(rooms) >= 8
    for room in rooms:
        assert f"  {room}/" in house, room
    for room in re.findall(r"^  (\w+)/ ", house, re.MULTILINE):
        assert room in rooms, f"{room} is in the picture and not in the code"


def test_semantics_names_every_field_of_compat() -> None:
    text = (DOCS / "maths" / "semantics.md").read_text()
    for field, value in config._RELEASE.items():
        row = re.search(rf"^\| `{field}` \| (.*?) \| `?(.*?)`? \|", text, re.MULTILINE)
        assert row, field
        assert row[2] == str(value), f"{field}: the page says {row[2]}"
        default = inspect.signature(config.TIDESConfig.from_dict).return_annotation and getattr(
            tides.TIDESConfig(input_size=1), field
        )
        assert row[1].strip("`") == str(default), f"{field}: the page's default is {row[1]}"


def test_api_page_names_every_verb_and_export() -> None:
    text = (DOCS / "reference" / "api.md").read_text()
    for verb in VERBS:
        assert f"tides {verb}" in text, verb
    for name in tides.__all__:
        assert name in text, name


def test_variants_table_is_complete() -> None:
    text = (DOCS / "concepts" / "architecture.md").read_text()
    for variant in config.Variant.__args__:  # type: ignore[attr-defined]
        assert f"| `{variant}` |" in text


def test_version_and_citation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == tides.__version__
    assert f"## {tides.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {tides.__version__}" in citation
    for part in ("TIDES: Implicit Time-Awareness in Selective State Space Models", "2605.09742", "Soydan", "Barreira"):
        assert part in citation


def test_diagrams_have_titles_and_a_dark_palette() -> None:
    diagrams = list((DOCS / "images").glob("*.svg"))
    assert len(diagrams) >= 4
    used = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    for path in diagrams:
        text = path.read_text()
        assert "<title" in text, path.name
        assert "prefers-color-scheme: dark" in text, path.name
        assert f"images/{path.name}" in used, f"{path.name} is not used"
