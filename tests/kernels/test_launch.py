"""Plans of launches: temporaries that live together never share memory, and every argument is where it belongs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="triton is not installed (extra `gpu`)")
from tests.kernels.compiled_kernel import Compiled
from tides.kernels.triton import launch
from tides.kernels.triton.buffers import ALIGNED, Buffer, View
from tides.kernels.triton.launch import LaunchPlan


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 5)), min_size=1, max_size=40))
def test_temporaries_that_live_together_lie_apart(actions: list[tuple[int, int]]) -> None:
    plan, living = LaunchPlan(), list[Buffer]()
    most = 0
    for size, ended in actions:
        for _ in range(min(ended, len(living))):
            plan.release(living.pop(0))
        new = plan.space(size)
        assert new.offset % ALIGNED == 0
        for other in living:
            assert new.offset + new.size <= other.offset or other.offset + other.size <= new.offset
        living.append(new)
        most = max(most, sum(-(-buffer.size // ALIGNED) * ALIGNED for buffer in living))
        assert all(buffer.offset + buffer.size <= plan._sizes[0] for buffer in living)
    assert plan._sizes[0] >= most


def test_memory_is_used_again() -> None:
    plan = LaunchPlan()
    first, second = plan.space(100), plan.space(100)
    plan.release(first, second)
    assert plan.space(250).offset == first.offset
    assert plan._sizes[0] == 4 * ALIGNED


@pytest.mark.parametrize(
    ("some", "other"),
    [
        (1, 2),
        (16, 17),
        (2**31, 2**31 - 16),
        (Buffer(0, 4, 1), Buffer(0, 5, 1)),
        (3, 3.0),
        (32, Buffer(0, 0, 1)),
        (Buffer(0, 0, 2), Buffer(0, 0, 2, torch.float64)),
    ],
)
def test_what_triton_compiles_for_is_told_apart(some: Any, other: Any) -> None:
    assert launch.specialised(some) != launch.specialised(other)


class Kernel:
    """Stands for a kernel: compiling it once gives `compiled`."""

    arg_names = ("x", "offset", "out", "SIZE", "scale")

    def __init__(self) -> None:
        self.compiled, self.warm, self.plainly = Compiled(), 0, 0

    def warmup(self, x: Any, offset: int, out: Any, *, grid: tuple[int, ...], SIZE: int, scale: float) -> None:
        assert self.plainly == 0, "kernels are compiled before the first one runs"
        self.warm += 1

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def call(*arguments: Any, **flags: Any) -> Compiled:
            self.plainly += 1
            return self.compiled

        return call


def test_a_repeat_calls_the_compiled_kernel_with_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    active = SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda device: 99)
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(launch, "DIRECT", True)
    monkeypatch.setattr(launch, "_known", {})
    kernel, plan = Kernel(), LaunchPlan()
    x = plan.tensor(32)
    temporary = plan.space(10)
    plan.launch(kernel, (3,), x.part(16, 16), 5, temporary, SIZE=4, scale=2.0)
    given_x = torch.zeros(32)
    plan.run(given_x)
    assert (kernel.warm, kernel.plainly, kernel.compiled.calls) == (1, 1, [])
    plan.run(given_x)
    ((*head, first, number, where, size, scale),) = kernel.compiled.calls
    assert head == [3, 1, 1, 99, 7, (4, 1, 0), None, None, None]
    assert (first, number, size, scale) == (given_x.data_ptr() + 64, 5, 4, 2.0)
    assert where % 16 == 0
    assert kernel.plainly == 1
    # A tensor that begins elsewhere is no case for the kernel that was compiled for a multiple of 16 bytes.
    plan.run(torch.zeros(33)[1:])
    assert kernel.plainly == 2
    # Another plan of the same kind needs no compilation at all.
    other = LaunchPlan()
    y, room = other.tensor(64), other.space(80)
    other.launch(kernel, (2, 2), y.part(32, 16), 7, room, SIZE=4, scale=2.0)
    other.run(torch.zeros(64))
    assert (kernel.warm, kernel.plainly, len(kernel.compiled.calls)) == (1, 2, 2)


class Graph:
    """Stands for a captured graph."""

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


def test_launches_are_replayed_where_tensors_lie_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = list[Graph]()

    def capture(run: Any) -> Graph:
        captured.append(Graph())
        return captured[-1]

    capturing = False
    monkeypatch.setattr(launch, "side_stream", lambda device, stream: SimpleNamespace(capture=capture))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    plan = LaunchPlan()

    def replay(*addresses: int, stream: int = 5) -> bool:
        return plan._replay((0, stream, *addresses), lambda stream: None)

    assert [replay(16, 32) for _ in range(4)] == [False, False, True, True]
    assert [graph.replays for graph in captured] == [2]
    assert not replay(16, 48), "another place"
    assert not replay(16, 32, stream=6), "another stream"
    capturing = True
    assert not replay(16, 32), "a graph is no part of another one"
    capturing = False
    for place in range(200):
        replay(place, 0)
    assert len(plan._graphs) <= launch._PLACES


def test_calls_of_torch_stand_between_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, by Triton's own way and by address, with views of the tensors and of the workspace."""
    active = SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda device: 99)
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(launch, "DIRECT", True)
    monkeypatch.setattr(launch, "_known", {})
    kernel, plan, seen = Kernel(), LaunchPlan(), list[int]()
    a, out = plan.tensor(6), plan.tensor(9)
    exact, halves = plan.space(3, 2, dtype=torch.float64), plan.space(5, dtype=torch.float16)
    copy, matrix = View.dense(exact, 2, 3), View.dense(a, 2, 3)
    plan.call(torch.Tensor.copy_, copy, matrix)
    plan.call(torch.Tensor.mul_, copy.columns(1, 1), 2)
    plan.launch(kernel, (1,), a, 1, out, SIZE=4, scale=1.0)
    plan.call(lambda: seen.append(len(kernel.compiled.calls)))
    plan.call(torch.Tensor.copy_, View.dense(halves, 5), 1.0)
    plan.call(torch.mm, View(exact, (3, 2), (1, 3)), copy, out=View.dense(plan.space(9, dtype=torch.float64), 3, 3))
    plan.call(torch.mm, matrix.mT, matrix, out=View.dense(out, 3, 3))
    given_a = torch.arange(6.0)
    for repeat in range(2):
        found = torch.zeros(9)
        plan.run(given_a, found)
        wanted = given_a.view(2, 3).T @ given_a.view(2, 3)
        assert torch.equal(found.view(3, 3), wanted)
        assert seen[-1] == repeat, "kernels before it have run, others have not"
    assert kernel.plainly == 1


def test_views_lie_where_their_buffers_do() -> None:
    flat = [torch.arange(100.0), torch.arange(50.0)]
    buffer = Buffer(1, 8, 24)
    view = View.dense(buffer, 2, 3, 4)
    assert torch.equal(view.of(flat), flat[1][8:32].view(2, 3, 4))
    assert torch.equal(view.mT.of(flat), flat[1][8:32].view(2, 3, 4).mT)
    assert torch.equal(view.columns(1, 2).of(flat), flat[1][8:32].view(2, 3, 4)[..., 1:3])
    wide = View.dense(Buffer(0, 64, 4, torch.float64), 2)
    wide.of(flat).fill_(7)
    assert flat[0][64:68].view(torch.float64).tolist() == [7, 7]
