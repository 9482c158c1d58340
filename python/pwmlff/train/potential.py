"""A Deep Potential in training: made for the data, learned from by splines, judged as it is.

What a step needs comes from :mod:`pwmlff.train.gradient`. Everything that is told about a model,
and every file, comes from the embedding nets themselves: :meth:`Potential.predict`.
"""

from __future__ import annotations

import fnmatch
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pwmlff.data import statistics
from pwmlff.data.frames import Frames, rows_of
from pwmlff.data.neighbors import Edges
from pwmlff.evaluation import model_file
from pwmlff.models import DP, DPConfig
from pwmlff.models.nets import Tanh
from pwmlff.report import Failure
from pwmlff.train.config import Config, Pair
from pwmlff.train.gradient import DPGradient

log = logging.getLogger(__name__)

CHUNK_EDGES = 500_000  # that the nets are evaluated for together, unless a frame has more
FEW = 8  # frames that splines are evaluated for together, as they keep much of each
#: RMS of forces, eV/angstrom, by which splines may differ from the nets that they stand for.
SPLINE_GATE = 0.5e-3
MOST_NODES = 1024
#: Power by which weights of the loss follow what the rate of learning has lost.
LATENESS = 12


@dataclass(frozen=True)
class LossWeights:
    """Weights of the squared errors, as in [loss] of run.toml, and where Huber's loss begins."""

    energy: float
    force: float
    virial: float
    huber: float = 0.0

    @classmethod
    def interpolated(cls, config: Config, rate: float) -> LossWeights:
        """Those of a step whose rate of learning is this share of the largest one.

        They go from the first number p of [loss] to the second one q as the rate falls to r times
        the largest, p + (q - p) (1 - r)^LATENESS, with 1 - r in Zhang et al. 2018
        (doi:10.1103/PhysRevLett.120.143001). While steps are large, energies swing with each of
        them, and forces are lost to what follows these swings.
        """

        def mixed(weights: Pair) -> float:
            start, end = weights
            return start + (end - start) * (1.0 - rate) ** LATENESS

        loss = config.loss
        return cls(mixed(loss.energy), mixed(loss.force), mixed(loss.virial), loss.huber)


def of_file(path: str | PathLike[str]) -> DP:
    """The trainable model of a file of kind DP: ours, PWMLFF's or MatPL's.

    Raises:
        Failure: the file is of another kind, or not of the form of the family that is trained.
    """
    module, info = model_file.open_model(path)
    if info.kind != "DP":
        raise Failure(f"'{path}' is a model of kind {info.kind}, expected DP to go on from")
    arrays = {name: p.detach().numpy() for name, p in module.named_parameters()}
    ntypes = len(info.atom_type)
    for name in ("davg", "dstd"):
        values = torch.as_tensor(getattr(module, name), dtype=torch.float64)
        arrays[name] = values.reshape(ntypes, -1).numpy()
    try:
        model = DP.from_parameters(
            arrays,
            atom_type=info.atom_type,
            rmax=float(module.Rmax),
            rmin=float(module.Rmin),
            max_neighbor=int(module.maxNeighborNum),
            m2=int(module.M2),
            units=info.units,
            sel=info.sel,
            type_vector=model_file.type_vectors(module) or None,
        )
    except ValueError as error:
        raise Failure(f"cannot go on from '{path}': {error}") from error
    if own := _not_trained(model):
        raise Failure(
            f"cannot go on from '{path}': it has {', '.join(own)}; expected one embedding net for "
            "each pair of elements, biases, and steps (resnet_dt) in the fitting nets alone"
        )
    return model


def _not_trained(model: DP) -> list[str]:
    """What a model has of its family that the kernels for training do not know."""
    embedding = [layer for net in model.embedding_net for layer in net.layers]
    hidden = [layer for net in model.fitting_net for layer in net.layers[:-1]]
    found = {
        "a type embedding": bool(model.type_vector),
        "slots by element (sel)": bool(model.sel),
        "layers without bias": any(layer.bias is None for layer in embedding + hidden),
        "steps in embedding nets": any(layer.resnet_dt is not None for layer in embedding),
        "fitting layers without steps": any(
            isinstance(layer, Tanh) and layer.copies and layer.resnet_dt is None for layer in hidden
        ),
    }
    return [name for name, has in found.items() if has]


