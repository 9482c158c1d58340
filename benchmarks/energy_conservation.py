"""How well a run at constant energy keeps it: drift and fluctuation, in LAMMPS.

    python benchmarks/energy_conservation.py MODEL STRUCTURE --elements 'Hf O' --temperature 1000

Of several models, `a.pt,b.pt`, the mean drives.

A Nose-Hoover thermostat prepares the temperature first. The error of the drift is that of a slope
through a fluctuation that is correlated over ten lines of the log.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import ase.io
import numpy as np
from ase.data import atomic_numbers

from pwmlff.launch import lmp
from pwmlff.launch.program import find as find_lmp
from pwmlff.report import Failure

LINES = 200  # of the log

INPUT = """{read}pair_style pwmlff {models} engine {engine} precision {precision} {words}
pair_coeff * * {elements}
velocity all create {temperature} 4711 mom yes rot yes loop geom
timestep {timestep}
fix 1 all nvt temp {temperature} {temperature} $(100.0 * dt)
run {before}
unfix 1
fix 1 all nve
reset_timestep 0
thermo_style custom step temp pe etotal
thermo_modify norm no format float %.15g
thermo {every}
run {steps}
"""


def main() -> None:
    """Run lmp and print what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a file, or several with commas between")
    parser.add_argument("structure", help="a file that ase reads, like train.extxyz@0")
    parser.add_argument("--elements", required=True, help="of the LAMMPS types, like 'Hf O'")
    parser.add_argument("--temperature", type=float, default=1000.0, help="K")
    parser.add_argument("--time", type=float, default=20.0, help="ps at constant energy")
    parser.add_argument("--timestep", type=float, default=0.001, help="ps")
    parser.add_argument("--precision", default="double", choices=("exact", "double", "mixed"))
    parser.add_argument("--engine", default="auto", choices=("auto", "fused", "torchscript"))
    parser.add_argument("--words", default="", help="more of pair_style, like 'kspace pppm'")
    options = parser.parse_args()

    atoms = ase.io.read(options.structure)
    steps = round(options.time / options.timestep)
    paths = [str(Path(name).resolve()) for name in options.model.split(",")]
    models = " ".join([str(len(paths)), *paths, *["drive mean"] * (len(paths) > 1)])
    with tempfile.TemporaryDirectory() as folder:
        numbers = [atomic_numbers[symbol] for symbol in options.elements.split()]
        lmp.write_data(Path(folder, "structure.data"), atoms, numbers)
        text = INPUT.format(
            read=lmp.read_command(atoms, "structure.data", charges=True),  # as a mesh wants
            before=max(1, steps // 7),
            every=max(1, steps // LINES),
            steps=steps,
            models=models,
            **vars(options),
        )
        Path(folder, "in.nve").write_text(text)
        program = find_lmp()
        done = subprocess.run(
            [program.path, "-in", "in.nve", "-log", "log.nve"],
            cwd=folder,
            env={**os.environ, **program.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failure(f"lmp failed:\n{done.stdout[-2000:]}{done.stderr}")
        thermo = lmp.Thermo(Path(folder, "log.nve")).columns()
    time = np.array(thermo["Step"]) * options.timestep
    energy = np.array(thermo["TotEng"]) / len(atoms)
    line = np.polyfit(time, energy, 1)
    rest = energy - np.polyval(line, time)
    error = rest.std() / (time.std() * np.sqrt(len(time) / 10))
    print(
        f"{options.time:g} ps of {len(atoms)} atoms at {np.mean(thermo['Temp']):.0f} K, "
        f"{'the mean of ' * (len(paths) > 1)}{len(paths)} model{'s' * (len(paths) > 1)}, "
        f"engine {options.engine}, precision {options.precision}: "
        f"drift {line[0]:.1e} +- {error:.1e} eV/atom/ps, fluctuation {rest.std():.1e} eV/atom"
    )


if __name__ == "__main__":
    main()
