"""Training of a NEP against the reference in NumPy, differences, and what files can hold."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from rich.console import Console
from scipy.optimize import minimize
from typer.testing import CliRunner

from labelled_structures import frames_of, labelled, trajectory
from nep_files import CHARGED, HEADS, random_structure, random_text
from pwmlff import Calculator
from pwmlff.cli import app
from pwmlff.data import extxyz, neighbors, readers
from pwmlff.evaluation import nep_reference
from pwmlff.evaluation.nep_file import parse_nep, read_nep
from pwmlff.report import Failure
from pwmlff.train import comm, evaluate, loop, memory, nep, record, train
from pwmlff.train.config import NepForm
from pwmlff.train.nep import NepModel, initial
from thread_ranks import on_ranks

pytestmark = pytest.mark.usefixtures("undrawn")

ELEMENTS = [10, 18]
FORM = NepForm((5.0, 4.0), (2, 2), (4, 4), (3, 1, 1), 8)
BATCH = np.array([3, 0, 2])
FORMS = {**HEADS, **CHARGED}
#: What labelled structures do not have, and cutoffs that no program writes.
NOT_TRAINED = ("temperature", "cutoffs by radii")


def data_of(structures, elements, cutoff: float, born=None):
    """Frames without labels but of Born charges, and neighbors."""
    zeros = [np.zeros((len(atoms), 3)) for atoms in structures]
    frames = frames_of(structures, np.zeros(len(structures)), zeros, born=born)
    return frames, neighbors.find_edges(frames, elements, cutoff)


@pytest.fixture(scope="module")
def structures():
    return trajectory(4)


@pytest.fixture(scope="module")
def data(structures):
    frames = frames_of(
        structures,
        [atoms.get_potential_energy() for atoms in structures],
        [atoms.get_forces() for atoms in structures],
    )
    return frames, neighbors.find_edges(frames, ELEMENTS, 5.0)


def model_of(data, precision: str = "float64", threads: int = 1) -> NepModel:
    return NepModel(initial(FORM, *data, seed=1), *data, precision, threads)


def weights(natoms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For energies, forces and virials of a batch of three frames."""
    rng = np.random.default_rng(2)
    return rng.normal(size=3), rng.normal(size=(natoms, 3)), rng.normal(size=(3, 3, 3))


@pytest.mark.parametrize("head", [head for head in FORMS if head not in NOT_TRAINED])
def test_all_forms(head: str):
    model = parse_nep(random_text(FORMS[head]))
    structures = [random_structure(list(model.elements), seed=k) for k in range(3)]
    results = [nep_reference.evaluate_nep(model, atoms) for atoms in structures]
    labels, weight = None, 7.0
    if model.charge_mode:  # of two of them
        labels = [None, *(0.9 * found.born + 0.1 for found in results[1:])]
    frames, edges = data_of(structures, list(model.elements), model.cutoff, labels)
    neutral = 5.0
    trained = NepModel(model, frames, edges, "float64", neutral=neutral, born=weight)
    batch = np.arange(3)
    energies, forces, virials = trained.evaluate(batch)
    size = max(1.0, abs(forces).max())
    assert abs(energies - [found.energy for found in results]).max() < 1e-9
    assert abs(forces - np.concatenate([found.forces for found in results])).max() < 1e-10 * size
    assert abs(virials - [found.virial for found in results]).max() < 1e-9 * size

    a, v, w = weights(len(forces))
    gradient, start = trained.pullback(a, v, w), trained.parameters
    rng = np.random.default_rng(4)
    # Along a random direction of each array, by central differences of fourth order.
    for name, part in zip(trained.names, trained.parts(np.arange(len(start))), strict=True):
        direction = np.zeros(len(start))
        direction[part] = rng.normal(size=part.size)

        def s(step: float, direction=direction) -> float:
            trained.parameters = start + step * direction
            energies, forces, virials = trained.evaluate(batch)
            charged = 0.0
            if model.charge_mode:
                now = nep._with_parameters(model, trained.parameters)
                found = [nep_reference.evaluate_nep(now, atoms) for atoms in structures]
                charged = neutral / 3 * sum(one.mean_charge**2 for one in found)
                errors = [
                    one.born - label for one, label in zip(found[1:], labels[1:], strict=True)
                ]
                charged += weight / 2 * sum((error**2).mean() for error in errors)
            return a @ energies + (v * forces).sum() + (w * virials).sum() + charged

        near, far = (s(k * 1e-4) - s(-k * 1e-4) for k in (1, 2))
        difference = (8 * near - far) / 12e-4
        scale = max(1.0, abs(gradient[part]).max()) + 1e-3 * size
        assert abs(gradient @ direction - difference) < 1e-6 * scale, name

    single = NepModel(model, frames, edges, "float32", neutral=neutral, born=weight)
    single.evaluate(batch)
    assert abs(single.pullback(a, v, w) - gradient).max() < 1e-5 * abs(gradient).max()


