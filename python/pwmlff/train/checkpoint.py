"""Checkpoints of a training: written whole or not at all, and checked before they are used.

A checkpoint is a file checkpoint-NNNNNN.npz, an archive of NumPy without pickled objects, which
np.load opens; NNNNNN counts the checkpoints of a folder. Its member meta.json holds what is no
array. The archive is followed by FORMAT and the BLAKE2b digest of all before it, in hexadecimal
digits, in which nobody finds the end of an archive. Where several
ranks have arrays of their own, each writes a part, checkpoint-NNNNNN.RANK.npz, and rank 0, whose
file names the parts, comes last: a checkpoint without that file is none. Reading executes nothing
that a file brings along.

The folder must be one that all ranks see.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pwmlff.report import Failure
from pwmlff.train.comm import Communicator, Serial, agreed, by_rank_0

#: What follows the archive: a name and the version of the layout, then the digest.
MARK = b"pwmlff-ckpt-"
FORMAT = MARK + b"0002"
DIGEST = 64  # digits
TRAILER = len(FORMAT) + DIGEST
META = "meta.json"
NAME = re.compile(r"checkpoint-(\d{6,})(?:\.(\d+))?\.npz")
UNFINISHED = re.compile(r"\.checkpoint-\d{6,}(?:\.\d+)?\.npz\.part")
PIECE = 2**22  # bytes that are read at a time


class DamagedError(Failure):
    """A checkpoint cannot be used, but an earlier one may."""


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`save` was given."""

    path: Path
    step: int
    arrays: dict[str, np.ndarray]  # of all ranks; of one name, those of the first rank
    meta: dict[str, Any]
    skipped: tuple[str, ...] = ()  # what is wrong with newer ones, to be shown


def save(
    folder: str | PathLike[str],
    step: int,
    arrays: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    comm: Communicator | None = None,
    keep: int = 2,
) -> Path:
    """Write a checkpoint, and then remove all but the newest. Collective.

    Whatever happens meanwhile, SIGKILL, a full disk or the end of the machine, the checkpoints
    that were there before can be read, or this one can.

    Args:
        folder: is made where it is missing.
        step: of the training.
        arrays: of this rank; ranks other than 0 may have none. Not of objects.
        meta: of rank 0; anything JSON holds.
        comm: the ranks.
        keep: how many checkpoints stay, this one included.

    Returns:
        The file of rank 0.

    Raises:
        Failure: it could not be written; on several ranks all raise it. What was there is kept.
    """
    comm = comm or Serial()
    if keep < 1:
        raise Failure(f"found keep = {keep}, expected 1 checkpoint or more")
    folder = Path(folder)

    def number() -> int:
        with _explained(folder, "write a checkpoint to"):
            folder.mkdir(parents=True, exist_ok=True)
            return 1 + max((n for n, _ in _files(folder)), default=0)

    # After this no rank writes a file of an earlier checkpoint, so what is unfinished was left.
    count = by_rank_0(comm, number)
    parts = [rank for rank, has in enumerate(comm.allgather(bool(arrays))) if has and rank]
    own = comm.rank == 0 or comm.rank in parts
    path = folder / _name(count, comm.rank)
    header = {"step": step, "parts": parts, "meta": dict(meta) if comm.rank == 0 else {}}
    try:
        agreed(comm, lambda: _write(path, arrays, header) if own else None)
    except BaseException:  # of this rank or another
        with contextlib.suppress(OSError):
            _unfinished(path).unlink(missing_ok=True)
        raise
    agreed(comm, lambda: _publish(path) if own and comm.rank else None)

    def finish() -> None:
        _publish(path)
        _prune(folder, keep)

    by_rank_0(comm, finish)
    return folder / _name(count, 0)


def load(path: str | PathLike[str], wanted: Callable[[str], bool] | None = None) -> Checkpoint:
    """Read one checkpoint, with the parts of all ranks. Not collective.

    Args:
        path: the file of rank 0.
        wanted: which arrays to keep; None: all.

    Raises:
        DamagedError: a file of it is missing, damaged, or no checkpoint.
        Failure: it is of a layout that this release does not know, or cannot be opened.
    """
    path = Path(path)
    match = NAME.fullmatch(path.name)
    if match is None or match[2]:
        raise Failure(f"found '{path}', expected a name like checkpoint-000001.npz")
    header, arrays = _read(path, wanted)
    for rank in header["parts"]:
        _, more = _read(path.with_name(_name(int(match[1]), rank)), wanted)
        arrays = more | arrays
    return Checkpoint(path, header["step"], arrays, header["meta"])


