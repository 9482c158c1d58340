"""Errors of a model against NumPy, and `pwmlff test` against ase and the reference."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from ase.stress import full_3x3_to_voigt_6_stress
from typer.testing import CliRunner

from edge_models import LennardJones, MessagePassing, SinglePrecision
from labelled_structures import frames_of
from pwmlff.cli import app
from pwmlff.data.frames import Frames
from pwmlff.evaluation import reference
from pwmlff.report import Failure
from pwmlff.train import charts, evaluate
from pwmlff.train.errors import MAGNITUDES, compute, worst_atoms, worst_frames
from systems import SYSTEMS

BINARY = SYSTEMS["two elements, triclinic"]


@pytest.fixture
def labelled() -> Frames:
    """Structures of several sizes, groups and elements; the second lacks forces, the third all."""
    rng = np.random.default_rng(1)
    crystal = Atoms([22], cell=(3.0, 3.0, 3.0), pbc=True)
    structures = [Atoms([8, 72, 8]), Atoms([72] * 4), Atoms([8, 8]), crystal, Atoms([8] * 5)]
    forces = [rng.normal(0.0, 2.0, (len(atoms), 3)) for atoms in structures]
    virials = rng.normal(size=(5, 3, 3))
    energies = rng.normal(size=5)
    forces[1][:], energies[2], forces[2][:], virials[2] = np.nan, np.nan, np.nan, np.nan
    born = [rng.normal(size=(len(atoms), 3, 3)) for atoms in structures]
    born[1], born[4] = None, None
    return frames_of(structures, energies, forces, virials, ["a", "b", "a", "b", "c"], born=born)


def predicted(frames: Frames, seed: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((len(frames),), (len(frames.numbers), 3), (len(frames), 3, 3))
    return tuple(rng.normal(size=shape) for shape in shapes)


def test_against_loops_over_frames(labelled: Frames):  # noqa: PLR0912
    """Every number of every breakdown, frame by frame and atom by atom."""
    energy, forces, virial = predicted(labelled)
    born = np.random.default_rng(3).normal(size=(15, 3, 3))
    born[3:7] = np.nan  # as where there are no labels
    found = compute(labelled, energy, forces, virial, born=born)
    lists: dict = {}
    for k in range(len(labelled)):
        n = labelled.natoms[k]
        group = labelled.group_names[labelled.group[k]]
        if not np.isnan(labelled.energies[k]):
            error = 1000 * (energy[k] - labelled.energies[k]) / n
            for key in ("energy", (group, "energy")):
                lists.setdefault(key, []).append(error)
        for row in range(labelled.first[k], labelled.first[k + 1]):
            if k not in (1, 4):
                for error in (born[row] - labelled.born[row]).ravel():
                    for key in ("born", (group, "born")):
                        lists.setdefault(key, []).append(error)
            if np.isnan(labelled.forces[row]).any():
                continue
            size = np.sqrt((labelled.forces[row] ** 2).sum())
            low = max(m for m in MAGNITUDES if m <= size)
            symbol = {8: "O", 72: "Hf", 22: "Ti"}[labelled.numbers[row]]
            for axis in range(3):
                error = 1000 * (forces[row, axis] - labelled.forces[row, axis])
                for key in ("force", (group, "force"), symbol, low):
                    lists.setdefault(key, []).append(error)
        if not np.isnan(labelled.virials[k]).any():
            for error in (1000 * (virial[k] - labelled.virials[k]) / n).ravel():
                for key in ("virial", (group, "virial")):
                    lists.setdefault(key, []).append(error)

    def same(measure, key) -> None:
        values = np.array(lists.pop(key))
        assert measure.count == len(values)
        assert measure.rmse == pytest.approx(np.sqrt((values**2).mean()), rel=1e-12)
        assert measure.mae == pytest.approx(np.abs(values).mean(), rel=1e-12)
        assert measure.largest == pytest.approx(np.abs(values).max(), rel=1e-12)

    for name, measure in found.measures.items():
        same(measure, name)
    for name, measures in found.by_group.items():
        for quantity, measure in measures.items():
            same(measure, (name, quantity))
    for symbol, measure in found.by_element.items():
        same(measure, symbol)
    for each in found.by_magnitude:
        assert 3 * each.atoms == len(lists[each.low])
        same(each.measure, each.low)
    assert not lists
    assert compute(labelled, energy, forces, virial).born is None
    assert "force" in found.by_group["a"] and found.by_group["b"]["force"].count == 3
    json.dumps(found.data())


def test_units_lj(labelled: Frames):
    metal, lj = (compute(labelled, *predicted(labelled), units) for units in ("metal", "lj"))
    for quantity in ("energy", "force", "virial"):
        one, other = (getattr(errors, quantity).rmse for errors in (metal, lj))
        assert one == pytest.approx(1000 * other, rel=1e-12)
    assert lj.data()["reported_in"]["force"] == "epsilon/sigma"


def test_no_number_is_no_label(labelled: Frames):
    """A prediction of NaN is not taken for a label that is missing, and huge ones have an RMSE."""
    energy, forces, virial = predicted(labelled)
    forces[0, 1] = np.nan
    energy[0] = 1e200
    found = compute(labelled, energy, forces, virial)
    assert np.isnan(found.force.rmse)
    assert found.energy.rmse == pytest.approx(1e203 / 3 / 2, rel=1e-9)
    assert worst_atoms(labelled, forces, 1)[0].atom == 0
    with pytest.raises(ValueError, match=r"forces has shape \(3, 3\), expected \(15, 3\)"):
        compute(labelled, energy, forces[:3], virial)


def test_nothing_is_labelled():
    frames = frames_of([Atoms("O2"), Atoms("O")])
    found = compute(frames, np.zeros(2), np.zeros((3, 3)), np.zeros((2, 3, 3)))
    assert found.measures == {} and found.by_group == {} and found.by_magnitude == []
    assert worst_frames(frames, np.zeros(2), 3) == []


def test_worst(labelled: Frames):
    energy, forces, _ = predicted(labelled)
    difference = np.abs(energy - labelled.energies) / labelled.natoms
    order = [k for k in np.argsort(-difference) if k != 2]
    found = worst_frames(labelled, energy, 3)
    assert [w.index for w in found] == order[:3]
    assert abs(found[0].error) == pytest.approx(1000 * np.nanmax(difference))
    assert (found[0].file, found[0].atoms) == ("file.xyz", labelled.natoms[order[0]])
    (worst, *rest) = worst_atoms(labelled, forces, 100)
    assert len(rest) == 8  # of three frames with forces
    rows = np.linalg.norm(forces - labelled.forces, axis=1)
    row = int(np.nanargmax(rows))
    assert labelled.first[worst.index] + worst.atom == row
    assert worst.error == pytest.approx(1000 * rows[row])
    assert worst.magnitude == pytest.approx(np.linalg.norm(labelled.forces[row]))
    assert worst.element == {8: "O", 72: "Hf", 22: "Ti"}[labelled.numbers[row]]


@pytest.fixture
def read(monkeypatch):
    """Let files be read as given frames."""

    def set_frames(frames: Frames) -> None:
        monkeypatch.setattr(evaluate, "read", lambda *_, **__: frames)

    return set_frames


def structures() -> list[Atoms]:
    cluster = Atoms("OHfO", positions=[(0, 0, 0), (1.9, 0, 0), (0, 2.1, 0)])
    return [BINARY.atoms(1), BINARY.atoms(2), cluster, SYSTEMS["two elements, slab"].atoms()]


@pytest.mark.parametrize("kind", ["DP", "EDGE"])
def test_file_against_the_reference(read, tmp_path: Path, kind: str):
    """Numbers of the command against ase's neighbors and plain float64, by direct NumPy."""
    path = tmp_path / "model.pt"
    model = BINARY.model() if kind == "DP" else MessagePassing([8, 72], 3.0)
    torch.jit.script(model).save(path)
    rng = np.random.default_rng(3)
    every = structures()
    expected = [reference.evaluate(path, atoms) for atoms in every]
    noise = [rng.normal(0, 0.1, size=(len(atoms), 3)) for atoms in every]
    shift = rng.normal(size=len(every))
    push = rng.normal(size=(len(every), 3, 3))
    frames = frames_of(
        every,
        [e.energy + s for e, s in zip(expected, shift, strict=True)],
        [e.forces + n for e, n in zip(expected, noise, strict=True)],
        [e.virial + p for e, p in zip(expected, push, strict=True)],
    )
    read(frames)
    found = CliRunner().invoke(
        app, ["test", str(path), "any.xyz", "--plot", str(tmp_path / "parity.png"), "--json"]
    )
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert result["engine"] == ("fused" if kind == "DP" else "torchscript")
    n = np.array([len(atoms) for atoms in every])
    forces = np.concatenate(noise)
    for quantity, values in (
        ("energy", shift / n),
        ("force", forces),
        ("virial", push / n[:, None, None]),
    ):
        measure = result["errors"][quantity]
        assert measure["rmse"] == pytest.approx(1000 * np.sqrt((values**2).mean()), rel=1e-6)
        assert measure["mae"] == pytest.approx(1000 * np.abs(values).mean(), rel=1e-6)
    oxygen = forces[np.concatenate([atoms.numbers for atoms in every]) == 8]
    by_element = result["errors"]["by_element"]["O"]["rmse"]
    assert by_element == pytest.approx(1000 * np.sqrt((oxygen**2).mean()), rel=1e-6)
    assert len(result["worst_atoms"]) == 5 and len(result["worst_frames"]) == 4
    assert (tmp_path / "parity.png").stat().st_size > 1000


