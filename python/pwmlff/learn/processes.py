"""Programs that run side by side and end with the process that has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pwmlff import files
from pwmlff.launch import interpreter
from pwmlff.report import CONTINUE, Failure

POLL = 0.05  # seconds


class Stopped(Failure):
    """The end was asked for; the same command goes on."""

    exit_code = CONTINUE


@dataclass(frozen=True)
class Task:
    """A program to run."""

    command: Sequence[str]
    folder: Path
    output: Path  # for what it says
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 0.0  # seconds; 0: any


@dataclass(frozen=True)
class Ended:
    """What came of it."""

    code: int | None  # None where its time was up
    text: str  # what it has said


class Workshop:
    """Runs programs for one folder, of which there is one at a time.

    Programs that outlive a process that was killed keep the folder until they have ended.

    Args:
        folder: made if need be.
        asked: whether the end was asked for.

    Raises:
        Failure: another process has the folder.
    """

    def __init__(self, folder: Path, asked: Callable[[], bool]) -> None:
        self.asked = asked
        self._lock = files.have(folder, files.PATIENCE, asked)

    def close(self) -> None:
        """Leave the folder to others."""
        os.close(self._lock)

    def run(self, tasks: Sequence[Task], jobs: int) -> list[Ended]:
        """Run all, so many at a time, and return what came of each, in their order.

        Raises:
            Stopped: the end was asked for; none of them runs any more.
        """
        results: dict[int, Ended] = {}
        running: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        waiting = list(enumerate(tasks))[::-1]
        try:
            while waiting or running:
                if self.asked():
                    raise Stopped("stopped; the same command goes on from here")
                while waiting and len(running) < jobs:
                    k, task = waiting.pop()
                    running[k] = self._started(task), time.monotonic()
                time.sleep(POLL)
                for k, (process, began) in list(running.items()):
                    limit = tasks[k].timeout
                    late = 0.0 < limit < time.monotonic() - began
                    if process.poll() is None and not late:
                        continue
                    if late:
                        _end(process)
                    del running[k]
                    said = tasks[k].output.read_text(errors="replace")
                    results[k] = Ended(None if late else process.returncode, said)
        finally:
            for process, _ in running.values():
                _end(process)
        return [results[k] for k in range(len(tasks))]

    def _started(self, task: Task) -> subprocess.Popen[bytes]:
        with task.output.open("wb") as output:
            return subprocess.Popen(
                interpreter.ending_with_parent(task.command),
                cwd=task.folder,
                env={**os.environ, **task.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[self._lock],
                start_new_session=True,  # what it starts ends with it
            )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it has started, which first may write what it has."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=files.PATIENCE)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
