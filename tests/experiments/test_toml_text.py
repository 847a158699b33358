"""What is written as TOML is read back as it was."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.errors import ConfigError
from tides.experiments.config import load
from tides.experiments.toml_text import to_toml

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
SCALARS = (
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
TABLES = st.recursive(
    st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=3), max_size=3),
    lambda inner: st.dictionaries(NAMES, SCALARS | inner | st.lists(inner, min_size=1, max_size=2), max_size=3),
    max_leaves=6,
)


@given(TABLES)
def test_round_trip(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


@pytest.mark.parametrize(("experiment", "variant"), [("uea", "paper"), ("physiome", "recommended")])
def test_shipped_configurations_round_trip(experiment: str, variant: str) -> None:
    config = load(experiment, variant, quick=True, settings=())
    assert tomllib.loads(to_toml(config)) == config


def test_what_toml_cannot_hold_is_named() -> None:
    with pytest.raises(ConfigError, match=r"model\.clip"):
        to_toml({"model": {"clip": None}})
