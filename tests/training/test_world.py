"""A process on its own, and how it learns that it is not."""

import sys
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.test_engine import Mean, config, run, series
from tides.errors import ConfigError
from tides.training import Classification, fit, fit_population, is_first_process
from tides.training.processes import Processes
from tides.training.world import World, is_shared, join_world, local_device


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun sets for a process."""
    for name, value in {"TORCHELASTIC_RUN_ID": "run", "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other launchers set these two; only torchrun's processes share a run.
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert not is_shared()
    assert is_first_process()
    assert local_device("cuda") == "cuda"
    world = join_world(torch.device("cpu"))
    assert type(world) is World
    assert (world.rank, world.size, world.is_first) == (0, 1, True)


def test_alone_it_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    assert run()[1].epochs == 6


@pytest.mark.usefixtures("second_of_two")
def test_torchrun_is_noticed_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_shared()
    assert not is_first_process()
    assert [local_device(name) for name in ("cuda", "cuda:0", "cpu")] == ["cuda:1", "cuda:0", "cpu"]
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ConfigError, match=r"^torchrun: .* pip install 'tides-ssm\[distributed\]'"):
        run()


@pytest.mark.usefixtures("second_of_two")
def test_a_population_is_not_shared() -> None:
    with pytest.raises(ConfigError, match=r"^torchrun: a population"):
        fit_population([Mean()], Classification(), [(series(8), series(4))], config())


def test_one_process_of_torchrun_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not is_shared()


def test_batch_statistics_of_one_process_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(ConfigError, match=r"^model: 1 is a BatchNorm1d"):
        Processes.place(Processes.__new__(Processes), model)


class Lonely(World):
    """A world that writes down what a run asks of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in vars(World) and not name.startswith("_"):
            object.__getattribute__(self, "asked").append(name)
        return object.__getattribute__(self, name)


def test_a_step_sums_its_loss_and_then_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Lonely()
    monkeypatch.setattr("tides.training.engine.join_world", lambda device: world)
    model: nn.Module = Mean()
    fit(model, Classification(), (series(8), None), config(epochs=1), progress=False)
    step = ["begin_step", "part", "loss", "sum_gradients"]
    begin = world.asked.index("begin_step")
    assert world.asked[begin : begin + 4] == step
    assert world.asked.index("copy") < begin
    assert world.asked[-1] == "wait"
