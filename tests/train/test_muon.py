"""Muon against torch's and against singular values; what is no matrix goes by Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pwmlff.train import steps
from pwmlff.train.adam import Adam, AdamOptions, Average
from pwmlff.train.muon import Muon

SHAPES = [(1, 9), (40, 12), (12,), (8, 30), (7, 30), (25, 25)]
ENDS = np.cumsum([np.prod(shape) for shape in SHAPES])
N = int(ENDS[-1])
SIDES = [(8, 8), (25, 25), (13, 29), (400, 50), (50, 400)]


def parts(x: np.ndarray) -> list[np.ndarray]:
    """The arrays of a vector."""
    arrays = np.split(x, ENDS[:-1])
    return [array.reshape(shape) for array, shape in zip(arrays, SHAPES, strict=True)]


def is_matrix(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and min(shape) >= 8


def rounds(matrix: np.ndarray) -> np.ndarray:
    """Five rounds on the whole matrix in double, as Jordan et al. state them."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def of_values(sides: tuple[int, int], values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Singular vectors on the left, those on the right, and the matrix."""
    drawn = np.random.default_rng(0).normal(size=sides)
    left, _, right = np.linalg.svd(drawn, full_matrices=False)
    return left, right, np.ascontiguousarray((left * values) @ right)


@pytest.mark.parametrize("sides", SIDES)
def test_singular_values_come_near_one(sides: tuple[int, int]):
    """Vectors stay, and values above a hundredth of the norm end between 0.68 and 1.14."""
    values = np.geomspace(1.0, 0.02, min(sides))
    values[-1] = 1e-9
    left, right, matrix = of_values(sides, 1e3 * values)
    inner = left.T @ steps.orthogonal(matrix) @ right.T
    diagonal = np.diagonal(inner)
    assert np.abs(inner - np.diag(diagonal)).max() < 1e-3
    large = values / np.linalg.norm(values) > 0.01
    assert large.sum() > 5
    assert diagonal[large].min() > 0.68
    assert diagonal[large].max() < 1.14
    assert abs(diagonal[-1]) < 1e-3


@pytest.mark.parametrize("sides", SIDES)
def test_rounds_are_those_of_the_whole_matrix(sides: tuple[int, int]):
    """To the digits of float, of which small singular values lose as many as their squares."""
    for least, tolerance in ((0.3, 4e-6), (1e-2, 2e-4), (1e-6, 2e-3)):
        matrix = of_values(sides, np.geomspace(1.0, least, min(sides)))[2]
        expected = rounds(matrix)
        error = np.linalg.norm(steps.orthogonal(matrix) - expected)
        assert error < tolerance * np.linalg.norm(expected)


def test_zeros_stay():
    assert np.array_equal(steps.orthogonal(np.zeros((9, 8))), np.zeros((9, 8)))


def test_rows_of_zeros_stay():
    matrix = np.zeros((64, 16))
    matrix[:9] = of_values((9, 16), np.geomspace(1.0, 0.1, 9))[2]
    found = steps.orthogonal(matrix)
    assert np.array_equal(found[9:], np.zeros((55, 16)))
    np.testing.assert_allclose(found[:9], rounds(matrix[:9]), atol=1e-4)


def gradient_of(x: np.ndarray, step: int) -> np.ndarray:
    """Of some loss, which changes with the step."""
    rng = np.random.default_rng(step)
    return np.tanh(x + rng.normal(size=x.shape)) * 10.0 ** rng.uniform(-2, 1, x.shape)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("clip", [None, 5.0])
