"""gamma of a model that was trained: how far an atom is from the data."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from ase.io import read

from harness import ON_DEVICE
from labelled_structures import trajectory
from pwmlff import Calculator
from pwmlff.evaluation.model_file import open_model
from pwmlff.train import train
from pwmlff.train.extrapolation import FLOOR, QUANTILE, grade
from systems import SYSTEMS, gamma_alone, grade_alone, graded, save

pytestmark = pytest.mark.usefixtures("undrawn")

SETTINGS = ["model.embedding=[6,6]", "model.fitting=[8]", "model.m2=2", "model.rmax=5.0",
            "model.max_neighbor=70", "run.validate_every=1", "data.valid_fraction=0.2"]  # fmt: skip


@pytest.mark.parametrize("n", [1, 7])
def test_each_left_out(n: int):
    """The quantile is of distances from the mean and covariance of all others, one by one."""
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(60, n)) @ rng.normal(size=(n, n)) + rng.normal(size=n)
    mean, factor = grade(rows)
    np.testing.assert_allclose(mean, rows.mean(axis=0))
    distances = []
    for k, row in enumerate(rows):
        others = np.delete(rows, k, axis=0)
        away = row - others.mean(axis=0)
        inverse = np.linalg.inv(np.cov(others, rowvar=False).reshape(n, n))
        distances.append(np.sqrt(away @ inverse @ away))
    reach = np.quantile(distances, QUANTILE)
    inverse = np.linalg.inv(np.cov(rows, rowvar=False).reshape(n, n))
    for point in rng.normal(size=(5, n)):
        wanted = np.sqrt((point - mean) @ inverse @ (point - mean)) / reach
        assert np.linalg.norm(factor @ (point - mean)) == pytest.approx(wanted, rel=1e-9)


def test_what_does_not_vary():
    """A direction without variance counts as FLOOR of the largest; no number at all, as zero."""
    rows = np.random.default_rng(0).normal(size=(50, 3)) * (1.0, 0.5, 0.0)
    mean, factor = grade(rows)
    widest = np.linalg.eigh(np.cov(rows, rowvar=False))[1][:, -1]
    nothing = np.linalg.norm(factor @ (0.0, 0.0, 1.0)) / np.linalg.norm(factor @ widest)
    assert nothing == pytest.approx(1.0 / np.sqrt(FLOOR), rel=1e-6)
    mean, factor = grade(np.ones((20, 2)))
    assert np.isfinite(factor).all() and np.linalg.norm(factor @ (np.ones(2) - mean)) == 0.0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["two elements, triclinic", "three elements, triclinic"])
def test_of_what_is_near(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, device: str):
    """By NumPy: the root mean square of an atom and those near."""
    for key, value in ON_DEVICE.items():
        monkeypatch.setenv(key, value)
    model, atoms = graded(SYSTEMS[name].model(), 5), SYSTEMS[name].atoms()
    save(model, tmp_path / "a.pt")
    wanted = gamma_alone(model, atoms)
    assert np.abs(wanted / grade_alone(model, atoms) - 1.0).max() > 0.01
    calculator = Calculator(tmp_path / "a.pt", precision="exact", device=device)
    np.testing.assert_allclose(calculator.get_property("gamma", atoms), wanted, rtol=1e-10)


def test_a_training(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Files have it, by which few atoms of the data are beyond 1, and those of others many."""
    frames = trajectory(30, step=0.05)
    train(frames, ["Ne", "Ar"], tmp_path / "run", epochs=3, settings=SETTINGS)
    path = tmp_path / "run" / "best.pt"
    info = open_model(path)[1]
    assert info.card and set(info.card["closest"]) == {"Ne-Ne", "Ne-Ar", "Ar-Ar"}
    for name in ("best.pt", "last.pt"):
        calculator = Calculator(tmp_path / "run" / name)
        learned = read(tmp_path / "run" / "train.extxyz", index=":")
        gamma = np.concatenate([calculator.get_property("gamma", atoms) for atoms in learned])
        assert gamma.min() > 0.0 and (gamma > 1.0).mean() < 0.02 and gamma.max() < 3.0
    far = frames[0].copy()
    far.set_cell(0.8 * np.asarray(far.cell), True)
    assert calculator.get_property("gamma", far).min() > 2.0
    # Parameters are those that were trained: the same with the file's own code.
    own = Calculator(path, engine="torchscript")
    assert "gamma" not in own.implemented_properties
    forces = [one.get_property("forces", learned[0]) for one in (Calculator(path), own)]
    np.testing.assert_allclose(*forces, rtol=0, atol=1e-6)
    # A fine-tuning has that of its own data.
    finetune = [*SETTINGS[4:], f"model.finetune={path}"]
    train(trajectory(12, step=0.2), (), tmp_path / "more", epochs=1, settings=finetune)
    assert Calculator(tmp_path / "more" / "best.pt").get_property("gamma", frames[0]).min() > 0.0
    with caplog.at_level(logging.INFO):
        train(frames[:1], ["Ne", "Ar"], tmp_path / "few", epochs=1, settings=SETTINGS[:-1])
    assert "tells no extrapolation grade: Ne has" in caplog.text
    few = Calculator(tmp_path / "few" / "best.pt")
    assert "gamma" not in few.implemented_properties
