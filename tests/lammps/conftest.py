"""The harness as a fixture."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import PROGRAMS, Lammps


@pytest.fixture
def lammps(tmp_path: Path) -> Lammps:
    """An empty folder to run lmp in."""
    assert shutil.which(PROGRAMS / "lmp"), "install the package first: pip install '.[test]'"
    return Lammps(tmp_path)
