"""The mpirun of either MPI family, MPICH (hydra) and Open MPI, and where ranks write under it.

MPICH and Open MPI 4 leave the output of rank 3 in D/rank.3/stdout and D/rank.3/stderr. Open MPI 5
has D/rank.JOB.3.out and D/rank.JOB.3.err; its folders for ranks, dir=D, lose one of the two. Open
MPI pads the number with zeros where there are ten ranks or more. :func:`outputs` finds them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pwmlff import files
from pwmlff.launch import interpreter
from pwmlff.report import Failure

TIMEOUT = 30  # seconds for an answer to --version
MOST_RANKS = 2**17
MOST_OF_NODE = 4096  # ranks on a machine in a list of hosts
MOST_OF_CORE = 32  # ranks for each core of this machine, where it is the only one
#: Name of a machine as ssh takes it, with a user if need be: never an option.
HOST_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
#: Environment variables of a scheduler's job, which starts ranks on its hosts in a way of its own.
JOBS = re.compile("SLURM_JOB_?ID|PBS_JOBID|LSB_JOBID|COBALT_JOBID|LOADL_STEP_ID|PE_HOSTFILE")
#: What tells mpirun of hosts where it is given none: a job, or a file of hosts.
ALLOCATIONS = re.compile(f"{JOBS.pattern}|.*_HOST_?FILE|(OMPI|PRTE)_MCA_.*hostfile")
#: Where ranks write: in folders of their own, or in files with the name of the job.
OUTPUT = re.compile(r"rank\.(\d+)/(stdout|stderr)|rank\..+\.(\d+)\.(out|err)")


@dataclass(frozen=True)
class Host:
    """A machine and how many ranks it takes."""

    name: str
    slots: int


@dataclass(frozen=True)
class Wish:
    """What to start, in terms that both families know."""

    program: Sequence[str]
    ranks: int
    hosts: Sequence[Host] = ()
    bind: str | None = None  # core, none, ... as both families spell it; None: as they do it
    logs: Path | None = None  # folder for the output of each rank
    merge_stderr: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    extra: Sequence[str] = ()  # for mpirun, as they are


@dataclass(frozen=True)
class Mpirun:
    """A launcher."""

    path: str
    family: str  # hydra or openmpi
    version: tuple[int, ...]

    @property
    def description(self) -> str:
        """For people."""
        name = {"hydra": "MPICH (hydra)", "openmpi": "Open MPI"}[self.family]
        return f"{name} {'.'.join(map(str, self.version))}"

    @property
    def proxies(self) -> Sequence[str]:
        """Names of the processes that it starts on this machine and that stay until its end."""
        return ("hydra_pmi_proxy", "ssh") if self.family == "hydra" else ()

    def command(self, wish: Wish) -> list[str]:
        """The command line for a wish.

        Raises:
            Failure: it is for more ranks than can be.
        """
        require_possible(wish.ranks, bool(wish.hosts or wish.extra))
        hydra, new = self.family == "hydra", self.version[0] >= 5
        words = ["-n" if hydra else "-np", str(wish.ranks)]
        if wish.hosts:
            slots = ",".join(f"{h.name}:{h.slots}" for h in wish.hosts)
            words += ["-hosts" if hydra else "--host", slots]
        elif not hydra:  # which would not start more ranks than there are slots
            words += ["--map-by", ":oversubscribe"] if new else ["--oversubscribe"]
        if wish.bind:
            words += ["-bind-to" if hydra else "--bind-to", wish.bind]
        for name, value in wish.environment.items():
            words += ["-genv", name, value] if hydra else ["-x", f"{name}={value}"]
        if wish.logs:
            words += self._outputs(wish.logs, wish.merge_stderr)
        return [self.path, *words, *wish.extra, *wish.program]

    def _outputs(self, logs: Path, merge: bool) -> list[str]:
        if self.family == "hydra":
            stderr = f"{logs}/rank.%r/{'stdout' if merge else 'stderr'}"
            return ["-outfile-pattern", f"{logs}/rank.%r/stdout", "-errfile-pattern", stderr]
        if self.version[0] >= 5:
            return ["--output", f"file={logs}/rank:nocopy" + ",merge" * merge]
        options = ["--merge-stderr-to-stdout"] if merge else []
        return ["--output-filename", f"{logs}:nojobid,nocopy", *options]

    def by_ssh(self, extra: Sequence[str]) -> bool:
        """Whether it starts ranks by ssh, as hydra does unless options or a job say otherwise."""
        said = "-launcher" in extra or os.environ.get("HYDRA_LAUNCHER", "ssh") != "ssh"
        return self.family == "hydra" and not said and not any(map(JOBS.fullmatch, os.environ))

    def make_folders(self, logs: Path, ranks: int) -> None:
        """Make the folders that it expects to be there for the output of ranks."""
        logs.mkdir(parents=True, exist_ok=True)
        for k in range(ranks if self.family == "hydra" else 0):
            (logs / f"rank.{k}").mkdir(exist_ok=True)


def outputs(logs: Path, stream: str = "stdout") -> dict[int, Path]:
    """What ranks have written, stdout or stderr, by their number; wherever mpirun has put it."""
    paths: dict[int, Path] = {}
    for path in (*logs.glob("rank.*/std*"), *logs.glob("rank.*")):
        if match := OUTPUT.fullmatch(str(path.relative_to(logs))):
            folder, name, rank, ending = match.groups()
            if stream in (name, f"std{ending}"):
                paths[int(folder or rank)] = path
    return dict(sorted(paths.items()))


def all_outputs(logs: Path) -> list[Path]:
    """Both streams of all ranks."""
    return [*outputs(logs).values(), *outputs(logs, "stderr").values()]


def first_output(logs: Path) -> Path | None:
    """Where rank 0 writes stdout, found without looking at those of all ranks where it can be."""
    path = logs / "rank.0" / "stdout"
    return path if path.exists() else outputs(logs).get(0)


def require_possible(ranks: int, elsewhere: bool = False) -> None:
    """Refuse a number of ranks that would exhaust the machine, or never answer.

    Raises:
        Failure: it is more than MOST_RANKS; or, where no machines elsewhere are named, more than
            MOST_OF_CORE for each core.
    """
    most, where = MOST_RANKS, "a run"
    if not elsewhere and not any(map(ALLOCATIONS.fullmatch, os.environ)):
        cores = len(os.sched_getaffinity(0))
        most, where = MOST_OF_CORE * cores, f"this machine with {cores} cores (-H names others)"
    if ranks > most:
        raise Failure(f"found {ranks} ranks, expected at most {most} for {where}")


def require_one_task() -> None:
    """Raise Failure where srun has started this command several times, without MPI."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks.isdigit() and int(tasks) > 1:
        raise Failure(
            f"srun has started this command {tasks} times, none of which knows of the others; "
            "start it once, from the batch script or with srun -n 1 --overlap: it starts the ranks"
        )


