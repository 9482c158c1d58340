"""What tools decide: ruff and mypy on Python, clang-format on the layout of C++ and CUDA.

And what is told to people who cite, report and commit keeps to the rest of the repository.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from pwmlff import __version__

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path
    for folder in ("kernels", "models", "pair_pwmlff", "tests")
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


def test_one_release_everywhere():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(found["version"]) == __version__
    assert found["license"] in (ROOT / "pyproject.toml").read_text()
    assert f"project(pair_pwmlff VERSION {__version__} " in (ROOT / "CMakeLists.txt").read_text()


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


#: Prepositions, and adverbs that stand in their place; `from_` counts as `from`.
PREPOSITIONS = {
    "about", "above", "across", "after", "against", "ahead", "along", "alongside", "amid",
    "among", "around", "as", "aside", "at", "away", "before", "behind", "below", "beneath",
    "beside", "besides", "between", "beyond", "by", "despite", "down", "during", "except",
    "for", "from", "in", "inside", "into", "near", "of", "off", "on", "onto", "out", "outside",
    "over", "past", "per", "since", "through", "throughout", "till", "to", "toward", "towards",
    "under", "underneath", "until", "unto", "up", "upon", "via", "with", "within", "without",
}  # fmt: skip
#: By file and scope, the names that a user writes: `--through` of `pwmlff bench`, which Typer names
#: after the argument.
OPTIONS = {("commands/bench.py", "bench", "through")}


def defined_names(node: ast.AST, scope: str = "") -> Iterator[tuple[str, str, int]]:
    """Names that code defines, each with the innermost class or function around it and its line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield scope, child.name, child.lineno
            yield from defined_names(child, child.name)
            continue
        if isinstance(child, ast.arg):
            yield scope, child.arg, child.lineno
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield scope, child.id, child.lineno
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            yield scope, child.attr, child.lineno
        elif isinstance(child, ast.alias | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            name = child.asname if isinstance(child, ast.alias) else child.name
            if name:
                yield scope, name, child.lineno
        yield from defined_names(child, scope)


def test_no_preposition_is_a_name():
    """What a thing is called says what it is: a noun, or for what is done a verb."""
    package = ROOT / "python" / "pwmlff"
    found, used = [], set()
    for path in sorted(package.rglob("*.py")):
        file = str(path.relative_to(package))
        for scope, name, line in defined_names(ast.parse(path.read_text(), path)):
            if name.strip("_").lower() not in PREPOSITIONS:
                continue
            if (file, scope, name) in OPTIONS:
                used.add((file, scope, name))
            else:
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not found, "\n".join(found)
    assert used == OPTIONS  # none that is no longer there