def new(config: Config, frames: Frames, edges: Edges, seed: int, others: Edges | None = None) -> DP:
    """A model with random parameters, and with the statistics of the data.

    Args:
        config: of the training.
        frames, edges: that it will learn from.
        seed: of the parameters.
        others: neighbors in frames that it has to evaluate too, as those to validate with.

    Raises:
        Failure: the data do not fit the configuration.
    """
    settings = config.model
    found = statistics.compute(
        frames,
        edges,
        settings.rmin,
        settings.rmax,
        settings.max_neighbor or None,
        others=others,
    )
    shape = DPConfig(
        atom_type=tuple(int(z) for z in edges.elements),
        rmax=settings.rmax,
        rmin=settings.rmin,
        max_neighbor=found.max_neighbor,
        m2=settings.m2,
        embedding=settings.embedding,
        fitting=settings.fitting,
        units=settings.units,
    )
    model = DP(shape, davg=found.davg, dstd=found.dstd, energy_shift=found.energy_shift, seed=seed)
    scale = found.energy_std if np.isfinite(found.energy_std) else 1.0
    with torch.no_grad():  # start from energies that vary as those of the data
        for net in model.fitting_net:
            net.layers[-1].weight.mul_(min(1.0, max(scale, 1e-3)))
    return model


def require_slots(model: DP, frames: Frames, edges: Edges) -> None:
    """Refuse frames with more neighbors than the model has slots for.

    Raises:
        Failure: an atom has too many.
    """
    statistics.require_slots(frames, edges, edges.count, model.maxNeighborNum, model.Rmax)


