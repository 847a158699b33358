"""The cost of a training step: every model can be measured, and the numbers are those of a step."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tides import baselines
from tides.cli.bench import app
from tides.errors import ConfigError
from tides.experiments import model_cost
from tides.experiments.model_cost import Size

TINY = Size(batch=2, length=8, channels=2, classes=2)


def test_every_trained_model_is_measured() -> None:
    found = model_cost.names()
    assert set(found) - set(model_cost.REFERENCES) <= set(baselines.names())
    assert {"lru", "ncde", "imts-mixer", "tides"} <= set(found)
    assert not {"zero", "class-prior"} & set(found)


@pytest.mark.parametrize("name", ["lru", "imts-mixer"])
def test_a_measurement(name: str) -> None:
    row = model_cost.measure(name, TINY, "cpu", 0.0)
    assert row["status"] == "measured"
    assert row["steps"] == 3
    assert 0 < row["fastest"] <= row["step"]
    assert row["task"] == ("forecasting" if name == "imts-mixer" else "classification")
    assert row["parameters"] > 100
    assert row["memory"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", model_cost.names())
def test_every_model_takes_a_step(name: str) -> None:
    assert model_cost.measure(name, TINY, "cpu", 0.0)["status"] == "measured"


def test_unknown_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="models: found 'zero'"):
        model_cost.measure_all(["zero"], size=TINY)


def test_a_device_that_torch_does_not_know_is_refused_before_any_model() -> None:
    done = CliRunner().invoke(app, ["models", "--models", "lru", "--device", "tpu"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "device: found 'tpu', wanted cpu, cuda, cuda:1, ..."
    assert done.output == ""


@pytest.mark.slow
def test_a_model_that_takes_too_long_is_given_up() -> None:
    rows = model_cost.measure_all(["lru", "imts-mixer"], size=TINY, seconds=0.0, limit=0.01)["models"]
    assert [row["status"] for row in rows] == ["given up after 0.01 s"] * 2


def test_what_a_model_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Line:
        """A connection that asks once."""

        def __init__(self) -> None:
            self.asked, self.said = [("lru", TINY, "cpu", 0.0)], list[object]()

        def recv(self) -> object:
            if not self.asked:
                raise EOFError
            return self.asked.pop()

        def send(self, answer: object) -> None:
            self.said.append(answer)

    def fail(*call: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(model_cost, "measure", fail)
    line = Line()
    model_cost._serve(line, 1)  # type: ignore[arg-type]
    assert line.said == [({"status": "failed: no such kernel"}, True)]


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    """A process of its own for the model, a table and a file."""
    file = tmp_path / "cost.json"
    line = ["models", "--models", "lru", "--batch", "2", "--length", "8", "--seconds", "0", "--json", str(file)]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    assert "lru" in done.stdout
    found = json.loads(file.read_text())
    assert [row["model"] for row in found["models"]] == ["lru"]
    assert found["size"]["length"] == 8
