"""Plain float64 PyTorch evaluation of model files: what every other engine is compared with.

A model kind gives energies of atoms as a function of edge vectors r_ij = x_j - x_i. Forces are the
negative gradient of their sum by positions. The virial is its negative gradient by a strain of
positions and cell. Nothing here is padded, fused or tabulated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np
import torch
from ase import Atoms
from torch import Tensor, nn

from pwmlff.evaluation import model_file
from pwmlff.evaluation.ace_file import Ace
from pwmlff.evaluation.ace_reference import AceReference
from pwmlff.evaluation.dp_reference import DPReference
from pwmlff.evaluation.edge_graph import further_inputs
from pwmlff.evaluation.nep_file import Nep
from pwmlff.evaluation.nep_reference import evaluate_nep
from pwmlff.evaluation.structures import Result, neighbor_list, require_elements, require_finite


class Kind(Protocol):
    """What a model kind provides."""

    cutoff: float
    elements: list[int]  # atomic numbers that a structure may have

    def atom_energies(self, edge_vec: Tensor, edge_index: Tensor, numbers: Tensor) -> Tensor:
        """Energies [n] from edge_vec [E, 3], edge_index [2, E] (center, neighbor), numbers [n].

        Raises:
            ValueError: the structure is outside what the model was made for.
        """


class EdgeReference:
    """A module of kind EDGE, in the type in which it computes, on all edges of a structure.

    There are no ghosts: an edge that crosses a periodic boundary ends at the atom itself. So a
    model with message passing sees what it would see in an infinite crystal.

    Args:
        module: with `cutoff`, `atom_type` and forward(edge_vec, edge_index, types, nlocal), which
            may take what :mod:`pwmlff.evaluation.edge_graph` makes, too.
    """

    def __init__(self, module: nn.Module, _: Sequence[int]) -> None:
        contract: Any = module  # of whose attributes torch says that they are tensors or modules
        self.cutoff = float(contract.cutoff)
        self.elements = [int(z) for z in contract.atom_type]
        with torch.no_grad():  # else the copies of parameters are no leaves, of which torch warns
            self.module = copy.deepcopy(module).to("cpu").eval()
            self.dtype = model_file.to_its_dtype(self.module)

    def atom_energies(self, edge_vec: Tensor, edge_index: Tensor, numbers: Tensor) -> Tensor:
        """Energies [n] from edge_vec [E, 3], edge_index [2, E] (center, neighbor), numbers [n].

        Raises:
            ValueError: the model returns another shape.
        """
        types = torch.tensor([self.elements.index(z) for z in numbers.tolist()])
        with torch.enable_grad():  # afterwards as before, whatever the module leaves
            further = further_inputs(self.module, edge_vec, edge_index)
            energies: Tensor = self.module(
                edge_vec.to(self.dtype), edge_index, types, len(numbers), **further
            )
        if energies.shape != numbers.shape:
            raise ValueError(
                f"the model returns energies of shape {tuple(energies.shape)}; expected one for "
                f"each of {len(numbers)} atoms"
            )
        return energies.to(torch.float64)


KINDS: dict[str, Callable[[nn.Module, Sequence[int]], Kind]] = {
    "DP": DPReference,
    "EDGE": EdgeReference,
}


def evaluate(
    model: str | PathLike[str] | nn.Module | Nep | Ace,
    atoms: Atoms,
    elements: Sequence[int] | None = None,
) -> Result:
    """Energy, forces and virial of a structure.

    Args:
        model: a model file, or a module (scripted or not) of a known kind; a module without
            `model_type` is taken as "DP", as older files lack that attribute. Or a NEP, which is
            evaluated in NumPy, or an ACE.
        atoms: positions and cell in the model's length unit; any cell, any periodicity. Boxes
            smaller than the cutoff are fine: an atom may neighbor its own images.
        elements: atomic numbers passed to the model as `atom_type`; by default all of the model's,
            or those of the structure for a DP without `sel`, as PWMLFF and MatPL train it.

    Returns:
        Zero energy and virial for a structure without atoms, as LAMMPS has it.

    Raises:
        ValueError: unknown model kind; parameters or tensors that the reference does not use; an
            element the model does not know; more neighbors than it allows; a structure or a result
            that is not finite.
        Failure: there is no such file, or it is damaged or something else (model_file.load).
    """
    if isinstance(model, str | PathLike):
        model = model_file.open_any(model)[0]
    if isinstance(model, Nep):
        return _of_nep(model, atoms, elements)
    module: Any = model
    make: Callable[[Any, Sequence[int]], Kind]
    if isinstance(model, Ace):
        make, known = AceReference, list(model.elements)
    else:
        name = model_file.kind_of(module)
        if name not in KINDS:
            raise ValueError(
                f"model_type is {name!r}; the reference knows {', '.join(sorted(KINDS))}"
            )
        make, known = KINDS[name], [int(z) for z in module.atom_type]
    unknown = sorted(set(elements or ()) - set(known))
    if unknown:
        raise ValueError(f"elements holds {unknown}; this model knows {known}")
    if elements is None:
        require_elements(atoms, known)
        elements = [z for z in known if z in atoms.numbers] or known
    kind = make(module, elements)
    i, j, images = neighbor_list("ijS", atoms, kind.cutoff)
    require_elements(atoms, kind.elements)
    if len(atoms) == 0:
        return Result(0.0, np.zeros(0), np.zeros((0, 3)), np.zeros((3, 3)))

    edge_index = torch.from_numpy(np.stack((i, j)))
    cell = torch.from_numpy(np.array(atoms.cell, dtype=np.float64))
    positions = torch.from_numpy(atoms.get_positions()).requires_grad_()
    strain = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    deform = torch.eye(3, dtype=torch.float64) + strain
    shift = torch.from_numpy(images.astype(np.float64)) @ cell
    with torch.enable_grad():
        edge_vec = (positions[edge_index[1]] - positions[edge_index[0]] + shift) @ deform
        energies = kind.atom_energies(edge_vec, edge_index, torch.from_numpy(atoms.numbers))
        energy = energies.sum()
        dx, dstrain = torch.autograd.grad(energy, (positions, strain))
    atom_energy, forces = energies.detach().numpy(), -dx.numpy()
    require_finite(atom_energy, forces)
    return Result(energy.item(), atom_energy, forces, virial=-dstrain.numpy())


def _of_nep(nep: Nep, atoms: Atoms, elements: Sequence[int] | None) -> Result:
    if nep.temperature:
        raise ValueError(
            "the model has the temperature as a descriptor; run it in lmp with the keyword "
            "temperature of pair_style, or with nep_reference.evaluate_nep"
        )
    require_elements(atoms, nep.elements if elements is None else elements)
    result = evaluate_nep(nep, atoms)
    return Result(
        float(result.atom_energy.sum()),
        result.atom_energy,
        result.forces,
        result.virial,
        result.charges,
        result.born,
    )