def test_single_precision_is_judged_as_lmp_runs_it(read, tmp_path: Path):
    """Atoms' energies are rounded as in lmp, sums are not."""
    path = tmp_path / "model.pt"
    torch.jit.script(SinglePrecision()).save(path)
    every = structures()
    expected = [reference.evaluate(path, atoms) for atoms in every]
    assert all(np.all(e.atom_energy * 2**10 % 1.0 == 0.0) for e in expected)
    frames = frames_of(
        every,
        [e.energy for e in expected],
        [e.forces for e in expected],
        [e.virial for e in expected],
    )
    read(frames)
    found = evaluate.test([path], ["any.xyz"])
    measures = found.errors.measures
    # The order of a sum of a few edges moves an energy by a unit in the last place, 1 meV, or not.
    assert measures["energy"].rmse <= 1.0
    assert measures["force"].largest < 1e-2 and measures["virial"].largest < 1e-2


def test_what_cannot_be_tested(read, tmp_path: Path):
    path = tmp_path / "model.pt"
    BINARY.model().save(path)
    read(frames_of(structures()))
    with pytest.raises(Failure, match="neither energies nor forces nor virials"):
        evaluate.test([path], ["any.xyz"])
    odd = [BINARY.atoms(), Atoms("OTi", positions=[[0, 0, 0], [2, 0, 0]])]
    read(frames_of(odd, [0.0, 0.0]))
    with pytest.raises(
        Failure, match=r"frame 1 of 'file\.xyz': atom 1 has atomic number 22, expected one of"
    ):
        evaluate.test([path], ["any.xyz"])
    crowd = Atoms("O2", positions=[[1, 1, 1], [1, 1, 1]], cell=[9, 9, 9], pbc=True)
    read(frames_of([BINARY.atoms(), crowd], [0.0, 0.0]))
    with pytest.raises(Failure, match=r"frame 1 of 'file\.xyz'.*non-finite"):
        evaluate.test([path], ["any.xyz"])
    with pytest.raises(Failure, match="--elements names Ti"):
        evaluate.test([path], ["any.xyz"], elements=["Ti"])
    with pytest.raises(Failure, match="found no folder"):
        evaluate.test([path], ["any.xyz"], plot=tmp_path / "absent" / "p.png")


