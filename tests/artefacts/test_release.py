"""The authors' checkpoints reproduced in float64: outputs, input gradient and the gradient of every live parameter."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.comparison import assert_close
from tests.tolerances import GOLDEN
from tides.artefacts import from_release
from tides.artefacts.release import _translate, release_names
from tides.errors import ConfigError, DataError
from tides.nn import Backbone

CASES = [
    "s5",
    "s5_stable_bidir_conj",
    "tides_bc_exp_conj",
    "tides_bc_only",
    "tides_bidir",
    "tides_bidir_forecaster",
    "tides_bilinear_exp",
    "tides_clip_active",
    "tides_conj_sym",
    "tides_deep_heads",
    "tides_diag",
    "tides_full",
    "tides_full_rank",
    "tides_lambda_only",
    "tides_softplus_nonorm",
    "tides_stable_clip",
    "tides_train_mode",
    "tides_zoh_standard",
]
_PREFIX = {"backbone": "", "classifier": "backbone.", "forecaster": "tides."}


def test_every_golden_file_is_listed(shared: Path) -> None:
    assert sorted(path.stem for path in (shared / "golden").glob("*.npz")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, shared: Path) -> None:
    stored = np.load(shared / "golden" / f"{case}.npz")
    config = json.loads(str(stored["config"]))
    tensors = {key: torch.from_numpy(stored[key]) for key in stored.files if key != "config"}
    model = from_release(config, {key[6:]: value for key, value in tensors.items() if key.startswith("param/")})
    assert model.training == (config["mode"] == "train")
    x = tensors["x"].requires_grad_()
    output = model(x, tensors["step_scale"])
    y = output[0] if isinstance(output, tuple) else output
    (y * tensors["cotangent"]).sum().backward()

    assert_close(y, tensors["y"], GOLDEN, "y")
    assert x.grad is not None
    assert_close(x.grad, tensors["grad_x"], GOLDEN, "grad_x")
    backbone = model if isinstance(model, Backbone) else model.backbone
    slots = release_names(model, backbone, _PREFIX[config["kind"]])
    wanted = {key[5:]: value for key, value in tensors.items() if key.startswith("grad/")}
    assert set(wanted) == {name for name, slot in slots.items() if slot.tensor.requires_grad}
    for name, gradient in wanted.items():
        found = slots[name].tensor.grad
        assert found is not None, name
        assert_close(found, slots[name].arrange(gradient), GOLDEN, name)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, ["ssm.log_step", "ssm.B", "ssm.C", "glu.proj.weight"]),
        ({"bc_mode": "input_dependent", "bc_rank": 2}, ["ssm.b_proj.down.weight", "ssm.c_proj.up.bias"]),
        (
            {"bc_mode": "input_dependent", "step_mode": "input_dependent"},
            ["ssm.step_proj.weight", "ssm.step_proj.bias"],
        ),
        ({"ff_mult": 0}, ["glu.proj.bias"]),
    ],
    ids=str,
)
def test_every_tensor_finds_its_place(arguments: dict[str, Any], names: list[str]) -> None:
    """Nothing of the model keeps its random start."""
    config = {"d_input": 2, "d_hidden": 4, "ssm_size": 6, "dt_min": 0.01, "dt_max": 0.02, **arguments}
    like = Backbone(_translate(config))
    sizes = {name: slot.tensor.numel() for name, slot in release_names(like, like, "").items()}
    assert {f"blocks.0.{name}" for name in names} <= set(sizes)
    state = {name: torch.randn(size, dtype=torch.float64) for name, size in sizes.items()}
    model = from_release(config, state)
    assert isinstance(model, Backbone)
    slots = release_names(model, model, "")
    for name, slot in slots.items():
        assert torch.equal(slot.tensor, slot.arrange(state[name])), name
    owned = {id(slot.tensor) for slot in slots.values()}
    assert {name for name, parameter in model.named_parameters() if id(parameter) not in owned} == set()
    if "step_mode" not in arguments:
        assert model.config.step_init == (0.01, 0.02)


def test_a_missing_tensor_is_named() -> None:
    config = {"kind": "backbone", "d_input": 2, "d_hidden": 4, "ssm_size": 4, "lambda_re_mode": "lti"}
    with pytest.raises(DataError, match=r"encoder\.linear\.weight"):
        from_release(config, {"blocks.0.ssm.D": torch.zeros(4)})


def test_an_impossible_combination_is_named() -> None:
    config = {"d_input": 2, "d_hidden": 4, "ssm_size": 4, "lambda_im_mode": "input_dependent"}
    with pytest.raises(ConfigError, match="lambda_im_mode"):
        from_release(config, {"blocks.0.ssm.D": torch.zeros(4)})


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"kind": "regressor"}, ConfigError, "kind: found 'regressor', wanted backbone, classifier, forecaster"),
        ({"kind": "classifier"}, ConfigError, "num_classes: missing among the release's arguments of a classifier"),
        ({"kind": "forecaster"}, DataError, "'output_proj.weight' is missing"),
        ({"d_input": 3}, DataError, "'encoder.linear.weight' has 8 numbers, wanted 12"),
        ({"dt_min": 1.0}, ConfigError, r"step_init: found \(1.0, 0.1\)"),
        ({"num_block": 2}, ConfigError, "num_block: no argument of the release; did you mean 'num_blocks'"),
        ({"variant": "s5"}, ConfigError, "variant: no argument of the release"),
        ({"mode": "test"}, ConfigError, "mode: found 'test', wanted train, eval"),
        ({"bc_mode": "selective"}, ConfigError, "bc_mode: found 'selective', wanted lti, input_dependent"),
        ({"proj_norm": "layernorm"}, ConfigError, "proj_norm: found 'layernorm', wanted rmsnorm"),
    ],
)
def test_arguments_that_do_not_fit_are_named(change: dict[str, Any], error: type[Exception], words: str) -> None:
    config = {"d_input": 2, "d_hidden": 4, "ssm_size": 4}
    with pytest.raises(error, match=words):
        from_release({**config, **change}, {"encoder.linear.weight": torch.zeros(4, 2)})
    with pytest.raises(ConfigError, match="d_hidden: missing"):
        from_release({"d_input": 2, "ssm_size": 4}, {})


def checkpoint(**arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A release's arguments, and random arrays for all that such a model has."""
    config = {"d_input": 2, "d_hidden": 4, "ssm_size": 6, "lambda_re_mode": "input_dependent", **arguments}
    like = Backbone(_translate(config))
    sizes = {name: slot.tensor.numel() for name, slot in release_names(like, like, "").items()}
    return config, {name: np.random.default_rng(0).random(size, np.float32) for name, size in sizes.items()}


def test_tensors_that_nothing_is_made_of_are_named() -> None:
    """They would be left out without a word where the arguments are those of another model."""
    config, arrays = checkpoint(proj_norm="rmsnorm", num_blocks=2)
    from_release(config, arrays)
    dead = {"blocks.0.ssm.Lambda_re": np.zeros(6), "blocks.0.ssm.B": np.zeros((6, 4, 2))}
    from_release(config, arrays | dead | {"blocks.1.norm.num_batches_tracked": np.array(3)})
    with pytest.raises(DataError, match=r"state_dict: 'blocks.0.ssm.lambda_re_norm.weight' has no place in a model"):
        from_release(config | {"proj_norm": None}, arrays)
    with pytest.raises(DataError, match=r"state_dict: 'blocks.1.*' has no place in a model of these arguments"):
        from_release(config | {"num_blocks": 1}, arrays)


def test_the_mode_is_that_of_the_arguments() -> None:
    config, arrays = checkpoint()
    assert from_release(config, arrays).training
    assert not from_release(config | {"mode": "eval"}, arrays).training
