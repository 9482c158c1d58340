"""pwmlff verify: sound models pass, and each seeded defect fails where it should."""

from __future__ import annotations

import json
import subprocess
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from ase.spacegroup import crystal as spacegroup_crystal
from ase.vibrations import Vibrations
from torch import Tensor, nn

import foreign_models
from edge_models import LennardJones, MessagePassing
from harness import forked, thorough
from labelled_structures import trajectory
from nep_files import CHARGED, HEADS, random_text
from pwmlff import Calculator
from pwmlff.commands.verify import verify as verify_model
from pwmlff.convert import convert
from pwmlff.evaluation import physics, self_test
from pwmlff.evaluation.model_file import open_any
from pwmlff.evaluation.physics import LONG_CHECKS, Physics, _barrier
from pwmlff.evaluation.properties import Crystal, Properties
from pwmlff.evaluation.verification import Verification
from pwmlff.launch import lmp
from pwmlff.models.saving import MACE_ARRAYS, rewritten, save_model, with_record
from pwmlff.report import Failure
from pwmlff.train import train
from systems import SYSTEMS, crystal

ROOT = Path(__file__).resolve().parents[2]
BINARY = SYSTEMS["two elements, triclinic"]


def verify(*words: object, code: int | None = 0, check: str = "") -> dict[str, dict[str, Any]]:
    """Checks by name, all or some; any exit code where it is None."""
    command = forked("verify", *words, "--np", "1,2", "--json", "--check", check)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def failed(checks: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, check in checks.items() if check["grade"] == "F"}


class Smooth(nn.Module):
    """Pairs that repel each other, and go to zero smoothly at the cutoff."""

    def __init__(self, defect: str = "", weight: float = 1.0):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", 4.0, [8, 72]
        self.defect, self.weight = defect, weight

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        i, j = edge_index[0], edge_index[1]
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        smooth = (1.0 - (r / self.cutoff).square()).clamp(min=0.0) ** 3 / r
        strength = 1.0 + 9.0 * (types[j] == 1) * (types[i] == 1) * self.weight
        smooth = smooth * strength
        if self.defect == "jump":
            smooth = smooth + 0.01
        if self.defect == "hole":
            smooth = smooth - 400.0 * torch.exp(-((r / 0.6) ** 2))
        if self.defect == "no periodicity":
            smooth = smooth * (j < nlocal)
        if self.defect == "kink":
            smooth = smooth + 0.1 * (self.cutoff / 2 - r).clamp(min=0.0)
        if self.defect == "direction":
            smooth = smooth * (1.0 + 0.1 * (edge_vec[:, 0] / r) ** 2)
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype, device=edge_vec.device)
        energies = energies.index_add(0, i, smooth)
        if self.defect == "ranks":
            energies = energies + 1.0 / nlocal
        if self.defect == "global":
            energies = energies * (1.0 + 0.01 * energies.mean())
        return energies


