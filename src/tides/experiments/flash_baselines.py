"""Mixers of the baselines as bare cores for Fading Flash: linear encoder, one mixer, linear readout.

Each is here twice: as it is usually given irregular data, with Δ as an input channel and steps of length one, and with
steps as long as the gaps (`-physical`). Sizes are the ones nearest the 144 parameters of the other cores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tides.baselines.linoss import LinOSSConfig, LinOSSMixer
from tides.baselines.lru import LRUConfig, LRUMixer
from tides.baselines.s6 import SelectiveScan
from tides.baselines.stack import Mixer

WIDTH = 7
STATES = 3
CHANNELS = 4


@dataclass(frozen=True)
class _Mix:
    """A mixer and whether its steps are the gaps."""

    make: Callable[[], Mixer]
    physical: bool


def _lru() -> Mixer:
    return LRUMixer(LRUConfig(input_size=CHANNELS, classes=1, hidden_size=WIDTH, state_size=STATES))


def _linoss() -> Mixer:
    return LinOSSMixer(LinOSSConfig(input_size=CHANNELS, classes=1, hidden_size=WIDTH, state_size=STATES))


def _s6() -> Mixer:
    return SelectiveScan(WIDTH, STATES, 1)


MIXES = {
    f"{name}{suffix}": _Mix(make, bool(suffix))
    for name, make in (("lru", _lru), ("s6", _s6), ("linoss-im", _linoss))
    for suffix in ("", "-physical")
}


class FlashBaseline(nn.Module):
    """One core per generator, run one after the other."""

    def __init__(self, name: str, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.mix = MIXES[name]
        cores = []
        for generator in generators:
            # Starting values come from torch's global generator; each seed sets it and leaves it as it was.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                inputs = CHANNELS if self.mix.physical else CHANNELS + 1
                parts = {"encoder": nn.Linear(inputs, WIDTH), "mixer": self.mix.make(), "readout": nn.Linear(WIDTH, 1)}
                cores.append(nn.ModuleDict(parts))
        self.cores = nn.ModuleList(cores)

    def forward(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l 1"]:
        """The predicted glow."""
        return torch.stack([self._glow(*rows) for rows in zip(self.cores, x, gaps, strict=True)])

    def _glow(self, core: nn.Module, x: Tensor, gaps: Tensor) -> Tensor:
        assert isinstance(core, nn.ModuleDict)
        if not self.mix.physical:
            x, gaps = torch.cat([x, gaps.unsqueeze(-1)], -1), torch.ones_like(gaps[:1, :1])
        result: Tensor = core["readout"](core["mixer"](core["encoder"](x), gaps))
        return result

    def parameter_count(self, *, published: bool = False) -> int:
        """Parameters of one model; nothing was published of these."""
        return sum(parameter.numel() for parameter in self.cores[0].parameters())
