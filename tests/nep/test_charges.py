"""NEP with charges in Python: numbers of the program that made the files, derivatives, forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.stress import full_3x3_to_voigt_6_stress

from genuine import DATA
from nep_files import CHARGED, HEADS, random_structure, random_text
from nep_parser import parse_nep
from pwmlff import Calculator, native
from pwmlff.evaluation import nep_file
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.model_file import describe
from pwmlff.evaluation.nep_reference import NepResult, evaluate_nep
from pwmlff.report import Failure

FOLDER = DATA / "nep" / "charge"
#: Energies of an atom, charges, forces, virials, Born charges.
GATES = {"double": (1e-11, 1e-12, 1e-10, 1e-9, 1e-9), "mixed": (1e-5, 5e-6, 5e-5, 1e-3, 5e-5)}


@pytest.fixture(params=CHARGED)
def text(request) -> bytes:
    return random_text(CHARGED[request.param])


@pytest.fixture
def path(tmp_path: Path, text: bytes) -> Path:
    (tmp_path / "nep.txt").write_bytes(text)
    return tmp_path / "nep.txt"


def wanted(text: bytes, atoms: Atoms) -> NepResult:
    return evaluate_nep(parse_nep(text), atoms)


def structure(text: bytes) -> Atoms:
    """Smaller than twice the cutoff along all edges, none of which are at right angles."""
    return random_structure(list(parse_nep(text).elements))


@pytest.mark.parametrize("engine", ["reference", "double", "mixed"])
@pytest.mark.parametrize("name", ["c01_charge2_HfO2", "c02_zbl_charge1_BaTiO3", "c03_charge1_PbTe"])
def test_genuine_files(name: str, engine: str):
    """Energies and charges of calorine's NEP_CPU; cells smaller than the cutoff, a slab."""
    if not (file := FOLDER / f"{name}.npz").is_file():
        pytest.skip(f"no {file}")
    precision = "double" if engine == "reference" else engine
    kind = engine if engine == "reference" else "fused"
    model = choose(file.with_suffix(".txt"), kind, precision).engine
    with np.load(file) as data:
        for case in ("rocksalt_prim", "bulk24", "slab", "cubic64"):
            value = {key: data[f"{case}.{key}"] for key in ("energy", "forces", "virial", "born")}
            atoms = Atoms(
                data[f"{case}.symbols"], data[f"{case}.positions"], cell=data[f"{case}.cell"], pbc=1
            )
            found, n = model(atoms, born=True), len(atoms)
            errors = (
                abs(found.energy - value["energy"]) / n,
                abs(found.charges - data[f"{case}.charges"]).max(),
                abs(found.forces - value["forces"]).max(),
                abs(found.virial - value["virial"]).max(),
                abs(found.born.reshape(n, 9) - value["born"]).max(),
            )
            assert np.all(np.less(errors, GATES[precision])), (case, errors)


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_forms(path: Path, text: bytes, precision: str, threads: int):
    atoms = structure(text)
    expected = wanted(text, atoms)
    model = choose(path, "fused", precision, nthreads=threads).engine
    for _ in range(2):  # what is kept of a box serves the next time
        found = model(atoms, atom_virial=True, born=True)
        gates = GATES[precision]
        assert abs(found.atom_energy - expected.atom_energy).max() < gates[0]
        assert abs(found.charges - expected.charges).max() < gates[1]
        assert abs(found.forces - expected.forces).max() < gates[2]
        assert abs(found.virial - expected.virial).max() < gates[3]
        assert abs(found.born - expected.born).max() < gates[4]
        six = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)]
        total = [(found.virial[k] + found.virial[k[::-1]]) / 2 for k in six]
        assert np.allclose(found.atom_virial.sum(axis=0), total, rtol=0, atol=gates[3])
        atoms.set_cell(atoms.cell * [1.02, 0.99, 1.01], scale_atoms=True)
        expected = wanted(text, atoms)


def test_derivatives(path: Path, text: bytes):
    """Forces and stress, against differences of energies that are not computed with them."""
    atoms = structure(text)
    atoms.calc = Calculator(path)
    forces, stress = atoms.get_forces(), atoms.get_stress()

    def slope(move) -> float:
        h, energy = 1e-4, []
        for k in (-2, -1, 1, 2):
            moved = atoms.copy()
            move(moved, k * h)
            energy.append(wanted(text, moved).energy)
        return (energy[0] - 8 * energy[1] + 8 * energy[2] - energy[3]) / (12 * h)

    rng = np.random.default_rng(3)
    direction = rng.normal(size=forces.shape)
    found = slope(lambda a, x: a.set_positions(a.positions + x * direction))
    scale = abs(forces).max() * np.linalg.norm(direction)
    assert abs(found + (forces * direction).sum()) < 1e-8 * scale
    strain = rng.normal(size=(3, 3))
    strain += strain.T
    found = slope(lambda a, x: a.set_cell(a.cell @ (np.eye(3) + x * strain), scale_atoms=True))
    voigt = full_3x3_to_voigt_6_stress(strain) * [1, 1, 1, 2, 2, 2]
    volume = atoms.get_volume()
    assert abs(found - volume * stress @ voigt) < 1e-8 * volume * abs(stress).max() * 10


