"""`pwmlff data check`: what is in training data, and what is wrong with it, by file and frame."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ase import units
from ase.data import atomic_numbers, chemical_symbols
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff import picture
from pwmlff.data import consistency, duplicates, neighbors, readers, sources
from pwmlff.data.frames import Frames, rows_of
from pwmlff.report import Failure, ranges

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CUTOFF = 6.0
BLOCK = 64  # frames whose neighbors are in memory at a time
SAME_ENERGY = 1e-3  # per atom
#: Robust deviations (median and 1.4826 times the median absolute deviation) of an outlier, and how
#: many frames it takes to say what is usual.
OUTLIER, USUAL = 8.0, 10
#: Of fewer frames, a force so many times the median of the largest ones, and at least so large.
MANY_TIMES, LARGE = 100.0, 20.0
#: By how much the mean of Born charges over the atoms of a frame may break the acoustic sum rule,
#: beside their RMS: those of DFT break it too, by its grids.
UNBALANCED = 0.05
#: What must be mended; the others are worth a look.
ERRORS = (
    *("no labels", "not finite", "cannot be used", "overlapping atoms", "unknown element"),
    *("forces", "energy", "stress", "sources", "duplicate with another energy"),
)
#: In a text; those of what is the same kind of problem differ.
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\bnan\b|-?\binf\b")
SHOWN = 10  # lines of a kind in the table; JSON has them all


@dataclass(frozen=True)
class Problem:
    """One frame or file, and what is odd about it."""

    kind: str
    text: str
    file: str | None = None
    index: int | None = None  # of the frame in the file

    @property
    def error(self) -> bool:
        """Whether it must be mended."""
        return self.kind in ERRORS


@dataclass
class Survey:
    """What neighbors tell, frame by frame."""

    shortest: np.ndarray  # [nelements**2] distance of each pair, infinite where there is none
    nearest: np.ndarray  # [nframes] NaN where there is no pair
    numbers: np.ndarray  # [natoms] the same for one structure in any frame of reference
    description: sources.Description
    most: int = 0  # neighbors of one element


@dataclass(frozen=True)
class CheckReport:
    """What was found."""

    counts: dict[str, Any]
    ranges: dict[str, tuple[float, float]]
    shortest: dict[str, float]
    most_neighbors: int
    cutoff: float
    problems: list[Problem]
    notes: list[str]
    picture: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing must be mended."""
        return not any(problem.error for problem in self.problems)

    def data(self) -> dict[str, Any]:
        """Plain values."""
        others = {name: value for name, value in vars(self).items() if name != "counts"}
        problems = [{**asdict(p), "error": p.error} for p in self.problems]
        return {**self.counts, **others, "problems": problems}

    def show(self) -> RenderableType:
        """Tables of what there is, then one line for each problem."""
        parts: list[RenderableType] = [self._files(), self._groups(), self._values()]
        kinds = Counter(problem.kind for problem in self.problems)
        for kind in sorted(kinds, key=lambda kind: kind not in ERRORS):
            listed = [problem for problem in self.problems if problem.kind == kind]
            label = ("error: ", "bold red") if kind in ERRORS else ("warning: ", "bold yellow")
            lines = _joined(listed)
            parts += [Text.assemble(label, line) for line in lines[:SHOWN]]
            if len(lines) > SHOWN:
                parts.append(Text(f"  and {len(lines) - SHOWN} more of '{kind}' (--json: all)"))
        parts += [Text(f"note: {note}") for note in self.notes]
        if self.picture:
            parts.append(Text(f"picture: {self.picture}"))
        if not self.problems:
            parts.append(Text("nothing odd was found", style="green"))
        return Group(*parts)

    def _files(self) -> Table:
        files = self.counts["files"]
        has_born = any(row["Born charges"] for row in files.values())
        columns = ["frames", "atoms", "energies", "forces", "virials", *["Born charges"] * has_born]
        table = Table("file", *columns, box=None)
        for name, row in files.items():
            table.add_row(name, *(str(row[column]) for column in columns))
        return table

    def _groups(self) -> Table:
        table = Table("group", "frames", "composition", "frames", box=None)
        columns = (self.counts[name].items() for name in ("groups", "compositions"))
        rows = list(zip_longest(*columns, fillvalue=("", "")))
        for (group, count), (composition, of_it) in rows[: 2 * SHOWN]:
            table.add_row(group, str(count), composition, str(of_it))
        if len(rows) > 2 * SHOWN:
            table.add_row(f"and {len(rows) - 2 * SHOWN} more (--json: all)")
        return table

    def _values(self) -> Table:
        table = Table("quantity", "smallest", "largest", box=None)
        for name, (low, high) in self.ranges.items():
            table.add_row(name, f"{low:.6g}", f"{high:.6g}")
        for pair, distance in self.shortest.items():
            table.add_row(f"distance {pair}", f"{distance:.4g}", "")
        name = f"neighbors of an element within {self.cutoff:g}"
        table.add_row(name, "", f"{self.most_neighbors}")
        return table


