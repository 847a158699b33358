"""v_k = B_k u_k and y_k = Re(C_k s_k) with low-rank or full heads, blocks of steps that stay in cache.

out_o = Σ_i z̃_i Σ_a x_a K[i, a, o]: one matrix product of x with K (a × i·o), then a short sum over i. The backward
pass needs one product for the gradients of x and z̃ and one for K's, and goes over each block's outer product once.
"""

from typing import Any

import torch
from torch import Tensor

from tides import functional as tf
from tides.functional.mixes import LowRankMix, Mix
from tides.kernels.batching import merge_leading_axis
from tides.kernels.column_norm import ColumnRoots
from tides.kernels.cpu import mix_loops
from tides.kernels.cpu.threads import run_jobs, spans
from tides.kernels.mixing import drive_kernel, mix_arguments, readout_kernel, unweighted

# Elements of a block's outer products: with what surrounds them they fit the second-level cache of a core.
_BLOCK_ELEMENTS = 1 << 17


def mix_in(u: Tensor, mix: Mix, eps: float) -> Tensor:
    """`functional.mix_in`; heads without a code are plain matrix products already."""
    if not isinstance(mix, LowRankMix):
        return tf.mix_in(u, mix, eps)
    drive: Tensor = mix_in_op(*mix_arguments(u, u, mix), eps)
    return torch.view_as_complex(drive.view(*u.shape[:-1], -1, 2))


def mix_out(s: Tensor, u: Tensor, mix: Mix, eps: float) -> Tensor:
    """`functional.mix_out`."""
    if not isinstance(mix, LowRankMix):
        return tf.mix_out(s, u, mix, eps)
    y: Tensor = mix_out_op(*mix_arguments(torch.view_as_real(s.resolve_conj()), u, mix), eps)
    return y.view(u.shape)


