"""A model in training: what moves its parameters, and the average of their path.

Whatever is trained (:class:`pwmlff.train.trainable.Trainable`), by whichever optimizer, a step is
one of :class:`Learner`. The training itself is in :mod:`pwmlff.train.loop`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from pwmlff.data import statistics
from pwmlff.data.frames import QUANTITIES, Frames
from pwmlff.data.neighbors import Edges
from pwmlff.report import Failure
from pwmlff.train import comm
from pwmlff.train.adam import Adam, AdamOptions, Average, Schedule
from pwmlff.train.checkpoint import subset
from pwmlff.train.config import Config
from pwmlff.train.loss import LossWeights, slopes
from pwmlff.train.muon import DECAY, Muon
from pwmlff.train.trainable import Predictions, Trainable

log = logging.getLogger(__name__)

#: Part of what energies of single atoms have too much that a step takes at the largest rate.
GAIN = 0.2
#: Times the usual error of an energy beyond which a frame does not count there.
FAR = 8.0
#: Passes to the smallest sum of sizes, and the size, eV/atom, below which errors are alike.
REWEIGHTED, SMALLEST = 30, 1e-6


def schedule_of(config: Config) -> Schedule:
    """Learning rates, as [optimizer] has them."""
    o = config.optimizer
    return Schedule(
        peak=o.learning_rate,
        warmup=o.warmup,
        decay=o.decay,
        final=min(1.0, o.final_learning_rate / o.learning_rate),
    )


def adam_of(config: Config) -> AdamOptions:
    """Constants of Adam, as [optimizer] has them."""
    o = config.optimizer
    return AdamOptions(
        beta1=o.betas[0], beta2=o.betas[1], weight_decay=o.weight_decay, clip=o.clip or None
    )


def with_decay(config: Config, nframes: int) -> Config:
    """The same with a decay of weights: by how many steps an epoch has, where none is given.

    What a model to start from has learned of other data is to stay: there is none then.
    """
    optimizer = config.optimizer
    if optimizer.weight_decay >= 0.0:
        return config
    decay = AdamOptions.weight_decay
    if optimizer.name == "muon" and not config.model.finetune:
        decay = DECAY / config.run.steps_of_epoch(nframes)
    return replace(config, optimizer=replace(optimizer, weight_decay=decay))


def frame_weights(frames: Frames, config: Config) -> np.ndarray:
    """Weights of the frames [nframes], by their groups.

    Raises:
        Failure: a group is named that is not there.
    """
    group_weights = config.data.group_weights
    unknown = [name for name in group_weights if name not in frames.group_names]
    if unknown:
        raise Failure(
            f"[data] group_weights has '{unknown[0]}', the groups of the data are "
            f"{', '.join(frames.group_names)}"
        )
    weight_of = np.array([group_weights.get(name, 1.0) for name in frames.group_names])
    weights: np.ndarray = weight_of[frames.group]
    return weights


def _alignment(shares: np.ndarray, lacks: np.ndarray) -> tuple[np.ndarray, float]:
    """Change of the energies of single atoms [ntypes], and the usual error that is left.

    By least squares over what is not far off by the smallest sum of sizes. A few wrong labels do
    not change that (reweighted, Schlossmacher 1973, doi:10.1080/01621459.1973.10481438).

    Args:
        shares: [k, ntypes] of the types in the atoms of each frame.
        lacks: [k] energies per atom that the model is to have more.
    """
    change = statistics.fitted(shares, lacks)
    for _ in range(REWEIGHTED):
        size = np.abs(lacks - shares @ change)
        root = 1.0 / np.sqrt(np.maximum(size, SMALLEST))
        change = statistics.fitted(root[:, None] * shares, root * lacks)
    left = np.abs(lacks - shares @ change)
    kept = left <= FAR * np.median(left) + SMALLEST
    change = statistics.fitted(shares[kept], lacks[kept])
    return change, float(np.median(np.abs(lacks - shares @ change)))


class Learner:
    """A model, its optimizer, learning rates and moving average. All but `predict` is collective.

    Args:
        model: with the frames that it learns from.
        config: all that was asked for.
        ranks: who takes part.

    Raises:
        Failure: what is asked for fits neither the model nor the data, or nothing may change.
    """

    def __init__(self, model: Trainable, config: Config, ranks: comm.Communicator) -> None:
        self.model, self.ranks = model, ranks
        self.config = with_decay(config, len(model.frames))
        self.free = model.free(config.model.freeze)
        if not self.free.any():
            raise Failure("found no parameter that may change, expected one or more to learn")
        self.of_frame = frame_weights(model.frames, config)
        self._tell_of_weights()
        # [nframes, ntypes] of the types; zero of isolated atoms, which do not move all energies.
        self.shares = statistics.shares(model.frames, model.edges)
        self.shares[model.frames.isolated & ~model.frames.isolated.all()] = 0.0
        self.schedule = schedule_of(config)
        self.optimizer = self._optimizer()
        n, ema = len(model.parameters), config.optimizer.ema
        self.average = Average(n, ema) if ema else None
        self.learning_rate = 0.0  # of the last step
        places = model.energy_biases
        learned = bool(max(config.loss.energy)) and bool(self.free[places].all())
        self.aligns = learned and len(places) > 0
        self.shift = np.zeros(len(places))  # of the energies of single atoms, by `align`
        self.usual = 0.0  # error of an energy, eV/atom, by the last validation
        self.refitted = np.zeros(n)  # what `refit` has changed; void after a step
        self.earlier: np.ndarray | None = None  # averaged, where validated forces were best

    def _tell_of_weights(self) -> None:
        """Say whether weights that files give count; those of 0 have left the labels out."""
        weights = self.model.frames.weights
        count = int(((weights != 1.0) & (weights != 0.0)).any(axis=1).sum())
        if count and not self.ranks.rank:
            log.info("%d of %d frames have weights of their own, which count", count, len(weights))

    def _optimizer(self) -> Adam:
        model, options = self.model, adam_of(self.config)
        which = self.free, model.energy_biases
        if self.config.optimizer.name == "muon":
            return Muon(model.shapes, options, *which, self.ranks, model.threads)
        return Adam(len(model.parameters), options, *which)

    @property
    def frames(self) -> Frames:
        """What it learns from."""
        return self.model.frames

    @property
    def parameters(self) -> np.ndarray:
        """All parameters as one vector, the same on all ranks."""
        return self.model.parameters

    # ---- steps

    def step(self, batch: np.ndarray, progress: float) -> float:
        """Move the parameters by a batch.

        Args:
            batch: frames, of all ranks together.
            progress: part of the training that is over, 0 to 1.

        Returns:
            The loss before the step, the mean over the frames.

        Raises:
            Failure: a gradient is no number; on all ranks.
        """
        self.refitted[:] = 0.0
        model, mine = self.model, comm.owned(self.ranks, len(batch))
        self.learning_rate = self.schedule.learning_rate(progress)
        weights = LossWeights.scheduled(self.config.loss, self.schedule, progress)
        with self._disturbed():
            batch_slopes = slopes(
                model.frames, batch, mine, model.evaluate(batch), weights, self.of_frame
            )
            gradient = model.pullback(batch_slopes.a, batch_slopes.v, batch_slopes.w)
        each = np.c_[batch_slopes.loss, self._moves(batch, batch_slopes.excess, mine)]
        loss, *move = comm.ordered_sum(self.ranks, len(batch), each)
        self.optimizer.step(self.parameters, gradient, self.learning_rate)
        if self.average is not None:
            self.average.add(self.parameters)
        self.parameters[model.energy_biases] += move
        return float(loss)

    @contextmanager
    def _disturbed(self) -> Iterator[None]:
        """Noise in the matrices of weights, so that the loss gets small around them as well.

        It is normal, of a part of a matrix's root mean square, which falls with the rate.
        """
        part = self.config.optimizer.noise * self.learning_rate / self.schedule.peak
        if not part:
            yield
            return
        kept = self.parameters.copy()
        rng = np.random.default_rng([self.config.run.seed, self.optimizer.steps])
        arrays = self.model.shapes, self.model.parts(self.parameters), self.model.parts(self.free)
        for shape, weights, free in zip(*arrays, strict=True):
            if len(shape) == 2:
                size = part * np.sqrt(np.mean(np.square(weights)))
                weights[:] += size * free * rng.standard_normal(weights.size)
        try:
            yield
        finally:
            self.parameters[:] = kept

    def _moves(self, batch: np.ndarray, excess: np.ndarray, mine: slice) -> np.ndarray:
        """What the frames of a batch here move energies of single atoms by, [n, ntypes].

        A part of the smallest change that would mend each frame, which falls with the rate: what
        all energies have too much is to be gone before the nets learn it.
        """
        if not self.aligns:
            return np.zeros((len(excess), len(self.shift)))
        shares = self.shares[batch[mine]]
        part = self.learning_rate / self.schedule.peak
        each = self.frames.shares("energy", batch, self.of_frame, part, batchwise=True)[mine]
        limit = FAR * self.usual
        step = GAIN * each * np.clip(excess, -limit, limit)
        moves: np.ndarray = -step[:, None] * shares
        moves /= np.maximum(np.square(shares).sum(axis=1, keepdims=True), 1e-300)
        return moves

    # ---- what is judged and saved

    def averaged(self) -> np.ndarray:
        """The parameters that are judged and saved."""
        result = self.parameters.copy()
        if self.average is not None:
            result[self.free] = self.average.value(self.parameters)[self.free]
        result[self.model.energy_biases] += self.shift
        return result + self.refitted

    def refit(self, seconds: float = np.inf, start: np.ndarray | None = None) -> None:
        """Solve for what is linear in the model that would be saved, until the next step.

        Args:
            seconds: nothing is solved for where it would take longer.
            start: parameters that take the place of those of the model, which are solved for.
        """
        loss = self.config.loss
        self.refitted = np.zeros(len(self.parameters))
        if self.ranks.rank == 0:
            quantities = [name for name in QUANTITIES if max(getattr(loss, name))]
            now = self.averaged()
            start = now if start is None else start
            change = self.model.solved(start, self.free, self.of_frame, quantities, seconds)
            self.refitted = (start - now) + change
        self.refitted = self.ranks.broadcast(self.refitted)

    def align(self, sample: np.ndarray, energies: np.ndarray | None) -> np.ndarray | None:
        """Move the energies of single atoms of the model that would be saved to those of the data.

        As :func:`_alignment` says; nothing where steps alone learn them.

        Args:
            sample: some frames that are learned from.
            energies: what `predict` gives for them, on rank 0; None on the others.

        Returns:
            What it would give now, on rank 0.
        """
        if not self.aligns:
            return energies
        change, usual = np.zeros_like(self.shift), self.usual
        natoms = np.maximum(self.frames.natoms[sample], 1)
        shares = self.shares[sample]
        if energies is not None:
            excess = (energies - self.frames.energies[sample]) / natoms
            known = np.isfinite(excess) & (self.of_frame[sample] > 0.0) & shares.any(axis=1)
            if known.any():
                change, usual = _alignment(shares[known], -excess[known])
        self.shift, self.usual = self.ranks.broadcast((self.shift + change, usual))
        return None if energies is None else energies + natoms * (shares @ change)

    def predict(self, frames: Frames, edges: Edges) -> Predictions:
        """Energies, forces and virials of the model that would be saved now."""
        return self.model.predict(self.averaged(), frames, edges)

    def born_charges(self, frames: Frames, edges: Edges) -> np.ndarray | None:
        """Born charges of the model that would be saved now, as it gives them where it has some."""
        return self.model.born_charges(self.averaged(), frames, edges)

    def refine(self, sample: np.ndarray, forces: np.ndarray | None) -> None:
        """Look whether what steps are computed with is close enough to the model.

        Args:
            sample: some frames that are learned from.
            forces: what `predict` gives for them, on rank 0.
        """
        self.model.refine(self.averaged(), sample, forces)

    def save(self, path: str | PathLike[str], card: Mapping[str, Any] | None) -> None:
        """Write a model file."""
        self.model.save(path, self.averaged(), card)

    # ---- checkpoints

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs; the same on all ranks."""
        arrays = {f"optimizer/{k}": v for k, v in self.optimizer.state().items()}
        average = {} if self.average is None else self.average.state()
        arrays |= {f"average/{k}": v for k, v in average.items()}
        arrays |= {f"model/{k}": v for k, v in self.model.state().items()}
        own = {"parameters": self.parameters, "shift": self.shift, "usual": np.array(self.usual)}
        if self.earlier is not None:
            own["earlier"] = self.earlier
        return arrays | own

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state, of any number of ranks.

        Raises:
            Failure: it is of another model or optimizer.
        """
        if "optimizer/forgetting" in arrays:
            raise Failure(
                "the checkpoint is of a training with the Kalman filter, which this release does "
                "not have, expected one with muon or adam: start from its best.pt with --finetune "
                "in another folder (docs/coming_from_matpl.md)"
            )
        shape = arrays["parameters"].shape if "parameters" in arrays else None
        if shape != self.parameters.shape:
            raise Failure(
                f"the checkpoint holds parameters {shape}, expected {self.parameters.shape}: it is "
                "of a model of other widths or elements"
            )
        self.optimizer.restore(subset("optimizer/", arrays))
        if self.average is not None:
            self.average.restore(subset("average/", arrays))
        self.model.restore(subset("model/", arrays))
        self.parameters[:] = arrays["parameters"]
        self.shift, self.usual = arrays["shift"].copy(), float(arrays["usual"])
        self.earlier = arrays["earlier"].copy() if "earlier" in arrays else None
