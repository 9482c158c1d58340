"""Files that only the program that wrote them can open: it makes of them what is read here.

That program runs as a command of its own, found beside this Python or on the PATH. So it may be
installed with another torch in another environment. It runs what is in the file, which is code.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from ase import Atoms

from pwmlff.convert.foreign import Choices, Saved
from pwmlff.launch import interpreter
from pwmlff.report import Failure

log = logging.getLogger(__name__)

#: Words in the table of objects of a file.
MACE, NEQUIP, LIGHTNING = b"mace.modules.", b"nequip", b"pytorch-lightning_version"
SEVENNET = b"onehot_to_feature_x"  # the first layer of all of its models
MLIAP = b"mace.calculators.lammps_mliap_mace"
OF_PACKAGES, PACKAGED = ".data/extern_modules", "nequip/"  # members of torch.package's files
DOUBLE = b"DoubleStorage"
#: What mace_create_lammps_model of MACE 0.3.6 says, which takes a file alone, to more words.
OF_ONE_WORD = "AssertionError: Usage:"
#: How the line begins in which mace_export.py says why it makes nothing of a model.
REFUSED = "cannot be converted: "
SCRIPT = "pwmlff_export.py"  # beside the copy of a file
SAID = 8  # last lines of a program that are told


@dataclass(frozen=True)
class _Program:
    """A command that writes a TorchScript file."""

    source: str  # what the files are that it reads
    package: str  # what pip installs for it
    name: str  # of the command
    #: What it is given, and the file that it will write, for a file and what is chosen of it.
    words: Callable[[Path, Choices], tuple[Sequence[object], Path]]
    code: str = ""  # what the Python beside it runs in its place


def _mace(dtype: str, path: Path, choices: Choices) -> tuple[Sequence[object], Path]:
    chosen = ["--head", choices.head] if choices.head else []
    chosen += [f"--{option}={value}" for option, value in choices.embedded.items()]
    return [path, "--dtype", dtype, *chosen], path.with_name(f"{path.name}-lammps.pt")


def _nequip(path: Path, choices: Choices) -> tuple[Sequence[object], Path]:
    if head := choices.head:
        raise Failure(f"found the head '{head}', expected none: models of NequIP have no heads")
    target = path.with_name("compiled.nequip.pth")
    return [path, target, "--mode", "torchscript", "--device", "cpu", "--target", "ase"], target


def _sevennet(path: Path, choices: Choices) -> tuple[Sequence[object], Path]:
    target = path.with_name("deployed_serial.pt")
    return [path, "-o", target, *(["-m", choices.head] if choices.head else [])], target


#: mace_create_lammps_model, for models too that it fails at itself.
OF_MACE = _Program(
    "a pickled model of MACE",
    "mace-torch",
    "mace_create_lammps_model",
    partial(_mace, "float32"),
    Path(__file__).with_name("mace_export.py").read_text(encoding="utf-8"),
)
#: nequip-compile, which from torch 2.10 on would not write TorchScript any more.
OF_NEQUIP = _Program(
    "a package of NequIP",
    "nequip",
    "nequip-compile",
    _nequip,
    "import sys, nequip.scripts.compile as program\n"
    "program._TORCH_GE_2_10 = False\n"
    "program.main(sys.argv[1:])\n",
)

OF_SEVENNET = _Program("a checkpoint of SevenNet", "sevenn", "sevenn_get_model", _sevennet)


def translate(path: str, contents: bytes, content: Saved, choices: Choices) -> bytes | None:
    """What the program that wrote a file makes of it; None for files that are read without.

    Args:
        path: a model that MACE pickled (.model), a package or checkpoint of NequIP, or a checkpoint
            of SevenNet; for messages and for the name that the program is given.
        contents: of it, without damage.
        content: what is in it.
        choices: what its user says of it.

    Raises:
        Failure: the program is not there, or does not make a file of it.
    """
    program, head = _program_of(path, content), choices.head
    if program is None:
        require_no_choice(path, choices)
        return None
    if program.name != OF_MACE.name:
        require_no_choice(path, replace(choices, head=""))
    command = interpreter.find_program(program.name)
    if command is None:
        raise missing(path, program.source, f"'{program.name}'", program.package)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(path).name
        copy.write_bytes(contents)
        warn_of_code(path, program.source, program.name)
        words, target = program.words(copy, choices)
        process = _run(command, program.code, words)
        if OF_ONE_WORD in process.stderr and choices == Choices():
            process = _run(command, program.code, words[:1])
        if process.returncode or not target.is_file():
            output = process.stdout + process.stderr
            if reason := re.search(rf"^{REFUSED}.*", process.stderr, re.MULTILINE):
                raise Failure(f"'{path}' is {program.source} that {reason[0]}")
            heads = _heads(output)
            if head and not heads:  # some list them only where they are told none
                alone = _run(command, program.code, program.words(copy, Choices())[0])
                heads = _heads(alone.stdout + alone.stderr)
            if heads and head not in heads:
                raise Failure(
                    f"'{path}' is {program.source} with the heads {', '.join(heads)}: found "
                    f"{f'the head {head!r}' if head else 'none of them chosen'}, expected one of "
                    "them with --head"
                )
            raise makes_nothing(path, program.source, program.name, output)
        return target.read_bytes()


def warn_of_code(path: str, source: str, program: str) -> None:
    """Say that a file is about to run, before its own program opens it."""
    log.warning(
        "'%s' is %s: %s opens it now, which runs any code in it; convert files from sources that "
        "you trust alone",
        *(path, source, program),
    )


def missing(path: str, source: str, what: str, package: str) -> Failure:
    """That nothing opens a file: what the file is, what was looked for, what pip installs."""
    return Failure(
        f"'{path}' is {source}, which its own program has to open: found no {what} on the PATH; "
        f"pip install {package}, here or in an environment whose bin is put on the PATH"
    )


def makes_nothing(path: str, source: str, program: str, output: str) -> Failure:
    """That a program failed, with the last lines of what it said."""
    heading = f"{program} makes nothing of '{path}', {source}:"
    return Failure("\n".join([heading, *output.strip().splitlines()[-SAID:]]))


def require_no_choice(path: str, choices: Choices) -> None:
    """Raise Failure where something was chosen, for a file in which there is nothing to choose."""
    if choices.head:
        raise Failure(
            f"found the head '{choices.head}' for '{path}', expected one for a pickled MACE model "
            "or a checkpoint of SevenNet alone"
        )
    for option, value in choices.embedded.items():
        raise Failure(
            f"found --{option} {value} for '{path}', expected it for a pickled MACE model alone"
        )


def _run(command: str, code: str, words: Sequence[object]) -> subprocess.CompletedProcess[str]:
    """Run a program where the first of its words is, or code by the Python beside it."""
    folder, python = Path(str(words[0])).parent, Path(command).with_name("python3")
    start = [command]
    if code and python.is_file():
        script = folder / SCRIPT
        script.write_text(code, encoding="utf-8")  # a file, for TorchScript reads its lines
        start = [str(python), str(script)]
    return run([*start, *map(str, words)], folder)


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run another program, or another Python, in a folder; what it says is text."""
    # Without what would lead another Python to the packages of this one.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    # What these programs pickle is more than weights; older ones do not tell newer torch so.
    environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    return subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, errors="replace", check=False, env=environment,
    )  # fmt: skip


