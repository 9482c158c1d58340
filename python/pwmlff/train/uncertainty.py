"""What the deviation of an ensemble tells of the error of its mean, and gamma of that of a model.

A training keeps what its frames that validate tell, in calibration.txt beside the models: bins of
the deviation, and for each a bound that 90 % of the errors are below. One model has gamma
(:mod:`pwmlff.train.extrapolation`), which has no unit, times the RMS error of an atom of that
element instead. As few frames tell of many atoms, a bound is one standard error above the quantile
(jackknife over blocks of frames, Quenouille 1949); beyond the last bin it grows with the deviation.

The deviation of an atom is that of docs/uncertainty.md, the root of the mean square distance of the
models' forces from their mean; its error is the distance of that mean from the label. Structures
with even numbers teach a bound for each deviation, and those with odd ones test it. That is split
conformal prediction in bins of the deviation (Papadopoulos et al., ECML 2002).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from ase.data import chemical_symbols

from pwmlff.data.frames import Frames
from pwmlff.files import read_text, write_whole
from pwmlff.report import Failure
from pwmlff.train.errors import UNITS

BINS = 8  # of as many atoms each
SHARE = 0.9  # of errors that are to be below the bound
BLOCKS = 10  # of frames, for the standard error of a bound
NAME = "calibration.txt"
HEAD = "# {}, and the bound of its error from there on, eV/angstrom"
OF_SEVERAL, OF_ONE = "force deviation of an atom", "gamma of an atom times the error of its element"
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


@dataclass(frozen=True)
class Bounds:
    """Bounds of errors of forces by deviations, all in eV/angstrom (reduced in units "lj")."""

    models: dict[str, str]  # SHA-256 by the name of the file
    frames: int  # that taught them
    edges: list[float]  # of the bins, ascending
    bounds: list[float]  # of each bin
    errors: dict[str, float] = field(default_factory=dict)  # RMS, by element, for gamma

    def limits(self, deviation: np.ndarray) -> np.ndarray:
        """The bound of the error of each atom [n]."""
        edges, bounds = np.array(self.edges), np.array(self.bounds)
        index = _bins_of(deviation, edges)
        growth = np.maximum(1.0, deviation / max(edges[-1], 1e-300))
        result: np.ndarray = bounds[index] * growth
        return result

    def coverage(self, deviation: np.ndarray, error: np.ndarray) -> float:
        """The share of errors [n] that are below their bound; NaN are left out."""
        known = ~np.isnan(error)
        return float((error[known] <= self.limits(deviation[known])).mean())

    def write(self, folder: Path) -> None:
        """Keep them beside the models, as lmp reads them too (pair_pwmlff/calibration.h)."""
        what = OF_SEVERAL if len(self.models) > 1 else OF_ONE
        lines = [HEAD.format(what), f"# frames {self.frames}"]
        lines += [f"# model {name} {digest}" for name, digest in self.models.items()]
        lines += [f"# error {element} {rms!r}" for element, rms in self.errors.items()]
        bounds = [*self.bounds, self.bounds[-1]]
        lines += [f"{x!r} {y!r}" for x, y in zip(self.edges, bounds, strict=True)]
        write_whole(folder / NAME, ("\n".join(lines) + "\n").encode())

    @classmethod
    def stored(cls, models: Sequence[Path]) -> Bounds | None:
        """Those of exactly these files; None where there are none, or of other contents."""
        path = models[0].parent / NAME
        if not path.is_file():
            return None
        lines = read_text(path).splitlines()
        named = [line.split()[2:] for line in lines if line.startswith("# model ")]
        try:
            frames = int(next(line for line in lines if line.startswith("# frames ")).split()[2])
            of_elements = [line.split()[2:] for line in lines if line.startswith("# error ")]
            errors = {element: float(rms) for element, rms in of_elements}
            edges, bounds = np.loadtxt(lines, ndmin=2).T.tolist()
            bounds_read = cls(dict(named), frames, edges, bounds[:-1], errors)
        except (ValueError, StopIteration) as error:
            raise Failure(f"'{path}' holds no calibration ({error}); remove it") from error
        return bounds_read if bounds_read.models == hashes(models) else None


def hashes(models: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of files by their names."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in models}


def errors_by_element(error: np.ndarray, numbers: np.ndarray) -> dict[str, float]:
    """The RMS of errors [n] of atoms with these atomic numbers [n]; NaN are left out."""
    known = np.isfinite(error)
    return {
        chemical_symbols[z]: float(np.sqrt(np.square(error[known & (numbers == z)]).mean()))
        for z in np.unique(numbers[known])
    }


def in_place_of_deviation(
    gamma: np.ndarray, numbers: np.ndarray, errors: dict[str, float]
) -> np.ndarray:
    """Gamma [n] of atoms with these atomic numbers [n], times the RMS errors of their elements."""
    of_others = max(errors.values(), default=1.0)
    every = [errors.get(chemical_symbols[z], of_others) for z in numbers]
    result: np.ndarray = gamma * np.array(every)
    return result


def _bins_of(deviation: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin of each deviation; what is beyond all is in the first or the last one."""
    indices: np.ndarray = np.searchsorted(edges, deviation, side="right") - 1
    return indices.clip(0, len(edges) - 2)


