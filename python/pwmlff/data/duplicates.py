"""Which frames hold one structure, however it is turned, moved or numbered, and in any format.

Each atom has a number that its neighbors make,

    g_i = 1/10 sum_j sqrt(z_j) (1 - (r_ij / cutoff)^2)^3

with atomic numbers z; where nothing is periodic 1/10 sum_j sqrt(z_j) / (1 + r_ij), over all others.
Two frames
are the same where the sorted numbers of each element are, up to the digits with which positions
and cells are written: those of a file have four decimals or more, in angstrom or in vectors of the
cell, or are float32, or have all digits.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from pwmlff.data import consistency
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges

DECIMALS = range(4, 11)
FINEST = 1e-9  # angstrom that positions with all digits are off
LOOKED_AT = 16  # atoms whose digits are counted
#: How far a number of an atom moves, at most, where all positions move by 1 angstrom; differences
#: of nearly equal sums leave as much as ROUNDING.
SLOPE, ROUNDING = 10.0, 1e-11
MOST_ATOMS = 1000  # of a frame without a cell, of which all distances are taken


def atom_numbers(frames: Frames, edges: Edges) -> np.ndarray:
    """The number g_i of each atom, [natoms].

    Args:
        frames: structures.
        edges: their neighbors, of any cutoff.
    """
    weight = np.sqrt(frames.numbers) / 10.0
    parts = (
        weight[frames.first[edges.frames] + edges.j]
        * (1.0 - (edges.distances / edges.cutoff) ** 2) ** 3
    )
    result: np.ndarray = np.bincount(edges.centers, parts, len(edges.types))
    for k in np.flatnonzero(~frames.pbc.any(axis=1) & (frames.natoms <= MOST_ATOMS)).tolist():
        rows = frames.rows(k)
        x = frames.positions[rows]
        inverse = 1.0 / (1.0 + np.linalg.norm(x[:, None] - x, axis=2))
        np.fill_diagonal(inverse, 0.0)
        result[rows] = inverse @ weight[rows]
    return result


def first_of_each(frames: Frames, numbers: np.ndarray) -> np.ndarray:
    """For each frame the first one that is the same structure, often itself, int64 [nframes].

    Args:
        frames: structures.
        numbers: of their atoms, as :func:`atom_numbers` has them, with one cutoff.
    """
    result = np.arange(len(frames))

    @cache
    def digits(k: int) -> float:
        return _uncertainty(frames, k)

    for chosen in consistency.compositions(frames).values():
        natoms = int(frames.natoms[chosen[0]])
        if not natoms or len(chosen) < 2:
            continue
        rows = frames.first[chosen][:, None] + np.arange(natoms)
        values = numbers[rows]
        order = np.lexsort((values, frames.numbers[rows]), axis=1)
        values = np.take_along_axis(values, order, axis=1)
        mean = values.mean(axis=1)
        coarsest = SLOPE * 0.5 * 10.0 ** -DECIMALS[0]
        distinct: list[int] = []  # that are near in the order of their means
        for row in np.argsort(mean, kind="stable"):
            distinct = [earlier for earlier in distinct if mean[row] - mean[earlier] <= coarsest]
            for earlier in reversed(distinct):
                difference = np.abs(values[row] - values[earlier]).max()
                if difference > coarsest:
                    continue
                known = max(digits(int(chosen[row])), digits(int(chosen[earlier])))
                if difference <= SLOPE * known + ROUNDING * max(1.0, values[row].max()):
                    smaller, larger = sorted((result[chosen[row]], result[chosen[earlier]]))
                    result[result == larger] = smaller
                    break
            else:
                distinct.append(int(row))
    return result


def _uncertainty(frames: Frames, k: int) -> float:
    """How far positions of a frame are off by their digits and those of the cell, angstrom."""
    x = frames.positions[frames.rows(k)][:LOOKED_AT]
    cell = frames.cells[k]
    decimals, of_cell = _decimals(x), _decimals(cell)
    # A cell of few decimals may well be meant.
    result = 0.0 if of_cell in {None, DECIMALS[0]} else 0.5 * 10.0**-of_cell
    if decimals is not None:
        return max(result, 0.5 * 10.0**-decimals)
    if frames.pbc[k].all() and abs(np.linalg.det(cell)) > 0.0:
        decimals = _decimals(x @ np.linalg.inv(cell))
        if decimals is not None:
            result = max(result, 0.5 * 10.0**-decimals * float(np.linalg.norm(cell, axis=1).max()))
    if np.array_equal(x, x.astype(np.float32)):
        result = max(result, float(np.finfo(np.float32).eps * np.abs(x).max(initial=1.0)))
    return max(result, FINEST)


def _decimals(values: np.ndarray) -> int | None:
    """As few as write all values, or None."""
    limit = 1e-13 * max(1.0, float(np.abs(values).max(initial=0.0)))
    for decimals in DECIMALS:
        if np.abs(np.round(values, decimals) - values).max(initial=0.0) <= limit:
            return decimals
    return None
