"""Baselines by name in the Physiome-ODE experiment."""

import pytest

from tides import baselines
from tides.errors import ConfigError
from tides.experiments import config, physiome, physiome_baselines
from tides.experiments.runner import Cell, Context


def cells(models: str, *settings: str, quick: bool = True, variant: str = "paper") -> list[Cell]:
    found = config.load("physiome", variant, quick=quick, settings=[f"models={models}", *settings])
    return physiome.cells(found, variant=variant, quick=quick)


def test_every_forecaster_that_learns_is_accepted_in_its_published_settings() -> None:
    names = physiome_baselines.names()
    assert set(names) == set(baselines.names("forecasting")) - {"zero", "last-value", "observed-mean"}
    quoted = "[" + ",".join(f'"{name}"' for name in ("tides", *names)) + "]"
    found = cells(quoted, 'datasets=["HOD01", "WOL03"]', quick=False)
    assert len({cell.id for cell in found}) == len(found) == 2 * (1 + len(names))
    mixer = next(cell for cell in found if cell.label == "WOL03-paper-imts-mixer")
    assert mixer.config["architecture"] | {"hidden_size": 128, "time_scale": 1.0} == mixer.config["architecture"]
    assert mixer.config["train"]["lr"] == 0.01
    assert mixer.config["train"]["calibrate"] == "none"


def test_a_run_of_two_folds() -> None:
    (cell,) = cells('["imts-mixer"]', "baseline.model={hidden_size = 8}", "baseline.train={epochs = 3, lr = 0.01}")
    record = physiome.run(cell, Context())
    assert cell.config["architecture"]["hidden_size"] == 8
    assert len(record.results["folds"]) == 2
    assert record.results["test_mse"] > 0
    same = baselines.build("imts-mixer", input_size=2, hidden_size=8)
    assert record.results["parameters"] == sum(parameter.numel() for parameter in same.parameters())
    assert set(record.results["folds"][0]["trivial_mse"]) == {"zero", "last", "mean"}


def test_names_that_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"models: found 'grafitti', wanted some of tides, .*grafiti"):
        cells('["grafitti"]')
    with pytest.raises(ConfigError, match="models: found 'lru'"):
        cells('["lru"]')
    (cell,) = cells('["latent-ode"]', 'baseline.model={method = "dopri5"}')
    with pytest.raises(ConfigError, match="latent-ode: folds are trained as one stack"):
        physiome.run(cell, Context())
