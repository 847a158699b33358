import pytest
import torch
from torch.nn import functional as F

from tides.data import fading_flash
from tides.experiments.flash_mamba import FlashMamba
from tides.experiments.flash_training import generator


def test_it_has_153_parameters() -> None:
    assert FlashMamba([generator(0, "start")]).parameter_count() == 153


def test_forward_is_a_mamba_block_written_out() -> None:
    model = FlashMamba([generator(seed, "start") for seed in (0, 1)]).double()
    sample = fading_flash.sample(2, generator=torch.Generator().manual_seed(2))
    x, gaps = sample.x.double().expand(2, -1, -1, -1), sample.gaps.double().expand(2, -1, -1)
    with torch.no_grad():
        y = model(x, gaps)[1, 0, :, 0].tolist()
        w = {key: value[1] for key, value in model.weights.items()}
        inputs = torch.cat([x[1, 0], gaps[1, 0][:, None]], -1)
        encoded = inputs @ w["encoder"].T + w["encoder_bias"]
        normed = F.layer_norm(encoded, (4,), w["norm"], w["norm_bias"])
        v, z = (normed @ w["inward"].T).chunk(2, -1)
        kernel = w["conv"].T[:, None]
        v = F.silu(F.conv1d(F.pad(v.T[None], (2, 0)), kernel, w["conv_bias"], groups=4))[0].T
        state, outputs = torch.zeros(4, 3, dtype=torch.float64), []
        for k in range(40):
            tau, B, C = (v[k] @ w["select"].T).split([1, 3, 3])
            delta = F.softplus(tau * w["step"] + w["step_bias"])
            decay = torch.exp(-delta[:, None] * w["log_decay"].exp())
            state = decay * state + (delta * v[k])[:, None] * B
            mixed = (state @ C + w["skip"] * v[k]) * F.silu(z[k])
            outputs.append(((encoded[k] + mixed @ w["out"].T) @ w["readout"].T + w["readout_bias"]).item())
    assert y == pytest.approx(outputs, rel=1e-10, abs=1e-12)


def test_its_starting_steps_and_decays_are_mambas() -> None:
    model = FlashMamba([generator(seed, "start") for seed in range(50)])
    steps = F.softplus(model.weights["step_bias"])
    assert 1e-3 * 0.999 < steps.min() < 2e-3
    assert 0.05 < steps.max() < 0.1 * 1.001
    torch.testing.assert_close(model.weights["log_decay"].exp()[0, 0], torch.tensor([1.0, 2.0, 3.0]))
