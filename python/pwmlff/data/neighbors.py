"""Neighbors of all atoms of all frames, found once: positions do not change while training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations_with_replacement, pairwise

import numpy as np
from ase.data import chemical_symbols

from pwmlff.data.frames import Frames
from pwmlff.evaluation import structures
from pwmlff.report import Failure
from pwmlff.threads import allowed_threads

CLOSEST = 0.3  # atoms nearer than this overlap


@dataclass(frozen=True)
class Edges:
    """The full neighbor list of all frames: an edge for each center and each of its neighbors.

    Edges are sorted by frame, center i, type of the neighbor, neighbor j, and its image.
    """

    rij: np.ndarray  # float64 [E, 3] x_j - x_i, of the image that is near
    j: np.ndarray  # int32 [E] in the frame, from 0
    count: np.ndarray  # int32 [natoms, ntypes] edges of each center and type of neighbor
    first: np.ndarray  # int64 [nframes + 1] where the edges of a frame begin
    types: np.ndarray  # int32 [natoms] index into elements
    elements: np.ndarray  # int32 [ntypes] atomic numbers
    cutoff: float

    def __len__(self) -> int:
        """Return the number of edges."""
        return len(self.j)

    @property
    def ntypes(self) -> int:
        """Number of types."""
        return len(self.elements)

    @property
    def centers(self) -> np.ndarray:
        """The atom of the set that is the center of each edge, int64 [E]."""
        return np.repeat(np.arange(len(self.types)), self.count.sum(axis=1))

    @property
    def frames(self) -> np.ndarray:
        """The frame of each edge, int64 [E]."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    @property
    def pairs(self) -> np.ndarray:
        """Type of the center times ntypes plus that of the neighbor, of each edge, int64 [E]."""
        pairs = self.types[:, None].astype(np.int64) * self.ntypes + np.arange(self.ntypes)
        return np.repeat(pairs.ravel(), self.count.ravel())

    def chunks(self, most: int) -> Iterator[range]:
        """Frames one after another, as many at a time as have `most` edges, or one."""
        return spans(self.first, most)

    @cached_property
    def distances(self) -> np.ndarray:
        """Length of each edge, float64 [E]."""
        lengths: np.ndarray = np.sqrt(np.einsum("ek,ek->e", self.rij, self.rij))
        return lengths

    @cached_property
    def closest(self) -> np.ndarray:
        """The shortest distance of each pair of types, infinite without one, [ntypes, ntypes]."""
        shortest = np.full(self.ntypes**2, np.inf)
        np.minimum.at(shortest, self.pairs, self.distances)
        return shortest.reshape(self.ntypes, self.ntypes)


def spans(first: np.ndarray, most: int) -> Iterator[range]:
    """Parts one after another, as many at a time as have `most` entries, or one.

    Args:
        first: [n + 1] where the entries of each part begin.
        most: entries.
    """
    begin, nparts = 0, len(first) - 1
    while begin < nparts:
        end = max(begin + 1, int(np.searchsorted(first, first[begin] + most, side="right")) - 1)
        yield range(begin, end)
        begin = end


def by_pair(elements: Sequence[int], shortest: np.ndarray) -> dict[str, float]:
    """Shortest distances [nelements**2] by pairs of elements, like "Hf-O": 1.9; finite ones."""
    symbols = [chemical_symbols[z] for z in elements]
    pairs = combinations_with_replacement(enumerate(symbols), 2)
    found = {f"{a}-{b}": float(shortest.flat[i * len(symbols) + j]) for (i, a), (j, b) in pairs}
    return {pair: distance for pair, distance in found.items() if np.isfinite(distance)}