def latest(
    folder: str | PathLike[str],
    comm: Communicator | None = None,
    wanted: Callable[[str], bool] | None = None,
) -> Checkpoint | None:
    """Read the newest sound checkpoint of a folder. Collective.

    Where the newest is damaged it is the one before, and so on; `skipped` says why.

    Args:
        folder: of :func:`save`.
        comm: the ranks, of any number.
        wanted: which arrays this rank keeps; None: all.

    Returns:
        The same checkpoint on all ranks; None where there is none.

    Raises:
        Failure: all are damaged, or the newest sound one is of an unknown layout.
    """
    comm = comm or Serial()

    chosen = agreed(comm, lambda: None if comm.rank else _newest(Path(folder), wanted))
    path, skipped = comm.broadcast((chosen.path, chosen.skipped) if chosen else (None, ()))
    if path is None:
        return None
    mine = agreed(comm, lambda: chosen or load(path, wanted))
    return replace(mine, skipped=skipped)


def subset(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _name(count: int, rank: int) -> str:
    return f"checkpoint-{count:06d}{f'.{rank}' if rank else ''}.npz"


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    """Numbers and files of all checkpoints and parts that are in place."""
    for path in folder.iterdir():
        if match := NAME.fullmatch(path.name):
            yield int(match[1]), path


def _whole(folder: Path) -> list[int]:
    """Numbers of the checkpoints that are in place, in ascending order."""
    return sorted(n for n, path in _files(folder) if path.name == _name(n, 0))


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


@contextlib.contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Errors of the system in words, with what is kept."""
    try:
        yield
    except OSError as error:
        raise Failure(
            f"cannot {what} '{path}': {error.strerror or error}; earlier checkpoints are kept. "
            "Make room or choose another folder, and resume"
        ) from error


def _write(path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Write a file beside where it goes, and see it on the disk."""
    with _explained(path, "write the checkpoint"), _unfinished(path).open("w+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(META, json.dumps(header))
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
        digest = _digest(file, file.seek(0, os.SEEK_END))
        digest.update(FORMAT)
        file.write(FORMAT + digest.hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())


def _digest(file: BinaryIO, size: int) -> blake2b:
    """That of the first bytes of a file, which is read up to there."""
    file.seek(0)
    digest = blake2b(digest_size=DIGEST // 2)
    while piece := file.read(min(PIECE, size)):
        digest.update(piece)
        size -= len(piece)
    return digest


def _publish(path: Path) -> None:
    """Give a finished file its name, for good."""
    with _explained(path, "write the checkpoint"):
        _unfinished(path).replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _prune(folder: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what was never finished."""
    whole = _whole(folder)[-keep:]
    old = [path for n, path in _files(folder) if n not in whole]
    old += [path for path in folder.iterdir() if UNFINISHED.fullmatch(path.name)]
    # A checkpoint goes with its parts; in between it must not look like one.
    for path in sorted(old, key=lambda path: path.name.count(".")):
        with contextlib.suppress(OSError):  # no reason to stop a training
            path.unlink()


def _newest(folder: Path, wanted: Callable[[str], bool] | None) -> Checkpoint | None:
    if not folder.is_dir():
        return None
    skipped: list[str] = []
    for n in reversed(_whole(folder)):
        try:
            newest = load(folder / _name(n, 0), wanted)
            return replace(newest, skipped=tuple(skipped))
        except DamagedError as error:
            skipped.append(str(error))
    if skipped:
        head = f"found no sound checkpoint in '{folder}'; start again without them:"
        raise Failure("\n".join([head, *skipped]))
    return None


def _read(
    path: Path, wanted: Callable[[str], bool] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of one file, after its digest has been checked."""
    try:
        with path.open("rb") as file:
            _check(path, file)
            with zipfile.ZipFile(file) as archive:
                header = json.loads(archive.read(META))
                arrays = {}
                for member in archive.namelist():
                    name = member.removesuffix(".npy")
                    if member != META and (wanted is None or wanted(name)):
                        with archive.open(member) as stream:
                            arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
    except FileNotFoundError as error:
        raise DamagedError(f"found no file '{path}' of the checkpoint") from error
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DamagedError(f"'{path}' holds what is no checkpoint: {error}") from error
    except OSError as error:
        raise Failure(f"cannot read the checkpoint '{path}': {error.strerror or error}") from error
    return header, arrays


def _check(path: Path, file: BinaryIO) -> None:
    """Compare the digest at the end with that of the rest.

    Raises:
        DamagedError: it is not sound.
        Failure: it is, but of another layout.
    """
    size = os.fstat(file.fileno()).st_size - TRAILER
    if size < 0:
        raise DamagedError(f"'{path}' has {size + TRAILER} bytes, too few for a checkpoint")
    digest = _digest(file, size)
    layout = file.read(len(FORMAT))
    digest.update(layout)
    if digest.hexdigest().encode() != file.read(DIGEST):
        raise DamagedError(
            f"'{path}' is damaged: its digest is another than that at its end, as after a disk "
            "error or an incomplete copy"
        )
    if layout != FORMAT:
        raise Failure(
            f"found the layout {layout.removeprefix(MARK)!r} in the checkpoint '{path}', expected "
            f"{FORMAT.removeprefix(MARK)!r}: it is of another release of pair-pwmlff"
        )
