"""One simulation: all its starts, in one `pwmlff run` after the other."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pwmlff.commands import doctor
from pwmlff.files import write_whole
from pwmlff.launch import inputs, lmp, mpirun, outputs, ranks
from pwmlff.launch import run_state as record
from pwmlff.launch.causes import PROXY, failing, of_input
from pwmlff.launch.restarts import CLOCK, incomplete_files, newest_restart, step_of
from pwmlff.launch.run_state import Attempt, Lock, Record, clean, require_free
from pwmlff.launch.watcher import GRACE, POLL, Watcher
from pwmlff.report import CONTINUE, Failure, console

LAUNCHES = 10  # starts in a row in which lmp never began
LINGERS = 120.0  # seconds for which file systems keep the locks of a node that is lost
UNREADABLE = 3  # restart files in a row that lmp dies on, after which the cause is another one
DELAY, LONGEST = 1.0, 300.0  # seconds before the next start, doubled while nothing is gained
MARGIN, SHARE = 120.0, 0.1  # seconds before a time limit, and at most this share of it
RESUME = ("auto", "never")  # or a file
OF_PARTITIONS = "restart.{}.in"  # names their restart files of a step
STEP_OF_PARTITIONS = re.compile(r"restart\.(\d+)(?:\.\d+)?\.in")


@dataclass(frozen=True)
class Options:
    """What to run and how."""

    arguments: Sequence[str]  # of lmp
    ranks: int
    hosts: Sequence[mpirun.Host] = ()
    log_dir: Path = Path("logs")
    merge_stderr: bool = False
    bind: str | None = None
    retries: int = 0
    resume: str = "auto"  # auto, never or a restart file
    hang: float | None = None  # seconds; 0: never; None: see run.watcher
    time_limit: float | None = None  # seconds; None: that of the Slurm job, if it is one
    drop_hosts: bool = False
    min_ranks: int = 1
    threads: int = 1
    preflight: bool = True
    dry_run: bool = False
    lmp: str | None = None
    mpirun: str | None = None
    mpirun_options: Sequence[str] = ()
    plugin: Path | None = None  # pwmlffplugin.so or its folder


@dataclass(frozen=True)
class RunReport:
    """What became of a simulation."""

    attempts: list[Attempt]
    log_dir: str
    earlier: int = 0  # attempts of an earlier `pwmlff run`
    interrupted: str = ""  # name of the signal, or the time limit
    can_go_on: bool = False  # by the same command, from a restart file

    @property
    def ok(self) -> bool:
        """Whether lmp came to its end, at last."""
        last = self.attempts[-1]
        return last.returncode in (0, None) and not last.stopped

    @property
    def exit_code(self) -> int:
        """0, CONTINUE where it was interrupted and can go on, or 1."""
        if self.ok:
            return 0
        return CONTINUE if self.interrupted and self.can_go_on else 1

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "attempts": [asdict(attempt) for attempt in self.attempts]}

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
            place = "" if a.step is None else f" at step {a.step}"
            lines.append(Text(f"{start}: {end}{place} after {a.seconds:.1f} s"))
            lines += [Text(error, "red") for error in (*a.errors, a.cause) if error]
        if self.interrupted:
            lines.append(Text(f"stopped by {self.interrupted}", "red"))
        if self.exit_code == CONTINUE:
            lines.append(Text("the same command goes on with it"))
        elif not self.ok:
            lines.append(Text(f"what the ranks wrote is in {self.log_dir}"))
        return Group(*lines)


def run(options: Options) -> RunReport:
    """Run lmp to its end, or until nothing more can be done.

    Raises:
        Failure: the preflight found an error, or retries are asked of an input that cannot go on,
            or another `pwmlff run` has the folder of the logs.
    """
    mpirun.require_one_task()
    arguments, given = inputs.without_restart(options.arguments)
    if given is not None and options.resume in RESUME:
        options = replace(options, resume=given)
    options = replace(options, arguments=arguments)
    launcher, program = mpirun.find(options.mpirun), lmp.program(options.lmp, options.plugin)
    if options.retries:
        inputs.require_restartable(arguments)
    if options.resume not in RESUME and not _is_there(options.resume):
        raise Failure(f"found no restart file '{options.resume}' to go on from")
    if options.dry_run:
        restart = None if options.resume in RESUME else options.resume
        command = command_line(options, launcher, program, options.log_dir, 0, restart)
        console(stderr=True).print(Text(shlex.join(command)), soft_wrap=True)
        return RunReport([Attempt(command, restart, 0.0)], str(options.log_dir))
    if options.preflight:
        used, odd = preflight(options)
        console(stderr=True).print(Text(used), soft_wrap=True)
        for text in odd:
            console(stderr=True).print(Text(f"warning: {text}", "yellow"))
    lock = Lock(options.log_dir, wait=GRACE)
    try:
        told = record.read(options.log_dir)
        goes_on = told is not None and told.state != record.FINISHED
        require_alone(options.arguments, LINGERS if goes_on else 0.0)
        return _Supervisor(options, launcher, program, lock).run()
    finally:
        lock.release()


def require_alone(arguments: Sequence[str], wait: float = 0.0) -> None:
    """See that no other lmp writes to a deviation file of the input.

    Args:
        arguments: of lmp.
        wait: seconds for it to end, or for a file system to let go of the lock of a lost node.

    Raises:
        Failure: another one does.
    """
    deadline = time.monotonic() + wait
    for path in inputs.deviation_files(arguments):
        while _is_locked(path):
            if time.monotonic() > deadline:
                raise Failure(
                    f"another lmp writes to the deviation file '{path}'; let it end, or run in "
                    "another folder"
                )
            time.sleep(POLL)


def _is_locked(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # until the file is closed
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False


class _Supervisor:
    """Of one `pwmlff run`."""

    def __init__(
        self, options: Options, launcher: mpirun.Mpirun, program: lmp.Program, lock: Lock
    ) -> None:
        self.say = console(stderr=True).print
        self.options, self.launcher, self.program = options, launcher, program
        self.partitions = bool(inputs.partitions(options.arguments))
        self.unreadable: list[tuple[str, int]] = []  # restart files that lmp died on, in a row
        self.given = None if options.resume in RESUME else options.resume
        self.named: set[str] = set()  # restart files that were said to be incomplete
        self.spare = self.given is not None  # frames may be of what was not to be given up
        self.record, self.restart = self._open()
        self.earlier = len(self.record.attempts)
        self.watcher = Watcher(
            self.say,
            options.log_dir.resolve(),
            inputs.screens(options.arguments, options.ranks),
            options.hang,
            inputs.has_style(options.arguments),
            end_of_time(options.time_limit),
            lock.handle,
            launcher.proxies,
            program.path,
        )

    def _open(self) -> tuple[Record, str | None]:
        """The record to go on with, and the restart file."""
        options, folder = self.options, self.options.log_dir
        digest, began = inputs.digest(options.arguments), record.now(folder)
        old = record.read(folder)
        given = self.given
        if old is not None and given is not None:
            return replace(old, state=record.RUNNING), given
        if old is None:
            require_free(folder)
            return Record(folder, digest, began), given
        if old.state == record.FINISHED or options.resume == "never":
            clean(old)
            return Record(folder, digest, began), given
        newest = self._newest(old)
        if newest is None or not inputs.can_go_on(options.arguments):
            self.say("nothing of earlier starts can be gone on from: from the beginning")
            if old.attempts:
                self._keep_logs(old)
                self._keep_outputs(old, None, spare=True)
            clean(old)
            return Record(folder, digest, began), None
        if old.input != digest:
            raise Failure(
                f"'{folder / record.NAME}' tells of a simulation that has not come to its end, of "
                f"an input that was not the same as now; give --resume {newest} to go on with it, "
                "or --resume never to start over"
            )
        self.say(f"going on from {newest}, after {len(old.attempts)} start(s)")
        return replace(old, state=record.RUNNING), newest

    def _newest(self, told: Record) -> str | None:
        """Value of the variable restart: the newest restart file, or one that names partitions'."""
        patterns = told.restarts
        if not self.partitions and not any(patterns):  # nothing has told of them
            patterns = [inputs.restarts(self.options.arguments)]
        unreadable = (*told.unreadable, *self.unreadable)
        files = newest_restart(patterns, told.began, _starts(told.attempts), unreadable)
        self._tell_of_incomplete(patterns, told.began, files)
        if not files or not self.partitions:
            return files[0] if files else None
        step = str(step_of(files[0]))
        lines = ["variable restart_file world " + " ".join(files), "read_restart ${restart_file}"]
        text = "".join(f"{line}\n" for line in lines).encode()
        path, k = told.folder / OF_PARTITIONS.format(step), 1
        while path.exists() and path.name not in told.made:  # someone else's
            path, k = told.folder / OF_PARTITIONS.format(f"{step}.{k}"), k + 1
        if path.name not in told.made:
            told.made.append(path.name)
            told.save()
        write_whole(path, text)
        return str(path)

    def _tell_of_incomplete(
        self, patterns: Sequence[Sequence[str]], began: float, files: Sequence[str]
    ) -> None:
        """Name files that are newer than those that are gone on from."""
        times = [_base(name).stat().st_mtime_ns for name in files]
        for pattern, time_ns in zip(patterns, times, strict=False):
            for name in set(incomplete_files(pattern, began, time_ns)) - self.named:
                self.say(
                    Text(f"'{name}' is not complete: an older restart file is taken", "yellow")
                )
                self.named.add(name)

    def run(self) -> RunReport:
        """Start lmp until it comes to its end, or nothing more can be done."""
        with self.watcher.signals():
            self._until_the_end()
            return self._report()

    def _report(self) -> RunReport:
        """Keep in the record how it ended."""
        last = self.record.attempts[-1]
        if last.returncode == 0:
            self.record.state = record.STOPPED if last.stopped else record.FINISHED
        else:
            self.record.state = record.FAILED
        uses = inputs.can_go_on(self.options.arguments)
        can_go_on = uses and self._newest(self.record) is not None
        self.record.save()
        return RunReport(
            self.record.attempts,
            str(self.options.log_dir),
            self.earlier,
            self.watcher.interrupted,
            can_go_on,
        )

    def _until_the_end(self) -> None:
        deaths = launches = in_vain = 0
        while True:
            attempt = self._start()
            if attempt.unreadable and len(self.record.attempts) == self.earlier + 1 and self.given:
                attempt.cause = f"lmp cannot read '{self.given}', which --resume names"
                break
            if self._is_unreadable(attempt):
                continue
            if attempt.returncode == 0 or self.watcher.interrupted or of_input(attempt.errors):
                break
            if attempt.began:
                deaths, launches = deaths + 1, 0
            else:
                launches += 1
            self._blame(attempt, launches)
            if not self.options.retries or deaths > self.options.retries or launches >= LAUNCHES:
                break
            newest = self._newest(self.record) or self.given
            in_vain = in_vain + 1 if newest in (None, self.restart) else 0
            seconds = min(LONGEST, DELAY * (2**in_vain - 1))
            why = attempt.cause or f"exit code {attempt.returncode}"
            began = "lmp died" if attempt.began else "lmp did not start"
            soon = f" in {seconds:g} s" * (seconds > 0)
            self.say(Text(f"{began} ({why}); starting again{soon}", "yellow"))
            if not self._wait(seconds):
                break
            self.restart = newest
            if newest is None:
                self.say("there is no complete restart file yet: from the beginning")

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
        self.unreadable += [(name, _base(name).stat().st_mtime_ns) for name in names]
        older = self._newest(self.record)
        latest = reversed(self.record.attempts[self.earlier :])
        starts = sum(1 for _ in itertools.takewhile(lambda one: one.unreadable, latest))
        if older is None or older == self.restart or starts > UNREADABLE:
            self.unreadable = []
            return False
        self.say(Text(f"lmp cannot read '{self.restart}': going on from {older}", "yellow"))
        self.restart = older
        return True

    def _start(self) -> Attempt:
        """One start of lmp."""
        number, folder = len(self.record.attempts), self.options.log_dir
        name = f"retry.{number}" if number else ""
        while name and (folder / name).exists():  # someone else's
            name += ".2"
        logs = folder / name
        command = command_line(
            self.options, self.launcher, self.program, logs, number, self.restart
        )
        if number:
            self._keep_outputs(self.record, self.restart, self.spare)
            self.spare = False
        attempt = Attempt(command, self.restart, record.now(folder), name, self.options.ranks)
        arguments = self._arguments(attempt)
        self._measure_dumps(arguments)
        self.watcher.screens = inputs.screens(arguments, self.options.ranks)
        self.record.attempts.append(attempt)
        self.say(Text(shlex.join(command)), soft_wrap=True)
        self.record.save()
        self.launcher.make_folders(logs, self.options.ranks)
        self.watcher.run(attempt, logs, self.record, arguments)
        self.record.save()
        return attempt

    def _arguments(self, attempt: Attempt) -> Sequence[str]:
        """The words for lmp of a start."""
        if self.program.path not in attempt.command:  # it was of another lmp
            return self.options.arguments
        return attempt.command[attempt.command.index(self.program.path) + 1 :]

    def _keep_logs(self, told: Record) -> None:
        """See that another simulation spares the logs that the starts of one have had."""
        for number, attempt in enumerate(told.attempts, 1):
            for path in inputs.logs(self._arguments(attempt)):
                if path.is_file() and path.stat().st_mtime >= attempt.started - CLOCK:
                    outputs.keep(path, number)

    def _keep_outputs(self, told: Record, restart: str | None, spare: bool) -> None:
        """See that the next start spares what the last one has written.

        Args:
            told: of the last one.
            restart: file that the next one goes on from.
            spare: keep frames that are removed, too.
        """
        number, last = len(told.attempts), told.attempts[-1]
        arguments = self._arguments(last)
        own = {path.resolve() for path in inputs.logs(arguments)}  # the next one has another name
        begun = {Path(name).resolve() for name in last.files} - own
        named = {path.resolve() for path in inputs.logs_of_input(arguments)}
        screens = {p.resolve() for p in inputs.screens(arguments, last.ranks or 1) if p} - own
        for path in sorted(begun | named | screens):
            if path.is_file() and path.stat().st_mtime >= last.started - CLOCK:
                outputs.keep(path, number)
        for dump in inputs.dumps(arguments):
            new = {
                path: size
                for path, size in _sizes_before(dump, told).items()
                if path.stat().st_mtime >= told.began - CLOCK
            }
            if restart is None:
                said = outputs.begin_again(dump, new, number, spare)
            else:
                said = outputs.go_on_with(dump, new, _step_of(restart), number, spare)
            for text in said:
                self.say(Text(text, "yellow"))

    def _measure_dumps(self, arguments: Sequence[str]) -> None:
        """Take note of the sizes of files that dumps are about to append to for the first time."""
        for dump in inputs.dumps(arguments):
            for file in dump.files if dump.appends else ():
                sizes = {str(path): path.stat().st_size for path in _files_of_ranks(file)}
                self.record.dumps.setdefault(str(file), sizes)

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
        by_ssh = self.launcher.by_ssh(self.options.mpirun_options)
        names = [h.name for h in self.options.hosts] if by_ssh else []
        silent = failing(names, "true")
        if not silent and PROXY in attempt.cause:
            proxy = Path(self.launcher.path).with_name(PROXY)
            if lacking := failing(names, f"test -x {proxy}"):
                attempt.cause += f"; it is not on {', '.join(lacking)}"
        if silent:
            lost = f"{', '.join(silent)} cannot be reached"
            attempt.cause += f"{'; ' * bool(attempt.cause)}{lost}"
        for name in silent or [attempt.host] * (launches > 1):
            self._drop(name)

    def _drop(self, host: str) -> None:
        left = [h for h in self.options.hosts if h.name != host]
        slots = sum(h.slots for h in left)
        if not self.options.drop_hosts or len(left) == len(self.options.hosts):
            return
        if slots < self.options.min_ranks or self.partitions:  # these have a number of ranks
            return
        self.say(Text(f"going on without {host}, with {min(slots, self.options.ranks)} ranks"))
        self.options = replace(self.options, hosts=left, ranks=min(slots, self.options.ranks))


