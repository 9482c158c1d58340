"""Extended XYZ: the number of atoms, a line of key=value, and a line of columns for each atom.

Values are read by ase's own parser, columns by NumPy, which is ten times faster. What is a key is
found here: a key is the same in any case of letters, and one without a value has none, where ase
takes the next key for it.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import write
from ase.io.extxyz import key_val_str_to_dict
from ase.io.formats import open_with_compression

from pwmlff.data.labelled import Labelled, checked_numbers
from pwmlff.data.labels import labels_of
from pwmlff.files import drafted
from pwmlff.report import Failure

PLAIN = "species:S:1:pos:R:3"  # columns of a file that does not say
MOST_ATOMS = 1 << 40
#: What may hold blanks, and pieces of a key or a value: that, or one character.
ENCLOSED = "|".join(
    rf"{begin}(?:\\.|[^{end}\\])*{end}"
    for begin, end in ('""', "''", (r"\{", r"\}"), (r"\[", r"\]"))
)
PIECE = rf"(?:{ENCLOSED}|\\.|[^\s=])"
#: A key, and its value unless the next key follows the equals sign.
PAIR = re.compile(
    rf"({PIECE}+)(?:\s*(=)(?:\s+(?![^\s='\"{{}}\[\]]+\s*=))?((?:{PIECE}|=)*))?", re.DOTALL
)
MARKS = re.compile(rf"{ENCLOSED}|\\.", re.DOTALL)
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
            TextIOWrapper(raw, encoding="utf-8-sig", errors="replace") as file,
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
    info = _keys(comment, where)
    columns = _columns(rows, str(_popped(info, where, "properties", default=PLAIN)), where)
    species, z = _popped(columns, where, "species"), _popped(columns, where, "z")
    if species is None and z is not None:
        species = checked_numbers(z, where)
    if species is None:
        raise Failure(f"{where} has no column of elements; expected species:S:1 in Properties")
    positions = _popped(columns, where, "pos", "positions")
    if positions is None or positions.shape != (natoms, 3):
        raise Failure(f"{where} has no three columns of positions; expected pos:R:3 in Properties")
    lattice = _popped(info, where, "lattice")
    cell = np.zeros((3, 3)) if lattice is None else _vectors(lattice, where)
    pbc = np.asarray(_popped(info, where, "pbc", default=lattice is not None))
    if pbc.dtype != bool or pbc.shape not in {(), (3,)}:
        raise Failure(f"{where}: pbc is {pbc.tolist()}, expected three of T and F")
    return Labelled(
        species,
        positions,
        cell,
        np.broadcast_to(pbc, 3),
        index,
        **labels_of(info, columns, cell, natoms, where),
    )


def _keys(comment: str, where: str) -> dict[str, Any]:
    """Values by key, of those that have one."""
    result = {}
    for key, given, text in PAIR.findall(comment):
        value = MARKS.sub(_bare, text) if given else "T"
        if not value.strip():
            continue
        # By another name, as of some names ase takes nine numbers alone.
        line = "value=" + '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
        try:
            result[MARKS.sub(_bare, key)] = key_val_str_to_dict(line)["value"]
        except ValueError as error:
            raise Failure(f"{where}: its second line cannot be read: {key}: {error}") from None
    return result


def _vectors(lattice: Any, where: str) -> np.ndarray:
    """Cell vectors in rows."""
    numbers = np.ravel(lattice)
    if numbers.shape != (9,) or numbers.dtype.kind not in "if":
        raise Failure(
            f"{where}: its second line cannot be read: Lattice is {lattice}, expected nine numbers"
        )
    return numbers.reshape(3, 3).astype(np.float64)


def _bare(marked: re.Match[str]) -> str:
    """Text without its marks."""
    return re.sub(r"\\(.)", r"\1", marked[0] if marked[0][0] == "\\" else marked[0][1:-1])


def _popped(values: dict[str, Any], where: str, *names: str, default: Any = None) -> Any:
    """Take the value of a name out, in any case of letters; the first of the names that is there.

    Raises:
        Failure: it is there twice, with other values.
    """
    for name in names:
        keys = [key for key in values if key.lower() == name]
        matches = [values.pop(key) for key in keys]
        if any(not np.array_equal(matches[0], other) for other in matches[1:]):
            raise Failure(f"{where} has '{keys[0]}' and '{keys[1]}', which differ, expected one")
        if matches:
            return matches[0]
    return default


def _columns(rows: list[str], properties: str, where: str) -> dict[str, np.ndarray]:
    """Columns by name, [n] or [n, k]."""
    words = properties.split(":")
    try:
        names, letters, counts = words[::3], words[1::3], [int(word) for word in words[2::3]]
        if len(words) % 3 or min(counts) < 1:
            raise ValueError
        dtype = np.dtype(
            [
                (name, TYPES[letter.upper()], () if count == 1 else (count,))
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
