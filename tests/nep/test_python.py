"""A nep.txt where Python takes model files: Calculator, info, compare, the reference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import write
from typer.testing import CliRunner

from nep_files import HEADS, random_text
from nep_parser import parse_nep
from pwmlff import Calculator
from pwmlff.cli import app
from pwmlff.convert import convert
from pwmlff.evaluation import model_file, reference
from pwmlff.evaluation.nep_reference import evaluate_nep
from pwmlff.report import Failure
from pwmlff.train.nep import of_file
from systems import SYSTEMS


@pytest.fixture
def nep(tmp_path: Path) -> Path:
    (tmp_path / "nep.txt").write_bytes(random_text(HEADS["zbl"]))
    return tmp_path / "nep.txt"


def structure() -> Atoms:
    return SYSTEMS["two elements, triclinic"].atoms(3)


@pytest.mark.parametrize("precision, tolerance", [("double", 1e-11), ("mixed", 2e-5)])
def test_calculator(nep: Path, precision: str, tolerance: float):
    atoms, wanted = structure(), evaluate_nep(parse_nep(nep.read_bytes()), structure())
    atoms.calc = Calculator(str(nep), precision=precision)
    np.testing.assert_allclose(atoms.get_potential_energies(), wanted.atom_energy, atol=tolerance)
    np.testing.assert_allclose(atoms.get_forces(), wanted.forces, rtol=0, atol=tolerance)
    stress = -wanted.virial / atoms.get_volume()
    np.testing.assert_allclose(atoms.get_stress(voigt=False), stress, rtol=0, atol=tolerance)
    by_reference = reference.evaluate(nep, structure())
    np.testing.assert_array_equal(by_reference.forces, wanted.forces)


def test_commands(nep: Path, tmp_path: Path):
    write(tmp_path / "a.xyz", structure(), format="extxyz")

    def run(*words: object) -> dict:
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    (described,) = run("info", nep)["models"]
    assert (described["kind"], described["elements"]) == ("NEP", ["O", "Hf"])
    assert "fused" in described["engine"]
    cases = run("compare", nep, "--data", tmp_path / "a.xyz", "--np", "1,2")["cases"]
    assert {(c["engine"], c["precision"]) for c in cases} == {
        ("fused", "exact"), ("fused", "double"), ("fused", "mixed"),
    }  # fmt: skip
    assert all(case["ok"] for case in cases)


@pytest.mark.parametrize(
    "word, what",
    [
        ("nep4_vdw", "which has dispersion by charges of its own; run it with GPUMD"),
        ("nep5_charge3", "whose charges interact in real space alone; run it with NEP_CPU, or .*"),
    ],
)
def test_other_kinds(tmp_path: Path, word: str, what: str):
    """One text for all who meet such a file; that of lmp is compared in tests/lammps."""
    path = tmp_path / "charge.txt"
    path.write_bytes(random_text(HEADS["nep5"]).replace(b"nep5", word.encode()))
    text = (
        rf"charge\.txt',?( which)? is a NEP that is not evaluated here: line 1 says '{word}', "
        f"{what}$"
    )
    for opened in (
        lambda: Calculator(path),
        lambda: model_file.describe_unopened(path),
        lambda: of_file(path, []),
        lambda: convert(path, tmp_path / "a.txt"),
    ):
        with pytest.raises(Failure, match=text):
            opened()


def test_what_cannot_be(tmp_path: Path):
    (tmp_path / "warm.txt").write_bytes(random_text(HEADS["temperature"]))
    with pytest.raises(Failure, match="has the temperature as a descriptor"):
        Calculator(str(tmp_path / "warm.txt"))
    (tmp_path / "good.txt").write_bytes(random_text(HEADS["nep5"]))
    with pytest.raises(Failure, match="no TorchScript"):
        model_file.open_model(tmp_path / "good.txt")
    with pytest.raises(Failure, match="no TorchScript; use engine"):
        Calculator(str(tmp_path / "good.txt"), engine="torchscript")
