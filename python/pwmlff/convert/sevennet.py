"""SevenNet models as `sevenn get_model` writes them (deployed_serial.pt), run with torch alone.

Source: Park et al. 2024, doi:10.1021/acs.jctc.4c00190.
"""

import io
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.data import atomic_numbers
from torch import Tensor, nn

from pwmlff.convert.foreign import Foreign, Numbers, Source
from pwmlff.evaluation.structures import neighbor_list
from pwmlff.report import Failure

CLASS = "sevenn.nn.sequential.AtomGraphSequential"
#: Metadata of the file; only one part of a model in parallel parts has PARALLEL.
CUTOFF, SYMBOLS, DTYPE, PARALLEL = "cutoff", "chemical_symbols_to_index", "dtype", "comm_size"
SINGLE = "single"  # the only one in which its programs work
OLDER = "pbc_shift"  # what files of older releases take in the place of vectors
LONGEST = 16  # rounds of message passing, of which no model has so many


class SevenNetEdges(nn.Module):
    """A SevenNet model by edges."""

    def __init__(self, model: nn.Module, elements: list[int], cutoff: float, rounds: int) -> None:
        super().__init__()
        self.model = model
        self.model_type, self.atom_type, self.dtype = "EDGE", elements, "float32"
        self.cutoff, self.interaction_range = cutoff, rounds * cutoff

    def data(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor) -> dict[str, Tensor]:
        """Atoms and edges, by the names that SevenNet has for them."""
        count = torch.tensor([types.size(0)])
        return {
            "x": types,
            "edge_index": edge_index,
            "edge_vec": edge_vec,
            "num_atoms": count.to(types.device),
            "nlocal": count,
        }

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of atoms [nlocal], as the model contract has it."""
        energies: Tensor = self.model(self.data(edge_vec, edge_index, types))["atomic_energy"]
        return energies.flatten()[:nlocal]


class OlderSevenNetEdges(SevenNetEdges):
    """Of releases that take positions: nodes are at the origin, the edges have shifts instead."""

    def data(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor) -> dict[str, Tensor]:
        """Atoms and edges, by the names that these releases have for them."""
        return {
            "x": types,
            "edge_index": edge_index,
            "pos": torch.zeros(types.size(0), 3, dtype=edge_vec.dtype, device=edge_vec.device),
            "cell_lattice_vectors": torch.eye(3, dtype=edge_vec.dtype, device=edge_vec.device),
            "pbc_shift": edge_vec,
            "cell_volume": torch.ones(1, dtype=edge_vec.dtype, device=edge_vec.device),
        }


def read(source: Source) -> Foreign | None:
    """The model of a file of SevenNet; None for files of others.

    Raises:
        Failure: it is a part of a model, or in another precision than single.
    """
    if source.class_name != CLASS:
        return None
    metadata: dict[str, Any] = dict.fromkeys((CUTOFF, SYMBOLS, DTYPE, PARALLEL), "")
    module: Any = torch.jit.load(io.BytesIO(source.contents), "cpu", metadata).eval()
    if metadata.pop(PARALLEL):
        raise Failure(
            f"'{source.path}' is a part of a model of SevenNet for its own pair style "
            "e3gnn/parallel; expected what `sevenn get_model` writes without --get_parallel"
        )
    if missing := [name for name, text in metadata.items() if not text]:
        raise Failure(
            f"'{source.path}' is a model of SevenNet without {', '.join(missing)} in its metadata; "
            "make it again with `sevenn get_model`"
        )
    if (precision := metadata[DTYPE].decode()) != SINGLE:
        raise Failure(
            f"'{source.path}' is a model of SevenNet in {precision} precision, expected {SINGLE}"
        )
    elements = [atomic_numbers[symbol] for symbol in metadata[SYMBOLS].decode().split()]
    cutoff = float(metadata[CUTOFF])
    edges, energies, evaluate = SevenNetEdges, module, _evaluate
    if OLDER in module.code:
        energies = _without_forces(torch.jit.load(io.BytesIO(source.contents), "cpu").eval())
        edges, evaluate = OlderSevenNetEdges, _evaluate_older
    rounds = _rounds(edges(energies, elements, cutoff, LONGEST))
    return Foreign(
        family="SevenNet",
        module=edges(energies, elements, cutoff, rounds),
        evaluate=lambda atoms: evaluate(module, elements, cutoff, atoms),
        single=True,
        notes={"rounds": str(rounds)},
    )


def _rounds(model: SevenNetEdges) -> int:
    """How many rounds of message passing a model has: along a chain, how far an energy reaches.

    The code of the file has become one function, in which layers cannot be told apart.
    """
    atoms = torch.arange(LONGEST + 1)
    pairs = torch.stack((atoms[:-1], atoms[1:]))
    edges = torch.cat((pairs, pairs.flip(0)), 1)
    edges = edges[:, edges[0].argsort(stable=True)]
    # Neither straight nor regular, so that nothing is zero by symmetry.
    generator = torch.Generator().manual_seed(1)
    steps = 0.3 + torch.rand(LONGEST + 1, 3, generator=generator)
    places = 0.4 * model.cutoff * steps.cumsum(0)
    vectors = (places[edges[1]] - places[edges[0]]).requires_grad_()
    types = atoms % len(model.atom_type)
    (gradient,) = torch.autograd.grad(model(vectors, edges, types, 1).sum(), vectors)
    return int(edges[0][gradient.abs().sum(1) > 0].max()) + 1


def _without_forces(module: Any) -> Any:
    """The same where the code itself derives its energy, which leaves nothing to derive it again.

    It derives the sum of the positions in its place.
    """
    graph = module.graph
    (derivative,) = graph.findAllNodes("aten::grad")
    results, positions, *_, allow_unused = derivative.inputs()
    (energy,), (first, *_) = results.node().inputs(), positions.node().inputs()
    energy.node().replaceInput(0, first)
    also_unused = graph.insertConstant(True)  # the strain of the cell
    also_unused.node().moveBefore(derivative)
    derivative.replaceInputWith(allow_unused, also_unused)
    return module


def _evaluate_older(module: Any, elements: list[int], cutoff: float, atoms: Atoms) -> Numbers:
    i, j, shifts = neighbor_list("ijS", atoms, cutoff)
    data = {
        "x": torch.tensor([elements.index(z) for z in atoms.numbers]),
        "edge_index": torch.from_numpy(np.stack((i, j))),
        "pos": torch.from_numpy(atoms.positions).float(),
        "cell_lattice_vectors": torch.from_numpy(np.array(atoms.cell)).float(),
        "pbc_shift": torch.from_numpy(shifts).float(),
        "cell_volume": torch.ones(1),
    }
    with torch.jit.optimized_execution(False):
        results = module(data)
    return Numbers.from_tensors(results["atomic_energy"], results["inferred_force"])


def _evaluate(module: Any, elements: list[int], cutoff: float, atoms: Atoms) -> Numbers:
    i, j = neighbor_list("ij", atoms, cutoff)
    positions = torch.from_numpy(atoms.positions).requires_grad_()
    count = torch.tensor([len(atoms)])
    data = {
        "x": torch.tensor([elements.index(z) for z in atoms.numbers]),
        "edge_index": torch.from_numpy(np.stack((i, j))),
        "edge_vec": (positions[j] - positions[i]).float(),
        "num_atoms": count,
        "nlocal": count,
    }
    with torch.jit.optimized_execution(False):
        results = module(data)
        (slope,) = torch.autograd.grad(results["inferred_total_energy"].sum(), positions)
    return Numbers.from_tensors(results["atomic_energy"], -slope)
