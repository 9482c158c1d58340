"""The training itself: steps, validations, checkpoints, until the time or the epochs are over.

Every rank holds the same parameters and makes the same steps. A step has a batch of frames; each
rank evaluates its part of them, the gradients of the frames are added up in one order
(:func:`pwmlff.train.comm.ordered_sum`), and so any number of ranks and threads gives the same bits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pwmlff.report import Failure
from pwmlff.train import checkpoint, comm, errors
from pwmlff.train.adam import Adam, AdamOptions, Schedule
from pwmlff.train.config import Config
from pwmlff.train.frames import Frames
from pwmlff.train.neighbors import Edges
from pwmlff.train.potential import LossWeights, Potential, rows_of
from pwmlff.train.record import Display, Record, Row

log = logging.getLogger(__name__)

SAMPLE = 64  # training frames that a validation looks at
VALIDATIONS = 40  # of a run, where it is not said how often


@dataclass(frozen=True)
class Labelled:
    """Frames and their neighbours."""

    frames: Frames
    edges: Edges


@dataclass
class Progress:
    """Where a training is; goes into checkpoints."""

    step: int = 0
    seconds: float = 0.0  # of training so far
    best: float = float("inf")  # score of the best validation
    best_step: int = 0
    stale: int = 0  # validations since then
    next_validation: int = 0  # epoch
    atoms: int = 0  # learned from since the last validation
    loss: float = 0.0  # sum of the steps since then
    steps: int = 0  # since then


@dataclass(frozen=True)
class Outcome:
    """What a training came to."""

    step: int
    epochs: float
    seconds: float
    valid: errors.Errors | None  # of the best model
    train: errors.Errors | None  # of the best model, on some of the frames that it learned from
    parameters: np.ndarray  # of the best model
    stopped: str  # why: "epochs", "time", "patience" or "asked"


@dataclass
class Training:
    """One model in training.

    Args:
        config: all that was asked for.
        potential: the model with the frames that it learns from.
        valid: what validates; None where nothing does.
        ranks: who takes part.
        folder: for checkpoints and the log.
        keep: called on rank 0 with a name ("best" or "last"), parameters and the errors of them.
        interrupted: whether somebody has asked to stop, on any rank.
    """

    config: Config
    potential: Potential
    valid: Labelled | None
    ranks: comm.Communicator
    folder: Path
    keep: Callable[[str, np.ndarray, errors.Errors | None, errors.Errors | None], None]
    interrupted: Callable[[], bool] = lambda: False
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        """Take the parameters of the model as the start."""
        config, frames = self.config, self.potential.frames
        self.parameters = self.potential.core.read()
        self.best = self.parameters.copy()
        self.best_errors: tuple[errors.Errors | None, errors.Errors | None] = (None, None)
        o = config.optimizer
        self.schedule = Schedule(
            peak=o.learning_rate,
            warmup=o.warmup,
            decay=o.decay,
            final=min(1.0, o.final_learning_rate / o.learning_rate),
        )
        self.adam = Adam(
            len(self.parameters),
            AdamOptions(
                beta1=o.betas[0],
                beta2=o.betas[1],
                weight_decay=o.weight_decay,
                clip=o.clip or None,
                average=o.ema or None,
            ),
            self.potential.free(config.model.freeze),
        )
        self.of_frame = frame_weights(frames, config)
        self.sample = sample_of(len(frames), config.run.seed)
        self.batches = -(-len(frames) // config.run.batch)

    # ---- where it is

    @property
    def epoch(self) -> float:
        """Passes over the data."""
        return self.progress.step / self.batches

    def done(self) -> float:
        """Part of the run that is over, 0 to 1, the same on all ranks."""
        run = self.config.run
        parts = []
        if run.epochs:
            parts.append(self.progress.step / (run.epochs * self.batches))
        if run.max_time:
            parts.append(self.progress.seconds / (60.0 * run.max_time))
        return min(1.0, max(parts))

    def batch(self, step: int) -> np.ndarray:
        """Frames of a step: those of an epoch in an order of its own."""
        epoch, place = divmod(step, self.batches)
        order = np.random.default_rng((self.config.run.seed, epoch)).permutation(
            len(self.potential.frames)
        )
        size = self.config.run.batch
        return order[place * size : (place + 1) * size]

    # ---- what it does

    def run(self, record: Record | None, display: Display | None) -> Outcome:
        """Train to the end.

        Args:
            record, display: of rank 0; None on the others.
        """
        ranks, progress = self.ranks, self.progress
        clock = time.monotonic()
        saved = clock
        stopped = ""
        while not stopped:
            fraction = self.done()
            if fraction >= 1.0:
                stopped = "epochs" if self.config.run.epochs else "time"
                break
            self.step(fraction)
            now = time.monotonic()
            # One clock for all: the rate of learning depends on it.
            news = (now - clock, self.interrupted(), now - saved)
            seconds, asked, since = ranks.broadcast(news) if ranks.size > 1 else news
            clock = now
            progress.seconds += seconds
            if display is not None:
                display.step(
                    self.done(),
                    epoch=self.epoch,
                    step=progress.step,
                    loss=progress.loss / max(1, progress.steps),
                )
            if self.epoch >= progress.next_validation or self.done() >= 1.0 or asked:
                self.validate(record, display)
                clock = time.monotonic()
                if self.config.run.patience and progress.stale >= self.config.run.patience:
                    stopped = "patience"
            if asked:
                stopped = "asked"
            if since >= 60.0 * self.config.run.checkpoint_every:
                self.save()
                saved = clock = time.monotonic()
        self.save()
        return Outcome(
            progress.step, self.epoch, progress.seconds, *reversed(self.best_errors), self.best,
            stopped,
        )  # fmt: skip

    def step(self, fraction: float) -> None:
        """Move the parameters once."""
        progress, run = self.progress, self.config.run
        batch = self.batch(progress.step)
        mine = comm.owned(self.ranks, len(batch))
        rate = self.schedule.rate(fraction)
        weights = LossWeights.at(self.config, rate / self.schedule.peak)
        rows, losses = self.potential.losses(self.parameters, batch, mine, weights, self.of_frame)
        row = comm.ordered_sum(self.ranks, len(batch), rows)
        loss = comm.ordered_sum(self.ranks, len(batch), losses[:, None])[0]
        gradient = self.potential.core.finish(row)
        try:
            self.adam.step(self.parameters, gradient, rate)
        except ValueError as error:
            raise Failure(f"epoch {self.epoch:.2f}: {error}") from error
        progress.step += 1
        progress.steps += 1
        progress.loss += float(loss)
        progress.atoms += int(self.potential.frames.natoms[batch].sum())
        _ = run

    def averaged(self) -> np.ndarray:
        """The parameters that are judged and written."""
        return self.adam.averaged(self.parameters)

    def validate(self, record: Record | None, display: Display | None) -> None:
        """Judge the model by its nets; keep it if it is the best; refine the splines."""
        config, progress, ranks = self.config, self.progress, self.ranks
        if self.epoch == int(self.epoch):
            comm.same_everywhere(ranks, self.parameters)
        parameters = self.averaged()
        units = config.model.units
        valid = train = None
        refined = False
        began = time.monotonic()
        if ranks.rank == 0:
            if self.valid is not None:
                frames = self.valid.frames
                found = self.potential.predict(parameters, frames, self.valid.edges)
                valid = errors.of(frames, *found, units)
            some, edges = self.training_sample()
            found = self.potential.predict(parameters, some, edges)
            train = errors.of(some, *found, units)
            refined = self.potential.refine(parameters, self.sample, found[1])
        nodes = self.potential.core.nodes
        valid, train, wanted = ranks.broadcast((valid, train, nodes)) if ranks.size > 1 else (
            valid, train, nodes,
        )  # fmt: skip
        if wanted != nodes:
            self.potential.core.set_nodes(wanted)
        _ = refined
        score = score_of(valid or train, config)
        better = score < progress.best
        if better:
            progress.best, progress.best_step, progress.stale = score, progress.step, 0
            self.best, self.best_errors = parameters.copy(), (train, valid)
        else:
            progress.stale += 1
        if ranks.rank == 0:
            if better:
                self.keep("best", parameters, train, valid)
            self.keep("last", parameters, train, valid)
            row = Row.of(
                train=train,
                valid=valid,
                step=progress.step,
                epoch=self.epoch,
                time=progress.seconds,
                learning_rate=self.schedule.rate(self.done()),
                loss=progress.loss / max(1, progress.steps),
                atoms_per_second=progress.atoms / max(1e-9, self._since(progress.seconds)),
            )
            if record is not None:
                record.add(row)
            if display is not None:
                display.row(row)
        self._validated = progress.seconds
        progress.loss, progress.steps, progress.atoms = 0.0, 0, 0
        progress.next_validation = int(self.epoch) + self._interval(time.monotonic() - began)

    _validated = 0.0

    def _since(self, seconds: float) -> float:
        return seconds - self._validated

    def _interval(self, cost: float) -> int:
        """Epochs to the next validation: as told, or VALIDATIONS in all and not too dear."""
        run = self.config.run
        if run.validate_every:
            return run.validate_every
        if run.epochs and not run.max_time:
            return max(1, run.epochs // VALIDATIONS)
        per_epoch = self.progress.seconds / max(self.epoch, 1e-9)
        wanted = max(60.0 * run.max_time / VALIDATIONS, 10.0 * cost)
        epochs = int(self.ranks.broadcast(round(wanted / max(per_epoch, 1e-9))))
        return max(1, epochs)

    def training_sample(self) -> tuple[Frames, Edges]:
        """Some frames that are learned from, with their edges."""
        if not hasattr(self, "_sampled"):
            self._sampled = (
                self.potential.frames.select(self.sample),
                select_edges(self.potential.edges, self.potential.frames, self.sample),
            )
        return self._sampled

    # ---- checkpoints

    def save(self) -> None:
        """Write a checkpoint."""
        if self.ranks.rank == 0:
            arrays = {"parameters": self.parameters, "best": self.best}
            arrays |= {f"adam/{name}": value for name, value in self.adam.state().items()}
            checkpoint.save(self.folder, self.progress.step, arrays, self.meta())

    def meta(self) -> dict[str, Any]:
        """What a checkpoint says beside arrays."""
        return {
            "progress": vars(self.progress),
            "nodes": self.potential.core.nodes,
            "names": self.potential.core.names,
            "config": self.config.as_toml(),
        }

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Go on from a checkpoint.

        Raises:
            Failure: it is of another model.
        """
        arrays, meta = saved.arrays, saved.meta
        if meta.get("names") != self.potential.core.names or arrays["parameters"].shape != (
            len(self.parameters),
        ):
            raise Failure(
                f"the checkpoint in '{self.folder}' is of another model; give the same elements "
                "and widths, or choose another folder (-o)"
            )
        self.parameters = np.array(arrays["parameters"])
        self.best = np.array(arrays["best"])
        self.adam.restore({k[5:]: v for k, v in arrays.items() if k.startswith("adam/")})
        self.progress = Progress(**meta["progress"])
        self._validated = self.progress.seconds
        if meta["nodes"] != self.potential.core.nodes:
            self.potential.core.set_nodes(meta["nodes"])


