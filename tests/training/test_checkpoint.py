"""Runs that are killed at any moment continue and end as if nothing had happened."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from tides.errors import ConfigError, DataError, TidesError
from tides.training import checkpoint
from tides.training.checkpoint import CheckpointFolder, difference
from tides.training.population_state import PopulationState
from tides.training.state import RunState

ROOT = Path(__file__).resolve().parents[2]


def kill(folder: Path, kills: int, faults: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.training.killing", str(folder), str(kills), faults]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return report


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and kill -9")


def test_a_few_kills(tmp_path: Path) -> None:
    assert kill(tmp_path, 3, "time,before-rename,in-tensors")["kills"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["time", "before-rename,after-rename,in-tensors"])
def test_many_kills_end_byte_identical(tmp_path: Path, faults: str) -> None:
    report = kill(tmp_path, 24, faults)
    assert report["kills"] == 24
    # The runs died at many different steps, not at one and the same.
    assert len(set(report["positions"])) >= 5  # type: ignore[arg-type]


def some(step: int) -> tuple[RunState, dict[str, torch.Tensor]]:
    state = RunState(epoch=1, step=step, loss_total=0.1 + 0.2, history=[{"epoch": 1, "val_auroc": None}])
    return state, {"model/w": torch.arange(3.0) + step}


def test_a_tensor_under_two_names_and_parts_of_one_tensor_are_kept(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    tensors = {"model/a": whole, "model/b": whole, "model/c": whole[1:4], "model/d": whole.view(2, 3).T}
    CheckpointFolder(tmp_path, {}, RunState).save(RunState(), tensors)
    found = CheckpointFolder(tmp_path, {}, RunState).load()
    assert found is not None
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors.items())


def test_the_newest_one_comes_back_exactly(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "run", {"config": {"lr": 0.1}}, RunState)
    assert folder.load() is None
    folder.save(*some(1))
    folder.save(*some(2))
    found = CheckpointFolder(tmp_path / "run", {"config": {"lr": 0.1}}, RunState).load()
    assert found is not None
    assert found.state == some(2)[0]
    assert torch.equal(found.tensors["model/w"], some(2)[1]["model/w"])
    assert len(list((tmp_path / "run").iterdir())) == 2


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device")

    folder = CheckpointFolder(tmp_path, {}, RunState)
    folder.save(*some(1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        with pytest.raises(TidesError, match=r"checkpoint-2\.safetensors: cannot be written: .*No space left"):
            folder.save(*some(2))
    assert not (tmp_path / "checkpoint-2.safetensors").exists()
    found = CheckpointFolder(tmp_path, {}, RunState).load()
    assert found is not None
    assert found.state == some(1)[0]


def test_another_run_is_refused_by_name(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path, {"config": {"lr": 0.1, "epochs": 3}}, RunState).save(*some(1))
    with pytest.raises(ConfigError, match=r"^lr: the run in .* has 0\.1, found 0\.2"):
        CheckpointFolder(tmp_path, {"config": {"lr": 0.2, "epochs": 3}}, RunState).load()


def test_a_run_of_another_kind_is_refused_and_not_called_damaged(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path, {"model": "a"}, PopulationState).save(PopulationState.start(2), {})
    with pytest.raises(ConfigError, match="holds the run of another model"):
        CheckpointFolder(tmp_path, {"model": "b"}, RunState).load()


def test_what_an_older_run_did_not_record_is_not_compared(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path, {"config": {"lr": 0.1}}, RunState).save(*some(1))
    assert CheckpointFolder(tmp_path, {"config": {"lr": 0.1}, "contents": "a"}, RunState).load() is not None
    CheckpointFolder(tmp_path, {"config": {"lr": 0.1}, "contents": "a"}, RunState).save(*some(1))
    with pytest.raises(ConfigError, match="holds the run of other series"):
        CheckpointFolder(tmp_path, {"config": {"lr": 0.1}, "contents": "b"}, RunState).load()


@pytest.mark.parametrize(
    ("was", "now", "found"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, ("b", 2, None)),
        ({"a": 1}, {"a": 1, "b": 2}, ("b", None, 2)),
        ({"a": 1}, {"a": 1, "b": None}, ("config", {"a": 1}, {"a": 1, "b": None})),
        ({"a": 1}, {"a": 1}, None),
    ],
)
def test_a_field_that_only_one_of_two_runs_has_is_a_difference(was: Any, now: Any, found: Any) -> None:
    assert difference({"config": was}, {"config": now}) == found


def test_leftovers_are_removed_and_damage_is_named(tmp_path: Path) -> None:
    identity = {"config": {}}
    CheckpointFolder(tmp_path, identity, RunState).save(*some(1))
    (tmp_path / "checkpoint-2.safetensors").write_bytes(b"half")
    (tmp_path / ".checkpoint.json.0123456789abcdef.tmp").write_text("{")
    assert CheckpointFolder(tmp_path, identity, RunState).load() is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1.safetensors", "checkpoint.json"]
    (tmp_path / "checkpoint-1.safetensors").write_bytes(b"half")
    with pytest.raises(DataError, match="not a readable checkpoint"):
        CheckpointFolder(tmp_path, identity, RunState).load()


def test_files_of_others_stay(tmp_path: Path) -> None:
    """A folder that is given may hold the checkpoints of another tool, and anything else."""
    others = {"checkpoint-500.safetensors", "notes.partial", ".tmp", ".other.json.00.tmp"}
    for name in others:
        (tmp_path / name).write_text("mine")
    folder = CheckpointFolder(tmp_path, {}, RunState)
    assert folder.load() is None
    folder.save(*some(1))
    folder.save(*some(2))
    assert CheckpointFolder(tmp_path, {}, RunState).load() is not None
    assert {path.name for path in tmp_path.iterdir()} == others | {"checkpoint-2.safetensors", "checkpoint.json"}


@pytest.mark.parametrize("damage", [{"identity": None}, {"identity": []}, {"tensors": "checkpoint-x.safetensors"}])
def test_a_damaged_pointer_is_named(tmp_path: Path, damage: dict[str, Any]) -> None:
    folder = CheckpointFolder(tmp_path, {"config": {}}, RunState)
    folder.save(*some(1))
    (tmp_path / "checkpoint-x.safetensors").write_bytes((tmp_path / "checkpoint-1.safetensors").read_bytes())
    folder.path.write_text(json.dumps(json.loads(folder.path.read_text()) | damage))
    with pytest.raises(DataError, match="not a readable checkpoint"):
        folder.load()
