"""A stand-in for what Triton makes of a kernel."""

from typing import Any


class Compiled:
    """Stands for a compiled kernel; remembers with what it was launched."""

    function, packed_metadata = 7, (4, 1, 0)

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def run(self, *arguments: Any) -> None:
        self.calls.append(arguments)
