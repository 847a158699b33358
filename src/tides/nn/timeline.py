"""One axis of time for observations and questions: rows merged in temporal order, padding behind everything."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Timeline(NamedTuple):
    """n = l + q rows; row k of the timeline is row `order[k]` of the observations followed by the queries."""

    order: Int[Tensor, "b n"]
    moments: Float[Tensor, "b n"]
    real: Bool[Tensor, "b n"]
    """False on padding."""
    query: Bool[Tensor, "b n"]
    positions: Int[Tensor, "b q"]
    """Where the queries stand."""

    def merge(self, rows: Tensor, questions: Tensor) -> Tensor:
        """Rows (b, l, d) of observations and (b, q, d) of queries on the timeline: (b, n, d)."""
        both = torch.cat([rows, questions], dim=1)
        return both.gather(1, self.order.unsqueeze(-1).expand(*self.order.shape, both.shape[-1]))

    def answers(self, features: Tensor) -> Tensor:
        """Entries (b, n, h) of the timeline at the queries: (b, q, h)."""
        return features.gather(1, self.positions.unsqueeze(-1).expand(*self.positions.shape, features.shape[-1]))


def timeline(times: Tensor, query_times: Tensor, valid: Tensor | None, query_valid: Tensor | None) -> Timeline:
    """Merge times (b, l) and query times (b, q); at equal times observations come before queries."""
    l = times.shape[1]
    present = torch.ones_like(times, dtype=torch.bool) if valid is None else valid
    asked = torch.ones_like(query_times, dtype=torch.bool) if query_valid is None else query_valid
    real = torch.cat([present, asked], dim=1)
    moments = torch.cat([times, query_times], dim=1)
    # Padding sorts behind everything else; a stable sort keeps observations before queries at equal times.
    order = moments.masked_fill(~real, torch.inf).argsort(dim=1, stable=True)
    real, moments = real.gather(1, order), moments.gather(1, order)
    return Timeline(order, moments, real, (order >= l) & real, order.argsort(dim=1)[:, l:])
