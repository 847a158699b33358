"""The choices of a block, as an operator's plain arguments and back."""

import math
from typing import NamedTuple

from tides.functional.ssm import SSMSpec
from tides.kernels.cpu.block_layout import Layout, Settings
from tides.kernels.cpu.intervals import METHODS
from tides.kernels.cpu.rates import REPARAMS


class BlockConfig(NamedTuple):
    """Sizes and settings."""

    layout: Layout
    settings: Settings

    @classmethod
    def of(cls, layout: Layout, spec: SSMSpec, dropout: float) -> "BlockConfig":
        """For a layer's choices; in the release a reversed scan holds the preceding drive."""
        following = spec.hold == "following"
        return cls(
            layout,
            Settings(
                rates_normed=bool(layout.rate_norm),
                reparam=REPARAMS[spec.reparam],
                limit=math.inf if spec.clip is None else -spec.clip,
                eps=spec.eps,
                factor=2.0 if spec.conjugate else 1.0,
                dropout=dropout,
                method=METHODS[spec.discretisation],
                following=following,
                behind_following=following and spec.reverse != "release",
            ),
        )

    def to_plain(self) -> tuple[list[int], list[float]]:
        """Whole numbers and others."""
        settings = self.settings
        flags = (settings.reparam, settings.method, settings.following, settings.behind_following)
        return [*self.layout, *map(int, flags)], [settings.limit, settings.eps, settings.factor, settings.dropout]

    @classmethod
    def from_plain(cls, flags: list[int], numbers: list[float]) -> "BlockConfig":
        *sizes, reparam, method, following, behind_following = flags
        layout = Layout(*sizes)
        limit, eps, factor, dropout = numbers
        settings = Settings(
            bool(layout.rate_norm),
            reparam,
            limit,
            eps,
            factor,
            dropout,
            method,
            bool(following),
            bool(behind_following),
        )
        return cls(layout, settings)
