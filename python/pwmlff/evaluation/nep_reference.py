"""Neuroevolution potentials (NEP) by their formulas, in NumPy and float64.

For edges r = x_j - x_i of length r from a center of element a to a neighbor of element b:

- f_k(r) = fc (T_k(2 (r/rc - 1)^2 - 1) + 1) / 2 with fc = (1 + cos(pi r/rc)) / 2 below rc, else 0
- g_n(r) = sum over k of c[a, b, n, k] f_k(r), for the radial and the angular part
- q_n = sum over j of g_n, and A_nlm = sum over j of g_n Y_lm of the angular part
- q_nl = sum over m of A_nlm times its conjugate, l = 1 .. l_max
- q_n(l1 l2 l3) = sum of Wigner's 3j symbol times A_nl1m1 A_nl2m2 A_nl3m3, for (222), (112), (123),
  (233) and (134); q_n(1111) = 7/15 q_n1^2
- E_i is a network of these times q_scaler, one for each element, plus half of ZBL of each pair
- models with charges: as kernels/families/nep/network.h has them, by a plain sum of Ewald

Energies are in eV and lengths in angstrom. Forces are -dE/dx; virials are -r (x) dE/dr.

Sources: Fan et al. 2021, doi:10.1103/PhysRevB.104.104309; Fan et al. 2022, doi:10.1063/5.0106617;
Song et al. 2024, doi:10.1038/s41467-024-54554-x; Liu et al. 2023,
doi:10.1103/PhysRevB.108.054312 (ZBL); Ewald 1921, doi:10.1002/andp.19213690304.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, factorial, pi, sqrt

import numpy as np
from ase import Atoms
from numpy.polynomial.chebyshev import chebder, chebvander

from pwmlff.evaluation.nep_file import INVARIANTS, Nep
from pwmlff.evaluation.structures import (
    neighbor_list,
    require_elements,
    require_finite,
    require_periodic,
)

Array = np.ndarray

COULOMB = 14.399645  # e^2 / (4 pi epsilon_0), eV angstrom, as in GPUMD
INVERSE_LENGTH = 2.134563  # 1/angstrom, of ZBL, as in GPUMD


@dataclass(frozen=True)
class NepResult:
    """Numbers of a structure."""

    energy: float  # eV, of all atoms
    atom_energy: Array  # [n] eV
    forces: Array  # [n, 3] eV/angstrom
    virial: Array  # [3, 3] eV, -sum over edges of r (x) dE/dr, the sign of LAMMPS
    centroid_virials: Array  # [n, 3, 3] the same, each edge at its neighbor
    descriptors: Array  # [n, D] times q_scaler
    charges: Array | None = None  # [n] e
    born: Array | None = None  # [n, 3, 3] e, d(dipole moment)/dx
    potentials: Array | None = None  # [n] V, derivatives by the charges less their mean
    mean_charge: float = 0.0  # e, that was taken off


def _harmonics(largest: int, u: Array) -> tuple[list[Array], list[Array]]:
    """Y_lm of unit vectors u [E, 3] for each l = 0 .. largest.

    Returns:
        [E, 2l+1] for m = -l .. l, complex and orthonormal, and [E, 2l+1, 3] the gradients by u, of
        which those along the sphere have a meaning.
    """
    x, y, z = u.T
    # d^m P_l/dz^m by l and m, from l P_l = (2l-1) z P_l-1 - (l-1) P_l-2.
    p = np.zeros((largest + 1, largest + 3, len(u)))
    p[0, 0] = 1.0
    for degree in range(1, largest + 1):
        p[degree] = (2 * degree - 1) * z * p[degree - 1]
        order = np.arange(1, largest + 3)[:, None]
        p[degree, 1:] += (2 * degree - 1) * order * p[degree - 1, :-1]
        if degree > 1:
            p[degree] -= (degree - 1) * p[degree - 2]
        p[degree] /= degree
    values, gradients = [], []
    for degree in range(largest + 1):
        value = np.zeros((len(u), 2 * degree + 1), complex)
        gradient = np.zeros((len(u), 2 * degree + 1, 3), complex)
        for m in range(degree + 1):
            square = (2 * degree + 1) / (4 * pi) * factorial(degree - m) / factorial(degree + m)
            norm = (-1) ** m * sqrt(square)
            plane = norm * (x + 1j * y) ** m
            by_x = norm * m * (x + 1j * y) ** max(m - 1, 0) * p[degree, m]
            value[:, degree + m] = p[degree, m] * plane
            by_z = p[degree, m + 1] * plane
            gradient[:, degree + m] = np.stack((by_x, 1j * by_x, by_z), axis=1)
            value[:, degree - m] = (-1) ** m * value[:, degree + m].conj()
            gradient[:, degree - m] = (-1) ** m * gradient[:, degree + m].conj()
        values.append(value)
        gradients.append(gradient)
    return values, gradients


def wigner_3j(l1: int, l2: int, l3: int) -> Array:
    """[2 l1 + 1, 2 l2 + 1, 2 l3 + 1] by m1, m2, m3 from -l on, for an even sum of l.

    From the integral of three harmonics, which is a multiple of it, exact on the points that are
    used. The sum of its squares is 1, and its sign at m = 0 that of (-1)^((l1 + l2 + l3)/2).
    """
    n = l1 + l2 + l3 + 1
    z, weight = np.polynomial.legendre.leggauss(n)
    phi = 2 * pi * np.arange(n) / n
    rho = np.sqrt(1 - z**2)[:, None]
    u = np.stack(np.broadcast_arrays(rho * np.cos(phi), rho * np.sin(phi), z[:, None]), axis=-1)
    y, _ = _harmonics(max(l1, l2, l3), u.reshape(-1, 3))
    integral = np.einsum("e,ea,eb,ec->abc", np.repeat(weight, n), y[l1], y[l2], y[l3]).real
    sign = (-1) ** (n // 2) * np.sign(integral[l1, l2, l3])
    integral[abs(integral) < 1e-10 * abs(integral).max()] = 0.0
    symbol: Array = sign * integral / np.linalg.norm(integral)
    return symbol


def _functions(r: Array, cut: Array, c: Array) -> tuple[Array, Array]:
    """g_n [E, n] and its derivative by r, of edges with cutoffs [E] and coefficients [E, n, k]."""
    t = r / cut
    x, k = 2 * (t - 1) ** 2 - 1, c.shape[2]
    chebyshev = chebvander(x, k - 1)
    by_x = chebvander(x, max(k - 2, 0)) @ chebder(np.eye(k))
    fc = 0.5 * (1 + np.cos(pi * t))[:, None]
    slope_fc = (-0.5 * pi / cut * np.sin(pi * t))[:, None]
    shape = 0.5 * (chebyshev + 1)
    slope_shape = 0.5 * by_x * (4 * (t - 1) / cut)[:, None]
    f, slope = shape * fc, slope_shape * fc + shape * slope_fc
    return np.einsum("enk,ek->en", c, f), np.einsum("enk,ek->en", c, slope)


def _zbl(table: Array, z1: Array, z2: Array, r: Array) -> tuple[Array, Array]:
    """Energy [E] of pairs and its derivative by r; table [E, 10], atomic numbers [E]."""
    inner, outer = table[:, 0], table[:, 1]
    a, b = table[:, 2::2], table[:, 3::2]
    scale = INVERSE_LENGTH * (z1**0.23 + z2**0.23)
    terms = a * np.exp(-b * (scale * r)[:, None])
    factor = COULOMB * z1 * z2 / r
    bare = factor * terms.sum(axis=1)
    slope = -factor * scale * (b * terms).sum(axis=1) - bare / r
    phase = np.clip((r - inner) / (outer - inner), 0, 1) * pi
    switch, slope_switch = 0.5 * (1 + np.cos(phase)), -0.5 * pi / (outer - inner) * np.sin(phase)
    return bare * switch, slope * switch + bare * slope_switch


def _networks(model: Nep, last: Array, species: Array, y: Array) -> tuple[Array, Array]:
    """Outputs [n] of descriptors y [n, D] by the last layer [S, width], and their slopes by y."""
    energy, slope = np.zeros(len(y)), np.zeros_like(y)
    for s in range(len(model.elements)):
        rows = np.flatnonzero(species == s)
        hidden = [y[rows]]
        for weight, bias in model.layers:
            hidden.append(np.tanh(hidden[-1] @ weight[s].T + bias[s]))
        energy[rows] = hidden[-1] @ last[s]
        back = np.tile(last[s], (len(rows), 1))
        for (weight, _), output in zip(model.layers[::-1], hidden[:0:-1], strict=True):
            back = (back * (1 - output**2)) @ weight[s]
        slope[rows] = back
    return energy, slope


def _coulomb(
    model: Nep, q: Array, atoms: Atoms, pairs: tuple[Array, Array, Array], largest_wave: float
) -> tuple[Array, Array, Array]:
    """Potentials [n], and at fixed charges forces [n, 3] and virials of atoms [n, 3, 3].

    Args:
        q: [n] charges, e.
        pairs: i, j and r_ij of real space, each from both ends.
        largest_wave: as of evaluate_nep.

    Raises:
        ValueError: the structure is not periodic in all directions.
    """
    require_periodic(atoms)
    i, j, vectors = pairs
    cell, x, alpha = np.asarray(atoms.cell), atoms.positions, pi / model.cut_radial.max()
    longest = largest_wave * alpha
    most = (longest / (2 * pi) * np.linalg.norm(cell, axis=1)).astype(int)
    steps = np.stack(np.meshgrid(*(np.arange(-m, m + 1) for m in most), indexing="ij"), axis=-1)
    lattice = steps.reshape(-1, 3) @ (2 * pi * np.linalg.inv(cell).T)
    k2 = (lattice**2).sum(axis=1)
    keep = (k2 < longest**2) & steps.reshape(-1, 3).any(axis=1)
    lattice, k2 = lattice[keep], k2[keep]
    potential, forces, virials = np.zeros(len(q)), np.zeros_like(x), np.zeros((len(q), 3, 3))
    for some in np.array_split(np.arange(len(k2)), len(k2) * len(q) // 10**6 + 1):
        k, square = lattice[some], k2[some]
        g = COULOMB * 2 * pi / atoms.get_volume() * np.exp(-square / (4 * alpha**2)) / square
        wave = np.exp(1j * (x @ k.T))
        term = 2 * g * (q @ wave).conj() * wave
        potential += term.real.sum(axis=1)
        forces += q[:, None] * (term.imag @ k)
        shape = np.eye(3) - np.einsum("k,ka,kb->kab", 2 / square + 0.5 / alpha**2, k, k)
        virials += np.einsum("i,ik,kab->iab", q / 2, term.real, shape)
    if model.charge_mode == 1:
        r = np.linalg.norm(vectors, axis=1)
        screened = np.array([erfc(t) for t in alpha * r]) / r
        slope = -(screened + 2 * alpha / sqrt(pi) * np.exp(-((alpha * r) ** 2))) / r
        np.add.at(potential, i, COULOMB * q[j] * screened)
        potential -= 2 * COULOMB * alpha / sqrt(pi) * q
        pull = (COULOMB * q[i] * q[j] * slope / r)[:, None] * vectors
        np.add.at(forces, i, pull)
        np.add.at(virials, i, -vectors[:, :, None] * pull[:, None, :] / 2)
    return potential, forces, virials


def _angular_blocks(model: Nep, moments: list[Array]) -> tuple[list[Array], list[dict[int, Array]]]:
    """Descriptors of the angular part and their slopes.

    Args:
        moments: A_nlm [n_atoms, n, 2l+1] for l = 0 on.

    Returns:
        [n_atoms, n] for each l up to l_max and each invariant. And for each of these, by l, the
        factor of dA_nlm in dq = sum over n, l, m of .. dA_nlm, with m and -m apart.
    """
    square = [(abs(moment) ** 2).sum(axis=2) for moment in moments]
    blocks = square[1 : model.l_max + 1]
    slopes = [{degree: 2 * moments[degree].conj()} for degree in range(1, model.l_max + 1)]
    for name in model.invariants:
        if name == "1111":
            blocks.append(7 / 15 * square[1] ** 2)
            slopes.append({1: 28 / 15 * square[1][:, :, None] * moments[1].conj()})
            continue
        degrees, symbol = INVARIANTS[name], wigner_3j(*INVARIANTS[name])
        factors = [moments[degree] for degree in degrees]
        total: dict[int, Array] = {}
        for place, degree in enumerate(degrees):
            others = factors[:place] + factors[place + 1 :]
            slope = np.einsum("abc,inb,inc->ina", np.moveaxis(symbol, place, 0), *others)
            total[degree] = total.get(degree, 0) + slope
        blocks.append(np.einsum("abc,ina,inb,inc->in", symbol, *factors).real)
        slopes.append(total)
    return blocks, slopes


def evaluate_nep(
    model: Nep, atoms: Atoms, temperature: float = 0.0, largest_wave: float = 2 * pi
) -> NepResult:
    """Energies, forces and virials of a structure, of any cell and periodicity.

    Args:
        temperature: K, for models that have it as a descriptor.
        largest_wave: of reciprocal lattice vectors of models with charges, in units of alpha.

    Raises:
        ValueError: an element that the model does not know, or a structure or a result that is not
            finite.
    """
    require_elements(atoms, model.elements)
    n, largest = len(atoms), model.largest_degree
    species = np.array([model.elements.index(z) for z in atoms.numbers], dtype=np.int64)
    i, j, r, vectors = neighbor_list("ijdD", atoms, model.cutoff, threads=1)
    u = vectors / r[:, None]
    pair = species[i], species[j]

    # Edges of the radial part (first) and the angular part (second).
    first = np.flatnonzero(r < model.cut_radial[pair])
    second = np.flatnonzero((r < model.cut_angular[pair]) & (largest > 0))
    first_pair, second_pair = (tuple(part[edges] for part in pair) for edges in (first, second))
    g, slope_g = _functions(r[first], model.cut_radial[first_pair], model.c_radial[first_pair])
    h, slope_h = _functions(r[second], model.cut_angular[second_pair], model.c_angular[second_pair])
    y, gradient_y = _harmonics(largest, u[second])
    radial = np.zeros((n, g.shape[1]))
    np.add.at(radial, i[first], g)
    moments = [np.zeros((n, h.shape[1], 2 * degree + 1), complex) for degree in range(largest + 1)]
    for moment, value in zip(moments, y, strict=True):
        np.add.at(moment, i[second], h[:, :, None] * value[:, None, :])

    blocks, block_slopes = _angular_blocks(model, moments)
    every = [radial, *blocks, *[np.full((n, 1), temperature)] * model.temperature]
    descriptors = np.concatenate(every, axis=1) * model.q_scaler

    def by_edges(slope: Array) -> Array:
        """From slopes by the descriptors of i to those by r_ij."""
        radial_slope, *parts = np.split(
            slope * model.q_scaler, np.cumsum([block.shape[1] for block in every])[:-1], axis=1
        )
        edge_slope = np.zeros_like(vectors)
        length_slope = (radial_slope[i[first]] * slope_g).sum(axis=1)
        edge_slope[first] += length_slope[:, None] * u[first]
        for degree in range(1, largest + 1):
            moment_slope = np.zeros_like(moments[degree])
            for part, block_slope in zip(parts, block_slopes, strict=False):
                if degree in block_slope:
                    moment_slope += part[:, :, None] * block_slope[degree]
            rows = moment_slope[i[second]]
            length_slope = np.einsum("en,enm,em->e", slope_h, rows, y[degree]).real
            sphere_slope = np.einsum("en,enm,emc->ec", h, rows, gradient_y[degree]).real
            sphere_slope -= (sphere_slope * u[second]).sum(axis=1)[:, None] * u[second]
            edge_slope[second] += length_slope[:, None] * u[second] + sphere_slope / r[second, None]
        return edge_slope

    energy, slope = _networks(model, model.last, species, descriptors)
    energy += model.shift[species]
    edge_slope = by_edges(slope)  # dE_i/dr_ij
    forces, virials = np.zeros((n, 3)), np.zeros((n, 3, 3))
    charges, born, potential, mean = None, None, None, 0.0
    if model.last_charge is not None:  # what one atom has
        charges, born, potential = np.zeros(n), np.zeros((n, 3, 3)), np.zeros(n)
    if model.last_charge is not None and n > 1:
        raw, slope = _networks(model, model.last_charge, species, descriptors)
        mean = float(raw.mean())
        charges = raw - mean
        real = r < model.cut_radial[pair]  # pairs of real space
        potential, forces, virials = _coulomb(
            model, charges, atoms, (i[real], j[real], vectors[real]), largest_wave
        )
        energy += charges * potential / 2
        charge_slope = by_edges(slope)
        potential -= potential.mean()
        edge_slope += potential[i, None] * charge_slope
        born = np.einsum("i,ab->iab", charges, np.eye(3))
        dipole = vectors[:, :, None] * charge_slope[:, None, :] / 2
        np.add.at(born, i, dipole)
        np.add.at(born, j, -dipole)
        born *= model.root_epsilon
    if model.zbl is not None:
        reach = np.minimum(model.zbl[..., 1], model.cut_angular)
        hit = np.flatnonzero(r < reach[pair])
        z = np.array(model.elements, dtype=float)[species]
        value, length_slope = _zbl(model.zbl[pair][hit], z[i[hit]], z[j[hit]], r[hit])
        np.add.at(energy, i[hit], 0.5 * value)
        edge_slope[hit] += (0.5 * length_slope)[:, None] * u[hit]

    np.add.at(forces, i, edge_slope)
    np.add.at(forces, j, -edge_slope)
    np.add.at(virials, j, -vectors[:, :, None] * edge_slope[:, None, :])
    require_finite(energy, forces)
    total = virials.sum(axis=0)
    of_charges = charges, born, potential, mean
    return NepResult(float(energy.sum()), energy, forces, total, virials, descriptors, *of_charges)
