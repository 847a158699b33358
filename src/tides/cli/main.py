"""`tides`: the entry point. A verb is one line in `VERBS` and one file beside this one.

A `TidesError`, or a file, folder or disk that the system refuses, becomes one line on stderr and exit code 1;
`--debug`, anywhere on the line, shows the traceback instead. Any other error is a bug of ours and always shows its
traceback. Our warnings become one line too, each shown once.
"""

import errno
import io
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from tides.cli.lazy import lazy_app
from tides.errors import ConfigError, TidesError

VERBS = {
    "run": "tides.cli.run",
    "sweep": "tides.cli.sweep",
    "report": "tides.cli.report",
    "bench": "tides.cli.bench",
    "data": "tides.cli.data",
    "train": "tides.cli.train",
    "evaluate": "tides.cli.evaluate",
    "predict": "tides.cli.predict",
    "export": "tides.cli.export",
    "stream": "tides.cli.stream",
    "doctor": "tides.cli.doctor",
}


def _show_version(asked: bool) -> None:
    if asked:
        from tides import __version__

        print(f"tides {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the verb."""


app = lazy_app(
    VERBS,
    help="Selective state-space models for irregularly sampled series.",
    epilog="Add --debug anywhere to see the traceback of an error.",
    options=_options,
)


# Errors of a disk while an open file is written; they carry no file name.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


def main() -> None:
    """Run the verb named on the command line."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    if "--debug" not in sys.argv:
        warnings.showwarning = _one_line(warnings.showwarning)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A console or pipe with a small character set shows other characters as escapes, as stderr does.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _check_launch(arguments)
        app(arguments, prog_name="tides")
    except TidesError as error:
        if "--debug" in sys.argv:
            raise
        print(f"tides: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if "--debug" in sys.argv or (error.filename is None and error.errno not in _DISK):
            raise
        where = "writing" if error.filename is None else error.filename
        print(f"tides: {where}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _one_line(others: Any) -> Any:
    """A `warnings.showwarning` that prints each warning of ours once, on one line; `others` prints the rest."""
    told: set[str] = set()
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if not issubclass(category, UserWarning) or not filename.startswith(home):
            others(message, category, filename, lineno, file, line)
        elif str(message) not in told:
            told.add(str(message))
            print(f"tides: note: {str(message).removeprefix('tides: ')}", file=file or sys.stderr)

    return show


def _check_launch(arguments: list[str]) -> None:
    """Refuse verbs other than `train` under torchrun, which would run each of them several times."""
    several = "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and arguments[:1] != ["train"]:
        raise ConfigError(f"torchrun: found {' '.join(arguments[:1])!r}, wanted train: other verbs run in one process")


if __name__ == "__main__":
    main()
