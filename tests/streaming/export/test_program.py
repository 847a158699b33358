"""Exported graphs answer as the models do, in PyTorch and in onnxruntime, for any batch and any length."""

import logging.handlers
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.streaming.export.models import VARIANTS, make, tiers
from tides.errors import ConfigError, NotStreamable
from tides.nn import Backbone, Forecaster
from tides.streaming.export import export_onnx, export_program
from tides.streaming.export.program import example_inputs, make_graph

BIDIRECTIONAL: list[dict[str, Any]] = [
    {"bidirectional": True},
    {"bidirectional": True, "hold": "preceding"},
    {"bidirectional": True, "compat": "release"},
    {"bidirectional": True, "variant": "mamba-s", "discretisation": "dirac"},
]
# Exporting takes seconds, so that all but these are slow tests.
FEW: list[tuple[str, str, dict[str, Any]]] = [
    ("classifier", "sequence", {"mask_channels": True, "depth": 1}),
    ("classifier", "sequence", {"mask_channels": True, "depth": 1, "summary": True}),
]


def close(found: Any, wanted: Tensor, tolerance: float, name: str = "answers") -> None:
    found = torch.as_tensor(found).double()
    assert found.shape == wanted.shape, name
    error = float((found - wanted.double()).abs().max() / wanted.abs().max().clamp_min(1e-6))
    assert error < tolerance, f"{name} differ by {error:.1e}"


def inputs_for(model: Any, mode: str, b: int, l: int) -> dict[str, Tensor]:
    """Irregular, partly observed, padded at the end."""
    dtype = getattr(model, "backbone", model).calibration.shift.dtype
    masked = getattr(model, "backbone", model).config.mask_channels is True
    values, gaps = torch.randn(b, l, 2, dtype=dtype), (3 * torch.rand(b, l)).to(dtype)
    gaps[:, -1] = 0
    observed = torch.rand(b, l, 2) < 0.7 if masked else torch.ones(b, l, 2, dtype=torch.bool)
    lengths = torch.randint(1, l + 1, (b,))
    valid = torch.arange(l) < lengths.unsqueeze(1)
    if mode == "step":
        return {"values": values, "gaps": gaps, "observed": observed}
    if isinstance(model, Forecaster):
        times = 2 + gaps.double().cumsum(1)
        # One question before everything, one exactly at an observation, some between and behind.
        queries = torch.cat([times[:, :1] - 1, times[:, :1], 2 + 5 * torch.rand(b, 3).double()], dim=1)
        asked = torch.arange(5) < torch.randint(2, 6, (b, 1))
        extra = {"times": times, "query_times": queries, "query_valid": asked}
        return {"values": values, "observed": observed, "valid": valid, **extra}
    return {"values": values, "gaps": gaps, "observed": observed, "valid": valid}


@torch.no_grad()
def sequence_answers(model: Any, given: dict[str, Tensor]) -> Tensor:
    rest = {"observed": given["observed"], "valid": given["valid"]}
    if isinstance(model, Forecaster):
        extra = {"valid": given["valid"], "query_valid": given["query_valid"]}
        return model(given["values"], given["times"], given["observed"], given["query_times"], **extra)
    found = model(given["values"], given["gaps"], **rest)
    return found[0] if isinstance(model, Backbone) else found


def run_steps(call: Any, model: Any, given: dict[str, Tensor], tolerance: float) -> None:
    """`call` takes and returns dictionaries of tensors by name; it must follow the model's own steps."""
    b, l = given["gaps"].shape
    graph = make_graph(model, "step")
    state = {
        name: torch.zeros(b, *example.shape[1:], dtype=example.dtype)
        for name, (example, _) in example_inputs(graph).items()
        if name in ("state", "pool", "summary")
    }
    own = model.init_state(b)
    for k in range(l):
        step = {"values": given["values"][:, k], "gap": given["gaps"][:, k], "observed": given["observed"][:, k]}
        extra = {}
        if isinstance(model, Forecaster):
            at = torch.full((b,), 0.7 * k, dtype=step["gap"].dtype)
            extra, step["at"] = {"at": at.unsqueeze(1)}, at
        found = call({**step, **state})
        state = dict(zip(state, found[1:], strict=True))
        with torch.no_grad():
            wanted, own = model.step(step["values"], step["gap"], own, observed=step["observed"], **extra)
        close(found[0], wanted.flatten(1), tolerance, f"answers of step {k}")


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """Every variant as a backbone in both modes, every kind of model, and models that read both ways."""
    found = [("backbone", mode, options) for mode in ("sequence", "step") for options in VARIANTS]
    found += [("backbone", "sequence", options) for options in BIDIRECTIONAL]
    for mode in ("sequence", "step"):
        for kind in ("classifier", "regressor"):
            found += [(kind, mode, {"pool": pool, "mask_channels": True}) for pool in ("mean", "last", "time")]
        found += [
            ("classifier", mode, {"pool": pool, "mask_channels": True, "summary": True}) for pool in ("mean", "last")
        ]
        found += [("readout", mode, options) for options in ({}, {"discretisation": "dirac"}, {"variant": "mamba-s"})]
        found += [("steps", mode, options) for options in ({}, {"first_gap": "start"}, {"hold": "preceding"})]
    return [*found, ("regressor", "sequence", {"compat": "release", "summary": True})]