def python_with(module: str, package: str, path: str, source: str) -> str:
    """A Python in which a module is installed: this one, or the first whose bin is on the PATH.

    Args:
        module: its name, and that of its folder.
        package: what pip installs for it.
        path: of the file that needs it, for messages.
        source: what that file is, likewise.

    Raises:
        Failure: there is none.
    """
    if find_spec(module) is not None:
        return sys.executable
    for folder in os.get_exec_path():
        program = Path(folder, "python3")
        if program.is_file() and any(
            Path(folder).parent.glob(f"lib/python3*/site-packages/{module}/__init__.py")
        ):
            return str(program)
    raise missing(path, source, f"Python with {module}", package)


def run_script(
    path: str,
    source: str,
    who: str,
    command: tuple[str, Path, Sequence[str]],
    files: Mapping[str, bytes],
    target: str,
) -> bytes:
    """What a script of this package writes when another Python runs it in a folder of its own.

    Args:
        path: of the file that it is run for, for messages.
        source: what that file is, likewise.
        who: runs, likewise.
        command: the Python, the script, and the words that it is given.
        files: contents of those that it finds there, by their names.
        target: the name of what it writes.

    Raises:
        Failure: it writes nothing.
    """
    python, script, words = command
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy = str(shutil.copy(script, folder))  # beside it, Python would look for modules
        for member, contents in files.items():
            (folder / member).write_bytes(contents)
        process = run([python, copy, *words], folder)
        if process.returncode or not (folder / target).is_file():
            raise makes_nothing(path, source, who, process.stdout + process.stderr)
        return (folder / target).read_bytes()


def structure_file(atoms: Atoms) -> bytes:
    """An .npz of numbers [n], positions [n, 3] and cell [3, 3], angstrom, for such a script."""
    stream = io.BytesIO()
    np.savez(stream, numbers=atoms.numbers, positions=atoms.positions, cell=atoms.cell.array)
    return stream.getvalue()


def _heads(output: str) -> list[str]:
    """Those that mace_create_lammps_model lists before it asks for one or takes what it is told.

    Likewise the modalities that sevenn_get_model lists where it is told none, or another one.
    """
    if numbered := re.search(
        r"^Available heads in the model:\n((?:\d+: .*\n)+)", output, re.MULTILINE
    ):
        return [line.partition(": ")[2] for line in numbered[1].splitlines()]
    listed = re.search(r"(?:available heads|It has): \[(.*)\]$", output, re.MULTILINE)
    return [quoted[1:-1] for quoted in listed[1].split(", ")] if listed else []


def _program_of(path: str, content: Saved) -> _Program | None:
    if OF_PACKAGES in content.names:
        of_nequip = any(name.startswith(PACKAGED) for name in content.names)
        return OF_NEQUIP if of_nequip else None
    if LIGHTNING in content.table and NEQUIP in content.table:
        return replace(OF_NEQUIP, source="a checkpoint of NequIP")
    if MLIAP in content.table:
        raise Failure(
            f"'{path}' is a model of MACE for pair_style mliap; convert the .model that it was "
            "made of"
        )
    if SEVENNET in content.table:
        return OF_SEVENNET
    if MACE in content.table:
        double = DOUBLE in content.table
        return replace(OF_MACE, words=partial(_mace, "float64")) if double else OF_MACE
    return None
