"""Sources of training data, files or groups in them, whose energies have another zero.

Programs, pseudopotentials and references of energy differ by a constant for each atom of an
element; structures differ by what they are. Which of the two it is, is told by structures that are
alike. A frame is described by sums over its pairs of elements (a, b), per atom,

    phi_k(ab) = 1/n sum_ij (1 - (r_ij / cutoff)^2)^3 / (1 + r_ij)^(2k),    k = 0 .. 3,

so that the energy of pairs would be linear in it. Between two sources A and B, and with x the
shares of the elements in a frame, least squares of

    E/n = x . mu + x . delta [in B] + w . phi + noise,    w ~ N(0, slope^2),

give the energies delta that atoms have in B and not in A. They have a deviation, which is large
where the structures themselves tell A from B. The slope is in proportion to forces times distances
of neighbors, which are the energies of what is there, so that units do not matter. An offset counts
where it is beyond its deviation and beyond what the distance of the nearest structures of the two
explains; energies of one phase at several temperatures and volumes, of phases, surfaces and
liquids stay far below that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from ase.data import chemical_symbols

from pwmlff.data.finding import Finding
from pwmlff.data.frames import Frames, named
from pwmlff.data.neighbors import Edges

POWERS = 4  # of distances
#: Force times distance of neighbors that is the least to reckon with, eV; slopes of energies per
#: atom and the noise of the fit, of such a work; what nearest structures may differ by.
LEAST_WORK, SLOPE, NOISE, STEEPEST = 2.0, 7.5, 0.001, 6.0
DEVIATIONS, LEAST = 8.0, 0.01  # an offset is beyond so many, and so many eV/atom
#: An energy is far from what others tell where it is beyond so many medians of that; one frame of
#: so many may be.
ODD, MOST_ODD = 5.0, 10
CLOSELY = 0.02  # deviation, of such a work, of an offset that is known to be none
ALIKE = 0.02  # relative distance of nearest structures of sources that go together
FEWEST, MOST = 3, 200  # frames of a source that are looked at
MOST_OF_ALL = 6000
CANDIDATES = 4  # sources that one is compared with, the likest ones
SPANNED = 1e-6  # how far shares of elements are from those that another source tells


@dataclass(frozen=True)
class Description:
    """What sources are compared by, frame by frame."""

    phi: np.ndarray  # [nframes, npairs, POWERS]
    work: np.ndarray  # [nframes] rms force times distance of nearest neighbors; NaN where unknown

    @classmethod
    def joined(cls, parts: Sequence[Description]) -> Description:
        """Of several sets of frames with the same elements, one after another."""
        return cls(
            np.concatenate([part.phi for part in parts]),
            np.concatenate([part.work for part in parts]),
        )


@dataclass(frozen=True)
class Comparison:
    """Energies of atoms in one source above those in another."""

    energies: np.ndarray  # [nelements] eV
    elements: tuple[int, ...]  # of the first of the two
    by_element: bool  # whether its compositions tell the elements apart
    mean: float  # eV/atom of its frames
    deviation: float  # of the mean
    distance: float  # of the nearest structures
    significant: bool
    one_zero: bool  # whether they are alike and their energies are, too
    nframes: int  # of both, that told


@dataclass(frozen=True)
class Offset:
    """How far the energies of a source are from those of the ones before it."""

    source: np.ndarray  # its frames
    name: str
    reference: str  # the source that it was compared with
    reference_file: str  # where that one begins
    energies: np.ndarray  # [nelements] eV for each atom, above those of the first source
    compared: Comparison  # with the reference


def describe(frames: Frames, edges: Edges) -> Description:
    """Describe frames by their neighbors, of all elements that any source has."""
    n, nframes = edges.ntypes, len(frames)
    pair, frame, r = edges.pairs, edges.frames, edges.distances
    weight = (1.0 - (r / edges.cutoff) ** 2) ** 3
    phi = np.empty((nframes, n * n, POWERS))
    natoms = np.maximum(frames.natoms, 1)[:, None]
    for k in range(POWERS):
        sums = np.bincount(frame * n * n + pair, weight, nframes * n * n)
        phi[:, :, k] = sums.reshape(nframes, n * n) / natoms
        weight = weight / (1.0 + r) ** 2
    nearest = np.full(nframes, np.inf)
    np.minimum.at(nearest, frame, r)
    of_atom = np.repeat(np.arange(nframes), frames.natoms)
    squares = np.bincount(of_atom, (frames.forces**2).sum(axis=1), nframes) / natoms[:, 0]
    with np.errstate(invalid="ignore"):
        work = np.sqrt(squares) * nearest
    return Description(phi, np.where(np.isfinite(work), work, np.nan))


def findings(
    frames: Frames, shifted: Sequence[Offset], others: Sequence[Finding] = ()
) -> list[Finding]:
    """One line for each source whose energies have another zero.

    Args:
        frames: all of them.
        shifted: sources and their zeros.
        others: findings; zeros of files that these tell to be in other units mean nothing.
    """
    result = []
    named_files = {finding.source for finding in others}
    for offset in shifted:
        compared = offset.compared
        if named_files & {frames.files[frames.file[offset.source[0]]], offset.reference_file}:
            continue
        side = "above" if compared.mean > 0 else "below"
        text = (
            f"the energies of {offset.name} are {abs(compared.mean):.4g} +- "
            f"{compared.deviation:.1g} per atom {side} those of {offset.reference} in structures "
            f"that are alike ({compared.nframes} frames): another program, pseudopotential or "
            f"reference of energies; {_listed(frames, offset)}, to be taken off by --shift-sources "
            "of pwmlff train ([data] shift_sources)"
        )
        result.append(Finding(text, "sources"))
    return result


def aligned(frames: Frames, shifted: Sequence[Offset]) -> tuple[Frames, list[str]]:
    """Frames with energies that have the zero of the first source, and what was done, in words.

    Sources whose structures are like none of the others, and those of the same zero, stay as they
    are. The result is the same on any number of ranks.
    """
    energies = frames.energies.copy()
    texts = []
    for offset in shifted:
        energies[offset.source] -= frames.counts[offset.source] @ offset.energies
        texts.append(
            f"{_listed(frames, offset)} are taken off the energies of {offset.name} "
            f"({len(offset.source)} frames), as structures like those of {offset.reference} tell"
        )
    return replace(frames, energies=energies), texts


def _listed(frames: Frames, offset: Offset) -> str:
    """Energies of atoms in words."""
    listed = ", ".join(
        f"{chemical_symbols[z]} {energy:+.6g}"
        for z, energy in zip(frames.elements, offset.energies, strict=True)
        if z in offset.compared.elements
    )
    alike = " (alike, as the compositions do not tell them apart)"
    return f"energies of atoms {listed} eV{'' if offset.compared.by_element else alike}"


# ---- which sources there are


@dataclass(frozen=True)
class _Set:
    """All frames, and what comparisons look at."""

    frames: Frames
    description: Description
    most: int  # frames of a source that are looked at
    share: np.ndarray  # [nframes, nelements]
    energy: np.ndarray  # [nframes] per atom


@dataclass
class _Cluster:
    """Sources that have one zero."""

    name: str  # of the first one
    frames: np.ndarray
    offset: Offset | None  # of the first one


def offsets(frames: Frames, description: Description) -> list[Offset]:
    """Sources whose energies have another zero than those before them, in their order."""
    known = np.isfinite(frames.energies) & (frames.natoms > 0)
    named_sources = _sources(frames, known)
    most = max(3 * FEWEST, min(MOST, MOST_OF_ALL // max(1, len(named_sources))))
    share = frames.counts / np.maximum(frames.natoms, 1)[:, None]
    every = _Set(frames, description, most, share, frames.energies_per_atom)
    sources = [part for name, chosen in named_sources for part in _pieces(every, name, chosen)]
    clusters: list[_Cluster] = []
    result = []
    for name, chosen in sources:
        compared = sorted(_compared(every, clusters, chosen), key=lambda pair: pair[0].distance)
        offset = None
        home = next((cluster for comparison, cluster in compared if comparison.one_zero), None)
        if home is not None:
            home.frames = np.r_[home.frames, chosen]
            offset = home.offset and replace(home.offset, source=chosen, name=name)
        else:
            if compared and compared[0][0].significant:
                comparison, cluster = compared[0]
                others = 0.0 if cluster.offset is None else cluster.offset.energies
                energies = others + comparison.energies
                file = frames.files[frames.file[cluster.frames[0]]]
                offset = Offset(chosen, name, cluster.name, file, energies, comparison)
            clusters.append(_Cluster(name, chosen, offset))
        if offset is not None:
            result.append(offset)
    return result


def _compared(
    every: _Set, clusters: Sequence[_Cluster], chosen: np.ndarray
) -> list[tuple[Comparison, _Cluster]]:
    """A source with those that are the likest by the means of their frames."""

    def middle(part: np.ndarray) -> np.ndarray:
        mean: np.ndarray = every.description.phi[_sample(part, every.most)].mean(axis=0).ravel()
        return mean

    here = middle(chosen)
    likest = sorted(clusters, key=lambda c: float(((middle(c.frames) - here) ** 2).sum()))
    compared = ((_compare(every, cluster.frames, chosen), cluster) for cluster in likest)
    compared_pairs = ((comparison, cluster) for comparison, cluster in compared if comparison)
    return list(islice(compared_pairs, CANDIDATES))


def _sources(frames: Frames, known: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Names and frames of files, and of groups in them that are large enough."""
    result = []
    for file, name in enumerate(frames.files):
        here = np.flatnonzero(known & (frames.file == file))
        group, sizes = frames.group[here], np.bincount(frames.group[here])
        large = np.flatnonzero(sizes >= FEWEST)
        if (sizes > 0).sum() == 1 or not len(large):
            result.append((f"'{name}'", here))
            continue
        result += [
            (f"group '{frames.group_names[g]}' of '{name}'", here[group == g]) for g in large
        ]
        result.append((f"other groups of '{name}'", here[~np.isin(group, large)]))
    return [(name, chosen) for name, chosen in result if len(chosen)]


