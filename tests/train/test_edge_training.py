"""Training of modules of kind EDGE against the reference, NumPy and central differences."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
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
from pwmlff.train import errors
from pwmlff.train.adam import AdamOptions
from pwmlff.train.edge import EdgeTrainee, load_module
from systems import SYSTEMS

ELEMENTS, CUTOFF = [8, 72], 3.0


@dataclass(frozen=True)
class Weights:
    energy: float = 2.0
    force: float = 1.0
    virial: float = 0.5
    huber: float = 0.0


def structures(seed: int = 0) -> list[Atoms]:
    """Crystals smaller than twice the cutoff, a slab, a cluster, an atom alone."""
    binary, slab = SYSTEMS["two elements, triclinic"], SYSTEMS["two elements, slab"]
    cluster = Atoms("OHfO", positions=[(0, 0, 0), (1.9, 0, 0), (0, 2.1, 0)])
    return [binary.atoms(seed), binary.atoms(seed + 1), slab.atoms(seed), cluster, Atoms("O")]


def taught(seed: int = 0, missing: bool = False) -> tuple[Frames, neighbors.Edges]:
    """Labels of another module of the same class, with energies of single atoms added."""
    teacher = MessagePassing(ELEMENTS, CUTOFF, seed=7)
    every = structures(seed)
    found = [reference.evaluate(teacher, atoms) for atoms in every]
    single = {8: -400.0, 72: -1300.0}
    energies = [
        f.energy + sum(single[z] for z in atoms.numbers)
        for f, atoms in zip(found, every, strict=True)
    ]
    forces, virials = [f.forces for f in found], np.array([f.virial for f in found])
    if missing:
        energies[1], forces[0][:], virials[2] = np.nan, np.nan, np.nan
    frames = frames_of(every, energies, forces, virials, ["a", "b", "a", "b", "a"])
    return frames, neighbors.find_edges(frames, ELEMENTS, CUTOFF)


def trainee(data: tuple[Frames, neighbors.Edges], **options) -> EdgeTrainee:
    """A module that differs from the teacher in its parameters."""
    module = MessagePassing(ELEMENTS, CUTOFF, seed=7)
    with torch.no_grad():
        module.charge += torch.tensor([0.5, -0.3])
    return EdgeTrainee(module, *data, **{"precision": "float64", **options})


def test_evaluates_as_the_reference_does(tmp_path: Path):
    """ase's neighbors, autograd by positions and strain, the saved file."""
    frames, edges = taught()
    trained = trainee((frames, edges), precision="float32")
    for _ in range(3):
        trained.step(range(5), 1e-2, Weights())
    energy, forces, virial = trained.evaluate(frames, edges)
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
    trained = trainee((frames, edges))
    whole = trained.evaluate(frames, edges)
    monkeypatch.setattr("pwmlff.train.edge.CHUNK_EDGES", 150)
    for one, other in zip(whole, trained.evaluate(frames, edges), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


def expected_loss(trained: EdgeTrainee, batch, weights: Weights, of_frame) -> float:
    """Of the configuration's documentation, frame by frame, in NumPy."""
    frames, edges = trained.frames, trained.edges
    energy, forces, virial = trained.evaluate(frames, edges)

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
    weights = Weights(huber=huber)
    of_frame = np.array([1.0, 3.0, 0.5, 2.0, 1.0])
    trained = trainee(taught(missing=True), of_frame=of_frame)
    batch = np.array([4, 0, 1, 3, 2])
    slots = np.arange(5)

    def loss() -> float:
        return float(trained._loss(batch, slots, weights)[0].detach())

    assert loss() == pytest.approx(expected_loss(trained, batch, weights, of_frame), rel=1e-9)
    trained._loss(batch, slots, weights)[0].backward()
    gradient = torch.cat([p.grad.flatten() for p in trained.module.parameters()]).numpy()
    start = trained.parameters
    assert trained.names == ["energy_shift", "charge"] and len(start) == 4
    for k in range(len(start)):
        values = []
        for sign in (1, -1):
            moved = start.copy()
            moved[k] += sign * 1e-5
            trained.parameters = moved
            values.append(loss())
        trained.parameters = start
        assert gradient[k] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6)
    # The first step of Adam is the rate, against the gradient.
    trained.step(batch, 1e-3, weights)
    moved = -1e-3 * gradient / (np.abs(gradient) + 1e-8)
    np.testing.assert_allclose(trained.parameters - start, moved, rtol=1e-6)


def test_learns():
    """A module of the same class comes to the numbers of its teacher, single atoms included."""
    frames, edges = taught()
    trained = trainee((frames, edges), precision="float32", options=AdamOptions(average=0.9))
    before = errors.compute(frames, *trained.evaluate(frames, edges))
    sums = [trained.step(range(5), 0.1 * 0.97**k, Weights()) for k in range(120)]
    after = errors.compute(frames, *trained.evaluate(frames, edges))
    assert after.force.rmse < 0.02 * before.force.rmse
    assert sums[-1].loss < 1e-3 * sums[0].loss
    assert (sums[0].energies, sums[0].forces, sums[0].virials) == (5, 3 * len(frames.numbers), 45)
    # What a step tells is what the errors of the model before it are.
    assert np.sqrt(sums[0].force / sums[0].forces) == pytest.approx(
        before.force.rmse / 1000, rel=1e-4
    )
    assert np.sqrt(sums[0].energy / 5) == pytest.approx(before.energy.rmse / 1000, rel=1e-3)


