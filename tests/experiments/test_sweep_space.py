"""The paper's spaces and a user's own."""

import pytest

from tides.errors import ConfigError
from tides.experiments.config import load
from tides.experiments.physiome import TRAINING_FIELDS, published_rows
from tides.experiments.sweep_space import PHYSIOME, UEA, Choice, Real, Space, Whole, parse_space


def uea_row(dataset: str) -> dict[str, object]:
    rows = load("uea", "paper", quick=False, settings=())["configuration"]
    (row,) = [row for row in rows if row["dataset"] == dataset]
    return {f"configuration.{name}": value for name, value in row.items()}


def test_sizes_of_the_papers_spaces() -> None:
    assert len(UEA.parameters) == 16
    assert len(PHYSIOME.parameters) == 18


@pytest.mark.parametrize("dataset", ["SCP1", "SCP2", "MI", "ETC", "HB"])
def test_published_configurations_lie_inside(dataset: str) -> None:
    assert UEA.outside(uea_row(dataset)) == []


def test_eigenworms_is_said_to_lie_outside() -> None:
    assert UEA.outside(uea_row("EW")) == ["configuration.lr: 0.00156 lies outside [1e-06, 0.001]"]


def test_state_size_of_published_configurations_is_reached() -> None:
    for dataset in ("SCP1", "SCP2", "MI", "EW", "ETC", "HB"):
        row = uea_row(dataset)
        sizes = [
            UEA.settings(
                {"configuration.groups": row["configuration.groups"], "configuration.state_multiple": multiple}
            )
            for multiple in (1, 2, 4)
        ]
        assert row["configuration.state_size"] in [size["configuration.state_size"] for size in sizes]


def test_forty_of_fifty_published_physiome_rows_lie_inside() -> None:
    found = []
    for row in published_rows().values():
        names = {f"{'train' if name in TRAINING_FIELDS else 'model'}.{name}": value for name, value in row.items()}
        found.append([note.partition(":")[0] for note in PHYSIOME.outside(names)])
    assert len(found) == 50
    assert sorted(filter(None, found)) == [["model.expand"]] * 2 + [["train.weight_decay"]] * 8


def test_clip_is_left_out_where_it_is_off() -> None:
    assert "model.clip" not in PHYSIOME.settings({"model.clip": 0.0})
    assert PHYSIOME.settings({"model.clip": 1e-4}) == {"model.clip": 1e-4}


def test_a_held_parameter_has_one_value() -> None:
    space = UEA.hold({"configuration.lr": 0.5, "configuration.groups": 2})
    assert space.parameters["configuration.lr"] == Choice((0.5,))
    assert len(space.parameters) == 16
    drawn = {"configuration.groups": 2, "configuration.state_multiple": 4}
    assert space.settings(drawn) == {"configuration.groups": 2, "configuration.state_size": 16}


def test_a_space_from_toml() -> None:
    space = parse_space(
        {"a": ["x", "y"], "b": {"low": 1, "high": 9, "step": 4}, "c": {"low": 1e-3, "high": 1, "log": True}}
    )
    assert space.parameters == {"a": Choice(("x", "y")), "b": Whole(1, 9, 4), "c": Real(1e-3, 1.0, log=True)}
    assert space.to_dict()["c"] == {"kind": "real", "low": 1e-3, "high": 1.0, "log": True}
    assert space.to_dict()["b"] == {"kind": "whole", "low": 1, "high": 9, "step": 4}
    assert Space({"b": Whole(1, 9, 4)}).outside({"b": 6, "other": 1}) == ["b: 6 lies outside {1, 5, …, 9}"]


def test_logarithms_of_whole_numbers_stay_whole() -> None:
    """Sizes are whole numbers; drawn as others no trial could be computed."""
    space = parse_space({"width": {"low": 8, "high": 64, "log": True}})
    assert space.parameters == {"width": Whole(8, 64, 1, log=True)}
    assert space.to_dict()["width"]["log"]


@pytest.mark.parametrize(
    "entry",
    [
        [],
        3,
        {"low": 1},
        {"low": 2, "high": 1},
        {"low": 0.0, "high": 1.0, "log": True},
        {"low": 0.0, "high": 1.0, "step": 0.1},
        {"low": 1, "high": 2, "stpe": 1},
        {"low": 0, "high": 4, "log": True},
        {"low": 1, "high": 9, "step": 2, "log": True},
        {"low": "a", "high": "b"},
    ],
)
def test_ill_written_parameters_are_named(entry: object) -> None:
    with pytest.raises(ConfigError, match=r"space\.width"):
        parse_space({"width": entry})
    with pytest.raises(ConfigError, match="nothing"):
        parse_space({})
