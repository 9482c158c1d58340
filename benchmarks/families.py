"""Models of other programs and of the DP family: differences on several ranks, and speed.

    python benchmarks/families.py --python deepmd=DIR/bin/python --python mace-0.3.6=...

For each program whose Python is named, with its release where FAMILIES has that one,
benchmarks/other_programs.py makes random models there and
evaluates it with the program's own ase calculator; here `pwmlff convert` makes a file of it and lmp
evaluates the same 96 atoms of HfO2 on 1, 2 and 4 ranks. For members of the DP family the fused
engine is compared with the TorchScript in the file, which evaluates all slots as those of the
exporters do. Times are those of a step on one thread, of lmp between two looks at the clock and of
calculators in CPU time; the best of all rounds, in which own calculator and lmp take turns.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.lammps import Prism
from ase.data import atomic_masses, chemical_symbols

from pwmlff.commands.bench import loop_times
from pwmlff.convert import convert
from pwmlff.launch import lmp, mpirun
from pwmlff.launch.program import find as find_lmp
from pwmlff.models import DPConfig
from standard_cases import PaddedDP

T = TypeVar("T")
OTHERS = Path(__file__).with_name("other_programs.py")
COMPILED = ", compiled"  # by `pwmlff convert --compile`
MACE = (
    "MACE",
    "MACE, 128x0e",
    "MACE, 128x0e + 128x1o",
    "MACE, densities, Agnesi, ZBL",
    f"MACE{COMPILED}",
    "MACE, float32",
    f"MACE, float32{COMPILED}",
    "MACE, pickled",
    "MACE, two heads",
    "MACE, pickled, two heads",
)
#: Those that no fused engine runs.
OF_CODE = ("MACE, attention",)
GATED = (
    "MACE, nonlinear",
    "MACE, nonlinear, 128x0e + 128x1o",
    "MACE, nonlinear, charge and spin",
    "MACE, nonlinear, float32",
    "MACE, nonlinear, two heads",
    "MACE, nonlinear, Agnesi, ZBL",
    "MACE, nonlinear, higher degrees along edges",
    "MACE, nonlinear behind linear",
)
#: Of DeePMD-kit, by their own code.
OF_DEEPMD = (
    "DeePMD-kit se_e2_a, gelu",
    "DeePMD-kit se_atten",
    "DeePMD-kit se_atten, stripped",
    "DeePMD-kit se_atten, compressed",
    "DeePMD-kit se_e2_r",
    "DeePMD-kit se_e2_r and se_atten",
    "DeePMD-kit DPA-2",
    "DeePMD-kit DPA-3",
)
SYSTEM = {"charge": -1, "spin": 2}  # of models that embed them, as other_programs.py has it
#: What a program makes, by its name or by name and release where that one makes other files.
FAMILIES = {
    "calorine": (),  # their nep.txt is what pwmlff train writes
    "python_ace": (),  # its .yace is read as it is
    "nep_adapters": (),
    "deepmd": (
        "DeePMD-kit se_e2_a",
        "DeePMD-kit se_e2_a, nets of PWMLFF",
        "DeePMD-kit se_e2_a, a net for each pair",
        "DeePMD-kit se_e2_a, no steps",
        "DeePMD-kit se_e2_a, float32",
        "DeePMD-kit se_e2_a, compressed",
        *OF_DEEPMD,
    ),
    "mace": (*MACE, *OF_CODE, *GATED, "MACE, charge and spin"),
    "mace-0.3.10": MACE,
    "mace-0.3.6": ("MACE", "MACE, float32", "MACE, pickled"),
    "mace-0.3.14": (*OF_CODE, "MACE, nonlinear", "MACE, charge and spin"),
    "nequip": (
        "NequIP",
        f"NequIP{COMPILED}",
        "NequIP, float32",
        "Allegro",
        f"Allegro{COMPILED}",
    ),
    "sevenn": ("SevenNet, float32", "SevenNet-0, float32"),
    "sevenn-0.10.4": ("SevenNet-0, float32",),
    "chgnet": ("CHGNet 0.3.0, float32", "CHGNet r2scan, float32"),
    "chgnet-0.4.0": ("CHGNet 0.3.0, float32",),
    "nequip-0.6.2": ("NequIP, deployed", "NequIP, deployed, float32"),
}
#: What is refused, and what is said then.
REFUSED = {
    "deepmd": {
        "DeePMD-kit se_atten, statistics": "set_davg_zero false. Its energies depend on the order",
    }
}
RANKS = (1, 2, 4)
STEPS = {"fused": 100, "code of the file": 20}
STRETCHES = 5  # of these steps; the fastest counts, as with the calculators of others
TYPE_VECTOR = {8: (0.1, 0.6, 0.4), 72: (0.7, 0.3, 0.2)}
#: What differs from a model of PWMLFF's default shape.
MEMBERS = {
    "DP": {},
    "DP, type embedding": {"type_vector": TYPE_VECTOR},
    "DP, no steps": {"fitting_resnet_dt": False},
    "DP, steps everywhere": {"embedding_resnet_dt": True},
    "DP, no bias": {"embedding_bias": False, "fitting_bias": False},
    "DP, slots by element": {"sel": (100, 60)},
}


def structure() -> Atoms:
    """96 atoms of a distorted fluorite crystal; no image is nearer than twice a cutoff of 5."""
    atoms = bulk("HfO2", "fluorite", a=5.08, cubic=True).repeat(2)
    atoms.rattle(0.08, seed=1)
    return atoms


@dataclass(frozen=True)
class Ran:
    """What lmp gave."""

    energies: np.ndarray  # [n] of atoms
    forces: np.ndarray  # [n, 3]
    virial: np.ndarray  # [6] xx yy zz xy xz yz, eV, in LAMMPS's cell
    prism: Prism  # from that to ase's
    seconds: float  # of a step
    engine: str


def run(model: Path, atoms: Atoms, keywords: str = "", ranks: int = 1, steps: int = 0) -> Ran:
    """Evaluate with lmp, and go on for some steps of dynamics; without steps no time is taken."""
    program, starter = find_lmp(), mpirun.find(None)
    stretch = steps // STRETCHES
    # Steps so small that a random model changes nothing of the structure.
    dynamics = "timestep 1e-4\nvelocity all create 300 1\nfix 1 all nve\nrun 3\n"
    dynamics += f"run {stretch}\n" * STRETCHES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        elements = sorted({int(z) for z in atoms.numbers})
        prism = lmp.write_data(folder / "atoms.data", atoms, elements)
        masses = "".join(f"mass {k} {atomic_masses[z]}\n" for k, z in enumerate(elements, 1))
        symbols = " ".join(chemical_symbols[z] for z in elements)
        (folder / "in").write_text(
            f"{lmp.read_command(atoms, 'atoms.data')}{masses}"
            f"pair_style pwmlff {model.resolve()} {keywords}\npair_coeff * * {symbols}\n"
            f"{lmp.MEASURE}"
            f"run 0\n{lmp.DUMP}{dynamics if steps else ''}"
        )
        wish = mpirun.Wish([program.path, "-in", "in"], ranks)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **program.environment}
        done = subprocess.run(
            starter.command(wish), cwd=folder, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        dump = lmp.read_dump(folder / "atoms.dump")
        walls = loop_times(done.stdout)[-STRETCHES:] if steps else ()
        return Ran(
            dump.c_peatom,
            prism.vector_to_ase(lmp.forces(dump)),
            lmp.Thermo(folder / "log.lammps").virial(run=0),
            prism,
            min((wall / stretch for wall in walls), default=np.nan),
            re.search(r"\n +engine (.*)\n", done.stdout)[1],
        )


Made = tuple[Path, dict[str, np.ndarray]]


def of_program(table: Mapping[str, T], program: str) -> T | None:
    """What a table says of a program like "mace-0.3.6", or of its name."""
    return table.get(program, table.get(program.partition("-")[0]))


def system_of(family: str) -> dict[str, int]:
    """What is said of the system when a family is converted."""
    return SYSTEM if family.endswith("charge and spin") else {}


def make(families: Sequence[str], python: str, folder: Path, rounds: int = 0) -> dict[str, Made]:
    """Have another program make models and evaluate the structure.

    Args:
        families: what other_programs.py knows, compiled or not.
        python: in which that program is installed.
        folder: for the models.
        rounds: of which the fastest is told.

    Returns:
        By family, the model, and what its program says of the structure, see other_programs.py.
    """
    atoms = structure()
    np.savez(
        folder / "structure.npz",
        numbers=atoms.numbers,
        positions=atoms.positions,
        cell=atoms.cell.array,
    )
    names = list(dict.fromkeys(family.removesuffix(COMPILED) for family in families))
    # Programs that are older than torch 2.6 do not tell it that their files are more than weights.
    variables = {"OMP_NUM_THREADS": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = subprocess.run(
        [python, OTHERS, folder, str(rounds), *names],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    made = {}
    for family in families:
        place = folder / str(names.index(family.removesuffix(COMPILED)))
        (source,) = place.glob("model.*")
        with np.load(place / "own.npz") as values:
            made[family] = source, dict(values)
    return made


def of_others(program: str, family: str, python: str, rounds: int) -> list[str]:
    """A row of the first table."""
    atoms = structure()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own, here = np.inf, np.inf
        for k in range(rounds):
            source, expected = make([family], python, folder, rounds=1)[family]
            if k == 0:
                report = convert(
                    source, folder / "converted.pt", compiled=family.endswith(COMPILED),
                    **system_of(family),
                )  # fmt: skip
                found = {n: run(folder / "converted.pt", atoms, ranks=n) for n in RANKS}
            own = min(own, float(expected["seconds"]))
            steps = STEPS["fused" if report.engine.startswith("fused") else "code of the file"]
            here = min(here, run(folder / "converted.pt", atoms, steps=steps).seconds)
    worst = []
    for ran in found.values():
        energy = abs(ran.energies.sum() - expected["energy"]) / len(atoms)
        worst.append(f"{energy:.0e}, {np.abs(ran.forces - expected['forces']).max():.0e}")
    return [
        program, family, report.model.kind, found[1].engine, *worst, f"{1e3 * own:.1f}",
        f"{1e3 * here:.1f}", f"{own / here:.2f}",
    ]  # fmt: skip


def of_family(name: str, rounds: int) -> list[str]:
    """A row of the second table."""
    atoms = structure()
    rng = np.random.default_rng(1)
    shape = DPConfig((8, 72), rmax=6.0, rmin=0.5, max_neighbor=100, m2=16, **MEMBERS[name])
    statistics = {
        "davg": rng.normal(0.0, 0.05, (2, 4)),
        "dstd": rng.uniform(0.05, 0.2, (2, 4)),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        PaddedDP(shape, **statistics, seed=1).save(path)
        own = fused = np.inf
        for _ in range(rounds):
            own = min(own, run(path, atoms, "engine torchscript", steps=50).seconds)
            fused = min(fused, run(path, atoms, "engine fused", steps=1000).seconds)
        expected = run(path, atoms, "engine torchscript")
        worst = []
        for precision in ("exact", "double", "mixed"):
            ran = run(path, atoms, f"engine fused precision {precision}")
            energy = np.abs(ran.energies - expected.energies).max()
            worst.append(f"{energy:.0e}, {np.abs(ran.forces - expected.forces).max():.0e}")
    return [name, *worst, f"{1e3 * own:.1f}", f"{1e3 * fused:.2f}", f"{own / fused:.0f}"]


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", default=[], metavar="PROGRAM=PATH")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="families whose names begin so")
    options = parser.parse_args()
    pythons = dict(given.split("=", 1) for given in options.python)

    def chosen(name: str) -> bool:
        return name.startswith(options.only)

    print("member | exact: eV, eV/Å | double | mixed | TorchScript, ms | fused, ms | ratio")
    for name in filter(chosen, MEMBERS):
        print(*of_family(name, options.rounds), sep=" | ", flush=True)
    ranks = " | ".join(f"{n} ranks: eV/atom, eV/Å" for n in RANKS)
    print(f"program | family | kind | engine | {ranks} | own, ms | lmp, ms | own/lmp")
    for program, python in pythons.items():
        for family in filter(chosen, of_program(FAMILIES, program)):
            row = of_others(program, family, python, options.rounds)
            print(*row, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
