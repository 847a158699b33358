"""Model folders: what comes back is the same model, and a damaged folder says so."""

import copy
import importlib.metadata
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import tides
from tests.nn.models import VARIANTS, backbone, classifier, forecaster, small_config, unsettled, values_and_gaps
from tides.artefacts import from_release, identify, load, save
from tides.artefacts.folder import read_metadata
from tides.errors import ConfigError, DataError, TidesError
from tides.nn import SSM, Backbone, SequenceClassifier, SequenceRegressor


def answer(model: nn.Module) -> torch.Tensor:
    torch.manual_seed(1)
    x, gaps = values_and_gaps()
    if isinstance(model, tides.Forecaster):
        return model(x, gaps.cumsum(1), None, 8 * torch.rand(3, 2, dtype=torch.float64))
    if isinstance(model, SequenceRegressor):
        return model(x, gaps, static=torch.randn(3, 3, dtype=torch.float64))
    output = model(x, gaps)
    return output[0] if isinstance(output, tuple) else output


MODELS: dict[str, Callable[[], nn.Module]] = {
    "backbone": backbone,
    "backbone with a query channel": lambda: unsettled(Backbone(small_config(mask_channels=True), query_channel=True)),
    "classifier": classifier,
    "regressor": lambda: unsettled(SequenceRegressor(small_config(), 2, static_size=3)),
    "forecaster as steps": lambda: forecaster("steps"),
    "forecaster as readout": lambda: forecaster("readout", norm="layer"),
    **{f"classifier {variant}": (lambda v=variant: classifier(variant=v, conjugate=True)) for variant in VARIANTS},
    "bidirectional": lambda: classifier(bidirectional=True, rank="diag", encoder_depth=1, decay_depth=1, clip=1e-3),
    "release": lambda: classifier(compat="release", expand=0.0),
}


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name: str, precision: str, tmp_path: Path) -> None:
    model = MODELS[name]().to(getattr(torch, precision))
    again = load(save(model, tmp_path / "model"))
    assert type(again) is type(model)
    assert again.config == model.config
    assert not again.training
    wanted, found = model.state_dict(), again.state_dict()
    assert found.keys() == wanted.keys()
    for key, tensor in wanted.items():
        assert found[key].dtype == tensor.dtype, key
        assert torch.equal(found[key], tensor), key
    assert torch.equal(answer(again), answer(model))


def test_sizes_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    """As `labels.max() + 1` gives them."""
    two: Any = np.int64(2)
    config = small_config(hidden_size=two, state_size=two)
    for model in (
        SequenceClassifier(config, two),
        SequenceRegressor(config, two, static_size=two),
        tides.Forecaster(config, two),
    ):
        again = load(save(model, tmp_path))
        assert type(again) is type(model)
        assert again.head.weight.shape == model.head.weight.shape


def test_a_compiled_model_is_saved_as_the_model_it_is(tmp_path: Path) -> None:
    model = classifier()
    wanted, fingerprint = model.state_dict(), identify(model)
    parts = copy.deepcopy(model)
    parts.backbone.blocks[0] = torch.compile(parts.backbone.blocks[0])
    for compiled in (parts, torch.compile(model)):
        found = load(save(compiled, tmp_path / "model"))
        assert type(found) is type(model)
        assert all(torch.equal(tensor, wanted[key]) for key, tensor in found.state_dict().items())
        assert identify(compiled) == fingerprint


class Doubled(SSM):
    """A layer of somebody's own, with the weights of ours."""

    def forward(self, *given: Any, **options: Any) -> Any:
        y, state = super().forward(*given, **options)
        return 2 * y, state


def put(model: SequenceClassifier, name: str) -> None:
    """Something else in the place of a part: with other shapes, other weights or the same ones."""
    block: Any = model.backbone.blocks[1]
    if name == "head":
        model.head = nn.Linear(model.config.hidden_size, 7)
    elif name == "glu":
        block.glu = nn.Tanh()
    elif name == "ssm":
        block.ssm = Doubled(model.config)
    elif name == "shared":
        model.backbone.blocks[1] = model.backbone.blocks[0]
    else:
        parametrize.register_parametrization(block.ssm, "skip", nn.Tanh())
    model.double()


