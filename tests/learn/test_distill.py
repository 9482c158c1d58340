"""pwmlff distill: a small student of a potential of ase, and its card."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import read, write

from harness import forked, thorough
from labelled_structures import copper_gold
from pwmlff import Calculator, files
from pwmlff.learn import student
from pwmlff.learn.processes import Workshop
from pwmlff.report import Failure

SHORT = {"TESTED": 8, "EVERY": 10, "STEPS": 20}  # of what is held out


@pytest.mark.parametrize(
    "settings, model",
    [
        (["nep.n_max=[2,2]", "nep.basis_size=[4,4]", "nep.neuron=4"], "a.txt"),  # the default
        thorough(
            ["model.kind=dp", "model.embedding=[4]", "model.fitting=[4]", "model.m2=2"], "a.pt"
        ),
    ],
)
def test_distillation(tmp_path: Path, monkeypatch, settings: list[str], model: str):
    """The card against the teacher and the model themselves; a second start finds it."""
    for name, value in (("ROUNDS", 1), ("MOST_LABELS", 12), *SHORT.items()):
        monkeypatch.setattr(student, name, value)
    write(tmp_path / "start.xyz", copper_gold(), format="extxyz")
    teacher, start = "ase.calculators.emt:EMT()", str(tmp_path / "start.xyz")
    teaching = student.Teaching(
        teacher, (start,), (100.0, 300.0), 20.0, tmp_path / "run",
        settings=(*settings, "run.epochs=4"), frames=6, picoseconds=0.05,
    )  # fmt: skip
    report = student.distill(teaching, lambda: False)
    assert report.ok is not bool(report.card.faults())
    words = forked("distill", "--teacher", teacher, "--start", start, "-o", "run", "--json")
    words += ["--temperature", "100:300", "--max-time", "20m", "--frames", "6", "--check", "0.05"]
    words += [word for setting in teaching.settings for word in ("--set", setting)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert done.returncode == (not report.ok), done.stdout + done.stderr
    assert told["faults"] == report.card.faults()
    found: dict[str, Any] = told["card"]
    assert found["share"] == pytest.approx(report.card.share)
    frames = read(tmp_path / "run" / "held-out" / "labelled.extxyz", index=":")
    assert found["temperature"] == pytest.approx(700 / 3)
    assert found["structures"] == len(frames) >= 4 and found["grades"]
    wanted, forces = [], []
    for atoms in frames:
        for calculator, results in (
            (EMT(), wanted),
            (Calculator(tmp_path / "run" / model), forces),
        ):
            atoms.calc = calculator
            results.append(atoms.get_forces())
    error = np.concatenate(forces) - np.concatenate(wanted)
    gold = np.concatenate([atoms.numbers == 79 for atoms in frames])
    for name, rows in (("all", slice(None)), ("Au", gold), ("Cu", ~gold)):
        rms = [float(np.sqrt((v[rows] ** 2).mean())) for v in (np.concatenate(wanted), error)]
        assert [found["rms"][name], found["rmse"][name]] == pytest.approx(rms, rel=1e-5)
    assert 1e-7 < found["student_seconds"] < 1e-3 and found["teacher_seconds"] > 1e-6


def test_two_distillations_in_a_folder(tmp_path: Path, monkeypatch):
    """The second one is refused, and replaces nothing: neither structures nor anything else."""
    monkeypatch.setattr(files, "PATIENCE", 0.0)
    write(tmp_path / "start.xyz", copper_gold(), format="extxyz")
    teaching = student.Teaching(
        "ase.calculators.emt:EMT()", (str(tmp_path / "start.xyz"),), (100.0, 300.0), 20.0,
        tmp_path / "run",
    )  # fmt: skip
    other = Workshop(teaching.folder, lambda: False)
    with pytest.raises(Failure, match="another process is at work in"):
        student.distill(teaching, lambda: False)
    other.close()
    assert [path.name for path in teaching.folder.iterdir()] == [files.LOCK]


#: A teacher that knows what the student does, and a pressure, and forces that are larger.
TEACHER = """
import numpy as np
from pwmlff import Calculator
class Teacher(Calculator):
    def __init__(self, path, pressure, factor):
        super().__init__(path)
        self.pressure, self.factor = pressure, factor
    def calculate(self, atoms, *others):
        super().calculate(atoms, *others)
        work = self.pressure * atoms.get_volume()
        for name in ("energy", "free_energy"):
            if name in self.results:
                self.results[name] += work
        self.results["forces"] *= self.factor
        self.results["stress"] = self.results["stress"] + self.pressure * np.r_[1, 1, 1, 0, 0, 0]
