"""The engine for MACE on GPUs against that for CPUs: a GPU, or the CPU in its place."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms

from harness import thorough
from mace_oracle import Shape, random_arrays
from pwmlff import devices
from pwmlff.arrays import written
from pwmlff.evaluation.engine import AtomsAndGhosts
from pwmlff.native import EngineResult, Network, NetworkEngine

DEVICES = ("cpu", *(("cuda:0",) if devices.inventory().gpus else ()))
#: Of energies and forces, as a share of the largest, at least 1.
GATES = {"exact": (1e-13, 1e-12), "double": (1e-13, 1e-12), "mixed": (2e-6, 2e-5)}
#: All that standard models have, in small.
WIDE = Shape(
    elements=(1, 6, 8, 72), channels=33, largest=3, leaving=(2, 1, 0), residual=(True, True, True),
    density=True, agnesi=True, zbl=True,
)  # fmt: skip


def evaluate(shape: Shape, atoms: Atoms, precision: str, device: str, chunk: int) -> EngineResult:
    network = Network(written("mace", random_arrays(shape)))
    flags = [True] * len(shape.elements)
    engine = NetworkEngine(network, precision, flags, device, chunk)
    rows = AtomsAndGhosts.find(atoms, list(shape.elements), shape.cutoff + 0.5)
    engine.set_neighbors(rows.species, rows.first, rows.candidate)
    return engine.evaluate(rows.x, 1, True, True)


def cluster(shape: Shape, natoms: int, near: float = 1.2) -> Atoms:
    """Atoms by chance, the last of them beyond the others, as far from each other as said."""
    rng, positions = np.random.default_rng(natoms), []
    while len(positions) < natoms - 1:
        trial = rng.uniform(0.0, 1.2 * natoms ** (1 / 3), 3)
        if all(np.linalg.norm(trial - other) > near for other in positions):
            positions.append(trial)
    positions.append(np.full(3, 50.0))
    return Atoms(rng.choice(shape.elements, natoms), positions)


def assert_near(found: EngineResult, wanted: EngineResult, precision: str) -> None:
    energy, force = GATES[precision]
    assert np.abs(wanted.force).max() > 1e-3
    for name in ("atom_energy", "force", "virial", "atom_virial", "centroid_virial"):
        one, other = getattr(found, name), getattr(wanted, name)
        gate = {"atom_energy": energy, "force": force}.get(name, 10 * force)
        scale = max(1.0, np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=gate * scale, err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [*map(Shape.random, range(10)), WIDE], ids=[*range(10), "wide"])
def test_shapes(shape: Shape, device: str):
    atoms = cluster(shape, 20)
    for precision in GATES:
        wanted = evaluate(shape, atoms, precision, "", 0)
        for chunk in (0, 1):  # all atoms at once, and one after the other
            assert_near(evaluate(shape, atoms, precision, device, chunk), wanted, precision)


@pytest.mark.thorough
def test_lanes():
    """Each lane of a team is a thread."""
    for shape in (Shape(channels=2), WIDE):
        atoms = cluster(shape, 9)
        for precision in ("double", "mixed"):
            wanted = evaluate(shape, atoms, precision, "", 0)
            assert_near(evaluate(shape, atoms, precision, "cpu:lanes", 0), wanted, precision)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [Shape(), thorough(WIDE)], ids=["two layers", "wide"])
def test_short_edges(shape: Shape, device: str):
    """More than there is room for at first: tables do not reach below 1/16 of the cutoff."""
    atoms = cluster(shape, 30, near=0.0)
    close = atoms.copy()
    close.positions += 0.03 * np.random.default_rng(1).normal(size=atoms.positions.shape)
    together = atoms + close + close
    together.positions[-len(close) :] += 0.02
    short = (together.get_all_distances() < shape.cutoff / 16).sum() - len(together)
    assert short > 128
    for precision in GATES:
        wanted = evaluate(shape, together, precision, "", 0)
        assert_near(evaluate(shape, together, precision, device, 0), wanted, precision)


def test_gates_run_on_cpus_alone():
    """Whoever asks for an engine learns it, and takes another."""
    shape = Shape(gates=True)
    with pytest.raises(ValueError, match="no code of MACE with gates for GPUs"):
        evaluate(shape, cluster(shape, 9), "double", "cpu", 0)
