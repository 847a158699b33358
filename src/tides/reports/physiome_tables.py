"""The tables of Physiome-ODE."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tides.records import Record
from tides.reports.published import published
from tides.reports.statistics import bootstrap_mean, ranks, ratio_to_best, wilcoxon, wins
from tides.reports.table import Table

NOT_RUN = "not run"
DIVERGED = "diverged"
_OURS_DIGITS = 4
# Published errors are rounded to three digits. A share is shown where that moves it by less than a fifth.
_HALF_DIGIT, _KNOWN = 0.0005, 5

Groups = Mapping[Any, Mapping[str, Record]]
"""Our columns, each with a `title`, and their records by dataset."""


def fold_errors(record: Record) -> list[float]:
    """Test errors of the folds; NaN where one diverged without any result."""
    return [math.nan if fold["test_mse"] is None else float(fold["test_mse"]) for fold in record.results["folds"]]


def rows() -> list[dict[str, Any]]:
    """The published rows in JGD order."""
    found: list[dict[str, Any]] = published("physiome")["rows"]
    return found


def best_published(row: Mapping[str, Any]) -> int:
    """The place of the published model with the smallest error; of equal ones that which the paper prints in bold."""
    numbers = published("physiome")
    bold = numbers["tied"].get(row["dataset"])
    return int(np.argmin(row["mse"])) if bold is None else int(numbers["models"].index(bold))


def main_table(groups: Groups) -> Table:
    """All fifty rows; what was not run says so."""
    numbers = published("physiome")
    lines = []
    for row in rows():
        line = [row["dataset"], f"{row['jgd']:.3f}"]
        line += [_spread(results.get(row["dataset"])) for results in groups.values()]
        line += [f"{mean:.3f} ± {std:.3f}" for mean, std in zip(row["mse"][:1], row["std"][:1], strict=True)]
        best = best_published(row)
        holders = sum(mean == row["mse"][best] for mean in row["mse"])
        holder = numbers["models"][best] if holders == 1 else f"{holders} models"
        line += [f"{row['mse'][best]:.3f}\n{holder}", *(f"{value:.3f}" for value in row["trivial"])]
        lines.append(line)
    known = {row["dataset"] for row in rows()}
    for name in dict.fromkeys(name for results in groups.values() for name in results if name not in known):
        ours = [results.get(name) for results in groups.values()]
        lines.append([name, "–", *map(_spread, ours), "–", "–", *_trivial(next(filter(None, ours)))])
    columns = ["dataset", "JGD", *(group.title for group in groups), "TIDES, published", "best published"]
    caption = "Test mean squared error: mean ± standard deviation over folds. Right: predictors that learn nothing."
    return Table([*columns, *numbers["trivial"]], lines, caption)


def standing_table(title: str, results: Mapping[str, Record]) -> Table:
    """One of our columns among the seven published ones, over the datasets that it covers."""
    numbers = published("physiome")
    covered = [row for row in rows() if row["dataset"] in results]
    ours = np.array([_mean(results[row["dataset"]]) for row in covered])
    ours = np.where(np.isnan(ours), np.inf, ours)
    theirs = np.array([row["mse"] for row in covered])
    exact, printed = np.column_stack([ours, theirs]), np.column_stack([ours.round(3), theirs])
    usable = np.isfinite(ours)
    averaged, unrounded = ranks(printed).mean(axis=0), ranks(exact, ties="best").mean(axis=0)
    winners = [0 if own <= min(row["mse"]) else 1 + best_published(row) for own, row in zip(ours, covered, strict=True)]
    single, shared = np.bincount(winners, minlength=exact.shape[1]), wins(printed)[1]
    ratio = ratio_to_best(exact[usable]) if usable.any() else np.full(exact.shape[1], math.nan)
    lines = []
    for column, name in enumerate([title, *numbers["models"]]):
        test = "–" if column == 0 else f"{wilcoxon(ours[usable], theirs[usable, column - 1]).p:.3g}"
        lines.append(
            [
                name,
                f"{averaged[column]:.2f}",
                f"{unrounded[column]:.2f}",
                str(single[column]),
                str(shared[column]),
                f"{exact[usable, column].mean():.4f}",
                f"{ratio[column]:.3f}",
                test,
                "–" if column == 0 else f"{numbers['rank'][column - 1]:.2f}, {numbers['wins'][column - 1]}",
            ]
        )
    order = np.argsort(averaged, kind="stable")
    columns = ["model", "rank, ties averaged", "rank, unrounded", "wins, one each", "wins, ties shared", "mean error"]
    columns += ["ratio to best", "Wilcoxon p against ours", "paper's rank and wins (50)"]
    caption = f"{title} and the published models over {len(covered)} of 50 datasets."
    if not usable.all():
        caption += (
            f" On {int((~usable).sum())} of them a fold of ours diverged: ranked last, left out of means and tests."
        )
    return Table(columns, [lines[i] for i in order], caption)


def excess_table(groups: Groups) -> Table:
    """What stands above the floor: ours, the published TIDES, and the best published model."""
    floor = published("physiome")["floor"]
    lines = []
    for row in rows():
        name, best = row["dataset"], min(row["mse"])
        means = [_mean(results[name]) if name in results else None for results in groups.values()]
        if all(mean is None for mean in means):
            continue
        line = [NOT_RUN if mean is None else DIVERGED if math.isnan(mean) else f"{mean - floor:.4f}" for mean in means]
        line += [f"{row['mse'][0] - floor:.4f}", f"{best - floor:.4f}"]
        found = [mean for mean in means if mean is not None and not math.isnan(mean)]
        known = found and best - floor > _KNOWN * _HALF_DIGIT
        lines.append([name, *line, f"{(min(found) - floor) / (best - floor):.2f}" if known else "–"])
    columns = ["dataset", *(group.title for group in groups), "TIDES, published", "best published", "ours ÷ best"]
    caption = (
        f"Test error less the floor of {floor}; the last column takes our best column. It is left out where the three "
        "digits of a published error say too little about what is above the floor."
    )
    return Table(columns, lines, caption)


def pair_table(groups: Groups) -> Table:
    """The column with the most datasets against each other one of ours, on the datasets that both cover."""
    first = max(groups, key=lambda group: len(groups[group]))
    lines = []
    for other, results in groups.items():
        pairs = [(_mean(groups[first][name]), _mean(results[name])) for name in results if name in groups[first]]
        found = np.array([pair for pair in pairs if not np.isnan(pair).any()])
        if other == first or len(found) < 2:
            continue
        logs = np.log(found[:, 0] / found[:, 1])
        low, high = np.exp(bootstrap_mean(logs))
        ratio = f"{np.exp(logs.mean()):.3f}\n{low:.3f}–{high:.3f}"
        better = f"{int((logs < 0).sum())} of {len(logs)}"
        lines.append([other.title, ratio, better, f"{wilcoxon(logs, 0 * logs).p:.3g}"])
    caption = (
        f"{first.title} ÷ another column of ours, on the same folds: geometric mean of the ratio of errors with a 95 % "
        "bootstrap interval over datasets; below 1 it is better."
    )
    return Table(["the other column", "ratio", "better on", "Wilcoxon p"], lines, caption)


def release_table(groups: Groups) -> Table:
    """One fold of ours beside the authors' code on the same data."""
    reference = published("physiome")["release"]
    lines = []
    for row in rows():
        name = row["dataset"]
        if name not in reference["mse"] or not any(name in results for results in groups.values()):
            continue
        cells = []
        for results in groups.values():
            error = fold_errors(results[name])[reference["fold"]] if name in results else None
            cells.append(NOT_RUN if error is None else DIVERGED if math.isnan(error) else f"{error:.4f}")
        lines.append([name, *cells, f"{reference['mse'][name]:.4g}", f"{row['mse'][0]:.3f} ± {row['std'][0]:.3f}"])
    columns = ["dataset", *(f"{group.title}, fold 0" for group in groups), "authors' code, fold 0", "TIDES, published"]
    return Table(columns, lines, "Test error on fold 0, the same instances for every column but the last (five folds).")


