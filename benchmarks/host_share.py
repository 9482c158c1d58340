"""What the host does in a step on a GPU: whole runs of lmp whose kernels and copies do nothing.

    python benchmarks/host_share.py examples/hfo2/a.pt --elements 'Hf O' --threads 1 2 4 8

Needs no GPU: PWMLFF_GPU_STAND_IN=none takes its place, so forces are zero and atoms fly on
straight lines. What is left is LAMMPS's part (integration, ghosts, clearing of forces) and ours
(positions into pinned memory, forces added up). Cases take turns, and the fastest run of each
counts. With `-sf omp` LAMMPS integrates and clears on all threads too.
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
from standard_cases import phases

ATOMS_OF_CELL = 12
RUNS = """thermo 1000000
run 10
run {steps}
"""
SECTIONS = ("Pair", "Comm", "Modify", "Other")


def nanoseconds(
    lmp: program.Program, text: str, atom_steps: int, threads: int, suffix: bool
) -> dict[str, float]:
    """Of each section of LAMMPS's table, for an atom and a step."""
    head = f"package omp {threads}\nsuffix omp\n" if suffix else ""
    with tempfile.TemporaryDirectory() as folder:
        said = lmp.run(Path(folder), head + text, threads=threads)
    shares, whole = phases(said), 1e9 * loop_times(said)[-1] / atom_steps
    return {name: shares[name] / 100 * whole for name in SECTIONS}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    add_crystal(parser, cells=32)
    parser.add_argument("--precision", default="double", choices=("exact", "double", "mixed"))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    keywords = f"engine fused precision {options.precision} device gpu"
    text = crystal(options, options.model, keywords) + RUNS.format(steps=options.steps)
    atoms = ATOMS_OF_CELL * options.cells**3
    os.environ["PWMLFF_GPU_STAND_IN"] = "none"
    lmp = program.find()
    cases = [(threads, suffix) for threads in options.threads for suffix in (False, True)]
    best: dict[tuple[int, bool], dict[str, float]] = {}
    for _ in range(options.rounds):
        for case in cases:
            found = nanoseconds(lmp, text, atoms * options.steps, *case)
            if case not in best or sum(found.values()) < sum(best[case].values()):
                best[case] = found
    title = f"ns an atom, {atoms} atoms"
    table = Table("threads", "-sf omp", *SECTIONS, "all", "ratio", title=title)
    whole = sum(best[cases[0]].values())
    for threads, suffix in cases:
        found = best[threads, suffix]
        total = sum(found.values())
        numbers = [f"{found[name]:.1f}" for name in SECTIONS]
        table.add_row(
            str(threads), "yes" if suffix else "", *numbers, f"{total:.1f}", f"{total / whole:.2f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
