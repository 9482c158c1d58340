"""Models of DeePMD-kit's PyTorch backend by their own code: se_atten (DPA-1), se_e2_r, se_e3,
hybrid descriptors and what else passes no messages, DPA-2 and DPA-3.

Sources: Zhang et al. 2024, doi:10.1038/s41524-024-01278-7 (DPA-1); Zhang et al. 2024,
doi:10.1038/s41524-024-01493-2 (DPA-2); Zhang et al. 2025, arXiv:2506.01686 (DPA-3);
Zeng et al. 2025, doi:10.1021/acs.jctc.5c00340 (DeePMD-kit v3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

NO_ROOM = "an atom has more neighbors than sel of this DeePMD-kit model has room for"
#: Parts of DPA-2 and DPA-3 whose lists have neighbors of all types together; these pass messages.
PASSING = ("DescrptBlockRepformers", "DescrptBlockRepflows")
BLOCKS = (*PASSING, "DescrptBlockSeAtten", "DescrptBlockSeTTebd")
#: Up to a distance, angstrom, of a type, or -1 for all: most neighbors.
Room = tuple[float, int, int]


class DeepmdEdges(nn.Module):
    """Such a model by edges: a structure whose atoms have a neighbor of their own for each edge.

    A model that passes messages maps these to the atoms that they are, with whatever edges they
    have in turn.

    Args:
        model: of a file.
        elements: atomic numbers, in the order of its types.
        interaction_range: how far the energy of an atom reaches, angstrom; more than the cutoff
            where messages are passed.
    """

    __constants__ = ("messages", "no_room", "sorts")

    def __init__(self, model: Any, elements: list[int], interaction_range: float) -> None:
        super().__init__()
        self.model = model
        self.model_type, self.atom_type = "EDGE", elements
        self.dtype = "float32" if is_single(model) else "float64"
        self.cutoff, self.interaction_range = float(model.get_rcut()), interaction_range
        self.messages = bool(model.has_message_passing())
        self.no_room = NO_ROOM
        self.sorts = bool(model.need_sorted_nlist_for_lower())
        #: Of the model and each part of it that has a list of its own.
        self.rooms = torch.jit.Attribute(list(dict.fromkeys(_rooms(model))), list[Room])

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of atoms [nlocal], as the model contract has it."""
        center, neighbor = edge_index[0], edge_index[1]
        self.require_room(edge_vec, center, types[neighbor])
        n = types.size(0) if self.messages else nlocal
        count = torch.bincount(center, minlength=n)
        most = int(count.max()) if center.size(0) > 0 else 0
        edge = torch.arange(center.size(0), device=center.device)
        place = edge - (count.cumsum(0) - count)[center]  # among those of its center
        # Where the atoms are makes no difference: only vectors from them do. The model's code takes
        # them in float64, whatever its networks are in.
        x = torch.cat((torch.zeros(n, 3, device=edge_vec.device), edge_vec)).to(torch.float64)[None]
        kinds = torch.cat((types[:n], types[neighbor])).unsqueeze(0)
        mapping: Tensor | None = None
        if self.messages:
            mapping = torch.cat((torch.arange(n, device=center.device), neighbor)).unsqueeze(0)
        listed = torch.full((n, most), -1, dtype=torch.int64, device=types.device)
        listed = listed.index_put((center, place), n + edge).unsqueeze(0)
        listed = self.model.format_nlist(x, kinds, listed, extra_nlist_sort=self.sorts)
        found = self.model.atomic_model.forward_common_atomic(x, kinds, listed, mapping)
        energies: Tensor = found["energy"]
        return energies.reshape(n)[:nlocal].to(edge_vec.dtype)

    def require_room(self, edge_vec: Tensor, center: Tensor, neighbor: Tensor) -> None:
        """Neighbors beyond `sel` would be left out, and energies jump."""
        distance = torch.linalg.vector_norm(edge_vec, dim=1)
        for cutoff, kind, most in self.rooms:
            counts = distance < cutoff
            if kind >= 0:
                counts = counts & (neighbor == kind)
            of_center = torch.bincount(center[counts], minlength=1)
            assert int(of_center.max()) <= most, self.no_room


def is_single(model: Any) -> bool:
    """Whether any network of a model computes in float32."""
    return any(parameter.dtype == torch.float32 for parameter in model.parameters())


def _rooms(model: Any) -> Iterator[Room]:
    for part in model.modules():
        if all(hasattr(part, name) for name in ("get_rcut", "get_sel", "mixed_types")):
            cutoff, sel = float(part.get_rcut()), [int(n) for n in part.get_sel()]
            if part.mixed_types():
                yield cutoff, -1, sum(sel)
            else:
                for kind, most in enumerate(sel):
                    yield cutoff, kind, most
        elif getattr(part, "original_name", "") in BLOCKS:
            yield float(part.rcut), -1, sum(int(n) for n in part.sel)
            if hasattr(part, "a_rcut"):
                yield float(part.a_rcut), -1, int(part.a_sel)


def reach(model: Any) -> float:
    """How far the energy of an atom reaches, angstrom; 0 where parts of unknown ways pass messages.

    Each layer of DPA-2 and DPA-3 takes features of neighbors, and the first layer of DPA-2 such as
    know the neighbors of their atoms. Each of these rounds counts with the whole cutoff, as lists
    of edges start so many of them away: short steps may lead where long ones do not.
    """
    if not model.has_message_passing():
        return float(model.get_rcut())
    blocks = [part for part in model.modules() if getattr(part, "original_name", "") in BLOCKS]
    passing = [part for part in blocks if part.original_name in PASSING]
    if not passing:
        return 0.0
    rounds = (len(passing) < len(blocks)) + sum(int(part.nlayers) for part in passing)
    return rounds * float(model.get_rcut())
