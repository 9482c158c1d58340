"""What a step does with whole gradients: the order of sums is that of a tree, whatever the type."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pwmlff.train import steps


def by_recursion(rows: np.ndarray, width: int) -> np.ndarray:
    """Sum of the rows of a node: of its left half, then of the right one if there is one."""
    if width == 1:
        return rows[0].astype(float)
    left = by_recursion(rows[: width // 2], width // 2)
    right = rows[width // 2 :]
    return left + by_recursion(right, width // 2) if len(right) else left


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nrows", [1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31])
def test_rows_are_added_as_in_a_tree(nrows: int, dtype: type):
    """Numbers that nearly cancel, so that another order would give other bits."""
    rng = np.random.default_rng(nrows)
    rows = (rng.normal(size=(nrows, 1500)) * 10.0 ** rng.integers(-9, 9, (nrows, 1))).astype(dtype)
    found = steps.sum_rows(rows)
    assert np.array_equal(found, by_recursion(rows, 1 << (nrows - 1).bit_length()))
    exact = np.array([math.fsum(column) for column in rows.astype(float).T])
    assert np.abs(found - exact).max() <= 1e-14 * nrows * np.abs(rows).max()
    if nrows > 4:
        assert not np.array_equal(found, rows.astype(float)[::-1].cumsum(0)[-1])


@pytest.mark.parametrize("n", [0, 1, 7, 8, 1001])
def test_squares_and_averages(n: int):
    rng = np.random.default_rng(n)
    x, path = rng.normal(size=n), rng.normal(size=n)
    assert steps.square(x) == pytest.approx(math.fsum(x**2), rel=1e-14)
    expected = 0.9 * path + (1.0 - 0.9) * x
    steps.average(path, x, 0.9)
    assert np.array_equal(path, expected)
