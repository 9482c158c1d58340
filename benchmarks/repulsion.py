"""What ZBL in a Deep Potential is good for, and what it costs: dimers, hot starts, time of a step.

    python benchmarks/repulsion.py MODEL STRUCTURE --elements 'Hf O' --held-out FRAMES

The model is one with ZBL. Of each pair of elements that has it, a dimer is pushed together from
where ZBL begins, or the well of a bond below, to 0.3 angstrom. Starts are random packings of the
structure's atoms in its cell, no pair closer than --packing of the sum of its covalent radii, in a
Langevin thermostat at 3000 to 6000 K; one is lost where lmp ends with an error, or the temperature
is more than twice what is asked for. The same starts are made with the same networks without ZBL.
Times are those of the structure itself at 300 K, repeated to about --atoms, with and without ZBL in
turns. Errors are those of the forces of frames that the model has never seen, of another run or
another seed: they come closer than its data here and there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement
from pathlib import Path

import ase.io
import numpy as np
import torch
from ase import Atoms
from ase.data import atomic_numbers, chemical_symbols, covalent_radii
from ase.geometry import get_distances

from in_turns import add_arguments, step_ratio
from pwmlff import Calculator, evaluate
from pwmlff.evaluation.model_file import open_model
from pwmlff.launch import lmp, program
from pwmlff.report import Failure
from pwmlff.train.potential import of_file

COLDEST, HOTTEST = 3000.0, 6000.0  # K
CLOSEST, STEP = 0.3, 0.005  # angstrom, of a dimer
CONTACT = 0.7  # of the sum of covalent radii: from there on the well of a bond may be
HOT = """{read}pair_style pwmlff 1 {model} precision {precision}
pair_coeff * * {elements}
velocity all create {temperature} {seed} mom yes rot yes loop geom
timestep {timestep}
fix 1 all nve
fix 2 all langevin {temperature} {temperature} 0.1 {seed}
thermo 50
run {steps}
"""


def dimers(path: Path) -> None:
    """Print whether the energy of each dimer rises inwards from where ZBL begins."""
    _, info = open_model(path)
    n = len(info.atom_type)
    calculator = Calculator(path, elements=info.atom_type)
    for a, b in combinations_with_replacement(range(n), 2):
        outer = info.zbl_radii[a * n + b][1]
        if not outer:
            continue
        pair = [info.atom_type[a], info.atom_type[b]]
        r = np.arange(outer, CLOSEST - 1e-9, -STEP)
        energies = np.array(
            [calculator.get_potential_energy(Atoms(pair, [(0, 0, 0), (x, 0, 0)])) for x in r]
        )
        bonds = max(1, int((r >= CONTACT * covalent_radii[pair].sum()).sum()))
        well = int(np.argmin(energies[:bonds]))
        rises = np.diff(energies[well:])
        name = "-".join(chemical_symbols[z] for z in pair)
        falls = "" if rises.min() > 0.0 else f" BUT AT {r[well + int(rises.argmin())]:.3f}"
        print(
            f"{name}, ZBL below {outer:.3f}: rises from {r[well]:.3f} to {r[-1]:.3f} angstrom"
            f"{falls}, {energies[-1] - energies[well]:.0f} eV in all"
        )


def packing(atoms: Atoms, share: float, rng: np.random.Generator) -> Atoms:
    """Random places in the cell for the same atoms, large ones first."""
    order = np.argsort(-covalent_radii[atoms.numbers], kind="stable")
    places, numbers = np.zeros((0, 3)), np.zeros(0, int)
    for z in atoms.numbers[order]:
        while True:
            trial = rng.random((1, 3)) @ atoms.cell
            limit = share * (covalent_radii[numbers] + covalent_radii[z])
            near = get_distances(trial, places, atoms.cell, atoms.pbc)[1] if len(places) else [[]]
            if (np.asarray(near)[0] > limit).all():
                break
        places, numbers = np.vstack((places, trial)), np.append(numbers, z)
    return Atoms(numbers, places, cell=atoms.cell, pbc=atoms.pbc)


def lost(folder: Path, atoms: Atoms, model: Path, options: argparse.Namespace, seed: int) -> str:
    """Why a start is lost; empty where it is not."""
    folder.mkdir()
    temperature = COLDEST + (HOTTEST - COLDEST) * np.random.default_rng(seed).random()
    lmp.write_data(folder / "packed.data", atoms, options.numbers)
    text = HOT.format(
        read=lmp.read_command(atoms, "packed.data"), seed=seed, temperature=temperature,
        **{**vars(options), "model": model},
    )  # fmt: skip
    try:
        program.find().run(folder, text)
    except Failure as failure:
        return str(failure)
    found = np.array(lmp.Thermo(folder / "log.lammps").columns()["Temp"])
    last = found[len(found) // 2 :]
    return "" if last.max() < 2.0 * temperature else f"{last.max():.0f} K of {temperature:.0f}"


def starts(atoms: Atoms, models: dict[str, Path], options: argparse.Namespace) -> None:
    """Print how many of the starts are lost with each model."""
    rng = np.random.default_rng(1)
    packed = [packing(atoms, options.packing, rng) for _ in range(options.starts)]
    for name, model in models.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            ThreadPoolExecutor(options.jobs) as pool,
        ):
            reasons = list(
                pool.map(
                    lambda k, model=model, folder=folder: lost(
                        Path(folder, str(k)), packed[k], model, options, k + 1
                    ),
                    range(len(packed)),
                )
            )
        bad = [reason for reason in reasons if reason]
        first = f", the first: {bad[0].splitlines()[-1][:100]}" if bad else ""
        print(f"{name}: {len(bad)} of {len(packed)} starts lost{first}")


def errors(frames: Sequence[Atoms], models: dict[str, Path]) -> None:
    """Print the errors of forces of frames that are held out."""
    wanted = np.concatenate([atoms.get_forces() for atoms in frames])
    for name, model in models.items():
        found = np.concatenate([one.forces for one in evaluate(model, frames)])
        rmse = 1000.0 * np.sqrt(np.square(found - wanted).mean())
        print(f"{name}: RMSE of forces {rmse:.2f} meV/angstrom on {len(frames)} frames held out")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("structure", help="a file that ase reads, like train.extxyz@0")
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--steps", type=int, default=2000, help="of each start")
    parser.add_argument("--timestep", type=float, default=0.001, help="ps")
    parser.add_argument("--packing", type=float, default=0.6)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="starts at a time")
    parser.add_argument("--elements", required=True, help="of the LAMMPS types, like 'Hf O'")
    parser.add_argument("--held-out", help="labelled frames that ase reads, like valid.extxyz@:")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    options.numbers = [atomic_numbers[symbol] for symbol in options.elements.split()]
    atoms = ase.io.read(options.structure)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        bare = Path(folder, "bare.pt")
        networks = of_file(options.model)
        if not networks.zbl_radii:
            raise Failure(f"'{options.model}' has no ZBL, expected a model that does")
        networks.zbl_radii = []
        networks.save(bare)
        dimers(options.model)
        models = {"with ZBL": options.model.resolve(), "without": bare}
        ratio = step_ratio(atoms, str(models["with ZBL"]), str(bare), options)
        print(f"time of a step with ZBL over that without: {ratio}")
        if options.held_out:
            errors(ase.io.read(options.held_out, ":"), models)
        starts(atoms, models, options)


if __name__ == "__main__":
    main()
