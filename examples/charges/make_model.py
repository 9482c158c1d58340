"""A NEP with charges of HfO2, which learns them from forces, and its infrared spectrum.

    python examples/charges/make_model.py --out charges

The teacher has formal charges, which act over any distance. The model learns from its energies,
forces and stresses, once with charges and once without. Then it runs in.infrared. A third one
learns from Born charges too, which are the formal ones.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ase.io import write
from rich.logging import RichHandler

from pwmlff.launch import lmp

log = logging.getLogger("make_model")

HERE = Path(__file__).resolve().parent
FRAMES, EVERY = 40, 40  # of each state; steps of 1 fs from frame to frame
#: Temperature in K, lattice constant in angstrom, shear.
TRAINING = (
    (300, 5.10, 0.0),
    (1000, 5.10, 0.0),
    (2000, 5.15, 0.0),
    (1000, 5.0, 0.0),
    (600, 5.1, 0.05),
)
UNSEEN = ((1500, 5.12, 0.02),)
FORMAL = {"Hf": 4.0, "O": -2.0}


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder."""
    log.info("%s", shlex.join(command))
    subprocess.run(command, cwd=folder, check=True)


def draw(states: Sequence[tuple[float, float, float]], path: Path) -> None:
    """Write frames of the teacher, without the perfect crystals that it starts from.

    With Born charges: the dipole moment is that of charges that stay as they are.
    """
    structures = []
    for seed, (t, a, shear) in enumerate(states, 1):
        values = {"T": t, "a": a, "shear": shear, "seed": seed, "steps": FRAMES * EVERY}
        words = [word for name, value in values.items() for word in ("-var", name, str(value))]
        run(path.parent, "lmp", "-in", str(HERE / "in.teacher"), "-screen", "none", *words)
        structures += lmp.labelled(path.parent / "frames.dump", path.parent / "log.lammps")[1:]
    for atoms in structures:
        charges = np.array([FORMAL[symbol] for symbol in atoms.symbols])
        atoms.arrays["bec"] = np.outer(charges, np.eye(3))
    write(path, structures, format="extxyz")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the data, three models, their tests and the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default="charges", help="folder to write")
    parser.add_argument("--max-time", default="4m", help="of each of three trainings")
    parser.add_argument("--steps", type=int, default=40000, help="of 1 fs, of the last run")
    options = parser.parse_args(arguments)
    handler = RichHandler(show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])

    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    draw(TRAINING, out / "train.extxyz")
    draw(UNSEEN, out / "unseen.extxyz")
    shape = ["nep.cutoff=[6,4.5]", "nep.neuron=20", "nep.n_max=[5,4]", "nep.l_max=[4,2,0]"]
    words = [word for key in shape for word in ("--set", key)]
    for name, charge, born in (("without", 0, 0), ("with", 2, 0), ("labels", 2, 0.1)):
        command = ["pwmlff", "train", "train.extxyz", "--model", "nep", "--elements", "Hf O"]
        command += [*words, "--set", f"nep.charge={charge}", "--set", f"nep.born={born}"]
        command += ["-o", name]
        run(out, *command, "--max-time", options.max_time)
        run(out, "pwmlff", "test", f"{name}/best.txt", "unseen.extxyz")
    shutil.copy(out / "with" / "best.txt", out / "nep.txt")
    run(out, "lmp", "-in", str(HERE / "in.infrared"), "-var", "steps", str(options.steps))


if __name__ == "__main__":
    main()
