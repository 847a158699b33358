"""Rooms only look down, and what is heavy or optional stays where it belongs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tides"
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported_names(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def test_the_contracts_hold() -> None:
    # Without the cache: it does not notice modules that came into being after it was written.
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


def test_triton_is_imported_in_its_room_only() -> None:
    assert len(SOURCES) > 50
    outside = [p for p in SOURCES if PACKAGE / "kernels" / "triton" not in p.parents and "triton" in imported_names(p)]
    assert outside == []


def test_training_names_no_model_and_no_kernel() -> None:
    """`training` works with anything that is called as a model is."""
    room = PACKAGE / "training"
    for path in room.rglob("*.py") if room.is_dir() else []:
        text = path.read_text(encoding="utf-8")
        assert "tides.kernels" not in text, path
        assert "tides.baselines" not in text, path


CORE = {"torch", "numpy", "safetensors", "jaxtyping", "typer", "rich"}
OPTIONAL = {"pandas", "polars", "pyarrow", "sklearn", "aeon", "scipy", "matplotlib", "numba", "libcellml", "triton"}


def top_level_imports(path: Path) -> set[str]:
    """Packages that importing the file imports: not in functions, not for type checkers alone."""
    found: set[str] = set()

    def visit(nodes: list[ast.stmt]) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module.split(".")[0])
            elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
                visit(node.body)
                visit(node.orelse)

    visit(ast.parse(path.read_text(encoding="utf-8")).body)
    return found


@pytest.mark.parametrize("room", ["functional", "nn", "artefacts"])
def test_the_foundation_needs_the_core_dependencies_only(room: str) -> None:
    files = [*(PACKAGE / room).rglob("*.py"), PACKAGE / "shapes.py", PACKAGE / "errors.py"]
    assert len(files) > 4
    for path in files:
        foreign = imported_names(path) - CORE - set(sys.stdlib_module_names) - {"tides"}
        assert foreign == set(), path


def loaded_after(code: str) -> set[str]:
    """Top-level packages in sys.modules after running `code` in a fresh interpreter."""
    report = "import sys; print('loaded:', *{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"import atexit\natexit.register(lambda: exec({report!r}))\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].removeprefix("loaded:").split())


HEAVY = {"torch", "numpy"} | OPTIONAL


def test_importing_tides_loads_nothing_heavy() -> None:
    assert loaded_after("import tides; tides.TidesError; dir(tides)") & HEAVY == set()


def test_the_help_of_the_command_loads_nothing_heavy() -> None:
    call = "import sys; sys.argv = ['tides', {}'--help']; from tides.cli.main import main; main()"
    assert loaded_after(call.format("")) & HEAVY == set()


def test_the_help_of_every_verb_loads_no_torch() -> None:
    from tides.cli.main import VERBS

    assert len(VERBS) >= 3
    call = """
import sys
from tides.cli.main import VERBS, app
for verb in VERBS:
    try:
        app([verb, "--help"], prog_name="tides")
    except SystemExit as end:
        assert not end.code, verb
"""
    assert loaded_after(call) & HEAVY == set()


def test_names_load_on_first_use() -> None:
    assert "torch" in loaded_after("import tides; tides.TIDESConfig")


def test_models_load_without_the_compiler() -> None:
    """`torch._dynamo` would take many times as long to import as all that a model needs."""
    names = "tides.SequenceClassifier, tides.Forecaster, tides.kernels.selective_ssm, tides.load, tides.streaming"
    code = f"import sys, tides, tides.streaming; {names}; assert 'torch._dynamo' not in sys.modules"
    assert "torch" in loaded_after(code)


def test_an_unknown_name_is_an_attribute_error() -> None:
    import tides

    with pytest.raises(AttributeError, match="TIDESNet"):
        tides.TIDESNet  # noqa: B018
