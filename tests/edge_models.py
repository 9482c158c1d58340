"""Edge models in a few lines of PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LennardJones(nn.Module):
    """E = 1/2 sum of 4 epsilon ((sigma/r)^12 - (sigma/r)^6), cut off: LAMMPS's lj/cut."""

    def __init__(self, cutoff: float = 2.5, units: str = "lj"):
        super().__init__()
        self.model_type, self.units, self.cutoff, self.atom_type = "EDGE", units, cutoff, [18]

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        s6 = edge_vec.square().sum(1) ** -3
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype, device=edge_vec.device)
        return energies.index_add(0, edge_index[0], 2.0 * (s6 * s6 - s6))


class Masked(nn.Module):
    """Buffers that are no floating-point numbers; derivatives are off when it is done."""

    def __init__(self):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", 3.0, [8, 72]
        self.register_buffer("row", torch.tensor([1, 0]))
        self.register_buffer("active", torch.tensor([True, False]))
        self.register_buffer("height", torch.tensor([0.5, 2.0]))  # float32

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        i, j = edge_index[0], edge_index[1]
        smooth = (1.0 - edge_vec.square().sum(1) / self.cutoff**2) ** 3
        smooth = smooth * self.height[self.row[types[j]]] * self.active[types[i]]
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype, device=edge_vec.device)
        energies = energies.index_add(0, i, smooth)
        torch.set_grad_enabled(False)
        return energies


class SinglePrecision(nn.Module):
    """A net in float32, as its attribute says; it takes nothing else."""

    def __init__(self):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", 3.0, [8, 72]
        self.dtype = "float32"
        torch.manual_seed(4)
        self.net = nn.Linear(3, 4)

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        smooth = (1.0 - edge_vec.square().sum(1) / self.cutoff**2) ** 3
        features = torch.tanh(self.net(edge_vec.to(torch.float32))).sum(1)
        # Far from zero, so that the energy of an atom is a multiple of 2^-10 in this precision.
        energies = torch.full([nlocal], 10000.0, dtype=torch.float32, device=edge_vec.device)
        return energies.index_add(0, edge_index[0], smooth * features)


class Wide(nn.Module):
    """Many features of each edge, so that its tensors are large."""

    def __init__(self):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", 4.0, [8, 72]
        self.register_buffer("rate", torch.linspace(0.5, 2.0, 64, dtype=torch.float64))

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        smooth = (1.0 - edge_vec.square().sum(1) / self.cutoff**2) ** 3
        features = torch.tanh(self.rate * smooth.unsqueeze(1)).sum(1)
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype, device=edge_vec.device)
        return energies.index_add(0, edge_index[0], features)


