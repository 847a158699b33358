"""Modules with parameters: the layer, the block, the backbone and the models built on it."""

from tides.nn.backbone import Backbone
from tides.nn.block import Block
from tides.nn.compiled_step import CompiledStep
from tides.nn.config import TIDESConfig
from tides.nn.forecaster import Forecaster
from tides.nn.heads import SequenceClassifier, SequenceRegressor
from tides.nn.ssm import SSM
from tides.nn.state import BackboneState, PooledState, SSMState
from tides.nn.tags import tagged_parameters

__all__ = [
    "SSM",
    "Backbone",
    "BackboneState",
    "Block",
    "CompiledStep",
    "Forecaster",
    "PooledState",
    "SSMState",
    "SequenceClassifier",
    "SequenceRegressor",
    "TIDESConfig",
    "tagged_parameters",
]
