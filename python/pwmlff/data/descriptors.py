"""What structures are told apart by: numbers that turning, moving and numbering leave as they are.

An atom i is described, for each element e of its neighbors, by moments of their directions u_ij,

    M_kl = sum_j f_k(r_ij) u_ij (x) ... (x) u_ij   (l times),    l = 0 .. 3,
    f_k = (1 - (r / cutoff)^2)^3 / (1 + r)^(2k),                 k = 0 .. 3,

as the norms |M_kl| (moments as of Shapeev, Multiscale Model. Simul. 14 (2016) 1153). A structure
has the mean and the deviation of these over its atoms of each element, so that one strange atom
among many shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, permutations

import numpy as np

from pwmlff.data import neighbors
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges

POWERS, DEGREES = 4, 4
SAME = 1e-6  # distance of structures, over what they usually have, that rounding alone makes
BLOCK = 64  # structures whose neighbors are in memory at a time


def _components(directions: np.ndarray) -> Iterator[tuple[int, float, np.ndarray]]:
    """Distinct components of u (x) ... (x) u [E]: degree, how often each is there, values."""
    for degree in range(DEGREES):
        for axes in combinations_with_replacement(range(3), degree):
            orders = len(set(permutations(axes)))
            values = np.ones(len(directions))
            for axis in axes:
                values = values * directions[:, axis]
            yield degree, float(orders), values


def describe_atoms(edges: Edges) -> np.ndarray:
    """Describe all atoms, [natoms, ntypes * POWERS * DEGREES]."""
    n, ntypes = len(edges.types), edges.ntypes
    r = edges.distances
    index = edges.centers * ntypes + edges.pairs % ntypes
    squares = np.zeros((POWERS, DEGREES, n * ntypes))
    directions = edges.rij / r[:, None]
    radial = (1.0 - (r / edges.cutoff) ** 2) ** 3
    for k in range(POWERS):
        for degree, times, values in _components(directions):
            moment = np.bincount(index, radial * values, n * ntypes)
            squares[k, degree] += times * moment**2
        radial = radial / (1.0 + r) ** 2
    return np.sqrt(squares).transpose(2, 0, 1).reshape(n, -1)


def describe_frames(frames: Frames, elements: Sequence[int], cutoff: float) -> np.ndarray:
    """Describe all frames, [nframes, numbers].

    Args:
        frames: structures without overlapping atoms.
        elements: atomic numbers of all that are to be compared.
        cutoff: of the neighbors, angstrom.

    Raises:
        Failure: as :func:`pwmlff.data.neighbors.find_edges`.
    """
    result = []
    for begin in range(0, len(frames), BLOCK):
        part = frames.select(np.arange(begin, min(begin + BLOCK, len(frames))))
        edges = neighbors.find_edges(part, elements, cutoff)
        atoms = describe_atoms(edges)
        frame = np.repeat(np.arange(len(part)), part.natoms)
        for k in range(len(part)):
            mine = frame == k
            parts = []
            for t in range(len(elements)):
                chosen = atoms[mine & (edges.types == t)]
                if not len(chosen):
                    chosen = np.zeros((1, atoms.shape[1]))
                parts += [chosen.mean(axis=0), chosen.std(axis=0)]
            result.append(np.concatenate(parts))
    return np.array(result)


def scaled(*sets: np.ndarray) -> list[np.ndarray]:
    """The same [n, numbers] in the unit of their root mean square distance from the mean of all.

    Each number counts by how much it varies; those that do not are left out.
    """
    every = np.concatenate(sets)
    spread = every.std(axis=0)
    used = spread > 1e-9 * np.abs(every).max(axis=0, initial=1e-300)
    scale = spread[used] * max(1, int(used.sum())) ** 0.5
    return [(one[:, used] - every[:, used].mean(axis=0)) / scale for one in sets]


def farthest(
    points: np.ndarray, count: int, known: np.ndarray | None = None
) -> tuple[list[int], list[float]]:
    """Farthest points: each next one is farthest from all before (Gonzalez, TCS 38 (1985) 293).

    Args:
        points: [n, numbers].
        count: how many to choose.
        known: [m, numbers] that are there already; the first of `points` is the one nearest to
            their mean without.

    Returns:
        Those chosen, in that order, and how far each was from what was there before: infinite for
        the first where nothing was. Fewer where others are where chosen ones are, but for rounding.
    """
    if known is not None and len(known):
        nearest = np.min([_distances(points, one) for one in known], axis=0)
    else:
        nearest = np.full(len(points), np.inf)
    chosen: list[int] = []
    distances: list[float] = []
    for _ in range(min(count, len(points))):
        if np.isinf(nearest).all():
            k = int(np.argmin(_distances(points, points.mean(axis=0))))
        else:
            k = int(np.argmax(nearest))
        if not nearest[k] > SAME:
            break
        chosen.append(k)
        distances.append(float(nearest[k]))
        nearest = np.minimum(nearest, _distances(points, points[k]))
        nearest[k] = 0.0
    return chosen, distances


def _distances(points: np.ndarray, point: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.linalg.norm(points - point, axis=1)
    return result
