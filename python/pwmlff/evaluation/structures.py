"""What engines and training ask of a structure, its neighbors, and of what an engine gives."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms
from ase.geometry import complete_cell

if TYPE_CHECKING:
    from types import ModuleType

MOST_IMAGES = 1_000_000  # of one atom inside the cutoff
MOST_PAIRS = 1e7  # that are looked for at a time, about
MOST_BINS = 1e5  # of vesin 0.6
LONGEST = 1e12  # cutoffs; rounding leaves too few digits of distances beyond


class _NoTorch:
    """Keeps this thread from importing torch: that takes seconds, and vesin does it if it can."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """As importlib asks it; other modules are found by others."""
        if fullname == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(fullname)


def _vesin() -> ModuleType:
    """vesin, with torch only if that is loaded already; what others import stays as it is."""
    if "torch" in sys.modules or "vesin" in sys.modules:
        return importlib.import_module("vesin")
    finder = _NoTorch()
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module("vesin")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "vesin"]:
            del sys.modules[name]  # its own import is to take tensors


vesin = _vesin()


@dataclass(frozen=True)
class Result:
    """Energies and derivatives of one structure, float64, in the units of the model.

    Attributes:
        energy: total energy.
        atom_energy: [n] energies in atom order.
        forces: [n, 3] -dE/dx.
        virial: [3, 3] -dE/dstrain = -sum over edges of r_ij (x) dE/dr_ij, the sign of LAMMPS's
            `virial`: positive for a structure that wants to expand.
        charges: [n] e, of a model that has them, else None.
        born: [n, 3, 3] e, of such a model where wanted: Born effective charges, derivatives of the
            dipole moment (first index) by the position (second).
    """

    energy: float
    atom_energy: np.ndarray
    forces: np.ndarray
    virial: np.ndarray
    charges: np.ndarray | None = None
    born: np.ndarray | None = None


def require_periodic(atoms: Atoms) -> None:
    """Refuse a structure that charges of a model cannot take: they need periodic boundaries.

    Raises:
        ValueError: it is not periodic in all directions, or has no volume.
    """
    if not all(atoms.pbc) or atoms.cell.rank < 3:
        raise ValueError(
            f"the structure is periodic along {atoms.pbc.tolist()} with a cell of rank "
            f"{atoms.cell.rank}, but the model has charges, whose energy is that of a crystal; "
            "expected a cell that is periodic in all directions, with vacuum where there is a "
            "surface"
        )


def require_usable(atoms: Atoms, cutoff: float) -> None:
    """Refuse a structure whose neighbors cannot be found.

    Args:
        atoms: any structure; without atoms it is fine.
        cutoff: distance within which neighbors are wanted.

    Raises:
        ValueError: a position or the cell is masked or not finite; a periodic direction has no cell
            vector; the cell is so thin that there are a million images of an atom to look at; the
            structure is a million million cutoffs long, or as far from the origin.
    """
    require_unmasked(atoms)
    bad = np.flatnonzero(~np.isfinite(np.asarray(atoms.positions)).all(axis=1))
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


def require_unmasked(atoms: Atoms) -> None:
    """Raise ValueError where a number of an atom is masked: what lies under it would be taken."""
    for what, values in (("a position", atoms.positions), ("an atomic number", atoms.numbers)):
        if np.ma.is_masked(values):
            missing = np.ma.getmaskarray(values).reshape(len(atoms), -1).any(axis=1)
            raise ValueError(
                f"atom {np.flatnonzero(missing)[0]} has {what} that is masked, expected numbers; "
                "fill in what is missing, or leave the atom out"
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
    far = "d" if reach > cutoff else ""
    wanted = "PS" + "".join(letter for letter in "dD" if letter in quantities + far)
    search = vesin.NeighborList(cutoff=reach, full_list=False, n_threads=threads)
    # vesin counts cells in 32 bits; images of wrapped atoms are few, which helps the sorting too.
    home = np.floor(atoms.positions @ np.linalg.inv(box)).astype(np.int64)
    half = {"P": np.zeros((0, 2)), "S": np.zeros((0, 3)), "d": np.zeros(0), "D": np.zeros((0, 3))}
    if n:
        pairs = search.compute(atoms.positions - home @ box, box, True, wanted, copy=False)
        half = dict(zip(wanted, pairs, strict=True))
    if far:
        close = half["d"] < cutoff
        half = {letter: values[close] for letter, values in half.items()}
    i, j = half["P"].astype(np.int64).T
    steps = half["S"].astype(np.int64)
    image = steps + home[i] - home[j]
    wide = 2 * np.abs(steps).max(axis=0, initial=0) + 1
    shift = (steps[:, 0] * wide[1] + steps[:, 1]) * wide[2] + steps[:, 2]
    i, j, shift = np.r_[i, j], np.r_[j, i], np.r_[shift, -shift]
    # One key of all that is sorted by: sorting by several takes ten times as long.
    key = i if species is None else i * (int(species.max(initial=0)) + 1) + species[j]
    order = np.argsort((key * n + j) * int(wide.prod()) + shift)
    arrays = {
        "i": lambda: i[order],
        "j": lambda: j[order],
        "d": lambda: np.r_[half["d"], half["d"]][order],
        "D": lambda: np.r_[half["D"], -half["D"]].take(order, axis=0),
        "S": lambda: np.r_[image, -image].take(order, axis=0),
    }
    return [arrays[q]() for q in quantities]


@dataclass(frozen=True)
class Slab:
    """A part of a structure with all that is near it."""

    members: np.ndarray  # [m] atoms, ascending
    is_center: np.ndarray  # [m] those whose neighbors are wanted; others are near one
    steps: np.ndarray  # [m, 3] cell vectors that each was moved by; 0 for centers
    atoms: Atoms  # the members


def slabs(atoms: Atoms, cutoff: float, most_pairs: float = MOST_PAIRS) -> Iterator[Slab]:
    """Cut a structure across its longest direction, for neighbors that are found part by part.

    A list of pairs takes 200 bytes for each of them while it is made.

    Args:
        atoms: inside the cell along periodic directions; one that :func:`require_usable` takes.
        cutoff: distance within which neighbors are wanted.
        most_pairs: that a slab has, about; fewer atoms are in one slab.
    """
    cell, _, thickness = _search_space(atoms, cutoff)
    fractional = atoms.positions @ np.linalg.inv(cell)
    low = np.where(atoms.pbc, 0.0, fractional.min(axis=0, initial=np.inf))
    share = np.where(atoms.pbc, 1.0, fractional.max(axis=0, initial=-np.inf) - low)
    length = share * thickness
    n, axis = len(atoms), int(length.argmax())
    volume = abs(np.linalg.det(cell)) * (np.maximum(length, cutoff) / thickness).prod()
    pairs = n * min(4.0 / 3.0 * np.pi * cutoff**3 * n / volume, n)
    # Slabs of more than twice the cutoff: with what is near, less than the cell.
    number = int(min(np.ceil(pairs / most_pairs), length[axis] // (2.1 * cutoff))) if n else 1
    if number < 2:
        yield Slab(np.arange(n), np.ones(n, dtype=bool), np.zeros((n, 3), dtype=np.int64), atoms)
        return
    u = (fractional[:, axis] - low[axis]) / share[axis]
    home = np.minimum((u * number).astype(np.int64), number - 1)
    margin = 1.001 * cutoff / length[axis]
    pbc = np.where(np.arange(3) == axis, False, atoms.pbc)
    for k in range(number):
        first, last = k / number - margin, (k + 1) / number + margin
        step = np.zeros(n, dtype=np.int64)
        if atoms.pbc[axis]:
            step = (u + 1.0 <= last).astype(np.int64) - (u - 1.0 >= first)
        members = np.flatnonzero((u + step >= first) & (u + step <= last))
        steps = np.zeros((len(members), 3), dtype=np.int64)
        steps[:, axis] = step[members]
        part = Atoms(
            atoms.numbers[members],
            atoms.positions[members] + steps @ np.asarray(atoms.cell),
            cell=atoms.cell,
            pbc=pbc,
        )
        yield Slab(members, home[members] == k, steps, part)


def _search_space(atoms: Atoms, cutoff: float) -> tuple[np.ndarray, float, np.ndarray]:
    """How to let vesin find the neighbors of a structure of any shape.

    vesin searches open directions too, but beside periodic ones in a time that grows as the square
    of their length. Where it merges so many bins of the cutoff that none is left across the
    thinnest direction, it divides by zero, which ends the process.

    Returns:
        A cell [3, 3] that is periodic along all its vectors; open directions are longer than the
        atoms and the cutoff together, and long enough beside the others. The distance to search
        within, at least the cutoff. The thickness [3] of that cell along its vectors.
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


