"""What a block as one operator promises: output, final state and every gradient equal the composed float64 block."""

import copy
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from tests.comparison import relative_error
from tests.tolerances import FLOAT32_FORWARD, FLOAT32_GRADIENT
from tides.kernels import block_operator, use_backend
from tides.nn import Backbone, TIDESConfig
from tides.nn.block import Block

CASES: list[dict[str, Any]] = [
    {},
    {"bidirectional": True},
    {"bidirectional": True, "compat": "release"},
    {"rank": "full"},
    {"projector_norm": False, "reparam": "softplus"},
    {"reparam": "stable", "hold": "preceding", "discretisation": "bilinear"},
    {"reparam": "standard", "clip": 1e-4, "discretisation": "dirac"},
    {"conjugate": True},
    {"expand": 2.0},
]


def make_block(case: dict[str, Any], sizes: tuple[int, int, int], seed: int = 0) -> Block:
    """A block with hidden size, state size and rank of `sizes`, away from its starting point."""
    h, p, r = sizes
    config = TIDESConfig(**{"input_size": 1, "hidden_size": h, "state_size": p, "depth": 1, "rank": r} | case)
    torch.manual_seed(seed)
    block = Block(config)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return block


def run(
    block: Block, backend: Any, dtype: torch.dtype, device: str, l: int, padded: bool, gap: float = 1.0, b: int = 2
) -> dict[str, Tensor]:
    """Everything the block computes, by name; gradients of a random functional of output and final state."""
    generator = torch.Generator().manual_seed(1)
    width = block.ssm.config.hidden_size

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    block = block.to(device, dtype)
    x, gaps = draw(b, l, width).requires_grad_(), (gap * draw(b, l).abs()).requires_grad_()
    valid = None
    if padded:
        valid = (torch.arange(l) < torch.tensor([[l - 1], [l // 2]]).repeat(b, 1)[:b]).to(device)
    with use_backend(backend):
        y, last = block(x, gaps, valid=valid)
    found = {"y": y} | {name: torch.view_as_real(part) for name, part in last._asdict().items()}
    total = sum((part * draw(*part.shape)).sum() for part in found.values())
    leaves = {"x": x, "gaps": gaps, **dict(block.named_parameters())}
    gradients = torch.autograd.grad(total, list(leaves.values()))  # type: ignore[arg-type]
    return {name: part.detach() for name, part in found.items()} | {
        f"d {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)
    }


def check_block(case: dict[str, Any], sizes: tuple[int, int, int], l: int, padded: bool, device: str) -> None:
    """The fused block ran, and equals the reference."""
    block = make_block(case, sizes)
    with use_backend("triton"):
        tail = block.glu.weights()
        assert tail is not None
        x = torch.zeros(1, l, sizes[0], device=device)
        assert block_operator(x, block.ssm.weights(), block.ssm.spec, tail) is not None
    _compare(case, sizes, l, padded, device, training=True)


def check_wide_block(
    case: dict[str, Any], sizes: tuple[int, int, int], l: int, padded: bool, device: str, *, training: bool = True
) -> None:
    """A block beyond the fused one ran as one function, and equals the reference."""
    block = make_block(case, sizes).to(device)
    with use_backend("triton"):
        y, _ = block(torch.randn(1, l, sizes[0], device=device), torch.ones(1, l, device=device))
    assert type(y.grad_fn).__name__ == "WideFunctionBackward"
    # The fastest of many modes turn by hundreds of radians in a gap of one: then float32 itself, whatever the code, is
    # further from float64 than what is allowed here.
    _compare(case, sizes, l, padded, device, training=training, gap=0.02)


def _compare(
    case: dict[str, Any],
    sizes: tuple[int, int, int],
    l: int,
    padded: bool,
    device: str,
    *,
    training: bool,
    gap: float = 1.0,
) -> None:
    outcomes = []
    for backend, dtype in (("reference", torch.float64), ("triton", torch.float32)):
        block = make_block(case, sizes).train(training)
        outcomes.append(run(block, backend, dtype, device, l, padded, gap) | dict(block.named_buffers()))
    wanted, found = outcomes
    for name, value in wanted.items():
        bound = FLOAT32_GRADIENT if name.startswith("d ") else FLOAT32_FORWARD
        error = relative_error(found[name].double(), value)
        assert error < bound, f"{case} {name}: {error:.1e}"


def check_parts(
    device: str, l: int, sizes: tuple[int, int, int], case: dict[str, Any], *, keeps: bool, again: bool = True
) -> None:
    """Five sequences in parts of two are what they are together, padded and with dropout, and the same every time."""
    elements = l * sizes[1] * (7 if case.get("bidirectional") else 5)
    outcomes = []
    for part in (5, 2, 2) if again else (5, 2):
        sizes_kept = {"_PART": part * elements, "_KEPT": 5 * elements * keeps}
        with mock.patch.multiple("tides.kernels.triton.block_config", **sizes_kept):
            torch.manual_seed(2)
            block = make_block(case | {"dropout": 0.3}, sizes).train()
            outcomes.append(run(block, "triton", torch.float32, device, l, True, b=5))
    together, parts = outcomes[:2]
    for name, value in together.items():
        assert relative_error(parts[name].double(), value.double()) < 0.1 * FLOAT32_GRADIENT, f"{case} {name}"
        assert torch.equal(parts[name], outcomes[-1][name]), f"{case} {name}: the order of its sums is not fixed"


def check_stack(
    device: str, l: int, sizes: tuple[int, int, int], *, padded: bool, depth: int, function: str = "BlockFunction"
) -> None:
    """Blocks of a model as one operator equal the composed float64 ones: features, states, gradients, statistics."""
    h, p, r = sizes
    outcomes = []
    for backend, dtype in (("reference", torch.float64), ("triton", torch.float32)):
        torch.manual_seed(0)
        config = TIDESConfig(input_size=2, hidden_size=h, state_size=p, rank=r, depth=depth, projector_init="random")
        net = Backbone(config).to(device, dtype)
        generator = torch.Generator().manual_seed(1)

        def draw(*shape: int, to: torch.dtype = dtype, generator: torch.Generator = generator) -> Tensor:
            return torch.randn(*shape, generator=generator).to(device, to)

        # Many modes turn fast: `check_wide_block`.
        gap = 0.02 if function == "WideFunction" else 1.0
        x, gaps = draw(2, l, 2).requires_grad_(), gap * draw(2, l).abs()
        valid = (torch.arange(l) < torch.tensor([[l], [l // 2]])).to(device) if padded else None
        twin = copy.deepcopy(net)
        with use_backend(backend):  # type: ignore[arg-type]
            y, state = net(x, gaps, valid=valid)
        if backend == "triton":
            with use_backend("triton"), torch.no_grad():
                alone, last = twin(x, gaps, valid=valid)
            assert torch.equal(alone, y), "without gradients"
            for mine, theirs in zip(last.blocks, state.blocks, strict=True):
                assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
            functions = {type(y.grad_fn).__name__, *(type(before).__name__ for before, _ in y.grad_fn.next_functions)}
            assert f"{function}Backward" in functions
            assert all(block.s.grad_fn is state.blocks[0].s.grad_fn for block in state.blocks), "one operator"
        found = [y, *(torch.view_as_real(part) for block in state.blocks for part in block)]
        total = sum((part * draw(*part.shape)).sum() for part in found[1:])
        # The same gradient for every step is a copy of the operator's own, which it may overwrite.
        total = total + ((y if padded else y.sum(1)) * draw(2, l if padded else 1, h).squeeze(1)).sum()
        leaves = [x, *net.parameters()]
        gradients = torch.autograd.grad(total, leaves, retain_graph=True)  # type: ignore[arg-type]
        if backend == "triton":
            # By then blocks have written over what they share.
            again = torch.autograd.grad(total, leaves)  # type: ignore[arg-type]
            assert all(torch.equal(one, other) for one, other in zip(again, gradients, strict=True)), "once more"
        outcomes.append(([part.detach() for part in found], gradients, list(net.buffers())))
    for wanted, found, bound in zip(*outcomes, (FLOAT32_FORWARD, FLOAT32_GRADIENT, FLOAT32_FORWARD), strict=True):
        for one, other in zip(wanted, found, strict=True):
            assert relative_error(other.double(), one.double()) < bound


def check_stacked(device: str, l: int) -> None:
    """Two models under vmap are each by itself, forwards and backwards."""
    blocks = [make_block({}, (5, 3, 2), seed).to(device) for seed in (1, 2)]
    names = [name for name, _ in blocks[0].named_parameters()]
    x, gaps = torch.randn(2, 2, l, 5, device=device), torch.rand(2, l, device=device)
    for block in blocks:
        block.eval()

    def call(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        y: Tensor = torch.func.functional_call(blocks[0], parameters, (x, gaps))[0]
        return y

    stacked = {
        name: torch.stack([dict(block.named_parameters())[name].detach() for block in blocks]).requires_grad_()
        for name in names
    }
    with use_backend("triton"):
        together = torch.func.vmap(call)(stacked, x)
        gradients = torch.autograd.grad(together.square().sum(), list(stacked.values()))
        for k, block in enumerate(blocks):
            alone = block(x[k], gaps)[0]
            torch.testing.assert_close(together[k], alone, rtol=1e-5, atol=1e-6)
            parts = torch.autograd.grad(alone.square().sum(), list(block.parameters()))
            for name, part, gradient in zip(names, parts, gradients, strict=True):
                assert relative_error(gradient[k].double(), part.double()) < FLOAT32_GRADIENT, name


def check_dropout(device: str, l: int, sizes: tuple[int, int, int] = (5, 3, 2)) -> None:
    """The same seed gives the same masks, forwards and backwards: the gradient is that of the function computed."""
    block = make_block({"dropout": 0.4}, sizes).to(device)
    block.train()
    x, gaps = torch.randn(2, l, sizes[0], device=device), torch.rand(2, l, device=device)
    direction = torch.randn(2, l, sizes[0], device=device)

    def value(x: Tensor, seed: int = 3) -> Tensor:
        torch.manual_seed(seed)
        with use_backend("triton"):
            y: Tensor = block(x, gaps)[0]
        return y

    assert torch.equal(value(x), value(x))
    kept = (value(x) != value(x, seed=4)).float().mean()
    assert kept > 0.2, "another seed, other masks"
    x.requires_grad_()
    (gradient,) = torch.autograd.grad((value(x) * direction).sum(), x)
    with torch.no_grad():
        eps = 1e-2
        change = ((value(x + eps * direction) - value(x - eps * direction)) * direction).sum() / (2 * eps)
    torch.testing.assert_close((gradient * direction).sum(), change, rtol=2e-2, atol=1e-2)


def check_replays(sizes: tuple[int, int, int]) -> None:
    """Steps of a model on a GPU whose tensors lie where they lay before are graphs, and equal single launches bit by
    bit, whatever else takes memory and multiplies in between."""
    h, p, r = sizes
    torch.manual_seed(0)
    config = TIDESConfig(input_size=2, hidden_size=h, state_size=p, rank=r, depth=2)
    net = Backbone(config).to("cuda")
    x, gaps = torch.randn(4, 300, 2, device="cuda"), 0.02 * torch.rand(4, 300, device="cuda")
    other, found, count = torch.randn(700, 700, device="cuda"), list[list[Tensor]](), 0
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph: torch.cuda.CUDAGraph) -> None:
        nonlocal count
        count += 1
        replay(graph)

    with use_backend("triton"), mock.patch.object(torch.cuda.CUDAGraph, "replay", counted):
        for _ in range(8):
            for parameter in net.parameters():
                parameter.grad = None
            y, _ = net(x, gaps)
            y.square().sum().backward()
            # Kept on the host, so that the device's memory is taken the same way in every round.
            found.append([y.detach().cpu(), *(parameter.grad.cpu() for parameter in net.parameters())])
            other = torch.tanh(other @ other)
            torch.full((1 << 24,), torch.nan, device="cuda")
            del y
            found = found[:1] + found[-1:]
            assert all(torch.equal(one, now) for one, now in zip(*found[:1], found[-1], strict=True))
    assert count >= 2, "nothing was replayed"
