"""Where the states of many streams live: one row per stream, in tensors of the model or in the compiled step."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tides.errors import BackendUnavailable, ConfigError
from tides.nn import Backbone, CompiledStep, Forecaster, SequenceClassifier, SequenceRegressor
from tides.streaming.leaves import Leaves, ModelState, from_leaves, to_leaves

StreamModel = Backbone | Forecaster | SequenceClassifier | SequenceRegressor
Rows = NDArray[np.int64]
Numbers = NDArray[Any]
Mask = NDArray[np.bool_]
# Rows that go through the model together; more would not fit the processor's caches.
_CHUNK = 1024


class Bank(ABC):
    """States of `capacity` streams.

    Rows name streams; values (n, d), gaps (n) and static features (n, s) come with them, in the model's precision
    `real`, and zeros where nothing was observed.
    """

    def __init__(self, model: StreamModel) -> None:
        self.model = model
        self.backbone = model if isinstance(model, Backbone) else model.backbone
        self.real = np.float32 if self.backbone.calibration.shift.dtype == torch.float32 else np.float64
        with torch.no_grad():
            self.fresh: Leaves = {name: leaf.clone() for name, leaf in to_leaves(model.init_state(1)).items()}

    @abstractmethod
    def step(self, rows: Rows, x: Numbers, observed: Mask, gaps: Numbers, static: Numbers | None) -> Numbers | None:
        """One observation of each row (no row twice); the answers, or None if `peek` gives them."""

    @abstractmethod
    def read(self, row: int, x: Numbers, observed: Mask, gaps: Numbers, static: Numbers | None) -> Numbers | None:
        """Many observations (l, d) of one row, whose static features are (1, s); the answer (1, …) after the last."""

    @abstractmethod
    def peek(self, rows: Rows, elapsed: Numbers, static: Numbers | None) -> Numbers:
        """Answers at `elapsed` (n,) after each row's last observation; a forecaster's (n, q, c) for elapsed (n, q)."""

    @abstractmethod
    def get(self, rows: Any) -> Leaves:
        """A copy of the states of some rows."""

    @abstractmethod
    def put(self, rows: Any, leaves: Leaves) -> None:
        """Replace the states of these rows."""

    @abstractmethod
    def reset(self, rows: Rows) -> None:
        """Put these streams back to the state before any observation."""

    @abstractmethod
    def grow(self, capacity: int) -> None:
        """Add empty rows."""


class ModuleBank(Bank):
    """Steps with the model's own `step`: every model."""

    def __init__(self, model: StreamModel, capacity: int) -> None:
        super().__init__(model)
        self._leaves = {name: leaf.expand(capacity, *leaf.shape[1:]).clone() for name, leaf in self.fresh.items()}

    @torch.no_grad()
    def step(self, rows: Rows, x: Numbers, observed: Mask, gaps: Numbers, static: Numbers | None) -> Numbers | None:
        answers = []
        for begin in range(0, len(rows), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            state: Any = from_leaves(self.get(rows[part]))
            stepper = self.backbone if isinstance(self.model, Forecaster) else self.model
            answer, state = stepper.step(
                torch.from_numpy(x[part]),
                torch.from_numpy(gaps[part]),
                state,
                observed=self._seen(observed[part]),
                **_named(static, part),
            )
            self.put(rows[part], to_leaves(state))
            answers.append(answer.numpy())
        return None if isinstance(self.model, Forecaster) else np.concatenate(answers)

    @torch.no_grad()
    def read(self, row: int, x: Numbers, observed: Mask, gaps: Numbers, static: Numbers | None) -> Numbers | None:
        rows = np.array([row])
        state: Any = from_leaves(self.get(rows))
        series = torch.from_numpy(x[None]), torch.from_numpy(gaps[None])
        seen = self._seen(observed[None])
        answer: Numbers | None = None
        after: ModelState
        if isinstance(self.model, (Backbone, Forecaster)):
            features, after = self.backbone(*series, observed=seen, state=state)
            answer = features[:, -1].numpy() if isinstance(self.model, Backbone) else None
        else:
            found, after = self.model.read(*series, state, observed=seen, **_named(static))
            answer = found.numpy()
        self.put(rows, to_leaves(after))
        return answer

    @torch.no_grad()
    def peek(self, rows: Rows, elapsed: Numbers, static: Numbers | None) -> Numbers:
        state: Any = from_leaves(self.get(rows))
        found: Numbers = self.model.peek(state, torch.from_numpy(elapsed), **_named(static)).numpy()
        return found

    def _seen(self, observed: Mask) -> Any:
        """The mask to pass to the model; None if a model without mask channels gets complete rows."""
        is_needed = self.backbone.config.mask_channels is True or not observed.all()
        return torch.from_numpy(observed) if is_needed else None

    def get(self, rows: Any) -> Leaves:
        return {name: leaf[rows] for name, leaf in self._leaves.items()}

    def put(self, rows: Any, leaves: Leaves) -> None:
        for name, leaf in self._leaves.items():
            leaf[rows] = leaves[name]

    def reset(self, rows: Rows) -> None:
        self.put(rows, self.fresh)

    def grow(self, capacity: int) -> None:
        for name, leaf in self._leaves.items():
            more = self.fresh[name].expand(capacity - len(leaf), *leaf.shape[1:])
            self._leaves[name] = torch.cat([leaf, more])


class CompiledBank(Bank):
    """Steps with `CompiledStep`: microseconds for each observation. Needs the extra `speed`."""

    def __init__(self, model: StreamModel, capacity: int) -> None:
        super().__init__(model)
        self._compiled = CompiledStep(model, capacity)

    def step(self, rows: Rows, x: Numbers, observed: Mask, gaps: Numbers, static: Numbers | None) -> Numbers | None:
        found = self._compiled.step_rows(rows, x, gaps, observed, static=static).numpy()
        return None if isinstance(self.model, Forecaster) else found

    def read(self, row: int, x: Numbers, observed: Mask, gaps: Numbers, static: Numbers | None) -> Numbers | None:
        found = self._compiled.read_row(row, x, gaps, observed, static=None if static is None else static[0]).numpy()
        return None if isinstance(self.model, Forecaster) else found[-1:]

    def peek(self, rows: Rows, elapsed: Numbers, static: Numbers | None) -> Numbers:
        if elapsed.ndim == 1:
            return self._compiled.peek_rows(rows, elapsed, static=static).numpy()
        each = np.repeat(rows, elapsed.shape[1])
        return self._compiled.peek_rows(each, elapsed.reshape(-1)).numpy().reshape(*elapsed.shape, -1)

    def get(self, rows: Any) -> Leaves:
        return to_leaves(self._compiled.get_state(rows))

    def put(self, rows: Any, leaves: Leaves) -> None:
        self._compiled.set_state(rows, from_leaves(leaves))

    def reset(self, rows: Rows) -> None:
        self._compiled.reset(rows)

    def grow(self, capacity: int) -> None:
        self._compiled.resize(capacity)


def _named(static: Numbers | None, part: slice = slice(None)) -> dict[str, Any]:
    """Static features as an argument of a model that takes them."""
    return {} if static is None else {"static": torch.from_numpy(static[part])}


def make_bank(model: StreamModel, capacity: int, compiled: bool | None) -> Bank:
    """The compiled step if `compiled` is true, or if it is None and the model has one; else the model's own `step`."""
    if compiled is False:
        return ModuleBank(model, capacity)
    try:
        return CompiledBank(model, capacity)
    except (BackendUnavailable, ConfigError):
        if compiled:
            raise
        return ModuleBank(model, capacity)
