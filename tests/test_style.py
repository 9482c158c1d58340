"""What tools decide: ruff and mypy on Python, clang-format on the layout of C++ and CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path
    for folder in ("kernels", "models", "pair_pwmlff")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".h", ".cpp", ".cu", ".cuh"}
]


def checked(command, *files):
    """Run a program of this environment in the source tree; it has to find nothing."""
    program = Path(sys.executable).with_name(command[0])
    run = subprocess.run(
        [program, *command[1:], *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    "command", [["ruff", "check"], ["ruff", "format", "--check"], ["clang-format", "-n", "-Werror"]]
)
def test_layout(command):
    checked(command, *(SOURCES if command[0] == "clang-format" else [ROOT]))


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="older NumPy is annotated otherwise"
)
def test_types():
    """Half a minute at first; what mypy keeps in .mypy_cache makes it seconds from then on."""
    assert (ROOT / "python" / "pwmlff" / "py.typed").is_file()
    checked(["mypy"])
