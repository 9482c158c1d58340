"""Which frames are worth their while: those far from others, strange ones, each but once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff import picture
from pwmlff.data import check, consistency, descriptors, duplicates, extxyz, neighbors
from pwmlff.data.frames import Frames
from pwmlff.report import Failure, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTLIER = 5.0  # robust deviations
SHOWN = 20  # rows of a table


@dataclass(frozen=True)
class Chosen:
    """One frame and why it is there."""

    file: str
    index: int
    value: float
    why: str


@dataclass(frozen=True)
class ChoiceReport(Report):
    """What was chosen of how many frames."""

    title: str
    frames: int
    chosen: list[Chosen]
    value: str  # what the number of a frame is
    written: dict[str, int] = field(default_factory=dict)  # frames by file
    picture: str = ""

    def show(self) -> RenderableType:
        """The first of them, and where all are."""
        title = f"{self.title}: {len(self.chosen)} of {self.frames} frames"
        table = Table("file", "frame", self.value, "", title=title, box=None)
        for frame in self.chosen[:SHOWN]:
            table.add_row(frame.file, str(frame.index), f"{frame.value:.4g}", frame.why)
        parts: list[RenderableType] = [table]
        if len(self.chosen) > SHOWN:
            parts.append(Text(f"and {len(self.chosen) - SHOWN} more (--json: all)"))
        parts += [Text(f"{name}: {count} frames") for name, count in self.written.items()]
        if self.picture:
            parts.append(Text(f"picture: {self.picture}"))
        return Group(*parts)


@dataclass(frozen=True)
class Outputs:
    """Where the frames go."""

    chosen: Path | None = None
    others: Path | None = None
    plot: Path | None = None

    def checked(self) -> Outputs:
        """The same with the ending of the picture, said before the work.

        Raises:
            Failure: the picture cannot be written, or two files are one.
        """
        if self.chosen and self.others and self.chosen.absolute() == self.others.absolute():
            raise Failure(f"found '{self.chosen}' twice, expected two files to write to")
        plot = picture.destination(self.plot) if self.plot else None
        return Outputs(self.chosen, self.others, plot)

    def write(self, frames: Frames, chosen: Sequence[int]) -> dict[str, int]:
        """Write the chosen frames in that order, and the others in the order of the files."""
        others = sorted(set(range(len(frames))) - set(chosen))
        written = {}
        for path, rows in ((self.chosen, list(chosen)), (self.others, others)):
            if path is not None:
                write_frames(path, frames.select(rows))
                written[str(path)] = len(rows)
        return written


def write_frames(path: Path, frames: Frames) -> None:
    """Write frames with their labels and groups as extended XYZ, whole or not at all."""
    structures = []
    for k in range(len(frames)):
        atoms = frames.atoms(k)
        atoms.info["config_type"] = frames.group_names[frames.group[k]]
        structures.append(atoms)
    extxyz.write_whole(path, structures)


def select(
    frames: Frames, known: Frames | None, count: int, cutoff: float, outputs: Outputs
) -> ChoiceReport:
    """Choose frames that are as far from each other, and from known ones, as can be.

    Args:
        frames: to choose from.
        known: that are there already.
        count: how many.
        cutoff: of the neighbors that structures are compared by, angstrom.
        outputs: where to write.

    Raises:
        Failure: a frame has overlapping atoms, or a file cannot be written.
    """
    outputs = outputs.checked()
    elements = sorted({*frames.elements, *(known.elements if known else ())})
    described = [
        descriptors.describe_frames(one, elements, cutoff) for one in (frames, known) if one
    ]
    points, *rest = descriptors.scaled(*described)
    chosen, distances = descriptors.farthest(points, count, rest[0] if rest else None)
    if outputs.plot:
        picture.save(_draw_map(points, chosen, rest[0] if rest else None), outputs.plot, dpi=120)
    return ChoiceReport(
        "farthest from what was chosen before",
        len(frames),
        _entries(frames, chosen, distances),
        "distance",
        outputs.write(frames, chosen),
        str(outputs.plot or ""),
    )


def dedupe(frames: Frames, cutoff: float, outputs: Outputs) -> ChoiceReport:
    """Choose frames whose structure was there before, turned, moved or numbered in another way.

    Args:
        frames, cutoff, outputs: as :func:`select` takes them; what is written, as either of the
            two, is each structure once.
    """
    outputs = outputs.checked()
    numbers = []
    for begin in range(0, len(frames), descriptors.BLOCK):
        part = frames.select(np.arange(begin, min(begin + descriptors.BLOCK, len(frames))))
        edges = neighbors.find_edges(part, frames.elements, cutoff, closest=0.0)
        numbers.append(duplicates.atom_numbers(part, edges))
    first = duplicates.first_of_each(frames, np.concatenate(numbers))
    again = np.flatnonzero(first < np.arange(len(frames))).tolist()
    apart = np.abs(frames.energies_per_atom[again] - frames.energies_per_atom[first[again]])
    why = [f"the structure of {frames.where(int(first[k]))}" for k in again]
    return ChoiceReport(
        "duplicates",
        len(frames),
        _entries(frames, again, apart.tolist(), why),
        "energies differ by, per atom",
        Outputs(others=outputs.chosen).write(frames, again)
        | Outputs(others=outputs.others).write(frames, again),
    )


def outliers(frames: Frames, values: dict[str, np.ndarray], outputs: Outputs) -> ChoiceReport:
    """Choose frames of which a number is far from that of others.

    Args:
        frames: structures.
        values: by what they are, [nframes]: sizes, or numbers of either sign; NaN where not known.
        outputs: where to write.
    """
    outputs = outputs.checked()
    worst = np.zeros(len(frames))
    why = [""] * len(frames)
    for name, numbers in values.items():
        for k, score in enumerate(_scores(numbers).tolist()):
            if score > worst[k]:
                worst[k], why[k] = score, f"{name} {numbers[k]:.4g}"
    order = np.argsort(-worst, kind="stable")
    chosen = [int(k) for k in order if worst[k] > OUTLIER]
    if outputs.plot:
        picture.save(_draw_values(values, chosen), outputs.plot, dpi=120)
    return ChoiceReport(
        f"more than {OUTLIER:g} deviations from the usual",
        len(frames),
        _entries(frames, chosen, worst[chosen].tolist(), [why[k] for k in chosen]),
        "deviations",
        outputs.write(frames, chosen),
        str(outputs.plot or ""),
    )


def label_numbers(frames: Frames) -> dict[str, np.ndarray]:
    """What labels tell of each frame, [nframes]."""
    return {
        "largest force, eV/Å": frames.reduce_atoms(frames.force_sizes, np.maximum),
        "energy beside that of the composition, eV/atom": from_usual(
            frames, frames.energies_per_atom
        ),
    }


def from_usual(frames: Frames, values: np.ndarray, least: int = 1) -> np.ndarray:
    """What each has above the median of the frames of its composition, [nframes].

    NaN of isolated atoms, which are none of the crystals of their element.

    Args:
        frames, values: [nframes] of them.
        least: frames of a composition; those with fewer have what is above the median of all.
    """
    every_one = values[~frames.isolated & np.isfinite(values)]
    result = np.full(len(frames), np.nan)
    for every in consistency.compositions(frames).values():
        chosen = every[~frames.isolated[every]]
        known = values[chosen][np.isfinite(values[chosen])]
        if len(known):
            usual = known if len(known) >= least else every_one
            result[chosen] = values[chosen] - np.median(usual)
    return result


def _scores(values: np.ndarray) -> np.ndarray:
    """Robust deviations from the median, [n]; 0 where nothing can be said.

    Of sizes, which are positive, those of the logarithm, above the median alone.
    """
    sizes = (values[np.isfinite(values)] > 0.0).all()
    with np.errstate(invalid="ignore"):
        scores, _ = check.deviations(np.log(values) if sizes else values)
    return scores if sizes else np.abs(scores)


def _entries(
    frames: Frames, chosen: Sequence[int], values: Sequence[float], why: Sequence[str] = ()
) -> list[Chosen]:
    return [
        Chosen(frames.files[frames.file[k]], int(frames.index[k]), value, why[row] if why else "")
        for row, (k, value) in enumerate(zip(chosen, values, strict=True))
    ]


def _draw_map(points: np.ndarray, chosen: Sequence[int], known: np.ndarray | None) -> Figure:
    """All structures by the two directions in which they differ most."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    every = points if known is None else np.concatenate((points, known))
    directions = np.linalg.svd(every - every.mean(axis=0), full_matrices=False)[2][:2]
    figure = Figure(figsize=(5.6, 4.8), layout="constrained")
    axes = figure.subplots()
    sets = [
        ("not chosen", np.delete(points, chosen, axis=0), "0.75"),
        ("chosen", points[chosen], "C3"),
    ]
    if known is not None:
        sets.insert(0, ("known", known, "C0"))
    for name, values, color in sets:
        coordinates = np.zeros((len(values), 2))
        coordinates[:, : len(directions)] = values @ directions.T
        axes.plot(*coordinates.T, ".", color=color, label=f"{name} ({len(values)})")
    axes.set_xlabel("first principal component of the descriptors")
    axes.set_ylabel("second")
    axes.legend(fontsize="small")
    return figure


def _draw_values(values: dict[str, np.ndarray], chosen: Sequence[int]) -> Figure:
    """Each number of all frames, in their order."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    figure = Figure(figsize=(7.2, 2.4 * len(values)), layout="constrained")
    panels = figure.subplots(len(values), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (name, numbers) in zip(panels, values.items(), strict=True):
        axes.plot(numbers, ".", color="0.6", markersize=4)
        axes.plot(list(chosen), numbers[list(chosen)], "o", color="C3", markersize=4)
        axes.set_yscale("log" if (numbers[np.isfinite(numbers)] > 0.0).all() else "linear")
        axes.set_ylabel(name, fontsize="small")
    panels[-1].set_xlabel("frame")
    return figure
