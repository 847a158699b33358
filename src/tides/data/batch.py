"""Batches: padded at the end for ordinary models, packed end to end for variable-length kernels."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

T = TypeVar("T", bound="_TensorFields")


class _TensorFields:
    """Moves every tensor of a frozen dataclass at once."""

    def _each(self: T, move: Callable[[Tensor], Tensor]) -> T:
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return replace(self, **{k: move(v) for k, v in tensors.items() if isinstance(v, Tensor)})  # type: ignore[type-var]

    def to(self: T, device: torch.device | str, *, non_blocking: bool = False) -> T:
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self: T) -> T:
        return self._each(Tensor.pin_memory)


@dataclass(frozen=True, eq=False)
class IrregularBatch(_TensorFields):
    """Series side by side, padding at the end. Values are 0 where nothing was observed and in padding.

    Times stay float64; padded times repeat the last one, so their gaps are 0. `targets` are class indices (b,), numbers
    (b,) or (b, t), or forecast values (b, q, c) at `query_times`, scored where `target_observed`. `weights` say how
    much each series counts; None means equally.
    """

    values: Float[Tensor, "b l c"]
    times: Float[Tensor, "b l"]
    gaps: Float[Tensor, "b l"]
    observed: Bool[Tensor, "b l c"]
    valid: Bool[Tensor, "b l"]
    targets: Tensor | None = None
    target_observed: Bool[Tensor, "b q c"] | None = None
    query_times: Float[Tensor, "b q"] | None = None
    query_valid: Bool[Tensor, "b q"] | None = None
    static: Float[Tensor, "b s"] | None = None
    static_observed: Bool[Tensor, "b s"] | None = None
    weights: Float[Tensor, " b"] | None = None
    ids: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        return self.valid.sum(dim=1)

    def rows(self, index: Any) -> "IrregularBatch":
        """Some of the series, indexed like a tensor; padding is not trimmed."""
        return replace(self._each(lambda tensor: tensor[index]), ids=())

    def pack(self) -> "PackedBatch":
        """The valid steps of all series end to end."""
        bounds = torch.zeros(len(self) + 1, dtype=torch.int32, device=self.values.device)
        bounds[1:] = self.lengths.cumsum(0)
        return PackedBatch(
            values=self.values[self.valid],
            times=self.times[self.valid],
            gaps=self.gaps[self.valid],
            observed=self.observed[self.valid],
            cu_seqlens=bounds,
            targets=self.targets,
            target_observed=self.target_observed,
            query_times=self.query_times,
            query_valid=self.query_valid,
            static=self.static,
            static_observed=self.static_observed,
            weights=self.weights,
            ids=self.ids,
        )


@dataclass(frozen=True, eq=False)
class PackedBatch(_TensorFields):
    """The same batch without padding: series i owns rows `cu_seqlens[i]:cu_seqlens[i+1]`."""

    values: Float[Tensor, "n c"]
    times: Float[Tensor, " n"]
    gaps: Float[Tensor, " n"]
    observed: Bool[Tensor, "n c"]
    cu_seqlens: Int[Tensor, " b+1"]
    targets: Tensor | None = None
    target_observed: Bool[Tensor, "b q c"] | None = None
    query_times: Float[Tensor, "b q"] | None = None
    query_valid: Bool[Tensor, "b q"] | None = None
    static: Float[Tensor, "b s"] | None = None
    static_observed: Bool[Tensor, "b s"] | None = None
    weights: Float[Tensor, " b"] | None = None
    ids: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    def unpack(self) -> IrregularBatch:
        """Back to series side by side; `batch.pack().unpack()` is `batch`."""
        lengths = self.cu_seqlens.diff().long()
        b, steps, c = len(self), int(lengths.max()), self.values.shape[1]
        valid = torch.arange(steps, device=lengths.device) < lengths[:, None]  # (b, l)
        values, observed = self.values.new_zeros(b, steps, c), self.observed.new_zeros(b, steps, c)
        gaps = self.gaps.new_zeros(b, steps)
        last = self.times[self.cu_seqlens[1:].long() - 1]
        times = last[:, None].repeat(1, steps)
        values[valid], observed[valid] = self.values, self.observed
        gaps[valid], times[valid] = self.gaps, self.times
        return IrregularBatch(
            values=values,
            times=times,
            gaps=gaps,
            observed=observed,
            valid=valid,
            targets=self.targets,
            target_observed=self.target_observed,
            query_times=self.query_times,
            query_valid=self.query_valid,
            static=self.static,
            static_observed=self.static_observed,
            weights=self.weights,
            ids=self.ids,
        )
