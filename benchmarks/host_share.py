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
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pwmlff.launch import program

INPUT = """units metal
lattice fcc {constant}
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 2 box
create_atoms 1 box
lattice sc {half} origin 0.5 0.5 0.5
create_atoms 2 box
mass * 50.0
pair_style pwmlff 1 {model} engine fused precision {precision} device gpu
pair_coeff * * {elements}
velocity all create 300 4711
fix 1 all nve
timestep 0.0001
neigh_modify delay 0 every 1000000 check no
thermo 1000000
run 10
run {steps}
"""
ATOMS_OF_CELL = 12
SECTIONS = ("Pair", "Comm", "Modify", "Other")


def nanoseconds(lmp: program.Program, text: str, threads: int, suffix: bool) -> dict[str, float]:
    """Of each section of LAMMPS's table, for an atom and a step."""
    head = f"package omp {threads}\nsuffix omp\n" if suffix else ""
    with tempfile.TemporaryDirectory() as folder:
        said = lmp.run(Path(folder), head + text, threads=threads)
    steps, atoms = re.findall(
        r"^Loop time of .* for (\d+) steps with (\d+) atoms", said, re.MULTILINE
    )[-1]
    last = said[said.rindex("Loop time of") :]
    found = {}
    for name in SECTIONS:
        seconds = re.search(rf"^{name} *\|[^|]*\| *(\S+) *\|", last, re.MULTILINE)
        found[name] = 1e9 * float(seconds[1]) / (int(steps) * int(atoms)) if seconds else 0.0
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--elements", required=True, help="cation and anion, like 'Hf O'")
    parser.add_argument("--constant", type=float, default=5.07, help="of the fluorite lattice")
    parser.add_argument("--cells", type=int, default=32, help="of 12 atoms, along each side")
    parser.add_argument("--precision", default="double", choices=("exact", "double", "mixed"))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    text = INPUT.format(
        half=options.constant / 2, **{**vars(options), "model": options.model.absolute()}
    )
    os.environ["PWMLFF_GPU_STAND_IN"] = "none"
    lmp = program.find()
    cases = [(threads, suffix) for threads in options.threads for suffix in (False, True)]
    best: dict[tuple[int, bool], dict[str, float]] = {}
    for _ in range(options.rounds):
        for case in cases:
            found = nanoseconds(lmp, text, *case)
            if case not in best or sum(found.values()) < sum(best[case].values()):
                best[case] = found
    title = f"ns an atom, {ATOMS_OF_CELL * options.cells**3} atoms"
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
