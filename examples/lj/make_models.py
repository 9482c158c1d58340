"""Fit the two models of this example to LAMMPS's own lj/cut.

    python examples/lj/make_models.py

Draws configurations from Lennard-Jones runs, from the crystal that the melt starts from to the
liquid, at several temperatures and densities; fits two DP models that differ in their random start
to energies and forces; checks them on runs that the fit never saw; writes a.pt and b.pt.
The energy of lj/cut jumps at its cutoff, which a smooth model spreads over a last bit of distance.
Its pressure has the pull of that jump (about -0.35 in the melt), the one that LAMMPS prints for
lj/cut does not.
All quantities are in LAMMPS's `units lj`.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.io import read
from rich.logging import RichHandler
from rich.progress import Progress
from torch import Tensor

from pwmlff.lmp import Thermo
from pwmlff.models import DP, DPConfig, pad_neighbors

log = logging.getLogger("make_models")

ELEMENT = 18  # the models call the particles argon
CONFIG = DPConfig(
    atom_type=(ELEMENT,),
    rmax=2.5,  # the cutoff of lj/cut
    rmin=1.8,
    max_neighbor=96,
    m2=4,
    embedding=(8, 16),
    fitting=(16, 16),
    units="lj",
)
# What the filter sees: energy per atom and mean force component, times these.
ENERGY_WEIGHT, FORCE_WEIGHT = 3.0, 0.1
FORCE_GROUPS = 6  # updates by forces per frame, each by a sixth of the atoms

INPUT = """
units lj
lattice fcc {density}
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
pair_style lj/cut {cutoff}
pair_coeff 1 1 1.0 1.0
neighbor 0.3 bin
velocity all create {start} {seed} loop geom
fix 1 all nvt temp {temperature} {temperature} 0.5
thermo_style custom step pe
thermo_modify norm no format float %.12g
thermo {every}
dump 1 all custom {every} frames.dump id type x y z fx fy fz
dump_modify 1 sort id format float %.12g
run {steps}
"""


@dataclass(frozen=True)
class Run:
    """A run of 4 x 4 x 4 fcc cells that starts as a crystal, and what to take from it."""

    temperature: float
    density: float = 0.8442
    seed: int = 1
    frames: int = 20
    every: int = 30  # steps of 0.005 from one frame to the next


# Twice the temperature of the liquid at the start, as half of it goes into melting: in.lj is 0.72.
TRAINING = (
    *(Run(t, seed=10 + n) for n, t in enumerate((0.4, 0.72, 0.72, 1.0, 1.5, 2.0))),
    *(Run(t, density=d, seed=20) for d in (0.78, 0.91) for t in (0.72, 1.5)),
)
UNSEEN = (Run(0.72, seed=31, every=45), Run(1.2, seed=32, every=45))


@dataclass(frozen=True)
class Frames:
    """Frames of equal size, padded for the model.

    list_neigh int32 [F, n, slots], image_dr [F, n, slots, 4], energy per atom [F], forces
    [F, n, 3].
    """

    list_neigh: Tensor
    image_dr: Tensor
    energy: Tensor
    forces: Tensor

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.energy)

    def predict(self, model: DP, pick: Tensor) -> tuple[Tensor, Tensor]:
        """Return energies per atom [b] and forces [b, n, 3] of the picked frames."""
        n = self.forces.shape[1]
        energy, _, forces, _, _ = model(
            self.list_neigh[pick],
            torch.zeros(n, dtype=torch.int32),
            torch.tensor([ELEMENT], dtype=torch.int32),
            self.image_dr[pick],
            0,
        )
        return energy[:, 0] / n, forces


def simulate(run: Run) -> tuple[list[Atoms], list[float]]:
    """Structures with their forces, and their total potential energies."""
    text = INPUT.format(
        cutoff=CONFIG.rmax,
        density=run.density,
        temperature=run.temperature,
        start=2.0 * run.temperature,
        seed=run.seed,
        every=run.every,
        steps=run.every * (run.frames - 1),
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["lmp", "-screen", "none"], input=text, text=True, cwd=folder, check=False
        )
        written = Path(folder, "log.lammps")
        if done.returncode:
            raise RuntimeError(f"lmp ended with {done.returncode}: {written.read_text()[-500:]}")
        structures = read(f"{folder}/frames.dump", index=":", format="lammps-dump-text")
        energies = Thermo(written).columns(0)["PotEng"]
    return structures, energies


def draw(runs: Sequence[Run]) -> Frames:
    """Frames of several runs."""
    columns = []
    for run in runs:
        for atoms, energy in zip(*simulate(run), strict=True):
            forces = torch.from_numpy(atoms.get_forces())
            atoms.numbers[:] = ELEMENT
            inputs = pad_neighbors(atoms, CONFIG.atom_type, CONFIG.rmax, CONFIG.max_neighbor)
            columns.append(
                (
                    inputs.list_neigh[0],
                    inputs.ImageDR[0].float(),
                    torch.tensor(energy / len(atoms)).float(),
                    forces.float(),
                )
            )
    return Frames(*(torch.stack(values) for values in zip(*columns, strict=True)))


def statistics(frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    """Return davg and dstd [1, 4] of the environment matrix over all slots, empty ones included.

    The three angular components have no mean and share one deviation, or the model would prefer
    a direction in space.
    """
    r, d = frames.image_dr[..., :1].double(), frames.image_dr[..., 1:].double()
    inside = r > 0.0
    u = ((r - CONFIG.rmin) / (CONFIG.rmax - CONFIG.rmin)).clamp(0.0, 1.0)
    r = torch.where(inside, r, 1.0)
    s = inside * (1.0 + u**3 * (-6.0 * u**2 + 15.0 * u - 10.0)) / r
    radial, angular = float(s.std()), float((s * d / r).square().mean().sqrt())
    davg = np.array([[float(s.mean()), 0.0, 0.0, 0.0]])
    return davg, np.array([[radial, angular, angular, angular]])


class KalmanFilter:
    """Global extended Kalman filter with a memory that grows from 0.98 to 1.

    Networks as small as these need few passes over the data with it, where gradient descent needs
    thousands. Hu et al. 2022, arXiv:2212.06989 describe it for Deep Potentials.
    """

    GROWTH = 0.9987

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        size = sum(p.numel() for p in self.parameters)
        self.covariance = torch.eye(size, dtype=torch.float64)
        self.memory = 0.98

    def update(self, prediction: Tensor, error: Tensor) -> None:
        """Move the parameters so that a scalar prediction loses its error (target - prediction)."""
        gradients = torch.autograd.grad(
            prediction, self.parameters, allow_unused=True, materialize_grads=True
        )
        h = torch.cat([g.flatten() for g in gradients]).double()
        k = self.covariance @ h
        gain = 1.0 / (self.memory + float(h @ k))
        self.covariance.addr_(k, k, alpha=-gain).div_(self.memory)
        moves = (gain * float(error) * k).split([p.numel() for p in self.parameters])
        with torch.no_grad():
            for parameter, move in zip(self.parameters, moves, strict=True):
                parameter.add_(move.view_as(parameter))
        self.memory = self.GROWTH * self.memory + 1.0 - self.GROWTH


def fit(frames: Frames, seed: int, epochs: int, progress: Progress) -> DP:
    """Model fitted to energies and forces of the frames, in float32; returned in float64."""
    torch.manual_seed(seed)
    davg, dstd = statistics(frames)
    model = DP(CONFIG, davg=davg, dstd=dstd, energy_shift=[float(frames.energy.mean())], seed=seed)
    model.float().train()
    kalman = KalmanFilter(list(model.parameters()))
    scale = frames.forces.square().mean().sqrt()
    task = progress.add_task(f"seed {seed}", total=epochs * len(frames))
    for _ in range(epochs):
        for pick in torch.randperm(len(frames)).split(1):
            energy, _ = frames.predict(model, pick)
            error = (frames.energy[pick] - energy.detach()).sum()
            kalman.update(ENERGY_WEIGHT * energy.sum(), ENERGY_WEIGHT * error)
            for group in torch.randperm(frames.forces.shape[1]).chunk(FORCE_GROUPS):
                _, forces = frames.predict(model, pick)
                forces = forces[:, group]
                difference = frames.forces[pick][:, group] - forces.detach()
                prediction = (difference.sign() * forces).mean()
                kalman.update(FORCE_WEIGHT * prediction, FORCE_WEIGHT * difference.abs().mean())
            percent = 100.0 * float(difference.square().mean().sqrt() / scale)
            progress.update(task, advance=1, description=f"seed {seed}, forces {percent:.1f} %")
    return model.double().eval()


def check(model: DP, frames: Frames) -> tuple[float, float]:
    """RMSE of the forces relative to their RMS, and RMSE of the energy per atom."""
    parts = [frames.predict(model, pick) for pick in torch.arange(len(frames)).split(1)]
    energy, forces = (torch.cat(values) for values in zip(*parts, strict=True))
    force_error = (forces - frames.forces).square().mean().sqrt()
    energy_error = (energy - frames.energy).square().mean().sqrt()
    return float(force_error / frames.forces.square().mean().sqrt()), float(energy_error)


def main() -> None:
    """Make the data, the models and the check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of a.pt; b.pt takes the next one")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training frames")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    options = parser.parse_args()
    handler = RichHandler(show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
    torch.set_num_threads(1)  # sums in one order: the same models on every run

    training, unseen = draw(TRAINING), draw(UNSEEN)
    log.info("%d frames to fit, %d unseen ones", len(training), len(unseen))
    for seed, name in ((options.seed, "a.pt"), (options.seed + 1, "b.pt")):
        with Progress() as progress:
            model = fit(training, seed, options.epochs, progress)
        path = model.save(options.out / name)
        force_error, energy_error = check(model, unseen)
        log.info(
            "%s: %d KB; unseen: force RMSE %.2f %% of RMS, energy RMSE %.1e per atom",
            name,
            path.stat().st_size // 1000,
            100.0 * force_error,
            energy_error,
        )


if __name__ == "__main__":
    main()