def test_elements_take_part_as_in_lammps(read, tmp_path: Path):
    """Fewer elements divide the descriptor by less: those of a frame, or those that are named."""
    path = tmp_path / "model.pt"
    BINARY.model().save(path)
    oxygen = Atoms("O3", positions=[[0, 0, 0], [1.5, 0, 0], [0, 1.5, 0]])
    expected = reference.evaluate(path, oxygen, [8]).energy
    other = reference.evaluate(path, oxygen, [8, 72]).energy
    assert abs(expected - other) > 1e-3
    both = BINARY.atoms()
    read(frames_of([oxygen, both], [expected, reference.evaluate(path, both, [8, 72]).energy]))
    assert evaluate.test([path], ["any.xyz"]).errors.energy.rmse < 1e-6
    read(frames_of([oxygen], [expected]))
    assert evaluate.test([path], ["any.xyz"], elements=["O"]).errors.energy.rmse < 1e-6
    read(frames_of([oxygen], [other]))
    assert evaluate.test([path], ["any.xyz"], elements=["O", "Hf"]).errors.energy.rmse < 1e-6


def test_lennard_jones_units(read, tmp_path: Path):
    path = tmp_path / "lj.pt"
    torch.jit.script(LennardJones()).save(path)
    pair = Atoms("Ar2", positions=[[0, 0, 0], [1.2, 0, 0]])
    energy = 4 * (1.2**-12 - 1.2**-6)
    read(frames_of([pair], [energy + 0.5]))
    found = evaluate.test([path], ["any.xyz"])
    assert found.errors.energy.rmse == pytest.approx(0.25)
    assert found.data()["errors"]["reported_in"]["energy"] == "epsilon/atom"


