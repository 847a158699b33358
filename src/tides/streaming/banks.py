"""Where the states of many streams live: one row per stream, in tensors of the model or in the compiled step."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tides.errors import BackendUnavailable, ConfigError
from tides.nn import (
    Backbone,
    BackboneState,
    CompiledStep,
    Forecaster,
    PooledState,
    SequenceClassifier,
    SequenceRegressor,
)
from tides.streaming.leaves import Leaves, ModelState, from_leaves, to_leaves

StreamModel = Backbone | Forecaster | SequenceClassifier | SequenceRegressor
Rows = NDArray[np.int64]
# Rows that go through the model together; more would not fit the processor's caches.
_CHUNK = 1024


class Bank(ABC):
    """States of `capacity` streams. Rows name streams; values (n, d), gaps and static features come with them."""

    def __init__(self, model: StreamModel) -> None:
        self.model = model
        self.backbone = model if isinstance(model, Backbone) else model.backbone
        self.dtype = self.backbone.calibration.shift.dtype
        with torch.no_grad():
            self.fresh: Leaves = {name: leaf.clone() for name, leaf in to_leaves(model.init_state(1)).items()}

    @abstractmethod
    def step(self, rows: Rows, x: Tensor, observed: Tensor, gaps: Tensor, static: Tensor | None) -> Tensor | None:
        """One observation of each row (no row twice); the answers, or None if `peek` gives them."""

    @abstractmethod
    def read(self, row: int, x: Tensor, observed: Tensor, gaps: Tensor, static: Tensor | None) -> Tensor | None:
        """Many observations (l, d) of one row; the answer (1, …) after the last."""

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

    def peek(self, rows: Rows, elapsed: Tensor, static: Tensor | None) -> Tensor:
        """Answers at `elapsed` (n,) after each row's last observation; a forecaster's (n, q, c) for elapsed (n, q)."""
        state: Any = from_leaves(self.get(rows))
        if isinstance(self.model, (Backbone, Forecaster)):
            return self.model.peek(state, elapsed)
        return self.model.peek(state, elapsed, static=static)


class ModuleBank(Bank):
    """Steps with the model's own `step`: every model, any precision."""

    def __init__(self, model: StreamModel, capacity: int) -> None:
        super().__init__(model)
        self._leaves = {name: leaf.expand(capacity, *leaf.shape[1:]).clone() for name, leaf in self.fresh.items()}

    def step(self, rows: Rows, x: Tensor, observed: Tensor, gaps: Tensor, static: Tensor | None) -> Tensor | None:
        answers = []
        for begin in range(0, len(rows), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            state: Any = from_leaves(self.get(rows[part]))
            given = {} if static is None else {"static": static[part]}
            stepper = self.backbone if isinstance(self.model, Forecaster) else self.model
            answer, state = stepper.step(x[part], gaps[part], state, observed=self._seen(observed[part]), **given)
            self.put(rows[part], to_leaves(state))
            answers.append(answer)
        return None if isinstance(self.model, Forecaster) else torch.cat(answers)

    def read(self, row: int, x: Tensor, observed: Tensor, gaps: Tensor, static: Tensor | None) -> Tensor | None:
        rows = np.array([row])
        state: Any = from_leaves(self.get(rows))
        pieces: dict[str, Any] = {"observed": self._seen(observed[None]), "state": state}
        answer: Tensor | None = None
        after: ModelState
        if isinstance(self.model, (Backbone, Forecaster)):
            features, after = self.backbone(x[None], gaps[None], **pieces)
            answer = features[:, -1] if isinstance(self.model, Backbone) else None
        else:
            answer, after = self.model.read(x[None], gaps[None], static=static, **pieces)
        self.put(rows, to_leaves(after))
        return answer

    def _seen(self, observed: Tensor) -> Tensor | None:
        """The mask to pass to the model; None if a model without mask channels gets complete rows."""
        return observed if self.backbone.config.mask_channels is True or not bool(observed.all()) else None

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
        if isinstance(model, Forecaster) and model.query_mode == "steps":
            raise BackendUnavailable("compiled step: a forecaster with query_mode='steps' is not compiled")
        self._compiled = CompiledStep(self.backbone if isinstance(model, Forecaster) else model, capacity)

    def step(self, rows: Rows, x: Tensor, observed: Tensor, gaps: Tensor, static: Tensor | None) -> Tensor | None:
        answer = self._compiled.step_rows(rows, x, gaps, observed)
        return None if isinstance(self.model, Forecaster) else answer

    def read(self, row: int, x: Tensor, observed: Tensor, gaps: Tensor, static: Tensor | None) -> Tensor | None:
        rows, answer = np.array([row]), None
        for k in range(len(x)):
            answer = self.step(rows, x[k : k + 1], observed[k : k + 1], gaps[k : k + 1], static)
        return answer

    def get(self, rows: Any) -> Leaves:
        return to_leaves(self._compiled.get_state(rows))

    def put(self, rows: Any, leaves: Leaves) -> None:
        self._compiled.set_state(rows, from_leaves(leaves))

    def reset(self, rows: Rows) -> None:
        self._compiled.reset(rows)

    def grow(self, capacity: int) -> None:
        self._compiled.resize(capacity)


class CompiledHeadBank(CompiledBank):
    """A head with static covariates: its backbone is compiled; pooling and the linear map are a few small products."""

    def __init__(self, model: SequenceClassifier | SequenceRegressor, capacity: int) -> None:
        Bank.__init__(self, model)
        self.head = model
        self._compiled = CompiledStep(self.backbone, capacity)
        self._pool = {name: leaf.repeat(capacity, *[1] * (leaf.ndim - 1)) for name, leaf in self._parts(self.fresh)}

    def step(self, rows: Rows, x: Tensor, observed: Tensor, gaps: Tensor, static: Tensor | None) -> Tensor | None:
        features = self._compiled.step_rows(rows, x, gaps, observed).unsqueeze(1)
        # The pool is continued without its backbone, whose state is in the compiled step.
        nothing = BackboneState((), self.fresh["held"])
        pool = PooledState(nothing, **{name: leaf[rows] for name, leaf in self._pool.items()})
        answer, pool = self.head.conclude(
            features, gaps.unsqueeze(1), pool, x.unsqueeze(1), observed.unsqueeze(1), static=static
        )
        for name, leaf in self._pool.items():
            leaf[rows] = getattr(pool, name)
        return answer

    def _parts(self, leaves: Leaves) -> list[tuple[str, Tensor]]:
        """What of a state is the head's own."""
        return [(name, leaf) for name, leaf in leaves.items() if name in ("total", "weight", "summary")]

    def get(self, rows: Any) -> Leaves:
        return super().get(rows) | {name: leaf[rows].clone() for name, leaf in self._pool.items()}

    def put(self, rows: Any, leaves: Leaves) -> None:
        super().put(rows, {name: leaf for name, leaf in leaves.items() if name not in self._pool})
        for name, leaf in self._pool.items():
            leaf[rows] = leaves[name]

    def reset(self, rows: Rows) -> None:
        super().reset(rows)
        for leaf in self._pool.values():
            leaf[rows] = 0.0

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        for name, leaf in self._pool.items():
            self._pool[name] = torch.cat([leaf, leaf.new_zeros(capacity - len(leaf), *leaf.shape[1:])])


def make_bank(model: StreamModel, capacity: int, compiled: bool | None) -> Bank:
    """The compiled step if `compiled` is true, or if it is None and the model has one; else the model's own `step`."""
    if compiled is False:
        return ModuleBank(model, capacity)
    try:
        if isinstance(model, (SequenceClassifier, SequenceRegressor)) and model.static_size:
            return CompiledHeadBank(model, capacity)
        return CompiledBank(model, capacity)
    except (BackendUnavailable, ConfigError):
        if compiled:
            raise
        return ModuleBank(model, capacity)
