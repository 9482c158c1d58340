"""Model files with a record: lmp opens torch for those of their simulations that need it alone."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import mace_oracle
from harness import ON_DEVICE, Lammps
from pwmlff.convert import convert
from pwmlff.evaluation.reference import evaluate
from pwmlff.models.saving import RECORD, rewritten, with_record
from pwmlff.report import Failure
from systems import System, other_activation

BINARY = System(elements=(8, 72), numbers=(8, 72), embedding=(6, 12))
#: Of so many elements only all together have a record.
MANY = System(elements=(8, 14, 40, 72), embedding=(6, 12), sel=(40,) * 4)
#: Runs the model in a process that has no torch by itself, and tells whether it has one then.
SCRIPT = """
lmp = start()
lmp.commands_string('''
units metal
read_data atoms.data
pair_style pwmlff model.pt {keywords}
pair_coeff * * O Hf
run 0
''')
print('energy', repr(lmp.get_thermo('pe')))
print('torch', 'libtorch_cpu' in open('/proc/self/maps').read())
"""


@pytest.fixture
def engine() -> str:
    """The tests below say it themselves."""
    return "automatic"


@pytest.fixture
def folder(lammps: Lammps) -> Lammps:
    atoms = System(elements=(8, 72), numbers=(8, 8, 72, 72, 8, 72)).atoms()
    lammps.data(atoms, [8, 72])
    lammps.atoms = atoms
    return lammps


def energy(folder: Lammps, torch: bool, keywords: str = "", **environment: str) -> float:
    """Of a run that needs torch, or does not."""
    told = folder.python(SCRIPT.format(keywords=keywords), **environment).output.splitlines()
    assert f"torch {torch}" in told
    return float(next(line for line in told if line.startswith("energy")).split()[1])


def members(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [name.split("/", 1)[1] for name in archive.namelist()]


def record_of(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(RECORD)))


@pytest.mark.parametrize(
    "keywords, environment",
    [
        ("", {}),
        ("precision mixed", {}),
        ("engine fused precision exact", {}),
        ("engine fused", ON_DEVICE),
    ],
)
def test_deep_potentials(folder: Lammps, keywords: str, environment: dict[str, str]):
    model = BINARY.model(isotropic=True)
    folder.save(model)
    expected = evaluate(model, folder.atoms).energy
    found = energy(folder, torch=False, keywords=keywords, **environment)
    assert found == pytest.approx(expected, rel=1e-5 if "mixed" in keywords else 1e-8)
    assert energy(folder, torch=True, keywords="engine torchscript") == pytest.approx(expected)


def test_mace(folder: Lammps):
    model = mace_oracle.save(folder.folder / "model.pt", mace_oracle.Shape())
    assert energy(folder, torch=False) == pytest.approx(evaluate(model, folder.atoms).energy)


def test_some_of_many_elements(folder: Lammps):
    """Selections without a record are compared with the own code; others can be asked for."""
    model = MANY.model(isotropic=True)
    path = folder.folder / folder.save(model)
    expected = evaluate(model, folder.atoms).energy
    assert energy(folder, torch=True) == pytest.approx(expected, rel=1e-8)
    path.write_bytes(with_record(path.read_bytes(), MANY.elements, together=(8, 72)))
    assert members(path).count(f"extra/{RECORD}") == 1
    assert energy(folder, torch=False) == pytest.approx(expected, rel=1e-8)


def test_no_record_without_a_selection(tmp_path: Path):
    """Of more elements than anybody simulates together, only those that are named have one."""
    elements = tuple(range(1, 10))
    path = tmp_path / "model.pt"
    System(elements=elements, embedding=(2,), fitting=(2,)).model(isotropic=True).save(path)
    assert f"extra/{RECORD}" not in members(path)
    path.write_bytes(with_record(path.read_bytes(), elements, together=(1, 8)))
    assert f"extra/{RECORD}" in members(path)


def test_convert(folder: Lammps):
    """The command adds a record to a file without one, and says what it is good for."""
    path = folder.folder / folder.save(MANY.model(isotropic=True))
    before = rewritten(path.read_bytes(), {f"extra/{RECORD}": b""})
    path.write_bytes(before)
    assert convert(path, path).told["record"] == "lmp runs it without torch"
    energy(folder, torch=True)
    convert(path, path, elements=["O", "Hf"])
    energy(folder, torch=False)
    with pytest.raises(Failure, match=r"names Xe, expected some of .*, which has O Si Zr Hf"):
        convert(path, path, elements=["Xe"])


def test_check_opens_torch(folder: Lammps):
    """When it is due, and for the numbers of the file's own code."""
    folder.save(BINARY.model(isotropic=True))
    energy(folder, torch=True, keywords="check 1")
    setup = SCRIPT.format(keywords="check 1").split("'''")[1]
    text = folder.run(setup, ranks=2).output
    assert "check at step 0: model 1 differs from the file's own code by" in text


def test_record_of_another_model(folder: Lammps):
    """What a file computes is what its code says, not a record that came from elsewhere."""
    path = folder.folder / folder.save(BINARY.model(isotropic=True))
    foreign = record_of(path)
    other = BINARY.model(seed=1, isotropic=True)
    folder.save(other)
    path.write_bytes(rewritten(path.read_bytes(), {f"extra/{RECORD}": foreign}))
    assert energy(folder, torch=True) == pytest.approx(evaluate(other, folder.atoms).energy)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_changed_record(folder: Lammps, part: float):
    """One bit that is another: in the first line, in the network, in the numbers of the code."""
    model = BINARY.model(isotropic=True)
    path = folder.folder / folder.save(model)
    record = bytearray(record_of(path))
    record[int(part * len(record))] ^= 1
    path.write_bytes(rewritten(path.read_bytes(), {f"extra/{RECORD}": bytes(record)}))
    assert energy(folder, torch=True) == pytest.approx(evaluate(model, folder.atoms).energy)


def test_no_record_of_what_no_engine_gives(folder: Lammps):
    """Where the file's own code computes something else than its arrays say."""
    path = folder.folder / folder.save(other_activation(BINARY.model(isotropic=True)))
    assert f"extra/{RECORD}" not in members(path)


def test_the_same_file(tmp_path: Path):
    """A record changes no other member, and a second one is the same."""
    path = tmp_path / "model.pt"
    BINARY.model(isotropic=True).save(path)
    contents = path.read_bytes()
    assert with_record(contents, BINARY.elements) == contents
    assert members(path).count(f"extra/{RECORD}") == 1
