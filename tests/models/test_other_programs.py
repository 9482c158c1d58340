"""Models that other programs make: the same numbers in lmp, on any number of ranks.

PWMLFF_TEST_PYTHONS names a Python in which each is installed: mace=DIR/bin/python,nequip=...
"""

from __future__ import annotations

import os
from pathlib import Path

import families
import numpy as np
import pytest

from pwmlff.wrap import wrap

PYTHONS = dict(
    word.split("=", 1) for word in os.environ.get("PWMLFF_TEST_PYTHONS", "").split(",") if word
)
pytestmark = pytest.mark.skipif(not PYTHONS, reason="PWMLFF_TEST_PYTHONS names no other program")
#: eV/atom and eV/angstrom from the program's own calculator.
GATES = {False: (1e-8, 1e-6), True: (1e-6, 1e-5)}


@pytest.mark.parametrize("family", families.PROGRAMS)
def test_same_numbers(tmp_path: Path, family: str):
    program = families.PROGRAMS[family]
    if program not in PYTHONS:
        pytest.skip(f"PWMLFF_TEST_PYTHONS names no Python with {program}")
    source, expected = families.make(family, PYTHONS[program], tmp_path)
    compiled = family.endswith(families.COMPILED)
    wrap(source, tmp_path / "a.pt", compiled=compiled)
    atoms = families.structure()
    energy, force = GATES["float32" in family]
    for ranks in families.RANKS:
        ran = families.run(tmp_path / "a.pt", atoms, ranks=ranks)
        assert ran.engine.startswith("compiled") == compiled
        assert abs(ran.energies.sum() - expected["energy"]) / len(atoms) < energy
        assert np.abs(ran.forces - expected["forces"]).max() < force
    assert np.abs(expected["forces"]).max() > 0.01
