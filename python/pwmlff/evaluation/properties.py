"""Properties of a crystal at rest, by any calculator of ase: volume, elasticity, vibrations.

Everything is by finite differences of stresses and forces, with atoms that are let go at each
strain. Units are eV, angstrom, GPa and THz.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import Calculator
from ase.eos import EquationOfState
from ase.filters import FrechetCellFilter
from ase.optimize import LBFGS
from ase.stress import voigt_6_to_full_3x3_strain

from pwmlff.report import Failure

RELAXED = 1e-3  # eV/angstrom, largest force
STEPS = 500  # of a relaxation
VOLUMES = np.linspace(0.94, 1.06, 7)  # of the equation of state, over that of the crystal at rest
STRAIN, DISPLACEMENT = 0.005, 0.01  # of the differences; angstrom
THZ = 1000.0 * units.fs / (2.0 * math.pi)  # of a root of eV/angstrom^2/amu


@dataclass(frozen=True)
class Properties:
    """What is known of a crystal; None where it is not."""

    volume: float | None = None  # angstrom^3 of an atom, at rest
    bulk_modulus: float | None = None  # GPa
    elastic_constants: list[list[float]] | None = None  # GPa [6, 6] by engineering strains
    phonons: list[float] | None = None  # THz [3 n] of a cell of n atoms; negative: imaginary

    @classmethod
    def read(cls, path: Path) -> Properties:
        """From JSON: an object with some of the names above, or what `verify --json` prints.

        Raises:
            Failure: it cannot be read, or holds something else.
        """
        names = cls.__dataclass_fields__
        wanted = f"expected an object with some of {', '.join(names)}"
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Failure(f"cannot read '{path}': {error}; {wanted}") from error
        if isinstance(values, dict):
            values = values.get("properties", values)
        if not isinstance(values, dict) or not values or set(values) - set(names):
            raise Failure(f"'{path}' holds something else, {wanted}")
        for name, value in values.items():
            try:
                array = np.array(value, dtype=float)
            except (TypeError, ValueError):
                array = np.array(math.nan)
            shape = {"elastic_constants": (6, 6), "phonons": array.shape[:1] or (1,)}.get(name, ())
            if value is not None and not (array.shape == shape and np.isfinite(array).all()):
                raise Failure(
                    f"'{path}' has {name} {str(value)[:60]}, expected numbers of shape {shape}"
                )
        return cls(**values)


class Crystal:
    """A crystal, by one calculator.

    Args:
        atoms: where it begins.
        calculator: that gives energies, forces and stresses.
    """

    def __init__(self, atoms: Atoms, calculator: Calculator) -> None:
        self._start, self._calculator = atoms, calculator

    @cached_property
    def at_rest(self) -> Atoms:
        """Without forces and stress.

        Raises:
            ValueError: STEPS do not lead there; nor in what follows from it.
        """
        atoms = self._relaxed(self._start, FrechetCellFilter)
        if not 0.5 < (ratio := atoms.get_volume() / self._start.get_volume()) < 2.0:
            raise ValueError(f"the crystal comes to rest at {ratio:.2g} times its volume alone")
        return atoms

    def _relaxed(self, start: Atoms, filtered: Callable[[Atoms], Any]) -> Atoms:
        atoms: Atoms = start.copy()
        atoms.calc = self._calculator
        optimizer = LBFGS(filtered(atoms), logfile=None)  # type: ignore[arg-type]  # as it says
        if not optimizer.run(fmax=RELAXED, steps=STEPS):
            raise ValueError(f"the crystal does not come to rest in {STEPS} steps")
        return atoms

    def deformed(self, matrix: np.ndarray) -> Atoms:
        """With its cell times a matrix [3, 3], and atoms at rest in that."""
        atoms: Atoms = self.at_rest.copy()
        atoms.set_cell(self.at_rest.cell.array @ matrix, scale_atoms=True)
        return self._relaxed(atoms, lambda these: these)

    @property
    def volume(self) -> float:
        """Of an atom at rest, angstrom^3, by the equation of state."""
        return self._equation_of_state[0]

    @property
    def bulk_modulus(self) -> float:
        """GPa, likewise."""
        return self._equation_of_state[1]

    @cached_property
    def _equation_of_state(self) -> tuple[float, float]:
        """Volume of an atom and bulk modulus, by Birch and Murnaghan.

        Raises:
            ValueError: the energy has no minimum within VOLUMES.
        """
        some = [self.deformed(np.eye(3) * x ** (1 / 3)) for x in VOLUMES]
        volumes = [atoms.get_volume() for atoms in some]
        energies = [atoms.get_potential_energy() for atoms in some]
        try:
            volume, _, modulus = EquationOfState(volumes, energies, eos="birchmurnaghan").fit()
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"no equation of state fits: {error}") from error
        if not volumes[0] < volume < volumes[-1]:
            raise ValueError("the energy has no minimum within 6 % of the volume at rest")
        return float(volume) / len(self.at_rest), float(modulus / units.GPa)

    @cached_property
    def elastic_constants(self) -> np.ndarray:
        """GPa [6, 6] in Voigt's order, of engineering strains, symmetric."""
        columns = []
        for k in range(6):
            plus, minus = (
                self.deformed(voigt_6_to_full_3x3_strain(h * np.eye(6)[k])).get_stress()
                for h in (STRAIN, -STRAIN)
            )
            columns.append((plus - minus) / (2.0 * STRAIN * units.GPa))
        matrix = np.array(columns)
        symmetric: np.ndarray = (matrix + matrix.T) / 2.0
        return symmetric

    @cached_property
    def hessian(self) -> np.ndarray:
        """Second derivatives of the energy [3 n, 3 n], eV/angstrom^2, as forces give them."""
        atoms = self.at_rest.copy()
        atoms.calc = self._calculator
        rows = []
        for k in range(3 * len(atoms)):
            sides = []
            for sign in (1.0, -1.0):
                atoms.positions = self.at_rest.positions
                atoms.positions.flat[k] += sign * DISPLACEMENT
                sides.append(atoms.get_forces().ravel())
            rows.append((sides[1] - sides[0]) / (2.0 * DISPLACEMENT))
        return np.array(rows)

    @cached_property
    def phonons(self) -> np.ndarray:
        """Frequencies [3 n] at Gamma, THz, ascending; imaginary ones are negative."""
        roots = np.repeat(np.sqrt(self.at_rest.get_masses()), 3)
        hessian = (self.hessian + self.hessian.T) / 2.0
        squares = np.linalg.eigvalsh(hessian / np.outer(roots, roots))
        result: np.ndarray = np.sign(squares) * np.sqrt(abs(squares)) * THZ
        return result
