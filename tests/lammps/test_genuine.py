"""Files that other programs wrote, in all that evaluates a model, against the numbers of those."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from typer.testing import CliRunner

from genuine import ORIGINALS, Original, requires_genuine
from harness import ENGINES, Lammps, thorough
from pwmlff.cli import app
from pwmlff.evaluation.calculator import Calculator
from pwmlff.evaluation.reference import Result, evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, forces, read_command, virial_to_lammps
from systems import SYSTEMS

pytestmark = requires_genuine
CPU = ("double", "exact", "mixed", "torchscript")


@pytest.fixture(params=ORIGINALS)
def original(request) -> Original:
    return ORIGINALS[request.param]


@pytest.fixture
def model(original: Original, tmp_path: Path) -> Path:
    """Its model file, in the folder of the test."""
    path = tmp_path / "model.pt"
    if original.converted:
        command("convert", original.path, "-o", path)
    else:
        shutil.copy(original.path, path)
    return path


@pytest.fixture
def engine(request) -> str:
    """That is in the inputs, but where the CPU stands in for a GPU."""
    return getattr(request, "param", "automatic")


def command(*arguments: object) -> dict:
    """What a command tells in JSON; it must succeed."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def within(gate, expected: Result, energy, atom_energy, forces, virial) -> None:
    assert abs(energy - expected.energy) / len(atom_energy) < gate.energy
    assert np.abs(atom_energy - expected.atom_energy).max() < gate.atom_energy
    assert np.abs(forces - expected.forces).max() < gate.force
    assert np.abs(virial - expected.virial).max() < gate.virial


def simulated(lammps: Lammps, original: Original, ranks: int, engines: tuple[str, ...]) -> None:
    """Two frames with each engine, in one lmp, against the numbers of the original."""
    text, expected = "", []
    symbols = " ".join(Atoms(numbers=original.types).get_chemical_symbols())
    for k, (atoms, result) in enumerate(original.frames()[:2]):
        prism = lammps.data(atoms, [*original.types], f"{k}.data")
        for name in engines:
            text += f"clear\n{read_command(atoms, f'{k}.data')}pair_style pwmlff 1 model.pt "
            text += f"{ENGINES[name].keywords}\npair_coeff * * {symbols}\n{MEASURE}run 0\n"
            text += DUMP.replace("atoms", str(len(expected)))
            turned = Result(
                result.energy,
                result.atom_energy,
                prism.vector_to_lammps(result.forces),
                virial_to_lammps(result.virial, prism),
            )
            expected.append((ENGINES[name], turned))
    run = lammps.run(text, ranks)
    for k, (gate, result) in enumerate(expected):
        atoms = run.atoms(f"{k}.dump")
        energy = run.thermo(k)["PotEng"][-1]
        within(gate, result, energy, atoms.c_peatom, forces(atoms), run.virial(k))


@pytest.mark.parametrize("ranks", [1, 2, thorough(4)])
def test_lmp(lammps: Lammps, original: Original, model: Path, ranks: int):
    simulated(lammps, original, ranks, CPU)


@pytest.mark.parametrize("engine", ["device"], indirect=True)
def test_code_for_gpus(lammps: Lammps, original: Original, model: Path):
    simulated(lammps, original, 2, ("device", "device mixed"))


@pytest.mark.parametrize("name", CPU)
def test_calculator(original: Original, model: Path, name: str):
    words = ENGINES[name].keywords.split()
    calculator = Calculator(model, **dict(zip(words[::2], words[1::2], strict=True)))
    for atoms, expected in original.frames():
        atoms.calc = calculator
        within(
            ENGINES[name],
            expected,
            atoms.get_potential_energy(),
            atoms.get_potential_energies(),
            atoms.get_forces(),
            -atoms.get_stress(voigt=False) * atoms.get_volume(),
        )
    assert calculator.engine == words[1]


def test_reference(original: Original, model: Path):
    atoms, expected = original.frames()[0]
    found = evaluate(model, atoms)
    numbers = found.energy, found.atom_energy, found.forces, found.virial
    within(ENGINES["exact"], expected, *numbers)


def declared(path: Path) -> dict[tuple[str, str], set[str]]:
    """Types of all attributes by the depth of their part in the module and their name."""
    found: dict[tuple[str, str], set[str]] = {}
    for place, part in torch.jit.load(path, "cpu").named_modules():
        kind = re.sub(r"\d+", "*", place)
        for name in part._concrete_type.get_attributes():
            found.setdefault((kind, name), set()).add(type(getattr(part, name)).__name__)
    return found


