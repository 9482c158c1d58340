"""MACE models as `mace_create_lammps_model` writes them (-lammps.pt), run with torch alone.

Source: Batatia et al. 2022, arXiv:2206.07697.
"""

from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor, nn

from pwmlff.convert import mace_network
from pwmlff.convert.foreign import UNEXPECTED, Foreign, Numbers, Source, in_rounds, widths
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
        self.model: Any = model
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


class MaceLayer(nn.Module):
    """An interaction and its product; releases differ in what they take."""

    __constants__ = ("takes_cutoff",)

    def __init__(self, interaction: Any, product: Any) -> None:
        super().__init__()
        self.interaction, self.product = interaction, product
        self.takes_cutoff = _takes(interaction, "cutoff")

    def forward(self, features: Tensor, attributes: Tensor, directions: Tensor, radial: Tensor,
                cutoff: Tensor | None, edge_index: Tensor, nlocal: int) -> Tensor:  # fmt: skip
        """Features of atoms [nlocal, n] from those of all atoms."""
        if self.takes_cutoff:
            message, skipped = self.interaction(
                attributes, features, directions, radial, edge_index, cutoff
            )
        else:
            message, skipped = self.interaction(
                attributes, features, directions, radial, edge_index
            )
        if skipped is not None:
            skipped = skipped[:nlocal]
        found: Tensor = self.product(message[:nlocal], skipped, attributes[:nlocal])
        return found


class MaceRounds(MaceEdges):
    """The same with its forward once more in rounds, one layer each.

    The last of the features is the energy of the layers so far.

    Args:
        whole: a model of MACE of several layers.
        energies: of single atoms by their types, eV.
        scale, shift: what the energy of all layers is multiplied by, and what is added then.
    """

    __constants__ = ("gives_cutoff", "takes_heads", "repels")

    def __init__(self, whole: MaceEdges, energies: Tensor, scale: float, shift: float) -> None:
        model: Any = whole.model
        layers = int(model.num_interactions)
        super().__init__(model, whole.head, whole.atom_type, whole.cutoff, layers, whole.dtype)
        self.energies: Tensor = nn.Buffer(energies)
        self.scale, self.shift = scale, shift
        parts = zip(model.interactions.children(), model.products.children(), strict=True)
        self.layers = nn.ModuleList(MaceLayer(*part) for part in parts)
        self.readouts = nn.ModuleList(model.readouts.children())
        self.silent = layers - len(self.readouts)  # layers without energies of their own
        returns = model.radial_embedding.forward.schema.returns
        self.gives_cutoff = returns[0].type.kind() == "TupleType"
        self.takes_heads = all(_takes(readout, "heads") for readout in self.readouts)
        self.repels = hasattr(model, "pair_repulsion_fn")
        self.widths = widths(self, layers - 1, energies.dtype)

    def attributes(self, types: Tensor) -> Tensor:
        """Elements of atoms [n, nspecies], as MACE has them."""
        return torch.nn.functional.one_hot(types, len(self.atom_type)).to(self.energies.dtype)

    def pairs(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of atoms [nlocal] from their pairs alone."""
        if self.repels:
            lengths = torch.linalg.vector_norm(edge_vec, dim=1, keepdim=True)
            energies: Tensor = self.model.pair_repulsion_fn(
                lengths, self.attributes(types), edge_index.flip(0), self.model.atomic_numbers
            )
            return energies[:nlocal]
        return torch.zeros(nlocal, dtype=edge_vec.dtype, device=edge_vec.device)

    def passed(self, t: int, features: Tensor, energy: Tensor, edge_vec: Tensor, edge_index: Tensor,
              types: Tensor, nlocal: int) -> Tensor:  # fmt: skip
        """Features of atoms [nlocal, n], energy last, after layer t from those of all atoms."""
        attributes, edge_index = self.attributes(types), edge_index.flip(0)
        lengths = torch.linalg.vector_norm(edge_vec, dim=1, keepdim=True)
        numbers = self.model.atomic_numbers
        directions = self.model.spherical_harmonics(-edge_vec)
        cutoff: Tensor | None = None
        if self.gives_cutoff:
            radial, cutoff = self.model.radial_embedding(lengths, attributes, edge_index, numbers)
        else:
            radial = self.model.radial_embedding(lengths, attributes, edge_index, numbers)
        for n, layer in enumerate(self.layers):
            if n == t:
                features = layer(
                    features, attributes, directions, radial, cutoff, edge_index, nlocal
                )
        heads = self.head.expand(nlocal)
        for n, readout in enumerate(self.readouts):
            if n + self.silent == t:
                found = readout(features, heads) if self.takes_heads else readout(features)
                energy = energy + found.gather(1, heads.unsqueeze(1)).squeeze(1)
        return torch.cat([features, energy.unsqueeze(1)], dim=1)

    @torch.jit.export
    def start(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Features of atoms [nlocal, widths[0]], after the first layer."""
        features = self.model.node_embedding(self.attributes(types))
        energy = self.pairs(edge_vec, edge_index, types, nlocal)
        return self.passed(0, features, energy, edge_vec, edge_index, types, nlocal)

    @torch.jit.export
    def round(self, k: int, features: Tensor, edge_vec: Tensor, edge_index: Tensor, types: Tensor,
              nlocal: int) -> Tensor:  # fmt: skip
        """Features of atoms [nlocal, n] after one more layer, from those of all atoms."""
        energy = features[:nlocal, -1]
        features = features[:, :-1].contiguous()
        return self.passed(k + 1, features, energy, edge_vec, edge_index, types, nlocal)

    @torch.jit.export
    def finish(self, features: Tensor, edge_vec: Tensor, edge_index: Tensor, types: Tensor,
               nlocal: int) -> Tensor:  # fmt: skip
        """Energies of atoms [nlocal]."""
        energy = features[:, -1].double() * self.scale + self.shift
        return energy + self.energies[types[:nlocal]].double()


def _takes(part: Any, argument: str) -> bool:
    return argument in {taken.name for taken in part.forward.schema.arguments}


def _parts(whole: MaceEdges) -> MaceRounds:
    model: Any = whole.model
    energies, scaling = mace_network.atom_energies(model, int(whole.head))
    return MaceRounds(whole, energies.to(model.r_max.dtype), *scaling)


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
    notes = {"rounds": str(rounds)}
    if len(heads) > 1:
        notes["head"] = f"{heads[int(head)]} of {', '.join(heads)}"
    edges = MaceEdges(scripted.model, head, elements, cutoff, rounds, name)
    extra = {}
    try:
        extra = {MACE_ARRAYS: mace_network.network(scripted.model, elements, int(head))}
    except mace_network.UnknownPartError as unknown:
        notes["fused"] = f"no, for it has {unknown}"
    except UNEXPECTED as error:
        notes["fused"] = f"no, for it is not as the releases that are known: {last_line(error)}"
    return Foreign(
        family="MACE",
        module=in_rounds(edges, lambda: _parts(edges)) if rounds > 1 else edges,
        evaluate=lambda atoms: _evaluate(scripted, elements, atoms),
        single=dtype == torch.float32,
        notes=notes,
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
    return Numbers.from_tensors(results["node_energy"], results["forces"])
