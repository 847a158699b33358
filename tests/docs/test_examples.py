"""The scripts in examples/ run and reach the numbers they announce."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_test() -> None:
    tested = Path(__file__).read_text()
    assert len(EXAMPLES) >= 2
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert f'load("{path.stem}")' in tested, path.name
        assert f"| `{path.name}` |" in page, path.name


def test_classify_irregular() -> None:
    assert load("classify_irregular").main() > 0.9


def test_stream_and_peek() -> None:
    differences = load("stream_and_peek").main(steps=5)
    assert len(differences) == 3
    assert max(differences.values()) < 1e-5


def test_ward_monitor() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    assert load("ward_monitor").main(epochs=4) > 0.85


def test_forecast_any_time() -> None:
    pytest.importorskip("sklearn")
    found = load("forecast_any_time").main(epochs=8)
    assert found["ratio"] < 0.8
    assert found["coverage"] > 0.75
    assert found["difference"] < 1e-9


def test_arc_length() -> None:
    found = load("arc_length").main(epochs=7)
    assert found["arc length, hurried"] > 0.85
    assert found["time, hurried"] < 0.7
    assert found["time, unhurried"] > 0.85


def test_follow_streams() -> None:
    found = load("follow_streams").main(epochs=3)
    assert found["accuracy"] > 0.8
    assert found["difference"] < 1e-5
    assert found["observations"] > 4000
