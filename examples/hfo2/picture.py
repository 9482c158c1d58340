"""Draw what make_models.py leaves in its folder: test, training and run in one picture.

python examples/hfo2/picture.py --folder hfo2 --out examples/hfo2/hfo2.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ase.io import read
from matplotlib.figure import Figure

from pwmlff import evaluate
from pwmlff.launch.log import Log


def draw(folder: Path) -> Figure:
    """Forces of the unseen frames, errors over the time of the training, energies of the run."""
    figure = Figure(figsize=(10.0, 3.1), layout="constrained")
    parity, training, run = figure.subplots(1, 3)

    frames = read(folder / "unseen.extxyz", ":")
    labels = np.concatenate([atoms.get_forces() for atoms in frames])
    found = np.concatenate([e.forces for e in evaluate(folder / "models" / "a.pt", frames)])
    rmse = 1000.0 * np.sqrt(((found - labels) ** 2).mean())
    reach = np.array([-1.05, 1.05]) * np.abs(labels).max()
    parity.plot(reach, reach, color="0.7", linewidth=0.8)
    parity.plot(labels.ravel(), found.ravel(), ".", markersize=1.0, rasterized=True)
    parity.set(title=f"unseen frames, RMSE {rmse:.0f} meV/Å", xlabel="force, label (eV/Å)")
    parity.set_ylabel("force, model (eV/Å)")

    rows = np.genfromtxt(folder / "models" / "a" / "log.csv", delimiter=",", names=True)
    training.semilogy(rows["time"], rows["force_valid"], color="C1", label="force (meV/Å)")
    training.semilogy(rows["time"], rows["energy_valid"], color="C2", label="energy (meV/atom)")
    training.set(title="training, errors in validation", xlabel="time (s)", ylabel="RMSE")
    training.legend(fontsize="small")

    log = Log.read(folder / "log.lammps")
    columns, time = log.runs[-1].columns, log.times()[-1]
    run.plot(time, columns["Temp"], color="C3")
    run.set(title="molecular dynamics in LAMMPS", xlabel="time (ps)")
    run.set_ylabel("temperature (K)", color="C3")
    energy = run.twinx()
    energy.plot(time, columns["E_pair"] - columns["E_pair"][0], color="C0")
    energy.set_ylabel("potential energy (eV)", color="C0")
    return figure


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default="hfo2", help="what make_models.py has made")
    parser.add_argument("--out", type=Path, default="hfo2.png", help="picture to write")
    options = parser.parse_args()
    draw(options.folder).savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
