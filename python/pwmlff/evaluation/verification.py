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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import chemical_symbols
from ase.stress import voigt_6_to_full_3x3_stress

from pwmlff.evaluation.calculator import Calculator
from pwmlff.evaluation.model_file import ModelInfo
from pwmlff.evaluation.structures import CLUSTER_BOX, crystal, in_box, random_cluster

#: The largest error that has each letter, as a share of the RMS force (of an energy: of that force
#: over one angstrom).
RELATIVE = {"A": 1e-6, "B": 1e-5, "C": 1e-4, "D": 1e-2}
#: The same of what no distance allows at all, so that nothing but rounding is left.
ALLOWED = {"A": 1e-6, "B": 1e-5, "C": 3e-5, "D": 1e-4}
LEAK = {"A": 4e3, "B": 2e4, "C": 1e5, "D": 1e6}  # bytes of an evaluation that are not freed
LABELS = {"A": 0.05, "B": 0.10, "C": 0.25, "D": 0.50}  # RMSE of forces as a share of their RMS
STEPS = (3e-3, 1e-3, 3e-4, 1e-4)  # of numerical derivatives, angstrom or strain
SECONDS = 20.0  # that a check of many evaluations may take
NEUTRAL = {"A": 1e-10, "B": 1e-8, "C": 1e-6, "D": 1e-4}  # charge of a box, e
SEED_OF_CRYSTAL, SEED_OF_CHECKS = 1, 2


@dataclass(frozen=True)
class Graded:
    """What one check has found."""

    grade: str  # A, B, C, D, F, or empty where it could not be made
    measured: str


def letter(error: float, limits: Mapping[str, float]) -> str:
    """The grade of an error, the smaller the better; F for what is no number."""
    return next((name for name, limit in limits.items() if error <= limit), "F")


class Verification:
    """Checks of one model file on the CPU, of the numbers that it gives in all ways.

    What it makes of matter is looked at by :mod:`pwmlff.evaluation.physics`.

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
        self.calculator = make()
        self.rng = np.random.default_rng(SEED_OF_CRYSTAL)
        perfect, _ = crystal(info.cutoff, self.elements, info.limit)
        self.crystal = self._rattled(perfect) if len(perfect) else self.cluster()
        forces = self.evaluate(self.crystal)[1]
        began = time.perf_counter()
        self.evaluate(self._rattled(self.crystal))
        self.seconds = time.perf_counter() - began
        self.force = float(np.sqrt(np.square(forces).mean())) or 1.0

    def checks(self) -> dict[str, Callable[[], Graded]]:
        """All by name, in the order of the table; each may raise what an evaluation does."""
        checks = {
            "species-supported-as-stated": self.species_supported,
            "periodicity-support": self.periodicity,
            "permutation-symmetry": self.permutation,
            "objectivity": self.objectivity,
            "inversion-symmetry": self.inversion,
            "forces-numerical-derivative": self.forces,
            "virial-numerical-derivative": self.virial,
            "locality": self.locality,
            "extensivity": self.extensivity,
            "memory-leak": self.memory,
            "thread-safe": self.threads,
        }
        if self.info.has_charges:
            checks["charge-neutrality"] = self.neutrality
        if self.labelled:
            checks["labels"] = self.labels
        return {name: self.alone(check) for name, check in checks.items()}

    def alone(self, check: Callable[[], Graded]) -> Callable[[], Graded]:
        """A check with numbers by chance that do not depend on which others have run."""

        def checked() -> Graded:
            self.rng = np.random.default_rng(SEED_OF_CHECKS)
            return check()

        return checked

    def cluster(self) -> Atoms:
        """Atoms by chance, and an isolated one."""
        return self._cluster_of(self.elements)

    def _cluster_of(self, elements: Sequence[int]) -> Atoms:
        cluster = random_cluster(self.info.cutoff, elements, self.info.limit)
        return self.boxed(cluster, CLUSTER_BOX)

    def boxed(self, atoms: Atoms, edge: float) -> Atoms:
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

    def graded(self, error: float, what: str, limits: Mapping[str, float] = RELATIVE) -> Graded:
        """A check of an error by error()."""
        return Graded(letter(error, limits), f"{what} {error:.1e} of the RMS force")

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

    def _two_groups(self) -> tuple[Atoms, Atoms] | None:
        """Clusters that no interaction joins; None where a model has charges."""
        if self.info.has_charges:
            return None
        first = self.cluster()
        second = self._rattled(first)
        gap = 2.0 * self.info.interaction_range
        second.positions[:, 0] += np.ptp(first.positions[:, 0]) + gap
        return first, second

    def locality(self) -> Graded:
        """What moves or leaves far away changes no energy and no force of an atom."""
        groups = self._two_groups()
        if groups is None:
            return Graded("", "charges reach over any distance")
        first, second = groups
        n, results = len(first), []
        for other in (second, self._rattled(second), second[:-1]):
            both = first + other
            energies = self.calculator.get_property("energies", both)[:n]
            results.append(np.column_stack([energies, self.evaluate(both)[1][:n]]))
        worst = max(float(abs(one - results[0]).max()) for one in results[1:])
        return self.graded(worst / self.force, "what is far away changes an atom by", ALLOWED)

    def extensivity(self) -> Graded:
        """Two groups of atoms far apart have the sum of their energies, and forces of their own."""
        groups = self._two_groups()
        if groups is None:
            return Graded("", "charges reach over any distance")
        parts = [self.evaluate(group) for group in groups]
        wanted = sum(energy for energy, _ in parts), np.concatenate([forces for _, forces in parts])
        error = self.error(self.evaluate(groups[0] + groups[1]), wanted)
        return self.graded(error, "two groups apart and each alone differ by", ALLOWED)

    def evaluations(self, most: int, atoms: Atoms) -> int:
        """How many of some atoms there is time for."""
        share = len(atoms) / len(self.crystal)
        return int(np.clip(SECONDS / max(share * self.seconds, 1e-9), 30, most))

    def memory(self) -> Graded:
        """What this process keeps of evaluations."""

        def evaluate(times: int) -> None:
            for _ in range(times):
                self.evaluate(self._rattled(self.crystal))

        count = self.evaluations(300, self.crystal)
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


def _resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
