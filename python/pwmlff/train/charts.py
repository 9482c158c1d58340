"""Pictures of predictions against labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pwmlff.data.frames import Frames
from pwmlff.train.errors import QUANTITIES, UNITS, Errors, Measure, among_others

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def parity(
    frames: Frames,
    energy: np.ndarray,
    forces: np.ndarray,
    virial: np.ndarray,
    errors: Errors,
    model: str,
    born: np.ndarray | None = None,
) -> Figure:
    """Predictions against labels: energy per atom, components of forces, virials, Born charges.

    Args:
        frames: structures with labels.
        energy: [nframes], forces [natoms, 3], virial [nframes, 3, 3]: predictions.
        errors: of these predictions.
        model: its name, for the title.
        born: [natoms, 3, 3], where `errors` has those of Born charges.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    natoms = np.maximum(frames.natoms, 1)
    per_atom = natoms[:, None, None]
    # An isolated atom, eV above the others, would leave them one point.
    counted = among_others(frames, ~np.isnan(frames.energies))
    energies = np.where(counted, frames.energies_per_atom, np.nan)
    pairs = {
        "energy": (energies, energy / natoms),
        "force": (frames.forces, forces),
        "virial": (frames.virials / per_atom, virial / per_atom),
        "born": (frames.born, born),
    }
    measures = errors.measures
    figure = Figure(figsize=(4.2 * max(len(measures), 1), 4.2), layout="constrained")
    every = figure.subplots(1, max(len(measures), 1), squeeze=False)[0]
    for (name, measure), axes in zip(measures.items(), every, strict=False):
        axes.set_label(name)
        label, predicted = (np.ravel(values) for values in pairs[name])
        there = np.isfinite(label) & np.isfinite(predicted)
        _draw_parity(axes, label[there], predicted[there])
        _name_axes(axes, name, measure, errors.units)
    first, *others = frames.files
    more = f" and {len(others)} more file{'s' * (len(others) > 1)}" if others else ""
    count = f"{len(frames)} frame{'s' * (len(frames) > 1)}"
    figure.suptitle(f"{model}\n{count} of {first}{more}", fontsize="small", parse_math=False)
    return figure


def _draw_parity(axes: Axes, label: np.ndarray, predicted: np.ndarray) -> None:
    if not len(label):
        return
    low, high = (f(np.r_[label, predicted]) for f in (np.min, np.max))
    margin = 0.03 * (high - low) or 0.5
    ends: tuple[Any, Any] = (low - margin, high + margin)
    axes.plot(ends, ends, "-", color="0.7", linewidth=0.8, zorder=0)
    if len(label) > 5000:  # too many to be seen one by one
        axes.hexbin(label, predicted, gridsize=80, extent=(*ends, *ends), bins="log", mincnt=1)
    else:
        axes.plot(label, predicted, ".", markersize=3, alpha=0.6)
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.set_aspect("equal")
    axes.locator_params(nbins=5)  # numbers like -36.85 are wide


def _name_axes(axes: Axes, name: str, measure: Measure, units: str) -> None:
    unit = UNITS[units]
    # Values are in the units of the structures, errors in those that they are reported in.
    own = unit.magnitude if name == "force" else unit.unit_of(name).replace("meV", "eV")
    title = QUANTITIES[name] + " per atom" * (name in ("energy", "virial"))
    axes.set_xlabel(f"{title} of the data ({own})")
    axes.set_ylabel(f"{title} of the model ({own})")
    axes.set_title(f"RMSE {measure.rmse:.4g} {unit.unit_of(name)}", fontsize="medium")
