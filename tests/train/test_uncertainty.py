"""The deviation of an ensemble as a measure of error, on errors whose distribution is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from typer.testing import CliRunner

from labelled_structures import trajectory
from pwmlff import Calculator
from pwmlff.cli import app
from pwmlff.evaluation import many
from pwmlff.report import Failure
from pwmlff.train import train
from pwmlff.train.uncertainty import Bounds, bounded, calibrate
from systems import SYSTEMS

pytestmark = pytest.mark.usefixtures("undrawn")

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


def test_bounds_that_are_kept():
    """They hold for nine tenths of other structures, and grow beyond the last bin."""
    deviation, error, test = drawn()
    frame = np.sort(np.random.default_rng(4).integers(0, 50, (~test).sum()))
    found = bounded([], deviation[~test], error[~test], frame)
    assert 0.9 <= found.coverage(deviation[test], error[test]) <= 0.91
    last = found.edges[-1]
    assert found.limits(np.array([3.0 * last])) == pytest.approx(3.0 * found.bounds[-1])
    assert found.limits(np.array([0.0])) == pytest.approx(found.bounds[0])
    assert found.bounds == sorted(found.bounds)


def test_bounds_of_frames_that_differ():
    """As many atoms of few structures tell less: the bounds are farther out, by what that spreads.

    All errors of a structure have one factor; the spread of a quantile is that of other draws.
    """
    rng = np.random.default_rng(6)
    frame = np.repeat(np.arange(20), 500)

    def draw() -> tuple[np.ndarray, np.ndarray]:
        factor = rng.lognormal(0.0, 0.3, 20)[frame]
        return np.full(len(frame), 1.0) + 1e-9 * rng.random(len(frame)), factor * rng.random(
            len(frame)
        )

    plain, kept = [], []
    for _ in range(60):
        deviation, error = draw()
        plain.append(np.quantile(error, 0.9))
        kept.append(np.median(bounded([], deviation, error, frame).bounds))
    margin = np.mean(kept) - np.mean(plain)
    assert 0.6 < margin / np.std(plain) < 1.8


def test_one_model_keeps_bounds_of_gamma(tmp_path):
    """Those of pwmlff test too, which tells how well gamma finds large errors."""
    settings = ["model.embedding=[4]", "model.fitting=[4]", "model.m2=2", "model.rmax=5.0"]
    frames = trajectory(20, step=0.2)
    options = {"epochs": 2, "settings": settings}
    train(frames[:15], ["Ne", "Ar"], tmp_path / "run", valid=frames[15:], **options)
    model = tmp_path / "run" / "best.pt"
    found = Bounds.stored([model])
    assert found is not None and found.frames == 5
    assert "# gamma of an atom" in (tmp_path / "run" / "calibration.txt").read_text()
    write(tmp_path / "valid.xyz", frames[15:], format="extxyz")
    done = CliRunner().invoke(app, ["test", str(model), str(tmp_path / "valid.xyz"), "--json"])
    told = json.loads(done.stdout)
    calculator = Calculator(model, precision="exact")
    gamma = np.concatenate([calculator.get_property("gamma", atoms) for atoms in frames[15:]])
    labels = np.concatenate([atoms.get_forces() for atoms in frames[15:]])
    forces = np.concatenate([calculator.get_property("forces", atoms) for atoms in frames[15:]])
    error = np.linalg.norm(forces - labels, axis=1)
    numbers = np.concatenate([atoms.numbers for atoms in frames[15:]])
    rms = {z: np.sqrt(np.square(error[numbers == z]).mean()) for z in (10, 18)}
    assert found.errors == pytest.approx({"Ne": rms[10], "Ar": rms[18]}, rel=1e-6)
    size = gamma * [rms[z] for z in numbers]
    np.testing.assert_allclose(found.edges, np.quantile(size, np.linspace(0, 1, 9)), rtol=1e-6)
    place = np.clip(np.searchsorted(found.edges, size, side="right") - 1, 0, 7)
    below = error <= np.array(found.bounds)[place]
    assert told["stored_coverage"] == pytest.approx(below.mean(), abs=0.02)
    large = error > 3.0 * np.sqrt(np.square(error).mean())
    assert told["gamma"]["outliers"] == large.sum() and told["gamma"]["atoms"] == len(error)
    if large.any():
        taught = np.repeat([True, False, True, False, True], len(frames[0]))
        rms = {z: np.sqrt(np.square(error[taught & (numbers == z)]).mean()) for z in (10, 18)}
        size = gamma * [rms[z] for z in numbers]
        wins = [np.sign(g - size[~large]).mean() / 2 + 0.5 for g in size[large]]
        assert told["gamma"]["auc"] == pytest.approx(np.mean(wins))


def test_a_training_keeps_bounds(tmp_path, monkeypatch):
    """Of the frames that validate, for exactly its files; pwmlff test says what they are worth."""
    settings = ["model.embedding=[4]", "model.fitting=[4]", "model.m2=2", "model.rmax=5.0"]
    frames = trajectory(20, step=0.2)
    options = {"epochs": 2, "models": 2, "settings": settings}
    train(frames[:15], ["Ne", "Ar"], tmp_path / "run", valid=frames[15:], **options)
    models = [tmp_path / "run" / name for name in ("a.pt", "b.pt")]
    found = Bounds.stored(models)
    assert found is not None and found.frames == 5
    write(tmp_path / "valid.xyz", frames[15:], format="extxyz")

    def tested() -> dict:
        words = ["test", *map(str, models), str(tmp_path / "valid.xyz"), "--json"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    forces = [np.concatenate([r.forces for r in many.evaluate(m, frames[15:])]) for m in models]
    labels = np.concatenate([atoms.get_forces() for atoms in frames[15:]])
    deviation = np.sqrt(np.var(forces, axis=0).sum(axis=1))
    error = np.linalg.norm(np.mean(forces, axis=0) - labels, axis=1)
    place = np.clip(np.searchsorted(found.edges, deviation, side="right") - 1, 0, 7)
    below = error <= np.array(found.bounds)[place]
    assert tested()["stored_coverage"] == pytest.approx(below.mean(), abs=0.02)
    models[1].write_bytes(models[0].read_bytes())
    assert tested()["stored_coverage"] is None
    (tmp_path / "run" / "calibration.txt").write_text("# nothing\n")
    with pytest.raises(Failure, match="holds no calibration"):
        Bounds.stored(models)
