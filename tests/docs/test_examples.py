"""The scripts in examples/ run and reach the numbers they announce."""

import importlib.util
from pathlib import Path
from types import ModuleType

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
    for path in EXAMPLES:
        assert f'load("{path.stem}")' in tested, path.name


def test_classify_irregular() -> None:
    assert load("classify_irregular").main() > 0.9


def test_stream_and_peek() -> None:
    differences = load("stream_and_peek").main(steps=5)
    assert len(differences) == 3
    assert max(differences.values()) < 1e-5
