"""`tides stream`: observations on stdin, predictions on stdout, line by line."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

if TYPE_CHECKING:
    from tides.streaming.following import Tally

app = typer.Typer()

# The exit code that a shell reports for a program ended by SIGPIPE.
_NOBODY_READS = 141


@app.command()
def stream(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    at: Annotated[
        str | None, typer.Option(help="Forecasts: offsets after each observation, comma separated: 0,6h,+1d.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Keep all streams in this folder, and resume from it after a stop or a kill.")
    ] = None,
    every: Annotated[int, typer.Option(help="Observations between snapshots in --state.")] = 1000,
    out: Annotated[
        Path | None, typer.Option(help="Write predictions to this file; with --state, each appears exactly once.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="With --state: stdin continues instead of beginning with line 1 again.")
    ] = False,
    late: Annotated[
        str, typer.Option(help="What to do with observations out of order: reject, ignore or replay.")
    ] = "reject",
    duplicate: Annotated[
        str, typer.Option(help="What to do with repeated observations: reject, ignore or take.")
    ] = "ignore",
    same_time: Annotated[
        str, typer.Option(help="Other values at the time of an observation: step (one of its own) or merge into it.")
    ] = "step",
    reset_after: Annotated[
        str | None, typer.Option(help="Restart a stream after this much silence, for example 24h.")
    ] = None,
    history: Annotated[
        int, typer.Option(help="Number of observations that --late replay can reach back at least.")
    ] = 64,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a malformed line instead of skipping it.")] = False,
    batch: Annotated[int, typer.Option(help="Maximum number of lines taken together.")] = 256,
    fsync: Annotated[bool, typer.Option("--fsync", help="Survive a power failure, not only a kill; slower.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no summary at the end.")] = False,
) -> None:
    """Follow streams: an observation in, a prediction out.

    Each is one line of JSON; an observation looks like {"key": "a", "t": 3.5, "x": [1.0, null]}.
    """
    from contextlib import ExitStack

    from tides.errors import ConfigError, DataError
    from tides.streaming import StreamSession
    from tides.streaming.durable import DurableSession
    from tides.streaming.following import Following

    if live and state is None:
        raise ConfigError("--live: it needs --state, which knows how far the source was read")
    if fsync and state is None:
        raise ConfigError("--fsync: it needs --state, without which nothing is kept")
    if sys.stdin is None or (sys.stdout is None and out is None):
        raise ConfigError("stdin, stdout: found one closed, wanted observations and a place for predictions")
    if batch < 1:
        raise ConfigError(f"--batch: found {batch}, wanted at least 1")
    options: dict[str, Any] = {
        "late": late,
        "duplicate": duplicate,
        "same_time": same_time,
        "reset_after": reset_after,
        "history": history,
    }
    if at is not None:
        options["at"] = [one.strip() for one in at.split(",")]
    session = StreamSession.load(model, **options)
    signal.signal(signal.SIGTERM, _stop)
    with ExitStack() as stack:
        durable = None
        if state is not None:
            durable = stack.enter_context(DurableSession(session, state, every=every, sync=fsync))
        sink, answered = _open(out, resume=state is not None)
        if durable is not None and answered > durable.applied == 0:
            raise DataError(f"{out}: found predictions, but {state} knows of no observation; wanted another --out")
        following = Following(
            session,
            sink,
            _complain,
            durable,
            answered=answered,
            batch=batch,
            strict=strict,
            live=live,
            sync=fsync and out is not None,
        )
        try:
            tally = following.run(sys.stdin.fileno())
        except BrokenPipeError:
            # The reader is gone. Python would complain again when it flushes stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(_NOBODY_READS) from None
    if not quiet:
        print(_summary(tally, len(session.keys)), file=sys.stderr)
        if session.intake.coincident:
            print(
                f"note: {session.intake.coincident} observations came at the time of the one before and were steps of "
                "their own. In training, rows of one time are one step: send them as one line, or --same-time merge",
                file=sys.stderr,
            )


def _open(out: Path | None, *, resume: bool) -> tuple[BinaryIO, int]:
    """The file for predictions, and the number of the last one in it."""
    import json

    from tides.errors import DataError
    from tides.streaming.lines import repair_tail

    if out is None:
        return sys.stdout.buffer, 0
    out.parent.mkdir(parents=True, exist_ok=True)
    if not resume:
        return out.open("wb"), 0
    if out.exists() and not out.is_file():
        raise DataError(f"{out}: with --state wanted a file, whose end says what was answered")
    last = repair_tail(out)
    try:
        line = {"line": 0} if last is None else json.loads(last)
        return out.open("ab"), int(line["seq"] if "seq" in line else line["line"])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{out}: found {last!r} at its end, wanted predictions of this command to go on from") from None


def _complain(line: int, problem: str) -> None:
    print(f"tides stream: line {line} skipped: {problem}", file=sys.stderr, flush=True)


def _summary(tally: "Tally", streams: int) -> str:
    parts = [f"{count} {status}" for status, count in sorted(tally.outcomes.items())]
    if tally.malformed:
        parts.append(f"{tally.malformed} malformed")
    if tally.counted_before:
        parts.append(f"{tally.counted_before} counted before")
    return f"tides stream: {tally.lines} lines, {streams} streams: {', '.join(parts) or 'nothing to do'}"


def _stop(*_: Any) -> None:
    raise SystemExit(128 + signal.SIGTERM)
