"""Restart files of LAMMPS: which is the newest that was written to its end."""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pwmlff.files import sha256
from pwmlff.launch.program import Program
from pwmlff.launch.script import quoted
from pwmlff.report import Failure

MAGIC = b"LammpS RestartT\0"  # first and last bytes of a complete restart file
MULTIPROC, INTEGER = 44, 4  # flag of the number of files, and bytes of an integer in them
#: Flags of the header: LAMMPS's release and the units, which are strings, and the step. Others that
#: come before it are of one integer; there are few.
STRINGS, STEP, BEFORE_STEP = (0, 4), 5, 16
NO_STEP = -1  # of a file that does not tell it
NEVER = (-1, -2)  # when a file of an unknown kind was written, and a step that is none
#: What LAMMPS says where it loses atoms of its own restart file: those on the faces of a tilted
#: box, whose place in the box is rounded to be outside.
LOST = "Did not assign all restart atoms correctly"
CLOCK = 0.05  # seconds by which the times of files may lag behind the clock


class Written:
    """Which restart files a start of lmp writes: those that are others than when it began.

    The clock does not count where it can be helped: it may be set back, and copies have new times.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = patterns  # known before the start
        self._marks = {name: _mark(name) for name in _listed(patterns)}
        # A file may be written again in the same tick of the clock.
        newest = max((mark[0] for mark in self._marks.values()), default=0)
        fresh = (name for name, mark in self._marks.items() if newest - mark[0] < 1e9)
        self._steps = {name: step_of_name(name, patterns) for name in fresh}

    def look(self, patterns: Sequence[str], began: float) -> list[tuple[str, int]]:
        """Complete files since the last look, and their steps, in the order of their times.

        Args:
            patterns: all that are known by now.
            began: when the start was, by the clock of the file system; it decides for files of
                patterns that were not known before.
        """
        written = []
        known = _listed(self.patterns)
        for name in _listed(patterns or self.patterns):
            mark = _mark(name)
            if self._marks.get(name) == mark and name not in self._steps:
                continue
            step = step_of_name(name, patterns or self.patterns)
            same = self._marks.get(name) == mark and self._steps[name] == step
            strange = name not in known and not is_new(base_file(name), began)
            if not same and not strange and _is_complete(name):
                self._marks[name] = mark
                self._steps.pop(name, None)
                written.append((mark[0], step, name))
        return [(name, step) for _, step, name in sorted(written)]


def newest_restart(
    partitions: Sequence[Sequence[str]],
    began: float,
    starts: Sequence[tuple[float, int]] = (),
    unreadable: Collection[tuple[str, int]] = (),
    written: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[str, ...]:
    """The complete restart files of the highest step, as read_restart wants them.

    There is one for each partition, and all are of one step: partitions may depend on one another,
    as replicas do. There are none where a partition has none of a step that all have.

    Args:
        partitions: patterns of the restart command of each: a name with * for the step, or two
            names used in turn. With % there is a file for each writing rank and one called base.
        began: seconds since the epoch; what is older is of another run.
        starts: when each start was and from which step. Files of later steps from before it don't
            count: the simulation went back to that step.
        unreadable: files that don't count, as they cannot be read, and when each was written.
        written: where it is known what the starts wrote: when each file was written, in the unit
            of `starts`, and its step. No other files count then, and no times of files.
    """
    by_time = written is None
    by_step: list[dict[int, str]] = []  # the newest files, of each partition
    for patterns in partitions:
        there = restart_files(patterns, began if by_time else 0.0, by_time)
        candidates = []
        for name, (time_ns, complete) in there.items():
            step = step_of_name(name, patterns)
            when, known = (1e-9 * time_ns, step) if written is None else written.get(name, NEVER)
            gone_back = any(step > first and when < time for time, first in starts)
            if complete and step == known and not gone_back and (name, time_ns) not in unreadable:
                candidates.append((when, step, name))
        by_step.append({step: name for _, step, name in sorted(candidates)})
    common = set.intersection(*map(set, by_step)) if by_step else set()
    if len(partitions) > 1:
        common -= {NO_STEP}
    return tuple(files[max(common)] for files in by_step) if common else ()


def restart_files(
    patterns: Sequence[str], began: float = 0.0, by_time: bool = True
) -> dict[str, tuple[int, bool]]:
    """Restart files of these patterns since a time: when each was written, in ns, and if wholly.

    The times of the parts of a file tell whether they are of the same step, unless by_time is
    False.
    """
    times = _listed(patterns, began)
    return {name: (time_ns, _is_complete(name, by_time)) for name, time_ns in times.items()}


def _listed(patterns: Sequence[str], began: float = 0.0) -> dict[str, int]:
    """The same, whether complete or not: when each was written."""
    times: dict[str, int] = {}
    for pattern in patterns:
        head, percent, tail = _escaped(pattern).partition("%")
        form = re.compile(f"({head}){'base' if percent else ''}({tail})")
        with suppress(OSError):
            for file in Path(pattern).parent.iterdir():
                if (match := form.fullmatch(file.name)) and is_new(file, began):
                    name = file.with_name(f"{match[1]}{percent}{match[2]}")
                    times[str(name)] = file.stat().st_mtime_ns
    return times


def _escaped(pattern: str) -> str:
    """A regular expression: of all letters, only * stands for others; LAMMPS takes a ? as it is."""
    return re.escape(Path(pattern).name).replace(r"\*", ".*")


def _mark(name: str) -> tuple[int, int, int]:
    """What changes where a restart file is written again."""
    try:
        state = base_file(name).stat()
    except OSError:  # it has gone since it was listed
        return 0, 0, 0
    return state.st_mtime_ns, state.st_size, state.st_ino


def is_new(path: Path, began: float) -> bool:
    """Whether a file is there that was written since a time, by the clock of the file system."""
    with suppress(OSError):
        return path.is_file() and path.stat().st_mtime >= began - CLOCK
    return False


def base_file(restart: str) -> Path:
    """The file of a restart file with % for its parts that is complete last; itself without."""
    return Path(restart.replace("%", "base", 1))


def digest(name: str) -> str:
    """SHA-256 of a complete restart file with all its parts; empty where it cannot be read."""
    with suppress(OSError):
        return sha256([base_file(name), *(_parts(name) or ())])
    return ""


def loses_atoms(lmp: Program, restart: str, words: Sequence[str] = ()) -> bool:
    """Whether LAMMPS loses atoms where it reads a restart file back, on any number of ranks.

    Args:
        lmp: which reads it, alone.
        restart: the file, as read_restart wants it.
        words: that follow it there.
    """
    path = Path(restart).absolute()
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "at").symlink_to(path.parent)
            name = quoted(f"at/{path.name}")
            lmp.run(Path(folder), f"read_restart {name} {' '.join(words)}\n")
    except (Failure, OSError) as error:  # that it fails otherwise may be of this input alone
        return LOST in str(error)
    return False


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


def step_of_name(name: str, patterns: Sequence[str]) -> int:
    """The step of a restart file by its header, or else by its name, or NO_STEP."""
    with suppress(OSError, ValueError):
        return step_of(name)
    for pattern in patterns:
        match = re.fullmatch(_escaped(pattern).replace(".*", "(.*)", 1), Path(name).name)
        if match and "*" in pattern and match[1].isdecimal():
            return int(match[1])
    return NO_STEP


def _is_complete(name: str, by_time: bool = True) -> bool:
    """Whether LAMMPS wrote a restart file to its end, and with % those of all ranks at that step.

    A base file ends with a flag, the number of files, -1 and MAGIC (write_restart.cpp).
    """
    base = base_file(name)
    if not base.is_file() or not _is_whole(base):  # a file may have a % in its own name
        return False
    parts = _parts(name)
    # The ranks write after it, all at a time.
    written = base.stat().st_mtime if by_time else 0.0
    return parts is not None and all(
        is_new(part, written) and _is_whole(part, begins=False) for part in parts
    )


def _parts(name: str) -> list[Path] | None:
    """Files beside the base file of a whole one; None where it does not tell of any."""
    if "%" not in name:
        return []
    with base_file(name).open("rb") as file:
        file.seek(-len(MAGIC) - 3 * INTEGER, os.SEEK_END)
        flag, nfiles, end = struct.unpack("=3i", file.read(3 * INTEGER))
    known = (flag, end) == (MULTIPROC, -1)
    return [Path(name.replace("%", str(k), 1)) for k in range(nfiles)] if known else None


def _is_whole(path: Path, begins: bool = True) -> bool:
    """Whether a file ends, and begins, as restart files do; a part of one only ends so."""
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
        if file.seek(0, os.SEEK_END) < (1 + begins) * len(MAGIC):
            return False
        file.seek(-len(MAGIC), os.SEEK_END)
        return file.read() == MAGIC and (head == MAGIC or not begins)
