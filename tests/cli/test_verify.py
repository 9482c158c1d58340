"""pwmlff verify: sound models pass, and each seeded defect fails where it should."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from torch import Tensor, nn

import foreign_models
from edge_models import LennardJones, MessagePassing
from harness import forked, thorough
from labelled_structures import trajectory
from nep_files import CHARGED, HEADS, random_text
from pwmlff import Calculator
from pwmlff.commands.verify import verify as verify_model
from pwmlff.convert import convert
from pwmlff.evaluation import self_test
from pwmlff.evaluation.verification import _barrier
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
        if self.defect == "direction":
            smooth = smooth * (1.0 + 0.1 * (edge_vec[:, 0] / r) ** 2)
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype, device=edge_vec.device)
        energies = energies.index_add(0, i, smooth)
        if self.defect == "ranks":
            energies = energies + 1.0 / nlocal
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
    checks = verify(path, code=0 if kind in ("EDGE", "example") else None)
    assert failed(checks) <= holes
    if kind == "EDGE":
        assert {check["grade"] for check in checks.values()} == {"A"}
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


def test_picture(tmp_path: Path):
    path = save_model(Smooth(), tmp_path / "model.pt")
    verify(path, "--plot", tmp_path / "a.png", "--elements", "O", check="dimer-repulsion")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words,text",
    [
        (["--data", "bare.xyz"], "without forces"),
        (["--lmp", "absent"], "absent"),
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
