"""The loss of a batch, and its slopes by energies, forces and virials.

With the errors dE, dF and dW of a frame of n atoms, and h the square, or Huber's function:

    L = p_E h(dE / n) + p_F / (3 n) sum h(dF) + p_W / 9 sum h(dW / n)

The loss of a batch has, of each term, the mean over the frames with that label, by their weights.
Whatever is trained, its gradient by the parameters is that of S = a E + v . F + w : W, where a, v
and w are the slopes of L by E, F and W (docs/training.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pwmlff.data.frames import Frames, rows_of
from pwmlff.train.adam import Schedule
from pwmlff.train.config import Loss, Pair

#: Power by which weights of the loss follow what the learning rate has lost.
LATENESS = 12


@dataclass(frozen=True)
class LossWeights:
    """Weights of the squared errors, as in [loss] of run.toml, and where Huber's loss begins."""

    energy: float
    force: float
    virial: float
    huber: float = 0.0

    @classmethod
    def scheduled(cls, loss: Loss, schedule: Schedule, part: float) -> LossWeights:
        """Those of a step, where a part of the run is done.

        They are the first numbers p of [loss] until the learning rate falls. As it falls to r times
        the largest, they go to the second ones q by p + (q - p) (1 - r)^LATENESS. Zhang et al. 2018
        (doi:10.1103/PhysRevLett.120.143001) have 1 - r. While steps are large, energies swing with
        each of them, and forces are lost to what follows these swings.
        """
        lost = 0.0 if part < schedule.warmup else 1.0 - schedule.learning_rate(part) / schedule.peak

        def mixed(weights: Pair) -> float:
            start, end = weights
            return start + (end - start) * lost**LATENESS

        return cls(mixed(loss.energy), mixed(loss.force), mixed(loss.virial), loss.huber)


class Slopes(NamedTuple):
    """What some frames of a batch have in its loss."""

    loss: np.ndarray  # [n] share of each frame
    a: np.ndarray  # [n] dL/dE
    v: np.ndarray  # [atoms of these frames, 3] dL/dF
    w: np.ndarray | None  # [n, 3, 3] dL/dW; None where virials weigh nothing
    excess: np.ndarray  # [n] energy above its label, per atom; zero without one


def slopes(
    frames: Frames,
    batch: np.ndarray,
    mine: slice,
    predictions: tuple[np.ndarray, np.ndarray, np.ndarray],
    weights: LossWeights,
    of_frame: np.ndarray,
) -> Slopes:
    """Loss and slopes of a part of a batch.

    Args:
        frames: all that are learned from, with labels; NaN where there is none.
        batch: frames of the step on all ranks.
        mine: the part of them that is looked at.
        predictions: its energies [n], forces [atoms, 3] and virials [n, 3, 3].
        weights: of the errors.
        of_frame: [nframes] weights of the frames.
    """
    energy, force, virial = predictions
    chosen = batch[mine]
    natoms = np.maximum(frames.natoms[chosen], 1)

    def share(name: str) -> np.ndarray:
        return frames.shares(name, batch, of_frame, getattr(weights, name))[mine]

    excess = _difference(energy, frames.energies[chosen]) / natoms
    slope, loss = huber(excess, weights.huber)
    of_energy = share("energy")
    loss *= of_energy
    a = of_energy * slope / natoms

    difference = _difference(force, frames.forces[rows_of(frames.first, chosen)])
    slope, of_atoms = huber(difference, weights.huber)
    frame = np.repeat(np.arange(len(chosen)), frames.natoms[chosen])
    per_atom = (share("force") / (3.0 * natoms))[frame]
    loss += np.bincount(frame, per_atom * of_atoms.sum(1), len(chosen))
    v = per_atom[:, None] * slope

    w = None
    if weights.virial:
        per_frame = natoms[:, None, None]
        difference = _difference(virial, frames.virials[chosen]) / per_frame
        slope, of_frames = huber(difference, weights.huber)
        of_virial = share("virial")
        loss += of_virial * of_frames.mean((1, 2))
        w = (of_virial / 9.0)[:, None, None] * slope / per_frame
    return Slopes(loss, a, v, w, excess)


def huber(error: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Slope and value of error^2, or beyond delta of the line that goes on there."""
    if delta <= 0.0:
        return 2.0 * error, error**2
    size = np.abs(error)
    quadratic = size <= delta
    return (
        np.where(quadratic, 2.0 * error, 2.0 * delta * np.sign(error)),
        np.where(quadratic, error**2, delta * (2.0 * size - delta)),
    )


def _difference(predicted: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Predicted - label, zero where there is no label."""
    return np.where(np.isnan(label), 0.0, predicted - label)
