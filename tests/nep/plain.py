"""The compiled reader and plain evaluation of NEP (kernels/nep/c_interface.h), without torch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from pwmlff.evaluation.nep_file import parse_nep
from pwmlff.evaluation.structures import neighbor_list
from pwmlff.plugin import open_library

#: Where component k of xx yy zz xy xz yz yx zx zy is in a 3x3 matrix, row by row.
ORDER = [0, 4, 8, 1, 2, 5, 3, 6, 7]


def _library() -> ctypes.CDLL:
    library = open_library("pwmlff_kernels", "evaluate a NEP")
    library.pwmlff_read_nep.restype = ctypes.c_void_p
    library.pwmlff_nep_warnings.restype = library.pwmlff_error.restype = ctypes.c_char_p
    return library


@dataclass(frozen=True)
class Found:
    """Numbers of a structure: eV, angstrom; virials are -r (x) dE/dr, as [3, 3]."""

    energies: np.ndarray  # [n]
    forces: np.ndarray  # [n, 3]
    virial: np.ndarray  # [3, 3]
    atom_virials: np.ndarray  # [n, 6] half to both ends, xx yy zz xy xz yz
    centroid_virials: np.ndarray  # [n, 3, 3] to the neighbor
    descriptors: np.ndarray  # [n, D]


class PlainNep:
    """A model that was read.

    Raises:
        ValueError: the text of the reader.
    """

    def __init__(self, text: bytes) -> None:
        self._library = _library()
        model = self._library.pwmlff_read_nep(text, ctypes.c_uint64(len(text)))
        if not model:
            raise ValueError(self._library.pwmlff_error().decode())
        self._model = ctypes.c_void_p(model)
        self.warnings = self._library.pwmlff_nep_warnings(self._model).decode().splitlines()
        parsed = parse_nep(text)
        self.elements, self.ndescriptors = list(parsed.elements), len(parsed.q_scaler)
        self.cutoff = parsed.cutoff

    def __del__(self) -> None:
        if hasattr(self, "_model"):
            self._library.pwmlff_free_nep(self._model)

    def evaluate(self, atoms: Atoms, temperature: float = 0.0, listed: float = 0.0) -> Found:
        """Evaluate a structure; elements that the model does not have take no part.

        Args:
            listed: candidates are within this distance, or the cutoff if it is larger.
        """
        n, reach = len(atoms), max(self.cutoff, listed)
        i, j, shift = neighbor_list("ijS", atoms, reach, threads=1)
        # A row for each image that is a neighbor.
        images, row = np.unique(np.c_[j, shift], axis=0, return_inverse=True)
        x = np.r_[atoms.positions, atoms.positions[images[:, 0]] + images[:, 1:] @ atoms.cell.array]
        atom = np.r_[np.arange(n), images[:, 0]]
        index = {z: s for s, z in enumerate(self.elements)}
        species = np.array([index.get(z, -1) for z in atoms.numbers], dtype=np.int32)[atom]
        neighbor = row.ravel() + n
        known = species[neighbor] >= 0
        i, neighbor = i[known], neighbor[known]
        place = i * len(self.elements) + species[neighbor]
        order = np.argsort(place, kind="stable")
        counts = np.bincount(place, minlength=n * len(self.elements))
        first = np.r_[0, np.cumsum(counts)].astype(np.int32)
        candidate = neighbor[order].astype(np.int32)

        energy = np.zeros(1)
        energies, descriptors = np.zeros(n), np.zeros((n, self.ndescriptors))
        forces, virial = np.zeros((len(x), 3)), np.zeros(9)
        atom_virials, centroid = np.zeros((len(x), 6)), np.zeros((len(x), 9))
        given = [np.ascontiguousarray(a) for a in (x, species, first, candidate)]
        taken = (energy, energies, descriptors, forces, virial, atom_virials, centroid)
        failed = self._library.pwmlff_evaluate_nep(
            self._model, n, len(x),
            *(ctypes.c_void_p(a.ctypes.data) for a in given), ctypes.c_double(temperature),
            *(ctypes.c_void_p(a.ctypes.data) for a in taken),
        )  # fmt: skip
        if failed:
            raise ValueError(self._library.pwmlff_error().decode())
        assert np.isclose(energy[0], energies.sum(), rtol=1e-13, equal_nan=True)

        def folded(rows: np.ndarray) -> np.ndarray:
            result = np.zeros((n, rows.shape[1]))
            np.add.at(result, atom, rows)
            return result

        def matrices(rows: np.ndarray) -> np.ndarray:
            result = np.zeros_like(rows)
            result[:, ORDER] = rows
            return result.reshape(-1, 3, 3)

        return Found(
            energies, folded(forces), matrices(virial[None])[0], folded(atom_virials),
            matrices(folded(centroid)), descriptors,
        )  # fmt: skip