def bounded(
    models: Sequence[Path], deviation: np.ndarray, error: np.ndarray, frame: np.ndarray
) -> Bounds:
    """Learn bounds from structures that the models have not learned from.

    Args:
        models: files of the ensemble.
        deviation, error: [n] of atoms, eV/angstrom.
        frame: [n] the structure of each, ascending from 0.
    """
    nframes = int(frame[-1]) + 1
    edges = np.quantile(deviation, np.linspace(0, 1, BINS + 1))
    index = _bins_of(deviation, edges)
    block = frame * min(BLOCKS, nframes) // nframes
    nblocks = int(block[-1]) + 1
    bounds = np.zeros(BINS)
    for k in range(BINS):
        chosen = index == k
        if not chosen.any():
            continue
        parts = [error[chosen & (block != one)] for one in range(nblocks)]
        quantiles = np.array([np.quantile(part, SHARE) for part in parts if len(part)])
        spread = np.square(quantiles - quantiles.mean()).sum() if len(quantiles) else 0.0
        deviation_of_it = np.sqrt((nblocks - 1) / nblocks * spread)
        bounds[k] = np.quantile(error[chosen], SHARE) + deviation_of_it
    bounds = np.maximum.accumulate(bounds)  # more deviation is never less doubt
    return Bounds(hashes(models), nframes, edges.tolist(), bounds.tolist())


def keep(
    folder: Path, models: Sequence[Path], frames: Frames, value: np.ndarray, error: np.ndarray
) -> None:
    """Write the bounds that frames teach; nothing where no atom has a label.

    Args:
        folder: of the training.
        models: as :func:`bounded` takes them.
        frames: that the models have not learned from.
        value, error: [natoms] its deviation, of one model its gamma, and error; NaN without a
            label.
    """
    known = np.isfinite(error)
    if known.any():
        frame = np.repeat(np.arange(len(frames)), frames.natoms)
        _, frame = np.unique(frame[known], return_inverse=True)
        errors = errors_by_element(error, frames.numbers) if len(models) == 1 else {}
        if errors:
            value = in_place_of_deviation(value, frames.numbers, errors)
        found = bounded(models, value[known], error[known], frame)
        replace(found, errors=errors).write(folder)


def disagreement(frames: Frames, forces: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Deviation of models and error of their mean of each atom [natoms]; NaN without a label.

    Args:
        frames: structures with labels.
        forces: [natoms, 3] by each model.
    """
    every = np.array(forces)
    deviation: np.ndarray = np.sqrt(every.var(axis=0).sum(axis=1))
    error: np.ndarray = np.linalg.norm(every.mean(axis=0) - frames.forces, axis=1)
    return deviation, error


def calibrate_ensemble(
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
    deviation, error = disagreement(frames, forces)
    return _calibrated(frames, UNITS[units].factor * deviation, error, units)


def calibrate_grade(
    frames: Frames, forces: np.ndarray, gamma: np.ndarray, units: str = "metal"
) -> Calibration | None:
    """Calibrate the extrapolation grade of a model on labelled structures.

    Args:
        frames: structures with labels.
        forces: [natoms, 3] by the model.
        gamma: [natoms] by it.
        units: of the structures, a key of UNITS.

    Returns:
        None where no atom has a label, or a prediction is no number.
    """
    error = np.linalg.norm(forces - frames.forces, axis=1)
    teaching = np.where(_teaching(frames), error, np.nan)
    errors = errors_by_element(teaching, frames.numbers)
    deviation = in_place_of_deviation(gamma, frames.numbers, errors)
    return _calibrated(frames, UNITS[units].factor * deviation, error, units)


def _teaching(frames: Frames) -> np.ndarray:
    """Which atoms [natoms] teach the others."""
    result: np.ndarray = np.repeat(np.arange(len(frames)) % 2 == 0, frames.natoms)
    return result


def _calibrated(
    frames: Frames, deviation: np.ndarray, error: np.ndarray, units: str
) -> Calibration | None:
    """The same from a deviation [natoms] and the error of a force [natoms], eV/angstrom."""
    known = ~np.isnan(frames.forces).any(axis=1)
    if not known.any() or not np.isfinite([deviation[known], error[known]]).all():
        return None
    tests = ~_teaching(frames)[known]
    return calibrate(deviation[known], UNITS[units].factor * error[known], tests)


def calibrate(deviation: np.ndarray, error: np.ndarray, test: np.ndarray) -> Calibration:
    """Relate deviations to errors.

    Args:
        deviation, error: [n] of atoms, in one unit.
        test: [n] which of them only test what the others teach.
    """
    outlier = error > OUTLIER * np.sqrt(np.square(error).mean())
    teaching = ~test if not test.all() else test
    edges = np.quantile(deviation[teaching], np.linspace(0, 1, BINS + 1))
    index = _bins_of(deviation, edges)
    bins, bounds = [], np.zeros(BINS)
    for k in range(BINS):
        chosen = teaching & (index == k)
        bounds[k] = np.quantile(error[chosen], SHARE) if chosen.any() else 0.0
    bounds = np.maximum.accumulate(bounds)  # more deviation is never less doubt
    for k in range(BINS):
        chosen = index == k
        if chosen.any():
            rmse = float(np.sqrt(np.square(error[chosen]).mean()))
            low, high = (float(values) for values in edges[k : k + 2])
            bins.append(DeviationBin(low, high, int(chosen.sum()), rmse, float(bounds[k])))
    covered = error[test] <= bounds[index[test]]
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
