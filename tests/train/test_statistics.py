"""Statistics against a direct evaluation of the dense environment matrix, slot by slot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms
from ase.neighborlist import neighbor_list

from labelled_structures import frames_of, random_structures
from pwmlff.data import neighbors, readers, statistics
from pwmlff.report import Failure

ELEMENTS = (72, 8, 1)
RMIN, RMAX = 1.0, 4.0


def dense(structures, elements, max_neighbor):
    """R of every slot, by center type: [slots, 4] each."""
    rows = [[] for _ in elements]
    for atoms in structures:
        i, j, rij = neighbor_list("ijD", atoms, RMAX)
        for atom, number in enumerate(atoms.numbers):
            matrix = np.zeros((len(elements) * max_neighbor, 4))
            used = [0] * len(elements)
            for n, d in zip(j[i == atom], rij[i == atom], strict=True):
                b = elements.index(atoms.numbers[n])
                r = np.sqrt(d @ d)
                u = (r - RMIN) / (RMAX - RMIN)
                s = 1 / r if r < RMIN else (u**3 * (-6 * u**2 + 15 * u - 10) + 1) / r
                matrix[b * max_neighbor + used[b]] = s * np.array([1, *(d / r)])
                used[b] += 1
            rows[elements.index(number)].append(matrix)
    return [np.concatenate(r) if r else np.zeros((1, 4)) for r in rows]


@pytest.mark.parametrize("chunk", [1 << 18, 7])
def test_moments_are_those_of_the_dense_matrix(monkeypatch, chunk):
    monkeypatch.setattr(statistics, "CHUNK", chunk)
    structures = random_structures(25)
    frames = frames_of(structures)
    edges = neighbors.find_edges(frames, ELEMENTS, RMAX + 1.0, closest=0.0)  # farther than needed
    found = statistics.compute(frames, edges, RMIN, RMAX)
    counts = []
    for atoms in structures:
        i, j, r = neighbor_list("ijd", atoms, RMAX + 1.0)
        for atom in range(len(atoms)):
            near = atoms.numbers[j[(i == atom) & (r < RMAX)]]
            counts += [(near == 8).sum(), (near == 72).sum()]
    assert found.max_neighbor == np.ceil(1.5 * max(counts) - 1e-9)
    for species, matrix in enumerate(dense(structures, ELEMENTS, found.max_neighbor)):
        np.testing.assert_allclose(
            found.davg[species, 0], matrix[:, 0].mean(), rtol=1e-10, atol=1e-15
        )
        assert (found.davg[species, 1:] == 0).all()
        angular = np.sqrt((matrix[:, 1:] ** 2).mean())
        expected = np.maximum([matrix[:, 0].std(), angular, angular, angular], statistics.SMALLEST)
        np.testing.assert_allclose(found.dstd[species], expected, rtol=1e-10)


def test_too_few_slots_name_the_atom():
    frames = frames_of(random_structures(25))
    edges = neighbors.find_edges(frames, ELEMENTS, RMAX, closest=0.0)
    most = int(edges.count.max())
    assert statistics.compute(frames, edges, RMIN, RMAX, max_neighbor=most).max_neighbor == most
    with pytest.raises(Failure, match=rf"frame \d+ .*has {most} neighbors of (O|Hf) within 4"):
        statistics.compute(frames, edges, RMIN, RMAX, max_neighbor=most - 1)
    with pytest.raises(Failure, match="rmax at most 4"):
        statistics.compute(frames, edges, RMIN, 4.5)
    with pytest.raises(Failure, match="found no frame"):
        statistics.compute(frames.select([]), edges, RMIN, RMAX)


def energies_of(frames, per_element, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    values = np.array([per_element[z] for z in frames.numbers])
    energies = [values[a:b].sum() for a, b in zip(frames.first[:-1], frames.first[1:], strict=True)]
    return replace(frames, energies=np.array(energies) + noise * rng.normal(size=len(frames)))


def test_shifts_are_the_energies_of_single_atoms(caplog):
    frames = frames_of([a for a in random_structures(25) if len(a)])
    frames = energies_of(frames, {8: -432.1, 72: -7.5})
    edges = neighbors.find_edges(frames, ELEMENTS, RMAX, closest=0.0)
    found = statistics.compute(frames, edges, RMIN, RMAX)
    np.testing.assert_allclose(found.energy_shift, [-7.5, -432.1, 0.0], atol=1e-8)
    assert found.energy_std < 1e-9
    assert not caplog.text  # hydrogen does not occur and is no matter of rank


def test_one_composition_spreads_the_energy_and_says_so(caplog):
    structures = [a for a in random_structures(60) if len(a) > 3][:1] * 3
    frames = energies_of(frames_of(structures), {8: -6.0, 72: -9.0})
    edges = neighbors.find_edges(frames, ELEMENTS, RMAX, closest=0.0)
    found = statistics.compute(frames, edges, RMIN, RMAX)
    per_atom = frames.energies[0] / len(structures[0])
    np.testing.assert_allclose(found.energy_shift, [per_atom, per_atom, 0.0], rtol=1e-9)
    assert "tell 1 of the energies" in caplog.text and "spread evenly" in caplog.text


def test_isolated_atoms_tell_elements_apart_and_do_not_pull(caplog):
    """They are some eV above the same atom in a crystal, and are no noise of the others."""
    alone = [Atoms("Hf"), Atoms("O"), Atoms("H")]
    many = [a for a in random_structures(25) if len(a) > 1]
    several = frames_of([*many, *alone])
    several = energies_of(several, {8: -4.0, 72: -7.5, 1: -1.0}, noise=0.0)
    several.energies[-3:] = [-2.5, -1.0, -1.0]
    edges = neighbors.find_edges(several, ELEMENTS, RMAX, closest=0.0)
    found = statistics.compute(several, edges, RMIN, RMAX)
    np.testing.assert_allclose(found.energy_shift, [-7.5, -4.0, -1.0], atol=1e-9)
    assert found.energy_std < 1e-9 and not caplog.text
    # One composition: all atoms share what is left beside isolated ones.
    one = Atoms("Hf2O4", np.arange(18).reshape(6, 3), cell=[30] * 3, pbc=True)
    frames = frames_of([one, one, *alone[:2]], [2 * -7.5 + 4 * -4.0] * 2 + [-2.5, -1.0])
    edges = neighbors.find_edges(frames, ELEMENTS, RMAX, closest=0.0)
    left = (-31.0 - 2 * -2.5 - 4 * -1.0) / 6
    found = statistics.compute(frames, edges, RMIN, RMAX)
    np.testing.assert_allclose(found.energy_shift, [-2.5 + left, -1.0 + left, 0.0], atol=1e-6)
    assert not caplog.text


def test_what_is_an_isolated_atom():
    box = Atoms("H", cell=[9] * 3, pbc=True)
    frames = frames_of(
        [Atoms("H"), box, box, Atoms("H2", [[0, 0, 0], [0, 0, 1]]), box],
        groups=["a", "IsolatedAtom", "isolated_atom", "IsolatedAtom", "a"],
    )
    assert frames.isolated.tolist() == [True, True, True, False, False]


def test_labels_that_are_missing_do_not_count(caplog):
    frames = frames_of([a for a in random_structures(25) if len(a)])
    frames = energies_of(frames, {8: -4.0, 72: -7.5})
    frames.energies[::3] = np.nan
    edges = neighbors.find_edges(frames, ELEMENTS, RMAX, closest=0.0)
    found = statistics.compute(frames, edges, RMIN, RMAX)
    np.testing.assert_allclose(found.energy_shift, [-7.5, -4.0, 0.0], atol=1e-9)
    frames.energies[:] = np.nan
    found = statistics.compute(frames, edges, RMIN, RMAX)
    assert not found.energy_shift.any() and np.isnan(found.energy_std)
    assert "no frame has an energy" in caplog.text


def test_hfo2_is_near_the_statistics_of_its_published_model(hfo2_folder):
    data = hfo2_folder.parent / "hfo2_dft" / "valid.extxyz"
    if not data.is_file():
        pytest.skip(f"no {data}")
    frames = readers.read(f"{data}@::4")
    edges = neighbors.find_edges(frames, (8, 72), 6.0)
    found = statistics.compute(frames, edges, 0.5, 6.0, max_neighbor=100)
    with np.load(hfo2_folder / "parameters.npz") as model:
        np.testing.assert_allclose(found.davg[:, 0], model["davg"][:, 0], rtol=0.03)
        np.testing.assert_allclose(found.dstd, model["dstd"][:, :4], rtol=0.03)
