"""Plain float64 PyTorch evaluation of ACE, of pacemaker and of GRACE/FS.

The formulas are those of kernels/families/ace/network.h and formulas.h, from which this was written
apart: slopes at the nodes of the table are derivatives that PyTorch takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pwmlff.evaluation.ace_file import EMBEDDINGS, INNERS, RADIALS, Ace

COULOMB = 14.399645351950543  # eV angstrom, as in programs that write such files
ZBL = ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))


def _switch(r: Tensor, end: Tensor | float, width: Tensor | float) -> Tensor:
    """P(r; end, width): 1 below end - width, 0 from end on."""
    x = torch.clamp(1 - 2 * (1 + (r - end) / width), -1, 1)
    x = torch.where(torch.as_tensor(r <= end - width), torch.ones_like(x), x)
    return 0.5 + 3.75 * (x / 4 - x**3 / 6 + x**5 / 20)


def _cosine(t: Tensor) -> Tensor:
    return 0.5 * (1 + torch.cos(math.pi * t))


def _chebyshev(x: Tensor, first: int, count: int) -> list[Tensor]:
    """(1 - T_k(x))/2 for k = first .. first+count-1."""
    t = [torch.ones_like(x), x]
    while len(t) < first + count:
        t.append(2 * x * t[-1] - t[-2])
    return [0.5 - 0.5 * t[k] for k in range(first, first + count)]


class _Bond:
    """An ordered pair of species."""

    def __init__(self, ace: Ace, pair: int) -> None:
        p = ace.numbers
        self.radial = RADIALS[int(p["radial"][pair])]
        self.nbase = int(p["nbase"][pair])
        self.inner = INNERS[int(p["inner"])]
        numbers = (float(value) for value in p["bonds"][pair])
        self.scale, self.rcut, self.dcut, self.rcut_in, self.dcut_in, self.prehc, self.decay = (
            numbers
        )
        self.bins = int(self.rcut / float(p["delta"]))
        self.crad = torch.from_numpy(p["crad"][pair][..., : self.nbase].copy())

    def _base(self, r: Tensor) -> list[Tensor]:
        n, lam, y = self.nbase, self.scale, r / self.rcut
        if self.radial == "ChebPow":
            return _chebyshev(1 - 2 * (1 - y) ** lam, 1, n)
        if self.radial == "ChebLinear":
            return _chebyshev(1 - y, 1, n)
        if self.radial == "ChebExpCos":
            end = math.exp(-lam)
            x = 1 - 2 * (torch.exp(-lam * y) - end) / (1 - end)
            cut = _cosine(y)
            if self.dcut > 0:
                t = (r - self.rcut + self.dcut) / self.dcut
                cut = torch.where(t > 0, cut * _cosine(t), cut)
            return [cut, *(cut * g for g in _chebyshev(x, 1, n - 1))]
        result: list[Tensor] = []
        d = 1.0
        for k in range(1, n + 1):
            root = math.sqrt(2) * math.pi * self.rcut**-1.5 * k * (k + 1) / math.hypot(k, k + 1)
            s = (-1) ** (k - 1) * root * (torch.sinc(k * y) + torch.sinc((k + 1) * y))
            if result:
                e = (k - 1) ** 2 * (k + 1) ** 2 / (4 * k**4 + 1)
                s = s + math.sqrt(e / d) * result[-1]
                d = 1 - e / d
            result.append(s / math.sqrt(d))
        return result

    def _core(self, r: Tensor, charges: tuple[int, int]) -> Tensor:
        if self.inner == "none" or self.prehc == 0:
            return torch.zeros_like(r)
        if self.inner == "zbl":
            za, zb = charges
            length = 0.46850 / (za**0.23 + zb**0.23)

            def bare(x: Tensor) -> Tensor:
                return torch.stack([c * torch.exp(-w * x / length) for c, w in ZBL]).sum(0) / x

            end = torch.tensor(self.rcut, dtype=torch.float64)
            first = torch.func.grad(bare)
            e, e1, e2 = (float(f(end)) for f in (bare, first, torch.func.grad(first)))
            d = self.dcut
            a, b = (-3 * e1 + d * e2) / d**2, (2 * e1 - d * e2) / d**3
            u = torch.clamp(r - self.rcut + d, min=0)
            whole = bare(r) - e + d * e1 / 2 - d * d * e2 / 12 + a / 3 * u**3 + b / 4 * u**4
            return self.prehc * COULOMB / 2 * za * zb * whole * _switch(r, self.rcut, d)
        q = abs(self.decay) * r * r
        core = abs(self.prehc) * torch.exp(-q) / r * _cosine(r / self.rcut)
        core = torch.where(q < 50, core, 0 * core)
        if self.inner == "distance":
            core = core * _switch(r, self.rcut_in, self.dcut_in)
        return core

    def _exact(self, r: Tensor, charges: tuple[int, int]) -> Tensor:
        counts = r < self.rcut
        safe = torch.where(counts, r, torch.full_like(r, 0.5 * self.rcut))
        base = torch.stack(self._base(safe))
        if self.inner == "distance":
            base = base * (1 - _switch(safe, self.rcut_in, self.dcut_in))
        if self.inner != "zbl":
            base = torch.where(safe > self.rcut_in - self.dcut_in, base, 0 * base)
        both = torch.cat([base, self._core(safe, charges)[None]])
        return torch.where(counts, both, 0 * both)

    def functions(self, r: Tensor, charges: tuple[int, int]) -> Tensor:
        """The radial base and the core repulsion [nbase + 1, E], between nodes of the table."""
        h = self.rcut / self.bins
        k = torch.clamp(torch.floor(r.detach() / h), 1, self.bins)

        def exact(node: Tensor) -> tuple[Tensor, Tensor]:
            def values(x: Tensor) -> Tensor:
                return self._exact(x, charges)

            value, slope = torch.func.jvp(values, (h * node,), (torch.ones_like(node),))[:2]
            return value.detach(), slope.detach() * h

        (f0, d0), (f1, d1) = exact(k), exact(k + 1)
        u = r / h - k
        a, b = 3 * (f1 - f0) - d1 - 2 * d0, 2 * (f0 - f1) + d1 + d0
        result = f0 + u * (d0 + u * (a + u * b))
        return torch.where(k < self.bins, result, 0 * result)


def _harmonics(u: Tensor, largest: int, real: bool) -> Tensor:
    """Y_lm [E, l*l+l+m] with Y_00 = 1, or the real ones of GRACE/FS."""
    x, y, z = u.T
    plane, power = torch.complex(x, y), torch.complex(torch.ones_like(x), torch.zeros_like(x))
    columns: list[Tensor] = [power] * (largest + 1) ** 2
    start = 1.0
    for m in range(largest + 1):
        if m:
            start *= -math.sqrt((2 * m + 1) / (2 * m))
            power = power * plane
        last, here = torch.zeros_like(z), torch.full_like(z, start)
        for degree in range(m, largest + 1):
            if degree > m:
                a = math.sqrt((4 * degree**2 - 1) / (degree**2 - m**2))
                b = math.sqrt(((degree - 1) ** 2 - m**2) / (4 * (degree - 1) ** 2 - 1))
                last, here = here, a * (z * here - b * last)
            value, place, sign = here * power, degree * (degree + 1), (-1) ** m
            if not real:
                columns[place + m], columns[place - m] = value, sign * value.conj()
            elif m == 0:
                columns[place] = value.real
            else:
                columns[place + m] = math.sqrt(2) * sign * value.real
                columns[place - m] = math.sqrt(2) * sign * value.imag
    return torch.stack([column.real if real else column for column in columns], dim=1)


def _embedded(kind: str, rho: Tensor, m: float) -> Tensor:
    size, sign = rho.abs(), torch.where(rho < 0, -1.0, 1.0)
    if kind == "FinnisSinclairShiftedScaled":
        if abs(m - 1) < 1e-10:
            return rho
        q, e = 1 / m, torch.exp(-size)
        value: Tensor = (q ** (q / (1 - q)) * e + size) ** m - q ** (1 / (1 - q)) * e
        return sign * value
    w = 1e6
    k = w ** (1 - m)
    tiny = size <= 1e-10
    safe = torch.where(tiny, torch.ones_like(size), size)
    exponent = (w * safe) ** 3
    g = torch.where(exponent <= 30, torch.exp(-exponent), 0 * exponent)
    return torch.where(tiny, k * rho, sign * ((1 - g) * safe**m + k * g * safe))


class AceReference:
    """A potential, for :func:`pwmlff.evaluation.reference.evaluate`.

    Args:
        ace: the potential.
    """

    def __init__(self, ace: Ace, _: Sequence[int]) -> None:
        self.ace, self.cutoff, self.elements = ace, ace.cutoff, list(ace.elements)
        n = len(self.elements)
        self._bonds = [_Bond(ace, k) for k in range(len(ace.numbers["radial"]))]
        self._pairs = [
            [self._bonds[0 if ace.grace else a * n + b] for b in range(n)] for a in range(n)
        ]

    def _moments(self, edge_vec: Tensor, edge_index: Tensor, kinds: Tensor) -> dict[str, Tensor]:
        """Sums over neighbors of each atom, and its nearest one."""
        center, neighbor_kind = edge_index[0], kinds[edge_index[1]]
        p, n, natoms = self.ace.numbers, len(self.elements), len(kinds)
        nradial, degrees, nbase = p["crad"].shape[1:]
        slots = 1 if self.ace.grace else n
        dtype = torch.float64 if self.ace.grace else torch.complex128
        moments = torch.zeros(natoms, slots, nradial, degrees**2, dtype=dtype)
        base = torch.zeros(natoms, n, nbase, dtype=torch.float64)
        core = torch.zeros(natoms, dtype=torch.float64)
        nearest, width = [torch.full((natoms,), math.inf, dtype=torch.float64)], []
        of_degree = torch.repeat_interleave(torch.arange(degrees), 2 * torch.arange(degrees) + 1)
        for a in range(n):
            for b in range(n):
                bond = self._pairs[a][b]
                r = torch.linalg.vector_norm(edge_vec, dim=1)
                which = (kinds[center] == a) & (neighbor_kind == b) & (r < bond.rcut)
                if not which.any():
                    continue
                d, r, i = edge_vec[which], r[which], center[which]
                values = bond.functions(r, (self.elements[a], self.elements[b]))
                g = values[:-1]
                radial = torch.einsum("nlk,ke->enl", bond.crad, g)
                if self.ace.grace:
                    z = torch.from_numpy(p["chemical"].reshape(n, nradial)[b])
                    radial = radial * z[None, :, None]
                y = _harmonics(d / r[:, None], degrees - 1, self.ace.grace)
                part = radial[:, :, of_degree] * y[:, None]
                slot = 0 if self.ace.grace else b
                moments = moments.index_put((i, torch.full_like(i, slot)), part, accumulate=True)
                padded = torch.nn.functional.pad(g.T, (0, nbase - bond.nbase))
                base = base.index_put((i, torch.full_like(i, b)), padded, accumulate=True)
                core = core.index_add(0, i, values[-1])
                t = r - (bond.rcut_in - bond.dcut_in)
                nearest.append(nearest[0].scatter_reduce(0, i, t, "amin"))
                width.append(bond.dcut_in)
        closest = torch.stack(nearest)
        t, which = closest.min(0)
        widths = torch.tensor([1.0, *width], dtype=torch.float64)[which]
        return {"moments": moments, "base": base, "core": core, "t": t, "width": widths}

    def atom_energies(self, edge_vec: Tensor, edge_index: Tensor, numbers: Tensor) -> Tensor:
        """Energies [n] from edge_vec [E, 3], edge_index [2, E] (center, neighbor), numbers [n]."""
        p = self.ace.numbers
        kinds = torch.tensor([self.elements.index(z) for z in numbers.tolist()], dtype=torch.long)
        found = self._moments(edge_vec, edge_index, kinds)
        energies = torch.from_numpy(p["energy"])[kinds]
        for a in range(len(self.elements)):
            own = torch.nonzero(kinds == a)[:, 0]
            if len(own) == 0:
                continue
            part = self._energies(a, {name: values[own] for name, values in found.items()})
            energies = energies.index_add(0, own, part)
        return energies

    def _energies(self, a: int, found: dict[str, Tensor]) -> Tensor:
        own, inner = self.ace.of_species(a), INNERS[int(self.ace.numbers["inner"])]
        rho = self._densities(own, found)
        kind = EMBEDDINGS[int(own["embedding"])]
        both = zip(own["weight"].tolist(), own["power"].tolist(), strict=True)
        parts = [w * _embedded(kind, rho[:, k], m) for k, (w, m) in enumerate(both)]
        energy, core = torch.stack(parts).sum(0), found["core"]
        if inner == "none":
            return energy
        if inner == "zbl":
            t, width = found["t"], found["width"]
            t = torch.where(t < self.cutoff, t, torch.full_like(t, 1e9))
            cut = _switch(width - t, width, width)
            return energy * cut + core * (1 - cut)
        cut = _switch(core, float(own["core_cutoff"]), float(own["core_width"]))
        return energy * cut + core

    def _densities(self, own: dict[str, np.ndarray], found: dict[str, Tensor]) -> Tensor:
        moments, base = found["moments"], found["base"]
        slots, nradial, size = moments.shape[1:]
        flat, flat_base = moments.reshape(-1, slots * nradial * size), base.flatten(1)
        ints = {name: own[name].astype(int) for name in ("rank", "rows", "mus", "ns", "ls", "ms")}
        c = torch.from_numpy(own["coefficients"].reshape(-1, len(own["weight"])))
        rho = torch.zeros(len(base), c.shape[1], dtype=torch.float64)
        factor = row = m = 0
        for rank, rows in zip(ints["rank"].tolist(), ints["rows"].tolist(), strict=True):
            mu, n, degree = (
                torch.from_numpy(ints[k][factor : factor + rank]) for k in ("mus", "ns", "ls")
            )
            ms = torch.from_numpy(ints["ms"][m : m + rank * rows].reshape(rows, rank))
            if rank == 1 and not self.ace.grace:
                product = flat_base[:, (mu * base.shape[2] + n - 1).expand(rows)]
            else:
                places = (mu * nradial + n - 1) * size + degree * degree + degree + ms
                product = torch.ones(len(base), rows, dtype=flat.dtype)
                for k in range(rank):
                    product = product * flat[:, places[:, k]]
            rho = rho + product.real @ c[row : row + rows]
            factor, row, m = factor + rank, row + rows, m + rank * rows
        return rho