def _starts(attempts: Sequence[Attempt]) -> list[tuple[float, int]]:
    """When partitions were started, and from which step, where that is known."""
    found = []
    for attempt in attempts:
        if attempt.restart is None:
            found.append((attempt.started, 0))
        elif named := STEP_OF_PARTITIONS.fullmatch(Path(attempt.restart).name):
            found.append((attempt.started, int(named[1])))
    return found


def _sizes_before(dump: inputs.Dump, told: Record) -> dict[Path, int]:
    """The files of a dump, and the bytes of each that were there before the simulation."""
    found = {}
    for file in dump.files:
        known = told.dumps.get(str(file))
        for path in _files_of_ranks(file):
            # Of a file that no start has named, nothing is the simulation's.
            found[path] = path.stat().st_size if known is None else known.get(str(path), 0)
    return found


def _files_of(restart: str) -> list[str]:
    """The restart files that a value of the variable restart stands for."""
    if not STEP_OF_PARTITIONS.fullmatch(Path(restart).name):
        return [restart]
    first = Path(restart).read_text().splitlines()[0]
    return first.removeprefix("variable restart_file world ").split()


def _step_of(restart: str) -> int | None:
    """The step that a start goes on from; None where that is not known."""
    try:
        return step_of(_files_of(restart)[0])
    except (OSError, ValueError, IndexError):
        return None


