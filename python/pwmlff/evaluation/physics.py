"""Checks of what a model makes of matter: dimers, compression, elasticity, vibrations, dynamics.

They belong to :mod:`pwmlff.evaluation.verification`, which has the letters and the structures.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import combinations_with_replacement

import numpy as np
from ase import Atoms, units
from ase.data import atomic_numbers, chemical_symbols, covalent_radii
from ase.md.bussi import Bussi
from ase.md.md import MolecularDynamics
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet
from ase.neighborlist import neighbor_list
from ase.optimize import FIRE

from pwmlff.evaluation.calculator import Calculator
from pwmlff.evaluation.properties import STEPS, Crystal, Properties
from pwmlff.evaluation.structures import crystal
from pwmlff.evaluation.verification import RELATIVE, Graded, Verification, letter

DRIFT = {"A": 1e-5, "B": 1e-4, "C": 1e-3, "D": 1e-2}  # eV/atom/ps
#: Drift of a long run for a picosecond, over the standard deviation of the kinetic energy.
LONG_DRIFT = {"A": 1e-3, "B": 1e-2, "C": 1e-1, "D": 1.0}
#: The lowest barrier, in eV, in front of a hole that has each letter; A is for no hole.
BARRIER = {"B": 20.0, "C": 5.0, "D": 1.0}
SIGN_CHANGES = {"A": 1, "B": 2, "C": 3, "D": math.inf}  # of the force of a dimer
#: Relative differences of properties; a volume counts five times.
DIFFERENCE = {"A": 0.02, "B": 0.05, "C": 0.10, "D": 0.25}
#: The largest imaginary frequency, in THz, that has each letter.
IMAGINARY = {"A": 0.1, "B": 0.5, "C": 2.0, "D": math.inf}
DIMER_BOX = 3.0  # its edge in cutoffs, for models with charges
LIKELY, USUAL = 2, 8  # places of a curve that may have a jump; points to both sides beside one
PAIRS = 10  # of elements whose dimers are looked at
NEAREST = 0.3  # angstrom, of dimers
CLOSEST = 0.45  # of the sum of covalent radii, from where the shape of a dimer counts
TURNED = 0.5  # of a rank correlation, below which a branch goes the other way
FLAT = 1e-2  # eV/angstrom, of a force without sign
TEMPERATURE = 300.0  # K
TIME_STEP = 0.5  # fs
ATOMS = 32  # of a crystal whose dynamics are looked at
LONG_STEP = 1.0  # fs
LONG_ENERGY, LONG_HOT = 50.0, 20.0  # ps
LONGEST = 300.0  # seconds of a long run
LOOKED = 20  # steps from one look for an event to the next
HOT = 3.0  # times the temperature of a run, which is an event
ASYMMETRIC = 1e-3  # of second derivatives, over the largest
#: Of a crystal of the data, at rest.
PROPERTY_CHECKS = ("equation-of-state", "elastic-constants", "phonons")
LONG_CHECKS = (*PROPERTY_CHECKS, "long-energy-conservation", "hot-stability")


@dataclass
class Curves:
    """What a picture shows."""

    dimers: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    volumes: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty(0))
    total_energy: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty(0))


@dataclass(frozen=True)
class DimerShape:
    """Of the curve of a dimer: one minimum, below which it repels and above which it attracts."""

    sign_changes: int  # of the force
    minima: int  # of the energy, between the ends
    inner: float  # rank correlation of energy and distance up to the bond; -1 is best
    outer: float  # and from there on; 1 is best

    @classmethod
    def counted(cls, found: np.ndarray, contact: int = 0) -> DimerShape:
        """From energies and forces [n, 2] at growing distances, from one of which the bond is."""
        energies, forces = found.T
        signs = np.sign(forces[abs(forces) > FLAT])
        turns = np.diff(signs)
        bottom = contact + int(np.argmin(energies[contact:]))
        felt = len(energies) - int(np.argmax(abs(forces[::-1]) > FLAT)) if len(signs) else 0
        return cls(
            int((turns != 0).sum()),
            int((turns < 0).sum()),
            _rises(energies[: bottom + 1]) if bottom > 1 else 1.0 if len(signs) else -1.0,
            _rises(energies[bottom:felt]),
        )

    @property
    def grade(self) -> str:
        """F for a dimer that attracts where it should repel, else by the changes of sign."""
        if self.inner > -TURNED:
            return "F"
        return max(letter(self.sign_changes, SIGN_CHANGES), "A" if self.outer >= TURNED else "D")


class Physics:
    """Checks of one model file.

    Args:
        examined: the model, with its structures.
        other: what its properties are compared with: values, or another model; None: with nothing.
        temperature: K, of the hot run; None: what the data tell, or 300.
    """

    def __init__(
        self,
        examined: Verification,
        other: Properties | Calculator | None = None,
        temperature: float | None = None,
    ) -> None:
        self.examined, self.other, self.temperature = examined, other, temperature
        self.info = examined.info
        self.curves, self.properties = Curves(), Properties()
        self.solids = [atoms for atoms in examined.labelled if atoms.pbc.all()]
        # a crystal of the data
        self.data_crystal = min(self.solids, key=len).copy() if self.solids else None

    def checks(self) -> dict[str, Callable[[], Graded]]:
        """All by name, in the order of the table; each may raise what an evaluation does.

        Curves and properties are those of the checks that have run.
        """
        checks: dict[str, Callable[[], Graded]] = {
            "dimer-continuity-c1": self.dimers,
            "dimer-repulsion": self.short_distances,
            "dimer-shape": self.dimer_shape,
            "energy-volume": self.energy_volume,
            "equation-of-state": partial(self._with_crystal, self.equation_of_state),
            "elastic-constants": partial(self._with_crystal, self.elastic_constants),
            "phonons": partial(self._with_crystal, self.phonons),
            "energy-conservation": self.energy_conservation,
            "long-energy-conservation": partial(self._in_metal, self.long_energy_conservation),
            "hot-stability": partial(self._in_metal, self.hot_stability),
        }
        return {name: self.examined.alone(check) for name, check in checks.items()}

    @cached_property
    def _dimers(self) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
        """Distances [n], and energies and forces [n, 2] there, of some pairs of elements."""
        pairs = list(combinations_with_replacement(self.examined.elements, 2))
        chosen = self.examined.rng.permutation(len(pairs))[:PAIRS]
        smallest = max(NEAREST, 0.05 * self.info.cutoff)
        r = np.linspace(smallest, 1.02 * self.info.interaction_range, 400)
        curves = {
            pairs[k]: (r, np.array([self._dimer(pairs[k], x) for x in r])) for k in sorted(chosen)
        }
        self.curves.dimers = {_name(pair): (r, each[:, 0]) for pair, (r, each) in curves.items()}
        return curves

    def _dimer(self, pair: tuple[int, int], r: float) -> tuple[float, float]:
        """Energy, and the force that drives the atoms apart."""
        dimer = self.examined.boxed(Atoms(pair, [(0, 0, 0), (r, 0, 0)]), DIMER_BOX)
        energy, forces = self.examined.evaluate(dimer)
        return energy, float(forces[1, 0] - forces[0, 0]) / 2

    def dimers(self) -> Graded:
        """Jumps of the energy and the force of dimers, which bisection leaves where they are."""
        worst, where = 0.0, ""
        for pair, (r, found) in self._dimers.items():
            h = r[1] - r[0]
            changes = np.diff(found[:, 1])
            leaps = np.diff(found[:, 0]) + h * (found[1:, 1] + found[:-1, 1]) / 2
            for k in {int(i) for values in (changes, leaps) for i in _outstanding(values)}:
                jump, place = self._jump(pair, r[k], r[k + 1])
                if jump > worst:
                    worst, where = jump, f" ({_name(pair)} at {place:.4g})"
        return Graded(letter(worst, RELATIVE), f"largest jump {worst:.1e} of the RMS force{where}")

    def _jump(self, pair: tuple[int, int], low: float, high: float) -> tuple[float, float]:
        """The jump between two distances, as a share of the RMS force, and where it is."""
        value = cache(partial(self._dimer, pair))
        while high - low > 1e-7 * self.info.cutoff:
            half = (high - low) / 2
            middle = low + half
            # What lies between does not follow from the side that is beyond the jump.
            if _surprise(value, low, middle) > _surprise(value, high, middle):
                high = middle
            else:
                low = middle
        w = high - low
        outer, ends = (value(low - w), value(high + w)), (value(low), value(high))
        jump = 0.0
        for k in range(2):
            smooth = max(abs(ends[0][k] - outer[0][k]), abs(outer[1][k] - ends[1][k]))
            jump = max(jump, abs(ends[1][k] - ends[0][k]) - 3 * smooth)
        return jump / self.examined.force, low

    def _contact(self, pair: Sequence[int]) -> float:
        """A distance that atoms of these elements are never bonded at."""
        return 0.7 * self._radii(pair)

    def _radii(self, pair: Sequence[int]) -> float:
        """The sum of the covalent radii; about the diameter of an atom where units are "lj"."""
        if self.info.units == "lj":
            return 0.8 / 0.7
        return float(covalent_radii[pair[0]] + covalent_radii[pair[-1]])

    def short_distances(self) -> Graded:
        """Dimers have no hole: what is pushed together is pushed apart."""
        lowest, where = math.inf, ""
        for pair, (r, found) in self._dimers.items():
            barrier = _barrier(r, found[:, 0], self._contact(pair))
            if barrier < lowest:
                lowest, where = barrier, _name(pair)
        return _hole(lowest, f" of {where}", "eV")

    def dimer_shape(self) -> Graded:
        """One bond each, with a branch that repels and one that attracts.

        What is counted is what ml-peg counts (https://github.com/ddmms/ml-peg), from CLOSEST of the
        sum of the covalent radii on. Correlations are Spearman's.
        """
        shapes = {}
        for pair, (r, found) in self._dimers.items():
            begin, contact = np.searchsorted(r, [CLOSEST * self._radii(pair), self._contact(pair)])
            shapes[_name(pair)] = DimerShape.counted(found[begin:], contact - begin)
        name, worst = max(shapes.items(), key=lambda one: (one[1].grade, one[1].sign_changes))
        return Graded(
            worst.grade,
            f"worst {name}: {worst.sign_changes} sign changes of the force, {worst.minima} minima, "
            f"rank correlations of the branches {worst.inner:.2f} and {worst.outer:.2f}",
        )

    def energy_volume(self) -> Graded:
        """The same of a crystal that is compressed, one of the data if there is any."""
        if self.data_crystal:
            perfect = self.data_crystal
            i, j, r = neighbor_list("ijd", perfect, self.info.cutoff)
            if not len(r):
                return Graded("", "no neighbors in the smallest crystal of the data")
            k = int(np.argmin(r))
            nearest, contact = float(r[k]), self._contact(perfect.numbers[[i[k], j[k]]])
        else:
            perfect, _ = crystal(self.info.cutoff, self.examined.elements, self.info.limit)
            if not len(perfect):
                return Graded("", "no crystal that the model takes")
            nearest = perfect.get_distance(0, 1, mic=True)
            contact = min(self._contact([z]) for z in self.examined.elements)
        smallest = min(0.5, 0.8 * contact / nearest)
        volumes, energies, distances = [], [], []
        for scale in np.linspace(1.3, smallest, 60):
            atoms = perfect.copy()
            atoms.set_cell(scale * np.array(perfect.cell), scale_atoms=True)
            try:
                energies.append(self.examined.evaluate(atoms)[0] / len(atoms))
            except ValueError:  # more neighbors than it takes: it stops a run, and is no hole
                break
            volumes.append(atoms.get_volume() / len(atoms))
            distances.append(scale * nearest)
        self.curves.volumes = (np.array(volumes), np.array(energies))
        barrier = _barrier(np.array(distances[::-1]), np.array(energies[::-1]), contact)
        return _hole(barrier, "", "eV/atom")

    # ---- properties of the crystal of the data

    def _in_metal(self, check: Callable[[], Graded]) -> Graded:
        """A check of what has units of time or pressure."""
        if self.info.units != "metal":
            return Graded("", "of models in metal units alone")
        return check()

    def _with_crystal(self, check: Callable[[Crystal], Graded]) -> Graded:
        """A check of the crystal of the data."""
        if self.data_crystal is None and self.info.units == "metal":
            return Graded("", "takes a crystal of --data")
        return self._in_metal(lambda: check(self._own))

    @cached_property
    def _own(self) -> Crystal:
        assert self.data_crystal is not None
        return Crystal(self.data_crystal, self.examined.calculator)

    @cached_property
    def _other(self) -> Properties | Crystal:
        """What properties are compared with."""
        if isinstance(self.other, Calculator) and self.data_crystal is not None:
            return Crystal(self.data_crystal, self.other)
        return self.other if isinstance(self.other, Properties) else Properties()

    def _compared(self, what: str, errors: Sequence[float], alone: str) -> Graded:
        """A check of some relative differences; by a letter of its own where there is no other."""
        if not errors:
            return Graded(alone, what)
        worst = max(errors)
        return Graded(letter(worst, DIFFERENCE), f"{what}; differs by {100.0 * worst:.2g} %")

    def equation_of_state(self, own: Crystal) -> Graded:
        """Volume and bulk modulus of the crystal at rest; a volume counts five times."""
        volume, modulus = own.volume, own.bulk_modulus
        self.properties = replace(self.properties, volume=volume, bulk_modulus=modulus)
        other = self._other
        pairs = ((5.0, volume, other.volume), (1.0, modulus, other.bulk_modulus))
        errors = [weight * abs(found / given - 1.0) for weight, found, given in pairs if given]
        what = f"{volume:.3f} A^3/atom, bulk modulus {modulus:.1f} GPa"
        return self._compared(what, errors, "A" if modulus > 0.0 else "F")

    def elastic_constants(self, own: Crystal) -> Graded:
        """Those of the crystal, which resists each strain: Born's conditions of stability."""
        matrix, other = own.elastic_constants, self._other.elastic_constants
        self.properties = replace(self.properties, elastic_constants=matrix.tolist())
        softest = float(np.linalg.eigvalsh(matrix)[0])
        errors = [] if other is None else [_distance(matrix, np.asarray(other))]
        diagonal = " ".join(f"{value:.0f}" for value in np.diag(matrix))
        what = f"C11 to C66 {diagonal} GPa, smallest eigenvalue {softest:.1f} GPa"
        return self._compared(what, errors, "A" if softest > 0.0 else "F")

    def phonons(self, own: Crystal) -> Graded:
        """Frequencies at Gamma of the crystal at rest; second derivatives are symmetric."""
        found, other = own.phonons, self._other.phonons
        self.properties = replace(self.properties, phonons=found.tolist())
        hessian = own.hessian
        asymmetry = float(abs(hessian - hessian.T).max() / abs(hessian).max())
        what = f"{found[0]:.2f} to {found[-1]:.2f} THz, asymmetric by {asymmetry:.0e}"
        if asymmetry > ASYMMETRIC:
            return Graded("F", what)
        errors = []
        if other is not None:
            given = np.sort(np.asarray(other))
            if given.shape != found.shape:
                return Graded("F", f"{what}; {len(found)} frequencies, and {len(given)} to compare")
            errors = [_distance(found, given)]
        return self._compared(what, errors, letter(-found[0], IMAGINARY))

    # ---- dynamics

    @cached_property
    def _cold(self) -> Atoms:
        """A crystal at rest that has ATOMS or more, if it is one of the data."""
        atoms: Atoms = self.examined.crystal.copy()
        if self.data_crystal:
            atoms = self.data_crystal.repeat(math.ceil((ATOMS / len(self.data_crystal)) ** (1 / 3)))
        # A crystal by chance falls into another one, and gets hot: that is not what is asked here.
        return self._settled(atoms)

    def _settled(self, start: Atoms) -> Atoms:
        """The same with forces that are small, as far as there is time, in its cell."""
        atoms: Atoms = start.copy()
        atoms.calc = self.examined.calculator
        steps = self.examined.evaluations(STEPS, atoms)
        FIRE(atoms, logfile=None).run(fmax=0.01 * self.examined.force, steps=steps)
        return atoms

    def _moving(self, atoms: Atoms, temperature: float) -> Atoms:
        """The same atoms with velocities, and the calculator."""
        moving: Atoms = atoms.copy()
        moving.calc = self.examined.calculator
        MaxwellBoltzmannDistribution(moving, temperature_K=temperature, rng=self.examined.rng)
        Stationary(moving)
        return moving

    def energy_conservation(self) -> Graded:
        """NVE dynamics of such a crystal at 300 K, after some relaxation."""
        atoms = self._moving(self._cold, TEMPERATURE)
        dynamics = VelocityVerlet(atoms, TIME_STEP * units.fs)
        times, energies, _ = _watched(dynamics, atoms, self.examined.evaluations(1000, atoms), 1)
        self.curves.total_energy = (times, energies)
        slope, noise = _slope(times, energies)
        return Graded(
            letter(max(0.0, abs(slope) - 2 * noise), DRIFT),
            f"drift {slope:.0e} eV/atom/ps over {times[-1]:.2g} ps, fluctuation "
            f"{np.std(energies):.0e} eV/atom",
        )

    def long_energy_conservation(self) -> Graded:
        """The same for 50 ps with a step of 1 fs: the drift beside the kinetic energy's spread."""
        atoms = self._moving(self._cold, TEMPERATURE)
        dynamics = VelocityVerlet(atoms, LONG_STEP * units.fs)
        steps = round(1000.0 * LONG_ENERGY / LONG_STEP)
        times, energies, kinetic = _watched(dynamics, atoms, steps, LOOKED)
        slope, noise = _slope(times, energies)
        spread = float(np.std(kinetic))
        return Graded(
            letter(max(0.0, abs(slope) - 2 * noise) / spread, LONG_DRIFT),
            f"drift {slope:.0e} eV/atom/ps over {times[-1]:.3g} ps, {slope / spread:.0e} of the "
            "kinetic energy's spread in each",
        )

    def hot_stability(self) -> Graded:
        """NVT dynamics for 20 ps, as hot as the data, without an event.

        One is a pair closer than CLOSEST allows, a temperature of HOT times that of the run, or a
        structure that cannot be evaluated. The thermostat is Bussi's.
        """
        atoms, temperature = self._hottest()
        moving = self._moving(atoms, temperature)
        dynamics = Bussi(
            moving, LONG_STEP * units.fs, temperature_K=temperature, taut=100.0 * units.fs,
            rng=self.examined.rng,
        )  # fmt: skip
        steps, event = round(1000.0 * LONG_HOT / LONG_STEP), ""
        began = time.monotonic()
        while not event and dynamics.nsteps < steps and time.monotonic() - began < LONGEST:
            try:
                dynamics.run(LOOKED)
                event = self._event(moving, HOT * temperature)
            except ValueError as error:  # refused, or not finite
                event = str(error)
        done = dynamics.nsteps * LONG_STEP / 1000.0
        what = f"{done:.3g} ps at {temperature:.0f} K"
        return Graded("F", f"{what}, then {event}") if event else Graded("A", what)

    def _event(self, atoms: Atoms, hottest: float) -> str:
        """What has happened that does not in matter; empty if nothing."""
        if not (temperature := atoms.get_temperature()) <= hottest:
            return f"a temperature of {temperature:.0f} K"
        closest = {
            pair: CLOSEST * self._radii([atomic_numbers[symbol] for symbol in pair])
            for pair in combinations_with_replacement(sorted(set(atoms.symbols)), 2)
        }
        i, j, distances = neighbor_list("ijd", atoms, closest)
        if not len(i):
            return ""
        k = int(np.argmin(distances))
        return f"{_name(atoms.numbers[[i[k], j[k]]])} {distances[k]:.2f} A apart"

    def _hottest(self) -> tuple[Atoms, float]:
        """Where the hot run begins, and its temperature in K.

        Of the data that is the frame with the largest forces. Its temperature follows from the
        energy that it loses as it comes to rest, with kT/2 for each of the coordinates of harmonic
        atoms (inherent structures, Stillinger and Weber 1982, doi:10.1103/PhysRevA.25.978).
        """
        if not self.solids:
            return self._cold, self.temperature or TEMPERATURE
        atoms = max(self.solids, key=lambda one: float(np.square(one.get_forces()).mean()))
        if self.temperature:
            return atoms, self.temperature
        lost = self.examined.evaluate(atoms)[0] - self._settled(atoms).get_potential_energy()
        return atoms, max(TEMPERATURE, 2.0 * lost / (3 * len(atoms) * units.kB))


def _watched(
    dynamics: MolecularDynamics, atoms: Atoms, steps: int, every: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times in ps, total and kinetic energies in eV/atom of a run, which LONGEST may cut short."""
    rows: list[tuple[float, float, float]] = []
    began = time.monotonic()
    while True:
        kinetic, potential = atoms.get_kinetic_energy(), atoms.get_potential_energy()
        when = dynamics.nsteps * dynamics.dt / (1000.0 * units.fs)
        rows.append((when, (kinetic + potential) / len(atoms), kinetic / len(atoms)))
        if dynamics.nsteps >= steps or time.monotonic() - began > LONGEST:
            times, total, kinetic_energies = np.array(rows).T
            return times, total, kinetic_energies
        dynamics.run(every)


def _rises(values: np.ndarray) -> float:
    """Spearman's coefficient of values with their order; 1 where there are fewer than three."""
    if len(values) < 3:
        return 1.0
    return float(np.corrcoef(np.arange(len(values)), np.argsort(np.argsort(values)))[0, 1])


def _slope(times: np.ndarray, energies: np.ndarray) -> tuple[float, float]:
    """Drift, and its standard error for a fluctuation that is correlated over ten samples."""
    noise = float(np.std(energies)) / times[-1] * math.sqrt(12 * 10 / len(times))
    return float(np.polyfit(times, energies, 1)[0]), noise


def _distance(own: np.ndarray, other: np.ndarray) -> float:
    """Of two arrays, as a share of the second one."""
    return float(np.linalg.norm(own - other) / np.linalg.norm(other))


def _name(pair: Sequence[int]) -> str:
    return "-".join(chemical_symbols[z] for z in pair)


def _outstanding(values: np.ndarray) -> np.ndarray:
    """Places of values [n] that are least like those beside them: at all, and as is usual there."""
    padded = np.pad(values, 1, mode="edge")
    unlike = abs(values - (padded[:-2] + padded[2:]) / 2)
    wide = np.pad(unlike, USUAL, mode="reflect")
    usual = np.median(np.lib.stride_tricks.sliding_window_view(wide, 2 * USUAL + 1), axis=1)
    share = unlike / np.maximum(usual, 1e-12 * unlike.max(initial=0.0) + 1e-300)
    return np.concatenate([np.argsort(unlike)[-LIKELY:], np.argsort(share)[-LIKELY:]])


def _surprise(curve: Callable[[float], tuple[float, float]], known: float, unknown: float) -> float:
    """How far a curve of energy and force is from what a distance beside tells of it.

    The force goes on as it did until there; the energy as the force says. A jump of the energy
    counts a thousand times, as it has none of the size of forces.
    """
    step = unknown - known
    energy, force = curve(unknown)
    energy_there, force_there = curve(known)
    expected = 2 * force_there - curve(known - step)[1]
    leap = energy - energy_there + step * (force + force_there) / 2
    return max(abs(force - expected), abs(leap) / 1e-3)


def _barrier(r: np.ndarray, energy: np.ndarray, contact: float) -> float:
    """The lowest barrier in front of a hole, as atoms are pushed together; infinite without one.

    Args:
        r: [n] growing distances.
        energy: [n] at them.
        contact: from where on the well of a bond may be.
    """
    first = int(np.searchsorted(r, contact))
    bottom = first + int(np.argmin(energy[first:])) if first < len(r) else len(r) - 1
    inwards = energy[: bottom + 1][::-1]
    highest = np.maximum.accumulate(inwards)
    falls = np.flatnonzero(highest - inwards > 1e-3 * np.maximum(1.0, np.abs(highest)))
    return float(highest[falls[0]] - inwards[0]) if len(falls) else math.inf


def _hole(barrier: float, where: str, unit: str) -> Graded:
    if math.isinf(barrier):
        return Graded("A", "rises all the way")
    grade = next((best for best, least in BARRIER.items() if barrier >= least), "F")
    return Graded(grade, f"a hole{where} behind a barrier of {barrier:.3g} {unit}")
