"""MACE models in plain PyTorch, from the formulas of families/mace/network.h and random arrays.

Any arrays will do: nothing in them has to be so that a rotation changes no energy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import factorial
from pathlib import Path

import numpy as np
import torch
from numpy.polynomial import Legendre, Polynomial
from torch import Tensor, nn

from pwmlff.arrays import written
from pwmlff.convert.mace_network import Array
from pwmlff.models.saving import MACE_ARRAYS, save_model


@dataclass(frozen=True)
class Shape:
    """What differs between models."""

    elements: tuple[int, ...] = (8, 72)
    cutoff: float = 3.0  # angstrom
    channels: int = 5
    largest: int = 2  # degree of harmonics and messages
    leaving: tuple[int, ...] = (1, 0)  # largest degree of the features that leave a layer
    orders: int = 3  # of the symmetric contraction
    terms: int = 12  # of one order and degree
    hidden: tuple[int, ...] = (6, 7)  # of the radial nets
    residual: tuple[bool, ...] = (False, True)
    density: bool = False
    gaussian: bool = False
    cutoff_first: bool = True
    agnesi: bool = False
    zbl: bool = False
    scale: float = 0.8  # of readouts
    gates: bool = False  # with nets that have biases, norms and pairs of species
    edge_channels: int = 0  # where they are others than `channels`

    @classmethod
    def random(cls, seed: int, gates: bool = False) -> Shape:
        rng = np.random.default_rng(seed)
        nlayers = int(rng.integers(1, 4))
        nspecies = int(rng.integers(1, 5))
        flags = [bool(rng.integers(2)) for _ in range(5)]
        return cls(
            elements=(1, 6, 8, 72)[-nspecies:],
            channels=int(rng.choice([1, 3, 4, 8, 13, 16, 33])),
            largest=int(rng.integers(1, 5)),
            leaving=(*(int(n) for n in rng.integers(0, 4, nlayers - 1)), 0),
            orders=int(rng.integers(1, 4)),
            # Norms of few numbers are steep where those are equal, steeper than float32 has tables.
            hidden=tuple(int(n) + 8 * gates for n in rng.integers(1, 17, rng.integers(0, 4))),
            residual=tuple(bool(one) for one in rng.integers(0, 2, nlayers)),
            density=flags[0],
            gaussian=flags[1],
            cutoff_first=flags[2],
            agnesi=flags[3],
            zbl=flags[4],
            gates=gates,
            edge_channels=int(rng.choice([0, 2, 7, 16])) if gates else 0,
        )

    @property
    def along_edges(self) -> int:
        """Channels there."""
        return self.edge_channels or self.channels


class RandomArrays:
    """What MACE_ARRAYS of a file holds, by name."""

    nbasis = 4

    def __init__(self, shape: Shape, seed: int = 0):
        self.shape, self.rng = shape, np.random.default_rng(seed)
        n, k = len(shape.elements), shape.channels
        self.arrays: dict[str, Array] = {
            "atom_type": np.array(shape.elements, float),
            "cutoff": np.array(shape.cutoff),
            "energies": self.normal(n),
            "scaling": np.array([shape.scale, 0.1]),
            "embedding": self.normal(n, k),
            **self.radial(),
        }
        entering = 0
        for t, leaving in enumerate(shape.leaving):
            layer = {**self.paths(entering), **self.messages(t), **self.contractions(leaving)}
            for degree in range(entering + 1):
                layer[f"up.{degree}"] = self.normal(k, shape.along_edges)
            if shape.gates:
                layer |= self.gates(entering)
            for degree in range(min(entering, leaving) + 1 if shape.residual[t] else 0):
                layer[f"skip.{degree}"] = self.normal(1 if shape.gates else n, k, k)
            if t + 1 < len(shape.leaving):
                layer["readout"] = self.normal(k)
            else:
                layer |= {"readout.first": self.normal(k, 3), "readout.last": self.normal(3)}
                if shape.gates:
                    layer |= {"readout.mid": self.normal(3, 3), "readout.bias": self.normal(3)}
            self.arrays |= {f"layer{t}.{name}": array for name, array in layer.items()}
            entering = leaving

    def normal(self, *size: int) -> Array:
        """With a variance that keeps what goes through a matrix of the size it had."""
        return self.rng.normal(0.0, size[-2] ** -0.5 if len(size) > 1 else 1.0, size)

    def radial(self) -> dict[str, Array]:
        shape, rng, n = self.shape, self.rng, len(self.shape.elements)
        options = np.array([shape.gaussian, 5.0, shape.cutoff_first], float)
        if shape.gaussian:
            basis = np.r_[np.linspace(0.0, shape.cutoff, self.nbasis), -0.9]
        else:
            waves = np.arange(1, self.nbasis + 1) * np.pi / shape.cutoff
            basis = np.r_[waves, (2.0 / shape.cutoff) ** 0.5]
        arrays = {"radial.options": options, "radial.basis": basis}
        if shape.agnesi:
            arrays["radial.agnesi"] = np.array([0.9183, 4.5791, 1.0805])
            arrays["radial.radii"] = rng.uniform(0.5, 1.5, n)
        if shape.zbl:
            even = rng.uniform(0.5, 1.0, (3, n, n))
            even += even.transpose(0, 2, 1)
            arrays["zbl.numbers"] = np.array([6.0, 0.18, 0.51, 0.28, 0.03])
            arrays["zbl.length"], arrays["zbl.strength"] = 0.2 * even[0], 5.0 * even[1]
            arrays["zbl.reach"] = 1.2 * even[2]
        return arrays

    def paths(self, entering: int) -> dict[str, Array]:
        """All paths of three degrees that make a triangle."""
        largest = self.shape.largest
        self.degrees = [
            (l1, l2, degree)
            for l1 in range(entering + 1)
            for l2 in range(largest + 1)
            for degree in range(abs(l1 - l2), min(l1 + l2, largest) + 1)
        ]
        layer = {"paths": np.array(self.degrees, float)}
        for p, degrees in enumerate(self.degrees):
            coupling = self.normal(*(2 * n + 1 for n in degrees))
            layer[f"coupling.{p}"] = coupling * (self.rng.uniform(size=coupling.shape) < 0.4)
        return layer

    def net(self, name: str, widths: tuple[int, ...]) -> dict[str, Array]:
        layer = {f"{name}.{n}": self.normal(*size) for n, size in enumerate(pairwise(widths))}
        if self.shape.gates:
            species = len(self.shape.elements)
            layer[f"{name}.pair"] = self.rng.normal(0.0, 0.5, (species, species, widths[1]))
            for n, width in enumerate(widths[1:]):
                layer[f"{name}.bias.{n}"] = self.rng.normal(0.0, 0.3, width)
            for n, width in enumerate(widths[1:-1]):
                layer[f"{name}.norm.{n}"] = self.rng.uniform(0.5, 1.0, (2, width))
        return layer

    def rows_to(self, degree: int) -> int:
        return self.shape.along_edges * sum(path[2] == degree for path in self.degrees)

    def messages(self, t: int) -> dict[str, Array]:
        shape, k, npaths = self.shape, self.shape.channels, len(self.degrees)
        layer = self.net("radial", (self.nbasis, *shape.hidden, npaths * shape.along_edges))
        if shape.density and shape.gates:
            layer |= self.net("density", (self.nbasis, 5, 1))
            layer["divisor"] = np.array([1.5, 0.7])
        elif shape.density:
            layer["density"] = self.normal(self.nbasis)
        each = 1 if shape.residual[t] or shape.gates else len(shape.elements)
        for degree in range(shape.largest + 1):
            layer[f"message.{degree}"] = 0.5 * self.normal(each, self.rows_to(degree), k)
        return layer

    def gates(self, entering: int) -> dict[str, Array]:
        shape, k = self.shape, self.shape.channels
        layer = {}
        for degree in range(shape.largest + 1):
            layer[f"gate.mix.{degree}"] = self.normal(k, k)
            if degree <= entering:
                layer[f"gate.own.{degree}"] = self.normal(shape.along_edges, k)
            if degree > 0:
                layer[f"gate.z.{degree}"] = self.normal(self.rows_to(0), k)
                layer[f"gate.own_z.{degree}"] = self.normal(shape.along_edges, k)
        return layer

    def contractions(self, leaving: int) -> dict[str, Array]:
        layer, rng, shape = {}, self.rng, self.shape
        n, k, terms = len(shape.elements), shape.channels, shape.terms
        for degree in range(leaving + 1):
            layer[f"product.{degree}"] = self.normal(k, k)
            for order in range(1, shape.orders + 1):
                factors = np.sort(rng.integers(0, (shape.largest + 1) ** 2, (terms, order)), axis=1)
                component = rng.integers(0, 2 * degree + 1, terms)
                columns = [
                    component,
                    rng.integers(0, 2, terms),
                    rng.normal(0.0, 0.3, terms),
                    factors,
                ]
                layer[f"contraction.{degree}.terms.{order}"] = np.column_stack(columns)
                layer[f"contraction.{degree}.weights.{order}"] = rng.normal(0.0, 0.5, (n, 2, k))
        return layer


def random_arrays(shape: Shape, seed: int = 0) -> dict[str, Array]:
    return RandomArrays(shape, seed).arrays


def harmonics(largest: int) -> list[tuple[int, bool, list[float]]]:
    """Of real ones of e3nn, whose polar axis is y and whose squares sum to 2l+1 in each degree:
    m, whether it is the sine of m times the azimuth, and the polynomial of y."""
    result = []
    for degree in range(largest + 1):
        for component in range(-degree, degree + 1):
            m = abs(component)
            norm = (2 * degree + 1) * factorial(degree - m) / factorial(degree + m)
            norm = (norm * (2.0 if m else 1.0)) ** 0.5
            polynomial = Legendre.basis(degree).convert(kind=Polynomial).deriv(m)
            result.append((m, component < 0, [float(norm * c) for c in polynomial.coef]))
    return result


class PlainMace(nn.Module):
    """Of kind EDGE; each line is one of the formulas."""

    def __init__(self, shape: Shape, arrays: dict[str, Array]):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", shape.cutoff, list(shape.elements)
        self.nlayers = len(shape.leaving)
        self.interaction_range = self.nlayers * shape.cutoff
        self.largest = shape.largest
        self.table = harmonics(shape.largest)
        self.leaving = list(shape.leaving)
        self.orders = shape.orders
        self.array = {name: torch.from_numpy(np.array(a)) for name, a in arrays.items()}
        paths = {t: arrays[f"layer{t}.paths"].astype(int) for t in range(self.nlayers)}
        self.paths = [paths[t].tolist() for t in range(self.nlayers)]

    def of(self, layer: int, name: str) -> Tensor:
        return self.array["layer" + str(layer) + "." + name]

    def nothing(self) -> list[Tensor]:
        return []

    def envelope(self, x: Tensor, p: float) -> Tensor:
        f = 1.0 - (p + 1.0) * (p + 2.0) / 2.0 * x**p + p * (p + 2.0) * x ** (p + 1.0)
        return (f - p * (p + 1.0) / 2.0 * x ** (p + 2.0)) * (x < 1.0)

    def basis(self, r: Tensor, first: Tensor, second: Tensor) -> Tensor:
        if "radial.agnesi" in self.array:
            q, p, a = self.array["radial.agnesi"].unbind()
            y = 2.0 * r / (self.array["radial.radii"][first] + self.array["radial.radii"][second])
            r = 1.0 / (1.0 + a * y**q / (1.0 + y ** (q - p)))
        waves, factor = self.array["radial.basis"][:-1], self.array["radial.basis"][-1]
        r = r.unsqueeze(1)
        if bool(self.array["radial.options"][0] == 1.0):
            return torch.exp(factor * (r - waves) ** 2)
        return factor * torch.sin(waves * r) / r

    def harmonics(self, direction: Tensor) -> Tensor:
        """[n, (largest+1)^2]"""
        x, y, z = direction.unbind(1)
        cosine, sine = [torch.ones_like(x)], [torch.zeros_like(x)]  # of (z + ix)^m
        for _ in range(self.largest):
            real, imaginary = cosine[-1], sine[-1]
            cosine.append(real * z - imaginary * x)
            sine.append(real * x + imaginary * z)
        columns: list[Tensor] = []
        for m, of_sine, coefficients in self.table:
            polar = torch.zeros_like(y)
            for k in range(len(coefficients)):
                polar = polar + coefficients[k] * y**k
            columns.append(polar * (sine[m] if of_sine else cosine[m]))
        return torch.stack(columns, 1)

    def repulsion(self, r: Tensor, first: Tensor, second: Tensor) -> Tensor:
        numbers = self.array["zbl.numbers"]
        x = r / self.array["zbl.length"][first, second]
        phi = numbers[1] * torch.exp(-3.2 * x) + numbers[2] * torch.exp(-0.9423 * x)
        phi = phi + numbers[3] * torch.exp(-0.4028 * x) + numbers[4] * torch.exp(-0.2016 * x)
        inside = self.envelope(r / self.array["zbl.reach"][first, second], float(numbers[0]))
        return self.array["zbl.strength"][first, second] / r * phi * inside

    def net(self, t: int, name: str, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """A net of the basis [edges, n] of edges between two species."""
        prefix, k = "layer" + str(t) + "." + name + ".", 0
        while prefix + str(k) in self.array:
            x = x @ self.array[prefix + str(k)]
            if k == 0 and prefix + "pair" in self.array:
                x = x + self.array[prefix + "pair"][first, second]
            if prefix + "bias." + str(k) in self.array:
                x = x + self.array[prefix + "bias." + str(k)]
            if prefix + "norm." + str(k) in self.array:
                norm = self.array[prefix + "norm." + str(k)]
                x = torch.nn.functional.layer_norm(x, [x.size(1)], norm[0], norm[1], 1e-5)
            k += 1
            if prefix + str(k) in self.array:
                x = torch.nn.functional.silu(x)
        return x

    def gated(self, t: int, n: Tensor, z: Tensor) -> Tensor:
        """Messages from n and z [nodes, channels, degrees above 0]."""
        result: list[Tensor] = []
        for degree in range(self.largest + 1):
            part = n[:, :, degree * degree : (degree + 1) * (degree + 1)]
            if degree == 0:
                part = torch.nn.functional.silu(part)
            else:
                part = part * torch.sigmoid(z[:, :, degree - 1 : degree])
            result.append(torch.einsum("nkm,kq->nqm", [part, self.of(t, f"gate.mix.{degree}")]))
        return torch.cat(result, 2)

    def messages(
        self, t: int, feature: list[Tensor], r: Tensor, y: Tensor, i: Tensor, j: Tensor,
        types: Tensor,
    ) -> Tensor:  # fmt: skip
        """[nodes, channels, components]"""
        options = self.array["radial.options"]
        f = self.envelope(r / self.cutoff, float(options[1])).unsqueeze(1)
        basis = self.basis(r, types[i], types[j])
        first = bool(options[2] == 1.0)
        if first:
            basis = basis * f
        density = torch.zeros(len(types), dtype=r.dtype)
        x = torch.zeros_like(r)
        if "layer" + str(t) + ".density" in self.array:
            x = basis @ self.of(t, "density")
        if "layer" + str(t) + ".density.0" in self.array:
            x = self.net(t, "density", basis, types[i], types[j]).squeeze(1)
        rho = torch.tanh(x**2)
        density = density.index_add(0, i, rho if first else rho * f.squeeze(1))
        radial = self.net(t, "radial", basis, types[i], types[j])
        if not first:
            radial = radial * f
        channels = self.of(t, "up.0").size(1)
        sums = [self.nothing() for _ in range(self.largest + 1)]
        for p, path in enumerate(self.paths[t]):
            l1, l2, degree = path[0], path[1], path[2]
            sent = torch.einsum("nkm,kq->nqm", [feature[l1], self.of(t, "up." + str(l1))])
            table = torch.einsum(
                "ea,mac->emc",
                [y[:, l2 * l2 : (l2 + 1) * (l2 + 1)], self.of(t, "coupling." + str(p))],
            )
            along = torch.einsum("ekm,emc->ekc", [sent[j], table])
            along = along * radial[:, p * channels : (p + 1) * channels].unsqueeze(2)
            zero = torch.zeros(len(types), channels, 2 * degree + 1, dtype=r.dtype)
            sums[degree].append(zero.index_add(0, i, along))
        result: list[Tensor] = []
        for degree in range(self.largest + 1):
            matrix = self.of(t, "message." + str(degree))
            matrix = matrix[types] if len(matrix) > 1 else matrix.expand(len(types), -1, -1)
            result.append(torch.einsum("nkm,nkq->nqm", [torch.cat(sums[degree], 1), matrix]))
        divisor = 1.0 + density
        if "layer" + str(t) + ".divisor" in self.array:
            divisor = self.of(t, "divisor")[0] + self.of(t, "divisor")[1] * density
        divisor = divisor.unsqueeze(1).unsqueeze(2)
        if "layer" + str(t) + ".gate.mix.0" not in self.array:
            return torch.cat(result, 2) / divisor
        gates: list[Tensor] = []
        own: list[Tensor] = []
        for degree in range(self.largest + 1):
            result[degree] = result[degree] / divisor
            if degree < len(feature):
                up = torch.einsum("nkm,kq->nqm", [feature[degree], self.of(t, f"up.{degree}")])
                own.append(up)
                result[degree] = result[degree] + torch.einsum(
                    "nkm,kq->nqm", [up, self.of(t, f"gate.own.{degree}")]
                )
            if degree > 0:
                z = torch.einsum(
                    "nkm,kq->nqm", [torch.cat(sums[0], 1), self.of(t, f"gate.z.{degree}")]
                )
                z = z / divisor
                gates.append(
                    z + torch.einsum("nkm,kq->nqm", [own[0], self.of(t, f"gate.own_z.{degree}")])
                )
        z = torch.cat(gates, 2) if len(gates) > 0 else torch.zeros_like(result[0])
        return self.gated(t, torch.cat(result, 2), z)

    def contraction(self, t: int, degree: int, m: Tensor, types: Tensor) -> Tensor:
        result = torch.zeros(m.size(0), m.size(1), 2 * degree + 1, dtype=m.dtype)
        for order in range(1, self.orders + 1):
            name = "contraction." + str(degree)
            terms = self.of(t, name + ".terms." + str(order))
            weights = self.of(t, name + ".weights." + str(order))[types]
            value = weights[:, terms[:, 1].long()].transpose(1, 2) * terms[:, 2]
            for k in range(order):
                value = value * m[:, :, terms[:, 3 + k].long()]
            result = result.index_add(2, terms[:, 0].long(), value)
        return torch.einsum("nkm,kq->nqm", [result, self.of(t, "product." + str(degree))])

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        i, j = edge_index[0], edge_index[1]
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        y = self.harmonics(-edge_vec / r.unsqueeze(1))
        feature = [self.array["embedding"][types].unsqueeze(2)]
        energies = torch.zeros(len(types), dtype=edge_vec.dtype)
        if "zbl.numbers" in self.array:
            energies = energies.index_add(0, i, 0.5 * self.repulsion(r, types[i], types[j]))
        for t, out in enumerate(self.leaving):
            m = self.messages(t, feature, r, y, i, j, types)
            leaving: list[Tensor] = []
            for degree in range(out + 1):
                h = self.contraction(t, degree, m, types)
                if "layer" + str(t) + ".skip." + str(degree) in self.array:
                    skip = self.of(t, "skip." + str(degree))
                    skip = skip[types] if len(skip) > 1 else skip.expand(len(types), -1, -1)
                    h = h + torch.einsum("nkm,nkq->nqm", [feature[degree], skip])
                leaving.append(h)
            feature = leaving
            scalars = feature[0].squeeze(2)
            if "layer" + str(t) + ".readout" in self.array:
                energies = energies + scalars @ self.of(t, "readout")
            if "layer" + str(t) + ".readout.first" in self.array:
                hidden = torch.nn.functional.silu(scalars @ self.of(t, "readout.first"))
                if "layer" + str(t) + ".readout.mid" in self.array:
                    hidden = hidden @ self.of(t, "readout.mid") + self.of(t, "readout.bias")
                    hidden = torch.nn.functional.silu(hidden)
                energies = energies + hidden @ self.of(t, "readout.last")
        scaling = self.array["scaling"]
        return (self.array["energies"][types] + scaling[0] * energies + scaling[1])[:nlocal]


def save(path: Path, shape: Shape, seed: int = 0, text: bytes = b"") -> PlainMace:
    """A file with the code above and its arrays for the fused engine, or a text for them."""
    arrays = random_arrays(shape, seed)
    model = PlainMace(shape, arrays)
    save_model(model, path, added={MACE_ARRAYS: text or written("mace", arrays)})
    return model
