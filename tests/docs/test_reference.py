"""The reference pages name every public name, field and argument, with the defaults of the code."""

import dataclasses
import inspect
import re
from importlib import import_module

import pytest

from tests.docs.blocks import ROOT, name, pages
from tides.errors import TidesError
from tides.nn import config

PAGES = {name: (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8") for name in ("api", "config")}
ROOMS = ("nn", "functional", "kernels", "data", "data.physiome", "data.systems", "training", "estimators", "streaming")
SHELVES = ("explain", "artefacts", "baselines")
SIZES_OF_A_TABLE = 20


def rows() -> dict[str, tuple[str, bool]]:
    """(default, whether the preset `paper` fixes it) of every field or argument on the page."""
    found = {}
    for line in PAGES["config"].splitlines():
        match = re.match(r"\| (`.*?`)( †)? \| (.*?) \|", line)
        if match:
            names, defaults = re.findall(r"`(\w+)`", match[1]), re.findall(r"`(.*?)`", match[3])
            # Several names in one row share a default or have one each.
            for name, default in zip(names, defaults if len(defaults) > 1 else defaults * len(names), strict=False):
                found.setdefault(name, (default, bool(match[2])))
    return found


def exists(path: str) -> bool:
    """Whether a dotted name can be imported; one that asks for an extra exists."""
    found = import_module("tides")
    parts = path.split(".")
    for count, part in enumerate(parts[1:], start=2):
        try:
            found = getattr(found, part)
        except TidesError:
            return True
        except AttributeError:
            try:
                found = import_module(".".join(parts[:count]))
            except ImportError:
                return False
    return True


def test_every_dotted_name_exists() -> None:
    found = {
        (name(page), path)
        for page in pages()
        for path in re.findall(r"(?<![\w/.-])tides(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8"))
    }
    assert len(found) >= 100
    assert not [(page, path) for page, path in sorted(found) if not exists(path)]
    assert not exists("tides.nn.Backbon")


@pytest.mark.parametrize("room", [*ROOMS, *SHELVES])
def test_every_exported_name_is_on_the_page(room: str) -> None:
    names = import_module(f"tides.{room}").__all__
    assert names
    missing = [name for name in names if not re.search(rf"\b{name}\b", PAGES["api"])]
    assert not missing


def test_every_field_is_on_the_page_with_its_default() -> None:
    shown = rows()
    fields = dataclasses.fields(config.TIDESConfig)
    assert len(fields) >= SIZES_OF_A_TABLE
    # What `help` shows.
    assert list(inspect.signature(config.TIDESConfig).parameters) == [field.name for field in fields]
    for field in fields:
        if field.name == "input_size":
            assert "| `input_size` | must be given |" in PAGES["config"]
            continue
        assert field.name in shown, field.name
        assert shown[field.name][0] == str(field.default), field.name
    assert {name for name, (_, fixed) in shown.items() if fixed} == set(config._RELEASE)


@pytest.mark.parametrize("name", ["TIDESClassifier", "TIDESRegressor", "TIDESForecaster"])
def test_every_argument_of_an_estimator_is_on_the_page(name: str) -> None:
    pytest.importorskip("sklearn")
    table = PAGES["config"].partition("## Estimators")[2]
    shown = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names, defaults = re.findall(r"`(\w+)`", cells[0]), re.findall(r"`(.*?)`", cells[1]) if len(cells) > 2 else []
        shown |= dict(zip(names, defaults if len(defaults) > 1 else defaults * len(names), strict=False))
    estimator = getattr(import_module("tides.estimators"), name)
    arguments = inspect.signature(estimator).parameters
    assert len(arguments) >= SIZES_OF_A_TABLE
    for argument in arguments.values():
        assert shown.get(argument.name) == str(argument.default), argument.name
