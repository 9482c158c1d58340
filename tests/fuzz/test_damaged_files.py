"""A damaged file is refused, or gives the numbers of the sound one to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
from pwmlff import model_file
from pwmlff.engine import choose
from pwmlff.reference import evaluate
from pwmlff.report import Failure
from pwmlff.trial import random_cluster

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


def test_damaged_files(tmp_path: Path):
    path = tmp_path / "model.pt"
    SYSTEMS["one element, orthorhombic"].model().save(path)
    folder = Path(__file__).parent
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{folder.parent}", "OMP_NUM_THREADS": "1"}
    output = tmp_path / "output"
    with output.open("w") as stream:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, path, str(COUNT), str(SEED)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            worker.wait(timeout=60 + COUNT)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    said = output.read_text(errors="replace")
    assert worker.returncode == 0, said[said.rfind("# mutant") :]
    last = said.splitlines()[-1]
    found = json.loads(last)
    assert found["refused"] + found["same"] == COUNT
    assert found["refused"] > COUNT / 2
    assert found["same"] > 0  # or nothing was compared
    assert found["grown"] < 500_000, found  # KiB
