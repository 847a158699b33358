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
_BLOCK_ELEMENTS = 1 << 18


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


class _Scratch:
    """One thread's memory for one problem: views for blocks of n steps, made once, and the sums over all blocks.

    `kernel` is (i·a, o), codes have size i; `forms` (c, h) if the columns are normalised.
    """

    def __init__(self, kernel: Tensor, size: int, forms: Tensor | None, rows: int) -> None:
        self.size, self.inner, self.outer = size, kernel.shape[0] // size, kernel.shape[1]
        self.kernel, self.transposed, self.forms = kernel, kernel.t(), forms
        self.products = kernel.new_empty(rows * size * max(self.inner, self.outer))
        self.d_kernel = torch.zeros_like(kernel)
        # (a, i·o): the product with x comes first, the sum over i behind it.
        self.by_input = kernel.view(size, self.inner, self.outer).transpose(0, 1).reshape(self.inner, -1)
        if forms is not None:
            monomials, width = forms.shape
            self.slopes = forms.to(kernel.dtype)
            # Monomials have the steps innermost, where loops over them are long.
            self.double, self.square = forms.new_empty(monomials, rows), forms.new_empty(rows, width)
            self.single, self.weighted = kernel.new_empty(monomials, rows), kernel.new_empty(monomials * rows)
            self.inverse, self.scaled = (kernel.new_empty(rows, width) for _ in range(2))
            self.lines, self.d_lines = (kernel.new_empty(size, rows).numpy() for _ in range(2))
            self.d_forms = torch.zeros_like(self.slopes)

    def resize(self, n: int) -> None:
        """Views for blocks of n steps, for torch's products and for compiled loops."""
        self.outer_products = self.products[: n * self.size * self.inner].view(n, -1)
        self.d_outer = self.outer_products.view(n, self.size, -1).numpy()
        self.partial = self.products[: n * self.size * self.outer].view(n, -1)
        self.partials = self.partial.view(n, self.size, -1).numpy()
        if self.forms is not None:
            self.monomials_64, self.monomials = self.double[:, :n].t(), self.single[:, :n]
            self.squares, self.scaled_n, self.inverse_n = self.square[:n], self.scaled[:n], self.inverse[:n]
            self.weighted_n = self.weighted[: self.slopes.shape[0] * n].view(-1, n)
            self.loop_arrays = tuple(x.numpy() for x in (self.double, self.single))
            self.norm_arrays = tuple(x.numpy() for x in (self.square, self.inverse, self.scaled))
            self.inverses, self.weights = self.inverse.numpy(), self.weighted_n.numpy()

    def normalise(self, code: Any, x: Any, start: int, stop: int, eps: float) -> None:
        """`scaled` ← x · inverse for a block, `inverse` ← the inverse rms of every column."""
        loops.monomials(code, start, stop, self.lines, *self.loop_arrays)
        torch.mm(self.monomials_64, self.forms, out=self.squares)  # type: ignore[arg-type]
        square, inverse, scaled = self.norm_arrays
        loops.normalised(x, start, stop, square, eps, inverse, scaled)

    def normalise_backward(self, d_code: Any, start: int, stop: int) -> None:
        """Adds the norms' share to d_code; `inverse` holds the gradient of the mean squares by now."""
        self.d_forms.addmm_(self.monomials, self.inverse_n)
        torch.mm(self.slopes, self.inverse_n.t(), out=self.weighted_n)
        loops.monomials_backward(start, stop, self.lines, self.weights, self.d_lines, d_code)

    def forward(self, code: Any, x: Tensor, start: int, stop: int, out: Any) -> None:
        """out = K(code, x) for a block, x being the block's own."""
        torch.mm(x, self.by_input, out=self.partial)
        loops.contracted(code, start, stop, self.partials, out)

    def backward(
        self, gradient: Tensor, code: Any, x: Any, offset: int, start: int, stop: int, d_code: Any, d_x: Any
    ) -> None:
        """Gradients of a block's code and x (which begins at row `offset`); that of the kernel is collected."""
        torch.mm(gradient, self.transposed, out=self.outer_products)
        loops.outer_backward(code, start, stop, x, offset, self.d_outer, d_code, d_x)
        self.d_kernel.addmm_(self.outer_products.t(), gradient)


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


