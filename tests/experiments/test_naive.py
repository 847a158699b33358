"""The naive model computes what ours does, and keeps what it is meant to keep."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.comparison import assert_close
from tests.tolerances import IDENTITY
from tides.errors import ConfigError
from tides.experiments.naive import NaiveClassifier, recursive_scan
from tides.experiments.transformer import TransformerClassifier
from tides.functional import linear_scan
from tides.kernels import use_backend
from tides.nn import SequenceClassifier, TIDESConfig


@given(st.integers(1, 40))
def test_the_recursive_scan_is_the_recurrence(length: int) -> None:
    a, b = torch.randn(2, 2, length, 3, dtype=torch.complex128)
    assert_close(recursive_scan(a, b), linear_scan(a, b)[0], IDENTITY)


@pytest.mark.parametrize(
    "fields",
    [
        {"input_size": 1, "hidden_size": 8, "state_size": 4, "rank": 3, "depth": 2},
        {"input_size": 2, "hidden_size": 6, "state_size": 4, "rank": 5, "depth": 1, "bidirectional": True},
        {"input_size": 1, "hidden_size": 5, "state_size": 4, "rank": 2, "depth": 1, "projector_norm": False},
    ],
    ids=["causal", "bidirectional", "without norm"],
)
def test_equals_our_model_with_the_same_weights_in_float64(fields: dict[str, int]) -> None:
    config = TIDESConfig(compat="release", **fields)
    ours, naive = SequenceClassifier(config, 5).double(), NaiveClassifier(config, 5).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    naive.load_state_dict(ours.state_dict())
    x, gaps = torch.randn(2, 23, config.input_size).double(), torch.rand(2, 23).double()
    with use_backend("reference"):
        wanted, found = ours(x, gaps), naive(x, gaps)
        assert_close(found, wanted, IDENTITY, "logits")
        expected = torch.autograd.grad(wanted.square().sum(), list(ours.parameters()))
        gradients = torch.autograd.grad(found.square().sum(), list(naive.parameters()))
    for (name, _), one, other in zip(ours.named_parameters(), gradients, expected, strict=True):
        assert_close(one, other, 1e-8, name)


def test_keeps_both_matrices_for_every_step() -> None:
    """36 KB per token and layer, as the release keeps."""
    config = TIDESConfig(input_size=1, compat="release")
    model, kept = NaiveClassifier(config, 5), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), use_backend("reference"):
        # The result holds the graph, and with it the addresses that tell tensors apart.
        logits = model(torch.randn(2, 400, 1), torch.rand(2, 400))
    assert logits.requires_grad
    assert sum(kept.values()) / (2 * 400 * 4) == pytest.approx(36e3, rel=0.1)


def test_other_semantics_are_refused() -> None:
    with pytest.raises(ConfigError, match="hold: found 'following'"):
        NaiveClassifier(TIDESConfig(input_size=1), 5)


def test_the_transformer_is_matched_in_parameters_and_reads_gaps() -> None:
    model = TransformerClassifier(1, 5)
    published = SequenceClassifier(TIDESConfig(input_size=1), 5).count_parameters(release_equivalent=True)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(published, rel=0.02)
    x, gaps = torch.randn(2, 9, 1), torch.rand(2, 9)
    assert model(x, gaps).shape == (2, 5)
    assert not torch.equal(model(x, gaps), model(x, 2 * gaps))
