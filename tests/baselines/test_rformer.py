"""RFormer's windows end where they should, in time and between observations."""

from typing import Any

import torch

from tests.baselines.small import SMALL, draw
from tides import baselines
from tides.baselines.inputs import Series
from tides.baselines.path import Path, fill, make_path
from tides.baselines.rformer import RFormer, window_signatures
from tides.baselines.signature import prefix_signatures


def config(**fields: Any) -> Any:
    base = {"input_size": 1, "classes": 2, "windows": 4, "level": 1, "univariate": False, "heads": 1}
    return baselines.config_of("rformer", **{**base, **fields})


def line(l: int) -> Path:
    """x = t² at l points of [0, 1]."""
    t = torch.linspace(0, 1, l, dtype=torch.float64)
    return Path(torch.stack([t, t.square()], -1).unsqueeze(0), t.unsqueeze(0))


def test_window_ends_on_a_grid() -> None:
    """Nine points, four windows: they end at points 2, 4, 6 and 8, the last one included."""
    found = window_signatures(line(9), config(views="global"))
    ends = torch.tensor([0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found[0], torch.stack([ends, ends.square()], -1))
    local = window_signatures(line(9), config(views="local"))
    torch.testing.assert_close(local[0].cumsum(0), found[0])
    torch.testing.assert_close(local[0, :, 0], torch.full((4,), 0.25, dtype=torch.float64))


def test_window_ends_between_points() -> None:
    """Six points, four windows: the path is straight between points, so is its end."""
    path = line(6)
    found = window_signatures(path, config(views="global"))
    x = path.points[0, :, 1]
    expected = torch.stack([x[1] + 0.25 * (x[2] - x[1]), (x[2] + x[3]) / 2, x[3] + 0.75 * (x[4] - x[3]), x[5]])
    torch.testing.assert_close(found[0, :, 1], expected)


def test_local_windows_against_paths_cut_by_hand() -> None:
    """Level three of each window equals that of the piece with the window's ends put in."""
    torch.manual_seed(1)
    t = torch.sort(torch.rand(1, 11, dtype=torch.float64)).values
    t = (t - t[:, :1]) / (t[:, -1:] - t[:, :1])
    points = torch.cat([t.unsqueeze(-1), torch.randn(1, 11, 2, dtype=torch.float64)], -1)
    settings = config(views="local", level=3, input_size=2)
    found = window_signatures(Path(points, t), settings)
    for window in range(4):
        low, high = window / 4, (window + 1) / 4
        inner = [points[0, k] for k in range(11) if low < t[0, k] < high]
        ends = [_at(points[0], t[0], moment) for moment in (low, high)]
        piece = torch.stack([ends[0], *inner, ends[1]]).unsqueeze(0)
        expected = prefix_signatures(piece, 3).take(torch.tensor([[len(piece[0]) - 1]])).flat()
        torch.testing.assert_close(found[0, window], expected[0, 0], rtol=1e-9, atol=1e-12)


def _at(points: torch.Tensor, t: torch.Tensor, moment: float) -> torch.Tensor:
    k = int((t <= moment).sum()) - 1
    if k == len(t) - 1:
        return points[k]
    share = (moment - t[k]) / (t[k + 1] - t[k])
    return points[k] + share * (points[k + 1] - points[k])


def test_univariate_tokens_are_the_channels_side_by_side() -> None:
    settings = config(input_size=2, level=2, univariate=True, views="global")
    t = torch.linspace(0, 1, 7, dtype=torch.float64)
    points = torch.cat([t[:, None], torch.randn(7, 2, dtype=torch.float64)], -1).unsqueeze(0)
    found = window_signatures(Path(points, t.unsqueeze(0)), settings)
    assert found.shape == (1, 4, 2 * 6)
    for channel in (0, 1):
        alone = config(level=2, views="global")
        expected = window_signatures(Path(points[..., [0, 1 + channel]], t.unsqueeze(0)), alone)
        torch.testing.assert_close(found[..., 6 * channel : 6 * channel + 6], expected)


def test_token_sizes() -> None:
    """Channels and time together: (C+1) + (C+1)²; channel by channel: C·(2 + 4 + 8)."""
    assert config(input_size=6, level=2, embedding=20).token_size == 7 + 49 + 20
    assert config(input_size=6, level=3, univariate=True, embedding=10).token_size == 6 * 14 + 10
    assert config(input_size=6, level=2, views="both", embedding=1).token_size == 2 * 56 + 1


def test_shared_layers_have_the_weights_of_one() -> None:
    fields = {**SMALL["rformer"], "depth": 3}
    own, shared = (baselines.build("rformer", **fields, shared=flag) for flag in (False, True))
    assert isinstance(own, RFormer)
    assert isinstance(shared, RFormer)
    assert len(own.layers) == 3
    assert len(shared.layers) == 1


def test_missing_values_lie_on_the_line_between_their_neighbours() -> None:
    t = torch.tensor([[0.0, 0.1, 0.4, 1.0]], dtype=torch.float64)
    values = torch.tensor([[[0.0, 0], [2.0, 0], [0.0, 0], [8.0, 0]]], dtype=torch.float64)
    observed = torch.tensor([[[False, False], [True, False], [False, False], [True, False]]])
    expected = torch.tensor([[[2.0, 0], [2.0, 0], [4.0, 0], [8.0, 0]]], dtype=torch.float64)
    torch.testing.assert_close(fill(values, observed, t), expected)


def test_the_path_of_a_padded_series_stands_still() -> None:
    batch = draw()
    series = Series(batch.values, batch.values, batch.gaps, batch.observed, batch.valid)
    points, moments = make_path(series, config(input_size=3, mask_channels=True))
    assert points.shape == (3, 12, 7)
    assert moments.min() == 0
    torch.testing.assert_close(moments[:, -1], torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(points[1, 6:], points[1, 6:7].expand(6, 7))
