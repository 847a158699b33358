"""The same mathematics, fast. All backends are reached through `dispatch`."""

from tides.kernels.dispatch import (
    Backend,
    block_operator,
    current_ops,
    explain,
    gated_tail,
    keep_backend,
    linear_scan,
    selective_operator,
    selective_ssm,
    stack_operator,
    use_backend,
    wide_operator,
)
from tides.kernels.transforms import runs_at_once

__all__ = [
    "Backend",
    "block_operator",
    "current_ops",
    "explain",
    "gated_tail",
    "keep_backend",
    "linear_scan",
    "runs_at_once",
    "selective_operator",
    "selective_ssm",
    "stack_operator",
    "use_backend",
    "wide_operator",
]