def check(
    files: Sequence[str],
    *,
    elements: Sequence[str] = (),
    format: str | None = None,
    cutoff: float = CUTOFF,
    closest: float = neighbors.CLOSEST,
    plot: Path | None = None,
    energy: str = readers.FREE,
    keep_unconverged: bool = False,
    kinds: Mapping[str, str] = readers.NO_KINDS,
) -> CheckReport:
    """Read all files and look at every frame.

    Args:
        files, format, energy, keep_unconverged, kinds: as
            :func:`pwmlff.data.readers.read` takes them.
        elements: those that may occur; any when empty.
        cutoff: distance within which neighbors are counted, angstrom.
        closest: distance below which atoms overlap, angstrom.
        plot: picture to draw.

    Raises:
        Failure: a file cannot be read, or an option cannot be used.
    """
    output = picture.destination(plot) if plot else None
    if not 0.0 < cutoff < np.inf:
        raise Failure(f"--cutoff is {cutoff:g}, expected a positive number")
    allowed = set(_known(elements))
    texts: list[str] = []
    frames = readers.read(list(files), format, energy, texts.append, keep_unconverged, kinds)
    problems = [Problem("ambiguous labels", text) for text in texts]
    problems += [
        Problem("element without data", f"no frame holds {_symbols({z})}, which --elements names")
        for z in sorted(allowed - set(frames.elements))
    ]
    problems += _labels(frames)
    usable = _usable(frames, cutoff, allowed, problems)
    part = frames.select(usable)
    survey = _survey(part, frames.elements, cutoff)
    problems += [
        _problem(
            *(part, k, "overlapping atoms"),
            f": atoms are {survey.nearest[k]:.3g} apart, expected at least {closest:g}",
        )
        for k in np.flatnonzero(survey.nearest < closest).tolist()
    ]
    problems += _duplicates(part, survey.numbers)
    offsets = sources.offsets(part, survey.description)
    problems += _outliers(sources.aligned(part, offsets)[0])
    problems += _born_charges(part)
    notes = []
    found = consistency.findings(frames)
    for finding in (*found, *sources.findings(part, offsets, found)):
        if not finding.warning:
            notes.append(finding.text)
        elif finding.frame is None:
            problems.append(Problem(finding.kind, finding.text))
        else:
            rest = finding.text.removeprefix(frames.where(finding.frame))
            problems.append(_problem(frames, finding.frame, finding.kind, rest))
    if output:
        picture.save(draw(frames, survey.nearest), output, dpi=120)
    return CheckReport(
        counts=_counts(frames),
        ranges=_ranges(frames),
        shortest=neighbors.by_pair(frames.elements, survey.shortest),
        most_neighbors=survey.most,
        cutoff=cutoff,
        problems=problems,
        notes=notes,
        picture=str(output) if output else None,
    )


def _joined(problems: Sequence[Problem]) -> list[str]:
    """One line for all problems of a file that say the same but for the frame and its numbers.

    Where numbers differ they are those of the first frame, which is named.
    """
    alike: dict[tuple[str | None, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem.file, NUMBER.sub("#", problem.text)), []).append(problem)
    result = []
    for members in alike.values():
        first, indices = members[0], {p.index for p in members if p.index is not None}
        rests = {p.text.removeprefix(f"frame {p.index} of '{p.file}'") for p in members}
        if len(indices) < 2:
            result += [member.text for member in members]
            continue
        frames = f"frames {ranges(indices)} of '{first.file}'"
        if len(rests) == 1:
            (rest,) = rests
            result.append(frames + (f" have {rest[5:]}" if rest.startswith(" has ") else rest))
        else:
            result.append(f"{frames}: {first.text}")
    return result


def _symbols(numbers: set[int]) -> str:
    return " ".join(chemical_symbols[z] for z in sorted(numbers))


