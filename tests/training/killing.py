"""Runs that are killed and continued: `python -m tests.training.killing FOLDER KILLS FAULTS`.

A parent that has imported torch forks children which train; forking makes a child cheap, `kill -9` makes its death
real. FAULTS, taken in turn, say where a child dies: `time` (the parent kills it a while after some more steps),
`before-rename`, `after-rename` (around the n-th `os.replace`) or `in-tensors` (with the n-th tensor file half written).
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tides.data import systems
from tides.nn import SequenceClassifier, TIDESConfig
from tides.training import Classification, TrainConfig, checkpoint, evaluate, fit

CONFIG = TrainConfig(epochs=5, batch_size=8, lr=1e-2, warmup_epochs=1, clip_norm=1.0, patience=4, checkpoint_seconds=0)


DATA = systems.classification(n=28, points=8)


def build() -> SequenceClassifier:
    torch.manual_seed(1)
    config = TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1, rank=2, dropout=0.2, mask_channels=True)
    return SequenceClassifier(config, classes=3)


def train(folder: Path) -> None:
    """A run with every kind of state: dropout, batch statistics, moments, a schedule, early stopping."""
    model = build()
    fit(model, Classification(), (DATA[:20], DATA[20:]), CONFIG, folder=folder, progress=False)
    save_file(model.state_dict(), folder / "final.weights")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def set_fault(fault: str, moment: int) -> None:
    """Make this process die at its n-th rename or tensor file."""
    calls = 0
    replace, write = os.replace, checkpoint.save_file

    def counted_replace(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == moment and fault == "before-rename":
            die()
        replace(*arguments)
        if calls == moment:
            die()

    def counted_save(tensors: Any, path: Path) -> None:
        nonlocal calls
        calls += 1
        write(tensors, path)
        if calls == moment:
            os.truncate(path, os.path.getsize(path) // 2)
            die()

    if fault == "in-tensors":
        checkpoint.save_file = counted_save
    elif fault in ("before-rename", "after-rename"):
        os.replace = counted_replace


def spawn(folder: Path, fault: str, moment: int) -> int:
    child = os.fork()
    if child == 0:
        set_fault(fault, moment)
        train(folder)
        os._exit(0)
    return child


def step_of(folder: Path) -> int | None:
    """The step at which a run would continue."""
    pointer = folder / "checkpoint.json"
    return int(json.loads(pointer.read_text())["state"]["step"]) if pointer.exists() else None


def wait_for(child: int, folder: Path, step: int) -> None:
    """Until a run has kept so many steps, or has ended."""
    while (step_of(folder) or 0) < step and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.001)


def main(root: Path, kills: int, faults: list[str]) -> None:
    # What torch sets up on first use is set up here, so that children spend their time on training.
    evaluate(build(), Classification(), DATA, resamples=1)
    reference = root / "whole"
    begin = time.perf_counter()
    os.waitpid(spawn(reference, "none", 0), 0)
    whole = time.perf_counter() - begin
    rng, done, runs, positions = random.Random(3), 0, 0, []
    while done < kills:
        folder = root / f"run-{runs}"
        killed, here = True, 0
        while killed:
            # Once enough have died, the last one is left to finish.
            last = done >= kills
            fault = "none" if last else faults[done % len(faults)]
            moment = rng.randint(1, 12)
            child = spawn(folder, fault, moment)
            if fault == "time":
                # Some die before they have gone on at all; a busy machine only makes the others take longer.
                wait_for(child, folder, (step_of(folder) or 0) + moment // 3)
                time.sleep(rng.uniform(0, 0.05 * whole))
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            killed = os.WIFSIGNALED(status)
            if not killed and os.waitstatus_to_exitcode(status) != 0:
                raise SystemExit("a run failed")
            if killed:
                done, here = done + 1, here + 1
                positions.append(step_of(folder))
        runs += 1
        same_metrics = (folder / "metrics.jsonl").read_bytes() == (reference / "metrics.jsonl").read_bytes()
        ours, theirs = (load_file(place / "final.weights") for place in (folder, reference))
        same_weights = ours.keys() == theirs.keys() and all(
            ours[name].numpy().tobytes() == theirs[name].numpy().tobytes() for name in ours
        )
        left = sorted(path.name for path in folder.iterdir() if path.suffix in (".partial", ".tmp", ".safetensors"))
        if not (same_metrics and same_weights and len(left) == 1):
            raise SystemExit(f"run {runs - 1} after {here} kills: {same_metrics=} {same_weights=} {left=}")
        shutil.rmtree(folder)
    print(json.dumps({"kills": done, "runs": runs, "positions": positions, "seconds_per_run": whole}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","))
