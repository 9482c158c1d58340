"""Structures of a program as files, which all processes of a training can read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.calculator import BaseCalculator, all_properties
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from pwmlff.files import write_whole
from pwmlff.report import Failure

BORN = "born_effective_charges"  # as ase calls Born charges


def as_files(
    frames: Sequence[Atoms | str | PathLike[str]], folder: str | PathLike[str], name: str
) -> list[str]:
    """Names of files with all frames.

    Args:
        frames: names of files, or structures with labels.
        folder: for the file that holds the structures.
        name: of that file, without .extxyz.

    Raises:
        Failure: the folder has other structures under that name.
        ValueError: the calculator of a structure holds the results of another structure.
    """
    structures = [frame for frame in frames if isinstance(frame, Atoms)]
    files = [fspath(frame) for frame in frames if not isinstance(frame, Atoms)]
    if not structures:
        return files
    for k, atoms in enumerate(structures):
        if isinstance(atoms.calc, BaseCalculator) and atoms.calc.check_state(atoms):
            raise ValueError(
                f"structure {k}: its calculator holds the results of another structure; expected "
                "one with the labels of this structure, such as ase's SinglePointCalculator"
            )
    text = io.StringIO()
    write(text, [_with_columns(atoms) for atoms in structures], format="extxyz")
    path = Path(folder, f"{name}.extxyz")
    contents = text.getvalue().encode()
    if path.exists() and path.read_bytes() != contents:
        raise Failure(f"'{path}' holds other structures; choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, contents)
    return [fspath(path), *files]


def _with_columns(atoms: Atoms) -> Atoms:
    """The same with matrices of Born charges as nine columns, which alone ase can write."""
    results = getattr(atoms.calc, "results", {})
    if BORN not in results:
        return atoms
    others = {k: v for k, v in results.items() if k in all_properties and k != BORN}
    written: Atoms = atoms.copy()
    written.arrays[BORN] = np.reshape(results[BORN], (len(atoms), 9))
    written.calc = SinglePointCalculator(written, **others)
    return written
