"""What charges cost: whole steps of a NEP by Ewald's sum, on a mesh, and without its charges.

    python benchmarks/charges.py nep.txt --elements 'Hf O' [--calorine DIR/bin/python]

Crystals are of fluorite. Cases take turns, and the fastest run of each counts. With a Python that
has calorine, the same structures are evaluated by its NEP_CPU, whose forces are compared, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import read, write
from ase.spacegroup import crystal
from rich.console import Console
from rich.table import Table

from in_turns import step_seconds
from pwmlff import Calculator
from pwmlff.evaluation.nep_file import read_nep, write_nep

CASES = {"without": "", "Ewald": "", "mesh": "kspace pppm"}
STEPS = 40000  # atom-steps of a run


def structure(elements: str, constant: float, cells: int) -> Atoms:
    """A crystal with some disorder, in orthogonal cells."""
    fluorite = crystal(
        elements.split(), [(0, 0, 0), (0.25, 0.25, 0.25)], spacegroup=225,
        cellpar=[constant] * 3 + [90] * 3,
    )  # fmt: skip
    atoms: Atoms = fluorite.repeat(cells)
    atoms.rattle(0.05, seed=1)
    return atoms


def other(python: str, model: Path, atoms: Atoms, evaluations: int) -> tuple[float, float]:
    """Seconds of an evaluation in calorine, and the largest difference of forces."""
    script = Path(__file__).with_name("other_calculators.py")
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/a.xyz", atoms)
        atoms = read(f"{folder}/a.xyz")  # with as many digits
        done = subprocess.run(
            [python, script, "calorine", model, f"{folder}/a.xyz", str(evaluations),
             f"{folder}/own.npz"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        theirs = np.load(f"{folder}/own.npz")["forces"]
    mine = Calculator(model, nthreads=1).get_property("forces", atoms)
    return float(done.stdout.split()[-1]), float(abs(mine - theirs).max())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--elements", required=True, help="cation and anion, like 'Hf O'")
    parser.add_argument("--constant", type=float, default=5.08, help="of the fluorite lattice")
    parser.add_argument("--cells", type=int, nargs="+", default=[2, 4, 8], help="of 12 atoms")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calorine", help="a Python that has it")
    options = parser.parse_args()
    table = Table("atoms", "ranks", *(f"{case}, ms" for case in CASES), "Ewald", "mesh")
    beside = Table("atoms", "calorine, ms", "times lmp by Ewald", "forces differ by, eV/A")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network, own = read_nep(options.model), options.model.absolute()
        write_nep(replace(network, charge_mode=0, last_charge=None), folder / "without.txt", 4)
        for cells in options.cells:
            atoms = structure(options.elements, options.constant, cells)
            steps = max(3, STEPS // len(atoms))
            for ranks in options.ranks:
                best = dict.fromkeys(CASES, np.inf)
                for _ in range(options.rounds):
                    for case, words in CASES.items():
                        model = folder / "without.txt" if case == "without" else own
                        style = f"{model} precision {options.precision} {words}"
                        seconds = step_seconds(atoms, style, options.elements, steps, ranks, True)
                        best[case] = min(best[case], seconds)
                table.add_row(
                    str(len(atoms)), str(ranks), *(f"{1e3 * best[case]:.3f}" for case in CASES),
                    *(f"{best['without'] / best[case]:.2f}" for case in ("Ewald", "mesh")),
                )  # fmt: skip
                if options.calorine and ranks == 1 and len(atoms) < 1000:
                    seconds, error = other(options.calorine, own, atoms, 3)
                    beside.add_row(
                        str(len(atoms)), f"{1e3 * seconds:.2f}",
                        f"{seconds / best['Ewald']:.1f}", f"{error:.1e}",
                    )  # fmt: skip
    Console(file=sys.stdout).print(table, *([beside] if options.calorine else []))


if __name__ == "__main__":
    main()
