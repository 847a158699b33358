"""Bad input: the exception class, the argument's name, what was found and what was wanted — for every listed case."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.comparison import assert_close
from tests.nn.models import CHANNELS, small_config
from tests.tolerances import FLOAT32_FORWARD
from tides.errors import ConfigError, DataError, ShapeError, TidesError
from tides.nn import Backbone, Forecaster, SequenceClassifier, SequenceRegressor

B, L, D, Q = 3, 5, CHANNELS, 2
NET = Backbone(small_config()).eval()
CLF = SequenceClassifier(small_config(), 3).eval()
TIMED = SequenceClassifier(small_config(pool="time"), 3).eval()
COVARIATES = SequenceRegressor(small_config(), 1, static_size=4).eval()
STEPS = Forecaster(small_config(), D).eval()
READOUT = Forecaster(small_config(), D, "readout").eval()

X = torch.randn(B, L, D)
GAPS = torch.rand(B, L)
TIMES = GAPS.double().cumsum(1)
ASKED = torch.rand(B, Q).double() * 5
ALL = torch.ones(B, L, dtype=torch.bool)
SEEN = torch.ones(B, L, D, dtype=torch.bool)
STATE = NET.init_state(B)


def spoilt(x: torch.Tensor, value: float, *where: int) -> torch.Tensor:
    x = x.clone()
    x[where] = value
    return x


HOLES = ALL.clone()
HOLES[1, 2] = False

CASES: dict[str, tuple[Callable[[], Any], type[TidesError], str]] = {
    # gaps
    "negative gap": (lambda: NET(X, spoilt(GAPS, -1.0, 1, 3)), DataError, r"gaps: found -1.0 in series 1 at step 3"),
    "NaN gap": (lambda: NET(X, spoilt(GAPS, torch.nan, 0, 2)), DataError, r"gaps: found nan in series 0 at step 2"),
    "infinite gap": (
        lambda: CLF(X, spoilt(GAPS, torch.inf, 2, 4)),
        DataError,
        r"gaps: found inf in series 2 at step 4",
    ),
    "negative number as gap": (lambda: NET(X, -0.5), DataError, r"gaps: found -0.5"),
    "gaps of wrong shape": (lambda: NET(X, GAPS[:, :4]), ShapeError, r"gaps: found shape \(3, 4\), wanted.*\(3, 5\)"),
    "gaps with an extra axis": (lambda: NET(X, GAPS[..., None]), ShapeError, r"gaps: found shape \(3, 5, 1\)"),
    "integer gaps": (lambda: NET(X, torch.ones(B, L, dtype=torch.long)), ShapeError, r"gaps: found dtype torch.int64"),
    "no gaps": (lambda: NET(X, None), ShapeError, r"gaps: found NoneType, wanted a tensor \(b, l\)"),
    "gap of a step": (
        lambda: NET.step(X[:, 0], -GAPS[:, 0], STATE),
        DataError,
        r"gap_t: found -.* at \[0\], wanted ≥ 0",
    ),
    "gap of a step with a wrong shape": (
        lambda: NET.step(X[:, 0], GAPS[:, :1], STATE),
        ShapeError,
        r"gap_t: found \(3, 1\), wanted a tensor of shape \(3,\)",
    ),
    "gaps of a step as a list": (
        lambda: NET.step(X[:, 0], [0.5] * 3, STATE),
        ShapeError,
        r"gap_t: found list, wanted a tensor of shape \(3,\)",
    ),
    "negative advance": (lambda: NET.advance(STATE, -GAPS[:, 0]), DataError, r"gap: found -.* at \[0\]"),
    "NaN advance": (
        lambda: NET.advance(STATE, spoilt(GAPS[:, 0], torch.nan, 2)),
        DataError,
        r"gap: found nan at \[2\]",
    ),
    "advance by a wrong shape": (lambda: NET.advance(STATE, GAPS), ShapeError, r"gap: found \(3, 5\).*\(3,\)"),
    "looking back (readout)": (lambda: READOUT.peek(STATE, -ASKED), DataError, r"gap: found -.* at \[0, 0\]"),
    "looking back (steps)": (lambda: STEPS.peek(STEPS.init_state(B), -ASKED), DataError, r"gaps: found -"),
    "offsets of a wrong shape": (lambda: READOUT.peek(STATE, ASKED[0]), ShapeError, r"at: found shape \(2,\).*b = 3"),
    "offsets for another batch": (lambda: READOUT.peek(STATE, ASKED[:2]), ShapeError, r"at: found shape \(2, 2\)"),
    # values
    "NaN value": (
        lambda: NET(spoilt(X, torch.nan, 1, 3, 0), GAPS),
        DataError,
        r"^x: found nan in series 1 at step 3, channel 0; mark missing values with `observed`",
    ),
    "infinite value": (
        lambda: CLF(spoilt(X, torch.inf, 0, 1, 1), GAPS),
        DataError,
        r"^x: found inf in series 0 at step 1, channel 1",
    ),
    "NaN among observed values": (
        lambda: STEPS(spoilt(X, torch.nan, 2, 4, 1), TIMES, SEEN, ASKED),
        DataError,
        r"values: found nan in series 2 at step 4, channel 1",
    ),
    "NaN in a step": (lambda: NET.step(spoilt(X[:, 0], torch.nan, 1, 0), GAPS[:, 0], STATE), DataError, r"series 1"),
    "values of wrong rank": (lambda: NET(X[0], GAPS), ShapeError, r"x: found shape \(5, 2\), wanted \(b, l, d\)"),
    "values of wrong width": (
        lambda: NET(torch.randn(B, L, 7), GAPS),
        ShapeError,
        r"x: found shape \(3, 5, 7\), wanted.*last axis 2",
    ),
    "a step of wrong rank": (lambda: NET.step(X, GAPS[:, 0], STATE), ShapeError, r"x_t: found shape \(3, 5, 2\)"),
    "an empty batch": (lambda: CLF(X[:0], GAPS[:0]), ShapeError, r"x: found shape \(0, 5, 2\), wanted at least one"),
    "length zero": (lambda: NET(X[:, :0], GAPS[:, :0]), ShapeError, r"x: found shape \(3, 0, 2\), wanted at least one"),
    "integer values": (lambda: NET(X.long(), GAPS), ShapeError, r"x: found dtype torch.int64, wanted a floating-point"),
    "complex values": (lambda: NET(X + 0j, GAPS), ShapeError, r"x: found dtype torch.complex64"),
    "values that are no tensor": (lambda: NET(X.tolist(), GAPS), ShapeError, r"x: found list, wanted a tensor"),
    # masks
    "valid with holes": (lambda: NET(X, GAPS, valid=HOLES), DataError, r"valid: series 1 has a hole before step 3"),
    "valid of wrong shape": (
        lambda: NET(X, GAPS, valid=ALL[:, :3]),
        ShapeError,
        r"valid: found torch.bool of shape \(3, 3\), wanted bool \(b, l\) = \(3, 5\)",
    ),
    "valid as numbers": (lambda: NET(X, GAPS, valid=ALL.float()), ShapeError, r"valid: found torch.float32"),
    "observed of wrong shape": (
        lambda: NET(X, GAPS, observed=ALL),
        ShapeError,
        r"observed: found torch.bool of shape \(3, 5\), wanted bool \(3, 5, 2\)",
    ),
    "observed as numbers": (
        lambda: STEPS(X, TIMES, SEEN.float(), ASKED),
        ShapeError,
        r"observed: found torch.float32 of shape \(3, 5, 2\)",
    ),
    "missing values without mask channels": (
        lambda: NET(X, GAPS, observed=spoilt(SEEN, False, 0, 0, 0)),
        ConfigError,
        r"mask_channels: 'auto' was built without",
    ),
    # devices
    "values on another device": (lambda: NET(X.to("meta"), GAPS), ShapeError, r"x: found device meta.*device cpu"),
    "gaps on another device": (lambda: NET(X, GAPS.to("meta")), ShapeError, r"gaps: found device meta"),
    "valid on another device": (lambda: NET(X, GAPS, valid=ALL.to("meta")), ShapeError, r"valid: found device meta"),
    "observed on another device": (
        lambda: NET(X, GAPS, observed=SEEN.to("meta")),
        ShapeError,
        r"observed: found device meta",
    ),
    "times on another device": (
        lambda: STEPS(X, TIMES.to("meta"), None, ASKED),
        ShapeError,
        r"times: found device meta",
    ),
    "queries on another device": (
        lambda: READOUT(X, TIMES, None, ASKED.to("meta")),
        ShapeError,
        r"query_times: found device meta",
    ),
    # states and covariates
    "state of another batch": (
        lambda: NET(X, GAPS, state=NET.init_state(2)),
        ShapeError,
        r"state: found 2 series, wanted 3",
    ),
    "state of another depth": (
        lambda: NET(X, GAPS, state=STATE._replace(blocks=STATE.blocks[:1])),
        ShapeError,
        r"state: found 1 blocks, wanted a BackboneState of 2",
    ),
    "something else as state": (lambda: NET(X, GAPS, state=(1, 2)), ShapeError, r"state: found tuple"),
    "missing covariates": (lambda: COVARIATES(X, GAPS), ShapeError, r"static: found none, wanted \(3, 4\)"),
    "covariates of wrong width": (
        lambda: COVARIATES(X, GAPS, static=torch.randn(B, 5)),
        ShapeError,
        r"static: found shape \(3, 5\), wanted \(3, 4\)",
    ),
    "covariates of another batch": (
        lambda: COVARIATES(X, GAPS, static=torch.randn(2, 4)),
        ShapeError,
        r"static: found shape \(2, 4\), wanted \(3, 4\)",
    ),
    "covariates nobody asked for": (lambda: CLF(X, GAPS, static=torch.randn(B, 4)), ShapeError, r"static: found shape"),
    # sizes
    "no classes": (lambda: SequenceClassifier(small_config(), 0), ConfigError, r"classes: found 0, wanted an integer"),
    "no targets": (lambda: SequenceRegressor(small_config(), 0), ConfigError, r"targets: found 0"),
    "no channels": (lambda: Forecaster(small_config(), 0), ConfigError, r"channels: found 0"),
    "unknown query mode": (lambda: Forecaster(small_config(), 2, "ask"), ConfigError, r"query_mode: found 'ask'"),
    # calibration
    "only zero gaps": (lambda: NET.calibrate(0 * GAPS), DataError, r"gaps: all training gaps are zero"),
    "training gaps in a list": (
        lambda: NET.calibrate([1.0, 2.0]),
        ShapeError,
        r"gaps: found list, wanted a tensor",
    ),
    "scales in lists": (
        lambda: NET.calibrate(GAPS, [0.0, 0.0], [1.0, 1.0]),
        ConfigError,
        r"shift, scale: found shapes \[\[0.0, 0.0\], \[1.0, 1.0\]\], wanted \(2,\)",
    ),
    "scale without shift": (
        lambda: NET.calibrate(GAPS, scale=torch.ones(D)),
        ConfigError,
        r"shift, scale: found shapes \[None, \(2,\)\]",
    ),
    "a scale of zero": (
        lambda: CLF.calibrate(GAPS, torch.zeros(D), torch.tensor([1.0, 0.0])),
        ConfigError,
        r"shift, scale: found 0, 0 for channel 1",
    ),
    "scales of another width": (
        lambda: NET.calibrate(GAPS, torch.zeros(3), torch.ones(3)),
        ConfigError,
        r"shift, scale: found shapes \[\(3,\), \(3,\)\], wanted \(2,\)",
    ),
    "output scales of another width": (
        lambda: STEPS.calibrate(GAPS, output_shift=torch.zeros(3), output_scale=torch.ones(3)),
        ConfigError,
        r"output_shift, output_scale: found shapes",
    ),
}
for _mode, _model in (("steps", STEPS), ("readout", READOUT)):
    CASES |= {
        f"decreasing times ({_mode})": (
            lambda m=_model: m(X, spoilt(TIMES, 0.0, 1, 3), None, ASKED),
            DataError,
            r"times: decrease in series \[1\] at observation 3: .* is followed by 0; sort the rows by time",
        ),
        f"NaN time ({_mode})": (
            lambda m=_model: m(X, spoilt(TIMES, torch.nan, 2, 1), None, ASKED),
            DataError,
            r"times: not finite at index \[2, 1\]",
        ),
        f"times of wrong shape ({_mode})": (
            lambda m=_model: m(X, TIMES[:, :4], None, ASKED),
            ShapeError,
            r"times: found shape \(3, 4\), wanted \(b, l\) = \(3, 5\)",
        ),
        f"NaN query ({_mode})": (
            lambda m=_model: m(X, TIMES, None, spoilt(ASKED, torch.nan, 1, 0)),
            DataError,
            r"query_times: not finite at index \[1, 0\]",
        ),
        f"queries of wrong rank ({_mode})": (
            lambda m=_model: m(X, TIMES, None, ASKED[0]),
            ShapeError,
            r"query_times: found shape \(2,\), wanted \(b, q\) with b = 3",
        ),
        f"no queries ({_mode})": (
            lambda m=_model: m(X, TIMES, None, ASKED[:, :0]),
            ShapeError,
            r"query_times: found shape \(3, 0\).*q ≥ 1",
        ),
        f"query mask of wrong shape ({_mode})": (
            lambda m=_model: m(X, TIMES, None, ASKED, query_valid=ALL),
            ShapeError,
            r"query_valid: found torch.bool of shape \(3, 5\), wanted bool \(b, q\) = \(3, 2\)",
        ),
        f"query mask as numbers ({_mode})": (
            lambda m=_model: m(X, TIMES, None, ASKED, query_valid=torch.ones(B, Q)),
            ShapeError,
            r"query_valid: found torch.float32",
        ),
        f"observed of wrong shape ({_mode})": (
            lambda m=_model: m(X, TIMES, SEEN[:, :3], ASKED),
            ShapeError,
            r"observed: found torch.bool of shape \(3, 3, 2\)",
        ),
        f"values of wrong width ({_mode})": (
            lambda m=_model: m(torch.randn(B, L, 7), TIMES, None, ASKED),
            ShapeError,
            r"values: found shape \(3, 5, 7\)",
        ),
        f"length zero ({_mode})": (
            lambda m=_model: m(X[:, :0], TIMES[:, :0], None, ASKED),
            ShapeError,
            r"values: found shape \(3, 0, 2\)",
        ),
    }


CASES |= {
    "a dictionary as config": (
        lambda: Backbone({"input_size": 2}),  # type: ignore[arg-type]
        ConfigError,
        "config: found dict, wanted a TIDESConfig",
    ),
    "no state to step from": (
        lambda: CLF.step(X[:, 0], GAPS[:, 0], None),  # type: ignore[arg-type]
        ShapeError,
        "state: found NoneType, wanted a PooledState",
    ),
    "negative training gaps": (lambda: NET.calibrate(-GAPS), DataError, "gaps: found -.* wanted finite numbers ≥ 0"),
    "training gaps that are no numbers": (lambda: NET.calibrate(GAPS * torch.nan), DataError, "gaps: found nan"),
}
for _name, _call in {
    "read": lambda state: CLF.read(X, GAPS, state),
    "peek": lambda state: CLF.peek(state, GAPS[:, 0]),
    "advance": lambda state: CLF.advance(state, GAPS[:, 0]),
}.items():
    CASES[f"{_name} from the backbone's state"] = (
        lambda call=_call: call(STATE),
        ShapeError,
        "state: found BackboneState, wanted a PooledState",
    )
for _name, _value in {"a negative": -1, "a fractional": 1.5, "a named": "a", "a boolean": True}.items():
    CASES |= {
        f"{_name} batch": (
            lambda value=_value: CLF.init_state(value),
            ShapeError,
            "batch: found .*wanted an integer ≥ 0",
        ),
        f"{_name} static size": (
            lambda value=_value: SequenceClassifier(small_config(), 2, static_size=value),
            ConfigError,
            "static_size: found .*, wanted an integer ≥ 0",
        ),
    }
CASES |= {
    "times as an array": (lambda: STEPS(X, TIMES.numpy(), None, ASKED), ShapeError, "times: found ndarray, no tensor"),
    "queries as an array": (
        lambda: STEPS(X, TIMES, None, ASKED.numpy()),
        ShapeError,
        "query_times: found ndarray, no tensor",
    ),
    "valid as a list": (lambda: NET(X, GAPS, valid=ALL.tolist()), ShapeError, "valid: found list, wanted bool"),
    "valid as an array": (lambda: NET(X, GAPS, valid=ALL.numpy()), ShapeError, "valid: found ndarray, wanted bool"),
    "observed as a list": (lambda: NET(X, GAPS, observed=SEEN.tolist()), ShapeError, "observed: found list"),
    "observed as an array": (lambda: NET(X, GAPS, observed=SEEN.numpy()), ShapeError, "observed: found ndarray"),
    "observed as a list in a step": (
        lambda: NET.step(X[:, 0], GAPS[:, 0], STATE, observed=SEEN[:, 0].tolist()),
        ShapeError,
        r"observed: found list, wanted bool \(b, d\)",
    ),
    "query mask as an array": (
        lambda: STEPS(X, TIMES, None, ASKED, query_valid=ALL[:, :Q].numpy()),
        ShapeError,
        "query_valid: found ndarray, wanted bool",
    ),
    "state of another state size": (
        lambda: NET(X, GAPS, state=Backbone(small_config(state_size=8)).init_state(B)),
        ShapeError,
        r"state: found 4 features and modes \[8\].*wanted 4 and 4 everywhere",
    ),
    "state of another width": (
        lambda: NET.step(X[:, 0], GAPS[:, 0], Backbone(small_config(hidden_size=6)).init_state(B)),
        ShapeError,
        "state: found 6 features.*wanted 4",
    ),
    "state of another precision": (
        lambda: NET.step(X[:, 0], GAPS[:, 0], Backbone(small_config()).double().init_state(B)),
        ShapeError,
        "state: found torch.float64 on cpu, wanted torch.float32 on cpu",
    ),
    "advancing nothing": (lambda: NET.advance(None, GAPS[:, 0]), ShapeError, "state: found NoneType"),  # type: ignore[arg-type]
    "looking ahead from nothing": (lambda: STEPS.peek(None, ASKED), ShapeError, "state: found NoneType"),  # type: ignore[arg-type]
    "looking ahead from a pool": (
        lambda: NET.peek(CLF.init_state(B), GAPS[:, 0]),  # type: ignore[arg-type]
        ShapeError,
        "state: found PooledState",
    ),
    "no offsets": (lambda: READOUT.peek(STATE, ASKED[:, :0]), ShapeError, r"at: found shape \(3, 0\).*q ≥ 1"),
    "an offset as a number": (lambda: READOUT.peek(STATE, 1.0), ShapeError, "at: found float, no tensor"),  # type: ignore[arg-type]
    "a forecaster of a dictionary": (
        lambda: Forecaster({}, 3),  # type: ignore[arg-type]
        ConfigError,
        "config: found dict, wanted a TIDESConfig",
    ),
    "classes as a boolean": (lambda: SequenceClassifier(small_config(), True), ConfigError, "classes: found True"),
    "covariates as an array": (
        lambda: COVARIATES(X, GAPS, static=torch.ones(B, 4).numpy()),
        ShapeError,
        "static: found ndarray, no tensor",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case: str) -> None:
    call, kind, message = CASES[case]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert isinstance(caught.value, TidesError)


@pytest.mark.parametrize("model", [CLF, TIMED], ids=["mean", "time"])
def test_padding_may_hold_anything(model: SequenceClassifier) -> None:
    valid = torch.arange(L) < torch.tensor([[L], [3], [1]])
    wanted = model(X, GAPS, valid=valid)
    for filling in (torch.nan, torch.inf, -7.0):
        found = model(X.masked_fill(~valid[..., None], filling), GAPS.masked_fill(~valid, filling), valid=valid)
        assert torch.equal(found, wanted)


def test_missing_values_may_hold_anything() -> None:
    model = Backbone(small_config(mask_channels=True)).eval()
    observed = torch.rand(B, L, D) < 0.5
    wanted, _ = model(X, GAPS, observed=observed)
    found, _ = model(X.masked_fill(~observed, torch.nan), GAPS, observed=observed)
    assert torch.equal(found, wanted)


def test_gaps_may_be_a_vector_or_a_number() -> None:
    wanted, _ = NET(X, torch.full((B, L), 2.0))
    assert torch.equal(NET(X, 2.0)[0], wanted)
    assert torch.equal(NET(X, 2)[0], wanted)
    assert torch.equal(NET(X, np.float32(2))[0], wanted)
    assert torch.equal(NET(X, torch.full((L,), 2.0))[0], wanted)


def test_length_one() -> None:
    y, _ = NET(X[:, :1], GAPS[:, :1])
    assert y.shape == (B, 1, 4)
    assert torch.isfinite(y).all()
    assert CLF(X[:, :1], GAPS[:, :1]).shape == (B, 3)
    assert STEPS(X[:, :1], TIMES[:, :1], None, ASKED).shape == (B, Q, D)
    assert READOUT(X[:, :1], TIMES[:, :1], None, ASKED).shape == (B, Q, D)


def test_one_step_cannot_train_batch_norm_but_two_can() -> None:
    model = Backbone(small_config())
    only = torch.arange(L) < 1
    for call in (lambda: model(X[:1, :1], GAPS[:1, :1]), lambda: model(X[:1], GAPS[:1], valid=only[None])):
        with pytest.raises(DataError, match="norm: one valid step has no variance"):
            call()
    model(X[:2, :1], GAPS[:2, :1])
    Backbone(small_config(norm="layer"))(X[:1, :1], GAPS[:1, :1])


def test_a_series_without_any_step() -> None:
    valid = torch.zeros(B, L, dtype=torch.bool)
    valid[0] = True
    y, state = NET(X, GAPS, valid=valid)
    assert float(y[1:].detach().abs().max()) == 0
    empty = NET.init_state(1)
    assert_close(state.held[1:2], empty.held, FLOAT32_FORWARD)
    assert torch.isfinite(CLF(X, GAPS, valid=valid)).all()
    for model in (STEPS, READOUT):
        assert torch.isfinite(model(X, TIMES, None, ASKED, valid=valid)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_read_in_the_models_precision(dtype: torch.dtype) -> None:
    x, gaps = X.to(dtype), GAPS.to(dtype)
    assert CLF(x, gaps).dtype == torch.float32
    assert torch.equal(CLF(x, gaps), CLF(x.float(), gaps.float()))
    assert torch.equal(STEPS(x, TIMES, None, ASKED), STEPS(x.float(), TIMES, None, ASKED))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_model_is_refused_with_a_way_out(dtype: torch.dtype) -> None:
    model = Backbone(small_config()).to(dtype).eval()
    with pytest.raises(ShapeError, match=r"model: found parameters in torch\.(b)?float16, wanted float32"):
        model(X, GAPS)
    with pytest.raises(ShapeError, match=r"model: found parameters in"):
        model.init_state(1)


def test_autocast_stays_close_to_float32() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = CLF(X, GAPS)
    # bfloat16 keeps 8 bits of every product.
    assert_close(found.float(), CLF(X, GAPS), 0.1)


@pytest.mark.parametrize("model", [STEPS, READOUT], ids=["steps", "readout"])
@pytest.mark.parametrize("valid", [None, ALL], ids=["whole", "padded"])
def test_whole_number_times_are_times(model: Forecaster, valid: torch.Tensor | None) -> None:
    times, asked = torch.arange(L).expand(B, -1), torch.tensor([[1, 7]]).expand(B, -1)
    found = model(X, times, None, asked, valid=valid)
    assert torch.equal(found, model(X, times.double(), None, asked.double(), valid=valid))


@pytest.mark.parametrize("model", [STEPS, READOUT], ids=["steps", "readout"])
def test_whole_number_times_of_any_size_keep_their_differences(model: Forecaster) -> None:
    times, asked = torch.arange(L).expand(B, -1), torch.tensor([[1, 7]]).expand(B, -1)
    begin = 1_700_000_000_000_000_000
    wanted = model(X, times, None, asked)
    assert torch.equal(model(X, times + begin, None, asked + begin), wanted)
    assert torch.equal(model(X, times + 3, None, asked + 3.0), wanted)


@pytest.mark.parametrize("mode", ["steps", "readout"])
def test_whole_number_times_know_the_start_of_time(mode: Any) -> None:
    model = Forecaster(small_config(first_gap="start", variant="mamba-s"), D, mode).eval()
    times, asked = 5 + torch.arange(L).expand(B, -1), torch.tensor([[6, 17]]).expand(B, -1)
    found = model(X, times, None, asked)
    assert torch.equal(found, model(X, times.double(), None, asked.double()))
    assert not torch.allclose(found, model(X, times - 5, None, asked - 5))