def find(path: str | None = None) -> Mpirun:
    """Find mpirun and ask which family it is of.

    Args:
        path: the user's own; the one beside this Python or else the first on PATH when None.

    Raises:
        Failure: there is none, or it is of neither family.
    """
    executable = shutil.which(path) if path else interpreter.find_program("mpirun")
    if executable is None:
        raise Failure(f"found no '{path or 'mpirun'}': pip install mpich, or give --mpirun")
    try:
        answer = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=TIMEOUT, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"'{executable} --version' does not answer: {error}") from error
    for family, pattern in (
        ("openmpi", r"\((?:Open MPI|OpenRTE)\) (\d+(?:\.\d+)*)"),
        ("hydra", r"HYDRA build details:\s+Version:\s+(\d+(?:\.\d+)*)"),
    ):
        if match := re.search(pattern, answer):
            return Mpirun(executable, family, tuple(map(int, match[1].split("."))))
    first = answer.strip().splitlines()[0] if answer.strip() else "nothing"
    raise Failure(f"'{executable} --version' says {first}; expected MPICH (hydra) or Open MPI")


def hosts_of(listed: str, hostfile: Path | None) -> list[Host]:
    """Hosts of a list or of a file, one of which may be given.

    Raises:
        Failure: both are given, or one cannot be read.
    """
    if listed and hostfile:
        raise Failure("found both a list of hosts and a hostfile; give one of them")
    return read_hostfile(hostfile) if hostfile else parse_hosts(listed)


def parse_hosts(text: str) -> list[Host]:
    """Hosts of a list like h1:8,h2:8; one slot where none is given.

    Raises:
        Failure: a name is none that ssh takes, or the slots are not 1 to MOST_OF_NODE.
    """
    return [_host(word, "") for word in text.split(",") if word]


def read_hostfile(path: Path) -> list[Host]:
    """Hosts of a file: one in a line, `name`, `name:8` (MPICH) or `name slots=8` (Open MPI).

    Raises:
        Failure: the file is empty, a line is of neither form, or a host is refused as in
            :func:`parse_hosts`.
    """
    if not path.is_file():
        raise Failure(f"found no hostfile '{path}'")
    hosts = []
    for line in files.read_text(path).splitlines():
        name, *options = line.partition("#")[0].split() or [""]
        if name:
            slots = (o.removeprefix("slots=") for o in options if o.startswith("slots="))
            hosts.append(_host(name, next(slots, "")))
    if not hosts:
        raise Failure(f"hostfile '{path}' names no host; expected lines like 'node1:8'")
    return hosts


def _host(word: str, slots: str) -> Host:
    name, _, rest = word.partition(":")
    count = slots or rest or "1"
    if not HOST_NAME.fullmatch(name):
        raise Failure(
            f"host {word!r} has the name {name!r}; expected letters, digits, '.', '_' and '-', "
            "which must not come first, as in node1:8"
        )
    if not re.fullmatch("[0-9]{1,9}", count) or not 1 <= int(count) <= MOST_OF_NODE:
        raise Failure(
            f"host '{word}' has {count} slots; expected name:slots with 1 to {MOST_OF_NODE} slots"
        )
    return Host(name, int(count))
