"""Neighbors against ase's, in any cell."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.neighborlist import neighbor_list as of_ase

from pwmlff.evaluation import engine
from pwmlff.evaluation.engine import AtomsAndGhosts, _distinct
from pwmlff.evaluation.structures import neighbor_list, slabs


def in_order(atoms: Atoms, cutoff: float, species: np.ndarray) -> list[np.ndarray]:
    """ase's list, sorted as is promised."""
    i, j, d, vector, image = of_ase("ijdDS", atoms, cutoff)
    order = np.lexsort((*image.T[::-1], j, species[j], i))
    return [a[order] for a in (i, j, d, vector, image)]


@pytest.mark.parametrize("pbc", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("open_vectors", ["any", "missing", "in one plane"])
def test_random_cells(pbc, open_vectors):
    """Small and skewed ones, atoms far outside, and directions that are open in all ways."""
    rng = np.random.default_rng(sum(pbc))
    closed = np.array(pbc)
    for reach in (9.0, 9.0, 9.0, 40.0, 1e4):
        cell = np.diag(rng.uniform(2.0, 8.0, 3)) + rng.uniform(-1.5, 1.5, (3, 3))
        if open_vectors == "missing":
            cell[~closed] = 0.0
        elif open_vectors == "in one plane":
            cell[~closed] = cell[closed].sum(axis=0)
        positions = rng.uniform(-5, 9, (9, 3))
        positions[0] = rng.uniform(-reach, reach, 3)
        atoms = Atoms(numbers=[8] * 9, positions=positions, cell=cell, pbc=pbc)
        cutoff, species = rng.uniform(1.0, 6.0), rng.integers(0, 3, 9)
        # What is asked of ase has no vectors in open directions that could be of one plane.
        plain = atoms.copy()
        plain.cell[~closed] = 0.0
        found = neighbor_list("ijdDS", atoms, cutoff, species)
        for one, other in zip(found, in_order(plain, cutoff, species), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-15 * reach + 1e-13)
            assert one.dtype == other.dtype
        for one, other in zip(
            found, neighbor_list("ijdDS", atoms, cutoff, species, 3), strict=True
        ):
            np.testing.assert_array_equal(one, other)  # the same on any number of threads


def test_cutoff_itself_is_outside():
    atoms = Atoms("O2", positions=[[0, 0, 0], [2, 0, 0]], cell=[4, 5, 4], pbc=(1, 0, 1))
    for cutoff, number in ((2.0, 0), (np.nextafter(2.0, 3.0), 4), (4.0, 4), (4.0 + 1e-12, 12)):
        assert len(of_ase("i", atoms, cutoff)) == number
        assert len(neighbor_list("i", atoms, cutoff)[0]) == number


#: Cell and periodicity, where vesin by itself would end the process or take minutes.
FAR = {
    "one atom far from a cluster": ([5, 5, 5], False, 1e9),
    "one atom far from a slab": ([5, 5, 5], (1, 1, 0), 1e4),
    "long cell": ([5, 5, 4e5], True, 1e5),
    "wide sheet": ([4e3, 4e3, 1.2], True, 0.0),
}


@pytest.mark.parametrize("name", FAR)
def test_any_shape(name):
    cell, pbc, far = FAR[name]
    positions = np.random.default_rng(0).uniform(0.0, 5.0, (50, 3))
    near = Atoms(numbers=[8] * 49, positions=positions[1:], cell=np.minimum(cell, 20), pbc=pbc)
    expected = np.sort(of_ase("d", near, 1.0))
    positions[0] = [2e3, 2e3, 0.0] if far == 0.0 else [0.0, 0.0, far]
    atoms = Atoms(numbers=[8] * 50, positions=positions, cell=cell, pbc=pbc)
    np.testing.assert_allclose(np.sort(neighbor_list("d", atoms, 1.0)[0]), expected)


def test_needle_is_refused():
    atoms = Atoms("O", cell=[5, 5, 1e9], pbc=True)
    with pytest.raises(ValueError, match=r"5 thick and the structure 1e\+09 long, with a cutoff"):
        neighbor_list("i", atoms, 1.0)


@pytest.mark.parametrize("far", [1e13, 1e20, 1e160, 1e300])
def test_cluster_without_distances_is_refused(far):
    atoms = Atoms("O3", positions=[[0, 0, 0], [0.5, 0, 0], [0, 0, far]])
    with pytest.raises(ValueError, match=r"structure is 1e.* long, expected at most 1e\+12 times"):
        neighbor_list("i", atoms, 1.0)


def test_no_atoms_and_no_neighbors():
    for atoms in (Atoms(), Atoms("O"), Atoms("O2", positions=[[0, 0, 0], [9, 0, 0]])):
        for one, other in zip(of_ase("ijdDS", atoms, 2.0), neighbor_list("ijdDS", atoms, 2.0),
                              strict=True):  # fmt: skip
            assert one.shape == other.shape


def test_distinct_rows():
    """As NumPy finds them, negative numbers and no rows included."""
    rng = np.random.default_rng(0)
    for n, high in ((0, 3), (1, 3), (500, 3), (500, 40), (500, 10**9)):
        rows = rng.integers(-high, high + 1, (n, 4))
        distinct, which = _distinct(rows)
        expected, inverse = np.unique(rows, axis=0, return_inverse=True)
        np.testing.assert_array_equal(distinct, expected)
        np.testing.assert_array_equal(which, inverse.ravel())


def found_in_slabs(monkeypatch, most_pairs: float, atoms: Atoms, reach: float):
    """Atoms and ghosts of a structure that is cut, and into how many slabs."""
    number = 0

    def cut(*arguments):
        nonlocal number
        for slab in slabs(*arguments, most_pairs):
            number += 1
            yield slab

    with monkeypatch.context() as patched:
        patched.setattr(engine, "slabs", cut)
        return AtomsAndGhosts.find(atoms, [8, 72], reach), number


def test_slabs_give_the_same_neighbors(monkeypatch):
    """Skewed and open cells, atoms outside of them, an element that takes no part."""
    rng = np.random.default_rng(8)
    numbers = []
    for _ in range(60):
        n, cell = rng.integers(1, 300), np.diag(rng.uniform(3.0, 30.0, 3))
        cell += rng.uniform(-2.0, 2.0, (3, 3)) * rng.integers(0, 2)
        positions = rng.uniform(-1.0, 2.0, (n, 3)) @ cell
        atoms = Atoms(rng.choice([1, 8, 72], n), positions, cell=cell, pbc=rng.integers(0, 2, 3))
        reach = rng.uniform(1.0, 4.0)
        whole, one = found_in_slabs(monkeypatch, np.inf, atoms, reach)
        cut, number = found_in_slabs(monkeypatch, 50.0, atoms, reach)
        assert one == 1
        numbers.append(number)
        for name, values in vars(whole).items():
            assert np.array_equal(getattr(cut, name), values), name
    assert sum(number > 2 for number in numbers) > 20


def test_memory_of_a_large_structure(monkeypatch):
    """A list of all pairs took 170 bytes for each: 18 GB for a million atoms of an oxide."""
    atoms = bulk("HfO2", "fluorite", a=5.08, cubic=True).repeat(9)
    tracemalloc.start()
    try:
        found, number = found_in_slabs(monkeypatch, 2e4, atoms, 5.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert number > 3
    assert peak < 75 * len(found.candidate)
