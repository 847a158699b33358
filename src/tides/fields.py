"""Strict fields of configuration dataclasses: known names, the annotated types, values in range.

Every message is a `ConfigError` that names the field, what was found and what was wanted.
"""

import dataclasses
import difflib
import functools
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from tides.errors import ConfigError

Config = TypeVar("Config")


def check_names(kind: type, names: Iterable[str]) -> None:
    """Unknown names raise, with the nearest valid one."""
    known = {field.name for field in dataclasses.fields(kind)}
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ConfigError(f"{name}: unknown field of {kind.__name__}{hint}")


def with_known_names(kind: type[Config]) -> type[Config]:
    """The class itself, whose constructor answers an unknown name as `check_names` does."""
    plain: Any = kind.__init__

    @functools.wraps(plain)
    def __init__(self: Any, **fields: Any) -> None:
        check_names(kind, fields)
        plain(self, **fields)

    kind.__init__ = __init__  # type: ignore[method-assign]
    return kind


def check_types(config: Any) -> None:
    """Every field must be what its annotation says; 1 stands for 1.0 where a real number is wanted."""
    for name, hint in get_type_hints(type(config)).items():
        value = _plain(getattr(config, name))
        if not _accepts(value, hint):
            if not _is_number(value) or not _accepts(float(value), hint):
                raise ConfigError(f"{name}: found {value!r} ({type(value).__name__}), wanted {_describe(hint)}")
            value = float(value)
        object.__setattr__(config, name, value)


def require(config: Any, names: tuple[str, ...], test: Callable[[Any], bool], wanted: str) -> None:
    """The values of these fields must pass `test`."""
    for name in names:
        value = getattr(config, name)
        if not test(value):
            raise ConfigError(f"{name}: found {value!r}, wanted {wanted}")


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's: a search draws them from arrays."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def _accepts(value: Any, hint: Any) -> bool:
    if hint is None or hint is type(None):
        return value is None
    if getattr(hint, "__origin__", None) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if getattr(hint, "__origin__", None) is tuple:
        parts = get_args(hint)
        if parts[-1] is Ellipsis:
            return isinstance(value, tuple) and all(_accepts(entry, parts[0]) for entry in value)
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_is_number, value))
    if get_args(hint):
        return any(_accepts(value, part) for part in get_args(hint))
    if hint is bool:
        return isinstance(value, bool)
    return isinstance(value, hint) and not isinstance(value, bool) and (hint is not float or math.isfinite(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _describe(hint: Any) -> str:
    if getattr(hint, "__origin__", None) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if getattr(hint, "__origin__", None) is tuple:
        parts = get_args(hint)
        return f"several of {_describe(parts[0])}" if parts[-1] is Ellipsis else "a pair of finite numbers"
    if hint is float:
        return "a finite number"
    if get_args(hint):
        return " or ".join(_describe(part) for part in get_args(hint))
    return "None" if hint is type(None) else str(hint.__name__)