def test_state_goes_on_to_the_last_bit():
    """Six steps are three and three, in another object, float32, with an average and clipping."""
    data = taught()
    options = {"precision": "float32", "options": AdamOptions(average=0.9, clip=0.1)}
    one, first, second = (trainee(data, **options) for _ in range(3))
    batches = [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 2]]
    for batch in batches:
        one.step(batch, 1e-2, Weights())
    for batch in batches[:3]:
        first.step(batch, 1e-2, Weights())
    state = first.state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    second.restore(state)
    for batch in batches[3:]:
        second.step(batch, 1e-2, Weights())
    for name, value in one.state().items():
        assert value.tobytes() == second.state()[name].tobytes(), name
    assert (one.averaged() == second.averaged()).all()
    other = dict(state)
    other["module/model.charge"] = np.zeros(3, np.float32)
    with pytest.raises(Failure, match="of another module"):
        second.restore(other)


def test_average_and_clip():
    data = taught()
    plain = trainee(data)
    averaged = trainee(data, options=AdamOptions(average=0.5))
    path = []
    for _ in range(3):
        for each in (plain, averaged):
            each.step([0, 1, 2], 1e-2, Weights())
        path.append(plain.parameters)
    expected = np.average(path, axis=0, weights=[0.1 * 2 / 11, 0.9 * 2 / 11, 9 / 11])
    np.testing.assert_allclose(averaged.averaged(), expected, rtol=1e-12)
    assert (plain.averaged() == plain.parameters).all()
    clipped = trainee(data, options=AdamOptions(clip=1e-5))
    clipped._loss(np.arange(3), np.arange(3), Weights())[0].backward()
    clipped._require_finite()
    norm = np.sqrt(sum(float(p.grad.square().sum()) for p in clipped.module.parameters()))
    assert norm == pytest.approx(1e-5, rel=1e-3)


def test_frozen_parameters_stay():
    data = taught()
    with pytest.raises(Failure, match="no parameter that may change"):
        trainee(data, freeze=["*"])
    with pytest.raises(Failure, match=r"'fitting', which no parameter is called; .* charge"):
        trainee(data, freeze=["fitting"])
    trained = trainee(data, freeze=["energy_*"])
    start = trained.parameters
    trained.step(range(5), 1e-2, Weights())
    assert list(trained.parameters != start) == [False, False, True, True]


def test_gradients_that_are_no_numbers():
    data = taught()
    trained = trainee(data)
    trained.parameters = np.array([0.0, 0.0, np.nan, 1.0])
    with pytest.raises(Failure, match="step 1: the gradient of the loss is nan"):
        trained.step([0], 1e-2, Weights())
    with pytest.raises(Failure, match=r"frame 0 of 'file\.xyz': .* no number"):
        trained.evaluate(*data)


def test_edges_of_another_model():
    frames, _ = taught()
    for elements, cutoff in (([72, 8], CUTOFF), (ELEMENTS, 2.5)):
        with pytest.raises(ValueError, match=r"expected \[8, 72\] and 3\.0"):
            trainee((frames, neighbors.find_edges(frames, elements, cutoff)))


def test_fine_tuning(tmp_path: Path):
    """From a file of ours, and from one of the bare module; the energies of other data."""
    data = taught()
    first = trainee(data)
    for _ in range(20):
        first.step(range(5), 0.03, Weights())
    path = tmp_path / "first.pt"
    first.save(path)
    frames, edges = data
    moved = replace(frames, energies=frames.energies + 5.0 * frames.natoms)
    again = trainee((moved, edges))
    again.start_from(path)
    assert (again.parameters[2:] == first.parameters[2:]).all()
    old = errors.compute(frames, *first.evaluate(frames, edges))
    new = errors.compute(moved, *again.evaluate(moved, edges))
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
    alone, several = trainee(data), trainee(data, threads=3)
    # Nobody gets on before all three are there.
    meeting = threading.Barrier(3, timeout=TIMEOUT)
    several.module.register_forward_pre_hook(lambda *_: print(meeting.wait()))
    for trained in (alone, several):
        for batch in ([0, 1, 2, 3, 4], [2, 4, 3]):
            trained.step(batch, 1e-2, Weights())
    np.testing.assert_allclose(several.parameters, alone.parameters, rtol=1e-12)
    for one, other in zip(alone.evaluate(*data), several.evaluate(*data), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-11)


RANKS = """
import sys
sys.path.insert(0, sys.argv[2])
import numpy as np
import torch
from pwmlff.train import comm
torch.set_num_threads(1)
ranks = comm.connect()
from test_edge_training import Weights, taught, trainee
trained = trainee(taught(missing=True), ranks=ranks, threads=2)
sums = [trained.step(batch, 1e-2, Weights()) for batch in ([0, 1, 2, 3, 4], [2], [4, 3], [1, 0, 2])]
comm.same_everywhere(ranks, trained.parameters)
if ranks.rank == 0:
    np.savez(sys.argv[1], parameters=trained.parameters, losses=[s.loss for s in sums],
             forces=[s.forces for s in sums], force=[s.force for s in sums])
"""


def test_two_ranks_are_as_good_as_one(tmp_path: Path):
    """With threads of each, also where a rank has no frame, to rounding."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    here = Path(__file__).parent
    words = [
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
        str(tmp_path / "two.npz"),
        str(here),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(here.parent)},
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    alone = trainee(taught(missing=True))
    batches = ([0, 1, 2, 3, 4], [2], [4, 3], [1, 0, 2])
    sums = [alone.step(batch, 1e-2, Weights()) for batch in batches]
    with np.load(tmp_path / "two.npz") as found:
        np.testing.assert_allclose(found["parameters"], alone.parameters, rtol=1e-12)
        np.testing.assert_allclose(found["losses"], [s.loss for s in sums], rtol=1e-10)
        np.testing.assert_array_equal(found["forces"], [s.forces for s in sums])
        np.testing.assert_allclose(found["force"], [s.force for s in sums], rtol=1e-10)
