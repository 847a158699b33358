"""A small ward in a file, for the verbs that train and predict."""

from pathlib import Path

import numpy as np
import pandas as pd


def ward(folder: Path, n: int = 30, seed: int = 0, name: str = "visits.csv") -> Path:
    """Patients whose heart rate tells whether they died; holes, dates, static columns."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        for hours in np.sort(rng.uniform(0, 48, int(rng.integers(4, 9)))):
            when = pd.Timestamp("2031-05-01") + pd.Timedelta(hours=hours)
            rate = np.nan if rng.random() < 0.2 else 80 + 30 * (i % 2) + rng.normal()
            measured = {"charttime": when, "hr": rate, "spo2": 97 + rng.normal()}
            rows.append({"patient": f"p{i:02}", **measured, "age": 40 + i, "sex": "mf"[i % 3 > 0], "died": i % 2})
    path = folder / name
    frame = pd.DataFrame(rows)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path
