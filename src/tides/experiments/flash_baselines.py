"""Mixers of the baselines as bare cores for Fading Flash: linear encoder, one mixer, linear readout.

Those that can are here twice: as they are usually given irregular data, with Δ as an input channel and steps of length
one, and with steps as long as the gaps (`-physical`). Sizes are the ones nearest the 144 parameters of the other cores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tides.baselines.gru import GRUCell
from tides.baselines.linoss import LinOSSConfig, LinOSSMixer
from tides.baselines.lru import LRUConfig, LRUMixer
from tides.baselines.s6 import SelectiveScan
from tides.baselines.stack import Mixer

WIDTH = 7
STATES = 3
CHANNELS = 4


@dataclass(frozen=True)
class _Mix:
    """A mixer, whether its steps are the gaps, and whether it reads the input as it is."""

    make: Callable[[], Mixer]
    physical: bool
    bare: bool = False


class _GRUD(Mixer):
    """GRU-D where every step is observed: h ← GRU(u, exp(−max(0, w Δ + b)) ⊙ h)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.decay = GRUCell(CHANNELS, CHANNELS), nn.Linear(1, CHANNELS)
        # Rates start above zero, where their gradient is not.
        nn.init.uniform_(self.decay.weight, 0.0, 0.1)
        nn.init.uniform_(self.decay.bias, 0.0, 0.1)

    def forward(self, u: Tensor, steps: Tensor) -> Tensor:
        kept = torch.exp(-torch.relu(self.decay(steps.unsqueeze(-1))))
        h, states = u.new_zeros(len(u), CHANNELS), []
        for k, projected in enumerate(self.cell.from_input(u).unbind(1)):
            h = self.cell.step(projected, kept[:, k] * h)
            states.append(h)
        return torch.stack(states, dim=1)


def _lru() -> Mixer:
    return LRUMixer(LRUConfig(input_size=CHANNELS, classes=1, hidden_size=WIDTH, state_size=STATES))


def _linoss(scheme: Literal["im", "imex", "damped"]) -> Callable[[], Mixer]:
    config = LinOSSConfig(input_size=CHANNELS, classes=1, hidden_size=WIDTH, state_size=STATES, scheme=scheme)
    return lambda: LinOSSMixer(config)


def _s6() -> Mixer:
    return SelectiveScan(WIDTH, STATES, 1)


MIXES = {
    **{
        f"{name}{suffix}": _Mix(make, bool(suffix))
        for name, make in (("lru", _lru), ("s6", _s6), ("linoss-im", _linoss("im")))
        for suffix in ("", "-physical")
    },
    # Not stable with steps of different lengths.
    "linoss-imex": _Mix(_linoss("imex"), physical=False),
    "d-linoss": _Mix(_linoss("damped"), physical=False),
    # Knows the gaps by its nature.
    "gru-d": _Mix(_GRUD, physical=True, bare=True),
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
                encoder = nn.Identity() if self.mix.bare else nn.Linear(inputs, WIDTH)
                readout = nn.Linear(CHANNELS if self.mix.bare else WIDTH, 1)
                cores.append(nn.ModuleDict({"encoder": encoder, "mixer": self.mix.make(), "readout": readout}))
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
