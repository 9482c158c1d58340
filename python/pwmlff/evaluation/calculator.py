"""An ase calculator for model files.

    from ase.build import bulk
    from pwmlff import Calculator

    atoms = bulk("HfO2", "fluorite", a=5.08, cubic=True)
    atoms.calc = Calculator("a.pt")
    atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()

Units are ase's: eV, angstrom, eV/angstrom^3; stress is positive under tension, in the order
xx yy zz yz xz xy. A model of units "lj" gives reduced units.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from ase import Atoms
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.calculator import Parameters, all_changes, register_calculator_class
from ase.stress import full_3x3_to_voigt_6_stress

from pwmlff.evaluation.engine import OneAtATime, choose
from pwmlff.evaluation.structures import require_unmasked
from pwmlff.threads import default_threads

VOIGT_OF_LAMMPS = [0, 1, 2, 5, 4, 3]  # xx yy zz xy xz yz -> xx yy zz yz xz xy


class Calculator(AseCalculator):
    """Energy, forces and stress of a TorchScript model file.

    There are energies of atoms (`energies`) too. With the fused engine and for kind EDGE there are
    stresses of atoms (`stresses`), which add up to the stress. Where the file has it, `gamma` is
    the extrapolation grade of each atom (docs/uncertainty.md). Of a model with charges there are
    `charges` (e) and `born_effective_charges` [n, 3, 3] (e): the derivative of the dipole moment,
    the first index, by the position of an atom, the second. Without atoms, the energy is zero.

    Args:
        model: a model file. Loading it executes code that it brings along.
        engine: "auto" (the default: fused where its verification passes, else the file's own
            code), "fused", "torchscript" or "reference".
        precision: of the fused engine, "exact", "double" (the default) or "mixed".
        elements: atomic numbers that take part; all of the model's when None. Their number divides
            the descriptor of a DP of PWMLFF or MatPL, as the elements of pair_coeff do in LAMMPS;
            when None that of the elements of each structure does, as in training.
        nthreads: threads of the CPU; as many as torch uses when None, and where that is not
            loaded OMP_NUM_THREADS or as many as there are cores.
        skin: distance beyond the cutoff within which neighbors are kept, 0.5 angstrom by default.
        device: "cpu" (the default), "cuda" or "cuda:N"; the reference runs on the CPU.

    These are the calculator's `parameters`, which ase writes into its trajectories and databases;
    `set` opens the file anew, and `Calculator(**other.todict())` is the same calculator again.

    Threads may share one: they take turns. A copy shares the opened file, a pickled one opens it
    again. In a child of os.fork, as of multiprocessing.Pool on most systems, it computes with one
    thread, whose results are the same; on a GPU it says that it cannot.

    Raises:
        pwmlff.report.Failure: the file cannot be used, or a parameter is out of its range.
        TypeError: a parameter of another name.
        ValueError: when computing, for an element that does not take part; too many neighbors of an
            atom; a position, cell, energy or force that is not finite; a cell without room for the
            periodicity that is asked for.

    Attributes:
        engine: the engine that runs, and
        reason: why it is not the fused one, or not in the precision that was asked for.
    """

    name = "pwmlff"  # of the class in ase.calculators.calculator.get_calculator_class
    implemented_properties: list[str] = [  # noqa: RUF012  as ase declares it
        "energy", "free_energy", "energies", "forces", "stress",
    ]  # fmt: skip
    default_parameters: dict[str, Any] = {  # noqa: RUF012  likewise
        "engine": "auto", "precision": "double", "elements": None, "nthreads": None, "skin": 0.5,
        "device": "cpu",
    }  # fmt: skip

    def __init__(self, model: str | PathLike[str], **parameters: Any) -> None:
        self._lock = OneAtATime()
        super().__init__(model=model, **parameters)  # type: ignore[no-untyped-call]  # of ase

    def set(self, **kwargs: Any) -> dict[str, Any]:
        """Change parameters; ase calls this too, with all of them, when one is made.

        Returns:
            Those that are other than before. If one cannot be used, none is changed.
        """
        if "model" in kwargs:
            kwargs["model"] = fspath(kwargs["model"])
        if kwargs.get("elements") is not None:
            kwargs["elements"] = [int(z) for z in kwargs["elements"]]
        with self._lock:
            previous = Parameters(self.parameters)
            try:
                changed: dict[str, Any] = super().set(**kwargs)  # type: ignore[no-untyped-call]
                if changed:
                    self._open()
            except BaseException:
                self.parameters = previous
                raise
            return changed

    def _open(self) -> None:
        """Open the file with the engine that the parameters ask for."""
        unknown = sorted(self.parameters.keys() - self.default_parameters.keys() - {"model"})
        if unknown:
            raise TypeError(
                f"the calculator has no parameter {unknown[0]!r}; it has model, "
                f"{', '.join(self.default_parameters)}"
            )
        asked = dict(self.parameters)
        if asked["nthreads"] is None:
            asked["nthreads"] = default_threads()
        self._choice = choose(asked.pop("model"), **asked)
        self.reset()  # type: ignore[no-untyped-call]  # of ase
        engine = self._choice.engine
        own = ["stresses"] * engine.has_atom_virial + ["gamma"] * engine.has_grade
        own += ["charges", "born_effective_charges"] * engine.has_charges
        self.implemented_properties = [*type(self).implemented_properties, *own]

    def __getstate__(self) -> dict[str, Any]:
        """A copy has parameters, results, neighbors and a lock of its own."""
        return {
            **self.__dict__,
            "parameters": Parameters(self.parameters),
            "results": dict(self.results),
            "_choice": replace(self._choice, engine=copy(self._choice.engine)),
            "_lock": OneAtATime(),
        }

    @property
    def engine(self) -> str:
        """Name of the engine that runs."""
        return self._choice.engine.name

    @property
    def reason(self) -> str:
        """Why that is not the fused engine; empty where it is, or was not asked for."""
        return self._choice.reason

    def get_property(
        self, name: str, atoms: Atoms | None = None, allow_calculation: bool = True
    ) -> Any:
        """A result by its name; ase asks for all of them by this."""
        if atoms is not None:  # ase does not see a mask that is new
            require_unmasked(atoms)
        with self._lock:
            return super().get_property(name, atoms, allow_calculation)  # type: ignore[no-untyped-call]

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        """Compute all properties; those that take time where they are wanted. ase calls this."""
        with self._lock:
            super().calculate(atoms, properties, system_changes)  # type: ignore[no-untyped-call]  # of ase
            self.results = {}  # none of the last structure, should this one be refused
            structure: Atoms | None = self.atoms
            if structure is None:
                raise ValueError("found no structure to evaluate, expected atoms: calculate(atoms)")
            evaluation = self._choice.engine(
                structure,
                atom_virial="stresses" in properties,
                grade="gamma" in properties,
                born="born_effective_charges" in properties,
            )
            self.results = {
                "energy": evaluation.energy,
                "free_energy": evaluation.energy,
                "energies": evaluation.atom_energy,
                "forces": evaluation.forces,
            }
            if evaluation.gamma is not None:
                self.results["gamma"] = evaluation.gamma
            if evaluation.charges is not None:
                self.results["charges"] = evaluation.charges
            if evaluation.born is not None:
                self.results["born_effective_charges"] = evaluation.born
            if structure.cell.rank == 3:  # stress is per volume
                volume = structure.get_volume()
                self.results["stress"] = -full_3x3_to_voigt_6_stress(evaluation.virial) / volume
                if evaluation.atom_virial is not None:
                    self.results["stresses"] = -evaluation.atom_virial[:, VOIGT_OF_LAMMPS] / volume


register_calculator_class(Calculator.name, Calculator)
