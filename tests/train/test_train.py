"""Training: steps that are the same on any number of ranks, that go on to the bit, and learn.

PWMLFF_KILLS=20 kills trainings more often.
"""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read, write
from ase.neighborlist import neighbor_list
from matplotlib.figure import Figure
from rich.console import Console
from typer.testing import CliRunner

import dp_oracle
from harness import PROGRAMS, forked, python, thorough
from labelled_structures import labelled, movement, trajectory
from pwmlff import Calculator, files
from pwmlff.cli import app
from pwmlff.data import cache, readers
from pwmlff.data.frames import QUANTITIES
from pwmlff.evaluation import reference
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.model_file import describe_unopened
from pwmlff.models import pad_neighbors
from pwmlff.report import Failure
from pwmlff.train import (
    charts,
    checkpoint,
    comm,
    command,
    config,
    loop,
    potential,
    prepare,
    record,
    start,
    train,
)
from pwmlff.train.learner import Learner, schedule_of
from pwmlff.train.loss import LossWeights, slopes
from pwmlff.train.muon import DECAY
from pwmlff.train.prepare import Dataset
from systems import SYSTEMS, System
from thread_ranks import on_ranks

SMALL = (
    "model.rmax=4.0",
    "model.rmin=1.5",
    "model.embedding=[6, 12]",
    "model.fitting=[10, 10]",
    "model.m2=4",
    "run.batch=3",
    "run.threads=1",
    "data.cache=none",
)
ELEMENTS = "Ne Ar"
KILLS = int(os.environ.get("PWMLFF_KILLS", "1"))
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames of 32 atoms with energies, forces and stresses."""
    path = tmp_path_factory.mktemp("data") / "frames.xyz"
    frames = [atoms for seed in range(5) for atoms in trajectory(2, seed=seed)]
    write(path, [labelled(atoms) for atoms in frames], format="extxyz")
    return path


def configured(data: Path, folder: Path, *settings: str) -> config.Config:
    return config.from_command(
        data=[data], elements=ELEMENTS, output=folder, settings=[*SMALL, *settings]
    )


def training(
    asked: config.Config, ranks: comm.Communicator, folder: Path, frames, edges, threads: int = 1
) -> loop.Trainer:
    model = potential.new(asked, frames, edges, asked.model.seed)
    trained = potential.Potential(model, frames, edges, 32, asked.run.precision, threads, ranks)
    learner = Learner(trained, asked, ranks)
    return loop.Trainer(asked, learner, None, ranks, folder, lambda *_: None)


@pytest.mark.parametrize("name", ["muon", "adam"])
def test_ranks_threads_and_pauses_change_no_bit(name: str, data: Path, tmp_path: Path) -> None:
    """2 + 2 steps on 1 to 4 ranks, and with 2 threads, against 4 on one."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)

    def steps(ranks: comm.Communicator, folder: Path, n: int, resume: bool, threads: int = 1):
        words = ["run.epochs=100", f"optimizer.name={name}", "optimizer.noise=0.1"]
        asked = configured(data, folder, *words)
        one = training(asked, ranks, folder, frames, edges, threads)
        assert one.resume() is resume
        for _ in range(n):
            one.step()
        one.save()
        return one.learner.parameters, one.learner.averaged()

    whole = steps(comm.Serial(), tmp_path / "whole", 4, False)
    assert not np.array_equal(*whole)  # the second is the average of the path

    def same(found) -> None:
        for one, other in zip(found, whole, strict=True):
            assert np.array_equal(one, other)

    for size in (2, 4):
        folder = tmp_path / str(size)
        on_ranks(size, lambda rank, folder=folder: steps(rank, folder, 2, False))
        # On another number of ranks than before.
        after = on_ranks(
            size + 1 if size == 2 else 1, lambda rank, folder=folder: steps(rank, folder, 2, True)
        )
        for found in after:
            same(found)
    same(steps(comm.Serial(), tmp_path / "threads", 4, False, threads=2))


def strained_copper(seed: int) -> list[Atoms]:
    """Of ase's effective medium potential."""
    rng, frames = np.random.default_rng(seed), []
    for _ in range(12):
        atoms = bulk("Cu", cubic=True).repeat((2, 2, 1))
        change = rng.normal(0.0, 0.02, (3, 3))
        atoms.set_cell(atoms.cell @ (np.eye(3) + (change + change.T) / 2.0), scale_atoms=True)
        atoms.positions += rng.normal(0.0, 0.08, atoms.positions.shape)
        atoms.calc = EMT()
        frames.append(atoms)
    return frames


@pytest.fixture(scope="module")
def movement_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strained copper, with 8 eV per atom beside its stress."""
    path = tmp_path_factory.mktemp("movement") / "MOVEMENT"
    path.write_text("".join(movement(atoms, constant=8.0) for atoms in strained_copper(0)))
    return path


@pytest.mark.parametrize("mode", ["auto", "fit", "leave-out", "none"])
def test_wrong_virials_are_not_learned_from(
    mode: str, movement_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In any format: all of a file by their forces, some frames by their pressure."""
    whole, some = tmp_path / "whole.xyz", tmp_path / "some.xyz"
    structures = [readers.read(movement_file).atoms(k) for k in range(12)]
    for path, factors in ((whole, [-1602.0] * 12), (some, [1.0] * 3 + [1e6] + [1.0] * 8)):
        for atoms, factor in zip(structures, factors, strict=True):
            atoms.calc = EMT()
            stress, forces = factor * atoms.get_stress(), atoms.get_forces()
            energy = atoms.get_potential_energy()
            atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces, stress=stress)
        write(path, structures)
    settings = [*SMALL, f"data.virial_offset={mode}", "data.valid_fraction=0.25"]
    for path, wrong in ((whole, range(12)), (some, [3])):
        asked = config.from_command(data=[path], elements="Cu", output=tmp_path, settings=settings)
        caplog.clear()
        _, learner, valid, _ = prepare.learner(asked, comm.Serial())
        assert ("wrong and left out" in caplog.text) is (mode != "none")
        for frames in (learner.frames, valid.frames):
            missing = frames.index[np.isnan(frames.virials).all(axis=(1, 2))].tolist()
            assert missing == ([k for k in frames.index if k in wrong] if mode != "none" else [])


@pytest.mark.parametrize("mode", ["auto", "none", "fit", "leave-out"])
def test_a_constant_beside_the_stress_is_taken_off(
    mode: str, movement_file: Path, tmp_path: Path
) -> None:
    """The virials that are learned from are EMT's, on all ranks, also after a pause."""
    truth = readers.read(movement_file).virials + 8.0 * 16 * np.eye(3)
    settings = ["run.epochs=100", f"data.virial_offset={mode}", "data.valid_fraction=0.25"]
    asked = config.from_command(
        data=[movement_file], elements="Cu", output=tmp_path, settings=[*SMALL, *settings]
    )

    def learned(ranks: comm.Communicator, folder: Path, n: int, resume: bool = False):
        _, learner, valid, offsets = prepare.learner(asked, ranks)
        one = loop.Trainer(asked, learner, valid, ranks, folder, lambda *_: None, offsets=offsets)
        assert one.resume() is resume
        for _ in range(n):
            one.step()
            one.validate(None, None)
        one.save()
        return learner.parameters, dict(offsets.values), learner.frames, valid.frames

    parameters, values, *parts = learned(comm.Serial(), tmp_path / "whole", 4)
    for frames in parts:
        expected = truth[frames.index]
        if mode == "leave-out":
            assert np.isnan(frames.virials).all()
        elif mode == "none":
            np.testing.assert_allclose(frames.virials, expected - 8.0 * 16 * np.eye(3), atol=1e-9)
        else:
            off = (frames.virials - expected) / 16
            assert np.abs(off).max() < 1.0  # as far as a model of four steps can tell
            np.testing.assert_allclose(off, off[0, 0, 0] * np.eye(3)[None].repeat(len(off), 0))
            assert off[0, 0, 0] == pytest.approx(-8.0 - values[str(movement_file)])
    assert len(values) == (mode in ("auto", "fit"))
    if mode == "auto":
        for size in (2, 1):
            folder = tmp_path / str(size)
            on_ranks(size, lambda rank, folder=folder: learned(rank, folder, 2))
            for after in on_ranks(2, lambda rank, folder=folder: learned(rank, folder, 2, True)):
                assert np.array_equal(after[0], parameters) and after[1] == values


