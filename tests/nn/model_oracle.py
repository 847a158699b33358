"""Whole models as their equations state them: each series cut to its length, one step after another, in float64.

Nothing here calls the library's modules: a model is read as its configuration and its named tensors. The layer itself
is the loop of tests/functional/loop_oracle.py.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.functional.loop_oracle import State, interval, matrix, run_series, step_size
from tides.functional import DiagonalMix, GLUWeights, LowRankMix, ModeHead, SSMWeights, StaticMix, StepHead

Tensors = Mapping[str, Tensor]


class Rows(NamedTuple):
    """One series: values (n, d), gaps (n), which values were observed, which rows are queries."""

    values: Tensor
    gaps: Tensor
    observed: Tensor | None = None
    query: Tensor | None = None


class Layers(NamedTuple):
    """Features of every series and all that was computed on the way."""

    features: list[Tensor]
    encoded: list[Tensor]
    states: list[list[State]]
    """Per block, per series."""
    statistics: list[tuple[Tensor, Tensor] | None]
    running: dict[str, Tensor]


def named_tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def below(tensors: Tensors, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def glu_stack(tensors: Tensors, prefix: str) -> tuple[GLUWeights, ...]:
    found = []
    while f"{prefix}{len(found)}.value.weight" in tensors:
        at = f"{prefix}{len(found)}."
        found.append(GLUWeights(*(tensors[at + n] for n in ("value.weight", "value.bias", "gate.weight", "gate.bias"))))
    return tuple(found)


def layer_weights(tensors: Tensors, config: Any) -> SSMWeights:
    """The layer's tensors, with static halves of conjugate pairs expanded where something is input-dependent."""
    mirrored = config.conjugate and config.variant != "s5"

    def modes(name: str, sign: float) -> ModeHead:
        if f"{name}.value" in tensors:
            half = tensors[f"{name}.value"]
            return ModeHead(torch.cat([half, sign * half]) if mirrored else half)
        norm = tensors.get(f"{name}.norm")
        return ModeHead(tensors[f"{name}.bias"], tensors[f"{name}.weight"], norm, glu_stack(tensors, f"{name}.blocks."))

    def mix(name: str, directions: int) -> StaticMix | LowRankMix | DiagonalMix:
        base, norm = tensors[f"{name}.base"], tensors.get(f"{name}.norm")
        if config.variant in ("s5", "tides-lambda"):
            if not mirrored:
                return StaticMix(base)
            pieces = []
            for part in base.chunk(directions):
                pieces += [part, torch.stack([part[..., 0], -part[..., 1]], -1)]
            return StaticMix(torch.cat(pieces))
        if config.rank == "diag":
            return DiagonalMix(base, tensors[f"{name}.up"], tensors[f"{name}.bias"], norm)
        return LowRankMix(
            base, tensors[f"{name}.up"], tensors.get(f"{name}.down.weight"), tensors.get(f"{name}.down.bias"), norm
        )

    step: Tensor | StepHead
    if config.variant == "mamba-s":
        step = StepHead(tensors["step_weight"], tensors["step_bias"])
    else:
        step = tensors["log_step.value"].repeat(2 if mirrored else 1)
    directions = 2 if config.bidirectional else 1
    return SSMWeights(
        modes("decay", 1.0),
        modes("frequency", -1.0),
        mix("drive", 1),
        mix("readout", directions),
        step,
        tensors["skip"],
    )


class Spec(NamedTuple):
    """The layer's choices, read from the configuration."""

    reparam: str
    discretisation: str
    hold: str
    bidirectional: bool
    reverse: str
    clip: float | None
    conjugate: bool
    eps: float = 1e-6


def layer_spec(config: Any) -> Spec:
    return Spec(
        config.reparam,
        config.discretisation,
        config.hold,
        config.bidirectional,
        config.reverse,
        config.clip,
        config.conjugate and config.variant == "s5",
    )


