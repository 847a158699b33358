"""Training and evaluation of Fading Flash models, all seeds of a stack at once.

Every seed owns its generators for starting values, training data and test data, so its result does not depend on
which other seeds are trained beside it. Losses of different seeds are added: their gradients do not mix.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tides.data import fading_flash
from tides.fields import require
from tides.training.gradients import backpropagate

# Sequences are drawn this many steps at a time; part of the definition of a seed's data stream.
CHUNK = 100
# Where the single flash of a decay measurement falls: late enough for a model to have settled in its zone.
FLASH_AT = 8


@dataclass(frozen=True)
class DataConfig:
    """The distribution of the training sequences."""

    gap_range: tuple[float, float]
    input_noise: float
    output_noise: float

    def __post_init__(self) -> None:
        require(self, ("gap_range",), lambda pair: 0 <= pair[0] <= pair[1], "two gaps ≥ 0, the smaller one first")
        require(self, ("input_noise", "output_noise"), lambda value: value >= 0, "a number ≥ 0")


@dataclass(frozen=True)
class TrainConfig:
    """Adam on fresh batches."""

    steps: int
    batch: int
    learning_rate: float
    second_moment: float
    """Adam's β₂. Its default remembers gradients of a thousand steps ago, large ones from when the error was large."""
    schedule: Literal["constant", "cosine"]
    skip_penalty: float
    """Weight of ‖D‖². The feed-through is the one path that does not vanish with the gap."""

    def __post_init__(self) -> None:
        require(self, ("steps", "batch"), lambda value: value >= 1, "a whole number ≥ 1")
        require(self, ("learning_rate",), lambda value: value > 0, "a number > 0")
        require(self, ("second_moment",), lambda value: 0 <= value < 1, "a number in [0, 1)")


@dataclass(frozen=True)
class EvaluateConfig:
    """Fresh sequences at each fixed gap; the variance of the target comes from a second sample."""

    gaps: tuple[float, ...]
    sequences: int
    variance_sequences: int

    def __post_init__(self) -> None:
        require(self, ("gaps",), lambda gaps: gaps and min(gaps) >= 0, "gaps ≥ 0")
        require(self, ("sequences", "variance_sequences"), lambda value: value >= 1, "a whole number ≥ 1")


class FlashModel(Protocol):
    """Stacked models: x (m, b, l, 4) and gaps (m, b, l) to the glow (m, b, l, 1)."""

    def __call__(self, x: Tensor, gaps: Tensor) -> Tensor: ...


def generator(seed: int, purpose: Literal["start", "train", "test"]) -> torch.Generator:
    """A seed's own source of randomness for one purpose.

    Starting values continue `torch.manual_seed(seed)`: seed 0 starts where a script with that seed would.
    """
    return torch.Generator().manual_seed(seed + {"start": 0, "train": 1_000_000, "test": 2_000_000}[purpose])


def batches(
    data: DataConfig, batch: int, steps: int, seeds: Sequence[int]
) -> Iterator[tuple[Float[Tensor, "m b l 4"], Float[Tensor, "m b l"], Float[Tensor, "m b l 1"]]]:
    """`steps` fresh training batches, one row of the model axis per seed."""
    sources = [generator(seed, "train") for seed in seeds]
    noise = {"input_noise": data.input_noise, "output_noise": data.output_noise}
    for start in range(0, steps, CHUNK):
        drawn = [fading_flash.sample(batch * CHUNK, data.gap_range, generator=s, **noise) for s in sources]
        x, gaps, y = (torch.stack([sample[i] for sample in drawn]) for i in range(3))
        for step in range(min(CHUNK, steps - start)):
            rows = slice(step * batch, (step + 1) * batch)
            yield x[:, rows], gaps[:, rows], y[:, rows]


