"""What a module of kind EDGE may take beside its edges: reverse edges, and pairs of edges."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

#: Names of the arguments of the forward.
REVERSE, PAIRS = "reverse", "pairs"
#: By which the vectors of an edge and of its reverse may differ, in cutoffs.
SAME = 1e-6


def taken(module: nn.Module) -> set[str]:
    """Which of them the forward of a module takes, scripted or not."""
    forward: Any = module.forward
    if isinstance(module, torch.jit.ScriptModule):
        names = {argument.name for argument in forward.schema.arguments}
    else:
        names = set(inspect.signature(forward).parameters)
    return names & {REVERSE, PAIRS}


def further_inputs(module: nn.Module, edge_vec: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
    """Those that it takes, by name; see docs/model_contract.md.

    Args:
        module: with `cutoff`, and with `pair_cutoff` where it takes pairs.
        edge_vec: [E, 3].
        edge_index: int64 [2, E], in ascending order of centers.

    Raises:
        ValueError: it takes pairs, but does not say of which edges.
    """
    contract: Any = module  # of whose attributes torch says that they are tensors or modules
    names, vectors = taken(module), edge_vec.detach().double()
    inputs = {}
    if REVERSE in names:
        inputs[REVERSE] = reverse_edges(vectors, edge_index, SAME * float(contract.cutoff))
    if PAIRS in names and not 0.0 < float(getattr(contract, "pair_cutoff", 0.0)) <= contract.cutoff:
        raise ValueError("it takes pairs: expected a pair_cutoff above 0, at most its cutoff")
    if PAIRS in names:
        inputs[PAIRS] = edge_pairs(vectors, edge_index, float(contract.pair_cutoff))
    return inputs


def reverse_edges(edge_vec: Tensor, edge_index: Tensor, same: float) -> Tensor:
    """Of each edge i-j the edge j-i between the same copies, [E]; -1 where there is none.

    Args:
        edge_vec, edge_index: as of :func:`further_inputs`.
        same: distance by which the vectors of both may differ.
    """
    i, j = edge_index.contiguous()
    one, other = _with_edges_of(j, i)
    back = j[other] == i[one]
    back &= (edge_vec[one] + edge_vec[other]).square().sum(1) <= same * same
    reverse = torch.full_like(i, -1)
    reverse[one[back]] = other[back]
    return reverse


def edge_pairs(edge_vec: Tensor, edge_index: Tensor, cutoff: float) -> Tensor:
    """Pairs of different edges of one center that are both shorter than a cutoff, [2, P]."""
    short = torch.nonzero(edge_vec.square().sum(1) < cutoff * cutoff).flatten()
    center = edge_index[0, short].contiguous()
    one, other = _with_edges_of(center, center)
    different = one != other
    return torch.stack((short[one[different]], short[other[different]]))


def _with_edges_of(atoms: Tensor, center: Tensor) -> tuple[Tensor, Tensor]:
    """Each of the atoms with all edges that start there, as places in `atoms` and `center`."""
    first = torch.searchsorted(center, atoms)
    count = torch.searchsorted(center, atoms, right=True) - first
    one = torch.repeat_interleave(count)
    begin = count.cumsum(0) - count
    return one, torch.arange(len(one), device=one.device) - begin[one] + first[one]
