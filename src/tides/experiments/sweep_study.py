"""Trials on a shared storage: who computes which configuration, and what happens when a worker dies.

A sweep of N trials has the slots 0 … N − 1. The draw for a slot depends only on the seed and the slot, so any number of
workers, started at any time, see the same configurations. A killed worker sends no more heartbeats; its slot is then
given to another. A slot is settled once: if two workers take the same slot at the same moment, the older trial wins.
"""

import hashlib
import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from tides.errors import ConfigError, Diverged, TidesError

try:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler, RandomSampler, TPESampler
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial, Trial, TrialState
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as missing:
    raise ConfigError('sweeps need optuna: pip install "tides-ssm[sweep]"') from missing

SamplerName = Literal["random", "tpe"]
_SLOT, _ERROR, _IDENTITY = "slot", "error", "identity"
_DIRECTIONS = {"minimise": StudyDirection.MINIMIZE, "maximise": StudyDirection.MAXIMIZE}
# Importances of fewer finished trials would be noise.
_FEWEST_FOR_IMPORTANCE = 4
# Trials that are watched to the end before the median may stop another one, and epochs that each may take in any case.
_UNPRUNED_TRIALS, _UNPRUNED_EPOCHS = 4, 3


Watch = Callable[[int, Sequence[int]], None]
"""Hears the number of settled slots, and the slots that are waited for."""


class _Surplus(Exception):
    """Another worker has the slot of this trial."""


def slot_of(trial: FrozenTrial | Trial) -> int:
    """Which of the N configurations a trial computes."""
    return int(trial.user_attrs.get(_SLOT, trial.number))


def is_settled(trial: FrozenTrial) -> bool:
    """Computed, pruned, or impossible; not killed, interrupted or surplus."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or _ERROR in trial.user_attrs


def error_of(trial: FrozenTrial) -> str | None:
    """Why a configuration could not be computed."""
    found: str | None = trial.user_attrs.get(_ERROR)
    return found


class SlotSampler(BaseSampler):
    """Draws for a slot what `seed` and the slot say; `tpe` also looks at the trials that are finished by then."""

    def __init__(self, kind: SamplerName, seed: int) -> None:
        self._kind, self._seed = kind, seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._guided(trial).infer_relative_search_space(study, trial) if self._kind == "tpe" else {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._guided(trial).sample_relative(study, trial, search_space) if search_space else {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        sampler = RandomSampler(seed=self._number(trial, param_name))
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def _guided(self, trial: FrozenTrial) -> TPESampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return TPESampler(multivariate=True, seed=self._number(trial, ""))

    def _number(self, trial: FrozenTrial, name: str) -> int:
        text = json.dumps([self._seed, slot_of(trial), name])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def open_study(
    storage: str,
    name: str,
    *,
    direction: str,
    identity: Mapping[str, Any],
    sampler: SamplerName,
    seed: int,
    prune: bool,
    heartbeat: int,
) -> optuna.Study:
    """The study of that name, made if it is not there; one of another sweep is refused."""
    # What stands before the @ may hold a password.
    place = storage.rpartition("@")[2]
    if not storage.startswith(("sqlite:///", "postgresql://")):
        raise ConfigError(f"--storage {place}: wanted sqlite:///file.db or postgresql://user@host/name")
    logging.getLogger("optuna").setLevel(logging.ERROR)
    opened = _open_storage(storage, place, heartbeat)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=_UNPRUNED_TRIALS, n_warmup_steps=_UNPRUNED_EPOCHS)
    study = optuna.create_study(
        storage=opened,
        study_name=name,
        direction=_DIRECTIONS[direction],
        sampler=SlotSampler(sampler, seed),
        pruner=pruner if prune else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    wanted = json.dumps(identity, sort_keys=True)
    found = study.user_attrs.get(_IDENTITY)
    if found is None:
        study.set_user_attr(_IDENTITY, wanted)
    elif found != wanted:
        raise ConfigError(
            f"--storage {place}: the study {name!r} there has another space, setting, seed or data; "
            "choose another --storage, or --out, or give your file another name"
        )
    return study


def _open_storage(storage: str, place: str, heartbeat: int) -> optuna.storages.RDBStorage:
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if storage.startswith("sqlite") else {}
    # Named, because which driver stands for `postgresql` has changed between versions of SQLAlchemy.
    url = storage.replace("postgresql://", "postgresql+psycopg://", 1)
    for patience in (0.5, 1.0, 0.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                return optuna.storages.RDBStorage(
                    url, engine_kwargs=options, heartbeat_interval=heartbeat, grace_period=6 * heartbeat
                )
            except ImportError as error:
                raise ConfigError('PostgreSQL needs its driver: pip install "tides-ssm[postgresql]"') from error
            except SQLAlchemyError as error:
                # Workers that start at the same moment get into each other's way when they create the tables.
                if not patience:
                    raise ConfigError(f"--storage {place}: {_reason(error)}") from error
        time.sleep(patience)
    raise AssertionError("the last attempt returns or raises")


def _reason(error: SQLAlchemyError) -> str:
    """The first line of the database's own message."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


