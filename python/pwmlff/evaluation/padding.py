"""What the forward of a Deep Potential takes, made from a structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from pwmlff.evaluation.structures import neighbor_list, require_elements, types_of


class DPInputs(NamedTuple):
    """Arguments of a DP's forward, in its order: `model(*inputs)`."""

    list_neigh: Tensor  # int32 [1, nlocal, ntypes*maxNeighborNum]
    Imagetype_map: Tensor  # int32 [nlocal]
    atom_type: Tensor  # int32 [n]
    ImageDR: Tensor  # [1, nlocal, ntypes*maxNeighborNum, 4]
    nghost: int


def pad_neighbors(
    atoms: Atoms, atom_type: Sequence[int], rmax: float, max_neighbor: int
) -> DPInputs:
    """Inputs of a DP from a structure, periodic images folded onto the atoms themselves.

    With nghost = 0 the forces come out summed over images. Boxes smaller than the cutoff and
    triclinic cells are fine.

    Args:
        atoms: positions and cell in the model's length unit, any periodicity.
        atom_type: the model's atomic numbers, in its order.
        rmax: the model's cutoff.
        max_neighbor: the model's maxNeighborNum.

    Returns:
        Float64 inputs on the CPU; all elements of the model take part.

    Raises:
        ValueError: an atom is of no element of the model; it has more neighbors of one type inside
            the cutoff than there are slots; or neighbors cannot be found
            (:func:`pwmlff.evaluation.structures.require_usable`).
    """
    elements = np.asarray(atom_type, dtype=np.int64)
    nlocal, ntypes = len(atoms), len(elements)
    require_elements(atoms, elements.tolist())
    species = types_of(atoms.numbers, elements.tolist())
    i, j, r, d = neighbor_list("ijdD", atoms, rmax, species)
    block = i * ntypes + species[j]
    counts = np.bincount(block, minlength=nlocal * ntypes)
    if counts.size and counts.max() > max_neighbor:
        atom, t = divmod(int(np.argmax(counts)), ntypes)
        raise ValueError(
            f"atom {atom} has {counts.max()} neighbors of type {t} (atomic number {elements[t]}) "
            f"inside the cutoff {rmax}; the model allows {max_neighbor}: use a model with more "
            "slots, or look for atoms on top of each other"
        )
    slot = np.arange(len(i)) - (np.cumsum(counts) - counts)[block] + species[j] * max_neighbor

    list_neigh = np.zeros((1, nlocal, ntypes * max_neighbor), dtype=np.int32)
    image_dr = np.zeros((1, nlocal, ntypes * max_neighbor, 4))
    list_neigh[0, i, slot] = j + 1
    image_dr[0, i, slot, 0] = r
    image_dr[0, i, slot, 1:] = d
    return DPInputs(
        torch.from_numpy(list_neigh),
        torch.from_numpy(species.astype(np.int32)),
        torch.from_numpy(elements.astype(np.int32)),
        torch.from_numpy(image_dr),
        0,
    )