def _known(symbols: Sequence[str]) -> list[int]:
    for symbol in symbols:
        if symbol not in atomic_numbers or symbol == "X":
            raise Failure(f"--elements holds '{symbol}', expected chemical symbols like 'Hf O'")
    return [atomic_numbers[symbol] for symbol in symbols]


def _problem(frames: Frames, k: int, kind: str, rest: str) -> Problem:
    """A problem of frame k, which the text begins with."""
    text = f"{frames.where(k)}{rest}"
    return Problem(kind, text, frames.files[frames.file[k]], int(frames.index[k]))


def _labelled(frames: Frames) -> dict[str, np.ndarray]:
    """Which frames have a label, or a part of it, bool [nframes]."""
    missing = np.isnan(frames.forces).all(axis=1)
    return {
        "energy": ~np.isnan(frames.energies),
        "forces": ~frames.reduce_atoms(missing, np.logical_and, True),
        "virial": ~np.isnan(frames.virials).all(axis=(1, 2)),
    }


def _labels(frames: Frames) -> list[Problem]:
    """Labels that are missing or no numbers."""
    result: list[Problem] = []
    has = _labelled(frames)
    weighty = frames.weights.any(axis=1)  # the other ones are told of where they are read
    for k in np.flatnonzero((frames.natoms > 0) & weighty).tolist():
        if not has["energy"][k] and not has["forces"][k]:
            result.append(_problem(frames, k, "no labels", " has neither energy nor forces"))
            continue
        wanted = ("energy",) if frames.isolated[k] else has  # forces and virials on one are zero
        lacking = [name for name in wanted if has[name].any() and not has[name][k]]
        if lacking:
            rest = f" has no {' and no '.join(lacking)}, others have"
            result.append(_problem(frames, k, "missing labels", rest))
        infinite = []
        if np.isinf(frames.energies[k]):
            infinite.append(f": energy {frames.energies[k]}")
        forces = frames.forces[frames.rows(k)]
        if has["forces"][k] and not np.isfinite(forces).all():
            atom = int(np.argmin(np.isfinite(forces).all(axis=1)))
            infinite.append(f": the force of atom {atom} is {forces[atom].tolist()}")
        if has["virial"][k] and not np.isfinite(frames.virials[k]).all():
            infinite.append(f": the virial is {frames.virials[k].tolist()}")
        result += [_problem(frames, k, "not finite", rest) for rest in infinite]
    return result


def _usable(
    frames: Frames, cutoff: float, allowed: set[int], problems: list[Problem]
) -> np.ndarray:
    """Frames whose neighbors can be found; others, and elements not allowed, become problems."""
    usable = []
    for k in range(len(frames)):
        other = set(frames.numbers[frames.rows(k)].tolist()) - allowed
        if allowed and other:
            rest = f" holds {_symbols(other)}, expected {_symbols(allowed)}"
            problems.append(_problem(frames, k, "unknown element", rest))
        try:
            if not frames.natoms[k]:
                raise Failure(f"{frames.where(k)} has no atoms, expected at least one")
            neighbors.require_usable(frames, k, cutoff)
            usable.append(k)
        except Failure as failure:
            rest = str(failure).removeprefix(frames.where(k))
            problems.append(_problem(frames, k, "cannot be used", rest))
    return np.array(usable, dtype=np.int64)


def _survey(frames: Frames, elements: Sequence[int], cutoff: float) -> Survey:
    """Look at the neighbors in all frames, of some frames at a time."""
    n, pairs = len(frames), len(elements) ** 2
    survey = Survey(
        np.full(pairs, np.inf),
        np.empty(n),
        np.empty(len(frames.numbers)),
        sources.Description(np.empty((n, pairs, sources.POWERS)), np.empty(n)),
    )
    for begin in range(0, n, BLOCK):
        block = slice(begin, min(begin + BLOCK, n))
        part = frames.select(np.arange(n)[block])
        edges = neighbors.find_edges(part, elements, cutoff, closest=0.0)
        nearest = np.full((len(part), pairs), np.inf)
        np.minimum.at(nearest, (edges.frames, edges.pairs), edges.distances)
        np.minimum(survey.shortest, nearest.min(axis=0), out=survey.shortest)
        least = nearest.min(axis=1)
        survey.nearest[block] = np.where(np.isfinite(least), least, np.nan)
        survey.most = max(survey.most, int(edges.count.max(initial=0)))
        rows = slice(frames.first[begin], frames.first[block.stop])
        survey.numbers[rows] = duplicates.atom_numbers(part, edges)
        described = sources.describe(part, edges)
        survey.description.phi[block] = described.phi
        survey.description.work[block] = described.work
    return survey


