"""Checkpoints: tensors in safetensors, everything else in JSON, never half written.

`checkpoint.json` is the truth: it names its tensor file and is replaced in one rename. A new tensor file is written
under a new name first and the old one removed last, so that a process killed at any moment leaves a complete pair.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tides.atomic import remove_leftovers
from tides.errors import ConfigError, DataError, TidesError
from tides.records import write_json

FORMAT = 1
_POINTER, _TENSORS = "checkpoint.json", "checkpoint-{serial}.safetensors"
# Parts of an identity that are digests; showing their values would not help.
_CONTENTS = {
    "model": "another model",
    "train": "other training series",
    "validation": "other validation series",
    "contents": "other series, or of models with other settings",
    "series": "other series",
    "batches": "other series",
}


class State(Protocol):
    """Everything about a run that is not a tensor."""

    def to_dict(self) -> dict[str, Any]: ...
    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self: ...


S = TypeVar("S", bound=State)


class Checkpoint(NamedTuple, Generic[S]):
    """A run's state and its tensors (model, best weights, optimiser, random generators)."""

    state: S
    tensors: dict[str, Tensor]


class CheckpointFolder(Generic[S]):
    """The newest checkpoint of one run. `identity` says which run it is; the folder of another run is refused."""

    def __init__(self, folder: str | Path, identity: Mapping[str, Any], kind: type[S]) -> None:
        self.folder, self._kind = Path(folder), kind
        self.identity = json.loads(json.dumps(identity))
        self._serial = 0

    @property
    def path(self) -> Path:
        """The file that a message can point to."""
        return self.folder / _POINTER

    def save(self, state: S, tensors: Mapping[str, Tensor]) -> None:
        """Replace the checkpoint."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = _TENSORS.format(serial=self._serial + 1)
        try:
            # Copies, because a model may use one tensor under several names and the file may not.
            copies = {key: x.detach().to("cpu", copy=True).contiguous() for key, x in tensors.items()}
            save_file(copies, self.folder / name)
        except SafetensorError as error:
            (self.folder / name).unlink(missing_ok=True)
            raise TidesError(
                f"{self.folder / name}: cannot be written: {error}; the checkpoint before is kept"
            ) from error
        _flush(self.folder / name)
        content = {"format": FORMAT, "tensors": name, "identity": self.identity, "state": state.to_dict()}
        write_json(self.path, content)
        self._serial += 1
        self._clear()

    def load(self) -> Checkpoint[S] | None:
        """The checkpoint of this run, or None where there is none yet; leftovers of a killed process are removed."""
        if not self.path.exists():
            self._clear()
            return None
        with self._readable():
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise DataError(f"found format {content['format']}, wanted {FORMAT}")
            name, identity = str(content["tensors"]), content["identity"]
            serial = int(name.removeprefix("checkpoint-").removesuffix(".safetensors"))
            if not isinstance(identity, dict):
                raise DataError(f"identity is a {type(identity).__name__}")
        # Checked first: the rest of another kind of run has another form.
        self._check(identity)
        with self._readable():
            state, tensors = self._kind.from_dict(content["state"]), load_file(self.folder / name)
        self._serial = serial
        self._clear()
        return Checkpoint(state, tensors)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise DataError(
                f"{self.path}: not a readable checkpoint ({error}); remove the folder to start anew"
            ) from error

    def _check(self, found: Mapping[str, Any]) -> None:
        differs = difference(found, self.identity)
        if differs is not None:
            part, was, now = differs
            if part in _CONTENTS:
                raise ConfigError(f"{self.folder} holds the run of {_CONTENTS[part]}; use another folder, or remove it")
            raise ConfigError(f"{part}: the run in {self.folder} has {was!r}, found {now!r}; use another folder")

    def _clear(self) -> None:
        """Remove leftovers of an earlier or killed process: other tensor files, and a pointer that was being written.

        Files of any other kind are not ours and stay.
        """
        for serial in (self._serial - 1, self._serial + 1):
            (self.folder / _TENSORS.format(serial=serial)).unlink(missing_ok=True)
        remove_leftovers(self.path)


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first part in which two identities differ, with both values; if that part is a mapping, its field.

    A part that the older identity does not have was not recorded then and is not compared.
    """
    for part, now in wanted.items():
        was = found.get(part)
        if was == now or part not in found:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            names = (name for name in {**now, **was} if was.get(name) != now.get(name))
            # Empty if a field is None in one part and missing in the other; then both are shown whole.
            return next(((name, was.get(name), now.get(name)) for name in names), (part, was, now))
        return part, was, now
    return None


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
