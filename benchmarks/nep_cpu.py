"""CPU seconds of an evaluation by NEP_CPU; run by rivals.py with a Python that has it.

    PYTHON benchmarks/nep_cpu.py calorine|nep-adapters nep.txt structure.xyz EVALUATIONS

The calculator of calorine or of nep-adapters moves the atoms a little and asks for forces, on one
thread. The last line that is printed is the seconds of one evaluation.
"""

# Each program is imported where it is used.
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
import time
from typing import Any

from ase.io import read


def calculator(program: str, model: str) -> Any:
    """NEP_CPU as a calculator of ase."""
    if program == "calorine":
        from calorine.calculators import CPUNEP

        return CPUNEP(model)
    from nep_adapters.ase import NepAseCalculator

    return NepAseCalculator(model, backend="cpu")


def main(program: str, model: str, structure: str, evaluations: str) -> None:
    """Print the time."""
    atoms = read(structure)
    atoms.calc = calculator(program, model)
    atoms.get_forces()
    begin = time.process_time()
    for _ in range(int(evaluations)):
        atoms.positions += 1e-6
        atoms.get_forces()
    print((time.process_time() - begin) / int(evaluations))


if __name__ == "__main__":
    main(*sys.argv[1:])
