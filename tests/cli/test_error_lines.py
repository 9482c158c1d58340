"""Whatever a command is given, it says what is wrong in one line, and not with a traceback."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer.main
from ase.io import write

from genuine import GENUINE
from harness import PROGRAMS, TIMEOUT, forked, thorough
from labelled_structures import labelled
from pwmlff import devices, plugin
from pwmlff.cli import app
from pwmlff.commands import base, doctor
from pwmlff.launch import interpreter
from pwmlff.report import Failure
from systems import SYSTEMS

SYSTEM = SYSTEMS["two elements, triclinic"]
#: What a command needs while a file is fed to something else, by its name; of a name that is not
#: here, the same file.
SOUND = {"model": "model.pt", "models": "model.pt", "data": "sound.extxyz", "words": "model.pt",
         "structure": "sound.extxyz",
         "files": "sound.extxyz", "log": "log.lammps", "output": "out", "lammps": "."}  # fmt: skip
#: Words that a command needs beside what it calls required, or that make it quick.
MORE = {
    "train": ["--elements", "O Hf", "--dry-run"],
    "compare": ["--np", "1", "--precision", "double"],
    "run": ["--dry-run"],
    "bench": ["--max-time", "0s"],
    "verify": ["--np", "1", "--check", "objectivity,rank-invariance"],
}
LOG = "units metal\nStep Temp\n 0 1.5\n 10 1.6\nLoop time of 1 on 1 procs for 10 steps\n"
#: Options of text that name a file.
OF_TEXT = {"data", "module", "lmp", "mpirun"}
#: Entries that take programs or folders: a few files are enough.
OTHERS = {"lmp", "mpirun", "plugin", "lammps", "log_dir"}
#: One in so many is fed to an entry, of the damaged and odd files, and of the sound ones.
SHARE, OF_SOUND = 20, 4


@dataclass(frozen=True)
class Entry:
    """A word or an option of a command that takes a file."""

    words: tuple[str, ...]  # of the command
    command: Any
    entry: Any

    @property
    def name(self) -> str:
        return f"{' '.join(self.words)}, {self.entry.name}"

    @property
    def is_argument(self) -> bool:
        return self.entry.param_type_name == "argument"

    def takes_a_file(self) -> bool:
        kind = str(typing.get_type_hints(self.command.callback).get(self.entry.name))
        return "Path" in kind or self.is_argument or self.entry.name in OF_TEXT

    def line(self, file: str) -> list[str]:
        """The command with a file, and with what else it needs."""
        given = {
            e: file if e is self.entry else SOUND.get(e.name, file)
            for e in self.command.params
            if e.required or e is self.entry
        }
        if self.words == ("train",) and self.entry.name != "data":
            given |= {e: SOUND["data"] for e in self.command.params if e.name == "data"}
        words = [
            [value] if entry.param_type_name == "argument" else [entry.opts[0], value]
            for entry, value in given.items()
        ]
        return [*self.words, *MORE.get(self.words[0], []), *itertools.chain(*words)]


def entries(group: Any, *words: str) -> Iterator[Entry]:
    """Of all commands, those that a later release adds among them."""
    for word, command in sorted(group.commands.items()):
        if command.hidden:  # the earlier name of another one
            continue
        if hasattr(command, "commands"):
            yield from entries(command, *words, word)
            continue
        found = [Entry((*words, word), command, entry) for entry in command.params]
        yield from (entry for entry in found if entry.takes_a_file())


ENTRIES = list(entries(typer.main.get_command(app)))


def damaged(contents: bytes, rng: np.random.Generator) -> dict[str, bytes]:
    """Copies that are cut off or have other bytes, by what was done to them."""
    flipped, directory = bytearray(contents), bytearray(contents)
    flipped[rng.integers(len(contents))] ^= 1 << rng.integers(8)
    directory[-rng.integers(1, min(200, len(contents)))] ^= 0xFF  # that of an archive, at its end
    return {
        "cut": contents[: rng.integers(len(contents))],
        "flipped": bytes(flipped),
        "directory": bytes(directory),
    }


@dataclass(frozen=True)
class Files:
    """Files in a folder, to be fed."""

    folder: Path
    sound: list[str]  # of this project and of others
    damaged: list[str]
    odd: list[str]  # nothing that a command could want, or no file at all


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    """Genuine files where they are, what converts of them, what this project writes, and others."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(23)
    SYSTEM.model(isotropic=True).save(folder / "model.pt")
    write(folder / "sound.extxyz", [labelled(SYSTEM.atoms())])
    (folder / "log.lammps").write_text(LOG)
    sound = ["model.pt", "sound.extxyz", "log.lammps"]
    for path in sorted(GENUINE.glob("*")):
        (folder / path.name).write_bytes(path.read_bytes())
        sound.append(path.name)
        with pytest.raises(SystemExit) as end:
            app(["convert", str(path), "-o", str(folder / f"converted_{path.stem}.pt")])
        if end.value.code == 0:
            sound.append(f"converted_{path.stem}.pt")
    found = {}
    for name in sound:
        stem, _, ending = name.partition(".")
        copies = damaged((folder / name).read_bytes(), rng)
        found |= {f"{stem}_{what}.{ending}": contents for what, contents in copies.items()}
    odd = {
        "empty.pt": b"",
        "zeros": bytes(1000),
        "latin-1.toml": "a = 'Größe'\n".encode("latin-1"),
        "line.txt": b"pwmlff\n",
        "lines [red] %s {}.xyz": b"\n" * 10,
        "random.bin": rng.bytes(3000),
        "list.json": b"[1, {}]",
        "deep.json": b"[" * 100_000,
        "word.toml": b"a = 1\n[b]\n",
    }
    for name, contents in (found | odd).items():
        (folder / name).write_bytes(contents)
    (folder / "folder.pt").mkdir()
    (folder / "loop.pt").symlink_to("loop.pt")
    # The first of these cannot be read, whoever tries; the rest is none that could be there.
    none = ["/proc/self/mem", "absent.pt", "x" * 300, "", "-", "~/a.pt", "a/b/c.pt", "\udcff.pt"]
    return Files(folder, sound, [*found], [*odd, "folder.pt", "loop.pt", *none])


