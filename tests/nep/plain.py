"""The compiled reader and plain evaluation of NEP (families/nep/plain_nep.h), without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from pwmlff.evaluation.engine import AtomsAndGhosts
from pwmlff.evaluation.nep_file import parse_nep
from pwmlff.native import Network, NetworkEngine

#: Where component k of xx yy zz xy xz yz yx zx zy is in a 3x3 matrix, row by row.
ORDER = [0, 4, 8, 1, 2, 5, 3, 6, 7]


@dataclass(frozen=True)
class Found:
    """Numbers of a structure: eV, angstrom; virials are -r (x) dE/dr, as [3, 3]."""

    energies: np.ndarray  # [n]
    forces: np.ndarray  # [n, 3]
    virial: np.ndarray  # [3, 3]
    atom_virials: np.ndarray  # [n, 6] half to both ends, xx yy zz xy xz yz
    centroid_virials: np.ndarray  # [n, 3, 3] to the neighbor


class PlainNep:
    """A model that was read.

    Raises:
        ValueError: the text of the reader.
    """

    def __init__(self, text: bytes) -> None:
        network = Network(text, "nep")
        self.warnings = list(network.arrays().texts.values())
        self.text, parsed = text, parse_nep(text)
        self.elements, self.cutoff = list(parsed.elements), parsed.cutoff
        self._engine = NetworkEngine(network, "plain", [1] * len(self.elements))

    def evaluate(self, atoms: Atoms, temperature: float = 0.0, listed: float = 0.0) -> Found:
        """Evaluate a structure; elements that the model does not have take no part.

        Args:
            listed: candidates are within this distance, or the cutoff if it is larger.
        """
        n = len(atoms)
        rows = AtomsAndGhosts.find(atoms, self.elements, max(self.cutoff, listed))
        self._engine.set_neighbors(rows.species, rows.first, rows.candidate)
        found = self._engine.evaluate(rows.x, 1, True, True, temperature=temperature)
        assert np.isclose(found.energy, found.atom_energy.sum(), rtol=1e-13, equal_nan=True)

        def folded(values: np.ndarray) -> np.ndarray:
            result = np.zeros((n, values.shape[1]))
            np.add.at(result, rows.atom, values)
            return result

        def matrices(values: np.ndarray) -> np.ndarray:
            result = np.zeros_like(values)
            result[:, ORDER] = values
            return result.reshape(-1, 3, 3)

        return Found(
            found.atom_energy, folded(found.force), matrices(found.virial[None])[0],
            folded(found.atom_virial), matrices(folded(found.centroid_virial)),
        )  # fmt: skip