def test_equals_torch(weight_decay: float, clip: float | None):
    """To the three digits of bfloat16, in which torch makes the rounds; Adam to rounding."""
    x = np.random.default_rng(1).normal(size=N)
    muon = Muon(SHAPES, AdamOptions(beta1=0.85, weight_decay=weight_decay, clip=clip))
    theirs = [torch.nn.Parameter(torch.tensor(part)) for part in parts(x)]
    matrices = [one for one in theirs if is_matrix(tuple(one.shape))]
    others = [one for one in theirs if not is_matrix(tuple(one.shape))]
    assert len(matrices) == 3
    oracles = [
        torch.optim.Muon(
            matrices,
            lr=1e-2,
            weight_decay=weight_decay,
            momentum=0.85,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(others, lr=1e-2, betas=(0.85, 0.99), weight_decay=weight_decay),
    ]
    start = x.copy()
    for step in range(5):
        gradient = gradient_of(start, step)
        norm = muon.step(x, gradient, 1e-2)
        factor = 1.0 if clip is None else min(1.0, clip / norm)
        for parameter, part in zip(theirs, parts(gradient), strict=True):
            parameter.grad = torch.tensor(factor * part)
        for oracle in oracles:
            oracle.step()
    for shape, before, one, other in zip(SHAPES, parts(start), parts(x), theirs, strict=True):
        change, expected = one - before, other.detach().numpy() - before
        assert np.abs(expected).max() > 1e-3
        if is_matrix(shape):
            assert np.linalg.norm(change - expected) < 0.02 * np.linalg.norm(expected)
        else:
            np.testing.assert_allclose(change, expected, rtol=1e-9, atol=1e-14)


def test_a_step_by_the_formula():
    """In double, with the moment of Adam, to the digits of float."""
    x = np.random.default_rng(1).normal(size=N)
    muon, adam, average = Muon(SHAPES), Adam(N), Average(N, 0.9)
    moment, expected = np.zeros(N), x.copy()
    by_adam = x.copy()
    path = []
    for step in range(6):
        gradient = gradient_of(x, step)
        moment = 0.9 * moment + 0.1 * gradient
        direction = 0.9 * moment + 0.1 * gradient
        muon.step(x, gradient, 1e-2)
        adam.step(by_adam, gradient, 1e-2)
        places = np.split(np.arange(N), ENDS[:-1])
        for shape, place in zip(SHAPES, places, strict=True):
            if is_matrix(shape):
                step_of = rounds(direction[place].reshape(shape)).ravel()
                expected[place] -= 1e-2 * 0.2 * max(shape) ** 0.5 * step_of
            else:
                expected[place] = by_adam[place]
                assert np.array_equal(x[place], by_adam[place])
        average.add(x)
        path.append(x.copy())
    np.testing.assert_allclose(x, expected, rtol=0.0, atol=1e-6)
    weights = [
        9 / (t + 8) * np.prod([(k - 1) / (k + 8) for k in range(t + 1, 7)]) for t in range(1, 7)
    ]
    np.testing.assert_allclose(average.value(x), np.average(path, axis=0, weights=weights))


def test_frozen_parameters_stay():
    x = np.random.default_rng(1).normal(size=N)
    free = np.arange(N) % 3 > 0
    start = x.copy()
    muon = Muon(SHAPES, AdamOptions(weight_decay=0.1), free)
    for step in range(3):
        muon.step(x, gradient_of(x, step), 1e-2)
    assert np.array_equal(x[~free], start[~free])
    assert (x[free] != start[free]).all()


def test_no_matrix_is_adam():
    x = np.random.default_rng(1).normal(size=12)
    y = x.copy()
    Muon([(1, 9), (3,)]).step(x, gradient_of(x, 0), 1e-2)
    Adam(12).step(y, gradient_of(y, 0), 1e-2)
    assert np.array_equal(x, y)


def test_a_matrix_that_has_no_gradient_any_more_stays():
    """Of a net whose nodes are all saturated: what rounding leaves of moments drives nothing."""
    x = np.random.default_rng(1).normal(size=N)
    muon, later = Muon(SHAPES), 0
    gradient = gradient_of(x, 0)
    matrix = next(
        place for shape, place in zip(SHAPES, parts(np.arange(N)), strict=True) if is_matrix(shape)
    )
    for step in range(9000):  # until squares of the moments are no numbers of double any more
        if step == 5:
            gradient[matrix.ravel()] = 0.0
        if step == 1000:
            later = x.copy()
        muon.step(x, gradient, 1e-2)
    assert np.isfinite(x).all()
    assert np.array_equal(x[matrix.ravel()], later[matrix.ravel()])
    assert not np.array_equal(x, later)


def test_numbers_too_small_for_their_squares_are_zeros():
    assert np.array_equal(steps.orthogonal(np.full((9, 8), 1e-162)), np.zeros((9, 8)))
