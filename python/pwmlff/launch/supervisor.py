"""One simulation: all its starts, in one `pwmlff run` after the other."""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from pwmlff.files import try_lock, write_whole
from pwmlff.launch import inputs, mpirun, outputs, run_state
from pwmlff.launch.causes import PROXY, failing, will_recur
from pwmlff.launch.program import Program
from pwmlff.launch.restarts import (
    LOST,
    Written,
    base_file,
    digest,
    loses_atoms,
    newest_restart,
    restart_files,
    step_of,
    step_of_name,
)
from pwmlff.launch.run_state import Attempt, Simulation, clean, require_free
from pwmlff.launch.script import LOG, PARTITION_LOG, Dump, Script, quoted
from pwmlff.launch.watcher import GRACE, POLL, Watcher
from pwmlff.report import CONTINUE, Failure, Report, console

LAUNCHES = 10  # starts in a row in which lmp never began
LINGERS = 120.0  # seconds for which file systems keep the locks of a node that is lost
UNREADABLE = 3  # restart files in a row that lmp dies on, after which the cause is another one
DELAY, LONGEST = 1.0, 300.0  # seconds before the next start, doubled while nothing is gained
MARGIN, SHARE = 120.0, 0.1  # seconds before a time limit, and at most this share of it
RESUME = ("auto", "never")  # or a file
#: What helps where LAMMPS loses atoms.
OFF_FACES = "atoms on the faces of a tilted box are lost: displace_atoms moves all off the faces"
#: Name of a file that tells the restart files of partitions, and how it begins.
STEP_OF_PARTITIONS = re.compile(r"restart\.(\d+)(?:\.\d+)?\.in")
WORLD = "variable restart_file world "


@dataclass(frozen=True)
class Plan:
    """What is started, and how it goes on."""

    script: Script
    wish: mpirun.Wish  # of lmp; `logs` is the folder that holds those of all starts
    retries: int = 0  # starts after a rank died
    resume: str = "auto"  # never or a restart file
    hang: float | None = None  # as Watcher takes it
    time_limit: float | None = None  # seconds; that of the Slurm job, if it is one, when None
    drop_hosts: bool = False  # go on without a host that cannot be reached
    min_ranks: int = 1  # with how many ranks at least
    changed: Sequence[Path] = ()  # files that are meant to be others than before

    @property
    def folder(self) -> Path:
        """Of all logs."""
        return self.wish.logs or Path("logs")

    def command(
        self, launcher: mpirun.Mpirun, logs: Path, attempt: int, restart: str | None
    ) -> list[str]:
        """The mpirun line of one start, which writes to a folder."""
        arguments = list(self.script.arguments)
        if not {"-echo", "-e"} & set(arguments):
            arguments += ["-echo", "both"]  # the screen tells of run and restart commands
        if not {"-nonbuf", "-nb"} & set(arguments):
            arguments.append("-nonbuf")
        if attempt:
            arguments = _own_log(arguments, attempt)
        environment = {**self.wish.environment, "PWMLFF_SUPERVISED": str(self.folder.resolve())}
        if restart is not None:
            arguments += ["-var", "restart", restart]
            environment["PWMLFF_GOES_ON"] = "1"
        program = [*self.wish.program, *arguments]
        return launcher.command(
            replace(self.wish, program=program, logs=logs, environment=environment)
        )


@dataclass(frozen=True)
class RunReport(Report):
    """What became of a simulation."""

    attempts: list[Attempt]
    log_dir: str
    earlier: int = 0  # attempts of an earlier `pwmlff run`
    interrupted: str = ""  # name of the signal, or the time limit
    newest: str | None = None  # restart file that the same command goes on from

    @property
    def ok(self) -> bool:
        """Whether lmp came to its end, at last."""
        return self.attempts[-1].returncode in (0, None) and not self.attempts[-1].stopped

    @property
    def exit_code(self) -> int:
        """0, CONTINUE where it was interrupted and can go on, or 1."""
        if self.ok:
            return 0
        return CONTINUE if self.interrupted and self.newest is not None else 1

    def show(self) -> RenderableType:
        """How each start ended."""
        lines = []
        for k, a in enumerate(self.attempts):
            start = f"start {k + 1}" + (f" from {a.restart}" if a.restart else "")
            if a.returncode is None:
                ended = "was left before its end" if k < self.earlier else "not started (dry run)"
                lines.append(Text(f"{start}: {ended}"))
                continue
            end = f"ended with exit code {a.returncode}"
            if a.returncode == 0:
                end = "stopped" if a.stopped else "finished"
            step = "" if a.step is None else f" at step {a.step}"
            lines.append(Text(f"{start}: {end}{step} after {a.seconds:.1f} s"))
            lines += [Text(error, "red") for error in (*a.errors, a.cause) if error]
        if self.interrupted:
            lines.append(Text(f"stopped by {self.interrupted}", "red"))
        if self.exit_code == CONTINUE:
            lines.append(Text(f"the same command goes on with it from {self.newest}"))
        elif self.interrupted and not self.ok:
            lines.append(Text("it cannot go on: there is no restart file that can be read", "red"))
        elif not self.ok:
            lines.append(Text(f"what the ranks wrote is in {self.log_dir}"))
        return Group(*lines)


