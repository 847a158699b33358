"""Strict fields, on a dataclass of every kind of annotation."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from tides.errors import ConfigError
from tides.fields import check_names, check_types, require


@dataclass(frozen=True)
class Sample:
    count: int = 1
    rate: float = 0.5
    flag: bool = False
    kind: Literal["a", "b"] = "a"
    limit: float | None = None
    span: tuple[float, float] = (0.0, 1.0)
    sizes: tuple[int, ...] = ()
    policy: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        check_types(self)


def test_whole_numbers_stand_for_real_ones() -> None:
    made = Sample(rate=1, limit=2, policy=3, sizes=(1, 2, 3))
    assert [type(value) for value in (made.rate, made.limit, made.policy)] == [float] * 3


def test_numbers_of_numpy_become_those_of_python() -> None:
    made = Sample(
        count=np.int64(3),  # type: ignore[arg-type]
        rate=np.float32(0.5),  # type: ignore[arg-type]
        flag=np.True_,  # type: ignore[arg-type]
        policy=np.int32(2),  # type: ignore[arg-type]
        span=(np.float64(0.5), np.int8(1)),  # type: ignore[arg-type]
        sizes=tuple(np.arange(2)),
    )
    assert made == Sample(3, 0.5, True, policy=2.0, span=(0.5, 1), sizes=(0, 1))
    values = (made.count, made.rate, made.flag, made.policy, *made.span, *made.sizes)
    assert [type(value) for value in values] == [int, float, bool, float, float, int, int, int]
    with pytest.raises(ConfigError, match=r"count: found 1\.0 \(float\), wanted int"):
        Sample(count=np.float64(1.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("count", 1.0, "int"),
        ("count", True, "int"),
        ("rate", "1", "a finite number"),
        ("rate", float("inf"), "a finite number"),
        ("rate", 10**400, "a finite number"),
        ("flag", 1, "bool"),
        ("kind", "c", "'a' or 'b'"),
        ("limit", "none", "a finite number or None"),
        ("span", (1.0,), "a pair of finite numbers"),
        ("sizes", 3, "several of int"),
        ("sizes", (1, 2.5), "several of int"),
        ("policy", "other", "a finite number or 'auto'"),
    ],
)
def test_ill_typed_values_are_named(field: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}: found .*, wanted {wanted}$"):
        Sample(**{field: value})


def test_unknown_names_and_values_out_of_range() -> None:
    check_names(Sample, ["count", "span"])
    with pytest.raises(ConfigError, match=r"^conut: unknown field of Sample; did you mean 'count'\?$"):
        check_names(Sample, ["conut"])
    with pytest.raises(ConfigError, match=r"^zzzzzz: unknown field of Sample$"):
        check_names(Sample, ["zzzzzz"])
    require(Sample(), ("count",), lambda value: value >= 1, "an integer ≥ 1")
    with pytest.raises(ConfigError, match=r"^rate: found 0\.5, wanted a number ≥ 1$"):
        require(Sample(), ("count", "rate"), lambda value: value >= 1, "a number ≥ 1")
