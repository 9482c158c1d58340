"""The examples of training: their parts fit together, on tiny numbers."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from ase.calculators.lj import LennardJones
from ase.io import read
from typer.testing import CliRunner

from harness import ENGINES, PROGRAMS, Lammps
from pwmlff.cli import app
from pwmlff.launch import lmp
from pwmlff.report import Failure

pytestmark = pytest.mark.usefixtures("undrawn")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TINY = (
    "run.epochs=1", "model.embedding=[4]", "model.fitting=[4]", "model.m2=2",
    "data.cache=none",
)  # fmt: skip


def script(example: str) -> ModuleType:
    path = EXAMPLES / example / "make_models.py"
    spec = importlib.util.spec_from_file_location(f"make_models_{example}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the types of their fields
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["hfo2", "lj"])
def test_from_the_teacher_to_models_that_run(example: str, tmp_path, monkeypatch) -> None:
    """All commands of the script, those of pwmlff in this process and with one model."""
    made = script(example)
    monkeypatch.setattr(made, "TRAINING", made.TRAINING[:1])
    monkeypatch.setattr(made, "UNSEEN", made.UNSEEN[:1])
    ran = []

    def run(folder: Path, program: str, *words: str) -> None:
        ran.append((program, *words[:2]))
        if program == "lmp":
            subprocess.run([PROGRAMS / program, *words], cwd=folder, check=True, timeout=60)
            return
        monkeypatch.chdir(folder)
        train = words[0] == "train"
        done = CliRunner().invoke(app, [*words, *(("--set", "run.models=1") if train else ())])
        assert done.exit_code == 0, done.output
        if train:
            for name in ("a.pt", "b.pt"):
                shutil.copy("models/best.pt", f"models/{name}")

    monkeypatch.setattr(made, "run", run)
    words = ["--out", str(tmp_path), "--frames", "2", *(["--steps", "1"] * (example == "hfo2"))]
    made.main([*words, *(word for text in TINY for word in ("--set", text))])
    assert ("pwmlff", "train", "run.toml") in ran
    assert ("pwmlff", "test", "models/a.pt") in ran
    if example == "lj":
        assert {path.name for path in tmp_path.iterdir()} == {"a.pt", "b.pt"}
    else:
        assert len(read(tmp_path / "train.extxyz", ":")) == 2
        assert len((tmp_path / "model_devi.out").read_text().splitlines()) > 1


@pytest.mark.parametrize("units", ["lj", "metal"])
def test_labels_of_a_run(units: str, tmp_path: Path) -> None:
    """A sheared crystal, against the same potential in ase; stresses in its order and sign."""
    lammps = Lammps(tmp_path, ENGINES["automatic"])
    lammps.run(
        f"units {units}\nlattice fcc {0.9 if units == 'lj' else 1.65}\n"
        "region box prism 0 4 0 4 0 4 0.3 0.2 -0.4\ncreate_box 1 box\ncreate_atoms 1 box\n"
        "mass 1 40\npair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0\npair_modify shift yes\n"
        "displace_atoms all random 0.1 0.1 0.1 7\ncompute press all pressure NULL virial\n"
        "fix 1 all nve\ntimestep 0.0001\nvelocity all create 1.0 3\n"
        "thermo_style custom step pe c_press[*]\nthermo 5\n"
        "thermo_modify norm no format float %.15g\n"
        "dump 1 all custom 5 frames.dump id element x y z fx fy fz\n"
        "dump_modify 1 sort id element Ar format float %.15g\nrun 5\n"
    )
    dump, log = tmp_path / "frames.dump", tmp_path / "log.lammps"
    frames = lmp.labelled(dump, log, units)
    assert len(frames) == 2
    for atoms in frames:
        exact = atoms.copy()
        exact.calc = LennardJones(sigma=1.0, epsilon=1.0, rc=2.5)
        assert atoms.get_potential_energy() == pytest.approx(exact.get_potential_energy(), rel=1e-9)
        assert atoms.get_forces() == pytest.approx(exact.get_forces(), rel=1e-8, abs=1e-8)
        # LAMMPS's factor of pressures has seven digits that are those of other constants.
        assert atoms.get_stress() == pytest.approx(exact.get_stress(), rel=1e-6, abs=1e-8)
    (tmp_path / "two.dump").write_text(dump.read_text() * 2)
    with pytest.raises(Failure, match=r"4 frames in .* 2 potential energies"):
        lmp.labelled(tmp_path / "two.dump", log, units)
