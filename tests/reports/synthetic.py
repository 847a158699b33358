"""Records as experiments write them, with made-up results, for tests of the reports."""

from pathlib import Path
from typing import Any

import numpy as np

from tides.records import Record, cell_id, write_record

FIGURES = ("uea_figure", "physiome_figure", "random_drop_figure", "speed_figure", "ablations_figure", "anytime_figure")
"""Modules of `tides.reports` whose `draw` takes longer than all the rest of a report."""
ENVIRONMENT = {"python": "3.11.7", "tides-ssm": "0.1.0", "torch": "2.13.0", "numpy": "2.0", "cpus": "2"}


def record(experiment: str, config: dict[str, Any], results: dict[str, Any], *, quick: bool = False) -> Record:
    whole = {"experiment": experiment, "quick": quick, **config}
    finished = "2026-01-02T03:04:05+00:00"
    return Record(experiment, cell_id(whole), whole, results, 2.0, quick, ENVIRONMENT, finished)


def write(folder: Path, *records: Record) -> Path:
    for one in records:
        write_record(folder / "records" / f"{one.cell_id}.json", one)
    return folder


def uea_record(
    dataset: str, seed: int, correct: int, preset: str = "paper", protocol: str = "walker", cases: int = 85, **more: Any
) -> Record:
    config = {"dataset": dataset, "seed": seed, "preset": preset, "protocol": protocol, "model": "tides"}
    results = {
        "stopped": "patience",
        "epochs": 60,
        "best_epoch": 30,
        "validation": {"loss": 0.4, "accuracy": 0.8},
        "train_loss": 0.3,
        "test": {"accuracy": correct / cases, "correct": correct, "cases": cases},
        "parameters": 10_000,
        "published_parameters": 11_000,
        "missing": None,
        "device": "NVIDIA H200",
    }
    return record("uea", config, results, **more)


def drop_record(model: str, seed: int, level: float, slope: float = 0.0, dataset: str = "SCP1", **more: Any) -> Record:
    rates = [0.1, 0.5, 0.9]
    config = {
        "dataset": dataset,
        "seed": seed,
        "preset": "recommended",
        "protocol": "walker",
        "scaling": "zscore",
        "first_channel": True,
        "model": model,
        "train": {"epochs": 400},
        "drop": {"train": 0.5, "test": rates, "masks": 5},
    }
    noise = np.random.default_rng(seed).normal(0, 0.01, len(rates))
    accuracy = [float(level - slope * rate + part) for rate, part in zip(rates, noise, strict=True)]
    results = {
        "epochs": 400,
        "best_epoch": 100,
        "stopped": "epochs",
        "test": [
            {"rate": r, "accuracy": a, "cases": 85, "correct": [60] * 5} for r, a in zip(rates, accuracy, strict=True)
        ],
        "parameters": 28_000,
        "published_parameters": 29_605,
        "device": "NVIDIA H200",
    }
    return record("random-drop", config, results, **more)


def physiome_record(
    dataset: str, errors: list[float | None], variant: str = "paper", model: str = "tides", **more: Any
) -> Record:
    config = {"dataset": dataset, "variant": variant, "model": model, "folds": len(errors)}
    folds = [
        {
            "fold": fold,
            "test_mse": error,
            "val_mse": error,
            "best_epoch": 20,
            "epochs": 50,
            "steps": 500,
            "stopped": "patience" if error is not None else "diverged",
            "trivial_mse": {"zero": 1.0, "last": 1.9, "mean": 1.1},
        }
        for fold, error in enumerate(errors)
    ]
    results = {"folds": folds, "parameters": 20_000, "published_parameters": 21_000, "device": "NVIDIA H200"}
    return record("physiome", config, results, **more)


def speed_record(backend: str, length: int, seconds: float, memory: float, **more: Any) -> Record:
    config = {
        "workload": "paper-100k",
        "backend": backend,
        "length": length,
        "batch": 8,
        "device": "cuda",
        "threads": 1,
        "hardware": {"gpu": "NVIDIA H200", "cpu": "any"},
    }
    step = {"median": seconds, "mean": seconds, "std": seconds / 10, "repeats": 20}
    graph = {"status": "ok", "step": {"median": seconds / 10, "mean": seconds / 10}} if backend == "triton" else None
    results = {"status": "ok", "step": step, "memory": {"peak": memory}, "graph": graph}
    return record("efficiency", config, results, **more)
