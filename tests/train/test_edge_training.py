"""Training of modules of kind EDGE against the reference, NumPy and central differences."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms

from edge_models import LennardJones, MessagePassing
from harness import TIMEOUT
from labelled_structures import frames_of
from pwmlff.data import neighbors
from pwmlff.data.frames import Frames
from pwmlff.evaluation import reference
from pwmlff.evaluation.engine import choose
from pwmlff.report import Failure
from pwmlff.train import comm, config, errors
from pwmlff.train.edge import TrainableModule, load_module
from pwmlff.train.learner import Learner
from pwmlff.train.loss import LossWeights, slopes
from pwmlff.train.trainable import read
from systems import SYSTEMS
from thread_ranks import on_ranks

ELEMENTS, CUTOFF = [8, 72], 3.0


WEIGHTS = LossWeights(2.0, 1.0, 0.5)
#: The same at all rates, which stay where they are; parameters as they are after each step.
SETTINGS = (
    "loss.energy=2.0", "loss.force=1.0", "loss.virial=0.5", "optimizer.warmup=0",
    "optimizer.decay=0", "optimizer.ema=0", "optimizer.learning_rate=0.01",
)  # fmt: skip
EVERY = np.arange(5)


def structures(seed: int = 0) -> list[Atoms]:
    """Crystals smaller than twice the cutoff, a slab, a cluster, an atom alone."""
    binary, slab = SYSTEMS["two elements, triclinic"], SYSTEMS["two elements, slab"]
    cluster = Atoms("OHfO", positions=[(0, 0, 0), (1.9, 0, 0), (0, 2.1, 0)])
    return [binary.atoms(seed), binary.atoms(seed + 1), slab.atoms(seed), cluster, Atoms("O")]


#: Energies of single atoms; where differences are taken they would cost digits.
SINGLE, NONE = {8: -400.0, 72: -1300.0}, {8: 0.0, 72: 0.0}


def taught(
    seed: int = 0, missing: bool = False, single: dict[int, float] = SINGLE
) -> tuple[Frames, neighbors.Edges]:
    """Labels of another module of the same class, with energies of single atoms added."""
    teacher = MessagePassing(ELEMENTS, CUTOFF, seed=7)
    every = structures(seed)
    found = [reference.evaluate(teacher, atoms) for atoms in every]
    energies = [
        f.energy + sum(single[z] for z in atoms.numbers)
        for f, atoms in zip(found, every, strict=True)
    ]
    forces, virials = [f.forces for f in found], np.array([f.virial for f in found])
    if missing:
        energies[1], forces[0][:], virials[2] = np.nan, np.nan, np.nan
    frames = frames_of(every, energies, forces, virials, ["a", "b", "a", "b", "a"])
    return frames, neighbors.find_edges(frames, ELEMENTS, CUTOFF)


def model_of(data: tuple[Frames, neighbors.Edges], **options) -> TrainableModule:
    """A module that differs from the teacher in its parameters."""
    module = MessagePassing(ELEMENTS, CUTOFF, seed=7)
    with torch.no_grad():
        module.charge += torch.tensor([0.5, -0.3])
    return TrainableModule(module, *data, **{"precision": "float64", **options})


def learner(data: tuple[Frames, neighbors.Edges], *settings: str, **options) -> Learner:
    """The same in training."""
    asked = config.from_command(
        data=["unused"], module="unused.py:Model", settings=[*SETTINGS, *settings]
    )
    ranks = options.get("ranks") or comm.Serial()
    return Learner(model_of(data, **options), asked, ranks)


def test_evaluates_as_the_reference_does(tmp_path: Path):
    """ase's neighbors, autograd by positions and strain, the saved file."""
    frames, edges = taught()
    trained = learner((frames, edges), precision="float32")
    for _ in range(3):
        trained.step(EVERY, 0.0)
    energy, forces, virial = trained.predict(frames, edges)
    path = tmp_path / "model.pt"
    trained.save(path, {"made": "today"})
    for k, atoms in enumerate(structures()):
        expected = reference.evaluate(path, atoms)
        rows = slice(frames.first[k], frames.first[k + 1])
        assert energy[k] == pytest.approx(expected.energy, rel=1e-13)
        np.testing.assert_allclose(forces[rows], expected.forces, rtol=0, atol=1e-12)
        np.testing.assert_allclose(virial[k], expected.virial, rtol=0, atol=1e-12)
    choice = choose(path)
    assert choice.info.card == {"made": "today"} and choice.info.dtype == "float64"
    assert choice.info.interaction_range == 2 * CUTOFF


