"""What holds for every family of models, device, precision and instruction set, whatever the model.

Numbers of other programs are in the tests of each family; here each engine is compared with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from ase import Atoms
from scipy.spatial.transform import Rotation

from ace_files import FORMS
from ace_files import random_text as random_ace
from harness import thorough
from mace_oracle import Shape, random_arrays
from nep_files import HEADS, random_text
from pwmlff import devices
from pwmlff.arrays import written
from pwmlff.evaluation.engine import AtomsAndGhosts
from pwmlff.native import EngineResult, Network, NetworkEngine
from systems import SYSTEMS, graded

#: Largest error of energies and of forces, as a share of the largest of each, at least 1.
GATES = {
    "plain": (1e-12, 1e-11), "exact": (1e-12, 1e-11), "double": (1e-8, 1e-6), "mixed": (2e-5, 2e-4),
}  # fmt: skip
DEVICES = ("", "cpu", *(("cuda:0",) if devices.inventory().gpus else ()))
TEMPERATURE, SKIN, STEP = 300.0, 0.6, 1e-4
#: Candidates from which on kernels for GPUs look for pairs (core/gpu/engine_parts.h).
LARGE = 1 << 17


@dataclass(frozen=True)
class Family:
    contents: bytes
    name: str = ""  # of a family of which they are a file
    precisions: tuple[str, ...] = ("exact", "double", "mixed")
    turns: bool = False  # whether a rotation changes no energy, as arrays by chance may have it


def deep_potential(name: str, grade: bool = False) -> Family:
    model = SYSTEMS[name].model()
    return Family(written("dp", (graded(model, 5) if grade else model).arrays()))


def mace(shape: Shape) -> Family:
    return Family(written("mace", random_arrays(shape)))


DENSE = Shape(channels=13, density=True, leaving=(2, 1, 0), residual=(False, True, True))
GATED = Shape(gates=True, edge_channels=7, density=True, leaving=(1, 0), cutoff_first=False)
#: For CPUs alone.
ON_HOST = {"mace, gates", *(f"ace, {name}" for name in FORMS)}
FAMILIES = {
    "dp": lambda: deep_potential("two elements, triclinic", grade=True),
    "dp, all switches": lambda: deep_potential("four elements, all switches"),
    "dp, slots by element": lambda: deep_potential("slots by element"),
    "mace": lambda: mace(Shape()),
    "mace, density": lambda: mace(DENSE),
    "mace, gates": lambda: mace(GATED),
    "mace, ZBL": lambda: mace(Shape(agnesi=True, zbl=True, gaussian=True, cutoff_first=False)),
    **{
        f"nep, {name}": lambda head=head: Family(
            random_text(head), "nep", ("plain", "exact", "double", "mixed"), turns=True
        )
        for name, head in HEADS.items()
    },
    **{
        f"ace, {name}": lambda form=form: Family(
            random_ace(**form).encode(), "ace", ("plain", "exact", "double", "mixed"), turns=True
        )
        for name, form in FORMS.items()
    },
}  # fmt: skip


@cache
def network(name: str) -> Network:
    family = FAMILIES[name]()
    return Network(family.contents, family.name)


class Engine:
    """An engine of a family, for structures without periodic boundaries."""

    def __init__(
        self, name: str, precision: str, device: str = "", present=None, chunk_bytes: int = 0
    ) -> None:
        self.name, self.device, self.network = name, device, network(name)
        self.elements = self.network.facts["atom_type"]
        self.cutoff = self.network.facts["cutoff"]
        taking_part = self.elements if present is None else present
        flags = [z in taking_part for z in self.elements]
        self.native = NetworkEngine(
            self.network, precision, flags, "" if precision == "plain" else device, chunk_bytes
        )

    def rows(self, atoms: Atoms, skin: float = SKIN) -> AtomsAndGhosts:
        return AtomsAndGhosts.find(atoms, self.elements, self.cutoff + skin)

    def take(self, rows: AtomsAndGhosts) -> None:
        self.native.set_neighbors(rows.species, rows.first, rows.candidate)

    def evaluate(self, x: np.ndarray, nthreads: int = 1) -> EngineResult:
        return self.native.evaluate(x, nthreads, True, True, temperature=TEMPERATURE)

    def __call__(self, atoms: Atoms, nthreads: int = 1, skin: float = SKIN) -> EngineResult:
        rows = self.rows(atoms, skin)
        self.take(rows)
        return self.evaluate(rows.x, nthreads)


def rounding(precision: str) -> str:
    """The gate of an engine that is compared with itself: tables change nothing there."""
    return "exact" if precision == "double" else precision


def structure(elements: list[int], natoms: int = 14, seed: int = 3) -> Atoms:
    """A cluster by chance with distances from 1.6 angstrom on, and an atom alone."""
    rng, positions = np.random.default_rng(seed), []
    while len(positions) < natoms:
        trial = rng.uniform(0.0, 5.5, 3)
        if all(np.linalg.norm(trial - other) > 1.6 for other in positions):
            positions.append(trial)
    positions[-1] = np.full(3, 60.0)
    return Atoms([elements[k % len(elements)] for k in range(natoms)], positions)


def assert_near(
    found: EngineResult, wanted: EngineResult, precision: str, order=slice(None)
) -> None:
    """Energies, forces and virial, of centers in another order."""
    energy, force = GATES[precision]
    for name, gate in (("atom_energy", energy), ("force", force), ("virial", 10 * force)):
        one, other = getattr(found, name), getattr(wanted, name)
        other = other if name == "virial" else other[order]
        scale = max(1.0, np.abs(other).max(initial=0.0))
        np.testing.assert_allclose(one, other, rtol=0, atol=gate * scale, err_msg=name)


def same(found: EngineResult, wanted: EngineResult) -> bool:
    """To the bit."""
    return all(
        np.array_equal(one, other)
        for one, other in zip(found, wanted, strict=True)
        if one is not None
    )


#: Those with code for GPUs run it on the CPU in one lane, and two with a thread for each.
CASES = [
    *(
        (name, device)
        for name in FAMILIES
        for device in DEVICES
        if not (device and name in ON_HOST)
    ),
    *(thorough((name, "cpu:lanes")) for name in ("dp", "mace", "mace, density", "nep, all flags")),
]


@pytest.fixture(params=CASES, ids=lambda case: ", ".join(filter(None, case)))
def engines(request) -> dict[str, Engine]:
    """Of each precision."""
    name, device = request.param
    precisions = [p for p in FAMILIES[name]().precisions if not device or p != "plain"]
    return {precision: Engine(name, precision, device) for precision in precisions}


def test_derivatives(engines):
    """Forces and virial are those of the energy, by central differences of fourth order."""
    rng = np.random.default_rng(0)
    for precision, engine in engines.items():
        if precision == "mixed":  # differences of float32 say little; see test_precisions
            continue
        rows = engine.rows(structure(engine.elements))
        engine.take(rows)
        found = engine.evaluate(rows.x)
        matrix = found.virial[[0, 3, 4, 6, 1, 5, 7, 8, 2]].reshape(3, 3)
        strain, direction = rng.normal(size=(3, 3)), rng.normal(size=rows.x.shape)
        scale = max(1.0, np.abs(found.force).max())
        for rate, wanted in (
            (direction, -(found.force * direction).sum()),
            (rows.x @ strain, -(matrix * strain).sum()),
        ):
            near, far = (
                engine.evaluate(rows.x + k * STEP * rate).energy
                - engine.evaluate(rows.x - k * STEP * rate).energy
                for k in (1, 2)
            )
            slope = (8 * near - far) / (12 * STEP)
            assert slope == pytest.approx(wanted, rel=1e-6, abs=1e-6 * scale), precision


def test_virials_of_atoms(engines):
    for precision, engine in engines.items():
        found = engine(structure(engine.elements))
        gate = GATES[rounding(precision)][1]
        scale = max(1.0, np.abs(found.virial).max())
        for virials in (found.atom_virial, found.centroid_virial):
            total = found.virial[: virials.shape[1]]
            np.testing.assert_allclose(virials.sum(0), total, rtol=0, atol=gate * scale)


def test_symmetries(engines):
    """Atoms elsewhere, turned and in another order have the same energies."""
    for precision, engine in engines.items():
        turn = np.eye(3)
        if FAMILIES[engine.name]().turns:
            turn = Rotation.from_rotvec((0.3, -1.1, 0.7)).as_matrix()
        atoms = structure(engine.elements)
        found = engine(atoms)
        order = np.random.default_rng(2).permutation(len(atoms))
        other = atoms[order]
        other.positions = other.positions @ turn + (3.0, -7.0, 1.0)
        moved = engine(other)
        back = moved._replace(force=moved.force @ turn.T, virial=found.virial)
        assert_near(back, found, rounding(precision), order)


def test_lists(engines):
    """Candidates beyond the cutoff, their order, and how old the list is do not matter."""
    for precision, engine in engines.items():
        atoms = structure(engine.elements)
        found = engine(atoms)
        gate = rounding(precision)
        assert_near(engine(atoms, skin=4.0), found, gate)
        rows = engine.rows(atoms)
        backwards = rows.candidate.copy()
        for begin, end in zip(rows.first[:-1], rows.first[1:], strict=True):
            backwards[begin:end] = rows.candidate[begin:end][::-1]
        engine.take(replace(rows, candidate=backwards))
        assert_near(engine.evaluate(rows.x), found, gate)
        moved = atoms.copy()
        moved.positions += np.random.default_rng(5).uniform(-0.1, 0.1, rows.x.shape)
        engine.take(rows)
        engine.evaluate(rows.x)
        assert_near(engine.evaluate(moved.positions), engine(moved), gate)


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("name", ["dp", "nep, beyond l_max"])
def test_large_systems(name, device):
    """Where edges leave forces at the entries that their neighbors have of them, if they have."""
    side, step, rng = 13, 2.4, np.random.default_rng(14)
    grid = step * np.indices((side,) * 3).reshape(3, -1).T
    exact = Engine(name, "exact")
    elements = [exact.elements[k % len(exact.elements)] for k in range(side**3)]
    atoms = Atoms(elements, grid, cell=side * step * np.eye(3), pbc=True)
    atoms.rattle(0.2, rng=rng)
    rows = exact.rows(atoms, skin=6.5 - exact.cutoff)
    for kept in (1.0, 0.8):  # the part of the entries that the list has
        left = rng.random(len(rows.candidate)) < kept
        first = np.r_[0, np.cumsum(left)][rows.first].astype(np.int32)
        some = replace(rows, first=first, candidate=rows.candidate[left])
        assert len(some.candidate) > LARGE
        exact.take(some)
        wanted = exact.evaluate(some.x)
        for precision, chunk_bytes in product(("exact", "double", "mixed"), (0, 1)):
            engine = Engine(name, precision, device, chunk_bytes=chunk_bytes)
            engine.take(some)
            found = engine.evaluate(some.x)
            assert_near(found, wanted, precision)
            for virials in ("atom_virial", "centroid_virial"):
                one, other = getattr(found, virials), getattr(wanted, virials)
                gate = GATES[precision][1] * np.abs(other).max()
                np.testing.assert_allclose(one, other, rtol=0, atol=gate)


def test_bystanders(engines):
    """Rows of species -1 get no energy and no force, and nothing depends on them."""
    for precision, engine in engines.items():
        atoms = structure(engine.elements)
        n = len(atoms)
        crowd = atoms + Atoms("Xe3", np.random.default_rng(0).random((3, 3)) * 5)
        together, alone = engine(crowd), engine(atoms)
        assert not together.atom_energy[n:].any()
        assert not together.force[n:].any()
        gate = rounding(precision)
        cut = together._replace(atom_energy=together.atom_energy[:n], force=together.force[:n])
        assert_near(cut, alone, gate)


def test_precisions(engines):
    """All give what the formulas as they are do, within what a precision promises."""
    wanted = None
    for precision, engine in engines.items():
        found = engine(structure(engine.elements))
        wanted = wanted or found
        assert_near(found, wanted, precision)
        assert found.energy == pytest.approx(found.atom_energy.sum(), rel=1e-12)
        assert not found.force[-1].any()  # of the atom alone
        nobody = engine(Atoms())
        assert (nobody.energy, nobody.force.shape) == (0.0, (0, 3))


@pytest.mark.parametrize("name", FAMILIES)
def test_threads_and_processors(name, monkeypatch):
    """On the CPU energies are the same to the bit, whatever is evaluated beside them."""
    for precision in FAMILIES[name]().precisions:
        engine = Engine(name, precision)
        atoms = structure(engine.elements, natoms=23)
        found = engine(atoms)
        assert same(engine(atoms), found)
        for nthreads in (2, 7):
            shared = engine(atoms, nthreads)
            assert same(engine(atoms, nthreads), shared)
            assert np.array_equal(shared.atom_energy, found.atom_energy)
            assert_near(shared, found, rounding(precision))
        for processor in ("baseline", "avx2", "avx512"):
            monkeypatch.setenv("PWMLFF_CPU", processor)
            try:
                other = Engine(name, precision)
            except ValueError as error:
                assert "this processor runs" in str(error)
            else:
                assert other.native.facts["processor"] in {processor, "plain"}
                assert_near(other(atoms), found, rounding(precision))
        monkeypatch.delenv("PWMLFF_CPU")


def test_some_of_the_elements(engines):
    """Those that do not take part need not be there, and are an error where they are."""
    for precision, engine in engines.items():
        if len(engine.elements) < 2 or precision == "plain":
            continue
        some = engine.elements[:-1]
        fewer = Engine(engine.name, precision, engine.device, some)
        with pytest.raises(ValueError, match=r"center \d+ is of species \d+, .* take part"):
            fewer(structure(engine.elements))
