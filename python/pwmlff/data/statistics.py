"""What a model takes from its training set before the first step.

The environment matrix is that of :mod:`pwmlff.models.dp`; for atoms of type a, over all its slots
(ntypes * max_neighbor of each atom, empty ones hold zeros)::

    davg[a] = (mean of s, 0, 0, 0)
    dstd[a] = (deviation of s, d, d, d),   d^2 = mean of s^2 / 3

The angular components s x/r, s y/r, s z/r have no mean and share one deviation, or the model would
prefer a direction in space.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from ase.data import chemical_symbols

from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges, spans
from pwmlff.report import Failure
from pwmlff.threads import allowed_threads

log = logging.getLogger(__name__)

MARGIN = 1.5  # slots per neighbor of the fullest atom: a melt, or a run under pressure, is denser
CHUNK = 1 << 18  # edges at a time
#: Smallest deviation: types without neighbors have none, and are divided by it.
SMALLEST = 1e-2
#: Ridge of the energies of types, as a share of the largest eigenvalue of the normal matrix.
RIDGE = 1e-12
RANK = 1e-8  # singular values below this share of the largest one are none


@dataclass(frozen=True)
class Statistics:
    """Of all frames; energies and lengths in the units of the frames."""

    davg: np.ndarray  # [ntypes, 4]
    dstd: np.ndarray  # [ntypes, 4]
    max_neighbor: int  # slots for neighbors of one type, with a margin
    energy_shift: np.ndarray  # [ntypes] energy of an atom of each type
    energy_std: float  # of (energy - sum of shifts) / atom; NaN without energies


def compute(
    frames: Frames,
    edges: Edges,
    rmin: float,
    rmax: float,
    max_neighbor: int | None = None,
    others: Edges | None = None,
) -> Statistics:
    """Statistics over all frames.

    Args:
        frames: with or without labels.
        edges: their neighbors within rmax or farther.
        rmin: radius at which the switch of the environment matrix begins.
        rmax: radius where it ends.
        max_neighbor: slots per neighbor type; the fullest atom times the margin when None.
        others: neighbors, within rmax, of frames that the slots have to hold too.

    Raises:
        Failure: there is no frame, the radii are none, or an atom has more neighbors than slots.
    """
    if not len(frames):
        raise Failure("found no frame, expected at least one to make statistics of")
    if not 0.0 <= rmin < rmax or rmax > edges.cutoff * (1.0 + 1e-12):
        raise Failure(
            f"rmin is {rmin:g} and rmax {rmax:g}, expected 0 <= rmin < rmax and rmax at most "
            f"{edges.cutoff:g}, within which neighbors are known"
        )
    count, total, squares = _moments(edges, rmin, rmax)
    most = int(count.max(initial=0))
    if max_neighbor is None:
        fullest = max(most, 0 if others is None else int(others.count.max(initial=0)))
        max_neighbor = max(1, int(np.ceil(MARGIN * fullest - 1e-9)))
    require_slots(frames, edges, count, max_neighbor, rmax)
    slots = np.bincount(edges.types, minlength=edges.ntypes) * edges.ntypes * max_neighbor
    slots = np.maximum(slots, 1)
    mean, square = total / slots, squares / slots
    radial = np.sqrt(np.maximum(square - mean**2, 0.0))
    angular = np.sqrt(square / 3.0)
    zero = np.zeros(edges.ntypes)
    dstd = np.stack([radial, angular, angular, angular], axis=1)
    # A type with hardly any neighbors would have its noise blown up.
    dstd[dstd < SMALLEST] = SMALLEST
    shift = shifts(frames, edges)
    natoms = frames.natoms
    residual = (frames.energies - counts_of_types(frames, edges) @ shift) / np.maximum(natoms, 1)
    counted = (natoms > 0) & (~frames.isolated | frames.isolated.all())
    residual = residual[np.isfinite(residual) & counted]
    return Statistics(
        davg=np.stack([mean, zero, zero, zero], axis=1),
        dstd=dstd,
        max_neighbor=max_neighbor,
        energy_shift=shift,
        energy_std=float(residual.std()) if len(residual) else float("nan"),
    )


def charges_of_elements(frames: Frames) -> np.ndarray:
    """Born charges [natoms, 3, 3] of atoms with one charge for each element.

    That is the mean of a third of the trace over the atoms with labels; zero without any.
    """
    labelled = np.repeat(frames.has_born, frames.natoms)
    born = np.zeros((len(frames.numbers), 3, 3))
    for z in frames.elements if labelled.any() else ():
        alike = frames.numbers == z
        if (known := labelled & alike).any():
            traces = np.trace(frames.born[known], axis1=1, axis2=2)
            born[alike] = traces.mean() / 3.0 * np.eye(3)
    return born


def require_slots(
    frames: Frames, edges: Edges, count: np.ndarray, max_neighbor: int, rmax: float
) -> None:
    """Refuse frames with more neighbors than there are slots for.

    Args:
        frames, edges: structures, and their neighbors.
        count: [natoms, ntypes] those of them within rmax.
        max_neighbor: slots per neighbor type.
        rmax: cutoff, for the message.

    Raises:
        Failure: an atom has too many; the text names the frame.
    """
    most = int(count.max(initial=0))
    if most > max_neighbor:
        atom, species = np.unravel_index(count.argmax(), count.shape)
        k = frames.frame_of(int(atom))
        raise Failure(
            f"{frames.where(k)}: atom {atom - frames.first[k]} has {most} neighbors of "
            f"{chemical_symbols[edges.elements[species]]} within {rmax:g}, and the model has "
            f"{max_neighbor} slots for them; make [model] max_neighbor "
            f"{int(np.ceil(MARGIN * most))}, leave the frame out, or take another model to go on "
            "from"
        )


def switched(r: np.ndarray, rmin: float, rmax: float) -> np.ndarray:
    """s(r) of :mod:`pwmlff.models.dp`."""
    u = np.clip((r - rmin) / (rmax - rmin), 0.0, 1.0)
    s: np.ndarray = (1.0 + u * u * u * ((-6.0 * u + 15.0) * u - 10.0)) / r
    return s


def _moments(edges: Edges, rmin: float, rmax: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Over edges within rmax: how many of each center and type, sums of s and s^2.

    Returns:
        int64 [natoms, ntypes], [ntypes], [ntypes]
    """
    ntypes = edges.ntypes
    total, squares = np.zeros(ntypes), np.zeros(ntypes)
    count = edges.count.astype(np.int64)
    # The edges of one center and type of neighbor are together.
    block = np.flatnonzero(count)
    begin = np.r_[0, np.cumsum(count.ravel()[block])]
    center = edges.types[block // ntypes]
    nearby = np.zeros(len(block), dtype=np.int64)

    def sums(span: range) -> tuple[np.ndarray, np.ndarray]:
        chunk = slice(span.start, span.stop)
        rij = edges.rij[begin[chunk.start] : begin[chunk.stop]]
        r = np.sqrt(np.einsum("ek,ek->e", rij, rij))
        s = switched(r, rmin, rmax)
        here = begin[chunk] - begin[chunk.start]
        nearby[chunk] = np.add.reduceat(r < rmax, here, dtype=np.int64)
        return (
            np.bincount(center[chunk], np.add.reduceat(s, here), ntypes),
            np.bincount(center[chunk], np.add.reduceat(s * s, here), ntypes),
        )

    with ThreadPoolExecutor(allowed_threads()) as pool:
        for s, square in pool.map(sums, spans(begin, CHUNK)):
            total += s
            squares += square
    count.ravel()[block] = nearby
    return count, total, squares


def shares(frames: Frames, edges: Edges) -> np.ndarray:
    """Shares of the types in the atoms of each frame, [nframes, ntypes]."""
    counts = counts_of_types(frames, edges)
    result: np.ndarray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return result


def fitted(share: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Energies of types [ntypes] that come nearest to energies per atom, by least squares.

    With a ridge so small that it decides only what the shares leave open.

    Args:
        share: [k, ntypes] of the types in the atoms of each frame.
        energy: [k] per atom.
    """
    scale = np.linalg.norm(share, 2) ** 2 if share.size else 1.0
    normal = share.T @ share + RIDGE * scale * np.eye(share.shape[1])
    result: np.ndarray = np.linalg.solve(normal, share.T @ energy)
    return result


def counts_of_types(frames: Frames, edges: Edges) -> np.ndarray:
    """Atoms of each type, [nframes, ntypes]."""
    frame = np.repeat(np.arange(len(frames)), frames.natoms)
    flat = np.bincount(frame * edges.ntypes + edges.types, minlength=len(frames) * edges.ntypes)
    return flat.reshape(len(frames), edges.ntypes).astype(np.float64)


def isolated_energies(frames: Frames, edges: Edges) -> np.ndarray:
    """Energies of types that isolated atoms have, the mean of several; NaN without, [ntypes]."""
    chosen = np.flatnonzero(frames.isolated & np.isfinite(frames.energies))
    types = edges.types[frames.first[chosen]]
    count = np.bincount(types, minlength=edges.ntypes)
    total = np.bincount(types, frames.energies[chosen], edges.ntypes)
    result: np.ndarray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return result


def shifts(frames: Frames, edges: Edges) -> np.ndarray:
    """Energies of single atoms that come nearest to the energies of all frames.

    Least squares of energies per atom on shares of types, with a ridge so small that it decides
    only what the frames leave open: then the smallest squares, which spread an energy over types
    as evenly as their shares, and a warning. Isolated atoms are none of these frames: where
    they are there of all types, energies are spread evenly beside theirs. A type that no other
    frame holds has the energy of its isolated atom, or 0.

    Returns:
        [ntypes]
    """
    known = np.isfinite(frames.energies) & (frames.natoms > 0)
    if not known.any():
        log.warning("no frame has an energy: the energy of an atom of each type is taken to be 0")
        return np.zeros(edges.ntypes)
    alone = isolated_energies(frames, edges)
    if (known & ~frames.isolated).any():
        known &= ~frames.isolated
    share = shares(frames, edges)[known]
    energy = frames.energies[known] / frames.natoms[known]
    present = share.any(axis=0)
    singular = np.linalg.svd(share, compute_uv=False)
    rank = int((singular > RANK * singular[0]).sum())
    mean = np.zeros(edges.ntypes)
    if rank < present.sum() and np.isfinite(alone[present]).all():
        mean[present] = alone[present]
        mean[present] += (energy - share @ mean).mean()
    elif rank < present.sum():
        names = " ".join(chemical_symbols[z] for z in edges.elements[present])
        log.warning(
            "the compositions of the frames tell %d of the energies of single atoms of %s, not %d: "
            "they are spread evenly; it makes no difference to a model as long as compositions "
            "stay the same; otherwise add frames of other compositions or of single atoms",
            *(rank, names, int(present.sum())),
        )
        # All types get the mean first, so that what is left open is shared by all alike.
        mean = np.full(edges.ntypes, energy.mean()) * present
    result = mean + fitted(share, energy - share @ mean)
    return np.where(present | np.isnan(alone), result, alone)
