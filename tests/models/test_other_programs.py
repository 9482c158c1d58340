"""Models that other programs make: the same numbers in lmp, on any number of ranks.

PWMLFF_TEST_PYTHONS names a Python in which each release is installed:
mace-0.3.16=DIR/bin/python,nequip-0.6.2=...
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.io import read, write

import ace_files
import families
from families import COMPILED
from pwmlff import Calculator
from pwmlff.convert import convert
from pwmlff.evaluation import model_file
from pwmlff.evaluation.nep_file import read_nep, write_nep
from pwmlff.launch.lmp import virial_to_lammps
from pwmlff.models.saving import MACE_ARRAYS, RECORD
from pwmlff.report import Failure

PYTHONS = dict(
    word.split("=", 1) for word in os.environ.get("PWMLFF_TEST_PYTHONS", "").split(",") if word
)
pytestmark = pytest.mark.skipif(not PYTHONS, reason="PWMLFF_TEST_PYTHONS names no other program")
#: eV/atom, eV/angstrom and eV from the program's own calculator.
GATES = {False: (1e-8, 1e-6, 1e-5), True: (1e-6, 1e-5, 1e-3)}
#: Where no table of radial functions is between, or one that is as good.
CODE = (1e-12, 1e-10, 1e-9)
#: CHGNet takes places of atoms as parts of the cell, in float32.
CHGNET = (1e-6, 1e-4, 1e-2)
HEADS = ["first", "second"]  # of other_programs.py
NEP_CPU = {"calorine": 4, "nep_adapters": 5}  # the newest form of nep.txt that they read
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def families_of(program: str) -> tuple[str, ...]:
    return families.of_program(families.FAMILIES, program)


def refused_of(program: str) -> dict[str, str]:
    return families.of_program(families.REFUSED, program) or {}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What a release makes, once for all tests: its program is imported once."""

    @functools.cache
    def make(program: str):
        names = [*families_of(program), *refused_of(program)]
        return families.make(names, PYTHONS[program], tmp_path_factory.mktemp("made"))

    return make


@pytest.fixture(autouse=True)
def commands(request, monkeypatch):
    """Commands of the program are on the PATH, as a user puts them there."""
    folder = Path(PYTHONS[request.node.callspec.params["program"]]).parent
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def engine_of(family: str, ranks: int) -> str:
    """How the engine in use begins that a family is to have on so many ranks."""
    if family.endswith(COMPILED):
        return "compiled"
    if family in families.OF_CODE:
        return "torchscript in rounds" if ranks > 1 else "torchscript,"
    if family.startswith(("MACE", "DeePMD-kit")) and family not in families.OF_DEEPMD:
        return "fused"
    return "torchscript in rounds" if ranks > 1 and family.startswith("NequIP") else "torchscript,"


def assert_same(path: Path, expected, gates, ranks: int, engine: str) -> None:
    atoms, (energy, force, virial) = families.structure(), gates
    ran = families.run(path, atoms, ranks=ranks)
    assert ran.engine.startswith(engine)
    assert abs(ran.energies.sum() - expected["energy"]) / len(atoms) < energy
    assert np.abs(ran.forces - expected["forces"]).max() < force
    there = virial_to_lammps(expected["virial"], ran.prism)
    assert np.abs(ran.virial - there).max() < virial


