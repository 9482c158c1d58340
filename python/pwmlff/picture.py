"""Where pictures go: what is wrong with a name is said before the work, not after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pwmlff.report import Failure

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

DEFAULT = ".png"  # for a name without an ending


def destination(path: Path) -> Path:
    """The file that a picture of this name is written to, with its ending.

    Raises:
        Failure: the ending is no format of matplotlib's, or the file cannot be written.
    """
    from matplotlib.backend_bases import FigureCanvasBase  # noqa: PLC0415  slow to import

    if not path.name:
        raise Failure(f"cannot write a picture to '{path}', expected the name of a file")
    result = path if path.suffix else path.with_name(path.name + DEFAULT)
    formats = FigureCanvasBase.get_supported_filetypes()
    if result.suffix[1:].lower() not in formats:
        raise Failure(
            f"cannot write '{path}': its ending is '{result.suffix}', expected one of "
            f"{', '.join(sorted(formats))}"
        )
    if not result.parent.is_dir():
        raise Failure(f"cannot write '{path}': found no folder '{result.parent}'")
    if result.is_dir() or not os.access(result if result.exists() else result.parent, os.W_OK):
        raise Failure(f"cannot write '{path}': it is a folder, or writing is not allowed there")
    return result


def save(figure: Figure, path: Path, dpi: int) -> None:
    """Write a picture to what :func:`destination` has returned; no half of one stays."""
    try:
        figure.savefig(path, dpi=dpi)
    except OSError as error:
        path.unlink(missing_ok=True)
        error.filename = str(path)  # a write that finds the disk full names none
        raise


def few_ticks(axis: Axis, span: float) -> None:
    """Label a logarithmic axis at numbers that have place beside each other.

    Args:
        axis: of x or y.
        span: the largest value over the smallest one.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415  slow

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 10.0**2.5 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
