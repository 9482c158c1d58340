"""The fused DP engine against the float64 reference, and what it promises beyond that."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms

from harness import thorough
from pwmlff import devices, native
from pwmlff.arrays import written
from pwmlff.evaluation.engine import AtomsAndGhosts, choose
from pwmlff.evaluation.reference import evaluate
from pwmlff.models import DP, DPConfig
from pwmlff.native import EngineResult, Network, NetworkEngine
from pwmlff.report import Failure
from systems import SYSTEMS, grade_alone, graded, save

PRECISIONS = ("exact", "double", "mixed")
# The engine for the CPU, and the one for GPUs: on the CPU in one lane, and on a GPU where there is
# one. Its lanes as threads are tested on their own: they are slow.
DEVICES = ("host", "cpu", *(("cuda:0",) if devices.inventory().gpus else ()))
# Largest errors of the energy per atom, of forces (largest and RMS) and, relative, of the virial.
GATES = {
    "exact": (1e-10, 1e-10, 1e-10, 1e-10),
    "double": (1e-8, 1e-6, 1e-7, 1e-7),
    "mixed": (1e-6, 1e-4, 1e-5, 1e-5),
}
# One atom may be off by more than the average in float32.
ONE_ATOM = {"exact": 1, "double": 1, "mixed": 5}
SKIN = 0.7
CPU_VARIABLE = "PWMLFF_CPU"


@dataclass
class Result:
    atom_energy: np.ndarray
    forces: np.ndarray
    virial: np.ndarray  # [3, 3]
    atom_virial: np.ndarray  # [n, 6]
    centroid_virial: np.ndarray  # [n, 9]
    gamma: np.ndarray  # [n], or empty


class Engine:
    def __init__(self, model: DP, precision: str, elements=None, device: str = "host") -> None:
        self.network = Network(written("dp", model.arrays()))
        self.elements, self.cutoff = list(model.atom_type), model.Rmax
        present = self.elements if elements is None else elements
        self.flags = [int(z in present) for z in self.elements]
        self.precision, self.device = precision, "" if device == "host" else device
        self.make()

    def make(self, chunk_bytes: int = 0) -> None:
        self.core = NetworkEngine(
            self.network, self.precision, self.flags, self.device, chunk_bytes
        )

    def evaluate(self, rows: AtomsAndGhosts, nthreads: int = 1, *virials: bool) -> EngineResult:
        self.core.set_neighbors(rows.species, rows.first, rows.candidate)
        return self.moved(rows.x, nthreads, *virials)

    def moved(self, x, nthreads: int = 1, atom_virial=True, centroid_virial=True) -> EngineResult:
        grade = self.core.facts["has_grade"]
        return self.core.evaluate(x, nthreads, atom_virial, centroid_virial, grade)

    def __call__(self, atoms: Atoms, nthreads: int = 1) -> Result:
        rows = AtomsAndGhosts.find(atoms, self.elements, self.cutoff + SKIN)
        found = self.evaluate(rows, nthreads)

        def fold(values):
            folded = np.zeros((len(atoms), values.shape[1]))
            np.add.at(folded, rows.atom, values)
            return folded

        return Result(
            found.atom_energy,
            fold(found.force),
            matrix(found.virial),
            fold(found.atom_virial),
            fold(found.centroid_virial),
            found.grade,
        )


def matrix(components: np.ndarray) -> np.ndarray:
    """Of xx yy zz xy xz yz yx zx zy."""
    return components[[0, 3, 4, 6, 1, 5, 7, 8, 2]].reshape(3, 3)


def same(one: EngineResult, other: EngineResult) -> bool:
    """Bit by bit."""
    return all(
        (a is None and b is None) or np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


def assert_near(one: EngineResult, other: EngineResult, atol: float) -> None:
    for a, b in zip(one, other, strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@pytest.fixture(params=DEVICES)
def any_engine(request):
    """Engines by model, precision and elements, on each device."""
    return partial(Engine, device=request.param)


def check(result: Result, wanted, precision: str, scale: float = 1.0) -> None:
    energy, largest, rms, virial = (gate * scale for gate in GATES[precision])
    error = result.forces - wanted.forces
    by_atom = np.abs(result.atom_energy - wanted.atom_energy)
    assert by_atom.max() < ONE_ATOM[precision] * energy
    assert abs(result.atom_energy.sum() - wanted.energy) < energy * len(by_atom)
    assert np.abs(error).max() < largest
    assert np.sqrt((error**2).mean()) < rms
    assert np.abs(result.virial - wanted.virial).max() < virial * max(
        1.0, np.abs(wanted.virial).max()
    )


def random_model(elements, width: int, seed: int, max_neighbor: int = 60) -> DP:
    rng = np.random.default_rng(seed)
    n = len(elements)
    config = DPConfig(
        atom_type=elements,
        rmax=4.5,
        rmin=(0.5, 1.5, 4.0)[seed % 3],
        max_neighbor=max_neighbor,
        m2=max(1, width // 3),
        embedding=(width // 4, width // 2, width),
        fitting=(30, 30, 21),
    )
    davg = rng.normal(0.0, 0.05, (n, n, 1, 4)).repeat(max_neighbor, axis=2).reshape(n, -1)
    dstd = rng.uniform(0.04, 0.2, (n, n, 1, 4)).repeat(max_neighbor, axis=2).reshape(n, -1)
    return DP(config, davg=davg, dstd=dstd, energy_shift=rng.normal(size=n), seed=seed).eval()


def random_atoms(elements, natoms: int, seed: int, length: float = 6.0) -> Atoms:
    rng = np.random.default_rng(seed)
    cell = length * np.eye(3) + rng.uniform(-0.5, 0.5, (3, 3))
    return Atoms(
        numbers=rng.choice(elements, natoms),
        positions=rng.random((natoms, 3)) @ cell,
        cell=cell,
        pbc=True,
    )


def check_all(model: DP, frames, scaled: bool = False) -> None:
    """On each device in each precision: structures with what is expected of them."""
    for device, precision in itertools.product(DEVICES, PRECISIONS):
        print(device, precision)  # which of them it was that failed
        run = Engine(model, precision, device=device)
        for atoms, wanted in frames:
            scale = max(1.0, np.abs(wanted.forces).max()) if scaled else 1.0
            check(run(atoms), wanted, precision, scale)


@pytest.mark.parametrize("name", SYSTEMS)
def test_named_systems(name):
    model, atoms = SYSTEMS[name].model(), SYSTEMS[name].atoms()
    expected = evaluate(model, atoms, elements=SYSTEMS[name].elements)
    check_all(model, [(atoms, expected)])


def test_oracle(oracle):
    check_all(oracle.model, oracle.frames)


@pytest.mark.parametrize("seed,width", [*enumerate((8, 12, 25, 33, 50, 64, 100, 128))])
def test_random_models(seed, width):
    elements = (8, 72, 1, 14)[: 2 + seed % 3]
    model = random_model(elements, width, seed)
    atoms = random_atoms(elements, 14, seed)
    check_all(model, [(atoms, evaluate(model, atoms))])


def test_close_pairs():
    """Atoms on top of each other leave the tables, not the numbers."""
    model, frames = random_model((8, 72), 25, 0), []
    for distance in (0.05, 0.3, 0.4, 0.5, 0.7):
        atoms = random_atoms((8, 72), 12, 1)
        atoms.positions[1] = atoms.positions[0] + distance * np.array((0.6, 0.0, 0.8))
        frames.append((atoms, evaluate(model, atoms)))
    check_all(model, frames, scaled=True)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("radius", ["rmin", "rmax"])
def test_continuity(any_engine, radius, precision):
    """Energy and force do not jump where the switch begins and where neighbors come and go."""
    model = random_model((8, 72), 25, 1)
    run = any_engine(model, precision)
    boundary = model.Rmin if radius == "rmin" else model.Rmax
    results = []
    for distance in (boundary - 1e-9, boundary, boundary + 1e-9):
        positions = [(0, 0, 0), (0, 1.9, 0), (distance, 0, 0)]
        results.append(run(Atoms((8, 72, 72), positions=positions)))
    energy, force, *_ = GATES[precision]
    for one, other in itertools.pairwise(results):
        assert np.abs(one.atom_energy - other.atom_energy).max() < energy
        assert np.abs(one.forces - other.forces).max() < force


@pytest.mark.parametrize("precision", PRECISIONS)
def test_atoms_alone(any_engine, precision):
    model = random_model((8, 72), 12, 2)
    atoms = Atoms((8, 72, 72), positions=[(0, 0, 0), (50, 0, 0), (0, 50, 0)])
    result = any_engine(model, precision)(atoms)
    check(result, evaluate(model, atoms), precision)
    assert not result.forces.any()
    assert not result.virial.any()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_subset_of_species(any_engine, precision):
    """The number of species that take part divides the descriptor; slots of others are ignored."""
    model = random_model((8, 72, 1), 16, 4)
    atoms = random_atoms((8, 1), 10, 3)
    result = any_engine(model, precision, elements=(8, 1))(atoms)
    check(result, evaluate(model, atoms, elements=(8, 1)), precision)
    with pytest.raises(ValueError, match=r"center \d+ is of species 0, .* take part"):
        any_engine(model, precision, elements=(72, 1))(atoms)


@pytest.mark.parametrize("nthreads", [1, 2])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_overflow(any_engine, precision, nthreads):
    model = random_model((8, 72), 8, 6, max_neighbor=4)
    atoms = Atoms("O7", positions=[(1.1 * k, 0, 0) for k in range(7)])
    atoms.positions[6] += (20, 0, 0)
    with pytest.raises(ValueError, match=r"row 1 has 5 neighbors of species 0 .* allows 4"):
        any_engine(model, precision)(atoms, nthreads)
    atoms.positions[5] += (0, 20, 0)
    expected = evaluate(model, atoms, elements=[8, 72])
    check(any_engine(model, precision)(atoms, nthreads), expected, precision)


def test_a_refused_list_changes_nothing():
    """Atoms, and what is evaluated of them, stay those of the last sound list."""
    run = Engine(random_model((8, 72), 100, 7), "exact")
    with pytest.raises(ValueError, match="no neighbors were set"):
        run.core.evaluate(np.zeros((0, 3)))
    atoms = random_atoms((8, 72), 40, 7, length=9.0)
    rows = AtomsAndGhosts.find(atoms, run.elements, run.cutoff)
    wanted = run.evaluate(rows)
    with pytest.raises(ValueError, match="first"):
        run.core.set_neighbors(rows.species, rows.first[::-1], rows.candidate)
    with pytest.raises(ValueError, match="x "):
        run.core.evaluate(rows.x[:2])
    assert_near(run.moved(rows.x), wanted, 1e-11)


def test_two_callers():
    """A call lets go of Python's lock: a second one is right, or refused by an error."""
    run = Engine(random_model((8, 72), 100, 7), "exact")
    rows = AtomsAndGhosts.find(random_atoms((8, 72), 500, 7, length=20.0), run.elements, run.cutoff)
    wanted = run.evaluate(rows)
    start, refused = threading.Barrier(2), threading.Event()
    end = time.monotonic() + 30.0  # a busy machine may run one after the other for a while

    def call(_: int) -> None:
        start.wait()
        while time.monotonic() < end:
            try:
                found = run.evaluate(rows)
            except ValueError as error:
                assert "this engine is in use by another thread" in str(error)
                refused.set()
            else:
                assert same(found, wanted)
            if refused.is_set():
                return

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(call, range(2)))
    assert refused.is_set()
    assert same(run.evaluate(rows), wanted)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_virials(any_engine, precision):
    """Per-atom virials sum to the total; a neighbor gets all of a term, or half of it."""
    model = random_model((8, 72), 25, 10)
    run = any_engine(model, precision)
    result = run(random_atoms((8, 72), 12, 10))
    xx_yy_zz_xy_xz_yz_yx_zx_zy = result.virial.ravel()[[0, 4, 8, 1, 2, 5, 3, 6, 7]]
    scale = np.abs(result.virial).max()
    for virial in (result.atom_virial, result.centroid_virial):
        total = xx_yy_zz_xy_xz_yz_yx_zx_zy[: virial.shape[1]]
        np.testing.assert_allclose(virial.sum(0), total, rtol=0, atol=1e-12 * scale)

    rows = AtomsAndGhosts.find(random_atoms((8, 72), 12, 10), run.elements, run.cutoff)
    everything = run.evaluate(rows)
    for wanted in ((False, False), (True, False), (False, True)):
        found = run.evaluate(rows, 1, *wanted)
        assert (found.atom_virial is not None, found.centroid_virial is not None) == wanted
        assert_near(found, everything, 1e-12)

    pair = Atoms((8, 72), positions=[(0, 0, 0), (1.2, 0.4, -0.9)])
    rows = AtomsAndGhosts.find(pair, run.elements, run.cutoff)
    half = replace(rows, first=rows.first[:3], candidate=rows.candidate[:1])  # one has an energy
    found = run.evaluate(half)
    expected, centroid = np.outer(rows.x[1] - rows.x[0], found.force[1]), found.centroid_virial
    np.testing.assert_allclose(matrix(found.virial), expected, rtol=1e-12)
    np.testing.assert_allclose(found.atom_virial[0], found.atom_virial[1], rtol=1e-12)
    assert not centroid[0].any()
    np.testing.assert_allclose(centroid[1, :3], expected.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(centroid[1, 6], expected[1, 0], rtol=1e-12)


def test_table():
    """What the engine says of its tables."""
    model = random_model((8, 72), 25, 0)
    exact, double, mixed = (Engine(model, precision).core.facts for precision in PRECISIONS)
    assert (exact["table_bytes"], exact["table_error"]) == (0, [0.0, 0.0])
    assert 0 < mixed["table_bytes"] < double["table_bytes"]
    assert max(double["table_error"]) < 1e-6


def test_best_instruction_set(monkeypatch):
    """What the dynamic linker says that this processor runs."""
    monkeypatch.delenv(CPU_VARIABLE, raising=False)
    (linker,) = Path("/lib64").glob("ld-linux-x86-64.so.2")
    said = subprocess.run([linker, "--help"], capture_output=True, text=True, check=True).stdout
    levels = re.findall(r"x86-64-v(\d) \(supported", said)
    best = {"4": "avx512", "3": "avx2"}.get(max(levels, default=""), "baseline")
    assert Engine(random_model((8,), 8, 0), "double").core.facts["processor"] == best


def test_unknown_instruction_set(monkeypatch):
    monkeypatch.setenv(CPU_VARIABLE, "pentium")
    with pytest.raises(
        ValueError, match=r"PWMLFF_CPU is 'pentium'; this processor runs .*baseline"
    ):
        Engine(random_model((8,), 8, 0), "double")


def test_fitting_without_hidden_layers_and_full_axis(any_engine):
    config = DPConfig((8,), rmax=4.0, rmin=1.0, max_neighbor=30, m2=5, embedding=(5,), fitting=(1,))
    model = DP(config, seed=1).eval()
    atoms = random_atoms((8,), 9, 2)
    check(any_engine(model, "double")(atoms), evaluate(model, atoms), "double")


class _Extended(DP):
    """A DP with one more parameter."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.type_embedding = torch.nn.Parameter(torch.zeros(3))


@pytest.mark.parametrize(
    "change,message",
    [
        (lambda m: setattr(m, "davg", m.davg + torch.rand(m.davg.shape)), "davg differs between"),
        (lambda m: setattr(m, "davg", m.davg[:, :-1]), r"davg has shape \[1, 119\]"),
        (lambda m: setattr(m, "M2", 9), "M2 is 9"),
        (lambda m: setattr(m, "__class__", _Extended), "type_embedding"),
    ],
)
def test_models_that_do_not_fit(tmp_path, change, message):
    config = DPConfig((8,), rmax=4.0, rmin=1.0, max_neighbor=30, m2=3, embedding=(8,), fitting=(4,))
    model = (_Extended if message == "type_embedding" else DP)(config, seed=1).eval()
    if message != "type_embedding":
        change(model)
    with pytest.raises(Failure, match=message):
        choose(save(model, tmp_path / "a.pt", record=False), "fused", "double")


def test_wrong_arguments():
    model = random_model((8, 72), 8, 0)
    with pytest.raises(ValueError, match="precision is 'half'"):
        Engine(model, "half")
    with pytest.raises(ValueError, match="at least one of them"):
        Engine(model, "double", elements=())
    run = Engine(model, "double")
    good = AtomsAndGhosts.find(random_atoms((8, 72), 5, 0), run.elements, 5.0)
    for change, message in (
        ({"x": good.x[:-1]}, "x has shape"),
        ({"species": good.species + 2}, "species holds"),
        ({"first": good.first[:-1]}, "first has"),
        ({"first": good.first[::-1]}, "first has|first does not ascend"),
        ({"candidate": good.candidate + 10000}, "candidate holds 1"),
    ):
        bad = replace(good, **change)
        with pytest.raises(ValueError, match=message):
            run.evaluate(bad)
    with pytest.raises(ValueError, match="nthreads is 0"):
        run.evaluate(good, 0)


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_chunks(precision, device):
    """What is too large for the memory goes through the kernels part by part."""
    model = random_model((8, 72), 25, 13)
    atoms = random_atoms((8, 72), 90, 13, length=12.0)
    run = Engine(model, precision, device=device)
    whole = run(atoms)
    run.make(chunk_bytes=1)
    parts = run(atoms)
    assert np.array_equal(parts.atom_energy, whole.atom_energy)
    for name in ("forces", "virial", "atom_virial", "centroid_virial"):
        wanted = getattr(whole, name)
        np.testing.assert_allclose(
            getattr(parts, name), wanted, rtol=0, atol=1e-12 * np.abs(wanted).max()
        )
    check(parts, evaluate(model, atoms), precision)


@pytest.mark.parametrize("device", [*DEVICES, "cpu:lanes"])
@pytest.mark.parametrize("name", ["two elements, triclinic", "three elements, triclinic"])
def test_grade(name, device):
    """Against NumPy, and beside energies and forces that are as without it."""
    model, atoms = graded(SYSTEMS[name].model(), 5), SYSTEMS[name].atoms()
    alone, wanted = grade_alone(model, atoms), evaluate(model, atoms)
    for precision, tolerance in (("exact", 1e-11), ("double", 1e-8), ("mixed", 1e-5)):
        result = Engine(model, precision, device=device)(atoms)
        np.testing.assert_allclose(result.gamma, alone, rtol=tolerance)
        check(result, wanted, precision)


def test_grade_of_other_widths():
    model = graded(SYSTEMS["two elements, triclinic"].model(), 5)
    model.grade_mean, model.grade_factor = model.grade_mean[:, 1:], model.grade_factor[:, 1:, 1:]
    with pytest.raises(ValueError, match=r"not of the last hidden layer.*which has width 7"):
        Engine(model, "double")
    model.grade_factor = model.grade_factor[:, 1:]
    with pytest.raises(ValueError, match=r"grade_factor has shape \[2, 5, 6\], expected"):
        Engine(model, "double")


@pytest.mark.parametrize("width", [8, thorough(40), 100])
@pytest.mark.parametrize("natoms", [thorough(4), 19])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_lanes(precision, natoms, width):
    """Threads for the lanes of a GPU: nothing depends on their number, no barrier is missing."""
    model = random_model((8, 72), width, 11)
    atoms = random_atoms((8, 72), natoms, 11)
    atoms.positions[1] = atoms.positions[0] + (0.2, 0.1, 0.3)  # outside of the tables
    wanted = evaluate(model, atoms)
    scale = max(1.0, np.abs(wanted.forces).max())
    check(Engine(model, precision, device="cpu:lanes")(atoms), wanted, precision, scale)


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("reach", [3.0, 5.2, 9.0])
@pytest.mark.parametrize(
    "box", ["dense", "sparse", "flat", "line", "some far away", "very far away"]
)
def test_cell_list(box, reach, device):
    """The list made on a device holds the rows that are close, in an order of its own."""
    rng = np.random.default_rng(3)
    extents = {"dense": (14, 12, 10), "sparse": (300, 1, 500), "flat": (0, 40, 40)}
    x = rng.random((400, 3)) * extents.get(box, (25, 22, 20))
    if box == "line":
        x = rng.random((400, 1)) * (700, -700, 700) + rng.random((400, 3))
    elif box == "some far away":
        x[::9] += rng.integers(-3, 4, (45, 3)) * (2000, 30, 500)
    elif box == "very far away":
        x[:3] = [[-1e11, 1e11, -1e11], [-1e11, 1e11 + 2, -1e11], [1e30, -1e30, 1e30]]
    species = rng.integers(-1, 2, 400).astype(np.int32)
    run = Engine(random_model((8, 72), 8, 0), "double", device=device)
    first, candidate = run.core.find_neighbors(x, species, 150, reach)
    distance = np.linalg.norm(x[:150, None] - x[None], axis=2)
    for i in range(150):
        for s in range(2):
            close = (distance[i] < reach) & (species == s) & (np.arange(400) != i)
            wanted = np.flatnonzero(close) if species[i] >= 0 else []
            begin, end = first[2 * i + s : 2 * i + s + 2]
            np.testing.assert_array_equal(np.sort(candidate[begin:end]), wanted)
    again = run.core.find_neighbors(x, species, 150, reach)
    assert np.array_equal(again[1], candidate)


def test_cell_list_in_lanes():
    rng = np.random.default_rng(4)
    x, species = rng.random((25, 3)) * 8, np.zeros(25, np.int32)
    lists = [
        Engine(random_model((8,), 8, 0), "double", device=device).core.find_neighbors(
            x, species, 9, 4.0
        )
        for device in ("cpu", "cpu:lanes")
    ]
    assert np.array_equal(lists[0][0], lists[1][0])
    assert np.array_equal(lists[0][1], lists[1][1])


@pytest.mark.parametrize("device", DEVICES[1:])
def test_found_list_and_moving_atoms(device):
    """A list that was found serves the positions that follow."""
    model = random_model((8, 72), 25, 12)
    atoms = random_atoms((8, 72), 30, 12, length=8.0)
    host = Engine(model, "double")
    run = Engine(model, "double", device=device)
    rows = AtomsAndGhosts.find(atoms, run.elements, run.cutoff + SKIN)
    run.core.find_neighbors(rows.x, rows.species, len(atoms), run.cutoff + SKIN)
    rng = np.random.default_rng(12)
    for _ in range(3):
        moved = replace(rows, x=rows.x + rng.uniform(-0.1, 0.1, rows.x.shape))
        assert_near(run.moved(moved.x), host.evaluate(moved), 1e-9)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_seconds_of_kernels(device):
    """Only what runs while it is wanted is measured."""
    run = Engine(random_model((8, 72), 8, 0), "double", device=device)
    atoms = random_atoms((8, 72), 10, 0)
    run(atoms)
    assert run.core.facts["seconds"] == {}
    run.core.measure(True)
    run(atoms)
    once = run.core.facts["seconds"]
    assert set(once) == {"FindEdges", "EdgeMoments", "Fit", "Differentiate", "Forces", "SumRows"}
    assert min(once.values()) > 0
    run.core.measure(False)
    run(atoms)
    assert run.core.facts["seconds"] == once


@pytest.mark.parametrize(
    "device,message",
    [
        ("gpu", r"device is 'gpu'; choose cuda:N, cpu, cpu:lanes or none"),
        ("cuda:-1", r"device is 'cuda:-1'"),
        ("cuda:99", r"no CUDA|no cuda:99"),
    ],
)
def test_impossible_devices(device, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        Engine(random_model((8,), 8, 0), "double", device=device)


def test_needs_no_torch_openmp_of_its_own():
    """One OpenMP runtime in the process: the one that torch brings under the same name."""
    kernels = native.torch_library().replace("pwmlff_torch", "pwmlff_kernels")
    text = subprocess.run(["readelf", "-d", kernels], capture_output=True, text=True, check=False)
    if text.returncode != 0 or sys.platform != "linux":
        pytest.skip("no readelf")
    if "libomp" in text.stdout:
        pytest.skip("Clang brings an OpenMP runtime of its own")
    assert "libgomp.so.1" in text.stdout
