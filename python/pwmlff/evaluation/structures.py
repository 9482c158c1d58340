"""What engines and training ask of a structure, its neighbors, and of what an engine gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import vesin
from ase import Atoms
from ase.geometry import complete_cell

MOST_IMAGES = 1_000_000  # of one atom inside the cutoff
MOST_BINS = 1e5  # of vesin 0.6
LONGEST = 1e12  # cutoffs; rounding leaves too few digits of distances beyond


def require_usable(atoms: Atoms, cutoff: float) -> None:
    """Refuse a structure whose neighbors cannot be found.

    Args:
        atoms: any structure; without atoms it is fine.
        cutoff: distance within which neighbors are wanted.

    Raises:
        ValueError: a position or the cell is not finite, a periodic direction has no cell vector,
            or the cell is so thin, for the cutoff or beside its length, that a million images of
            an atom would have to be looked at, or the structure is a million million cutoffs long,
            or as far from the origin.
    """
    bad = np.flatnonzero(~np.isfinite(atoms.positions).all(axis=1))
    if len(bad):
        raise ValueError(
            f"atom {bad[0]} is at {atoms.positions[bad[0]].tolist()}, expected finite numbers; "
            "look for overlapping atoms or a time step that is too long"
        )
    cell = np.asarray(atoms.cell)
    if not np.isfinite(cell).all():
        raise ValueError(f"the cell is {cell.tolist()}, expected finite numbers")
    periodic = cell[atoms.pbc]
    if len(periodic) and np.linalg.matrix_rank(periodic) < len(periodic):
        raise ValueError(
            f"the cell is {cell.tolist()} and periodic along {atoms.pbc.tolist()}; every periodic "
            "direction needs a cell vector, and they must not lie in one plane"
        )
    _, reach, thickness = _search_space(atoms, cutoff)
    images = np.prod(1.0 + 2.0 * reach / thickness[atoms.pbc])
    if images > MOST_IMAGES:
        raise ValueError(
            f"the cell is {thickness[atoms.pbc].min():.3g} thick and the structure "
            f"{thickness.max():.3g} long, with a cutoff of {cutoff:g}: {images:.1e} images of each "
            f"atom would have to be looked at, expected at most {MOST_IMAGES:.0e}; look at the "
            "units of the cell, or for a time step that is too long"
        )
    if thickness.max() > LONGEST * cutoff:
        raise ValueError(
            f"the structure is {thickness.max():.3g} long, expected at most {LONGEST:g} times the "
            f"cutoff of {cutoff:g}; look at the units, or for a time step that is too long"
        )
    far = np.flatnonzero((np.abs(atoms.positions) > LONGEST * cutoff).any(axis=1))
    if len(far):
        raise ValueError(
            f"atom {far[0]} is at {atoms.positions[far[0]].tolist()}, expected at most {LONGEST:g} "
            f"times the cutoff of {cutoff:g} from the origin, as rounding leaves too few digits "
            "beyond; wrap the atoms into the cell while they still have them"
        )


def cells_away(atoms: Atoms) -> np.ndarray:
    """How many cell vectors each atom is away from the cell, along periodic directions, [n, 3].

    Raises:
        numpy.linalg.LinAlgError: a structure that :func:`require_usable` refuses.
    """
    cell = np.where(atoms.pbc[:, None], np.asarray(atoms.cell), 0.0)
    inverse = np.linalg.inv(complete_cell(cell))
    return np.where(atoms.pbc, np.floor(atoms.positions @ inverse), 0.0).astype(np.int64)


def neighbor_list(
    quantities: str,
    atoms: Atoms,
    cutoff: float,
    species: np.ndarray | None = None,
    threads: int = 0,
) -> list[np.ndarray]:
    """What ase.neighborlist.neighbor_list gives, in a fiftieth of its time and always in one order.

    Args:
        quantities: letters of i, j, d, D and S, as ase has them: the two atoms, their distance,
            x_j - x_i of the image that is near, and that image in cell vectors.
        atoms: any structure; images of an atom in a small cell, itself included, are neighbors.
        cutoff: distance below which atoms are neighbors.
        species: whole numbers of atoms by which neighbors are sorted first, [n].
        threads: of vesin; 0 for all.

    Returns:
        One array for each letter, int64 or float64, sorted by i, species of j, j and S.

    Raises:
        ValueError: as of :func:`require_usable`.
    """
    require_usable(atoms, cutoff)
    n = len(atoms)
    # Half of the list, mirrored: two thirds of the time of the full one.
    box, reach, _ = _search_space(atoms, cutoff)
    search = vesin.NeighborList(cutoff=reach, full_list=False, n_threads=threads)
    # vesin counts cells in 32 bits; images of wrapped atoms are few, which helps the sorting too.
    home = np.floor(atoms.positions @ np.linalg.inv(box)).astype(np.int64)
    half = [np.zeros((0, 2)), np.zeros((0, 3)), np.zeros(0), np.zeros((0, 3))]
    if n:
        half = search.compute(atoms.positions - home @ box, box, True, "PSdD", copy=False)
    if reach > cutoff:
        half = [a[half[2] < cutoff] for a in half]
    pairs, image, d, rij = half
    i, j = pairs.astype(np.int64).T
    steps = image.astype(np.int64)
    image = steps + home[i] - home[j]
    wide = 2 * np.abs(steps).max(axis=0, initial=0) + 1
    place = (steps[:, 0] * wide[1] + steps[:, 1]) * wide[2] + steps[:, 2]
    i, j, place = np.r_[i, j], np.r_[j, i], np.r_[place, -place]
    # One key of all that is sorted by: sorting by several takes ten times as long.
    key = i if species is None else i * (int(species.max(initial=0)) + 1) + species[j]
    order = np.argsort((key * n + j) * int(wide.prod()) + place)
    arrays = {
        "i": lambda: i[order],
        "j": lambda: j[order],
        "d": lambda: np.r_[d, d][order],
        "D": lambda: np.r_[rij, -rij].take(order, axis=0),
        "S": lambda: np.r_[image, -image].take(order, axis=0),
    }
    return [arrays[q]() for q in quantities]


def _search_space(atoms: Atoms, cutoff: float) -> tuple[np.ndarray, float, np.ndarray]:
    """How to let vesin find the neighbors of a structure of any shape.

    vesin searches open directions too, but beside periodic ones in a time that grows as the square
    of their length; and where it has to merge so many bins of the cutoff that none is left across
    the thinnest direction, it divides by zero, which ends the process.

    Returns:
        A cell [3, 3] that is periodic along all its vectors, in open directions longer than the
        atoms and the cutoff together, and long enough beside the others; the distance to search
        within, at least the cutoff; the thickness [3] of that cell along its vectors.
    """
    open_ = ~atoms.pbc
    cell = np.array(atoms.cell)
    cell[open_] = 0.0
    cell = np.array(complete_cell(cell))  # unit vectors, normal to the periodic ones
    # The thickness along a is 1/|b x c / volume|.
    thickness = 1.0 / np.linalg.norm(np.linalg.inv(cell), axis=0)
    if open_.any():
        fractional = atoms.positions @ np.linalg.inv(cell)
        length = (
            fractional.max(axis=0) - fractional.min(axis=0) if len(atoms) else 0.0
        ) + 1.5 * cutoff
        thickness[open_] = np.where(open_, length, thickness).max()
        cell[open_] *= thickness[open_, None]
    reach = float(cutoff)
    bins = np.maximum(np.floor(thickness / reach), 1.0)
    while 2.0 * (bins / bins.min()).prod() > MOST_BINS:
        reach *= 2.0
        bins = np.maximum(np.floor(thickness / reach), 1.0)
    return cell, reach, thickness


def types_of(numbers: np.ndarray, elements: Sequence[int]) -> np.ndarray:
    """Index of each atomic number [n] among the elements, int64 [n]; -1 for others."""
    types = np.full(len(numbers), -1)
    for index, element in enumerate(elements):
        types[numbers == element] = index
    return types


def require_elements(atoms: Atoms, elements: Sequence[int]) -> None:
    """Raise ValueError for an atom of another element."""
    other = np.flatnonzero(~np.isin(atoms.numbers, elements))
    if len(other):
        raise ValueError(
            f"atom {other[0]} has atomic number {atoms.numbers[other[0]]}; the elements that take "
            f"part are {list(elements)}"
        )


def require_finite(atom_energy: np.ndarray, forces: np.ndarray) -> None:
    """Refuse results that are no numbers.

    Args:
        atom_energy: [n]
        forces: [n, 3]

    Raises:
        ValueError: one of them is NaN or infinite.
    """
    bad = np.flatnonzero(~(np.isfinite(atom_energy) & np.isfinite(forces).all(axis=1)))
    if len(bad):
        raise ValueError(
            f"the model gives a non-finite energy or force for atom {bad[0]}; look for overlapping "
            "atoms or a time step that is too long"
        )