@pytest.mark.parametrize("share", [SHARE, thorough(1)])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_any_file(tmp_path, pwmlff, files, entry, share):
    """One line in the words of the command; exit code 2 with an error, else 0 or 1."""
    shutil.copytree(files.folder, tmp_path, symlinks=True, dirs_exist_ok=True)
    others = [*files.damaged, *files.odd]
    if entry.entry.name in OTHERS:
        fed = ["model.pt", "folder.pt", "line.txt", "absent.pt", ""]
    elif share == 1:
        fed = [*files.sound, *others]
    elif entry.is_argument:
        k = ENTRIES.index(entry)
        fed = [*files.sound[k % OF_SOUND :: OF_SOUND], *others[k % share :: share]]
    else:
        fed = [*files.sound, *others][ENTRIES.index(entry) % share :: share]
    for file in fed:
        line = entry.line(file)
        done = pwmlff(*line)
        errors = [text for text in done.errors.splitlines() if text.startswith("error: ")]
        assert done.returncode in (0, 1, 2), (line, done.words)
        assert len(errors) == (done.returncode == 2), (line, done.words)
        assert "Traceback" not in done.words, (line, done.words)
        assert "fault of pwmlff" not in done.words, (line, done.words)


# ---- what ends a command


def broken(*_: Any, **__: Any) -> Any:
    return {}["head"]


def line_of(path: str, text: str) -> str:
    """Where the first line with a text stands, as errors tell it."""
    lines = Path(path).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if text in line)
    return f"{'/'.join(Path(path).parts[-2:])}:{number}"


def test_a_fault_is_said_with_its_place(pwmlff, monkeypatch):
    """In one line, with what to do, below the traceback; of other errors --debug shows that."""
    monkeypatch.setattr(doctor, "examine", broken)
    done = pwmlff("doctor", "--lmp", "a b")
    assert done.returncode == 70
    here, there = line_of(__file__, '{}["head"]'), line_of(doctor.__file__, "return examine(Mach")
    *traceback, last = done.errors.splitlines()
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "KeyError: 'head'"
    assert last == (
        f"error: this is a fault of pwmlff: KeyError: 'head' ({here}, called from {there}); please "
        "report it with the lines above and the command: pwmlff doctor --lmp 'a b'"
    )
    told = pwmlff("doctor", "--json")
    assert told.errors.startswith("Traceback (most recent call last):\n")
    assert told.returncode == 70
    assert told.json["error"].startswith("this is a fault of pwmlff: KeyError: 'head'")
    monkeypatch.setattr(doctor, "examine", raised(Failure("found no x")))
    whole = pwmlff("--debug", "doctor")
    assert whole.returncode == 2
    assert whole.errors.startswith("Traceback (most recent call last):\n")
    assert whole.errors.count("\nerror: found no x") == 1
    assert "Traceback" not in pwmlff("doctor").errors  # the next command


