"""Every shipped configuration builds, and parameter counts are the published ones to the last digit."""

from importlib import resources

import pytest

from tides import baselines
from tides.baselines.published import datasets, published
from tides.errors import ConfigError

# Channels, classes and length of the six datasets after duplicates are removed.
UEA = {
    "EigenWorms": (6, 5, 17984),
    "EthanolConcentration": (3, 4, 1751),
    "Heartbeat": (61, 2, 405),
    "MotorImagery": (64, 2, 3000),
    "SelfRegulationSCP1": (6, 2, 896),
    "SelfRegulationSCP2": (7, 2, 1152),
}
CLASSIFICATION = [(name, one) for name in baselines.names("classification") for one in datasets(name)]
COUNTED = [(name, one) for name, one in CLASSIFICATION if published(name, one).parameters is not None]


def beside_weights(name: str, config: object, length: int) -> int:
    """What the originals count as parameters and nobody learns."""
    if name in ("lru", "s5") or name.startswith("linoss"):
        # BatchNorm's running mean and variance and a flag, per block.
        return config.depth * (2 * config.hidden_size + 1)  # type: ignore[attr-defined, no-any-return]
    if name in ("nrde", "log-ncde"):
        # The ends of the windows, and where there are brackets the pairs of channels of every basis element.
        ends = -(-length // config.window) + 1  # type: ignore[attr-defined]
        pairs = 2 * config.control_size if name == "log-ncde" and config.level == 2 else 0  # type: ignore[attr-defined]
        return ends + pairs
    return 0


@pytest.mark.parametrize(("name", "dataset"), COUNTED)
def test_parameter_counts(name: str, dataset: str) -> None:
    channels, classes, length = UEA[dataset]
    found = published(name, dataset)
    model = baselines.build(name, input_size=channels, classes=classes, **found.model)
    count = model.count_parameters() + beside_weights(name, model.config, length)  # type: ignore[operator]
    assert count == found.parameters


@pytest.mark.parametrize(("name", "dataset"), CLASSIFICATION)
def test_configurations_are_valid(name: str, dataset: str) -> None:
    channels, classes, _ = UEA[dataset]
    found = published(name, dataset)
    baselines.config_of(name, input_size=channels, classes=classes, **found.model)
    assert {"lr", "batch_size"} <= set(found.train)
    assert found.protocol in ("walker", "rformer", "logsig-ssm")


def test_every_file_belongs_to_a_baseline() -> None:
    folder = resources.files("tides.baselines") / "settings"
    files = {file.name.removesuffix(".toml") for file in folder.iterdir()}
    assert files <= set(baselines.names())
    assert len(CLASSIFICATION) >= 30


def test_unpublished_datasets_are_named() -> None:
    with pytest.raises(ConfigError, match="published for: EigenWorms"):
        published("lru", "Handwriting")
    with pytest.raises(ConfigError, match="did you mean 'lru'"):
        datasets("lrru")
