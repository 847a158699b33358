"""Global state that a run changes and puts back afterwards: random generators and the choice of algorithms."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def surroundings(seed: int, device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Seeded generators of our own and, if asked for, deterministic algorithms."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []), algorithms(device, deterministic=deterministic):
        torch.manual_seed(seed)
        yield


@contextmanager
def algorithms(device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Deterministic algorithms, if asked for."""
    before = torch.are_deterministic_algorithms_enabled()
    if deterministic and device.type == "cuda":
        # cuBLAS reads this when it starts and is not reproducible without it.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators a run draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """The inverse of `random_states`. A run that moves to another kind of device keeps the states that both have."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