def test_our_variant_has_all_that_is_in_it(tmp_path: Path):
    """The one of tests/systems.py, which other tests run where there is no original."""
    ours = declared(SYSTEMS["attributes of MatPL"].model().save(tmp_path / "model.pt"))
    for place, kinds in declared(ORIGINALS["matpl"].path).items():
        assert ours[place] == kinds, place


def test_info(model: Path, original: Original):
    """Without running its code and with it."""
    for options in ((), ("--trust",)):
        (found,) = command("info", model, *options)["models"]
        assert {*found["elements"]} == {*Atoms(numbers=original.types).get_chemical_symbols()}
        assert found["units"] == "metal"
    assert found["engine"].startswith("fused")


def test_attributes_that_mean_something_else_elsewhere(tmp_path: Path):
    """A file may have attributes with names of ours, of any type."""
    kinds = torch._C
    module = torch.jit.load(ORIGINALS["matpl"].path, "cpu")
    for name, kind, value in (
        ("sel", kinds.IntType.get(), 100),
        ("type_vector", kinds.StringType.get(), "none"),
        ("units", kinds.ListType(kinds.StringType.get()), ["eV", "angstrom"]),
        ("interaction_range", kinds.StringType.get(), "short"),
        ("cutoff", kinds.NoneType.get(), None),
    ):
        module._c._register_attribute(name, kind, value)
    module.save(tmp_path / "model.pt")
    atoms, expected = ORIGINALS["matpl"].frames()[0]
    atoms.calc = Calculator(tmp_path / "model.pt", engine="fused", precision="exact")
    assert np.abs(atoms.get_forces() - expected.forces).max() < 1e-9
    assert np.abs(evaluate(tmp_path / "model.pt", atoms).forces - expected.forces).max() < 1e-9


def test_trained_in_float32(tmp_path: Path):
    """Its dtype is 6 then; it is evaluated in float64 all the same, of parameters as they are."""
    module = torch.jit.load(ORIGINALS["matpl"].path, "cpu").float()
    module.davg, module.dstd, module.dtype = module.davg.float(), module.dstd.float(), 6
    module.save(tmp_path / "model.pt")
    atoms, whole = ORIGINALS["matpl"].frames()[0]
    expected = evaluate(tmp_path / "model.pt", atoms).forces
    assert 1e-8 < np.abs(expected - whole.forces).max() < 1e-3  # what rounding them changes
    for engine in ("fused", "torchscript"):
        atoms.calc = Calculator(tmp_path / "model.pt", engine=engine, precision="exact")
        assert np.abs(atoms.get_forces() - expected).max() < 1e-9


@pytest.fixture
def labelled(original: Original, tmp_path: Path) -> Path:
    """The frames with the numbers of the original."""
    frames = []
    for atoms, expected in original.frames():
        stress = -expected.virial / atoms.get_volume()
        atoms.calc = SinglePointCalculator(
            atoms, energy=expected.energy, forces=expected.forces, stress=stress
        )
        frames.append(atoms)
    write(tmp_path / "frames.extxyz", frames)
    return tmp_path / "frames.extxyz"


def test_compare(model: Path, labelled: Path):
    found = command("compare", model, "--data", f"{labelled}@0", "--np", "2", "--engine", "fused")
    assert {case["precision"] for case in found["cases"]} == {"exact", "double", "mixed"}


def test_errors_on_its_own_numbers(model: Path, labelled: Path):
    errors = command("test", model, labelled)["errors"]
    assert errors["energy"]["largest"] < 1e-2  # meV/atom
    assert errors["force"]["largest"] < 1e-2 and errors["virial"]["largest"] < 1e-2


@pytest.mark.parametrize("original", ["matpl"], indirect=True)
def test_going_on_from_it(model: Path, labelled: Path, tmp_path: Path):
    """Steps of no length leave it where it is, with no error in its own numbers."""
    settings = ("run.epochs=2", "run.threads=1", "data.cache=none", f"data.valid={labelled}@3:5",
                "optimizer.learning_rate=1e-12", "optimizer.final_learning_rate=1e-12")  # fmt: skip
    found = command(
        "train", "--data", f"{labelled}@0:3", "--finetune", model, "-o", tmp_path / "run",
        *(word for setting in settings for word in ("--set", setting)),
    )  # fmt: skip
    (trained,) = found["models"]
    assert all(error < 1e-2 for error in trained["valid"].values()), trained  # meV