def encode(tensors: Tensors, config: Any, rows: Rows, query_channel: bool) -> Tensor:
    """The encoder's output (n, h): scaled values, flags, Mamba_S's Δ, residual GLU blocks, one linear map."""
    x = (rows.values - tensors["calibration.shift"]) / tensors["calibration.scale"]
    flags = torch.ones_like(x) if rows.observed is None else rows.observed.to(x.dtype)
    x = torch.where(flags > 0, x, torch.zeros_like(x))
    parts = [x]
    if config.mask_channels is True:
        parts.append(flags)
    if query_channel:
        query = torch.zeros(len(x), 1, dtype=x.dtype) if rows.query is None else rows.query[:, None].to(x.dtype)
        parts.append(query)
    if config.variant == "mamba-s":
        parts.append((rows.gaps / tensors["calibration.time_scale"])[:, None])
    return encode_row(tensors, torch.cat(parts, dim=1))


def encode_row(tensors: Tensors, x: Tensor) -> Tensor:
    blocks = glu_stack(tensors, "encoder.")
    for glu in blocks:
        x = x + (x @ glu.value.T + glu.value_bias) * torch.sigmoid(x @ glu.gate.T + glu.gate_bias)
    last = f"encoder.{len(blocks)}."
    return x @ tensors[f"{last}weight"].T + tensors[f"{last}bias"]


def normalise(x: Tensor, kind: str, statistics: tuple[Tensor, Tensor] | None) -> Tensor:
    if kind == "batch":
        assert statistics is not None
        return (x - statistics[0]) / (statistics[1] + 1e-5).sqrt()
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    return centred / ((centred**2).mean(-1, keepdim=True) + 1e-5).sqrt()


def finish(tensors: Tensors, x: Tensor, y: Tensor) -> Tensor:
    """x + GLU(GELU(y)), GELU in its exact form."""
    active = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
    if "glu.bias" in tensors:
        return x + tensors["glu.bias"]
    value = active @ tensors["glu.value.weight"].T + tensors["glu.value.bias"]
    gate = torch.sigmoid(active @ tensors["glu.gate.weight"].T + tensors["glu.gate.bias"])
    return x + (value * gate) @ tensors["glu.out.weight"].T + tensors["glu.out.bias"]


def run_backbone(
    tensors: Tensors, config: Any, series: list[Rows], *, training: bool = False, query_channel: bool = False
) -> Layers:
    spec = layer_spec(config)
    encoded = [encode(tensors, config, rows, query_channel) for rows in series]
    hidden, states, used, running = encoded, [], [], {}
    for index in range(config.depth):
        block = below(tensors, f"blocks.{index}.")
        statistics = None
        if config.norm == "batch":
            statistics = (block["norm.running_mean"], block["norm.running_var"])
            if training:
                every = torch.cat(hidden)
                mean = every.mean(0)
                var = ((every - mean) ** 2).mean(0)
                unbiased = var * len(every) / (len(every) - 1)
                for name, old, new in zip(("mean", "var"), statistics, (mean, unbiased), strict=True):
                    running[f"blocks.{index}.norm.running_{name}"] = 0.9 * old.detach() + 0.1 * new.detach()
                statistics = (mean, var)
        weights = layer_weights(below(block, "ssm."), config)
        outputs, lasts = [], []
        for rows, x in zip(series, hidden, strict=True):
            gaps = rows.gaps / tensors["calibration.time_scale"]
            y, last = run_series(normalise(x, config.norm, statistics), gaps, weights, spec)
            outputs.append(finish(block, x, y))
            lasts.append(last)
        hidden = outputs
        states.append(lasts)
        used.append(statistics)
    return Layers(hidden, encoded, states, used, running)


def pool(config: Any, features: Tensor, gaps: Tensor) -> Tensor:
    if config.pool == "last":
        return features[-1]
    if config.pool == "mean":
        return features.mean(0)
    return (features * gaps[:, None]).sum(0) / gaps.sum()


def classify(tensors: Tensors, config: Any, series: list[Rows], *, training: bool = False) -> Tensor:
    """Logits (b, k)."""
    found = run_backbone(below(tensors, "backbone."), config, series, training=training)
    pooled = [pool(config, f, rows.gaps) for f, rows in zip(found.features, series, strict=True)]
    return torch.stack(pooled) @ tensors["head.weight"].T + tensors["head.bias"]


