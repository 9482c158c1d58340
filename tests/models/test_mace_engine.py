"""The fused engine for MACE against plain PyTorch: random shapes, precisions, damaged arrays."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

from harness import thorough
from mace_oracle import Shape, random_arrays, save
from pwmlff.arrays import written
from pwmlff.evaluation.engine import choose
from pwmlff.report import Failure

#: Of the largest: as they are, in tables, in float32 (there of energies, where these are larger).
TOLERANCES = {"exact": 1e-12, "double": 2e-9, "mixed": 1e-6}


def structure(elements: tuple[int, ...], seed: int = 0) -> Atoms:
    """A box shorter than twice the cutoff, with close pairs that the tables do not reach."""
    rng = np.random.default_rng(seed)
    atoms = Atoms(
        rng.choice(elements, 24),
        cell=[[5.0, 0.0, 0.0], [1.0, 5.5, 0.0], [-0.5, 0.7, 6.0]],
        pbc=True,
    )
    grid = np.stack(np.meshgrid(range(3), range(2), range(4), indexing="ij"), -1).reshape(-1, 3)
    atoms.set_scaled_positions(grid / (3, 2, 4) + rng.normal(0.0, 0.04, (24, 3)))
    return atoms


def assert_same(path: Path, atoms: Atoms, precision: str, nthreads: int = 1) -> None:
    expected = choose(path, "torchscript").engine(atoms, atom_virial=True)
    chosen = choose(path, "fused", precision, nthreads=nthreads)
    found = chosen.engine(atoms, atom_virial=True)
    assert "fused" in chosen.engine.name
    tolerance = TOLERANCES[precision]
    # Float32 rounds features, which are as large as energies, however small the forces are.
    least = np.abs(expected.atom_energy).max() if precision == "mixed" else 0.0
    for name in ("atom_energy", "forces", "virial", "atom_virial"):
        one, other = getattr(found, name), getattr(expected, name)
        scale = np.abs(other).max()
        close = tolerance * max(scale, least)
        np.testing.assert_allclose(one, other, rtol=0, atol=close, err_msg=name)
        assert scale > 1e-5


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize("seed", [0, 1, *(thorough(n) for n in range(2, 30))])
def test_random_shapes(tmp_path: Path, seed: int, gates: bool, precision: str):
    shape = Shape.random(seed, gates)
    save(tmp_path / "model.pt", shape, seed)
    assert_same(tmp_path / "model.pt", structure(shape.elements), precision)


#: What the file may hold in the place of its arrays, and what is said of it.
DAMAGED = {
    "cut off": (lambda text: text[:-8], "bytes of numbers, expected"),
    "another format": (lambda text: text.replace(b"mace 1", b"mace 2", 1), "begin with another"),
    "no table": (lambda text: text[:40], "table of arrays is cut off"),
    "not a number": (lambda text: text[:-8] + b"\xff" * 8, "values that are no numbers"),
    "shape": (lambda text: text.replace(b"up.0 5 5", b"up.0 25 ", 1), "up.0 has shape"),
    "missing": (lambda text: text.replace(b"product.0", b"product.7", 1), "product.0 is missing"),
    "twice": (lambda text: text.replace(b"product.0", b"up.0", 1), "up.0 is there twice"),
    "no layers": (lambda text: text.replace(b"layer", b"lawyer"), "layer0.message has degrees"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_arrays(tmp_path: Path, what: str):
    """The file's own code runs, and it is said why."""
    path, shape = tmp_path / "model.pt", Shape()
    damage, said = DAMAGED[what]
    save(path, shape, text=damage(written("mace", random_arrays(shape))))
    chosen = choose(path, "auto", "exact")
    assert chosen.engine.name == "torchscript"
    assert re.search(f"not fused: its arrays for the fused engine: .*{said}", chosen.reason)
    with pytest.raises(Failure, match=said):
        choose(path, "fused")


#: The same of one with gates.
DAMAGED_GATES = {
    "norm": ("layer0.density.norm.0", "layer0.density.norm.1", "norms of some of its matrices"),
    "bias": ("layer0.radial.bias.1", "layer0.radial.bias.7", "biases or norms of some"),
    "gate": ("layer1.gate.z.2", "layer1.gate.y.2", "gate.z.2 is missing"),
    "own": ("layer1.gate.own.1", "layer1.gate.own.9", "gate.own.1 is missing"),
    "density": ("layer0.density.0", "layer0.density.7", "divisor is there without a density"),
}


@pytest.mark.parametrize("what", DAMAGED_GATES)
def test_damaged_gates(tmp_path: Path, what: str):
    path, shape = tmp_path / "model.pt", Shape(gates=True, density=True, edge_channels=3)
    before, after, said = DAMAGED_GATES[what]
    arrays = random_arrays(shape)
    arrays[after] = arrays.pop(before)
    save(path, shape, text=written("mace", arrays))
    with pytest.raises(Failure, match=said):
        choose(path, "fused")


@pytest.mark.parametrize("name", ["embedding", "layer1.coupling.3", "layer1.contraction.0.terms.2"])
def test_arrays_of_another_model(tmp_path: Path, name: str):
    """Where they are sound, but do not belong to the code, the first evaluation finds it."""
    path, shape = tmp_path / "model.pt", Shape()
    arrays = random_arrays(shape)
    arrays[name].flat[2] += 1e-4 if "terms" not in name else 0.1
    save(path, shape, text=written("mace", arrays))
    chosen = choose(path, "auto", "exact")
    assert chosen.engine.name == "torchscript"
    assert re.search(r"not fused: .* differ by .* from the file's own code", chosen.reason)
