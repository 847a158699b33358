"""Single launches: Triton's own way once for everything it compiles a kernel for, a list of addresses afterwards."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed (extra `gpu`)")
from tests.kernels.compiled_kernel import Compiled
from tides.kernels.triton import direct


class Kernel:
    """Stands for a kernel that is compiled whenever Triton's own way is taken."""

    arg_names = ("x", "out", "n", "scale", "SIZE", "BLOCK")
    params = tuple(SimpleNamespace(is_constexpr=name.isupper()) for name in arg_names)

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def call(*arguments: Any, **flags: Any) -> Compiled:
            self.compiled.append(Compiled())
            return self.compiled[-1]

        return call


class OnDevice(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(OnDevice)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    active = SimpleNamespace(get_current_stream=lambda device: 99)
    monkeypatch.setattr(direct, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(direct, "COMPILED", True)
    monkeypatch.setattr(direct, "DIRECT", True)
    monkeypatch.setattr(direct, "_known", {})
    return Kernel()


def test_a_repeat_calls_the_compiled_kernel_with_addresses(kernel: Kernel) -> None:
    x, out = on_device(torch.zeros(32)), on_device(torch.zeros(32))
    for n in (5, 6):
        direct.launch(kernel, (3, 2), x, out, n, 0.5, BLOCK=8, SIZE=4, num_warps=2)
    (compiled,) = kernel.compiled
    assert compiled.calls == [(3, 2, 1, 99, 7, (4, 1, 0), None, None, None, x.data_ptr(), out.data_ptr(), 6, 0.5, 4, 8)]


@pytest.mark.parametrize(
    "other",
    [
        {"n": 1},
        {"n": 16},
        {"n": 2**31},
        {"x": torch.zeros(33)[1:]},
        {"x": torch.zeros(32, dtype=torch.float64)},
        {"SIZE": 5},
        {"num_warps": 4},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_triton_compiles_for_is_told_apart(kernel: Kernel, other: dict[str, Any]) -> None:
    usual = {"x": torch.zeros(32), "n": 5, "SIZE": 4, "num_warps": 2}
    for changed in (usual, usual | other, usual, usual | other):
        x, n, *_ = changed.values()
        flags = {name: changed[name] for name in ("SIZE", "num_warps")}
        direct.launch(kernel, (3,), on_device(x), on_device(torch.zeros(32)), n, 0.5, BLOCK=8, **flags)
    assert [len(compiled.calls) for compiled in kernel.compiled] == [1, 1]


def test_constants_by_position_are_refused(kernel: Kernel) -> None:
    with pytest.raises(AssertionError, match="by name"):
        direct.launch(kernel, (1,), on_device(torch.zeros(32)), on_device(torch.zeros(32)), 5, 0.5, 4, BLOCK=8)
