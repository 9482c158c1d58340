"""Train from a MOVEMENT with stresses: do virials help, or fight with forces?

    python benchmarks/movement_virials.py

Copper of ase's effective medium potential, 72 atoms, displaced in one cell or in strained ones, is
written as PWmat does: the stress is the negative of the virial, with a constant on its diagonal.
Models are trained for the same number of epochs without virials, with them as [data] virial_offset
says by default, and with the constant left in. Then forces and virials on unseen frames are
compared with those of the potential itself: errors, the slope of the virials without their mean
isotropic part, and by how much that mean is off.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from rich.console import Console
from rich.table import Table

from pwmlff.data.frames import Frames
from pwmlff.evaluation.engine import choose
from pwmlff.train.evaluate import predict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from labelled_structures import frames_of, movement

WAYS = {
    "forces and energies": ["loss.virial=0"],
    "and virials": [],
    "and virials with the constant": ["data.virial_offset=none"],
}


def copper(count: int, strain: float, seed: int) -> list[Atoms]:
    """Frames of 72 atoms, about 0.08 angstrom off their places."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        atoms = bulk("Cu", cubic=True).repeat((3, 3, 2))
        change = rng.normal(0.0, strain, (3, 3))
        atoms.set_cell(atoms.cell @ (np.eye(3) + (change + change.T) / 2.0), scale_atoms=True)
        atoms.positions += rng.normal(0.0, 0.08, atoms.positions.shape)
        atoms.wrap()
        atoms.calc = EMT()
        result.append(atoms)
    return result


def labelled(structures: list[Atoms]) -> Frames:
    """The same with energies, forces and virials of the potential."""
    return frames_of(
        structures,
        [a.get_potential_energy() for a in structures],
        [a.get_forces() for a in structures],
        [-a.get_volume() * a.get_stress(voigt=False) for a in structures],
    )


def judged(model: Path, truth: Frames) -> list[str]:
    """Errors of a model on frames whose labels are the potential's."""
    energy, forces, virial = predict(choose(model, "auto", "exact").engine, truth)
    natoms = truth.natoms
    error = (energy - truth.energies) / natoms
    label, found = (v / natoms[:, None, None] for v in (truth.virials, virial))
    means = [np.trace(v, axis1=1, axis2=2).mean() / 3.0 for v in (label, found)]
    y, x = ((v - m * np.eye(3)).ravel() for v, m in zip((label, found), means, strict=True))
    return [
        f"{1e3 * np.sqrt(np.square(error).mean()):.2f}",
        f"{1e3 * np.sqrt(np.square(forces - truth.forces).mean()):.1f}",
        f"{x @ y / (y @ y):.3f}",
        f"{1e3 * np.sqrt(np.square(x - y).mean()):.1f}",
        f"{means[1] - means[0]:+.3f}",
    ]


def main() -> None:
    """Print a row for each data set and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--constant", type=float, default=10.0, help="of the stress, eV per atom")
    parser.add_argument("--strain", type=float, nargs="*", default=[0.0, 0.015])
    parser.add_argument("--set", action="append", default=[], help="as pwmlff train takes it")
    options = parser.parse_args()
    table = Table(
        "cells", "learned from", "energy, meV/atom", "force, meV/angstrom", "virial slope",
        "virial, meV/atom", "its mean off, eV/atom",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        for strain in options.strain:
            folder = Path(name, f"{strain:g}")
            folder.mkdir()
            frames = copper(options.frames, strain, seed=1)
            text = "".join(movement(a, constant=options.constant) for a in frames)
            (folder / "MOVEMENT").write_text(text)
            truth = labelled(copper(20, strain, seed=2))
            for way, settings in WAYS.items():
                output = folder / way.replace(" ", "-")
                command = [sys.executable, "-m", "pwmlff", "train", "--elements", "Cu"]
                command += ["--data", str(folder / "MOVEMENT"), "-o", str(output)]
                chosen = [f"run.epochs={options.epochs}", "data.cache=none"]
                for setting in [*chosen, *options.set, *settings]:
                    command += ["--set", setting]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                cells = f"strained by {strain:g}" if strain else "one"
                table.add_row(cells, way, *judged(output / "best.pt", truth))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