def test_descriptors_are_one_wide(data, structures):
    model = initial(FORM, *data, seed=1)
    y = np.concatenate([nep_reference.evaluate_nep(model, a).descriptors for a in structures])
    assert abs(np.ptp(y, axis=0) - 1).max() < 1e-9


def test_zbl_is_that_of_a_file(data, tmp_path: Path):
    model = initial(replace(FORM, zbl=2.0), *data, seed=1)
    trained = NepModel(model, *data)
    trained.save(tmp_path / "nep.txt", trained.parameters, None)
    first, second, *_ = (tmp_path / "nep.txt").read_text().splitlines()
    assert (first, second) == ("nep5_zbl 2 Ne Ar", "zbl 1.0 2.0")
    assert np.array_equal(read_nep(tmp_path / "nep.txt").zbl, model.zbl)


def test_threads_change_no_bit(data):
    found = []
    for threads in (1, 3):
        model = model_of(data, "float32", threads)
        predictions = model.evaluate(BATCH)
        found.append((*predictions, model.pullback(*weights(len(predictions[1])))))
    for one, other in zip(*found, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_change_no_bit(data, size: int):
    """With less frames than ranks, too."""
    a, v, w = weights(96)
    alone = model_of(data)
    alone.evaluate(BATCH)
    expected = alone.pullback(a, v, w)

    def gradient(ranks) -> np.ndarray:
        model = NepModel(alone.model, *data, "float64", ranks=ranks)
        mine = comm.owned(ranks, len(BATCH))
        model.evaluate(BATCH)
        return model.pullback(a[mine], v[32 * mine.start : 32 * mine.stop], w[mine])

    for found in on_ranks(size, gradient):
        assert np.array_equal(found, expected)


def test_state_goes_on(data):
    model, other = model_of(data), NepModel(initial(FORM, *data, seed=5), *data, "float64")
    other.restore(model.state())
    other.parameters = model.parameters
    for one, two in zip(model.evaluate(BATCH), other.evaluate(BATCH), strict=True):
        assert (one == two).all()


def test_elements_of_a_file(tmp_path: Path):
    """The model for some elements, in another order, is the same for structures of these."""
    path = tmp_path / "nep.txt"
    path.write_bytes(random_text(HEADS["cutoffs by element"].replace("nep4 2 O Hf", "nep4 2 O Hf")))
    whole = read_nep(path)
    part, swapped = nep.of_file(path, [72]), nep.of_file(path, [72, 8])
    atoms = random_structure([72], 6)
    one = nep_reference.evaluate_nep(part, atoms)
    assert one.energy == pytest.approx(nep_reference.evaluate_nep(whole, atoms).energy, abs=1e-12)
    atoms = random_structure([8, 72])
    one, two = (nep_reference.evaluate_nep(model, atoms) for model in (whole, swapped))
    assert one.energy == pytest.approx(two.energy, abs=1e-12)
    assert abs(one.forces - two.forces).max() < 1e-11


@pytest.mark.parametrize(
    "head, elements, words",
    [
        ("nep5", [72, 14], "elements has Si.*is for O Hf"),
        ("temperature", [], "temperature as a descriptor"),
        ("cutoffs by radii", [], "cutoffs by covalent radii"),
    ],
)
def test_files_that_do_not_go_on(head: str, elements: list[int], words: str, tmp_path: Path):
    path = tmp_path / "nep.txt"
    path.write_bytes(random_text(HEADS[head]))
    with pytest.raises(Failure, match=words):
        nep.of_file(path, elements)


SMALL = [
    "nep.cutoff=[5.0,4.0]", "nep.n_max=[2,2]", "nep.basis_size=[4,4]", "nep.l_max=[3,1,1]",
    "nep.neuron=8", "run.threads=1",
]  # fmt: skip


def test_training_and_going_on(tmp_path: Path):
    """A model learns; its file is a NEP of the same errors, from which a fine-tuning starts."""
    structures = trajectory(24)
    (trained,) = train(
        structures, ["Ne", "Ar"], tmp_path / "new", model="nep", epochs=60, settings=SMALL
    ).models
    assert trained.file == str(tmp_path / "new" / "best.txt")
    spread = np.concatenate([atoms.get_forces() for atoms in structures]).std()
    assert 1e-3 * trained.train["force"] < 0.25 * spread
    frames, edges = data_of(structures, ELEMENTS, 5.0)
    model = read_nep(trained.file)
    results = [nep_reference.evaluate_nep(model, atoms) for atoms in structures]
    again = NepModel(model, frames, edges)
    predicted = again.predict(again.parameters, frames, edges)
    assert abs(predicted[0] - [found.energy for found in results]).max() < 1e-9

    (tuned,) = train(
        structures, [], tmp_path / "tuned", epochs=2, finetune=trained.file,
        settings=["optimizer.learning_rate=1e-4", "run.threads=1"],
    ).models  # fmt: skip
    assert read_nep(tuned.file).elements == (10, 18)
    assert tuned.train["force"] < 1.5 * trained.train["force"]
    assert (read_nep(tuned.file).q_scaler == model.q_scaler).all()
    for name, weight in zip(model.layers[0], read_nep(tuned.file).layers[0], strict=True):
        assert 0 < abs(name - weight).max() < 0.1


def test_perfect_crystals(tmp_path: Path):
    """Descriptors that symmetry lets vanish, but for rounding, are not made large."""
    structures = []
    for crystal, a, size in (("fcc", 3.5, 2), ("bcc", 2.8, 3)):
        for strain in np.linspace(0.94, 1.06, 7):
            atoms = bulk("Ar", crystal, a=strain * a, cubic=True).repeat(size)
            structures.append(labelled(atoms))
    (trained,) = train(
        structures, ["Ar"], tmp_path / "new", model="nep", epochs=20, settings=SMALL
    ).models
    assert read_nep(trained.file).q_scaler.max() < 1e10
    assert trained.train["virial"] < 1e3  # meV/atom


def test_settings_that_do_not_go_together(tmp_path: Path):
    structures = trajectory(4)
    for settings, words in (
        (["nep.l_max=[4,2]"], "l_max has 2 numbers"),
        (["nep.cutoff=[4.0,5.0]"], "radial one that is not below"),
        (["run.device=cuda"], "trained on the CPU|sees 0 GPU"),
    ):
        with pytest.raises(Failure, match=words):
            train(structures, ["Ne", "Ar"], tmp_path / words[:5], model="nep", settings=settings)


# ---- charges


def charged_data(n: int = 6):
    """Labels of a file with charges, of frames of O and Hf."""
    model = parse_nep(random_text(CHARGED["charge 2, five"]))
    structures = [random_structure(ELEMENTS_OF_CHARGES, seed=k) for k in range(n)]
    results = [nep_reference.evaluate_nep(model, atoms) for atoms in structures]
    frames = frames_of(structures, [r.energy for r in results], [r.forces for r in results])
    return frames, neighbors.find_edges(frames, ELEMENTS_OF_CHARGES, 5.0)


ELEMENTS_OF_CHARGES = [8, 72]


@pytest.mark.parametrize("mode", [1, 2])
def test_charges_of_a_new_model(mode: int, tmp_path: Path):
    """Oxygen is the negative one, whatever the numbers by chance are; energies do not tell."""
    data = charged_data()
    files = []
    for seed in range(4):
        model = initial(replace(FORM, charge=mode), *data, seed=seed)
        trained = NepModel(model, *data, "float64")
        path = tmp_path / f"{seed}.txt"
        trained.save(path, trained.parameters, None)
        files.append(read_nep(path))
        atoms = data[0].structure(0)
        one, two = (nep_reference.evaluate_nep(m, atoms) for m in (model, files[-1]))
        assert one.energy == pytest.approx(two.energy, abs=1e-10)
        assert abs(abs(one.charges) - abs(two.charges)).max() < 1e-12
        structures = [data[0].structure(k) for k in range(5)]
        charges = [nep_reference.evaluate_nep(files[-1], atoms).charges for atoms in structures]
        assert sum(c[a.numbers == 8].sum() for c, a in zip(charges, structures, strict=True)) < 0
        kept = NepModel(model, *data, "float64", keep_signs=True)
        kept.save(path, kept.parameters, None)
        assert np.array_equal(read_nep(path).last_charge, model.last_charge)


def test_charges_for_a_file_without(tmp_path: Path):
    data = charged_data()
    rng = np.random.default_rng(0)
    without = initial(FORM, *data, seed=1)
    model = nep.with_charges(without, 2, rng)
    assert model.charge_mode == 2 and abs(model.last_charge).max() > 0
    assert nep.with_charges(model, 2, rng) is model
    with pytest.raises(Failure, match=r"\[nep\] charge is 1, .* has charges of mode 2"):
        nep.with_charges(model, 1, rng)
    two = parse_nep(random_text(HEADS["two layers"]))
    with pytest.raises(Failure, match="two hidden layers"):
        nep.with_charges(two, 1, rng)


def test_born_charges_are_learned(tmp_path: Path):
    """Labels tell the charges, and their sign."""
    structures = [random_structure(ELEMENTS_OF_CHARGES, seed=k) for k in range(8)]
    teacher = parse_nep(random_text(CHARGED["charge 2, five"]))
    teacher = replace(teacher, root_epsilon=1.5)
    results = [nep_reference.evaluate_nep(teacher, atoms) for atoms in structures]
    labels = [*(found.born for found in results[:6]), None, None]
    data = data_of(structures, ELEMENTS_OF_CHARGES, 5.0, labels)
    # Nothing else tells charges from the root apart.
    other = replace(teacher, last_charge=-0.5 * teacher.last_charge, root_epsilon=1.0)
    trained = NepModel(other, *data, "float64", born=1.0)
    learning = dict(
        zip(trained.names, trained.parts(np.arange(len(trained.parameters))), strict=True)
    )
    charges = np.concatenate([part for name, part in learning.items() if "charge" in name])
    batch = np.arange(8)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        trained.parameters[charges] = values
        _, forces, virials = trained.evaluate(batch)
        slope = trained.pullback(np.zeros(8), 0 * forces, 0 * virials)
        now = nep._with_parameters(teacher, trained.parameters)
        born = [nep_reference.evaluate_nep(now, atoms).born for atoms in structures[:6]]
        errors = [one - label for one, label in zip(born, labels, strict=False)]
        return sum((error**2).mean() for error in errors) / 6, slope[charges]

    best = minimize(loss, trained.parameters[charges], jac=True, method="L-BFGS-B")
    assert best.fun < 1e-4 * loss(-0.5 * teacher.last_charge.ravel())[0]
    trained.parameters[charges] = best.x
    trained.save(tmp_path / "nep.txt", trained.parameters, None)
    learned = read_nep(tmp_path / "nep.txt")
    for atoms, wanted in zip(structures, results, strict=True):
        found = nep_reference.evaluate_nep(learned, atoms)
        assert abs(found.born - wanted.born).max() < 0.05 * abs(wanted.born).max()
        assert abs(found.charges - 1.5 * wanted.charges).max() < 0.05 * abs(wanted.charges).max()
    root = learning["root_epsilon"]
    assert trained.free([])[root].all()
    assert not NepModel(other, *data).free([])[root].any()


def test_signs_of_born_charges(tmp_path: Path):
    """A training begins with those of the labels; a file has a positive root_epsilon."""
    structures = [random_structure(ELEMENTS_OF_CHARGES, seed=k) for k in range(3)]
    model = parse_nep(random_text(CHARGED["charge 2, five"]))
    labels = [nep_reference.evaluate_nep(model, atoms).born for atoms in structures]
    data = data_of(structures, ELEMENTS_OF_CHARGES, 5.0, labels)
    other = replace(model, last_charge=-model.last_charge)
    trained = NepModel(other, *data, born=1.0)
    trained.take_signs()
    learned = nep._with_parameters(other, trained.parameters)
    assert np.array_equal(learned.last_charge, model.last_charge)
    without = NepModel(other, *data, born=0.0)
    without.take_signs()
    assert np.array_equal(without.parameters, NepModel(other, *data).parameters)
    trained.parameters[-1] *= -1.0
    trained.save(tmp_path / "nep.txt", trained.parameters, None)
    saved = read_nep(tmp_path / "nep.txt")
    assert saved.root_epsilon == model.root_epsilon
    assert np.array_equal(saved.last_charge, -model.last_charge)


def test_weights_of_born_charges():
    """Of groups and files, as of forces; their scale does not count."""
    structures = [random_structure(ELEMENTS_OF_CHARGES, seed=k) for k in range(3)]
    model = parse_nep(random_text(CHARGED["charge 2, five"]))
    labels = [0.8 * nep_reference.evaluate_nep(model, atoms).born for atoms in structures]
    frames, edges = data_of(structures, ELEMENTS_OF_CHARGES, 5.0, labels)

    def gradient(own: list[float], of_frame: list[float]) -> np.ndarray:
        weights = np.repeat(np.array(own)[:, None], 3, axis=1)
        trained = NepModel(
            model, replace(frames, weights=weights), edges, "float64",
            born=2.0, of_frame=np.array(of_frame),
        )  # fmt: skip
        _, forces, virials = trained.evaluate(np.arange(3))
        return trained.pullback(np.zeros(3), 0 * forces, 0 * virials)

    usual = gradient([1, 1, 1], [1, 1, 1])
    parts = [gradient([1, 1, 1], np.eye(3)[k]) for k in range(3)]
    scale = abs(usual).max()
    assert abs(sum(parts) / 3 - usual).max() < 1e-12 * scale
    assert abs(gradient([1, 1, 1], [10, 10, 10]) - usual).max() < 1e-12 * scale
    weighted = gradient([0, 1, 3], [1, 1, 1])
    assert abs((parts[1] + 3 * parts[2]) / 4 - weighted).max() < 1e-12 * scale


def test_training_with_labels_of_born_charges(tmp_path: Path, monkeypatch):
    """From columns of a file to the errors that the table, the end and a test tell."""
    frames, _ = charged_data(6)
    model = parse_nep(random_text(CHARGED["charge 2, five"]))
    structures = [frames.atoms(k) for k in range(6)]
    for atoms in structures:
        born = nep_reference.evaluate_nep(model, atoms).born
        atoms.arrays["bec"] = born.reshape(-1, 9)
    shown, scored = [], []
    score_of = loop.score_of

    def spied(rmse, untaught) -> float:
        scored.append((rmse, untaught))
        return score_of(rmse, untaught)

    monkeypatch.setattr(loop, "score_of", spied)
    for name, weight in (("with", 5.0), ("without", 0.0)):
        settings = [*SMALL, "nep.charge=2", f"nep.born={weight}"]
        (trained,) = train(
            structures[:5], ["O", "Hf"], tmp_path / name, valid=structures[5:], model="nep",
            epochs=30, settings=settings,
        ).models  # fmt: skip
        rmse, untaught = scored[-1]
        assert ("born" in rmse) is bool(weight)
        # That of atoms with one charge for each element, on the frame that validates.
        labels, z = structures[5].arrays["bec"].reshape(-1, 3, 3), structures[5].numbers
        charges = [np.trace(labels[z == one].mean(axis=0)) / 3 for one in z]
        error = labels - np.array(charges)[:, None, None] * np.eye(3)
        assert untaught["born"] == pytest.approx(np.sqrt((error**2).mean()))
        extxyz.write_whole(tmp_path / "all.xyz", structures)
        report = evaluate.test([Path(trained.file)], [str(tmp_path / "all.xyz")])
        shown.append(report.data()["errors"]["born"]["rmse"])
        with (console := Console(width=100)).capture() as capture:
            console.print(report.show())
        assert f"Born charge (e) │ {shown[-1]:.4g}" in re.sub(" +", " ", capture.get())
        # What is in the table is of the reference, of the file that the row is of.
        learned = read_nep(trained.file)
        rows = {row.step: row for row in record.read(Path(trained.folder) / "log.jsonl")}
        for which, part in (("train", structures[:5]), ("valid", structures[5:])):
            found = (nep_reference.evaluate_nep(learned, atoms).born for atoms in part)
            labels = np.concatenate([atoms.arrays["bec"] for atoms in part])
            error = np.concatenate([*found]).reshape(-1, 9) - labels
            told = getattr(rows[trained.best], f"born_{which}")
            assert told == pytest.approx(np.sqrt((error**2).mean()), rel=1e-6)
            assert getattr(trained, which)["born"] == told
        both = " / ".join(f"{one['born']:.4g}" for one in (trained.train, trained.valid))
        card = CliRunner().invoke(app, ["info", trained.file], env={"COLUMNS": "300"}).stdout
        assert f"Born charge {both} e" in card
    assert shown[0] < 0.5 * shown[1]
    assert read_nep(tmp_path / "without" / "best.txt").root_epsilon == 1.0


def test_born_charges_of_several_models(tmp_path: Path):
    """Of each, and of their mean where all have charges."""
    paths = [tmp_path / f"{k}.txt" for k in range(2)]
    for k, path in enumerate(paths):
        path.write_bytes(random_text(CHARGED["charge 1"], seed=k))
    atoms = random_structure(ELEMENTS_OF_CHARGES)
    found = [nep_reference.evaluate_nep(read_nep(path), atoms).born for path in paths]
    label = 0.8 * found[0]
    atoms.arrays["bec"] = label.reshape(-1, 9)
    atoms.info["energy"] = 1.0
    extxyz.write_whole(tmp_path / "a.xyz", [atoms])
    report = evaluate.test(paths, [str(tmp_path / "a.xyz")])
    told = [one.errors.born.rmse for one in (*report.models, report.judged)]
    wanted = [np.sqrt(((born - label) ** 2).mean()) for born in (*found, sum(found) / 2)]
    assert told == pytest.approx(wanted, rel=1e-6)
    paths[1].write_bytes(random_text(HEADS["nep5"]))
    report = evaluate.test(paths, [str(tmp_path / "a.xyz")])
    assert report.models[0].errors.born and not report.errors.born


def test_structures_with_results_of_a_calculator(tmp_path: Path):
    """Born charges of those are matrices; files have them as nine columns."""
    (tmp_path / "teacher.txt").write_bytes(random_text(CHARGED["charge 2, five"]))
    model = read_nep(tmp_path / "teacher.txt")
    structures = [random_structure(ELEMENTS_OF_CHARGES, seed=k) for k in range(2)]
    for atoms in structures:
        atoms.calc = Calculator(tmp_path / "teacher.txt")
        atoms.calc.get_property("born_effective_charges", atoms)
    frames = readers.read(memory.as_files(structures, tmp_path / "out", "train"))
    for k, atoms in enumerate(structures):
        found = nep_reference.evaluate_nep(model, atoms)
        assert abs(frames.born[frames.rows(k)] - found.born).max() < 1e-7
        assert abs(frames.forces[frames.rows(k)] - found.forces).max() < 1e-7
        assert frames.energies[k] == pytest.approx(found.energy)


@pytest.mark.parametrize("size", [2, 4])
def test_labels_of_born_charges_on_ranks(size: int):
    structures = [random_structure(ELEMENTS_OF_CHARGES, seed=k) for k in range(3)]
    model = parse_nep(random_text(CHARGED["charge 1"]))
    labels = [None, *(0.8 * nep_reference.evaluate_nep(model, a).born for a in structures[1:])]
    data = data_of(structures, ELEMENTS_OF_CHARGES, 5.0, labels)

    def gradient(ranks: comm.Communicator) -> np.ndarray:
        trained = NepModel(model, *data, "float64", ranks=ranks, born=1.0)
        energies, forces, virials = trained.evaluate(np.arange(3))
        return trained.pullback(0 * energies, 0 * forces, 0 * virials)

    expected = gradient(comm.Serial())
    assert abs(expected).max() > 1e-3
    for found in on_ranks(size, gradient):
        assert np.array_equal(found, expected)


def test_frames_with_a_charge():
    data = charged_data(3)
    data[0].total_charges[1] = 1.0
    model = parse_nep(random_text(CHARGED["charge 1"]))
    with pytest.raises(Failure, match=r"frame 1 of .* its total charge is 1 e, .* leave 1 such"):
        NepModel(model, *data)


def test_frames_without_a_box():
    data = charged_data(3)
    data[0].pbc[1, 2] = False
    model = initial(FORM, *data, seed=1)
    with pytest.raises(Failure, match=r"frame 1 of .* periodic along \[True, True, False\]"):
        NepModel(nep.with_charges(model, 1, np.random.default_rng(0)), *data)


def test_isolated_atoms_need_no_box():
    structures = [random_structure(ELEMENTS_OF_CHARGES), Atoms("Hf"), Atoms("O")]
    data = data_of(structures, ELEMENTS_OF_CHARGES, 5.0)
    model = parse_nep(random_text(CHARGED["charge 1"]))
    trained, batch = NepModel(model, *data, "float64", keep_signs=True), np.arange(3)
    energies, forces, _ = trained.evaluate(batch)
    wanted = [nep_reference.evaluate_nep(model, atoms).energy for atoms in structures]
    assert abs(energies - wanted).max() < 1e-9
    assert np.isfinite(trained.pullback(np.ones(3), np.ones_like(forces), np.ones((3, 3, 3)))).all()


def test_charges_are_learned(tmp_path: Path):
    """Those of another model, whose energies and forces are all that is told, by their squares."""
    data = charged_data(12)
    teacher = parse_nep(random_text(CHARGED["charge 2, five"]))
    close = replace(teacher, last_charge=0.7 * teacher.last_charge)
    trained = NepModel(close, *data, "float64", keep_signs=True)
    learning = trained.parts(np.arange(len(trained.parameters)))
    names = dict(zip(trained.names, learning, strict=True))
    charges = np.concatenate([part for name, part in names.items() if "charge" in name])
    frames, batch = data[0], np.arange(12)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        trained.parameters[charges] = values
        energies, forces, virials = trained.evaluate(batch)
        error = forces - frames.forces
        slope = trained.pullback(0 * energies, 2 * error, 0 * virials)
        return (error**2).sum(), slope[charges]

    first = loss(trained.parameters[charges])[0]
    best = minimize(loss, trained.parameters[charges], jac=True, method="L-BFGS-B")
    assert best.fun < 1e-3 * first
    found = best.x.reshape(teacher.last_charge.shape)
    learned = replace(teacher, last_charge=found)
    for k in range(3):
        atoms = frames.structure(k)
        one, two, before = (
            nep_reference.evaluate_nep(m, atoms).charges for m in (teacher, learned, close)
        )
        assert abs(two - one).max() < 0.2 * abs(before - one).max()
