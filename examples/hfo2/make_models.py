"""From a classical potential to two models of HfO2 that run in LAMMPS, in five minutes.

    python examples/hfo2/make_models.py --out hfo2

Runs the teacher, in.teacher, at several temperatures and strains; writes what it says of the
frames as extended XYZ; checks that; trains two models as run.toml says; tests them on a run at a
temperature, density and strain that they have not learned from; and lets them run in.hfo2.
Each step is a command that is shown, and can be given by hand.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ase import Atoms
from ase.io import write
from rich.logging import RichHandler

from pwmlff.launch import lmp

log = logging.getLogger("make_models")

HERE = Path(__file__).resolve().parent
EVERY = 40  # steps of 1 fs from frame to frame


@dataclass(frozen=True)
class State:
    """What in.teacher is told: temperature in K, lattice constant in angstrom."""

    T: float = 1000.0
    a: float = 5.07
    shear: float = 0.0
    seed: int = 1


TRAINING = (
    State(T=300.0, seed=11),
    State(T=1000.0, seed=12),
    State(T=2000.0, seed=13),
    State(a=4.95, seed=14),
    State(a=5.20, T=2000.0, seed=15),
    State(shear=0.05, seed=16),
)
UNSEEN = (State(T=1500.0, a=5.12, shear=0.02, seed=31),)


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder."""
    log.info("%s", shlex.join(command))
    subprocess.run(command, cwd=folder, check=True)


def simulate(state: State, frames: int, folder: Path) -> list[Atoms]:
    """Frames of the teacher, without the perfect crystal that it starts from."""
    variables = {**asdict(state), "every": EVERY, "steps": frames * EVERY}
    words = [word for name, value in variables.items() for word in ("-var", name, str(value))]
    shutil.copy(HERE / "in.teacher", folder)
    run(folder, "lmp", "-in", "in.teacher", "-screen", "none", *words)
    return lmp.labelled(folder / "frames.dump", folder / "log.lammps")[1:]


def draw(states: Sequence[State], frames: int, path: Path) -> None:
    """Write the frames of several states."""
    structures = [atoms for state in states for atoms in simulate(state, frames, path.parent)]
    write(path, structures, format="extxyz")
    log.info("%s: %d frames of %d atoms", path, len(structures), len(structures[0]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the data, the models, the test and the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default="hfo2", help="folder to write")
    parser.add_argument("--frames", type=int, default=40, help="frames of each state")
    parser.add_argument("--steps", type=int, default=2000, help="length of the last run")
    parser.add_argument("--set", action="append", default=[], help="key of run.toml; several times")
    options = parser.parse_args(arguments)
    handler = RichHandler(show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])

    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "run.toml", out)
    draw(TRAINING, options.frames, out / "train.extxyz")
    draw(UNSEEN, options.frames, out / "unseen.extxyz")
    run(out, "pwmlff", "data", "check", "train.extxyz", "--elements", "Hf O")
    settings = [word for text in options.set for word in ("--set", text)]
    run(out, "pwmlff", "train", "run.toml", *settings)
    run(out, "pwmlff", "test", "models/a.pt", "unseen.extxyz", "--plot", "parity.png")
    words = ["-var", "dir", "models", "-var", "steps", str(options.steps)]
    run(out, "lmp", "-in", str(HERE / "in.hfo2"), *words)


if __name__ == "__main__":
    main()
