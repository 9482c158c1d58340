"""The float64 reference against the original's numbers, central differences and DP modules."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from ase.neighborlist import neighbor_list

import dp_oracle
from pwmlff.evaluation.reference import evaluate
from pwmlff.models import DP, DPConfig, pad_neighbors
from systems import with_layers

STEP = 1e-4


def test_oracle(oracle):
    for atoms, expected in oracle.frames:
        result = evaluate(oracle.model, atoms)
        assert abs(result.energy - expected.energy) / len(atoms) < 1e-9
        np.testing.assert_allclose(result.atom_energy, expected.atom_energy, rtol=0, atol=1e-9)
        np.testing.assert_allclose(result.forces, expected.forces, rtol=0, atol=1e-9)
        np.testing.assert_allclose(result.virial, expected.virial, rtol=0, atol=1e-8)


def test_oracle_is_reproduced():
    """The numbers in the file are those that the formulas give."""
    parameters, (frame, *_) = dp_oracle.read()
    given = [frame[name] for name in ("numbers", "positions", "cell")]
    for name, found in dp_oracle.evaluate(parameters, *given).items():
        np.testing.assert_allclose(found, frame[name], rtol=0, atol=1e-12)


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
        etot, ei, force, _, virial = (
            value if value is None else value.detach() for value in script(*chosen)
        )
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
    one, both = (evaluate(model, oxygen, elements).energy for elements in ([8], [8, 72]))
    assert one != pytest.approx(both)
    assert evaluate(model, oxygen).energy == one  # those of the structure


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("residual", [True, False])
def test_fitting_layers_without_resnet_dt(binary, tmp_path, residual, dtype):
    """Parameters do not tell x + tanh(..) from tanh(..): the file's own code does."""
    model, atoms = with_layers(binary.model(), residual=residual, dtype=dtype), binary.atoms()
    file = torch.jit.load(model.save(tmp_path / "model.pt"))
    inputs = pad_neighbors(atoms, model.atom_type, model.Rmax, model.maxNeighborNum)
    _, _, forces, _, virial = file(*inputs)
    for given in (model, file):
        result = evaluate(given, atoms)
        close = {"rtol": 0, "atol": 1e-10 if dtype == torch.float64 else 2e-4}
        np.testing.assert_allclose(result.forces, forces[0], **close)
        np.testing.assert_allclose(result.virial, virial[0].reshape(3, 3), **close)


def test_fitting_layers_of_another_form(binary, tmp_path):
    model = with_layers(binary.model(), scale=2.0)
    for given in (model, torch.jit.load(model.save(tmp_path / "model.pt"))):
        with pytest.raises(ValueError, match=r"fitting_net\.0\.layers\.1\.weight keeps the width"):
            evaluate(given, binary.atoms())


def test_first_hidden_layer_that_keeps_the_width(crowd):
    """It has no residual, neither in files of this project nor in others."""
    model = DP(DPConfig((8, 72), 1.5, 0.5, 5, m2=2, embedding=(3,), fitting=(6, 4)), seed=0)
    assert model.fitting_net[0].layers[0].weight.shape == (6, 6)
    inputs = pad_neighbors(crowd, model.atom_type, model.Rmax, model.maxNeighborNum)
    forces = model.eval()(*inputs)[2].detach()
    np.testing.assert_allclose(evaluate(model, crowd).forces, forces[0], atol=1e-11)


LEFT_OVER = {
    "fitting_net.0.layers.0.resnet_dt": lambda m: setattr(
        m.fitting_net[0].layers[0], "resnet_dt", torch.nn.Parameter(torch.ones(1, 10))
    ),
    "type_embedding.weight": lambda m: m.add_module("type_embedding", torch.nn.Linear(2, 2)),
    "scale": lambda m: m.register_buffer("scale", torch.ones(1)),
    "compress_tab.1": lambda m: setattr(
        m, "compress_tab", torch.jit.annotate(list[torch.Tensor], [torch.ones(2)] * 2)
    ),
    "shifts.Hf": lambda m: setattr(m, "shifts", {"O": torch.zeros(1), "Hf": torch.ones(1)}),
    "fitting_net.1.layers.3.mask": lambda m: setattr(
        m.fitting_net[1].layers[3], "mask", torch.ones(1)
    ),
}


@pytest.mark.parametrize("name", LEFT_OVER)
def test_what_is_not_used_is_refused(binary, tmp_path, name):
    """Parameters, buffers and tensors of attributes, in modules and in files."""
    model, atoms = binary.model(), binary.atoms()
    evaluate(model, atoms)
    LEFT_OVER[name](model)
    for given in (model, torch.jit.load(model.save(tmp_path / "model.pt"))):
        with pytest.raises(ValueError, match=rf"this model has .*{re.escape(name)}.* does not use"):
            evaluate(given, atoms)


MISSING = {
    "one embedding net for all": (
        lambda m: m.embedding_net.__delitem__(slice(1, None)),
        r"this model has no embedding_net\.1\.layers\.0\.weight",
    ),
    "input of two numbers": (
        lambda m: (
            m.embedding_net[0]
            .layers[0]
            .register_parameter("weight", torch.nn.Parameter(torch.ones(2, 6)))
        ),
        r"embedding_net\.0\.layers\.0\.weight and bias have shapes \[2, 6\] .* \[1, width\]",
    ),
    "two energies": (
        lambda m: setattr(
            m.fitting_net[0].layers[3], "weight", torch.nn.Parameter(torch.ones(7, 2))
        ),
        r"expected \[7, width\]",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_named(binary, name):
    change, words = MISSING[name]
    model = binary.model()
    change(model)
    with pytest.raises(ValueError, match=words):
        evaluate(model, binary.atoms())


def test_too_many_neighbors(crowd):
    config = DPConfig((72, 8), rmax=1.5, rmin=0.5, max_neighbor=3, m2=4)
    evaluate(DP(config, seed=0), crowd)
    with pytest.raises(
        ValueError, match=r"atom 2 has 3 neighbors of type 1 \(atomic number 8\) .* allows 2"
    ):
        evaluate(DP(replace(config, max_neighbor=2), seed=0), crowd)
