"""`pwmlff run`: lmp under mpirun, watched, and started again where a rank died.

    pwmlff run -np 8 --hostfile hosts --retries 3 -in in.x

Before it starts, the cheap part of `pwmlff doctor` and `pwmlff ranks` look whether it can. Each
rank writes to a file in D (--log-dir), after the first restart in D/retry.1, and so on; what they
are called is up to mpirun (:mod:`pwmlff.mpirun`).

When a rank dies, lmp is started again with the variable `restart` set to the newest complete
restart file that this run has written; the input decides what that means:

    if "$(is_defined(variable,restart))" then "read_restart ${restart}" else "read_data x.data"

An error of LAMMPS's own would come again, so it ends the run.

Children are looked for in /proc: psutil would take the place of these ten lines, and of the look at
free memory in :mod:`pwmlff.train.kalman` no more than the line without the limits of groups.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.status import Status
from rich.text import Text

from pwmlff import doctor, lmp, mpirun, plugin, ranks
from pwmlff.progress import Progress
from pwmlff.report import Failure, console

MAGIC = b"LammpS RestartT\0"  # first and last bytes of a complete restart file
MULTIPROC, INTEGER = 44, 4  # flag of the number of files, and bytes of an integer in them
GRACE = 10.0  # seconds for mpirun to end its ranks after a signal
CLOCK = 0.05  # seconds by which the times of files may lag behind the clock
POLL = 0.1  # seconds between two looks
QUIET = 30.0  # seconds between progress lines where the output is no terminal
PR_SET_CHILD_SUBREAPER = 36  # prctl: orphans become our children


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
    threads: int = 1
    preflight: bool = True
    dry_run: bool = False
    lmp: str | None = None
    mpirun: str | None = None
    mpirun_options: Sequence[str] = ()
    plugin: Path | None = None  # pwmlffplugin.so or its folder


@dataclass
class Attempt:
    """One start of lmp."""

    command: list[str]
    restart: str | None  # file that it went on from
    returncode: int | None = None
    step: int | None = None  # the last one seen
    ns_per_day: float | None = None
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunReport:
    """What became of a run."""

    attempts: list[Attempt]
    log_dir: str
    interrupted: str = ""  # name of the signal

    @property
    def ok(self) -> bool:
        """Whether lmp came to its end, at last."""
        return not self.interrupted and self.attempts[-1].returncode in (0, None)

    def data(self) -> dict[str, Any]:
        """Plain values."""
        attempts = [asdict(attempt) for attempt in self.attempts]
        return {"attempts": attempts, "log_dir": self.log_dir, "interrupted": self.interrupted}

    def show(self) -> RenderableType:
        """How each start ended."""
        lines = []
        for k, a in enumerate(self.attempts):
            start = f"start {k + 1}" + (f" from {a.restart}" if a.restart else "")
            if a.returncode is None:
                lines.append(Text(f"{start}: not started (dry run)"))
                continue
            end = "finished" if a.returncode == 0 else f"ended with exit code {a.returncode}"
            at = "" if a.step is None else f" at step {a.step}"
            lines.append(Text(f"{start}: {end}{at} after {a.seconds:.1f} s"))
            lines += [Text(error, "red") for error in a.errors]
        if self.interrupted:
            lines.append(Text(f"stopped by {self.interrupted}", "red"))
        if not self.ok:
            lines.append(Text(f"what the ranks wrote is in {self.log_dir}"))
        return Group(*lines)


def run(options: Options) -> RunReport:
    """Run lmp to its end, or until nothing more can be done.

    Raises:
        Failure: the preflight found an error, or retries are asked of an input that cannot go on.
    """
    say = console(stderr=True).print
    launcher, program = mpirun.find(options.mpirun), lmp.program(options.lmp, options.plugin)
    if options.retries:
        require_restartable(options.arguments)
    if options.preflight:
        for text in preflight(options):
            say(Text(f"warning: {text}", "yellow"))
    attempts: list[Attempt] = []
    began = time.time()
    watcher = _Watcher(say, screen_file(options.arguments))
    while True:
        logs = options.log_dir / (f"retry.{len(attempts)}" if attempts else "")
        restart = newest_restart(watcher.restarts, began) if attempts else None
        command = command_line(options, launcher, program, logs, len(attempts), restart)
        attempts.append(Attempt(command, restart))
        say(Text(shlex.join(command)), soft_wrap=True)
        if options.dry_run:
            break
        clean(options.log_dir if len(attempts) == 1 else logs)
        launcher.make_folders(logs, options.ranks)
        watcher.run(attempts[-1], logs)
        last = attempts[-1]
        if last.returncode == 0 or watcher.interrupted:
            break
        if last.errors or len(attempts) > options.retries:
            break
        say(Text(f"a rank died (exit code {last.returncode}); starting again", "yellow"))
    return RunReport(attempts, str(options.log_dir), watcher.interrupted)


def preflight(options: Options) -> list[str]:
    """Look whether the run can start; return what is odd.

    Raises:
        Failure: it cannot.
    """
    # Threads and cores are those of each node: the ranks of this one are not known here.
    here = 1 if options.hosts else options.ranks
    machine = doctor.Machine(
        options.lmp, options.mpirun, here, options.plugin, plugin_of(options.arguments)
    )
    names = [name for name in doctor.CHEAP if not (name == "threads" and options.hosts)]
    examined = doctor.examine(machine, names)
    wrong = [f"{row.name}: {row.found}; {row.remedy}" for row in examined.errors]
    found = ranks.check(
        ranks.Options(
            ranks=options.ranks,
            hosts=options.hosts,
            policy=device_policy(options.arguments),
            partition=partitions(options.arguments),
            mpirun=options.mpirun,
            mpirun_options=(*_binding(options), *options.mpirun_options),
        )
    )
    wrong += found.errors
    if wrong:
        raise Failure("\n".join(["this run would fail:", *wrong]))
    odd = [f"{row.name}: {row.found}; {row.remedy}" for row in examined.rows if row.remedy]
    return odd + found.warnings


def _binding(options: Options) -> list[str]:
    if options.bind is None:
        return []
    launcher = mpirun.find(options.mpirun)
    return ["-bind-to" if launcher.family == "hydra" else "--bind-to", options.bind]


def _values(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """The words that follow an option of lmp, up to the next option."""
    found: list[str] = []
    for k, word in enumerate(arguments):
        if word in names:
            for value in arguments[k + 1 :]:
                if value.startswith("-"):
                    break
                found.append(value)
    return found


def partitions(arguments: Sequence[str]) -> str:
    """What follows -partition."""
    return " ".join(_values(arguments, ("-partition", "-p")))


def screen_file(arguments: Sequence[str]) -> Path | None:
    """Where the first of several partitions writes its screen; None with one partition."""
    if not partitions(arguments):
        return None
    screen = _values(arguments, ("-screen", "-sc")) or ["screen"]
    named = _values(arguments, ("-pscreen", "-ps")) or screen
    return Path(f"{named[0]}.0")


def input_files(arguments: Sequence[str]) -> list[Path]:
    """The input of lmp."""
    return [Path(name) for name in _values(arguments, ("-in", "-i"))]


def input_lines(path: Path) -> list[str]:
    """Lines of an input and of the files that it includes by name; none where there is no file."""
    if not path.is_file():
        return []
    lines: list[str] = []
    for line in path.read_text(errors="replace").splitlines():
        lines.append(line)
        words = line.split()
        if len(words) > 1 and words[0] == "include" and Path(words[1]) != path:
            lines += input_lines(Path(words[1]))
    return lines


def device_policy(arguments: Sequence[str]) -> str:
    """The keyword device of pair_style pwmlff, as far as the input says it in so many words."""
    for path in input_files(arguments):
        for line in input_lines(path):
            words = line.split()
            if words[:1] == ["pair_style"] and "pwmlff" in words and "device" in words[:-1]:
                value = words[words.index("device") + 1]
                return "auto" if "$" in value else value
    return "auto"


def plugin_of(arguments: Sequence[str]) -> Path | None:
    """The plugin that the input loads, as far as it says it in so many words."""
    for path in input_files(arguments):
        for line in input_lines(path):
            words = line.split()
            if words[:2] == ["plugin", "load"] and words[2:] and words[2].endswith(plugin.FILE):
                return None if "$" in words[2] else Path(words[2])
    return None


def require_restartable(arguments: Sequence[str]) -> None:
    """Raise Failure for an input that does not use the variable `restart`."""
    if partitions(arguments):
        raise Failure(
            "--retries does not go with -partition: the variable restart names one file, and each "
            "partition would need its own"
        )
    files = input_files(arguments)
    if not files:
        raise Failure("--retries needs the input in a file: give -in FILE")
    for path in files:
        if not path.is_file():
            raise Failure(f"found no input '{path}'")
        text = "\n".join(input_lines(path))
        if not any(word in text for word in ("${restart}", "v_restart", "variable,restart")):
            raise Failure(
                f"--retries sets the variable restart, which '{path}' does not use; let it say\n"
                '  if "$(is_defined(variable,restart))" then "read_restart ${restart}" else ...'
            )


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
            {"OMP_NUM_THREADS": str(options.threads), **program.environment},
            options.mpirun_options,
        )
    )


def _own_log(arguments: Sequence[str], attempt: int) -> list[str]:
    """Let a restart keep the log of what was before it."""
    result = list(arguments)
    for k, word in enumerate(result[:-1]):
        if word in ("-log", "-l"):
            if result[k + 1] != "none":
                result[k + 1] += f".retry{attempt}"
            return result
    return [*result, "-log", f"log.lammps.retry{attempt}"]


def clean(logs: Path) -> None:
    """Remove what the ranks of an earlier run have left in a folder."""
    for stream in ("stdout", "stderr"):
        for path in mpirun.outputs(logs, stream).values():
            path.unlink()
    for folder in (*logs.glob("rank.*"), *logs.glob("retry.*")):
        if folder.is_dir() and folder.name.partition(".")[2].isdigit():
            shutil.rmtree(folder)


def newest_restart(patterns: Sequence[str], began: float) -> str | None:
    """The newest complete restart file that was written since a time, as read_restart wants it.

    Args:
        patterns: of the restart command: a name with * for the step, or two names used in turn.
            With % there is a file for each writing rank and one called base.
        began: seconds since the epoch; what is older is of another run.
    """
    found: dict[str, int] = {}
    for pattern in patterns:
        name = Path(pattern).name
        form = re.escape(name).replace(r"\*", "(?:.*)").replace("%", ")base(")
        for file in Path(pattern).parent.glob(name.replace("%", "base")):
            time_ns = file.stat().st_mtime_ns
            if not file.is_file() or time_ns < 1e9 * (began - CLOCK) or not is_complete(file):
                continue
            to_read = file
            if "%" in name:
                parts = re.fullmatch(f"({form})", file.name)
                if parts is None:  # a ? of the name stands for itself, not for any letter
                    continue
                head, tail = parts.groups()
                if not parts_are_complete(file, head, tail):
                    continue
                to_read = file.with_name(f"{head}%{tail}")
            found[str(to_read)] = time_ns
    return max(found, key=found.__getitem__, default=None)


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


class _Watcher:
    """Starts mpirun, shows how far it is, passes signals on, leaves no process behind."""

    def __init__(self, say: Any, screen: Path | None = None) -> None:
        self.say = say
        self.screen = screen  # of the first partition, where there are several
        self.progress = Progress()
        self.restarts: list[str] = []  # patterns of restart files, of all attempts
        self.interrupted = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._killed_at: float | None = None
        self._began = time.time()

    def run(self, attempt: Attempt, logs: Path) -> None:
        """Run one attempt to its end."""
        self.progress = Progress()
        others = children()
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        handlers = {s: signal.signal(s, self._pass_on) for s in (signal.SIGINT, signal.SIGTERM)}
        begin = time.monotonic()
        try:
            with (logs / "mpirun.out").open("wb") as output:
                process = self._process = subprocess.Popen(
                    attempt.command, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                self._watch(process, logs)
                attempt.returncode = process.returncode
        finally:
            reap(others)
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self.restarts = list(dict.fromkeys([*self.restarts, *self.progress.restarts]))
        attempt.seconds = time.monotonic() - begin
        attempt.step, attempt.ns_per_day = self.progress.step, self.progress.ns_per_day
        if attempt.returncode != 0:
            attempt.errors = lammps_errors(logs)

    def _pass_on(self, number: int, _: object) -> None:
        self.interrupted = signal.Signals(number).name
        self._killed_at = time.monotonic()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _watch(self, process: subprocess.Popen[bytes], logs: Path) -> None:
        screen = console(stderr=True)
        status = Status("starting", console=screen) if screen.is_terminal else None
        shown, rest, offset = time.monotonic(), b"", 0
        if status:
            status.start()
        try:
            while True:
                ended = process.poll() is not None
                news, rest, offset = self._read(logs, rest, offset)
                now = time.monotonic()
                if news and status:
                    status.update(self._text())
                elif news and now - shown > QUIET:
                    self.say(self._text())
                    shown = now
                if ended:
                    return
                if self._killed_at is not None and now - self._killed_at > GRACE:
                    os.killpg(process.pid, signal.SIGKILL)
                time.sleep(POLL)
        finally:
            if status:
                status.stop()

    def _text(self) -> str:
        return ("partition 0: " if self.screen else "") + self.progress.text()

    def _read(self, logs: Path, rest: bytes, offset: int) -> tuple[bool, bytes, int]:
        """Feed what rank 0 has written since."""
        path = self.screen or mpirun.outputs(logs).get(0)
        # The screen of a partition may be there from an earlier run.
        if path is None or not path.exists() or path.stat().st_mtime < self._began - CLOCK:
            return False, rest, offset
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
        *lines, rest = (rest + text).split(b"\n")
        now = time.monotonic()
        news = [self.progress.feed(line.decode(errors="replace"), now) for line in lines]
        return any(news), rest, offset + len(text)


def lammps_errors(logs: Path) -> list[str]:
    """Lines of any rank in which LAMMPS gave up."""
    found: dict[str, None] = {}  # each once, in their order
    for path in (*mpirun.outputs(logs).values(), *mpirun.outputs(logs, "stderr").values()):
        lines = path.read_text(errors="replace").splitlines()
        found |= dict.fromkeys(line.strip() for line in lines if line.startswith("ERROR"))
    return list(found)


def reap(others: set[int]) -> None:
    """End what mpirun left behind on this machine, and wait for it; spare what was there before."""
    deadline = time.monotonic() + GRACE
    while left := children() - others:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                continue
        if time.monotonic() > deadline:
            raise Failure(f"processes {sorted(left)} do not end; end them by hand")
        time.sleep(0.01)


def children() -> set[int]:
    """Processes whose parent is this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found
