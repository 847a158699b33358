"""The public face: names and signatures that documents, examples and outside checks rely on."""

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

import tides
from tides import errors

# Parameter names in order; those behind "*" may be given by keyword only, further ones may be added at the end.
SIGNATURES: dict[str, list[str]] = {
    "tides.Backbone": ["config"],
    "tides.Backbone.forward": ["x", "gaps", "*", "valid", "state"],
    "tides.Backbone.step": ["x_t", "gap_t", "state"],
    "tides.Backbone.init_state": ["batch"],
    "tides.Backbone.advance": ["state", "gap"],
    "tides.SequenceClassifier": ["config", "classes"],
    "tides.SequenceClassifier.forward": ["x", "gaps", "*", "observed", "valid"],
    "tides.SequenceClassifier.step": ["x_t", "gap_t", "state"],
    "tides.SequenceRegressor": ["config", "targets"],
    "tides.Forecaster": ["config", "channels", "query_mode"],
    "tides.Forecaster.forward": ["values", "times", "observed", "query_times", "*", "valid"],
    "tides.Forecaster.step": [],
    "tides.TIDESConfig.preset": ["name"],
    "tides.TIDESConfig.from_dict": [],
    "tides.TIDESConfig.to_dict": [],
    "tides.TIDESConfig.replace": [],
    "tides.functional.discretise": ["lam", "delta", "method"],
    "tides.functional.gaps_from_times": ["times", "first", "*", "start"],
    "tides.kernels.linear_scan": ["a", "b", "s0", "*", "reverse", "cu_seqlens"],
    "tides.kernels.selective_ssm": ["*", "state", "cu_seqlens"],
    "tides.kernels.use_backend": ["backend"],
    "tides.kernels.explain": [],
    "tides.save": ["model", "folder"],
    "tides.load": ["folder"],
    "tides.artefacts.from_release": ["config", "state_dict"],
    "tides.data.from_long": ["*", "id", "time", "channel", "value", "label", "unit"],
    "tides.data.from_wide": ["*", "id", "time", "label", "static", "unit"],
    "tides.data.from_arrays": ["X", "times", "y"],
    "tides.data.collate": [],
    "tides.data.load_uea": ["name", "root"],
    "tides.data.uea_split": ["dataset", "protocol", "seed"],
    "tides.data.physiome.load_fold": ["name", "fold", "root", "parity"],
    "tides.data.physiome.simulate": ["path", "entry", "n", "seed0"],
    "tides.data.fading_flash.sample": ["batch", "gap_range", "*", "generator"],
    "tides.estimators.TIDESClassifier.fit": ["X", "y", "*", "times"],
    "tides.estimators.TIDESClassifier.predict": ["X"],
    "tides.estimators.TIDESClassifier.predict_proba": ["X"],
    "tides.estimators.TIDESRegressor.fit": ["X", "y", "*", "times"],
    "tides.estimators.TIDESForecaster.predict": ["X", "at"],
    "tides.estimators.TIDESForecaster.predict_interval": ["X", "at", "coverage"],
    "tides.streaming.StreamSession.load": ["folder"],
    "tides.streaming.StreamSession.step": ["t", "x"],
    "tides.streaming.StreamSession.catch_up": ["times", "values"],
    "tides.streaming.StreamSession.peek": [],
    "tides.streaming.StreamSession.state_dict": [],
    "tides.streaming.StreamSession.load_state_dict": [],
    "tides.streaming.export_onnx": ["model", "path", "mode"],
}


def is_built(path: str) -> bool:
    """Estimators and streaming stand on top of everything else; their names are checked as soon as they exist."""
    room = path.split(".")[1]
    return room not in ("estimators", "streaming") or find_spec(f"tides.{room}") is not None


def look_up(path: str) -> Any:
    """The object behind a dotted path, which starts with a module."""
    found: Any = tides
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("path", [path for path in SIGNATURES if is_built(path)])
def test_signature(path: str) -> None:
    target, wanted = look_up(path), SIGNATURES[path]
    parameters = inspect.signature(target).parameters
    names = [name for name in parameters if name != "self"]
    free = wanted[: wanted.index("*")] if "*" in wanted else wanted
    # The first ones may be given by position, in this order.
    assert [n for n in names if parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY][: len(free)] == free
    for name in set(wanted) - {"*"}:
        assert name in names, f"{path} has no parameter {name}"
    for name in wanted[len(free) + 1 :]:
        if name in ("id", "time", "channel", "value"):
            continue
        assert parameters[name].default is not inspect.Parameter.empty, f"{path}: {name} has no default"


def test_defaults_that_documents_state() -> None:
    default = inspect.Parameter.empty
    assert inspect.signature(tides.functional.discretise).parameters["method"].default == "zoh"
    assert inspect.signature(tides.functional.gaps_from_times).parameters["first"].default == "median"
    assert inspect.signature(tides.Forecaster).parameters["query_mode"].default == "steps"
    assert inspect.signature(tides.SequenceRegressor).parameters["targets"].default == 1
    assert inspect.signature(tides.data.uea_split).parameters["seed"].default == 2345
    assert inspect.signature(tides.data.fading_flash.sample).parameters["gap_range"].default == (0.5, 1.5)
    assert inspect.signature(tides.data.load_uea).parameters["root"].default is None
    assert inspect.signature(tides.save).parameters["folder"].default is default


def test_every_exported_name_exists() -> None:
    for module in ("tides", "tides.functional", "tides.kernels", "tides.nn", "tides.artefacts", "tides.data"):
        names = import_module(module).__all__
        assert sorted(set(names)) == sorted(names), module
        for name in names:
            assert getattr(import_module(module), name) is not None, f"{module}.{name}"
    assert set(tides.__all__) <= set(dir(tides))


def test_errors_form_one_family() -> None:
    children = ("ConfigError", "DataError", "ShapeError", "BackendUnavailable", "NotStreamable", "Diverged")
    for name in children:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.TidesError)
        assert getattr(tides, name) is kind
        assert kind.__doc__


def test_the_version_is_the_distributions() -> None:
    from importlib.metadata import version

    assert tides.__version__ == version("tides-ssm")


def test_the_package_says_that_it_is_typed() -> None:
    from importlib.resources import files

    assert files("tides").joinpath("py.typed").is_file()
