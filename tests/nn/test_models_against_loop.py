"""Whole models against the loop over series and steps: outputs, every gradient, running statistics."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.comparison import assert_close
from tests.nn.model_oracle import (
    Questions,
    Rows,
    classify,
    forecast_as_readout,
    forecast_as_steps,
    named_tensors,
    run_backbone,
)
from tests.nn.models import CHANNELS, VARIANTS, backbone, classifier, forecaster, padding, values_and_gaps
from tests.tolerances import EXACT, GOLDEN, IDENTITY
from tides.artefacts import from_release

# One entry per released checkpoint: what it switches on, with weights of our own.
RELEASED: dict[str, dict[str, Any]] = {
    "s5": {"variant": "s5", "conjugate": True, "reparam": "standard"},
    "s5_stable_bidir_conj": {"variant": "s5", "conjugate": True, "reparam": "stable", "bidirectional": True},
    "tides_bc_exp_conj": {"variant": "tides-bc", "conjugate": True, "reparam": "exp"},
    "tides_bc_only": {"variant": "tides-bc", "reparam": "standard"},
    "tides_bidir": {"bidirectional": True, "reparam": "standard"},
    "tides_bidir_forecaster": {
        "bidirectional": True,
        "reparam": "stable",
        "discretisation": "bilinear",
        "encoder_depth": 1,
    },
    "tides_bilinear_exp": {"discretisation": "bilinear", "reparam": "exp"},
    "tides_clip_active": {"reparam": "standard", "clip": 0.5, "projector_norm": False},
    "tides_conj_sym": {"conjugate": True, "reparam": "exp"},
    "tides_deep_heads": {"encoder_depth": 2, "decay_depth": 2, "reparam": "stable", "expand": 2.0},
    "tides_diag": {"rank": "diag", "reparam": "exp"},
    "tides_full": {"variant": "tides-full", "reparam": "standard"},
    "tides_full_rank": {"rank": "full", "reparam": "stable"},
    "tides_lambda_only": {"variant": "tides-lambda", "conjugate": True, "reparam": "standard"},
    "tides_softplus_nonorm": {"reparam": "softplus", "projector_norm": False},
    "tides_stable_clip": {"reparam": "stable", "clip": 1e-4},
    "tides_train_mode": {"reparam": "exp"},
    "tides_zoh_standard": {"reparam": "standard"},
}


def gradients(loss: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def compare(model: nn.Module, found: Tensor, wanted: Tensor, inputs: list[Tensor], tolerance: float = EXACT) -> None:
    assert_close(found, wanted, tolerance, "output")
    cotangent = torch.randn_like(found)
    names = [*(f"input {i}" for i in range(len(inputs))), *dict(model.named_parameters())]
    leaves = [*inputs, *model.parameters()]
    ours, theirs = gradients((found * cotangent).sum(), leaves), gradients((wanted * cotangent).sum(), leaves)
    scale = max(float(g.abs().max()) for g in theirs)
    for name, a, b in zip(names, ours, theirs, strict=True):
        # Gradients that vanish identically are compared with the size of the others.
        if float(b.abs().max()) < 1e-8 * scale:
            assert float((a - b).abs().max()) < IDENTITY * scale, name
        else:
            assert_close(a, b, IDENTITY, f"gradient of {name}")


def cut(x: Tensor, gaps: Tensor, lengths: list[int], observed: Tensor | None = None) -> list[Rows]:
    return [Rows(x[i, :n], gaps[i, :n], None if observed is None else observed[i, :n]) for i, n in enumerate(lengths)]


def compare_classifier(fields: dict[str, Any], training: bool, lengths: list[int] | None = None) -> None:
    model = classifier(**fields).train(training)
    x, gaps = values_and_gaps()
    x.requires_grad_()
    sizes = [6, 6, 6] if lengths is None else lengths
    tensors = {name: t if t.requires_grad else t.clone() for name, t in named_tensors(model).items()}
    found = model(x, gaps, valid=None if lengths is None else padding(lengths, 6))
    wanted = classify(tensors, model.config, cut(x, gaps, sizes), training=training)
    compare(model, found, wanted, [x])


@pytest.mark.parametrize("case", RELEASED)
def test_the_configurations_of_the_release(case: str) -> None:
    training = case == "tides_train_mode"
    compare_classifier({**RELEASED[case], "compat": "release"}, training)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("norm", ["batch", "layer", "rms"])
def test_our_configurations_in_training_with_padding(variant: str, norm: str) -> None:
    how = {"batch": "mean", "layer": "last", "rms": "time"}[norm]
    compare_classifier({"variant": variant, "norm": norm, "pool": how}, training=True, lengths=[6, 2, 4])


@pytest.mark.parametrize(
    "fields",
    [
        {"bidirectional": True},
        {"bidirectional": True, "hold": "preceding", "conjugate": True},
        {"variant": "mamba-s", "bidirectional": True, "conjugate": True, "encoder_depth": 1},
        {"variant": "tides-full", "conjugate": True, "bidirectional": True, "rank": "diag"},
        {"variant": "tides-lambda", "conjugate": True, "bidirectional": True},
        {"discretisation": "dirac", "pool": "time"},
        {"discretisation": "dirac", "hold": "preceding"},
        {"variant": "s5", "conjugate": True, "discretisation": "bilinear"},
        {"rank": "full", "reparam": "softplus", "clip": 0.6, "expand": 0.5},
        {"mask_channels": True, "decay_depth": 1, "time_scale": 0.3},
    ],
    ids=str,
)
def test_more_of_our_configurations_with_padding(fields: dict[str, Any]) -> None:
    compare_classifier(fields, training=False, lengths=[1, 6, 3])


def test_an_empty_feed_forward_part_of_the_release() -> None:
    compare_classifier({"compat": "release", "expand": 0.0}, training=False)


@pytest.mark.parametrize("lengths", [None, [6, 1, 3]])
def test_running_statistics_after_a_training_step(lengths: list[int] | None) -> None:
    model = backbone().train()
    x, gaps = values_and_gaps()
    tensors = {name: tensor.detach().clone() for name, tensor in named_tensors(model).items()}
    model(x, gaps, valid=None if lengths is None else padding(lengths, 6))
    wanted = run_backbone(tensors, model.config, cut(x, gaps, lengths or [6] * 3), training=True).running
    after = dict(model.named_buffers())
    assert len(wanted) == 4
    for name, value in wanted.items():
        assert_close(after[name], value, EXACT, name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_features_state_and_missing_values(variant: str) -> None:
    model = backbone(variant=variant, mask_channels=True)
    x, gaps = values_and_gaps()
    observed = torch.rand(x.shape) < 0.6
    lengths = [6, 3, 5]
    spoilt = x.masked_fill(~observed, torch.nan)
    found, state = model(spoilt, gaps, observed=observed, valid=padding(lengths, 6))
    wanted = run_backbone(named_tensors(model), model.config, cut(x, gaps, lengths, observed))
    for i, n in enumerate(lengths):
        assert_close(found[i, :n], wanted.features[i], EXACT)
        assert float(found[i, n:].detach().abs().sum()) == 0
        assert_close(state.held[i], wanted.encoded[i][-1], EXACT)
        for block, states in zip(state.blocks, wanted.states, strict=True):
            for name in ("s", "lam", "drive"):
                assert_close(getattr(block, name)[i], getattr(states[i], name), EXACT, name)


FORECASTERS: dict[str, Callable[..., list[Tensor]]] = {"steps": forecast_as_steps, "readout": forecast_as_readout}
MODES = [
    *(("steps", {"variant": variant}) for variant in VARIANTS),
    *(("readout", {"variant": variant}) for variant in VARIANTS),
    ("steps", {"bidirectional": True, "hold": "preceding"}),
    ("steps", {"compat": "release", "first_gap": "start"}),
    ("readout", {"norm": "layer", "discretisation": "dirac", "encoder_depth": 1}),
    ("readout", {"variant": "s5", "conjugate": True, "discretisation": "bilinear"}),
    ("readout", {"mask_channels": False, "norm": "rms"}),
]


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(("mode", "fields"), MODES, ids=str)
def test_forecasts(mode: str, fields: dict[str, Any], training: bool) -> None:
    model = forecaster(mode, **fields).train(training)
    lengths, l, q = [5, 2], 5, 4
    # Whole times: observations coincide with one another and with queries.
    times = torch.randint(0, 6, (2, l)).double().sort(dim=1).values
    times[:, 0] = 0.0
    if fields.get("compat") is None:
        times = times + 1.0
    asked = torch.randint(0, 9, (2, q)).double()
    values = torch.randn(2, l, CHANNELS, dtype=torch.float64, requires_grad=True)
    observed = torch.rand(values.shape) < 0.7
    compat = fields.get("compat") is not None
    valid = None if compat else padding(lengths, l)
    sizes = [l, l] if compat else lengths
    series = [Questions(values[i, :n], times[i, :n], observed[i, :n], asked[i]) for i, n in enumerate(sizes)]
    tensors = {name: t if t.requires_grad else t.clone() for name, t in named_tensors(model).items()}
    if compat:
        # The first gap is the time since 0, whatever comes first.
        tensors["backbone.calibration.first_gap"] = torch.tensor(0.0, dtype=torch.float64)
        asked[:, 0] = 0.0
    wanted = torch.stack(FORECASTERS[mode](tensors, model.config, series, training=training))
    found = model(values, times, observed, asked, valid=valid)
    compare(model, found, wanted, [values])


@pytest.mark.parametrize("case", RELEASED)
def test_the_loop_itself_reproduces_the_released_checkpoints(case: str, shared: Path) -> None:
    """The loop stands in for these files on machines without them, so it has to agree with them."""
    stored = np.load(shared / "golden" / f"{case}.npz")
    config = json.loads(str(stored["config"]))
    parameters = {key[6:]: torch.from_numpy(stored[key]) for key in stored.files if key.startswith("param/")}
    model = from_release(config, parameters)
    x, gaps = torch.from_numpy(stored["x"]).requires_grad_(), torch.from_numpy(stored["step_scale"])
    series = [Rows(x[i], gaps[i]) for i in range(len(x))]
    tensors, training = named_tensors(model), config["mode"] == "train"
    if config["kind"] == "classifier":
        y = classify(tensors, model.config, series, training=training)
    else:
        inner = tensors
        if config["kind"] == "forecaster":
            inner = {name.removeprefix("backbone."): t for name, t in tensors.items() if name.startswith("backbone.")}
        choices = model.config if config["kind"] == "backbone" else model.backbone.config
        y = torch.stack(run_backbone(inner, choices, series, training=training).features)
        if config["kind"] == "forecaster":
            y = y @ tensors["head.weight"].T + tensors["head.bias"]
    assert_close(y, torch.from_numpy(stored["y"]), GOLDEN, "y")
    (grad_x,) = torch.autograd.grad((y * torch.from_numpy(stored["cotangent"])).sum(), x)
    assert_close(grad_x, torch.from_numpy(stored["grad_x"]), GOLDEN, "grad_x")


def sampled_fields(count: int) -> list[dict[str, Any]]:
    draw = random.Random(1)
    found = []
    for _ in range(count):
        release = draw.random() < 0.3
        fields: dict[str, Any] = {
            "variant": draw.choice(VARIANTS),
            "rank": draw.choice((2, "full", "diag")),
            "reparam": draw.choice(("standard", "exp", "stable", "softplus")),
            "discretisation": draw.choice(("zoh", "bilinear", "dirac")),
            "bidirectional": draw.random() < 0.5,
            "norm": draw.choice(("batch", "layer", "rms")),
            "pool": draw.choice(("mean", "last", "time")),
            "projector_norm": draw.random() < 0.5,
            "conjugate": draw.random() < 0.5,
            "encoder_depth": draw.choice((0, 1)),
            "decay_depth": draw.choice((0, 1)),
            "clip": draw.choice((None, 0.6)),
            "expand": draw.choice((0.5, 1.0, 2.0)),
        }
        fields |= {"compat": "release"} if release else {"hold": draw.choice(("following", "preceding"))}
        found.append(fields)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fields", sampled_fields(150), ids=str)
def test_random_combinations(fields: dict[str, Any]) -> None:
    compare_classifier(fields, training=True, lengths=None if "compat" in fields else [6, 2, 4])
    compare_classifier(fields, training=False, lengths=None if "compat" in fields else [1, 6, 5])
