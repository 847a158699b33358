"""A small configuration of every baseline for the contract suite, and batches to call it with.

A model that is in the registry and not here fails the suite.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tides import baselines

CHANNELS, CLASSES = 3, 4
_CLASSIFIER = {"input_size": CHANNELS, "classes": CLASSES, "mask_channels": True}
_STACK = {**_CLASSIFIER, "hidden_size": 8, "depth": 2, "dropout": 0.0}
_CDE = {**_CLASSIFIER, "hidden_size": 5, "field_width": 6, "field_depth": 2, "time_channel": "elapsed"}
_FORECASTER = {"input_size": CHANNELS}
_JUMP = {**_FORECASTER, "hidden_size": 6, "observation_size": 5, "feature_size": 4, "dropout": 0.0}

SMALL: dict[str, dict[str, Any]] = {
    "lru": {**_STACK, "state_size": 6, "time_channel": "gap", "steps": "physical"},
    "s5": {**_STACK, "state_size": 8, "groups": 2, "time_channel": "index", "steps": "physical"},
    "s6": {**_STACK, "state_size": 3, "time_channel": "gap"},
    "mamba": {**_STACK, "state_size": 3, "conv": 3, "time_channel": "elapsed", "steps": "physical"},
    "linoss-im": {**_STACK, "state_size": 5, "time_channel": "gap", "steps": "physical"},
    "linoss-imex": {**_STACK, "state_size": 5, "time_channel": "gap"},
    "d-linoss": {**_STACK, "state_size": 5, "time_channel": "elapsed"},
    "transformer": {**_STACK, "heads": 2, "positions": "elapsed"},
    "rformer": {**_CLASSIFIER, "windows": 4, "level": 3, "views": "both", "embedding": 2, "heads": 2, "dropout": 0.0},
    "ncde": _CDE,
    "nrde": {**_CDE, "level": 2, "window": 3},
    "log-ncde": {**_CDE, "level": 2, "window": 3, "lipschitz": 0.1},
    "logsig-ssm": {**_STACK, "lengths": (3, 5), "levels": (1, 2), "stride": 2, "global_level": 2, "state_size": 4},
    "gru-d": {**_CLASSIFIER, "hidden_size": 6},
    "class-prior": _CLASSIFIER,
    "zero": _FORECASTER,
    "last-value": _FORECASTER,
    "observed-mean": _FORECASTER,
    "imts-mixer": {**_FORECASTER, "hidden_size": 8, "output_size": 6, "kernel_size": 5, "depth": 2},
    "grafiti": {**_FORECASTER, "hidden_size": 8, "depth": 2},
    "grafiti-c": {**_FORECASTER, "hidden_size": 8, "depth": 2},
    "cru": {**_FORECASTER, "latent_size": 6, "hidden_size": 7, "bases": 3, "bandwidth": 1},
    "gru-ode-bayes": {**_JUMP, "query_substeps": 3},
    "neural-flow-resnet": {**_JUMP, "flow_size": 7},
    "neural-flow-gru": _JUMP,
    "neural-flow-coupling": {**_JUMP, "flow_size": 7},
    "mtan": {**_FORECASTER, "embed_size": 6, "heads": 2, "references": 5, "hidden_size": 4, "latent_size": 3},
    "latent-ode": {**_FORECASTER, "latent_size": 4, "hidden_size": 5, "field_size": 6, "steps": 3, "gap_steps": 1},
    "linodenet": {**_FORECASTER, "hidden_size": 5, "latent_size": 6, "depth": 2},
}


def make(name: str, **fields: Any) -> nn.Module:
    torch.manual_seed(0)
    return baselines.build(name, **{**SMALL[name], **fields}).double()


class Batch(NamedTuple):
    """Irregular series of different lengths with missing entries, and queries after their ends."""

    values: Tensor
    times: Tensor
    gaps: Tensor
    observed: Tensor
    valid: Tensor
    query_times: Tensor
    query_valid: Tensor

    def rows(self, index: Tensor) -> "Batch":
        return Batch(*(x[index] for x in self))

    def padded(self, steps: int) -> "Batch":
        """More padding, with values that would show if they were read."""

        def extend(x: Tensor, fill: float | bool) -> Tensor:
            return torch.cat([x, torch.full_like(x[:, :1], fill).expand(-1, steps, *x.shape[2:])], dim=1)

        last = self.times[:, -1:].expand(-1, steps)
        return Batch(
            extend(self.values, 1e3),
            torch.cat([self.times, last], dim=1),
            extend(self.gaps, 0.0),
            extend(self.observed, True),
            extend(self.valid, False),
            torch.cat([self.query_times, self.query_times[:, -1:].expand(-1, steps)], dim=1),
            extend(self.query_valid, False),
        )


def draw(seed: int = 0, lengths: tuple[int, ...] = (12, 7, 9), queries: int = 4, missing: float = 0.4) -> Batch:
    source = torch.Generator().manual_seed(seed)
    b, l = len(lengths), max(lengths)
    valid = torch.arange(l) < torch.tensor(lengths)[:, None]
    gaps = torch.rand(b, l, generator=source, dtype=torch.float64) + 0.1
    gaps = gaps.masked_fill(~valid, 0)
    times = gaps.cumsum(1)
    observed = torch.rand(b, l, CHANNELS, generator=source) >= missing
    observed[..., 0] |= ~observed.any(-1)
    observed &= valid.unsqueeze(-1)
    values = torch.randn(b, l, CHANNELS, generator=source, dtype=torch.float64).masked_fill(~observed, 0)
    ahead = torch.rand(b, queries, generator=source, dtype=torch.float64).cumsum(1)
    query_times = times[:, -1:] + ahead
    query_valid = torch.ones(b, queries, dtype=torch.bool)
    query_valid[1, -1] = False
    return Batch(values, times, gaps, observed, valid, query_times, query_valid)


def answer(name: str, model: nn.Module, batch: Batch) -> Tensor:
    """Logits (b, k) or forecasts (b, q, c), by the task of `name`."""
    if baselines.entry(name).task == "classification":
        result: Tensor = model(batch.values, batch.gaps, observed=batch.observed, valid=batch.valid)
        return result
    result = model(
        batch.values,
        batch.times,
        batch.observed,
        batch.query_times,
        valid=batch.valid,
        query_valid=batch.query_valid,
    )
    return result
