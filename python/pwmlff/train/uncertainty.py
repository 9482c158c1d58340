"""What the deviation of an ensemble tells of the error of its mean.

The deviation of an atom is that of docs/uncertainty.md, the root of the mean square distance of the
models' forces from their mean; its error is the distance of that mean from the label. Structures
with even numbers teach a bound for each deviation, those with odd ones test it (split conformal
prediction, Papadopoulos et al., ECML 2002, in bins of the deviation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pwmlff.data.frames import Frames
from pwmlff.train.errors import UNITS

BINS = 8  # of as many atoms each
SHARE = 0.9  # of errors that are to be below the bound
OUTLIER = 3.0  # times the RMSE


@dataclass(frozen=True)
class DeviationBin:
    """Atoms with deviations from `low` to `high`, in the units that errors are reported in."""

    low: float
    high: float
    atoms: int
    rmse: float
    bound: float  # that SHARE of the errors are below, of the structures that teach


@dataclass(frozen=True)
class Calibration:
    """How far a deviation can be taken for an error."""

    atoms: int
    outliers: int  # errors of more than OUTLIER times their RMS
    auc: float | None  # of telling them from others by the deviation; None without both
    coverage: float | None  # share of the errors of the test that are below the bound
    bins: list[DeviationBin]


def of_ensemble(
    frames: Frames, forces: Sequence[np.ndarray], units: str = "metal"
) -> Calibration | None:
    """Calibrate the deviation of models on labelled structures.

    Args:
        frames: structures with labels.
        forces: [natoms, 3] by each model.
        units: of the structures, a key of UNITS.

    Returns:
        None where no atom has a label, or a prediction is no number.
    """
    known = ~np.isnan(frames.forces).any(axis=1)
    every = UNITS[units].factor * np.array(forces)[:, known]
    if not known.any() or not np.isfinite(every).all():
        return None
    mean = every.mean(axis=0)
    deviation = np.sqrt(every.var(axis=0).sum(axis=1))
    error = np.linalg.norm(mean - UNITS[units].factor * frames.forces[known], axis=1)
    odd = np.repeat(np.arange(len(frames)) % 2 == 1, frames.natoms)[known]
    return calibrate(deviation, error, odd)


def calibrate(deviation: np.ndarray, error: np.ndarray, test: np.ndarray) -> Calibration:
    """Relate deviations to errors.

    Args:
        deviation, error: [n] of atoms, in one unit.
        test: [n] which of them only test what the others teach.
    """
    outlier = error > OUTLIER * np.sqrt(np.square(error).mean())
    teaching = ~test if not test.all() else test
    edges = np.quantile(deviation[teaching], np.linspace(0, 1, BINS + 1))
    place = np.clip(np.searchsorted(edges, deviation, side="right") - 1, 0, BINS - 1)
    bins, bounds = [], np.zeros(BINS)
    for k in range(BINS):
        chosen = teaching & (place == k)
        bounds[k] = np.quantile(error[chosen], SHARE) if chosen.any() else 0.0
    bounds = np.maximum.accumulate(bounds)  # more deviation is never less doubt
    for k in range(BINS):
        chosen = place == k
        if chosen.any():
            rmse = float(np.sqrt(np.square(error[chosen]).mean()))
            low, high = (float(values) for values in edges[k : k + 2])
            bins.append(DeviationBin(low, high, int(chosen.sum()), rmse, float(bounds[k])))
    covered = error[test] <= bounds[place[test]]
    return Calibration(
        len(error),
        int(outlier.sum()),
        _auc(deviation, outlier),
        float(covered.mean()) if test.any() and not test.all() else None,
        bins,
    )


def _auc(score: np.ndarray, positive: np.ndarray) -> float | None:
    """Area under the ROC curve: how often a positive has the larger score (Mann-Whitney)."""
    others = np.sort(score[~positive])
    if not positive.any() or not len(others):
        return None
    smaller = np.searchsorted(others, score[positive], side="left")
    not_larger = np.searchsorted(others, score[positive], side="right")
    return float((smaller + not_larger).mean() / (2 * len(others)))
