"""Observations and questions on one axis of time, against sorting by hand."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
