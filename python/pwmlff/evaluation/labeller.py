"""Compute energies and forces with a calculator of ase, one structure after another.

    python labeller.py CALCULATOR FOLDER NUMBER...

CALCULATOR is like `ase.calculators.emt:EMT()` or `my_file.py:make(size=3)`. Of each number the
structure is in FOLDER/NUMBER.structure.extxyz, and the labels go to FOLDER/NUMBER.extxyz, or what
went wrong to FOLDER/NUMBER.error. It runs in any Python that has ase and the calculator: it imports
nothing of pwmlff.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read, write


def made(words: str) -> Any:
    """The calculator that `module:call` or `file.py:call` stands for."""
    place, colon, call = words.partition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("calculator_of_user", place)
        if spec is None or spec.loader is None:
            raise SystemExit(f"cannot load '{place}'")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    if not colon:
        raise SystemExit(f"the calculator is '{words}', expected module:call, like a.b:C(size=3)")
    return eval(call, vars(module))  # the user's own words


def label(atoms: Any, calculator: Any) -> Any:
    """The structure with what the calculator gives, in ase's units."""
    atoms.calc = calculator
    forces = atoms.get_forces()
    # With smearing, forces belong to the free energy; not all calculators know of one.
    free = "free_energy" in calculator.implemented_properties
    energy = atoms.get_potential_energy(force_consistent=free)
    results = {"energy": float(energy), "forces": forces}
    if atoms.pbc.all() and "stress" in calculator.implemented_properties:
        results["stress"] = atoms.get_stress()
    if not all(np.isfinite(value).all() for value in results.values()):
        raise ValueError("the calculator gives energies or forces that are no numbers")
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def main(words: str, folder: str, *numbers: str) -> None:
    """Label all that have no result yet."""
    calculator = made(words)
    for number in numbers:
        result, error = (Path(folder, f"{number}.{kind}") for kind in ("extxyz", "error"))
        if result.exists():
            continue
        atoms = read(Path(folder, f"{number}.structure.extxyz"))
        draft = result.with_suffix(".draft")
        try:
            began = time.perf_counter()
            labelled = label(atoms, calculator)
            labelled.info["seconds"] = time.perf_counter() - began
            write(draft, labelled, format="extxyz")
            draft.replace(result)
        except Exception as failure:  # noqa: BLE001  whatever a calculator raises
            error.write_text(" ".join(f"{type(failure).__name__}: {failure}".split()))


if __name__ == "__main__":
    main(*sys.argv[1:])
