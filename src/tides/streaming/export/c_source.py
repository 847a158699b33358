"""`export_c`: a causal model as C99 sources, with weights as constants, a state of fixed size and no allocation."""

import math
import re
from importlib.resources import files
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tides.atomic import atomic_write
from tides.errors import ConfigError
from tides.functional import summary
from tides.functional.heads import StepHead
from tides.functional.mixes import DiagonalMix, LowRankMix, StaticMix
from tides.functional.summary import sums_size
from tides.functional.tail import TailWeights
from tides.streaming.export.c_weights import code_size, write_weights
from tides.streaming.export.described import Described, describe

_KINDS = ("FEATURES", "EVERY_STEP", "POOLED", "READOUT", "QUERY_STEPS")
_CHOICES = {
    "REPARAM": ("STANDARD", "EXP", "STABLE", "SOFTPLUS"),
    "NORM": ("BATCH", "LAYER", "RMS"),
    "MIX": ("STATIC", "LOW_RANK", "FULL", "DIAG"),
    "POOL": ("MEAN", "TIME"),
}
_DISCRETISATIONS = ("ZOH", "BILINEAR", "DIRAC")


class CExport(NamedTuple):
    """Where the sources are, and the size of their constants (in flash) and of one stream's state (in memory)."""

    folder: Path
    weight_bytes: int
    state_bytes: int


def export_c(
    model: nn.Module, folder: str | Path, *, tick: float = 1e-3, int8: bool = False, unit: str = "time unit"
) -> CExport:
    """Write `tides_step.c`, its headers `tides_model.h`, `tides_layer.h` and `tides_weights.h`, and `example.c`;
    with a summary `tides_summary.h` too.

    Timestamps are int64 ticks, each of `tick` time units (the unit of the gaps the model was trained with; `unit` names
    it in the header). The code computes in the model's own precision. With `int8`, matrices are stored as bytes.
    """
    _check_tick(tick)
    plan = describe(model)
    double = plan.backbone.calibration.shift.dtype == torch.float64
    weights = write_weights(plan.model, double=double, int8=int8)
    members, state_bytes = _state(plan, double)
    guard = "/* Constants of the model; included by tides_step.c alone. */\n\n"
    texts = {
        "tides_model.h": _header(plan, members, double=double, int8=int8, tick=tick, unit=unit),
        "tides_weights.h": guard + "\n".join(weights.lines) + "\n",
    }
    sources = files("tides.streaming.export") / "c"
    names = ["tides_layer.h", "tides_step.c", "example.c", *(["tides_summary.h"] if plan.model.summary else [])]
    texts |= {name: (sources / name).read_text(encoding="utf-8") for name in names}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with atomic_write(folder / name) as file:
            file.write(text.encode())
    return CExport(folder, weights.bytes, state_bytes)


def _check_tick(tick: Any) -> None:
    if isinstance(tick, bool) or not isinstance(tick, Real) or not 0 < float(tick) < math.inf:
        raise ConfigError(f"tick: found {tick!r}, wanted a number of time units > 0")


