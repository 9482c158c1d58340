"""Energies, forces and gradients of a Deep Potential in training by torch, on any device.

The class does what `torch.classes.pwmlff.DPTraining` does on the CPU, by the same formulas:
kernels/training/training.h has them, with the splines and the signs. Here the moments are a
function C(r) of the vectors of the edges. Forces are its derivative backwards. In
S = a E + v F + w W, the last two terms are the derivative of E along u_ij = v_i - v_j - w^T r_ij.
Forward mode carries it along. One way back gives the gradient of S, without a graph of second
derivatives.

Atoms are sorted by type and frame, and filled up to the most atoms of the type in a frame. So the
same products of matrices evaluate all frames. Each frame has parameters of its own, whose gradient
is the row of the frame.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.train.edge import Graph, graph_of

#: Powers of the place u in an interval, from u^0 on, to the four cubic B-splines there.
_BASIS = ((1, 4, 1, 0), (-3, 0, 3, 0), (3, -6, 3, 0), (-1, 3, -3, 1))


class Shape(NamedTuple):
    """What does not change while a model is trained, in the order of `DPTraining`."""

    m2: int
    width: int  # M
    max_neighbor: int
    nodes: int  # of the splines
    rmin: float
    rmax: float
    davg: Tensor  # float64 [ntypes, ntypes, 4], by center and neighbor
    dstd: Tensor
    low: Tensor  # float64 [ntypes, ntypes] first nodes: no distance is shorter
    widths: list[int]  # of the hidden layers of a fitting net
    residual: list[int]  # whether the input of each of them is added
    scaled: list[int]  # whether each has a dt
    embedding: list[int]  # widths of the layers of an embedding net
    x: Tensor  # float64 [ntypes^2, nodes] what the nets take at the nodes
    to_coefficients: Tensor  # float64 [nodes + 2, nodes] of splines, from values at the nodes
    single: bool  # whether nets are computed in float32, not float64


class _Batch(NamedTuple):
    """Frames that are evaluated together."""

    graph: Graph
    pair: Tensor  # int64 [E] pairs of types, center first
    slot: Tensor  # int64 [natoms] places among all filled-up atoms, those of type 0 first
    most: list[int]  # [ntypes] atoms of a type that each frame is filled up to
    is_atom: Tensor  # [places] 1 for an atom, 0 for what fills up
    empty: Tensor  # [natoms, ntypes] slots without a neighbor


class DPTraining:
    """Energies, forces, virials and gradients of frames, by what was prepared last.

    Results are on the CPU. Sums over atoms are float64.

    Args:
        shape: of the model and its splines.
        frames, edges: that may be evaluated; a batch of them is copied to the device at a time.
        device: where all is computed.
    """

    def __init__(self, shape: Shape, frames: Frames, edges: Edges, device: torch.device) -> None:
        self.shape, self.frames, self.edges, self.device = shape, frames, edges, device
        self.dtype = torch.float32 if shape.single else torch.float64
        self.ntypes, self.ncoef = len(shape.low), shape.nodes + 2
        moved = (shape.davg, 1.0 / shape.dstd, shape.low, shape.x, shape.to_coefficients)
        mean, inverse_dev, low, self._x, self._to_coefficients = (t.to(device) for t in moved)
        self._mean, self._inverse_dev = mean.view(-1, 4), inverse_dev.view(-1, 4)
        self._low = low.flatten()
        self._basis = torch.tensor(_BASIS, dtype=torch.float64, device=device) / 6.0
        self._spacing = (shape.rmax - self._low) / (shape.nodes - 1)

    def prepare(self, parameters: Tensor, _threads: int = 1) -> None:
        """Take the parameters of the model, float64 [n], for the calls that follow."""
        self._parameters = parameters.detach().to(self.device, copy=True).requires_grad_()
        # Of the embedding nets of all pairs, a row for each; they are evaluated together.
        widths, npairs = [1, *self.shape.embedding], self.ntypes**2
        sizes = [n for rows, columns in pairwise(widths) for n in (rows * columns, columns)]
        embedding = self._parameters[: npairs * sum(sizes)].view(npairs, -1)
        parts = iter(embedding.split(sizes, dim=1))
        y = self._x.unsqueeze(2)
        for rows, columns in pairwise(widths):
            weight = next(parts).reshape(npairs, rows, columns)
            h = torch.tanh(torch.baddbmm(next(parts).unsqueeze(1), y, weight))
            y = h + y.repeat(1, 1, columns // rows) if columns in (rows, 2 * rows) else h
        coefficients = torch.matmul(self._to_coefficients, y)
        fitting = self._parameters[embedding.numel() :]
        self._packed = torch.cat((coefficients.flatten(), fitting))

    def evaluate(self, which: Tensor, _threads: int = 1) -> tuple[Tensor, Tensor, Tensor]:
        """Energies [n], forces [atoms of these frames, 3], virials [n, 9] of frames int64 [n]."""
        self._batch = self._gathered(which.numpy())
        graph = self._batch.graph
        r = graph.edge_vec.detach().requires_grad_()
        energy = self._energies(r, self._rows())
        (slope,) = torch.autograd.grad(energy.sum(), r)
        center, neighbor = graph.edge_index
        force = slope.new_zeros(len(graph.types), 3)
        force.index_add_(0, center, slope).index_add_(0, neighbor, slope, alpha=-1)
        outer = (r.detach().unsqueeze(2) * slope.unsqueeze(1)).flatten(1)
        virial = slope.new_zeros(graph.nframes, 9)
        virial.index_add_(0, graph.frame[center], outer, alpha=-1)
        return energy.detach().cpu(), force.cpu(), virial.cpu()

    def gradients(self, a: Tensor, v: Tensor, w: Tensor, _threads: int = 1) -> Tensor:
        """Rows of a E + v F + w W, for `finish`, one for each frame evaluated last.

        Args:
            a, v, w: float64 [n], [atoms of these frames, 3], [n, 9].
        """
        graph = self._batch.graph
        a, v, w = (t.to(self.device) for t in (a, v, w))
        center, neighbor = graph.edge_index
        turned = torch.bmm(graph.edge_vec.unsqueeze(1), w.view(-1, 3, 3)[graph.frame[center]])
        direction = v[center] - v[neighbor] - turned.squeeze(1)
        rows = self._rows().requires_grad_()
        with forward_ad.dual_level():
            r = forward_ad.make_dual(graph.edge_vec, direction)
            energy, change = forward_ad.unpack_dual(self._energies(r, rows))
            (gradient,) = torch.autograd.grad(a @ energy + change.sum(), rows)
        return gradient.cpu()

    def finish(self, row: Tensor, _threads: int = 1) -> Tensor:
        """The gradient by the parameters of the model, float64, of a row or a sum of rows."""
        row = row.to(self.device, torch.float64)
        (gradient,) = torch.autograd.grad(self._packed, self._parameters, row, retain_graph=True)
        return gradient.cpu()

    def _rows(self) -> Tensor:
        """What was prepared, once for each frame of the batch."""
        return self._packed.detach().to(self.dtype).expand(self._batch.graph.nframes, -1)

    def _gathered(self, which: np.ndarray) -> _Batch:
        graph = graph_of(self.frames, self.edges, which, torch.float64, self.device)
        vectors, edge_index, types, frame, n = graph
        key = types * n + frame
        sizes = torch.bincount(key, minlength=self.ntypes * n)
        most = [max(of_frames, default=0) for of_frames in sizes.view(self.ntypes, n).tolist()]
        order = torch.argsort(key, stable=True)
        first = sizes.cumsum(0) - sizes
        offset = torch.empty_like(order)
        offset[order] = torch.arange(len(order), device=self.device) - first[key[order]]
        begin = torch.tensor([0, *most], device=self.device).cumsum(0) * n
        slot = begin[types] + frame * torch.tensor(most, device=self.device)[types] + offset
        is_atom = vectors.new_zeros(n * sum(most)).index_fill(0, slot, 1.0)
        center, of_neighbor = edge_index[0], types[edge_index[1]]
        key = center * self.ntypes + of_neighbor
        counts = torch.bincount(key, minlength=self.ntypes * len(types))
        empty = self.shape.max_neighbor - counts.view(-1, self.ntypes).to(vectors.dtype)
        pair = types[center] * self.ntypes + of_neighbor
        return _Batch(graph, pair, slot, most, is_atom, empty)

    def _moments(self, r: Tensor) -> Tensor:
        """C of all places [places, 4, ntypes * ncoef], of the vectors r [E, 3] of the edges."""
        batch, shape = self._batch, self.shape
        pair, types = batch.pair, batch.graph.types
        length = r.square().sum(1, keepdim=True).sqrt()
        inverse = 1.0 / length
        u = ((length - shape.rmin) / (shape.rmax - shape.rmin)).clamp(0.0, 1.0)
        s = inverse * (u * u * u * (u * (15.0 - 6.0 * u) - 10.0) + 1.0)
        environment = torch.cat((s, s * inverse * r), dim=1)
        environment = (environment - self._mean[pair]) * self._inverse_dev[pair]
        t = (length.squeeze(1) - self._low[pair]) / self._spacing[pair]
        interval = t.detach().to(torch.int64).clamp(0, shape.nodes - 2)
        of_edges = environment.unsqueeze(2) * self._splines(t - interval).unsqueeze(1)
        # Empty slots are slots at rmax, where the environment is zero.
        pairs = torch.arange(self.ntypes**2, device=self.device).view(self.ntypes, -1)[types]
        nothing = batch.empty.unsqueeze(2) * -(self._mean * self._inverse_dev)[pairs]
        of_empty = nothing.unsqueeze(3) * self._splines(batch.empty.new_ones(()))
        ncoef, row = self.ncoef, self.ntypes * self.ncoef
        centers = 4 * row * batch.slot
        of_edge = centers[batch.graph.edge_index[0]] + pair % self.ntypes * ncoef + interval
        last = torch.arange(self.ntypes, device=self.device) * ncoef + shape.nodes - 2
        of_slots = centers.unsqueeze(1) + last
        # Where the 4 components and the 4 splines of an edge or slot go from there.
        spread = torch.arange(4, device=self.device)
        spread = (row * spread.unsqueeze(1) + spread).flatten()
        index = torch.cat((of_edge, of_slots.flatten())).unsqueeze(1) + spread
        values = torch.cat((of_edges.reshape(-1, 16), of_empty.reshape(-1, 16)))
        flat = values.new_zeros(batch.is_atom.numel() * 4 * row)
        return flat.index_add(0, index.flatten(), values.flatten()).view(-1, 4, row)

    def _splines(self, u: Tensor) -> Tensor:
        """The four B-splines [..., 4] at places u of an interval."""
        u, b = u.unsqueeze(-1), self._basis
        return b[0] + u * (b[1] + u * (b[2] + u * b[3]))

    def _energies(self, r: Tensor, rows: Tensor) -> Tensor:
        """Energies of the frames, float64 [n].

        Args:
            r: [E, 3] vectors of the edges.
            rows: [n, numbers] what was prepared, of each frame.
        """
        batch, shape, n = self._batch, self.shape, len(rows)
        row = self.ntypes * self.ncoef
        widths = [shape.width * shape.m2, *shape.widths]
        fitting: list[int] = []
        for (height, columns), scaled in zip(pairwise(widths), shape.scaled, strict=True):
            fitting += [height * columns, columns] + [columns] * bool(scaled)
        fitting += [widths[-1], 1]
        sizes = [row * shape.width] * self.ntypes + fitting * self.ntypes
        parts = iter(rows.split(sizes, dim=1))
        coefficients = [next(parts).view(n, row, shape.width) for _ in range(self.ntypes)]
        counts = [n * most for most in batch.most]
        moments = self._moments(r).to(self.dtype).split(counts)
        is_atom = batch.is_atom.split(counts)
        total = batch.is_atom.new_zeros(n)
        for a, most in enumerate(batch.most):
            of_atoms = moments[a].reshape(n, most * 4, row)
            t = torch.bmm(of_atoms, coefficients[a]).view(n, most, 4, shape.width)
            x = torch.matmul(t.transpose(2, 3), t[..., : shape.m2]).flatten(2)
            for k, (height, columns) in enumerate(pairwise(widths)):
                weight = next(parts).view(n, height, columns)
                h = torch.tanh(torch.baddbmm(next(parts).unsqueeze(1), x, weight))
                if shape.scaled[k]:
                    h = h * next(parts).unsqueeze(1)
                x = x + h if shape.residual[k] else h
            weight = next(parts).unsqueeze(2)
            energy = torch.baddbmm(next(parts).unsqueeze(1), x, weight)
            total = total + (energy.view(n, most) * is_atom[a].view(n, most)).sum(1)
        return total
