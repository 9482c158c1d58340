"""`benchmarks/standard_cases.py`: what is asked for is timed, and the numbers belong together."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ase.io import read

from harness import TIMEOUT, python
from mace_oracle import Shape, save
from pwmlff import devices
from pwmlff.launch import mpirun, program
from pwmlff.report import Failure
from standard_cases import (
    MACE,
    Case,
    Choice,
    Programs,
    cases,
    gpu_ratios,
    kernel_times,
    main,
    model_file,
    prepare,
    sides,
)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "standard_cases.py"


def timed(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        python(SCRIPT, *words),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def error(monkeypatch, *words: str) -> str:
    """With which the command ends."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    with pytest.raises(SystemExit) as end:
        main()
    return str(end.value)


def test_times_what_is_asked_for():
    done = timed(
        "--atoms", "96", "--engine", "fused", "--precision", "mixed", "--np", "1,2", "--rounds", 2,
        "--seconds", 0.1, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ways = [(c["atoms"], c["ranks"], c["engine"].split()[-1]) for c in found["cases"]]
    assert ways == [(96, 1, "mixed"), (96, 2, "mixed")]
    for case in found["cases"]:
        assert len(case["rates"]) == 2
        assert case["rate"] == max(case["rates"]) > 0
        assert 0 < case["phases"]["Pair"] <= 100


def test_limit():
    """What does not fit is left out, and said."""
    done = timed("--atoms", "96", "--engine", "fused", "--limit", 0, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cases"] == []
    assert "3 of 3 cases did not fit into 0 s" in done.stderr


def test_standard_cases():
    full, quick = cases(Choice()), cases(Choice(quick=True))
    assert {c.system for c in full} == {"HfO2", "LJ"}
    assert max(c.atoms for c in quick) < max(c.atoms for c in full)
    assert {c.models for c in full} == {1, 4}


def test_gpu_cases():
    """What a report of a GPU quotes is found among its cases."""
    full = cases(Choice(gpu=True))
    for case in full:
        case.rates = [float(case.atoms)]
    assert all(ratio > 0 for ratio in gpu_ratios(full).values())
    assert max(c.atoms for c in full) > 1_000_000
    assert {c.base for c in full if c.system == "HfO2"} == {96, 768, 6144}
    assert {c.base for c in full if c.system in MACE} == {96, 3072}
    assert "replicate 4 4 4" in Case("HfO2", 64 * 6144, "zero").text(10)


def test_models_of_mace(tmp_path):
    """In boxes that are no cubes; models of a folder count, and one that is not there is named."""
    (system, *_), folder, own = MACE, tmp_path / "work", tmp_path / "own"
    folder.mkdir()
    own.mkdir()
    with pytest.raises(FileNotFoundError, match=re.escape(model_file(system))):
        prepare(folder, set(), {system}, own)
    save(own / model_file(system), Shape())
    prepare(folder, {3072}, {system}, own)
    found = [folder / model_file(system), own / model_file(system)]
    assert found[0].read_bytes() == found[1].read_bytes()
    assert len(read(folder / "hfo2-3072.data", format="lammps-data")) == 3072
    assert sides(3072) == (4, 8, 8)


def test_a_case_may_fail(tmp_path):
    """What a GPU has no memory for is said; what may not fail ends all."""
    programs = Programs(program.find(None), mpirun.find(None))
    prepare(tmp_path, {96}, set())
    case = Case("HfO2", 96, "engine steam", may_fail=True)
    case.attempt(tmp_path, 0.05, programs)
    assert "steam" in case.failed and not case.rates
    with pytest.raises(Failure, match="steam"):
        Case("HfO2", 96, "engine steam").attempt(tmp_path, 0.05, programs)


def test_kernel_times(tmp_path):
    """On the CPU in place of a GPU."""
    prepare(tmp_path, set(), set())
    times = kernel_times(tmp_path / "hfo2.pt", "mixed", 2, "cpu", rounds=1)
    assert {"EdgeMoments", "Fit", "Differentiate"} < set(times)
    assert min(times.values()) > 0


@pytest.mark.skipif(bool(devices.inventory().gpus), reason="has a GPU")
def test_needs_a_gpu(monkeypatch):
    assert "found no GPU" in error(monkeypatch, "--gpu")


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--engine", "steam"], "found steam; expected engines"),
        (["--precision", "half"], "found half"),
        (["--atoms", "many"], "--atoms is 'many'"),
        (["--atoms", "96,1000000000"], "found 1000000000 atoms, expected at most"),
        (["--np", "1,100000"], "found 100000 ranks, expected at most"),
        (["--np", "1,2", "--mpirun", "absent"], "found no 'absent'"),
    ],
)
def test_errors(arguments, words: str, monkeypatch):
    assert words in error(monkeypatch, *arguments)