class HalfVirial(nn.Module):
    """A Deep Potential whose own code gives a virial of half size."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner
        for name in ("model_type", "atom_type", "Rmax", "maxNeighborNum"):
            setattr(self, name, getattr(inner, name))

    def forward(
        self, list_neigh: Tensor, Imagetype_map: Tensor, atom_type: Tensor, ImageDR: Tensor,
        nghost: int, Egroup_weight: Tensor | None = None, divider: Tensor | None = None,
        is_calc_f: bool | None = True,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
        energy, atoms, force, group, virial = self.inner(
            list_neigh, Imagetype_map, atom_type, ImageDR, nghost, Egroup_weight, divider, is_calc_f
        )
        return energy, atoms, force, group, None if virial is None else 0.5 * virial


class Whirl(Calculator):
    """Forces that also drive all atoms around an axis, which no energy does."""

    def get_property(self, name: str, atoms: Atoms | None = None, *words: Any) -> Any:
        found = super().get_property(name, atoms, *words)
        if name == "forces" and atoms is not None:
            x, y, _ = atoms.positions.T
            found = found + 0.1 * np.column_stack([y - y.mean(), x.mean() - x, 0.0 * x])
        return found


@pytest.mark.parametrize("kind", ["example", *map(thorough, ("EDGE", "DP", "messages", "NEP"))])
def test_sound_models(tmp_path: Path, kind: str):
    """Nothing but holes, which random parameters may have."""
    path = tmp_path / "model.pt"
    if kind == "DP":
        BINARY.model(isotropic=True).save(path)
    elif kind == "EDGE":
        save_model(Smooth(), path)
    elif kind == "messages":
        save_model(MessagePassing([8, 72], 4.0), path)
    elif kind == "NEP":
        path = tmp_path / "nep.txt"
        path.write_bytes(random_text(HEADS["nep5"]))
    else:
        path = ROOT / "examples" / "hfo2" / "a.pt"
    holes = {"dimer-repulsion", "energy-volume"}
    checks = verify(path, "--quick", code=0 if kind in ("EDGE", "example") else None)
    assert failed(checks) <= holes
    if kind == "EDGE":
        assert {check["grade"] for check in checks.values()} == {"A"}
    assert not set(LONG_CHECKS) & set(checks)
    assert checks["rank-invariance"]["grade"] == "A"
    assert checks["engine-invariance"]["grade"] == "A"


@pytest.mark.parametrize(
    "defect,row",
    [
        ("jump", "dimer-continuity-c1"),
        ("no periodicity", "rank-invariance"),  # lmp asks for ghosts, and refuses it
        ("direction", "objectivity"),
        ("ranks", "rank-invariance"),
        ("hole", "dimer-repulsion"),
        ("hole", "dimer-shape"),
        ("kink", "dimer-continuity-c1"),
        ("global", "locality"),
        ("global", "extensivity"),
    ],
)
def test_defects(tmp_path: Path, defect: str, row: str):
    path = save_model(Smooth(defect), tmp_path / "model.pt")
    assert failed(verify(path, code=1, check=row)) == {row}


def test_charges(tmp_path: Path, monkeypatch):
    """They add up to zero, and are the same on any ranks; those that are not fail."""
    (tmp_path / "nep.txt").write_bytes(random_text(CHARGED["charge 1"]))
    checks = verify(tmp_path / "nep.txt", check="charge-neutrality,rank-invariance")
    assert {name: check["grade"] for name, check in checks.items()} == {
        "charge-neutrality": "A", "rank-invariance": "A",
    }  # fmt: skip
    measure = lmp.evaluate

    def moved(*arguments: Any) -> list[lmp.Measured]:
        return [one._replace(charges=one.charges + 0.1) for one in measure(*arguments)]

    monkeypatch.setattr(lmp, "evaluate", moved)
    report = verify_model(tmp_path / "nep.txt", np="1", check="rank-invariance")
    assert report.checks["rank-invariance"].grade == "F"


def test_jump_of_a_potential_that_is_cut_off(tmp_path: Path):
    """Where LAMMPS's lj/cut ends."""
    path = save_model(LennardJones(2.5), tmp_path / "lj.pt")
    (found,) = verify(path, code=1, check="dimer-continuity-c1").values()
    assert found["grade"] == "F" and "at 2.5)" in found["measured"]


def test_virial_of_half_size(tmp_path: Path):
    path = save_model(HalfVirial(BINARY.model(isotropic=True)), tmp_path / "half.pt")
    some = "engine-invariance,virial-numerical-derivative"
    checks = verify(path, "--engine", "torchscript", code=1, check=some)
    assert "virial-numerical-derivative" in failed(checks)
    assert "has no Rmin, M2" in checks["engine-invariance"]["measured"]


