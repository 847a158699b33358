"""A worker of a sweep with an objective that costs nothing: `python -m tests.experiments.sweep_worker …`.

Every finished trial leaves a line `slot value` in the log; the worker called `victim` waits inside its first trial
until it is killed.
"""

import sys
import time
from pathlib import Path
from typing import Any

from tides.experiments.sweep_study import open_study, settle, slot_of


def study(storage: str, name: str = "easy", *, seed: int = 0, sampler: Any = "random") -> Any:
    return open_study(
        storage,
        name,
        direction="minimise",
        identity={"objective": "parabola"},
        sampler=sampler,
        seed=seed,
        prune=False,
        heartbeat=1,
    )


def parabola(trial: Any) -> float:
    x = trial.suggest_float("x", -1.0, 1.0)
    return float((x - 0.25) ** 2 + trial.suggest_int("n", 0, 5))


def main(storage: str, trials: int, log: Path, role: str) -> None:
    def objective(trial: Any) -> float:
        value = parabola(trial)
        if role == "victim":
            log.with_suffix(".caught").write_text(str(slot_of(trial)))
            time.sleep(600)
        time.sleep(0.05)
        with log.open("a") as file:
            file.write(f"{slot_of(trial)} {value!r}\n")
        return value

    settle(study(storage), objective, trials, poll=0.1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
