"""The command as users run it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from systems import SYSTEMS

COMMAND = [sys.executable, "-m", "pwmlff"]
TIMEOUT = 200  # seconds; a command that takes longer hangs


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    returncode: int
    output: str  # stdout
    errors: str  # stderr

    @property
    def json(self) -> dict:
        return json.loads(self.output)


@pytest.fixture
def pwmlff(tmp_path: Path):
    """Run the command in an empty folder: pwmlff("info", "a.pt", VARIABLE="value")."""

    def run(*arguments: object, **environment: str) -> Finished:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A model of two elements, in the folder where the command runs."""
    path = tmp_path / "model.pt"
    SYSTEMS["two elements, triclinic"].model(isotropic=True).save(path)
    return path
