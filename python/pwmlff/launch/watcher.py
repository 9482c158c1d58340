"""Starts mpirun, shows how far lmp is, asks it to stop, ends what hangs, leaves no process."""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.status import Status

from pwmlff.launch import causes, mpirun
from pwmlff.launch.progress import LmpProgress
from pwmlff.launch.restarts import Written, digest, is_new
from pwmlff.launch.run_state import Attempt, Simulation
from pwmlff.launch.script import Script
from pwmlff.report import Failure, console

GRACE = 10.0  # seconds for mpirun to end its ranks after a signal
#: Seconds for lmp to end its step and to write a restart file, after a signal (Slurm gives 30) and
#: before a time limit.
STOPPING, LIMITED = 25.0, 90.0
FINISHING = 60.0  # seconds for mpirun to end once lmp has
HANG, STARTING = 600.0, 1800.0  # seconds without a sign of life, and before the first forces
POLL = 0.1  # seconds between two looks
LOOKING = 5.0  # seconds between two looks at restart files
OTHERS = 1.0  # seconds between two looks at partitions after the first
QUIET = 30.0  # seconds between progress lines where the output is no terminal
#: Signals that end lmp at once where it has been asked to stop: people send them. The others come
#: again by themselves, from schedulers that repeat them.
IMPATIENT = (signal.SIGINT, signal.SIGQUIT)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
           signal.SIGUSR2)  # fmt: skip


class Partition:
    """How far one of them is, from 0, and when it gave the last sign of life."""

    def __init__(self, number: int, folder: Path, screen: Path | None, began: float) -> None:
        self.heartbeat = folder / f"heartbeat.{number}"
        self.screen = screen  # file that it writes to; None where that is rank 0's stdout
        self.began = began  # by the clock of the file system; what is older is of another attempt
        self.heartbeat.unlink(missing_ok=True)
        self.progress = LmpProgress()
        self.life = time.monotonic()
        self.computes = self.computed = False  # whether the style gives signs of life; ever did
        self.stopped = False  # whether it was asked to stop
        self.restarts: list[str] = []  # patterns of its restart files, as the style tells
        self.files: list[str] = []  # logs and screens that another start would begin anew
        self._beat = (0, b"")  # time in ns and contents of the last heartbeat
        self._rest, self._offset = b"", 0

    def read(self, logs: Path, now: float) -> bool:
        """Take what it has told since, and see whether it lives; tell whether there is news."""
        news = self._listen(now)
        path = self.text(logs)
        if path is None or not is_new(path, self.began):
            return news
        with path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        *lines, self._rest = (self._rest + text).split(b"\n")
        self._offset += len(text)
        if text:
            self.life = now
        for line in lines:
            news |= self.progress.feed(line.decode(errors="replace"), now)
        return news

    def text(self, logs: Path) -> Path | None:
        """The file with what it writes for people."""
        return self.screen or mpirun.first_output(logs)

    def _listen(self, now: float) -> bool:
        """Take what the style tells (pair_pwmlff/supervision.h); tell whether that is new."""
        try:  # the clock of file systems is coarse, and an inode is soon used again
            beat = self.heartbeat.stat().st_mtime_ns, self.heartbeat.read_bytes()
        except OSError:
            return False
        if beat == self._beat:
            return False
        try:
            state = json.loads(beat[1].decode(errors="surrogateescape"))
            self.progress.take(state, now)
            # As LAMMPS names them, where a start of lmp finds them by these names.
            names = (
                name if Path(folder) == Path.cwd() else str(Path(folder, name))
                for folder, name in state["restarts"]
            )
            self.restarts = list(dict.fromkeys([*self.restarts, *names]))
            files = (file for file, appends in state["files"] if not appends)
            self.files = list(dict.fromkeys([*self.files, *files]))
            self.computes = state["computes"]
            self.stopped |= state["stopped"] is not None
        except (ValueError, KeyError, TypeError):
            return False  # not what the style writes
        self.computed |= self.computes
        self._beat, self.life = beat, now
        return True


