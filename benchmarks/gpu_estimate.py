"""How long kernels would take on an H200, from what an interpreter of their PTX has counted.

    python benchmarks/gpu_estimate.py counters.json --atoms 6144 [--compare docs/benchmarks/REPORT]

The counters are those of the stand-in of the CUDA runtime that `.ci/matrix fakecuda` uses, of a run
that evaluates once (its variable for a report; checks off, or they are counted too). The time of a
launch is a sum, whose weights were fitted to events on one H200 (2026-11-27: five kernels, two
precisions, 96 to 393216 atoms):

    passes of requests to shared and global memory, sectors beyond the first cache, lanes of atomic
    additions, the chain of dependent instructions of a block (times how often all multiprocessors
    are full), and a constant.

--compare prints the measured times of such a report beside them. Of 40 of them, 37 are within 28 %.
For Forces of 96 atoms it says less than half; nobody knows why.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

# Of an H200.
PROCESSORS = 132
CLOCK = 1.7e9  # Hz
SHARED = 228 * 1024  # bytes of a multiprocessor
REGISTERS = 65536
THREADS = 2048
L2 = 5.5e12  # bytes/s
ATOMICS = 96 * CLOCK  # lanes/s, one a clock in each slice of the cache
SECTOR = 32  # bytes
# Fitted.
OF_PASSES, OF_L2, OF_ATOMICS, OF_CHAIN = 0.53, 0.58, 3.64, 0.47
CONSTANT = 9.5e-6  # s, most of it of the events themselves
LAUNCH = 2.5e-6  # s, from one kernel to the next without events


def resident(kernel: dict[str, float]) -> int:
    """Blocks of a kernel on a multiprocessor at the same time."""
    warps = math.ceil(kernel["block"] / 32)
    registers = math.ceil(kernel["registers"] * 32 / 256) * 256 * warps
    by_registers = REGISTERS // registers if registers else THREADS
    by_scratch = int(SHARED // (kernel["shared"] + 1024))
    return max(1, min(THREADS // (32 * warps), 32, by_registers, by_scratch))


def seconds(kernel: dict[str, float]) -> float:
    """Of one launch, without the constant."""
    launches, blocks = kernel["launches"], kernel["grid"]
    busiest = math.ceil(blocks / PROCESSORS) / blocks  # share of the busiest multiprocessor
    passes = (kernel["global_waves"] + kernel["shared_waves"]) / launches * busiest / CLOCK
    l2 = kernel["l1_miss"] / launches * SECTOR / L2
    atomics = kernel["atomic_lanes"] / launches / ATOMICS
    rounds = math.ceil(blocks / (PROCESSORS * resident(kernel)))
    chain = max(kernel["block_cycles"] / launches / blocks * rounds, kernel["longest_block"])
    return OF_PASSES * passes + OF_L2 * l2 + OF_ATOMICS * atomics + OF_CHAIN * chain / CLOCK


def main() -> None:
    """Estimate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counters", type=Path)
    parser.add_argument("--atoms", type=int, required=True)
    parser.add_argument("--compare", type=Path, help="report with times by events, as JSON")
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    options = parser.parse_args()
    rows = json.loads(options.compare.read_text()) if options.compare else []
    wanted = {"kind": "kernels", "precision": options.precision, "atoms": options.atoms}
    chosen = (row["ns"] for row in rows if wanted.items() <= row.items())
    measured: dict[str, float] = next(chosen, {})
    found: dict[str, list[float]] = defaultdict(list)
    for kernel in json.loads(options.counters.read_text())["kernels"]:
        name = kernel["kernel"].partition("<")[0].strip()
        found[name] += [seconds(kernel)] * int(kernel["launches"])
    columns = ["kernel", "launches", "us", "us by events", "ns an atom by events"]
    table = Table(*columns, *(["measured", "ratio"] if measured else []))
    for name, launches in sorted(found.items(), key=lambda item: -sum(item[1])):
        plain = sum(launches) + LAUNCH * len(launches)
        events = sum(launches) + CONSTANT * len(launches)
        row = [name, str(len(launches)), f"{1e6 * plain:.1f}", f"{1e6 * events:.1f}"]
        row.append(f"{1e9 * events / options.atoms:.2f}")
        if measured:
            known = measured.get(name)
            row += [f"{known:.2f}", f"{1e9 * events / options.atoms / known:.2f}"] if known else []
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