class Potential:
    """A model, the frames that it learns from, and its parameters as one vector.

    Args:
        model: in float64.
        frames, edges: all that it learns from.
        nodes, precision, threads, device: as :class:`DPGradient` takes them.
    """

    def __init__(
        self,
        model: DP,
        frames: Frames,
        edges: Edges,
        nodes: int,
        precision: str,
        threads: int,
        device: torch.device | None = None,
    ) -> None:
        require_slots(model, frames, edges)
        self.frames, self.edges = frames, edges
        try:
            self.core = DPGradient(model, frames, edges, nodes, precision, threads, device)
        except ValueError as error:
            raise Failure(f"cannot train this model: {error}") from error
        self.model, self.threads = model, threads
        self.shares = statistics.shares(frames, edges)  # [nframes, ntypes] of the types
        self.energy_biases, self.last_layers = self._last_layers()
        # The scripted module shares its numbers with the model.
        self._scripted = torch.jit.script(model.eval())

    def _last_layers(self) -> tuple[np.ndarray, np.ndarray]:
        """Places in the vector of parameters.

        Returns:
            Of the energies of single atoms [ntypes], and of these and the weights beside them.
        """
        first = np.cumsum([0, *(int(np.prod(shape)) for shape in self.core.shapes)])
        place = dict(zip(self.core.names, first, strict=False))
        biases, every = [], []
        for k, net in enumerate(self.model.fitting_net):
            layer = f"fitting_net.{k}.layers.{len(net.layers) - 1}"
            weights = place[f"{layer}.weight"]
            biases.append(place[f"{layer}.bias"])
            every += [*range(weights, weights + net.layers[-1].weight.numel()), biases[-1]]
        return np.array(biases), np.array(every)

    def free(self, freeze: tuple[str, ...]) -> np.ndarray:
        """Which parameters learn [nparameters], where some are told to stay.

        Raises:
            Failure: a pattern fits no parameter.
        """
        groups = {"embedding": "embedding_net.*", "fitting": "fitting_net.*"}
        names = self.core.names
        frozen: set[str] = set()
        for word in freeze:
            found = fnmatch.filter(names, groups.get(word, word))
            if not found:
                raise Failure(
                    f"[model] freeze has '{word}', which no parameter is called; they are named "
                    f"like {names[0]} and {names[-1]}"
                )
            frozen.update(found)
        return np.concatenate(
            [
                np.full(int(np.prod(shape)), name not in frozen)
                for name, shape in zip(names, self.core.shapes, strict=True)
            ]
        )

    def losses(
        self,
        parameters: np.ndarray,
        batch: np.ndarray,
        mine: range,
        weights: LossWeights,
        of_frame: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gradients of the loss of a batch by what the kernels know, one row for each frame.

        Args:
            parameters: [nparameters].
            batch: frames of the step on all ranks; the loss is the mean over those with labels.
            mine: the part of them that is evaluated here.
            weights: of the errors.
            of_frame: [nframes] weights of the frames.

        Returns:
            Rows for `finish` once they are added up, the loss of each frame, and what the
            energy of each is above its label, per atom; zero without one.
        """
        frames = self.frames
        self.core.prepare(parameters)
        chosen = batch[mine.start : mine.stop]
        energy, force, virial = self.core.evaluate(chosen)
        natoms = np.maximum(frames.natoms[chosen], 1)

        def share(name: str) -> np.ndarray:
            every = frames.shares(name, batch, of_frame, getattr(weights, name))
            return every[mine.start : mine.stop]

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
        return self.core.gradients(a, v, w), loss, excess

    def write(self, parameters: np.ndarray) -> None:
        """Put parameters into the model."""
        self.core.write(parameters)

    def save(
        self, path: str | PathLike[str], parameters: np.ndarray, card: Mapping[str, Any] | None
    ) -> None:
        """Write a file for pair_style pwmlff, with a card (:mod:`pwmlff.train.card`)."""
        self.write(parameters)
        self.model.save(path, card)

    def predict(
        self, parameters: np.ndarray, frames: Frames, edges: Edges
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Energies [nframes], forces [natoms, 3], virials [nframes, 3, 3] of the nets themselves.

        The fused engine in precision exact evaluates them; a row of its input is the neighbor at
        the end of an edge, as seen from the center.

        Raises:
            Failure: an atom has more neighbors than the model has slots, or there is no room for a
                temporary file.
        """
        self.write(parameters)
        present = [1] * self.model.ntypes
        # In memory first: where torch itself finds a disk full, it ends the process.
        contents = self._scripted.save_to_buffer()
        with tempfile.TemporaryDirectory(prefix="pwmlff-") as folder:
            path = Path(folder, "model.pt")
            try:
                path.write_bytes(contents)
            except OSError as error:
                raise Failure(
                    f"cannot write the temporary file '{path}': {error.strerror}; the last "
                    "checkpoint is kept: make room or name another folder by TMPDIR, and go on "
                    "with --resume"
                ) from error
            engine = torch.classes.pwmlff.DPEngine(str(path), "exact", present)
        energy = np.zeros(len(frames))
        forces = np.zeros((len(frames.numbers), 3))
        virial = np.zeros((len(frames), 3, 3))
        for some in edges.chunks(CHUNK_EDGES):
            begin, end = some.start, some.stop
            atoms = slice(int(frames.first[begin]), int(frames.first[end]))
            of_edges = slice(int(edges.first[begin]), int(edges.first[end]))
            rij, j = edges.rij[of_edges], edges.j[of_edges]
            count, types = edges.count[atoms], edges.types[atoms]
            n = len(types)
            if not n:
                continue
            neighbor = np.tile(np.arange(count.shape[1], dtype=np.int32), n)
            first = np.r_[0, np.cumsum(count.ravel())].astype(np.int32)
            try:
                engine.set_neighbors(
                    torch.from_numpy(np.concatenate([types, np.repeat(neighbor, count.ravel())])),
                    torch.from_numpy(first),
                    torch.arange(n, n + len(j), dtype=torch.int32),
                )
                x = torch.from_numpy(np.concatenate([np.zeros((n, 3)), rij]))
                found = engine.evaluate(x, self.threads, False, False)
            except ValueError as error:
                raise Failure(f"a frame from {frames.where(begin)} on: {error}") from error
            atom_energy, force = found[0].numpy(), found[1].numpy()
            here, there = force[:n], force[n:]
            frame = np.repeat(np.arange(end - begin), np.diff(edges.first[begin : end + 1]))
            target = j + (frames.first[begin:end] - frames.first[begin])[frame]
            for c in range(3):
                forces[atoms, c] = here[:, c] + np.bincount(target, there[:, c], n)
                for d in range(3):
                    virial[begin:end, c, d] = np.bincount(
                        frame, rij[:, c] * there[:, d], end - begin
                    )
            of_atom = np.repeat(np.arange(end - begin), frames.natoms[begin:end])
            energy[begin:end] = np.bincount(of_atom, atom_energy, end - begin)
        return energy, forces, virial

    def nodes_for(self, parameters: np.ndarray, sample: np.ndarray, forces: np.ndarray) -> int:
        """Nodes that the splines need: twice as many as now where they are off by the gate.

        Args:
            parameters: to look at.
            sample: some of the frames.
            forces: what the nets give for their atoms.
        """
        self.core.prepare(parameters)
        few = [sample[k : k + FEW] for k in range(0, len(sample), FEW)]
        found = np.concatenate([self.core.evaluate(part)[1] for part in few])
        error = float(np.sqrt(np.square(found - forces).mean())) if found.size else 0.0
        if error <= SPLINE_GATE or self.core.nodes >= MOST_NODES:
            return self.core.nodes
        log.info(
            "splines of %d nodes are %.2g meV/Å off: %d from here on",
            *(self.core.nodes, 1e3 * error, 2 * self.core.nodes),
        )
        return 2 * self.core.nodes


def shift(potential: Potential) -> None:
    """Move the energies of atoms to those of the data, before a fine-tuning.

    Another code or setting of the calculation behind the data moves all energies by an amount per
    atom of a type; to learn that by steps would spoil what the model knows.
    """
    frames, edges = potential.frames, potential.edges
    if np.isnan(frames.energies).all():
        return
    energy, _, _ = potential.predict(potential.core.read(), frames, edges)
    change, _ = statistics.shifts(replace(frames, energies=frames.energies - energy), edges)
    with torch.no_grad():
        for net, value in zip(potential.model.fitting_net, change, strict=True):
            net.energy_bias().add_(float(value))


def _difference(found: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Found - label, zero where there is no label."""
    return np.where(np.isnan(label), 0.0, found - label)


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
