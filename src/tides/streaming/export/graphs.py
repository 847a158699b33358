"""Whole models as real-valued graphs: modules made for `torch.export` and ONNX, equal to the models they come from."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree

from tides.functional.heads import glu_residual, step_sizes
from tides.functional.summary import scores, statistics, sums_size, take_in
from tides.functional.tail import TailWeights, gated_tail
from tides.kernels.stepping import StepBlock, StepModel
from tides.nn import Backbone, Forecaster
from tides.streaming.export.planes import (
    LayerState,
    Planes,
    advance,
    last_steps,
    layer_sequence,
    layer_step,
    read_out,
)


class Graph(nn.Module):
    """What all graphs share: inputs, encoder, blocks and the head of a described model."""

    def __init__(self, described: StepModel, backbone: Backbone) -> None:
        super().__init__()
        dtype = backbone.calibration.shift.dtype
        # Wherever the model is: a graph is traced, and written down, on the processor.
        self.described: StepModel = _pytree.tree_map_only(Tensor, lambda x: x.detach().to("cpu", dtype), described)
        self.dtype, self.queries = dtype, backbone.query_channel
        self.counts_padding = backbone.config.padding == "include"

    def prepare(self, values: Tensor, gaps: Tensor, observed: Tensor, query: Tensor | None = None) -> Tensor:
        """The encoder's output for rows (…, d) whose gaps are scaled already."""
        shift, scale = self.described.scaling
        known = torch.where(observed, (values - shift) / scale, torch.zeros_like(values))
        channels = [known]
        if self.described.masked:
            channels.append(observed.to(known.dtype))
        if self.queries:
            channels.append(torch.zeros_like(known[..., :1]) if query is None else query.unsqueeze(-1).to(known.dtype))
        if self.described.gap_channel:
            channels.append(gaps.unsqueeze(-1))
        return self.encode(torch.cat(channels, dim=-1))

    def encode(self, row: Tensor) -> Tensor:
        for block in self.described.encoder:
            row = glu_residual(row, block)
        weight, bias = self.described.encoder_out
        return F.linear(row, weight, bias)

    def empty_encoding(self) -> Tensor:
        return self.encode(self.described.encoder_out[0].new_zeros(self.described.encoder_out[0].shape[1]))

    def scaled(self, gaps: Tensor) -> Tensor:
        return gaps / self.described.time_scale

    def normalise(self, x: Tensor, block: StepBlock) -> Tensor:
        if block.affine is not None:
            return x * block.affine[0] + block.affine[1]
        centred = x - x.mean(-1, keepdim=True) if self.described.norm == "layer" else x
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.described.norm_eps)

    def finish(self, x: Tensor, y: Tensor, block: StepBlock) -> Tensor:
        return gated_tail(x, y, block.tail) if isinstance(block.tail, TailWeights) else x + block.tail

    def answer(self, features: Tensor, sums: Tensor | None = None) -> Tensor:
        if self.described.head is None:
            return features
        if sums is not None and self.described.summary is not None:
            found = statistics(sums, self.described.scaling[0].numel())
            features = torch.cat([features, scores(*found, *self.described.summary)], dim=-1)
        return F.linear(features, *self.described.head)

    def summarise(self, before: Tensor, values: Tensor, gaps: Tensor, observed: Tensor, valid: Tensor) -> Tensor:
        """Sums of the statistics after rows (b, l, d)."""
        shift, scale = self.described.scaling
        return take_in(before, (values - shift) / scale, self.scaled(gaps.double()), observed, valid)

    def run(self, x: Tensor, gaps: Tensor, valid: Tensor) -> tuple[Tensor, list[LayerState]]:
        """Features (b, l, h) and every block's state at every step."""
        states = []
        for block in self.described.blocks:
            u = self.normalise(x, block)
            y, state = layer_sequence(u, gaps, valid, block.ssm, self.described.spec)
            x = self.finish(x, y, block)
            states.append(state)
        return x, states

    def peek(self, held: Tensor, states: list[LayerState], gap: Tensor) -> Tensor:
        """Features at a scaled `gap` after the states' last observation."""
        x, spec = held, self.described.spec
        for block, state in zip(self.described.blocks, states, strict=True):
            u = self.normalise(x, block)
            s = advance(state, step_sizes(u, gap, block.ssm.step), spec)
            x = self.finish(x, read_out(s, u, block.ssm, spec), block)
        return x


