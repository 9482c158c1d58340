"""Deep Potentials of all forms that the field writes: the same numbers, by the fused engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms

import dp_oracle
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.reference import evaluate
from pwmlff.models import DP
from systems import SYSTEMS, with_layers

MEMBERS = (1, 2, 3, 4, 9, 11)  # seeds
#: eV and eV/angstrom, for energies of atoms and forces
GATES = {"exact": (1e-10, 1e-10), "double": (1e-8, 1e-6), "mixed": (1e-5, 1e-4)}


def assert_fused(path, atoms, expected, gates=GATES):
    for precision, (energy, force) in gates.items():
        found = choose(path, engine="fused", precision=precision, device="cpu").engine(atoms)
        np.testing.assert_allclose(found.atom_energy, expected.atom_energy, rtol=0, atol=energy)
        np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=force)
        np.testing.assert_allclose(found.virial, expected.virial, rtol=0, atol=10 * force)


@pytest.mark.parametrize("seed", MEMBERS)
def test_random_members(tmp_path, seed):
    """Energies, forces and virial of the reference and of all precisions are the oracle's."""
    rng = np.random.default_rng(seed)
    contract, arrays = dp_oracle.random_member(rng)
    model = DP.from_parameters(arrays, **vars(contract))
    cell = np.array([[4.4, 0.0, 0.0], [0.8, 4.6, 0.0], [-0.5, 0.7, 4.7]])
    grid = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]]) / 2
    atoms = Atoms(
        [contract.atom_type[k % len(contract.atom_type)] for k in range(4)],
        scaled_positions=grid + rng.uniform(-0.03, 0.03, (4, 3)),
        cell=cell,
        pbc=True,
    )
    given = (atoms.numbers, atoms.positions, cell, contract)
    expected = dp_oracle.evaluate(arrays, *given)
    path = model.save(tmp_path / "model.pt")
    found = evaluate(path, atoms)
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(found, name), values, rtol=0, atol=1e-10, err_msg=name)
    assert np.abs(found.forces).max() > 1e-3
    assert_fused(path, atoms, found)


def test_members_cover_the_switches():
    members = [dp_oracle.random_member(np.random.default_rng(seed)) for seed in MEMBERS]
    names = [set(arrays) for _, arrays in members]
    for part in ("embedding_net.0.layers.1.bias", "embedding_net.0.layers.1.resnet_dt",
                 "fitting_net.0.layers.1.bias", "fitting_net.0.layers.1.resnet_dt"):  # fmt: skip
        assert {part in each for each in names} == {True, False}, part
    assert {bool(contract.sel) for contract, _ in members} == {True, False}
    assert {bool(contract.type_vector) for contract, _ in members} == {True, False}
    assert {bool(contract.zbl_radii) for contract, _ in members} == {True, False}
    assert {len(contract.atom_type) for contract, _ in members} == {2, 3, 4}


@pytest.mark.parametrize("residual", [True, False])
def test_layers_without_resnet_dt(tmp_path, residual):
    """The parameters are the same; what the file's own code does decides."""
    system = SYSTEMS["two elements, triclinic"]
    path = with_layers(system.model(), residual=residual).save(tmp_path / "model.pt")
    assert_fused(path, system.atoms(), evaluate(path, system.atoms()))


def test_net_for_types_that_nothing_uses(tmp_path):
    """MatPL makes one before that of the pairs where it is asked for."""
    system = SYSTEMS["type embedding"]
    model, atoms = system.model(), system.atoms()
    expected = evaluate(model, atoms)
    model.embedding_net.insert(0, SYSTEMS["no bias"].model().fitting_net[0])
    model.pairs = [[], model.pairs[0]]
    path = model.save(tmp_path / "model.pt")
    np.testing.assert_array_equal(evaluate(path, atoms).forces, expected.forces)
    assert_fused(path, atoms, expected)


@pytest.mark.parametrize("engine", ["fused", "torchscript", "reference"])
def test_slots_of_elements_that_take_no_part(tmp_path, engine):
    """Empty ones count, and the descriptor is divided by all."""
    system = SYSTEMS["slots by element"]
    path, atoms = system.model().save(tmp_path / "model.pt"), system.atoms()
    expected = choose(path, "reference").engine(atoms)
    found = choose(path, engine, "exact", sorted(set(atoms.numbers))).engine(atoms)
    np.testing.assert_allclose(found.atom_energy, expected.atom_energy, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["fused", "torchscript", "reference"])
def test_more_neighbors_than_slots_of_an_element(tmp_path, engine):
    system = replace(SYSTEMS["slots by element"], sel=(40, 40, 5))
    path = system.model().save(tmp_path / "model.pt")
    words = r"\d neighbors .*(38|Sr).* 5\b"
    with pytest.raises((ValueError, RuntimeError), match=words):
        choose(path, engine).engine(system.atoms())