def _files_of_ranks(path: Path) -> list[Path]:
    """Files of a name that has % for their ranks, as far as they are there."""
    if "%" not in path.name:
        return [path] if path.is_file() else []
    head, tail = map(re.escape, path.name.split("%", 1))  # LAMMPS takes a second one as it is
    names = path.parent.iterdir() if path.parent.is_dir() else ()
    return sorted(p for p in names if re.fullmatch(rf"{head}\d+{tail}", p.name) and p.is_file())


def _base(restart: str) -> Path:
    return Path(restart.replace("%", "base"))


def _is_there(restart: str) -> bool:
    return _base(restart).is_file()


def seconds_of(text: str) -> float:
    """Seconds of a time like 23:50:00, 1-12:00:00 or 90.

    Raises:
        Failure: it is of another form.
    """
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)|(\d+(?:\.\d*)?)", text)
    if match is None:
        raise Failure(f"found the time {text!r}, expected hours:minutes:seconds, or seconds")
    days, hours, minutes, seconds, alone = match.groups()
    if alone:
        return float(alone)
    return 86400 * int(days or 0) + 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds)


def end_of_time(limit: float | None) -> float | None:
    """When to stop, by time.time(): some time before a limit, or before the end of a Slurm job."""
    now = time.time()
    if limit is None:
        end = end_of_job()
        if end is None:
            return None
        limit = max(0.0, end - now)
    return now + limit - min(MARGIN, SHARE * limit)