def frame_weights(frames: Frames, config: Config) -> np.ndarray:
    """Weights of the frames by their groups.

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
    return of_group[frames.group]


def sample_of(nframes: int, seed: int) -> np.ndarray:
    """Some of the frames, in order."""
    chosen = np.random.default_rng((seed, 1)).permutation(nframes)[:SAMPLE]
    return np.sort(chosen)


def select_edges(edges: Edges, frames: Frames, chosen: np.ndarray) -> Edges:
    """Edges of some frames."""
    rows, atoms = rows_of(edges.first, chosen), rows_of(frames.first, chosen)
    sizes = np.diff(edges.first)[chosen]
    return Edges(
        rij=edges.rij[rows],
        j=edges.j[rows],
        count=edges.count[atoms],
        first=np.r_[0, np.cumsum(sizes)].astype(np.int64),
        types=edges.types[atoms],
        elements=edges.elements,
        cutoff=edges.cutoff,
    )


def score_of(found: errors.Errors | None, config: Config) -> float:
    """What a validation is judged by: the loss of it with the weights of the end, of RMSEs."""
    if found is None:
        return float("inf")
    loss = config.loss
    scale = 1.0 / errors.UNITS[config.model.units].factor
    return float(
        sum(
            weight[1] * (scale * measure.rmse) ** 2
            for weight, measure in (
                (getattr(loss, name), measure) for name, measure in found.measures.items()
            )
        )
    )
