"""CPU seconds and numbers of a calculator; run by rivals.py and tests with a Python that has it.

    PYTHON benchmarks/other_calculators.py PROGRAM MODEL structure.xyz EVALUATIONS [own.npz]

The calculator of PROGRAM, one of calorine, nep-adapters (NEP_CPU), python-ace (PACE),
python-ace-product (its product evaluator) and grace-fs (GRACE/FS of python-ace), evaluates the
structure, whose energy and forces go to the last file. Then atoms move a little from one evaluation
to the next, on one thread. The last line that is printed is the seconds of one of these.
"""

# Each program is imported where it is used.
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from ase.io import read


def calculator(program: str, model: str) -> Any:
    """The calculator of ase that a program has."""
    if program == "calorine":
        from calorine.calculators import CPUNEP

        return CPUNEP(model)
    if program == "nep-adapters":
        from nep_adapters.ase import NepAseCalculator

        return NepAseCalculator(model, backend="cpu")
    if program.startswith("python-ace"):
        from pyace import ACECTildeBasisSet, PyACECalculator

        basis = ACECTildeBasisSet(model) if model.endswith(".ace") else model
        return PyACECalculator(basis, recursive=not program.endswith("product"))
    from pyace.asecalc import PyGRACEFSCalculator

    return PyGRACEFSCalculator(model)


def main(program: str, model: str, structure: str, evaluations: str, output: str = "") -> None:
    """Print the time."""
    atoms = read(structure)
    atoms.calc = calculator(program, model)
    forces = atoms.get_forces()
    if output:
        np.savez(output, energy=atoms.get_potential_energy(), forces=forces)
    begin = time.process_time()
    for _ in range(int(evaluations)):
        atoms.positions += 1e-6
        atoms.get_forces()
    if int(evaluations):
        print((time.process_time() - begin) / int(evaluations))


if __name__ == "__main__":
    main(*sys.argv[1:])