def types_of(frames: Frames, elements: Sequence[int]) -> np.ndarray:
    """Type of each atom, int32 [natoms], by the order of the elements.

    Raises:
        Failure: a frame holds another element, or an element is there twice.
    """
    numbers = list(elements)
    if not numbers or len(set(numbers)) != len(numbers):
        raise Failure(f"elements are {numbers}, expected atomic numbers, each once")
    type_of = np.full(max([*numbers, *frames.elements]) + 1, -1, dtype=np.int32)
    type_of[numbers] = np.arange(len(numbers))
    types: np.ndarray = type_of[frames.numbers]
    strange = np.flatnonzero(types < 0)
    if len(strange):
        k = frames.frame_of(strange[0])
        raise Failure(
            f"{frames.where(k)} holds {chemical_symbols[frames.numbers[strange[0]]]}, expected "
            f"{' '.join(chemical_symbols[z] for z in numbers)}: name all elements, or leave the "
            "frame out"
        )
    return types


def find_edges(
    frames: Frames,
    elements: Sequence[int],
    cutoff: float,
    closest: float = CLOSEST,
    threads: int | None = None,
) -> Edges:
    """Find all neighbors nearer than a cutoff; the same whatever the number of threads.

    Args:
        frames: structures in any cell, also one that is smaller than the cutoff.
        elements: atomic numbers, in the order of the types.
        cutoff: largest distance, in the unit of the positions.
        closest: smallest distance that is no overlap.
        threads: how many frames at a time; as many as there are cores when None.

    Raises:
        Failure: a frame holds another element, overlapping atoms, or cannot be used.
    """
    if not 0.0 < cutoff < np.inf:
        raise Failure(f"the cutoff is {cutoff}, expected a positive number")
    types = types_of(frames, elements)
    threads = max(1, min(threads or allowed_threads(), len(frames)))
    # Several chunks for each thread, as frames differ in size.
    bounds = np.linspace(0, len(frames), min(len(frames), 8 * threads) + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        chunks = pool.map(
            lambda chunk: _chunk(frames, types, len(elements), cutoff, closest, range(*chunk)),
            pairwise(bounds),
        )
        nothing = np.zeros((0, 3)), np.zeros(0, np.int32), np.zeros((0, len(elements)), np.int32)
        rij, j, count = zip(nothing, *chain.from_iterable(chunks), strict=True)
    return Edges(
        rij=np.concatenate(rij),
        j=np.concatenate(j),
        count=np.concatenate(count),
        first=np.cumsum([len(part) for part in j], dtype=np.int64),  # nothing, then the frames
        types=types,
        elements=np.array(elements, dtype=np.int32),
        cutoff=float(cutoff),
    )


def require_usable(frames: Frames, k: int, cutoff: float) -> None:
    """Refuse a frame whose neighbors cannot be found.

    Raises:
        Failure: :func:`~pwmlff.evaluation.structures.require_usable` refuses it; the text names
            the frame.
    """
    with _naming(frames, k):
        structures.require_usable(frames.structure(k), cutoff)


@contextmanager
def _naming(frames: Frames, k: int) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise Failure(f"{frames.where(k)}: {error}") from None


def _chunk(
    frames: Frames, types: np.ndarray, ntypes: int, cutoff: float, closest: float, chosen: range
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Vectors, neighbors and counts of some frames, sorted."""
    result = []
    for k in chosen:
        species = types[frames.rows(k)]
        with _naming(frames, k):
            i, j, d, rij = structures.neighbor_list(
                "ijdD", frames.structure(k), cutoff, species, threads=1
            )
        _require_apart(frames, k, i, j, d, closest)
        count = np.bincount(i * ntypes + species[j], minlength=len(species) * ntypes)
        count = count.reshape(len(species), ntypes)
        result.append((rij, j.astype(np.int32), count.astype(np.int32)))
    return result


def _require_apart(
    frames: Frames, k: int, i: np.ndarray, j: np.ndarray, distances: np.ndarray, closest: float
) -> None:
    if not len(distances) or distances.min() >= closest:
        return
    nearest = distances.argmin()
    pair = sorted((int(i[nearest]), int(j[nearest])))
    symbols = [chemical_symbols[frames.numbers[frames.first[k] + atom]] for atom in pair]
    raise Failure(
        f"{frames.where(k)}: atoms {pair[0]} ({symbols[0]}) and {pair[1]} ({symbols[1]}) are "
        f"{distances[nearest]:.3g} apart, expected at least {closest:g}: they overlap; leave the "
        "frame out, or look at the units of positions and cell"
    )