@contextmanager
def _answering() -> Iterator[None]:
    """A context for the database: if it is full, locked or gone, the worker ends, and the sweep can be continued."""
    try:
        yield
    except Exception as error:
        # Optuna wraps what the data base says, and then stumbles over it.
        said = next((cause for cause in _causes(error) if isinstance(cause, SQLAlchemyError)), None)
        if said is None:
            raise
        raise TidesError(f"--storage: {_reason(said)}; repeat the command to continue") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def settle(
    study: optuna.Study,
    objective: Callable[[Trial], float],
    trials: int,
    *,
    watch: Watch = lambda settled, awaited: None,
    poll: float = 0.5,
) -> list[FrozenTrial]:
    """Work until all slots are settled, here or by other workers; returns their trials in the order of the slots.

    A study that has settled more slots than `trials` keeps them. `watch` is called with the number of settled slots
    and, when nothing is left to begin, with the slots that other workers still hold.
    """
    with _answering():
        return _settle(study, objective, trials, watch, poll)


def _settle(
    study: optuna.Study, objective: Callable[[Trial], float], trials: int, watch: Watch, poll: float
) -> list[FrozenTrial]:
    silent = _SilentTrials(study)
    trials = max(trials, 1 + max(map(slot_of, filter(is_settled, study.get_trials(deepcopy=False))), default=-1))

    def guarded(trial: Trial) -> float:
        slot = slot_of(trial)
        older = (t for t in study.get_trials(deepcopy=False) if slot_of(t) == slot and t.number < trial.number)
        if slot >= trials or any(is_settled(t) or not t.state.is_finished() for t in older):
            raise _Surplus
        try:
            value = objective(trial)
            if math.isnan(value):
                # Optuna would call it a failure that nobody has settled.
                raise Diverged("the score is not a number")
            return value
        except TidesError as error:
            trial.set_user_attr(_ERROR, str(error))
            raise

    while True:
        _fail_stale(study)
        known = study.get_trials(deepcopy=False)
        silent.fail_dead(known)
        done = settled_trials(known, trials)
        watch(len(done), [])
        if len(done) == trials:
            return done
        lost = _lost_slots(known, trials)
        for slot in lost:
            drawn = next((t.params for t in known if slot_of(t) == slot and t.params), {})
            study.enqueue_trial(drawn, user_attrs={_SLOT: slot})
        if lost or len(known) < trials or any(t.state is TrialState.WAITING for t in known):
            try:
                study.optimize(guarded, n_trials=1, catch=(TidesError, _Surplus))
            except (ValueError, AssertionError) as error:
                # This worker was silent for so long that its trial was taken from it; Optuna stumbles over that, too.
                if not any(str(cause).startswith("Cannot tell a") for cause in _causes(error)):
                    raise
        else:
            watch(len(done), sorted(set(range(trials)) - {slot_of(trial) for trial in done}))
            time.sleep(poll)


def settled_trials(known: Sequence[FrozenTrial], trials: int) -> list[FrozenTrial]:
    """One settled trial per slot below `trials`."""
    found: dict[int, FrozenTrial] = {}
    for trial in known:
        if is_settled(trial) and slot_of(trial) < trials:
            found.setdefault(slot_of(trial), trial)
    return [found[slot] for slot in sorted(found)]


def importances(finished: Sequence[FrozenTrial], direction: str) -> dict[str, float] | None:
    """Share of each parameter in what sets the better half of the finished trials apart from all of them (PED-ANOVA,
    which unlike fANOVA needs no scikit-learn); None where there are too few."""
    if len(finished) < _FEWEST_FOR_IMPORTANCE or len({trial.value for trial in finished}) < 2:
        return None
    counted = optuna.create_study(direction=_DIRECTIONS[direction])
    counted.add_trials(finished)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.5)
        return dict(optuna.importance.get_param_importances(counted, evaluator=evaluator))


def _lost_slots(known: Sequence[FrozenTrial], trials: int) -> list[int]:
    """Slots whose number was dealt and that nobody has settled or is working on."""
    held = {slot_of(trial) for trial in known if is_settled(trial) or not trial.state.is_finished()}
    return [slot for slot in range(min(trials, len(known))) if slot not in held]


class _SilentTrials:
    """Finds workers that were killed between the creation of a trial and its first heartbeat, which Optuna overlooks.

    They get as long as others, counted by the clock of the one who waits: those of two machines need not agree.
    """

    def __init__(self, study: optuna.Study) -> None:
        self._study, self._since = study, dict[int, float]()
        storage: Any = study._storage
        self._store: optuna.storages.RDBStorage = storage._backend

    def fail_dead(self, known: Sequence[FrozenTrial]) -> None:
        """Fail running trials that have stayed without a heartbeat for the grace period."""
        running = {trial._trial_id: trial.number for trial in known if trial.state is TrialState.RUNNING}
        heard = self._heard() if running else set()
        now, grace = time.monotonic(), self._store.grace_period or 0
        self._since = {number: self._since.get(number, now) for one, number in running.items() if one not in heard}
        for number, since in self._since.items():
            if now - since > grace:
                self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    def _heard(self) -> set[int]:
        with self._store.engine.connect() as connection:
            return set(connection.execute(text("SELECT trial_id FROM trial_heartbeats")).scalars())


def _fail_stale(study: optuna.Study) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)
