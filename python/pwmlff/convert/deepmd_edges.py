"""Models of DeePMD-kit's PyTorch backend that are local, by their own code: se_atten (DPA-1),
se_e2_r, se_e3, hybrid descriptors and what else passes no messages.

Sources: Zhang et al. 2024, doi:10.1038/s41524-024-01278-7 (DPA-1); Zeng et al. 2025,
doi:10.1021/acs.jctc.5c00340 (DeePMD-kit v3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

NO_ROOM = "an atom has more neighbors than sel of this DeePMD-kit model has room for"
#: Up to a distance, angstrom, of a type, or -1 for all: most neighbors.
Room = tuple[float, int, int]


class DeepmdEdges(nn.Module):
    """Such a model by edges: each center is a structure of its own, with its neighbors around it.

    Args:
        model: of a file, whose energy of an atom depends on its neighbors alone.
        elements: atomic numbers, in the order of its types.
    """

    __constants__ = ("no_room", "sorts")

    def __init__(self, model: Any, elements: list[int]) -> None:
        super().__init__()
        self.model = model
        self.model_type, self.atom_type = "EDGE", elements
        self.cutoff = self.interaction_range = float(model.get_rcut())
        self.no_room = NO_ROOM
        self.sorts = bool(model.need_sorted_nlist_for_lower())
        #: Of the model and each part of it that has a list of its own.
        self.rooms = torch.jit.Attribute(list(dict.fromkeys(_rooms(model))), list[Room])

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of atoms [nlocal], as the model contract has it."""
        center, neighbor = edge_index[0], types[edge_index[1]]
        self.require_room(edge_vec, center, neighbor)
        count = torch.bincount(center, minlength=nlocal)
        most = int(count.max()) if center.size(0) > 0 else 0
        place = 1 + torch.arange(center.size(0), device=center.device)
        place = place - (count.cumsum(0) - count)[center]  # 1 .. most, behind the center
        x = torch.zeros(nlocal, 1 + most, 3, dtype=edge_vec.dtype, device=edge_vec.device)
        x = x.index_put((center, place), edge_vec)
        kinds = torch.zeros(nlocal, 1 + most, dtype=torch.int64, device=types.device)
        kinds[:, 0] = types[:nlocal]
        kinds = kinds.index_put((center, place), neighbor)
        listed = torch.full((nlocal, 1, most), -1, dtype=torch.int64, device=types.device)
        listed = listed.index_put((center, torch.zeros_like(center), place - 1), place)
        listed = self.model.format_nlist(x, kinds, listed, extra_nlist_sort=self.sorts)
        found = self.model.atomic_model.forward_common_atomic(x, kinds, listed)
        energies: Tensor = found["energy"]
        return energies.reshape(nlocal).to(edge_vec.dtype)

    def require_room(self, edge_vec: Tensor, center: Tensor, neighbor: Tensor) -> None:
        """Neighbors beyond `sel` would be left out, and energies jump."""
        distance = torch.linalg.vector_norm(edge_vec, dim=1)
        for cutoff, kind, most in self.rooms:
            counts = distance < cutoff
            if kind >= 0:
                counts = counts & (neighbor == kind)
            of_center = torch.bincount(center[counts], minlength=1)
            assert int(of_center.max()) <= most, self.no_room


def _rooms(model: Any) -> Iterator[Room]:
    for part in model.modules():
        if all(hasattr(part, name) for name in ("get_rcut", "get_sel", "mixed_types")):
            cutoff, sel = float(part.get_rcut()), [int(n) for n in part.get_sel()]
            if part.mixed_types():
                yield cutoff, -1, sum(sel)
            else:
                for kind, most in enumerate(sel):
                    yield cutoff, kind, most