@dataclass
class Watcher:
    """Of all attempts of one `pwmlff run`."""

    say: Callable[..., Any]  # prints a line for people
    folder: Path  # where pair_style pwmlff gives signs of life, and looks for the wish to stop
    # Of the partitions, None for rank 0's stdout; one partition where there is none.
    screens: Sequence[Path | None] = ()
    # Seconds without a sign of life that end a start; 0: never; None: as HANG and STARTING say.
    hang: float | None = None
    # Whether the input has the style that gives signs of life; where it has not, a start is ended
    # for want of them if `hang` says so, or lmp never says a word.
    beats: bool = True
    end: float | None = None  # of the time for the simulation, by time.time(); None without a limit
    lock: int | None = None  # handle that mpirun inherits
    written: Written | None = None  # restart files of this start
    proxies: Collection[str] = ()  # names of processes that mpirun starts and that stay to the end
    program: str = ""  # lmp
    partitions: list[Partition] = field(default_factory=list)
    interrupted: str = ""  # why no other start follows: name of a signal, or the time limit
    _process: subprocess.Popen[bytes] | None = None
    _asked: float | None = None  # when lmp was asked to stop
    _killed: float | None = None  # when mpirun was told to end
    _looked: float = 0.0  # when partitions after the first were looked at
    _proxies: set[psutil.Process] = field(default_factory=set)  # seen
    _lost: float | None = None  # when one of them was found gone

    def run(
        self, attempt: Attempt, logs: Path, record: Simulation, script: Script | None = None
    ) -> None:
        """Run one attempt, which writes to the folder logs, and take note in it how it ended.

        Patterns of restart files are kept in the record; the script says where lmp has its logs.
        """
        self._asked = self._killed = self._lost = None
        self._proxies.clear()
        (self.folder / "stop").unlink(missing_ok=True)
        self.partitions = [
            Partition(number, self.folder, screen, attempt.started)
            for number, screen in enumerate(self.screens or [None])
        ]
        children = set(psutil.Process().children())
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become our children
        begin = time.monotonic()
        try:
            with (logs / causes.LAUNCHER).open("wb") as output:
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
            _reap(children)
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        attempt.seconds = time.monotonic() - begin
        first = self.partitions[0].progress
        attempt.step, attempt.ns_per_day = first.step, first.ns_per_day
        attempt.began = any(partition.progress.began for partition in self.partitions)
        attempt.stopped = any(partition.stopped for partition in self.partitions)
        if not self._running() and self._killed is not None and not self.interrupted:
            attempt.returncode = 0  # lmp came to its end, mpirun did not
        if attempt.returncode != 0:
            texts = self._texts(attempt, logs, script)
            attempt.errors = causes.lammps_errors(causes.written(logs, texts))
            cause = causes.explain(logs)
            # Where lmp says nothing anywhere, what else may have ended it would tell of itself.
            silent = not texts and not attempt.errors and not cause.text
            attempt.unreadable = (
                attempt.restart is not None
                and not attempt.cause
                and not self.interrupted
                and not any(partition.computed for partition in self.partitions)
                and (silent or any(map(causes.died_reading, texts)))
            )
            attempt.cause, attempt.host = attempt.cause or cause.text, cause.host

    def _texts(self, attempt: Attempt, logs: Path, script: Script | None) -> list[Path]:
        """What lmp has written for people in a start: screens and logs.

        The logs too where there is a screen: mpirun may lose the last words of what dies.
        """
        reported = [Path(name) for partition in self.partitions for name in partition.files]
        screens = [text for partition in self.partitions if (text := partition.text(logs))]
        named = [*script.logs(), *script.logs_of_input()] if script else []
        files = (*screens, *named, *reported)
        return [
            path for path in files if is_new(path, attempt.started) and causes.begins_input(path)
        ]

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take signals meanwhile; after one, no other one changes how this process ends."""
        handlers = {s: signal.signal(s, self._take_signal) for s in SIGNALS}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, signal.SIG_IGN if self.interrupted else handler)

    def _take_signal(self, number: int, _: object) -> None:
        name = signal.Signals(number).name
        if not self.interrupted:
            self._end(name)
        elif number in IMPATIENT:
            self._kill()

    def _end(self, why: str) -> None:
        """Ask lmp to stop; where it cannot be asked, end it."""
        self.interrupted = why
        if not any(partition.computes for partition in self.partitions):
            self._kill()
        else:
            (self.folder / "stop").touch()
            self._asked = time.monotonic()

    def _kill(self) -> None:
        self._killed = self._killed or time.monotonic()
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def _watch(
        self, process: subprocess.Popen[bytes], logs: Path, attempt: Attempt, record: Simulation
    ) -> None:
        screen = console(stderr=True)
        status = Status("starting", console=screen) if screen.is_terminal else None
        shown = looked = time.monotonic()
        earlier, saves = record.restarts, True
        with status or nullcontext():
            while True:
                ended = process.poll() is not None
                now = time.monotonic()
                news = self._read(logs, now, all_of_them=ended)
                # What lmp prints may look like commands; it counts until the style tells better.
                known = [
                    (p if p.progress.reported else p.progress).restarts for p in self.partitions
                ]
                files = [name for partition in self.partitions for name in partition.files]
                changed = record.learn(earlier, known) or files != attempt.files
                attempt.files = files
                if now - looked > LOOKING:
                    looked = now
                    changed |= self.look(attempt, record)
                if changed and saves:
                    try:
                        record.save()
                    except OSError as error:  # a full disk: no reason to end lmp
                        self.say(f"cannot write '{error.filename}': {error.strerror}; lmp goes on")
                        saves = False
                if news and status:
                    status.update(self._text())
                elif news and now - shown > QUIET:
                    self.say(self._text())
                    shown = now
                if ended:
                    return
                self._look(process, attempt, now)
                time.sleep(POLL)

    def look(self, attempt: Attempt, record: Simulation) -> bool:
        """Take note of restart files that were written; tell whether there are any."""
        patterns = [pattern for of_partition in record.restarts for pattern in of_partition]
        new = self.written.look(patterns, attempt.started) if self.written else []
        attempt.wrote = [*(attempt.wrote or ()), *new]
        record.digests |= {name: digest(name) for name, _ in new}
        return bool(new)

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
        elif self._lost is not None and now - self._lost > GRACE:
            attempt.cause = (
                f"a process of mpirun on this machine has died: {' or '.join(self.proxies)}"
            )
            self._kill()
        elif silent := [p for p in running if now - p.life > self._longest(p)]:
            seconds = now - silent[0].life
            attempt.cause = f"no sign of life for {seconds:.0f} s: a node or a rank hangs"
            self._kill()

    def _running(self) -> list[Partition]:
        """Partitions that have not come to their end."""
        silent = [p for p in self.partitions if not p.computes and p.progress.ended]
        if len(silent) == len(self.partitions) and not all(p.progress.reported for p in silent):
            # An input can print what lmp prints at its end; where no style tells more, look for it.
            silent = [] if self._is_alive() else silent
        return [partition for partition in self.partitions if partition not in silent]

    def _is_alive(self) -> bool:
        """Whether lmp runs on this machine."""
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                if child.exe() == os.path.realpath(self.program):
                    return True
        return False

    def _count(self, process: subprocess.Popen[bytes], now: float) -> None:
        """See whether a process that mpirun has started and that stays is gone."""
        if not self.proxies:
            return
        with suppress(psutil.Error):
            there = {
                child
                for child in psutil.Process(process.pid).children()
                if child.status() != psutil.STATUS_ZOMBIE and child.name() in self.proxies
            }
            self._proxies |= there
            if self._proxies - there:
                self._lost = self._lost or now

    def _longest(self, partition: Partition) -> float:
        """Seconds without a sign of life that are still taken for life."""
        if self.hang is not None:
            return self.hang or math.inf
        if partition.computes:
            return HANG
        # One of several partitions need not be one that uses the style, nor what follows on it.
        expected = self.beats and len(self.partitions) == 1 and not partition.computed
        return STARTING if expected or not partition.progress.began else math.inf

    def _text(self) -> str:
        which = "partition 0: " if len(self.partitions) > 1 else ""
        return which + self.partitions[0].progress.text()

    def _read(self, logs: Path, now: float, all_of_them: bool) -> bool:
        """Look at the first partition, and now and then at the others; say whether it has news."""
        first, *others = self.partitions
        if all_of_them or now - self._looked > OTHERS:
            self._looked = now
            if self._process is not None:
                self._count(self._process, now)
            for partition in others:
                partition.read(logs, now)
        return first.read(logs, now)


def _reap(earlier: set[psutil.Process]) -> None:
    """End what mpirun left behind on this machine, and wait for it; spare what was there before."""
    deadline = time.monotonic() + GRACE
    while left := set(psutil.Process().children()) - earlier:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=0.1)
        if time.monotonic() > deadline:
            pids = sorted(process.pid for process in left)
            raise Failure(f"processes {pids} do not end; end them by hand")
