"""Files that are written as a whole or not at all, and texts that users have written."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from pwmlff.report import Failure

#: Names that files have until they are whole: that of the file in its end, and what tempfile adds.
SCRATCH = re.compile(r"\.[^.].*\.[a-z0-9_]{8}")


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


def write_whole(path: str | PathLike[str], contents: bytes) -> None:
    """Write a file; what was there stays until the new one is complete, also after a power cut.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    path = Path(path)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    try:
        # Of a name of its own: another process may write the same file.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)
        raise
    made = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        made.chmod(mode)
        made.replace(path)
    except BaseException as error:
        with suppress(OSError):
            made.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)  # a write that finds the disk full names none
        raise
    _sync_folder(path.parent)


def remove_scratch(folder: Path) -> None:
    """Remove what a process that was killed has left in a folder of files that it was writing.

    Nobody else may write there.
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
        if str(error.filename).startswith(str(target.parent / prefix)):
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
