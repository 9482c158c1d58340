"""`pwmlff data`: what is in training data, and what is kept of it ready for use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pwmlff.commands.base import Energy, Format, KeepUnconverged, Map
from pwmlff.commands.options import elements_of, kinds_of
from pwmlff.report import Report

if TYPE_CHECKING:
    from numpy import ndarray

    from pwmlff.data.frames import Frames

Files = Annotated[
    list[str] | None,
    Argument(metavar="[DATA]...", help="Files, or folders of DeePMD-kit; FILE@0:100:2 for some."),
]
Written = Annotated[
    Path | None, Option("-o", "--output", help="File for the frames that are found, extended XYZ.")
]
Rest = Annotated[Path | None, Option(help="File for the other frames, likewise.")]
Cutoff = Annotated[float, Option(help="Distance within which neighbors describe a structure.")]


def check(
    files: Files = None,
    data: Annotated[list[str] | None, Option(help="The same; may be given again.")] = None,
    elements: Annotated[
        str, Option(help="Elements that may occur, like 'Hf O'.", show_default="any")
    ] = "",
    format: Format = None,
    cutoff: Annotated[float, Option(help="Distance within which neighbors are counted.")] = 6.0,
    closest: Annotated[float, Option(help="Distance below which atoms overlap.")] = 0.3,
    plot: Annotated[
        Path | None, Option(help="Picture to draw, of histograms: a PNG or the like.")
    ] = None,
    energy: Energy = "free",
    keep_unconverged: KeepUnconverged = False,
    map: Map = None,
) -> Report:
    """Look at training data: what there is, and what is wrong with it, by file and frame.

    Missing labels, NaN, outliers, duplicates, overlapping atoms, energies that change otherwise
    than the forces say, the sign of the stress.

    Example: pwmlff data check train.extxyz MOVEMENT --elements 'Hf O' --plot data.png
    """
    from pwmlff.data import check as work

    return work.check(
        [*(files or ()), *(data or ())], elements=elements_of(elements), format=format,
        cutoff=cutoff, closest=closest, plot=plot, energy=energy,
        keep_unconverged=keep_unconverged, kinds=kinds_of(map),
    )  # fmt: skip


def cache(
    folder: Annotated[
        str, Option(help="Folder of the cache; auto is that of trainings by themselves.")
    ] = "auto",
    clear: Annotated[bool, Option("--clear", help="Remove all that is kept.")] = False,
) -> Report:
    """Show what training data are kept ready for use, and how large they are.

    Those that were not used for longest are removed when all are larger than 8 GiB, or as many as
    PWMLFF_CACHE_LIMIT says.

    Example: pwmlff data cache --clear
    """
    from pwmlff.data import cache as work

    return work.survey(folder, clear)


def select(
    files: Files = None,
    count: Annotated[int, Option("-n", "--count", min=1, help="Frames to choose.")] = 100,
    known: Annotated[
        list[str] | None,
        Option(help="Frames that are there already, to be far from too; may be given again."),
    ] = None,
    output: Written = None,
    rest: Rest = None,
    cutoff: Cutoff = 6.0,
    format: Format = None,
    plot: Annotated[
        Path | None, Option(help="Picture to draw, of all structures and those chosen.")
    ] = None,
    energy: Energy = "free",
    keep_unconverged: KeepUnconverged = False,
    map: Map = None,
) -> Report:
    """Choose the frames that are farthest from each other, with or without labels.

    Structures are compared by moments of the neighbors of their atoms, element by element.

    Example: pwmlff data select md.extxyz -n 50 --known train.extxyz -o chosen.extxyz
    """
    from pwmlff.data import choices

    frames = _read(files, format, energy, keep_unconverged, map)
    others = _read(known, format, energy, keep_unconverged, map) if known else None
    return choices.select(frames, others, count, cutoff, choices.Outputs(output, rest, plot))


def outliers(
    files: Files = None,
    model: Annotated[
        list[Path] | None,
        Option(
            help="Model to compare with the labels; of several, their deviation too; may be given "
            "again."
        ),
    ] = None,
    output: Written = None,
    rest: Rest = None,
    format: Format = None,
    plot: Annotated[
        Path | None, Option(help="Picture to draw, of the numbers of all frames.")
    ] = None,
    energy: Energy = "free",
    keep_unconverged: KeepUnconverged = False,
    map: Map = None,
) -> Report:
    """Find frames that stick out: by their error under models, or by their labels.

    Of models: the RMS error of forces, the error of the energy beside the usual one, the largest
    deviation of several models. Without: the largest force, and how far the energy of an atom is
    from that of the composition.

    Example: pwmlff data outliers train.extxyz --model a.pt --model b.pt --plot outliers.png
    """
    from pwmlff.data import choices

    outputs = choices.Outputs(output, rest, plot).checked()
    frames = _read(files, format, energy, keep_unconverged, map)
    values = _error_numbers(frames, model) if model else choices.label_numbers(frames)
    return choices.outliers(frames, values, outputs)


def dedupe(
    files: Files = None,
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="File for the frames, each structure once, extended XYZ."),
    ] = None,
    rest: Annotated[Path | None, Option(help="The same file, as an option of its own.")] = None,
    cutoff: Cutoff = 6.0,
    format: Format = None,
    energy: Energy = "free",
    keep_unconverged: KeepUnconverged = False,
    map: Map = None,
) -> Report:
    """Find frames whose structure was there before, turned, moved or numbered in another way.

    Example: pwmlff data dedupe a.extxyz b.extxyz -o distinct.extxyz
    """
    from pwmlff.data import choices

    frames = _read(files, format, energy, keep_unconverged, map)
    return choices.dedupe(frames, cutoff, choices.Outputs(output, rest))


def _read(
    files: list[str] | None, format: Format, energy: str, keep_unconverged: bool, map: Map
) -> Frames:
    from pwmlff.data import readers

    kinds = kinds_of(map)
    return readers.read(files or [], format, energy, keep_unconverged=keep_unconverged, kinds=kinds)


def _error_numbers(frames: Frames, models: list[Path]) -> dict[str, ndarray]:
    """What models make of frames, [nframes] each; NaN where there is no label."""
    import numpy as np

    from pwmlff.data import choices
    from pwmlff.evaluation import many
    from pwmlff.train import uncertainty

    structures = [frames.structure(k) for k in range(len(frames))]
    results = [many.evaluate(model, structures) for model in models]
    forces = [np.concatenate([one.forces for one in ones]) for ones in results]
    energies = np.array([[one.energy for one in ones] for ones in results]).mean(axis=0)
    deviation, error = uncertainty.disagreement(frames, forces)
    difference = (energies - frames.energies) / np.maximum(frames.natoms, 1)
    values = {
        "RMS error of forces, eV/Å": np.sqrt(frames.reduce_atoms(error**2, np.add) / frames.natoms),
        "error of the energy, eV/atom": choices.from_usual(frames, difference, least=3),
    }
    if len(models) > 1:
        values["largest deviation, eV/Å"] = frames.reduce_atoms(deviation, np.maximum)
    return values