def _duplicates(frames: Frames, numbers: np.ndarray) -> list[Problem]:
    """Frames whose structure was there before, up to rotation, translation and numbering."""
    result = []
    same = duplicates.first_of_each(frames, numbers)
    for k in np.flatnonzero(same < np.arange(len(frames))).tolist():
        first = int(same[k])
        difference = abs(frames.energies[k] - frames.energies[first]) / max(1, frames.natoms[k])
        kind, text = "duplicate", f" is the structure of {frames.where(first)}"
        if difference > SAME_ENERGY:
            kind = "duplicate with another energy"
            text += f", with an energy that is {difference:.3g} per atom off"
        result.append(_problem(frames, k, kind, text))
    return result


def _outliers(frames: Frames) -> list[Problem]:
    """Energies per atom far from those of the composition, and forces far larger than usual."""
    result = []
    energy = np.where(frames.isolated, np.nan, frames.energies_per_atom)
    for chosen in consistency.compositions(frames).values():
        for k, score, middle in _far(energy[chosen]):
            frame = int(chosen[k])
            rest = (
                f": energy {energy[frame]:.6g} per atom, {score:.0f} deviations from the median "
                f"{middle:.6g} of its composition"
            )
            result.append(_problem(frames, frame, "energy outlier", rest))
    largest = _largest_force(frames)
    for frame, score, middle in _far_above(largest):
        rest = (
            f": a force of {largest[frame]:.4g}, where {middle:.4g} is the usual "
            f"largest one ({score:.0f} deviations)"
        )
        result.append(_problem(frames, frame, "force outlier", rest))
    known = largest[np.isfinite(largest)]
    middle = float(np.median(known)) if 2 < len(known) < USUAL else np.inf
    for frame in np.flatnonzero(largest > max(LARGE, MANY_TIMES * middle)).tolist():
        rest = f": a force of {largest[frame]:.4g}, where {middle:.4g} is the usual largest one"
        result.append(_problem(frames, frame, "force outlier", rest))
    return result


def _unbalanced(frames: Frames) -> np.ndarray:
    """Largest component by which Born charges of a frame break the sum rule, e, [nframes].

    They add up to the total charge times the unit matrix, as the dipole moment changes by that when
    all atoms move alike (acoustic sum rule, doi:10.1103/PhysRevB.1.910). NaN where there are none.
    """
    result = np.full(len(frames), np.nan)
    for k in np.flatnonzero(frames.has_born).tolist():
        total = frames.born[frames.rows(k)].sum(axis=0)
        result[k] = np.abs(total - frames.total_charges[k] * np.eye(3)).max()
    return result


def _from_median(frames: Frames, chosen: np.ndarray) -> np.ndarray:
    """How far the Born charge of an atom is from the median of its element, e, [nchosen].

    The largest component of the worst atom of each chosen frame, NaN where it has none; medians are
    of the chosen frames.
    """
    result = np.full(len(chosen), np.nan)
    labelled = np.flatnonzero(frames.has_born[chosen])
    rows = rows_of(frames.first, chosen[labelled])
    frame = np.repeat(labelled, frames.natoms[chosen[labelled]])
    result[labelled] = 0.0
    for z in np.unique(frames.numbers[rows]):
        alike = frames.numbers[rows] == z
        born = frames.born[rows[alike]]
        far = np.abs(born - np.median(born, axis=0)).max(axis=(1, 2))
        np.maximum.at(result, frame[alike], far)
    return result


def _born_charges(frames: Frames) -> list[Problem]:
    """Born charges that break the sum rule, and those far from others of their composition."""
    result = []
    unbalanced = _unbalanced(frames)
    for k in np.flatnonzero(frames.has_born).tolist():
        rms = float(np.sqrt(np.square(frames.born[frames.rows(k)]).mean()))
        if unbalanced[k] > UNBALANCED * rms * frames.natoms[k]:
            rest = (
                f": its Born charges add up to {unbalanced[k]:.3g} e beside the total charge, in "
                f"{frames.natoms[k]} atoms of {rms:.3g} e (RMS of a component)"
            )
            result.append(_problem(frames, k, "acoustic sum rule", rest))
    for chosen in consistency.compositions(frames).values():
        far = _from_median(frames, chosen)
        for k, score, middle in _far_above(far):
            rest = (
                f": a Born charge {far[k]:.4g} e from the median of its element, where "
                f"{middle:.4g} is the usual largest distance ({score:.0f} deviations)"
            )
            result.append(_problem(frames, int(chosen[k]), "Born charge outlier", rest))
    return result


