"""`pwmlff data`: what is in training data, and what is kept of it ready for use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pwmlff.commands.base import Energy, Format
from pwmlff.commands.options import elements_of
from pwmlff.report import Failure, Report


def check(
    files: Annotated[
        list[str] | None,
        Argument(
            metavar="[DATA]...", help="Files, or folders of DeePMD-kit; FILE@0:100:2 for some."
        ),
    ] = None,
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
) -> Report:
    """Look at training data: what there is, and what is wrong with it, by file and frame.

    Missing labels, NaN, outliers, duplicates, overlapping atoms, energies that change otherwise
    than the forces say, the sign of the stress.

    Example: pwmlff data check train.extxyz MOVEMENT --elements 'Hf O' --plot data.png
    """
    from pwmlff.data import check as work

    if not (named := [*(files or ()), *(data or ())]):
        raise Failure("found no DATA, expected files or folders with labelled structures")
    return work.check(
        named, elements=elements_of(elements), format=format, cutoff=cutoff, closest=closest,
        plot=plot, energy=energy,
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
