"""Run in.lj with the models and with lj/cut itself, and draw both, as `pwmlff plot` does.

python examples/lj/plot.py  # writes lj.png in the current folder
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from pwmlff.commands import plot

HERE = Path(__file__).resolve().parent
LJ_CUT = {"pair_style": "pair_style lj/cut 2.5", "pair_coeff": "pair_coeff 1 1 1.0 1.0 2.5"}


def run(text: str, folder: Path, log: str, ranks: int, steps: int) -> Path:
    """Run a LAMMPS input in a folder and return its log file."""
    script = folder / f"in.{log}"
    script.write_text(text)
    command = ["mpirun", "-np", str(ranks), "lmp", "-in", script.name, "-log", log]
    command += ["-var", "dir", str(HERE), "-var", "steps", str(steps)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr}")
    return folder / log


def main() -> None:
    """Make the runs, then draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="MPI ranks of the runs")
    parser.add_argument("--steps", type=int, default=100, help="length of the runs")
    parser.add_argument("--out", type=Path, default="lj.png", help="picture to write")
    options = parser.parse_args()
    models = lj_cut = (HERE / "in.lj").read_text()
    for command, line in LJ_CUT.items():
        lj_cut = re.sub(rf"^{command} .*$", line, lj_cut, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = [
            run(text, folder, log, options.ranks, options.steps)
            for log, text in (("models", models), ("lj-cut", lj_cut))
        ]
        plot.plot(logs[0], folder / "model_devi.out", compare=logs[1:], output=options.out)


if __name__ == "__main__":
    main()
