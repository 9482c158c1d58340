"""Edge models: the module itself, in the type in which it computes, on all edges of a structure.

There are no ghosts here: an edge that crosses a periodic boundary ends at the atom itself, so a
model with message passing sees what it would see in an infinite crystal.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pwmlff.evaluation import model_file


class Potential:
    """A module that keeps to the EDGE contract.

    Args:
        module: with `cutoff`, `atom_type` and forward(edge_vec, edge_index, types, nlocal).
        elements: atomic numbers that take part, for checks only; all of the model's when None.

    Raises:
        ValueError: an element is not one of the model's.
    """

    def __init__(self, module: nn.Module, elements: Sequence[int] | None = None) -> None:
        contract: Any = module  # of whose attributes torch says that they are tensors or modules
        self.cutoff = float(contract.cutoff)
        self.known = [int(z) for z in contract.atom_type]
        unknown = sorted(set(elements or ()) - set(self.known))
        if unknown:
            raise ValueError(f"elements holds {unknown}; this model knows {self.known}")
        with torch.no_grad():  # else the copies of parameters are no leaves, of which torch warns
            self.module = copy.deepcopy(module).to("cpu").eval()
            self.dtype = model_file.to_its_dtype(self.module)

    def atom_energies(self, edge_vec: Tensor, edge_index: Tensor, numbers: Tensor) -> Tensor:
        """Energies [n] from edge_vec [E, 3], edge_index [2, E] (center, neighbor), numbers [n].

        Raises:
            ValueError: an atom is of no element of the model, or the model returns another shape.
        """
        missing = [n for n, z in enumerate(numbers.tolist()) if z not in self.known]
        if missing:
            raise ValueError(
                f"atom {missing[0]} has atomic number {int(numbers[missing[0]])}; "
                f"the elements of this model are {self.known}"
            )
        types = torch.tensor([self.known.index(z) for z in numbers.tolist()])
        with torch.enable_grad():  # afterwards as before, whatever the module leaves
            energies: Tensor = self.module(edge_vec.to(self.dtype), edge_index, types, len(numbers))
        if energies.shape != numbers.shape:
            raise ValueError(
                f"the model returns energies of shape {tuple(energies.shape)}; expected one for "
                f"each of {len(numbers)} atoms"
            )
        return energies.to(torch.float64)
