"""Train the two models of this example on LAMMPS's own lj/cut.

    python examples/lj/make_models.py

Runs the teacher, in.teacher, from the crystal that the melt starts from to the liquid, at several
temperatures and densities; trains two models that differ in their seed on its energies and forces,
as run.toml says; tests them on runs that they have not learned from; writes a.pt and b.pt.
The energy of lj/cut jumps at its cutoff, which a smooth model spreads over a last bit of distance.
Its pressure has the pull of that jump (about -0.35 in the melt), the one that LAMMPS prints for
lj/cut does not.
All quantities are in LAMMPS's `units lj`.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ase import Atoms
from ase.io import write
from rich.logging import RichHandler

from pwmlff.launch import lmp

log = logging.getLogger("make_models")

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class State:
    """What in.teacher is told: a run of 4 x 4 x 4 cells, and steps of 0.005 between frames."""

    T: float
    density: float = 0.8442
    seed: int = 1
    every: int = 30


# in.lj melts at 0.72.
TRAINING = (
    *(State(t, seed=10 + n) for n, t in enumerate((0.4, 0.72, 0.72, 1.0, 1.5, 2.0))),
    *(State(t, density=d, seed=20) for d in (0.78, 0.91) for t in (0.72, 1.5)),
)
UNSEEN = (State(0.72, seed=31, every=45), State(1.2, seed=32, every=45))


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder."""
    log.info("%s", shlex.join(command))
    subprocess.run(command, cwd=folder, check=True)


def simulate(state: State, frames: int, folder: Path) -> list[Atoms]:
    """Frames of the teacher, without the perfect crystal that it starts from."""
    variables = {**asdict(state), "steps": frames * state.every}
    words = [word for name, value in variables.items() for word in ("-var", name, str(value))]
    shutil.copy(HERE / "in.teacher", folder)
    run(folder, "lmp", "-in", "in.teacher", "-screen", "none", *words)
    return lmp.labelled(folder / "frames.dump", folder / "log.lammps", "lj")[1:]


def draw(states: Sequence[State], frames: int, path: Path) -> None:
    """Write the frames of several states."""
    structures = [atoms for state in states for atoms in simulate(state, frames, path.parent)]
    write(path, structures, format="extxyz")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the data, the models and the test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of a.pt; b.pt takes the next one")
    parser.add_argument("--frames", type=int, default=20, help="frames of each state")
    parser.add_argument("--set", action="append", default=[], help="key of run.toml; several times")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write")
    options = parser.parse_args(arguments)
    handler = RichHandler(show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(HERE / "run.toml", folder)
        draw(TRAINING, options.frames, folder / "train.extxyz")
        draw(UNSEEN, options.frames, folder / "unseen.extxyz")
        settings = [f"model.seed={options.seed}", *options.set]
        words = [word for text in settings for word in ("--set", text)]
        run(folder, "pwmlff", "train", "run.toml", *words)
        for model in ("a.pt", "b.pt"):
            run(folder, "pwmlff", "test", f"models/{model}", "unseen.extxyz", "--worst", "0")
            shutil.copy(folder / "models" / model, options.out)


if __name__ == "__main__":
    main()
