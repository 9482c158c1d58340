"""PWmat's MOVEMENT and OUT.MLMD files.

A frame begins with the line `96 atoms, Iteration (fs) = ..., Etot,Ep,Ek (eV) = ..., SCF = ...`. Its
blocks follow a line with their name, and it ends with a line of dashes:

- `Lattice vector (Angstrom)`: three lines of a cell vector, each perhaps with `stress (eV): xx xy
  xz`, which is dE/dstrain, the negative of the virial: of an isolated molecule the frames have
  -sum x_i (x) F_i. Its diagonal may hold a constant beside that, which is no derivative of the
  energy (:mod:`pwmlff.data.virials`)
- `Position (normalized)`: atomic number and fractional coordinates of each atom, perhaps followed
  by three numbers that say what may move
- `Force (eV/Angstrom)`: atomic number and dE/dx of each atom, so that forces are its negative

A block ends where the next one has its name. What has more or fewer lines or columns than this is
refused: it is made of parts of several frames, as where a run was killed and another one appended.

The energy is Ep, the second of `Etot,Ep,Ek`: Etot also holds the kinetic energy. `SCF` is the
number of iterations. Nothing says how many were allowed: an SCF that took exactly as many as PWmat
allows by itself did not converge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np

from pwmlff.data.labelled import Labelled, checked_numbers
from pwmlff.report import Failure

#: Fortran's numbers, and nothing else that Python would take for one.
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?"
FLAGS = re.IGNORECASE | re.ASCII
BEGIN = r"\s*(\d+)\s+atoms\s*,\s*Iteration"
HEADER = re.compile(BEGIN, FLAGS)
#: What is left of one wherever a line may have been broken off.
ANY_HEADER = re.compile(r"atoms\s*,\s*Iteration", FLAGS)
ENERGIES = re.compile(
    r"Etot\s*,\s*Ep\s*,\s*Ek\s*(?:\(eV\))?\s*="
    rf"\s*(?:{NUMBER}\s+({NUMBER})\s+{NUMBER}\s*)?(?:,|$)",
    FLAGS,
)
#: A header without energies.
NO_ENERGIES = re.compile(
    rf"{BEGIN}\s*(?:\(fs\))?\s*=\s*{NUMBER}\s*(?:,\s*SCF\s*=\s*-?\d+\s*)?,?\s*", FLAGS
)
ITERATIONS = re.compile(rf"Iteration\s*(?:\(fs\))?\s*=\s*({NUMBER}).*SCF\s*=\s*(\d+)", FLAGS)
#: Iterations that PWmat allows by itself at first, and in steps of a trajectory.
ALLOWED = (100, 40)
STRESS = re.compile(r"stress\s*\(eV\)\s*:?", re.IGNORECASE)
THREE = re.compile(rf"\s*({NUMBER})\s+({NUMBER})\s+({NUMBER})\s*", re.ASCII)
#: Atomic number, three numbers, and of a position perhaps what may move.
ROW = re.compile(
    rf"\s*(\d{{1,9}})\s+({NUMBER})\s+({NUMBER})\s+({NUMBER})(\s+\d+\s+\d+\s+\d+)?\s*", re.ASCII
)
FORTRAN = str.maketrans("dD", "eE")
END = "-----"
#: Blocks that are read, and those that have rows like theirs.
READ = ("lattice", "position", "force")
OTHERS = ("velocity", "atomic-energy", "nonperiodic_position")


def frames(path: Path) -> Iterator[Labelled]:
    """All frames of a file, one after another.

    Raises:
        Failure: the file is not of this format, or a frame is damaged.
    """
    with Path(path).open(encoding="utf-8-sig", errors="replace") as file:
        lines: list[str] = []
        first = index = 0
        for number, line in enumerate(file, 1):
            if line.lstrip().startswith(END):
                if lines:
                    yield _frame(lines, index, path, first)
                    index += 1
                lines = []
            elif lines or line.strip():
                first = first if lines else number
                lines.append(line)
        if lines:
            _require_one_frame(lines, where := f"frame {index} of '{path}'", first)
            raise Failure(
                f"{where} ends without its line of dashes after {len(lines)} lines: the file is "
                f"cut off; complete it, or take the frames before it as '{path}@:{index}'"
            )


def _frame(lines: list[str], index: int, path: Path, first: int) -> Labelled:
    where = f"frame {index} of '{path}'"
    natoms = _require_one_frame(lines, where, first)
    blocks = _blocks(lines, where)
    for name in ("lattice", "position"):
        if name not in blocks:
            raise Failure(f"{where} has no block '{name.capitalize()}', expected one of each frame")
    cell, virial = _lattice(blocks["lattice"], where)
    numbers, fractions = _rows(blocks["position"], natoms, "Position", where)
    forces = None
    if "force" in blocks:
        force_numbers, gradient = _rows(blocks["force"], natoms, "Force", where)
        if not np.array_equal(numbers, force_numbers):
            row = int(np.flatnonzero(numbers != force_numbers)[0])
            raise Failure(
                f"{where}: atom {row} has the atomic number {numbers[row]} in the block 'Position' "
                f"and {force_numbers[row]} in 'Force', expected one order of atoms"
            )
        forces = -gradient
    return Labelled(
        checked_numbers(numbers, where),
        fractions @ cell,
        cell,
        np.ones(3, dtype=bool),
        index,
        _energy(lines[0], where),
        forces,
        virial,
        converged=_converged(lines[0]),
    )


def _converged(header: str) -> bool:
    match = ITERATIONS.search(header)
    later = match is not None and float(match[1].translate(FORTRAN)) > 0.0
    return match is None or int(match[2]) not in ALLOWED[: 1 + later]


def _require_one_frame(lines: list[str], where: str, first: int) -> int:
    """The number of atoms that the header of a frame says, which no other one may follow.

    `first` is the number of its first line in the file, from 1.
    """
    header = HEADER.match(lines[0])
    if header is None:
        raise Failure(
            f"{where}, line {first}, begins with '{lines[0].strip()[:60]}', expected a line like "
            "'96 atoms, Iteration (fs) = ..., Etot,Ep,Ek (eV) = ...' of PWmat"
        )
    text = "".join(lines)
    headers = list(ANY_HEADER.finditer(text))
    if len(headers) > 1:
        next_line = first + text.count("\n", 0, headers[1].start())
        raise Failure(
            f"{where} begins in line {first} and has no line of dashes before the next frame "
            f"begins in line {next_line}: it is cut off, as where a run was killed; delete its "
            "lines from the file"
        )
    return int(header[1])


def _energy(header: str, where: str) -> float | None:
    """Ep, or None where the header holds no energies."""
    energies = ENERGIES.search(header)
    if energies is None and not NO_ENERGIES.fullmatch(header):
        raise Failure(
            f"{where} begins with '{header.strip()}', expected three numbers after "
            "'Etot,Ep,Ek (eV) =', or no word of energies"
        )
    if energies is None or energies[1] is None:
        return None
    return float(_numbers([energies[1]], where)[0])


def _blocks(lines: list[str], where: str) -> dict[str, list[str]]:
    """The lines of each block that is read, without those that name it."""
    result: dict[str, list[str]] = {}
    unknown = ""
    titles = [row for row, line in enumerate(lines) if line.lstrip()[:1].isalpha()]
    for row, following in pairwise([*titles, len(lines)]):
        name = lines[row].split(maxsplit=1)[0].lower().rstrip(",")
        block = list(takewhile(str.strip, lines[row + 1 : following]))
        if name in (*READ, *OTHERS):
            if name in result:
                raise Failure(
                    f"{where} has two blocks '{name.capitalize()}', expected one: it is made of "
                    "parts of two frames"
                )
            result[name] = block
        elif "position" in result and ROW.fullmatch("".join(block[:1])):
            unknown = unknown or lines[row].strip()
    if unknown and "force" not in result:
        raise Failure(
            f"{where} has no block 'Force' but one that is called '{unknown[:60]}', expected "
            "'Force (eV/Angstrom)' if these are forces"
        )
    return result


def _numbers(words: Iterable[str], where: str) -> np.ndarray:
    """Numbers, with Fortran's exponents too; none beyond 1e308."""
    text = np.array([word.translate(FORTRAN) for word in words], dtype=str)
    values = text.astype(np.float64)
    if not np.isfinite(values).all():
        word = text[np.argmin(np.isfinite(values))]
        raise Failure(f"{where} holds the number '{word}', expected one below 1e308")
    return values