def test_many_frames_are_evaluated_in_parts(monkeypatch):
    frames, edges = taught()
    trained = learner((frames, edges))
    whole = trained.predict(frames, edges)
    monkeypatch.setattr("pwmlff.train.edge.CHUNK_EDGES", 150)
    for one, other in zip(whole, trained.predict(frames, edges), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


def expected_loss(trained: TrainableModule, batch, weights: LossWeights, of_frame) -> float:
    """Of the configuration's documentation, frame by frame, in NumPy."""
    frames, edges = trained.frames, trained.edges
    energy, forces, virial = trained.predict(trained.parameters, frames, edges)

    def mean(error: np.ndarray) -> float:
        size, delta = np.abs(error), weights.huber or np.inf
        return np.where(size <= delta, size**2, 2 * np.minimum(delta, size) * size
                        - np.minimum(delta, size) ** 2).mean()  # fmt: skip

    total = 0.0
    for weight, terms in (
        (weights.energy, lambda k, n, _: (energy[k] - frames.energies[k]) / n),
        (weights.force, lambda _k, _n, rows: forces[rows] - frames.forces[rows]),
        (weights.virial, lambda k, n, _: (virial[k] - frames.virials[k]) / n),
    ):
        values, shares = [], []
        for k in batch:
            rows = slice(frames.first[k], frames.first[k + 1])
            value = mean(np.asarray(terms(k, frames.natoms[k], rows)))
            if not np.isnan(value):
                values.append(value)
                shares.append(of_frame[k])
        if shares:
            total += weight * np.average(values, weights=shares)
    return total


@pytest.mark.parametrize("huber", [0.0, 0.02])
def test_loss_and_gradient(huber: float):
    """Value by NumPy, gradient by central differences; labels that are missing, weights."""
    weights = replace(WEIGHTS, huber=huber)
    of_frame = np.array([1.0, 3.0, 0.5, 2.0, 1.0])
    trained = learner(taught(missing=True, single=NONE), f"loss.huber={huber}")
    trained.of_frame = of_frame
    batch = np.array([4, 0, 1, 3, 2])
    model = trained.model

    def found():
        return slopes(model.frames, batch, slice(5), model.evaluate(batch), weights, of_frame)

    def loss() -> float:
        return float(found().loss.sum())

    assert loss() == pytest.approx(expected_loss(model, batch, weights, of_frame), rel=1e-9)
    gradient = model.pullback(*found()[1:4])
    start = trained.parameters.copy()
    assert model.names == ["energy_shift", "charge"] and len(start) == 4
    for k in range(len(start)):
        values = []
        for sign in (1, -1):
            model.parameters = start + sign * 1e-5 * np.eye(4)[k]
            values.append(loss())
        assert gradient[k] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6)
    model.parameters = start.copy()
    # The first step of Adam is the rate, against the gradient.
    before = loss()
    assert trained.step(batch, 0.5) == pytest.approx(before, rel=1e-12)
    moved = -1e-2 * gradient / (np.abs(gradient) + 1e-8)
    np.testing.assert_allclose(trained.parameters - start, moved, rtol=1e-6)


def test_learns():
    """A module of the same class comes to the numbers of its teacher, single atoms included."""
    frames, edges = taught()
    trained = learner(
        (frames, edges), "optimizer.learning_rate=0.1", "optimizer.decay=1.0", "optimizer.ema=0.9",
        precision="float32",
    )  # fmt: skip
    before = errors.compute(frames, *trained.predict(frames, edges))
    losses = [trained.step(EVERY, k / 120) for k in range(120)]
    after = errors.compute(frames, *trained.predict(frames, edges))
    assert after.force.rmse < 0.02 * before.force.rmse
    assert losses[-1] < 1e-3 * losses[0]


@pytest.mark.parametrize("precision,tolerance", [("float32", 1e-4), ("float64", 1e-12)])
def test_two_ranks_learn_as_one_does(precision: str, tolerance: float):
    """With threads of each, also where a rank has no frame, to rounding."""
    data = taught(missing=True)

    def trained(ranks: comm.Communicator) -> np.ndarray:
        one = learner(data, precision=precision, ranks=ranks, threads=ranks.size)
        losses = [
            one.step(np.random.default_rng(k).permutation(5)[: 1 + k % 4], k / 10)
            for k in range(10)
        ]
        return np.concatenate([one.parameters, losses])

    alone = trained(comm.Serial())
    for other in on_ranks(2, trained):
        np.testing.assert_allclose(other, alone, rtol=tolerance, atol=tolerance)


