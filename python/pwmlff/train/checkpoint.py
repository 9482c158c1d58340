"""Checkpoints of a training: written whole or not at all, and checked before they are used.

A checkpoint is a file checkpoint-NNNNNN.npz, an archive of NumPy without pickled objects, which
np.load opens; NNNNNN counts the checkpoints of a folder. Its member meta.json holds what is no
array. FORMAT and the BLAKE2b digest of all before it follow the archive, in hexadecimal digits:
nobody finds the end of an archive in these. Reading executes nothing that a file brings along.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pwmlff.files import write_whole
from pwmlff.report import Failure

#: What follows the archive: a name and the version of the layout, then the digest.
MARK = b"pwmlff-ckpt-"
FORMAT = MARK + b"0002"
DIGEST = 64  # digits
TRAILER = len(FORMAT) + DIGEST
META = "meta.json"
NAME = re.compile(r"checkpoint-(\d{6,})\.npz")


class DamagedError(Failure):
    """A checkpoint cannot be used, but an earlier one may."""


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`save` was given."""

    path: Path
    step: int
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    skipped: tuple[str, ...] = ()  # what is wrong with newer ones, to be shown


def save(
    folder: str | PathLike[str],
    step: int,
    arrays: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Write a checkpoint, and then remove all but the newest.

    Whatever happens meanwhile, SIGKILL, a full disk or the end of the machine: this checkpoint can
    be read, or those that were there before can.

    Args:
        folder: is made where it is missing.
        step: of the training.
        arrays: by name; not of objects.
        meta: anything JSON holds.
        keep: how many checkpoints stay, this one included.

    Returns:
        The file.

    Raises:
        Failure: it could not be written. What was there is kept.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr(META, json.dumps({"step": step, "meta": dict(meta)}))
        for name, array in arrays.items():
            with members.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    contents = archive.getvalue() + FORMAT
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        numbers = _numbers(path)
        path /= f"checkpoint-{max(numbers, default=0) + 1:06d}.npz"
        write_whole(path, contents + _digest(contents))
    except OSError as error:
        raise Failure(
            f"cannot write the checkpoint '{path}': {error.strerror or error}; earlier checkpoints "
            "are kept. Make room or choose another folder, and resume"
        ) from error
    old = [numbers[n] for n in sorted(numbers)[: len(numbers) + 1 - keep]]
    for left in (*old, *path.parent.glob(".checkpoint-*")):  # those of a process that was killed
        with contextlib.suppress(OSError):  # no reason to stop a training
            left.unlink()
    return path


def latest(folder: str | PathLike[str]) -> Checkpoint | None:
    """Read the newest sound checkpoint of a folder.

    Where the newest is damaged it is the one before, and so on; `skipped` says why.

    Returns:
        None where there is none.

    Raises:
        Failure: all are damaged, or the newest sound one is of an unknown layout.
    """
    skipped: list[str] = []
    for _, path in sorted(_numbers(Path(folder)).items(), reverse=True):
        try:
            header, arrays = _read(path)
            return Checkpoint(path, header["step"], arrays, header["meta"], tuple(skipped))
        except DamagedError as error:
            skipped.append(str(error))
    if skipped:
        head = f"found no sound checkpoint in '{folder}'; start again without them:"
        raise Failure("\n".join([head, *skipped]))
    return None


def subset(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _numbers(folder: Path) -> dict[int, Path]:
    """All checkpoints of a folder, by their numbers."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return {int(match[1]): path for path in paths if (match := NAME.fullmatch(path.name))}


def _digest(contents: bytes) -> bytes:
    return blake2b(contents, digest_size=DIGEST // 2).hexdigest().encode()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of one file, after its digest has been checked.

    Raises:
        DamagedError: it is not sound.
        Failure: it is, but of another layout; or it cannot be read.
    """
    try:
        contents = path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read the checkpoint '{path}': {error.strerror or error}") from error
    if len(contents) < TRAILER:
        raise DamagedError(f"'{path}' has {len(contents)} bytes, too few for a checkpoint")
    if _digest(contents[:-DIGEST]) != contents[-DIGEST:]:
        raise DamagedError(
            f"'{path}' is damaged: its digest is another than that at its end, as after a disk "
            "error or an incomplete copy"
        )
    layout = contents[-TRAILER:-DIGEST]
    if layout != FORMAT:
        raise Failure(
            f"found the layout {layout.removeprefix(MARK)!r} in the checkpoint '{path}', expected "
            f"{FORMAT.removeprefix(MARK)!r}: it is of another release of pair-pwmlff"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(contents[:-TRAILER])) as archive:
            arrays = {}
            for name in archive.namelist():
                if name != META:
                    with archive.open(name) as member:
                        array = np.lib.format.read_array(member, allow_pickle=False)
                    arrays[name.removesuffix(".npy")] = array
            return json.loads(archive.read(META)), arrays
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DamagedError(f"'{path}' holds what is no checkpoint: {error}") from error
