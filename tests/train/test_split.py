"""What validates was not learned from: neither its neighbors in time nor its copies."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms

from labelled_structures import crystal, frames_of, labelled, trajectory
from pwmlff.data import duplicates, neighbors, split
from pwmlff.data.frames import Frames


def chosen(frames: Frames, fraction: float = 0.1, seed: int = 1) -> np.ndarray:
    edges = neighbors.find_edges(frames, frames.elements, 4.0)
    same = duplicates.first_of_each(frames, duplicates.atom_numbers(frames, edges))
    return split.validating(frames, same, fraction, seed)


def runs_of(which: np.ndarray) -> list[int]:
    """Lengths of the pieces without a gap."""
    places = np.flatnonzero(which)
    return [len(part) for part in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)]


def far_apart(count: int) -> list[Atoms]:
    """Structures of one composition that have nothing to do with each other."""
    rng = np.random.default_rng(0)
    start = crystal()
    result = []
    for _ in range(count):
        atoms = start.copy()
        atoms.set_scaled_positions(rng.random((len(start), 3)))
        result.append(atoms)
    return result


def test_a_trajectory_is_cut_into_blocks():
    frames = frames_of(trajectory(60))
    which = chosen(frames)
    assert runs_of(which) == [6]
    np.testing.assert_array_equal(which, chosen(frames))
    places = {int(np.argmax(chosen(frames, seed=seed))) for seed in range(8)}
    assert len(places) > 2
    long = trajectory(5, seed=1) * 60  # a file of 300 frames that swing
    every = runs_of(split.validating(frames_of(long), np.arange(300), 0.2, 1))
    assert sum(every) == 60 and min(every) >= split.LONGEST


def test_isolated_atoms_never_validate():
    alone = [Atoms("Ar"), Atoms("Ne")] * 15
    frames = frames_of([*far_apart(30), *alone])
    for seed in range(4):
        which = split.validating(frames, np.arange(60), 0.5, seed)
        assert which.sum() >= 14 and not which[30:].any()


def test_frames_that_do_not_follow_each_other_are_chosen_one_by_one(monkeypatch):
    frames = frames_of(far_apart(50))
    which = split.validating(frames, np.arange(50), 0.2, 1)
    assert which.sum() == 10 and len(runs_of(which)) > 5


def test_blocks_stand_for_all_temperatures():
    """One file of three temperatures, one after another, in whatever order."""
    rng = np.random.default_rng(3)
    start, hot = crystal(), []
    phases = rng.uniform(0.0, 2.0 * np.pi, (len(start), 3))
    for size in (0.05, 0.1, 0.15):
        for t in range(100):
            atoms = start.copy()
            atoms.positions += size * np.sin(phases + t)
            hot.append(labelled(atoms))
    for order in (slice(None), slice(None, None, -1)):
        every = frames_of(hot[order])
        for seed in range(6):
            which = split.validating(every, np.arange(300), 0.1, seed)
            assert [which[k : k + 100].sum() for k in (0, 100, 200)] == [10, 10, 10]


def test_copies_are_on_one_side():
    first = trajectory(40)
    turned = []
    for atoms in first[::2]:
        copy = atoms[np.random.default_rng(0).permutation(len(atoms))]
        copy.positions = copy.positions.round(6)
        copy.set_cell(np.round(copy.cell, 6))
        turned.append(copy)
    frames = Frames.joined([frames_of(first), frames_of(turned, file="copies.xyz")])
    for seed in range(5):
        which = chosen(frames, 0.2, seed)
        np.testing.assert_array_equal(which[:40:2], which[40:])
        assert 0.1 < which.mean() < 0.4


def test_each_source_and_composition_is_on_both_sides():
    parts = []
    for file, count in (("a.xyz", 40), ("b.xyz", 20), ("c.xyz", 80)):
        parts.append(frames_of(trajectory(count, seed=count), file=file))
    parts.append(frames_of([crystal(seed=99)], file="one.xyz"))  # of a composition of its own
    frames = Frames.joined(parts)
    which = chosen(frames)
    share = [which[frames.file == k].mean() for k in range(4)]
    assert share == pytest.approx([0.1, 0.1, 0.1, 0.0])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_frames(count):
    """One validates where there are two, each of a composition of its own or not."""
    for structures in (far_apart(count), [crystal(seed=k) for k in range(count)]):
        which = split.validating(frames_of(structures), np.arange(count), 0.1, 1)
        assert which.sum() == min(1, count - 1)
    nothing = split.validating(frames_of(far_apart(3)), np.zeros(3, dtype=int), 0.1, 1)
    assert not nothing.any()  # they all are one structure
