import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tides.errors import ConfigError
from tides.experiments import config, fading_flash
from tides.experiments.runner import Context, run_cells
from tides.records import read_records

# The ten lines that the documentation shows.
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reproduce" / "fading-flash.md"
OWN_MODEL = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]


def cells(*settings: str, variant: str = "paper", quick: bool = True) -> list[fading_flash.Cell]:
    found = config.load("fading-flash", variant, quick=quick, settings=settings)
    return fading_flash.cells(found, variant=variant, quick=quick)


def test_the_default_is_six_models_with_ten_seeds_and_the_picture() -> None:
    found = cells(quick=False)
    assert len(found) == 61
    assert len({cell.id for cell in found}) == 61
    assert len({cell.stack for cell in found}) == 7
    paper = next(cell.config for cell in found if cell.config["model"] == "tides")
    assert paper["train"] == {
        "steps": 3000,
        "batch": 32,
        "learning_rate": 3e-3,
        "second_moment": 0.999,
        "schedule": "constant",
        "skip_penalty": 0.0,
    }
    assert paper["evaluate"]["gaps"] == [0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 1.8, 2.0]


def test_the_refined_preset_changes_only_the_optimiser_and_the_penalty() -> None:
    found = {cell.config["model"]: cell.config for cell in cells(quick=False) if "seed" in cell.config}
    ours, paper = found["tides-refined"], found["tides"]
    assert ours["data"] == paper["data"]
    assert ours["evaluate"] == paper["evaluate"]
    assert (ours["train"]["steps"], ours["train"]["batch"]) == (3000, 32)
    assert ours["train"] != paper["train"]


def test_quick_cells_are_marked_and_never_mistaken_for_real_ones() -> None:
    steps = ["train.steps=60", "evaluate.sequences=32", "evaluate.variance_sequences=64", "seeds=2"]
    quick, real = cells(), cells(*steps, quick=False)
    assert all(cell.quick for cell in quick)
    assert not {cell.id for cell in quick} & {cell.id for cell in real}


def test_a_quick_run_of_every_model_leaves_complete_records(tmp_path: Path) -> None:
    run_cells(cells("train.steps=3", "train.batch=2"), tmp_path)
    records = {record.config["model"]: record for record in read_records(tmp_path) if record.config.get("seed") == 1}
    assert set(records) == set(fading_flash.MODELS)
    for record in records.values():
        assert len(record.results["relative_error"]) == 10
        assert all(value is not None and value > 0 for value in record.results["relative_error"])
        for name in ("mode_decay", "response_decay"):
            assert [len(zone) for zone in record.results[name]] == [10, 10, 10]


def test_the_noisy_variant_differs_in_its_noise_alone() -> None:
    noisy, paper = (cells(variant=variant)[1].config for variant in ("noisy", "paper"))
    assert (noisy["data"]["input_noise"], noisy["data"]["output_noise"]) == (0.2, 0.05)
    assert {**noisy, "data": None, "variant": None} == {**paper, "data": None, "variant": None}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('models=["tidse"]', "models: found 'tidse', wanted one of s5"),
        ('models=["no_such_package:build"]', "model 'no_such_package:build'"),
        ("seeds=0", "seeds: found 0"),
        ("train.skip_penalty=0.5", "mamba has no feed-through"),
        ("train.steps=0", "steps: found 0, wanted a whole number ≥ 1"),
        ("train.learning_rate=-0.1", "learning_rate: found -0.1"),
        ("data.gap_range=[2.0, 1.0]", "gap_range: found"),
        ("evaluate.sequences=0", "sequences: found 0"),
        ("train.schedule=linear", "train.schedule: found 'linear'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cells(setting)


def test_another_device_is_refused_instead_of_ignored() -> None:
    cell = next(cell for cell in cells() if cell.config["model"] == "s5")
    with pytest.raises(ConfigError, match="fading-flash is computed on the CPU"):
        fading_flash.run(cell, Context("cuda"))


def test_your_own_model_enters_under_the_same_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flash_own_model.py").write_text(OWN_MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = cells('models=["flash_own_model:build"]', "train.steps=2", "evaluate.gaps=[0.5, 1.0]")
    assert len({cell.config["source"] for cell in found if "source" in cell.config}) == 1
    run_cells(found, tmp_path)
    records = [record for record in read_records(tmp_path / "records") if "seed" in record.config]
    assert len(records) == 2
    assert records[0].results["parameters"] == 137
    assert records[0].results["relative_error"] != records[1].results["relative_error"]
    assert "mode_decay" not in records[0].results


def test_an_own_model_of_the_wrong_shape_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flash_wrong_model.py").write_text(OWN_MODEL.replace("Linear(4, 1)", "Linear(4, 2)"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = run_cells(cells('models=["flash_wrong_model:build"]', "train.steps=2"), tmp_path)
    assert "found an output of shape" in next(iter(outcome.failed.values()))


def test_an_edited_model_is_another_cell_however_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "flash_partial_model.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sources = []
    for change in ("", "# another version\n"):
        file.write_text(f"import functools\n{OWN_MODEL}{change}narrow = functools.partial(Mine)\n")
        found = cells('models=["flash_partial_model:narrow", "flash_partial_model:build"]')
        sources.append({cell.config["source"] for cell in found if "source" in cell.config})
    assert not sources[0] & sources[1]


@pytest.mark.parametrize("made", ["torch.nn.Identity", "dict"])
def test_an_own_model_that_cannot_be_trained_is_named(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"flash_{made[-4:].lower()}_model"
    (tmp_path / f"{name}.py").write_text(f"import torch\nbuild = {made}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=rf"{name}:build'.*wanted a torch.nn.Module with parameters to train"):
        fading_flash.build_model(f"{name}:build", [0])


COMMAND = [sys.executable, "-m", "tides.cli.main", "run", "fading-flash", "--quick", "--json"]


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, "--out", str(folder), *more], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_run_continues_where_it_stopped(tmp_path: Path) -> None:
    first = start(tmp_path, "--workers", "2")
    deadline = time.monotonic() + 120
    while not list((tmp_path / "records").glob("*tides*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").glob("*.json")}
    assert kept, "the run wrote nothing before it was killed"
    output, _ = start(tmp_path, "--workers", "2").communicate(timeout=300)
    outcome = json.loads(output.splitlines()[-1])
    assert outcome["cached"] >= len(kept)
    assert outcome["cached"] + outcome["computed"] == outcome["cells"] == 13
    assert len(read_records(tmp_path)) == 13
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())


def test_the_command_runs_selected_cells_and_says_so_in_json(tmp_path: Path) -> None:
    output, _ = start(
        tmp_path, "--models", "s5,tides", "--only", "paper-*-seed1", "--workers", "1", "--set", "train.steps=2"
    ).communicate(timeout=120)
    outcome = json.loads(output)
    assert (outcome["cells"], outcome["computed"], outcome["failed"]) == (2, 2, {})