class Questions(NamedTuple):
    """One series to forecast: values (n, d) at times (n), partly observed, and the times that are asked for."""

    values: Tensor
    times: Tensor
    observed: Tensor | None
    asked: Tensor


def gaps_of(times: Tensor, first: Tensor) -> Tensor:
    return torch.cat([first.reshape(1).to(times.dtype), times[1:] - times[:-1]])


def answer(tensors: Tensors, features: Tensor) -> Tensor:
    raw = features @ tensors["head.weight"].T + tensors["head.bias"]
    return raw * tensors["output_scale"] + tensors["output_shift"]


def forecast_as_steps(
    tensors: Tensors, config: Any, series: list[Questions], *, training: bool = False
) -> list[Tensor]:
    """Queries join the timeline, behind observations of the same time."""
    backbone = below(tensors, "backbone.")
    timelines, places = [], []
    for item in series:
        n, d = item.values.shape
        entries = [(float(t), 0, k) for k, t in enumerate(item.times)]
        entries += [(float(t), 1, k) for k, t in enumerate(item.asked)]
        entries.sort()
        seen = torch.ones(n, d, dtype=torch.bool) if item.observed is None else item.observed
        blank = torch.zeros(d, dtype=item.values.dtype)
        values = torch.stack(
            [blank if asked else torch.where(seen[k], item.values[k], blank) for _, asked, k in entries]
        )
        observed = torch.stack([torch.zeros_like(seen[0]) if asked else seen[k] for _, asked, k in entries])
        times = torch.tensor([t for t, _, _ in entries], dtype=item.times.dtype)
        query = torch.tensor([bool(asked) for _, asked, _ in entries])
        timelines.append(Rows(values, gaps_of(times, backbone["calibration.first_gap"]), observed, query))
        where = {k: place for place, (_, asked, k) in enumerate(entries) if asked}
        places.append([where[k] for k in range(len(item.asked))])
    found = run_backbone(backbone, config, timelines, training=training, query_channel=config.query_flag)
    return [answer(tensors, f[place]) for f, place in zip(found.features, places, strict=True)]


def forecast_as_readout(
    tensors: Tensors, config: Any, series: list[Questions], *, training: bool = False
) -> list[Tensor]:
    """Every question by itself: each layer's state after the last observation, evolved to the asked time."""
    backbone = below(tensors, "backbone.")
    rows = [Rows(q.values, gaps_of(q.times, backbone["calibration.first_gap"]), q.observed) for q in series]
    whole = run_backbone(backbone, config, rows, training=training)
    spec = layer_spec(config)
    results = []
    for i, item in enumerate(series):
        answers = []
        for asked in item.asked:
            k = int((item.times <= asked).sum())
            if k == 0:
                width = backbone["encoder.0.value.weight" if config.encoder_depth else "encoder.0.weight"].shape[1]
                x = encode_row(backbone, torch.zeros(width, dtype=torch.float64))
            else:
                x = whole.encoded[i][k - 1]
            gap = (asked - item.times[k - 1]) / backbone["calibration.time_scale"] if k else torch.zeros_like(asked)
            inputs = whole.encoded[i][:k]
            for index in range(config.depth):
                block = below(backbone, f"blocks.{index}.")
                weights, statistics = layer_weights(below(block, "ssm."), config), whole.statistics[index]
                s = torch.zeros(weights.frequency.bias.shape[0], dtype=torch.complex128)
                u = normalise(x, config.norm, statistics)
                if k:
                    y, last = run_series(
                        normalise(inputs, config.norm, statistics),
                        rows[i].gaps[:k] / backbone["calibration.time_scale"],
                        weights,
                        spec,
                    )
                    inputs = finish(block, inputs, y)
                    s = last.s
                    if not (config.discretisation == "dirac" and float(gap) == 0):
                        s = interval(last.s, last.lam, step_size(u, gap, weights.step), last.drive, spec)
                read = (matrix(u, weights.readout, spec.eps).T @ s).real * (2 if spec.conjugate else 1)
                x = finish(block, x, read + weights.skip * u)
            answers.append(x)
        results.append(answer(tensors, torch.stack(answers)))
    return results
