"""Static covariates: scaled inside the model, NaN counts as the training mean."""

import pytest
import torch

from tests.nn.models import small_config
from tides.errors import ConfigError
from tides.nn import SequenceClassifier, SequenceRegressor


def test_a_change_of_units_changes_nothing_once_calibrated() -> None:
    model = SequenceRegressor(small_config(), static_size=2).eval()
    x, gaps, static = torch.randn(4, 5, model.config.input_size), torch.rand(4, 5), torch.randn(4, 2)
    wanted = model(x, gaps, static=static)
    model.calibrate_static(torch.tensor([10.0, 0.0]), torch.tensor([1000.0, 1.0]))
    found = model(x, gaps, static=torch.stack([1000 * static[:, 0] + 10, static[:, 1]], dim=1))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_missing_covariates_count_as_their_mean() -> None:
    model = SequenceClassifier(small_config(), 3, static_size=2).eval()
    model.calibrate_static(torch.tensor([40.0, 0.5]), torch.tensor([10.0, 1.0]))
    x, gaps = torch.randn(1, 5, model.config.input_size), torch.rand(1, 5)
    found = model(x, gaps, static=torch.tensor([[float("nan"), 1.0]]))
    torch.testing.assert_close(found, model(x, gaps, static=torch.tensor([[40.0, 1.0]])))


def test_scales_must_fit() -> None:
    with pytest.raises(ConfigError, match=r"static_shift, static_scale: .* wanted \(2,\)"):
        SequenceClassifier(small_config(), 3, static_size=2).calibrate_static(torch.zeros(1), torch.ones(1))


def test_a_model_without_covariates_has_no_scales_for_them() -> None:
    with pytest.raises(ConfigError, match="built without static covariates"):
        SequenceClassifier(small_config(), 3).calibrate_static(torch.zeros(0), torch.ones(0))
