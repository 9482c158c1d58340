"""What every engine in Python asks of a structure, and of what it makes of it."""

from __future__ import annotations

import numpy as np
import vesin
from ase import Atoms

MOST_IMAGES = 1_000_000  # of one atom inside the cutoff


def require_usable(atoms: Atoms, cutoff: float) -> None:
    """Refuse a structure whose neighbours cannot be found.

    Args:
        atoms: any structure; without atoms it is fine.
        cutoff: distance within which neighbours are wanted.

    Raises:
        ValueError: a position or the cell is not finite, a periodic direction has no cell vector,
            or the cell is so thin that an atom would neighbour a million images of itself.
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
    if not atoms.pbc.any():
        return
    # Missing vectors count as normal to the others; the thickness along a is 1/|b x c / volume|.
    complete = np.asarray(atoms.cell.complete())
    volume = abs(np.linalg.det(complete))
    flat = atoms.pbc & (cell == 0.0).all(axis=1)
    if flat.any() or volume == 0.0:
        raise ValueError(
            f"the cell is {cell.tolist()} and periodic along {atoms.pbc.tolist()}; every periodic "
            "direction needs a cell vector, and they must not lie in one plane"
        )
    thickness = 1.0 / np.linalg.norm(np.linalg.inv(complete), axis=0)
    images = np.prod(1.0 + 2.0 * cutoff / thickness[atoms.pbc])
    if images > MOST_IMAGES:
        raise ValueError(
            f"the cell is {thickness[atoms.pbc].min():.3g} thick and the cutoff {cutoff:g}: an "
            f"atom would neighbour {images:.1e} images of itself, expected at most "
            f"{MOST_IMAGES:.0e}; look at the units of the cell"
        )


def neighbor_list(quantities: str, atoms: Atoms, cutoff: float) -> list[np.ndarray]:
    """What ase.neighborlist.neighbor_list gives, in a fiftieth of its time.

    Args:
        quantities: letters of i, j, d, D and S, as ase has them.
        atoms: a structure that :func:`require_usable` takes.
        cutoff: distance below which atoms are neighbours.

    Returns:
        One array for each letter, int64 or float64, sorted by i.
    """
    if len(atoms) == 0:
        empty = {"i": (0,), "j": (0,), "d": (0,), "D": (0, 3), "S": (0, 3)}
        kinds = {"i": np.int64, "j": np.int64, "S": np.int64}
        return [np.zeros(empty[q], kinds.get(q, np.float64)) for q in quantities]
    search = vesin.NeighborList(cutoff=float(cutoff), full_list=True, sorted=True)
    found = search.compute(
        points=atoms.positions,
        box=np.asarray(atoms.cell.complete()),  # vectors that are missing have no images
        periodic=atoms.pbc,
        quantities=quantities,
        copy=True,
    )
    return [a if a.dtype == np.float64 else a.astype(np.int64) for a in found]


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
