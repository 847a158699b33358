"""Observations and questions on one axis of time, against sorting by hand."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.comparison import assert_close
from tests.nn.models import CHANNELS, forecaster
from tests.tolerances import IDENTITY
from tides.nn.timeline import timeline

moments = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(moments, moments, st.data())
def test_order_positions_and_padding(times: list[int], asked: list[int], data: st.DataObject) -> None:
    times = sorted(times)
    kept, wanted = data.draw(st.integers(1, len(times))), data.draw(st.integers(1, len(asked)))
    valid, query_valid = torch.arange(len(times)) < kept, torch.arange(len(asked)) < wanted
    line = timeline(torch.tensor([times]).double(), torch.tensor([asked]).double(), valid[None], query_valid[None])

    # Observations come before questions at equal times; sorting is stable.
    rows = [(t, 0, k) for k, t in enumerate(times[:kept])] + [(t, 1, k) for k, t in enumerate(asked[:wanted])]
    rows.sort(key=lambda row: row[:2])
    n = len(rows)
    assert line.moments[0, :n].tolist() == [row[0] for row in rows]
    assert line.query[0].tolist() == [row[1] == 1 for row in rows] + [False] * (len(times) + len(asked) - n)
    assert line.real[0].sum() == n

    values, questions = torch.arange(len(times)).view(1, -1, 1), 100 + torch.arange(len(asked)).view(1, -1, 1)
    merged = line.merge(values, questions)
    assert merged[0, :n, 0].tolist() == [100 * row[1] + row[2] for row in rows]
    assert line.answers(merged)[0, :wanted, 0].tolist() == [100 + k for k in range(wanted)]


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_padding_of_the_questions_changes_no_answer_and_no_statistic(options: dict[str, Any], training: bool) -> None:
    """Also where no series is padded, and in training, where rows that count would enter the batch norm."""
    few, many = (forecaster("steps", **options).train(training) for _ in range(2))
    many.load_state_dict(few.state_dict())
    values, times = torch.randn(2, 4, CHANNELS).double(), torch.rand(2, 4).double().cumsum(1)
    asked = torch.rand(2, 4).double() * 3
    valid = torch.tensor([[True, True, False, False]] * 2)
    wanted = few(values, times, None, asked[:, :2])
    found = many(values, times, None, asked, query_valid=valid)
    assert_close(found[:, :2], wanted, IDENTITY)
    assert float(found[:, 2:].abs().max()) == 0
    for name, buffer in few.state_dict().items():
        assert_close(many.state_dict()[name], buffer, IDENTITY, name)


@pytest.mark.parametrize("mode", ["steps", "readout"])
@torch.no_grad()
def test_questions_may_be_asked_in_another_precision(mode: Any) -> None:
    model = forecaster(mode).float()
    values, times, asked = torch.randn(2, 4, CHANNELS), torch.rand(2, 4).cumsum(1), torch.rand(2, 3) * 3
    assert torch.equal(model(values, times, None, asked.double()), model(values, times, None, asked))


def test_answers_have_the_scales_of_the_inputs_unless_they_have_their_own() -> None:
    gaps, shift, scale = torch.ones(3), torch.tensor([1.0, 2.0]).double(), torch.tensor([3.0, 4.0]).double()
    model = forecaster("readout").calibrate(gaps, shift, scale)
    assert (model.output_shift.tolist(), model.output_scale.tolist()) == ([1.0, 2.0], [3.0, 4.0])
    model.calibrate(gaps, shift, scale, 10 * shift, 10 * scale)
    assert (model.output_shift.tolist(), model.output_scale.tolist()) == ([10.0, 20.0], [30.0, 40.0])
    assert model.backbone.calibration.scale.tolist() == [3.0, 4.0]
