"""Data that stays on the device: padded once, so that a batch is a gather there and nothing passes through the host."""

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor
from torch.nn import functional as F

from tides.data.batch import IrregularBatch
from tides.data.collation import collate
from tides.data.dataset import IrregularDataset
from tides.errors import DataError

Part = IrregularDataset | IrregularBatch


class Resident:
    """One part of the data of every member of a population: tensors (m, n, …) padded to a common shape.

    If a member has fewer series, its missing rows have no valid step and no query.
    """

    def __init__(self, parts: Sequence[Part], dtype: torch.dtype, device: torch.device) -> None:
        batches = [part if isinstance(part, IrregularBatch) else collate(part, dtype=dtype) for part in parts]
        self.members = len(batches)
        self.counts = [len(batch) for batch in batches]
        """How many series each member has."""
        if min(self.counts) == 0:
            raise DataError(f"member {self.counts.index(0)}: its data is empty")
        self.rows = max(self.counts)
        self._tensors = {
            name: _stacked(name, [getattr(batch, name) for batch in batches], dtype).to(device)
            for name in _present(batches)
        }
        if min(self.counts) != self.rows and "target_observed" not in self._tensors:
            raise DataError(f"members: found {self.counts} series, wanted equally many where every series is scored")
        self._offsets = self.rows * torch.arange(self.members, device=device).unsqueeze(1)  # (m, 1)

    def keep(self, members: Sequence[int]) -> None:
        """Keep the data of these members only."""
        self.counts = [self.counts[member] for member in members]
        self.members = len(members)
        chosen = torch.tensor(members, device=self._offsets.device)
        self._tensors = {name: tensor.index_select(0, chosen) for name, tensor in self._tensors.items()}
        self._offsets = self._offsets[: self.members]

    def gather(self, index: Tensor) -> dict[str, Tensor]:
        """The series `index` (m, b) of every member, as the fields of a batch with the model axis first."""
        flat = (index + self._offsets).flatten()
        return {name: _pick(tensor, flat, index.shape[1]) for name, tensor in self._tensors.items()}

    @property
    def shapes(self) -> dict[str, list[int]]:
        return {name: list(tensor.shape) for name, tensor in self._tensors.items()}


def _pick(tensor: Tensor, flat: Tensor, b: int) -> Tensor:
    picked = tensor.flatten(0, 1).index_select(0, flat)
    return picked.view(-1, b, *picked.shape[1:])


def _present(batches: Sequence[IrregularBatch]) -> list[str]:
    names = [field.name for field in fields(IrregularBatch) if field.name != "ids"]
    present = [name for name in names if getattr(batches[0], name) is not None]
    for member, batch in enumerate(batches):
        for name in names:
            if (getattr(batch, name) is not None) != (name in present):
                raise DataError(f"member {member}: {name} must be given for all members or for none")
    return present


def _stacked(name: str, tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """(m, n, …), every axis but the channels' padded with zeros at its end."""
    ranks, widths = {tensor.ndim for tensor in tensors}, {tensor.shape[2:] for tensor in tensors}
    if len(ranks) > 1 or len(widths) > 1:
        shapes = sorted({tuple(tensor.shape) for tensor in tensors})
        raise DataError(f"{name}: members have shapes {shapes}, wanted equal numbers of axes and channels")
    if tensors[0].is_floating_point() and name not in ("times", "query_times"):
        tensors = [tensor.to(dtype) for tensor in tensors]
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    return torch.stack([_padded(tensor, shape) for tensor in tensors])


def _padded(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    widths = [width for have, want in zip(tensor.shape, shape, strict=True) for width in (want - have, 0)]
    return F.pad(tensor, widths[::-1])
