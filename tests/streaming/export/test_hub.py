"""A folder for the hub is the folder of `tides.save` with a card; what comes back is the same model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.streaming.export.models import make
from tides import streaming
from tides.artefacts import load
from tides.errors import DataError, TidesError
from tides.streaming.export import hub

METADATA = {
    "channels": ["cytosol", "store"],
    "classes": ["rest", "slow", "fast"],
    "unit": "s",
    "metrics": {"accuracy": 0.98},
}


def same(ours: torch.nn.Module, theirs: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True))


def test_a_folder_comes_back(tmp_path: Path) -> None:
    model = make("classifier")
    folder = hub.save_pretrained(model, tmp_path / "model", metadata=METADATA, description="Regimes of a cell.")
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    assert same(hub.from_pretrained(folder), model)
    assert same(load(folder), model)
    assert streaming.pretrained_metadata(str(folder)) == METADATA


def test_the_card_says_what_is_known(tmp_path: Path) -> None:
    model = make("classifier")
    card = hub.model_card(model, METADATA, "Regimes of a cell.")
    header, body = card.split("---\n")[1:3]
    assert "library_name: tides-ssm" in header
    assert "pipeline_tag: tabular-classification" in header
    for part in ("Regimes of a cell.", "cytosol, store", "rest, slow, fast", "| accuracy | 0.98 |", " s |"):
        assert part in body, part
    config = json.loads(body.split("```json\n")[1].split("```")[0])
    assert config == model.config.to_dict()
    assert "pipeline_tag" not in hub.model_card(make("backbone"), {})


class FakeHub:
    """A hub on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, []

    def snapshot_download(self, name: str, **options: Any) -> str:
        self.calls.append((name, options))
        return str(self.folder)

    def create_repo(self, name: str, **options: Any) -> None:
        self.calls.append((name, options))

    def upload_folder(self, **options: Any) -> str:
        self.calls.append(("upload", options))
        return "somewhere"


def test_names_of_the_hub_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("classifier")
    hub.save_pretrained(model, tmp_path / "remote")
    fake = FakeHub(tmp_path / "remote")
    monkeypatch.setattr(hub, "_library", lambda: fake)
    assert same(hub.from_pretrained("lab/calcium", revision="v2"), model)
    assert fake.calls[0][0] == "lab/calcium"
    assert fake.calls[0][1]["revision"] == "v2"
    assert hub.push_to_hub(tmp_path / "remote", "lab/calcium") == "somewhere"
    assert fake.calls[1] == ("lab/calcium", {"private": True, "exist_ok": True})
    assert fake.calls[2][1]["allow_patterns"] == ["config.json", "model.safetensors", "README.md"]


def test_what_the_hub_refuses_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable(FakeHub):
        def snapshot_download(self, name: str, **options: Any) -> str:
            raise ConnectionError("Cannot reach the hub.\nPlease look at your cables.")

        def create_repo(self, name: str, **options: Any) -> None:
            raise ValueError("no such name\n")

    monkeypatch.setattr(hub, "_library", lambda: Unreachable(tmp_path))
    with pytest.raises(DataError, match=r"^lab/calcium: found no such folder, .*: Cannot reach the hub\.$"):
        hub.from_pretrained("lab/calcium")
    hub.save_pretrained(make("classifier"), tmp_path)
    with pytest.raises(DataError, match=r"^lab/calcium: cannot be written to the hub: no such name$"):
        hub.push_to_hub(tmp_path, "lab/calcium")


def test_problems_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no such folder"):
        hub.from_pretrained(tmp_path / "nothing")
    with pytest.raises(DataError, match="no such folder"):
        hub.from_pretrained("./lab/calcium")
    with pytest.raises(DataError, match=r"config\.json is missing"):
        hub.push_to_hub(tmp_path, "lab/calcium")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(TidesError, match=r"tides-ssm\[hub\]"):
        hub.from_pretrained("lab/calcium")
