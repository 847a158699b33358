"""Single launches of kernels that are compiled already: a list of addresses instead of Triton's own inspection.

What a launch is known by is what Triton compiles a kernel for (`launch`): kernel, flags, types, and of every argument
what Triton specialises it on. Whatever is not known goes Triton's own way, once.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from tides.kernels.triton.launch import COMPILED, DIRECT, specialised

_known: dict[Any, tuple[Any, ...]] = {}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Tensor | float, **flags: Any) -> None:
    """`kernel[grid](*arguments, **flags)` on the current stream; a kernel's constants go by name."""
    place = arguments[0].device  # type: ignore[union-attr]
    if not (COMPILED and DIRECT) or place.type != "cuda" or triton.knobs.runtime.launch_enter_hook.calls:
        kernel[grid](*arguments, **flags)
        return
    device = torch.cuda.current_device()
    if place.index != device:
        with torch.cuda.device(place):
            launch(kernel, grid, *arguments, **flags)
        return
    values: list[Any] = []
    kinds: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            address = argument.data_ptr()
            values.append(address)
            kinds.append((argument.dtype, address & 15 == 0))
        else:
            values.append(argument)
            kinds.append(specialised(argument))
    key = (device, kernel, *kinds, *flags.items())
    found = _known.get(key)
    if found is None:
        assert not any(parameter.is_constexpr for parameter in kernel.params[: len(arguments)]), "flags go by name"
        compiled = kernel[grid](*arguments, **flags)
        constants = [flags[name] for name in kernel.arg_names[len(arguments) :]]
        _known[key] = (compiled.run, compiled.function, compiled.packed_metadata, constants)
        return
    run, function, metadata, constants = found
    x, y, z = (*grid, 1, 1)[:3]
    stream = driver.active.get_current_stream(device)
    run(x, y, z, stream, function, metadata, None, None, None, *values, *constants)
