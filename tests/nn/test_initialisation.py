"""Starting values and the layout of a block, as the paper's appendix states them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.comparison import assert_close
from tests.nn.models import VARIANTS, backbone, small_config, values_and_gaps
from tests.tolerances import EXACT
from tides.functional import eigenvalues, hippo_blocks
from tides.nn import SSM, Backbone, TIDESConfig


def layer(**fields: Any) -> SSM:
    torch.manual_seed(0)
    sizes = {"input_size": 1, "hidden_size": 64, "state_size": 16, "groups": 2, "rank": 4}
    return SSM(TIDESConfig(**{**sizes, **fields})).double()


def as_complex(pairs: Tensor) -> Tensor:
    return torch.complex(pairs[..., 0], pairs[..., 1])


@pytest.mark.parametrize("reparam", ["standard", "exp", "stable", "softplus"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_eigenvalues_start_at_hippo(variant: str, reparam: str) -> None:
    ssm = layer(variant=variant, reparam=reparam, decay_depth=1)
    lam = eigenvalues(torch.randn(3, 64, dtype=torch.float64), ssm.weights(), ssm.spec)
    # Starting values are made in float32.
    assert_close(lam, hippo_blocks(16, 2).lam.expand(3, -1), 1e-6)


@pytest.mark.parametrize("variant", ["s5", "tides-lambda"])
def test_static_halves_of_conjugate_pairs_are_mirrored(variant: str) -> None:
    ssm = layer(variant=variant, conjugate=True)
    weights = ssm.weights()
    lam = eigenvalues(torch.randn(1, 64, dtype=torch.float64), weights, ssm.spec)[0]
    half = hippo_blocks(16, 2, half=True).lam
    wanted = half if variant == "s5" else torch.cat([half, half.conj()])
    assert_close(lam, wanted, 1e-6)
    if variant == "tides-lambda":
        base = as_complex(weights.drive.base)
        assert torch.equal(base[8:], base[:8].conj())
        assert torch.equal(weights.step[8:], weights.step[:8])


def test_input_and_output_matrices_start_in_hippos_basis() -> None:
    ssm = layer(variant="s5")
    vectors = hippo_blocks(16, 2).eigenvectors
    # B_0 = V* B_raw with B_raw real: going back leaves no imaginary part.
    raw = vectors @ as_complex(ssm.drive.base.detach())
    assert float(raw.imag.abs().max()) < 1e-6
    assert 0.9 < float(raw.real.std()) * math.sqrt(16) < 1.1
    # C_0 = C_raw V with complex C_raw.
    raw = as_complex(ssm.readout.base.detach()).T @ vectors.mH
    for part in (raw.real, raw.imag):
        assert 0.9 < float(part.std()) * math.sqrt(16) < 1.1


@pytest.mark.parametrize("rank", [4, "full"])
def test_preserved_norms_start_with_equal_columns(rank: Any) -> None:
    ssm = layer(rank=rank)
    for mix in (ssm.drive, ssm.readout):
        rms = as_complex(mix.base.detach()).abs().square().mean(0).sqrt()
        assert_close(rms, torch.full_like(rms, 1 / math.sqrt(16)), 1e-6)
        assert_close(mix.norm.detach(), torch.full((16,), math.sqrt(1 / 16 + 1e-6), dtype=torch.float64), 1e-6)


def test_the_release_starts_its_norms_at_one() -> None:
    ssm = layer(compat="release", variant="tides-full")
    for norm in (ssm.decay.norm, ssm.frequency.norm, ssm.drive.norm, ssm.readout.norm):
        assert torch.equal(norm.detach(), torch.ones_like(norm))


@pytest.mark.parametrize("variant", VARIANTS)
def test_time_scales_start_log_uniform(variant: str) -> None:
    ssm = layer(variant=variant, state_size=256, groups=2, hidden_size=4, step_init=(1e-3, 1e-1))
    step = ssm.weights().step
    if variant == "mamba-s":
        step = torch.nn.functional.softplus(step.bias).log()
    share = (step.detach() - math.log(1e-3)) / math.log(100)
    assert -1e-3 <= float(share.min()) < 0.05
    assert 0.95 < float(share.max()) <= 1 + 1e-3
    assert 0.4 < float(share.mean()) < 0.6


def test_mamba_steps_start_at_one_in_the_release() -> None:
    ssm = layer(variant="mamba-s", compat="release")
    step = torch.nn.functional.softplus(ssm.step_bias)
    assert_close(step, torch.ones_like(step), 1e-6)


@pytest.mark.parametrize("init", ["zeros", "random"])
def test_final_weights_of_the_heads(init: str) -> None:
    ssm = layer(variant="tides-full", projector_init=init)
    for weight in (ssm.decay.weight, ssm.frequency.weight, ssm.drive.up, ssm.readout.up):
        spread = float(weight.detach().std())
        assert spread == 0 if init == "zeros" else 0.008 < spread < 0.012


def test_skip_starts_normal() -> None:
    skip = layer(hidden_size=4096, state_size=2, groups=1, variant="s5").skip.detach()
    assert abs(float(skip.mean())) < 0.1
    assert 0.9 < float(skip.std()) < 1.1


@pytest.mark.parametrize(("expand", "inner"), [(1.0, 4), (2.0, 8), (0.5, 2), (0.4, 2), (0.01, 1)])
def test_inner_width_of_the_feed_forward_part(expand: float, inner: int) -> None:
    block = Backbone(small_config(expand=expand)).blocks[0]
    assert block.glu.value.weight.shape == (inner, 4)
    assert block.glu.out.weight.shape == (4, inner)


class Threefold(nn.Module):
    """Stands in for dropout, so that its places show."""

    p = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


def test_dropout_stands_behind_gelu_and_behind_the_feed_forward_part() -> None:
    block = backbone(depth=1, dropout=0.5, norm="layer").blocks[0]
    _, gaps = values_and_gaps()
    u = torch.randn(3, 6, 4, dtype=torch.float64)
    y, _ = block.ssm(block.norm.normalise(u), gaps)
    block.dropout = Threefold()
    block.train()
    found, _ = block(u, gaps)
    assert_close(found, u + 3 * block.glu(3 * nn.functional.gelu(y)), EXACT)
    # What was put in its place decides itself what evaluation means.
    block.eval()
    assert_close(block(u, gaps)[0], found, EXACT)


def test_dropout_acts_in_training_only() -> None:
    model = backbone(dropout=0.5, norm="layer")
    x, gaps = values_and_gaps()
    assert torch.equal(model(x, gaps)[0], model(x, gaps)[0])
    model.train()
    assert not torch.equal(model(x, gaps)[0], model(x, gaps)[0])


def test_the_width_of_the_encoder_counts_every_channel() -> None:
    plain = small_config()
    assert Backbone(plain).encoder_width == 2
    assert Backbone(small_config(mask_channels=True)).encoder_width == 4
    assert Backbone(small_config(mask_channels=True, variant="mamba-s"), query_channel=True).encoder_width == 6


def test_time_scales_of_a_model_survive_a_change_of_precision() -> None:
    model = Backbone(small_config())
    model.calibrate(torch.tensor([[1 / 3, 1 / 3]], dtype=torch.float64))
    for cast in (model.float(), model.double(), model.to(torch.float32)):
        assert cast.calibration.time_scale.dtype == torch.float64
        assert cast.calibration.time_scale.item() == 1 / 3


@pytest.mark.parametrize("rank", [2, "diag"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_can_be_built_without_memory_and_filled_later(variant: str, rank: Any) -> None:
    source, (x, gaps) = backbone(variant=variant, rank=rank), values_and_gaps()
    source.calibration.time_scale.fill_(3.0)
    with torch.device("meta"):
        empty, assigned = (Backbone(source.config).double() for _ in range(2))
    assert all(tensor.is_meta for tensor in empty.state_dict().values())
    empty.to_empty(device="cpu").load_state_dict(source.state_dict())
    assigned.load_state_dict(source.state_dict(), assign=True)
    for found in (empty.eval(), assigned.eval()):
        assert found.calibration.time_scale.dtype == torch.float64
        assert torch.equal(found(x, gaps)[0], source(x, gaps)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_can_be_built_on_a_gpu(variant: str) -> None:
    with torch.device("cuda"):
        model = Backbone(small_config(variant=variant))
        y, _ = model(torch.randn(2, 3, 2), torch.ones(2, 3))
    assert {tensor.device.type for tensor in model.state_dict().values()} == {y.device.type} == {"cuda"}
