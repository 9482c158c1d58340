"""Potentials by the atomic cluster expansion (ACE), of pacemaker and of GRACE/FS, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pwmlff import native

RADIALS = ("ChebExpCos", "ChebPow", "ChebLinear", "SBessel")
INNERS = ("density", "distance", "zbl", "none")
EMBEDDINGS = ("FinnisSinclair", "FinnisSinclairShiftedScaled")


@dataclass(frozen=True)
class Ace:
    """A potential, by the names of kernels/families/ace/read_ace.h.

    Attributes:
        elements: atomic numbers of the species.
        cutoff: angstrom, the largest of all pairs.
        numbers: arrays; what begins with "species.K." is of centers of species K.
    """

    elements: tuple[int, ...]
    cutoff: float
    numbers: dict[str, np.ndarray]

    @property
    def grace(self) -> bool:
        """Whether it is of GRACE/FS: real harmonics, and moments over all neighbors."""
        return "chemical" in self.numbers

    def of_species(self, k: int) -> dict[str, np.ndarray]:
        """The arrays of centers of a species, by their own names."""
        prefix = f"species.{k}."
        return {
            name.removeprefix(prefix): values
            for name, values in self.numbers.items()
            if name.startswith(prefix)
        }


def of_network(network: native.Network) -> Ace:
    """What a file was read as."""
    facts = network.facts
    return Ace(tuple(facts["atom_type"]), facts["cutoff"], network.arrays().numbers)
