"""The PhysioNet/Computing in Cardiology Challenge 2012: two days in intensive care, and who died in hospital.

Users download the data themselves from https://physionet.org/content/challenge-2012/ (about 40 MB): folders `set-a`,
`set-b`, `set-c` of text files "Time,Parameter,Value", one per patient, and `Outcomes-a.txt` and so on.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tides.data import cache
from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import ConfigError, DataError

DESCRIPTORS = ("Age", "Gender", "Height", "ICUType", "Weight")
# fmt: off
CHANNELS = (
    *DESCRIPTORS,
    "ALP", "ALT", "AST", "Albumin", "BUN", "Bilirubin", "Cholesterol", "Creatinine", "DiasABP", "FiO2",
    "GCS", "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "MechVent", "Mg", "NIDiasABP", "NIMAP",
    "NISysABP", "Na", "PaCO2", "PaO2", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI",
    "TroponinT", "Urine", "WBC", "pH",
)
# fmt: on
_CHANNEL = {name: i for i, name in enumerate(CHANNELS)}
Duplicates = Literal["mean", "last", "error"]


def load_physionet2012(
    root: str | Path | None = None, sets: Sequence[str] = ("a",), *, duplicates: Duplicates = "mean"
) -> IrregularDataset:
    """Stays of the given sets: 41 channels, times in hours since admission, label 1 if the patient died.

    Weight is a descriptor at admission and a measurement later; a descriptor of −1 means "not recorded". If one
    quantity was measured more than once in a minute, `duplicates` takes the mean or the last value, or raises an error.
    Values without a parameter, of which sets b and c have a few, are left out.
    """
    if duplicates not in ("mean", "last", "error"):
        raise ConfigError(f"duplicates={duplicates!r}; wanted 'mean', 'last' or 'error'")
    folder = cache.data_root(root, "physionet2012")
    series = [one for letter in sets for one in _load_set(folder, letter, duplicates)]
    return IrregularDataset(series, channels=CHANNELS, unit="h", class_names=("survived", "died"))


def _load_set(folder: Path, letter: str, duplicates: Duplicates) -> list[IrregularSeries]:
    stays, outcomes = folder / f"set-{letter}", folder / f"Outcomes-{letter}.txt"
    for needed in (stays, outcomes):
        if not needed.exists():
            raise DataError(
                f"{needed} is missing; download set-{letter} and Outcomes-{letter}.txt from"
                f" https://physionet.org/content/challenge-2012/ into {folder}"
            )
    try:
        return _read_set(stays, outcomes, duplicates)
    except UnicodeDecodeError as error:
        raise DataError(f"{stays}, {outcomes.name}: found a file that is not UTF-8 text ({error})") from None


def _read_set(stays: Path, outcomes: Path, duplicates: Duplicates) -> list[IrregularSeries]:
    died = _read_outcomes(outcomes)
    files = sorted(stays.glob("*.txt"))
    if not files:
        raise DataError(f"{stays} holds no .txt file")
    return [_read_stay(path, died, outcomes, duplicates) for path in files]


def _read_outcomes(path: Path) -> dict[str, int]:
    died: dict[str, int] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        for column in ("RecordID", "In-hospital_death"):
            if column not in columns:
                raise DataError(f"{path}: no column {column!r}; found {list(columns)}")
        for row in reader:
            if row["In-hospital_death"] not in ("0", "1"):
                raise DataError(f"{path}, line {reader.line_num}: In-hospital_death is {row['In-hospital_death']!r}")
            died[row["RecordID"]] = int(row["In-hospital_death"])
    return died


def _read_stay(path: Path, died: dict[str, int], outcomes: Path, duplicates: Duplicates) -> IrregularSeries:
    record = path.stem
    if record not in died:
        raise DataError(f"{path}: record {record} has no line in {outcomes.name}")
    cells: dict[tuple[int, int], list[float]] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        if next(reader, None) != ["Time", "Parameter", "Value"]:
            raise DataError(f"{path}, line 1: wanted the header Time,Parameter,Value")
        for row in filter(None, reader):
            _add(row, cells, record, f"{path}, line {reader.line_num}")
    minutes = sorted({minute for minute, _ in cells})
    step = {minute: i for i, minute in enumerate(minutes)}
    values = np.full((len(minutes), len(CHANNELS)), np.nan)
    for (minute, channel), found in cells.items():
        if len(found) > 1 and duplicates == "error":
            raise DataError(f"{path}: {len(found)} values of {CHANNELS[channel]} at minute {minute}")
        values[step[minute], channel] = found[-1] if duplicates == "last" else np.mean(found)
    times: NDArray[np.float64] = np.array(minutes) / 60.0
    return IrregularSeries(values, times, label=died[record], id=record, start=0.0)


def _add(row: list[str], cells: dict[tuple[int, int], list[float]], record: str, where: str) -> None:
    """One line "hh:mm,parameter,value" into its cell."""
    try:
        clock, name, text = row
        hours, minutes = clock.split(":")
        minute, value = 60 * int(hours) + int(minutes), float(text)
    except ValueError:
        raise DataError(f"{where}: {','.join(row)!r} is not hh:mm,parameter,value") from None
    if name == "RecordID":
        if text != record:
            raise DataError(f"{where}: RecordID {text} in the file of record {record}")
        return
    if name == "":
        return
    if name not in _CHANNEL:
        raise DataError(f"{where}: unknown parameter {name!r}")
    if not np.isfinite(value):
        raise DataError(f"{where}: {name} is {text}; wanted a finite number")
    if not (name in DESCRIPTORS and value == -1):
        cells.setdefault((minute, _CHANNEL[name]), []).append(value)
