"""What new kinds and families of models take: a file of C++ and a line that makes it known."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.lj import LennardJones

from cpp import compiled
from pwmlff.commands.info import info
from pwmlff.evaluation import engine, model_file
from pwmlff.evaluation.calculator import Calculator
from pwmlff.report import Failure

CUTOFF, EPSILON, SIGMA = 6.0, 0.0104, 3.4


class Argon(torch.nn.Module):
    """A file that holds numbers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.model_type, self.atom_type = "LJ", [18]
        self.cutoff, self.epsilon, self.sigma = CUTOFF, EPSILON, SIGMA

    def forward(self) -> int:
        return 0


def argon() -> Atoms:
    atoms = bulk("Ar", cubic=True).repeat(2)
    atoms.rattle(0.1, seed=1)
    atoms.set_cell(atoms.cell.array + np.diag([0.1, 0.2, 0.0], 0) + 0.3 * np.eye(3, k=1))
    return atoms


def test_family(tmp_path: Path):
    """A text that no family here reads, until the one of tests/kernels/lennard_jones is known."""
    path, atoms = tmp_path / "argon.lj", argon()
    path.write_text(f"lennard-jones {EPSILON} {SIGMA} {CUTOFF} 18\n")
    with pytest.raises(Failure, match="is not a TorchScript archive"):
        Calculator(path)
    ctypes.CDLL(str(compiled("models/lennard_jones_family.cpp", tmp_path, "-shared", "-fPIC")))
    atoms.calc = Calculator(path)
    assert atoms.calc.engine == "fused"
    (described,) = info([path]).files
    assert (described.model.kind, described.model.elements) == ("LJ", ["Ar"])
    assert described.engine.startswith("fused, precision double")
    check(atoms)
    path.write_text("lennard-jones 1 1 0\n")
    with pytest.raises(Failure, match="expected 'lennard-jones EPSILON"):
        Calculator(path)


def test_lennard_jones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "argon.pt"
    torch.jit.script(Argon()).save(path)
    atoms = argon()
    with pytest.raises(Failure, match="model_type 'LJ', expected DP or EDGE"):
        Calculator(path)
    monkeypatch.setitem(model_file.LIMITS, "LJ", ("cutoff", None))
    with pytest.raises(Failure, match="but pwmlff runs DP and EDGE"):
        Calculator(path)
    torch.ops.load_library(compiled("models/lennard_jones.cpp", tmp_path, "-shared", "-fPIC"))
    atoms.calc = Calculator(path)
    assert atoms.calc.engine == "plain"
    check(atoms)


def check(atoms: Atoms) -> None:
    """Against ase."""
    found = [atoms.get_potential_energies(), atoms.get_forces(), atoms.get_stress()]
    atoms.calc = LennardJones(sigma=SIGMA, epsilon=EPSILON, rc=CUTOFF)
    # That one is shifted to zero at the cutoff.
    edge = 2 * EPSILON * ((SIGMA / CUTOFF) ** 12 - (SIGMA / CUTOFF) ** 6)
    rows = engine.AtomsAndGhosts.find(atoms, [18], CUTOFF)
    expected = atoms.get_potential_energies() + edge * np.diff(rows.first)
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)
    np.testing.assert_allclose(found[1], atoms.get_forces(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(found[2], atoms.get_stress(), rtol=0, atol=1e-14)
