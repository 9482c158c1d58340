"""How fast an ACE is here and in python-ace: whole steps of lmp beside a calculator, on one core.

    python benchmarks/ace.py Cu.yace Cu 3.63 [--python-ace DIR/bin/python] [--cells 4]
    python benchmarks/ace.py Cu.yace Cu 3.63 --gamma Cu.yaml [--python-ace DIR/bin/python]

The crystal is face-centered cubic with some disorder. The fastest of several runs counts here, the
CPU seconds of the fastest of several evaluations there, for which atoms move a little. python-ace
searches for neighbors each time, lmp where atoms have moved by more than half of the skin. With
--gamma both look at the extrapolation grade each time: of B functions and the .asi beside them, of
which `pwmlff convert` has made the model.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.io import read, write
from rich.console import Console
from rich.table import Table

from in_turns import step_seconds
from pwmlff import Calculator

STEPS, ROUNDS = 20000, 5  # atom-steps of a run, and runs


def own(
    model: str, precision: str, atoms: Atoms, options: str = ""
) -> tuple[float, np.ndarray, str]:
    """Seconds of a whole step, forces, and the engine."""
    calculator = Calculator(model, precision=precision, nthreads=1)
    style = f"{Path(model).resolve()} precision {precision}{options}"
    steps = max(3, STEPS // len(atoms))
    best = min(step_seconds(atoms, style, str(atoms.symbols[0]), steps) for _ in range(ROUNDS))
    return best, calculator.get_property("forces", atoms), f"{calculator.engine}, {precision}"


def other(python: str, name: str, model: str, atoms: Atoms) -> tuple[float, np.ndarray]:
    """Seconds of an evaluation in python-ace, and forces."""
    script = Path(__file__).with_name("other_calculators.py")
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/a.xyz", atoms)
        words = [python, script, name, Path(model).resolve(), f"{folder}/a.xyz", "1"]
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
    parser.add_argument("--gamma", default="", help="B functions, with the .asi beside them")
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
    source = options.model
    others = ["grace-fs"] if source.endswith(".yaml") else ["python-ace-product", "python-ace"]
    if options.gamma:
        others, source = ["python-ace-gamma"], options.gamma
        for precision in ("double", "mixed"):
            seconds, found, name = own(options.model, precision, atoms, " gamma 1e9 warn")
            add(f"{name}, gamma", seconds, found)
    for name in others if options.python_ace else []:
        add(name, *other(options.python_ace, name, source, atoms))
    Console().print(f"{len(atoms)} atoms of {options.element}", table)


if __name__ == "__main__":
    main()