def _lattice(rows: list[str], where: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Cell vectors in rows, and the virial where there is one."""
    parts = [[THREE.fullmatch(part) for part in STRESS.split(row)] for row in rows]
    shape = [len(row) for row in parts]
    if shape not in ([1, 1, 1], [2, 2, 2]) or not all(part for row in parts for part in row):
        raise Failure(
            f"{where}: the block 'Lattice vector' is {' | '.join(rows[:4])!r}, "
            "expected three lines of three numbers, each with 'stress (eV):' and three more or "
            "none of them"
        )
    cell, *stress = (
        _numbers((word for part in column if part for word in part.groups()), where).reshape(3, 3)
        for column in zip(*parts, strict=True)
    )
    return cell, -stress[0] if stress else None


def _rows(rows: list[str], natoms: int, name: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Atomic numbers int [natoms] and vectors [natoms, 3] of a block."""
    if len(rows) != natoms:
        raise Failure(
            f"{where}: the block '{name}' has {len(rows)} lines, expected {natoms}, one for each "
            "atom that the first line of the frame says"
        )
    # Columns of what may move are those of all atoms or of none.
    first = ROW.fullmatch(rows[0]) if rows else None
    flags = name == "Position" and first is not None and first[5] is not None
    sound = []
    for atom, row in enumerate(rows):
        match = ROW.fullmatch(row)
        if match is None or bool(match[5]) != flags:
            more = ", and three for what may move" if flags else ""
            raise Failure(
                f"{where}: line {atom} of the block '{name}' is '{row.strip()}', expected "
                f"an atomic number and three numbers{more}"
            )
        sound.append(match)
    vectors = _numbers((word for match in sound for word in match.group(2, 3, 4)), where)
    return np.array([int(match[1]) for match in sound], dtype=np.int64), vectors.reshape(-1, 3)
