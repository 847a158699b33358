"""The mathematics of TIDES as pure functions: readable, differentiable, exact in float64, and slow."""

from tides.functional.discretise import discretise
from tides.functional.evolve import evolve
from tides.functional.gaps import check_times, gaps_from_times
from tides.functional.heads import GLUWeights, ModeHead, StepHead, glu_residual, step_sizes
from tides.functional.hippo import Hippo, hippo_blocks, hippo_legs
from tides.functional.mixes import DiagonalMix, LowRankMix, Mix, StaticMix, mix_in, mix_out
from tides.functional.norm import rms_norm
from tides.functional.phi import expm1, phi1
from tides.functional.reparam import reparam_range, reparameterise, reparameterise_inverse
from tides.functional.scan import linear_scan
from tides.functional.ssm import (
    SSMOps,
    SSMSpec,
    SSMState,
    SSMWeights,
    advance,
    eigenvalues,
    read_out,
    selective_ssm,
    ssm_states,
    zero_state,
)

__all__ = [
    "DiagonalMix",
    "GLUWeights",
    "Hippo",
    "LowRankMix",
    "Mix",
    "ModeHead",
    "SSMOps",
    "SSMSpec",
    "SSMState",
    "SSMWeights",
    "StaticMix",
    "StepHead",
    "advance",
    "check_times",
    "discretise",
    "eigenvalues",
    "evolve",
    "expm1",
    "gaps_from_times",
    "glu_residual",
    "hippo_blocks",
    "hippo_legs",
    "linear_scan",
    "mix_in",
    "mix_out",
    "phi1",
    "read_out",
    "reparam_range",
    "reparameterise",
    "reparameterise_inverse",
    "rms_norm",
    "selective_ssm",
    "ssm_states",
    "step_sizes",
    "zero_state",
]