def test_a_constant_for_each_element_is_told(tmp_path: Path, read):
    """By least squares in NumPy; and said, where it explains the error."""
    path = tmp_path / "model.pt"
    BINARY.model().save(path)
    rng = np.random.default_rng(5)
    every = [BINARY.atoms(seed) for seed in range(1, 9)]
    for atoms in every[::2]:
        del atoms[[k for k in range(len(atoms)) if atoms.numbers[k] == 8][:1]]
    right = np.array([reference.evaluate(path, atoms).energy for atoms in every])
    counts = np.array([[(atoms.numbers == z).sum() for z in (8, 72)] for atoms in every])
    noise = 0.01 * rng.normal(size=len(every))
    n = counts.sum(axis=1)
    read(frames_of(every, right - counts @ [1.5, -2.0] - n * noise))
    found = evaluate.test([path], ["any.xyz"])
    share = counts / n[:, None]
    constants, left, _, _ = np.linalg.lstsq(share, share @ [1.5, -2.0] + noise, rcond=None)
    shifted = found.judged.shifted
    assert shifted.energies == pytest.approx({"O": constants[0], "Hf": constants[1]}, abs=1e-6)
    assert shifted.measure.rmse == pytest.approx(1000 * np.sqrt(left[0] / len(every)), rel=1e-6)
    text = found.judged.remark()
    assert shifted.explains and f"O {constants[0]:+.4g}, Hf {constants[1]:+.4g} eV above" in text
    # Errors that have nothing to do with it, and too few frames to tell.
    read(frames_of(every, right + n * rng.normal(size=len(every))))
    assert not evaluate.test([path], ["any.xyz"]).judged.shifted.explains
    read(frames_of(every[:2], (right - counts @ [1.5, -2.0])[:2]))
    assert not evaluate.test([path], ["any.xyz"]).judged.shifted.explains