class MessagePassing(nn.Module):
    """Features of atoms from those of their neighbors, several times; then their energies."""

    def __init__(self, atom_type: list[int], cutoff: float, rounds: int = 2, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        n = len(atom_type)
        self.model_type, self.cutoff, self.atom_type = "EDGE", cutoff, atom_type
        self.interaction_range = rounds * cutoff
        self.rounds = rounds
        self.charge = nn.Parameter(torch.rand(n, generator=generator, dtype=torch.float64) + 0.5)
        self.decay = torch.rand(n, n, generator=generator, dtype=torch.float64) + 0.5  # plain
        self.register_buffer("shift", torch.randn(n, generator=generator, dtype=torch.float64))

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        i, j = edge_index[0], edge_index[1]
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        smooth = (1.0 - (r / self.cutoff).square()).clamp(min=0.0) ** 3
        weight = smooth * torch.exp(-self.decay[types[i], types[j]] * r)
        feature = self.charge[types]
        for _ in range(self.rounds):
            feature = torch.tanh(torch.zeros_like(feature).index_add(0, i, weight * feature[j]))
        return (self.shift[types] * feature)[:nlocal]


class InRounds(MessagePassing):
    """The same in parts: features in one column, then in two, then in one."""

    def __init__(self, atom_type: list[int], cutoff: float, defect: str = ""):
        super().__init__(atom_type, cutoff, rounds=3)
        self.widths = [1, 2]
        self.defect = defect

    def layer(self, feature: Tensor, edge_vec: Tensor, edge_index: Tensor, types: Tensor) -> Tensor:
        i, j = edge_index[0], edge_index[1]
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        smooth = (1.0 - (r / self.cutoff).square()).clamp(min=0.0) ** 3
        weight = smooth * torch.exp(-self.decay[types[i], types[j]] * r)
        return torch.tanh(torch.zeros_like(feature).index_add(0, i, weight * feature[j]))

    @torch.jit.export
    def start(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        found = self.layer(self.charge[types], edge_vec, edge_index, types)[:nlocal].unsqueeze(1)
        return found.repeat(1, 2) if self.defect == "width" else found

    @torch.jit.export
    def round(
        self, k: int, features: Tensor, edge_vec: Tensor, edge_index: Tensor, types: Tensor,
        nlocal: int,
    ) -> Tensor:  # fmt: skip
        assert features.size(1) == self.widths[k] and features.size(0) == types.size(0)
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        assert self.defect != "close" or int((r < 0.1).sum()) == 0
        feature = self.layer(features.sum(1), edge_vec, edge_index, types)[:nlocal].unsqueeze(1)
        if k == 1:
            return feature
        # "crowd": with more atoms than the test clusters have.
        wrong = self.defect == "share" or (self.defect == "crowd" and nlocal > 25)
        share = 0.4 if wrong else 0.3
        return torch.cat([share * feature, 0.7 * feature], dim=1)

    @torch.jit.export
    def finish(
        self, features: Tensor, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int
    ) -> Tensor:
        return self.shift[types[:nlocal]] * features[:, 0]


class Reserving(nn.Module):
    """Message passing with memory for each edge that nothing is ever written to."""

    def __init__(self, passing: MessagePassing, width: int):
        super().__init__()
        self.passing, self.width = passing, width  # numbers of 8 bytes
        self.model_type, self.cutoff, self.atom_type = "EDGE", passing.cutoff, passing.atom_type
        self.interaction_range = passing.interaction_range

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        room = torch.empty([edge_vec.size(0), self.width], dtype=torch.float64)
        return self.passing(edge_vec, edge_index, types, nlocal) + 0.0 * room.size(1)


class Limited(nn.Module):
    """Message passing over so many atoms at most, surroundings among them."""

    def __init__(self, passing: MessagePassing, limit: int):
        super().__init__()
        self.passing, self.limit = passing, limit
        self.model_type, self.cutoff, self.atom_type = "EDGE", passing.cutoff, passing.atom_type
        self.interaction_range = passing.interaction_range

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        assert types.size(0) <= self.limit, "more atoms than the limit"
        return self.passing(edge_vec, edge_index, types, nlocal)


class Angles(nn.Module):
    """Terms of three atoms, which trust that the edges of a center follow each other.

    The feature of an atom is a sum over pairs of its edges, found by counting, as in CHGNet; its
    energy is a sum over the features of its neighbors.
    """

    def __init__(self, atom_type: list[int], cutoff: float):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", cutoff, atom_type
        self.interaction_range = 2.0 * cutoff

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        i, j = edge_index[0], edge_index[1]
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        smooth = (1.0 - (r / self.cutoff).square()).clamp(min=0.0) ** 3 * (1.0 + types[j])
        unit = edge_vec / r.unsqueeze(1)
        count = torch.bincount(i, minlength=len(types))
        begin = count.cumsum(0) - count
        # Each edge with all those of its center: a runs over edges, b over the edges of i[a].
        several = count[i]
        a = torch.repeat_interleave(several)
        b = torch.arange(len(a), device=i.device) - (several.cumsum(0) - several)[a] + begin[i[a]]
        cosine = (unit[a] * unit[b]).sum(1)
        feature = torch.zeros(len(types), dtype=r.dtype, device=r.device).index_add(
            0, i[a], smooth[a] * smooth[b] * (1.0 / 3.0 + cosine) ** 2
        )
        feature = torch.tanh(0.1 * feature)
        return torch.zeros_like(feature).index_add(0, i, smooth * feature[j])[:nlocal]


class Bonds(nn.Module):
    """Bonds that know the angles at both of their ends, as those of CHGNet do.

    Takes reverse edges, and pairs of edges within a second cutoff.
    """

    def __init__(self, atom_type: list[int], cutoff: float, pair_cutoff: float):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", cutoff, atom_type
        self.pair_cutoff, self.interaction_range = pair_cutoff, 2.0 * cutoff

    def forward(
        self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int,
        reverse: Tensor | None = None, pairs: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        assert reverse is not None and pairs is not None
        i, j = edge_index[0], edge_index[1]
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        near = (1.0 - (r / self.pair_cutoff).square()).clamp(min=0.0) ** 3
        one, other = pairs[0], pairs[1]
        cosine = (edge_vec[one] * edge_vec[other]).sum(1) / (r[one] * r[other])
        terms = near[one] * near[other] * (1.0 / 3.0 + cosine) ** 2
        here = torch.zeros_like(r).index_add(0, one, terms)
        there = torch.where(reverse >= 0, here[reverse.clamp(min=0)], torch.zeros_like(r))
        smooth = (1.0 - (r / self.cutoff).square()) ** 3 * (1.0 + types[i] + types[j])
        bonds = smooth * (1.0 + torch.tanh(here + there))
        return torch.zeros(len(types), dtype=r.dtype, device=r.device).index_add(0, i, bonds)[
            :nlocal
        ]


class Adjacent(nn.Module):
    """Against the contract: atoms whose numbers follow each other, up or down, are special."""

    def __init__(self):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", 3.0, [8, 72]

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        i, j = edge_index[0], edge_index[1]
        smooth = (1.0 - edge_vec.square().sum(1) / self.cutoff**2) ** 3
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype, device=edge_vec.device)
        return energies.index_add(0, i, smooth * (1.0 + 1.0 * ((i - j).abs() == 1)))
