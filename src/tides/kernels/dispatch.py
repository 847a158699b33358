"""Which backend runs a call, and why. All backends are reached through this module and do not know each other.

    `reference`  the plain definition of `functional`: exact, differentiable any number of times, slow
    `torch`      factored mixes and a two-level scan with hand-written gradients; any device, every feature
    `cpu`        compiled loops (numba, extra `speed`)
    `triton`     fused GPU kernels

An explicit choice never falls back: it raises `BackendUnavailable` with the reason. `auto` takes the fastest one that
can run the call and says once why a faster one could not.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from tides import functional as tf
from tides.errors import BackendUnavailable, ConfigError, ShapeError
from tides.functional.checks import describe_shape
from tides.functional.scan import check_scan
from tides.functional.ssm import PLAIN, SSMOps, SSMSpec, SSMState, SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.transforms import plain_only, runs_at_once

Backend = Literal["auto", "reference", "torch", "cpu", "triton"]

# Fastest first, by the device the data is on.
_PREFERENCE = {"cpu": ("cpu", "torch"), "cuda": ("triton", "torch")}

# Elements between the blocks of a stack that are worth the time of single launches: 16 MB.
_REMEMBERED = 1 << 22


class _Requests(threading.local):
    """The backends asked for in this thread, the newest last; other threads have their own."""

    def __init__(self) -> None:
        self.stack: list[Backend] = ["auto"]


_requests = _Requests()
_ran: list[str] = ["none"]
_told: set[str] = set()


class Choice(NamedTuple):
    """A backend and the reason for it; `passed_over` says why each faster one was not taken."""

    backend: str
    reason: str
    passed_over: dict[str, str]


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """Run everything inside with `backend`, in this thread; a call it cannot run raises `BackendUnavailable`."""
    if backend not in get_args(Backend):
        raise ConfigError(f"backend: found {backend!r}, wanted one of {', '.join(get_args(Backend))}")
    _requests.stack.append(backend)
    try:
        yield
    finally:
        _requests.stack.pop()


def keep_backend(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, bound to the current choice of backend: checkpoints run it again later, on a GPU in another
    thread.
    """
    if torch.compiler.is_compiling():
        return function
    requested = _requests.stack[-1]

    def run(*arguments: Any, **options: Any) -> Any:
        with use_backend(requested):
            return function(*arguments, **options)

    return run


def explain(
    u: Tensor, weights: SSMWeights | None = None, spec: SSMSpec | None = None, *, packed: bool = False
) -> Choice:
    """Which backend would run a layer (or a bare scan, without weights) on data like `u`, and why."""
    if not isinstance(u, Tensor) or u.ndim < 2:
        raise ShapeError(f"u: found {describe_shape(u)}, wanted a tensor (b, l, h)")
    choice = resolve(_requests.stack[-1], u, weights, spec, packed=packed)
    if choice.backend == "torch":
        choice = choice._replace(reason=f"{choice.reason}; {_module('torch').describe(u, weights, spec)}")
    return choice


def last_backend() -> str:
    """The backend that ran most recently in this process (for tests and reports)."""
    return _ran[-1]


def resolve(
    requested: Backend, u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, *, packed: bool = False
) -> Choice:
    """The choice for one call; it depends on its arguments and on what is installed, on nothing else."""
    if requested == "reference":
        return Choice("reference", "it was asked for", {})
    transform = plain_only()
    if requested != "auto":
        obstacle = transform or _obstacle(requested, u, weights, spec, packed)
        if obstacle is not None:
            raise BackendUnavailable(f"backend {requested!r}: {obstacle}")
        return Choice(requested, "it was asked for", {})
    if u.shape[-2] == 1:
        return Choice("reference", "a single step has nothing to scan", {})
    if transform is not None:
        return Choice("reference", transform, {})
    passed_over: dict[str, str] = {}
    for candidate in _PREFERENCE.get(u.device.type, ("torch",)):
        obstacle = _obstacle(candidate, u, weights, spec, packed)
        if obstacle is None:
            return Choice(candidate, f"the fastest that runs this call on {u.device.type}", passed_over)
        passed_over[candidate] = obstacle
    return Choice("reference", "no faster backend runs this call", passed_over)