def test_types_that_are_swapped(tmp_path: Path):
    """Which nothing but labels can tell."""
    right, wrong = Smooth(), Smooth()
    wrong.atom_type = [72, 8]
    paths = [save_model(m, tmp_path / f"{k}.pt") for k, m in enumerate((right, wrong))]
    frames = []
    for seed in range(3):
        atoms = BINARY.atoms(seed=seed)
        atoms.calc = Calculator(paths[0])
        atoms.calc = SinglePointCalculator(
            atoms, energy=atoms.get_potential_energy(), forces=atoms.get_forces()
        )
        frames.append(atoms)
    write(tmp_path / "labels.xyz", frames, format="extxyz")
    data = f"{tmp_path / 'labels.xyz'}@:"
    assert verify(paths[0], "--data", data, check="labels")["labels"]["grade"] == "A"
    assert failed(verify(paths[1], "--data", data, code=1, check="labels")) == {"labels"}


SMALL = {
    "dp": ["model.rmax=5.0", "model.embedding=[4]", "model.fitting=[4]", "model.m2=2"],
    "nep": [
        "nep.cutoff=[5.0,4.0]", "nep.n_max=[2,2]", "nep.basis_size=[4,4]", "nep.l_max=[3,1,1]",
        "nep.neuron=8",
    ],
}  # fmt: skip


def made(kind: str, folder: Path) -> Path:
    """A model file that has been trained, or converted."""
    if kind in SMALL:
        words = {"model": kind, "epochs": 1, "settings": SMALL[kind]}
        report = train(trajectory(12, step=0.1), ["Ne", "Ar"], folder / "run", **words)
        return Path(report.models[0].file)
    modules = {
        "deepmd": foreign_models.deepmd, "mace": foreign_models.mace,
        "edge": lambda: torch.jit.script(Smooth()),
    }  # fmt: skip
    convert(foreign_models.save(modules[kind](), folder / "other.pt"), folder / "model.pt")
    return folder / "model.pt"


def change(path: Path, elements: bool) -> None:
    """Swap two elements in a file, or multiply one of its weights by 1.5."""
    if path.suffix == ".txt":
        lines = path.read_text().splitlines()
        if elements:
            *begin, first, second = lines[0].split()
            lines[0] = " ".join([*begin, second, first])
        else:
            row = next(k for k, line in enumerate(lines) if line.startswith("ANN")) + 1
            lines[row] = str(1.5 * float(lines[row]))
        path.write_text("\n".join([*lines, ""]))
        return
    extra = dict.fromkeys([self_test.SELF_TEST, MACE_ARRAYS], "")
    module = torch.jit.load(path, "cpu", extra)
    if elements:
        module.atom_type = module.atom_type[::-1]
    else:
        values = [*module.parameters(), *module.buffers()]
        largest = max(values, key=lambda v: v.numel() * v.is_floating_point())
        with torch.no_grad():
            flat = largest.view(-1)
            flat[flat.abs().argmax()] *= 1.5
    torch.jit.save(module, path, {name: text for name, text in extra.items() if text})
    # Signed anew, as by somebody who means it well.
    path.write_bytes(with_record(path.read_bytes(), module.atom_type))


@pytest.mark.parametrize("kind", ["dp", "nep", thorough("deepmd"), "mace"])
def test_a_file_that_has_changed(pwmlff, tmp_path: Path, kind: str):
    """One weight, or the order of elements: nothing but the numbers of the original tells."""
    path = made(kind, tmp_path)
    checked = ("verify", path, "--check", "self-test", "--json")
    (sound,) = pwmlff(*checked).json["checks"]
    assert sound["grade"] == "A", sound
    trusted = pwmlff("info", path, "--trust", "--json")
    assert trusted.returncode == 0, trusted.words
    contents = path.read_bytes()
    for elements in (False, True):
        path.write_bytes(contents)
        change(path, elements)
        found = pwmlff(*checked)
        assert found.returncode == 1
        assert [check["grade"] for check in found.json["checks"]] == ["F"]
        found = pwmlff("info", path, "--trust", "--json")
        assert found.returncode == 1
        assert "gives other numbers than when it was written" in found.json["failures"][0]
        with pytest.raises(Failure, match="gives other numbers than when it was written"):
            convert(path, tmp_path / "again.pt")


