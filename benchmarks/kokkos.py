"""Whole runs of lmp with package KOKKOS, by pair styles with /kk and by those without it.

    python benchmarks/kokkos.py examples/hfo2/a.pt --elements 'Hf O' \
        --lmp ~/lammps/build/lmp --plugin ~/pwmlff-plugin

Where KOKKOS runs on the host. Cases take turns in one process after the other, and the fastest run
of each counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from compare_builds import add_crystal, crystal
from pwmlff.commands.bench import loop_times
from pwmlff.launch import program

RUNS = "thermo 1000000\nrun 5\nrun {}\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    add_crystal(parser, cells=8)
    parser.add_argument("--lmp", required=True)
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--precision", default="double", choices=("exact", "double", "mixed"))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("OMP_PROC_BIND", "false")
    keywords = f"engine fused precision {options.precision} device cpu"
    text = crystal(options, options.model, keywords) + RUNS.format(options.steps)
    lmp = program.find(options.lmp, options.plugin)
    cases = [(threads, kokkos) for threads in options.threads for kokkos in (False, True)]
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(options.rounds):
        for threads, kokkos in cases:
            arguments = ["-k", "on", "t", str(threads), "-sf", "kk"] if kokkos else []
            with tempfile.TemporaryDirectory() as folder:
                said = lmp.run(Path(folder), text, threads=threads, arguments=arguments)
            seconds = loop_times(said)[-1] / options.steps
            best[threads, kokkos] = min(best[threads, kokkos], seconds)
    table = Table("threads", "pair style", "ms a step", "ratio", title=lmp.path)
    for (threads, kokkos), seconds in best.items():
        ratio = seconds / best[threads, False]
        style = "pwmlff/kk" if kokkos else "pwmlff"
        table.add_row(str(threads), style, f"{1e3 * seconds:.3f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
