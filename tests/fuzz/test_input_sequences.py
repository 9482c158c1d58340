"""Commands in any order: no crash, no hang, no silent other number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sequences

from harness import ENGINES
from pwmlff.lmp import program

#: How many, and from which number on: PWMLFF_SEQUENCES=10000 PWMLFF_SEED=1000 pytest tests/fuzz
COUNT = int(os.environ.get("PWMLFF_SEQUENCES", "50"))
SEED = int(os.environ.get("PWMLFF_SEED", "0"))
SECONDS = 60  # that a sequence may take before it counts as hanging
FIRST = COUNT - COUNT // 2
#: First number and how many, of each engine.
SHARE = {"automatic": (SEED, FIRST), "device": (SEED + FIRST, COUNT // 2)}
ENOUGH = 50  # sequences among which those without a run do not count


@pytest.mark.parametrize("engine", SHARE)
def test_sequences(tmp_path: Path, engine):
    first, count = SHARE[engine]
    sequences.prepare(tmp_path)
    environment = {
        **program().environment, **ENGINES[engine].environment, "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }  # fmt: skip
    output = tmp_path / "output"
    with output.open("w") as stream:
        done = subprocess.run(
            [
                sys.executable,
                sequences.__file__,
                tmp_path,
                str(first),
                str(count),
            ],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            timeout=SECONDS + count * 2,
            check=False,
        )
    said = output.read_text()
    last = said[said.rfind("# sequence") :]
    assert done.returncode == 0, last
    compared = int(said.splitlines()[-1])
    assert compared > count or count < ENOUGH
