"""Judge settings of training on data of several kinds, against the defaults.

    python benchmarks/training_defaults.py                               # the defaults, all data
    python benchmarks/training_defaults.py --data cu --seeds 3 --try 'optimizer.betas=[0.9,0.999]'
    python benchmarks/training_defaults.py --model nep --data glass hydrocarbons alloy ceramic

Each set is trained on for a number of epochs, which is the same on any machine, by the command
`pwmlff train` with its defaults and with each `--try` laid over them. RMSEs are of the best on
frames that the training did not see: energy in meV/atom, force in meV/angstrom, virial in meV/atom,
means over the seeds. `ratio` compares a setting with the defaults: geometric means over the data,
energy and force apart. `jump` is the largest validation error of forces after a tenth of the run,
over the smallest before it.

The data: HfO2 by the classical potential of examples/hfo2, as that example trains it; copper and
alloys of copper and gold, and molecules without a cell, by ase's effective medium theory; liquid
argon by a Lennard-Jones potential; with --dft FOLDER, train.extxyz and valid.extxyz in it. Small
sets of 72 frames: a glass of lithium silicate (potential of Pedone et al.), hydrocarbons (AIREBO),
an alloy (EAM) and a ceramic (Tersoff) by lmp, as others learn from. Organic molecules by GFN2-xTB
(Bannwarth et al. 2019, doi:10.1021/acs.jctc.8b01176) need `pip install tblite`; they are trained on
where they are named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import atomic_numbers
from ase.io import read, write
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from rich.console import Console
from rich.table import Table

from pwmlff.launch import lmp, mpirun, program
from pwmlff.train import record
from rivals import POTENTIALS

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "hfo2"
QUANTITIES = ("energy", "force", "virial")
BEGINNING = 0.1  # of a run, in which errors may swing


def trajectory(
    atoms: Atoms,
    calculator: Calculator,
    temperature: float,
    frames: int,
    seed: int,
    step: float = 2.0,
) -> Iterator[Atoms]:
    """Frames of a Langevin run with steps in fs, 40 fs apart, after 200 fs."""
    rng = np.random.default_rng(seed)
    atoms.calc = calculator
    MaxwellBoltzmannDistribution(atoms, temperature_K=temperature, rng=rng)
    run = Langevin(atoms, step * units.fs, temperature_K=temperature, friction=0.02, rng=rng)
    run.run(round(200 / step))
    for _ in range(frames):
        run.run(round(40 / step))
        found = atoms.copy()
        labels = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        if atoms.cell.rank == 3:
            labels["stress"] = atoms.get_stress()
        found.calc = SinglePointCalculator(found, **labels)
        yield found


def metal(frames: int, gold: float, temperatures: Sequence[float], seed: int) -> list[Atoms]:
    """Crystals of copper and gold, of 32 atoms, several densities and shears."""
    rng = np.random.default_rng(seed)
    found: list[Atoms] = []
    count = max(3, len(temperatures))
    for k in range(count):
        atoms = bulk("Cu", "fcc", a=3.6 + 0.45 * gold, cubic=True).repeat(2)
        atoms.numbers[rng.permutation(len(atoms))[: round(gold * len(atoms))]] = 79
        strain = np.eye(3) * (1.0 + rng.uniform(-0.03, 0.03)) + np.triu(
            rng.normal(0.0, 0.02, (3, 3)), 1
        )
        atoms.set_cell(np.asarray(atoms.cell) @ strain, scale_atoms=True)
        temperature = temperatures[k % len(temperatures)]
        share = -(-frames // count)
        found += trajectory(atoms, EMT(), temperature, share, seed + k)
    return found[:frames]


def alloys(frames: int, temperatures: Sequence[float], seed: int) -> list[Atoms]:
    """The same of several compositions."""
    return [
        atoms
        for k, gold in enumerate((0.0, 0.25, 0.5))
        for atoms in metal(frames // 3, gold, temperatures, seed + 100 * k)
    ]


def molecules(frames: int, seed: int) -> list[Atoms]:
    """Of hydrogen, carbon, nitrogen and oxygen, without a cell."""
    names = ("CH3CH2OH", "CH3NO2", "CH3COCH3", "C2H6", "CH3CONH2", "H2O")
    share = -(-frames // len(names))
    return [
        atoms
        for k, name in enumerate(names)
        for atoms in trajectory(molecule(name), EMT(), 300.0, share, seed + k)
    ][:frames]


def organic(frames: int, seed: int) -> list[Atoms]:
    """Molecules in boxes of their own at 500 K, by GFN2-xTB."""
    from tblite.ase import TBLite  # noqa: PLC0415  of this set alone

    names = ("CH3CH2OH", "CH3NO2", "CH3COCH3", "CH3CONH2", "C6H6", "C5H5N")
    found = []
    for k, name in enumerate(names):
        calculator = TBLite(method="GFN2-xTB", verbosity=0)
        for atoms in trajectory(
            molecule(name), calculator, 500.0, frames // len(names), seed + k, 0.5
        ):
            atoms.set_cell([20.0] * 3)
            atoms.center()
            atoms.pbc = True
            found.append(atoms)
    return found


def argon(frames: int, temperatures: Sequence[float], seed: int) -> list[Atoms]:
    """A crystal that melts, of 108 atoms."""
    found: list[Atoms] = []
    for k, temperature in enumerate(temperatures):
        atoms = bulk("Ar", "fcc", a=5.3 + 0.15 * k, cubic=True).repeat(3)
        potential = LennardJones(sigma=3.405, epsilon=0.0104, rc=7.5, smooth=True)
        share = frames // len(temperatures)
        found += trajectory(atoms, potential, temperature, share, seed + k)
    return found


@dataclass(frozen=True)
class Data:
    """A data set: what is learned from, what is not, and how it is trained beside the defaults."""

    make: Callable[[Path], tuple[list[Atoms], list[Atoms]]]
    elements: str
    epochs: int
    settings: tuple[str, ...] = ()


def hfo2_example() -> ModuleType:
    """The script of examples/hfo2, which runs the teacher."""
    spec = importlib.util.spec_from_file_location("make_models", EXAMPLE / "make_models.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules["make_models"] = example
    spec.loader.exec_module(example)
    return example


def hfo2(folder: Path) -> tuple[list[Atoms], list[Atoms]]:
    """Those of the example."""
    example = hfo2_example()

    def frames(states: Sequence[object]) -> list[Atoms]:
        return [atoms for state in states for atoms in example.simulate(state, 40, folder)]

    return frames(example.TRAINING), frames(example.UNSEEN)


def given(folder: Path) -> tuple[list[Atoms], list[Atoms]]:
    """Those of a folder."""
    learned, unseen = (
        read(folder / f"{name}.extxyz", ":", format="extxyz") for name in ("train", "valid")
    )
    return learned, unseen


#: Depth in eV, width in 1/angstrom, distance in angstrom and repulsion in eV angstrom^12 of each
#: element with oxygen, and its charge: Pedone et al. 2006, doi:10.1021/jp0611018.
PEDONE = {
    "Li": (0.001114, 3.429506, 2.681360, 1.0, 0.6),
    "Na": (0.023363, 1.763867, 3.006315, 5.0, 0.6),
    "Al": (0.361581, 1.900442, 2.164818, 0.9, 1.8),
    "Si": (0.340554, 2.006700, 2.100000, 1.0, 2.4),
    "O": (0.042395, 1.379316, 3.618701, 22.0, -1.2),
}
RUN = """{read}
{potential}
neighbor 1.0 bin
min_modify dmax 0.05
minimize 0 1e-3 3000 30000
velocity all create {temperature} {seed} mom yes rot yes loop geom
timestep {step}
fix 1 all nve/limit 0.03
fix 2 all langevin {temperature} {temperature} 0.1 {seed}
run 8000
unfix 1
unfix 2
fix 1 all nvt temp {temperature} {temperature} 0.1
run 1000
thermo 200
thermo_style custom step pe
thermo_modify format float %.12g
dump 1 all custom 200 frames.dump id element xu yu zu fx fy fz
dump_modify 1 sort id element {elements} format float %.10f first no
run {steps}
"""


def by_lammps(
    atoms: Atoms, potential: str, temperature: float, frames: int, seed: int, step: float
) -> list[Atoms]:
    """Frames of a run of lmp at a constant temperature, 200 steps apart."""
    elements = list(dict.fromkeys(atoms.get_chemical_symbols()))
    charged = "charge" in potential
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lmp.write_data(folder / "a.data", atoms, [atomic_numbers[e] for e in elements])
        text = RUN.format(
            read=lmp.read_command(atoms, "a.data", charges=charged), potential=potential,
            temperature=temperature, seed=seed, step=step, elements=" ".join(elements),
            steps=200 * frames,
        )  # fmt: skip
        said = program.find().run(folder, text, mpirun.find(), 1, threads=1)
        found = read(folder / "frames.dump", ":", format="lammps-dump-text")
    table = said[said.rindex("Step") :].splitlines()[1:]
    energies = [float(row.split()[1]) for row in table[1 : frames + 1]]
    result = []
    for frame, energy in zip(found, energies, strict=True):
        one = Atoms(frame.get_chemical_symbols(), frame.positions, cell=frame.cell, pbc=True)
        one.calc = SinglePointCalculator(one, energy=energy, forces=frame.get_forces())
        result.append(one)
    return result


def each(
    frames: int, states: Sequence[tuple[Atoms, float]], potential: str, seed: int, step: float
) -> list[Atoms]:
    """As many frames of each structure at its temperature."""
    share = frames // len(states)
    return [
        frame
        for k, (atoms, temperature) in enumerate(states)
        for frame in by_lammps(atoms, potential, temperature, share, seed + k, step)
    ]


def pedone(elements: Collection[str]) -> str:
    """The potential of oxides for lmp, oxygen last."""
    lines = ["pair_style hybrid/overlay coul/dsf 0.2 9.0 pedone 7.5", "pair_coeff * * coul/dsf"]
    lines.append("pair_coeff * * pedone 0 1 1 0")
    for k, element in enumerate(elements, 1):
        *numbers, charge = PEDONE[element]
        lines.append(f"pair_coeff {k} {len(elements)} pedone {' '.join(map(str, numbers))}")
        lines.append(f"set type {k} charge {charge}")
    return "\n".join(lines)


def silicate(frames: int, formula: dict[str, int], density: float, seed: int) -> list[Atoms]:
    """A glass, by chance at first, at three temperatures.

    Args:
        formula: atoms of each element, oxygen last.
        density: g/cm^3.
    """
    rng = np.random.default_rng(seed)
    symbols = [element for element, count in formula.items() for _ in range(count)]
    states = []
    for temperature in (600.0, 1200.0, 2000.0):
        mass = Atoms(symbols).get_masses().sum()
        edge = float((mass / (1000.0 * density * units.kg / units.m**3)) ** (1 / 3))
        places: list[np.ndarray] = []
        while len(places) < len(symbols):
            place = rng.uniform(0, edge, 3)
            apart = np.array([place - other for other in places]).reshape(-1, 3)
            apart -= edge * np.round(apart / edge)
            if (np.linalg.norm(apart, axis=1) > 1.55).all():
                places.append(place)
        states.append((Atoms(symbols, places, cell=[edge] * 3, pbc=True), temperature))
    return each(frames, states, pedone(formula), seed, 0.001)


def hydrocarbons(frames: int, seed: int) -> list[Atoms]:
    """Molecules in boxes of their own at 500 K."""
    states = []
    for k, name in enumerate(("C6H6", "trans-butane", "C3H6_D3h", "C2H4", "isobutane", "C3H8")):
        atoms = molecule(name)
        atoms.set_cell([25.0] * 3)
        atoms.center()
        atoms.pbc = True
        atoms.rattle(0.02, seed=seed + k)
        states.append((atoms, 500.0))
    potential = f"pair_style airebo 3.0 1 1\npair_coeff * * {POTENTIALS / 'CH.airebo'} C H"
    return each(frames, states, potential, seed, 0.0005)


def ceramic(frames: int, seed: int) -> list[Atoms]:
    """Silicon carbide up to 3000 K."""
    states = []
    for k, temperature in enumerate((600.0, 1500.0, 3000.0)):
        atoms = bulk("SiC", "zincblende", a=4.36 + 0.05 * k, cubic=True).repeat(2)
        atoms.rattle(0.1, seed=seed + k)
        states.append((atoms, temperature))
    file = POTENTIALS / "SiC_Erhart-Albe.tersoff"
    return each(frames, states, f"pair_style tersoff\npair_coeff * * {file} Si C", seed, 0.001)


def alloy(frames: int, seed: int) -> list[Atoms]:
    """Nickel and aluminium, of three compositions and temperatures."""
    rng, states = np.random.default_rng(seed), []
    for k, temperature in enumerate((300.0, 800.0, 1300.0)):
        atoms = bulk("Ni", "fcc", a=3.55 + 0.08 * k, cubic=True).repeat(2)
        atoms.numbers[rng.permutation(len(atoms))[: 8 * (k + 1)]] = 13
        states.append((atoms[np.argsort(-atoms.numbers)], temperature))
    file = POTENTIALS / "NiAlH_jea.eam.alloy"
    return each(frames, states, f"pair_style eam/alloy\npair_coeff * * {file} Ni Al", seed, 0.001)


def conductor(frames: int, seed: int) -> list[Atoms]:
    """Crystals of lithium oxide where silicon and three vacancies take the place of four Li."""
    states = []
    for k, temperature in enumerate((400.0, 600.0, 800.0)):
        atoms = bulk("OLi2", "fluorite", a=4.6 + 0.05 * k, cubic=True).repeat(2)
        lithium = np.random.default_rng(k).permutation(np.flatnonzero(atoms.numbers == 3))
        atoms.numbers[lithium[:4]] = 14
        del atoms[lithium[4:16]]
        order = [("Li", "Si", "O").index(symbol) for symbol in atoms.get_chemical_symbols()]
        states.append((atoms[np.argsort(order, kind="stable")], temperature))
    return each(frames, states, pedone(("Li", "Si", "O")), seed, 0.001)


def intermetallic(frames: int, seed: int) -> list[Atoms]:
    """Copper and zirconium as in CsCl, up to a melt."""
    states = []
    for k, temperature in enumerate((400.0, 1000.0, 2200.0)):
        atoms = bulk("CuZr", "cesiumchloride", a=3.26 + 0.05 * k, cubic=True).repeat(3)
        states.append((atoms[np.argsort(atoms.numbers, kind="stable")], temperature))
    file = POTENTIALS / "CuZr_mm.eam.fs"
    return each(frames, states, f"pair_style eam/fs\npair_coeff * * {file} Cu Zr", seed, 0.001)


def twice(make: Callable[..., list[Atoms]], *words: object) -> Callable[[Path], tuple]:
    """72 frames to learn from, and 60 of other runs."""
    return lambda _: (make(72, *words, 11), make(60, *words, 511))


SMALL = ("model.embedding=[16,16]", "model.fitting=[32,32]", "model.m2=8", "run.batch=2")
DATA = {
    "hfo2": Data(hfo2, "Hf O", 130, SMALL),
    "cuau": Data(lambda _: (alloys(126, (300.0, 900.0), 1), alloys(60, (600.0,), 7)), "Cu Au", 100),
    "cuau-long": Data(
        lambda _: (alloys(81, (300.0, 900.0), 2), alloys(60, (600.0,), 8)), "Cu Au", 600
    ),
    "cu": Data(
        lambda _: (metal(30, 0.0, (300.0, 900.0), 3), metal(60, 0.0, (600.0,), 9)), "Cu", 400
    ),
    "molecules": Data(lambda _: (molecules(240, 4), molecules(60, 10)), "H C N O", 50),
    "argon": Data(
        lambda _: (argon(120, (40.0, 80.0, 120.0), 5), argon(40, (100.0,), 11)), "Ar", 60
    ),
    "glass": Data(twice(silicate, {"Li": 16, "Si": 16, "O": 40}, 2.2), "Li Si O", 700),
    "hydrocarbons": Data(twice(hydrocarbons), "C H", 1800),
    "alloy": Data(twice(alloy), "Ni Al", 1500),
    "ceramic": Data(twice(ceramic), "Si C", 1000),
    "other glass": Data(
        twice(silicate, {"Na": 8, "Al": 8, "Si": 12, "O": 40}, 2.4), "Na Al Si O", 600
    ),
    "conductor": Data(twice(conductor), "Li Si O", 600),
    "intermetallic": Data(twice(intermetallic), "Cu Zr", 1000),
    "few organic": Data(twice(organic), "H C N O", 1000),
    "organic": Data(lambda _: (organic(420, 3), organic(120, 503)), "H C N O", 200),
}
NAMED = ("organic", "few organic")  # which need what pip does not install with this project


@dataclass(frozen=True)
class Result:
    """Of one training."""

    errors: dict[str, float]
    jump: float
    seconds: float


def train(folder: Path, data: Data, settings: Sequence[str], seed: int, model: str) -> Result:
    """One training, and its test."""
    output = Path(tempfile.mkdtemp(dir=folder, prefix="run."))
    own = data.settings if model == "dp" else ()
    words = [f"run.epochs={data.epochs}", "run.threads=1", f"model.seed={seed}", f"run.seed={seed}"]
    words = [*words, *own, *settings]
    sets = [part for word in words for part in ("--set", word)]
    said = command(
        "train",
        "--model",
        model,
        "--data",
        folder / "train.extxyz",
        "--elements",
        data.elements,
        "-o",
        output,
        *sets,
    )
    found = command("test", said["models"][0]["file"], folder / "valid.extxyz")
    rows = [row for row in record.read(output / "log.jsonl") if row.step]
    forces = np.array([row.force_valid for row in rows], dtype=float)
    epochs = np.array([row.epoch for row in rows])
    later = np.flatnonzero(epochs > BEGINNING * data.epochs)
    before = np.minimum.accumulate(forces)
    jump = max((forces[k] / before[k - 1] for k in later if k), default=np.nan)
    of_all = found["errors"]
    return Result(
        {q: of_all[q]["rmse"] for q in QUANTITIES if of_all.get(q)},
        float(jump),
        said["models"][0]["seconds"],
    )


def command(*words: object) -> dict:
    """What a command of this project says, as values."""
    line = [sys.executable, "-P", "-m", "pwmlff", *map(str, words), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(line)}\n{done.stdout}\n{done.stderr}")
    found: dict = json.loads(done.stdout)
    return found


def prepare(folder: Path, name: str, data: Data) -> Path:
    """The folder with the two files of a data set."""
    here = folder / name
    if (here / "valid.extxyz").exists():
        return here
    here.mkdir(parents=True, exist_ok=True)
    learned, unseen = data.make(here)
    write(here / "train.extxyz", learned, format="extxyz")
    write(here / "valid.extxyz", unseen, format="extxyz")
    return here


def main() -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=[], help="names of data sets; all if none")
    parser.add_argument("--try", dest="tries", action="append", default=[], metavar="SETTINGS",
                        help="section.key=value, several apart by blanks")  # fmt: skip
    parser.add_argument("--model", choices=("dp", "nep"), default="dp")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=float, default=1.0, help="times those of each data set")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, on one core each")
    parser.add_argument("--dft", type=Path, help="folder with train.extxyz and valid.extxyz")
    parser.add_argument("--folder", type=Path, help="for data and trainings; it is kept")
    options = parser.parse_args()
    sets = dict(DATA)
    if options.dft:
        sets["dft"] = Data(lambda _: given(options.dft), "O Hf", 45)
    names = options.data or [name for name in sets if name not in NAMED]
    if unknown := set(names) - set(sets):
        parser.error(f"there is no data set {', '.join(unknown)}, expected {', '.join(sets)}")
    folder = options.folder or Path(tempfile.mkdtemp())
    sets = {
        name: replace(sets[name], epochs=max(1, round(sets[name].epochs * options.epochs)))
        for name in names
    }
    tries = ["", *options.tries]
    table = Table("data", "settings", *QUANTITIES, "jump", "s", box=None)
    console = Console(width=140)
    means: dict[tuple[str, str], dict[str, float]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        folders = {name: prepare(folder, name, data) for name, data in sets.items()}
        futures = {
            (name, words): [
                pool.submit(
                    train, folders[name], sets[name], shlex.split(words), seed, options.model
                )
                for seed in range(1, options.seeds + 1)
            ]
            for name in names
            for words in tries
        }
        for (name, words), results in futures.items():
            found = [future.result() for future in results]
            mean = {
                q: float(np.mean([r.errors[q] for r in found]))
                for q in QUANTITIES
                if q in found[0].errors
            }
            means[name, words] = mean
            row = [f"{mean[q]:.3g}" if q in mean else "" for q in QUANTITIES]
            jump, seconds = max(r.jump for r in found), np.mean([r.seconds for r in found])
            table.add_row(name, words or "defaults", *row, f"{jump:.2f}", f"{seconds:.0f}")
            print(name, words or "defaults", *row, f"{jump:.2f}", f"{seconds:.0f}", flush=True)
    console.print(table)
    for words in tries[1:]:
        ratio = {
            q: float(np.exp(np.mean([np.log(means[n, words][q] / means[n, ""][q]) for n in names])))
            for q in ("energy", "force")
        }
        console.print(f"ratio of {words}: energy {ratio['energy']:.2f}, force {ratio['force']:.2f}")


if __name__ == "__main__":
    main()
