"""What is known of a simulation from one `pwmlff run` to the next: D/run.json, and who has D."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pwmlff.files import write_whole
from pwmlff.report import Failure, plain

NAME, LOCK = "run.json", "run.lock"
RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"


@dataclass
class Attempt:
    """One start of lmp."""

    command: list[str]
    restart: str | None  # file that it went on from
    started: float  # when, by the clock of the file system
    returncode: int | None = None
    step: int | None = None  # the last one seen
    ns_per_day: float | None = None
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)  # lines in which LAMMPS gave up
    cause: str = ""  # why it did not come to its end, as far as that is known
    host: str = ""  # to blame for it, likewise
    began: bool = False  # whether lmp said anything
    stopped: bool = False  # whether it ended where it was asked to


@dataclass
class Record:
    """A simulation.

    Attributes:
        folder: of the logs.
        input: SHA-256 of the lines of its input.
        began: when, by the clock of the file system.
        state: RUNNING, FINISHED, STOPPED (to go on) or FAILED.
        restarts: patterns of its restart files, of each partition.
        attempts: all starts of lmp.
    """

    folder: Path
    input: str
    began: float
    state: str = RUNNING
    restarts: list[list[str]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def learn(self, restarts: Sequence[Sequence[str]]) -> bool:
        """Take note of patterns of restart files, of each partition; tell whether any is new."""
        old = self.restarts
        if len(old) != len(restarts):  # nothing is known, or there were other partitions
            old = [[] for _ in restarts]
        pairs = zip(old, restarts, strict=True)
        self.restarts = [list(dict.fromkeys([*known, *found])) for known, found in pairs]
        return self.restarts != old

    def save(self) -> None:
        """Write it, as a whole or not at all."""
        told = {name: value for name, value in asdict(self).items() if name != "folder"}
        text = json.dumps(plain(told | _here()), indent=1, allow_nan=False)
        write_whole(self.folder / NAME, text.encode())


def read(folder: Path) -> Record | None:
    """The record in a folder; None where there is none.

    Raises:
        Failure: there is one that cannot be read.
    """
    path = folder / NAME
    try:
        told: dict[str, Any] = json.loads(path.read_text())
        attempts = [
            Attempt(**{f.name: one[f.name] for f in fields(Attempt)}) for one in told["attempts"]
        ]
        return Record(
            folder, told["input"], told["began"], told["state"], told["restarts"], attempts
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(
            f"cannot read '{path}', the record of earlier starts: {error}; remove it to start over"
        ) from error


def now(folder: Path) -> float:
    """Seconds since the epoch by the clock that gives files of a folder their times."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".now.") as file:
        return Path(file.name).stat().st_mtime


def _here() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid()}


class Lock:
    """A folder of logs that one `pwmlff run` has, and what it has started.

    Args:
        folder: made if need be.
        wait: seconds for an earlier one to end.

    Raises:
        Failure: another one has it.
    """

    def __init__(self, folder: Path, wait: float = 0.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOCK
        self._file = path.open("a+")
        deadline = time.monotonic() + wait
        while not self._take():
            if time.monotonic() > deadline:
                self._file.seek(0)
                who = self._file.read().strip() or "of unknown place"
                self._file.close()
                raise Failure(
                    f"another pwmlff run, {who}, has '{folder}' or has left lmp running; wait for "
                    "its end, or give another --log-dir"
                )
            time.sleep(0.1)
        self._file.truncate(0)
        self._file.write("pid {pid} on {host}".format(**_here()))
        self._file.flush()

    def _take(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True

    @property
    def handle(self) -> int:
        """To be inherited by what may outlive this process."""
        return self._file.fileno()

    def release(self) -> None:
        """Let others have it."""
        self._file.close()
