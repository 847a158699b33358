"""The launches of a block's passes and their memory, as they are planned: no GPU is needed for that."""

from typing import Any

import pytest

pytest.importorskip("triton", reason="the triton backend needs triton")

from tides.experiments.speed import WORKLOADS
from tides.kernels.triton.block_config import BlockConfig, BlockShape, kept_size, room_size
from tides.kernels.triton.block_plans import Wanted, _build_backward, _build_forward
from tides.kernels.triton.buffers import Buffer
from tides.kernels.triton.launch import LaunchPlan, _Call
from tides.kernels.triton.packing import layout_of
from tides.nn import TIDESConfig
from tides.nn.block import Block

WORMS = {"name": "eigenworms", "batch": 10, "steps": 17_984}


def _plans(name: str, batch: int, steps: int, **change: Any) -> tuple[BlockConfig, BlockShape, LaunchPlan, LaunchPlan]:
    """Both passes of a training step of a benchmark's model."""
    model = TIDESConfig(**{**WORKLOADS[name].model, "compat": "release", **change})
    block = Block(model)
    tail = block.glu.weights()
    assert tail is not None
    config = BlockConfig.of(layout_of(block.ssm.weights(), tail), block.ssm.spec, 0.0)
    shape = BlockShape.of(
        config.layout, 1, batch, steps, masked=False, norm="batch", depth=model.depth, whole=True
    )  # fmt: skip
    wanted = Wanted(((False,) * 3,) * model.depth, gaps=False, overwrite=True, fresh=True)
    forward = _build_forward(config, shape, "tf32x3", 1e-5, 0.1)
    return config, shape, forward, _build_backward(config, shape, "tf32x3", wanted)


def _peak(config: BlockConfig, shape: BlockShape, forward: LaunchPlan, backward: LaunchPlan) -> float:
    """MB of either pass: what is kept, temporaries, input and output or gradients of both, inputs in between."""
    x, kept = shape.rows * config.layout.width, shape.depth * kept_size(config.layout, shape)
    tensors = kept + room_size(config.layout, shape) + (shape.depth - 1) * x
    return 4e-6 * (tensors + max(2 * x + forward._sizes[0], 3 * x + backward._sizes[0]))


def test_a_large_batch_goes_through_the_backward_pass_in_parts() -> None:
    config, shape, *passes = _plans(**WORMS)
    assert [part.sequences for part in shape.parts] == [5, 5]
    assert not shape.keeps, "what is made again part by part would be the most of what is held"
    # The rest of a training step takes about 11 MB more.
    assert _peak(config, shape, *passes) < 139


def test_parts_of_a_batch_follow_one_another() -> None:
    *_, shape, _, _ = _plans("paper-100k", 11, 30_000)
    assert [(part.first, part.sequences) for part in shape.parts] == [(0, 4), (4, 4), (8, 3)]
    assert [(part.start, part.stop) for part in shape.parts] == [(0, 120_000), (120_000, 240_000), (240_000, 330_000)]
    assert [part.last for part in shape.parts] == [False, False, True]


@pytest.mark.parametrize(("steps", "launches", "most"), [(1000, 36 + 76, 32), (10_000, 36 + 106, 139)])
def test_a_small_batch_is_one_part(steps: int, launches: int, most: float) -> None:
    config, shape, forward, backward = _plans("paper-100k", 8, steps)
    assert [part.sequences for part in shape.parts] == [8]
    assert len(forward._launches) + len(backward._launches) == launches
    assert _peak(config, shape, forward, backward) < most


def test_sequences_longer_than_a_part_stay_together() -> None:
    config, shape, *passes = _plans("paper-100k", 8, 100_000)
    assert shape.parts == [shape.whole]
    # Half of it in a range: a third would take 26 MB less, and longer; 1,200 are the aim.
    assert _peak(config, shape, *passes) < 1_145


def test_models_of_a_population_are_one_part() -> None:
    config, *_ = _plans(**WORMS)
    shape = BlockShape.of(config.layout, 3, 10, 17_984, masked=False, norm="given")
    assert [part.sequences for part in shape.parts] == [30]


def test_gradients_of_states_become_those_of_drives_where_a_step_drives_the_interval_before_it() -> None:
    preceding, following = (_peak(*_plans("paper-100k", 8, 100_000, compat=compat)) for compat in ("release", None))
    assert preceding < following


@pytest.mark.parametrize(("clip", "limit"), [(None, float("inf")), (0.0, 0.0), (1e-4, -1e-4)])
def test_a_clip_of_zero_clips(clip: float | None, limit: float) -> None:
    config, _, forward, _ = _plans("paper-100k", 2, 50, reparam="standard", clip=clip)
    assert config.limit == limit
    flags = {launch.flags["CLIPPED"] for launch in forward._launches if "CLIPPED" in launch.flags}
    assert flags == {clip is not None}


def test_without_gradients_blocks_share_one_room() -> None:
    config, shape, forward, _ = _plans("paper-100k", 8, 10_000)
    room = shape.rows * config.layout.width
    alone = _build_forward(config, shape._replace(forgets=True), "tf32x3", 1e-5, 0.1)
    # Workspace, x, gaps of both directions, valid, seed, packed, affine, kept, then what lies between.
    between = 9
    made = [step.arguments for step in alone._launches if step.kernel.fn.__name__ == "leave_kernel"]
    places = [next(value for value in step[::-1] if isinstance(value, Buffer)) for step in made]
    assert [place.slot == between and place.offset == 0 and place.size == room for place in places] == [
        True, False, True, False,
    ]  # fmt: skip
    assert alone._sizes[0] == forward._sizes[0]


@pytest.mark.parametrize("fresh", [True, False])
def test_the_last_block_is_made_once(fresh: bool) -> None:
    config, shape, *_ = _plans("paper-100k", 8, 10_000)
    wanted = Wanted(((False,) * 3,) * shape.depth, gaps=False, overwrite=True, fresh=fresh)
    backward = _build_backward(config, shape, "tf32x3", wanted)
    made = [step for step in backward._launches if step.kernel.fn.__name__ == "enter_kernel"]
    assert shape.shares
    assert len(made) == shape.depth - fresh


def _kernels(plan: LaunchPlan) -> set[Any]:
    """What Triton compiles for a plan: kernels with their flags, and whether numbers are 1 or divisible by 16."""
    found = set()
    for launch in plan._launches:
        assert not isinstance(launch, _Call)
        numbers = tuple(
            (value == 1, value % 16 == 0)
            for parameter, value in zip(launch.kernel.params, launch.arguments, strict=False)
            if isinstance(value, int) and not parameter.do_not_specialize
        )
        found.add((launch.kernel, numbers, tuple(sorted(launch.flags.items()))))
    return found


def test_batches_of_other_lengths_need_hardly_any_other_kernels() -> None:
    *_, forward, backward = _plans("paper-100k", 32, 1600)
    for batch, steps in ((33, 1600), (32, 1601), (31, 1507)):
        *_, other_forward, other_backward = _plans("paper-100k", batch, steps)
        new = {kernel.__name__ for kernel, *_ in _kernels(other_forward) - _kernels(forward)}
        new |= {kernel.__name__ for kernel, *_ in _kernels(other_backward) - _kernels(backward)}
        assert new <= {"leave_kernel", "block_weight_kernel"}, "they know whether their bounds are divisible by 16"
