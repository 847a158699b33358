"""Runs shared by several processes: `python -m tests.training.together ROOT JOBS`, JOBS a JSON list of `Job`s.

A parent that has imported torch forks the processes of each job with the variables that torchrun would set, which makes
them cheap. Every process writes what it ended with to ROOT/<job>/<rank>.json.
"""

import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tides.data import IrregularDataset, IrregularSeries, systems
from tides.errors import TidesError
from tides.nn import Forecaster, SequenceClassifier, TIDESConfig
from tides.training import Classification, Forecasting, Task, TrainConfig, evaluate, fit

# 13 series in batches of 4: the last batch holds one, so that one of two processes has nothing to do.
CONFIG = TrainConfig(
    epochs=6,
    batch_size=4,
    lr=3e-3,
    warmup_epochs=1,
    clip_norm=0.5,
    monitor="accuracy",
    patience=1,
    checkpoint_seconds=0,
)


@dataclass(frozen=True)
class Job:
    """One run. At training step `step` (counted from 0) the process `rank`, or every one, does `deed`."""

    name: str
    size: int
    folder: str | None = None
    deed: str = "nothing"
    """`nothing`, `stop` (leave the run), `nan` (a loss that is none), `fail` (an error of its own) or `sleep`."""
    step: int = 0
    rank: int | None = None
    dropout: float = 0.0
    patience: float = 60.0
    """How long a process waits for the others, in seconds."""
    seed: int = 1
    """Of the weights to begin with; plus the rank with `apart`."""
    apart: bool = False
    forecast: bool = False
    """Questions at other times, asked as steps of the sequence, instead of classes."""
    weighed: bool = False
    """Series have weights, of which some are zero."""
    disagree: bool = False
    """Later processes are given another learning rate."""


class Stopped(BaseException):
    """The end of a process that was told to stop."""


class Disturbed(Classification):
    """Weighted classes, and a deed at one training step."""

    job: Job
    steps: int

    def predict(self, model: nn.Module, batch: Any) -> Tensor:
        output = super().predict(model, batch)
        if not model.training:
            return output
        Disturbed.steps += 1
        mine = self.job.rank is None or self.job.rank == int(os.environ.get("RANK", "0"))
        if Disturbed.steps != self.job.step + 1 or not mine:
            return output
        if self.job.deed == "stop":
            raise Stopped
        if self.job.deed == "fail":
            raise ZeroDivisionError("this machine is on fire")
        if self.job.deed == "sleep":
            time.sleep(2 * self.job.patience)
        return output * float("nan") if self.job.deed == "nan" else output


def series(n: int, seed: int) -> IrregularDataset:
    """Very different lengths, missing values, three classes."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        length, label = int(rng.integers(3, 25)), i % 3
        values = rng.normal(size=(length, 2)) + label
        values[rng.random((length, 2)) < 0.2] = np.nan
        made.append(IrregularSeries(values, np.cumsum(rng.exponential(size=length)), label=label, id=i))
    return IrregularDataset(made)


DATA = series(13, 0), series(9, 1)


def weighed(data: IrregularDataset) -> IrregularDataset:
    """Every fourth one counts for nothing, the others for 1, 2 and 3."""
    return IrregularDataset([one.replace(weight=float(i % 4)) for i, one in enumerate(data)])


def build(dropout: float, forecast: bool = False) -> nn.Module:
    config = TIDESConfig(
        input_size=2, hidden_size=6, state_size=4, depth=2, rank=2, dropout=dropout, mask_channels=True
    )
    model = Forecaster(config, channels=2) if forecast else SequenceClassifier(config, classes=3)
    return model.double()


def problem(job: Job) -> tuple[Task, tuple[IrregularDataset, IrregularDataset]]:
    if job.forecast:
        windows = systems.forecasting("calcium", n=22, points=14)
        return Forecasting(), (windows[:13], windows[13:])
    return Disturbed((0.5, 1.0, 2.0)), (weighed(DATA[0]), weighed(DATA[1])) if job.weighed else DATA


def work(job: Job, root: Path, rank: int) -> None:
    """What one process does."""
    if job.size > 1:
        from tides.training import processes

        processes.PATIENCE = timedelta(seconds=job.patience)
    Disturbed.job, Disturbed.steps = job, 0
    torch.manual_seed(job.seed + rank * job.apart)
    model, (task, data) = build(job.dropout, job.forecast), problem(job)
    folder = None if job.folder is None else root / job.folder
    found: dict[str, Any] = {}
    try:
        monitor, lr = "mse" if job.forecast else "accuracy", CONFIG.lr * (2 if job.disagree and rank else 1)
        config = CONFIG.replace(monitor=monitor, lr=lr)
        result = fit(model, task, data, config, folder=folder, progress=False)
        found |= {"history": result.history, "stopped": result.stopped, "best_epoch": result.best_epoch}
    except Stopped:
        pass
    except TidesError as error:
        found |= {"error": [type(error).__name__, str(error)]}
    found["weights"] = torch.cat([x.double().flatten() for x in model.state_dict().values()]).tolist()
    (root / job.name).mkdir(exist_ok=True)
    (root / job.name / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def start(job: Job, root: Path) -> list[int]:
    """Fork the job's processes and wait for them; their exit codes. torchrun would end the others where one fails;
    here they have to notice by themselves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(job.size):
        child = os.fork()
        if child == 0:
            places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.size, "LOCAL_WORLD_SIZE": job.size}
            launch = {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os.environ |= {name: str(value) for name, value in (places | launch).items()}
            code = 1
            try:
                work(job, root, rank)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main(root: Path, jobs: list[Job]) -> None:
    # What torch sets up on first use is set up here, so that children spend their time on training.
    evaluate(build(0.0), Classification(), DATA[1], resamples=1)
    import accelerate.utils  # noqa: F401

    codes = {}
    for job in jobs:
        begin = time.perf_counter()
        codes[job.name] = start(job, root)
        print(job.name, f"{time.perf_counter() - begin:.2f} s", file=sys.stderr)
    print(json.dumps(codes))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), [Job(**fields) for fields in json.loads(sys.argv[2])])
