"""pwmlff verify: sound models pass, and each seeded defect fails where it should."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from torch import Tensor, nn

from edge_models import LennardJones, MessagePassing
from harness import COMMAND, thorough
from nep_files import HEADS, random_text
from pwmlff import Calculator
from pwmlff.evaluation.verification import _barrier
from pwmlff.models.saving import save_model
from systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
BINARY = SYSTEMS["two elements, triclinic"]


def verify(*words: object, code: int | None = 0, check: str = "") -> dict[str, dict[str, Any]]:
    """Checks by name, all or some; any exit code where it is None."""
    command = [*COMMAND, "verify", *map(str, words), "--np", "1,2", "--json", "--check", check]
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


@pytest.mark.parametrize(
    "kind", ["EDGE", "example", thorough("DP"), thorough("messages"), thorough("NEP")]
)
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
    ],
)
def test_defects(tmp_path: Path, defect: str, row: str):
    path = save_model(Smooth(defect), tmp_path / "model.pt")
    assert failed(verify(path, code=1, check=row)) == {row}


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
        [*COMMAND, "verify", path, *words], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2 and text in done.stderr
