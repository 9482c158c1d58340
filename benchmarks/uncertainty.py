"""What deviation and gamma tell of errors, and what it costs to look while a simulation runs.

    python benchmarks/uncertainty.py MODEL... --data FILE... --elements 'Hf O'

Of each file with labels: the AUC of the deviation of the models, and of gamma of the first, for
atoms with an error of more than three times the RMSE, and how many errors of forces are below the
bounds that the training of the models has kept. Times are those of the first model, or of all of
them where the keyword needs that, on the first structure, repeated to about --atoms, with and
without a keyword in turns; --rounds 0 leaves them out. A model without gamma has no times of it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import ase.io
from ase.data import atomic_numbers

from in_turns import add_arguments, step_ratio
from pwmlff.evaluation.engine import choose
from pwmlff.train.evaluate import test


def told(models: Sequence[Path], data: str) -> str:
    """One line of a file with labels."""
    report = test(models, [data])
    rmse = report.errors.measures["force"].rmse
    words = [f"{data}: {report.errors.frames} frames, force RMSE {rmse:.1f} meV/angstrom"]
    for name, found in (("deviation", report.calibration), ("gamma", report.grade)):
        if found is not None and found.auc is not None:
            words.append(f"AUC of {name} {found.auc:.3f} ({found.outliers} of {found.atoms} atoms)")
    if report.coverage is not None:
        words.append(f"{100 * report.coverage:.1f} % below the 90 % bounds")
    return "; ".join(words)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--data", nargs="+", required=True, help="files with labels")
    parser.add_argument("--elements", required=True, help="of the LAMMPS types, like 'Hf O'")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    options.numbers = [atomic_numbers[symbol] for symbol in options.elements.split()]
    os.environ["OMP_NUM_THREADS"] = "1"
    for data in options.data:
        print(told(options.models, data))
    if options.rounds < 1:
        return
    atoms = ase.io.read(options.data[0], index=0)
    one, *_ = every = [str(model.resolve()) for model in options.models]
    gamma = "fix gamma all pair {} pwmlff gamma 1"
    of_gamma = (
        ("gamma 1e9 warn", f"{one} gamma 1e9 warn", "", ""),
        ("gamma of each atom, read at each step", one, gamma.format(1), "unfix gamma"),
        ("gamma of each atom, read each 10 steps", one, gamma.format(10), "unfix gamma"),
    )
    for name, looking, command, undo in (
        *(of_gamma if choose(options.models[0]).engine.has_grade else ()),
        ("check 10 (check 1000 adds a hundredth of that)", f"{one} check 10", "", ""),
        ("min_distance 0.1 warn", f"{one} min_distance 0.1 warn", "", ""),
    ):
        print(f"{name}: {step_ratio(atoms, looking, one, options, command, undo)}")
    if len(every) > 1:
        # LAMMPS asks each compute once a run, at its first output, for the sake of variables.
        options.timed, options.rounds = 20 * options.timed, -(-options.rounds // 8)
        several = f"{' '.join(every)} out_freq 1000000"
        command, undo = "compute devi all pair pwmlff", "uncompute devi"
        ratio = step_ratio(atoms, several, several, options, command, undo)
        print(f"compute pair that nothing reads: {ratio}")


if __name__ == "__main__":
    main()
