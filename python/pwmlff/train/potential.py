"""A Deep Potential in training: made for the data, learned from by splines, judged as it is.

What a step needs comes from :mod:`pwmlff.train.gradient`. Everything that is told about a model,
and every file, comes from the embedding nets themselves: :meth:`Potential.predict`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pwmlff.arrays import written
from pwmlff.data import statistics
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.evaluation import model_file
from pwmlff.models import DP, DPConfig, save_model
from pwmlff.models.nets import Tanh
from pwmlff.native import Network, NetworkEngine
from pwmlff.report import Failure
from pwmlff.train import comm
from pwmlff.train.config import Config
from pwmlff.train.edge import graph_of
from pwmlff.train.gradient import DPGradient, batches
from pwmlff.train.last_layer import Layered
from pwmlff.train.trainable import Predictions, write

log = logging.getLogger(__name__)

CHUNK_EDGES = 500_000  # that the nets are evaluated for together, unless a frame has more
#: RMS of forces, eV/angstrom, by which splines may differ from the nets that they stand for.
SPLINE_GATE = 0.5e-3
MOST_NODES = 1024


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
            sel=info.sel or (int(module.maxNeighborNum),) * ntypes,  # all count in what follows
            type_vector=model_file.type_vectors(module) or None,
            zbl_radii=info.zbl_radii,
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
    features = {
        "a type embedding": bool(model.type_vector),
        "slots by element (sel)": len({*model.sel}) > 1,
        "layers without bias": any(layer.bias is None for layer in embedding + hidden),
        "steps in embedding nets": any(layer.resnet_dt is not None for layer in embedding),
        "fitting layers without steps": any(
            isinstance(layer, Tanh) and layer.copies and layer.resnet_dt is None for layer in hidden
        ),
    }
    return [name for name, has in features.items() if has]


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
    stats = statistics.compute(
        frames, edges, settings.rmin, settings.rmax, settings.max_neighbor or None, others=others
    )
    shape = DPConfig(
        atom_type=tuple(int(z) for z in edges.elements),
        rmax=settings.rmax,
        rmin=settings.rmin,
        max_neighbor=stats.max_neighbor,
        m2=settings.m2,
        embedding=settings.embedding,
        fitting=settings.fitting,
        units=settings.units,
        sel=(stats.max_neighbor,) * len(edges.elements),  # of all elements, in each frame
    )
    model = DP(shape, davg=stats.davg, dstd=stats.dstd, energy_shift=stats.energy_shift, seed=seed)
    scale = stats.energy_std if np.isfinite(stats.energy_std) else 1.0
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


class Potential(Layered):
    """A model, the frames that it learns from, and its parameters as one vector.

    Args:
        model: in float64.
        frames, edges: all that it learns from.
        nodes, precision, threads, device: as :class:`DPGradient` takes them.
        ranks: who takes part; this one alone when None.
    """

    groups: ClassVar = {"embedding": "embedding_net.*", "fitting": "fitting_net.*"}

    def __init__(
        self,
        model: DP,
        frames: Frames,
        edges: Edges,
        nodes: int,
        precision: str,
        threads: int,
        ranks: comm.Communicator | None = None,
        device: torch.device | None = None,
    ) -> None:
        require_slots(model, frames, edges)
        self.frames, self.edges = frames, edges
        try:
            self.core = DPGradient(model, frames, edges, nodes, precision, threads, device)
        except ValueError as error:
            raise Failure(f"cannot train this model: {error}") from error
        self.model, self.threads, self.ranks = model, threads, ranks or comm.Serial()
        self.names, self.shapes = self.core.names, self.core.shapes
        self.parameters = self.core.read()
        self.energy_biases, self.last_layers = self._last_layers()

    def _last_layers(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Places in the vector of parameters.

        Returns:
            Of the energies of single atoms [ntypes], and of each of these and the weights beside.
        """
        places = dict(zip(self.names, self.parts(np.arange(len(self.parameters))), strict=True))
        layers = [
            f"fitting_net.{k}.layers.{len(net.layers) - 1}"
            for k, net in enumerate(self.model.fitting_net)
        ]
        weights, biases = (
            [places[f"{layer}.{array}"] for layer in layers] for array in ("weight", "bias")
        )
        both = zip(weights, biases, strict=True)
        return np.concatenate(biases), [np.concatenate(pair) for pair in both]

    def evaluate(self, batch: np.ndarray) -> Predictions:
        """Predictions for this rank's part of a batch, by splines."""
        self._nbatch = len(batch)
        self.core.prepare(self.parameters)
        return self.core.evaluate(batch[comm.owned(self.ranks, self._nbatch)])

    def pullback(self, a: np.ndarray, v: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Gradient of S over all ranks: rows of frames, added up in one order."""
        rows = self.core.gradients(a, v, w)
        return self.core.finish(comm.ordered_sum(self.ranks, self._nbatch, rows))

    def predictions(self, parameters: np.ndarray, chosen: np.ndarray) -> Predictions:
        """Predictions for some of its frames, by splines."""
        self.core.prepare(parameters)
        parts = [self.core.evaluate(part) for part in batches(chosen)]
        energies, forces, virials = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return energies, forces, virials

    def energies_and_gradients(
        self, parameters: np.ndarray, chosen: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Energies by splines, and their derivatives by some parameters."""
        self.core.prepare(parameters)
        energies, gradients = [], []
        for part in batches(chosen):
            energy, forces, _ = self.core.evaluate(part)
            rows = self.core.gradients(np.ones(len(part)), np.zeros_like(forces))
            energies.append(energy)
            gradients += [self.core.finish(row)[places] for row in rows]
        return np.concatenate(energies), np.array(gradients)

    def judged(self, parameters: np.ndarray) -> DP:
        """The model with these parameters."""
        write(self.model, parameters)
        return self.model

    def save(
        self, path: str | PathLike[str], parameters: np.ndarray, card: Mapping[str, Any] | None
    ) -> None:
        """Write a model file, without a record, as a training does so again and again."""
        save_model(self.judged(parameters), path, card, record=False)

    def state(self) -> dict[str, np.ndarray]:
        """How many nodes the splines have."""
        return {"nodes": np.array(self.core.nodes)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the nodes of a state."""
        self.core.set_nodes(int(arrays["nodes"]))

    def refine(self, parameters: np.ndarray, sample: np.ndarray, forces: np.ndarray | None) -> None:
        """Take twice the nodes where splines are too far from the nets."""
        nodes = self.core.nodes
        if self.ranks.rank == 0 and forces is not None:
            nodes = self.nodes_for(parameters, sample, forces)
        nodes = self.ranks.broadcast(nodes)
        if nodes != self.core.nodes:
            self.core.set_nodes(nodes)

    def predict(self, parameters: np.ndarray, frames: Frames, edges: Edges) -> Predictions:
        """Those of the nets themselves, by the fused engine in precision exact.

        A row of its input is the neighbor at the end of an edge, as seen from the center.

        Raises:
            Failure: an atom has more neighbors than the model has slots.
        """
        network = Network(written("dp", self.judged(parameters).arrays()))
        engine = NetworkEngine(network, "exact", [1] * self.model.ntypes)
        energy, forces = np.zeros(len(frames)), np.zeros((len(frames.numbers), 3))
        virial = np.zeros((len(frames), 3, 3))
        for some in edges.chunks(CHUNK_EDGES):
            graph = graph_of(frames, edges, some, torch.float64)
            atoms = slice(int(frames.first[some.start]), int(frames.first[some.stop]))
            n = len(graph.types)
            if not n:
                continue
            center, neighbor = graph.edge_index
            first = np.r_[0, np.cumsum(edges.count[atoms])]
            try:
                engine.set_neighbors(
                    torch.cat([graph.types, graph.types[neighbor]]).numpy(),
                    first,
                    np.arange(n, n + len(center)),
                )
                x = np.concatenate([np.zeros((n, 3)), graph.edge_vec.numpy()])
                result = engine.evaluate(x, self.threads)
            except ValueError as error:
                raise Failure(f"a frame from {frames.where(some.start)} on: {error}") from error
            here, there = np.split(result.force, [n])
            outer = graph.edge_vec.numpy()[:, :, None] * there[:, None]
            energy[some] = _sums(graph.frame, result.atom_energy, len(some))
            forces[atoms] = here + _sums(neighbor, there, n)
            virial[some] = _sums(graph.frame[center], outer, len(some))
        return energy, forces, virial

    def nodes_for(self, parameters: np.ndarray, sample: np.ndarray, forces: np.ndarray) -> int:
        """Nodes that the splines need: twice as many as now where they are off by the gate.

        Args:
            parameters: to look at.
            sample: some of the frames.
            forces: what the nets give for their atoms.
        """
        squares = np.square(self.predictions(parameters, sample)[1] - forces)
        error = float(np.sqrt(squares.mean())) if squares.size else 0.0
        if error <= SPLINE_GATE or self.core.nodes >= MOST_NODES:
            return self.core.nodes
        log.info(
            "splines of %d nodes are %.2g meV/Å off: %d from here on",
            *(self.core.nodes, 1e3 * error, 2 * self.core.nodes),
        )
        return 2 * self.core.nodes


def _sums(index: Tensor, rows: np.ndarray, n: int) -> np.ndarray:
    """Sums [n, ...] of the rows of each index, in their order."""
    columns = rows.reshape(len(rows), math.prod(rows.shape[1:])).T  # there may be no rows
    sums = np.stack([np.bincount(index, column, n) for column in columns], axis=1)
    return sums.reshape(n, *rows.shape[1:])
