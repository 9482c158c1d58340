"""Time and memory of an lmp that only opens a model file, with its record and without, in turns.

    python benchmarks/start_of_lmp.py examples/hfo2/a.pt

The record is what lmp needs to run the file without torch (docs/model_contract.md).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ase.data import atomic_masses, chemical_symbols

from pwmlff.evaluation import model_file
from pwmlff.launch import program
from pwmlff.models.saving import RECORD, rewritten

OPENED = """units {units}
region box block 0 20 0 20 0 20
create_box {ntypes} box
create_atoms 1 single 10 10 10
{masses}
pair_style pwmlff model.pt
pair_coeff * * {symbols}
run 0
"""


#: A child inherits the peak of the process that starts it, so that has to be a small one.
WATCH = """import os, sys, time
begin = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measure(found: program.Program, folder: Path) -> list[float]:
    """Seconds, seconds of a processor, and the most MB of one lmp."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **found.environment}
    command = [sys.executable, "-S", "-c", WATCH, found.path, "-in", "in.lmp", "-screen", "none"]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit((folder / "log.lammps").read_text())
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    """Print the medians of both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    contents = options.model.read_bytes()
    info = model_file.describe_unopened(options.model)
    numbers = info.atom_type
    found = program.find()
    with tempfile.TemporaryDirectory() as name:
        folders = {
            "with record": contents,
            "without": rewritten(contents, {f"extra/{RECORD}": b""}),
        }
        for label, written in folders.items():
            folder = Path(name, label)
            folder.mkdir()
            (folder / "model.pt").write_bytes(written)
            masses = (f"mass {k} {atomic_masses[z]}" for k, z in enumerate(numbers, 1))
            (folder / "in.lmp").write_text(
                OPENED.format(
                    units=info.units,
                    ntypes=len(numbers),
                    masses="\n".join(masses),
                    symbols=" ".join(chemical_symbols[z] for z in numbers),
                )
            )
        rounds = [
            {label: measure(found, Path(name, label)) for label in folders}
            for _ in range(options.rounds)
        ]
    for label in folders:
        elapsed, processor, memory = (
            statistics.median(one[label][k] for one in rounds) for k in range(3)
        )
        print(f"{label}: {elapsed:.3f} s, {processor:.3f} s of a processor, {memory:.0f} MB")


if __name__ == "__main__":
    main()