def test_state_goes_on_to_the_last_bit():
    """Six steps are three and three, in another object, float32, with an average and clipping."""
    data = taught()
    settings = ("optimizer.ema=0.9", "optimizer.clip=0.1")
    one, first, second = (learner(data, *settings, precision="float32") for _ in range(3))
    batches = np.array([[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 2]])
    for batch in batches:
        one.step(batch, 0.0)
    for batch in batches[:3]:
        first.step(batch, 0.0)
    state = first.state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    second.restore(state)
    for batch in batches[3:]:
        second.step(batch, 0.0)
    for key, value in one.state().items():
        assert value.tobytes() == second.state()[key].tobytes(), key
    assert (one.averaged() == second.averaged()).all()
    with pytest.raises(Failure, match="of a model of other widths or elements"):
        second.restore({**state, "parameters": np.zeros(3)})
    with pytest.raises(Failure, match="of another module"):
        second.restore({**state, "model/buffer/mean": np.zeros(3)})


def test_average_and_clip():
    data = taught()
    plain, averaged = learner(data), learner(data, "optimizer.ema=0.5")
    path = []
    for _ in range(3):
        for each in (plain, averaged):
            each.step(EVERY[:3], 0.0)
        path.append(plain.parameters.copy())
    expected = np.average(path, axis=0, weights=[0.1 * 2 / 11, 0.9 * 2 / 11, 9 / 11])
    np.testing.assert_allclose(averaged.averaged(), expected, rtol=1e-12)
    assert (plain.averaged() == plain.parameters).all()
    # A gradient of 1e-9 is no longer large beside Adam's epsilon of 1e-8.
    clipped = learner(data, "optimizer.clip=1e-9")
    clipped.step(EVERY[:3], 0.0)
    assert np.abs(clipped.parameters - learner(data).parameters).max() < 0.1 * 1e-2


def test_frozen_parameters_stay():
    data = taught()
    with pytest.raises(Failure, match="no parameter that may change"):
        learner(data, "model.freeze=['*']")
    with pytest.raises(Failure, match=r"'fitting', which no parameter is called; .* charge"):
        learner(data, "model.freeze=['fitting']")
    trained = learner(data, "model.freeze=['energy_*']")
    start = trained.parameters.copy()
    trained.step(EVERY, 0.0)
    assert list(trained.parameters != start) == [False, False, True, True]


def test_parameters_in_any_layout_of_memory():
    module = torch.nn.Module()
    module.turned = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(read(module), [0, 3, 1, 4, 2, 5])


def test_gradients_that_are_no_numbers():
    data = taught()
    trained = learner(data)
    trained.parameters[2] = np.nan
    with pytest.raises(Failure, match="a gradient of norm nan in step 1"):
        trained.step(EVERY[:1], 0.0)
    with pytest.raises(Failure, match=r"frame 0 of 'file\.xyz': .* no number"):
        trained.predict(*data)


def test_edges_of_another_model():
    frames, _ = taught()
    for elements, cutoff in (([72, 8], CUTOFF), (ELEMENTS, 2.5)):
        with pytest.raises(ValueError, match=r"expected \[8, 72\] and 3\.0"):
            model_of((frames, neighbors.find_edges(frames, elements, cutoff)))


def test_fine_tuning(tmp_path: Path):
    """From a file of ours, and from one of the bare module; the energies of other data."""
    data = taught()
    first = learner(data, "optimizer.learning_rate=0.03")
    for _ in range(20):
        first.step(EVERY, 0.0)
    path = tmp_path / "first.pt"
    first.save(path, None)
    frames, edges = data
    moved = replace(frames, energies=frames.energies + 5.0 * frames.natoms)
    again = model_of((moved, edges))
    again.start_from(path)
    assert (again.parameters[2:] == first.parameters[2:]).all()
    old = errors.compute(frames, *first.predict(frames, edges))
    new = errors.compute(moved, *again.predict(again.parameters, moved, edges))
    assert new.force.rmse == pytest.approx(old.force.rmse, rel=1e-9)
    assert new.energy.rmse < 1.01 * old.energy.rmse
    bare = tmp_path / "bare.pt"
    torch.jit.script(MessagePassing(ELEMENTS, CUTOFF, seed=5)).save(bare)
    again.start_from(bare)
    expected = MessagePassing(ELEMENTS, CUTOFF, seed=5).charge.detach().numpy()
    assert (again.parameters[2:] == expected).all()
    other = tmp_path / "other.pt"
    torch.jit.script(LennardJones()).save(other)
    with pytest.raises(Failure, match=r"other\.pt' holds no parameters .* of another module"):
        again.start_from(other)


