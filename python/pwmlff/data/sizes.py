"""Labels that no structure has, found in one frame alone.

- *Forces*: electrons screen nuclei. So the force on an atom stays below that of bare nuclei
  (Hellmann and Feynman, doi:10.1103/PhysRev.56.340), e^2 Z_i sum_j Z_j / r_ij^2.
- *Forces that are all zero*: true where the neighbors of each atom pull alike in all directions, as
  in a perfect crystal; elsewhere they were not computed.
- *Pressures*: 10,000 GPa are three times those in the middle of Jupiter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from ase.data import covalent_radii
from ase.units import Bohr, GPa, Hartree

from pwmlff.data import neighbors
from pwmlff.data.finding import Finding
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.report import Failure

REACH = 4.0  # angstrom, of neighbors that are looked at
LARGEST_FORCE, TIMES_NUCLEI = 1e3, 10.0  # eV/angstrom from which nuclei are asked, with their room
LARGEST_PRESSURE = 1e4 * GPa
BONDED = 1.25  # of the sum of covalent radii, within which a neighbor does pull
#: Sum of the directions to the neighbors of one element, weighted by distance, over the weights.
UNEVEN = 0.02


def force_findings(frames: Frames, chosen: np.ndarray, file: str) -> Iterator[Finding]:
    """Forces of a file that are all zero, or larger than any."""
    largest = frames.reduce_atoms(frames.force_sizes, np.maximum)[chosen]
    still: list[int] = []
    even: list[int] = []
    for k in chosen[(largest == 0.0) & (frames.natoms[chosen] > 1)].tolist():
        edges = _edges(frames, k)
        if edges is not None:
            (still if _pulled(edges) else even).append(k)
    if still:
        yield Finding(
            f"the forces of {len(still)} of {len(chosen)} frames of '{file}' are all zero, the "
            f"first of them {frames.index[still[0]]}, and its atoms are on no places of symmetry: "
            "they were not computed; leave the forces or the frames out",
            "forces",
        )
    if even:
        yield Finding(
            f"the forces of {len(even)} of {len(chosen)} frames of '{file}' are all zero, the "
            f"first of them {frames.index[even[0]]}: true of perfect crystals, and of atoms that "
            "are far apart",
            "forces",
            warning=False,
        )
    for k in chosen[np.isfinite(largest) & (largest > LARGEST_FORCE)].tolist():
        edges = _edges(frames, k)
        if edges is None:
            continue
        numbers, sizes = frames.numbers[frames.rows(k)], frames.force_sizes[frames.rows(k)]
        pull = numbers[edges.centers] * numbers[edges.j] / edges.distances**2
        bound = Hartree * Bohr * np.bincount(edges.centers, pull, len(numbers))
        bound = np.maximum(TIMES_NUCLEI * bound, LARGEST_FORCE)
        atom = int(np.argmax(sizes / bound))
        if sizes[atom] > bound[atom]:
            yield Finding(
                f"{frames.where(k)}: the force of atom {atom} is {sizes[atom]:.3g}, expected less "
                f"than {bound[atom]:.3g}, {TIMES_NUCLEI:g} times that of bare nuclei at these "
                "distances: its unit is wrong, or it is no result",
                "forces",
                frame=k,
            )


def pressures(frames: Frames) -> np.ndarray:
    """Pressure of each frame by its virial, eV/angstrom^3 [nframes]; NaN without one or a cell."""
    volume = np.where(frames.pbc.all(axis=1) & (frames.volumes > 0.0), frames.volumes, np.nan)
    pressure: np.ndarray = np.trace(frames.virials, axis1=1, axis2=2) / (3.0 * volume)
    return pressure


def without_largest(frames: Frames) -> Frames:
    """The same without virials of pressures larger than any, where those are few in their file."""
    absurd = np.abs(pressures(frames)) > LARGEST_PRESSURE
    share = np.bincount(frames.file, absurd) / np.maximum(np.bincount(frames.file), 1)
    few = (absurd & (share < 0.5)[frames.file])[:, None, None]
    return replace(frames, virials=np.where(few, np.nan, frames.virials))


def pressure_findings(frames: Frames, chosen: np.ndarray, file: str) -> Iterator[Finding]:
    """Virials of a file that mean pressures larger than any."""
    pressure = pressures(frames)[chosen]
    wrong = np.flatnonzero(np.abs(pressure) > LARGEST_PRESSURE)
    if len(wrong):
        yield Finding(
            f"the virial or stress of {len(wrong)} of {len(chosen)} frames of '{file}' means "
            f"{pressure[wrong[0]] / GPa:.3g} GPa in the first of them, "
            f"{frames.index[chosen[wrong[0]]]}, expected less than {LARGEST_PRESSURE / GPa:g}: its "
            "unit is wrong (bar or kbar for eV/angstrom^3?)",
            "stress",
            virials=tuple(chosen[wrong].tolist()),
        )


def _edges(frames: Frames, k: int) -> Edges | None:
    """Neighbors in frame k; None where they cannot be found, which the check says by itself."""
    frame = frames.select([k])
    try:
        return neighbors.find_edges(frame, frame.elements, REACH, closest=0.0, threads=1)
    except Failure:
        return None


def _pulled(edges: Edges) -> bool:
    """Whether an atom has a bond, and neighbors that do not pull alike in all directions."""
    natoms, ntypes = len(edges.types), edges.ntypes
    numbers = np.asarray(edges.elements)[edges.types]
    radii = covalent_radii[numbers]
    bonded = np.zeros(natoms, dtype=bool)
    short = edges.distances < BONDED * (radii[edges.centers] + radii[edges.j])
    bonded[edges.centers[short]] = True
    index = edges.centers * ntypes + edges.types[edges.j]
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = (1.0 - (edges.distances / REACH) ** 2) ** 3
        sums = [
            np.bincount(index, weight * edges.rij[:, c] / edges.distances, natoms * ntypes)
            for c in range(3)
        ]
        total = np.bincount(index, weight, natoms * ntypes)
        uneven = np.sqrt(np.square(sums).sum(axis=0)) > UNEVEN * total
    return bool((uneven.reshape(natoms, ntypes).any(axis=1) & bonded).any())
