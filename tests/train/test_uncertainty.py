"""The deviation of an ensemble as a measure of error, on errors whose distribution is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from typer.testing import CliRunner

from pwmlff.cli import app
from pwmlff.train.uncertainty import calibrate
from systems import SYSTEMS

BINARY = SYSTEMS["two elements, triclinic"]


def drawn(n: int = 200_000, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Deviations, errors whose widths they are, and which of them test."""
    rng = np.random.default_rng(seed)
    deviation = rng.lognormal(0.0, 0.8, n)
    error = deviation * np.linalg.norm(rng.standard_normal((n, 3)), axis=1)
    return deviation, error, rng.random(n) < 0.5


def test_coverage():
    found = calibrate(*drawn())
    assert found.coverage == pytest.approx(0.9, abs=0.005)
    rmse = [b.rmse for b in found.bins]
    assert rmse == sorted(rmse)
    assert sum(b.atoms for b in found.bins) == found.atoms == 200_000


def test_errors_that_have_nothing_to_do_with_it():
    deviation, error, test = drawn()
    found = calibrate(np.random.default_rng(2).permutation(deviation), error, test)
    assert found.auc == pytest.approx(0.5, abs=0.02)
    assert found.coverage == pytest.approx(0.9, abs=0.005)


def test_wider_errors_than_were_taught():
    """Structures of another kind are not covered, and that is seen."""
    deviation, error, test = drawn()
    found = calibrate(deviation, np.where(test, 2 * error, error), test)
    assert found.coverage < 0.7


def test_area_under_the_curve():
    """Against all pairs, one by one."""
    deviation, error, test = drawn(2000)
    found = calibrate(deviation, error, test)
    outlier = error > 3 * np.sqrt(np.mean(error**2))
    assert found.outliers == outlier.sum() > 0
    pairs = deviation[outlier][:, None] - deviation[~outlier]
    assert found.auc == pytest.approx((pairs > 0).mean() + (pairs == 0).mean() / 2, abs=1e-12)


def test_one_structure(tmp_path):
    """Nothing is left to test with; the command says what it has."""
    names = []
    for seed in range(2):
        names.append(str(tmp_path / f"{seed}.pt"))
        BINARY.model(seed=seed, isotropic=True).save(names[-1])
    atoms = BINARY.atoms()
    atoms.calc = SinglePointCalculator(atoms, energy=0.0, forces=np.ones((len(atoms), 3)))
    data = str(tmp_path / "one.xyz")
    write(data, atoms, format="extxyz")
    done = CliRunner().invoke(app, ["test", *names, "--data", data, "--json"])
    found = json.loads(done.stdout)["calibration"]
    assert found["coverage"] is None and found["atoms"] == len(atoms)
    done = CliRunner().invoke(app, ["test", names[0], "--data", data, "--json"])
    assert json.loads(done.stdout)["calibration"] is None
