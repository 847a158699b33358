"""IMTS-Mixer against its equations written with loops, and its empty channels."""

import torch
from torch import Tensor

from tests.baselines.questions import question, shuffled
from tests.baselines.small import make
from tides.baselines import config_of
from tides.baselines.forecasting import Question
from tides.baselines.imts_mixer import IMTSMixer


def by_loops(model: IMTSMixer, asked: Question) -> Tensor:
    """One series, channel, observation and query at a time, with the kernel ψ_c(t) built in full."""
    b, l, c = asked.values.shape
    q, o = asked.query_times.shape[1], model.config.output_size
    result = torch.zeros(b, q, c, dtype=torch.float64)
    for i in range(b):
        rows = []
        for j in range(c):
            vector = model.channel_bias[j]
            own = [torch.stack([asked.values[i, k, j], asked.times[i, k]]) for k in range(l) if asked.observed[i, k, j]]
            if own:
                entries = torch.stack(own)
                vector = vector + (model.weight(entries).softmax(0) * model.content(entries)).sum(0)
            rows.append(vector)
        z = torch.stack(rows)
        for block in model.blocks:
            z = z + torch.relu(block.channel_mix(block.channel_norm(z.T))).T
            z = z + torch.relu(block.feature_mix(block.feature_norm(z)))
        z = model.reduce(model.norm(z))
        for k in range(q):
            kernel = model.kernel(torch.relu(model.moment(asked.query_times[i, k].view(1)))).view(c, o)
            result[i, k] = model.readout(z * kernel).squeeze(-1)
    return result


def test_the_equations() -> None:
    model, asked = make("imts-mixer"), question()
    torch.testing.assert_close(model.answer(asked), by_loops(model, asked), rtol=1e-10, atol=1e-12)  # type: ignore


def test_an_empty_channel_is_its_bias_alone() -> None:
    model, asked = make("imts-mixer"), question()
    observed = asked.observed.clone()
    observed[..., 1] = False
    asked = asked._replace(observed=observed)
    found = model.answer(asked)  # type: ignore[operator]
    torch.testing.assert_close(found, by_loops(model, asked), rtol=1e-10, atol=1e-12)  # type: ignore[arg-type]
    other = asked._replace(values=torch.where(observed, asked.values, 1e6))
    torch.testing.assert_close(model.answer(other), found)  # type: ignore[operator]
    nothing = asked._replace(observed=torch.zeros_like(observed))
    assert model.answer(nothing).isfinite().all()  # type: ignore[operator]


def test_observations_are_a_set() -> None:
    model, asked = make("imts-mixer"), question()
    order = torch.randperm(asked.values.shape[1])
    torch.testing.assert_close(model.answer(shuffled(asked, order)), model.answer(asked))  # type: ignore[operator]


def test_published_settings() -> None:
    config = config_of("imts-mixer", input_size=5)
    assert (config.hidden_size, config.output_size, config.kernel_size, config.depth) == (128, 128, 32, 3)  # type: ignore
