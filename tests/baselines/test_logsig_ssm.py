"""The log-signature tokeniser: windows end at their tokens, and any state-space model may stand behind it."""

from typing import Any

import pytest
import torch

from tests.baselines.small import SMALL, answer, draw, make
from tides import baselines
from tides.baselines.logsig_ssm import LogSigSSM, tokenise
from tides.baselines.signature import log_signature
from tides.errors import ConfigError


def config(**fields: Any) -> Any:
    return baselines.config_of("logsig-ssm", **{"input_size": 2, "classes": 2, **fields})


def test_tokens_are_log_signatures_of_the_last_points() -> None:
    path = torch.randn(2, 11, 2, dtype=torch.float64)
    settings = config(stride=4, lengths=(3, 6), levels=(2, 1), global_level=2)
    found = tokenise(path, settings)
    assert found.shape == (2, 3, 3 + 2 + 3) == (2, 3, settings.token_size)
    for token, anchor in enumerate((3, 7, 10)):
        # The last token lies one step behind the end, where the path stands still.
        low = anchor - 2 if token < 2 else 9
        torch.testing.assert_close(found[:, token, :3], log_signature(path[:, low : anchor + 1], 2))
        start = max(anchor - 5 if token < 2 else 6, 0)
        torch.testing.assert_close(found[:, token, 3:5], path[:, anchor] - path[:, start])
        torch.testing.assert_close(found[:, token, 5:], log_signature(path[:, : anchor + 1], 2))


@pytest.mark.parametrize("core", ["mamba", "s6", "s5", "lru", "linoss-im", "linoss-imex", "d-linoss"])
def test_every_core(core: str) -> None:
    batch = draw()
    model = make("logsig-ssm", core=core, state_size=8).train()
    assert answer("logsig-ssm", model, batch).isfinite().all()
    longer = answer("logsig-ssm", model.eval(), batch.padded(3))
    torch.testing.assert_close(longer, answer("logsig-ssm", model, batch))


def test_tokens_are_standardised_with_running_statistics() -> None:
    model, batch = make("logsig-ssm"), draw()
    assert isinstance(model, LogSigSSM)
    before = model.standardise.running_mean.clone()
    answer("logsig-ssm", model.train(), batch)
    assert (model.standardise.running_mean != before).any()
    after = model.standardise.running_mean.clone()
    answer("logsig-ssm", model.eval(), batch)
    assert (model.standardise.running_mean == after).all()


def test_physical_steps_see_the_gaps() -> None:
    batch = draw()
    slower = batch._replace(gaps=batch.gaps * 3)
    for steps, same in (("unit", True), ("physical", False)):
        model = make("logsig-ssm", steps=steps, core="lru").eval()
        assert torch.allclose(answer("logsig-ssm", model, batch), answer("logsig-ssm", model, slower)) is same


def test_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="conv: unknown field of LRUConfig"):
        config(core="lru", conv=3)
    for core in ("linoss-imex", "d-linoss"):
        with pytest.raises(ConfigError, match="steps: 'physical' needs scheme 'im'"):
            config(core=core, steps="physical")
    with pytest.raises(ConfigError, match="levels: found 1, wanted one for each of 2"):
        config(lengths=(3, 4), levels=(2,))
    with pytest.raises(ConfigError, match="lengths: found 3"):
        baselines.config_of("logsig-ssm", **{**SMALL["logsig-ssm"], "lengths": 3})
    with pytest.raises(ConfigError, match="core: found 'gru'"):
        config(core="gru")
