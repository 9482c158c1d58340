"""Restart files of LAMMPS: which is the newest that was written to its end."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

MAGIC = b"LammpS RestartT\0"  # first and last bytes of a complete restart file
MULTIPROC, INTEGER = 44, 4  # flag of the number of files, and bytes of an integer in them
#: Flags of the header: LAMMPS's release and the units, which are strings, and the step. Others that
#: come before it are of one integer; there are few.
STRINGS, STEP, BEFORE_STEP = (0, 4), 5, 16
CLOCK = 0.05  # seconds by which the times of files may lag behind the clock


def newest_restart(
    partitions: Sequence[Sequence[str]],
    began: float,
    starts: Sequence[tuple[float, int]] = (),
    unreadable: Collection[tuple[str, int]] = (),
) -> tuple[str, ...]:
    """The newest complete restart files, one for each partition, as read_restart wants them.

    They are of one step: partitions may depend on one another, as replicas do. There are none where
    a partition has none of a step that all have.

    Args:
        partitions: patterns of the restart command of each: a name with * for the step, or two
            names used in turn. With % there is a file for each writing rank and one called base.
        began: seconds since the epoch; what is older is of another run.
        starts: of partitions, when each start was and from which step. Files of later steps from
            before it don't count: other output of that partition went back to that step.
        unreadable: files that don't count, as they cannot be read, and when each was written.
    """
    if len(partitions) == 1:
        files = complete_files(partitions[0], began, unreadable)
        return (max(files, key=files.__getitem__),) if files else ()
    of_step: list[dict[int, str]] = []  # the newest files, of each partition
    for patterns in partitions:
        files = complete_files(patterns, began, unreadable)
        newest: dict[int, str] = {}
        for name in sorted(files, key=files.__getitem__):
            step = step_of(name)
            if all(step <= first or files[name] >= 1e9 * time for time, first in starts):
                newest[step] = name
        of_step.append(newest)
    common = set.intersection(*map(set, of_step)) if of_step else set()
    return tuple(files[max(common)] for files in of_step) if common else ()


def complete_files(
    patterns: Sequence[str], began: float, unreadable: Collection[tuple[str, int]] = ()
) -> dict[str, int]:
    """Complete restart files that were written since a time, and when, in ns.

    Args:
        patterns: as in :func:`newest_restart`.
        began: likewise.
        unreadable: likewise.
    """
    written = _written(patterns, began)
    return {
        name: time_ns
        for name, (file, time_ns) in written.items()
        if (name, time_ns) not in unreadable
        and is_complete(file)
        and ("%" not in name or _has_parts(name, file))
    }


def incomplete_files(patterns: Sequence[str], began: float, time_ns: int) -> list[str]:
    """Restart files later than a time that are not complete: damaged, or cut off with their lmp.

    Args:
        patterns: as in :func:`newest_restart`.
        began: likewise.
        time_ns: later than this.
    """
    complete = complete_files(patterns, began)
    written = _written(patterns, began)
    return [name for name, (_, when) in written.items() if when > time_ns and name not in complete]


def _written(patterns: Sequence[str], began: float) -> dict[str, tuple[Path, int]]:
    """Files of these names, the base file of each and when it was written, in ns."""
    files: dict[str, tuple[Path, int]] = {}
    for pattern in patterns:
        name = Path(pattern).name
        # Of all letters, only * stands for others; LAMMPS takes a ? as it is.
        form = re.escape(name).replace(r"\*", ".*").replace("%", "base")
        folder = Path(pattern).parent
        with suppress(OSError):
            for file in folder.iterdir():
                if not re.fullmatch(form, file.name) or not file.is_file():
                    continue
                time_ns = file.stat().st_mtime_ns
                if time_ns >= 1e9 * (began - CLOCK):
                    to_read = file.with_name(_of_ranks(name, file.name)) if "%" in name else file
                    files[str(to_read)] = file, time_ns
    return files


def _of_ranks(pattern: str, base: str) -> str:
    """The name for all ranks, with %, of a base file."""
    head, tail = re.escape(pattern).replace(r"\*", ".*").split("%", 1)
    match = re.fullmatch(f"({head})base({tail})", base)
    assert match is not None  # as it has been matched before
    return f"{match[1]}%{match[2]}"


def _has_parts(name: str, base: Path) -> bool:
    head, tail = Path(name).name.split("%", 1)
    return is_complete(base) and parts_are_complete(base, head, tail)


def step_of(name: str) -> int:
    """The step that a complete restart file was written at.

    Raises:
        ValueError: its header is not of the form that LAMMPS gives it (write_restart.cpp).
    """
    with Path(name.replace("%", "base")).open("rb") as file:
        file.seek(len(MAGIC) + 2 * INTEGER)  # byte order and revision of the format
        for _ in range(BEFORE_STEP):
            header = file.read(2 * INTEGER)
            if len(header) < 2 * INTEGER:
                break
            flag, value = struct.unpack("=2i", header)
            if flag == STEP:
                file.seek(-INTEGER, os.SEEK_CUR)
                (step,) = struct.unpack("=q", file.read(8))
                return int(step)
            if flag in STRINGS:  # after their length
                file.seek(value, os.SEEK_CUR)
    raise ValueError(f"'{name}' has no step where restart files of LAMMPS have it")


def is_complete(path: Path, whole: bool = True) -> bool:
    """Whether LAMMPS wrote this restart file, or with whole=False this part of one, to its end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < (1 + whole) * len(MAGIC):
            return False
        file.seek(-len(MAGIC), os.SEEK_END)
        ends = file.read() == MAGIC
        file.seek(0)
        return ends and (not whole or file.read(len(MAGIC)) == MAGIC)


def parts_are_complete(base: Path, head: str, tail: str) -> bool:
    """Whether the files of the ranks beside a base file are complete and of the same step.

    Args:
        base: ends with a flag, the number of files, -1 and MAGIC (LAMMPS's write_restart).
        head: of the names, before the number of the file.
        tail: of the names, after it.
    """
    with base.open("rb") as file:
        file.seek(-len(MAGIC) - 3 * INTEGER, os.SEEK_END)
        flag, nfiles, end = struct.unpack("=3i", file.read(3 * INTEGER))
    if (flag, end) != (MULTIPROC, -1):
        return False
    written = base.stat().st_mtime - CLOCK  # the ranks write after it, all at a time
    parts = [base.with_name(f"{head}{k}{tail}") for k in range(nfiles)]
    return all(
        part.is_file() and part.stat().st_mtime >= written and is_complete(part, whole=False)
        for part in parts
    )
