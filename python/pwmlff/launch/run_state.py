"""What is known of a simulation from one `pwmlff run` to the next: D/run.json, and who has D."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pwmlff.files import named, try_lock, write_whole
from pwmlff.launch import mpirun
from pwmlff.launch.causes import LAUNCHER
from pwmlff.launch.inputs import Seen
from pwmlff.launch.restarts import NO_STEP, is_new
from pwmlff.report import Failure, plain, restored

NAME, LOCK = "run.json", "run.lock"
HOLDER = re.compile(r"pid \d+ on .*")  # what is in the lock
#: Files in the folder, beside those of ranks, that are replaced: none may be someone else's.
REPLACED = re.compile(r"mpirun\.out|stop|heartbeat\.\d+(\.new)?")
RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"


@dataclass
class Attempt:
    """One start of lmp."""

    command: list[str]
    restart: str | None  # file that it went on from
    started: float  # when, by the clock of the file system
    logs: str = ""  # folder in that of the logs, where ranks write to
    ranks: int = 0
    returncode: int | None = None
    step: int | None = None  # the last one seen
    ns_per_day: float | None = None
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)  # lines in which LAMMPS gave up
    cause: str = ""  # why it did not come to its end, as far as that is known
    host: str = ""  # to blame for it, likewise
    began: bool = False  # whether lmp said anything
    stopped: bool = False  # whether it ended where it was asked to
    unreadable: bool = False  # whether it died while it read the restart file
    files: list[str] = field(default_factory=list)  # its logs and screens, begun anew
    first: int | None = None  # step of the restart file
    # Restart files that it wrote and their steps, in their order; None: of an older release.
    wrote: list[tuple[str, int]] | None = None

    @property
    def advanced(self) -> bool:
        """Whether it got beyond what it went on from, or may have."""
        return self.step is not None or bool(self.wrote) or self.returncode is None


@dataclass
class Simulation:
    """All starts of lmp that lead from the begin of an input to its end."""

    folder: Path  # of the logs
    input: str  # SHA-256 of its lines
    began: float  # when, by the clock of the file system
    state: str = RUNNING  # or FINISHED, STOPPED (to go on), FAILED
    restarts: list[list[str]] = field(default_factory=list)  # patterns, of each partition
    attempts: list[Attempt] = field(default_factory=list)
    # Restart files that lmp could not read, and when each was written, in ns.
    unreadable: list[tuple[str, int]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)  # other files in the folder
    # Files that dumps append to, by the name in the input, and the bytes of each that were there
    # before the first start that names it.
    dumps: dict[str, dict[str, int]] = field(default_factory=dict)
    # Restart files that were there before, and their steps.
    found: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # of restart files as they were written
    inputs: Seen = field(default_factory=dict)  # what the input reads, as it was at the last start

    def learn(self, earlier: Sequence[Sequence[str]], restarts: Sequence[Sequence[str]]) -> bool:
        """Take note of patterns of restart files; tell whether that changes what is known.

        Args:
            earlier: what was known of each partition when this start began.
            restarts: what is known from this start alone; it may take back what it said before.
        """
        old = self.restarts
        if len(earlier) != len(restarts):  # nothing is known, or there were other partitions
            earlier = [[] for _ in restarts]
        pairs = zip(earlier, restarts, strict=True)
        self.restarts = [list(dict.fromkeys([*known, *new])) for known, new in pairs]
        return self.restarts != old

    def timeline(self, alone: bool) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int]]]:
        """What newest_restart takes as `written` and `starts`, in the order of writing.

        Args:
            alone: whether there is one partition; where its steps descend, they were set back.
        """
        written: dict[str, tuple[int, int]] = {}
        starts: list[tuple[int, int]] = []
        count = 0
        for attempt in self.attempts:
            first = NO_STEP if attempt.restart is None else attempt.first
            if attempt.advanced and first is not None:
                starts.append((count, first))
            last = NO_STEP
            for name, step in attempt.wrote or ():
                if alone and step < last:
                    starts.append((count, step - 1))
                written[name] = count, step
                last, count = step, count + 1
        return written, starts

    def save(self) -> None:
        """Write it, as a whole or not at all."""
        contents = asdict(self) | _here()
        del contents["folder"]
        text = json.dumps(plain(contents), indent=1, allow_nan=False)
        write_whole(self.folder / NAME, text.encode())


def read(folder: Path) -> Simulation | None:
    """The record in a folder; None where there is none.

    Raises:
        Failure: there is one that cannot be read.
    """
    path = folder / NAME
    try:
        # Fields that an earlier release did not write have the value of a new record.
        return restored(Simulation, {**json.loads(path.read_text()), "folder": folder})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Failure(
            f"cannot read '{path}', the record of earlier starts: {why}; give another --log-dir, "
            "or remove what it has left in this one to start over"
        ) from error


def require_free(folder: Path) -> None:
    """Raise Failure where files that a first start would replace are there already."""
    others = (file for file in folder.iterdir() if REPLACED.fullmatch(file.name))
    if existing := next(itertools.chain(mpirun.all_outputs(folder), others), None):
        raise Failure(
            f"found '{existing}', which is of no pwmlff run that '{folder / NAME}' tells of, and "
            "would be replaced; move it, or give another --log-dir"
        )


def clean(record: Simulation) -> None:
    """Remove what the starts of a simulation have left in its folder, and nothing else."""
    for attempt in reversed(record.attempts):
        logs = record.folder / attempt.logs
        for file in (*mpirun.all_outputs(logs), logs / LAUNCHER):
            if is_new(file, attempt.started):
                file.unlink()
        folders = [logs / f"rank.{k}" for k in range(attempt.ranks)]
        for folder in (*folders, *([logs] if attempt.logs else [])):
            with suppress(OSError):  # it is not there, or something else is in it
                folder.rmdir()
    if record.attempts:
        for file in record.folder.iterdir():
            if REPLACED.fullmatch(file.name) or file.name in record.made:
                file.unlink()
    (record.folder / NAME).unlink(missing_ok=True)


def now(folder: Path) -> float:
    """Seconds since the epoch by the clock that gives files of a folder their times."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".now.") as file:
        return Path(file.name).stat().st_mtime


def _here() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid()}


@contextmanager
def lock(folder: Path, wait: float = 0.0) -> Iterator[int]:
    """Have a folder of logs for this `pwmlff run`, and for what it starts.

    Args:
        folder: made if need be.
        wait: seconds for an earlier one to end.

    Yields:
        A handle, to be inherited by what may outlive this process.

    Raises:
        Failure: another one has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    with path.open("a+b", buffering=0) as file:
        file.seek(0)
        if (text := file.read().decode(errors="replace")) and not HOLDER.fullmatch(text):
            raise Failure(
                f"found '{path}', which no pwmlff run has made; move it, or give another --log-dir"
            )
        deadline = time.monotonic() + wait
        while not try_lock(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                file.seek(0)
                holder = file.read().decode().strip() or "of unknown place"
                raise Failure(
                    f"another pwmlff run, {holder}, has '{folder}' or has left lmp running; wait "
                    "for its end, or give another --log-dir"
                )
            time.sleep(0.1)
        file.truncate(0)
        with named(path):
            file.write("pid {pid} on {host}".format(**_here()).encode())
        yield file.fileno()