def raised(error: BaseException) -> Any:
    def work(*_: Any, **__: Any) -> Any:
        raise error

    return work


@pytest.mark.parametrize(
    "error,code,text",
    [
        (Failure("found no x"), 2, "found no x"),
        (FileNotFoundError(2, "No such file", "a.pt"), 2, "cannot use 'a.pt': No such file"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (MemoryError("8 GiB"), 2, "there is not enough memory: 8 GiB"),
        (ImportError("no module x"), 2, "no module x"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("of another program"), 70, "this is a fault of pwmlff: ValueError"),
        (torch.jit.Error("a\nRuntimeError: b"), 70, "this is a fault of pwmlff: Error: RuntimeErr"),
        (RecursionError("deep"), 70, "this is a fault of pwmlff: RecursionError: deep"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes(pwmlff, monkeypatch, error, code, text):
    monkeypatch.setattr(doctor, "examine", raised(error))
    done = pwmlff("doctor")
    assert done.returncode == code
    *traceback, last = done.errors.splitlines()
    assert last.startswith(f"error: {text}")
    assert bool(traceback) == (code == 70)


def test_errors_of_this_package_are_for_users(pwmlff, monkeypatch):
    """A ValueError that it raises is; one of Python in the same function is not."""
    monkeypatch.setattr(doctor, "examine", lambda *_: plugin.facts("absent/a.so"))
    assert pwmlff("doctor").returncode == 2
    monkeypatch.setattr(doctor, "examine", lambda *_: devices.GPU(1))
    assert pwmlff("doctor").returncode == 70


def test_interrupted_while_modules_are_loaded(pwmlff, monkeypatch):
    """Before there is a report to make; typer alone would say nothing, or "Aborted!"."""
    monkeypatch.setattr(base, "finish", raised(KeyboardInterrupt()))
    done = pwmlff("info", "a.pt")
    assert (done.returncode, done.errors) == (130, "error: interrupted\n")


# ---- where the output goes


def started(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        forked(*words), stderr=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT,
        **options,
    )  # fmt: skip


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["info", "--help"]])
def test_full_disk(words):
    with Path("/dev/full").open("w") as full:
        done = started(*words, stdout=full)
    assert done.returncode == 2
    assert done.stderr == "error: No space left on device\n"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_pipe_that_nobody_reads(tmp_path, binary, options):
    """As of `pwmlff info a.pt | head -0`: no text, and the exit code that SIGPIPE gives."""
    reader, writer = os.pipe()
    os.close(reader)
    done = started("info", "model.pt", *options, stdout=writer, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("encoding", ["ascii", thorough("latin-1"), thorough("utf-8")])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_characters_that_cannot_be_written(tmp_path, binary, process, encoding, options):
    """Names of files, tables: as numbers where an encoding lacks them."""
    name = "Modell ∂\udcff.pt"
    (tmp_path / "model.pt").rename(tmp_path / name)
    done = process("info", name, *options, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.errors) == (0, "")
    done = process("info", name + "x", *options, PYTHONIOENCODING=encoding)
    assert done.returncode == 2
    assert "found no model file" in done.words


# ---- several ranks

#: A training in which rank 1 fails where nobody expects it, while rank 0 waits for it.
FAULT = """
from pwmlff.cli import app
from pwmlff.train import command

def one(config, options, ranks, stop):
    if ranks.rank == 1:
        return {}["head"]
    ranks.barrier()

command._train_one = one
app(sys.argv[1:])
"""


@pytest.mark.parametrize("debug", [False, True])
def test_a_fault_of_one_rank(tmp_path, debug):
    """Said once; it ends all ranks."""
    words = [*["--debug"] * debug, "train", "--data", "a.xyz", "--elements", "O", "--dry-run"]
    command = interpreter.command("import sys" + FAULT, *words)  # no server: exit codes count
    done = subprocess.run(
        [PROGRAMS / "mpirun", "-np", "2", *command], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 70, done.stderr
    assert done.stderr.count("error: rank 1 of 2: this is a fault of pwmlff: KeyError: 'head'") == 1
    assert "Traceback" in done.stderr
