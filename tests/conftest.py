"""Data and models that several test folders use."""

from __future__ import annotations

import ast
import functools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
import typer.testing
from ase import Atoms

import dp_oracle
from genuine import DATA, DATA_VARIABLE, hfo2_frames
from harness import forked
from pwmlff.launch import interpreter

#: Few tests that take a minute each (a compiler reads torch's headers, hundreds of runs).
LONG = (
    "test_input_sequences.py", "test_verification.py", "test_damaged_files.py", "test_scripted.py",
    "test_nodes.py", "test_run.py", "test_verify.py", "test_learn.py", "test_distill.py",
)  # fmt: skip


#: Ranks that wait for others sleep: they are more than there are cores here, and four that look for
#: messages all the time take twenty times as long as one.
os.environ |= {
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",  # those in shared memory never let go of a core
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "50",
    "OMP_WAIT_POLICY": "PASSIVE",  # the same of threads, in processes that start from here on
    "OPENBLAS_NUM_THREADS": "1",  # those of NumPy look for work all the time, too
}


def pytest_collection_modifyitems(items):
    """Files with the most tests come first, as pytest-xdist would have it, but after the long ones.

    At the end of the queue they would keep one process busy while the other has nothing left.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.name not in LONG, -tests[item.path]))


@pytest.fixture(scope="session", autouse=True)
def parsing_in_turns() -> Iterator[None]:
    """Let threads parse Python one at a time; at once they fail at random in Python 3.11.

    TorchScript parses what it compiles, and NumPy the heads of its files
    (https://github.com/python/cpython/issues/106905).
    """
    lock, parse = threading.RLock(), ast.parse

    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return parse(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", locked)
        yield


@pytest.fixture(scope="session", autouse=True)
def members_by_forks() -> Iterator[None]:
    """Let what a command of this process starts of the command come of the server, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "pwmlff", forked)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_tree_of_commands() -> Iterator[None]:
    """Let typer make the tree of the commands once, and not for each that a test invokes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Let pictures be empty files: drawing them takes longer than a small training."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: path.touch())


@pytest.fixture(scope="session")
def hfo2_folder() -> Path:
    """Folder with parameters.npz and reference.npz of an HfO2 DP; skips where there is none."""
    folder = DATA / "hfo2_dp"
    if not (folder / "reference.npz").is_file():
        pytest.skip(f"no {folder}/reference.npz; set {DATA_VARIABLE} to the folder of hfo2_dp")
    return folder


@dataclass(frozen=True)
class Oracle:
    """A DP in the original's padded form, structures, and numbers that are not this project's."""

    model: Any  # pwmlff.models.DP
    frames: list[tuple[Atoms, Any]]  # pwmlff.evaluation.reference.Result


@pytest.fixture(scope="session", params=["tiny", "hfo2"])
def oracle(request) -> Oracle:
    """Numbers of tests/dp_oracle.py, and those of the original implementation where they are."""
    from pwmlff.evaluation.reference import Result
    from pwmlff.models import DP

    if request.param == "tiny":
        parameters, found = dp_oracle.read()
        frames = [
            (
                Atoms(data["numbers"], data["positions"], cell=data["cell"], pbc=True),
                Result(*(data[name] for name in ("energy", "atom_energy", "forces", "virial"))),
            )
            for data in found
        ]
        model = DP.from_parameters(parameters, **vars(dp_oracle.TINY))
        return Oracle(model, frames)
    folder = request.getfixturevalue("hfo2_folder")
    with np.load(folder / "parameters.npz") as parameters:
        model = DP.from_parameters(
            parameters, atom_type=(8, 72), rmax=6.0, rmin=0.5, max_neighbor=100, m2=16
        )
    return Oracle(model, hfo2_frames())


@pytest.fixture(scope="session")
def lj_models() -> list[str]:
    """The two models of examples/lj."""
    folder = Path(__file__).resolve().parents[1] / "examples" / "lj"
    return [str(folder / name) for name in ("a.pt", "b.pt")]
