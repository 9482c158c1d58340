"""Files that only the program that wrote them can open: it makes of them what is read here.

That program runs as a command of its own, found beside this Python or on the PATH, so it may be
installed with another torch in another environment. It runs what is in the file, which is code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pwmlff import interpreter
from pwmlff.report import Failure
from pwmlff.wrap.foreign import members, saved_table

#: Words in the table of objects of a file.
MACE, NEQUIP, LIGHTNING = b"mace.modules.models", b"nequip", b"pytorch-lightning_version"
OF_PACKAGES, PACKAGED = ".data/extern_modules", "nequip/"  # members of torch.package's files
DOUBLE = b"DoubleStorage"
SAID = 8  # last lines of a program that are told


@dataclass(frozen=True)
class _Program:
    """A command that writes a TorchScript file.

    Attributes:
        source: what the files are that it reads.
        package: what pip installs for it.
        name: of the command.
        words: what it is given, and the file that it will write, for a file and the head of a model
            that has several.
        code: what the Python beside it runs in its place; empty for the command itself.
    """

    source: str
    package: str
    name: str
    words: Callable[[Path, str], tuple[Sequence[object], Path]]
    code: str = ""


#: nequip-compile, which from torch 2.10 on would not write TorchScript any more.
NEQUIP_COMPILE = (
    "import sys, nequip.scripts.compile as program\n"
    "program._TORCH_GE_2_10 = False\n"
    "program.main(sys.argv[1:])\n"
)


def _mace(dtype: str) -> Callable[[Path, str], tuple[Sequence[object], Path]]:
    def words(path: Path, head: str) -> tuple[Sequence[object], Path]:
        chosen = ["--head", head] if head else []
        return [path, "--dtype", dtype, *chosen], path.with_name(f"{path.name}-lammps.pt")

    return words


def _nequip(path: Path, head: str) -> tuple[Sequence[object], Path]:
    if head:
        raise Failure(f"found the head '{head}', expected none: models of NequIP have no heads")
    target = path.with_name("compiled.nequip.pth")
    return [path, target, "--mode", "torchscript", "--device", "cpu", "--target", "ase"], target


def translate(path: str, head: str = "") -> bytes | None:
    """What the program that wrote a file makes of it; None for files that are read without.

    Args:
        path: a model that MACE pickled (.model), or a package or checkpoint of NequIP.
        head: of a MACE model that has several.

    Raises:
        Failure: the program is not there, or does not make a file of it.
    """
    program = _program_of(path)
    if program is None:
        if head:
            raise Failure(
                f"found the head '{head}' for '{path}', expected one for a pickled MACE model alone"
            )
        return None
    found = interpreter.find_program(program.name)
    if found is None:
        raise Failure(
            f"'{path}' is {program.source}, which its own program has to open: found no "
            f"'{program.name}' on the PATH; pip install {program.package}, here or in an "
            "environment whose bin is put on the PATH"
        )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(path).name
        shutil.copyfile(path, copy)
        words, target = program.words(copy, head)
        python = Path(found).with_name("python3")
        command = (
            [str(python), "-c", program.code] if program.code and python.is_file() else [found]
        )
        done = subprocess.run(
            [*command, *map(str, words)], cwd=folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, env=_environment(),
        )  # fmt: skip
        if done.returncode or not target.is_file():
            said = (done.stdout + done.stderr).strip().splitlines()[-SAID:]
            raise Failure(
                "\n".join([f"{program.name} makes nothing of '{path}', {program.source}:", *said])
            )
        return target.read_bytes()


def _environment() -> dict[str, str]:
    """Without what would lead another Python to the packages of this one."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}


def _program_of(path: str) -> _Program | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = members(archive)
            if OF_PACKAGES in names:
                of_nequip = any(name.startswith(PACKAGED) for name in names)
                return _of_nequip("a package of NequIP") if of_nequip else None
            table = saved_table(archive) or b""
    except (OSError, zipfile.BadZipFile, RuntimeError):  # what reads it then says so
        return None
    if LIGHTNING in table and NEQUIP in table:
        return _of_nequip("a checkpoint of NequIP")
    if MACE in table:
        dtype = "float64" if DOUBLE in table else "float32"
        return _Program("a pickled model of MACE", "mace-torch", "mace_create_lammps_model",
                        _mace(dtype))  # fmt: skip
    return None


def _of_nequip(what: str) -> _Program:
    return _Program(what, "nequip", "nequip-compile", _nequip, NEQUIP_COMPILE)
