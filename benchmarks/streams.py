"""Throughput and latency of 10,000 concurrent streams on the cores at hand; one JSON file.

    python benchmarks/streams.py --out benchmarks/results/streams.json

Six channels, a third of the values missing, keys at random, a classifier of two blocks (H = 32, P = 16). Measured are:
calls of `StreamSession.step_many` with 1 to 10,000 observations on one thread and on two; arrivals at random moments at
fixed rates, where latency is the time from arrival to answer and whatever waits is taken together; the same streams
dealt to one process per core; the model's own `step` instead of the compiled one; `tides stream` on JSON lines, with
and without a journal; and a snapshot of all streams.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tides
from tides.experiments import speed_machine
from tides.streaming import StreamSession
from tides.streaming.snapshot import write_snapshot

CHANNELS = 6
MODEL = {"input_size": CHANNELS, "hidden_size": 32, "state_size": 16, "depth": 2, "rank": 8, "mask_channels": True}
BATCHES = (1, 32, 256, 1024, 10_000)
RATES = (1_000, 5_000, 20_000)
LINES = 20_000


def make_model() -> tides.SequenceClassifier:
    torch.manual_seed(0)
    return tides.SequenceClassifier(tides.TIDESConfig(**MODEL), classes=2).eval()


class Source:
    """Observations of many streams; the clock of every stream goes on by a random while."""

    def __init__(self, streams: int, seed: int = 0) -> None:
        self.streams, self.generator = streams, np.random.default_rng(seed)
        self.clock = np.zeros(streams)

    def draw(self, n: int) -> tuple[list[int], np.ndarray, np.ndarray]:
        """n observations of different streams."""
        keys = self.generator.permutation(self.streams)[:n]
        self.clock[keys] += self.generator.exponential(1.0, n)
        values = self.generator.normal(size=(n, CHANNELS))
        values[self.generator.random(values.shape) < 1 / 3] = np.nan
        return keys.tolist(), self.clock[keys], values


def warm(session: StreamSession, source: Source) -> None:
    """Every stream has been seen, everything is compiled."""
    for _ in range(2):
        session.step_many(*source.draw(source.streams))


def measure_calls(session: StreamSession, source: Source, batch: int, seconds: float) -> dict[str, float]:
    """Observations a second and the time of a call when calls follow each other."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        observations = source.draw(batch)
        start = time.perf_counter()
        session.step_many(*observations)
        found.append(time.perf_counter() - start)
    return {"batch": batch, "observations_per_second": batch * len(found) / sum(found), **latencies(found)}


