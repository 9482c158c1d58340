"""Time `pwmlff.Calculator`: what a script waits for at first, and at each step of its dynamics.

    PWMLFF_TEST_DATA=... python benchmarks/calculator.py [--atoms 768]

HfO2 of the given size, with the parameters in PWMLFF_TEST_DATA or else random ones, cutoff 6. Each
engine is opened anew in every round; the engines take turns, and the best of all rounds counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from ase.io import read
from rich.console import Console
from rich.table import Table

from pwmlff import Calculator
from standard_cases import prepare

ENGINES = ("fused", "torchscript", "reference")


def seconds(path: Path, structure: Path, engine: str) -> list[float]:
    """To open the file, for the first evaluation, for one with and one without its neighbors."""
    atoms = read(structure, format="lammps-data")
    rng = np.random.default_rng(0)
    times = [time.perf_counter()]
    calculator = Calculator(path, engine=engine)
    times.append(time.perf_counter())
    for far in (0.0, 0.01, 1.0):  # less and more than half of the skin
        atoms.positions += rng.uniform(-far, far, atoms.positions.shape) / 2
        calculator.get_property("forces", atoms)
        times.append(time.perf_counter())
    return np.diff(times).tolist()


def main() -> None:
    """Time and show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoms", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    table = Table(
        *("engine", "open", "first call", "after a small step", "after a large one"),
        box=None,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = prepare(folder, {options.atoms}, set())
        best = {engine: np.full(4, np.inf) for engine in ENGINES}
        for _ in range(options.rounds):
            for engine in ENGINES:
                found = seconds(folder / "hfo2.pt", next(folder.glob("*.data")), engine)
                best[engine] = np.minimum(best[engine], found)
    for engine, times in best.items():
        table.add_row(engine, *(f"{t:.3f}" for t in times))
    Console(highlight=False).print(
        f"{options.atoms} atoms, {source} parameters; seconds, best of {options.rounds}", table
    )


if __name__ == "__main__":
    main()
