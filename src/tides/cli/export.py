"""`tides export`: a trained model as C sources, or as an ONNX graph."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="Model folder, as written by tides.save or tides train.")],
    c: Annotated[Path | None, typer.Option("--c", help="Write C99 sources to this folder.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX graph to this file.")] = None,
    mode: Annotated[str, typer.Option(help="ONNX: graph of one 'step' or of a whole 'sequence'.")] = "sequence",
    int8: Annotated[
        bool, typer.Option("--int8", help="C: store matrices as bytes, for about a quarter of the flash.")
    ] = False,
    tick: Annotated[float, typer.Option(help="C: length of a tick of the integer timestamps, in --unit.")] = 1e-3,
    unit: Annotated[str | None, typer.Option(help="C: unit of --tick; by default the model's time unit.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Export a model as C99 sources or as an ONNX graph."""
    from tides.artefacts import load, read_metadata
    from tides.errors import ConfigError
    from tides.streaming.export import export_c, export_onnx
    from tides.streaming.export.program import parse_mode
    from tides.streaming.profile import Profile, read_facts

    if c is None and onnx is None:
        raise ConfigError("--c FOLDER or --onnx FILE: found neither, so there is nothing to write")
    if int8 and c is None:
        raise ConfigError("--int8 belongs to --c: an ONNX graph keeps the model's own precision")
    graph_mode = parse_mode(mode)
    trained = load(model)
    profile = Profile.from_metadata({**read_metadata(model), **read_facts(model)})
    known = profile.unit
    # Neither C nor ONNX has a place for names; static columns of a forecaster are further channels.
    names = [*(profile.channels or ()), *(name for column in profile.static for name in column.names)]
    report: dict[str, object] = {"channels": names, "classes": [*(profile.classes or ())], "cut": profile.cut}
    if c is not None:
        ticks = _in_unit(tick, unit, known)
        written = export_c(trained, c, tick=ticks, int8=int8, unit=known or unit or "time unit")
        report |= {"c": str(c), "weight_bytes": written.weight_bytes, "state_bytes": written.state_bytes}
    if onnx is not None:
        export_onnx(trained, onnx, graph_mode)
        report |= {"onnx": str(onnx), "mode": mode, "onnx_bytes": onnx.stat().st_size}
    if as_json:
        print(json.dumps(report))
        return
    if c is not None:
        print(f"{c}: {report['weight_bytes']} bytes of constants, {report['state_bytes']} bytes of state per stream")
        print(f"one tick is {tick:g} {unit or known or 'time unit'}")
        print(f"try: cc -std=c99 -O2 {c}/tides_step.c {c}/example.c -o example -lm")
    if onnx is not None:
        print(f"{onnx}: {mode} graph, {report['onnx_bytes']} bytes")
    if names:
        print(f"channels, in this order: {', '.join(names)}")
    if profile.cut is not None:
        span = f"{profile.cut:g} {known or ''}".rstrip()
        print(f"learnt from pieces of {span}: begin a new state before one is half as old again, with the last {span}")
    if profile.classes:
        print(f"classes, in this order: {', '.join(profile.classes)}")


def _in_unit(tick: float, unit: str | None, known: str | None) -> float:
    """A tick in the model's own unit of time, if the folder says what that is."""
    from tides.units import duration_in

    return tick if unit is None or known is None or unit == known else duration_in(f"{tick!r}{unit}", known, "--tick")
