"""Run by a Python in which CHGNet is installed: a checkpoint of CHGNet as a model of kind EDGE.

    PYTHON chgnet_edges.py CHECKPOINT MODEL
    PYTHON chgnet_edges.py CHECKPOINT NUMBERS.npz STRUCTURE.npz

The second has CHGNet itself evaluate a structure (`numbers`, `positions`, `cell`, periodic): its
`atom_energy` [n] in eV and `forces` [n, 3] in eV/angstrom, with what the composition adds.

Nets are those of the checkpoint, which CHGNet's own code reads. What is written runs with torch
alone. Nothing of pwmlff is imported, as it need not be installed there.

Source: Deng et al. 2023, doi:10.1038/s42256-023-00716-3.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor, nn


class Radial(nn.Module):
    """Bessel functions of the distance, which end smoothly at a cutoff."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        envelope = original.smooth_cutoff
        self.frequencies = original.frequencies
        self.cutoff, self.p = float(envelope.cutoff), float(envelope.p)
        self.scale = float(original.norm_const)

    def forward(self, r: Tensor) -> Tensor:
        """[n] to [n, number of functions]."""
        x, p = r / self.cutoff, self.p
        a, b, c = -(p + 1.0) * (p + 2.0) / 2.0, p * (p + 2.0), -p * (p + 1.0) / 2.0
        envelope = 1.0 + x**p * (a + x * (b + x * c))
        envelope = torch.where(x < 1.0, envelope, torch.zeros_like(x)) * self.scale / r
        return torch.sin(x.unsqueeze(1) * self.frequencies) * envelope.unsqueeze(1)


class AtomUpdate(nn.Module):
    """What an atom gets from its bonds."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.net, self.last = original.twoBody_atom, original.mlp_out

    def forward(self, atoms: Tensor, bonds: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        """Features of atoms [n, f] from those of the bonds of edges [E, f]."""
        i, j = index[0], index[1]
        messages = self.net(torch.cat((atoms[i], bonds, atoms[j]), 1)) * weights
        changes: Tensor = self.last(torch.zeros_like(atoms).index_add(0, i, messages))
        return atoms + changes


class BondUpdate(nn.Module):
    """What a bond and its angles get from each other; one without angles stays as it is."""

    def __init__(self, bond_layer: Any, angle_layer: Any) -> None:
        super().__init__()
        self.net, self.last = bond_layer.twoBody_bond, bond_layer.mlp_out
        self.of_angles = angle_layer.twoBody_bond

    def forward(
        self, atoms: Tensor, bonds: Tensor, angles: Tensor, weights: Tensor, graph: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Features of bonds [B, f] and angles [P, f]; graph is atom, bond, bond [3, P]."""
        center, one, other = graph[0], graph[1], graph[2]
        known = torch.cat((bonds[one], bonds[other], angles, atoms[center]), 1)
        messages = self.net(known) * weights[one] * weights[other]
        bonds = bonds + self.last(torch.zeros_like(bonds).index_add(0, one, messages))
        known = torch.cat((bonds[one], bonds[other], angles, atoms[center]), 1)
        return bonds, angles + self.of_angles(known)


