"""Energies, forces and gradients of a Deep Potential over frames whose positions never change.

The kernels are `torch.classes.pwmlff.DPTraining`, on a GPU :mod:`pwmlff.train.dp_torch`;
kernels/training/training.h has the formulas. In short: embedding nets are cubic splines of the
distance through their values at `nodes` places. Energies and forces of a frame are functions of
spline coefficients, which are linear in those values. Once for a step the parameters give values
and coefficients, and the gradient by the coefficients gives that by the parameters.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pwmlff.kernels  # noqa: F401  registers the class
from pwmlff.data import statistics
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.models import DP
from pwmlff.train import dp_torch, trainable

#: The first node of a pair of types, as a share of the shortest distance in the data.
FIRST_NODE = 0.98
FEW = 8  # frames that splines are evaluated for together, as they keep much of each


def spline_coefficients(nodes: int) -> np.ndarray:
    """The matrix [nodes + 2, nodes] from values at uniform nodes to cubic B-spline coefficients.

    Node i has (c_i + 4 c_i+1 + c_i+2) / 6. The slope is zero at the last node: what depends on the
    switch is flat at the cutoff. The third derivative is the same in the first two intervals.
    """
    equations = np.zeros((nodes + 2, nodes + 2))
    for i in range(nodes):
        equations[i, i : i + 3] = np.array([1.0, 4.0, 1.0]) / 6.0
    equations[nodes, [nodes - 1, nodes + 1]] = -0.5, 0.5
    equations[nodes + 1, :5] = 1.0, -4.0, 6.0, -4.0, 1.0
    return np.linalg.solve(equations, np.eye(nodes + 2, nodes))


def batches(frames: np.ndarray) -> list[np.ndarray]:
    """Frames, as many at a time as splines are evaluated for."""
    return [frames[k : k + FEW] for k in range(0, len(frames), FEW)]


def _tensor(array: np.ndarray) -> Tensor:
    """The same memory, which the kernels do not write to, though it may be that of a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")
        return torch.from_numpy(array)


def _by_pair(values: Tensor, ntypes: int) -> Tensor:
    """One row [ntypes, ntypes, 4] for all slots of a pair of types.

    Raises:
        ValueError: the slots differ.
    """
    every = values.reshape(ntypes, ntypes, -1, 4)
    if not torch.equal(every, every[:, :, :1].expand_as(every)):
        raise ValueError("davg or dstd differs between the slots of a pair of types")
    return every[:, :, 0].contiguous()


class DPGradient:
    """Gradients of a DP by the parameters, one row for each frame.

    Args:
        model: in float64; it is not changed.
        frames, edges: the frames, and their neighbors within the cutoff.
        nodes: of the splines, for each pair of types.
        precision: of the kernels, "float32" or "float64".
        threads: that frames are spread over; they change no bit of a result.
        device: where torch computes all; the compiled kernels, on the CPU, when None.

    Raises:
        ValueError: the statistics of the model differ between the slots of a pair of types.
    """

    def __init__(
        self,
        model: DP,
        frames: Frames,
        edges: Edges,
        nodes: int = 64,
        precision: str = "float32",
        threads: int = 1,
        device: torch.device | None = None,
    ) -> None:
        self.model, self.frames, self.edges = model, frames, edges
        self.precision, self.threads, self.device = precision, threads, device
        self.names = [name for name, _ in model.named_parameters()]
        self.shapes = [tuple(p.shape) for p in model.parameters()]
        shortest = np.minimum(edges.closest, model.Rmax)
        self.low = FIRST_NODE * np.minimum(shortest, shortest.T)
        self.set_nodes(nodes)

    def set_nodes(self, nodes: int) -> None:
        """Take another number of nodes."""
        self.nodes, model = nodes, self.model
        davg, dstd = (_by_pair(t, model.ntypes) for t in (model.davg, model.dstd))
        scale = 1.0 / (model.maxNeighborNum * model.ntypes)
        embedding = [layer.weight.shape[1] for layer in model.embedding_net[0].layers]
        hidden = model.fitting_net[0].layers[:-1]
        residual = [int(layer.resnet_dt is not None) for layer in hidden]
        r = self.low[..., None] + (model.Rmax - self.low[..., None]) * np.linspace(0, 1, nodes)
        mean, deviation = (t[:, :, :1].numpy() for t in (davg, dstd))
        x = (statistics.switched(r, model.Rmin, model.Rmax) - mean) / deviation
        shape = dp_torch.Shape(
            model.M2,
            embedding[-1],
            model.maxNeighborNum,
            nodes,
            model.Rmin,
            model.Rmax,
            davg,
            dstd,
            torch.from_numpy(self.low),
            [layer.weight.shape[1] for layer in hidden],
            residual,
            residual,  # each with a dt
            embedding,
            torch.from_numpy(x.reshape(-1, nodes)),
            torch.from_numpy(spline_coefficients(nodes) * scale),
            self.precision == "float32",
        )
        e = self.edges
        self._core: Any
        if self.device is not None:
            self._core = dp_torch.DPTraining(shape, self.frames, e, self.device)
            return
        self._core = torch.classes.pwmlff.DPTraining(*shape)
        self._core.set_frames(
            *(_tensor(x) for x in (self.frames.first, e.types, e.count, e.first, e.rij, e.j))
        )

    def read(self) -> np.ndarray:
        """Return the parameters of the model as one vector."""
        return trainable.read(self.model)

    def prepare(self, parameters: np.ndarray) -> None:
        """Take parameters for the calls that follow."""
        self._core.prepare(torch.from_numpy(parameters), self.threads)

    def evaluate(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Energies [n], forces [atoms of these frames, 3] and virials [n, 3, 3], float64."""
        energy, force, virial = self._core.evaluate(
            torch.from_numpy(np.asarray(frames, dtype=np.int64)), self.threads
        )
        return energy.numpy(), force.numpy(), virial.numpy().reshape(-1, 3, 3)

    def gradients(self, a: np.ndarray, v: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Rows [n, numbers] for the frames evaluated last, for `finish` once they are added up.

        Args:
            a: [n] weights of the energies.
            v: [atoms of these frames, 3] weights of the forces.
            w: [n, 3, 3] weights of the virials; zero when None.
        """
        w = np.zeros((len(a), 9)) if w is None else w.reshape(-1, 9)
        arrays = (torch.from_numpy(np.ascontiguousarray(x, dtype=float)) for x in (a, v, w))
        rows: Tensor = self._core.gradients(*arrays, self.threads)
        return rows.numpy()

    def finish(self, row: np.ndarray) -> np.ndarray:
        """The gradient by the parameters [nparameters] of a row, or of a sum of rows."""
        row = np.ascontiguousarray(row, dtype=float)
        gradient: Tensor = self._core.finish(torch.from_numpy(row), self.threads)
        return gradient.numpy()