@pytest.mark.parametrize("name", ["head", "glu", "ssm", "shared", "parametrised"])
def test_a_model_that_would_come_back_as_another_one_is_not_saved(name: str, tmp_path: Path) -> None:
    """Its folder would be refused by `load` or, worse, answer otherwise."""
    model = classifier()
    put(model, name)
    place = {"head": "head.", "glu": "backbone.blocks.1.glu", "shared": "backbone.blocks.1"}
    where = re.escape(place.get(name, "backbone.blocks.1.ssm"))
    with pytest.raises(ConfigError, match=rf"model: '{where}.*a part was replaced.*register_model"):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_saving_draws_no_random_numbers(tmp_path: Path) -> None:
    model, state = backbone(), torch.random.get_rng_state()
    save(model, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_model_is_refused_before_anything_is_written(dtype: torch.dtype, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model: found parameters in b?float16, wanted float32 or float64"):
        save(backbone().to(dtype), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_statistics_and_scales_travel_with_the_weights(tmp_path: Path) -> None:
    model = forecaster()
    x, gaps = values_and_gaps()
    shift, scale = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])
    model.calibrate(gaps * 3600 / 7, shift, scale)
    model.train()(x, gaps.cumsum(1) * 3600 / 7, None, torch.ones(3, 1, dtype=torch.float64))
    model.float()
    again = load(save(model, tmp_path))
    calibration = again.backbone.calibration
    # The time scale keeps float64 even in a float32 model.
    assert calibration.time_scale.dtype == torch.float64
    assert calibration.time_scale.item() == (gaps[gaps > 0] * 3600 / 7).median().item()
    assert calibration.first_gap.item() == calibration.time_scale.item()
    assert torch.equal(calibration.shift, shift)
    assert torch.equal(again.output_scale, scale)
    assert torch.equal(again.backbone.blocks[0].norm.running_mean, model.backbone.blocks[0].norm.running_mean)


def test_the_folder_holds_two_files_and_no_pickle(tmp_path: Path) -> None:
    save(classifier(), tmp_path / "a" / "model", metadata={"channels": ["hr", "spo₂"], "unit": "h"})
    folder = tmp_path / "a" / "model"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    weights = (folder / "model.safetensors").read_bytes()
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    assert "head.weight" in header
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (config["model"], config["dtype"], config["classes"]) == ("sequence-classifier", "float64", 3)
    assert config["tides_version"] == tides.__version__
    assert read_metadata(folder) == {"channels": ["hr", "spo₂"], "unit": "h"}


def test_a_source_tree_that_is_not_installed_saves_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("tides.records.metadata.version", missing)
    save(classifier(), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["tides_version"] == "not installed"
    assert isinstance(load(tmp_path), SequenceClassifier)


def test_others_may_read_a_saved_model(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        save(backbone(), tmp_path)
    finally:
        os.umask(previous)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644, path.name


def test_saving_again_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    first, second = classifier(), classifier(variant="s5")
    save(first, tmp_path)
    save(second, tmp_path)
    assert torch.equal(answer(load(tmp_path)), answer(second))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failed_save_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier()
    save(model, tmp_path)

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("tides.artefacts.folder.serialise", fail)
    with pytest.raises(OSError, match="disk full"):
        save(classifier(), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(answer(load(tmp_path)), answer(model))


def test_a_folder_that_was_only_half_replaced_is_refused(tmp_path: Path) -> None:
    first = backbone()
    second = copy.deepcopy(first)
    next(second.parameters()).data.add_(1)
    save(first, tmp_path)
    config = (tmp_path / "config.json").read_bytes()
    save(second, tmp_path)
    (tmp_path / "config.json").write_bytes(config)
    with pytest.raises(DataError, match="saving over this folder was interrupted"):
        load(tmp_path)


def test_a_folder_from_before_digests_is_read(tmp_path: Path) -> None:
    save(backbone(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["weights_sha256"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert isinstance(load(tmp_path), Backbone)


def test_metadata_that_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metadata: wanted what JSON can hold: .*ndarray"):
        save(backbone(), tmp_path / "model", metadata={"classes": np.arange(3)})
    assert not (tmp_path / "model").exists()


def test_a_model_without_a_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model: Linear has no registered format"):
        save(nn.Linear(2, 2), tmp_path)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def scramble(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x80\x04not a safetensors file" * 50)


def change(**fields: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        for name, value in fields.items():
            if value is None:
                del config[name]
            else:
                config[name] = value
        path.write_text(json.dumps(config))

    return apply


def write_config(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "config.json").write_text(text) and None


def grow(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["config"]["hidden_size"] = 6
    path.write_text(json.dumps(config))


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights missing": (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors cannot be read"),
    "weights truncated": (truncate, r"model\.safetensors cannot be read"),
    "weights empty": (lambda folder: (folder / "model.safetensors").write_bytes(b"") and None, r"cannot be read"),
    "weights scrambled": (scramble, r"cannot be read"),
    "config missing": (lambda folder: (folder / "config.json").unlink(), r"it holds no config\.json"),
    "config empty": (write_config(""), r"config\.json: cannot be read"),
    "config truncated": (write_config('{"format": 1, "model"'), r"config\.json: cannot be read"),
    "config no object": (write_config("[1, 2]"), r"wanted a TIDES model of format 1"),
    "another format": (change(format=99), r"wanted a TIDES model of format 1"),
    "another model": (change(model="resnet"), r"found model 'resnet', wanted one of backbone"),
    "unhashable model": (change(model=["backbone"]), r"found model .*backbone"),
    "no dtype": (change(dtype=None), r"found dtype None, wanted one of float32"),
    "not a dtype": (change(dtype="load"), r"found dtype 'load'"),
    "no classes": (change(classes=None), r"does not describe a sequence-classifier"),
    "no config": (change(config=None), r"does not describe a sequence-classifier"),
    "config of another kind": (change(config=[1]), r"does not describe a sequence-classifier"),
    "weights of another shape": (grow, r"does not fit config\.json; first difference at"),
    "weights of another model": (change(classes=7), r"does not fit config\.json; first difference at 'head"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_named(name: str, tmp_path: Path) -> None:
    save(classifier(), tmp_path)
    damage, message = DAMAGE[name]
    damage(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_an_unknown_field_in_a_saved_config_is_named(tmp_path: Path) -> None:
    save(classifier(), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["config"]["hiden_size"] = 4
    path.write_text(json.dumps(config))
    with pytest.raises(TidesError, match=r"hiden_size: unknown field.*hidden_size"):
        load(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder; wanted a model folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"it holds no config\.json"):
        load(tmp_path)


def test_loading_runs_no_code_from_the_folder(tmp_path: Path) -> None:
    """A pickle in place of the weights is refused, not executed."""
    save(classifier(), tmp_path)
    torch.save({"head.weight": torch.zeros(3, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path)


def test_a_loaded_model_can_be_trained_and_copied(tmp_path: Path) -> None:
    model = load(save(classifier(), tmp_path))
    model.train()(*values_and_gaps()).sum().backward()
    assert all(p.requires_grad for p in model.parameters())
    assert torch.equal(answer(copy.deepcopy(model).eval()), answer(model.eval()))


def test_imported_checkpoints_can_be_saved(shared: Path, tmp_path: Path) -> None:
    for case in ("s5", "tides_bilinear_exp", "tides_deep_heads"):
        stored = np.load(shared / "golden" / f"{case}.npz")
        parameters = {key[6:]: torch.from_numpy(stored[key]) for key in stored.files if key.startswith("param/")}
        model = from_release(json.loads(str(stored["config"])), parameters).eval()
        again = load(save(model, tmp_path / case))
        x, gaps = torch.from_numpy(stored["x"]), torch.from_numpy(stored["step_scale"])
        found, wanted = again(x, gaps), model(x, gaps)
        found, wanted = (y[0] if isinstance(y, tuple) else y for y in (found, wanted))
        assert torch.equal(found, wanted)
