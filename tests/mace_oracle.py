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

    @classmethod
    def random(cls, seed: int) -> Shape:
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
            hidden=tuple(int(n) for n in rng.integers(1, 17, rng.integers(0, 4))),
            residual=tuple(bool(one) for one in rng.integers(0, 2, nlayers)),
            density=flags[0],
            gaussian=flags[1],
            cutoff_first=flags[2],
            agnesi=flags[3],
            zbl=flags[4],
        )


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
                layer[f"up.{degree}"] = self.normal(k, k)
            for degree in range(min(entering, leaving) + 1 if shape.residual[t] else 0):
                layer[f"skip.{degree}"] = self.normal(n, k, k)
            if t + 1 < len(shape.leaving):
                layer["readout"] = self.normal(k)
            else:
                layer |= {"readout.first": self.normal(k, 3), "readout.last": self.normal(3)}
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

    def messages(self, t: int) -> dict[str, Array]:
        shape, k, npaths = self.shape, self.shape.channels, len(self.degrees)
        widths = (self.nbasis, *shape.hidden, npaths * k)
        layer = {f"radial.{n}": self.normal(*size) for n, size in enumerate(pairwise(widths))}
        if shape.density:
            layer["density"] = self.normal(self.nbasis)
        each = 1 if shape.residual[t] else len(shape.elements)
        for degree in range(shape.largest + 1):
            rows = k * sum(path[2] == degree for path in self.degrees)
            layer[f"message.{degree}"] = 0.5 * self.normal(each, rows, k)
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
        if "layer" + str(t) + ".density" in self.array:
            rho = torch.tanh((basis @ self.of(t, "density")) ** 2)
            density = density.index_add(0, i, rho if first else rho * f.squeeze(1))
        radial, k = basis, 0
        while "layer" + str(t) + ".radial." + str(k) in self.array:
            radial = (radial if k == 0 else torch.nn.functional.silu(radial)) @ self.of(
                t, "radial." + str(k)
            )
            k += 1
        if not first:
            radial = radial * f
        channels = self.array["embedding"].size(1)
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
        return torch.cat(result, 2) / (1.0 + density).unsqueeze(1).unsqueeze(2)

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
                    skip = self.of(t, "skip." + str(degree))[types]
                    h = h + torch.einsum("nkm,nkq->nqm", [feature[degree], skip])
                leaving.append(h)
            feature = leaving
            scalars = feature[0].squeeze(2)
            if "layer" + str(t) + ".readout" in self.array:
                energies = energies + scalars @ self.of(t, "readout")
            if "layer" + str(t) + ".readout.first" in self.array:
                hidden = torch.nn.functional.silu(scalars @ self.of(t, "readout.first"))
                energies = energies + hidden @ self.of(t, "readout.last")
        scaling = self.array["scaling"]
        return (self.array["energies"][types] + scaling[0] * energies + scaling[1])[:nlocal]


def save(path: Path, shape: Shape, seed: int = 0, text: bytes = b"") -> PlainMace:
    """A file with the code above and its arrays for the fused engine, or a text for them."""
    arrays = random_arrays(shape, seed)
    model = PlainMace(shape, arrays)
    save_model(model, path, added={MACE_ARRAYS: text or written("mace", arrays)})
    return model
