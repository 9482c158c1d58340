"""NEPs on a GPU: whole steps of lmp, and of GPUMD with the same file and atoms.

    python benchmarks/gpu_neps.py NEP.TXT --elements 'Hf O' [--gpumd PROGRAM] [--cells 2 8 32]

Million atom-steps per second of NVE at 300 K with 0.5 fs, in one run each, after some steps that
are not timed. A fluorite crystal with some disorder has 12 atoms in a cell. GPUMD, where there is
one, is timed as it tells itself (Fan et al. 2022, doi:10.1063/5.0106617).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from ase import Atoms
from ase.io import write
from rich.console import Console
from rich.table import Table

from charges import structure
from in_turns import step_seconds

PRECISIONS = ("double", "mixed")
ATOM_STEPS, LEAST, MOST = 2e7, 50, 2000  # of a run, and its steps
GPUMD = """potential {model}
velocity 300
ensemble nve
time_step 0.5
run {warm}
run {steps}
"""
SPEED = re.compile(r"Speed of this run = (\S+) atom\*step/second")


def gpumd_rate(program: Path, model: Path, atoms: Atoms, steps: int) -> float:
    """Atom-steps per second of GPUMD.

    Raises:
        SystemExit: it fails; with what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        bare = Atoms(atoms.symbols, atoms.positions, cell=atoms.cell, pbc=True)
        write(f"{folder}/model.xyz", bare, format="extxyz")
        text = GPUMD.format(model=model.resolve(), warm=LEAST, steps=steps)
        Path(folder, "run.in").write_text(text)
        done = subprocess.run(
            [program.resolve()], cwd=folder, capture_output=True, text=True, check=False
        )
    speeds = SPEED.findall(done.stdout)
    if done.returncode or len(speeds) != 2:
        raise SystemExit(f"{program} failed:\n{done.stdout}{done.stderr}")
    return float(speeds[-1])


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--elements", required=True, help="cation and anion")
    parser.add_argument("--constant", type=float, default=5.07, help="of the lattice, angstrom")
    parser.add_argument("--cells", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--threads", type=int, default=1, help="of lmp")
    parser.add_argument("--device", default="gpu", help="word of pair_style")
    parser.add_argument("--gpumd", type=Path, help="the program")
    options = parser.parse_args()
    table = Table(
        "atoms", *PRECISIONS, "GPUMD", title=f"million atom-steps/s, {options.model.name}"
    )
    for cells in options.cells:
        atoms = structure(options.elements, options.constant, cells)
        steps = int(min(MOST, max(LEAST, ATOM_STEPS / len(atoms))))
        row = []
        for precision in PRECISIONS:
            style = f"{options.model.resolve()} precision {precision} device {options.device}"
            seconds = step_seconds(
                atoms, style, options.elements, steps, threads=options.threads, timestep=0.0005
            )
            row.append(f"{len(atoms) / seconds / 1e6:.3g}")
        if options.gpumd:
            rate = gpumd_rate(options.gpumd, options.model, atoms, steps)
            row.append(f"{rate / 1e6:.3g}")
        table.add_row(str(len(atoms)), *row)
    Console().print(table)


if __name__ == "__main__":
    main()
