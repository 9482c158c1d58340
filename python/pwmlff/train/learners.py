"""What learns, and how it moves: a Deep Potential by Adam or the Kalman filter, or an EDGE module.

The training itself (:mod:`pwmlff.train.loop`) knows them as :class:`Learner`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Protocol

import numpy as np

from pwmlff.data import statistics
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.report import Failure
from pwmlff.train import comm, errors, last_layer
from pwmlff.train.adam import Adam, AdamOptions, Average, Schedule
from pwmlff.train.checkpoint import subset
from pwmlff.train.config import Config
from pwmlff.train.edge import EdgeTrainee
from pwmlff.train.kalman import GroupOptions, Kalman, KalmanOptions, Measurement, group_updates
from pwmlff.train.muon import Muon
from pwmlff.train.potential import LossWeights, Potential

#: Part of what energies of single atoms have too much that a step takes at the largest rate.
GAIN = 0.2
#: Times the usual error of an energy beyond which a frame does not count there.
FAR = 8.0
#: Passes to the smallest sum of sizes, and the size, eV/atom, below which errors are alike.
REWEIGHTED, SMALLEST = 30, 1e-6

Predictions = tuple[np.ndarray, np.ndarray, np.ndarray]


class Learner(Protocol):
    """A model in training. All calls but `evaluate` and `save` are collective."""

    frames: Frames  # that it learns from
    edges: Edges
    names: list[str]  # of the parameters
    rate: float  # of learning, in the last step

    @property
    def parameters(self) -> np.ndarray:
        """All parameters as one vector, the same on all ranks."""

    def step(self, batch: np.ndarray, done: float) -> float:
        """Move the parameters by a batch.

        Args:
            batch: frames, of all ranks together.
            done: part of the training that is over, 0 to 1.

        Returns:
            The loss before the step, the mean over the frames.
        """

    def evaluate(self, frames: Frames, edges: Edges) -> Predictions:
        """Energies, forces and virials of the model that would be saved now."""

    def refit(self) -> None:
        """Solve for the last layers of the model that would be saved, until the next step."""

    def align(self, sample: np.ndarray, energies: np.ndarray | None) -> np.ndarray | None:
        """Move the energies of single atoms of the model that would be saved to those of the data.

        Args:
            sample: some frames that are learned from.
            energies: what `evaluate` gives for them, on rank 0; None on the others.

        Returns:
            What it would give now, on rank 0.
        """

    def refine(self, sample: np.ndarray, forces: np.ndarray | None) -> None:
        """Look whether what steps are computed with is close enough to the model.

        Args:
            sample: some frames that are learned from.
            forces: what `evaluate` gives for them, on rank 0.
        """

    def save(self, path: str | PathLike[str], card: Mapping[str, Any] | None) -> None:
        """Write a model file."""

    def wants(self, name: str) -> bool:
        """Whether this rank needs an array of a state to go on."""

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs of this rank."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""


def schedule_of(config: Config) -> Schedule:
    """Rates of learning, as [optimizer] has them."""
    o = config.optimizer
    return Schedule(
        peak=o.learning_rate,
        warmup=o.warmup,
        decay=o.decay,
        final=min(1.0, o.final_learning_rate / o.learning_rate),
    )


def weights_of(config: Config, schedule: Schedule, done: float) -> LossWeights:
    """Weights of the loss: those of the start until the rate falls, then on to those of the end."""
    rising = done < schedule.warmup
    return LossWeights.interpolated(config, 1.0 if rising else schedule.rate(done) / schedule.peak)


def adam_of(config: Config) -> AdamOptions:
    """Constants of Adam, as [optimizer] has them."""
    o = config.optimizer
    return AdamOptions(
        beta1=o.betas[0],
        beta2=o.betas[1],
        weight_decay=o.weight_decay,
        clip=o.clip or None,
        average=o.ema or None,
    )


def frame_weights(frames: Frames, config: Config) -> np.ndarray:
    """Weights of the frames [nframes], by their groups.

    Raises:
        Failure: a group is named that is not there.
    """
    given = config.data.group_weights
    unknown = [name for name in given if name not in frames.group_names]
    if unknown:
        raise Failure(
            f"[data] group_weights has '{unknown[0]}', the groups of the data are "
            f"{', '.join(frames.group_names)}"
        )
    of_group = np.array([given.get(name, 1.0) for name in frames.group_names])
    weights: np.ndarray = of_group[frames.group]
    return weights


def _alignment(shares: np.ndarray, lacks: np.ndarray) -> tuple[np.ndarray, float]:
    """Change of the energies of single atoms [ntypes], and the usual error that is left.

    By least squares over what is not far off by the smallest sum of sizes, which a few wrong labels
    do not change (reweighted, Schlossmacher 1973, doi:10.1080/01621459.1973.10481438).

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