def without_arrays(source: Path, target: Path) -> None:
    """A copy that no fused engine runs."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            if not member.filename.endswith((MACE_ARRAYS, RECORD)):
                new.writestr(member, old.read(member))


def device_bound(path: Path) -> list[str]:
    """What in the code of a file stays on one device when its parameters move to another: devices
    by name, and constants of several numbers."""
    found = []
    for name, module in torch.jit.load(path).named_modules():
        for method in module._c._method_names():
            graph = module._c._get_method(method).graph
            for node in graph.findAllNodes("prim::Constant"):
                kind = node.output().type().kind()
                several = kind == "TensorType" and node.t("value").dim() > 0
                if several or kind == "DeviceObjType":
                    found.append(f"{name}.{method}: {node}")
    return found


@pytest.mark.parametrize("program", [p for p in PYTHONS if p.startswith("nequip")])
def test_code_for_any_device(tmp_path: Path, made, program: str):
    """NequIP and Allegro run by the code of the file alone, on a GPU too, where no test runs it."""
    for family in families_of(program):
        source, _ = made(program)[family]
        convert(source, tmp_path / "a.pt")
        if not family.endswith(COMPILED):
            assert device_bound(tmp_path / "a.pt") == []


@pytest.mark.parametrize("program, family", [(p, f) for p in PYTHONS for f in families_of(p)])
def test_same_numbers(tmp_path: Path, made, program: str, family: str):
    source, expected = made(program)[family]
    compiled, head = family.endswith(COMPILED), ""
    if "two heads" in family and family != "MACE, two heads":
        for wrong in ("", "third"):
            with pytest.raises(Failure, match=r"with the heads first, second: found .*--head"):
                convert(source, tmp_path / "a.pt", head=wrong)
        head = HEADS[-1]
    if system := families.system_of(family):
        embedded = r"embeds total_charge and total_spin .*, found no --charge --spin; give "
        with pytest.raises(Failure, match=embedded):
            convert(source, tmp_path / "a.pt")
        with pytest.raises(Failure, match="found --spin 101, expected 0 to 100, which it knows"):
            convert(source, tmp_path / "a.pt", charge=0, spin=101)
    report = convert(source, tmp_path / "a.pt", compiled=compiled, head=head, **system)
    card = model_file.describe_unopened(tmp_path / "a.pt").card["converted"]
    assert {name: card[name] for name in families.SYSTEM if name in card} == system
    assert report.told.get("head") == ("second of first, second" if "heads" in family else None)
    gates = CHGNET if program.startswith("chgnet") else GATES["float32" in family]
    today = (*families.OF_CODE, *families.GATED, *families.OF_DEEPMD)
    # ZBL of MACE is of float32 in lmp alone.
    rounded = "float32" in family or "ZBL" in family
    gates = CODE if (family in today or system) and not rounded else gates
    for ranks in families.RANKS:
        assert_same(tmp_path / "a.pt", expected, gates, ranks, engine_of(family, ranks))
    if engine_of(family, 1) == "fused" and family.startswith("MACE"):
        without_arrays(tmp_path / "a.pt", tmp_path / "code.pt")
        for ranks in families.RANKS[1:]:
            assert_same(tmp_path / "code.pt", expected, gates, ranks, "torchscript in rounds")
    assert np.abs(expected["forces"]).max() > 100 * gates[1]  # or zeros would do


@pytest.mark.parametrize("program", [p for p in PYTHONS if p.partition("-")[0] in NEP_CPU])
def test_trained_nep(tmp_path: Path, program: str):
    """The NEP of the example, which was trained here, in the calculators of NEP_CPU."""
    name = program.partition("-")[0]
    model, atoms = read_nep(EXAMPLES / "hfo2" / "nep.txt"), families.structure()
    write_nep(model, tmp_path / "nep.txt", NEP_CPU[name])
    write(tmp_path / "structure.xyz", atoms)
    words = ["nep.txt", "structure.xyz", "0", "own.npz"]
    script = Path(families.__file__).with_name("other_calculators.py")
    command = [PYTHONS[program], script, name.replace("_", "-"), *words]
    subprocess.run(command, cwd=tmp_path, check=True)
    own = np.load(tmp_path / "own.npz")
    ran = families.run(tmp_path / "nep.txt", read(tmp_path / "structure.xyz"), ranks=2)
    assert abs(ran.energies.sum() - own["energy"]) / len(atoms) < 1e-9
    assert np.abs(ran.forces - own["forces"]).max() < 1e-8
    assert np.abs(own["forces"]).max() > 0.1


@pytest.mark.parametrize("program", [p for p in PYTHONS if p.startswith("python_ace")])
def test_ace(tmp_path: Path, monkeypatch, program: str):
    """Ten potentials of one to four elements and orders up to five, on all numbers of ranks."""
    script = Path(__file__).with_name("python_ace.py")
    grace = [path for path in [ace_files.FOLDER / "alni_grace_fs.yaml"] if path.is_file()]
    subprocess.run([PYTHONS[program], script, tmp_path, *grace], check=True)
    paths = sorted(tmp_path.glob("*.yace"))
    assert len(paths) == 10
    for path, ranks in itertools.product(paths, families.RANKS):
        for atoms in read(path.with_suffix(".traj"), ":"):
            ran = families.run(path, atoms, ranks=ranks)
            assert ran.engine.startswith("fused")
            energy, forces = atoms.get_potential_energy(), atoms.get_forces()
            largest = max(1.0, np.abs(ran.energies).max())
            assert abs(ran.energies.sum() - energy) / len(atoms) < 1e-12 * largest
            assert np.abs(ran.forces - forces).max() < 1e-10 * max(1.0, np.abs(forces).max())
    monkeypatch.setenv("PATH", f"{Path(PYTHONS[program]).parent}:{os.environ['PATH']}")
    graded = sorted(tmp_path.glob("*.gamma.npz"))
    assert len(graded) == 3 + len(grace)
    for gammas, name in itertools.product(graded, ("asi", "nonlinear")):
        source = gammas.with_name(gammas.name.replace("gamma.npz", "yaml"))
        if not (active_set := source.with_suffix(f".{name}")).is_file():
            continue
        convert(source, tmp_path / "a.yace", active_set=active_set)
        with np.load(gammas) as found:
            for k, atoms in enumerate(read(source.with_suffix(".traj"), ":")):
                gamma = Calculator(tmp_path / "a.yace").get_property("gamma", atoms)
                np.testing.assert_allclose(gamma, found[f"{name}{k}"], rtol=1e-7)


@pytest.mark.parametrize("program, family", [(p, f) for p in PYTHONS for f in refused_of(p)])
def test_refused(tmp_path: Path, made, program: str, family: str):
    source, _ = made(program)[family]
    with pytest.raises(Failure, match=refused_of(program)[family]):
        convert(source, tmp_path / "a.pt")