def end_of_job() -> float | None:
    """When Slurm will end the job that this is a part of, by time.time()."""
    if told := os.environ.get("SLURM_JOB_END_TIME", ""):
        return float(told) if told.isdigit() else None
    job = os.environ.get("SLURM_JOB_ID")
    if job is None or shutil.which("squeue") is None:
        return None
    try:
        answer = subprocess.run(
            ["squeue", "-h", "-j", job, "-o", "%e"],
            capture_output=True, text=True, timeout=30, check=False,
        ).stdout.strip()  # fmt: skip
        return datetime.fromisoformat(answer).timestamp()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def preflight(options: Options) -> tuple[str, list[str]]:
    """Look whether the run can start; return which devices it will use, and what is odd.

    Raises:
        Failure: it cannot.
    """
    # Threads and cores are those of each node: the ranks of this one are not known here.
    here = 1 if options.hosts else options.ranks
    machine = doctor.Machine(
        options.lmp, options.mpirun, here, options.plugin, inputs.plugin_of(options.arguments)
    )
    names = [name for name in doctor.CHEAP if not (name == "threads" and options.hosts)]
    examined = doctor.examine(machine, names)
    wrong = [f"{row.name}: {row.found}; {row.remedy}" for row in examined.errors]
    found = ranks.check(
        ranks.Options(
            ranks=options.ranks,
            hosts=options.hosts,
            policy=inputs.device_policy(options.arguments),
            partition=inputs.partitions(options.arguments),
            bind=options.bind,
            mpirun=options.mpirun,
            mpirun_options=options.mpirun_options,
        )
    )
    wrong += found.errors
    if wrong:
        raise Failure("\n".join(["this run would fail:", *wrong]))
    odd = [f"{row.name}: {row.found}; {row.remedy}" for row in examined.rows if row.remedy]
    if options.hosts and (visible := os.environ.get("CUDA_VISIBLE_DEVICES")):
        odd.append(f"CUDA_VISIBLE_DEVICES={visible} of this host holds on all; unset it else")
    return ranks.in_one_line(found.ranks), odd + found.warnings


