"""DeePMD-kit's folders of NumPy arrays.

A system is a folder with `type.raw` (a type for each atom), `type_map.raw` (the element of each
type), perhaps `nopbc`, and folders `set.*`. These have `coord.npy` [frames, 3 natoms], `box.npy`
[frames, 9] and, where known, `energy.npy` [frames], `force.npy` [frames, 3 natoms] and `virial.npy`
[frames, 9]. Where atoms differ from frame to frame (the mixed type), their types are in
`real_atom_types.npy` [frames, natoms], -1 for padding. Angstrom and eV; virials are positive when
compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from pwmlff.data.labelled import Labelled
from pwmlff.files import files_below
from pwmlff.report import Failure


def systems(folder: Path) -> list[Path]:
    """Systems in a folder and in all folders inside it, in the order of their names.

    Raises:
        Failure: there is none.
    """
    folders = sorted(path.parent for path in files_below(folder) if path.name == "type.raw")
    if not folders:
        raise Failure(
            f"found no type.raw in the folder '{folder}' or below, expected systems of DeePMD-kit; "
            "give files, not folders, of other formats"
        )
    return folders


def frames(folder: Path) -> Iterator[Labelled]:
    """All frames of one system.

    Raises:
        Failure: a file is missing, damaged, or has another shape.
    """
    path = folder / "type.raw"
    try:
        types = np.loadtxt(path, dtype=np.int64, ndmin=1, encoding="utf-8-sig")
    except (ValueError, OverflowError) as error:
        raise Failure(f"'{path}': {error}; expected a type for each atom") from None
    elements = _elements(folder)
    sets = sorted(path for path in folder.glob("set.*") if path.is_dir())
    if not sets:
        raise Failure(f"found no folder set.* in '{folder}', expected set.000 and so on")
    periodic = not (folder / "nopbc").exists()
    every = chain.from_iterable(_set(part, types, elements, periodic) for part in sets)
    for index, structure in enumerate(every):
        yield replace(structure, index=index)


def _elements(folder: Path) -> np.ndarray:
    path = folder / "type_map.raw"
    if not path.is_file():
        raise Failure(
            f"found no '{path}', which says the element of each type; write one, like 'Hf O'"
        )
    return np.array(path.read_text(encoding="utf-8-sig", errors="replace").split(), dtype=str)


def _set(
    folder: Path, types: np.ndarray, elements: np.ndarray, periodic: bool
) -> Iterator[Labelled]:
    natoms = len(types)
    coordinates = _array(folder / "coord.npy", None, 3 * natoms)
    if coordinates is None:
        raise Failure(f"found no '{folder / 'coord.npy'}', which each set needs")
    nframes = len(coordinates)
    box = _array(folder / "box.npy", nframes, 9)
    if box is None and periodic:
        raise Failure(
            f"found no '{folder / 'box.npy'}'; write it, or an empty file 'nopbc' beside type.raw "
            "where nothing is periodic"
        )
    energies = _array(folder / "energy.npy", nframes, 1)
    forces = _array(folder / "force.npy", nframes, 3 * natoms)
    virials = _array(folder / "virial.npy", nframes, 9)
    mixed = _array(folder / "real_atom_types.npy", nframes, natoms)
    for k in range(nframes):
        species = types if mixed is None else mixed[k].astype(np.int64)
        if mixed is not None and (species != mixed[k]).any():
            raise Failure(f"frame {k} of '{folder}': its types are {mixed[k]}, expected integers")
        real = np.ones(natoms, dtype=bool) if mixed is None else species >= 0
        wrong = species[real & ((species < 0) | (species >= len(elements)))]
        if len(wrong):
            raise Failure(
                f"frame {k} of '{folder}' has an atom of type {wrong[0]}, expected 0 to "
                f"{len(elements) - 1}, of which type_map.raw knows the elements"
            )
        yield Labelled(
            elements[species[real]],
            coordinates[k].reshape(-1, 3)[real],
            box[k].reshape(3, 3) if box is not None and periodic else np.zeros((3, 3)),
            np.full(3, periodic),
            0,
            None if energies is None else float(energies[k, 0]),
            None if forces is None else forces[k].reshape(-1, 3)[real],
            None if virials is None else virials[k].reshape(3, 3),
        )


def _array(path: Path, nframes: int | None, width: int) -> np.ndarray | None:
    """[nframes, width] float64, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        array = np.load(path, allow_pickle=False)
    except Exception as error:  # headers are parsed as Python, with all its errors
        raise Failure(f"'{path}' cannot be read: {error}; write it anew") from error
    if array.dtype.kind not in "fiu":
        raise Failure(f"'{path}' holds {array.dtype}, expected numbers")
    frames_found = len(array) if array.ndim else 0
    expected = frames_found if nframes is None else nframes
    if array.ndim == 0 or frames_found != expected or array.size != expected * width:
        raise Failure(
            f"'{path}' has the shape {list(array.shape)}, expected "
            f"[{'frames' if nframes is None else nframes}, {width}]"
        )
    numbers: np.ndarray = array.reshape(expected, width).astype(np.float64)
    return numbers
