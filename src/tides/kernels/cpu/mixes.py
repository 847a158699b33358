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
from tides.kernels.column_norm import column_forms, d_column_forms
from tides.kernels.cpu import mix_loops as loops
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
    """One thread's scratch for one problem: `kernel` (i·a, o), codes of size i, the columns' forms if normalised."""

    def __init__(self, kernel: Tensor, size: int, forms: Tensor | None, eps: float) -> None:
        self.size, self.inner, self.outer = size, kernel.shape[0] // size, kernel.shape[1]
        self.kernel, self.eps = kernel, eps
        self.rows = max(64, _BLOCK_ELEMENTS // (size * max(self.inner, self.outer)))
        self.products = kernel.new_empty(self.rows * size * max(self.inner, self.outer))
        self.d_kernel = torch.zeros_like(kernel)
        # (a, i·o): the product with x comes first, the sum over i behind it.
        self.by_input = kernel.view(size, self.inner, self.outer).transpose(0, 1).reshape(self.inner, -1)
        self.forms = forms
        if self.forms is not None:
            monomials, width = self.forms.shape
            self.slopes = self.forms.to(kernel.dtype)
            # Monomials have the steps innermost, where loops over them are long.
            self.double, self.square = (
                self.forms.new_empty(monomials, self.rows),
                self.forms.new_empty(self.rows, width),
            )
            self.single = kernel.new_empty(monomials, self.rows)
            self.lines, self.d_lines = (kernel.new_empty(size, self.rows) for _ in range(2))
            self.inverse, self.scaled = (kernel.new_empty(self.rows, width) for _ in range(2))
            self.d_forms = torch.zeros_like(self.forms)

    def blocks(self, span: tuple[int, int]) -> list[tuple[int, int]]:
        return [(start, min(start + self.rows, span[1])) for start in range(span[0], span[1], self.rows)]

    def normalise(self, code: Tensor, x: Tensor, start: int, stop: int) -> Tensor:
        """x · inverse for a block; `inverse` keeps the inverse rms of every column, `single` the monomials."""
        n = stop - start
        loops.monomials(code.numpy(), start, stop, self.lines.numpy(), self.double.numpy(), self.single.numpy())
        torch.mm(self.double[:, :n].t(), self.forms, out=self.square[:n])  # type: ignore[arg-type]
        loops.normalised(
            x.numpy(), start, stop, self.square.numpy(), self.eps, self.inverse.numpy(), self.scaled.numpy()
        )
        return self.scaled

    def normalise_backward(self, d_code: Tensor, start: int, stop: int) -> None:
        """Adds the norms' share to d_code; `inverse` holds the gradient of the mean squares by now."""
        n = stop - start
        self.d_forms += torch.mm(self.single[:, :n], self.inverse[:n])
        weighted = torch.mm(self.slopes, self.inverse[:n].t())
        loops.monomials_backward(
            start, stop, self.lines.numpy(), weighted.numpy(), self.d_lines.numpy(), d_code.numpy()
        )

    def forward(self, code: Tensor, x: Tensor, offset: int, start: int, stop: int, out: Tensor) -> None:
        """out = K(code, x) for a block; x begins at row `offset`."""
        n = stop - start
        products = self.products[: n * self.size * self.outer]
        torch.mm(x[offset : offset + n], self.by_input, out=products.view(n, -1))
        loops.contracted(code.numpy(), start, stop, products.view(n, self.size, -1).numpy(), out.numpy())

    def backward(
        self, gradient: Tensor, code: Tensor, x: Tensor, offset: int, start: int, stop: int, d_code: Tensor, d_x: Tensor
    ) -> None:
        """Gradients of a block's code and x (which begins at row `offset`); that of the kernel is collected."""
        n = stop - start
        flat = self.products[: n * self.size * self.inner]
        outer = flat.view(n, -1)
        torch.mm(gradient, self.kernel.t(), out=outer)
        arrays = (flat.view(n, self.size, -1).numpy(), d_code.numpy(), d_x.numpy())
        loops.outer_backward(code.numpy(), start, stop, x.numpy(), offset, *arrays)
        self.d_kernel.addmm_(outer.t(), gradient)


class _Columns:
    """The column norms' forms over the monomials z̃_i z̃_j with i ≤ j, which occur once: (m, c, h)."""

    def __init__(self, factors: Tensor) -> None:
        size = factors.shape[-1]
        self.factors, self.first, self.second = factors, *torch.triu_indices(size, size)
        once = torch.where(self.first == self.second, 1.0, 2.0).unsqueeze(-1)
        self.forms = column_forms(factors)[:, self.first, self.second] * once

    def d_factors(self, d_forms: Tensor) -> Tensor:
        m, _, h, _, i = self.factors.shape
        products = d_forms.new_empty(m, i, i, h)
        products[:, self.first, self.second] = products[:, self.second, self.first] = d_forms
        return d_column_forms(products, self.factors)


def _run(kernel: Tensor, code: Tensor, columns: _Columns | None, eps: float, work: Any) -> list[list[_Worker]]:
    """`work(worker, problem, start, stop)` for every block of every problem; the workers hold the sums, per problem."""
    problems, n, size = code.shape
    teams = []
    for problem in range(problems):
        parts = [
            (_Worker(kernel[problem], size, None if columns is None else columns.forms[problem], eps), span)
            for span in spans(n, torch.get_num_threads())
        ]

        def run(part: tuple[_Worker, tuple[int, int]], problem: int = problem) -> None:
            worker, span = part
            # Threads of their own start with gradients on, and products into given memory refuse to record them.
            with torch.no_grad():
                for start, stop in worker.blocks(span):
                    work(worker, problem, start, stop)

        run_jobs(run, parts)
        teams.append([worker for worker, _ in parts])
    return teams


def _sums(teams: list[list[_Worker]], columns: _Columns | None) -> tuple[Tensor, Tensor | None]:
    """The kernels' gradients (m, i·a, o), and what the norms add to that of the factors."""
    d_kernel = torch.stack([torch.stack([worker.d_kernel for worker in team]).sum(0) for team in teams])
    if columns is None:
        return d_kernel, None
    products = torch.stack([torch.stack([worker.d_forms for worker in team]).sum(0) for team in teams])
    return d_kernel, columns.d_factors(products)


@torch.library.custom_op("tides::mix_in_cpu", mutates_args=(), device_types="cpu")
def mix_in_op(u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """u (m, n, h), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → drive (m, n, 2p), re and im interleaved."""
    u, code, kernel = u.detach().contiguous(), code.detach().contiguous(), drive_kernel(factors, norm)
    columns = None if norm is None else _Columns(factors)
    out = u.new_empty(*u.shape[:2], kernel.shape[-1])

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        if columns is None:
            worker.forward(code[m], u[m], start, start, stop, out[m])
        else:
            worker.forward(code[m], worker.normalise(code[m], u[m], start, stop), 0, start, stop, out[m])

    _run(kernel, code, columns, eps, work)
    return out


@torch.library.custom_op("tides::mix_in_cpu_backward", mutates_args=(), device_types="cpu")
def mix_in_backward(
    gradient: Tensor, u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, code, factors and norm."""
    gradient, u, code = (x.detach().contiguous() for x in (gradient, u, code))
    kernel, columns = drive_kernel(factors, norm), None if norm is None else _Columns(factors)
    du, d_code = torch.empty_like(u), torch.empty_like(code)

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        g = gradient[m, start:stop]
        if columns is None:
            worker.backward(g, code[m], u[m], start, start, stop, d_code[m], du[m])
            return
        worker.backward(g, code[m], worker.normalise(code[m], u[m], start, stop), 0, start, stop, d_code[m], du[m])
        loops.d_square_in(u[m].numpy(), start, stop, worker.inverse.numpy(), du[m].numpy())
        worker.normalise_backward(d_code[m], start, stop)

    d_kernel, d_norms = _sums(_run(kernel, code, columns, eps, work), columns)
    m, p, h, _, i = factors.shape
    return (du, d_code, *unweighted(d_kernel.view(m, i, h, p, 2).permute(0, 3, 2, 4, 1), factors, norm, d_norms))


@torch.library.custom_op("tides::mix_out_cpu", mutates_args=(), device_types="cpu")
def mix_out_op(s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """s (m, n, p, 2), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → Re(C s) (m, n, h)."""
    x, code, kernel = s.detach().contiguous().flatten(-2), code.detach().contiguous(), readout_kernel(factors, norm)
    columns = None if norm is None else _Columns(factors)
    out = s.new_empty(*s.shape[:2], kernel.shape[-1])

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        worker.forward(code[m], x[m], start, start, stop, out[m])
        if columns is not None:
            worker.normalise(code[m], out[m], start, stop)
            out[m, start:stop] = worker.scaled[: stop - start]

    _run(kernel, code, columns, eps, work)
    return out


@torch.library.custom_op("tides::mix_out_cpu_backward", mutates_args=(), device_types="cpu")
def mix_out_backward(
    gradient: Tensor, y: Tensor, s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, code, factors and norm; y is the output."""
    gradient, y, code = (x.detach().contiguous() for x in (gradient, y, code))
    kernel, columns = readout_kernel(factors, norm), None if norm is None else _Columns(factors)
    x = s.detach().contiguous().flatten(-2)
    dx, d_code = torch.empty_like(x), torch.empty_like(code)

    def work(worker: _Worker, m: int, start: int, stop: int) -> None:
        g = gradient[m, start:stop]
        if columns is None:
            worker.backward(g, code[m], x[m], start, start, stop, d_code[m], dx[m])
            return
        g = worker.normalise(code[m], gradient[m], start, stop)[: stop - start]
        worker.backward(g, code[m], x[m], start, start, stop, d_code[m], dx[m])
        loops.d_square_out(gradient[m].numpy(), y[m].numpy(), start, stop, worker.inverse.numpy())
        worker.normalise_backward(d_code[m], start, stop)

    d_kernel, d_norms = _sums(_run(kernel, code, columns, eps, work), columns)
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
