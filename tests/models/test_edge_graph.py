"""Reverse edges and pairs of edges, against loops over what ase says of images."""

from __future__ import annotations

import numpy as np
import torch
from ase.build import bulk
from ase.neighborlist import neighbor_list

from edge_models import Bonds, LennardJones
from pwmlff.evaluation.edge_graph import edge_pairs, further_inputs, reverse_edges, taken

CUTOFF, SHORT = 4.0, 2.7


def test_against_loops():
    """Also in a cell in which an atom is its own neighbor, several times."""
    atoms = bulk("HfO2", "fluorite", a=5.08)
    atoms.rattle(0.1, seed=2)
    i, j, shifts, vectors = neighbor_list("ijSD", atoms, CUTOFF)
    assert (i == j).any()
    index, edge_vec = torch.from_numpy(np.stack((i, j))), torch.from_numpy(vectors)
    edges = {(a, b, *s): e for e, (a, b, s) in enumerate(zip(i, j, shifts, strict=True))}
    wanted = [edges[(b, a, *(-s))] for a, b, s in zip(i, j, shifts, strict=True)]
    assert reverse_edges(edge_vec, index, 1e-6).tolist() == wanted
    lengths = np.linalg.norm(vectors, axis=1)
    pairs = {
        (e, f)
        for e in range(len(i))
        for f in range(len(i))
        if e != f and i[e] == i[f] and max(lengths[e], lengths[f]) < SHORT
    }
    found = [tuple(pair) for pair in edge_pairs(edge_vec, index, SHORT).T.tolist()]
    assert set(found) == pairs and len(found) == len(pairs) > 0


def test_edges_without_reverse():
    """Those that lead to atoms at which no edges start."""
    index = torch.tensor([[0, 0, 1], [1, 2, 0]])
    edge_vec = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    assert reverse_edges(edge_vec, index, 1e-6).tolist() == [2, -1, 0]


def test_who_takes_them():
    """Scripted or not."""
    module = Bonds([8, 72], CUTOFF, SHORT)
    empty = torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.int64)
    for one in (module, torch.jit.script(module)):
        assert taken(one) == {"reverse", "pairs"}
        assert further_inputs(one, *empty)["pairs"].shape == (2, 0)
    assert further_inputs(LennardJones(2.5), *empty) == {}