class SequenceGraph(Graph):
    """values (b, l, d), gaps (b, l), observed (b, l, d), valid (b, l) → features (b, l, h) or answers (b, k)."""

    def forward(self, values: Tensor, gaps: Tensor, observed: Tensor, valid: Tensor) -> Tensor:
        values = torch.where(valid.unsqueeze(-1), values, torch.zeros_like(values))
        sums = None
        if self.described.summary is not None:
            nothing = values.new_zeros(values.shape[0], sums_size(values.shape[2]), dtype=torch.float64)
            sums = self.summarise(nothing, values, gaps, observed, valid)
        if self.counts_padding:
            valid = torch.ones_like(valid)
        gaps = torch.where(valid, gaps, torch.zeros_like(gaps))
        scaled = self.scaled(gaps)
        features, _ = self.run(self.prepare(values, scaled, observed), scaled, valid)
        features = torch.where(valid.unsqueeze(-1), features, torch.zeros_like(features))
        pool = self.described.pool
        if pool is None:
            return self.answer(features)
        count = valid.to(features.dtype).sum(1, keepdim=True)
        # The newest valid step; gathering would need an index that a batch of lengths decides.
        last = (features * last_steps(valid).unsqueeze(-1).to(features.dtype)).sum(1)
        if pool == "last":
            return self.answer(last, sums)
        weight = gaps if pool == "time" else valid.to(features.dtype)
        total = gaps.sum(1, keepdim=True) if pool == "time" else count
        mean = (features * weight.unsqueeze(-1)).sum(1) / torch.where(total > 0, total, torch.ones_like(total))
        return self.answer(torch.where(total > 0, mean, last), sums)


class ForecastGraph(Graph):
    """values, times (b, l) and query_times (b, q) in float64, observed, valid, query_valid → answers (b, q, c)."""

    def __init__(self, described: StepModel, forecaster: Forecaster) -> None:
        super().__init__(described, forecaster.backbone)
        self.query_mode = forecaster.query_mode
        calibration = forecaster.backbone.calibration
        self.from_zero, self.first_gap = calibration.first_policy == "start", calibration.first_gap.item()

    def forward(
        self, values: Tensor, times: Tensor, observed: Tensor, valid: Tensor, query_times: Tensor, query_valid: Tensor
    ) -> Tensor:
        values = torch.where(valid.unsqueeze(-1), values, torch.zeros_like(values))
        if self.query_mode == "readout":
            answers = self._read_between(values, times, observed, valid, query_times)
        else:
            answers = self._as_steps(values, times, observed, valid, query_times, query_valid)
        return torch.where(query_valid.unsqueeze(-1), answers, torch.zeros_like(answers))

    def _gaps(self, times: Tensor, valid: Tensor) -> Tensor:
        first = times[:, :1]
        # Subtracting what makes the first difference the first gap.
        before = torch.zeros_like(first) if self.from_zero else first - self.first_gap
        gaps = times - torch.cat([before, times], dim=1)[:, :-1]
        return torch.where(valid, gaps, torch.zeros_like(gaps)).to(self.dtype)

    def _read_between(
        self, values: Tensor, times: Tensor, observed: Tensor, valid: Tensor, query_times: Tensor
    ) -> Tensor:
        gaps = self.scaled(self._gaps(times, valid))
        encoded = self.prepare(values, gaps, observed)
        _, states = self.run(encoded, gaps, valid)
        past = (times.unsqueeze(1) <= query_times.unsqueeze(2)) & valid.unsqueeze(1)
        count = past.to(torch.int64).sum(-1)  # (b, q)
        index, any_past = (count - 1).clamp_min(0), count > 0
        since = times.gather(1, index)
        elapsed = torch.where(any_past, query_times - since, torch.zeros_like(since)).to(self.dtype)

        def pick(x: Tensor, before: Tensor) -> Tensor:
            rows = x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
            return torch.where(any_past.unsqueeze(-1), rows, before)

        def planes(x: Planes) -> Planes:
            return Planes(*(pick(part, torch.zeros_like(part[:, :1])) for part in x))

        chosen = [LayerState(*(planes(part) for part in state)) for state in states]
        return self.answer(self.peek(pick(encoded, self.empty_encoding()), chosen, self.scaled(elapsed)))

    def _as_steps(
        self,
        values: Tensor,
        times: Tensor,
        observed: Tensor,
        valid: Tensor,
        query_times: Tensor,
        query_valid: Tensor,
    ) -> Tensor:
        b, l, d = values.shape
        q = query_times.shape[1]
        real = torch.cat([valid, query_valid], dim=1)
        moments = torch.cat([times, query_times], dim=1)
        order = _places(torch.where(real, moments, torch.full_like(moments, torch.inf)))
        index = torch.zeros_like(order).scatter(1, order, torch.arange(l + q).expand(b, -1))
        rows = index.unsqueeze(-1).expand(-1, -1, d)
        real, moments = real.gather(1, index), moments.gather(1, index)
        blank = torch.zeros_like(values[:, :1]).expand(-1, q, -1)
        seen = torch.cat([observed, torch.zeros_like(blank, dtype=torch.bool)], dim=1)
        gaps = self.scaled(self._gaps(moments, real))
        encoded = self.prepare(
            torch.cat([values, blank], dim=1).gather(1, rows),
            gaps,
            seen.to(torch.int64).gather(1, rows) > 0,
            (index >= l) & real,
        )
        features, _ = self.run(encoded, gaps, real)
        position = order[:, l:].unsqueeze(-1).expand(-1, -1, features.shape[-1])
        return self.answer(features.gather(1, position))