@pytest.mark.parametrize("kind", ["dp", "nep"])
def test_the_constant_is_not_in_a_test(kind: str, movement_file: Path, tmp_path: Path) -> None:
    """Of files with it, which the card of the model tells of; virials are compared with EMT's."""
    words = SMALL if kind == "dp" else ["nep.cutoff=[4,4]", "nep.neuron=5", "data.cache=none"]
    settings = [*words, f"model.kind={kind}", "run.epochs=3"]
    asked = config.from_command(
        data=[movement_file], elements="Cu", output=tmp_path / "run", settings=settings
    )
    (tmp_path / "run.toml").write_text(asked.as_toml())
    report = command.train(tmp_path / "run.toml", {}, command.Options(communication="serial"))
    model, other = Path(report.models[0].file), strained_copper(1)
    (tmp_path / "with").write_text("".join(movement(atoms, constant=8.0) for atoms in other))
    (tmp_path / "without").write_text("".join(map(movement, other)))
    write(tmp_path / "other.xyz", other, format="extxyz")
    engine = choose(model, precision="exact").engine
    truth = [-atoms.get_stress(voigt=False) * atoms.get_volume() for atoms in other]
    errors = [engine(a).virial - one for a, one in zip(other, truth, strict=True)]
    for name in (str(movement_file), "with", "without", "other.xyz"):
        path = str(tmp_path / name)
        done = CliRunner().invoke(app, ["test", str(model), path, "--json"])
        found = json.loads(done.stdout)
        values = found["virial_offsets"]
        assert len(values) == ("MOVEMENT" in name or name == "with")
        value = values.get(path, -8.0)
        assert value == pytest.approx(-8.0, abs=1.0)  # as far as a model of few steps can tell
        if "MOVEMENT" in name:
            continue
        off = np.array(errors) / 16 + (value + 8.0) * np.eye(3) * (name == "with")
        rmse = 1000 * np.sqrt((off**2).mean())
        assert found["errors"]["virial"]["rmse"] == pytest.approx(rmse, rel=1e-3)
    shown = CliRunner().invoke(app, ["test", str(model), str(tmp_path / "with")]).stdout
    words = "eV per atom on the diagonal, which the training of the model took off"
    assert words in " ".join(shown.split())


def test_the_constant_is_learned_along(movement_file: Path, tmp_path: Path) -> None:
    """From a wrong start, energies and forces of a model bring it to what EMT's stress has."""
    asked = config.from_command(
        data=[movement_file],
        elements="Cu",
        output=tmp_path,
        settings=[*SMALL, "run.epochs=160", "loss.energy=[50, 50]", "data.valid_fraction=0",
                  "optimizer.learning_rate=0.01", "optimizer.ema=0"],
    )  # fmt: skip
    _, learner, valid, offsets = prepare.learner(asked, comm.Serial())
    (source,) = offsets.values
    offsets.put({source: -6.5})
    one = loop.Trainer(
        asked, learner, valid, comm.Serial(), tmp_path, lambda *_: None, offsets=offsets
    )
    one.run(None, None)
    assert offsets.values[source] == pytest.approx(-8.0, abs=0.15)


def test_a_checkpoint_of_the_kalman_filter_is_refused(data: Path, tmp_path: Path) -> None:
    """What earlier releases wrote: a few numbers of the filter, and blocks of its covariance."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    one = training(configured(data, tmp_path), comm.Serial(), tmp_path, frames, edges)
    state = {"forgetting": np.array(0.98), "p.0": np.ones(6), "updates": np.array(3)}
    arrays = {f"optimizer/{name}": array for name, array in state.items()}
    checkpoint.save(tmp_path, 3, arrays | {"parameters": one.learner.parameters}, one._meta())
    found = r"with the Kalman filter.*expected one with muon or adam: .*best\.pt with --finetune"
    with pytest.raises(Failure, match=found):
        one.resume()


def test_gradient_of_a_batch(data: Path, tmp_path: Path) -> None:
    """The loss as [loss] describes it, by its own words, and its slope by central differences."""
    settings = ("loss.energy=[3, 3]", "loss.force=[2, 2]", "loss.virial=[5, 5]",
                "loss.huber=0.05", "run.epochs=1", "run.precision=float64")  # fmt: skip
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    forces = frames.forces.copy()
    forces[frames.first[4] : frames.first[5]] = np.nan
    energies, virials = frames.energies.copy(), frames.virials.copy()
    energies[5], virials[6] = np.nan, np.nan
    labels = {"forces": forces, "energies": energies, "virials": virials}
    frames = replace(frames, **labels)
    asked = configured(data, tmp_path, *settings)
    one = training(asked, comm.Serial(), tmp_path, frames, edges).learner
    batch = np.array([4, 5, 6, 0])
    weight = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 0.25, 1.0, 1.0, 1.0])
    weights = LossWeights.scheduled(asked.loss, schedule_of(asked), 0.5)
    every = np.arange(10)
    known = {"energy": every != 5, "force": every != 4, "virial": every != 6}

    def huber(error: np.ndarray) -> np.ndarray:
        size = np.abs(error)
        return np.where(size < 0.05, size**2, 0.05 * (2 * size - 0.05))

    def loss(parameters: np.ndarray) -> float:
        core = one.model.core
        core.prepare(parameters)
        energy, force, virial = core.evaluate(np.arange(len(frames)))
        total, sums, means = {}, {}, dict.fromkeys(known, 0.0)
        for k in batch:
            n, rows = frames.natoms[k], slice(frames.first[k], frames.first[k + 1])
            terms = {
                "energy": huber((energy[k] - frames.energies[k]) / n),
                "force": huber(force[rows] - frames.forces[rows]).mean(),
                "virial": huber((virial[k] - frames.virials[k]) / n).mean(),
            }
            for name, value in terms.items():
                if np.isfinite(value):
                    total[name] = total.get(name, 0.0) + weight[k]
                    sums[name] = sums.get(name, 0.0) + weight[k] * value
                    means[name] += weight[known[name]].mean()
        return sum(
            getattr(weights, name) * sums[name] / max(total[name], means[name]) for name in sums
        )

    start = one.parameters.copy()
    found = slopes(frames, batch, slice(4), one.model.evaluate(batch), weights, weight)
    gradient = one.model.pullback(found.a, found.v, found.w)
    assert found.loss.sum() == pytest.approx(loss(start), rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(4):
        direction = rng.normal(size=len(start))
        expected = (loss(start + 1e-6 * direction) - loss(start - 1e-6 * direction)) / 2e-6
        assert gradient @ direction == pytest.approx(
            expected, abs=1e-7 * np.linalg.norm(gradient) * np.linalg.norm(direction)
        )


def test_what_is_told_is_of_the_nets(data: Path, tmp_path: Path) -> None:
    """Predictions against the float64 reference of the file, whatever the splines are."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    asked = configured(data, tmp_path, "run.epochs=1")
    one = training(asked, comm.Serial(), tmp_path, frames, edges).learner
    energy, forces, virial = one.predict(frames, edges)
    one.save(tmp_path / "model.pt", None)
    module = torch.jit.load(str(tmp_path / "model.pt"))
    for k in (0, 7):
        expected = reference.evaluate(module, frames.atoms(k), [10, 18])
        rows = slice(frames.first[k], frames.first[k + 1])
        assert energy[k] == pytest.approx(expected.energy, abs=1e-10)
        assert forces[rows] == pytest.approx(expected.forces, abs=1e-10)
        assert virial[k] == pytest.approx(expected.virial, abs=1e-9)
    # Too few nodes are told by what the nets give.
    core, steep = one.model.core, 8.0 * one.averaged()
    forces = one.model.predict(steep, frames, edges)[1]
    for nodes, wanted in ((8, 16), (512, 512)):
        core.set_nodes(nodes)
        assert one.model.nodes_for(steep, np.arange(len(frames)), forces) == wanted


def test_weights_of_the_loss_follow_the_falling_rate(data: Path, tmp_path: Path) -> None:
    asked = configured(data, tmp_path, "run.epochs=1", "loss.energy=[1, 100]",
                       "optimizer.warmup=0.1", "optimizer.decay=0.5")  # fmt: skip
    schedule = schedule_of(asked)
    found = [
        LossWeights.scheduled(asked.loss, schedule, done).energy
        for done in (0, 0.05, 0.1, 0.5, 0.75, 0.96, 1)
    ]
    assert found[:4] == [1.0] * 4
    # The rate ends at 0.005 of the largest, so the weight is 0.995^12 of the way there.
    assert found[4:] == pytest.approx([1.0228, 35.27, 94.22], rel=1e-3)


