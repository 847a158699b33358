"""The layer and the block without a model around them: doors that are checked, and steps."""

from typing import Any

import pytest
import torch

from tests.comparison import assert_close
from tests.nn.models import small_config
from tests.tolerances import EXACT
from tides.errors import ConfigError, ShapeError
from tides.nn import SSM, Block

LAYERS = {"ssm": SSM, "block": Block}


def layer(kind: str, **fields: Any) -> SSM | Block:
    torch.manual_seed(0)
    made: SSM | Block = LAYERS[kind](small_config(**fields)).double().eval()
    return made


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("hold", ["following", "preceding"])
@torch.no_grad()
def test_steps_are_the_sequence(kind: str, hold: str) -> None:
    made = layer(kind, hold=hold)
    u, gaps = torch.randn(2, 5, 4).double(), torch.rand(2, 5).double()
    wanted, last = made(u, gaps, state=made.init_state(2))
    state = made.init_state(2)
    for k in range(5):
        y, state = made.step(u[:, k], gaps[:, k], state)
        torch.testing.assert_close(y, wanted[:, k])
    torch.testing.assert_close(made.advance(state, gaps[:, 0]).s, made.advance(last, gaps[:, 0]).s)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("u", "gaps"),
    [
        (torch.zeros(2, 6, 4), torch.ones(2, 5)),
        (torch.zeros(2, 6, 4), torch.ones(2, 7)),
        (torch.zeros(2, 6, 4), torch.ones(6)),
        (torch.zeros(2, 6, 3), torch.ones(2, 6)),
        (torch.zeros(6, 4), torch.ones(6)),
        (torch.zeros(2, 6, 4), 1.0),
    ],
    ids=lambda one: str(tuple(one.shape) if isinstance(one, torch.Tensor) else one),
)
def test_shapes_that_do_not_fit_are_named(kind: str, u: torch.Tensor, gaps: Any) -> None:
    made = layer(kind).float()
    with pytest.raises(ShapeError, match=r"wanted \(b, l, 4\) and \(b, l\)"):
        made(u, gaps)


U, GAPS = torch.zeros(2, 6, 4), torch.ones(2, 6)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("fields", [{}, {"norm": "layer"}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("shape", [(2, 0), (0, 6)])
def test_an_empty_input_is_refused(kind: str, fields: dict[str, Any], shape: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match=r"u: found shape .*, wanted at least one series and one observation"):
        layer(kind, **fields).float()(torch.zeros(*shape, 4), torch.ones(shape))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"valid": torch.ones(2, 6)}, r"valid: found torch.float32 of shape \(2, 6\), wanted a bool tensor"),
        ({"valid": torch.ones(2, 5, dtype=torch.bool)}, r"valid: found torch.bool of shape \(2, 5\).*\(2, 6\)"),
        ({"valid": [[True] * 6] * 2}, "valid: found list, wanted a bool tensor"),
        ({"state": layer("ssm").init_state(3)}, r"state.s: found \(3, 4\), wanted \(b, p\) = \(2, 4\)"),
        ({"state": layer("ssm", state_size=8).init_state(2)}, r"state.s: found \(2, 8\).*\(2, 4\)"),
        ({"state": (1, 2, 3)}, "state: found tuple, wanted an SSMState"),
    ],
)
def test_masks_and_states_that_do_not_fit_are_named(kind: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        layer(kind).float()(U, GAPS, **arguments)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_step_and_its_gap_are_named(kind: str) -> None:
    made = layer(kind).float()
    state = made.init_state(2)
    with pytest.raises(ShapeError, match="gap_t: found list"):
        made.step(U[:, 0], [1.0, 1.0], state)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"u_t: found shape \(2, 3\)"):
        made.step(U[:, 0, :3], GAPS[:, 0], state)
    with pytest.raises(ShapeError, match="gap: found list"):
        made.advance(state, [1.0, 1.0])  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="u, gaps: found ndarray"):
        made(U.numpy(), GAPS)
    with pytest.raises(ShapeError, match="batch: found -1"):
        made.init_state(-1)
    with pytest.raises(ConfigError, match="config: found dict, wanted a TIDESConfig"):
        LAYERS[kind]({})


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_layer_is_refused_and_half_inputs_are_converted(kind: str, dtype: torch.dtype) -> None:
    made = layer(kind).float()
    assert made(U.to(dtype), GAPS)[0].dtype == torch.float32
    made = made.to(dtype)
    for call in (lambda: made(U.to(dtype), GAPS.to(dtype)), lambda: made(U, GAPS), lambda: made.init_state(2)):
        with pytest.raises(ShapeError, match=r"model: found parameters in torch\.b?float16, wanted float32"):
            call()


@pytest.mark.parametrize("variant", ["tides", "mamba-s"])
@pytest.mark.parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_a_trace_is_the_sequence_whatever_stands_in_the_padding(variant: str, bidirectional: bool) -> None:
    made = SSM(small_config(variant=variant, bidirectional=bidirectional)).double()
    u, gaps = torch.randn(2, 5, 4).double(), torch.rand(2, 5).double()
    valid = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    wanted, last = made(u, gaps, valid=valid)
    for padding in (1e3, torch.nan):
        spoilt = u.masked_fill(~valid.unsqueeze(-1), padding), gaps.masked_fill(~valid, padding)
        found, states = made.trace(*spoilt, valid=valid)
        assert_close(found[valid], wanted[valid], EXACT)
        for part, final in zip(states, last, strict=True):
            assert_close(part[torch.arange(2), valid.sum(1) - 1][:, : final.shape[-1]], final, EXACT)