class CHGNetEdges(nn.Module):
    """CHGNet by edges, with reverse edges and pairs of edges; float32, as CHGNet is.

    A bond is an edge and its reverse. The energy of an atom is its own and what the composition
    adds for its element.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        converter, basis = model.graph_converter, model.bond_basis_expansion
        self.model_type, self.dtype = "EDGE", "float32"
        self.cutoff = float(converter.atom_graph_cutoff)
        self.pair_cutoff = float(converter.bond_graph_cutoff)
        self.interaction_range = model.n_conv * self.cutoff
        self.atom_type = list(range(1, model.atom_embedding.embedding.num_embeddings + 1))
        self.embedding = model.atom_embedding.embedding
        self.of_atoms, self.of_bonds = (
            Radial(basis.rbf_expansion_ag),
            Radial(basis.rbf_expansion_bg),
        )
        self.bond_embedding, self.angle_embedding = model.bond_embedding, model.angle_embedding
        self.weights_of_atoms, self.weights_of_bonds = model.bond_weights_ag, model.bond_weights_bg
        self.frequencies = model.angle_basis_expansion.fourier_expansion.frequencies
        *first, last = [AtomUpdate(layer) for layer in model.atom_conv_layers]
        self.atom_layers, self.last_layer = nn.ModuleList(first), last
        pairs = zip(model.bond_conv_layers, model.angle_layers, strict=True)
        self.bond_layers = nn.ModuleList(BondUpdate(*layers) for layers in pairs)
        self.norm, self.readout = model.readout_norm or nn.Identity(), model.mlp
        shifts = model.composition_model.fc.weight.detach().flatten()
        self.shifts: Tensor = nn.Buffer(shifts[: len(self.atom_type)].clone())

    def angle_functions(self, cosine: Tensor) -> Tensor:
        """Fourier series of angles [P, functions] from their cosines [P]."""
        # CHGNet keeps acos from the ends of its range.
        angle = torch.acos(cosine * (1.0 - 1e-6)).unsqueeze(1) * self.frequencies
        constant = torch.full_like(cosine, 0.5**0.5).unsqueeze(1)
        return torch.cat((constant, torch.sin(angle), torch.cos(angle)), 1) / math.sqrt(math.pi)

    def forward(
        self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int,
        reverse: Tensor | None = None, pairs: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Energies of atoms [nlocal], as the model contract has it."""
        assert reverse is not None and pairs is not None
        # A bond has the number that the first of its edges has among first ones.
        edges = torch.arange(reverse.size(0), device=reverse.device)
        first = torch.where(reverse < 0, edges, torch.minimum(edges, reverse))
        bond = (torch.cumsum((first == edges).long(), 0) - 1)[first]
        chosen = torch.nonzero(first == edges).flatten()
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        radial = self.of_atoms(r[chosen])
        bonds, weights = self.bond_embedding(radial), self.weights_of_atoms(radial)[bond]
        of_bonds = self.weights_of_bonds(self.of_bonds(r[chosen]))
        unit = edge_vec / r.unsqueeze(1)
        one, other = pairs[0], pairs[1]
        angles = self.angle_embedding(self.angle_functions((unit[one] * unit[other]).sum(1)))
        graph = torch.stack((edge_index[0][one], bond[one], bond[other]))
        atoms = self.embedding(types)
        for of_atoms, layer in zip(self.atom_layers, self.bond_layers):  # noqa: B905  TorchScript
            atoms = of_atoms(atoms, bonds[bond], weights, edge_index)
            bonds, angles = layer(atoms, bonds, angles, of_bonds, graph)
        atoms = self.norm(self.last_layer(atoms, bonds[bond], weights, edge_index))
        energies: Tensor = self.readout(atoms).flatten()
        return (energies + self.shifts[types])[:nlocal]


def load(path: str) -> Any:
    """The model of a checkpoint, by CHGNet's own code."""
    from chgnet.model import CHGNet  # noqa: PLC0415

    state = torch.load(path, map_location="cpu", weights_only=False)["model"]
    # Up to 0.2.0 its atoms had a bias more, which the stored arguments do not tell.
    bias = any(name.endswith("mlp_out.layers.1.bias") for name in state["state_dict"])
    return CHGNet.from_dict(state, mlp_out_bias=bias)


def evaluate(model: Any, target: str, structure: str) -> None:
    """Numbers of CHGNet's own code; an atom without bonds is as good as any.

    In float64: with the usual float32 they are noisy in a large cell, as CHGNet takes places of
    atoms as parts of it.
    """
    import numpy as np  # noqa: PLC0415
    from pymatgen.core import Element, Structure  # noqa: PLC0415

    for name, module in sys.modules.items():
        if name.partition(".")[0] == "chgnet":
            for number_type in ("TORCH_DTYPE", "datatype"):
                if getattr(module, number_type, None) is torch.float32:
                    setattr(module, number_type, torch.float64)
    torch.set_default_dtype(torch.float64)
    model.double()
    if model.composition_model is not None:
        model.composition_model.float()  # it takes numbers of atoms as float32 whatever it is

    with np.load(structure) as given:
        elements = [Element.from_Z(int(number)) for number in given["numbers"]]
        atoms = Structure(given["cell"], elements, given["positions"], coords_are_cartesian=True)
    model.graph_converter.set_isolated_atom_response("ignore")
    found = model.predict_structure(atoms, task="ef", return_site_energies=True)
    np.savez(target, atom_energy=found["site_energies"], forces=found["f"])


def main() -> None:
    """Convert, or evaluate."""
    source, target, *structure = sys.argv[1:]
    model = load(source).eval()
    if structure:
        evaluate(model, target, *structure)
        return
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = float(part.p)  # for TorchScript, where 0 is no 0.0
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    torch.jit.script(CHGNetEdges(model)).save(target)


if __name__ == "__main__":
    main()
