"""Neighbours against ase's, in any cell."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.neighborlist import neighbor_list as of_ase

from pwmlff.engine import _distinct
from pwmlff.structures import neighbor_list


def canonical(lists) -> np.ndarray:
    i, j, d, vector, image = lists
    rows = np.c_[i, j, image, d, vector]
    return rows[np.lexsort(rows[:, 4::-1].T)]


@pytest.mark.parametrize("pbc", [(1, 1, 1), (0, 0, 0), (1, 1, 0), (0, 1, 0)])
@pytest.mark.parametrize("missing", [False, True])
def test_random_cells(pbc, missing):
    rng = np.random.default_rng(sum(pbc) + 10 * missing)
    for _ in range(10):
        cell = np.diag(rng.uniform(2.0, 8.0, 3)) + rng.uniform(-1.5, 1.5, (3, 3))
        if missing:
            cell[~np.array(pbc, bool)] = 0.0
        # Atoms outside the cell too.
        atoms = Atoms(numbers=[8] * 9, positions=rng.uniform(-5, 9, (9, 3)), cell=cell, pbc=pbc)
        cutoff = rng.uniform(1.0, 6.0)
        expected, found = (f("ijdDS", atoms, cutoff) for f in (of_ase, neighbor_list))
        assert (np.diff(found[0]) >= 0).all()
        np.testing.assert_allclose(canonical(found), canonical(expected), rtol=0, atol=1e-12)
        assert [a.dtype for a in found] == [a.dtype for a in expected]


def test_no_atoms_and_no_neighbours():
    for atoms in (Atoms(), Atoms("O"), Atoms("O2", positions=[[0, 0, 0], [9, 0, 0]])):
        for one, other in zip(of_ase("ijdDS", atoms, 2.0), neighbor_list("ijdDS", atoms, 2.0),
                              strict=True):  # fmt: skip
            assert one.shape == other.shape


def test_distinct_rows():
    """As NumPy finds them, negative numbers and no rows included."""
    rng = np.random.default_rng(0)
    for n, high in ((0, 3), (1, 3), (500, 3), (500, 40)):
        rows = rng.integers(-high, high + 1, (n, 4))
        distinct, which = _distinct(rows)
        expected, inverse = np.unique(rows, axis=0, return_inverse=True)
        np.testing.assert_array_equal(distinct, expected)
        np.testing.assert_array_equal(which, inverse.ravel())