def test_what_is_kept_is_of_the_original(tmp_path: Path):
    """Energies of atoms and forces of three clusters, by the code of the program that wrote it."""
    module = torch.jit.script(foreign_models.deepmd())
    path = made("deepmd", tmp_path)
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(self_test.SELF_TEST))
        kept = json.loads(archive.read(name))
    assert len(kept["structures"]) == 3
    for case in kept["structures"]:
        types = torch.tensor([[[8, 72].index(z) for z in case["numbers"]]])
        found = module(torch.tensor([case["positions"]], dtype=torch.float64), types)
        assert np.allclose(found["atom_energy"].detach().flatten(), case["energies"], atol=1e-12)
        assert np.allclose(found["force"].detach()[0], case["forces"], atol=1e-12)


def test_a_self_test_of_anyone(pwmlff, tmp_path: Path):
    """One that cannot be read is said, and no fault of the command."""
    path = made("edge", tmp_path)
    for text in (
        b"[]",
        b'{"structures": 1}',
        b'{"tolerance": 1, "structures": [{"numbers": "x"}]}',
    ):
        path.write_bytes(rewritten(path.read_bytes(), {f"extra/{self_test.SELF_TEST}": text}))
        found = pwmlff("info", path, "--trust", "--json")
        failed = [] if text == b"[]" else ["has a self-test.json that is not as it is written"]
        assert [
            failure.split("' ")[1].split(":")[0] for failure in found.json["failures"]
        ] == failed


def test_all_frames_of_the_data(tmp_path: Path):
    """As `pwmlff test` takes them, in any of its formats: a wrong last one counts."""
    path = save_model(Smooth(), tmp_path / "model.pt")
    frames = []
    for seed in range(3):
        atoms = BINARY.atoms(seed=seed)
        atoms.calc = Calculator(path)
        forces = (1.0 + (seed == 0)) * atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=0.0, forces=forces)
        frames.append(atoms)
    write(tmp_path / "labels.xyz", frames, format="extxyz")
    found = verify(path, "--data", tmp_path / "labels.xyz", code=None, check="labels")["labels"]
    assert "3 structures" in found["measured"] and found["grade"] not in "AB"


def test_a_crystal_of_the_data(tmp_path: Path):
    """Is compressed in place of one by chance; the barrier is that of its own energies."""
    path = save_model(Smooth("hole"), tmp_path / "model.pt")
    atoms = crystal(2)
    atoms.calc = Calculator(path)
    labels = SinglePointCalculator(atoms, energy=0.0, forces=atoms.get_forces())
    energies = []
    for scale in np.linspace(1.3, 0.5, 300):
        pressed = atoms.copy()
        pressed.set_cell(scale * atoms.cell.array, scale_atoms=True)
        pressed.calc = atoms.calc
        energies.append(pressed.get_potential_energy() / len(atoms))
    barrier = max(energies) - min(energies[: np.argmax(energies)])
    assert energies[-1] < max(energies)
    atoms.calc = labels
    molecule = atoms[:3]
    molecule.pbc = False
    molecule.calc = SinglePointCalculator(molecule, energy=0.0, forces=np.ones((3, 3)))
    write(tmp_path / "labels.xyz", [molecule, atoms], format="extxyz")
    found = verify(path, "--data", tmp_path / "labels.xyz", code=None, check="energy-volume")
    words = found["energy-volume"]["measured"].split()
    assert words[:-2] == ["a", "hole", "behind", "a", "barrier", "of"]
    assert float(words[-2]) == pytest.approx(barrier, rel=0.02)


def test_a_barrier():
    """Of a well with a hole behind it, and of one without."""
    r = np.linspace(0.3, 6.0, 400)
    morse = (1 - np.exp(-(r - 2.0))) ** 2 - 1
    assert np.isinf(_barrier(r, morse, 1.4))
    hole = morse - 50 * np.exp(-((r / 0.3) ** 2))
    highest = hole[(r > 0.3) & (r < 2.0)].max()
    assert _barrier(r, hole, 1.4) == pytest.approx(highest - hole[r > 1.4].min(), rel=1e-6)


