"""Judge settings of training on data of several kinds, against the defaults.

    python benchmarks/training_defaults.py                               # the defaults, all data
    python benchmarks/training_defaults.py --data cu --seeds 3 --try 'optimizer.betas=[0.9,0.999]'

Each data set is trained on for a number of epochs, which is the same on any machine, by the command
`pwmlff train` with its defaults and with each `--try` laid over them. RMSEs are those of best.pt on
frames that the training did not see: energy in meV/atom, force in meV/angstrom, virial in meV/atom,
means over the seeds. `ratio` compares a setting with the defaults: geometric means over the data,
energy and force apart. `jump` is the largest validation error of forces after a tenth of the run,
over the smallest before it.

The data: HfO2 by the classical potential of examples/hfo2, as that example trains it; copper and
alloys of copper and gold, and molecules without a cell, by ase's effective medium theory; liquid
argon by a Lennard-Jones potential; with --dft FOLDER, train.extxyz and valid.extxyz in it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
from ase.io import read, write
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from rich.console import Console
from rich.table import Table

from pwmlff.train import record

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "hfo2"
QUANTITIES = ("energy", "force", "virial")
BEGINNING = 0.1  # of a run, in which errors may swing


def trajectory(
    atoms: Atoms, calculator: Calculator, temperature: float, frames: int, seed: int
) -> Iterator[Atoms]:
    """Frames of a Langevin run, 40 fs apart, after 200 fs."""
    rng = np.random.default_rng(seed)
    atoms.calc = calculator
    MaxwellBoltzmannDistribution(atoms, temperature_K=temperature, rng=rng)
    run = Langevin(atoms, 2.0 * units.fs, temperature_K=temperature, friction=0.02, rng=rng)
    run.run(100)
    for _ in range(frames):
        run.run(20)
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
}


@dataclass(frozen=True)
class Result:
    """Of one training."""

    errors: dict[str, float]
    jump: float
    seconds: float


def train(folder: Path, data: Data, settings: Sequence[str], seed: int) -> Result:
    """One training, and its test."""
    output = Path(tempfile.mkdtemp(dir=folder, prefix="run."))
    words = [f"run.epochs={data.epochs}", "run.threads=1", f"model.seed={seed}", f"run.seed={seed}"]
    words = [*words, *data.settings, *settings]
    sets = [part for word in words for part in ("--set", word)]
    said = command(
        "train", "--data", folder / "train.extxyz", "--elements", data.elements, "-o", output, *sets
    )
    found = command("test", output / "best.pt", folder / "unseen.extxyz")
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
    if (here / "unseen.extxyz").exists():
        return here
    here.mkdir(parents=True, exist_ok=True)
    learned, unseen = data.make(here)
    write(here / "train.extxyz", learned, format="extxyz")
    write(here / "unseen.extxyz", unseen, format="extxyz")
    return here


def main() -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=[], help="names of data sets; all if none")
    parser.add_argument("--try", dest="tries", action="append", default=[], metavar="SETTINGS",
                        help="section.key=value, several apart by blanks")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=float, default=1.0, help="times those of each data set")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, on one core each")
    parser.add_argument("--dft", type=Path, help="folder with train.extxyz and valid.extxyz")
    parser.add_argument("--folder", type=Path, help="for data and trainings; it is kept")
    options = parser.parse_args()
    sets = dict(DATA)
    if options.dft:
        sets["dft"] = Data(lambda _: given(options.dft), "O Hf", 45)
    names = options.data or [*sets]
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
                pool.submit(train, folders[name], sets[name], shlex.split(words), seed)
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