class _OfPotential:
    """What both ways to move a Deep Potential share."""

    def __init__(self, potential: Potential, config: Config, ranks: comm.Communicator) -> None:
        self.potential, self.config, self.ranks = potential, config, ranks
        self.frames, self.edges = potential.frames, potential.edges
        self.names = potential.core.names
        self.parameters = potential.core.read()
        self.free = potential.free(config.model.freeze)
        self.of_frame = frame_weights(potential.frames, config)
        self.rate = 0.0
        places = potential.energy_biases
        self.aligns = bool(max(config.loss.energy)) and bool(self.free[places].all())
        self.shift = np.zeros(len(places))  # of the energies of single atoms, by `align`
        self.usual = 0.0  # error of an energy, eV/atom, by the last validation
        self.solved = np.zeros(len(self.parameters))  # what `refit` has changed; void after a step

    def path(self) -> np.ndarray:
        """The parameters that are judged and saved, but for the energies of single atoms."""
        raise NotImplementedError

    def averaged(self) -> np.ndarray:
        """The parameters that are judged and saved."""
        parameters = self.path()
        parameters[self.potential.energy_biases] += self.shift
        return parameters + self.solved

    def refit(self) -> None:
        """As :mod:`pwmlff.train.last_layer` says."""
        potential, loss = self.potential, self.config.loss
        places = potential.last_layers[self.free[potential.last_layers]]
        self.solved = np.zeros(len(self.parameters))
        if self.ranks.rank == 0:
            quantities = [name for name in errors.QUANTITIES if max(getattr(loss, name))]
            self.solved[places] = last_layer.fitted(
                potential, self.averaged(), places, self.of_frame, quantities
            )
        self.solved = self.ranks.broadcast(self.solved)

    def align(self, sample: np.ndarray, energies: np.ndarray | None) -> np.ndarray | None:
        """As :func:`_alignment` says."""
        if not self.aligns:
            return energies
        change, usual = np.zeros_like(self.shift), self.usual
        natoms = np.maximum(self.frames.natoms[sample], 1)
        shares = self.potential.shares[sample]
        if energies is not None:
            excess = (energies - self.frames.energies[sample]) / natoms
            known = np.isfinite(excess) & (self.of_frame[sample] > 0.0)
            if known.any():
                change, usual = _alignment(shares[known], -excess[known])
        self.shift, self.usual = self.ranks.broadcast((self.shift + change, usual))
        return None if energies is None else energies + natoms * (shares @ change)

    def evaluate(self, frames: Frames, edges: Edges) -> Predictions:
        """Energies, forces and virials of the nets with the averaged parameters."""
        return self.potential.predict(self.averaged(), frames, edges)

    def refine(self, sample: np.ndarray, forces: np.ndarray | None) -> None:
        """Take twice the nodes where splines are too far from the nets."""
        nodes = self.potential.core.nodes
        if self.ranks.rank == 0 and forces is not None:
            nodes = self.potential.nodes_for(self.averaged(), sample, forces)
        nodes = self.ranks.broadcast(nodes)
        if nodes != self.potential.core.nodes:
            self.potential.core.set_nodes(nodes)

    def save(self, path: str | PathLike[str], card: Mapping[str, Any] | None) -> None:
        """Write a model file with the averaged parameters."""
        self.potential.save(path, self.averaged(), card)

    def wants(self, name: str) -> bool:
        """Whether this rank needs an array of a state: all."""
        return True

    def _state(self) -> dict[str, np.ndarray]:
        return {
            "parameters": self.parameters,
            "nodes": np.array(self.potential.core.nodes),
            "shift": self.shift,
            "usual": np.array(self.usual),
        }

    def _restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        found = arrays["parameters"].shape if "parameters" in arrays else None
        if found != self.parameters.shape:
            raise Failure(
                f"the checkpoint holds parameters {found}, expected {self.parameters.shape}: it is "
                "of a model of other widths or elements"
            )
        self.parameters[:] = arrays["parameters"]
        self.shift, self.usual = arrays["shift"].copy(), float(arrays["usual"])
        nodes = int(arrays["nodes"])
        if nodes != self.potential.core.nodes:
            self.potential.core.set_nodes(nodes)