def test_the_shape_of_a_dimer():
    """Signs, minima and both branches of a bond, of one with a second well, and of none."""
    r = np.linspace(0.8, 8.0, 400)

    def shape(energies: np.ndarray) -> physics.DimerShape:
        return physics.DimerShape.counted(np.column_stack([energies, -np.gradient(energies, r)]))

    bond = (1 - np.exp(-(r - 2.0))) ** 2 - 1
    assert shape(bond) == physics.DimerShape(1, 1, -1.0, 1.0) and shape(bond).grade == "A"
    second = shape(bond - 0.5 * np.exp(-(((r - 4.5) / 0.2) ** 2)))
    assert (second.sign_changes, second.minima) == (3, 2) and second.grade == "C"
    assert shape(np.exp(-r)).grade == shape(np.zeros(400)).grade == "A"
    attracts = shape(-np.exp(-r))
    assert attracts.sign_changes == 0 and attracts.grade == "F"


@pytest.fixture(scope="module")
def copper() -> Crystal:
    """By ase's effective medium theory."""
    return Crystal(bulk("Cu", a=3.7, cubic=True), EMT())


def test_properties_of_copper(copper: Crystal):
    """Against second differences of the energy, the modulus by them, and ase's vibrations."""
    rest, h = copper.at_rest, 2e-3

    def energy(strain: np.ndarray) -> float:
        atoms = rest.copy()
        atoms.set_cell(rest.cell.array @ (np.eye(3) + strain), scale_atoms=True)
        atoms.calc = EMT()
        return atoms.get_potential_energy()

    def second(strain: np.ndarray) -> float:
        """GPa, of a strain of unit size."""
        parts = [energy(h * x * strain) for x in (-2, -1, 0, 1, 2)]
        return np.dot([-1, 16, -30, 16, -1], parts) / (12 * h * h * rest.get_volume()) / units.GPa

    shear = np.zeros((3, 3))
    shear[0, 1] = shear[1, 0] = 0.5
    c11, c44 = second(np.diag([1.0, 0.0, 0.0])), second(shear)
    c12 = (second(np.diag([1.0, 1.0, 0.0])) - 2 * c11) / 2
    found = copper.elastic_constants
    assert np.allclose(np.diag(found), [c11] * 3 + [c44] * 3, rtol=2e-3)
    assert np.allclose(found[[0, 0, 1], [1, 2, 2]], c12, rtol=2e-3)
    assert copper.bulk_modulus == pytest.approx((c11 + 2 * c12) / 3, rel=0.01)
    assert copper.volume == pytest.approx(rest.get_volume() / 4, rel=1e-4)


def test_phonons_of_copper(copper: Crystal, tmp_path: Path):
    atoms = copper.at_rest.copy()
    atoms.calc = EMT()
    vibrations = Vibrations(atoms, name=str(tmp_path / "vibrations"))
    vibrations.run()
    wanted = np.sort(vibrations.get_energies().real) / (units._hplanck * 1e12 / units._e)
    assert np.allclose(copper.phonons[3:], wanted[3:], rtol=1e-3)
    assert np.all(abs(copper.phonons[:3]) < 1e-3)


def test_a_crystal_that_never_rests(tmp_path: Path):
    """As its atoms only repel each other."""
    crystal_of_it = Crystal(crystal(2), Calculator(save_model(Smooth(), tmp_path / "model.pt")))
    with pytest.raises(ValueError, match=r"does not come to rest|comes to rest at"):
        _ = crystal_of_it.volume


def fluorite(folder: Path) -> str:
    """A file with one labelled crystal of HfO2."""
    atoms = spacegroup_crystal(
        ["Hf", "O"], [(0, 0, 0), (0.25, 0.25, 0.25)], spacegroup=225, cellpar=[5.1] * 3 + [90] * 3
    )
    atoms.calc = SinglePointCalculator(atoms, energy=0.0, forces=np.zeros((12, 3)))
    write(folder / "fluorite.xyz", atoms, format="extxyz")
    return str(folder / "fluorite.xyz")


