"""A compiled right-hand side: equations become one numba function over the published order of the states."""

import ast
import hashlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.atomic import atomic_write
from tides.data import cache
from tides.data.physiome.equations import Equations
from tides.errors import DataError

Array = NDArray[np.float64]
Rhs = Callable[[float, Array, Array, Array], Array]
"""`rhs(t, y, constants, out)` writes dy/dt into `out` and returns it; a non-finite rate raises ArithmeticError."""

# No text of the model, not even its name, stands here: a file may be called anything.
_HEADER = '''"""A right-hand side; generated, do not edit."""

import math


def rhs(t, y, c, out):
'''


def write_source(
    equations: Equations,
    state_position: Sequence[int],
    constant_position: Sequence[int],
    rate_position: Mapping[int, int] | None = None,
) -> str:
    """Python source of the right-hand side.

    State i of `equations` is `y[state_position[i]]`, constant i is `c[constant_position[i]]`. Where
    `rate_position` names a state, its rate is that element of `c` in place of the number in the model.
    """
    rate_position = rate_position or {}
    used = {
        node.id
        for _, expression in equations.body
        for node in ast.walk(ast.parse(expression, mode="eval"))
        if isinstance(node, ast.Name)
    }
    lines = [f"y{i} = y[{p}]" for i, p in enumerate(state_position) if f"y{i}" in used]
    lines += [f"c{i} = c[{p}]" for i, p in enumerate(constant_position) if f"c{i}" in used]
    rates = {f"r{i}": f"c[{p}]" for i, p in rate_position.items()}
    lines += [f"{target} = {rates.get(target, expression)}" for target, expression in equations.body]
    # A product with zero is zero unless the rate is infinite or NaN.
    lines += ["check = 0.0", *(f"check += r{i} * 0.0" for i in range(len(state_position)))]
    lines += ["if check != 0.0:", '    raise ArithmeticError("the right-hand side is not finite")']
    lines += [f"out[{p}] = r{i}" for i, p in enumerate(state_position)]
    lines.append("return out")
    return _HEADER + "".join(f"    {line}\n" for line in lines)


@lru_cache(maxsize=8)
def compile_source(source: str) -> Rhs:
    """The machine code of `source`, from the user's cache if it was compiled before."""
    try:
        import numba
    except ImportError:
        raise DataError("simulation needs numba and scipy: pip install 'tides-ssm[simulation]'") from None
    module, on_disk = _load_module(source)
    vector = numba.float64[::1]
    signature = vector(numba.float64, vector, vector, vector)
    compiled = numba.njit(signature, cache=on_disk, error_model="numpy")(module.rhs)
    # The entry point skips the dispatcher's look at the argument types; LSODA calls with the same types a
    # thousand times per trajectory, and half of its time would go there.
    overload: Any = compiled.overloads[compiled.signatures[0]]
    entry_point: Rhs = overload.entry_point
    return entry_point


def _load_module(source: str) -> tuple[ModuleType, bool]:
    digest = hashlib.sha256(source.encode()).hexdigest()[:20]
    path = _code_folder() / f"rhs_{digest}.py"
    on_disk = True
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != source:
            with atomic_write(path) as file:
                file.write(source.encode())
    except OSError as error:
        warnings.warn(f"compiled equations are not kept: {error}", stacklevel=4)
        on_disk = False
    module = ModuleType(f"tides_{path.stem}")
    # numba finds the globals of cached code through the module's name.
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module, on_disk


def _code_folder() -> Path:
    # Code is loaded from here, so it is always the user's own cache, never a data folder others may write to.
    return cache.user_cache() / "rhs"
