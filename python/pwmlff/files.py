"""Files that are written as a whole or not at all, folders of one process, texts of users."""

from __future__ import annotations

import codecs
import fcntl
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any

from pwmlff.report import Failure

log = logging.getLogger(__name__)

#: Names that files have until they are whole: that of the file in its end, and what tempfile adds.
SCRATCH = re.compile(r"\.[^.].*\.[a-z0-9_]{8}")
BLOCK = 2**20  # bytes that are read at a time
LOCK = ".lock"  # in a folder of one process
PAUSE = 0.5  # seconds between two looks at it
PATIENCE = 60.0  # seconds for programs of an earlier start that was killed to end


def read_text(path: str | PathLike[str]) -> str:
    """Read a text in UTF-8, whatever the locale is, without a byte order mark.

    Raises:
        Failure: it holds other bytes.
        OSError: it cannot be read.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failure(
            f"'{path}' is no text: byte {error.start + 1} is no UTF-8; expected a text file"
        ) from error


def sha256(paths: Iterable[Path]) -> str:
    """SHA-256 of the contents of files, one after the other.

    Raises:
        OSError: one cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and in those inside it, also by links to folders, in any order."""
    for name, folders, names in os.walk(folder, followlinks=True):
        here = Path(name)
        parents = here.parents[: len(here.relative_to(folder).parts)]
        if any(here.samefile(path) for path in parents):  # by a link that leads back
            folders.clear()
            continue
        yield from (path for path in (here / file for file in names) if path.is_file())


@contextmanager
def without_mark(path: str | PathLike[str]) -> Iterator[str]:
    """The file, or a copy that goes again of one that begins with a byte order mark."""
    name = Path(path)
    with name.open("rb") if name.is_file() else nullcontext() as file:
        if file is None or file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            yield os.fspath(path)
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, name.name)
            with copy.open("wb") as bare:
                shutil.copyfileobj(file, bare)
            yield str(copy)


@contextmanager
def named(path: str | PathLike[str]) -> Iterator[None]:
    """Let an error that names no file name this one, as a write that finds the disk full does."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_whole(path: str | PathLike[str], contents: bytes) -> None:
    """Write a file; what was there stays until the new one is complete, also after a power cut.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    path = Path(path)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    draft = path
    try:
        # Of a name of its own: another process may write the same file.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        draft = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(mode)
        draft.replace(path)
    except BaseException as error:
        if draft != path:
            with suppress(OSError):
                draft.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)  # a write that finds the disk full names none
        raise
    _sync_folder(path.parent)


def try_lock(file: IO[Any] | int, kind: int) -> bool:
    """Lock a file until it is closed; tell whether no other process keeps it from that."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:  # also of a file system without locks
        return not isinstance(error, BlockingIOError)
    return True


def have(folder: Path, patience: float, asked: Callable[[], bool] = lambda: False) -> int:
    """Have a folder, made if need be, until the handle that this returns is closed.

    Programs that inherit the handle keep the folder until they have ended.

    Args:
        folder: that one process works in at a time.
        patience: seconds for another one to end.
        asked: whether the end was asked for.

    Raises:
        Failure: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    tries = int(patience / PAUSE)  # counted, as a machine may sleep in between
    for left in range(tries, -1, -1):
        if try_lock(handle, fcntl.LOCK_EX):
            return handle
        if not left or asked():
            break
        if left == tries:
            log.info("waits for the end of another process that is at work in '%s'", folder)
        time.sleep(PAUSE)
    os.close(handle)
    raise Failure(f"another process is at work in '{folder}': let it end, or choose another one")


def remove_scratch(folder: Path) -> None:
    """Remove what a process that was killed has left in a folder of files that it was writing.

    Nobody else may write there, see :func:`have`.
    """
    for path in [one for one in folder.iterdir() if SCRATCH.fullmatch(one.name)]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def drafted(path: str | PathLike[str]) -> Iterator[Path]:
    """A file of the same name, for what is written in parts before it is written whole.

    It lies in a folder beside the other, which is gone afterwards.

    Raises:
        OSError: it cannot be written; the error names the file that was to be.
    """
    target = Path(path)
    prefix = f".{target.name}."
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as folder:
            yield Path(folder, target.name)
    except OSError as error:
        # A write that finds the disk full names no file.
        if error.filename is None or str(error.filename).startswith(str(target.parent / prefix)):
            error.filename = str(target)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the new name last; not all file systems can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
