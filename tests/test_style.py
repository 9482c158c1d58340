"""Formatters decide on layout: ruff for Python, clang-format for C++ and CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path
    for folder in ("kernels", "models", "pair_pwmlff")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".h", ".cpp", ".cu", ".cuh"}
]


@pytest.mark.parametrize(
    "command", [["ruff", "check"], ["ruff", "format", "--check"], ["clang-format", "-n", "-Werror"]]
)
def test_layout(command):
    program = Path(sys.executable).with_name(command[0])
    files = SOURCES if command[0] == "clang-format" else [ROOT]
    run = subprocess.run(
        [program, *command[1:], *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
