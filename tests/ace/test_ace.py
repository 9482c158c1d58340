"""ACE where Python takes model files: numbers of other programs, Calculator, commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from ase import Atoms
from ase.io import write
from typer.testing import CliRunner

from ace_files import FORMS, NAMES, genuine, random_text
from nep_files import random_structure
from pwmlff import Calculator
from pwmlff.cli import app
from pwmlff.evaluation import reference
from pwmlff.report import Failure

#: eV/atom and eV/angstrom, as shares of the largest value and of 1. Terms of Cu-PBE-core-rep cancel
#: by five digits, those of the others do not.
GATES = {"Cu-PBE-core-rep": (1e-10, 3e-10)}
GATE = (1e-12, 1e-10)


def largest(values: np.ndarray) -> float:
    return max(1.0, float(abs(values).max()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "engine, precision", [("fused", "double"), ("fused", "mixed"), ("reference", "double")]
)
def test_numbers_of_other_programs(name: str, engine: str, precision: str):
    path, frames = genuine(name)
    calculator = Calculator(path, engine=engine, precision=precision)
    energy_gate, force_gate = GATES.get(name, GATE) if precision == "double" else (1e-6, 1e-6)
    for atoms, energies, wanted in frames:
        atoms.calc = calculator
        assert abs(atoms.get_potential_energies() - energies).max() < energy_gate * largest(
            energies
        )
        assert abs(atoms.get_forces() - wanted).max() < force_gate * largest(wanted)


def structure() -> Atoms:
    """Small and triclinic: atoms have several images of each other within the cutoff."""
    return random_structure([8, 72])


@pytest.fixture(params=FORMS)
def ace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "a.yace").write_text(random_text(**FORMS[request.param]))
    return tmp_path / "a.yace"


@pytest.mark.parametrize(
    "precision, tolerance", [("double", 1e-11), ("exact", 1e-11), ("mixed", 1e-5)]
)
def test_calculator(ace: Path, precision: str, tolerance: float):
    """Energies, forces and stress by PyTorch's derivatives, on several threads."""
    wanted = reference.evaluate(ace, structure())
    assert abs(wanted.forces).max() > 1e-2
    for nthreads in (1, 3):
        atoms = structure()
        atoms.calc = Calculator(ace, engine="fused", precision=precision, nthreads=nthreads)
        gate = tolerance * largest(wanted.forces)
        np.testing.assert_allclose(
            atoms.get_potential_energies(), wanted.atom_energy, rtol=0, atol=gate
        )
        np.testing.assert_allclose(atoms.get_forces(), wanted.forces, rtol=0, atol=gate)
        stress = -wanted.virial / atoms.get_volume()
        np.testing.assert_allclose(atoms.get_stress(voigt=False), stress, rtol=0, atol=gate)


def test_some_elements(ace: Path):
    """Energies are those that all elements give."""
    atoms = structure()
    atoms.numbers[:] = 72
    wanted = reference.evaluate(ace, atoms)
    atoms.calc = Calculator(ace, engine="fused", elements=[72])
    np.testing.assert_allclose(atoms.get_potential_energies(), wanted.atom_energy, atol=1e-11)
    np.testing.assert_allclose(atoms.get_forces(), wanted.forces, atol=1e-10)


@pytest.mark.parametrize(
    "form, vectors", [("distance, ChebPow", 1), ("distance, ChebPow", 2), ("GRACE/FS", 1)]
)
def test_grade(tmp_path: Path, form: str, vectors: int):
    """Energies change by coefficients as B functions, times the slopes of the embedding."""
    options, path = {**FORMS[form], "vectors": vectors}, tmp_path / "a.yace"
    atoms = structure()

    def energies(change: tuple[int, int, int, float]) -> np.ndarray:
        text = random_text(**options, change=change)
        if vectors == 1:  # F = rho_1 + rho_2, so that slopes are 1
            text = text.replace("[1, 1, 1, 0.5]", "[1, 1, 1, 1]")
        path.write_text(text)
        return reference.evaluate(path, atoms).atom_energy

    path.write_text(random_text(**options))
    inverse = yaml.safe_load(path.read_text().partition("active_set:")[2])
    wanted = np.empty(len(atoms))
    for a, z in enumerate((8, 72)):
        count, step = len(inverse[a]) // vectors, 1e-4
        v = np.array(
            [
                (energies((a, f, p, step)) - energies((a, f, p, -step))) / (2 * step)
                for p in range(vectors)
                for f in range(count)
            ]
        )
        of = atoms.numbers == z
        wanted[of] = abs(np.asarray(inverse[a]).T @ v)[:, of].max(axis=0)
    path.write_text(random_text(**options))
    if form == "GRACE/FS":
        wanted /= 1.5  # by which the file scales energies, but not B functions
    assert wanted.min() > 1e-3
    for precision, tolerance in {"double": 1e-5, "mixed": 1e-4}.items():
        gamma = Calculator(path, precision=precision, nthreads=2).get_property("gamma", atoms)
        np.testing.assert_allclose(gamma, wanted, rtol=tolerance)
    atoms.numbers[:] = 72
    of_all, of_one = (
        Calculator(path, **which).get_property("gamma", atoms) for which in ({}, {"elements": [72]})
    )
    np.testing.assert_allclose(of_one, of_all, rtol=1e-9)


@pytest.mark.parametrize(
    "found, put, words",
    [
        ("active_set:\n  0: [[", "active_set:\n  0: [[1, ", "an active set of element O of 145"),
        ("\n  1: [[", "\n  2: [[", "active sets of 3 elements"),
        (", gen_cgs: [1]}", "}", "gen_cgs of element O"),
        (", gen_cgs: [1]}", ", gen_cgs: [1, 2]}", "as many as its rank"),
    ],
)
def test_damaged_active_set(tmp_path: Path, found: str, put: str, words: str):
    text = random_text(vectors=1)
    assert found in text
    (tmp_path / "a.yace").write_text(text.replace(found, put, 1))
    with pytest.raises(Failure, match=words):
        Calculator(tmp_path / "a.yace")


def test_commands(ace: Path, tmp_path: Path):
    write(tmp_path / "a.xyz", structure(), format="extxyz")

    def run(*words: object) -> dict:
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    (described,) = run("info", ace)["models"]
    assert (described["kind"], described["elements"]) == ("ACE", ["O", "Hf"])
    assert "fused" in described["engine"]
    cases = run("compare", ace, "--data", tmp_path / "a.xyz", "--np", "1,2")["cases"]
    assert {(c["engine"], c["precision"]) for c in cases} == {
        ("fused", precision) for precision in ("exact", "double", "mixed")
    }


def test_refusal(tmp_path: Path):
    text = random_text()
    (tmp_path / "a.yace").write_text(text.replace("ChebExpCos", "ACE.jl.Basic", 1))
    with pytest.raises(Failure, match=r"a\.yace' is an ACE that is not evaluated here.*ACE\.jl"):
        Calculator(tmp_path / "a.yace")
    (tmp_path / "b.yace").write_text(text.replace("rcut:", "rcu:", 1))
    with pytest.raises(Failure, match="in line 8 found a bond without 'rcut', expected it there"):
        Calculator(tmp_path / "b.yace")
