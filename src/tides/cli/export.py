"""`tides export`: a trained model as C sources, or as an ONNX graph."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="Model folder, as tides.save writes it.")],
    c: Annotated[Path | None, typer.Option("--c", help="Write C99 sources to this folder.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX graph to this file.")] = None,
    mode: Annotated[str, typer.Option(help="ONNX graph of one 'step' or of a whole 'sequence'.")] = "sequence",
    int8: Annotated[bool, typer.Option("--int8", help="C: matrices as bytes, a quarter of the flash.")] = False,
    tick: Annotated[float, typer.Option(help="C: time units per tick of the integer timestamps.")] = 1e-3,
    unit: Annotated[str, typer.Option(help="C: the name of the time unit, for the header.")] = "time unit",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Take a model to a small device (C99) or to another runtime (ONNX)."""
    from tides.artefacts import load
    from tides.errors import ConfigError
    from tides.streaming.export import export_c, export_onnx
    from tides.streaming.export.program import parse_mode

    if c is None and onnx is None:
        raise ConfigError("--c FOLDER or --onnx FILE: found neither, so there is nothing to write")
    if int8 and c is None:
        raise ConfigError("--int8 belongs to --c: an ONNX graph keeps the model's own precision")
    graph_mode = parse_mode(mode)
    trained = load(model)
    report: dict[str, object] = {}
    if c is not None:
        written = export_c(trained, c, tick=tick, int8=int8, unit=unit)
        report |= {"c": str(c), "weight_bytes": written.weight_bytes, "state_bytes": written.state_bytes}
    if onnx is not None:
        export_onnx(trained, onnx, graph_mode)
        report |= {"onnx": str(onnx), "mode": mode, "onnx_bytes": onnx.stat().st_size}
    if as_json:
        print(json.dumps(report))
        return
    if c is not None:
        print(f"{c}: {report['weight_bytes']} bytes of constants, {report['state_bytes']} bytes of state per stream")
        print(f"try: cc -std=c99 -O2 {c}/tides_step.c {c}/example.c -o example -lm")
    if onnx is not None:
        print(f"{onnx}: {mode} graph, {report['onnx_bytes']} bytes")
