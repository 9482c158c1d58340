"""How far energies, forces, virials and Born charges are from the labels of structures.

    errors = compute(frames, energy, forces, virial)
    errors.force.rmse  # meV/Å

The error of an energy is (E - E')/n of a frame of n atoms. A force has an error for each component,
a virial one for each of its 9 components over n, a Born charge one for each of its 9, in e. A label
that is missing counts nowhere; a prediction that is no number makes its RMSE one that is none.
Energies of isolated atoms, eV off where others are meV, do not count among others:
:func:`isolated_atoms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from ase.data import chemical_symbols

from pwmlff.data.frames import Frames

#: What there are errors of, and what people call it.
QUANTITIES = {"energy": "energy", "force": "force", "virial": "virial", "born": "Born charge"}

OF_ATOMS = ("force", "born")


@dataclass(frozen=True)
class Units:
    """What errors are reported in."""

    factor: float  # from the units of the structures; of a Born charge 1
    energy: str
    force: str
    virial: str
    magnitude: str  # of a force, not of its error
    whole: str  # of an energy, not of its error
    born: str = "e"

    def unit_of(self, quantity: str) -> str:
        """Unit of the error of a quantity."""
        return str(getattr(self, quantity))

    @property
    def reported_in(self) -> dict[str, str]:
        """Units of the errors by quantity."""
        return {quantity: self.unit_of(quantity) for quantity in QUANTITIES}


UNITS = {
    "metal": Units(1000.0, "meV/atom", "meV/Å", "meV/atom", "eV/Å", "eV"),
    "lj": Units(1.0, "epsilon/atom", "epsilon/sigma", "epsilon/atom", "epsilon/sigma", "epsilon"),
}
#: A constant of each element explains an error where no more of its square is left, of so many
#: frames for each constant.
MOST_LEFT, FRAMES_EACH = 0.25, 3
#: Where the bins of the magnitude of the reference force begin.
MAGNITUDES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Measure:
    """Errors of one quantity, in the units that they are reported in."""

    count: int
    rmse: float
    mae: float
    largest: float

    @classmethod
    def from_errors(cls, errors: np.ndarray) -> Measure | None:
        """Of any number of errors; None where there is none."""
        size = np.abs(errors).ravel()
        if not len(size):
            return None
        # Scaled, as squares of huge errors would be beyond the largest number.
        largest = size.max()
        scale = largest if 0.0 < largest < np.inf else 1.0
        rmse = scale * np.sqrt(np.square(size / scale).mean())
        return cls(len(size), float(rmse), float(size.mean()), float(largest))


@dataclass(frozen=True)
class Bin:
    """Forces whose reference has a magnitude of at least `low` and less than `high`."""

    low: float  # in the units of the structures
    high: float
    atoms: int
    measure: Measure


@dataclass(frozen=True)
class Errors:
    """Errors of a set of structures; None for a quantity without labels."""

    units: str  # of the structures; UNITS says what the errors are in
    frames: int
    atoms: int
    energy: Measure | None
    force: Measure | None
    virial: Measure | None
    born: Measure | None
    by_element: dict[str, Measure]  # of the force, by chemical symbol
    by_group: dict[str, dict[str, Measure]]  # by group and quantity
    by_magnitude: list[Bin]  # of the force

    @property
    def measures(self) -> dict[str, Measure]:
        """Those of the quantities that have labels."""
        every = {name: getattr(self, name) for name in QUANTITIES}
        return {name: measure for name, measure in every.items() if measure is not None}

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "reported_in": UNITS[self.units].reported_in}


@dataclass(frozen=True)
class WorstFrame:
    """A frame and the error of its energy."""

    file: str
    index: int  # of the frame in its file
    group: str
    atoms: int
    error: float  # predicted - expected, per atom, as reported


@dataclass(frozen=True)
class WorstAtom:
    """An atom and the magnitude of the error of its force."""

    file: str
    index: int  # of the frame in its file
    atom: int  # in its frame, from 0
    element: str
    error: float  # as reported
    magnitude: float  # of the reference force, in the units of the structures


def compute(
    frames: Frames,
    energy: np.ndarray,
    forces: np.ndarray,
    virial: np.ndarray,
    units: str = "metal",
    born: np.ndarray | None = None,
) -> Errors:
    """Compare predictions with the labels.

    Args:
        frames: structures with labels.
        energy: [nframes] of whole structures.
        forces: [natoms, 3].
        virial: [nframes, 3, 3], with the sign of `Frames`.
        units: of the structures and the predictions, a key of UNITS.
        born: [natoms, 3, 3], which counts in frames with labels; None of a model that gives none.

    Raises:
        ValueError: an array has another shape.
    """
    differences = _differences(frames, energy, forces, virial, units)
    differences["born"] = np.zeros((len(frames.numbers), 3, 3))
    labelled = {
        "energy": ~np.isnan(frames.energies),
        "force": ~np.isnan(frames.forces).any(axis=1),
        "virial": ~np.isnan(frames.virials).any(axis=(1, 2)),
        "born": np.zeros(len(frames.numbers), dtype=bool),
    }
    if born is not None and len(frames.born):
        differences["born"] = born - frames.born
        labelled["born"] = np.repeat(frames.has_born, frames.natoms)

    def measured(quantity: str, chosen: np.ndarray) -> Measure | None:
        """Of chosen frames, or atoms for the force and the Born charge."""
        if quantity == "energy":
            chosen = among_others(frames, chosen & labelled[quantity])
        return Measure.from_errors(differences[quantity][labelled[quantity] & chosen])

    def group_measures(k: int) -> dict[str, Measure]:
        chosen = frames.group == k
        atoms = np.repeat(chosen, frames.natoms)
        measures = {q: measured(q, atoms if q in OF_ATOMS else chosen) for q in QUANTITIES}
        return {quantity: measure for quantity, measure in measures.items() if measure}

    return Errors(
        units=units,
        frames=len(frames),
        atoms=len(frames.numbers),
        **{q: measured(q, np.ones(len(labelled[q]), dtype=bool)) for q in QUANTITIES},
        by_element={
            chemical_symbols[z]: measure
            for z in frames.elements
            if (measure := measured("force", frames.numbers == z))
        },
        by_group={
            name: measures
            for k, name in enumerate(frames.group_names)
            if (measures := group_measures(k))
        },
        by_magnitude=list(_bins(frames, differences["force"])),
    )


def among_others(frames: Frames, chosen: np.ndarray) -> np.ndarray:
    """Of chosen frames those that are no isolated atoms, or all where there are no others."""
    others = chosen & ~frames.isolated
    result: np.ndarray = others if others.any() else chosen
    return result


def isolated_atoms(frames: Frames, energy: np.ndarray) -> dict[str, dict[str, float]]:
    """Energies of isolated atoms (E0), the mean of several, as :func:`compute` takes them.

    Returns:
        By chemical symbol those of "data" and "model", in the units of the structures.
    """
    alone = np.flatnonzero(frames.isolated & ~np.isnan(frames.energies))
    numbers = frames.numbers[frames.first[alone]]
    return {
        chemical_symbols[z]: {
            "data": float(frames.energies[alone[numbers == z]].mean()),
            "model": float(energy[alone[numbers == z]].mean()),
        }
        for z in np.unique(numbers)
    }


@dataclass(frozen=True)
class Shifted:
    """Errors of energies after an energy of each element is taken off, by least squares."""

    measure: Measure
    energies: dict[str, float]  # by chemical symbol, of the model above the data; eV or epsilon
    explains: bool  # whether it is most of the error, of more frames than it could fit anyhow


def shifted(frames: Frames, energy: np.ndarray, units: str = "metal") -> Shifted | None:
    """How far energies are off beside a constant for each atom of an element.

    Args:
        frames: structures with labels.
        energy: [nframes] predictions.
        units: a key of UNITS.

    Returns:
        None where no frame has an energy, or a prediction is no number. Where compositions do not
        tell elements apart, the constants are the least ones beside their mean.
    """
    known = ~np.isnan(frames.energies) & (frames.natoms > 0)
    known = np.flatnonzero(among_others(frames, known))
    share = frames.counts[known] / frames.natoms[known, None]
    error = ((energy - frames.energies) / np.maximum(frames.natoms, 1))[known]
    if not len(known) or not np.isfinite(error).all():
        return None
    mean = error.mean()
    constants, _, rank, _ = np.linalg.lstsq(share, error - mean, rcond=1e-8)
    constants += mean  # as shares add up to 1
    factor = UNITS[units].factor
    left = error - share @ constants
    measure = Measure.from_errors(factor * left)
    assert measure is not None  # there are frames
    explains = len(known) >= FRAMES_EACH * rank and (left**2).sum() < MOST_LEFT * (error**2).sum()
    symbols = [chemical_symbols[z] for z in frames.elements]
    energies = dict(zip(symbols, constants.tolist(), strict=True))
    return Shifted(measure, energies, bool(explains))


def _differences(
    frames: Frames, energy: np.ndarray, forces: np.ndarray, virial: np.ndarray, units: str
) -> dict[str, np.ndarray]:
    """Errors as reported: energy [nframes], force [natoms, 3], virial [nframes, 3, 3]."""
    natoms = np.maximum(frames.natoms, 1)
    result = {}
    for quantity, name, predicted, label, parts in (
        ("energy", "energy", energy, frames.energies, natoms),
        ("force", "forces", forces, frames.forces, np.ones(1)),
        ("virial", "virial", virial, frames.virials, natoms[:, None, None]),
    ):
        if np.shape(predicted) != label.shape:
            raise ValueError(f"{name} has shape {np.shape(predicted)}, expected {label.shape}")
        result[quantity] = UNITS[units].factor * (predicted - label) / parts
    return result


def _bins(frames: Frames, difference: np.ndarray) -> Iterable[Bin]:
    magnitude = np.linalg.norm(frames.forces, axis=1)  # NaN is in no bin
    for low, high in zip(MAGNITUDES, (*MAGNITUDES[1:], np.inf), strict=True):
        chosen = (low <= magnitude) & (magnitude < high)
        if measure := Measure.from_errors(difference[chosen]):
            yield Bin(low, high, int(chosen.sum()), measure)


def worst_frames(
    frames: Frames, energy: np.ndarray, most: int, units: str = "metal"
) -> list[WorstFrame]:
    """The frames whose energies are furthest off, the worst first; the rest as :func:`compute`."""
    error = UNITS[units].factor * (energy - frames.energies) / np.maximum(frames.natoms, 1)
    return [
        WorstFrame(
            frames.files[frames.file[k]],
            int(frames.index[k]),
            frames.group_names[frames.group[k]],
            int(frames.natoms[k]),
            float(error[k]),
        )
        for k in _largest(np.abs(error), among_others(frames, ~np.isnan(frames.energies)), most)
    ]


def worst_atoms(
    frames: Frames, forces: np.ndarray, most: int, units: str = "metal"
) -> list[WorstAtom]:
    """The atoms whose forces are furthest off, the worst first; the rest as :func:`compute`."""
    error = UNITS[units].factor * np.linalg.norm(forces - frames.forces, axis=1)
    worst = []
    for k in _largest(error, ~np.isnan(frames.forces).any(axis=1), most):
        frame = frames.frame_of(k)
        worst.append(
            WorstAtom(
                frames.files[frames.file[frame]],
                int(frames.index[frame]),
                int(k - frames.first[frame]),
                chemical_symbols[frames.numbers[k]],
                float(error[k]),
                float(np.linalg.norm(frames.forces[k])),
            )
        )
    return worst


def _largest(size: np.ndarray, labelled: np.ndarray, most: int) -> Sequence[int]:
    """Indices of the largest sizes among those with labels; what is no number comes first."""
    size = np.where(np.isnan(size), np.inf, size)
    chosen = np.flatnonzero(labelled)
    return [int(k) for k in chosen[np.argsort(-size[chosen], kind="stable")][:most]]
