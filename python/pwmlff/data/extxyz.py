"""Extended XYZ: the number of atoms, a line of key=value, and a line of columns for each atom.

The keys are read by ase's own parser; the columns by NumPy, which is ten times faster.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import write
from ase.io.extxyz import key_val_str_to_dict
from ase.io.formats import open_with_compression

from pwmlff.data.labelled import Labelled, checked_numbers, element_numbers
from pwmlff.data.labels import labels_of
from pwmlff.files import drafted
from pwmlff.report import Failure

PLAIN = "species:S:1:pos:R:3"  # columns of a file that does not say
MOST_ATOMS = 1 << 40
#: Keys of which ase takes nine numbers alone, as it does not in capitals.
TENSOR = re.compile(r"(?<!\S)(?:stress|virial)(?=\s*=)")
#: Columns by their letter; text that is longer is of no column that is used.
TYPES = {"R": "f8", "I": "i8", "S": "U16", "L": "U16"}


def write_whole(path: Path, structures: Sequence[Atoms]) -> None:
    """Write structures with what their calculators hold, whole or not at all.

    Without structures the file is empty.
    """
    with drafted(path) as draft:
        draft.touch()
        if structures:
            write(draft, list(structures), format="extxyz")
        draft.replace(path)


def frames(path: Path) -> Iterator[Labelled]:
    """All frames of a file, one after another.

    Raises:
        Failure: a frame is damaged, or has no columns for species and positions.
    """
    index = 0
    try:
        with (
            open_with_compression(str(path), "rb") as raw,
            TextIOWrapper(raw, encoding="utf-8", errors="replace") as file,
        ):
            for line in file:
                if not line.strip():
                    continue
                yield _frame(line, file, index, path)
                index += 1
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise Failure(f"'{path}' cannot be read after {index} frames: {error}") from error


def _frame(line: str, file: Iterator[str], index: int, path: Path) -> Labelled:
    where = f"frame {index} of '{path}'"
    try:
        natoms = int(line)
    except ValueError:
        natoms = -1
    if not 0 <= natoms < MOST_ATOMS:
        raise Failure(
            f"{where} begins with '{line.strip()[:60]}', expected a line with the number of atoms: "
            "the frame before it has more lines than it says, or this is no extended XYZ"
        )
    comment = next(file, "")
    rows = list(islice(file, natoms))
    if len(rows) < natoms:
        raise Failure(
            f"{where} ends after {len(rows)} of {natoms} atoms: the file is cut off; complete it, "
            f"or take the frames before it as '{path}@:{index}'"
        )
    try:
        info = key_val_str_to_dict(TENSOR.sub(lambda key: key[0].upper(), comment))
    except ValueError as error:
        raise Failure(f"{where}: its second line cannot be read: {error}") from None
    columns = _columns(rows, str(info.pop("Properties", PLAIN)), where)
    if "species" in columns:
        numbers = element_numbers(columns.pop("species"), where)
    elif "Z" in columns:
        numbers = checked_numbers(columns.pop("Z"), where)
    else:
        raise Failure(f"{where} has no column of elements; expected species:S:1 in Properties")
    positions = columns.pop("pos", columns.pop("positions", None))
    if positions is None or positions.shape != (natoms, 3):
        raise Failure(f"{where} has no three columns of positions; expected pos:R:3 in Properties")
    lattice = info.pop("Lattice", None)
    cell = np.zeros((3, 3)) if lattice is None else np.asarray(lattice, dtype=float).T
    pbc = np.asarray(info.pop("pbc", lattice is not None))
    if pbc.dtype != bool or pbc.shape not in {(), (3,)}:
        raise Failure(f"{where}: pbc is {pbc.tolist()}, expected three of T and F")
    return Labelled(
        numbers,
        positions,
        cell,
        np.broadcast_to(pbc, 3),
        index,
        **labels_of(info, columns, cell, natoms, where),
    )


def _columns(rows: list[str], properties: str, where: str) -> dict[str, np.ndarray]:
    """Columns by name, [n] or [n, k]."""
    words = properties.split(":")
    try:
        names, letters, counts = words[::3], words[1::3], [int(word) for word in words[2::3]]
        if len(words) % 3 or min(counts) < 1:
            raise ValueError
        dtype = np.dtype(
            [
                (name, TYPES[letter], () if count == 1 else (count,))
                for name, letter, count in zip(names, letters, counts, strict=True)
            ]
        )
    except (KeyError, ValueError):
        raise Failure(
            f"{where}: Properties is '{properties}', expected name:type:columns for each, each "
            "name once, like species:S:1:pos:R:3:forces:R:3"
        ) from None
    if not rows:
        return {name: np.zeros(0, dtype=dtype)[name] for name in names}
    try:
        table = np.loadtxt(rows, dtype=dtype, comments=None, ndmin=1)
    except ValueError:
        table = None
    if table is None or len(table) != len(rows):
        raise Failure(_what_is_wrong(rows, dtype, properties, sum(counts), where))
    return {name: table[name] for name in names}


def _what_is_wrong(
    rows: list[str], dtype: np.dtype, properties: str, columns: int, where: str
) -> str:
    """Name the first atom whose line is not what the properties say."""
    hint = ""
    if properties == PLAIN:
        hint = " (without Properties in its second line, a file has species and positions alone)"
    for atom, row in enumerate(rows):
        words = row.split()
        if len(words) != columns:
            return (
                f"{where}: the line of atom {atom} has {len(words)} columns, expected {columns} "
                f"for {properties}{hint}: '{row.strip()[:80]}'"
            )
        try:
            np.loadtxt([row], dtype=dtype, comments=None)
        except ValueError:
            return (
                f"{where}: the line of atom {atom} is '{row.strip()[:80]}', expected {properties}"
            )
    raise AssertionError("NumPy reads each line but not all of them")
