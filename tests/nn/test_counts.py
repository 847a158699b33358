"""Parameter counts: the published ones, and none that are dead."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.nn.models import VARIANTS, small_config, values_and_gaps
from tides.artefacts import from_release
from tides.nn import Backbone, SequenceClassifier, TIDESConfig

# Random drop on EigenWorms: widths that match the variants at about 30k (one layer, P = 16, both directions).
MATCHED = {"s5": 80, "tides-lambda": 80, "mamba-s": 16, "tides": 16, "tides-bc": 16, "tides-full": 16}


def test_the_published_100k_classifier() -> None:
    config = TIDESConfig.preset("paper", input_size=1, hidden_size=32, state_size=16, rank=8, depth=4)
    model = SequenceClassifier(config, classes=5)
    assert model.count_parameters(release_equivalent=True) == 99_557
    assert model.count_parameters() == sum(p.numel() for p in model.parameters()) < 99_557


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_matched_random_drop_models(variant: str) -> None:
    config = TIDESConfig.preset(
        "paper",
        input_size=6,
        hidden_size=MATCHED[variant],
        state_size=16,
        rank="full",
        depth=1,
        bidirectional=True,
        variant=variant,
    )
    count = SequenceClassifier(config, classes=5).count_parameters(release_equivalent=True)
    assert abs(count - 30_000) < 3_000


@pytest.mark.parametrize("case", ["s5", "tides_bidir", "tides_conj_sym", "tides_diag", "tides_full", "tides_full_rank"])
def test_counts_of_released_checkpoints(case: str, shared: Path) -> None:
    stored = np.load(shared / "golden" / f"{case}.npz")
    config = json.loads(str(stored["config"]))
    parameters = {key[6:]: torch.from_numpy(stored[key]) for key in stored.files if key.startswith("param/")}
    model = from_release(config, parameters)
    backbone = model if isinstance(model, Backbone) else model.backbone
    head = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in backbone.parameters())
    wanted = sum(tensor.numel() for name, tensor in parameters.items() if "running" not in name and "num_b" not in name)
    assert backbone.count_parameters(release_equivalent=True) + head == wanted


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("conjugate", [False, True])
def test_every_parameter_is_alive(variant: str, conjugate: bool) -> None:
    model = SequenceClassifier(
        small_config(variant=variant, conjugate=conjugate, bidirectional=True, decay_depth=1, encoder_depth=1), 3
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model(*values_and_gaps()).square().sum().backward()
    dead = [name for name, p in model.named_parameters() if p.grad is None or float(p.grad.abs().sum()) == 0]
    assert dead == []
