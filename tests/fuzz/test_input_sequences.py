"""Commands in any order: no crash, no hang, no silent other number."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import sequences

from harness import ENGINES, PROGRAMS, python
from pwmlff.launch.program import find as find_lmp

#: How many, and from which number on: PWMLFF_SEQUENCES=10000 PWMLFF_SEED=1000 pytest tests/fuzz
COUNT = int(os.environ.get("PWMLFF_SEQUENCES", "30"))
SEED = int(os.environ.get("PWMLFF_SEED", "0"))
SECONDS = 60  # that a sequence may take before it counts as hanging
#: First number and how many, by engine and ranks: two halves, and fewer on several ranks.
SHARE = {
    ("automatic", 1): (SEED, COUNT - COUNT // 2),
    ("device", 1): (SEED + COUNT - COUNT // 2, COUNT // 2),
    ("automatic", 2): (SEED, COUNT // 10),
    ("automatic", 5): (SEED, COUNT // 30),
}
ENOUGH = 30  # sequences among which those without a run do not count


def run(folder: Path, engine: str, ranks: int, first: int, count: int) -> tuple[int, str]:
    """Return code and output of so many sequences from the first on."""
    environment = {
        **find_lmp().environment, **ENGINES[engine].environment, "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }  # fmt: skip
    start = [PROGRAMS / "mpirun", "-np", str(ranks)] if ranks > 1 else []
    output = folder / "output"
    with output.open("w") as stream:
        done = subprocess.run(
            [*start, *python("-m", "mpi4py", sequences.__file__, first, count)],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            timeout=SECONDS + count * 2 * ranks,
            check=False,
        )
    return done.returncode, output.read_text()


@pytest.mark.parametrize("engine,ranks", SHARE)
def test_sequences(tmp_path: Path, engine, ranks):
    first, count = SHARE[engine, ranks]
    sequences.prepare(tmp_path)
    compared, following = 0, first
    while following < first + count:
        code, said = run(tmp_path, engine, ranks, following, first + count - following)
        begun = re.findall(r"^# sequence (\d+)$", said, re.MULTILINE)
        last = said[said.rfind("# sequence") :]
        assert code == 0 or (code == sequences.ABORTED and ranks > 1 and begun), last
        compared += sum(map(int, re.findall(r"^# compared (\d+)$", said, re.MULTILINE)))
        following = int(begun[-1]) + 1
    assert compared > count or count < ENOUGH