def fold_table(groups: Groups) -> Table:
    """Every fold behind the means."""
    lines = []
    for group, results in groups.items():
        for name, record in results.items():
            errors = fold_errors(record)
            interval = "–" if np.isnan(errors).any() else "{:.4f}–{:.4f}".format(*bootstrap_mean(errors))
            ends = [f"{f['best_epoch']}/{f['epochs']}" for f in record.results["folds"]]
            stopped = {fold["stopped"] for fold in record.results["folds"]} - {"epochs", "patience"}
            lines.append(
                [
                    name,
                    group.title,
                    " ".join(DIVERGED if math.isnan(error) else f"{error:.4f}" for error in errors),
                    interval,
                    " ".join(ends) + (f"\n{', '.join(sorted(stopped))}" if stopped else ""),
                    f"{record.results['parameters']:,}",
                    f"{record.seconds:.0f}",
                ]
            )
    columns = ["dataset", "group", "test error of each fold", "95 % of the mean (bootstrap)", "best/last epoch"]
    return Table([*columns, "parameters", "seconds"], lines, "One row per dataset; five folds unless fewer are shown.")


def time_note(results: Mapping[str, Record]) -> str:
    """How long it took."""
    total = sum(record.seconds for record in results.values())
    slowest = max(results.items(), key=lambda item: item[1].seconds)
    folds = sum(len(record.results["folds"]) for record in results.values())
    return (
        f"{total / 60:.1f} minutes for {len(results)} datasets ({folds} folds in all), from loading to testing; "
        f"the slowest, {slowest[0]}, took {slowest[1].seconds:.0f} s."
    )


def _mean(record: Record) -> float:
    """NaN where a fold diverged."""
    return float(np.mean(fold_errors(record)))


def _trivial(record: Record) -> list[str]:
    """What a record says of predicting zero and the last value; nobody knows the best constant there."""
    kinds = [[fold.get("trivial_mse", {}).get(kind) for fold in record.results["folds"]] for kind in ("zero", "last")]
    return [*("–" if None in errors else f"{np.mean(errors):.3f}" for errors in kinds), "–"]


def _spread(record: Record | None) -> str:
    if record is None:
        return NOT_RUN
    errors = fold_errors(record)
    lost = sum(map(math.isnan, errors))
    if lost:
        return f"{DIVERGED}\n{lost} of {len(errors)}"
    mean = f"{np.mean(errors):.{_OURS_DIGITS}f}"
    return mean if len(errors) == 1 else f"{mean} ± {np.std(errors, ddof=1):.{_OURS_DIGITS}f}"