def test_the_decay_of_weights_is_that_of_an_epoch(data: Path, tmp_path: Path) -> None:
    """So that few frames are not forgotten faster than many; none for what others have learned."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)

    def decay(*settings: str, **model: str) -> float:
        asked = configured(data, tmp_path, "run.epochs=1", *settings)
        asked = replace(asked, model=replace(asked.model, **model))
        one = training(asked, comm.Serial(), tmp_path, frames, edges)
        return one.learner.config.optimizer.weight_decay

    for batch in (1, 4, 5):
        assert decay(f"run.batch={batch}") == DECAY / np.ceil(len(frames) / batch)
    assert decay("optimizer.weight_decay=0") == 0.0 and decay("optimizer.weight_decay=0.2") == 0.2
    assert decay("optimizer.name=adam") == decay(finetune="a.pt") == 0.0


def test_noise_is_in_the_gradient_alone(data: Path, tmp_path: Path, monkeypatch) -> None:
    """Of its size in each matrix that learns, nowhere else, and gone after the step."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    words = ["run.epochs=1", "optimizer.noise=0.2", "optimizer.warmup=0", "optimizer.decay=0"]
    asked = configured(data, tmp_path, *words, "model.freeze=['embedding']")
    learner = training(asked, comm.Serial(), tmp_path, frames, edges).learner
    model, seen = learner.model, []
    evaluate = model.evaluate

    def spied(batch: np.ndarray):
        seen.append(model.parameters.copy())
        return evaluate(batch)

    monkeypatch.setattr(model, "evaluate", spied)
    before = model.parameters.copy()
    for _ in range(2):
        model.parameters[:] = before
        learner.step(np.arange(2), 0.5)
        assert np.abs(model.parameters - before).max() < 3.0 * learner.learning_rate
    arrays = model.shapes, *map(model.parts, (before, learner.free, *seen))
    sizes = []
    for shape, own, free, *noisy in zip(*arrays, strict=True):
        first, second = (values - own for values in noisy)
        if len(shape) == 2 and free.all():
            sizes += [np.sqrt(np.mean(np.square(x)) / np.mean(np.square(own))) for x in noisy - own]
            assert np.abs(first - second).max() > 0.0
        else:
            assert not first.any() and not second.any()
    assert len(sizes) > 2 and np.mean(sizes) == pytest.approx(0.2, rel=0.1)


def test_frozen_parameters_stay(data: Path, tmp_path: Path) -> None:
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    for name in ("muon", "adam"):
        asked = configured(
            data, tmp_path, "run.epochs=1", "model.freeze=['embedding']", f"optimizer.name={name}"
        )
        one = training(asked, comm.Serial(), tmp_path, frames, edges)
        before = one.learner.parameters.copy()
        one.step()
        changed = one.learner.parameters != before
        assert changed[one.learner.free].mean() > 0.5
        assert not changed[~one.learner.free].any()
        moved = one.learner.averaged() != before  # the average of rounding is none of a constant
        assert not moved[~one.learner.free].any()
        assert 0 < one.learner.free.sum() < len(before)
    asked = configured(data, tmp_path, "run.epochs=1", "model.freeze=['embeding']")
    with pytest.raises(Failure, match=r"freeze has 'embeding'.*embedding_net\.0"):
        training(asked, comm.Serial(), tmp_path, frames, edges)


def test_energies_of_single_atoms_follow_the_data(data: Path, tmp_path: Path) -> None:
    """By least squares, as NumPy has it; one frame of another zero changes nothing.

    So many slots are those of a network that gives no other frame an energy far from all others.
    """
    asked = configured(data, tmp_path, "run.epochs=1", "model.max_neighbor=19")
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    energies = frames.energies.copy()
    energies[3] += 1000.0
    one = training(asked, comm.Serial(), tmp_path, replace(frames, energies=energies), edges)
    found = one.learner.predict(frames, edges)[0]
    counts = np.array(
        [np.bincount(n, minlength=2) for n in np.split(edges.types, frames.first[1:-1])]
    )
    others = np.arange(len(frames)) != 3
    per_atom = 1.0 / frames.natoms[:, None]
    wanted = np.linalg.lstsq(
        (counts * per_atom)[others],
        ((frames.energies - found) * per_atom[:, 0])[others],
        rcond=None,
    )[0]
    aligned = one.learner.align(np.arange(len(frames)), found)
    np.testing.assert_allclose(aligned, found + counts @ wanted, atol=1e-6)
    np.testing.assert_allclose(one.learner.predict(frames, edges)[0], aligned, atol=1e-9)
    asked = configured(data, tmp_path, "run.epochs=1", "model.freeze=['fitting']")
    one = training(asked, comm.Serial(), tmp_path, frames, edges)
    assert (one.learner.align(np.arange(len(frames)), found) == found).all()


def test_what_has_learned_nothing_is_never_the_best():
    """Also where it is better in energies, which swing while forces are learned."""
    nothing = {"energy": 5.0, "force": 829.0, "virial": 40.0}
    later = {"energy": 30.0, "force": 212.0, "virial": 60.0}
    assert loop.score_of(later, nothing) < loop.score_of(nothing, nothing) == 0.0
    better = {"energy": 4.9, "force": 200.0, "virial": 500.0}
    assert loop.score_of(better, nothing) < loop.score_of(later, nothing)
    assert loop.score_of({"virial": 20.0}, nothing) == pytest.approx(np.log(0.5))
    assert np.isnan(loop.score_of({"energy": np.inf, "force": 1.0}, nothing))
    charges = {"energy": 2.5, "force": 829.0, "virial": 1.0, "born": 0.1}
    found = loop.score_of(charges, {**nothing, "born": 0.4})
    assert found == pytest.approx((np.log(0.5) + np.log(0.25)) / 3)


#: The installed command: Python's -m would execute what lies in the current folder.
PWMLFF = str(Path(sys.executable).with_name("pwmlff"))


def run(*words: object, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PWMLFF, "train", *map(str, words)],
        capture_output=True, text=True, timeout=300, check=False, **more,
    )  # fmt: skip


def settings(*more: str) -> list[str]:
    return [word for setting in (*SMALL, *more) for word in ("--set", setting)]


def parameters_of(path: Path) -> np.ndarray:
    parts = torch.jit.load(str(path)).state_dict().values()
    return np.concatenate([p.numpy().ravel() for p in parts])


