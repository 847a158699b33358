"""Time and memory of `from_long` on a synthetic table of measurements; one JSON object per case on stdout.

    python benchmarks/table_ingestion.py --rows 10000000

Every case runs in its own process. `peak_over_frame` is the highest resident memory during the call, frame
included, as a multiple of the frame's own size; for files, which are not loaded as a frame, it is the memory of
the call alone over the size the frame would have.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from tides.data import from_long

CASES = ("frame-charted", "frame-scattered", "frame-categorical", "parquet-scattered", "parquet-spilled")
ROLES = {"id": "patient", "time": "charttime", "channel": "item", "value": "value", "label": "died", "unit": "h"}


def make_frame(rows: int, *, charted: bool) -> pd.DataFrame:
    """Shuffled rows of 50,000 patients: ten channels measured together (charted), or forty one at a time."""
    rng = np.random.default_rng(0)
    channels, together = (10, 10) if charted else (40, 1)
    patient = np.repeat(rng.integers(0, 50_000, rows // together), together)
    seconds = np.repeat(rng.integers(0, 10**9, rows // together), together)
    item = np.tile(np.arange(channels), rows // channels) if charted else rng.integers(0, channels, rows)
    order = rng.permutation(rows)
    names = np.array([f"item{i:03d}" for i in range(channels)])
    frame = {
        "patient": patient[order],
        "charttime": pd.to_datetime(seconds[order], unit="s"),
        "item": pd.Series(names[item[order]]),
        "value": rng.standard_normal(rows),
        "died": (patient[order] % 7 == 0).astype(np.int64),
    }
    return pd.DataFrame(frame)


def resident(kind: str) -> int:
    """Resident memory of this process now ("VmRSS") or at its highest ("VmHWM"), in bytes; Linux."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{kind}:")[1].split()[0]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def measure(case: str, rows: int) -> dict[str, object]:
    frame = make_frame(rows, charted=case == "frame-charted")
    if case == "frame-categorical":
        frame = frame.astype({"item": "category"})
    size = int(frame.memory_usage(deep=True).sum())
    with tempfile.TemporaryDirectory() as folder:
        table: object = frame
        if case.startswith("parquet"):
            table = Path(folder) / "table.parquet"
            frame.to_parquet(table)
            del frame
        spill = folder if case == "parquet-spilled" else None
        forget_peak()
        before = resident("VmRSS")
        wall, cpu = time.perf_counter(), time.process_time()
        data = from_long(table, **ROLES, duplicates="last", spill=spill)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        extra = resident("VmHWM") - before
    held = 0 if case.startswith("parquet") else size
    return {
        "case": case,
        "rows": rows,
        "series": len(data),
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "frame_mb": round(size / 1e6),
        "extra_mb": round(extra / 1e6),
        "peak_over_frame": round((held + extra) / size, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--case", choices=CASES, help="run one case in this process")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.rows)))
        return
    for case in CASES:
        subprocess.run([sys.executable, __file__, "--case", case, "--rows", str(arguments.rows)], check=True)


if __name__ == "__main__":
    main()