class ByAdam(_OfPotential):
    """A Deep Potential moved by Adam or Muon."""

    def __init__(self, potential: Potential, config: Config, ranks: comm.Communicator) -> None:
        super().__init__(potential, config, ranks)
        self.schedule = schedule_of(config)
        options = adam_of(config)
        self.adam = (
            Muon(potential.core.shapes, options, self.free, ranks, potential.threads)
            if config.optimizer.name == "muon"
            else Adam(len(self.parameters), options, self.free)
        )

    def step(self, batch: np.ndarray, done: float) -> float:
        """Move the parameters by a batch."""
        self.solved[:] = 0.0
        mine = comm.owned(self.ranks, len(batch))
        self.rate = self.schedule.rate(done)
        weights = weights_of(self.config, self.schedule, done)
        rows, losses, excess = self.potential.losses(
            self.parameters, batch, mine, weights, self.of_frame
        )
        row = comm.ordered_sum(self.ranks, len(batch), rows)
        moves = self._moves(batch, excess, mine)
        loss, *move = comm.ordered_sum(self.ranks, len(batch), np.c_[losses, moves])
        try:
            self.adam.step(self.parameters, self.potential.core.finish(row), self.rate)
        except ValueError as error:
            raise Failure(str(error)) from error
        self.parameters[self.potential.energy_biases] += move
        return float(loss)

    def _moves(self, batch: np.ndarray, excess: np.ndarray, mine: range) -> np.ndarray:
        """What the frames of a batch here move energies of single atoms by, [n, ntypes].

        A part of the smallest change that would mend each frame, which falls with the rate: what
        all energies have too much is to be gone before the nets learn it.
        """
        shares = self.potential.shares[batch[mine.start : mine.stop]]
        if not self.aligns:
            return np.zeros_like(shares)
        each = self.frames.shares("energy", batch, self.of_frame, self.rate / self.schedule.peak)
        limit = FAR * self.usual
        step = GAIN * each[mine.start : mine.stop] * np.clip(excess, -limit, limit)
        moves: np.ndarray = -step[:, None] * shares
        moves /= np.maximum(np.square(shares).sum(axis=1, keepdims=True), 1e-300)
        return moves

    def path(self) -> np.ndarray:
        """The moving average of the parameters."""
        return self.adam.averaged(self.parameters)

    def state(self) -> dict[str, np.ndarray]:
        """The parameters and what Adam remembers, on rank 0."""
        if self.ranks.rank:
            return {}
        return self._state() | {f"adam/{k}": v for k, v in self.adam.state().items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self._restore(arrays)
        try:
            self.adam.restore(subset("adam/", arrays))
        except ValueError as error:
            raise Failure(str(error)) from error


class ByKalman(_OfPotential):
    """A Deep Potential moved by the Kalman filter; a batch makes several updates."""

    def __init__(self, potential: Potential, config: Config, ranks: comm.Communicator) -> None:
        super().__init__(potential, config, ranks)
        o, loss = config.optimizer, config.loss
        layers = list(zip(potential.core.names, potential.core.shapes, strict=True))
        self.kalman = Kalman(
            layers,
            KalmanOptions(o.block, o.p0, o.lambda_, o.nu, o.matpl),
            ranks,
            self.free,
            potential.threads,
        )
        kinds = tuple(kind for kind in ("energy", "force", "virial") if max(getattr(loss, kind)))
        noises = {"energy": o.noise_energy, "force": o.noise_force, "virial": o.noise_virial}
        self.options = GroupOptions(
            kinds=kinds,
            groups=o.groups,
            group_size=6 if o.matpl else None,
            noises={} if o.matpl else {kind: noises[kind] for kind in kinds},
            matpl=o.matpl,
        )
        self.average = Average(len(self.parameters), o.ema) if o.ema else None

    def step(self, batch: np.ndarray, done: float) -> float:
        """Update by the energies, groups of forces and, if wanted, virials of a batch."""
        self.solved[:] = 0.0
        core, frames = self.potential.core, self.frames.select(batch)
        mine = comm.owned(self.ranks, len(batch))
        begin, end = (int(frames.first[k]) for k in (mine.start, mine.stop))
        place = {"energy": 0, "force": 1, "virial": 2}

        def predict(kind: str) -> np.ndarray:
            core.prepare(self.parameters)
            found = core.evaluate(batch[mine.start : mine.stop])
            return np.concatenate(self.ranks.allgather(found[place[kind]]))

        def gradient(measurement: Measurement) -> np.ndarray:
            rows = core.gradients(
                measurement.a[mine.start : mine.stop],
                measurement.v[begin:end],
                measurement.w[mine.start : mine.stop],
            )
            return core.finish(comm.ordered_sum(self.ranks, len(batch), rows))

        def update(h: np.ndarray, error: float, noise: float) -> None:
            try:
                self.kalman.update(self.parameters, h, error, noise)
            except ValueError as problem:
                raise Failure(str(problem)) from problem

        rng = np.random.default_rng((self.config.run.seed, self.kalman.updates))
        made = group_updates(frames, predict, gradient, update, rng, self.options)
        if self.average is not None:
            self.average.add(self.parameters)
        self.rate = self.kalman.forgetting
        return float(sum(m.error**2 for m in made) / max(1, len(made)))

    def path(self) -> np.ndarray:
        """The parameters, or their moving average where that is asked for."""
        if self.average is None:
            return self.parameters.copy()
        return np.where(self.free, self.average.value(self.parameters), self.parameters)

    def wants(self, name: str) -> bool:
        """Whether this rank needs an array of a state: not the blocks of others."""
        kind, _, rest = name.partition("/")
        return kind != "kalman" or self.kalman.wants(rest)

    def state(self) -> dict[str, np.ndarray]:
        """The parameters, on rank 0, and the blocks of the filter that this rank has."""
        own = {f"kalman/{k}": v for k, v in self.kalman.state().items()}
        if self.ranks.rank:
            return own
        average = {} if self.average is None else self.average.state()
        return self._state() | own | {f"average/{k}": v for k, v in average.items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state, of any number of ranks."""
        self._restore(arrays)
        try:
            self.kalman.restore(subset("kalman/", arrays))
            if self.average is not None:
                self.average.restore(subset("average/", arrays))
        except ValueError as error:
            raise Failure(str(error)) from error


class EdgeByAdam:
    """A module of kind EDGE, moved by torch's AdamW."""

    def __init__(self, trainee: EdgeTrainee, config: Config) -> None:
        self.trainee, self.config = trainee, config
        self.schedule = schedule_of(config)
        self.frames, self.edges, self.names = trainee.frames, trainee.edges, trainee.names
        self.rate = 0.0

    @property
    def parameters(self) -> np.ndarray:
        """All parameters as one vector."""
        return self.trainee.parameters

    def step(self, batch: np.ndarray, done: float) -> float:
        """Move the parameters by a batch."""
        self.rate = self.schedule.rate(done)
        weights = weights_of(self.config, self.schedule, done)
        return self.trainee.step(batch, self.rate, weights).loss

    def evaluate(self, frames: Frames, edges: Edges) -> Predictions:
        """Energies, forces and virials of the averaged module."""
        return self.trainee.evaluate(frames, edges)

    def refit(self) -> None:
        """Nothing: its energies are any function of its parameters."""

    def align(self, sample: np.ndarray, energies: np.ndarray | None) -> np.ndarray | None:
        """Nothing: its steps learn the energies of single atoms."""
        return energies

    def refine(self, sample: np.ndarray, forces: np.ndarray | None) -> None:
        """Nothing: steps are computed with the module itself."""

    def save(self, path: str | PathLike[str], card: Mapping[str, Any] | None) -> None:
        """Write a model file."""
        self.trainee.save(path, card)

    def wants(self, name: str) -> bool:
        """Whether this rank needs an array of a state: all."""
        return True

    def state(self) -> dict[str, np.ndarray]:
        """What steps depend on, on rank 0."""
        return {} if self.trainee.ranks.rank else self.trainee.state()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self.trainee.restore(arrays)
