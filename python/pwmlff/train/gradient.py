"""Energies, forces and gradients of a Deep Potential over frames whose positions never change.

The kernels are `torch.classes.pwmlff.DPTraining`; kernels/training/training.h has the formulas. In
short: embedding nets are cubic splines of the distance through their values at `nodes` places, so
energies and forces of a frame are functions of spline coefficients that are linear in those values.
What is done here happens once for a step: nets at the nodes, and from the gradient by the
coefficients back to that by the parameters.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

import pwmlff.kernels  # noqa: F401  registers the class
from pwmlff.models import DP
from pwmlff.train import statistics
from pwmlff.train.frames import Frames
from pwmlff.train.neighbors import Edges

PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
#: The first node of a pair of types, as a share of the shortest distance in the data.
FIRST_NODE = 0.98


def spline_coefficients(nodes: int) -> np.ndarray:
    """The matrix [nodes + 2, nodes] from values at uniform nodes to cubic B-spline coefficients.

    Node i has (c_i + 4 c_i+1 + c_i+2) / 6; the slope is zero at the last node, as everything that
    depends on the switch at the cutoff is flat there, and the third derivative is the same in the
    first two intervals.
    """
    equations = np.zeros((nodes + 2, nodes + 2))
    for i in range(nodes):
        equations[i, i : i + 3] = np.array([1.0, 4.0, 1.0]) / 6.0
    equations[nodes, [nodes - 1, nodes + 1]] = -0.5, 0.5
    equations[nodes + 1, :5] = 1.0, -4.0, 6.0, -4.0, 1.0
    return np.linalg.solve(equations, np.eye(nodes + 2, nodes))


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
        model: in float64; its parameters are the start, and are changed by `write` alone.
        frames, edges: the frames, and their neighbours within the cutoff.
        nodes: of the splines, for each pair of types.
        precision: of the kernels, "float32" or "float64".
        threads: that frames are spread over; they change no bit of a result.

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
    ) -> None:
        self.model, self.frames, self.edges = model, frames, edges
        self.precision, self.threads = precision, threads
        self.names = [name for name, _ in model.named_parameters()]
        self.shapes = [tuple(p.shape) for p in model.parameters()]
        ntypes = model.ntypes
        nets = [len(list(n.parameters())) for n in (model.embedding_net[0], model.fitting_net[0])]
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        self._embedding = self.shapes[: nets[0]]
        self._fitting = self.shapes[-nets[1] :]
        self.nparameters = sum(sizes)
        self._nembedding = sum(sizes[: nets[0]]) * ntypes**2
        self.width = model.embedding_net[0].layers[-1].weight.shape[1]
        self.scale = 1.0 / (model.maxNeighborNum * ntypes)
        shortest = np.minimum(statistics.shortest(edges, model.Rmax), model.Rmax)
        self.low = FIRST_NODE * np.minimum(shortest, shortest.T)
        self.set_nodes(nodes)

    def set_nodes(self, nodes: int) -> None:
        """Take another number of nodes."""
        model = self.model
        self.nodes = nodes
        of_pairs = [_by_pair(t, model.ntypes) for t in (model.davg, model.dstd)]
        hidden = list(model.fitting_net[0].layers)[:-1]
        self._core = torch.classes.pwmlff.DPTraining(
            model.M2,
            self.width,
            model.maxNeighborNum,
            nodes,
            model.Rmin,
            model.Rmax,
            *of_pairs,
            torch.from_numpy(self.low),
            [layer.weight.shape[1] for layer in hidden],
            [int(hasattr(layer, "resnet_dt")) for layer in hidden],
            [int(hasattr(layer, "resnet_dt")) for layer in hidden],
            self.precision == "float32",
        )
        e = self.edges
        self._core.set_frames(
            *(_tensor(x) for x in (self.frames.first, e.types, e.count, e.first, e.rij, e.j))
        )
        self._place_fitting()
        self._matrix = torch.from_numpy(spline_coefficients(nodes) * self.scale)
        r = self.low[..., None] + (model.Rmax - self.low[..., None]) * np.linspace(0, 1, nodes)
        mean, deviation = (t[:, :, :1].numpy() for t in of_pairs)
        x = (statistics.switched(r, model.Rmin, model.Rmax) - mean) / deviation
        self._x = torch.from_numpy(x.reshape(model.ntypes**2, nodes, 1))

    def _place_fitting(self) -> None:
        """Where the numbers of the fitting nets lie among those of the kernels, and the reverse.

        The kernels' first layer has one weight for the elements (m, k) and (k, m) of the
        descriptor, their sum.
        """
        m2, ntypes = self.model.M2, self.model.ntypes
        pairs = [(m, k) for k in range(m2) for m in range(k, self.width)]
        element = np.array([m * m2 + k for m, k in pairs])
        mirror = np.array([k * m2 + m if m < m2 else m * m2 + k for m, k in pairs])
        sizes = [int(np.prod(shape)) for shape in self._fitting]
        each, hidden = sum(sizes), self._fitting[0][1]
        place = iter(self._core.offsets())
        target, source, second = [], [], []  # first layer: both elements; else the number itself
        self._back = np.empty(ntypes * each, dtype=np.int64)
        self._coefficients = []
        for a in range(ntypes):
            start = self._nembedding + a * each
            for k, size in enumerate(sizes):
                here, numbers, other = next(place), np.arange(size), np.arange(size)
                if k == 0:
                    numbers, other = (
                        (rows[:, None] * hidden + np.arange(hidden)).ravel()
                        for rows in (element, mirror)
                    )
                there = here + np.arange(numbers.size)
                target.append(there)
                source.append(start + numbers)
                second.append(start + other)
                self._back[start - self._nembedding + numbers] = there
                self._back[start - self._nembedding + other] = there
                start += size
            self._coefficients.append(next(place))
        self._target, self._source = np.concatenate(target), np.concatenate(source)
        second = np.concatenate(second)
        self._double = np.flatnonzero(second != self._source)
        self._second = second[self._double]

    def read(self) -> np.ndarray:
        """Return the parameters of the model as one vector."""
        return np.concatenate([p.detach().numpy().ravel() for p in self.model.parameters()])

    def write(self, parameters: np.ndarray, model: DP | None = None) -> None:
        """Put a vector of parameters into the model, or into another of the same shape."""
        at = 0
        with torch.no_grad():
            for p in (model or self.model).parameters():
                p.copy_(torch.from_numpy(parameters[at : at + p.numel()]).view_as(p))
                at += p.numel()

    def _net(self, parameters: Tensor) -> Tensor:
        """Embedding nets at the nodes [pairs, nodes, width], of [pairs, numbers of a net]."""
        y, at = self._x, 0
        for weight, bias in zip(self._embedding[::2], self._embedding[1::2], strict=True):
            n, m = weight
            w = parameters[:, at : at + n * m].view(-1, n, m)
            b = parameters[:, at + n * m : at + n * m + m].view(-1, 1, m)
            at += n * m + int(np.prod(bias))
            new = torch.tanh(torch.baddbmm(b, y, w))
            y = new + y if m == n else new + torch.cat((y, y), 2) if m == 2 * n else new
        return y

    def prepare(self, parameters: np.ndarray) -> None:
        """Take parameters for the calls that follow."""
        ntypes = self.model.ntypes
        whole = torch.from_numpy(parameters)
        self._leaf = whole[: self._nembedding].view(ntypes**2, -1).clone().requires_grad_()
        with torch.enable_grad():
            self._values = self._net(self._leaf)
        dtype = PRECISIONS[self.precision]
        packed = torch.zeros(self._core.nparameters(), dtype=dtype)
        coefficients = (self._matrix @ self._values.detach()).view(ntypes, -1)
        fitting = parameters[self._source]
        fitting[self._double] += parameters[self._second]
        packed.numpy()[self._target] = fitting
        for a, at in enumerate(self._coefficients):
            packed[at : at + coefficients.shape[1]] = coefficients[a]
        self._packed = packed

    def evaluate(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Energies [n], forces [atoms of these frames, 3] and virials [n, 3, 3], float64."""
        energy, force, virial = self._core.evaluate(
            torch.from_numpy(np.asarray(frames, dtype=np.int64)), self._packed, self.threads
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
        return self._core.gradients(self._packed, *arrays, self.threads).numpy()

    def finish(self, row: np.ndarray) -> np.ndarray:
        """The gradient by the parameters [nparameters] of a row, or of a sum of rows."""
        ntypes, ncoef = self.model.ntypes, self.nodes + 2
        result = np.empty(self.nparameters)
        result[self._nembedding :] = row[self._back]
        n = ntypes * ncoef * self.width
        coefficients = np.concatenate([row[at : at + n] for at in self._coefficients]).astype(float)
        by_values = self._matrix.T @ torch.from_numpy(coefficients).view(
            ntypes**2, ncoef, self.width
        )
        (by_leaf,) = torch.autograd.grad(self._values, self._leaf, by_values, retain_graph=True)
        result[: self._nembedding] = by_leaf.numpy().ravel()
        return result
