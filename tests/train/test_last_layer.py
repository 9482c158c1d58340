"""Last layers by least squares, against those of NumPy and what the nets themselves give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms
from ase.io import write
from test_train import ELEMENTS, SMALL

from labelled_structures import labelled, trajectory
from pwmlff.data import cache
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.train import comm, config, last_layer, potential
from pwmlff.train.config import NepForm
from pwmlff.train.last_layer import Equations, solve
from pwmlff.train.learner import Learner
from pwmlff.train.nep import NepModel, initial
from thread_ranks import on_ranks

SETTINGS = (*SMALL, "run.epochs=1")
WIDTH = 10  # of the last hidden layer
QUANTITIES = ("energy", "force", "virial")


@pytest.fixture(scope="module")
def frames_and_edges(tmp_path_factory: pytest.TempPathFactory) -> tuple[Frames, Edges]:
    """Ten frames of 32 atoms with energies, forces and stresses."""
    path = tmp_path_factory.mktemp("data") / "frames.xyz"
    frames = [atoms for seed in range(5) for atoms in trajectory(2, seed=seed)]
    write(path, [labelled(atoms) for atoms in frames], format="extxyz")
    return cache.load(path, elements=[10, 18], cutoff=4.0, cache=None)


def learner(
    frames: Frames, edges: Edges, *settings: str, ranks: comm.Communicator | None = None
) -> Learner:
    asked = config.from_command(
        data=["unused.xyz"], elements=ELEMENTS, settings=[*SETTINGS, *settings], output="unused"
    )
    model = potential.new(asked, frames, edges, 1)
    trained = potential.Potential(model, frames, edges, 64, asked.run.precision, 1)
    return Learner(trained, asked, ranks or comm.Serial())


def nep_learner(frames: Frames, edges: Edges) -> Learner:
    """Of a NEP with charges and a repulsion of nuclei, which are not linear in last layers."""
    asked = config.from_command(
        data=["unused.xyz"], elements=ELEMENTS, settings=["model.kind=nep", "run.epochs=1"],
        output="unused",
    )  # fmt: skip
    form = NepForm((4.0, 3.5), (2, 2), (4, 4), (3, 1, 1), WIDTH, zbl=3.0, charge=1)
    return Learner(NepModel(initial(form, frames, edges, 1), frames, edges), asked, comm.Serial())


def lacks(one: Learner, frames: Frames, edges: Edges) -> dict[str, np.ndarray]:
    """Label - prediction of the nets themselves, energies and virials per atom."""
    energies, forces, virials = one.predict(frames, edges)
    n = frames.natoms
    return {
        "energy": (frames.energies - energies) / n,
        "force": (frames.forces - forces).ravel(),
        "virial": ((frames.virials - virials) / n[:, None, None]).ravel(),
    }


def of_random(rng: np.random.Generator, rows: int, n: int, noise: float) -> Equations:
    design = rng.normal(size=(rows, n))
    wanted = rng.normal(size=n)
    return Equations(design, design @ wanted + noise * rng.normal(size=rows), np.ones(rows))


def product(given: dict[str, Equations], change: np.ndarray) -> float:
    """Logarithm of the product of the RMSEs."""
    left = [np.mean((found.lacks - found.design @ change) ** 2) for found in given.values()]
    return 0.5 * float(np.log(left).sum())


def test_forces_alone_are_those_of_numpy() -> None:
    given = of_random(np.random.default_rng(0), 300, 12, 0.1)
    wanted = np.linalg.lstsq(given.design, given.lacks, rcond=None)[0]
    np.testing.assert_allclose(solve({"force": given}), wanted, atol=1e-7)


def test_product_of_errors_is_smallest() -> None:
    """No step in any direction lowers it, to first order; it is not that of equal weights."""
    rng = np.random.default_rng(1)
    design = {"energy": rng.normal(size=(60, 8)), "force": 30.0 * rng.normal(size=(400, 8))}
    wanted = rng.normal(size=8)
    given = {
        name: Equations(d, d @ wanted + size * rng.normal(size=len(d)), np.ones(len(d)))
        for (name, d), size in zip(design.items(), (0.01, 5.0), strict=True)
    }
    found = solve(given)
    gradient = [
        (product(given, found + h) - product(given, found - h)) / 2e-6 for h in 1e-6 * np.eye(8)
    ]
    of_forces = np.linalg.lstsq(given["force"].design, given["force"].lacks, rcond=None)[0]
    at_forces = [
        (product(given, of_forces + h) - product(given, of_forces - h)) / 2e-6
        for h in 1e-6 * np.eye(8)
    ]
    assert np.abs(gradient).max() < 1e-3 * np.abs(at_forces).max()


def test_forces_lose_little() -> None:
    """Energies that contradict forces take no more from them than a fiftieth."""
    rng = np.random.default_rng(2)
    forces = of_random(rng, 400, 8, 0.01)
    forces = replace(forces, lacks=0.01 * rng.normal(size=400))  # as good as they get
    energies = of_random(rng, 50, 8, 0.001)
    energies = replace(energies, lacks=0.003 * energies.lacks)
    given = {"energy": energies, "force": forces}

    def rmse(change: np.ndarray) -> float:
        return float(np.sqrt(np.mean((forces.lacks - forces.design @ change) ** 2)))

    found = solve(given)
    assert rmse(found) <= (1.0 + last_layer.MARGIN) * rmse(np.zeros(8))
    assert product(given, found) < product(given, np.zeros(8))


def test_wrong_labels_decide_nothing() -> None:
    given = of_random(np.random.default_rng(3), 300, 12, 0.1)
    sound = solve({"force": given})
    wrong = given.lacks.copy()
    wrong[::50] += 1e6
    found = solve({"force": replace(given, lacks=wrong)})
    spoilt = np.linalg.lstsq(given.design, wrong, rcond=None)[0]
    assert np.abs(found - sound).max() < 0.05
    assert np.abs(spoilt - sound).max() > 1e3


@pytest.mark.parametrize("made, most", [(learner, 0.9), (nep_learner, 1.2)])
def test_all_quantities_by_the_nets_themselves(frames_and_edges, made, most) -> None:
    """The smallest product of the errors of what is saved, by designs from differences of nets."""
    frames, edges = frames_and_edges
    one = made(frames, edges)
    before = lacks(one, frames, edges)
    places = np.concatenate(one.model.last_layers)
    assert len(places) == 2 * (WIDTH + 1)
    designs: dict[str, list[np.ndarray]] = {name: [] for name in QUANTITIES}
    for place in places:
        one.refitted[:] = 0.0
        one.refitted[place] = 1.0
        for name, column in lacks(one, frames, edges).items():
            designs[name].append(before[name] - column)
    given = {
        name: Equations(np.stack(columns, axis=1), before[name], np.ones(len(before[name])))
        for name, columns in designs.items()
    }
    one.refit(0.0)  # seconds, in which nothing can be solved for
    assert not one.refitted.any()
    one.refit()
    found = one.refitted[places]
    assert not np.delete(one.refitted, places).any()
    # The nets are linear in them: what the equations promise is what the saved model gives.
    after = lacks(one, frames, edges)
    for name, promised in given.items():
        scale = np.abs(before[name]).max()
        np.testing.assert_allclose(
            after[name], promised.lacks - promised.design @ found, atol=1e-6 * scale
        )
        ratio = np.sqrt(np.mean(after[name] ** 2) / np.mean(before[name] ** 2))
        assert ratio < (1.0 + last_layer.MARGIN if name == "force" else most)
    assert product(given, found) < product(given, np.zeros(len(found))) - 1.0
    np.testing.assert_allclose(product(given, found), product(given, solve(given)), atol=1e-3)


def test_until_the_next_step(frames_and_edges) -> None:
    """Steps go on from where steps were."""
    frames, edges = frames_and_edges
    one, other = learner(frames, edges), learner(frames, edges)
    path = one.averaged()
    one.refit()
    assert (one.averaged() != path).any()
    assert (one.parameters == other.parameters).all()
    for each in (one, other):
        each.step(np.arange(3), 0.5)
    assert (one.averaged() == other.averaged()).all()


def test_frozen_layers_stay(frames_and_edges) -> None:
    one = learner(*frames_and_edges, "model.freeze=['fitting_net.0.*']")
    one.refit()
    frozen, free = one.model.last_layers
    assert not one.refitted[frozen].any()
    assert one.refitted[free].any()
    none = learner(*frames_and_edges, "model.freeze=['fitting']")
    none.refit()
    assert not none.refitted.any()


def test_quantities_without_weight_do_not_count(frames_and_edges) -> None:
    """Wrong virials and energies spoil nothing where they have none; without forces all stays."""
    frames, edges = frames_and_edges
    one = learner(frames, edges, "loss.energy=[0.0, 0.0]", "loss.virial=[0.0, 0.0]")
    one.refit()
    sound = one.refitted
    assert sound.any()
    one.model.frames = replace(frames, energies=-frames.energies, virials=frames.virials + 1e3)
    one.refit()
    assert (one.refitted == sound).all()
    one = learner(frames, edges, "loss.force=[0.0, 0.0]")
    one.refit()
    assert not one.refitted.any()


def test_weights_of_frames_are_those_of_groups(frames_and_edges) -> None:
    frames, edges = frames_and_edges
    weights = np.random.default_rng(0).uniform(0.1, 9.0, len(frames))
    of_file = replace(frames, weights=np.repeat(weights[:, None], 3, axis=1))
    by_file, by_group, plain = (learner(one, edges) for one in (of_file, frames, frames))
    by_group.of_frame[:] = weights
    for one in (by_file, by_group, plain):
        one.refit()
    np.testing.assert_array_equal(by_file.refitted, by_group.refitted)
    assert not np.array_equal(by_file.refitted, plain.refitted)


def test_isolated_atoms_do_not_move_the_energies_of_all(tmp_path) -> None:
    structures = [labelled(atoms) for atoms in trajectory(6)]
    structures += [Atoms("Ar", info={"energy": 50.0}), Atoms("Ne", info={"energy": 60.0})]
    write(tmp_path / "a.xyz", structures, format="extxyz")
    frames, edges = cache.load(tmp_path / "a.xyz", elements=[10, 18], cutoff=4.0, cache=None)
    assert frames.energies[-2:].tolist() == [50.0, 60.0]
    one = learner(frames, edges)
    one.learning_rate, one.usual = one.schedule.peak, 1.0
    moves = one._moves(np.arange(8), np.full(8, 1.0), slice(8))
    assert moves[:6].any(axis=1).all() and not moves[6:].any()
    wrong = frames.energies.copy()
    wrong[-2:] += 1e3
    one.align(np.arange(8), wrong)
    np.testing.assert_allclose(one.shift, 0.0, atol=1e-9)


def test_it_is_told_that_weights_of_frames_count(frames_and_edges, caplog) -> None:
    frames, edges = frames_and_edges
    weights = np.ones((len(frames), 3))
    weights[:4, 1], weights[6] = 2.0, 0.0
    with caplog.at_level("INFO"):
        learner(replace(frames, weights=weights), edges)
    assert "4 of 10 frames have weights of their own, which count" in caplog.text


def test_too_few_forces_change_nothing(frames_and_edges, monkeypatch) -> None:
    frames, edges = frames_and_edges
    one = learner(frames, edges)
    rows = 3 * np.bincount(edges.types) / (WIDTH + 1)  # of forces, for a parameter
    assert rows[0] != rows[1]
    for most, told in ((rows.max() + 1, []), (rows.max(), [rows.argmax()]), (rows.min(), [0, 1])):
        monkeypatch.setattr(last_layer, "ROWS", most)
        one.refit()
        assert [k for k in (0, 1) if one.refitted[one.model.last_layers[k]].any()] == told
    one.of_frame[:] = 0.0
    one.refit()
    assert not one.refitted.any()


@pytest.mark.parametrize("made", [learner, nep_learner])
def test_types_with_few_forces_keep_theirs(tmp_path, monkeypatch, made) -> None:
    """A dopant: one atom in each of twelve frames has too few forces, in 30 frames enough.

    The frames with dopants come first, where forces of some frames alone are looked at.
    """
    crystals = [atoms for seed in range(20) for atoms in trajectory(2, seed=seed)]
    for atoms in crystals:
        atoms.numbers[:] = 18
    for count in (12, 30):
        for atoms in crystals[:count]:
            atoms.numbers[0] = 10
        write(tmp_path / "a.xyz", [labelled(atoms) for atoms in crystals], format="extxyz")
        one = made(*cache.load(tmp_path / "a.xyz", elements=[10, 18], cutoff=4.0, cache=None))
        dopant, host = one.model.last_layers
        monkeypatch.setattr(last_layer, "ATOMS", 16 * 32)
        monkeypatch.setattr(last_layer, "ROWS", 3 * 14 / len(dopant))
        one.refit()
        assert one.refitted[host].any()
        assert one.refitted[dopant].any() == (count == 30)


def test_the_same_on_all_ranks(frames_and_edges) -> None:
    frames, edges = frames_and_edges
    alone = learner(frames, edges)
    alone.refit()

    def on_rank(ranks: comm.Communicator) -> np.ndarray:
        one = learner(frames, edges, ranks=ranks)
        one.refit()
        return one.refitted

    for found in on_ranks(2, on_rank):
        assert (found == alone.refitted).all()
