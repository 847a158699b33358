"""Following streams with a trained model; needs neither the training rooms nor the data rooms.

What exports models to other places loads on first use: a process that follows streams does without it.
"""

from typing import TYPE_CHECKING, Any

from tides.streaming.durable import DurableSession
from tides.streaming.policy import Answers, StreamPolicy
from tides.streaming.session import StreamSession

if TYPE_CHECKING:
    from tides.streaming.export import (
        export_c,
        export_onnx,
        export_program,
        from_pretrained,
        pretrained_metadata,
        push_to_hub,
        quantised,
        save_pretrained,
    )

_EXPORTS = (
    "export_c",
    "export_onnx",
    "export_program",
    "from_pretrained",
    "pretrained_metadata",
    "push_to_hub",
    "quantised",
    "save_pretrained",
)

__all__ = [
    "Answers",
    "DurableSession",
    "StreamPolicy",
    "StreamSession",
    "export_c",
    "export_onnx",
    "export_program",
    "from_pretrained",
    "pretrained_metadata",
    "push_to_hub",
    "quantised",
    "save_pretrained",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        from tides.streaming import export

        return getattr(export, name)
    raise AttributeError(f"module 'tides.streaming' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
