"""Model folders in the layout of the Hugging Face hub: the files of `tides.save`, and a model card beside them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tides.artefacts import load, read_metadata, save
from tides.atomic import atomic_write
from tides.errors import DataError, TidesError
from tides.nn import Forecaster, SequenceClassifier, SequenceRegressor

_FILES = ["config.json", "model.safetensors", "README.md"]
_PIPELINES = {
    SequenceClassifier: "tabular-classification",
    SequenceRegressor: "tabular-regression",
    Forecaster: "time-series-forecasting",
}


def save_pretrained(
    model: nn.Module, folder: str | Path, *, metadata: dict[str, Any] | None = None, description: str = ""
) -> Path:
    """`tides.save` plus a model card built from the configuration, the scales and `metadata`.

    `metadata` may hold anything that is JSON; the card shows `channels`, `classes`, `unit`, `data` and `metrics` (a
    mapping of names to numbers). `description` is the card's first paragraph. Needs no network and no extra.
    """
    folder = save(model, folder, metadata=metadata)
    with atomic_write(folder / "README.md") as file:
        file.write(model_card(model, metadata or {}, description).encode())
    return folder


def from_pretrained(name: str | Path, *, revision: str | None = None, device: str | torch.device = "cpu") -> nn.Module:
    """The model in a folder, or in the repository `owner/name` of the hub (extra `hub`), in evaluation mode."""
    return load(_fetch(name, revision), device=device)


def pretrained_metadata(name: str | Path, *, revision: str | None = None) -> dict[str, Any]:
    """What was passed to `save_pretrained` as `metadata`."""
    return read_metadata(_fetch(name, revision))


def push_to_hub(folder: str | Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder that `save_pretrained` wrote, and return its address. Needs the extra `hub` and a login there."""
    missing = [file for file in _FILES if not (Path(folder) / file).is_file()]
    if missing:
        raise DataError(f"{folder}: {missing[0]} is missing; write the folder with save_pretrained")
    hub = _library()
    with _in_one_line(f"{repository}: cannot be written to the hub"):
        hub.create_repo(repository, private=private, exist_ok=True)
        return str(hub.upload_folder(repo_id=repository, folder_path=str(folder), allow_patterns=_FILES))


def _fetch(name: str | Path, revision: str | None) -> Path:
    folder = Path(name)
    if folder.is_dir():
        return folder
    if isinstance(name, Path) or str(name).count("/") != 1 or str(name).startswith((".", "/")):
        raise DataError(f"{name}: found no such folder, and it is not the name of a hub repository, `owner/name`")
    hub = _library()
    with _in_one_line(f"{name}: found no such folder, and it cannot be had from the hub"):
        return Path(hub.snapshot_download(str(name), revision=revision, allow_patterns=_FILES))


@contextmanager
def _in_one_line(problem: str) -> Iterator[None]:
    """A context that turns errors of the hub's library (network, names, rights) into one line without a traceback."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(f"{problem}: {reason[0]}") from error


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise TidesError('the hub needs huggingface_hub: pip install "tides-ssm[hub]"') from error
    return huggingface_hub


def model_card(model: nn.Module, metadata: dict[str, Any], description: str = "") -> str:
    """A README with the header that the hub reads."""
    pipeline = next((name for kind, name in _PIPELINES.items() if type(model) is kind), None)
    header = ["---", "library_name: tides-ssm", "tags:", "- irregular-time-series", "- state-space-model"]
    header += [f"pipeline_tag: {pipeline}"] if pipeline else []
    lines = [*header, "---", "", f"# {type(model).__name__}", ""]
    if description:
        lines += [description, ""]
    facts = _facts(model, metadata)
    lines += ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts.items()), ""]
    metrics = metadata.get("metrics")
    if isinstance(metrics, dict) and metrics:
        lines += ["## Metrics", "", "| metric | value |", "|---|---|"]
        lines += [f"| {name} | {_shown(value)} |" for name, value in metrics.items()] + [""]
    lines += ["## Use", "", "```python", "from tides.streaming import from_pretrained", ""]
    lines += ['model = from_pretrained("path/or/owner/name")', "```", ""]
    config = getattr(model, "config", None)
    if config is not None:
        lines += ["## Configuration", "", "```json", json.dumps(config.to_dict(), indent=2), "```", ""]
    return "\n".join(lines)


def _facts(model: nn.Module, metadata: dict[str, Any]) -> dict[str, str]:
    facts = {"parameters": str(sum(parameter.numel() for parameter in model.parameters()))}
    calibration = getattr(getattr(model, "backbone", model), "calibration", None)
    unit = str(metadata.get("unit") or "")
    if calibration is not None:
        facts["time scale"] = f"{calibration.time_scale.item():.6g} {unit}".strip()
    for key in ("channels", "classes"):
        if metadata.get(key):
            facts[key] = ", ".join(str(name) for name in metadata[key])
    if metadata.get("data"):
        facts["training data"] = str(metadata["data"])
    return facts


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
