from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tides.errors import ConfigError
from tides.experiments import EXPERIMENTS, config


@dataclass(frozen=True)
class Inner:
    steps: int
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    names: tuple[str, ...] = ()
    pair: tuple[float, float] | None = None
    flag: bool = False


def test_build_makes_nested_dataclasses_and_widens_integers() -> None:
    made = config.build(Outer, {"inner": {"steps": 3, "rate": 1}, "names": ["x"], "pair": [1, 2.5]})
    assert made == Outer(Inner(3, 1.0), ("x",), (1.0, 2.5))
    assert isinstance(made.inner.rate, float)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "inner: missing field"),
        ({"inner": {}}, "inner.steps: missing field of type int"),
        ({"inner": {"steps": 1, "rat": 2}}, "inner.rat: unknown field; did you mean rate?"),
        ({"inner": {"steps": 1.5}}, "inner.steps: found 1.5, wanted int"),
        ({"inner": {"steps": -1}}, "inner.steps: found -1, wanted a whole number ≥ 0"),
        ({"inner": {"steps": 1, "rate": float("nan")}}, "inner.rate: found nan, wanted a finite number"),
        ({"inner": {"steps": True}}, "inner.steps: found True, wanted int"),
        ({"inner": {"steps": 1, "kind": "c"}}, "inner.kind: found 'c', wanted 'a' or 'b'"),
        ({"inner": {"steps": 1}, "pair": [1]}, "pair: found"),
        ({"inner": {"steps": 1}, "names": "x"}, "names: found 'x'"),
        ({"inner": {"steps": 1}, "flag": 1}, "flag: found 1, wanted bool"),
    ],
)
def test_build_is_strict_and_names_the_field(mapping: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.build(Outer, mapping)
    assert message in str(error.value)


def test_assign_reaches_into_tables_and_refuses_new_names() -> None:
    table = {"train": {"steps": 1}, "seeds": 2}
    config.assign(table, "train.steps", 5)
    assert table == {"train": {"steps": 5}, "seeds": 2}
    with pytest.raises(ConfigError, match="stpes: no such setting in train; did you mean steps"):
        config.assign(table, "train.stpes", 5)
    with pytest.raises(ConfigError, match="seeds is a value"):
        config.assign(table, "seeds.more", 5)
    rows = {"row": [{"epochs": 1}, {"epochs": 2}]}
    with pytest.raises(ConfigError, match=r"row\.epochs: row is a list of 2 tables; wanted .*--config"):
        config.assign(rows, "row.epochs", 5)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ConfigError, match="variant: found 'nonsense', fading-flash has"):
        config.load("fading-flash", "nonsense", quick=False, settings=[])


def test_every_shipped_file_loads_and_every_experiment_has_one() -> None:
    loaded = 0
    # Other tests add experiments of their own.
    for experiment in (name for name, module in EXPERIMENTS.items() if module.startswith("tides.")):
        names = config.variants(experiment)
        assert names, experiment
        for variant in names:
            for quick in (False, True):
                found = config.load(experiment, variant, quick=quick, settings=[])
                assert "quick" not in found
            loaded += 1
    assert loaded >= 2


def test_settings_are_toml_values_or_bare_words() -> None:
    found = config.load(
        "fading-flash", "paper", quick=True, settings=["train.steps=7", "train.schedule=cosine", 'models=["s5"]']
    )
    assert found["train"]["steps"] == 7
    assert found["train"]["schedule"] == "cosine"
    assert found["models"] == ["s5"]
    with pytest.raises(ConfigError, match="wanted name=value"):
        config.load("fading-flash", "paper", quick=False, settings=["train.steps"])


@pytest.mark.parametrize("text", ['{"depth": 2}', "[1, 2", '"s5', "'s5"])
def test_what_begins_as_a_list_or_table_is_not_read_as_a_word(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set model=.*: not a TOML value .*wanted one such as .*\{depth = 2\}"):
        config.parse_settings([f"model={text}"])


@pytest.mark.parametrize("text", ["lr = nan", "[train]\nlr = [1.0, -inf]", "[[row]]\n[row.model]\nlr = {low = inf}"])
def test_numbers_that_no_record_can_hold_are_refused_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"lr.*: found (nan|-?inf), wanted a finite number"):
        config.read_toml(tmp_path / "own.toml")
    with pytest.raises(ConfigError, match=r"^train.lr: found nan, wanted a finite number"):
        config.parse_settings(["train.lr=nan"])


def test_put_makes_the_tables_on_the_way() -> None:
    found: dict[str, Any] = {"model": {"rank": 2}}
    config.put(found, "model.depth", 3)
    config.put(found, "training.monitor", "auroc")
    config.put(found, "lr", 0.1)
    assert found == {"model": {"rank": 2, "depth": 3}, "training": {"monitor": "auroc"}, "lr": 0.1}
    with pytest.raises(ConfigError, match=r"^lr.high: lr is a value, not a table"):
        config.put(found, "lr.high", 1.0)


def test_hurried_settings_are_a_table(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("quick = 3")
    with pytest.raises(ConfigError, match="quick: found 3"):
        config.load_file(tmp_path / "own.toml", quick=False, settings=[])