def test_energy_of_point_charges(tmp_path: Path):
    """Mode 1 in rock salt, where the sum of the Coulomb energy is known: Madelung's constant.

    What is left of real space beyond the cutoff is exp(-pi^2) of it.
    """
    text = random_text(CHARGED["charge 1"])
    model = parse_nep(text)
    a = 4.4
    atoms = Atoms("OHf", [[0, 0, 0], [a / 2, 0, 0]], pbc=True,
                  cell=[[0, a / 2, a / 2], [a / 2, 0, a / 2], [a / 2, a / 2, 0]])  # fmt: skip
    (tmp_path / "nep.txt").write_bytes(text)
    found = choose(tmp_path / "nep.txt", "fused").engine(atoms)
    uncharged = nep_file.Nep(**{**vars(model), "charge_mode": 0, "last_charge": None})
    coulomb = found.energy - evaluate_nep(uncharged, atoms).energy
    q = found.charges[0]
    assert abs(q) > 0.05
    assert coulomb == pytest.approx(-1.7475645946 * 14.399645 * q**2 / (a / 2), rel=2e-4)


def test_born_charges_of_a_moved_crystal(path: Path, text: bytes):
    """They add up to the charges of the box, which is neutral: moving all of it is no dipole."""
    found = choose(path, "fused").engine(structure(text), born=True)
    assert abs(found.charges.sum()) < 1e-13
    assert abs(found.born.sum(axis=0)).max() < 1e-12


def test_calculator(path: Path, text: bytes):
    atoms = structure(text)
    atoms.calc = Calculator(path)
    assert {"charges", "born_effective_charges"} <= {*atoms.calc.implemented_properties}
    expected = wanted(text, atoms)
    atoms.get_potential_energy()
    assert "born_effective_charges" not in atoms.calc.results
    assert abs(atoms.get_charges() - expected.charges).max() < 1e-12
    born = atoms.calc.get_property("born_effective_charges", atoms)
    assert abs(born - expected.born).max() < 1e-12
    assert describe(path).has_charges


@pytest.mark.parametrize("pbc", [False, (True, True, False)])
@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_no_crystal(tmp_path: Path, engine: str, pbc):
    (tmp_path / "nep.txt").write_bytes(random_text(CHARGED["charge 1"]))
    atoms = random_structure([8, 72])
    atoms.pbc = pbc
    atoms.calc = Calculator(tmp_path / "nep.txt", engine=engine)
    with pytest.raises(ValueError, match="expected a cell that is periodic in all"):
        atoms.get_potential_energy()


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_one_atom(tmp_path: Path, engine: str):
    """It has no charge, and an energy, in a box or without."""
    (tmp_path / "nep.txt").write_bytes(random_text(CHARGED["charge 1"]))
    calculator = Calculator(tmp_path / "nep.txt", engine=engine)
    alone = Atoms("Hf")
    boxed = Atoms("Hf", cell=[20] * 3, pbc=True)
    for atoms in (alone, boxed):
        assert calculator.get_property("charges", atoms) == [0]
        assert (calculator.get_property("born_effective_charges", atoms) == 0).all()
    one, two = (calculator.get_property("energy", atoms) for atoms in (alone, boxed))
    assert one == pytest.approx(two, abs=1e-12)


def test_writing(text: bytes):
    """As it was read, in both forms; the same numbers where shifts become neurons."""
    model, atoms = parse_nep(text), structure(text)
    for version in (4, 5):
        again = nep_file.nep_text(model, version)
        assert again.startswith(f"nep{version}".encode())
        other, expected = wanted(again, atoms), wanted(text, atoms)
        assert abs(other.atom_energy - expected.atom_energy).max() < 1e-12
        assert abs(other.charges - expected.charges).max() < 1e-13
        assert abs(other.born - expected.born).max() < 1e-13
    assert native.Network(model.contents()).facts["has_charges"]


def test_reader(text: bytes):
    found, expected = nep_file.parse_nep(text), parse_nep(text)
    for name in ("charge_mode", "last_charge", "root_epsilon", "last", "shift", "c_radial"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize(
    "head, text",
    [
        (HEADS["nep3"].replace("nep3", "nep3_charge1"), "line 1 found 'nep3_charge1'"),
        (HEADS["temperature"].replace("temperature", "temperature_charge1"), "line 1 found"),
        (HEADS["two layers"].replace("nep5", "nep5_charge2"), "'ANN 6 5', expected one hidden"),
    ],
)
def test_what_cannot_have_charges(tmp_path: Path, head: str, text: str):
    (tmp_path / "nep.txt").write_bytes(random_text(head))
    with pytest.raises(Failure, match=text):
        Calculator(tmp_path / "nep.txt")


def test_a_number_is_missing(tmp_path: Path):
    text = random_text(CHARGED["charge 1"]).rsplit(b"\n", 2)[0] + b"\n"
    (tmp_path / "nep.txt").write_bytes(text)
    with pytest.raises(Failure, match=r"expected \d+ numbers .*, charges 11, bias 1"):
        Calculator(tmp_path / "nep.txt")


def test_elements_that_set_the_screening():
    """Without the element of the largest cutoff, the others would be screened otherwise."""
    model = parse_nep(random_text(CHARGED["charge 1, cutoffs by element"]))
    assert len(model.restricted([0]).last_charge) == 1
    with pytest.raises(ValueError, match="screened by the largest radial cutoff"):
        model.restricted([1])
