"""Checks of a model as a function of structures, whatever is inside of it.

The names are those of OpenKIM's verification checks (https://openkim.org/doc/evaluation/
kim-verification-checks) where there is one, and so are the letters: A is best, F is a failure.
Where each letter ends is this project's own. Structures are crystals and clusters whose distances
follow from the cutoff of the model; numbers are in eV, angstrom and ps, or reduced where the model
is in units "lj".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
from ase import Atoms, units
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import chemical_symbols, covalent_radii
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet
from ase.neighborlist import neighbor_list
from ase.optimize import FIRE
from ase.stress import voigt_6_to_full_3x3_stress

from pwmlff.evaluation.calculator import Calculator
from pwmlff.evaluation.model_file import ModelInfo
from pwmlff.evaluation.structures import CLUSTER_BOX, crystal, in_box, random_cluster

#: The largest error that has each letter, as a share of the RMS force (of an energy: of that force
#: over one angstrom).
RELATIVE = {"A": 1e-6, "B": 1e-5, "C": 1e-4, "D": 1e-2}
LEAK = {"A": 4e3, "B": 2e4, "C": 1e5, "D": 1e6}  # bytes of an evaluation that are not freed
DRIFT = {"A": 1e-5, "B": 1e-4, "C": 1e-3, "D": 1e-2}  # eV/atom/ps
LABELS = {"A": 0.05, "B": 0.10, "C": 0.25, "D": 0.50}  # RMSE of forces as a share of their RMS
#: The lowest barrier, in eV, in front of a hole that has each letter; A is for no hole.
BARRIER = {"B": 20.0, "C": 5.0, "D": 1.0}
PAIRS = 10  # of elements whose dimers are looked at
NEAREST = 0.3  # angstrom, of dimers
STEPS = (3e-3, 1e-3, 3e-4, 1e-4)  # of numerical derivatives, angstrom or strain
SECONDS = 20.0  # that a check of many evaluations may take
TEMPERATURE = 300.0  # K
TIME_STEP = 0.5  # fs
ATOMS = 32  # of a crystal whose dynamics are looked at
DIMER_BOX = 3.0  # its edge in cutoffs, for models with charges
NEUTRAL = {"A": 1e-10, "B": 1e-8, "C": 1e-6, "D": 1e-4}  # charge of a box, e
SEED_OF_CRYSTAL, SEED_OF_CHECKS = 1, 2


@dataclass(frozen=True)
class Graded:
    """What one check has found."""

    grade: str  # A, B, C, D, F, or empty where it could not be made
    measured: str


@dataclass
class Curves:
    """What a picture shows."""

    dimers: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    volumes: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty(0))
    total_energy: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty(0))


def letter(error: float, limits: dict[str, float]) -> str:
    """The grade of an error, the smaller the better; F for what is no number."""
    return next((name for name, limit in limits.items() if error <= limit), "F")


class Verification:
    """Checks of one model file on the CPU.

    Args:
        info: what the file says of itself.
        elements: atomic numbers that take part.
        make: opens it once more; called for each thread that evaluates.
        labelled: structures with energies and forces, or none.
    """

    def __init__(
        self,
        info: ModelInfo,
        elements: Sequence[int],
        make: Callable[[], Calculator],
        labelled: Sequence[Atoms] = (),
    ) -> None:
        self.info, self.elements, self.make, self.labelled = info, list(elements), make, labelled
        solids = [atoms for atoms in labelled if atoms.pbc.all()]
        self.data_crystal = min(solids, key=len).copy() if solids else None  # a crystal of the data
        self.calculator = make()
        self.curves = Curves()
        self.rng = np.random.default_rng(SEED_OF_CRYSTAL)
        perfect, _ = crystal(info.cutoff, self.elements, info.limit)
        self.crystal = self._rattled(perfect) if len(perfect) else self.cluster()
        forces = self.evaluate(self.crystal)[1]
        began = time.perf_counter()
        self.evaluate(self._rattled(self.crystal))
        self.seconds = time.perf_counter() - began
        self.force = float(np.sqrt(np.square(forces).mean())) or 1.0

    def checks(self) -> dict[str, Callable[[], Graded]]:
        """All of them by name, in the order of the table; each may raise what an evaluation does.

        The picture's curves are those of the dimers, the volumes and the dynamics that have run.
        """
        checks = {
            "species-supported-as-stated": self.species_supported,
            "periodicity-support": self.periodicity,
            "permutation-symmetry": self.permutation,
            "objectivity": self.objectivity,
            "inversion-symmetry": self.inversion,
            "forces-numerical-derivative": self.forces,
            "virial-numerical-derivative": self.virial,
            "dimer-continuity-c1": self.dimers,
            "dimer-repulsion": self.short_distances,
            "energy-volume": self.energy_volume,
            "energy-conservation": self.energy_conservation,
            "memory-leak": self.memory,
            "thread-safe": self.threads,
        }
        if self.info.has_charges:
            checks["charge-neutrality"] = self.neutrality
        if self.labelled:
            checks["labels"] = self.labels
        return {name: partial(self._alone, check) for name, check in checks.items()}

    def _alone(self, check: Callable[[], Graded]) -> Graded:
        """A check with numbers by chance that do not depend on which others have run."""
        self.rng = np.random.default_rng(SEED_OF_CHECKS)
        return check()

    def cluster(self) -> Atoms:
        """Atoms by chance, and an isolated one."""
        return self._cluster_of(self.elements)

    def _cluster_of(self, elements: Sequence[int]) -> Atoms:
        cluster = random_cluster(self.info.cutoff, elements, self.info.limit)
        return self._boxed(cluster, CLUSTER_BOX)

    def _boxed(self, atoms: Atoms, edge: float) -> Atoms:
        """The same in a box in which it has no image nearby, where a model has to have one."""
        return in_box(atoms, edge * self.info.cutoff) if self.info.has_charges else atoms

    def evaluate(self, atoms: Atoms) -> tuple[float, np.ndarray]:
        """Energy, and forces [n, 3]."""
        return (
            self.calculator.get_property("energy", atoms),
            self.calculator.get_property("forces", atoms),
        )

    def error(self, found: tuple[float, np.ndarray], wanted: tuple[float, np.ndarray]) -> float:
        """Of an energy and forces, as a share of the RMS force."""
        energy = abs(found[0] - wanted[0]) / max(1, len(wanted[1]))
        return float(max(energy, np.abs(found[1] - wanted[1]).max(initial=0.0)) / self.force)

    def _rattled(self, atoms: Atoms) -> Atoms:
        moved: Atoms = atoms.copy()
        moved.positions += 0.01 * self.info.cutoff * self.rng.standard_normal((len(atoms), 3))
        return moved

    def graded(self, error: float, what: str) -> Graded:
        """A check of an error by error()."""
        return Graded(letter(error, RELATIVE), f"{what} {error:.1e} of the RMS force")

    def species_supported(self) -> Graded:
        """Each element alone, and all of them together, have finite energies and forces."""
        bad = []
        for group in [[z] for z in self.elements] + [self.elements]:
            atoms, _ = crystal(self.info.cutoff, group, self.info.limit)
            structures = [self._rattled(atoms)] if len(atoms) else []
            structures.append(self._cluster_of(group))
            try:
                results = [self.evaluate(one) for one in structures]
            except ValueError:  # refused, or not finite
                results = [(math.nan, np.zeros(1))]
            if not all(np.isfinite(e) and np.isfinite(f).all() for e, f in results):
                bad.append("-".join(chemical_symbols[z] for z in group))
        what = f"not {', '.join(bad)}" if bad else f"all {len(self.elements)}"
        return Graded("F" if bad else "A", what)

    def periodicity(self) -> Graded:
        """The crystal as a supercell, and with atoms moved through the faces of the cell."""
        energy, forces = self.evaluate(self.crystal)
        worst = 0.0
        for axis in range(3):
            times = [1, 1, 1]
            times[axis] = 2
            doubled, tiled = self.evaluate(self.crystal.repeat(times))
            worst = max(worst, self.error((doubled / 2, tiled), (energy, np.tile(forces, (2, 1)))))
        moved = self.crystal.copy()
        moved.positions += self.rng.uniform(-10, 10, 3) * self.info.cutoff
        moved.wrap()
        worst = max(worst, self.error(self.evaluate(moved), (energy, forces)))
        return self.graded(worst, "a supercell and another origin differ by")

    def permutation(self) -> Graded:
        """Atoms in another order."""
        worst = 0.0
        for atoms in (self.crystal, self.cluster()):
            order = self.rng.permutation(len(atoms))
            energy, forces = self.evaluate(atoms)
            found = self.evaluate(atoms[order])
            worst = max(worst, self.error(found, (energy, forces[order])))
        return self.graded(worst, "another order of atoms differs by")

    def _turned(self, matrix: np.ndarray, shift: np.ndarray) -> float:
        worst = 0.0
        for atoms in (self.crystal, self.cluster()):
            energy, forces = self.evaluate(atoms)
            turned = atoms.copy()
            turned.set_cell(np.array(atoms.cell) @ matrix.T, scale_atoms=False)
            turned.positions = atoms.positions @ matrix.T + shift
            found = self.evaluate(turned)
            worst = max(worst, self.error(found, (energy, forces @ matrix.T)))
        return worst

    def objectivity(self) -> Graded:
        """A rotation by chance, and a translation."""
        matrix, _ = np.linalg.qr(self.rng.standard_normal((3, 3)))
        matrix *= np.sign(np.linalg.det(matrix))
        error = self._turned(matrix, self.rng.uniform(-50, 50, 3))
        return self.graded(error, "a rotation and a translation differ by")

    def inversion(self) -> Graded:
        """All positions with the other sign."""
        error = self._turned(-np.eye(3), np.zeros(3))
        return self.graded(error, "an inversion differs by")

    def _derivative(self, energy_at: Callable[[float], float], wanted: float) -> float:
        """Error of a derivative at 0, with the step of a difference of fourth order that fits."""
        errors = []
        for h in STEPS:
            e = [energy_at(k * h) for k in (-2, -1, 1, 2)]
            errors.append(abs((e[0] - 8 * e[1] + 8 * e[2] - e[3]) / (12 * h) - wanted))
        return min(errors)

    def forces(self) -> Graded:
        """Along directions by chance of all atoms at once, and of one atom alone."""
        worst = 0.0
        for atoms in (self.crystal, self.cluster()):
            _, forces = self.evaluate(atoms)
            for k in range(6):
                direction = self.rng.standard_normal(forces.shape)
                if k >= 3:
                    direction *= (np.arange(len(atoms)) == self.rng.integers(len(atoms)))[:, None]

                def energy_at(x: float, atoms: Atoms = atoms, d: np.ndarray = direction) -> float:
                    moved = atoms.copy()
                    moved.positions += x * d
                    return self.evaluate(moved)[0]

                error = self._derivative(energy_at, -float((forces * direction).sum()))
                # Rounding of an energy grows with the number of atoms, as the sum does.
                worst = max(worst, error / (self.force * float(np.linalg.norm(direction))))
        return self.graded(worst, "largest error")

    def virial(self) -> Graded:
        """The stress against derivatives of the energy by strains by chance."""
        atoms = self.crystal
        if atoms.cell.rank < 3:
            return Graded("", "no crystal that the model takes")
        stress = self.calculator.get_property("stress", atoms)
        matrix = voigt_6_to_full_3x3_stress(stress) * atoms.get_volume()
        scale = max(float(np.linalg.norm(matrix)), self.force * len(atoms) ** 0.5)
        worst = 0.0
        for _ in range(4):
            strain = self.rng.standard_normal((3, 3))
            strain = (strain + strain.T) / 2

            def energy_at(x: float, strain: np.ndarray = strain) -> float:
                strained = atoms.copy()
                strained.set_cell(np.array(atoms.cell) @ (np.eye(3) + x * strain), scale_atoms=True)
                return self.evaluate(strained)[0]

            error = self._derivative(energy_at, float((matrix * strain).sum()))
            worst = max(worst, error / scale / float(np.linalg.norm(strain)))
        return Graded(letter(worst, RELATIVE), f"largest error {worst:.1e} of the virial")

    @cached_property
    def _dimers(self) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
        """Distances [n], and energies and forces [n, 2] there, of some pairs of elements."""
        pairs = list(combinations_with_replacement(self.elements, 2))
        chosen = self.rng.permutation(len(pairs))[:PAIRS]
        smallest = max(NEAREST, 0.05 * self.info.cutoff)
        r = np.linspace(smallest, 1.02 * self.info.interaction_range, 400)
        curves = {
            pairs[k]: (r, np.array([self._dimer(pairs[k], x) for x in r])) for k in sorted(chosen)
        }
        self.curves.dimers = {_name(pair): (r, each[:, 0]) for pair, (r, each) in curves.items()}
        return curves

    def _dimer(self, pair: tuple[int, int], r: float) -> tuple[float, float]:
        """Energy, and the force that drives the atoms apart."""
        dimer = self._boxed(Atoms(pair, [(0, 0, 0), (r, 0, 0)]), DIMER_BOX)
        energy, forces = self.evaluate(dimer)
        return energy, float(forces[1, 0] - forces[0, 0]) / 2

    def dimers(self) -> Graded:
        """Jumps of the energy and the force of dimers, which bisection leaves where they are."""
        worst, where = 0.0, ""
        for pair, (r, found) in self._dimers.items():
            h = r[1] - r[0]
            changes = np.abs(np.diff(found[:, 1])) / self.force
            leaps = np.abs(np.diff(found[:, 0]) + h * (found[1:, 1] + found[:-1, 1]) / 2)
            # Steep parts change most: what counts is how much more than the neighbors do.
            likely = [_excess(changes), _excess(leaps / self.force)]
            for k in {int(i) for values in likely for i in np.argsort(values)[-4:]}:
                jump, place = self._jump(pair, r[k], r[k + 1])
                if jump > worst:
                    worst, where = jump, f" ({_name(pair)} at {place:.4g})"
        return Graded(letter(worst, RELATIVE), f"largest jump {worst:.1e} of the RMS force{where}")

    def _jump(self, pair: tuple[int, int], low: float, high: float) -> tuple[float, float]:
        """The jump between two distances, as a share of the RMS force, and where it is."""
        ends = [self._dimer(pair, low), self._dimer(pair, high)]
        while high - low > 1e-7 * self.info.cutoff:
            middle = (low + high) / 2
            value = self._dimer(pair, middle)
            # A jump is the larger change; one of the energy shows in its own.
            change = [max(abs(value[1] - e[1]), abs(value[0] - e[0]) / 1e-3) for e in ends]
            if change[0] > change[1]:
                high, ends[1] = middle, value
            else:
                low, ends[0] = middle, value
        w = high - low
        outer = (self._dimer(pair, low - w), self._dimer(pair, high + w))
        jump = 0.0
        for k in range(2):
            smooth = max(abs(ends[0][k] - outer[0][k]), abs(outer[1][k] - ends[1][k]))
            jump = max(jump, abs(ends[1][k] - ends[0][k]) - 3 * smooth)
        return jump / self.force, low

    def _contact(self, pair: Sequence[int]) -> float:
        """A distance that atoms of these elements are never bonded at."""
        if self.info.units == "lj":
            return 0.8
        return 0.7 * float(covalent_radii[pair[0]] + covalent_radii[pair[-1]])

    def short_distances(self) -> Graded:
        """Dimers have no hole: what is pushed together is pushed apart."""
        lowest, where = math.inf, ""
        for pair, (r, found) in self._dimers.items():
            barrier = _barrier(r, found[:, 0], self._contact(pair))
            if barrier < lowest:
                lowest, where = barrier, _name(pair)
        return _hole(lowest, f" of {where}", "eV")

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
            perfect, _ = crystal(self.info.cutoff, self.elements, self.info.limit)
            if not len(perfect):
                return Graded("", "no crystal that the model takes")
            nearest = perfect.get_distance(0, 1, mic=True)
            contact = min(self._contact([z]) for z in self.elements)
        smallest = min(0.5, 0.8 * contact / nearest)
        volumes, energies, distances = [], [], []
        for scale in np.linspace(1.3, smallest, 60):
            atoms = perfect.copy()
            atoms.set_cell(scale * np.array(perfect.cell), scale_atoms=True)
            try:
                energies.append(self.evaluate(atoms)[0] / len(atoms))
            except ValueError:  # more neighbors than it takes: it stops a run, and is no hole
                break
            volumes.append(atoms.get_volume() / len(atoms))
            distances.append(scale * nearest)
        self.curves.volumes = (np.array(volumes), np.array(energies))
        barrier = _barrier(np.array(distances[::-1]), np.array(energies[::-1]), contact)
        return _hole(barrier, "", "eV/atom")

    def _evaluations(self, most: int, atoms: Atoms) -> int:
        """How many of some atoms there is time for."""
        share = len(atoms) / len(self.crystal)
        return int(np.clip(SECONDS / max(share * self.seconds, 1e-9), 30, most))

    def energy_conservation(self) -> Graded:
        """NVE dynamics of such a crystal at 300 K, after some relaxation."""
        atoms = self.crystal.copy()
        if self.data_crystal:
            atoms = self.data_crystal.repeat(math.ceil((ATOMS / len(self.data_crystal)) ** (1 / 3)))
        atoms.calc = self.calculator
        # A crystal by chance falls into another one, and gets hot: that is not what is asked here.
        FIRE(atoms, logfile=None).run(fmax=0.01 * self.force, steps=self._evaluations(500, atoms))
        MaxwellBoltzmannDistribution(atoms, temperature_K=TEMPERATURE, rng=self.rng)
        Stationary(atoms)
        dynamics = VelocityVerlet(atoms, TIME_STEP * units.fs)
        times, energies = [], []

        def note() -> None:
            times.append(dynamics.nsteps * TIME_STEP / 1000)
            energies.append(atoms.get_total_energy() / len(atoms))

        dynamics.attach(note)
        dynamics.run(self._evaluations(1000, atoms))
        self.curves.total_energy = (np.array(times), np.array(energies))
        slope = float(np.polyfit(times, energies, 1)[0])
        # Its standard error, for a fluctuation that is correlated over about ten samples.
        noise = float(np.std(energies)) / times[-1] * math.sqrt(12 * 10 / len(times))
        return Graded(
            letter(max(0.0, abs(slope) - 2 * noise), DRIFT),
            f"drift {slope:.0e} eV/atom/ps over {times[-1]:.2g} ps, fluctuation "
            f"{np.std(energies):.0e} eV/atom",
        )

    def memory(self) -> Graded:
        """What this process keeps of evaluations."""

        def evaluate(times: int) -> None:
            for _ in range(times):
                self.evaluate(self._rattled(self.crystal))

        count = self._evaluations(300, self.crystal)
        evaluate(count // 3)
        sizes = [_resident()]
        for _ in range(3):
            evaluate(count // 3)
            sizes.append(_resident())
        # A leak grows all the time, what is kept for the next time does not.
        each = max(0.0, float(np.diff(sizes).min())) / (count // 3)
        what = f"{each / 1024:.1f} KB of each of {count} evaluations"
        return Graded(letter(each, LEAK), what)

    def threads(self) -> Graded:
        """Several at a time, each with the file opened for itself."""
        structures = [self._rattled(self.crystal) for _ in range(4)] * 2
        wanted = [self.evaluate(atoms) for atoms in structures]
        own = [self.make() for _ in range(4)]

        def evaluate(k: int) -> list[tuple[float, np.ndarray]]:
            return [
                (own[k].get_property("energy", atoms), own[k].get_property("forces", atoms))
                for atoms in structures[k:] + structures[:k]
            ]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(evaluate, range(4)))
        worst = max(
            self.error(one, right)
            for k, results in enumerate(found)
            for one, right in zip(results, wanted[k:] + wanted[:k], strict=True)
        )
        return self.graded(worst, "four threads differ by")

    def neutrality(self) -> Graded:
        """The charges of a box add up to zero."""
        worst = max(
            abs(self.calculator.get_property("charges", atoms).sum())
            for atoms in (self.crystal, self.cluster())
        )
        return Graded(letter(worst, NEUTRAL), f"charges add up to {worst:.1e} e")

    def labels(self) -> Graded:
        """Forces against those that the structures bring along."""
        errors, values = [], []
        for atoms in self.labelled:
            given = atoms.get_forces()
            errors.append((self.evaluate(atoms)[1] - given).ravel())
            values.append(given.ravel())
        rmse, rms = (float(np.sqrt(np.square(np.concatenate(v)).mean())) for v in (errors, values))
        share = rmse / rms if rms else math.inf
        return Graded(
            letter(share, LABELS),
            f"RMSE of forces {rmse:.3g} eV/A, {100 * share:.3g} % of their RMS, "
            f"{len(self.labelled)} structures",
        )


def has_forces(atoms: Atoms) -> bool:
    """Whether a structure brings forces along, as ase reads them."""
    return isinstance(atoms.calc, SinglePointCalculator) and "forces" in atoms.calc.results


def _name(pair: Sequence[int]) -> str:
    return "-".join(chemical_symbols[z] for z in pair)


def _excess(changes: np.ndarray) -> np.ndarray:
    """By how much each is larger than both beside it."""
    padded = np.r_[changes[0], changes, changes[-1]]
    result: np.ndarray = changes - np.maximum(padded[:-2], padded[2:])
    return result


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


def _resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
