"""Models side by side end where `fit` leaves them, whatever runs beside them."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import tides
from tides.data import IrregularDataset
from tides.errors import ConfigError, DataError
from tides.nn import SequenceClassifier, TIDESConfig
from tides.training import Classification, TrainConfig, fit, members
from tides.training.lanes import Member, ResidentSeries, class_logits, fit_side_by_side

LENGTH = 12
SETTINGS = TrainConfig(
    epochs=6, batch_size=4, optimiser="adam", lr=2e-2, weight_decay=0.01, schedule="cosine", patience=2, clip_norm=1.0
)


def problem(n: int = 18, seed: int = 0) -> tuple[IrregularDataset, ResidentSeries]:
    """Slow against fast waves in noise, as a data set and on the device."""
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    clock = np.arange(1.0, LENGTH + 1)
    waves = np.sin(clock * np.where(labels, 1.5, 0.5)[:, None] + generator.uniform(0, 6, (n, 1)))
    values = np.stack([waves, generator.standard_normal((n, LENGTH))], axis=1).astype(np.float32)
    data = tides.data.from_arrays(values, times=np.tile(clock, (n, 1)), y=labels)
    times = torch.from_numpy(np.tile(clock, (n, 1)))
    return data, ResidentSeries(torch.from_numpy(values).movedim(1, 2).contiguous(), times, torch.from_numpy(labels))


def model(seed: int, dropout: float = 0.2) -> SequenceClassifier:
    torch.manual_seed(seed)
    config = TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1, rank=2, dropout=dropout)
    return SequenceClassifier(config, classes=2)


def member(seed: int, data: ResidentSeries, view: Callable[..., tuple[Tensor, Tensor]] | None = None) -> Member:
    found = model(seed)
    found.calibrate(data.times[:12].diff(dim=1))
    return Member(found, data, torch.arange(12), data.rows(torch.arange(12, 18)), seed, view)


def weights(found: SequenceClassifier) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in found.state_dict().values()])


@pytest.mark.parametrize("monitor", ["loss", "accuracy"])
def test_each_model_ends_where_fit_leaves_it(monitor: str) -> None:
    dataset, resident = problem()
    settings = SETTINGS.replace(monitor=monitor)
    members = [member(seed, resident) for seed in (3, 5)]
    finishes = fit_side_by_side(members, settings)
    for one, finish in zip(members, finishes, strict=True):
        alone = model(one.seed)
        parts = (dataset[:12], dataset[12:])
        wanted = fit(alone, Classification(), parts, settings.replace(seed=one.seed, calibrate="time"), progress=False)
        assert (finish.stopped, finish.epochs, finish.best_epoch) == (wanted.stopped, wanted.epochs, wanted.best_epoch)
        for name in ("train_loss", "val_loss", "val_accuracy"):
            assert finish.best[name] == pytest.approx(wanted.best[name], rel=1e-5)
        torch.testing.assert_close(weights(one.model), weights(alone), rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


def test_a_listener_hears_the_best_value_of_every_epoch() -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[tuple[int, float]] = []

        def __call__(self, fraction: float) -> None: ...

        def epoch(self, epoch: int, value: float) -> None:
            self.heard.append((epoch, value))

    _, resident = problem()
    listener = Listener()
    (finish,) = fit_side_by_side([member(3, resident)], SETTINGS, progress=listener)
    assert [epoch for epoch, _ in listener.heard] == list(range(1, finish.epochs + 1))
    assert listener.heard[-1][1] == pytest.approx(finish.best["val_loss"])
    assert [value for _, value in listener.heard] == sorted((value for _, value in listener.heard), reverse=True)


def test_neighbours_change_nothing() -> None:
    _, resident = problem()
    together = [member(seed, resident) for seed in (1, 2, 3)]
    fit_side_by_side(together, SETTINGS)
    alone = member(2, resident)
    fit_side_by_side([alone], SETTINGS)
    assert torch.equal(weights(together[1].model), weights(alone.model))  # type: ignore[arg-type]
    assert not torch.equal(weights(together[0].model), weights(alone.model))  # type: ignore[arg-type]


def test_random_generators_are_left_alone() -> None:
    _, resident = problem()
    one = member(0, resident)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit_side_by_side([one], SETTINGS.replace(epochs=1))
    assert torch.equal(torch.rand(3), expected)


def test_a_view_changes_the_training_series_only() -> None:
    _, resident = problem()
    lengths: list[int] = []

    def shorten(values: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        lengths.append(values.shape[1])
        return values[:, ::2], times[:, ::2]

    seen = member(0, resident, shorten)
    whole = member(0, resident)
    finishes = fit_side_by_side([seen, whole], SETTINGS.replace(epochs=2, patience=None))
    assert lengths == [LENGTH] * 6
    assert finishes[0].best != finishes[1].best
    assert class_logits(seen.model, seen.validation).shape == (6, 2)


def test_a_model_that_diverges_keeps_its_best_weights_and_stops_no_other() -> None:
    _, resident = problem()

    bad, good = member(0, resident), member(1, resident)
    steps = 0

    def poison(values: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal steps
        steps += 1
        if steps > 3:
            torch.nn.init.constant_(bad.model.head.bias, float("nan"))  # type: ignore[union-attr,arg-type]
        return values, times

    bad = replace(bad, view=poison)
    finishes = fit_side_by_side([bad, good], SETTINGS.replace(epochs=4, patience=None))
    assert (finishes[0].stopped, finishes[0].epochs, finishes[0].best_epoch) == ("diverged", 1, 1)
    assert (finishes[1].stopped, finishes[1].epochs) == ("epochs", 4)
    assert torch.isfinite(weights(bad.model)).all()  # type: ignore[arg-type]


class Stop(Exception):
    """In the place of a killed process."""


def test_an_interrupted_call_continues_and_ends_the_same(tmp_path: Path) -> None:
    _, resident = problem()
    settings = SETTINGS.replace(checkpoint_seconds=0.0, patience=3)
    whole = [member(seed, resident) for seed in (1, 2)]
    wanted = fit_side_by_side(whole, settings)
    epochs = 0

    def stop(fraction: float) -> None:
        nonlocal epochs
        epochs += 1
        if epochs == 4:
            raise Stop

    with pytest.raises(Stop):
        fit_side_by_side([member(seed, resident) for seed in (1, 2)], settings, folder=tmp_path, progress=stop)
    again = [member(seed, resident) for seed in (1, 2)]
    found = fit_side_by_side(again, settings, folder=tmp_path)
    for one, other in zip(found, wanted, strict=True):
        assert one.history == other.history
        assert (one.stopped, one.best_epoch) == (other.stopped, other.best_epoch)
    for one, other in zip(again, whole, strict=True):
        assert torch.equal(weights(one.model), weights(other.model))  # type: ignore[arg-type]
    # Another learning rate is another run and begins at the beginning.
    (other,) = fit_side_by_side([member(1, resident)], settings.replace(lr=1e-3), folder=tmp_path)
    assert other.history[0] != wanted[0].history[0]
    # So is a network with other settings, though its weights have the same shapes.
    calm = replace(member(1, resident), model=model(1, dropout=0.0).calibrate(resident.times[:12].diff(dim=1)))
    (other,) = fit_side_by_side([calm], settings, folder=tmp_path)
    assert other.history[0] != wanted[0].history[0]


def test_other_series_of_the_same_shapes_are_refused(tmp_path: Path) -> None:
    settings = SETTINGS.replace(checkpoint_seconds=0.0, epochs=2)
    fit_side_by_side([member(1, problem()[1])], settings, folder=tmp_path)
    with pytest.raises(ConfigError, match="holds the run of other series"):
        fit_side_by_side([member(1, problem(seed=1)[1])], settings, folder=tmp_path)


def test_members_that_cannot_be_told_apart_share_no_checkpoint(tmp_path: Path) -> None:
    _, resident = problem()
    with pytest.raises(ConfigError, match="members: 0 and 2 have one configuration, seed and choice of series"):
        fit_side_by_side([member(seed, resident) for seed in (1, 2, 1)], SETTINGS, folder=tmp_path)


def test_time_is_summed_over_interruptions(tmp_path: Path) -> None:
    _, resident = problem()
    settings = SETTINGS.replace(checkpoint_seconds=0.0, patience=None, epochs=3)

    def stop(fraction: float) -> None:
        time.sleep(0.2)
        if fraction > 0.5:
            raise Stop

    with pytest.raises(Stop):
        fit_side_by_side([member(1, resident)], settings, folder=tmp_path, progress=stop)
    (found,) = fit_side_by_side([member(1, resident)], settings, folder=tmp_path)
    assert found.seconds > 0.2


def test_a_model_that_diverges_at_once_keeps_the_weights_it_began_with() -> None:
    _, resident = problem()
    one = member(0, resident)

    def poison(values: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        torch.nn.init.constant_(one.model.head.bias, float("nan"))  # type: ignore[union-attr,arg-type]
        return values, times

    wanted = weights(one.model)  # type: ignore[arg-type]
    (found,) = fit_side_by_side([replace(one, view=poison)], SETTINGS)
    assert (found.stopped, found.best_epoch, found.best) == ("diverged", 0, {})
    assert torch.equal(weights(one.model), wanted)  # type: ignore[arg-type]


def test_members_that_cannot_be_trained_are_named() -> None:
    _, resident = problem()
    one, none = member(0, resident), torch.arange(0)
    with pytest.raises(DataError, match="member 1: it has no training series"):
        fit_side_by_side([member(1, resident), replace(one, train=none)], SETTINGS)
    with pytest.raises(DataError, match="member 0: it has no validation series"):
        fit_side_by_side([replace(one, validation=resident.rows(none))], SETTINGS)
    with pytest.raises(ConfigError, match="models: found one of them twice"):
        fit_side_by_side([one, replace(one, seed=1)], SETTINGS)


def test_settings_that_lanes_do_not_know_are_refused() -> None:
    for change in ({"monitor": "auroc"}, {"autocast": True}, {"bucketed": True}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            fit_side_by_side([], SETTINGS.replace(**change))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_steps_end_where_eager_ones_do() -> None:
    _, resident = problem()
    on_gpu = ResidentSeries(*(tensor.cuda() for tensor in resident))

    def prepared(seed: int, data: ResidentSeries) -> Member:
        found = model(seed, dropout=0.0).to(data.values.device)
        found.calibrate(data.times[:12].diff(dim=1))
        rows = torch.arange(18, device=data.values.device)
        return Member(found, data, rows[:12], data.rows(rows[12:]), seed)

    settings = SETTINGS.replace(patience=None)
    wanted = fit_side_by_side([prepared(seed, resident) for seed in range(3)], settings)
    found = fit_side_by_side([prepared(seed, on_gpu) for seed in range(3)], settings)
    for one, other in zip(found, wanted, strict=True):
        assert one.best_epoch == other.best_epoch
        assert one.best["val_loss"] == pytest.approx(other.best["val_loss"], rel=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_dropout_is_a_members_own() -> None:
    """The same seed gives the same weights alone and beside others, dropout and drawn views included."""
    _, resident = problem()
    on_gpu = ResidentSeries(*(tensor.cuda() for tensor in resident))

    def blur(values: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        return values + 0.1 * torch.randn_like(values), times

    def prepared(seed: int) -> Member:
        found = model(seed).cuda()
        found.calibrate(on_gpu.times[:12].diff(dim=1))
        rows = torch.arange(18, device="cuda")
        return Member(found, on_gpu, rows[:12], on_gpu.rows(rows[12:]), seed, blur)

    together, alone = [prepared(seed) for seed in (1, 2, 3)], prepared(2)
    fit_side_by_side(together, SETTINGS)
    fit_side_by_side([alone], SETTINGS)
    torch.testing.assert_close(weights(together[1].model), weights(alone.model), rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


def test_logits_do_not_depend_on_how_many_series_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven series, three at a time: the last piece is shorter, and the model's mode stays its own."""
    _, resident = problem(7)
    one = model(0)
    wanted = class_logits(one, resident)
    monkeypatch.setattr(members, "_STEPS_AT_ONCE", 3 * LENGTH)
    torch.testing.assert_close(class_logits(one, resident), wanted)
    assert one.training
    torch.testing.assert_close(one.eval()(resident.values, one.gaps(resident.times)), wanted)