@pytest.mark.parametrize(("kind", "mode", "options"), tiers(cases(), 5), ids=str)
def test_the_real_graph_equals_the_model(kind: str, mode: str, options: dict[str, Any]) -> None:
    """In float64, before anything is exported: the composition on planes is that of `functional`."""
    model = make(kind, **options)
    graph, given = make_graph(model, mode), inputs_for(model, mode, 3, 3 if mode == "step" else 6)  # type: ignore[arg-type]
    if mode == "step":
        run_steps(lambda step: graph(**step), model, given, 1e-10)
    else:
        close(graph(**given), sequence_answers(model, given), 1e-10)


def check_onnx(kind: str, mode: str, options: dict[str, Any], folder: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="extra `export` is not installed")
    model = make(kind, torch.float32, **options)
    path = export_onnx(model, folder / "model.onnx", mode)  # type: ignore[arg-type]
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = {one.name for one in session.get_inputs()}

    def call(step: dict[str, Any]) -> list[Any]:
        arrays = {name: np.asarray(x) for name, x in step.items() if name in names}
        return [torch.from_numpy(np.array(x)) for x in session.run(None, arrays)]

    for b, l in ((1, 1), (4, 23)):
        given = inputs_for(model, mode, b, l)
        if mode == "step":
            run_steps(call, model, given, 1e-5)
        else:
            close(call(given)[0], sequence_answers(model, given), 1e-5)


@pytest.mark.parametrize(("kind", "mode", "options"), FEW, ids=str)
def test_onnxruntime_agrees(
    kind: str, mode: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = logging.handlers.BufferingHandler(1000)
    monkeypatch.setattr(logging.getLogger("torch.onnx"), "handlers", [heard])
    check_onnx(kind, mode, options, tmp_path)
    assert not heard.buffer, "about libraries that nobody here needs"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mode", "options"), cases(), ids=str)
def test_onnxruntime_agrees_on_every_model(kind: str, mode: str, options: dict[str, Any], tmp_path: Path) -> None:
    check_onnx(kind, mode, options, tmp_path)


@pytest.mark.parametrize("mode", tiers(["step", "sequence"], 2))
def test_an_exported_program_takes_any_size(mode: str) -> None:
    model = make("classifier")
    program = export_program(model, mode).module()  # type: ignore[arg-type]
    for b, l in ((1, 1), (3, 11)):
        given = inputs_for(model, mode, b, l)
        if mode == "step":
            run_steps(lambda step: program(**step), model, given, 1e-10)
        else:
            close(program(**given), sequence_answers(model, given), 1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "mode"), [("classifier", "step"), ("readout", "sequence"), ("steps", "sequence")])
def test_a_model_on_a_gpu_is_exported(kind: str, mode: Any) -> None:
    model = make(kind, dtype=torch.float32)
    inputs = {name: tensor for name, (tensor, _) in example_inputs(make_graph(model, mode)).items()}
    wanted = make_graph(model, mode)(**inputs)
    found = export_program(model.cuda(), mode).module()(**inputs)
    for one, other in zip(found, wanted, strict=True):
        close(one, other, 1e-5)


def test_small_steps_keep_their_digits() -> None:
    """Steps of a millionth in float32: the difference e^z − 1 must not be taken literally."""
    model = make("backbone", torch.float32)
    x, gaps, valid = torch.randn(1, 40, 5), torch.full((1, 40), 1e-6), torch.ones(1, 40, dtype=torch.bool)
    single = make_graph(model, "sequence").run(x, gaps, valid)[1][0].s
    double = make_graph(model.double(), "sequence").run(x.double(), gaps.double(), valid)[1][0].s
    for found, wanted in zip(single, double, strict=True):
        close(found, wanted, 1e-5, "states")


def test_what_cannot_be_exported_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotStreamable, match="bidirectional"):
        export_program(make("backbone", bidirectional=True), "step")
    with pytest.raises(ConfigError, match="mode"):
        export_onnx(make("backbone"), tmp_path / "x.onnx", "both")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Linear"):
        export_onnx(torch.nn.Linear(1, 1), tmp_path / "x.onnx")
