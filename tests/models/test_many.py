"""Many structures over threads, and training from a program."""

from __future__ import annotations

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator

import dp_oracle
from pwmlff import Calculator, evaluate
from pwmlff.evaluation.reference import evaluate as reference
from pwmlff.models import DP
from pwmlff.report import Failure
from pwmlff.train import train

MODEL = "examples/hfo2/a.pt"
SMALL = ["model.rmax=4.0", "model.embedding=[8,8]", "model.m2=4", "model.fitting=[8]"]


@pytest.fixture
def structures():
    found = []
    for seed in range(4):
        atoms = bulk("HfO2", "fluorite", a=5.08, cubic=True)
        atoms.rattle(0.05, seed=seed)
        found.append(atoms)
    return found


@pytest.fixture
def model(pytestconfig):
    return pytestconfig.rootpath / MODEL


def test_threads_give_the_same_bits_and_the_reference(model, structures):
    one, two = (evaluate(model, structures, threads=n) for n in (1, 2))
    for atoms, a, b in zip(structures, one, two, strict=True):
        assert (
            a.energy == b.energy and (a.forces == b.forces).all() and (a.virial == b.virial).all()
        )
        expected = reference(model, atoms)
        assert a.energy == pytest.approx(expected.energy, abs=1e-8 * len(atoms))
        assert np.abs(a.forces - expected.forces).max() < 1e-6
        assert np.abs(a.virial - expected.virial).max() < 1e-5
    assert evaluate(model, []) == []


def test_elements_of_each_structure(tmp_path):
    """Of a model of PWMLFF or MatPL, by NumPy; engines for other elements stay open."""
    arrays = dp_oracle.read()[0]
    DP.from_parameters(arrays, **vars(dp_oracle.TINY)).save(tmp_path / "model.pt")
    places = [[0.3, 0.2, 0.1], [2.2, 0.4, 0.3], [0.5, 2.3, 0.9]]
    some = [Atoms(s, places, cell=[9.0] * 3, pbc=True) for s in ("Si3", "OSiO", "O3")]
    found = evaluate(tmp_path / "model.pt", some * 2, threads=2)
    for atoms, *both in zip(some, found[:3], found[3:], strict=True):
        place = atoms.numbers, atoms.positions + 0j, np.asarray(atoms.cell) + 0j
        counted = sorted(set(atoms.numbers))
        wanted = dp_oracle.atom_energies(arrays, *place, counted=counted).real
        for one in both:
            np.testing.assert_allclose(one.atom_energy, wanted, atol=1e-8)


def test_the_structure_that_is_refused_is_named(model, structures):
    structures[2].numbers[0] = 18
    with pytest.raises(ValueError, match="structure 2: atom 0 has atomic number 18"):
        evaluate(model, structures, threads=2)
    with pytest.raises(FileNotFoundError, match=r"found no model file 'absent\.pt'"):
        evaluate("absent.pt", structures)


def labelled(model, structures):
    calculator = Calculator(model)
    for atoms in structures:
        atoms.calc = calculator
        found = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **found)
    return structures


def test_training_gives_files_and_errors(model, structures, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    frames, threads = labelled(model, structures), torch.get_num_threads()
    words = {"epochs": 1, "settings": SMALL, "valid": frames[:1]}
    report = train(frames[1:], ["Hf", "O"], tmp_path / "run", **words)
    assert torch.get_num_threads() == threads
    (trained,) = report.models
    assert trained.valid["energy"] > 0.0 and trained.train["force"] > 0.0
    assert [atoms.get_potential_energy() for atoms in frames[1:]] == pytest.approx(
        [a.get_potential_energy() for a in ase.io.read(tmp_path / "run" / "train.extxyz", ":")]
    )
    assert np.isfinite(evaluate(trained.file, frames)[0].energy)
    with pytest.raises(Failure, match="holds other structures; choose another folder"):
        train(frames, ["Hf", "O"], tmp_path / "run", **words)


def test_results_of_another_structure_are_no_labels(model, structures, tmp_path):
    calculator = Calculator(model)
    for atoms in structures:
        atoms.calc = calculator
        atoms.get_potential_energy()
    with pytest.raises(ValueError, match="structure 0: its calculator holds the results"):
        train(structures, ["Hf", "O"], tmp_path / "run", epochs=1)
