"""Neighbors are those that ase finds, in the order that is promised."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.neighborlist import neighbor_list

from labelled_structures import frames_of, random_structures
from pwmlff.data import neighbors
from pwmlff.report import Failure

ELEMENTS = (72, 8, 1)


@pytest.mark.parametrize("cutoff", [1.3, 4.0])
def test_edges_are_those_of_ase(cutoff):
    structures = random_structures(60)
    frames = frames_of(structures)
    edges = neighbors.find_edges(frames, ELEMENTS, cutoff, closest=0.0, threads=3)
    assert edges.rij.dtype == np.float64 and edges.j.dtype == edges.count.dtype == np.int32
    for k, atoms in enumerate(structures):
        i, j, image, rij = neighbor_list("ijSD", atoms, cutoff)
        species = np.array([ELEMENTS.index(z) for z in atoms.numbers], dtype=int)
        order = np.lexsort((*image.T[::-1], j, species[j], i))
        rows = slice(edges.first[k], edges.first[k + 1])
        np.testing.assert_array_equal(edges.j[rows], j[order])
        np.testing.assert_allclose(edges.rij[rows], rij[order], atol=1e-11)
        count = np.zeros((len(atoms), 3), dtype=int)
        np.add.at(count, (i, species[j]), 1)
        rows = slice(frames.first[k], frames.first[k + 1])
        np.testing.assert_array_equal(edges.count[rows], count)
        np.testing.assert_array_equal(edges.types[rows], species)
    assert len(edges) == edges.first[-1] == edges.count.sum()


def test_threads_make_no_difference():
    frames = frames_of(random_structures(20))
    one, many = (
        neighbors.find_edges(frames, ELEMENTS, 5.0, closest=0.0, threads=t) for t in (1, 4)
    )
    for name in ("rij", "j", "count", "first"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))


def box(*positions, symbols=None):
    return Atoms(symbols or "O" * len(positions), positions, cell=[9, 9, 9], pbc=True)


def test_what_cannot_be_used_is_named():
    good = box((0, 0, 0), (0, 0, 2))
    overlap = frames_of([good, box((0, 0, 0.1), (0, 3, 0), (0, 0, 8.9), symbols="OOHf")])
    with pytest.raises(Failure, match=r"frame 1 of 'file.xyz': atoms 0 \(O\) and 2 \(Hf\) are 0.2"):
        neighbors.find_edges(overlap, ELEMENTS, 4.0)
    assert len(neighbors.find_edges(overlap, ELEMENTS, 4.0, closest=0.1))
    with pytest.raises(Failure, match=r"frame 1 .*holds Si, expected Hf O H"):
        neighbors.find_edges(frames_of([good, box((0, 0, 0), symbols="Si")]), ELEMENTS, 4.0)
    with pytest.raises(Failure, match=r"frame 0 .*atom 1 is at .*nan"):
        neighbors.find_edges(frames_of([box((0, 0, 0), (0, 0, np.nan))]), ELEMENTS, 4.0)
    flat = Atoms("O", cell=[9, 9, 0], pbc=True)
    with pytest.raises(Failure, match=r"frame 1 .*needs a cell vector"):
        neighbors.find_edges(frames_of([good, flat]), ELEMENTS, 4.0)
    far = Atoms("O", cell=[9, 9, 1e9], pbc=True)
    with pytest.raises(Failure, match=r"frame 0 .* 1e\+09 long, .* look at the units"):
        neighbors.find_edges(frames_of([far]), ELEMENTS, 4.0)
    apart = Atoms("O3", [[3.9e9, 0, 0], [-3.9e9, 0, 0], [-3.9e9, 2.0, 0]])
    assert len(neighbors.find_edges(frames_of([apart]), ELEMENTS, 4.0)) == 2
    with pytest.raises(Failure, match="cutoff is 0"):
        neighbors.find_edges(frames_of([good]), ELEMENTS, 0.0)
    with pytest.raises(Failure, match="each once"):
        neighbors.find_edges(frames_of([good]), (8, 8), 4.0)
