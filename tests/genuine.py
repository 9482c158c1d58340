"""Files that other programs wrote, with their numbers: none of them is part of the project.

They lie in a folder beside the checkout; the variable PWMLFF_TEST_DATA names another one. What
needs them is skipped where they are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase import Atoms

DATA_VARIABLE = "PWMLFF_TEST_DATA"
DATA = Path(
    os.environ.get(DATA_VARIABLE, Path(__file__).resolve().parents[2] / "shared" / "data")
).absolute()
GENUINE = DATA / "genuine"
requires_genuine = pytest.mark.skipif(
    not GENUINE.is_dir(), reason=f"no {GENUINE}; set {DATA_VARIABLE} to the folder of genuine"
)

Frames = list[tuple[Atoms, Any]]  # pwmlff.evaluation.reference.Result


def hfo2_frames() -> Frames:
    """Structures with the numbers of the original implementation, float64."""
    from pwmlff.evaluation.reference import Result

    with np.load(DATA / "hfo2_dp" / "reference.npz") as data:
        return [
            (
                Atoms(data["numbers"], data["positions"][k], cell=data["cell"][k], pbc=True),
                Result(*(data[name][k] for name in ("energy", "atom_energy", "forces", "virial"))),
            )
            for k in range(len(data["energy"]))
        ]


def deepmd_frames() -> Frames:
    """The same of the code in a file of DeePMD-kit."""
    from pwmlff.evaluation.reference import Result

    with np.load(GENUINE / "deepmd_se_e2_a.npz") as data:
        symbols = [str(data["type_map"][kind]) for kind in data["types"]]
        atoms = Atoms(symbols, data["positions"], cell=data["cell"], pbc=True)
        numbers = (data[name] for name in ("energy", "atom_energy", "force", "virial"))
        return [(atoms, Result(*numbers))]


@dataclass(frozen=True)
class Original:
    """A file, and numbers that its own program gives."""

    path: Path
    types: tuple[int, ...]  # atomic numbers of LAMMPS's types
    frames: Callable[[], Frames]
    converted: bool = False  # whether it is a model file only once it is converted


ORIGINALS = {
    "matpl": Original(GENUINE / "matpl_hfo2_jit_dp.pt", (72, 8), hfo2_frames),
    "deepmd": Original(GENUINE / "deepmd_se_e2_a.pth", (8, 1), deepmd_frames, converted=True),
}
