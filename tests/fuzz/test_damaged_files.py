"""A damaged file is refused, or gives the numbers of the sound one to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from systems import SYSTEMS

#: How many, and of which series: PWMLFF_MUTANTS=10000 PWMLFF_SEED=1 pytest tests/fuzz
COUNT = int(os.environ.get("PWMLFF_MUTANTS", "500"))
SEED = int(os.environ.get("PWMLFF_SEED", "0"))

# In a process of its own: a crash is a result, too. The last line tells which mutant it was.
WORKER = """
import resource, sys
from dataclasses import replace
from pathlib import Path
import numpy as np, torch
from mutants import mutants
from pwmlff import model_file
from pwmlff.engine import TorchScript, random_cluster
from pwmlff.report import Failure

torch.set_num_threads(1)
path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def numbers(path):
    module = model_file.load(path)
    info = model_file.describe(path, module)
    cluster = random_cluster(info.cutoff, info.atom_type, info.max_neighbor)
    found = TorchScript(module, info.atom_type)(cluster)
    return np.r_[found.atom_energy, found.forces.ravel(), found.virial.ravel()].tobytes()

original = path.read_bytes()
expected = numbers(path)
tables = replace(model_file.describe_unopened(path), file="", sha256="", bytes=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
damaged = path.with_name("damaged.pt")
refused = same = 0
for name, contents in mutants(original, count, seed):
    print(name, flush=True)
    damaged.write_bytes(contents)
    try:
        found = numbers(damaged)
        info = model_file.describe_unopened(damaged)
    except Failure:
        refused += 1
        continue
    assert found == expected, "other numbers"
    assert replace(info, file="", sha256="", bytes=0) == tables, "other tables"
    same += 1
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(f'{{"refused": {refused}, "same": {same}, "grown": {grown}}}')
"""


def test_damaged_files(tmp_path: Path):
    path = tmp_path / "model.pt"
    SYSTEMS["one element, orthorhombic"].model().save(path)
    folder = Path(__file__).parent
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{folder.parent}", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", WORKER, path, str(COUNT), str(SEED)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60 + COUNT,
        check=False,
    )
    last = run.stdout.splitlines()[-1]
    assert run.returncode == 0, f"{last}\n{run.stderr}"
    found = json.loads(last)
    assert found["refused"] + found["same"] == COUNT
    assert found["refused"] > COUNT / 2
    assert found["same"] > 0  # or nothing was compared
    assert found["grown"] < 500_000, found  # KiB
