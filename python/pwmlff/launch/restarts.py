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
    of_partitions = [
        {
            name: time_ns
            for name, (time_ns, complete) in restart_files(patterns, began).items()
            if complete and (name, time_ns) not in unreadable
        }
        for patterns in partitions
    ]
    if len(of_partitions) == 1:
        (files,) = of_partitions
        return (max(files, key=files.__getitem__),) if files else ()
    of_step: list[dict[int, str]] = []  # the newest files, of each partition
    for files in of_partitions:
        newest: dict[int, str] = {}
        for name in sorted(files, key=files.__getitem__):
            step = step_of(name)
            if all(step <= first or files[name] >= 1e9 * time for time, first in starts):
                newest[step] = name
        of_step.append(newest)
    common = set.intersection(*map(set, of_step)) if of_step else set()
    return tuple(files[max(common)] for files in of_step) if common else ()


def restart_files(patterns: Sequence[str], began: float) -> dict[str, tuple[int, bool]]:
    """Restart files of these patterns since a time: when each was written, in ns, and if wholly."""
    times: dict[str, int] = {}
    for pattern in patterns:
        # Of all letters, only * stands for others; LAMMPS takes a ? as it is.
        escaped = re.escape(Path(pattern).name).replace(r"\*", ".*")
        head, percent, tail = escaped.partition("%")
        form = re.compile(f"({head}){'base' if percent else ''}({tail})")
        with suppress(OSError):
            for file in Path(pattern).parent.iterdir():
                if (match := form.fullmatch(file.name)) and is_new(file, began):
                    name = file.with_name(f"{match[1]}{percent}{match[2]}")
                    times[str(name)] = file.stat().st_mtime_ns
    return {name: (time_ns, _is_complete(name)) for name, time_ns in times.items()}


def is_new(path: Path, began: float) -> bool:
    """Whether a file is there that was written since a time, by the clock of the file system."""
    with suppress(OSError):
        return path.is_file() and path.stat().st_mtime >= began - CLOCK
    return False


def base_file(restart: str) -> Path:
    """The file of a restart file with % for its parts that is complete last; itself without."""
    return Path(restart.replace("%", "base", 1))


def step_of(name: str) -> int:
    """The step that a complete restart file was written at.

    Raises:
        ValueError: its header is not of the form that LAMMPS gives it (write_restart.cpp).
    """
    with base_file(name).open("rb") as file:
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


def _is_complete(name: str) -> bool:
    """Whether LAMMPS wrote a restart file to its end, and with % those of all ranks at that step.

    A base file ends with a flag, the number of files, -1 and MAGIC (write_restart.cpp).
    """
    base = base_file(name)
    if not base.is_file() or not _is_whole(base):  # a file may have a % in its own name
        return False
    if "%" not in name:
        return True
    with base.open("rb") as file:
        file.seek(-len(MAGIC) - 3 * INTEGER, os.SEEK_END)
        flag, nfiles, end = struct.unpack("=3i", file.read(3 * INTEGER))
    if (flag, end) != (MULTIPROC, -1):
        return False
    written = base.stat().st_mtime  # the ranks write after it, all at a time
    parts = [Path(name.replace("%", str(k), 1)) for k in range(nfiles)]
    return all(is_new(part, written) and _is_whole(part, begins=False) for part in parts)


def _is_whole(path: Path, begins: bool = True) -> bool:
    """Whether a file ends, and begins, as restart files do; a part of one only ends so."""
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
        if file.seek(0, os.SEEK_END) < (1 + begins) * len(MAGIC):
            return False
        file.seek(-len(MAGIC), os.SEEK_END)
        return file.read() == MAGIC and (head == MAGIC or not begins)