#: Edge of a box in which a random cluster has no image nearby, in cutoffs.
CLUSTER_BOX = 12.0


def random_cluster(
    cutoff: float,
    elements: Sequence[int],
    limit: int | None,
    seed: int = 20250722,
    apart: float = 0.4,
) -> Atoms:
    """A cluster of these elements, and an isolated atom; no more than `limit` of one element.

    Args:
        cutoff: of the model.
        elements: atomic numbers, which atoms have in turn.
        limit: of atoms of one element; None for any.
        seed: of the positions.
        apart: shortest distance of two atoms, in cutoffs.
    """
    rng = np.random.default_rng(seed)
    wanted = max(24, len(elements))
    natoms = wanted if limit is None else min(wanted, limit * len(elements))
    edge = 1.5 * cutoff * (wanted / 24) ** (1 / 3)
    positions = np.empty((0, 3))
    while len(positions) < natoms:
        trial = edge * rng.random(3)
        if (np.linalg.norm(positions - trial, axis=1) > apart * cutoff).all():
            positions = np.vstack((positions, trial))
    positions = np.vstack((positions, np.full(3, 10.0 * cutoff)))
    return Atoms([elements[i % len(elements)] for i in range(len(positions))], positions)


def in_box(atoms: Atoms, edge: float) -> Atoms:
    """Give atoms a periodic cube with this edge, in angstrom, as models with charges need one."""
    atoms.set_cell([edge] * 3)
    atoms.pbc = True
    return atoms


def crystal(cutoff: float, elements: Sequence[int], limit: int | None) -> tuple[Atoms, int]:
    """A face-centered cubic crystal of 108 atoms, and how many neighbors each has.

    There are as many shells of neighbors as the cutoff and `limit` neighbors of one element leave
    room for; no atoms where not even the first does.
    """
    from ase.build import bulk  # noqa: PLC0415  slow to import

    for squared, neighbors in ((4.5, 54), (3.5, 42), (1.5, 12)):  # between two shells
        if limit is None or neighbors <= limit:
            atoms = bulk("X", "fcc", a=cutoff * np.sqrt(2.0 / squared), cubic=True).repeat(3)
            atoms.numbers = [elements[i % len(elements)] for i in range(len(atoms))]
            return atoms, neighbors
    return Atoms(), 0