def _pieces(every: _Set, name: str, chosen: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """A source, or two where the energies in it have two zeros."""
    whole = [(name, chosen)]
    if len(chosen) < 2 * FEWEST:
        return whole
    share, energy = every.share[chosen], every.energy[chosen]
    rest = energy - share @ np.linalg.lstsq(share, energy, rcond=None)[0]
    order = np.argsort(rest, kind="stable")
    gaps = np.diff(rest[order])[FEWEST - 1 : len(rest) - FEWEST]
    if not len(gaps) or gaps.max() <= LEAST:
        return whole
    cut = int(np.argmax(gaps)) + FEWEST
    low, high = np.sort(chosen[order[:cut]]), np.sort(chosen[order[cut:]])
    # The larger part is the source.
    larger, smaller = (low, high) if len(low) >= len(high) else (high, low)
    comparison = _compare(every, larger, smaller)
    if comparison is None or not comparison.significant or comparison.distance > ALIKE:
        return whole
    return [(name, larger), (named(every.frames, smaller), smaller)]


# ---- two of them


def _compare(every: _Set, one: np.ndarray, other: np.ndarray) -> Comparison | None:
    """None where the compositions, or too few frames, tell nothing."""
    share, energy, description = every.share, every.energy, every.description
    one, other = _sample(one, every.most), _sample(other, every.most)
    if len(one) < FEWEST:
        return None
    _, singular, basis = np.linalg.svd(share[one], full_matrices=False)
    basis = basis[singular > SPANNED * singular[0]]
    beyond_span = share[other] - share[other] @ basis.T @ basis
    other = other[np.abs(beyond_span).max(axis=1) < SPANNED]
    if len(other) < FEWEST:
        return None
    work = max([LEAST_WORK, *(_middle(description.work[part]) for part in (one, other))])
    both, n = np.r_[one, other], len(one)
    x = _scaled(description.phi[both])
    second = np.arange(len(both)) >= n
    design = np.c_[share[both], second[:, None] * share[both]]
    typical = _typical(_covariance(x, work), design, energy[both])
    both, x, second, design = both[typical], x[typical], second[typical], design[typical]
    one, other = both[~second], both[second]
    if min(len(one), len(other)) < FEWEST:
        return None
    a, b = x[~second], x[second]
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    squares = np.maximum(squares, 0.0)
    distance = float(np.sqrt(min(_nearest(squares.min(axis=0)), _nearest(squares.min(axis=1)))))
    root = np.linalg.cholesky(_covariance(x, work))
    # A mean of all first, so that what compositions leave open is shared by all elements alike.
    columns = np.linalg.solve(root, np.c_[share[both], second])
    target = np.linalg.solve(root, energy[both])
    inverse = np.linalg.pinv(columns, rcond=1e-10)
    mean = float((inverse @ target)[-1])
    deviation = float(np.sqrt((inverse @ inverse.T)[-1, -1]))
    columns = np.linalg.solve(root, design)
    target -= columns[:, share.shape[1] :].sum(axis=1) * mean
    rest = np.linalg.lstsq(columns, target, rcond=1e-8)[0]
    present = share[other].any(axis=0)
    energies = np.where(present, mean + rest[share.shape[1] :], 0.0)
    frame_offsets = share[other] @ energies
    largest = float(np.sqrt((frame_offsets**2).mean()))
    bound = STEEPEST * work * distance + DEVIATIONS * deviation + LEAST
    return Comparison(
        energies,
        tuple(np.array(every.frames.elements)[present].tolist()),
        bool(np.linalg.matrix_rank(share[other], tol=SPANNED) == present.sum()),
        float(frame_offsets.mean()),
        deviation,
        distance,
        largest > bound,
        largest <= bound and distance <= ALIKE and deviation <= CLOSELY * work,
        len(both),
    )


def _scaled(phi: np.ndarray) -> np.ndarray:
    """Descriptions relative to their size, [nframes, npairs * POWERS]."""
    scale = np.sqrt((phi**2).mean(axis=0).sum(axis=0))
    relative = (phi / np.where(scale > 0.0, scale, 1.0)).reshape(len(phi), -1)
    result: np.ndarray = relative / np.sqrt(POWERS)
    return result


def _covariance(x: np.ndarray, work: float) -> np.ndarray:
    """Of energies per atom, of w . phi and the noise."""
    x = x - x.mean(axis=0)
    slopes = (SLOPE * work) ** 2 * POWERS * x @ x.T
    covariance: np.ndarray = slopes + (NOISE * work) ** 2 * np.eye(len(x))
    return covariance


def _typical(covariance: np.ndarray, design: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Frames whose energies are not far from what all others tell of them, bool [nframes].

    One after another, as each of those that are far makes the others seem so.
    """
    rows = np.arange(len(energy))
    for _ in range(max(1, len(energy) // MOST_ODD)):
        root = np.linalg.cholesky(covariance[np.ix_(rows, rows)])
        columns, target = np.linalg.solve(root, design[rows]), np.linalg.solve(root, energy[rows])
        left = target - columns @ np.linalg.lstsq(columns, target, rcond=1e-8)[0]
        inverse = np.linalg.inv(root)
        # The difference from the mean that all others give, over its deviation.
        odd = np.abs(inverse.T @ left) / np.sqrt((inverse**2).sum(axis=0))
        if odd.max() <= max(DEVIATIONS, ODD * float(np.median(odd))):
            break
        rows = np.delete(rows, np.argmax(odd))
    return np.isin(np.arange(len(energy)), rows)


def _sample(chosen: np.ndarray, most: int) -> np.ndarray:
    """At most so many of them, evenly."""
    places = np.linspace(0, len(chosen) - 1, min(most, len(chosen)))
    return chosen.take(np.round(places).astype(int))


def _nearest(distances: np.ndarray) -> float:
    """The middle of the nearer half."""
    half = np.sort(distances)[: max(FEWEST, len(distances) // 2)]
    return float(np.median(half))


def _middle(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0
