"""Pictures of a training: errors over steps, and predictions against labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pwmlff.data.frames import Frames
from pwmlff.train.errors import QUANTITIES, UNITS, Errors, Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pwmlff.train.record import Row

SETS = {"train": "C0", "valid": "C1"}
#: Points beyond which a parity plot shows their density.
MOST_POINTS = 5000


def learning_curve(rows: Sequence[Row], units: str = "metal") -> Figure:
    """RMSE of each quantity over the step, of both sets, and the loss.

    Args:
        rows: of a log, in the order of their steps; one or more.
        units: of the structures, a key of UNITS.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    panels: dict[str, dict[str, list[float | None]]] = {}
    for quantity in QUANTITIES:
        curves = {name: [getattr(row, f"{quantity}_{name}") for row in rows] for name in SETS}
        if any(value is not None for values in curves.values() for value in values):
            panels[quantity] = curves
    if any(row.loss is not None for row in rows):
        panels["loss"] = {"train": [row.loss for row in rows]}
    figure = Figure(figsize=(6.4, 0.8 + 1.9 * max(len(panels), 1)), layout="constrained")
    every = figure.subplots(max(len(panels), 1), sharex=True, squeeze=False)[:, 0]
    steps = [row.step for row in rows]
    for (name, curves), axes in zip(panels.items(), every, strict=False):
        axes.set_label(name)
        for which, values in curves.items():
            # Only errors above 0 have a place on a logarithmic axis.
            shown = [np.nan if v is None or not v > 0.0 else v for v in values]
            if not np.isnan(shown).all():
                marker = "." if len(rows) < 50 else ""
                axes.plot(steps, shown, color=SETS[which], label=which, marker=marker)
        unit = "" if name == "loss" else f"\n({UNITS[units].unit_of(name)})"
        axes.set_ylabel(("loss" if name == "loss" else f"{name} RMSE") + unit)
        if axes.lines:
            axes.legend(fontsize="small")
            _scale(axes)
    every[-1].set_xlabel("step")
    return figure


def _scale(axes: Axes) -> None:
    """Make the y axis logarithmic where it spans a decade, and so has ticks enough."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415  slow

    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    if np.nanmax(values) < 10.0 * np.nanmin(values):
        return
    axes.set_yscale("log")
    decades = np.log10(np.nanmax(values) / np.nanmin(values))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def parity(
    frames: Frames,
    energy: np.ndarray,
    forces: np.ndarray,
    virial: np.ndarray,
    errors: Errors,
    model: str,
) -> Figure:
    """Predictions against labels: energy per atom, force components, virial per atom.

    Args:
        frames: structures with labels.
        energy: [nframes], forces [natoms, 3], virial [nframes, 3, 3]: predictions.
        errors: of these predictions.
        model: its name, for the title.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    natoms = np.maximum(frames.natoms, 1)
    per_atom = natoms[:, None, None]
    pairs = {
        "energy": (frames.energies / natoms, energy / natoms),
        "force": (frames.forces, forces),
        "virial": (frames.virials / per_atom, virial / per_atom),
    }
    measures = errors.measures
    figure = Figure(figsize=(4.2 * max(len(measures), 1), 4.2), layout="constrained")
    every = figure.subplots(1, max(len(measures), 1), squeeze=False)[0]
    for (name, measure), axes in zip(measures.items(), every, strict=False):
        axes.set_label(name)
        label, found = (np.ravel(values) for values in pairs[name])
        there = np.isfinite(label) & np.isfinite(found)
        _draw_parity(axes, label[there], found[there])
        _name_axes(axes, name, measure, errors.units)
    first, *others = frames.files
    more = f" and {len(others)} more file{'s' * (len(others) > 1)}" if others else ""
    count = f"{len(frames)} frame{'s' * (len(frames) > 1)}"
    figure.suptitle(f"{model}\n{count} of {first}{more}", fontsize="small", parse_math=False)
    return figure


def _draw_parity(axes: Axes, label: np.ndarray, found: np.ndarray) -> None:
    if not len(label):
        return
    low, high = (f(np.r_[label, found]) for f in (np.min, np.max))
    margin = 0.03 * (high - low) or 0.5
    ends: tuple[Any, Any] = (low - margin, high + margin)
    axes.plot(ends, ends, "-", color="0.7", linewidth=0.8, zorder=0)
    if len(label) > MOST_POINTS:
        axes.hexbin(label, found, gridsize=80, extent=(*ends, *ends), bins="log", mincnt=1)
    else:
        axes.plot(label, found, ".", markersize=3, alpha=0.6)
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.set_aspect("equal")
    axes.locator_params(nbins=5)  # numbers like -36.85 are wide


def _name_axes(axes: Axes, name: str, measure: Measure, units: str) -> None:
    unit = UNITS[units]
    # Values are in the units of the structures, errors in those that they are reported in.
    own = unit.magnitude if name == "force" else unit.unit_of(name).replace("meV", "eV")
    title = {"energy": "energy per atom", "virial": "virial per atom"}.get(name, name)
    axes.set_xlabel(f"{title} of the data ({own})")
    axes.set_ylabel(f"{title} of the model ({own})")
    axes.set_title(f"RMSE {measure.rmse:.4g} {unit.unit_of(name)}", fontsize="medium")