def test_against_others(tmp_path: Path, pwmlff):
    """The same model, another one, and values of a file, in which each is told apart."""
    a, b = (ROOT / "examples" / "hfo2" / name for name in ("a.pt", "nep.txt"))
    words = ("--data", fluorite(tmp_path), "--check", ",".join(physics.PROPERTY_CHECKS), "--json")
    same = pwmlff("verify", a, *words, "--against", a).json
    assert [check["grade"] for check in same["checks"]] == ["A"] * 3
    assert all("differs by 0 %" in check["measured"] for check in same["checks"])
    other = pwmlff("verify", b, *words, "--against", a).json
    (tmp_path / "a.json").write_text(json.dumps(same))
    by_values = pwmlff("verify", b, *words, "--against", tmp_path / "a.json").json
    assert [c["measured"] for c in by_values["checks"]] == [c["measured"] for c in other["checks"]]
    volumes = [report["properties"]["volume"] for report in (same, other)]
    difference = 500.0 * abs(volumes[1] / volumes[0] - 1.0)
    modulus = [report["properties"]["bulk_modulus"] for report in (same, other)]
    difference = max(difference, 100.0 * abs(modulus[1] / modulus[0] - 1.0))
    assert other["checks"][0]["measured"].endswith(f"differs by {difference:.2g} %")
    (tmp_path / "given.json").write_text('{"volume": 20.0}')
    given = pwmlff("verify", a, *words, "--against", tmp_path / "given.json")
    assert given.returncode == 1
    grades = {check["name"]: check["grade"] for check in given.json["checks"]}
    assert grades["equation-of-state"] == "F" and grades["phonons"] != "F"


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", "{", '{"volum": 1}', '{"volume": "x"}', '{"phonons": [[1]]}', '{"volume": NaN}',
     '{"elastic_constants": [1, 2]}', '{"bulk_modulus": [1]}'],
)  # fmt: skip
def test_values_that_are_none(tmp_path: Path, text: str):
    path = tmp_path / "values.json"
    path.write_text(text)
    with pytest.raises(Failure, match="expected"):
        Properties.read(path)


def test_long_runs(tmp_path: Path, monkeypatch):
    """Energy is kept, and lost where the model does not give its slopes; heat is an event."""
    monkeypatch.setattr(physics, "LONG_ENERGY", 1.0)
    monkeypatch.setattr(physics, "LONG_HOT", 0.2)

    def long_run(name: str, model: nn.Module | Path, temperature: float | None) -> physics.Graded:
        path = model if isinstance(model, Path) else save_model(model, tmp_path / f"{name}.pt")
        info = open_any(path)[1]
        examined = Verification(info, info.atom_type, partial(Calculator, path, nthreads=1))
        return Physics(examined, temperature=temperature).checks()[name]()

    for name in ("long-energy-conservation", "hot-stability"):
        assert long_run(name, ROOT / "examples" / "hfo2" / "a.pt", None).grade == "A"
    monkeypatch.setattr("test_verify.Calculator", Whirl)
    assert long_run("long-energy-conservation", ROOT / "examples/hfo2/a.pt", None).grade in "DF"
    monkeypatch.undo()
    hot = long_run("hot-stability", Smooth("hole"), 1e5)
    assert hot.grade == "F" and ", then " in hot.measured


def test_picture(tmp_path: Path):
    path = save_model(Smooth(), tmp_path / "model.pt")
    verify(path, "--plot", tmp_path / "a.png", "--elements", "O", check="dimer-repulsion")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words,text",
    [
        (["--data", "bare.xyz"], "without forces"),
        (["--lmp", "absent"], "absent"),
        (["--against", "bare.xyz"], "expected one in --data"),
        (["--check", "objectivity,else"], "found the check 'else' in --check, expected some of"),
    ],
)
def test_errors(tmp_path: Path, words: list[str], text: str):
    path = save_model(Smooth(), tmp_path / "model.pt")
    write(tmp_path / "bare.xyz", BINARY.atoms(), format="extxyz")
    done = subprocess.run(
        forked("verify", path, *words), cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2 and text in done.stderr
