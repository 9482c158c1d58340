"""A damaged file is refused, or gives the numbers of the sound one to the last bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import dp_oracle
import foreign_models
from foreign_models import matpl_checkpoint
from genuine import GENUINE, requires_genuine
from harness import python
from systems import SYSTEMS

#: How many, and of which series: PWMLFF_MUTANTS=10000 PWMLFF_SEED=1 pytest tests/fuzz
COUNT = int(os.environ.get("PWMLFF_MUTANTS", "150"))
SEED = int(os.environ.get("PWMLFF_SEED", "0"))

# In a process of its own: a crash is a result, too. It names each mutant before it opens it.
WORKER = """
import re, sys
from dataclasses import replace
from pathlib import Path
import numpy as np, torch
from mutants import mutants
from pwmlff.evaluation import model_file
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.reference import evaluate
from pwmlff.report import Failure
from pwmlff.evaluation.structures import random_cluster

torch.set_num_threads(1)
path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def bytes_of(found):
    return np.r_[found.atom_energy, found.forces.ravel(), found.virial.ravel()].tobytes()

def numbers(path):
    choice = choose(path, "torchscript")
    info = choice.info
    cluster = random_cluster(info.cutoff, info.atom_type, info.max_neighbor)
    return bytes_of(choice.engine(cluster)), cluster

def peak():
    # Of this program alone: ru_maxrss would hold that of pytest, which has started it.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

original = path.read_bytes()
expected, cluster = numbers(path)
reference = bytes_of(evaluate(path, cluster))
tables = replace(model_file.describe_unopened(path), file="", sha256="", bytes=0)
Path("/proc/self/clear_refs").write_text("5")  # begins with what is resident now
before = peak()
damaged = path.with_name("damaged.pt")
refused = same = 0
for name, contents in mutants(original, count, seed):
    print("# mutant", name, flush=True)
    damaged.write_bytes(contents)
    try:  # the other way in
        assert bytes_of(evaluate(damaged, cluster)) == reference, "other numbers of the reference"
    except Failure:
        pass
    try:
        found, _ = numbers(damaged)
        info = model_file.describe_unopened(damaged)
    except Failure:
        refused += 1
        continue
    assert found == expected, "other numbers"
    assert replace(info, file="", sha256="", bytes=0) == tables, "other tables"
    same += 1
grown = peak() - before
print(f'{{"refused": {refused}, "same": {same}, "grown": {grown}}}')
"""

# The same for files of other programs, by way of `pwmlff convert`.
CONVERTER = """
import sys
from pathlib import Path
import numpy as np, torch
from mutants import mutants
from pwmlff.evaluation.engine import choose
from pwmlff.report import Failure
from pwmlff.evaluation.structures import random_cluster
from pwmlff.convert import convert

torch.set_num_threads(1)
path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
made = path.with_name("made.pt")

def numbers(path):
    info = convert(path, made).model
    found = choose(made).engine(random_cluster(info.cutoff, info.atom_type, info.limit))
    return np.r_[found.atom_energy, found.forces.ravel(), found.virial.ravel()].tobytes()

try:
    expected = numbers(path)
except Failure as error:  # its program would have to open it
    assert "on the PATH" in str(error), error
    expected = None
damaged = path.with_name("damaged" + path.suffix)
refused = same = 0
for name, contents in mutants(path.read_bytes(), count, seed):
    print("# mutant", name, flush=True)
    damaged.write_bytes(contents)
    try:
        found = numbers(damaged)
    except Failure as error:
        assert str(damaged) in str(error), error
        assert len(str(error).splitlines()) == 1, error
        refused += 1
        continue
    assert found == expected, "other numbers"
    same += 1
print(f'{{"refused": {refused}, "same": {same}}}')
"""


def test_damaged_files(tmp_path: Path):
    path = tmp_path / "model.pt"
    SYSTEMS["one element, orthorhombic"].model().save(path)
    found = survived(WORKER, path, COUNT)
    assert found["same"] > 0  # or nothing was compared
    assert found["grown"] < 500_000, found  # KiB


def save_checkpoint(path: Path) -> None:
    contract = dp_oracle.Contract((8, 72), m2=3)
    arrays = dp_oracle.random_parameters(np.random.default_rng(5))
    torch.save(matpl_checkpoint(contract, arrays), path)


def save_package(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/.data/extern_modules", "torch")
        archive.writestr("model/nequip/__init__.py", "import torch\n" * 400)


#: By the ending of the file.
FOREIGN: dict[str, Callable[[Path], object]] = {
    "deepmd.pth": lambda path: foreign_models.save(foreign_models.deepmd(), path),
    "genuine.pth": lambda path: shutil.copyfile(GENUINE / "deepmd_se_e2_a.pth", path),
    "mace.pt": lambda path: foreign_models.save(foreign_models.mace(), path),
    "deployed.pth": lambda path: foreign_models.save_nequip(path, constant=0.0),
    "matpl.ckpt": save_checkpoint,
    "mace.model": lambda path: path.write_bytes(foreign_models.pickled_mace()),
    "package.nequip.zip": save_package,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[requires_genuine] * (n[0] == "g")) for n in FOREIGN]
)
def test_damaged_files_of_other_programs(tmp_path: Path, monkeypatch, name: str):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    FOREIGN[name](tmp_path / name)
    survived(CONVERTER, tmp_path / name, COUNT // len(FOREIGN))


def survived(program: str, path: Path, count: int) -> dict[str, int]:
    """What a program says at the end that opens damaged copies of a file."""
    folder = Path(__file__).parent
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{folder.parent}", "OMP_NUM_THREADS": "1"}
    output = path.with_name("output")
    with output.open("w") as stream:
        worker = subprocess.Popen(
            python("-c", program, path, count, SEED),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            worker.wait(timeout=60 + 2 * count)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    said = output.read_text(errors="replace")
    assert worker.returncode == 0, said[said.rfind("# mutant") :]
    last = said.splitlines()[-1]
    found = json.loads(last)
    assert found["refused"] + found["same"] == count
    assert found["refused"] > count / 2
    return found
