"""`tides`: the entry point. A verb is one line in `VERBS` and one file beside this one.

Errors: a `TidesError`, and a file or folder that the system refuses, becomes one line on stderr and exit code 1;
`--debug`, anywhere on the line, shows the traceback instead. Anything else is a defect of ours and always shows its
traceback.
"""

import os
import sys

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

app = lazy_app(
    VERBS,
    help="Selective state-space models whose step size stays physical time.",
    epilog="--debug, anywhere on the line, shows the traceback of an error.",
)


def main() -> None:
    """Run the verb named on the command line."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        _check_launch(arguments)
        app(arguments, prog_name="tides")
    except TidesError as error:
        if "--debug" in sys.argv:
            raise
        print(f"tides: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if "--debug" in sys.argv or error.filename is None:
            raise
        print(f"tides: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _check_launch(arguments: list[str]) -> None:
    """torchrun starts the same command several times: `train` shares one run, anything else would do it twice."""
    several = "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and arguments[:1] != ["train"]:
        raise ConfigError(f"torchrun: found {' '.join(arguments[:1])!r}, wanted train: other verbs run in one process")


if __name__ == "__main__":
    main()
