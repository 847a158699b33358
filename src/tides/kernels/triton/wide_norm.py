"""The batch norm of a wide block: the kernels of the fused one, between them one pass over the rows."""

from tides.kernels.triton.block_config import padded
from tides.kernels.triton.block_pass import NORM_PROGRAMS, NORM_ROWS, shares
from tides.kernels.triton.buffers import Buffer
from tides.kernels.triton.norm_kernels import affine_kernel, moments_kernel, norm_backward_kernel
from tides.kernels.triton.wide_entry_kernels import normalise_backward_kernel, normalise_kernel
from tides.kernels.triton.wide_pass import Shares, WidePass, row_tile


def normalise(run: WidePass, running: tuple[Buffer, Buffer], eps: float, momentum: float) -> None:
    """u = x ⊙ scale + shift of the rows x (n, h), zero over padding; running statistics follow those of the batch."""
    plan, n, width = run.plan, run.rows, run.layout.width
    flags = {"H": width, "HB": padded(width)}
    batch = run.shape.norm == "batch"
    programs, partial = 0, run.x
    if batch:
        tiles, programs = shares(n, NORM_ROWS, NORM_PROGRAMS)
        partial = plan.space(programs, 3, width)
        plan.launch(
            moments_kernel, (programs,), run.x, run.valid, partial, n, tiles, **flags, BM=NORM_ROWS, **run.has_valid
        )
    affine, moments = run.parts["affine"], run.parts["moments"]
    plan.launch(
        affine_kernel, (1,), partial, *running, affine, moments, programs, eps, momentum, **flags, BM=64, BATCH=batch
    )
    if batch:
        plan.release(partial)
    grid, tile = row_tile(n, width)
    plan.launch(normalise_kernel, grid, run.x, affine, run.valid, run.parts["u"], n, **tile, **run.has_valid)


def normalise_backward(run: WidePass, shares: Shares, gradient: Buffer, du: Buffer, dx: Buffer) -> None:
    """dx: the residual's gradient and that of u, but for what goes through the statistics."""
    affine = run.parts["affine"]
    grid, tile = shares.tile(run.layout.width)
    run.plan.launch(
        normalise_backward_kernel, grid, gradient, run.x, affine, run.valid, du, dx, shares.of("affine"), run.rows,
        shares.width, **tile, **run.has_valid,
    )  # fmt: skip


def statistics_backward(run: WidePass, d_affine: Buffer, dx: Buffer) -> None:
    """What reaches x through the statistics of its batch."""
    grid, tile = row_tile(run.rows, run.layout.width)
    flags = {"H": run.layout.width, "HB": padded(run.layout.width), "BM": tile["BM"]}
    affine, moments = run.parts["affine"], run.parts["moments"]
    tensors = (run.x, run.valid, affine, moments, d_affine, dx)
    run.plan.launch(norm_backward_kernel, grid, *tensors, run.rows, **flags, **run.has_valid)