def measure_arrivals(session: StreamSession, source: Source, rate: float, seconds: float) -> dict[str, Any]:
    """From arrival to answer, with arrivals that do not wait for the answers."""
    n = int(rate * seconds)
    arrivals = np.cumsum(source.generator.exponential(1 / rate, n))
    pieces = [source.draw(min(1024, source.streams)) for _ in range(-(-n // min(1024, source.streams)))]
    keys = [key for piece in pieces for key in piece[0]]
    times, values = (np.concatenate([piece[i] for piece in pieces]) for i in (1, 2))
    found, done = np.empty(n), 0
    start = time.perf_counter()
    while done < n:
        now = time.perf_counter() - start
        waiting = min(int(np.searchsorted(arrivals, now)), done + 1024)
        if waiting == done:
            time.sleep(max(0.0, min(arrivals[done] - now, 1e-3)))
            continue
        piece = slice(done, waiting)
        session.step_many(keys[piece], times[piece], values[piece])
        found[piece] = time.perf_counter() - start - arrivals[piece]
        done = waiting
    # A queue that grows shows at the end.
    keeps_up = bool(found[-n // 10 :].mean() < 0.05)
    return {"rate": rate, "keeps_up": keeps_up, **latencies(found.tolist())}


def latencies(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.quantile(seconds, (0.5, 0.99)) * 1e3
    return {"p50_ms": float(p50), "p99_ms": float(p99), "max_ms": float(np.max(seconds) * 1e3)}


def one_shard(streams: int, seed: int, seconds: float, start: Any, results: Any) -> None:
    """A process with its share of the streams."""
    torch.set_num_threads(1)
    session, source = StreamSession(make_model()), Source(streams, seed)
    warm(session, source)
    start.wait()
    results.put(measure_calls(session, source, min(256, streams), seconds)["observations_per_second"])


def measure_shards(streams: int, processes: int, seconds: float) -> dict[str, float]:
    """All streams, dealt to processes by key."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(processes), context.Queue()
    shards = [
        context.Process(target=one_shard, args=(streams // processes, seed, seconds, start, results))
        for seed in range(processes)
    ]
    for shard in shards:
        shard.start()
    rates = [results.get() for _ in shards]
    for shard in shards:
        shard.join()
    return {"processes": processes, "batch": 256, "observations_per_second": sum(rates)}


def measure_command(folder: Path, streams: int, scratch: Path, *, journal: bool) -> dict[str, Any]:
    """Lines a second of `tides stream`, its start included and apart."""
    source, lines = Source(streams), []
    while len(lines) < LINES:
        keys, times, values = source.draw(min(1024, streams))
        for key, t, x in zip(keys, times.tolist(), values.tolist(), strict=True):
            row = [None if value != value else round(value, 4) for value in x]
            lines.append(json.dumps({"key": key, "t": round(t, 4), "x": row}))
    state = ["--state", str(scratch / "state"), "--every", "10000"] if journal else []
    command = [
        sys.executable,
        "-c",
        "from tides.cli.main import main; main()",
        "stream",
        str(folder),
        "--quiet",
        *state,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    start = time.perf_counter()
    process.stdin.write(lines[0] + "\n")
    process.stdin.flush()
    process.stdout.readline()
    loaded = time.perf_counter()
    feeder = multiprocessing.get_context("fork").Process(target=_feed, args=(process.stdin, lines[1:LINES]))
    feeder.start()
    process.stdin.close()
    answered = sum(1 for _ in process.stdout)
    seconds = time.perf_counter() - loaded
    feeder.join()
    process.wait()
    assert answered == LINES - 1
    return {"journal": journal, "lines_per_second": answered / seconds, "start_seconds": loaded - start}


def _feed(target: Any, lines: list[str]) -> None:
    target.write("\n".join(lines))
    target.close()


def measure_snapshot(session: StreamSession, scratch: Path) -> dict[str, float]:
    start = time.perf_counter()
    write_snapshot(session, scratch / "snapshot.safetensors", {})
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "megabytes": (scratch / "snapshot.safetensors").stat().st_size / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each measurement")
    parser.add_argument("--cores", type=int, default=2, help="threads of one process, and number of processes")
    parser.add_argument("--out", type=Path, help="a JSON file; stdout without it")
    options = parser.parse_args()

    torch.set_num_threads(1)
    streams, seconds = options.streams, options.seconds
    session, source = StreamSession(make_model(), compiled=True), Source(streams)
    warm(session, source)
    load_before = speed_machine.load_average()
    report: dict[str, Any] = {
        "streams": streams,
        "model": MODEL,
        "calls": [],
    }
    for threads in sorted({1, options.cores}):
        torch.set_num_threads(threads)
        for batch in BATCHES:
            found = measure_calls(session, source, min(batch, streams), seconds)
            report["calls"].append({"threads": threads, **found})
    report["arrivals"] = [measure_arrivals(session, source, rate, seconds) for rate in RATES]
    plain, other = StreamSession(make_model(), compiled=False), Source(streams)
    warm(plain, other)
    report["own_step"] = [measure_calls(plain, other, min(batch, streams), seconds) for batch in (1, 1024)]
    report["shards"] = measure_shards(streams, options.cores, seconds)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = tides.save(make_model(), scratch / "model")
        report["snapshot"] = measure_snapshot(session, scratch)
        report["command"] = [measure_command(folder, streams, scratch, journal=journal) for journal in (False, True)]
    report["machine"] = {
        **speed_machine.hardware("cpu"),
        **speed_machine.versions(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "load_before": load_before,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = json.dumps(report, indent=2) + "\n"
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text)
        print(f"written: {options.out}")


if __name__ == "__main__":
    main()