def train(
    model: nn.Module,
    data: DataConfig,
    config: TrainConfig,
    seeds: Sequence[int],
    progress: Callable[[float], None] = lambda fraction: None,
) -> None:
    """Fit all models of the stack in place."""
    betas = (0.9, config.second_moment)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate, betas=betas, fused=True)
    for step, (x, gaps, y) in enumerate(batches(data, config.batch, config.steps, seeds)):
        if config.schedule == "cosine":
            for group in optimiser.param_groups:
                group["lr"] = config.learning_rate * 0.5 * (1 + math.cos(math.pi * step / config.steps))
        optimiser.zero_grad(set_to_none=True)
        backpropagate(loss(model, x, gaps, y, config))
        optimiser.step()
        if step % 50 == 0:
            progress(step / config.steps)


def loss(
    model: nn.Module, x: Float[Tensor, "m b l 4"], gaps: Tensor, y: Tensor, config: TrainConfig
) -> Float[Tensor, ""]:
    """The sum over models of the mean squared error, and the penalty if there is one."""
    error: Tensor = model(x, gaps) - y
    total = error.square().sum() / y[0].numel()
    if config.skip_penalty:
        total = total + config.skip_penalty * model.get_parameter("weights.skip").square().sum()
    return total


@torch.no_grad()
def relative_errors(
    model: FlashModel, config: EvaluateConfig, data: DataConfig, seeds: Sequence[int]
) -> Float[Tensor, "m g"]:
    """√(MSE/Var(y))·100 per model and gap. Inputs carry the training noise; the target is the clean glow."""
    sources = [generator(seed, "test") for seed in seeds]
    errors = []
    for gap in config.gaps:
        fixed = (gap, gap)
        drawn = [
            fading_flash.sample(config.sequences, fixed, generator=s, input_noise=data.input_noise) for s in sources
        ]
        x, gaps, y = (torch.stack([sample[i] for sample in drawn]) for i in range(3))
        fresh = [fading_flash.sample(config.variance_sequences, fixed, generator=s).y for s in sources]
        variance = torch.stack(fresh).var(dim=(1, 2, 3))
        mse = (model(x, gaps) - y).square().mean(dim=(1, 2, 3))
        errors.append(100 * torch.sqrt(mse / variance))
    return torch.stack(errors, 1)


def pure_zones(models: int, gap: float, *, flash: bool) -> tuple[Tensor, Tensor]:
    """Inputs (m, 3, l, 4) and gaps (m, 3, l) that stay in one zone each, with one flash or none."""
    zones = torch.arange(3).unsqueeze(1).expand(-1, fading_flash.LENGTH)
    x = torch.eye(3, 4).roll(1, 1)[zones]
    if flash:
        x[:, FLASH_AT, 0] = 1
    return x.expand(models, -1, -1, -1), torch.full((models, 3, fading_flash.LENGTH), gap)


@torch.no_grad()
def mode_decays(
    rates: Callable[[Tensor, Tensor], Float[Tensor, "m b l n"]], gaps: Sequence[float], models: int
) -> Float[Tensor, "m z g"]:
    """Effective decay per zone and gap: −Re λ·δ/Δ of the mode nearest the zone's true rate."""
    true = torch.tensor(fading_flash.RATES).view(1, 3, 1)
    found = []
    for gap in gaps:
        # Without a flash, so that the decay is the one at work between flashes.
        modes = rates(*pure_zones(models, gap, flash=False))[:, :, FLASH_AT]
        nearest = (modes - true).abs().argmin(-1, keepdim=True)
        found.append(modes.gather(-1, nearest).squeeze(-1))
    return torch.stack(found, -1)


@torch.no_grad()
def response_decays(model: FlashModel, gaps: Sequence[float], models: int) -> Float[Tensor, "m z g"]:
    """The same without looking inside: −log(r_{k+2}/r_{k+1})/Δ, r the response to a single flash at k.

    The step of the flash itself is left out, because a feed-through acts there. Not a number where the response
    changes sign.
    """
    found = []
    for gap in gaps:
        with_flash, without = (model(*pure_zones(models, gap, flash=lit)) for lit in (True, False))
        response = (with_flash - without).squeeze(-1)
        found.append(-torch.log(response[..., FLASH_AT + 2] / response[..., FLASH_AT + 1]) / gap)
    return torch.stack(found, -1)