MODULE = """
import torch
from helper import WIDTH
class Model(torch.nn.Module):
    def __init__(self, depth: float = 1.0, fail: bool = False):
        super().__init__()
        if fail:
            raise KeyError("no way")
        self.model_type, self.cutoff, self.atom_type = "EDGE", 3.0, [8, 72]
        self.depth = torch.nn.Parameter(depth * torch.rand(2, WIDTH))
    def forward(self, edge_vec: torch.Tensor, edge_index: torch.Tensor, types: torch.Tensor,
                nlocal: int) -> torch.Tensor:
        smooth = (1.0 - edge_vec.square().sum(1) / self.cutoff**2) ** 3
        value = smooth * self.depth[types[edge_index[1]]].sum(1)
        return torch.zeros(nlocal, dtype=edge_vec.dtype).index_add(0, edge_index[0], value)
class Unnamed(Model):
    def __init__(self):
        super().__init__()
        del self.cutoff
class Detached(Model):
    def forward(self, edge_vec: torch.Tensor, edge_index: torch.Tensor, types: torch.Tensor,
                nlocal: int) -> torch.Tensor:
        return torch.zeros(nlocal, dtype=edge_vec.dtype)
class Unscriptable(Model):
    def forward(self, edge_vec, edge_index, types, nlocal: int):
        return [x for x in {1: edge_vec}.values() if print(locals())]
other = 3
"""


@pytest.fixture
def module_file(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("WIDTH = 3\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('not the json of Python')\n")
    path = tmp_path / "my_model.py"
    path.write_text(MODULE)
    return path


def test_module_of_a_file(module_file: Path):
    path = list(sys.path)
    module, info = load_module(f"{module_file}:Model", {"depth": 2.0}, seed=3)
    assert sys.path == path
    assert (info.kind, info.atom_type, info.cutoff) == ("EDGE", (8, 72), 3.0)
    again, _ = load_module(f"{module_file}:Model", {"depth": 1.0}, seed=3)
    other, _ = load_module(f"{module_file}:Model", {"depth": 1.0}, seed=4)
    assert torch.equal(module.depth, 2.0 * again.depth)
    assert not torch.equal(again.depth, other.depth)


@pytest.mark.parametrize(
    "spec, arguments, expected",
    [
        ("Model", {}, "expected FILE:CLASS like my_model.py:Model"),
        ("absent.py:Model", {}, "found no file 'absent.py'"),
        ("my_model.py:Absent", {}, "'my_model.py' has no class Absent"),
        ("my_model.py:other", {}, "has no class other that is a torch.nn.Module"),
        ("my_model.py:Model", {"width": 3}, r"arguments \{'width': 3\} fails: TypeError"),
        ("my_model.py:Model", {"fail": True}, "fails: KeyError: 'no way'"),
        ("my_model.py:Unnamed", {}, "my_model.py:Unnamed.*has no attribute.*cutoff"),
        ("my_model.py:Detached", {}, "does not keep to the model contract: .*edge_vec"),
        ("my_model.py:Unscriptable", {}, "cannot be scripted"),
        ("broken.py:Model", {}, "'broken.py' fails: SyntaxError"),
        ("notes.txt:Model", {}, "'notes.txt' is no Python file"),
    ],
)
def test_modules_that_cannot_be_used(module_file: Path, monkeypatch, spec, arguments, expected):
    monkeypatch.chdir(module_file.parent)
    Path("broken.py").write_text("class\n")
    Path("notes.txt").write_text("class\n")
    with pytest.raises(Failure, match=expected):
        load_module(spec, arguments)


def test_threads_take_frames_side_by_side():
    """As many as asked for are in the module at once, and change nothing but rounding."""
    data = taught(missing=True)
    alone, several = learner(data), learner(data, threads=3)
    # Nobody gets on before all three are there.
    meeting = threading.Barrier(3, timeout=TIMEOUT)
    several.model.module.register_forward_pre_hook(lambda *_: print(meeting.wait()))
    for trained in (alone, several):
        for batch in ([0, 1, 2, 3, 4], [2, 4, 3]):
            trained.step(np.array(batch), 0.0)
    np.testing.assert_allclose(several.parameters, alone.parameters, rtol=1e-12)
    for one, other in zip(alone.predict(*data), several.predict(*data), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-11)
