import math

import pytest
import torch
from torch import Tensor

from tides.data import fading_flash
from tides.errors import ConfigError

N = 20_000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def zones() -> Tensor:
    return fading_flash.draw_zones(N, seeded())


@pytest.fixture(scope="module")
def flashes() -> Tensor:
    return fading_flash.draw_flashes(N, seeded(1))


def assert_frequencies(values: Tensor, expected: dict[int, float]) -> None:
    """Every value that occurs is expected, and each frequency lies within five standard errors."""
    assert set(values.unique().tolist()) == set(expected)
    for value, share in expected.items():
        error = 5 * math.sqrt(share * (1 - share) / values.numel())
        assert (values == value).double().mean().item() == pytest.approx(share, abs=error), value


def test_shapes_and_the_input_encoding() -> None:
    x, gaps, y, zones = fading_flash.sample(7, generator=seeded())
    assert (x.shape, gaps.shape, y.shape, zones.shape) == ((7, 40, 4), (7, 40), (7, 40, 1), (7, 40))
    assert torch.equal(x[..., 1:].argmax(-1), zones)
    assert torch.equal(x[..., 1:].sum(-1), torch.ones(7, 40))
    assert set(x[..., 0].unique().tolist()) == {0.0, 1.0}


def test_two_or_three_zones_equally_often(zones: Tensor) -> None:
    assert_frequencies((zones.diff(dim=1) != 0).sum(1) + 1, {2: 0.5, 3: 0.5})


def test_boundaries_are_uniform_over_4_to_35(zones: Tensor) -> None:
    changes = zones.diff(dim=1) != 0
    boundary = changes[changes.sum(1) == 1].long().argmax(1) + 1
    assert_frequencies(boundary, dict.fromkeys(range(4, 36), 1 / 32))
    both = changes[changes.sum(1) == 2].nonzero()[:, 1] + 1
    assert set(both.unique().tolist()) == set(range(4, 36))


def test_pairs_of_boundaries_are_drawn_without_replacement(zones: Tensor) -> None:
    # Without replacement every one of the 496 pairs is equally likely, neighbours included: a middle zone may be
    # a single position. P(distance = d) = (32 - d)/496.
    changes = zones.diff(dim=1) != 0
    pairs = changes[changes.sum(1) == 2].nonzero()[:, 1].reshape(-1, 2)
    assert_frequencies(pairs[:, 1] - pairs[:, 0], {d: (32 - d) / 496 for d in range(1, 32)})


def test_rates_are_uniform_and_neighbours_differ(zones: Tensor) -> None:
    assert_frequencies(zones[:, 0], dict.fromkeys(range(3), 1 / 3))
    # The first position lies in the first zone and the last position in the last one, always.
    three = (zones.diff(dim=1) != 0).sum(1) == 2
    # Two zones: the last differs from the first. Three: it equals it half of the time.
    assert (zones[~three, 0] != zones[~three, -1]).all()
    assert_frequencies((zones[three, 0] == zones[three, -1]).long(), {0: 0.5, 1: 0.5})
    assert_frequencies((zones[~three, -1] - zones[~three, 0]) % 3, {1: 0.5, 2: 0.5})


def test_two_to_four_flashes_uniform_over_the_row(flashes: Tensor) -> None:
    assert_frequencies(flashes.sum(1).long(), dict.fromkeys((2, 3, 4), 1 / 3))
    assert set(flashes.unique().tolist()) == {0.0, 1.0}
    assert_frequencies(flashes.nonzero()[:, 1], dict.fromkeys(range(40), 1 / 40))


def test_one_gap_per_sequence_uniform_in_its_range() -> None:
    gaps = fading_flash.sample(N, (0.5, 1.5), generator=seeded()).gaps
    assert (gaps == gaps[:, :1]).all()
    assert_frequencies(((gaps[:, 0] - 0.5) * 10).long(), dict.fromkeys(range(10), 0.1))
    fixed = fading_flash.sample(3, (0.2, 0.2), generator=seeded()).gaps
    assert torch.equal(fixed, torch.full((3, 40), 0.2))


def test_the_glow_is_the_recurrence_of_the_paper() -> None:
    x, gaps, y, zones = fading_flash.sample(5, generator=seeded(3))
    for row in range(5):
        h = 0.0
        for k in range(40):
            rate = (1.0, 1.5, 2.0)[int(zones[row, k])]
            alpha = math.exp(-rate * gaps[row, k].item())
            h = alpha * h + (1 - alpha) / rate * x[row, k, 0].item()
            assert y[row, k, 0].item() == pytest.approx(h, rel=1e-5, abs=1e-7)


def test_the_glow_solves_the_differential_equation() -> None:
    # ḣ = −λh + p with p held over the step before the position, integrated with 2,000 midpoint steps.
    flashes = torch.zeros(1, 40, dtype=torch.float64)
    flashes[0, 2] = 1
    zones = torch.full((1, 40), 1)
    y = fading_flash.glow(flashes, zones, torch.full((1, 40), 0.7, dtype=torch.float64))
    h, step = 0.0, 0.7 / 2000
    for k in range(6):
        for _ in range(2000):
            middle = h + step / 2 * (-1.5 * h + flashes[0, k].item())
            h += step * (-1.5 * middle + flashes[0, k].item())
        assert y[0, k, 0].item() == pytest.approx(h, abs=1e-7)


def test_the_generator_decides_everything() -> None:
    first, again = (fading_flash.sample(8, generator=seeded(5)) for _ in range(2))
    other = fading_flash.sample(8, generator=seeded(6))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.y, other.y)


def test_noise_has_the_stated_size_and_leaves_the_sequence_alone() -> None:
    clean = fading_flash.sample(2000, generator=seeded(7))
    noisy = fading_flash.sample(2000, generator=seeded(7), input_noise=0.2, output_noise=0.05)
    assert torch.equal(clean.zones, noisy.zones)
    assert torch.equal(clean.gaps, noisy.gaps)
    assert (noisy.x - clean.x).std().item() == pytest.approx(0.2, rel=0.02)
    assert (noisy.y - clean.y).std().item() == pytest.approx(0.05, rel=0.02)
    assert (noisy.x - clean.x).mean().item() == pytest.approx(0, abs=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch: found 0"),
        ({"batch": 1, "gap_range": (0.0, 1.0)}, "gap_range"),
        ({"batch": 1, "gap_range": (2.0, 1.0)}, "gap_range"),
        ({"batch": 1, "gap_range": (1.0, math.inf)}, "gap_range"),
        ({"batch": 1, "input_noise": -0.1}, "noise"),
        ({"batch": 1, "output_noise": math.nan}, "noise"),
    ],
)
def test_impossible_requests_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fading_flash.sample(**arguments)  # type: ignore[arg-type]