"""


@pytest.mark.parametrize("pressure, factor", [(0.02, 1.0), thorough(0.0, 1.5)])
def test_card(tmp_path: Path, monkeypatch, pressure: float, factor: float):
    """Of a student that the teacher stems from: each number is known."""
    for name, value in SHORT.items():
        monkeypatch.setattr(student, name, value)
    grades = {"objectivity": "A", "labels": "F" if factor == 1.5 else "C"}
    monkeypatch.setattr(student._Judge, "_grades", lambda _: grades)
    write(tmp_path / "start.xyz", bulk("HfO2", "fluorite", a=5.1, cubic=True), format="extxyz")
    (tmp_path / "teacher.py").write_text(TEACHER)
    model = Path(__file__).resolve().parents[2] / "examples" / "hfo2" / "nep.txt"
    models = [tmp_path / "run" / f"{name}.txt" for name in "ab"]
    words = f"{tmp_path / 'teacher.py'}:Teacher('{model}', {pressure}, {factor})"
    start = (str(tmp_path / "start.xyz"),)
    teaching = student.Teaching(
        words, start, (100.0, 250.0), 10.0, tmp_path / "run", picoseconds=0.05
    )
    (tmp_path / "run" / "first").mkdir(parents=True)
    config = student.learning(teaching)
    write(tmp_path / "run" / "first" / "labelled.extxyz", copper_gold(), format="extxyz")
    for path in models:
        path.write_bytes(model.read_bytes())
    shop = Workshop(tmp_path / "run", lambda: False)
    card = student._Judge(teaching, config, models, shop, 2, time.monotonic() + 600.0).judged()
    shop.close()
    assert card.structures == 8 and card.rmse["all"] == pytest.approx(
        (factor - 1.0) / factor * card.rms["all"], abs=1e-6
    )
    gpa = 160.21766
    assert card.stress == pytest.approx(gpa * pressure * (1 / 3) ** 0.5, abs=1e-5)
    assert list(card.others) == list(student.OTHERS)
    for one in card.others.values():
        assert one["structures"] == 4
        assert one["rmse"] == pytest.approx((factor - 1.0) / factor * one["rms"], abs=1e-6)
        assert one["stress"] == pytest.approx(card.stress, abs=1e-5)
        assert one["pressure"] == pytest.approx(-gpa * pressure, abs=1e-5)
    cell = bulk("HfO2", "fluorite", a=5.1, cubic=True)
    mass = cell.get_masses().sum() / 6.02214e23
    assert card.density["start"] == pytest.approx(mass / (5.1e-8) ** 3, rel=1e-5)
    # Energies alone: where the model's pressure is 0, and the opposite of the teacher's.
    for name, wanted in (("student", 0.0), ("teacher", pressure)):
        length = (mass / card.density[name]) ** (1 / 3) * 1e8
        cell.set_cell([length] * 3, scale_atoms=True)
        cell.calc = Calculator(model)
        assert cell.get_stress()[:3].mean() == pytest.approx(-wanted, abs=2e-3)
    assert card.student_seconds > 0.0 and card.picoseconds == 0.05 and not card.event
    assert 0.9 < card.grown < 1.1
    faults = "; ".join(card.faults())
    assert bool(faults) is (factor == 1.5)
    if faults:
        assert faults.count("33.3 % of their RMS, expected at most 25 %") == 3
        assert "gives F for labels" in faults and card.grade == "F"


def test_what_evaporates():
    """An atom that has left the others, in the measure of the start."""
    atoms = copper_gold()
    assert student._nearest(atoms) == pytest.approx(3.7 / 2**0.5)
    atoms.set_cell([30.0, 30.0, 30.0])
    atoms.positions[3] = [20.0, 20.0, 20.0]
    assert student._nearest(atoms) > student.GONE * 3.7 / 2**0.5
