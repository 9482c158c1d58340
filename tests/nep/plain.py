"""The compiled reader and plain evaluation of NEP (kernels/nep/c_interface.h), without torch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from pwmlff.evaluation.structures import neighbor_list
from pwmlff.plugin import open_library

#: Where component k of xx yy zz xy xz yz yx zx zy is in a 3x3 matrix, row by row.
ORDER = [0, 4, 8, 1, 2, 5, 3, 6, 7]
_TEXT = 2048  # bytes for a message


def _library() -> ctypes.CDLL:
    library = open_library("pwmlff_kernels", "evaluate a NEP")
    library.pwmlff_read_nep.restype = library.pwmlff_nep_warnings.restype = ctypes.c_void_p
    library.pwmlff_nep_warnings.restype = ctypes.c_char_p
    library.pwmlff_nep_cutoff.restype = ctypes.c_double
    library.pwmlff_read_nep.argtypes = (
        ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int,
    )  # fmt: skip
    library.pwmlff_looks_like_nep.argtypes = (ctypes.c_char_p, ctypes.c_uint64)
    for name in ("species", "descriptors", "cutoff", "warnings"):
        getattr(library, f"pwmlff_nep_{name}").argtypes = (ctypes.c_void_p,)
    return library


def looks_like_nep(contents: bytes) -> bool:
    return bool(_library().pwmlff_looks_like_nep(contents, len(contents)))


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
        message = ctypes.create_string_buffer(_TEXT)
        self._model = self._library.pwmlff_read_nep(text, len(text), message, _TEXT)
        if not self._model:
            raise ValueError(message.value.decode())
        nspecies = self._library.pwmlff_nep_species(self._model)
        elements = (ctypes.c_int * nspecies)()
        self._library.pwmlff_nep_elements(ctypes.c_void_p(self._model), elements)
        self.elements = list(elements)
        self.ndescriptors = self._library.pwmlff_nep_descriptors(self._model)
        self.cutoff = self._library.pwmlff_nep_cutoff(self._model)
        warnings = self._library.pwmlff_nep_warnings(self._model)
        self.warnings = warnings.decode().splitlines()

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._library.pwmlff_free_nep(ctypes.c_void_p(self._model))

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
        message = ctypes.create_string_buffer(_TEXT)
        given = [np.ascontiguousarray(a) for a in (x, species, first, candidate)]
        taken = (energy, energies, descriptors, forces, virial, atom_virials, centroid)
        failed = self._library.pwmlff_evaluate_nep(
            ctypes.c_void_p(self._model), n, len(x),
            *(ctypes.c_void_p(a.ctypes.data) for a in given), ctypes.c_double(temperature),
            *(ctypes.c_void_p(a.ctypes.data) for a in taken), message, _TEXT,
        )  # fmt: skip
        if failed:
            raise ValueError(message.value.decode())
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