def test_isolated_atoms_are_beside_the_errors(tmp_path: Path, read):
    """As if they were not there, and what the model gives for them; the reference tells both."""
    path = tmp_path / "model.pt"
    BINARY.model().save(path)
    others = [BINARY.atoms(seed) for seed in (1, 2, 3)]
    alone = [Atoms("O"), Atoms("Hf", cell=(20.0, 20.0, 20.0), pbc=True), Atoms("O")]
    right = np.array([reference.evaluate(path, atoms).energy for atoms in others + alone])
    off = np.array([0.3, -0.2, 0.1, 50.0, 60.0, 52.0])
    groups = ["a", "a", "a", "a", "Isolated_Atom", "a"]
    frames = frames_of(others + alone, right + off, groups=groups)
    read(frames)
    picture = tmp_path / "parity.png"
    arguments = ["test", str(path), "any.xyz", "--plot", str(picture)]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    sizes = 1000 * np.abs(off[:3]) / [len(atoms) for atoms in others]
    by_group = found["errors"]["by_group"]
    for measure in (found["errors"]["energy"], by_group["a"]["energy"]):
        assert measure["count"] == 3
        assert measure["rmse"] == pytest.approx(np.sqrt((sizes**2).mean()), rel=1e-6)
    assert by_group["Isolated_Atom"]["energy"]["largest"] == pytest.approx(60000, rel=1e-6)
    assert found["energy_shifted"]["measure"]["count"] == 3
    assert sorted(frame["index"] for frame in found["worst_frames"]) == [0, 1, 2]
    for element, k, error in (("O", 3, 51.0), ("Hf", 4, 60.0)):
        one = found["isolated_atoms"][element]
        assert one["model"] == pytest.approx(right[k], rel=1e-9)
        assert one["data"] - one["model"] == pytest.approx(error, rel=1e-9)
    shown = CliRunner().invoke(app, arguments).stdout
    assert "isolated atom (eV)" in shown and "-51" in shown and "-60" in shown
    figure = charts.parity(
        *(frames, right, *predicted(frames)[1:]), evaluate.test([path], ["any.xyz"]).errors, "a.pt"
    )
    assert np.ptp(figure.axes[0].get_xlim()) < 10.0
    # Alone they are all that there is to judge.
    read(frames.select([3, 4, 5]))
    assert evaluate.test([path], ["any.xyz"]).errors.energy.count == 3


def test_several_models_and_their_mean(tmp_path: Path, monkeypatch):
    """In the order in which they are typed; the mean is that of energies, forces and virials."""
    paths = [tmp_path / name for name in ("a.pt", "b.pt")]
    for seed, path in enumerate(paths):
        torch.manual_seed(seed)
        BINARY.model(seed=seed).save(path)
    every = structures()[:2]
    found = [[reference.evaluate(path, atoms) for atoms in every] for path in paths]
    mean = [(a.energy + b.energy) / 2 for a, b in zip(*found, strict=True)]
    forces = [(a.forces + b.forces) / 2 for a, b in zip(*found, strict=True)]
    assert abs(found[0][0].energy - found[1][0].energy) > 1e-3
    frames = frames_of(every, mean, forces)
    monkeypatch.setattr(evaluate, "read", lambda *_, **__: frames)
    for words in (["a.pt", "b.pt", "data.xyz"], ["data.xyz", "a.pt", "b.pt"]):
        typed = [str(tmp_path / word) for word in words]
        run = CliRunner().invoke(app, ["test", *typed, "--json"])
        assert run.exit_code == 0, run.output
        result = json.loads(run.stdout)
        assert [model["model"] for model in result["models"]] == [str(path) for path in paths]
        half = [abs(a.energy - b.energy) / 2 for a, b in zip(*found, strict=True)]
        largest = 1000 * max(h / len(a) for h, a in zip(half, every, strict=True))
        for model in result["models"]:
            assert model["errors"]["energy"]["largest"] == pytest.approx(largest, rel=1e-6)
        assert result["model"] == "mean" and result["errors"]["energy"]["largest"] < 1e-6
        assert result["errors"]["force"]["largest"] < 1e-6
    shown = CliRunner().invoke(app, ["test", *typed]).output
    assert "of the mean of 2 models" in shown and "energy, shifted (meV/atom)" in shown
    alone = CliRunner().invoke(app, ["test", *map(str, paths)])
    assert alone.exit_code == 2 and "no file with labels" in " ".join(alone.output.split())


