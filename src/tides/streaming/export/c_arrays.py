"""Tensors as constant arrays of C, and the names under which other constants refer to them."""

import torch
from torch import Tensor

from tides.errors import ConfigError
from tides.streaming.export.quantise import to_int8


class ArrayWriter:
    """Collects declarations; every method returns the C expression that stands for what it wrote."""

    def __init__(self, *, double: bool, int8: bool) -> None:
        self.double, self.int8 = double, int8
        self.lines: list[str] = []
        self.bytes = 0

    def reals(self, name: str, tensor: Tensor) -> str:
        """A constant array in the model's precision; `NULL` for an empty one."""
        if tensor.numel() == 0:
            return "NULL"
        _check_finite(name, tensor)
        digits, suffix = (17, "") if self.double else (9, "f")
        numbers = [_literal(x, digits) + suffix for x in tensor.detach().double().reshape(-1).tolist()]
        self.bytes += len(numbers) * (8 if self.double else 4)
        return self._array("real", name, numbers)

    def weights(self, name: str, matrix: Tensor, axes: tuple[int, ...] = (-1,)) -> tuple[str, str]:
        """A matrix, and its scales if it is stored as bytes: (matrix, scale), `NULL` for what there is not."""
        if matrix.numel() == 0:
            return "NULL", "NULL" if not self.int8 else self.reals(f"{name}_scale", torch.zeros(matrix.shape[0]))
        if not self.int8:
            return self.reals(name, matrix), "NULL"
        _check_finite(name, matrix)
        codes, scale = to_int8(matrix, axes)
        self.bytes += codes.numel()
        stored = self._array("tides_weight", name, [str(x) for x in codes.reshape(-1).tolist()])
        return stored, self.reals(f"{name}_scale", scale)

    def linear(self, name: str, weight: Tensor, bias: Tensor) -> str:
        """Initialiser of a `linear_t`."""
        matrix, scale = self.weights(f"{name}_weight", weight)
        return f"{{{matrix}, {scale}, {self.reals(f'{name}_bias', bias)}}}"

    def constant(self, declaration: str, value: str) -> None:
        self.lines.append(f"static const {declaration} = {value};")

    def _array(self, kind: str, name: str, numbers: list[str]) -> str:
        rows, row = [], "   "
        for number in numbers:
            if len(row) + len(number) > 110:
                rows.append(row)
                row = "   "
            row += f" {number},"
        body = "\n".join([*rows, row])
        self.lines.append(f"static const {kind} {name}[{len(numbers)}] = {{\n{body}\n}};")
        return name


def _check_finite(name: str, tensor: Tensor) -> None:
    if not bool(torch.isfinite(tensor).all()):
        raise ConfigError(f"{name}: found weights that are not finite, which C has no constants for: did it diverge?")


def _literal(x: float, digits: int) -> str:
    text = f"{x:.{digits}g}"
    return text if any(c in text for c in ".e") else f"{text}.0"