def _run(kernel: Tensor, code: Tensor, columns: _Columns | None, work: Any) -> list[list[_Scratch]]:
    """`work(scratch, m, start, stop)` for every block of every problem m; the scratches hold the sums, per problem."""
    problems, n, size = code.shape
    rows = max(64, _BLOCK_ELEMENTS // max(kernel.shape[1], size * kernel.shape[2]))
    teams = []
    for m in range(problems):
        forms = None if columns is None else columns.forms[m]
        parts = [(_Scratch(kernel[m], size, forms, rows), span) for span in spans(n, torch.get_num_threads())]

        def run(part: tuple[_Scratch, tuple[int, int]], m: int = m) -> None:
            scratch, (first, last) = part
            # Threads of their own start with gradients on, and products into given memory refuse to record them.
            with torch.no_grad():
                for start in range(first, last, rows):
                    stop = min(start + rows, last)
                    if start == first or stop - start < rows:
                        scratch.resize(stop - start)
                    work(scratch, m, start, stop)

        run_jobs(run, parts)
        teams.append([scratch for scratch, _ in parts])
    return teams


def _sums(teams: list[list[_Scratch]], columns: _Columns | None) -> tuple[Tensor, Tensor | None]:
    """The kernels' gradients (m, i·a, o), and what the norms add to that of the factors."""
    d_kernel = torch.stack([torch.stack([scratch.d_kernel for scratch in team]).sum(0) for team in teams])
    if columns is None:
        return d_kernel, None
    d_forms = torch.stack([torch.stack([scratch.d_forms for scratch in team]).sum(0) for team in teams])
    return d_kernel, columns.d_factors(d_forms)


@torch.library.custom_op("tides::mix_in_cpu", mutates_args=(), device_types="cpu")
def mix_in_op(u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """u (m, n, h), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → drive (m, n, 2p), re and im interleaved."""
    u, code, kernel = u.detach().contiguous(), code.detach().contiguous(), drive_kernel(factors, norm)
    columns = None if norm is None else _Columns(factors)
    out = u.new_empty(*u.shape[:2], kernel.shape[-1])
    us, codes, outs = (x.numpy() for x in (u, code, out))

    def work(scratch: _Scratch, m: int, start: int, stop: int) -> None:
        if columns is not None:
            scratch.normalise(codes[m], us[m], start, stop, eps)
        x = u[m, start:stop] if columns is None else scratch.scaled_n
        scratch.forward(codes[m], x, start, stop, outs[m])

    _run(kernel, code, columns, work)
    return out


@torch.library.custom_op("tides::mix_in_cpu_backward", mutates_args=(), device_types="cpu")
def mix_in_backward(
    gradient: Tensor, u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, code, factors and norm."""
    gradient, u, code = (x.detach().contiguous() for x in (gradient, u, code))
    kernel, columns = drive_kernel(factors, norm), None if norm is None else _Columns(factors)
    du, d_code = torch.empty_like(u), torch.empty_like(code)
    us, codes, dus, d_codes = (x.numpy() for x in (u, code, du, d_code))

    def work(scratch: _Scratch, m: int, start: int, stop: int) -> None:
        g, z, dz, dx = gradient[m, start:stop], codes[m], d_codes[m], dus[m]
        if columns is None:
            scratch.backward(g, z, us[m], start, start, stop, dz, dx)
            return
        scratch.normalise(z, us[m], start, stop, eps)
        scratch.backward(g, z, scratch.norm_arrays[2], 0, start, stop, dz, dx)
        loops.d_square_in(us[m], start, stop, scratch.inverses, dx)
        scratch.normalise_backward(dz, start, stop)

    d_kernel, d_norms = _sums(_run(kernel, code, columns, work), columns)
    m, p, h, _, i = factors.shape
    return (du, d_code, *unweighted(d_kernel.view(m, i, h, p, 2).permute(0, 3, 2, 4, 1), factors, norm, d_norms))


@torch.library.custom_op("tides::mix_out_cpu", mutates_args=(), device_types="cpu")
def mix_out_op(s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """s (m, n, p, 2), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → Re(C s) (m, n, h)."""
    x, code, kernel = s.detach().contiguous().flatten(-2), code.detach().contiguous(), readout_kernel(factors, norm)
    columns = None if norm is None else _Columns(factors)
    out = s.new_empty(*s.shape[:2], kernel.shape[-1])
    codes, outs = code.numpy(), out.numpy()

    def work(scratch: _Scratch, m: int, start: int, stop: int) -> None:
        scratch.forward(codes[m], x[m, start:stop], start, stop, outs[m])
        if columns is not None:
            scratch.normalise(codes[m], outs[m], start, stop, eps)
            out[m, start:stop] = scratch.scaled_n

    _run(kernel, code, columns, work)
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
    gradients, ys, codes, xs, dxs, d_codes = (x.numpy() for x in (gradient, y, code, x, dx, d_code))

    def work(scratch: _Scratch, m: int, start: int, stop: int) -> None:
        z, dz = codes[m], d_codes[m]
        if columns is None:
            scratch.backward(gradient[m, start:stop], z, xs[m], start, start, stop, dz, dxs[m])
            return
        scratch.normalise(z, gradients[m], start, stop, eps)
        scratch.backward(scratch.scaled_n, z, xs[m], start, start, stop, dz, dxs[m])
        loops.d_square_out(gradients[m], ys[m], start, stop, scratch.inverses)
        scratch.normalise_backward(dz, start, stop)

    d_kernel, d_norms = _sums(_run(kernel, code, columns, work), columns)
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