def run(plan: Plan, launcher: mpirun.Mpirun) -> RunReport:
    """Run lmp to its end, or until nothing more can be done.

    Raises:
        Failure: another `pwmlff run` has the folder of the logs, or another lmp a file.
    """
    with run_state.lock(plan.folder, wait=GRACE) as lock:
        record = run_state.read(plan.folder)
        goes_on = record is not None and record.state != run_state.FINISHED
        require_alone(plan.script, LINGERS if goes_on else 0.0)
        return _Supervisor(plan, launcher, lock).run()


def require_alone(script: Script, wait: float = 0.0) -> None:
    """See that no other lmp writes to a deviation file of the input.

    Raises:
        Failure: another one does, also after the seconds to wait. These are for its end, or for a
            file system to let go of the lock of a lost node.
    """
    deadline = time.monotonic() + wait
    for path in script.deviation_files():
        while _is_locked(path):
            if time.monotonic() > deadline:
                raise Failure(
                    f"another lmp writes to the deviation file '{path}'; let it end, or run in "
                    "another folder"
                )
            time.sleep(POLL)


def _is_locked(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return not try_lock(file, fcntl.LOCK_SH)
    return False


class _Supervisor:
    """Of one `pwmlff run`."""

    def __init__(self, plan: Plan, launcher: mpirun.Mpirun, lock: int) -> None:
        self.say = console(stderr=True).print
        self.plan, self.launcher = plan, launcher
        self.unreadable: list[tuple[str, int]] = []  # restart files that lmp died on, in a row
        self.named_restart = None if plan.resume in RESUME else plan.resume
        self.damaged: list[tuple[str, int]] = []  # restart files that are not as they were written
        self.named: set[str] = set()  # restart files that were said to be passed over
        self.spare = self.named_restart is not None  # frames may be of what was not to be given up
        self.record, self.restart = self._open()
        self.earlier = len(self.record.attempts)
        self.watcher = Watcher(
            self.say,
            plan.folder.resolve(),
            hang=plan.hang,
            beats=plan.script.has_style(),
            end=end_of_time(plan.time_limit),
            lock=lock,
            proxies=launcher.proxies,
            program=plan.wish.program[0],
        )

    def _warn(self, text: str) -> None:
        self.say(Text(text, "yellow"))

    def _save(self) -> None:
        """Write the record of what has been; that it cannot be written hides nothing of that."""
        try:
            self.record.save()
        except OSError as error:
            self._warn(f"cannot write '{error.filename}': {error.strerror}")

    def _open(self) -> tuple[Simulation, str | None]:
        """The record to go on with, and the restart file."""
        plan, folder = self.plan, self.plan.folder
        old = run_state.read(folder)
        if old is not None:
            self._adopt(old)
        seen = inputs.look(plan.script, old.inputs if old else {})
        meant = inputs.require_read(plan.changed, seen)
        patterns = plan.script.restarts()
        found = {name: step_of_name(name, patterns) for name in restart_files(patterns)}
        new = Simulation(
            folder, plan.script.digest(), run_state.now(folder), found=found, inputs=seen
        )
        if old is None:
            require_free(folder)
            return new, self.named_restart
        changes = self._changes(old, new)
        if self.named_restart is not None:
            self._tell_changes(changes)
            for name in _files_of(self.named_restart):
                if _is_another(name, old):
                    self._warn(f"'{name}' is not as it was written; --resume takes it as it is")
            return replace(old, state=run_state.RUNNING, inputs=seen), self.named_restart
        if old.state == run_state.FINISHED or plan.resume == "never":
            clean(old)
            return new, None
        newest = self._newest(old)
        if newest is None or not plan.script.can_go_on():
            self.say("nothing of earlier starts can be gone on from: from the beginning")
            for number, attempt in enumerate(old.attempts, 1):
                _keep(self._script(attempt.command).logs(), number)
            if old.attempts:
                self._keep_outputs(old, None, spare=True)
            clean(old)
            return new, None
        if unsaid := [name for name in changes if name not in meant]:
            raise Failure(
                f"'{folder / run_state.NAME}' tells of a simulation that has not come to its end, "
                f"of an input that was not the same as now: {', '.join(unsaid)}; give "
                f"{inputs.options(unsaid)} or --resume {newest} to go on with it, or --resume "
                "never to start over"
            )
        self._tell_changes(changes)
        self.say(f"going on from {newest}, after {len(old.attempts)} start(s)")
        return replace(old, state=run_state.RUNNING, inputs=seen), newest

    def _adopt(self, record: Simulation) -> None:
        """Take note of restart files that a `pwmlff run` that was killed could not see any more.

        Those of an earlier release, which did not take note of any, too.
        """
        last = record.attempts[-1] if record.attempts else None
        if last is None or (last.returncode is not None and last.wrote is not None):
            return
        known = {one for attempt in record.attempts for one in attempt.wrote or ()}
        named = [] if last.wrote is None else self.plan.script.restarts()
        of_partitions = self._patterns(record)
        new = []
        for pattern in (pattern for patterns in of_partitions for pattern in patterns):
            # Where files were before is known of the names in the input alone.
            began = 0.0 if pattern in named else record.began
            for name, (_, complete) in restart_files([pattern], began).items():
                step = step_of_name(name, [pattern])
                if complete and record.found.get(name) != step and (name, step) not in known:
                    new.append((step, name))
        last.wrote = [*(last.wrote or ()), *((name, step) for step, name in sorted(new))]
        record.digests |= {name: digest(name) for _, name in new}

    def _patterns(self, record: Simulation) -> list[list[str]]:
        """Patterns of the restart files of each partition."""
        if not self.plan.script.partitions and not any(record.restarts):  # nothing has told of them
            return [self.plan.script.restarts()]
        return record.restarts

    def _changes(self, old: Simulation, new: Simulation) -> list[str]:
        """What the input reads that is not as before, and its partitions."""
        if not old.inputs:  # of an older release, which kept the lines of the input alone
            return list(map(str, self.plan.script.files)) if old.input != new.input else []
        partitions = {self._script(attempt.command).partitions for attempt in old.attempts[-1:]}
        others = ["-partition"] * bool(partitions - {self.plan.script.partitions})
        return inputs.changes(old.inputs, new.inputs) + others

    def _tell_changes(self, names: Sequence[str]) -> None:
        if names:
            self._warn(f"going on with another {', another '.join(names)} than before")

    def _newest(self, record: Simulation) -> str | None:
        """Value of the variable restart: the newest restart file, or one that names partitions'."""
        patterns = self._patterns(record)
        written, starts = record.timeline(alone=not self.plan.script.partitions)
        while True:
            unreadable = (*record.unreadable, *self.unreadable, *self.damaged)
            files = newest_restart(patterns, record.began, starts, unreadable, written)
            damaged = [name for name in files if _is_another(name, record)]
            if not damaged:
                break
            self.damaged += [(name, base_file(name).stat().st_mtime_ns) for name in damaged]
        known = {name for name, _ in self.damaged}
        for k, of_partition in enumerate(patterns):
            taken, its_time = None, math.inf
            if files:
                taken = files[k]
                its_time = max(1e9 * record.began, base_file(taken).stat().st_mtime_ns)
            for name, (when, complete) in restart_files(of_partition).items():
                later = when > its_time  # of one that is of another run, maybe
                if name in written:
                    later = taken is None or written[name] > written[taken]
                if later and not complete:
                    self._pass_over(name, "complete", taken)
                elif later and (name in known or _is_another(name, record)):
                    self._pass_over(name, "as it was written", taken)
        if not files or not self.plan.script.partitions:
            return files[0] if files else None
        step, k = step_of(files[0]), 1
        path = record.folder / f"restart.{step}.in"
        while path.exists() and path.name not in record.made:  # someone else's
            path, k = record.folder / f"restart.{step}.{k}.in", k + 1
        if path.name not in record.made:
            record.made.append(path.name)
            record.save()
        text = f"{WORLD}{' '.join(map(quoted, files))}\nread_restart ${{restart_file}}\n"
        write_whole(path, text.encode())
        return str(path)

    def _pass_over(self, name: str, what: str, taken: str | None) -> None:
        """Say once what a restart file is not."""
        if name not in self.named:
            older = "" if taken is None else ": an older restart file is taken"
            self._warn(f"'{name}' is not {what}{older}")
            self.named.add(name)

    def run(self) -> RunReport:
        """Start lmp until it comes to its end, or nothing more can be done."""
        with self.watcher.signals():
            self._until_the_end()
            last, state = self.record.attempts[-1], run_state.FAILED
            if last.returncode == 0:
                state = run_state.STOPPED if last.stopped else run_state.FINISHED
            self.record.state = state
            self._save()
            newest = self._newest(self.record) if self.plan.script.can_go_on() else None
            if self.watcher.interrupted and newest is not None:  # see that it keeps its promise
                newest = self._that_is_read_back()
        folder, why = str(self.plan.folder), self.watcher.interrupted
        return RunReport(self.record.attempts, folder, self.earlier, why, newest)

    def _that_is_read_back(self) -> str | None:
        """Value of the variable restart: the newest restart file of which LAMMPS loses no atoms."""
        (path,) = self.plan.wish.program
        lmp = Program(path, dict(self.plan.wish.environment))
        while (newest := self._newest(self.record)) is not None:
            names = _files_of(newest)
            flags = self.plan.script.words_after_restart()
            lost = [name for name in names if loses_atoms(lmp, name, flags)]
            if not lost:
                break
            self._warn(f"LAMMPS loses atoms where it reads '{lost[0]}' back: it cannot be used")
            self.record.unreadable += [(one, base_file(one).stat().st_mtime_ns) for one in lost]
            self.record.save()
        return newest

    def _until_the_end(self) -> None:
        deaths = launches = in_vain = 0
        attempt: Attempt | None = None
        while attempt is None or self._is_as_before(attempt):
            attempt = self._start()
            if (
                attempt.unreadable
                and len(self.record.attempts) == self.earlier + 1
                and self.named_restart
            ):
                attempt.cause = f"lmp cannot read '{self.named_restart}', which --resume names"
                break
            if self._is_unreadable(attempt):
                continue
            if attempt.returncode == 0 or self.watcher.interrupted or will_recur(attempt.errors):
                break
            if attempt.began:
                deaths, launches = deaths + 1, 0
            else:
                launches += 1
            self._blame(attempt, launches)
            if not self.plan.retries or deaths > self.plan.retries or launches >= LAUNCHES:
                break
            newest = self._newest(self.record)
            if self.named_restart and not any(
                one.wrote for one in self.record.attempts[self.earlier :]
            ):
                newest = self.named_restart
            in_vain = in_vain + 1 if newest in (None, self.restart) else 0
            seconds = min(LONGEST, DELAY * (2**in_vain - 1))
            why = attempt.cause or f"exit code {attempt.returncode}"
            began = "lmp died" if attempt.began else "lmp did not start"
            soon = f" in {seconds:g} s" * (seconds > 0)
            self._warn(f"{began} ({why}); starting again{soon}")
            if not self._wait(seconds):
                break
            self.restart = newest
            if newest is None:
                self.say("there is no complete restart file yet: from the beginning")

    def _is_as_before(self, last: Attempt) -> bool:
        """Whether another start reads what the last one has read."""
        now = inputs.look(self.plan.script, self.record.inputs)
        changes = inputs.changes(self.record.inputs, now)
        if changes:
            names, meant = ", ".join(changes), inputs.options(changes)
            reason = f"{names}: no longer the same; give {meant} if that is meant"
            last.cause = "; ".join(filter(None, (last.cause, reason)))
        return not changes

    def _is_unreadable(self, attempt: Attempt) -> bool:
        """Whether lmp died on a restart file, and there is an older one to go on from."""
        if not attempt.unreadable or self.restart is None:
            if attempt.step is None and attempt.returncode != 0:
                return False  # it tells nothing of the files
            if attempt.restart is not None:  # one that can be read: the others are damaged
                self.record.unreadable += self.unreadable
            self.unreadable = []
            return False
        names = _files_of(self.restart)
        self.unreadable += [(name, base_file(name).stat().st_mtime_ns) for name in names]
        older = self._newest(self.record)
        if any(LOST in error for error in attempt.errors):
            self.record.unreadable += self.unreadable
            older = self._that_is_read_back()
            if older is None:
                attempt.cause = f"LAMMPS cannot read any of its restart files back; {OFF_FACES}"
        latest = reversed(self.record.attempts[self.earlier :])
        starts = len(list(itertools.takewhile(lambda one: one.unreadable, latest)))
        if older is None or older == self.restart or starts > UNREADABLE:
            self.unreadable = []
            return False
        self._warn(f"lmp cannot read '{self.restart}': going on from {older}")
        self.restart = older
        return True

    def _start(self) -> Attempt:
        """One start of lmp."""
        number, folder = len(self.record.attempts), self.plan.folder
        name = f"retry.{number}" if number else ""
        while name and (folder / name).exists():  # someone else's
            name += ".2"
        logs, ranks = folder / name, self.plan.wish.ranks
        command = self.plan.command(self.launcher, logs, number, self.restart)
        script = self._script(command)
        self.watcher.screens = script.screens(ranks)
        first = _step(self.restart)
        if number:
            self._keep_outputs(self.record, self.restart, self.spare)
            self.spare = False
        started = run_state.now(folder)
        attempt = Attempt(command, self.restart, started, name, ranks, first=first, wrote=[])
        known = (pattern for patterns in self._patterns(self.record) for pattern in patterns)
        self.watcher.written = Written(list(dict.fromkeys([*known, *script.restarts()])))
        for dump in script.dumps():  # which are about to append, some to files for the first time
            for file in dump.files if dump.appends else ():
                sizes = {str(path): path.stat().st_size for path in _files_of_ranks(file)}
                self.record.dumps.setdefault(str(file), sizes)
        self.record.attempts.append(attempt)
        self.say(Text(shlex.join(command)), soft_wrap=True)
        self.record.save()
        self.launcher.make_folders(logs, ranks)
        self.watcher.run(attempt, logs, self.record, script)
        self.watcher.look(attempt, self.record)
        self._save()
        return attempt

    def _script(self, command: list[str]) -> Script:
        """The words for lmp of a start, and the input."""
        (lmp,) = self.plan.wish.program
        if lmp not in command:  # it was of another lmp
            return self.plan.script
        return Script(command[command.index(lmp) + 1 :])

    def _keep_outputs(self, record: Simulation, restart: str | None, spare: bool) -> None:
        """See that the next start spares what the last one has written, and frames if so wished."""
        number, last = len(record.attempts), record.attempts[-1]
        script = self._script(last.command)
        own = {path.resolve() for path in script.logs()}  # the next one has another name
        screens = (path for path in script.screens(last.ranks or 1) if path)
        begun = {path.resolve() for path in (*map(Path, last.files), *screens)} - own
        named = {path.resolve() for path in script.logs_of_input()}
        _keep(sorted(begun | named), number)
        step = _step(restart)
        if step is not None and (last.step or 0) > step:
            self.say(f"steps {step} to {last.step} will come again, with their rows in the logs")
        for dump in script.dumps():
            for path, size in _sizes_before(dump, record).items():
                outputs.renew(
                    path, dump, number, size, step, restart is not None, spare, self._warn
                )

    def _wait(self, seconds: float) -> bool:
        """Let some time pass, unless a signal or the time limit comes first."""
        if self.watcher.end is not None and time.time() + seconds > self.watcher.end:
            self.watcher.interrupted = "the time limit"
        end = time.monotonic() + seconds
        while not self.watcher.interrupted and time.monotonic() < end:
            time.sleep(POLL)
        return not self.watcher.interrupted

    def _blame(self, attempt: Attempt, launches: int) -> None:
        """Name hosts that cannot be reached, and go on without them where that is wanted."""
        names = [h.name for h in self.plan.wish.hosts]
        by_ssh = self.launcher.by_ssh(self.plan.wish.extra)
        silent = failing(names, "true") if by_ssh else []
        if not silent and PROXY in attempt.cause:
            proxy = Path(self.launcher.path).with_name(PROXY)
            if lacking := failing(names, f"test -x {proxy}"):
                attempt.cause += f"; it is not on {', '.join(lacking)}"
        if silent:
            lost = f"{', '.join(silent)} cannot be reached"
            attempt.cause = "; ".join(filter(None, (attempt.cause, lost)))
        for name in silent or [attempt.host] * (launches > 1):
            self._drop(name)

    def _drop(self, host: str) -> None:
        plan, wish = self.plan, self.plan.wish
        left = [h for h in wish.hosts if h.name != host]
        slots = sum(h.slots for h in left)
        if not plan.drop_hosts or len(left) == len(wish.hosts):
            return
        if slots < plan.min_ranks or plan.script.partitions:  # these have a number of ranks
            return
        ranks = min(slots, wish.ranks)
        self.say(Text(f"going on without {host}, with {ranks} ranks"))
        self.plan = replace(plan, wish=replace(wish, hosts=left, ranks=ranks))


def _keep(paths: Iterable[Path], number: int) -> None:
    """Give files that a start has written another name."""
    for path in paths:
        if path.is_file():
            outputs.keep(path, number)


def _sizes_before(dump: Dump, record: Simulation) -> dict[Path, int]:
    """The files of a dump, and the bytes of each that were there before the simulation."""
    sizes = {}
    for file in dump.files:
        known = record.dumps.get(str(file))
        for path in _files_of_ranks(file):
            # Of a file that no start has named, nothing is the simulation's.
            sizes[path] = path.stat().st_size if known is None else known.get(str(path), 0)
    return sizes


def _step(restart: str | None) -> int | None:
    """The step that a start goes on from; None where that is not known, or from the beginning."""
    if restart is not None:
        with suppress(OSError, ValueError, IndexError):
            return step_of(_files_of(restart)[0])
    return None


def _is_another(name: str, record: Simulation) -> bool:
    """Whether the contents of a restart file are others than when it was written."""
    written = record.digests.get(name)
    return bool(written) and digest(name) != written


def _files_of(restart: str) -> list[str]:
    """The restart files that a value of the variable restart stands for."""
    if not STEP_OF_PARTITIONS.fullmatch(Path(restart).name):
        return [restart]
    return Path(restart).read_text().splitlines()[0].removeprefix(WORLD).split()


def _files_of_ranks(path: Path) -> list[Path]:
    """Files of a name that has % for their ranks, as far as they are there."""
    if "%" not in path.name:
        return [path] if path.is_file() else []
    head, tail = map(re.escape, path.name.split("%", 1))  # LAMMPS takes a second one as it is
    names = path.parent.iterdir() if path.parent.is_dir() else ()
    return sorted(p for p in names if re.fullmatch(rf"{head}\d+{tail}", p.name) and p.is_file())


def end_of_time(limit: float | None) -> float | None:
    """When to stop, by time.time(): some time before a limit, or before the end of a Slurm job."""
    now = time.time()
    if limit is None:
        end = _end_of_job()
        if end is None:
            return None
        limit = max(0.0, end - now)
    return now + limit - min(MARGIN, SHARE * limit)


def _end_of_job() -> float | None:
    """When Slurm will end the job that this is a part of, by time.time()."""
    if end_time := os.environ.get("SLURM_JOB_END_TIME", ""):
        return float(end_time) if end_time.isdigit() else None
    job = os.environ.get("SLURM_JOB_ID")
    if job is None or shutil.which("squeue") is None:
        return None
    command = ["squeue", "-h", "-j", job, "-o", "%e"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return datetime.fromisoformat(done.stdout.strip()).timestamp()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _own_log(arguments: Sequence[str], attempt: int) -> list[str]:
    """Let a restart keep the log of what was before it."""
    words = list(arguments)
    for k, option in enumerate(arguments[:-1]):
        if option in (*LOG, *PARTITION_LOG) and words[k + 1] != "none":
            words[k + 1] += f".retry{attempt}"
    named = any(option in arguments[:-1] for option in LOG)
    return words if named else [*words, "-log", f"log.lammps.retry{attempt}"]
