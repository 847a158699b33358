"""Scratch for a block of steps as (features, steps): with the steps innermost every loop is long for any sizes."""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class View(NamedTuple):
    """Rows of a plane: for matrix products, the same transposed, and for compiled loops."""

    tensor: Tensor
    turned: Tensor
    array: Any


class Plane:
    """(features, n) over one buffer, with views that are made once for every n.

    With `ones` a last row of ones follows the features: products with a matrix whose last column is a bias then add it,
    and collect its gradient.
    """

    def __init__(self, buffer: Tensor, features: int, *, ones: bool = False) -> None:
        self._buffer, self._rows, self._ones = buffer, features + ones, ones
        self._known: dict[int, dict[tuple[int, int], View]] = {}

    def resize(self, n: int) -> None:
        """Room for blocks of n steps; what was there is lost."""
        self._steps, self._views = n, self._known.setdefault(n, {})
        self.tensor, self.turned, self.array = self.rows(0, self._rows)
        if self._ones:
            self.array[-1] = 1.0

    def rows(self, start: int, stop: int) -> View:
        """Features from `start` to `stop`."""
        view = self._views.get((start, stop))
        if view is None:
            n = self._steps
            tensor = self._buffer[start * n : stop * n].view(-1, n)
            view = self._views[start, stop] = View(tensor, tensor.t(), tensor.numpy())
        return view


class Planes:
    """All planes of one thread, resized together."""

    def __init__(self, steps: int, dtype: torch.dtype) -> None:
        self.limit, self.dtype, self.steps = steps, dtype, 0
        self._planes: list[Plane] = []

    def buffer(self, features: int) -> Tensor:
        """Memory for `features` numbers per step, which several planes may share."""
        return torch.empty(features * self.limit, dtype=self.dtype)

    def add(self, features: int, *, ones: bool = False) -> Plane:
        """A plane with memory of its own."""
        return self.share(self.buffer(features + ones), features, ones=ones)

    def share(self, buffer: Tensor, features: int, *, ones: bool = False) -> Plane:
        """A plane in given memory, which may be of another type."""
        plane = Plane(buffer, features, ones=ones)
        self._planes.append(plane)
        return plane

    def resize(self, n: int) -> None:
        if n != self.steps:
            self.steps = n
            for plane in self._planes:
                plane.resize(n)
