"""The tables of facts are complete and consistent with each other."""

import pytest

from tides.data.physiome import facts
from tides.errors import DataError


def test_there_are_fifty_systems_in_jgd_order() -> None:
    scores = [facts.system(short).jgd for short in facts.names()]
    assert len(scores) == 50
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("short", facts.names())
def test_tables_agree(short: str) -> None:
    system, channels, constants = facts.system(short), facts.channels(short), facts.constants(short)
    assert [c.index for c in channels] == list(range(system.channels))
    assert [c.index for c in constants] == list(range(system.constants))
    assert tuple(c.index for c in channels if c.target) == system.target_channels
    assert len(system.target_channels) == min(10, system.channels)
    best = sorted(channels, key=lambda c: -c.jgd)[:10]
    assert sum(c.jgd for c in best) / len(best) == pytest.approx(system.jgd, rel=1e-9)
    assert {c.index for c in best} == set(system.target_channels)
    assert len({(c.name, c.component) for c in channels}) == len(channels)


def test_unknown_system_is_named() -> None:
    with pytest.raises(DataError, match="XYZ01"):
        facts.system("XYZ01")
