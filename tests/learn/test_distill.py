"""pwmlff distill: a small student of a potential of ase."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.io import read, write

from harness import COMMAND, thorough
from labelled_structures import copper_gold
from pwmlff import Calculator


@pytest.mark.parametrize(
    "settings, model",
    [
        (["nep.n_max=[2,2]", "nep.basis_size=[4,4]", "nep.neuron=4"], "a.txt"),  # the default
        thorough(
            ["model.kind=dp", "model.embedding=[4]", "model.fitting=[4]", "model.m2=2"], "a.pt"
        ),
    ],
)
def test_distillation(tmp_path: Path, settings: list[str], model: str):
    """The card against the teacher and the model themselves; a second start finds it."""
    write(tmp_path / "start.xyz", copper_gold(), format="extxyz")
    words = [*COMMAND, "distill", "--teacher", "ase.calculators.emt:EMT()", "--start", "start.xyz"]
    words += ["--temperature", "100:300", "--max-time", "30s", "-o", "run", "--frames", "6"]
    words += ["--check", "0.05", "--json"]
    words += [word for setting in settings for word in ("--set", setting)]

    def card() -> dict[str, Any]:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["card"]

    found = card()
    frames = read(tmp_path / "run" / "held-out" / "labelled.extxyz", index=":")
    assert (
        found["temperature"] == pytest.approx(700 / 3) and found["structures"] == len(frames) == 20
    )
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
    assert card() == found
