import errno
import io
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest

from tides import __version__, errors
from tides.cli import data, main
from tides.errors import DataError

# Libraries that take long to import and that no --help may touch.
HEAVY = ("torch", "numpy", "pandas", "polars", "matplotlib", "scipy", "sklearn", "numba", "ray", "rich.progress")
WORDS = [[], *[[verb] for verb in main.VERBS], *[["data", verb] for verb in data.VERBS]]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words) or "tides")
def test_help_answers_and_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from tides.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *words, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: tides" in done.stdout
    assert done.stdout.rstrip().endswith("LOADED []")


def test_the_top_level_help_lists_every_verb_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.app(["--help"], prog_name="tides")
    lines = capsys.readouterr().out.splitlines()
    for verb in main.VERBS:
        assert any(line.split()[:1] == [verb] and len(line.split()) > 1 for line in lines), verb


def test_every_registered_module_exists_and_holds_an_app() -> None:
    for module in [*main.VERBS.values(), *data.VERBS.values()]:
        assert hasattr(import_module(module), "app"), module


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.app(["--version"], prog_name="tides")
    assert not end.value.code
    assert capsys.readouterr().out == f"tides {__version__}\n"


def test_a_verb_has_no_options_but_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.app(["doctor", "--help"], prog_name="tides")
    assert not end.value.code
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "completion" not in shown


def test_an_unknown_verb_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.app(["nonsense"], prog_name="tides")
    assert end.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def _broken_app(*args: object, **kwargs: object) -> None:
    raise DataError("series 'a', column 'time', row 3: found -1, wanted a later time")


def test_a_deliberate_error_is_one_line_and_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "app", _broken_app)
    monkeypatch.setattr(sys, "argv", ["tides", "data"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    assert capsys.readouterr().err == ("tides: series 'a', column 'time', row 3: found -1, wanted a later time\n")


def test_a_refused_file_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(main, "app", lambda *args, **kwargs: (tmp_path / "nowhere" / "out.csv").touch())
    monkeypatch.setattr(sys, "argv", ["tides", "predict"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    assert capsys.readouterr().err == f"tides: {tmp_path / 'nowhere' / 'out.csv'}: No such file or directory\n"


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(main, "app", full)
    monkeypatch.setattr(sys, "argv", ["tides", "train"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    assert capsys.readouterr().err == "tides: writing: No space left on device\n"


def test_a_warning_is_one_line_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warn(*args: object, **kwargs: object) -> None:
        for line in (3, 7):
            warnings.warn_explicit("tides: channel 'a' is empty", UserWarning, errors.__file__, line)

    monkeypatch.setattr(main, "app", warn)
    monkeypatch.setattr(sys, "argv", ["tides", "train"])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *args, **kwargs: pytest.fail("shown in the way of other packages")
        main.main()
    assert capsys.readouterr().err == "tides: note: channel 'a' is empty\n"


def test_letters_that_a_console_does_not_know_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "argv", ["tides", "data", "list"])
    with pytest.raises(SystemExit) as end:
        main.main()
    shown.flush()
    assert end.value.code == 0
    assert rb"6 \xd7 17984" in shown.buffer.getvalue()  # type: ignore[attr-defined]


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", _broken_app)
    monkeypatch.setattr(sys, "argv", ["tides", "data", "--debug"])
    with pytest.raises(DataError):
        main.main()


def test_under_torchrun_only_a_shared_run_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["tides", "run", "fading-flash"])
    with pytest.raises(SystemExit):
        main.main()
    assert capsys.readouterr().err.startswith("tides: torchrun: found 'run', wanted train")
    monkeypatch.setattr(sys, "argv", ["tides", "train", "--help"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert not end.value.code