def _state(plan: Described, double: bool) -> tuple[list[str], int]:
    """Members of the state struct and their size, rounded up to whole words of eight bytes."""
    hidden, modes = plan.model.encoder_out[0].shape[0], plan.model.blocks[0].ssm.frequency.bias.shape[-1]
    planes = 6 if plan.model.spec.hold == "following" else 2
    numbers = len(plan.model.blocks) * planes * modes
    members = ["int64_t last;", "int started;", f"tides_real layers[TIDES_DEPTH][{planes} * TIDES_MODES];"]
    total = 12
    if plan.kind == "readout":
        members.append("tides_real held[TIDES_HIDDEN];")
        numbers += hidden
    if plan.kind == "pooled":
        # In double, so that long streams do not drift.
        members += ["double sums[TIDES_HIDDEN];", "double weight;"]
        total += 8 * (hidden + 1)
    if plan.model.summary is not None:
        kept = sums_size(plan.backbone.config.input_size)
        members.append(f"double summary[{kept}];")
        total += 8 * kept
    total += numbers * (8 if double else 4)
    return members, -(-total // 8) * 8


def _header(plan: Described, members: list[str], *, double: bool, int8: bool, tick: float, unit: str) -> str:
    sizes = {**_sizes(plan), "DOUBLE": int(double), "INT8": int(int8)}
    lines = [f"#define TIDES_{key} {value}" for key, value in sizes.items()]
    lines += [f"#define TIDES_{key} {float(value)!r}" for key, value in _numbers(plan, double=double).items()]
    return _HEADER.format(
        tick=repr(float(tick)),
        unit=re.sub(r"[^\w ./%·-]", "", unit),
        constants="\n".join([*lines, *_choices(plan)]),
        real="double" if double else "float",
        weight="int8_t" if int8 else "tides_real",
        members="\n    ".join(members),
        peek=_PEEK if plan.kind in ("readout", "query_steps") else "",
    )


def _sizes(plan: Described) -> dict[str, int]:
    """Sizes, and which optional parts the model has."""
    model, config = plan.model, plan.backbone.config
    ssm, tail = model.blocks[0].ssm, model.blocks[0].tail
    inner = tail.value.shape[0] if isinstance(tail, TailWeights) else 0
    hidden, inputs = model.encoder_out[0].shape
    return {
        "CHANNELS": config.input_size,
        "OUTPUTS": hidden if model.head is None else model.head[0].shape[0],
        "INPUTS": inputs,
        "HIDDEN": hidden,
        "MODES": ssm.frequency.bias.shape[-1],
        "DEPTH": len(model.blocks),
        "CODE": code_size(ssm.drive),
        "INNER": inner,
        "WIDEST": max(hidden, inputs, inner),
        "ENCODER_DEPTH": len(model.encoder),
        "DECAY_DEPTH": max(len(ssm.decay.blocks), len(ssm.frequency.blocks)),
        "MASKED": int(model.masked),
        "ALL_OBSERVED": int(config.mask_channels == "auto"),
        "QUERY_FLAG": int(plan.backbone.query_channel),
        "GAP_CHANNEL": int(model.gap_channel),
        "STEP_HEAD": int(isinstance(ssm.step, StepHead)),
        "FOLLOWING": int(model.spec.hold == "following"),
        "COLUMN_NORM": int(isinstance(ssm.drive, LowRankMix) and ssm.drive.norm is not None),
        "CLIPPED": int(model.spec.clip is not None),
        "SUMMARY": 0 if model.summary is None else model.summary[0].numel(),
        "SUMS": summary.SUMS,
        "STATISTICS": summary.STATISTICS,
        "FIRST_FROM_ZERO": int(plan.backbone.calibration.first_policy == "start"),
    }


def _numbers(plan: Described, *, double: bool) -> dict[str, float]:
    model = plan.model
    return {
        "CLIP": model.spec.clip or 0.0,
        "EPS": model.spec.eps,
        # The layer squares what it reads, and a square must not overflow.
        "LARGEST": math.sqrt(torch.finfo(torch.float64 if double else torch.float32).max),
        "NORM_EPS": model.norm_eps,
        "OUTPUT_FACTOR": 2.0 if model.spec.conjugate else 1.0,
        "TIME_SCALE": model.time_scale,
        "SHORTEST": summary.SHORTEST,
        "SMALLEST_SQUARE": summary.SMALLEST_SQUARE,
        "LARGEST_SCORE": summary.LARGEST_SCORE,
        "FIRST_GAP": plan.backbone.calibration.first_gap.item(),
    }


def _choices(plan: Described) -> list[str]:
    """The possible choices as numbered constants, and the model's own."""
    model, drive = plan.model, plan.model.blocks[0].ssm.drive
    mix = {StaticMix: "STATIC", DiagonalMix: "DIAG"}.get(type(drive))
    mix = mix or ("FULL" if isinstance(drive, LowRankMix) and drive.down is None else "LOW_RANK")
    chosen = {
        "REPARAM": model.spec.reparam,
        "NORM": model.norm,
        "MIX": mix,
        "POOL": model.pool if plan.kind == "pooled" else "mean",
    }
    lines = []
    for group, names in _CHOICES.items():
        lines += [f"#define TIDES_{group}_{name} {k}" for k, name in enumerate(names)]
        lines.append(f"#define TIDES_{group} TIDES_{group}_{str(chosen[group]).upper()}")
    lines += [f"#define TIDES_{name} {k}" for k, name in enumerate(_DISCRETISATIONS)]
    lines.append(f"#define TIDES_DISCRETISATION TIDES_{model.spec.discretisation.upper()}")
    lines += [f"#define TIDES_{name} {k}" for k, name in enumerate(_KINDS)]
    lines.append(f"#define TIDES_KIND TIDES_{plan.kind.upper()}")
    return lines


_HEADER = """\
/* A TIDES model as one function per observation. Written by `tides export`; the weights are in tides_weights.h. */

#ifndef TIDES_MODEL_H
#define TIDES_MODEL_H

#include <stdint.h>

/* Timestamps are ticks: one tick is {tick} {unit}. */
#define TIDES_TICK {tick}
{constants}

typedef {real} tides_real;
typedef {weight} tides_weight;

/* Everything that is kept from one observation to the next. One per stream. */
typedef struct {{
    {members}
}} tides_state;

/* What a call answers; unless it is TIDES_OK, the state is as it was. */
enum {{ TIDES_OK, TIDES_TIME_GOES_BACK, TIDES_VALUE_NOT_FINITE /* or too large */, TIDES_VALUE_MISSING }};

#ifdef __cplusplus
extern "C" {{
#endif

/* Nothing has been observed yet. */
void tides_init(tides_state *state);

/* One observation x[TIDES_CHANNELS] at time t. observed[d] = 0 marks a missing value; NULL: all are there.
 * out[TIDES_OUTPUTS] is the answer for everything observed so far. */
int tides_step(tides_state *state, int64_t t, const tides_real *x, const unsigned char *observed, tides_real *out);
{peek}
#ifdef __cplusplus
}}
#endif

#endif
"""

_PEEK = """
/* The answer at a time t after the last observation; the state does not change. In tides_step, `out` may be NULL. */
int tides_peek(const tides_state *state, int64_t t, tides_real *out);
"""
