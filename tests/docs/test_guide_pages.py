"""Python of the guide's pages that need data sets: run on real files where they lie beside the project."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.docs.blocks import ROOT, blocks


def python(page: str) -> list[str]:
    return [block.text for block in blocks(ROOT / "docs" / "guide" / page) if block.language == "python"]


def run(code: str, scope: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        exec(compile(code, "page", "exec"), scope)


def test_uea(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *code, physionet = python("uea.md")
    assert len(code) == 3
    assert "load_physionet2012" in physionet
    monkeypatch.setenv("TIDES_DATA", str(shared / "data"))
    scope: dict[str, object] = {}
    run("\n".join(code), scope)
    assert scope["batch"].values.shape == (8, 896, 6)  # type: ignore[attr-defined]
    assert scope["narrow"][0].values.shape[1] == 1  # type: ignore[index]


def test_physiome(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, score, own = python("physiome.md")
    root = shared / "data" / "physiome" / "trajectories"
    if not (root / "HOD01.npz").is_file():
        pytest.skip("no trajectories of HOD01 in ../shared/data/physiome")
    monkeypatch.chdir(tmp_path)
    load = load.replace("fold=0)", f"fold=0, root={str(root)!r})")
    load = re.sub(r"^on_gpu = .*$", "", load, flags=re.MULTILINE)
    scope: dict[str, object] = {"values": np.random.default_rng(0).normal(size=(60, 100, 3)).cumsum(1)}
    run(load + score + own, scope)
    # One fold of the first column of the table: 0.774 on average, with a standard deviation of 0.1 between folds.
    assert float(scope["zero"]) == pytest.approx(0.774, abs=0.2)  # type: ignore[arg-type]


def test_simulate(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("libcellml")
    first, second = python("simulate.md")
    models = shared / "data" / "cellml"
    if not (models / "HOD01.cellml").is_file():
        pytest.skip("no CellML models in ../shared/data/cellml")
    monkeypatch.chdir(tmp_path)
    code = first.replace('"models/', f'"{models}/').replace("n=100", "n=2").replace(", seed0=0", ", seed0=0")
    scope: dict[str, object] = {}
    run(code, scope)
    assert scope["values"].shape == (2, 100, 4)  # type: ignore[attr-defined]
    # The search over spreads takes minutes; its names are checked, and the simulation without `entry` is run.
    assert hasattr(scope["physiome"], "best_spread")
    *_, simulate = second.split("\n\n")
    run(simulate.replace('"my_models/pump.cellml"', repr(str(models / "HOD01.cellml"))).replace("n=500", "n=2"), scope)
    assert len(scope["values"]) == 2  # type: ignore[arg-type]
