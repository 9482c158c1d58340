"""MACE models as `mace_create_lammps_model` writes them (-lammps.pt), run with torch alone.

Source: Batatia et al. 2022, arXiv:2206.07697.
"""

from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor, nn

from pwmlff.convert import mace_network
from pwmlff.convert.foreign import UNEXPECTED, Foreign, Numbers, Source
from pwmlff.evaluation.structures import neighbor_list
from pwmlff.models.saving import MACE_ARRAYS
from pwmlff.report import Failure, last_line

CLASS = "mace.calculators.lammps_mace.LAMMPS_MACE"


class MaceEdges(nn.Module):
    """A MACE model by edges: nodes are at the origin, the edges have shifts instead.

    MACE sums over what arrives at edge_index[1], so edges are passed the other way round.
    """

    def __init__(self, model: nn.Module, head: Tensor, elements: list[int], cutoff: float,
                 rounds: int, dtype: str) -> None:  # fmt: skip
        super().__init__()
        self.model = model
        self.head: Tensor = nn.Buffer(head)
        self.model_type, self.atom_type, self.dtype = "EDGE", elements, dtype
        self.cutoff, self.interaction_range = cutoff, rounds * cutoff

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of atoms [nlocal], as the model contract has it."""
        n = types.size(0)
        node_attrs = torch.nn.functional.one_hot(types, len(self.atom_type)).to(edge_vec.dtype)
        data = {
            "positions": torch.zeros(n, 3, dtype=edge_vec.dtype, device=edge_vec.device),
            "shifts": -edge_vec,
            "unit_shifts": torch.zeros_like(edge_vec),
            "cell": torch.zeros(3, 3, dtype=edge_vec.dtype, device=edge_vec.device),
            "edge_index": edge_index.flip(0),
            "node_attrs": node_attrs,
            "batch": torch.zeros_like(types),
            "ptr": torch.tensor([0, n], device=types.device),
            "head": self.head,
        }
        energies: Tensor | None = self.model(data, compute_force=False)["node_energy"]
        assert energies is not None  # for TorchScript
        return energies[:nlocal]


def read(source: Source) -> Foreign | None:
    """The model of a file of MACE; None for files of others.

    Raises:
        Failure: its head is none that the model has.
    """
    if source.class_name != CLASS:
        return None
    scripted: Any = source.module
    elements = [int(z) for z in scripted.atomic_numbers]
    rounds, dtype = int(scripted.num_interactions), scripted.r_max.dtype
    # Up to 0.3.6 there are no heads; a later release gives models of those one without a name.
    head = getattr(scripted, "head", torch.zeros(1, dtype=torch.int64))
    heads = [str(name) for name in getattr(scripted.model, "heads", [])]
    if heads and not 0 <= int(head) < len(heads):
        raise Failure(
            f"'{source.path}' is a model of MACE of which head {int(head)} is chosen, expected one "
            f"of 0 to {len(heads) - 1}; make it again with mace_create_lammps_model"
        )
    name, cutoff = str(dtype).removeprefix("torch."), float(scripted.r_max)
    told = {"rounds": str(rounds)}
    if len(heads) > 1:
        told["head"] = f"{heads[int(head)]} of {', '.join(heads)}"
    extra = {}
    try:
        extra = {MACE_ARRAYS: mace_network.network(scripted.model, elements, int(head))}
    except mace_network.UnknownPartError as unknown:
        told["fused"] = f"no, for it has {unknown}"
    except UNEXPECTED as error:
        told["fused"] = f"no, for it is not as the releases that are known: {last_line(error)}"
    return Foreign(
        family="MACE",
        module=MaceEdges(scripted.model, head, elements, cutoff, rounds, name),
        evaluate=lambda atoms: _evaluate(scripted, elements, atoms),
        single=dtype == torch.float32,
        told=told,
        extra=extra,
    )


def _evaluate(module: Any, elements: list[int], atoms: Atoms) -> Numbers:
    i, j = neighbor_list("ij", atoms, float(module.r_max))
    dtype, n = module.r_max.dtype, len(atoms)
    types = torch.tensor([elements.index(z) for z in atoms.numbers])
    data = {
        "positions": torch.from_numpy(atoms.positions).to(dtype),
        "shifts": torch.zeros(len(i), 3, dtype=dtype),
        "unit_shifts": torch.zeros(len(i), 3, dtype=dtype),
        "cell": torch.zeros(3, 3, dtype=dtype),
        "edge_index": torch.from_numpy(np.stack((i, j))),
        "node_attrs": torch.nn.functional.one_hot(types, len(elements)).to(dtype),
        "batch": torch.zeros(n, dtype=torch.int64),
        "ptr": torch.tensor([0, n]),
    }
    with torch.jit.optimized_execution(False):
        results = module(data, torch.ones(n, dtype=dtype), False)
    return Numbers.made(results["node_energy"], results["forces"])
