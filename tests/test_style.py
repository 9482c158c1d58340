"""What tools decide: ruff and mypy on Python, clang-format on the layout of C++ and CUDA.

And what is told to people who cite, report and commit keeps to the rest of the repository.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from pwmlff import __version__

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


def test_columns():
    """clang-format leaves comments as they are."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 100
    ]
    assert not long


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="older NumPy is annotated otherwise"
)
def test_types():
    """Half a minute at first; what mypy keeps in .mypy_cache makes it seconds from then on."""
    assert (ROOT / "python" / "pwmlff" / "py.typed").is_file()
    checked(["mypy"])


def test_citation_has_the_release():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(found["version"]) == __version__
    assert found["license"] in (ROOT / "pyproject.toml").read_text()


def test_hooks_run_what_is_checked_here():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    commands = [hook["entry"].split() for hook in local["hooks"]]
    (layout,) = (mark.args[1] for mark in test_layout.pytestmark if mark.name == "parametrize")
    assert [" ".join(c).removesuffix(" --fix").removesuffix(" -i") for c in commands] == [
        " ".join(word for word in c if word not in {"--check", "-n", "-Werror"}) for c in layout
    ]


def test_issue_forms():
    """With what the site that shows them asks for: a name, a description, labelled fields."""
    forms = list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert {path.stem for path in forms} == {"bug", "question", "config"}
    for path in forms:
        form = yaml.safe_load(path.read_text())
        if path.stem == "config":
            continue
        assert form["name"] and form["description"]
        names = [field["id"] for field in form["body"]]
        assert len(names) == len(set(names))
        assert all(field["attributes"]["label"] for field in form["body"])