def current_ops(u: Tensor, weights: SSMWeights | None = None, spec: SSMSpec | None = None) -> SSMOps:
    """The operations of a block, from the backend that `resolve` chooses."""
    return _ops(_choose(u, weights, spec))


def selective_ssm(
    u: Tensor,
    gaps: Tensor,
    weights: SSMWeights,
    spec: SSMSpec,
    *,
    valid: Tensor | None = None,
    state: SSMState | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, SSMState]:
    """One layer over u (b, l, h): y (b, l, h) and its last state, as `functional.selective_ssm` on the chosen backend.

    `weights` and `spec` are `layer.weights()` and `layer.spec` of an `nn.SSM`; gaps (b, l) in its time scale.
    """
    backend = _choose(u, weights, spec, packed=cu_seqlens is not None)
    return tf.selective_ssm(u, gaps, weights, spec, valid=valid, state=state, cu_seqlens=cu_seqlens, ops=_ops(backend))


def block_operator(
    x: Tensor, weights: SSMWeights, spec: SSMSpec, tail: TailWeights
) -> Callable[..., tuple[Tensor, SSMState]] | None:
    """A whole block, norm to residual, as one operator of the chosen backend; None if it must be composed from
    parts.
    """
    backend = _choose(x, weights, spec)
    if backend not in ("cpu", "triton") or _module(backend).block_obstacle(weights, spec, tail) is not None:
        return None
    operator: Callable[..., tuple[Tensor, SSMState]] = _module(backend).fused_block
    return operator


def wide_operator(
    x: Tensor, weights: SSMWeights, spec: SSMSpec, tail: TailWeights
) -> Callable[..., tuple[Tensor, SSMState]] | None:
    """A block that is too wide for `block_operator`, as one function, for calls that compute at once.

    None if it must be composed from parts.
    """
    backend = _choose(x, weights, spec)
    if backend != "triton" or _module(backend).wide_obstacle(weights, spec, tail) is not None:
        return None
    operator: Callable[..., tuple[Tensor, SSMState]] = _module(backend).wide_block
    return operator


def stack_operator(
    x: Tensor, layers: list[tuple[SSMWeights, TailWeights]], spec: SSMSpec, *, recompute: bool = False
) -> Callable[..., tuple[Tensor, list[SSMState]]] | None:
    """Several blocks of one configuration as one operator of the chosen backend, for calls that compute at once.

    None on a CPU for long sequences without gradients: single blocks then need less memory. With `recompute`, None if
    the operator would keep more than its inputs.
    """
    backend = _choose(x, layers[0][0], spec)
    long = not torch.is_grad_enabled() and x.numel() * len(layers) > _REMEMBERED
    if backend not in ("cpu", "triton") or (backend == "cpu" and long):
        return None
    module = _module(backend)
    operator: Callable[..., tuple[Tensor, list[SSMState]]] | None = None
    if all(module.block_obstacle(weights, spec, tail) is None for weights, tail in layers):
        operator = module.fused_stack
    elif backend == "triton" and not recompute:
        alike = all(module.wide_obstacle(weights, spec, tail) is None for weights, tail in layers)
        operator = module.wide_stack if alike else None
    return operator


def rows_operators(x: Tensor) -> ModuleType | None:
    """The backend's own passes over the rows of x, for calls that compute at once; None where torch's serve."""
    asked = _requests.stack[-1]
    wanted = asked == "triton" or (asked == "auto" and x.is_cuda)
    if not wanted or not runs_at_once(x) or torch.is_autocast_enabled(x.device.type):
        return None
    module: ModuleType | None = None if _obstacle("triton", x, None, None, False) else _module("triton").rows
    return module