class _Worker:
    """One thread's scratch for one problem: `kernel` (i·a, o), codes of size i, and the column norms' roots if any."""

    def __init__(self, kernel: Tensor, size: int, roots: ColumnRoots | None, problem: int, eps: float) -> None:
        self.size, self.inner, self.outer = size, kernel.shape[0] // size, kernel.shape[1]
        self.kernel, self.eps = kernel, eps
        self.rows = max(64, _BLOCK_ELEMENTS // (size * max(self.inner, self.outer)))
        self.products = kernel.new_empty(self.rows, size * max(self.inner, self.outer))
        self.d_kernel = torch.zeros_like(kernel)
        self.root = None if roots is None else roots.root[problem]
        if roots is not None:
            self.rank, self.columns = roots.rank, roots.shape[2]
            self.pressed = kernel.new_empty(self.rows, self.rank * self.columns)
            self.inverse = kernel.new_empty(self.rows, self.columns)
            self.scaled = kernel.new_empty(self.rows, self.columns)
            self.norm_products = torch.zeros(size, self.rank * self.columns, dtype=torch.float64)
        # (a, i·o): the product with x comes first, the sum over i behind it.
        self.by_input = kernel.view(size, self.inner, self.outer).transpose(0, 1).reshape(self.inner, -1)

    def blocks(self, span: tuple[int, int]) -> list[tuple[int, int]]:
        return [(start, min(start + self.rows, span[1])) for start in range(span[0], span[1], self.rows)]

    def norms(self, code: Tensor) -> Tensor:
        """The inverse rms of every column (n, h); R_h z̃ is left in `pressed`."""
        assert self.root is not None
        n = code.shape[0]
        pressed, inverse = self.pressed[:n], self.inverse[:n]
        torch.mm(code, self.root, out=pressed)
        eps = inverse.numpy().dtype.type(self.eps)
        mix_loops.inverse_rms(pressed.view(n, self.rank, -1).numpy(), eps, inverse.numpy())
        return inverse

    def norms_backward(self, code: Tensor, d_code: Tensor) -> None:
        """Adds what the norms contribute to d_code; `pressed` holds w = ds R_h z̃."""
        assert self.root is not None
        pressed = self.pressed[: code.shape[0]]
        d_code.addmm_(pressed, self.root.t(), alpha=2)
        self.norm_products += torch.mm(code.t(), pressed)

    def forward(self, code: Tensor, x: Tensor, out: Tensor) -> None:
        n = code.shape[0]
        products = self.products.view(-1)[: n * self.size * self.outer].view(n, self.size * self.outer)
        torch.mm(x, self.by_input, out=products)
        mix_loops.contracted(code.numpy(), products.view(n, self.size, -1).numpy(), out.numpy())

    def backward(self, gradient: Tensor, code: Tensor, x: Tensor, d_code: Tensor, d_x: Tensor) -> None:
        n = code.shape[0]
        outer = self.products.view(-1)[: n * self.size * self.inner].view(n, self.size * self.inner)
        torch.mm(gradient, self.kernel.t(), out=outer)
        mix_loops.outer_backward(
            code.numpy(), x.numpy(), outer.view(n, self.size, -1).numpy(), d_code.numpy(), d_x.numpy()
        )
        self.d_kernel.addmm_(outer.t(), gradient)


def _run(kernel: Tensor, code: Tensor, roots: ColumnRoots | None, eps: float, work: Any) -> list[list[_Worker]]:
    """`work(worker, problem, start, stop)` for every block of every problem; the workers hold the sums, per problem."""
    problems, n, size = code.shape
    workers = []
    for problem in range(problems):
        parts = [
            (_Worker(kernel[problem], size, roots, problem, eps), span) for span in spans(n, torch.get_num_threads())
        ]

        def run(part: tuple[_Worker, tuple[int, int]], problem: int = problem) -> None:
            worker, span = part
            # Threads of their own start with gradients on, and products into given memory refuse to record them.
            with torch.no_grad():
                for start, stop in worker.blocks(span):
                    work(worker, problem, start, stop)

        run_jobs(run, parts)
        workers.append([worker for worker, _ in parts])
    return workers


def _sums(workers: list[list[_Worker]], roots: ColumnRoots | None) -> tuple[Tensor, Tensor | None]:
    """The kernels' gradients (m, i·a, o), and what the norms add to that of the factors."""
    d_kernel = torch.stack([sum(worker.d_kernel for worker in team) for team in workers])  # type: ignore[misc]
    if roots is None:
        return d_kernel, None
    products = torch.stack([sum(worker.norm_products for worker in team) for team in workers])  # type: ignore[misc]
    return d_kernel, roots.d_factors(products)


@torch.library.custom_op("tides::mix_in_cpu", mutates_args=(), device_types="cpu")
def mix_in_op(u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """u (m, n, h), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → drive (m, n, 2p), re and im interleaved."""
    u, code, kernel = u.contiguous(), code.contiguous(), drive_kernel(factors, norm)
    roots = None if norm is None else ColumnRoots(factors)
    out = u.new_empty(*u.shape[:2], kernel.shape[-1])

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        x, z = u[m, start:stop], code[m, start:stop]
        if roots is not None:
            x = torch.mul(x, worker.norms(z), out=worker.scaled[: stop - start])
        worker.forward(z, x, out[m, start:stop])

    _run(kernel, code, roots, eps, work)
    return out


@torch.library.custom_op("tides::mix_in_cpu_backward", mutates_args=(), device_types="cpu")
def mix_in_backward(
    gradient: Tensor, u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, code, factors and norm."""
    gradient, u, code, kernel = gradient.contiguous(), u.contiguous(), code.contiguous(), drive_kernel(factors, norm)
    roots = None if norm is None else ColumnRoots(factors)
    du, d_code = torch.empty_like(u), torch.empty_like(code)

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        n = stop - start
        x, z, dx, dz = (tensor[m, start:stop] for tensor in (u, code, du, d_code))
        if roots is None:
            worker.backward(gradient[m, start:stop], z, x, dz, dx)
            return
        inverse = worker.norms(z)
        worker.backward(gradient[m, start:stop], z, torch.mul(x, inverse, out=worker.scaled[:n]), dz, dx)
        pressed = worker.pressed[:n].view(n, worker.rank, -1)
        mix_loops.d_square_in(x.numpy(), inverse.numpy(), dx.numpy(), pressed.numpy())
        worker.norms_backward(z, dz)

    d_kernel, d_norms = _sums(_run(kernel, code, roots, eps, work), roots)
    m, p, h, _, i = factors.shape
    return (du, d_code, *unweighted(d_kernel.view(m, i, h, p, 2).permute(0, 3, 2, 4, 1), factors, norm, d_norms))


@torch.library.custom_op("tides::mix_out_cpu", mutates_args=(), device_types="cpu")
def mix_out_op(s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """s (m, n, p, 2), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → Re(C s) (m, n, h)."""
    x, code, kernel = s.contiguous().flatten(-2), code.contiguous(), readout_kernel(factors, norm)
    roots = None if norm is None else ColumnRoots(factors)
    out = s.new_empty(*s.shape[:2], kernel.shape[-1])

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        y, z = out[m, start:stop], code[m, start:stop]
        worker.forward(z, x[m, start:stop], y)
        if roots is not None:
            y *= worker.norms(z)

    _run(kernel, code, roots, eps, work)
    return out


@torch.library.custom_op("tides::mix_out_cpu_backward", mutates_args=(), device_types="cpu")
def mix_out_backward(
    gradient: Tensor, y: Tensor, s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, code, factors and norm; y is the output."""
    gradient, code, kernel = gradient.contiguous(), code.contiguous(), readout_kernel(factors, norm)
    roots = None if norm is None else ColumnRoots(factors)
    x = s.contiguous().flatten(-2)
    dx, d_code = torch.empty_like(x), torch.empty_like(code)

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        n = stop - start
        g, z, dz = (tensor[m, start:stop] for tensor in (gradient, code, d_code))
        if roots is None:
            worker.backward(g, z, x[m, start:stop], dz, dx[m, start:stop])
            return
        inverse = worker.norms(z)
        worker.backward(torch.mul(g, inverse, out=worker.scaled[:n]), z, x[m, start:stop], dz, dx[m, start:stop])
        pressed = worker.pressed[:n].view(n, worker.rank, -1)
        mix_loops.d_square_out(g.numpy(), y[m, start:stop].numpy(), inverse.numpy(), pressed.numpy())
        worker.norms_backward(z, dz)

    d_kernel, d_norms = _sums(_run(kernel, code, roots, eps, work), roots)
    m, p, h, _, i = factors.shape
    signed = d_kernel.view(m, i, p, 2, h)
    signed[:, :, :, 1].neg_()
    return (dx.view(s.shape), d_code, *unweighted(signed.permute(0, 2, 4, 3, 1), factors, norm, d_norms))


@mix_in_op.register_fake
def _(u, code, factors, norm, eps):  # type: ignore[no-untyped-def]
    return u.new_empty(u.shape[0], u.shape[1], factors.shape[1] * 2)


@mix_out_op.register_fake
def _(s, code, factors, norm, eps):  # type: ignore[no-untyped-def]
    return s.new_empty(s.shape[0], s.shape[1], factors.shape[2])


def _fake_backward(*arguments):  # type: ignore[no-untyped-def]
    x, code, factors, norm, _ = arguments[-5:]
    d_norm = factors.new_empty(factors.shape[0], 0) if norm is None else torch.empty_like(norm)
    contiguous = torch.contiguous_format
    return (*(torch.empty_like(leaf, memory_format=contiguous) for leaf in (x, code, factors)), d_norm)


mix_in_backward.register_fake(_fake_backward)
mix_out_backward.register_fake(_fake_backward)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


def _keep_output_too(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(output, *tensors)


def _with(backward: Any) -> Any:
    def run(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Read once: recomputed blocks hand their tensors out a single time.
        saved = ctx.saved_tensors
        dx, d_code, d_factors, d_norm = backward(gradient, *saved, ctx.eps)
        return dx, d_code, d_factors, None if saved[-1] is None else d_norm, None

    return run


mix_in_op.register_autograd(_with(mix_in_backward), setup_context=_keep_inputs)
mix_out_op.register_autograd(_with(mix_out_backward), setup_context=_keep_output_too)
for _op in (mix_in_op, mix_in_backward, mix_out_op, mix_out_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
