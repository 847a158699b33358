"""Follow a series as it arrives: `step` takes in an observation, `advance` lets time pass, `peek` asks and forgets.

    python examples/stream_and_peek.py

A forecaster learns the calcium oscillator for a few seconds and then reads one series observation by observation.
Expect: the stream gives the answers of the whole-sequence call, questions leave the state untouched, and letting two
seconds pass at once or in two parts is the same; every difference is below 1e-5.
"""

import torch

import tides


def main(steps: int = 40) -> dict[str, float]:
    torch.manual_seed(0)
    data = tides.data.systems.forecasting("calcium", n=64, seed=0, points=40)
    scaling = tides.data.Scaling.fit(data)
    scale = (torch.tensor(scaling.mean).float(), torch.tensor(scaling.std).float())
    batch = tides.data.collate(data, first_gap=data.median_gap())
    config = tides.TIDESConfig(input_size=2, hidden_size=16, state_size=8, depth=1, rank=4, mask_channels=True)
    model = tides.Forecaster(config, channels=2, query_mode="readout").calibrate(batch.gaps[batch.valid], *scale)

    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        answer = model(
            batch.values,
            batch.times,
            batch.observed,
            batch.query_times,
            valid=batch.valid,
            query_valid=batch.query_valid,
        )
        error = ((answer - batch.targets) / scale[1])[batch.target_observed]
        optimiser.zero_grad()
        error.square().mean().backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"step {step}: mean squared error {error.square().mean().item():.3f} (always the mean: about 1)")

    model.eval()
    with torch.no_grad():
        return follow(model, data[0])


def follow(model: tides.Forecaster, series: tides.data.IrregularSeries) -> dict[str, float]:
    """Read one series step by step; compare with the whole-sequence call."""
    values = torch.tensor(series.values).float()[None]
    observed = torch.tensor(series.observed)[None]
    times = torch.tensor(series.times)[None]
    ahead = torch.tensor([[0.5, 2.0]])

    state = model.init_state(1)
    gaps = torch.diff(times, dim=1, prepend=times[:, :1]).float()
    for k in range(values.shape[1]):
        streamed, state = model.step(values[:, k], gaps[:, k], state, observed=observed[:, k], at=ahead)
    whole = model(values, times, observed, times[:, -1:] + ahead.double())

    later = model.advance(state, torch.tensor([2.0]))
    twice = model.advance(model.advance(state, torch.tensor([0.5])), torch.tensor([1.5]))
    found = {
        "stream against whole sequence": (streamed - whole).abs().max().item(),
        "peek again": (model.peek(state, ahead) - streamed).abs().max().item(),
        "advance 2 against 0.5 + 1.5": max(
            (one.s - other.s).abs().max().item() for one, other in zip(later.blocks, twice.blocks, strict=True)
        ),
    }
    for what, difference in found.items():
        print(f"{what}: {difference:.1e}")
    return found


if __name__ == "__main__":
    main()