def rows_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.thorough
def test_stopped_and_resumed(data: Path, tmp_path: Path) -> None:
    """On the way: what comes out is what comes out undisturbed; models learn."""
    words = ["--data", data, "--elements", ELEMENTS]
    words += settings("run.epochs=60", "run.validate_every=6", "run.checkpoint_every=1e-3",
                      "optimizer.learning_rate=1e-2", "model.max_neighbor=19")  # fmt: skip
    whole = run(*words, "-o", tmp_path / "whole", "--json")
    assert whole.returncode == 0, whole.stderr
    found = json.loads(whole.stdout)["models"][0]
    assert found["epochs"] == 60
    rows = rows_of(tmp_path / "whole")
    assert rows[-1]["force_train"] < 0.5 * rows[0]["force_train"]
    for name in ("energy_train", "force_train"):  # without a leap
        errors = np.array([row[name] for row in rows[2:]])
        assert (errors[1:] < 1.5 * np.minimum.accumulate(errors)[:-1]).all(), (name, errors)
    assert found["valid"]["force"] <= rows[-1]["force_valid"]
    for name in ("best.pt", "last.pt", "log.csv", "learning_curve.png", "parity.png", "run.toml"):
        assert (tmp_path / "whole" / name).stat().st_size > 0
    # ready for lmp, by the fused engine
    assert choose(tmp_path / "whole" / "best.pt").engine.name == "fused"

    folder = tmp_path / "stopped"  # after its step
    process = subprocess.Popen(
        forked("train", *words, "-o", folder),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list(folder.glob("checkpoint-*.npz"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert f"To go on: pwmlff train --resume -o {folder}\n" in output
    again = run("--resume", "-o", folder, "--json")
    assert again.returncode == 0, again.stderr
    assert "going on from step" in again.stderr
    assert np.array_equal(
        parameters_of(folder / "last.pt"), parameters_of(tmp_path / "whole" / "last.pt")
    )
    resumed = rows_of(folder)
    same = ("step", "epoch", "force_valid", "energy_valid", "force_train")
    assert [[r[k] for k in same] for r in resumed] == [[r[k] for k in same] for r in rows]

    # Another start in the same folder would write over it, and another model go on with it.
    before = (folder / "run.toml").read_bytes()
    given = {"data": [data], "elements": ELEMENTS, "output": folder,
             "settings": [*SMALL, "run.epochs=60"]}  # fmt: skip
    with pytest.raises(Failure, match="log of another training"):
        command.train(None, given, command.Options())
    for bad in ({"elements": "Ar Ne"}, {"settings": [*given["settings"], "model.rmax=3.9"]},
                {"data": [f"{data}@:8"]}):  # fmt: skip
        with pytest.raises(Failure, match="is of another training"):
            command.train(None, {**given, **bad}, command.Options(resume=True))
    assert (folder / "run.toml").read_bytes() == before

    # What was learned is where a fine-tuning starts; energies from another zero are moved.
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    model = potential.of_file(tmp_path / "whole" / "last.pt")
    trained = potential.Potential(
        model, replace(frames, energies=frames.energies + 3.0 * frames.natoms),
        edges, 32, "float64", 1,
    )  # fmt: skip
    trained.take_energies()
    energy, forces, _ = trained.predict(trained.parameters, frames, edges)
    assert np.abs((energy - frames.energies) / frames.natoms - 3.0).max() < 0.05
    assert np.sqrt(np.square(forces - frames.forces).mean()) < 2e-3 * rows[-1]["force_train"]


KILLED = {
    "dp": settings(),
    "nep": ["--model", "nep", "--set", "run.batch=3", "--set", "run.threads=1"],
    "ensemble": ["--models", "2", *settings()],
}


def left_in(folder: Path) -> dict[str, object]:
    """All that a training leaves which does not depend on time, by name."""
    left: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.suffix == ".pt":
            left[name] = parameters_of(path).tobytes()
        elif path.name in ("best.txt", "last.txt"):
            left[name] = path.read_bytes()
        elif path.suffix != ".npz":
            left[name] = None
        if path.name == "log.jsonl":
            times = ("time", "atoms_per_second")
            rows = rows_of(path.parent)
            left[name] = [{k: v for k, v in row.items() if k not in times} for row in rows]
            arrays = checkpoint.latest(path.parent).arrays
            left[f"{name} state"] = {k: v.tobytes() for k, v in arrays.items()}
    return left


@pytest.mark.parametrize("kind", [thorough("dp"), "nep", thorough("ensemble")])
def test_killed_anywhere(kind: str, data: Path, tmp_path: Path) -> None:
    """Within a write or at any moment; the same command comes to the same files, and no others."""
    library, whole = tmp_path / "dies.so", tmp_path / "whole"
    source = Path(__file__).with_name("dies_in_a_write.cpp")
    words = ["c++", "-std=c++20", "-shared", "-fPIC", source, "-o", library, "-ldl"]
    subprocess.run(words, check=True)
    words = ["train", "--data", str(data), "--elements", ELEMENTS, *KILLED[kind], "--resume"]
    for setting in ("epochs=20", "validate_every=3", "checkpoint_every=1e-4"):
        words += ["--set", f"run.{setting}"]

    def begin(folder: Path, **more: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            forked(*words, "-o", folder), env={**os.environ, **more},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def at_once(folder: Path) -> dict[str, object]:
        done = CliRunner().invoke(app, [*words, "-o", str(folder)])
        assert done.exit_code == 0, done.output
        return left_in(folder)

    began = time.monotonic()
    undisturbed = at_once(whole)
    took = time.monotonic() - began
    rng, folder = random.Random(KILLS), tmp_path / "0"
    for kill in range(KILLS + 1):
        if kill % 2 or kill == KILLS:
            process = begin(folder)
        else:
            at = rng.randrange(1, rng.choice([60, 300, 700]))
            process = begin(folder, LD_PRELOAD=library, DIES_IN=folder, DIES_AT=str(at))
        if kill % 2 and kill < KILLS:
            time.sleep(rng.uniform(0.2, 1.0) * took)
            process.kill()
        _, said = process.communicate(timeout=300)
        assert "Traceback" not in said, said
        if kill == KILLS or process.returncode == 0:  # it has come to its end before
            assert process.returncode == 0, said
            assert left_in(folder) == undisturbed
            folder = tmp_path / str(kill + 1)
    for path in whole.rglob("*.png"):  # as if it had been killed after its last step
        path.unlink()
    assert at_once(whole) == undisturbed


def test_atoms_alone_have_no_edges(data: Path, tmp_path: Path) -> None:
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    model = potential.new(configured(data, tmp_path), frames, edges, 1)
    trained = potential.Potential(model, frames, edges, 32, "float64", 1)
    head = '1\npbc="F F F" energy=-1.0 Properties=species:S:1:pos:R:3\n'
    rows = [f"{head}{symbol} 0 0 0\n" for symbol in ELEMENTS.split()]
    (tmp_path / "alone.xyz").write_text("".join(rows))
    alone = cache.load(tmp_path / "alone.xyz", elements=[10, 18], cutoff=4.0, cache=None)
    energy, forces, virial = trained.predict(trained.parameters, *alone)
    assert np.isfinite(energy).all() and energy[0] != energy[1]
    assert not forces.any() and not virial.any()


def of_neon(count: int) -> list[Atoms]:
    """Frames of one element."""
    frames = trajectory(count, seed=7)
    for atoms in frames:
        atoms.numbers[:] = 10
    return [labelled(atoms) for atoms in frames]


def test_all_elements_count_in_each_frame(tmp_path: Path) -> None:
    """Four atoms of one element: in training, the file and its own code as by NumPy."""
    structures = [*trajectory(3), *of_neon(3)]
    (trained,) = train(
        structures, ["Ne", "Ar"], tmp_path, epochs=2, settings=[*SMALL, "model.repulsion=none"]
    ).models
    module = torch.jit.load(trained.file)
    arrays = {name: p.detach().numpy() for name, p in module.named_parameters()}
    arrays |= {name: getattr(module, name).numpy() for name in ("davg", "dstd")}
    sizes = (module.Rmax, module.Rmin, module.maxNeighborNum, module.M2)
    assert module.sel == [module.maxNeighborNum] * 2
    places = [[0.3, 0.2, 0.1], [2.2, 0.4, 0.3], [0.5, 2.3, 0.9], [8.0, 0.1, 1.9]]
    neon = labelled(Atoms("Ne4", places, cell=[9.0] * 3, pbc=True))
    wanted = dp_oracle.atom_energies(
        arrays, neon.numbers, neon.positions + 0j, np.asarray(neon.cell) + 0j,
        dp_oracle.Contract((10, 18), *sizes),
    ).real  # fmt: skip
    neon.calc = Calculator(trained.file)
    np.testing.assert_allclose(neon.get_potential_energies(), wanted, atol=1e-8)
    write(tmp_path / "neon.xyz", labelled(neon), format="extxyz")
    frames, edges = cache.load(tmp_path / "neon.xyz", elements=[10, 18], cutoff=4.0, cache=None)
    again = potential.Potential(potential.of_file(trained.file), frames, edges, 512, "float64", 1)
    for energies in (again.predict(again.parameters, frames, edges)[0], again.evaluate([0])[0]):
        assert energies[0] == pytest.approx(wanted.sum(), abs=1e-5)
    inputs = pad_neighbors(neon, [10, 18], module.Rmax, module.maxNeighborNum)
    inputs = inputs._replace(atom_type=torch.tensor([10], dtype=torch.int32))
    np.testing.assert_allclose(module(*inputs)[1].detach()[0], wanted, atol=1e-9)


def test_going_on_from_a_model_that_counts_elements_of_a_frame(tmp_path: Path, caplog) -> None:
    """Said where frames lack some, and only there; from the new file on all count."""
    path = System((10, 18), rmax=4.0, max_neighbor=60).model().save(tmp_path / "model.pt")
    said = "6 of 8 frames, without some of them, begin with energies that are not the model's"
    settings = ["run.threads=1", "data.valid_fraction=0"]
    options = {"settings": settings, "finetune": str(path), "epochs": 1}
    train([*trajectory(2), *of_neon(6)], [], tmp_path / "one", **options)
    assert said in caplog.text
    caplog.clear()
    train(trajectory(4), [], tmp_path / "two", **options)
    train(of_neon(4), [], tmp_path / "three", **{**options, "finetune": f"{tmp_path}/two/best.pt"})
    assert "begin with energies" not in caplog.text
    assert describe_unopened(tmp_path / "two" / "best.pt").sel == (60, 60)


@pytest.mark.parametrize("kind", [thorough("dp"), "nep"])
def test_what_isolated_atoms_have_is_told(kind: str, tmp_path: Path) -> None:
    """At the end, in the file and by `info`: those of the data, and of the model that is kept."""
    alone = [Atoms("Ar", info={"energy": 2.5}), Atoms("Ne", info={"energy": 3.0})]
    nep = ["nep.n_max=[2,1]", "nep.basis_size=[3,2]", "nep.l_max=[2,1,0]", "nep.neuron=4"]
    settings = {"dp": SMALL, "nep": [*nep, "run.threads=1"]}[kind]
    structures = [*trajectory(6), *alone]
    options = {"epochs": 2, "settings": settings, "model": kind}
    report = train(structures, ELEMENTS.split(), tmp_path / "run", **options)
    (one,) = report.models
    energies = {}
    for symbol in ("Ar", "Ne"):
        atoms = Atoms(symbol)
        atoms.calc = Calculator(one.file)
        energies[symbol] = atoms.get_potential_energy()
    assert one.isolated_atoms == {
        "Ne": (3.0, pytest.approx(energies["Ne"], rel=1e-6)),
        "Ar": (2.5, pytest.approx(energies["Ar"], rel=1e-6)),
    }
    assert describe_unopened(one.file).isolated_atoms == one.isolated_atoms
    line = f"Ne 3 / {one.isolated_atoms['Ne'][1]:.7g}, Ar 2.5 / {one.isolated_atoms['Ar'][1]:.7g}"
    console = Console(file=io.StringIO(), width=200)
    console.print(report.show())
    assert line in console.file.getvalue()
    shown = CliRunner().invoke(app, ["info", one.file], env={"COLUMNS": "200"}).stdout
    assert line in shown
    (two,) = train(trajectory(6), ELEMENTS.split(), tmp_path / "without", **options).models
    assert two.isolated_atoms == {}


@pytest.mark.parametrize("kind", [thorough("dp"), "nep"])
def test_an_element_without_data(kind: str, tmp_path: Path, caplog) -> None:
    """Said in training, marked in the file until there are data of it, and shown."""
    nep = ["nep.n_max=[2,1]", "nep.basis_size=[3,2]", "nep.l_max=[2,1,0]", "nep.neuron=4"]
    settings_of = {"dp": SMALL, "nep": [*nep, "run.threads=1"]}
    options = {"epochs": 1, "settings": settings_of[kind]}
    structures, words = trajectory(6), "the data have no atom of Kr: "
    (one,) = train(structures, ["Ne", "Kr", "Ar"], tmp_path / "1", model=kind, **options).models
    assert words in caplog.text and describe_unopened(one.file).without_data == (36,)
    shown = CliRunner().invoke(app, ["info", one.file]).stdout
    assert re.search(r"without data\W+Kr\b", shown)
    caplog.clear()
    options = {"epochs": 1, "settings": ["run.threads=1"], "model": kind}
    (two,) = train(structures, [], tmp_path / "2", finetune=one.file, **options).models
    assert words in caplog.text and describe_unopened(two.file).without_data == (36,)
    caplog.clear()
    more = [atoms.copy() for atoms in structures]
    for atoms in more:
        atoms.numbers[::5] = 36
    more = [labelled(atoms) for atoms in more]
    (three,) = train(more, [], tmp_path / "3", finetune=two.file, **options).models
    (four,) = train(structures, [], tmp_path / "4", finetune=three.file, **options).models
    assert words not in caplog.text
    assert describe_unopened(three.file).without_data == ()
    assert describe_unopened(four.file).without_data == ()  # its training has had some


def test_ensemble(data: Path, tmp_path: Path) -> None:
    """Whatever lies in the current folder is not executed, by none of the members either."""
    (here := tmp_path / "here").mkdir()
    for name in ("json", "numpy", "typer", "signal"):
        (here / f"{name}.py").write_text(f"open('{name}.executed', 'w')\nraise SystemExit(9)\n")
    done = run(
        "--data", data, "--elements", ELEMENTS, "-o", tmp_path, "--models", 2, "--json",
        *settings("run.epochs=2"), cwd=here,
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path / "mpl")},
    )  # fmt: skip
    assert "fontManager" not in done.stderr
    assert not list(here.glob("*.executed"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["models"]
    assert [Path(m["file"]).name for m in found] == ["a.pt", "b.pt"]
    a, b = (parameters_of(tmp_path / name) for name in ("a.pt", "b.pt"))
    assert np.abs(a - b).mean() > 0.1


@pytest.mark.parametrize("models", [1, thorough(2)])
def test_interrupted_in_a_terminal(models: int, data: Path, tmp_path: Path) -> None:
    """Ctrl-C goes to all processes of the group, and here once more while they end."""
    process = subprocess.Popen(
        [PWMLFF, "train", "--data", data, "--elements", ELEMENTS, "-o", tmp_path,
         "--models", str(models), "--json", *settings("run.epochs=1000000")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    folders = [tmp_path / name for name in "ab"[:models]] if models > 1 else [tmp_path]
    deadline = time.monotonic() + 120
    while not all((folder / "best.pt").is_file() for folder in folders):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    for pause in (0.0, 0.3, 0.6):
        time.sleep(pause)
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGINT)
    output, said = process.communicate(timeout=120)
    assert process.returncode == 75, said
    found = json.loads(output)
    assert not found["failures"] and not found["unbegun"]
    assert [m["stopped"] for m in found["models"]] == ["asked"] * models
    for model, folder in zip(found["models"], folders, strict=True):
        assert Path(model["file"]).read_bytes() == (folder / "best.pt").read_bytes()
        assert list(folder.glob("checkpoint-*.npz")) and (folder / "parity.png").is_file()


#: Signals one after the other, so that some come while others are handled.
MANY_SIGNALS = """
import os, subprocess, sys
from pwmlff.train.start import Stop
send = "import os\\nfor _ in range(50000): os.kill(os.getppid(), 15)"
with Stop() as stop:
    stop.listen()
    sender = subprocess.Popen([sys.executable, "-S", "-c", send])
    while sender.poll() is None:
        stop.asked()
    assert stop.asked()
"""


def test_signals_at_any_time() -> None:
    """Also amid the handling of another one."""
    process = subprocess.Popen([sys.executable, "-c", MANY_SIGNALS])
    try:
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()  # SIGTERM would be one more


def test_models_end_with_the_command(data: Path, tmp_path: Path) -> None:
    """Where it is killed, too; the same command has waited for that before it goes on."""
    words = ["--data", data, "--elements", ELEMENTS, "-o", tmp_path, "--models", 2]
    words += settings("run.epochs=1000000", "run.validate_every=1000000")  # and says no word
    process = subprocess.Popen(
        [PWMLFF, "train", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "a" / "best.pt").is_file():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    members = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    # Until then the folder is theirs.
    with start.claimed(tmp_path, start.Options(resume=True)):
        running = [p for p in members if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert len(members) == 2 and not running
    assert list(tmp_path.glob("a/checkpoint-*.npz"))


@pytest.mark.parametrize("more", [[], ["--resume"], ["--models", "2"]])
def test_two_trainings_in_a_folder(more: list[str], data: Path, tmp_path: Path, monkeypatch):
    """The second one is refused, and writes nothing."""
    monkeypatch.setattr(files, "PATIENCE", 0.0)
    words = ["train", "--data", str(data), "--elements", ELEMENTS, "-o", str(tmp_path), *more]
    with start.claimed(tmp_path, start.Options()):
        before = sorted(tmp_path.iterdir())
        done = CliRunner().invoke(app, [*words, *settings("run.epochs=1")])
        assert sorted(tmp_path.iterdir()) == before
    assert done.exit_code == 2 and "another process is at work in" in done.stderr


class Clock:
    """Time that passes where a part of a training says so."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def take(self, seconds: float, *_: object) -> None:
        self.now += seconds


def test_max_time_is_all_that_the_command_takes(data: Path, tmp_path: Path, monkeypatch) -> None:
    """Reading 20 s, steps 1 s, the rest 2 to 6 s each; 5 minutes in all."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    clock, told = Clock(), []
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(loop.checkpoint, "save", lambda *_: clock.take(3.0))
    asked_for = configured(data, tmp_path, "run.max_time=5")

    def train(before: loop.Progress | None, end: float) -> loop.Trainer:
        began = clock.now
        clock.take(20.0)
        one = training(asked_for, comm.Serial(), tmp_path, frames, edges)
        one.began, one.extras = began, {"pictures": lambda: clock.take(4.0)}
        one.asked = lambda: clock.now - began > end
        one.progress = before or one.progress
        evaluate = one.learner.predict
        one.learner.step = lambda batch, done: (told.append(done), clock.take(1.0), 0.5)[-1]
        one.learner.predict = lambda *given: (clock.take(6.0), evaluate(*given))[-1]
        one.learner.refine = lambda *_: None
        one.learner.refit = lambda *_: clock.take(2.0)
        stopped = one.run(None, None)
        one.finish()
        assert stopped == ("asked" if end < 300.0 else "time")
        return one

    began = clock.now
    train(None, 1e9)
    assert 300.0 - loop.LEAVING - 2.0 < clock.now - began <= 300.0 - loop.LEAVING
    assert 200 < len(told) < 260
    # Neither reading nor a validation makes the rate of learning jump.
    assert told[0] == 0.0 and 0.98 < told[-1] < 1.0
    assert np.diff(told).min() > 0.0 and np.diff(told).max() < 1.5 / 240.0

    # In two commands, of which the second reads anew: as long together, and on from where it was.
    whole, began = len(told), clock.now
    told.clear()
    first = train(None, 100.0)
    done = first.progress_of_run()
    train(first.progress, 1e9)
    # The end of the first, a checkpoint and pictures, comes on top.
    assert 300.0 - loop.LEAVING - 6.0 < clock.now - began <= 300.0 + 3.0 + 4.0
    assert np.diff(told).min() >= 0.0 and np.diff(told).max() < 1.5 / 240.0
    assert done in told and len(told) < whole - 10


def test_a_short_time_is_for_steps(data: Path, tmp_path: Path, monkeypatch, caplog) -> None:
    """22 s with 4 s of reading, a first validation that compiles, and an end that is too long."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    clock, limits, done = Clock(), [], []
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(loop.checkpoint, "save", lambda *_: clock.take(0.2))
    asked_for = configured(data, tmp_path, f"run.max_time={22.0 / 60.0}")
    clock.take(4.0)
    one = training(asked_for, comm.Serial(), tmp_path, frames, edges)
    one.began = clock.now - 4.0
    costs = {"the grade": 2.0, "the pictures": 1.0}
    one.extras = {
        name: lambda name=name: (done.append(name), clock.take(costs[name])) for name in costs
    }
    validations = iter([4.0, *[0.5] * 9])
    evaluate = one.learner.predict
    one.learner.step = lambda *_: (clock.take(0.05), 0.5)[-1]
    one.learner.predict = lambda *given: (clock.take(next(validations)), evaluate(*given))[-1]
    one.learner.refine = lambda *_: None
    one.learner.refit = lambda seconds, _: (limits.append(seconds), clock.take(0.1))
    assert one.run(None, None) == "time"
    done.clear()
    one.finish()
    # Of what the end may take, 5.5 s, 2 are for leaving: the grade fits, pictures beside it do not.
    assert done == ["the grade"] and one.progress.left_out == ["the pictures"]
    assert limits == [0.5 * 5.5] * 2
    assert 20.0 - 0.5 < clock.now - one.began <= 20.0
    assert one.progress.step > loop.FEW and "steps were made" not in caplog.text
    assert "too short for: the pictures" in caplog.text


def test_threads_are_those_of_openmp(data: Path, tmp_path: Path, monkeypatch) -> None:
    given = {"settings": [*SMALL, "run.epochs=1", "run.threads=0"], "data": [data],
             "elements": ELEMENTS, "output": tmp_path / "o"}  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    for variables, threads in (
        ({}, cores), ({"OMP_NUM_THREADS": "7"}, 7), ({"OMP_NUM_THREADS": "3,2"}, 3),
        ({"OMP_NUM_THREADS": "many"}, cores),
        # torchrun sets it where its user has not.
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}, cores),
    ):  # fmt: skip
        with monkeypatch.context() as context:
            context.delenv("OMP_NUM_THREADS", raising=False)
            for name, value in variables.items():
                context.setenv(name, value)
            plan = command.train(
                None, given, command.Options(dry_run=True, communication="serial")
            ).plan
        assert f" {threads} threads each, " in plan["ranks"]


def test_pictures_that_were_not_written(data: Path, tmp_path: Path, monkeypatch, caplog) -> None:
    """As on a full disk: they are not listed, nor are those of the models before these."""

    def written(epochs: int, resume: bool = False) -> str:
        given = {"settings": [*SMALL, f"run.epochs={epochs}"], "data": [data],
                 "elements": ELEMENTS, "output": tmp_path}  # fmt: skip
        options = command.Options(communication="serial", resume=resume)
        report = command.train(None, given, options)
        buffer = io.StringIO()
        Console(file=buffer, width=400).print(report.show())
        (line,) = (one for one in buffer.getvalue().splitlines() if one.endswith("checkpoints"))
        return line

    assert written(1).endswith("log.csv, learning_curve.png, parity.png, checkpoints")

    def fails(_: Figure, path: Path, **__: object) -> None:
        path.write_text("half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Figure, "savefig", fails)
    assert written(2, resume=True).endswith(": log.csv, checkpoints")
    assert not list(tmp_path.glob("*.png")) and (tmp_path / "best.pt").is_file()
    said = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    assert f"cannot use '{tmp_path / record.CURVE}': No space left on device" in said


def test_what_an_error_leaves_is_named(data: Path, tmp_path: Path, monkeypatch, caplog) -> None:
    """As a full disk is met, after the first validation."""
    validate = loop.Trainer.validate

    def fails(self: loop.Trainer, *given) -> None:
        if self.progress.next_validation:
            raise Failure("cannot write a checkpoint: No space left on device")
        validate(self, *given)
        self.save()

    monkeypatch.setattr(loop.Trainer, "validate", fails)
    given = {"settings": [*SMALL, "run.epochs=3"], "data": [data], "elements": ELEMENTS,
             "output": tmp_path}  # fmt: skip
    with pytest.raises(Failure, match="No space left"):
        command.train(None, given, command.Options(communication="serial"))
    (said,) = [e.getMessage() for e in caplog.records if e.getMessage().startswith("left in ")]
    names = re.fullmatch(rf"left in '{tmp_path}': (.*); --resume goes on from there", said)[1]
    found = [path.name for path in tmp_path.iterdir() if path.suffix in (".pt", ".npz")]
    assert sorted(found) == names.split(", ") and {"best.pt", "last.pt"} < set(found)


def test_words_of_a_first_try(data: Path, tmp_path: Path, monkeypatch) -> None:
    """Data and symbols as words of their own; the command that is named without them is taken."""
    copy = tmp_path / "copy.xyz"
    write(copy, [labelled(atoms[[1, 0, *range(2, 32)]]) for atoms in read(data, ":2")])
    frames = [*read(data, ":"), *read(copy, ":")]
    monkeypatch.chdir(tmp_path)
    asked = CliRunner().invoke(app, ["train", str(data), "copy.xyz", "--dry-run"])
    assert asked.exit_code == 2
    said = " ".join(asked.stderr.split())
    in_order = list(dict.fromkeys(frames[0].get_chemical_symbols()))
    assert f"{' '.join(in_order)} in {len(frames)} frames" in said
    command = said[said.index("pwmlff train") :].split()[1:]
    assert command[-3:] == ["--elements", *in_order]
    many = ",".join(in_order)
    for words in (
        command,
        ["train", "--data", str(data), "copy.xyz", "--elements", many, "--dry-run"],
        ["train", "--elements", *in_order, str(data), "--dry-run", "--data", "copy.xyz"],
    ):
        done = CliRunner().invoke(app, [*words, "--epochs", "7", "--json"])
        assert done.exit_code == 0, done.output
        plan = json.loads(done.stdout)["plan"]
        parts = (int(plan[name].split()[0]) for name in ("learns from", "validates with"))
        assert sum(parts) == len(frames)
        assert "ends after 7 epochs" in plan["steps"]


def validations(seed: int, rise: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores of forty validations with three frames, and what frames without number would say.

    Errors fall with the learning rate in the second half, and rise by exp(rise) where a model
    learns too much of few data. Errors of single energies are other ones by chance as long as steps
    are large.
    """
    rng = np.random.default_rng(seed)
    part = np.arange(1, 41) / 40
    rate = 1.0 - 0.995 * np.clip((part - 0.5) / 0.5, 0, 1)
    worse = np.exp(rise * np.clip((part - 0.3) / 0.7, 0, 1))
    energy, force = 0.34 * (1 + 1.5 * rate) * worse, 38.0 * (1 + 0.15 * rate) * worse
    each = np.sqrt(rate)[:, None] * rng.normal(size=(40, 3))
    each += np.sqrt(1 - rate)[:, None] * rng.normal(size=3)
    measured = energy * np.sqrt((each**2).mean(axis=1))
    nothing = {"energy": 10.0, "force": 1000.0}
    return tuple(
        np.array([
            loop.score_of({"energy": e, "force": f}, nothing)
            for e, f in zip(energies, force, strict=True)
        ]) for energies in (measured, energy)
    )  # fmt: skip


def test_few_frames_do_not_choose_by_chance():
    """The model that is kept is nearly as good as the best one, however few frames judge.

    Where single validations counted by themselves, scores were worse by 0.13, 0.16 and 0.08. Where
    errors rise by e, the last model is worse by 0.48.
    """
    doubt = 0.5 / 3**0.5
    for rise, most in ((0.0, 0.03), (0.3, 0.05), (1.0, 0.1)):
        lost = []
        for seed in range(200):
            progress = loop.Progress()
            scores, truth = validations(seed, rise)
            for k, score in enumerate(scores):
                progress.step = k
                progress.judge(float(score), (k + 1) / 40, doubt if k == 39 else None)
            lost.append(truth[progress.kept] - truth.min())
        assert np.mean(lost) < most


def test_validations_count_by_a_moving_average():
    """Of four at most, as far as they are within a tenth of the run; the last one counts alone."""
    for parts, window in ((np.arange(1, 41) / 40, 4), (np.arange(1, 11) / 10, 1)):
        scores = np.random.default_rng(5).normal(size=len(parts)).tolist()
        means = [np.mean(scores[max(0, k + 1 - window) : k + 1]) for k in range(len(parts))]
        progress = loop.Progress()
        for k, (part, score) in enumerate(zip(parts.tolist(), scores, strict=True)):
            progress = loop.Progress(**json.loads(json.dumps(vars(progress))))  # as by a checkpoint
            progress.step = k
            assert progress.judge(score, part, None) is bool(means[k] < min([9.0, *means[:k]]))
            assert progress.best == pytest.approx(min(means[: k + 1]))
            assert progress.kept == int(np.argmin(means[: k + 1]))
            assert progress.stale == k - progress.kept
        assert not progress.judge(progress.best + 0.2, 1.0, 0.1)
        assert progress.judge(progress.best + 0.05, 1.0, 0.1)


def test_solved_layers_are_taken_unless_clearly_worse(data: Path, tmp_path: Path) -> None:
    """By the standard error of a score, which four times as many frames halve."""
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    kept: list[tuple[str, ...]] = []
    asked = configured(data, tmp_path, "run.epochs=1")
    one = training(asked, comm.Serial(), tmp_path, frames, edges)
    one.keep = lambda names, *_: kept.append(names)
    one.learner.refit = lambda *_: None
    scores = iter((-1.0, -0.99, -1.0 + 0.4 / 10**0.5, -1.0 + 0.6 / 10**0.5))
    one.score = lambda _: next(scores)
    for last in (False, False, True, True):
        one.step()
        one.validate(None, None, last)
    assert len(one.sampled.frames) == 10
    assert kept == [(loop.BEST, loop.LAST), (loop.LAST,), (loop.BEST, loop.LAST), (loop.LAST,)]
    assert one.progress.best == -1.0


@pytest.mark.parametrize("nranks", [1, 2])
def test_an_earlier_model_ends_a_training_that_learned_too_much(
    nranks: int, data: Path, tmp_path: Path, caplog
) -> None:
    """With its last layers solved for, also after a resumption; not where it is hardly better."""
    every = Dataset(*cache.load(data, elements=[10, 18], cutoff=4.0, cache=None))
    learned, unseen = (every.select(np.arange(k, 10, 2)) for k in (0, 1))
    asked = configured(data, tmp_path, "run.epochs=30", "optimizer.ema=0")

    def new(ranks: comm.Communicator) -> loop.Trainer:
        one = training(asked, ranks, tmp_path, learned.frames, learned.edges)
        one.valid = unseen
        return one

    def end(ranks: comm.Communicator, size: float) -> tuple[np.ndarray, ...]:
        one = new(ranks)
        for _ in range(30):
            one.step()
        one.validate(None, None)
        earlier = one.learner.averaged()
        one.save()
        one = new(ranks)
        assert one.resume()
        noise = np.random.default_rng(0).normal(0.0, size, earlier.shape)
        one.learner.parameters[:] += noise
        one.validate(None, None)
        one.validate(None, None, last=True)
        learner = one.learner
        solved = [
            start + learner.model.solved(start, learner.free, learner.of_frame, QUANTITIES)
            for start in (earlier, earlier + noise)
        ]
        return tuple(forces(learner, x) for x in (learner.averaged(), *solved))

    def forces(learner: Learner, parameters: np.ndarray) -> np.ndarray:
        return learner.model.predict(parameters, unseen.frames, unseen.edges)[1]

    for size, taken in ((1.0, 1), (0.03, 2)):
        with caplog.at_level("INFO"):
            for found in on_ranks(nranks, functools.partial(end, size=size)):
                apart = [np.abs(found[k] - found[taken]).max() for k in (0, 3 - taken)]
                assert apart[0] < 0.1 * apart[1]  # energies of single atoms began elsewhere
        assert ("learned too much" in caplog.text) is (taken == 1)
        caplog.clear()


def test_nothing_is_planned_to_go_back_to_without_forces(data: Path, tmp_path: Path) -> None:
    frames, edges = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)
    one = training(configured(data, tmp_path), comm.Serial(), tmp_path, frames, edges)
    for _ in range(2):
        one._remember(loop.Verdict(None, None, None, None, -1.0, 0.1, np.inf))
    assert one.learner.earlier is None and not one.progress.costs


def test_what_is_told_of_the_best_is_of_the_file(data: Path, tmp_path: Path, monkeypatch) -> None:
    """Also where last layers win that few frames find worse; an old one is called so."""
    given = {"settings": [*SMALL, "run.epochs=4", "run.validate_every=1"], "data": [data],
             "elements": ELEMENTS}  # fmt: skip
    for name, last, old in (("new", -1.0 + 1e-3, False), ("old", 1.0, True)):
        scores = iter((0.0, 0.0, -1.0, 0.0, last))
        monkeypatch.setattr(loop, "score_of", lambda *_, scores=scores: next(scores))
        output = tmp_path / name
        report = command.train(
            None, {**given, "output": output}, command.Options(communication="serial")
        )
        (one,) = report.models
        rows = {row.step: row for row in record.read(output / "log.jsonl")}
        step = rows[one.best]
        assert len(rows) == 5 and (one.best < one.steps) is old
        assert one.valid["force"] == step.force_valid
        assert choose(Path(one.file), "auto", "exact").info.card["step"] == one.best
        with (console := Console(width=200)).capture() as capture:
            console.print(report.show())
        said = " ".join(capture.get().split())
        assert (f"no model after step {one.best} of {one.steps} was better" in said) is old


def test_ends_where_nothing_is_gained(data: Path, tmp_path: Path) -> None:
    """By `patience`, with last layers that are solved for; a resumption then does nothing."""
    settings = [*SMALL, "run.epochs=100", "run.validate_every=1", "run.patience=3",
                "model.freeze=['fitting_net.*.bias']", "optimizer.learning_rate=1e-200",
                "optimizer.final_learning_rate=1e-200"]  # fmt: skip
    given = {"settings": settings, "data": [data], "elements": ELEMENTS, "output": tmp_path / "out"}
    command.train(None, given, command.Options())

    def rows() -> list[dict]:
        return [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]

    found = [row for row in rows() if row["step"]]
    *before, last = found
    assert len(before) == 4
    assert {row["force_valid"] for row in before} == {before[0]["force_valid"]}
    assert last["step"] == before[-1]["step"] + 1
    assert last["force_valid"] < 0.99 * before[0]["force_valid"]
    command.train(None, given, command.Options(resume=True))
    assert [row for row in rows() if row["step"]] == found


def test_going_on_for_longer_has_its_patience(data: Path, tmp_path: Path, monkeypatch) -> None:
    """Scores that fall are not held against that of the last layers of the first end."""
    settings = [*SMALL, "run.validate_every=1", "run.patience=2"]
    given = {"data": [data], "elements": ELEMENTS, "output": tmp_path / "out"}
    scores = iter([-1.0, -1.1, -1.2, -3.0, *np.arange(-1.3, -2.0, -0.1), -3.1])
    monkeypatch.setattr(loop, "score_of", lambda *_: next(scores))
    for epochs in (3, 10):
        words = [*settings, f"run.epochs={epochs}"]
        (one,) = command.train(
            None, {**given, "settings": words}, command.Options(resume=epochs > 3)
        ).models
        assert one.epochs == pytest.approx(epochs)


def test_the_picture_is_of_the_file_when_nothing_is_left_to_do(
    data: Path, tmp_path: Path, monkeypatch
) -> None:
    drawn: list[tuple] = []
    parity = charts.parity
    monkeypatch.setattr(
        charts, "parity", lambda *words: (drawn.append(words[1:4]), parity(*words))[1]
    )
    given = {"settings": [*SMALL, "run.epochs=2"], "data": [data], "elements": ELEMENTS,
             "output": tmp_path / "out"}  # fmt: skip
    for resume in (False, True):
        command.train(None, given, command.Options(resume=resume))
    for first, again in zip(*drawn, strict=True):
        np.testing.assert_allclose(again, first, rtol=1e-9, atol=1e-9)


def test_other_frames_to_validate_with_are_noticed(data: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.xyz"
    write(valid, read(data, ":2"))
    given = {"settings": [*SMALL, "run.epochs=1", f"data.valid=['{valid}']"], "data": [data],
             "elements": ELEMENTS, "output": tmp_path / "out"}  # fmt: skip
    command.train(None, given, command.Options())
    command.train(None, given, command.Options(resume=True))
    write(valid, read(data, "2:4"))
    with pytest.raises(Failure, match="another training: the data to validate with"):
        command.train(None, given, command.Options(resume=True))


def test_frames_to_validate_with_that_are_learned_from(data: Path, tmp_path: Path, caplog) -> None:
    """Warned of, with other digits and in another order of atoms too."""
    valid = tmp_path / "valid.xyz"
    copies = [atoms[::-1] for atoms in read(data, "1:5:3")]
    for atoms in copies:
        atoms.positions = atoms.positions.round(6)
    write(valid, [labelled(atoms) for atoms in [*copies, *trajectory(1, seed=99)]])
    given = {"settings": [*SMALL, "run.epochs=1"], "data": [data], "valid": [valid],
             "elements": ELEMENTS, "output": tmp_path / "out"}  # fmt: skip
    text = f"2 of the 3 frames of [data] valid are in [data] train, too: frames 0-1 of '{valid}'"
    plan = command.train(None, given, command.Options(dry_run=True)).plan
    assert text in caplog.text and plan["validates with"] == "3 frames"


def test_slots_are_for_the_frames_that_validate_too(data: Path, tmp_path: Path) -> None:
    """With headroom; where they are told and too few, the frame is named."""
    dense = tmp_path / "dense.xyz"
    structures = read(data, ":2")
    structures[1].set_cell(0.8 * np.asarray(structures[1].cell), scale_atoms=True)
    structures[1] = labelled(structures[1])
    write(dense, structures)
    given = {"settings": [*SMALL, "run.epochs=1", f"data.valid=['{dense}']"], "data": [data],
             "elements": ELEMENTS, "output": tmp_path / "out"}  # fmt: skip
    i, j = neighbor_list("ij", structures[1], 4.0)
    numbers = structures[1].numbers[j]
    most = max(((i == atom) & (numbers == z)).sum() for atom in range(32) for z in (10, 18))
    sparse = cache.load(data, elements=[10, 18], cutoff=4.0, cache=None)[1].count.max()
    assert most > 1.5 * sparse
    command.train(None, given, command.Options())
    model = torch.jit.load(str(tmp_path / "out" / "best.pt"))
    assert model.maxNeighborNum == int(np.ceil(1.5 * most - 1e-9))
    given["settings"].append(f"model.max_neighbor={most - 1}")
    given["output"] = tmp_path / "other"
    with pytest.raises(Failure, match=rf"frame 1 of '.*dense.xyz'.* has {most} neighbors of"):
        command.train(None, given, command.Options())


def test_dry_run_writes_nothing(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    given = {"settings": [*SMALL, "run.epochs=1"], "data": [data], "elements": ELEMENTS,
             "output": folder}  # fmt: skip
    report = command.train(None, given, command.Options(dry_run=True))
    assert "9 frames, 288 atoms" in report.plan["learns from"]
    assert not folder.exists()


@pytest.mark.parametrize(
    "given, text",
    [
        ({"settings": ["optimiser.name=adam"]}, "did you mean 'optimizer'"),
        ({"settings": ["run.epoch=1"]}, "did you mean 'epochs'"),
        ({"settings": ["data.group_weights={nobody = 2.0}"]}, "group_weights has 'nobody'"),
        ({"elements": "Ne"}, "atomic number 18|Ar"),
        ({"data": ["nowhere.xyz"]}, "nowhere.xyz"),
        ({"settings": ["data.valid=nowhere.xyz"]}, "nowhere.xyz"),
        ({"settings": ["model.max_neighbor=2"]}, "neighbors of"),
        ({"finetune": "nowhere.pt"}, "nowhere.pt"),
    ],
)
def test_what_is_wrong_is_named(given: dict, text: str, data: Path, tmp_path: Path) -> None:
    whole = {"data": [data], "elements": ELEMENTS, "output": tmp_path, **given}
    whole["settings"] = [*SMALL, "run.epochs=1", *given.get("settings", [])]
    with pytest.raises((Failure, OSError), match=text):
        command.train(None, whole, command.Options())
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize(
    "name, text",
    [
        ("type embedding", "a type embedding"),
        ("slots by element", "slots by element"),
        ("no bias", "layers without bias"),
        ("steps of embedding nets", "steps in embedding nets"),
        ("no steps of fitting nets", "fitting layers without steps"),
    ],
)
def test_going_on_from_what_is_not_trained(name: str, text: str, tmp_path: Path) -> None:
    path = SYSTEMS[name].model().save(tmp_path / "model.pt")
    with pytest.raises(Failure, match=rf"cannot go on from .* it has {text}"):
        potential.of_file(path)


def test_data_without_forces_or_energies(data: Path, tmp_path: Path) -> None:
    from ase.io import read

    frames = read(data, ":")
    for atoms in frames:
        atoms.calc = None
    write(tmp_path / "bare.xyz", frames, format="extxyz")
    given = {"data": [tmp_path / "bare.xyz"], "elements": ELEMENTS, "output": tmp_path / "o",
             "settings": [*SMALL, "run.epochs=1"]}  # fmt: skip
    with pytest.raises(Failure, match="have no label of energy, force"):
        command.train(None, given, command.Options())


def test_ranks_of_a_launcher_give_the_same_file(data: Path, tmp_path: Path) -> None:
    """mpirun with two ranks, against none."""
    words = ["train", "--data", str(data), "--elements", ELEMENTS, *settings("run.epochs=3")]
    found = []
    for program in (forked(*words), [PROGRAMS / "mpirun", "-np", "2", *forked(*words)]):
        folder = tmp_path / str(len(found))
        done = subprocess.run(
            [*program, "-o", folder], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("ended by") == 1
        # What is to be pasted stands in lines of its own, however long.
        lines = [line.strip() for line in done.stdout.splitlines()]
        assert f"pair_style pwmlff 1 {folder}/best.pt" in lines
        assert "pair_coeff * * Ne Ar" in lines and "units metal" in lines
        named = re.findall(rf"^({folder}\S*):", done.stdout, re.MULTILINE)
        assert len(named) == 3 and all(Path(name).exists() for name in named)
        found.append(parameters_of(folder / "last.pt"))
    assert np.array_equal(*found)


SMALL_FILES = """
import resource
from pwmlff.cli import app
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
app()
"""


def test_a_full_disk_is_one_error_and_the_checkpoint_stays(data: Path, tmp_path: Path) -> None:
    """No file may be larger than 16 kB here, as where a disk is full."""
    folder = tmp_path / "run"
    command.train(
        None,
        {"data": [data], "elements": ELEMENTS, "output": folder,
         "settings": [*SMALL, "run.epochs=1"]},
        command.Options(),
    )  # fmt: skip
    before = {path.name: path.read_bytes() for path in folder.glob("*.[np]*")}
    assert {"best.pt", "last.pt", "checkpoint-000001.npz"} <= before.keys()
    done = subprocess.run(
        python(
            "-c", SMALL_FILES, "train", folder / "run.toml", "--resume", "--set", "run.epochs=2"
        ),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.count("error: ") == 1
    assert "best.pt': File too large" in done.stderr
    after = {path.name: path.read_bytes() for path in folder.glob("*.[np]*")}
    assert after == before
