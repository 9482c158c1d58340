"""CPU seconds and numbers of a calculator; benchmarks and tests run it with a Python that has it.

    PYTHON benchmarks/other_calculators.py PROGRAM MODEL structures.xyz EVALUATIONS [own.npz]

The calculator of PROGRAM, one of `CALCULATORS`, evaluates the structures. Their energies [n] and
forces [atoms of all, 3] go to the last file. Then atoms of the last structure move a little from
one evaluation to the next, on one thread. The last line that is printed is the seconds of one of
these.
"""

# Each program is imported where it is used.
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ase.io import read


def _calorine(model: str) -> Any:
    from calorine.calculators import CPUNEP

    return CPUNEP(model)


def _nep_adapters(model: str) -> Any:
    from nep_adapters.ase import NepAseCalculator

    return NepAseCalculator(model, backend="cpu")


def _python_ace(model: str, recursive: bool = True) -> Any:
    from pyace import ACECTildeBasisSet, PyACECalculator

    basis = ACECTildeBasisSet(model) if model.endswith(".ace") else model
    return PyACECalculator(basis, recursive=recursive)


def _python_ace_gamma(model: str) -> Any:
    """Of B functions (.yaml), with the .asi beside them."""
    from pyace import PyACECalculator

    calculator = PyACECalculator(model)
    calculator.set_active_set(str(Path(model).with_suffix(".asi")))
    return calculator


def _grace_fs(model: str) -> Any:
    from pyace.asecalc import PyGRACEFSCalculator

    return PyGRACEFSCalculator(model)


def _pwmlff(model: str) -> Any:
    from pwmlff import Calculator

    return Calculator(model)


def _torchnep(model: str) -> Any:
    from torchnep.ase_calculator import NEP

    return NEP(model, dtype="float64", device="cpu")


def _deepmd(model: str) -> Any:
    from deepmd.calculator import DP

    return DP(model)


def _grace(model: str) -> Any:
    from tensorpotential.calculator import TPCalculator

    return TPCalculator(model.removesuffix(".yaml"))  # the folder of the same, for TensorFlow


def _ace_jax(model: str) -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)
    from ace_jax import ACECalculator

    return ACECalculator(model)


def _mace(model: str) -> Any:
    from mace.calculators import MACECalculator

    return MACECalculator(model_paths=model, device="cpu")


def _nequip(model: str) -> Any:
    from nequip.integrations.ase import NequIPCalculator

    return NequIPCalculator._from_saved_model(model, device="cpu")  # noqa: SLF001  not compiled


CALCULATORS: dict[str, Callable[[str], Any]] = {
    "calorine": _calorine,  # NEP_CPU
    "nep-adapters": _nep_adapters,  # NEP_CPU too
    "python-ace": _python_ace,  # PACE
    "python-ace-gamma": _python_ace_gamma,
    "python-ace-product": lambda model: _python_ace(model, recursive=False),
    "grace-fs": _grace_fs,  # GRACE/FS in python-ace
    "pwmlff": _pwmlff,
    "torchnep": _torchnep,
    "deepmd": _deepmd,
    "grace": _grace,  # GRACE in tensorpotential
    "ace-jax": _ace_jax,
    "mace": _mace,
    "nequip": _nequip,
}


def main(program: str, model: str, structures: str, evaluations: str, output: str = "") -> None:
    """Print the time."""
    energies, forces = [], []
    calculator = CALCULATORS[program](model)
    for atoms in read(structures, ":"):
        atoms.calc = calculator
        forces.append(atoms.get_forces())
        energies.append(atoms.get_potential_energy())
    if output:
        np.savez(output, energy=energies, forces=np.concatenate(forces))
    begin = time.process_time()
    for _ in range(int(evaluations)):
        atoms.positions += 1e-6
        atoms.get_forces()
    if int(evaluations):
        print((time.process_time() - begin) / int(evaluations))


if __name__ == "__main__":
    main(*sys.argv[1:])