def deviations(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Robust deviations of values [n] from their median, zeros where too few tell; and that."""
    known, scores = np.isfinite(values), np.zeros(len(values))
    if known.sum() < USUAL:
        return scores, np.nan
    middle = float(np.median(values[known]))
    spread = 1.4826 * float(np.median(np.abs(values[known] - middle)))
    if spread > 0.0:
        scores[known] = (values[known] - middle) / spread
    return scores, middle


def _far(values: np.ndarray) -> list[tuple[int, float, float]]:
    """Outliers: index, robust deviations, and the median of all."""
    scores, middle = deviations(values)
    sizes = np.abs(scores)
    return [(int(k), float(sizes[k]), middle) for k in np.flatnonzero(sizes > OUTLIER)]


def _far_above(sizes: np.ndarray) -> list[tuple[int, float, float]]:
    """The same of sizes that are far above the others, judged by their logarithms."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.where(sizes > 0.0, np.log(sizes), np.nan)
    found = _far(logarithm)
    return [(k, score, float(np.exp(m))) for k, score, m in found if logarithm[k] > m]


def _largest_force(frames: Frames) -> np.ndarray:
    """Largest force on an atom of each frame, [nframes]; NaN where there is none."""
    return frames.reduce_atoms(frames.force_sizes, np.maximum)


def _largest_born(frames: Frames) -> np.ndarray:
    """Largest component of a Born charge of each frame, e, [nframes]; NaN where it has none."""
    if not len(frames.born):
        return np.full(len(frames), np.nan)
    return frames.reduce_atoms(np.abs(frames.born).max(axis=(1, 2)), np.maximum)


def _volumes(frames: Frames) -> np.ndarray:
    """Volume per atom of frames that are periodic in all directions, NaN of others."""
    volumes: np.ndarray = np.where(frames.pbc.all(axis=1), frames.volumes, np.nan)
    volumes /= np.maximum(frames.natoms, 1)
    return volumes


def _counts(frames: Frames) -> dict[str, Any]:
    files = {}
    has = _labelled(frames)
    for number, name in enumerate(frames.files):
        here = frames.file == number
        natoms = frames.natoms[here]
        low, high = int(natoms.min()), int(natoms.max())
        files[name] = {
            "frames": int(here.sum()),
            "atoms": f"{low}" if low == high else f"{low}-{high}",
            "energies": int(has["energy"][here].sum()),
            "forces": int(has["forces"][here].sum()),
            "virials": int(has["virial"][here].sum()),
            "Born charges": int(frames.has_born[here].sum()),
        }
    return {
        "frames": len(frames),
        "atoms": int(frames.first[-1]),
        "elements": [chemical_symbols[z] for z in frames.elements],
        "files": files,
        "groups": frames.group_sizes,
        "compositions": {
            " ".join(f"{chemical_symbols[z]}{count}" for z, count in composition)
            or "no atoms": len(which)
            for composition, which in consistency.compositions(frames).items()
        },
    }


def _ranges(frames: Frames) -> dict[str, tuple[float, float]]:
    values = {
        "energy per atom": frames.energies_per_atom,
        "largest force of a frame": _largest_force(frames),
        "volume per atom": _volumes(frames),
        "pressure, GPa of eV and angstrom": np.trace(frames.virials, axis1=1, axis2=2)
        / (3.0 * np.maximum(frames.natoms, 1) * _volumes(frames) * units.GPa),
        "largest component of a Born charge, e": _largest_born(frames),
        "off the acoustic sum rule, e": _unbalanced(frames),
    }
    result = {}
    for name, array in values.items():
        known = array[np.isfinite(array)]
        if len(known):
            result[name] = (float(known.min()), float(known.max()))
    return result


def draw(frames: Frames, nearest: np.ndarray) -> Figure:
    """Histograms of energies, forces, volumes and shortest distances."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    forces = frames.force_sizes
    panels = {
        "energy per atom (eV)": frames.energies_per_atom,
        "force on an atom (eV/Å)": forces,
        "volume per atom (Å³)": _volumes(frames),
        "shortest distance of a frame (Å)": nearest,
    }
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    for axes, (label, values) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
        axes.set_xlabel(label)
        axes.set_ylabel("atoms" if values is forces else "frames")
        axes.hist(values[np.isfinite(values)], bins=60, log=values is forces)
    return figure