def gated_tail(x: Tensor, y: Tensor, weights: TailWeights) -> Tensor:
    """x + GLU(GELU(y)), the part of a block after the layer, from the chosen backend."""
    return current_ops(y).gated_tail(x, y, weights)


def linear_scan(
    a: Tensor, b: Tensor, s0: Tensor | None = None, *, reverse: bool = False, cu_seqlens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """s_k = a_k s_{k−1} + b_k over (b, l, p), real or complex: all states and the last one.

    `s0` (b, p) comes before the first step. Differentiable in every input, through `s_last` too. With `reverse`,
    `s_last` is the state at index 0. Axes of `a` with one entry are repeated. With `cu_seqlens` (n + 1,), sequences
    packed end to end in a batch of one, `s0` and `s_last` are (n, p).
    """
    a = _repeated(a, b)
    check_scan(a, b, s0, cu_seqlens)
    backend = _choose(b, None, None, packed=cu_seqlens is not None)
    if backend == "reference":
        return tf.linear_scan(a, b, s0, reverse=reverse, cu_seqlens=cu_seqlens)
    from tides.kernels.folding import folded_scan

    return folded_scan(_module(backend).scan, a, b, s0, reverse=reverse, cu_seqlens=cu_seqlens)


def _repeated(a: Any, b: Any) -> Any:
    """`a` in the shape of `b` (b, l, p), where it fits."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or b.ndim != 3:
        found = " and ".join(str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__ for x in (a, b))
        raise ShapeError(f"a, b: found {found}, wanted two tensors (b, l, p)")
    fits = a.ndim == 3 and all(size in (1, wanted) for size, wanted in zip(a.shape, b.shape, strict=True))
    return a.expand_as(b) if fits else a


def selective_operator(u: Tensor) -> Callable[..., Tensor] | None:
    """The selective scan of Mamba as one operator of the chosen backend; None if it is composed from `linear_scan`.

    y = operator(u, δ, B, C, A) with u, δ (b, l, e), B, C (b, l, n) and A (e, n).
    """
    backend = _choose(u, None, None)
    if backend != "triton":
        return None
    operator: Callable[..., Tensor] = _module(backend).selective_scan
    return operator


def _choose(u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, *, packed: bool = False) -> str:
    choice = resolve(_requests.stack[-1], u, weights, spec, packed=packed)
    if not torch.compiler.is_compiling():
        _ran[-1] = choice.backend
        for backend, why in choice.passed_over.items():
            if backend not in _told:
                _told.add(backend)
                warnings.warn(f"tides: backend {backend!r} is not used: {why}", stacklevel=3)
    return choice.backend


def _ops(backend: str) -> SSMOps:
    ops: SSMOps = PLAIN if backend == "reference" else _module(backend).OPS
    return ops


def _obstacle(backend: str, u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, packed: bool) -> str | None:
    """Why `backend` cannot run this call, or None."""
    missing: str | None = _missing(backend)
    if missing is not None:
        return missing
    reason: str | None = _module(backend).obstacle(u, weights, spec, packed)
    return reason


def _missing(backend: str) -> str | None:
    """The library without which `backend` cannot be imported; called while tracing, where dynamo cannot follow a failed
    import.
    """
    try:
        _module(backend)
    except ImportError as error:
        return f"it needs a library that is not installed ({error})"
    return None


# All that `torch.compiler.assume_constant_result` does, without its import of the whole compiler: most of the time that
# importing a model would take.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _module(backend: str) -> ModuleType:
    """The backend's module; import statements, because torch.compile follows them and not `import_module`."""
    match backend:
        case "torch":
            from tides.kernels import chunked

            return chunked
        case "cpu":
            from tides.kernels import cpu

            return cpu
        case _:
            from tides.kernels import triton

            return triton
