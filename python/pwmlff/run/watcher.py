"""Starts mpirun, shows how far lmp is, asks it to stop, ends what hangs, leaves no process."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from rich.status import Status

from pwmlff import mpirun
from pwmlff.progress import Progress
from pwmlff.report import Failure, console
from pwmlff.run.causes import LAUNCHER, explain, lammps_errors
from pwmlff.run.record import Attempt, Record
from pwmlff.run.restarts import CLOCK

GRACE = 10.0  # seconds for mpirun to end its ranks after a signal
#: Seconds for lmp to end its step and to write a restart file, after a signal (Slurm gives 30) and
#: before a time limit.
STOPPING, LIMITED = 25.0, 90.0
FINISHING = 60.0  # seconds for mpirun to end once lmp has
HANG, STARTING = 600.0, 1800.0  # seconds without a sign of life, and before the first forces
POLL = 0.1  # seconds between two looks
OTHERS = 1.0  # seconds between two looks at partitions after the first
QUIET = 30.0  # seconds between progress lines where the output is no terminal
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
           signal.SIGUSR2)  # fmt: skip
ENDED = "Total wall time"  # the last line of lmp


class Partition:
    """How far one of them is, and when it gave the last sign of life.

    Args:
        number: of the partition, from 0.
        folder: where its heartbeat is.
        screen: file that it writes to; None where there is one partition, which is rank 0's stdout.
        began: of the attempt, by the clock of the file system; what is older is of another one.
    """

    def __init__(self, number: int, folder: Path, screen: Path | None, began: float) -> None:
        self.heartbeat, self.screen, self.began = folder / f"heartbeat.{number}", screen, began
        self.heartbeat.unlink(missing_ok=True)
        self.progress = Progress()
        self.life = time.monotonic()
        self.beat = 0  # time of the last heartbeat, ns
        self._rest, self._offset = b"", 0

    def read(self, logs: Path, now: float) -> bool:
        """Take what it has written since, and see whether it lives; tell whether there is news."""
        beat = _time(self.heartbeat)
        if beat != self.beat:
            self.beat, self.life = beat or self.beat, now
        path = self.screen or mpirun.first_output(logs)
        if path is None or _time(path) < 1e9 * (self.began - CLOCK):
            return False
        with path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        *lines, self._rest = (self._rest + text).split(b"\n")
        self._offset += len(text)
        if text:
            self.life = now
        news = [self.progress.feed(line.decode(errors="replace"), now) for line in lines]
        return any(news)  # of all lines, which are to be fed


class Watcher:
    """Of all attempts of one `pwmlff run`.

    Args:
        say: prints a line for people.
        folder: where pair_style pwmlff gives signs of life, and looks for the wish to stop.
        screens: of the partitions, where there are several.
        hang: seconds without a sign of life after which a start is ended; 0: never; None: as
            HANG and STARTING say.
        beats: whether the input has the style that gives signs of life; where it has not, a start
            is ended for want of them if `hang` says so, or lmp never says a word.
        end: of the time for the simulation to stop, by time.time(); None without a limit.
        lock: handle that mpirun inherits.
    """

    def __init__(
        self,
        say: Callable[..., Any],
        folder: Path,
        screens: Sequence[Path] = (),
        hang: float | None = None,
        beats: bool = True,
        end: float | None = None,
        lock: int | None = None,
    ) -> None:
        self.say, self.folder, self.screens = say, folder, screens
        self.hang, self.beats, self.end, self.lock = hang, beats, end, lock
        self.partitions: list[Partition] = []
        self.interrupted = ""  # why no other start follows: name of a signal, or the time limit
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: float | None = None  # when lmp was asked to stop
        self._killed: float | None = None  # when mpirun was told to end
        self._looked = 0.0  # when partitions after the first were looked at

    def run(self, attempt: Attempt, logs: Path, record: Record) -> None:
        """Run one attempt to its end; keep patterns of restart files in the record."""
        self._asked = self._killed = None
        (self.folder / "stop").unlink(missing_ok=True)
        self.partitions = [
            Partition(number, self.folder, screen, attempt.started)
            for number, screen in enumerate(self.screens or [None])
        ]
        others = set(children())
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become our children
        begin = time.monotonic()
        try:
            with (logs / LAUNCHER).open("wb") as output:
                process = self._process = subprocess.Popen(
                    attempt.command, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    pass_fds=() if self.lock is None else (self.lock,),
                    # No thread is running here.
                    preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),  # noqa: PLW1509
                )  # fmt: skip
                self._watch(process, logs, attempt, record)
                attempt.returncode = process.returncode
        finally:
            reap(others)
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        attempt.seconds = time.monotonic() - begin
        found = [partition.progress for partition in self.partitions]
        attempt.step, attempt.ns_per_day = found[0].step, found[0].ns_per_day
        attempt.began = any(progress.began for progress in found)
        attempt.stopped = any(progress.stopped for progress in found)
        if not self._running() and self._killed is not None and not self.interrupted:
            attempt.returncode = 0  # lmp came to its end, mpirun did not
        if attempt.returncode != 0:
            # Partitions tell of their errors where they tell of all else.
            errors = [
                *lammps_errors(logs),
                *(text for progress in found for text in progress.errors),
            ]
            attempt.errors = list(dict.fromkeys(errors))
            told = explain(logs)
            attempt.cause, attempt.host = attempt.cause or told.text, told.host

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take signals meanwhile."""
        handlers = {s: signal.signal(s, self._take_signal) for s in SIGNALS}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _take_signal(self, number: int, _: object) -> None:
        self._end(signal.Signals(number).name)

    def _end(self, why: str) -> None:
        """Ask lmp to stop; where it cannot be asked, or for the second time, end it."""
        again, self.interrupted = bool(self.interrupted), self.interrupted or why
        if again or not any(partition.beat for partition in self.partitions):
            self._kill()
        else:
            (self.folder / "stop").touch()
            self._asked = time.monotonic()

    def _kill(self) -> None:
        self._killed = self._killed or time.monotonic()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def _watch(
        self, process: subprocess.Popen[bytes], logs: Path, attempt: Attempt, record: Record
    ) -> None:
        screen = console(stderr=True)
        status = Status("starting", console=screen) if screen.is_terminal else None
        shown = time.monotonic()
        if status:
            status.start()
        try:
            while True:
                ended = process.poll() is not None
                now = time.monotonic()
                news = self._read(logs, now, all_of_them=ended)
                if record.learn([partition.progress.restarts for partition in self.partitions]):
                    record.save()
                if news and status:
                    status.update(self._text())
                elif news and now - shown > QUIET:
                    self.say(self._text())
                    shown = now
                if ended:
                    return
                self._look(process, attempt, now)
                time.sleep(POLL)
        finally:
            if status:
                status.stop()

    def _look(self, process: subprocess.Popen[bytes], attempt: Attempt, now: float) -> None:
        """End what has to be ended."""
        if self._killed is not None:
            if now - self._killed > GRACE:
                os.killpg(process.pid, signal.SIGKILL)
            return
        running = self._running()
        if self.interrupted and self._asked is None:  # just before the start
            self._kill()
        elif not running:
            if now - max(partition.life for partition in self.partitions) > FINISHING:
                self._kill()
        elif self._asked is not None:
            patience = STOPPING if self.interrupted in signal.Signals.__members__ else LIMITED
            if now - self._asked > patience:
                self.say(f"lmp did not stop within {patience:g} s: it is ended")
                self._kill()
        elif self.end is not None and time.time() > self.end and not self.interrupted:
            self._end("the time limit")
        elif silent := [p for p in running if now - p.life > self._longest(p)]:
            seconds = now - silent[0].life
            attempt.cause = f"no sign of life for {seconds:.0f} s: a node or a rank hangs"
            self._kill()

    def _running(self) -> list[Partition]:
        """Partitions that have not come to their end."""
        return [partition for partition in self.partitions if not partition.progress.ended]

    def _longest(self, partition: Partition) -> float:
        """Seconds without a sign of life that are still taken for life."""
        if self.hang is not None:
            return self.hang or math.inf
        if partition.beat:
            return HANG
        # One of several partitions need not be one that uses the style.
        expected = self.beats and len(self.partitions) == 1
        return STARTING if expected or not partition.progress.began else math.inf

    def _text(self) -> str:
        return ("partition 0: " if self.screens else "") + self.partitions[0].progress.text()

    def _read(self, logs: Path, now: float, all_of_them: bool) -> bool:
        """Look at the first partition, and now and then at the others; say whether it has news."""
        first, *others = self.partitions
        if all_of_them or now - self._looked > OTHERS:
            self._looked = now
            for partition in others:
                partition.read(logs, now)
        return first.read(logs, now)


def _time(path: Path) -> int:
    """When a file was written, ns; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def reap(others: set[psutil.Process]) -> None:
    """End what mpirun left behind on this machine, and wait for it; spare what was there before."""
    deadline = time.monotonic() + GRACE
    while left := set(children()) - others:
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=0.1)
        if time.monotonic() > deadline:
            pids = sorted(process.pid for process in left)
            raise Failure(f"processes {pids} do not end; end them by hand")


def children() -> list[psutil.Process]:
    """Processes whose parent is this one."""
    found: list[psutil.Process] = psutil.Process().children()
    return found
