"""Compute energies and forces with a calculator of ase, one structure after another.

    python labeller.py [--born] CALCULATOR FOLDER NUMBER...

CALCULATOR is like `ase.calculators.emt:EMT()` or `my_file.py:make(size=3)`: a name in a module or
file, and the plain values that it is called with. Of each number the structure is in
FOLDER/NUMBER.structure.extxyz, and the labels go to FOLDER/NUMBER.extxyz, or what went wrong to
FOLDER/NUMBER.error. With --born the labels have Born charges, where the calculator gives them. It
runs in any Python that has ase and the calculator: it imports nothing of
pwmlff.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read, write

BORN = "born_effective_charges"  # as ase calls Born charges


def parsed(words: str) -> tuple[str, list[str], tuple[Sequence[Any], dict[str, Any]] | None]:
    """What `module:call` or `file.py:call` stands for; nothing of it runs.

    Returns:
        The module or file, the names of the callable in it, one inside of another, and what it is
        called with; None where it is not called.

    Raises:
        ValueError: it is of another form.
    """
    source, _, call = words.partition(":")
    try:
        node = ast.parse(call, mode="eval").body
        arguments = None
        if isinstance(node, ast.Call):
            arguments = (
                [ast.literal_eval(one) for one in node.args],
                {str(one.arg): ast.literal_eval(one.value) for one in node.keywords if one.arg},
            )
            if len(arguments[1]) != len(node.keywords):
                raise ValueError("** in a call")
            node = node.func
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if not source or not isinstance(node, ast.Name):
            raise ValueError("no names")
        names.insert(0, node.id)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"the calculator is {words!r}, expected module:name, called with plain values if at "
            "all, like a.b:C(size=3); anything else can stand in a file of Python, like "
            "my_file.py:make()"
        ) from None
    return source, names, arguments


def make_calculator(words: str) -> Any:
    """The calculator that such words stand for.

    Raises:
        ValueError: they are of another form.
    """
    source, names, arguments = parsed(words)
    if source.endswith(".py"):
        spec = importlib.util.spec_from_file_location("calculator_of_user", source)
        if spec is None or spec.loader is None:
            raise ValueError(f"cannot load '{source}'")
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(source)
    found: Any = functools.reduce(getattr, names, module)
    return found if arguments is None else found(*arguments[0], **arguments[1])


def label(atoms: Any, calculator: Any, born: bool = False) -> Any:
    """The structure with what the calculator gives, in ase's units.

    Args:
        atoms: that structure.
        calculator: of ase.
        born: whether Born charges are wanted, as nine columns of the atoms.
    """
    atoms.calc = calculator
    columns = {}
    if born and BORN in calculator.implemented_properties:  # first, as the others come with them
        columns[BORN] = np.reshape(calculator.get_property(BORN, atoms), (len(atoms), 9))
    forces = atoms.get_forces()
    # With smearing, forces belong to the free energy; not all calculators know of one.
    free = "free_energy" in calculator.implemented_properties
    energy = atoms.get_potential_energy(force_consistent=free)
    results = {"energy": float(energy), "forces": forces}
    if atoms.pbc.all() and "stress" in calculator.implemented_properties:
        results["stress"] = atoms.get_stress()
    if not all(np.isfinite(value).all() for value in (*results.values(), *columns.values())):
        raise ValueError("the calculator gives energies, forces or others that are no numbers")
    if getattr(calculator, "converged", None) is False:  # as that of VASP says
        raise ValueError("the SCF did not converge")
    atoms.calc = SinglePointCalculator(atoms, **results)
    atoms.arrays.update(columns)
    return atoms


def main(*arguments: str) -> None:
    """Label all that have no result yet."""
    born = arguments[0] == "--born"
    words, folder, *numbers = arguments[born:]
    calculator = make_calculator(words)
    for number in numbers:
        result, error = (Path(folder, f"{number}.{kind}") for kind in ("extxyz", "error"))
        if result.exists():
            continue
        atoms = read(Path(folder, f"{number}.structure.extxyz"))
        draft = result.with_suffix(".draft")
        try:
            began = time.perf_counter()
            labelled = label(atoms, calculator, born)
            labelled.info["seconds"] = time.perf_counter() - began
            write(draft, labelled, format="extxyz")
            draft.replace(result)
        except Exception as failure:  # noqa: BLE001  whatever a calculator raises
            error.write_text(" ".join(f"{type(failure).__name__}: {failure}".split()))


if __name__ == "__main__":
    main(*sys.argv[1:])