def test_parity_picture(labelled: Frames):
    """Points are label and prediction, per atom; many become a density."""
    energy, forces, virial = predicted(labelled)
    errors = compute(labelled, energy, forces, virial)
    figure = charts.parity(labelled, energy, forces, virial, errors, "a_b.pt")
    assert figure.get_suptitle().startswith("a_b.pt\n5 frames of ")
    axes = {a.get_label(): a for a in figure.axes}
    assert list(axes) == ["energy", "force", "virial"]
    points = axes["energy"].lines[-1]
    there = [0, 1, 3, 4]
    np.testing.assert_allclose(points.get_xdata(), (labelled.energies / labelled.natoms)[there])
    np.testing.assert_allclose(points.get_ydata(), (energy / labelled.natoms)[there])
    assert f"{errors.force.rmse:.4g} meV/Å" in axes["force"].get_title()
    assert axes["force"].get_xlabel() == "force of the data (eV/Å)"
    born = np.random.default_rng(3).normal(size=(15, 3, 3))
    errors = compute(labelled, energy, forces, virial, born=born)
    *_, last = charts.parity(labelled, energy, forces, virial, errors, "a", born).axes
    assert last.get_xlabel() == "Born charge of the data (e)"
    known = ~np.isnan(labelled.born)
    np.testing.assert_array_equal(last.lines[-1].get_xdata(), labelled.born[known])
    np.testing.assert_array_equal(last.lines[-1].get_ydata(), born[known])
    assert last.get_title() == f"RMSE {errors.born.rmse:.4g} e"
    many = frames_of([Atoms("O2000")], forces=[np.random.default_rng(0).normal(size=(2000, 3))])
    errors = compute(many, np.zeros(1), many.forces + 0.1, np.zeros((1, 3, 3)))
    figure = charts.parity(many, np.zeros(1), many.forces + 0.1, np.zeros((1, 3, 3)), errors, "a")
    (only,) = figure.axes
    assert only.get_label() == "force" and len(only.collections) == 1


def test_numbers_along_a_parity_picture_are_apart():
    """Energies far from zero have long numbers."""
    energies = np.linspace(-36.92, -36.6, 5)
    frames = frames_of([Atoms("O")] * 5, energies)
    predicted = energies + 0.01, np.zeros((5, 3)), np.zeros((5, 3, 3))
    figure = charts.parity(frames, *predicted, compute(frames, *predicted), "a.pt")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    inside = sorted((box for box in boxes if box.width), key=lambda box: box.x0)
    assert len(inside) > 2
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(inside))


def test_real_files(tmp_path: Path):
    """From files to numbers: signs of stress and virial, slices, groups, two files at once."""
    path = tmp_path / "model.pt"
    BINARY.model(isotropic=True).save(path)
    for name, seeds in (("one.xyz", (1, 2, 3)), ("two.xyz", (4,))):
        every = []
        for seed in seeds:
            atoms = BINARY.atoms(seed)
            right = reference.evaluate(path, atoms)
            stress = -right.virial / atoms.get_volume()
            atoms.calc = SinglePointCalculator(
                atoms,
                energy=right.energy,
                forces=right.forces,
                stress=full_3x3_to_voigt_6_stress(stress),
            )
            every.append(atoms)
        write(tmp_path / name, every, format="extxyz")
    words = [f"{tmp_path / 'one.xyz'}@0:2", str(tmp_path / "two.xyz")]
    found = CliRunner().invoke(app, ["test", str(path), *words, "--json"])
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)["errors"]
    assert result["frames"] == 3 and set(result["by_group"]) == {"one", "two"}
    for quantity in ("energy", "force", "virial"):  # files have 8 digits
        assert result[quantity]["rmse"] < 1e-3
    assert result["virial"]["count"] == 27
    shown = CliRunner().invoke(app, ["test", str(path), words[1], "--worst", "1"]).output
    for word in ("meV/atom", "meV/Å", "Hf", "two.xyz", "1 frame, 6 atoms, engine fused"):
        assert word in shown
    missing = CliRunner().invoke(app, ["test", str(path), str(tmp_path / "absent.xyz")])
    assert missing.exit_code == 2 and "absent.xyz" in missing.output
