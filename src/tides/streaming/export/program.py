"""`export_program` and `export_onnx`: a model's sequence or step graph, for any batch and any length."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from tides.atomic import atomic_write
from tides.errors import ConfigError, TidesError
from tides.nn import Forecaster
from tides.streaming.export.described import describe
from tides.streaming.export.graphs import ForecastGraph, Graph, SequenceGraph, StepGraph

Mode = Literal["step", "sequence"]

_BATCH, _LENGTH, _QUERIES = (torch.export.Dim(name, min=1) for name in ("batch", "length", "queries"))
# Sizes to trace with: none of them equal, and none of them one, which would be taken for a constant.
_B, _L, _Q = 2, 3, 5


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """A context in which this logger shows errors only: torch warns about every vision library that is not
    installed.
    """
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def parse_mode(mode: str) -> Mode:
    """One of the two modes, or an error that names them."""
    for known in get_args(Mode):
        if mode == known:
            return known  # type: ignore[no-any-return]
    raise ConfigError(f"mode: found {mode!r}, wanted 'step' or 'sequence'")


def make_graph(model: nn.Module, mode: Mode = "sequence") -> Graph:
    """The model as a module on real numbers, which `torch.export` can take; its docstring names inputs and outputs."""
    parse_mode(mode)
    found = describe(model, causal=mode == "step")
    if mode == "step":
        return StepGraph(found.model, found.backbone, model.query_mode if isinstance(model, Forecaster) else None)
    if isinstance(model, Forecaster):
        return ForecastGraph(found.model, model)
    return SequenceGraph(found.model, found.backbone)


def example_inputs(graph: Graph) -> dict[str, tuple[Tensor, dict[int, Any]]]:
    """An example of every input by name, and which of its axes may have any size."""
    d = graph.described.scaling[0].numel()
    batch, steps = {0: _BATCH}, {0: _BATCH, 1: _LENGTH}
    if isinstance(graph, StepGraph):
        inputs: dict[str, tuple[Tensor, dict[int, Any]]] = {
            "values": (torch.zeros(_B, d, dtype=graph.dtype), batch),
            "gap": (torch.ones(_B, dtype=graph.dtype), batch),
            "observed": (torch.ones(_B, d, dtype=torch.bool), batch),
        }
        for name, shape in graph.state_shapes().items():
            dtype = graph.dtype if name == "state" else torch.float64
            inputs[name] = torch.zeros(_B, *shape, dtype=dtype), batch
        if graph.query_mode is not None:
            inputs["at"] = torch.zeros(_B, dtype=graph.dtype), batch
        return inputs
    inputs = {
        "values": (torch.zeros(_B, _L, d, dtype=graph.dtype), steps),
        "gaps": (torch.ones(_B, _L, dtype=graph.dtype), steps),
        "observed": (torch.ones(_B, _L, d, dtype=torch.bool), steps),
        "valid": (torch.ones(_B, _L, dtype=torch.bool), steps),
    }
    if isinstance(graph, ForecastGraph):
        times = torch.arange(_L, dtype=torch.float64).expand(_B, -1).contiguous()
        queries = {0: _BATCH, 1: _QUERIES}
        inputs["times"] = times, steps
        inputs["query_times"] = torch.ones(_B, _Q, dtype=torch.float64), queries
        inputs["query_valid"] = torch.ones(_B, _Q, dtype=torch.bool), queries
        del inputs["gaps"]
    return inputs


def export_program(model: nn.Module, mode: Mode = "sequence") -> torch.export.ExportedProgram:
    """The graph as captured by `torch.export`, for any batch size, length and number of queries."""
    graph = make_graph(model, mode).eval()
    inputs = example_inputs(graph)
    tensors = {name: tensor for name, (tensor, _) in inputs.items()}
    axes = {name: dynamic for name, (_, dynamic) in inputs.items()}
    with torch.no_grad():
        return torch.export.export(graph, (), tensors, dynamic_shapes=axes, strict=False)


def export_onnx(model: nn.Module, path: str | Path, mode: Mode = "sequence") -> Path:
    """Write the graph to `path` as ONNX. Needs the extra `export`.

    Inputs and outputs are named as in `SequenceGraph`, `ForecastGraph` or `StepGraph`.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise TidesError('ONNX needs onnx and onnxscript: pip install "tides-ssm[export]"') from error
    graph = make_graph(model, mode)
    outputs = ["answers", *(graph.state_shapes() if isinstance(graph, StepGraph) else ())]
    outputs[1:] = [f"new_{name}" for name in outputs[1:]]
    with warnings.catch_warnings(), _quiet("torch.onnx"):
        warnings.simplefilter("ignore")
        program = export_program(model, mode)
        written = torch.onnx.export(program, dynamo=True, output_names=outputs, verbose=False)
    assert written is not None
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(written.model_proto.SerializeToString())
    return path
