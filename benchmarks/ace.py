"""How fast an ACE is here and in python-ace: energy and forces of a crystal, on one core.

    python benchmarks/ace.py Cu.yace Cu 3.63 [--python-ace DIR/bin/python] [--cells 4]

The crystal is face-centered cubic with some disorder. CPU seconds of the fastest of several
evaluations count, here and there; atoms move a little between them. python-ace searches for
neighbors each time, this project where atoms have moved by more than the skin.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.io import read, write
from rich.console import Console
from rich.table import Table

from pwmlff import Calculator

EVALUATIONS = 10


def own(model: str, precision: str, atoms: Atoms) -> tuple[float, np.ndarray, str]:
    """Seconds of an evaluation, forces, and the engine."""
    atoms = atoms.copy()
    calculator = Calculator(model, precision=precision, nthreads=1)
    atoms.calc = calculator
    forces, best = atoms.get_forces(), np.inf
    for _ in range(EVALUATIONS):
        atoms.positions += 1e-6
        begin = time.process_time()
        atoms.get_forces()
        best = min(best, time.process_time() - begin)
    return best, forces, calculator.engine


def other(python: str, program: str, model: str, atoms: Atoms) -> tuple[float, np.ndarray]:
    """Seconds of an evaluation in python-ace, and forces."""
    script = Path(__file__).with_name("other_calculators.py")
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/a.xyz", atoms)
        words = [python, script, program, Path(model).resolve(), f"{folder}/a.xyz", "1"]
        done = [
            subprocess.run(
                [*words, f"{folder}/a.npz"], check=True, stdout=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        with np.load(f"{folder}/a.npz") as result:
            forces = result["forces"]
    return min(float(run.stdout.splitlines()[-1]) for run in done), forces


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("element")
    parser.add_argument("constant", type=float, help="of the lattice, angstrom")
    parser.add_argument("--python-ace", default="", help="a Python that has it")
    parser.add_argument("--cells", type=int, default=4)
    options = parser.parse_args()
    atoms = bulk(options.element, "fcc", a=options.constant, cubic=True).repeat(options.cells)
    atoms.rattle(0.08, seed=1)
    with tempfile.NamedTemporaryFile(suffix=".xyz") as file:
        write(file.name, atoms)
        atoms = read(file.name)  # with as many digits as the others get
    table = Table("", "µs for an atom", "times as long", "forces differ by, eV/Å")
    first, forces, name = own(options.model, "double", atoms)

    def add(what: str, seconds: float, found: np.ndarray) -> None:
        per_atom, ratio = 1e6 * seconds / len(atoms), seconds / first
        table.add_row(what, f"{per_atom:.1f}", f"{ratio:.2f}", f"{abs(found - forces).max():.1e}")

    add(name, first, forces)
    seconds, found, name = own(options.model, "mixed", atoms)
    add(name, seconds, found)
    for program in ("python-ace-product", "python-ace") if options.python_ace else ():
        add(program, *other(options.python_ace, program, options.model, atoms))
    Console().print(f"{len(atoms)} atoms of {options.element}", table)


if __name__ == "__main__":
    main()
