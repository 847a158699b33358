"""What an exported model costs: bytes of flash and memory, and the time of one observation, for three sizes.

    python benchmarks/device.py            # prints the table of docs/guide/small-device.md

Flash is the code and constants of `tides_step.c` as gcc -Os leaves them for the machine that runs this; memory is the
state struct and the deepest stack of a call. Time is processor time per
observation on one core, gcc -O2, the best of ten runs.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import torch

from tides.nn import SequenceClassifier, TIDESConfig
from tides.streaming import export_c

SIZES = {
    "small": {"hidden_size": 8, "state_size": 8, "rank": 2, "depth": 1},
    "medium": {"hidden_size": 16, "state_size": 16, "rank": 4, "depth": 2},
    "large": {"hidden_size": 32, "state_size": 16, "rank": 8, "depth": 4},
}
CHANNELS, CLASSES, STEPS, REPEATS = 3, 4, 2_000, 10

_LOOP = """
#define _POSIX_C_SOURCE 199309L
#include "tides_model.h"
#include <stdio.h>
#include <time.h>

static double processor_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(void)
{
    static tides_state state;
    tides_real x[TIDES_CHANNELS] = {0}, out[TIDES_OUTPUTS];
    double best = 1e30;
    int64_t t = 0;
    tides_init(&state);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double start = processor_time();
        for (int k = 0; k < STEPS; k++) {
            x[k % TIDES_CHANNELS] = (tides_real)(k % 7) - 3;
            t += k % 5;
            tides_step(&state, t, x, NULL, out);
        }
        double us = (processor_time() - start) / STEPS;
        best = us < best ? us : best;
    }
    printf("{\\"us\\": %.4f, \\"state\\": %d}", best, (int)sizeof(tides_state));
    return 0;
}
"""


def measure(options: dict[str, int], int8: bool, folder: Path) -> dict[str, float]:
    torch.manual_seed(0)
    config = TIDESConfig(input_size=CHANNELS, projector_init="random", **options)
    model = SequenceClassifier(config, CLASSES).eval()
    export_c(model, folder, int8=int8)
    source, loop = folder / "tides_step.c", folder / "loop.c"
    loop.write_text(_LOOP.replace("STEPS", str(STEPS)).replace("REPEATS", str(REPEATS)))
    step = folder / "step.o"
    subprocess.run(["gcc", "-std=c99", "-Os", "-fstack-usage", "-c", source, "-o", step], check=True, cwd=folder)
    text, data, *_ = (
        subprocess.run(["size", step], capture_output=True, text=True, check=True).stdout.split("\n")[1].split()
    )
    # None of them calls itself: at worst the frames of all lie on the stack at once.
    frames = (line.split("\t") for line in step.with_suffix(".su").read_text().splitlines())
    stack = sum(int(size) for name, size, _ in frames if not name.endswith(":tides_init"))
    program = folder / "loop"
    subprocess.run(["gcc", "-std=c99", "-O2", "-march=native", source, loop, "-o", program, "-lm"], check=True)
    found = json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
    return {
        "parameters": model.count_parameters(),
        "flash": int(text) + int(data),
        "memory": found["state"] + stack,
        "us": found["us"],
    }


def main() -> list[str]:
    lines = [
        "| size | H, P, r, depth | parameters | weights | flash (kB) | memory (kB) | µs per observation |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, options in SIZES.items():
        for int8 in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                one = measure(options, int8, Path(folder))
            shape = ", ".join(str(options[key]) for key in ("hidden_size", "state_size", "rank", "depth"))
            lines.append(
                f"| {name} | {shape} | {one['parameters']:.0f} | {'int8' if int8 else 'float32'} "
                f"| {one['flash'] / 1000:.1f} | {one['memory'] / 1000:.1f} | {one['us']:.1f} |"
            )
    return lines


if __name__ == "__main__":
    print("\n".join(main()))
