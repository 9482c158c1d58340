"""The slopes of the loss against central differences of its value, with labels that are missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labelled_structures import frames_of
from pwmlff.data.frames import Frames
from pwmlff.train.loss import LossWeights, slopes
from systems import SYSTEMS

BATCH = np.array([3, 0, 2, 1])


def labelled() -> Frames:
    """Four frames, each without another label."""
    rng = np.random.default_rng(0)
    atoms = [SYSTEMS["two elements, triclinic"].atoms(seed) for seed in range(4)]
    forces = [rng.normal(size=(len(one), 3)) for one in atoms]
    energies, virials = rng.normal(size=4), rng.normal(size=(4, 3, 3))
    energies[1], forces[2][:], virials[3] = np.nan, np.nan, np.nan
    return frames_of(atoms, list(energies), forces, virials)


@pytest.mark.parametrize("huber", [0.0, 0.5])
def test_slopes_are_those_of_the_loss(huber: float):
    frames, rng = labelled(), np.random.default_rng(1)
    natoms = int(frames.natoms[BATCH].sum())
    found = [rng.normal(size=4), rng.normal(size=(natoms, 3)), 9.0 * rng.normal(size=(4, 3, 3))]
    of_frame, weights = np.array([1.0, 0.5, 2.0, 3.0]), LossWeights(2.0, 1.0, 0.5, huber)

    def loss(values: list[np.ndarray]) -> float:
        return float(slopes(frames, BATCH, slice(4), tuple(values), weights, of_frame).loss.sum())

    one = slopes(frames, BATCH, slice(4), tuple(found), weights, of_frame)
    for place, slope in enumerate((one.a, one.v, one.w)):
        assert slope.shape == found[place].shape
        direction = rng.normal(size=slope.shape)
        ends = []
        for sign in (1.0, -1.0):
            values = [x.copy() for x in found]
            values[place] += sign * 1e-6 * direction
            ends.append(loss(values))
        expected = (ends[0] - ends[1]) / 2e-6
        assert (slope * direction).sum() == pytest.approx(expected, rel=1e-6)
    # What ranks have adds up to the whole.
    first = int(frames.natoms[BATCH[:1]].sum())
    parts = [
        slopes(frames, BATCH, mine, given, weights, of_frame)
        for mine, given in (
            (slice(0, 1), (found[0][:1], found[1][:first], found[2][:1])),
            (slice(1, 4), (found[0][1:], found[1][first:], found[2][1:])),
        )
    ]
    for k in range(5):
        np.testing.assert_array_equal(np.concatenate([part[k] for part in parts]), one[k])


def test_weights_of_frames_are_numbers_of_copies():
    """A frame of weight 3 counts as three of them; each label has its own weight."""
    copies = {"energy": [1, 3, 2], "force": [2, 1, 4], "virial": [1, 1, 5]}
    frames = labelled().select([0, 0, 0])
    frames = replace(frames, weights=np.array(list(copies.values()), float).T)
    rng, natoms = np.random.default_rng(2), int(frames.natoms[0])
    found = rng.normal(size=3), rng.normal(size=(3, natoms, 3)), rng.normal(size=(3, 3, 3))
    batch, ones = np.arange(3), np.ones(3)
    for name, counts in copies.items():
        weights = LossWeights(**dict.fromkeys(copies, 0.0) | {name: 1.0})
        flat = found[0], found[1].reshape(-1, 3), found[2]
        weighted = slopes(frames, batch, slice(3), flat, weights, ones)
        rows = np.repeat(batch, counts)
        repeated = found[0][rows], found[1][rows].reshape(-1, 3), found[2][rows]
        many = labelled().select([0] * len(rows))
        plain = slopes(
            many, np.arange(len(rows)), slice(len(rows)), repeated, weights, np.ones(len(rows))
        )
        assert weighted.loss.sum() == pytest.approx(plain.loss.sum(), rel=1e-12)
        # With what users give to groups, by product.
        halves = replace(frames, weights=frames.weights / [[0.5], [2.0], [1.0]])
        again = slopes(halves, batch, slice(3), flat, weights, np.array([0.5, 2.0, 1.0]))
        np.testing.assert_allclose(again.loss, weighted.loss, rtol=1e-12)


def test_weights_of_frames_hold_between_batches():
    """Alone in a batch a frame counts by its weight over the mean, but no more than once."""
    own = {"energy": [1.0, 3.0, 0.0], "force": [2.0, 1.0, 4.0], "virial": [1.0, 1.0, 5.0]}
    frames = labelled().select([0, 0, 0])
    frames = replace(frames, weights=np.array(list(own.values())).T)
    rng, natoms = np.random.default_rng(3), int(frames.natoms[0])
    found = rng.normal(size=3), rng.normal(size=(3, natoms, 3)), rng.normal(size=(3, 3, 3))
    of_frame = np.array([0.1, 1.0, 7.0])
    flat = found[0], found[1].reshape(-1, 3), found[2]
    for name, of_file in own.items():
        weights = LossWeights(**dict.fromkeys(own, 0.0) | {name: 2.0})
        every = slopes(frames, np.arange(3), slice(3), flat, weights, of_frame).loss
        product = np.array(of_file) * of_frame
        for k in range(3):
            alone = found[0][k : k + 1], found[1][k], found[2][k : k + 1]
            one = slopes(frames, np.array([k]), slice(1), alone, weights, of_frame).loss
            expected = 3 * every[k] * min(1.0, product.mean() / max(product[k], 1e-9))
            assert one[0] == pytest.approx(expected, rel=1e-12)


def test_virials_without_weight_have_no_slope():
    frames = labelled()
    found = np.zeros(4), np.zeros((int(frames.natoms[BATCH].sum()), 3)), np.zeros((4, 3, 3))
    weights = LossWeights(1.0, 1.0, 0.0)
    assert slopes(frames, BATCH, slice(4), found, weights, np.ones(4)).w is None
