"""PWmat's MOVEMENT and OUT.MLMD files.

A frame begins with the line `96 atoms, Iteration (fs) = ..., Etot,Ep,Ek (eV) = ..., SCF = ...`,
holds blocks that follow a line with their name, and ends with a line of dashes:

- `Lattice vector (Angstrom)`: three lines of a cell vector, each perhaps with `stress (eV): xx xy
  xz`, which is the virial, positive when compressed
- `Position (normalized)`: atomic number and fractional coordinates of each atom
- `Force (eV/Angstrom)`: atomic number and dE/dx of each atom, so that forces are its negative

The energy is Ep, the second of `Etot,Ep,Ek`: Etot also holds the kinetic energy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pwmlff.report import Failure
from pwmlff.train.labelled import Labelled, checked_numbers

HEADER = re.compile(r"^\s*(\d+)\s+atoms\s*,\s*Iteration", re.IGNORECASE)
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?"
ENERGIES = re.compile(
    rf"Etot\s*,\s*Ep\s*,\s*Ek\s*(?:\(eV\))?\s*=\s*({NUMBER})\s+({NUMBER})", re.IGNORECASE
)
STRESS = re.compile(r"stress\s*\(eV\)\s*:?", re.IGNORECASE)
END = "-----"


def frames(path: Path) -> Iterator[Labelled]:
    """All frames of a file, one after another.

    Raises:
        Failure: the file is not of this format, or a frame is damaged.
    """
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        lines: list[str] = []
        index = 0
        for line in file:
            if line.lstrip().startswith(END):
                if lines:
                    yield _frame(lines, index, path)
                    index += 1
                lines = []
            elif lines or line.strip():
                lines.append(line)
        if lines:
            _natoms(lines[0], where := f"frame {index} of '{path}'")
            raise Failure(
                f"{where} ends without its line of dashes after {len(lines)} lines: the file is "
                f"cut off; complete it, or take the frames before it as '{path}@:{index}'"
            )


def _frame(lines: list[str], index: int, path: Path) -> Labelled:
    where = f"frame {index} of '{path}'"
    natoms = _natoms(lines[0], where)
    blocks = {name: row for row in range(1, len(lines)) if (name := _block(lines[row]))}
    for name in ("lattice", "position"):
        if name not in blocks:
            raise Failure(f"{where} has no block '{name.capitalize()}', expected one of each frame")
    cell, virial = _lattice(lines, blocks["lattice"] + 1, where)
    numbers, fractions = _rows(lines, blocks["position"] + 1, natoms, "Position", where)
    forces = None
    if "force" in blocks:
        of_forces, gradient = _rows(lines, blocks["force"] + 1, natoms, "Force", where)
        if not np.array_equal(numbers, of_forces):
            row = int(np.flatnonzero(numbers != of_forces)[0])
            raise Failure(
                f"{where}: atom {row} has the atomic number {numbers[row]} in the block 'Position' "
                f"and {of_forces[row]} in 'Force', expected one order of atoms"
            )
        forces = -gradient
    energies = ENERGIES.search(lines[0])
    return Labelled(
        checked_numbers(numbers, where),
        fractions @ cell,
        cell,
        np.ones(3, dtype=bool),
        index,
        None if energies is None else _float(energies[2]),
        forces,
        virial,
    )


def _natoms(line: str, where: str) -> int:
    header = HEADER.match(line)
    if header is None:
        raise Failure(
            f"{where} begins with '{line.strip()[:60]}', expected a line like "
            "'96 atoms, Iteration (fs) = ..., Etot,Ep,Ek (eV) = ...' of PWmat"
        )
    return int(header[1])


def _block(line: str) -> str | None:
    """The block that begins after this line: lattice, position or force."""
    word = line.split(maxsplit=1)[:1]
    name = word[0].lower().rstrip(",") if word else ""
    if name == "lattice":
        return "lattice"
    return name if name in {"position", "force"} else None


def _float(word: str) -> float:
    """A number, with Fortran's exponents too."""
    return float(word.replace("D", "E").replace("d", "e"))


def _lattice(lines: list[str], begin: int, where: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Cell vectors in rows, and the virial where there is one."""
    rows = [STRESS.split(line, maxsplit=1) for line in lines[begin : begin + 3]]
    try:
        values = [[[_float(word) for word in part.split()[:3]] for part in row] for row in rows]
        cell = np.array([row[0] for row in values])
        virial = np.array([row[1] for row in values]) if len(values[0]) > 1 else None
    except (ValueError, IndexError):
        cell, virial = np.zeros(0), None
    if cell.shape != (3, 3) or (virial is not None and virial.shape != (3, 3)):
        raise Failure(
            f"{where}: the block 'Lattice vector' is {' | '.join(lines[begin : begin + 3])!r}, "
            "expected three lines of three numbers, each with 'stress (eV):' and three more or "
            "none of them"
        )
    return cell, virial


def _rows(
    lines: list[str], begin: int, natoms: int, name: str, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """Atomic numbers int [natoms] and vectors [natoms, 3] of a block."""
    # One line too many where there are too few: it is the one that the message names.
    rows = [*lines[begin : begin + natoms], ""][:natoms]
    numbers, vectors = np.zeros(len(rows), dtype=np.int64), np.zeros((len(rows), 3))
    for atom, row in enumerate(rows):
        words = row.split()
        try:
            numbers[atom] = int(words[0])
            vectors[atom] = [_float(word) for word in words[1:4]]
        except (ValueError, IndexError, OverflowError):
            raise Failure(
                f"{where}: line {atom} of the block '{name}' is '{' '.join(words)}', expected an "
                f"atomic number and three numbers for each of {natoms} atoms"
            ) from None
    return numbers, vectors