def command_line(
    options: Options,
    launcher: mpirun.Mpirun,
    program: lmp.Program,
    logs: Path,
    attempt: int,
    restart: str | None,
) -> list[str]:
    """The mpirun line of one start."""
    arguments = list(options.arguments)
    if not {"-echo", "-e"} & set(arguments):
        arguments += ["-echo", "both"]  # the screen tells of run and restart commands
    if not {"-nonbuf", "-nb"} & set(arguments):
        arguments.append("-nonbuf")
    if attempt:
        arguments = _own_log(arguments, attempt)
    if restart is not None:
        arguments += ["-var", "restart", restart]
    return launcher.command(
        mpirun.Wish(
            [program.path, *arguments],
            options.ranks,
            options.hosts,
            options.bind,
            logs,
            options.merge_stderr,
            {
                "OMP_NUM_THREADS": str(options.threads),
                "PWMLFF_SUPERVISED": str(options.log_dir.resolve()),
                **({} if restart is None else {"PWMLFF_GOES_ON": "1"}),
                **program.environment,
            },
            options.mpirun_options,
        )
    )


def _own_log(arguments: Sequence[str], attempt: int) -> list[str]:
    """Let a restart keep the log of what was before it."""
    result = list(arguments)
    named = False
    for k, word in enumerate(result[:-1]):
        if word in ("-log", "-l", "-plog", "-pl"):
            named |= word in ("-log", "-l")
            if result[k + 1] != "none":
                result[k + 1] += f".retry{attempt}"
    return result if named else [*result, "-log", f"log.lammps.retry{attempt}"]