def _places(moments: Tensor) -> Tensor:
    """The position of each moment (b, n) in order of time; equal ones keep their order, which no sort of ONNX
    promises.
    """
    n = moments.shape[1]
    earlier = moments.unsqueeze(1) < moments.unsqueeze(2)
    before = torch.arange(n).unsqueeze(0) < torch.arange(n).unsqueeze(1)
    tied = (moments.unsqueeze(1) == moments.unsqueeze(2)) & before
    return (earlier | tied).to(torch.int64).sum(-1)


class StepGraph(Graph):
    """values (b, d), gap (b), observed (b, d), states → answers (b, k) and the new states. All states begin as zeros.

    `state` is (b, blocks, 6, p): s, λ and drive, real and imaginary. Pooled models add `pool` (b, h + 1), sums and
    their weight in float64, those with a summary `summary` (b, n), its sums in float64. Forecasters answer at an offset
    `at` (b) after the observation.
    """

    def __init__(self, described: StepModel, backbone: Backbone, query_mode: str | None = None) -> None:
        super().__init__(described, backbone)
        self.query_mode = query_mode

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes, without the batch, of what the graph takes and returns as its state."""
        hidden, modes = self.described.encoder_out[0].shape[0], self.described.blocks[0].ssm.frequency.bias.shape[-1]
        shapes: dict[str, tuple[int, ...]] = {"state": (len(self.described.blocks), 6, modes)}
        if self.described.pool not in (None, "last"):
            shapes["pool"] = (hidden + 1,)
        if self.described.summary is not None:
            shapes["summary"] = (sums_size(self.described.scaling[0].numel()),)
        return shapes

    def forward(
        self,
        values: Tensor,
        gap: Tensor,
        observed: Tensor,
        state: Tensor,
        pool: Tensor | None = None,
        summary: Tensor | None = None,
        at: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        scaled = self.scaled(gap)
        encoded = self.prepare(values, scaled, observed)
        features, layers = self.step(encoded, scaled, _unpack(state))
        new = _pack(layers)
        if at is not None:
            return self.answer(self._ask(encoded, layers, self.scaled(at))), new
        known: tuple[Tensor, ...] = ()
        if summary is not None:
            row = (values.unsqueeze(1), gap.unsqueeze(1), observed.unsqueeze(1))
            summary = self.summarise(summary, *row, torch.ones_like(row[1], dtype=torch.bool))
            known = (summary,)
        if pool is None:
            return self.answer(features, summary), new, *known
        share = gap.double() if self.described.pool == "time" else torch.ones_like(gap, dtype=torch.float64)
        added = torch.cat([features.double() * share.unsqueeze(-1), share.unsqueeze(-1)], dim=-1)
        sums = pool + added
        weight = sums[:, -1:]
        mean = sums[:, :-1] / torch.where(weight > 0, weight, torch.ones_like(weight))
        pooled = torch.where(weight > 0, mean, features.double())
        return self.answer(pooled.to(features.dtype), summary), new, sums, *known

    def step(self, x: Tensor, gap: Tensor, layers: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        found = []
        for block, layer in zip(self.described.blocks, layers, strict=True):
            y, new = layer_step(self.normalise(x, block), gap, block.ssm, self.described.spec, layer)
            x = self.finish(x, y, block)
            found.append(new)
        return x, found

    def _ask(self, held: Tensor, layers: list[LayerState], at: Tensor) -> Tensor:
        if self.query_mode == "readout":
            return self.peek(held, layers, at)
        blank = torch.zeros_like(self.described.scaling[0]).expand(held.shape[0], -1)
        query = torch.ones_like(at, dtype=torch.bool)
        row = self.prepare(blank, at, torch.zeros_like(blank, dtype=torch.bool), query)
        return self.step(row, at, layers)[0]


def _unpack(state: Tensor) -> list[LayerState]:
    return [LayerState(*(Planes(state[:, k, i], state[:, k, i + 1]) for i in (0, 2, 4))) for k in range(state.shape[1])]


def _pack(layers: list[LayerState]) -> Tensor:
    return torch.stack([torch.stack([plane for part in layer for plane in part], dim=1) for layer in layers], dim=1)
