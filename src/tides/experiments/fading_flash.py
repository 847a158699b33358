"""Fading Flash (paper §4): which models keep a learned decay physical when the clock runs at another speed?

One cell per model and seed; all seeds of a model are trained side by side. A cell's record holds the relative
error at every test gap and the effective decay per zone and gap, found in the modes and from the response to a
flash. One more cell, `task`, holds an example of the data for the picture.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from tides.data import fading_flash
from tides.errors import ConfigError
from tides.experiments.config import build
from tides.experiments.flash_baselines import MIXES, FlashBaseline
from tides.experiments.flash_cores import CORES, FlashCore
from tides.experiments.flash_custom import FlashCustom, source_hash
from tides.experiments.flash_mamba import FlashMamba
from tides.experiments.flash_training import (
    DataConfig,
    EvaluateConfig,
    TrainConfig,
    generator,
    mode_decays,
    relative_errors,
    response_decays,
    train,
)
from tides.experiments.runner import Cell, Context
from tides.records import Record

NAME = "fading-flash"
MODELS = (*CORES, "mamba", "tides-refined")
BASELINES = tuple(MIXES)
"""Run when they are named; the paper has none of them here."""
# The gaps of the task picture: two below the training range, one inside.
PICTURE_GAPS = (0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Refinement:
    """What `tides-refined` changes in the training protocol; the model and the data are those of `tides`."""

    learning_rate: float
    second_moment: float
    schedule: Literal["constant", "cosine"]
    skip_penalty: float


@dataclass(frozen=True)
class FlashConfig:
    """A resolved configuration file."""

    models: tuple[str, ...]
    seeds: int
    data: DataConfig
    train: TrainConfig
    evaluate: EvaluateConfig
    refined: Refinement


def cells(config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """One cell per model and seed, and the picture of the task."""
    flash = build(FlashConfig, config)
    if flash.seeds < 1:
        raise ConfigError(f"seeds: found {flash.seeds}, wanted at least 1")
    common = {"experiment": NAME, "variant": variant, "quick": quick}
    found = [Cell(NAME, "task", {**common, "model": "task", "gaps": list(PICTURE_GAPS)}, quick)]
    for model in flash.models:
        if model not in (*MODELS, *BASELINES) and ":" not in model:
            known = ", ".join((*MODELS, *BASELINES))
            raise ConfigError(f"models: found {model!r}, wanted one of {known}, or your own as package:function")
        training = replace(flash.train, **asdict(flash.refined)) if model == "tides-refined" else flash.train
        if training.skip_penalty and model.removesuffix("-refined") not in CORES:
            raise ConfigError(f"train.skip_penalty: {model} has no feed-through to penalise, wanted 0")
        resolved = {
            **common,
            "model": model,
            "data": asdict(flash.data),
            "train": asdict(training),
            "evaluate": asdict(flash.evaluate),
        }
        if ":" in model:
            # Another version of somebody's own model is another cell.
            resolved["source"] = source_hash(model)
        for seed in range(flash.seeds):
            config_of_cell = _jsonable({**resolved, "seed": seed})
            found.append(Cell(NAME, f"{variant}-{model}-seed{seed}", config_of_cell, quick, f"{variant} {model}"))
    return found


def run(cell: Cell, context: Context) -> Record:
    """One cell alone."""
    if cell.config["model"] == "task":
        return _picture(cell)
    return run_stack([cell], context)[0]


def run_stack(cells: Sequence[Cell], context: Context) -> list[Record]:
    """Train and evaluate the seeds of one model side by side."""
    if context.device != "cpu":
        raise ConfigError(f"--device {context.device}: {NAME} is computed on the CPU; say --device cpu")
    start = time.perf_counter()
    shared, seeds = cells[0].config, [cell.config["seed"] for cell in cells]
    data, training = build(DataConfig, shared["data"]), build(TrainConfig, shared["train"])
    evaluation = build(EvaluateConfig, shared["evaluate"])

    model = build_model(shared["model"], seeds)
    train(model, data, training, seeds, context.progress)
    results: dict[str, torch.Tensor] = {
        "relative_error": relative_errors(model, evaluation, data, seeds),
        "response_decay": response_decays(model, evaluation.gaps, len(seeds)),
    }
    if isinstance(model, FlashCore | FlashMamba):
        results["mode_decay"] = mode_decays(model.rates, evaluation.gaps, len(seeds))
    counts = {
        "parameters": model.parameter_count(),
        "published_parameters": model.parameter_count(published=True),
    }
    seconds = (time.perf_counter() - start) / len(cells)
    return [
        cell.record({**counts, **{name: value[row].tolist() for name, value in results.items()}}, seconds)
        for row, cell in enumerate(cells)
    ]


def build_model(name: str, seeds: Sequence[int]) -> "FlashCore | FlashMamba | FlashBaseline | FlashCustom":
    """A stack of models, one per seed; `package:function` builds somebody's own."""
    generators = [generator(seed, "start") for seed in seeds]
    if ":" in name:
        return FlashCustom(name, generators)
    if name == "mamba":
        return FlashMamba(generators)
    if name in MIXES:
        return FlashBaseline(name, generators)
    return FlashCore(CORES[name.removesuffix("-refined")], generators)


def _picture(cell: Cell) -> Record:
    """One easily read sequence under several gaps: three wide zones, each with a flash, and four flashes apart."""
    drawn = fading_flash.sample(4000, generator=torch.Generator().manual_seed(0))
    flashes, zones = drawn.x[..., 0], drawn.zones
    inside = torch.stack([zones == rate for rate in range(3)])
    wide = inside.sum(-1).amin(0) >= 9
    lit = (inside * flashes).sum(-1).amin(0) >= 1
    apart = flashes.unfold(1, 6, 1).sum(-1).amax(1) <= 1
    clear = flashes[:, -4:].sum(1) == 0
    best = int((wide & lit & apart & clear & (flashes.sum(1) == 4)).nonzero()[0])
    flash, zone = flashes[best : best + 1], zones[best : best + 1]
    glows = [fading_flash.glow(flash, zone, torch.full((1, 1), gap)) for gap in cell.config["gaps"]]
    results = {
        "flashes": flash[0].tolist(),
        "zones": zone[0].tolist(),
        "rates": list(fading_flash.RATES),
        "glow": [glow[0, :, 0].tolist() for glow in glows],
    }
    return cell.record(results, 0.0)


def _jsonable(config: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as they come back from JSON, so that a cell's id survives the disk."""
    return {
        key: _jsonable(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value
        for key, value in config.items()
    }
