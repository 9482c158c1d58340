"""The float64 reference against the original's numbers, central differences and DP modules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.neighborlist import neighbor_list

from pwmlff.models import DP, DPConfig, pad_neighbors
from pwmlff.reference import evaluate

STEP = 1e-4


@pytest.mark.parametrize("frame", range(5))
def test_hfo2(hfo2_folder, hfo2_model, frame):
    with np.load(hfo2_folder / "reference.npz") as data:
        atoms = Atoms(data["numbers"], data["positions"][frame], cell=data["cell"][frame], pbc=True)
        expected = {
            name: data[name][frame] for name in ("energy", "atom_energy", "forces", "virial")
        }
    result = evaluate(hfo2_model, atoms)
    assert abs(result.energy - expected["energy"]) / len(atoms) < 1e-9
    np.testing.assert_allclose(result.atom_energy, expected["atom_energy"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.forces, expected["forces"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.virial, expected["virial"], rtol=0, atol=1e-8)


def test_forces_are_central_differences(system):
    model, atoms = system.model(), system.atoms()
    numeric = np.zeros((len(atoms), 3))
    for index in np.ndindex(numeric.shape):
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions[index] += sign * STEP
            numeric[index] -= sign * evaluate(model, moved).energy / (2 * STEP)
    forces = evaluate(model, atoms).forces
    np.testing.assert_allclose(forces, numeric, rtol=1e-6, atol=1e-6)


def test_virial_is_central_difference_in_strain(system):
    model, atoms = system.model(), system.atoms()
    numeric = np.zeros((3, 3))
    for index in np.ndindex(3, 3):
        for sign in (1, -1):
            deform = np.eye(3)
            deform[index] += sign * STEP
            strained = atoms.copy()
            strained.set_cell(atoms.cell.array @ deform)
            strained.positions = atoms.positions @ deform
            numeric[index] -= sign * evaluate(model, strained).energy / (2 * STEP)
    np.testing.assert_allclose(evaluate(model, atoms).virial, numeric, rtol=1e-6, atol=1e-6)


def elements_of(system):
    """All elements of the model, and the ones that the structure has."""
    subset = tuple(z for z in system.elements if z in system.numbers)
    return {system.elements, subset, subset[::-1]}


def test_scripted_model_gives_the_reference(system):
    model, atoms = system.model(), system.atoms()
    script = torch.jit.script(model)
    inputs = pad_neighbors(atoms, model.atom_type, model.Rmax, model.maxNeighborNum)
    for elements in elements_of(system):
        result = evaluate(script, atoms, elements)
        chosen = inputs._replace(atom_type=torch.tensor(elements, dtype=torch.int32))
        etot, ei, force, _, virial = script(*chosen)
        order = np.concatenate([np.flatnonzero(atoms.numbers == z) for z in elements])
        close = {"rtol": 1e-10, "atol": 1e-11, "err_msg": str(elements)}
        np.testing.assert_allclose(result.energy, etot.item(), **close)
        np.testing.assert_allclose(result.atom_energy[order], ei[0], **close)
        np.testing.assert_allclose(result.forces, force[0], **close)
        np.testing.assert_allclose(result.virial, virial[0].reshape(3, 3), **close)


def test_systems_have_forces_to_compare(system):
    """A comparison of zeros would show nothing."""
    model, atoms = system.model(), system.atoms()
    result = evaluate(model, atoms)
    assert (np.abs(result.atom_energy) > 1e-3).all()
    if len(neighbor_list("i", atoms, model.Rmax)) > 0:
        assert np.abs(result.forces).max() > 1e-3
        assert np.abs(result.virial).max() > 1e-3


def test_file_and_module_agree(binary, tmp_path):
    model, atoms = binary.model(), binary.atoms()
    path = model.save(tmp_path / "model.pt")
    for given in (path, str(path), torch.jit.load(path)):
        result, expected = evaluate(given, atoms), evaluate(model, atoms)
        assert result.energy == expected.energy
        np.testing.assert_array_equal(result.forces, expected.forces)


def test_file_without_model_type(binary):
    model = binary.model()
    expected = evaluate(model, binary.atoms()).energy
    del model.model_type
    assert evaluate(model, binary.atoms()).energy == expected


def test_elements_divide_the_descriptor(binary):
    model, atoms = binary.model(), binary.atoms()
    oxygen = atoms[atoms.numbers == 8]
    assert evaluate(model, oxygen, [8]).energy != pytest.approx(evaluate(model, oxygen).energy)


def test_errors(binary):
    model, atoms = binary.model(), binary.atoms()
    with pytest.raises(ValueError, match=r"elements holds \[1\]; this model knows \[8, 72\]"):
        evaluate(model, atoms, [1, 8])
    with pytest.raises(ValueError, match=r"atom 0 has atomic number 72; .*\[8\]"):
        evaluate(model, atoms, [8])
    model.davg[0, 5] += 1.0
    with pytest.raises(ValueError, match="davg differs between slots"):
        evaluate(model, atoms)
    model.model_type = "NN"
    with pytest.raises(ValueError, match="model_type is 'NN'; the reference knows DP"):
        evaluate(model, atoms)


def test_too_many_neighbours(crowd):
    config = DPConfig((72, 8), rmax=1.5, rmin=0.5, max_neighbor=3, m2=4)
    evaluate(DP(config, seed=0), crowd)
    with pytest.raises(
        ValueError, match=r"atom 2 has 3 neighbours of type 1 \(atomic number 8\) .* allows 2"
    ):
        evaluate(DP(replace(config, max_neighbor=2), seed=0), crowd)
