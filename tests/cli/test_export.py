"""`tides export` from a saved folder to files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.streaming.export.models import make
from tides.artefacts import save
from tides.cli.main import app
from tides.errors import ConfigError, DataError


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["export", *words])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_c_sources_are_written(tmp_path: Path) -> None:
    save(make("classifier"), tmp_path / "model")
    words = [str(tmp_path / "model"), "--c", str(tmp_path / "device"), "--tick", "0.25", "--unit", "h"]
    assert "bytes of constants" in run(*words)
    header = (tmp_path / "device" / "tides_model.h").read_text()
    assert "one tick is 0.25 h" in header
    found = json.loads(run(*words, "--int8", "--json"))
    assert found["weight_bytes"] > 0
    assert "typedef int8_t tides_weight" in (tmp_path / "device" / "tides_model.h").read_text()


def test_a_tick_is_converted_to_the_models_unit(tmp_path: Path) -> None:
    save(make("classifier"), tmp_path / "model", metadata={"schema": {"unit": "h"}})
    for words, tick in (([], "0.001"), (["--tick", "90", "--unit", "s"], "0.025")):
        said = run(str(tmp_path / "model"), "--c", str(tmp_path / "device"), *words)
        assert f"one tick is {tick} h" in (tmp_path / "device" / "tides_model.h").read_text()
    assert "one tick is 90 s" in said
    with pytest.raises(DataError, match="furlong"):
        run(str(tmp_path / "model"), "--c", str(tmp_path / "device"), "--unit", "furlong")


def test_the_order_of_inputs_and_answers_is_told(tmp_path: Path) -> None:
    schema = {"channels": ["hr", "spo2"], "class_names": ["well", "ill", "gone"]}
    save(make("classifier"), tmp_path / "model", metadata={"schema": schema})
    words = [str(tmp_path / "model"), "--c", str(tmp_path / "device")]
    said = run(*words)
    assert "channels, in this order: hr, spo2" in said
    assert "classes, in this order: well, ill, gone" in said
    found = json.loads(run(*words, "--json"))
    assert (found["channels"], found["classes"]) == (["hr", "spo2"], ["well", "ill", "gone"])


def test_a_model_of_pieces_says_when_to_begin_anew(tmp_path: Path) -> None:
    save(make("readout"), tmp_path / "model", metadata={"cut": "2d", "unit": "h"})
    words = [str(tmp_path / "model"), "--c", str(tmp_path / "device")]
    assert "learnt from pieces of 48 h: begin a new state before one is half as old again, with the last 48 h" in run(
        *words
    )
    assert json.loads(run(*words, "--json"))["cut"] == 48.0


@pytest.mark.slow
def test_an_onnx_file_is_written(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="extra `export` is not installed")
    save(make("backbone", depth=1), tmp_path / "model")
    path = tmp_path / "graph" / "step.onnx"
    found = json.loads(run(str(tmp_path / "model"), "--onnx", str(path), "--mode", "step", "--json"))
    assert found["onnx_bytes"] == path.stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "found neither"),
        (["--onnx", "x.onnx", "--int8"], "--int8"),
        (["--onnx", "x.onnx", "--mode", "all"], "mode"),
    ],
)
def test_contradictions_are_refused(words: list[str], problem: str, tmp_path: Path) -> None:
    save(make("backbone"), tmp_path / "model")
    with pytest.raises(ConfigError, match=problem):
        run(str(tmp_path / "model"), *words)
