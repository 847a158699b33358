"""`StepProgram`: a packed model with its streams, which takes in observations and answers."""

from typing import Any

import numpy as np
import torch

from tides.functional.mixes import LowRankMix, Mix
from tides.functional.ssm import SSMState
from tides.functional.summary import statistics_size, sums_size
from tides.kernels.cpu import step_plan as plans
from tides.kernels.cpu.step_loops import find_problem, run_step
from tides.kernels.cpu.step_packing import pack, tail_width
from tides.kernels.cpu.step_peek import run_peek
from tides.kernels.cpu.threads import run_jobs, spans
from tides.kernels.stepping import StepModel

# Fewer streams than this are through before another thread has begun.
_ROWS_PER_THREAD = 64
_PROBLEMS = {plans.FINE: None, plans.BAD_VALUE: "x", plans.BAD_GAP: "gap", plans.BAD_ROW: "rows"}


class StepProgram:
    """States of many streams lie in rows; calls name the rows, and their results have a row for each.

    They return outputs and what is wrong with the input, by name. If anything is, no state has changed.
    """

    def __init__(self, model: StepModel, streams: int, dtype: torch.dtype) -> None:
        self.dtype = np.float32 if dtype == torch.float32 else np.float64
        self._program = pack(model, self.dtype)
        hidden, self._inputs = model.encoder_out[0].shape
        modes = model.blocks[0].ssm.frequency.bias.shape[-1]
        inner = max(tail_width(block.tail) for block in model.blocks)
        code = max(_code_size(mix) for block in model.blocks for mix in (block.ssm.drive, block.ssm.readout))
        self._features = hidden
        self._answers = hidden if model.head is None else model.head[0].shape[0]
        channels, known, kept = model.scaling[0].numel(), 0, 0
        if model.static is not None:
            known += model.static[0].numel()
        if model.summary is not None:
            known, kept = known + statistics_size(channels), sums_size(channels)
        widest = max(
            code * max(hidden, 2 * modes), inner, self._inputs, self._answers, len(model.blocks) * modes, hidden + known
        )
        self.states = np.zeros((streams, 6, len(model.blocks), modes), dtype=self.dtype)
        self.held = np.zeros((streams, hidden), dtype=self.dtype)
        # Sums of the pool, their weight and those of a summary in float64, so that long streams do not drift.
        self.sums = np.zeros((streams, hidden + 1 + kept))
        self._pooled = model.pool is not None
        self._scratch = (
            np.zeros((plans.SCRATCH_ROWS, widest), dtype=self.dtype),
            np.zeros((plans.PRECISE_ROWS, widest + code * code)),
        )
        self._scratches: list[tuple[Any, ...]] = []

    def step(self, rows: Any, x: Any, observed: Any, gaps: Any) -> tuple[Any, str | None]:
        """One observation of each of the streams `rows`, no row twice.

        x (n, channels + s) holds the static covariates behind the channels that `observed` (n, channels) is about.
        """
        parts = len(rows) // _ROWS_PER_THREAD
        parts = min(torch.get_num_threads(), parts) if parts > 1 else 1
        if parts < 2:
            return self.read(rows, x, observed, gaps)
        out = self._empty(len(rows), pooled=self._pooled)
        # Looked at before any thread has changed anything.
        row = self._scratch[0][0, : self._inputs]
        spec, weights = self._program.plan[-1], self._program.weights
        code = find_problem(spec, weights, x, observed, gaps, rows, len(self.held), row)
        if code == plans.FINE:
            self._share(run_step, (x, observed, gaps, rows), out, parts)
        return out, _PROBLEMS[code]

    def read(self, rows: Any, x: Any, observed: Any, gaps: Any) -> tuple[Any, str | None]:
        """Observations one after another, in which a row may occur several times."""
        out = self._empty(len(rows), pooled=self._pooled)
        code = run_step(*self._program, x, observed, gaps, rows, self.states, self.held, self.sums, out, *self._scratch)
        return out, _PROBLEMS[code]

    def peek(self, rows: Any, elapsed: Any, static: Any) -> tuple[Any, str | None]:
        """Answers of the streams `rows` at `elapsed` (n) after their last observations; a row may occur several
        times.
        """
        out = self._empty(len(rows), pooled=True)
        parts = max(1, min(torch.get_num_threads(), len(rows) // _ROWS_PER_THREAD))
        codes = self._share(run_peek, (elapsed, static, rows), out, parts)
        return out, _PROBLEMS[max(codes)]

    def _share(self, run: Any, arrays: tuple[Any, ...], out: Any, parts: int) -> list[int]:
        """A compiled call for so many parts of the rows, each on a thread of its own."""
        pieces = spans(len(out), parts)
        while len(self._scratches) < len(pieces):
            self._scratches.append(tuple(np.zeros_like(array) for array in self._scratch))
        codes = [plans.FINE] * len(pieces)

        def work(part: int) -> None:
            begin, end = pieces[part]
            given = (array[begin:end] for array in arrays)
            codes[part] = run(
                *self._program, *given, self.states, self.held, self.sums, out[begin:end], *self._scratches[part]
            )

        run_jobs(work, range(len(pieces)))
        return codes

    def _empty(self, rows: int, *, pooled: bool) -> Any:
        return np.empty((rows, self._answers if pooled else self._features), dtype=self.dtype)

    def resize(self, streams: int) -> None:
        """Room for another number of streams; those that stay keep their states, new ones are zero."""
        for name in ("states", "held", "sums"):
            before = getattr(self, name)
            after = np.zeros((streams, *before.shape[1:]), dtype=before.dtype)
            after[: len(before)] = before[:streams]
            setattr(self, name, after)

    def get_states(self, rows: Any = slice(None)) -> tuple[SSMState, ...]:
        """The streams' states as tensors of their own, one `SSMState` per block."""
        planes = torch.from_numpy(self.states[rows])
        return tuple(
            SSMState(*(torch.complex(planes[:, i, k], planes[:, i + 1, k]) for i in (0, 2, 4)))
            for k in range(planes.shape[2])
        )

    def set_states(self, states: tuple[SSMState, ...], rows: Any = slice(None)) -> None:
        for k, state in enumerate(states):
            for i, part in zip((0, 2, 4), state, strict=True):
                pairs = torch.view_as_real(part.detach().resolve_conj()).cpu().numpy()
                self.states[rows, i, k], self.states[rows, i + 1, k] = pairs[..., 0], pairs[..., 1]


def _code_size(mix: Mix) -> int:
    return int(mix.up.shape[-1]) + 1 if isinstance(mix, LowRankMix) else 1
