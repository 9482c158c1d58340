"""The mpirun of either MPI family, and what the same wish is called there.

======================  =============================  ===========================================
wish                    MPICH (hydra)                  Open MPI
======================  =============================  ===========================================
number of ranks         -n 4                           -np 4
hosts with slots        -hosts a:2,b:2                 --host a:2,b:2
bind ranks              -bind-to core                  --bind-to core
environment variable    -genv NAME VALUE               -x NAME=VALUE
output of each rank     -outfile-pattern D/rank.%r/..  --output-filename D:nojobid,nocopy (4)
                        -errfile-pattern ...           --output dir=D:nojobid,nocopy (5)
stderr with stdout      the same file for both         --merge-stderr-to-stdout (4), :merge (5)
more ranks than slots   as it is                       --oversubscribe (4), --map-by :oversubscribe
======================  =============================  ===========================================

Both leave the output of rank 3 in D/rank.3/stdout and D/rank.3/stderr. Open MPI pads the number
with zeros where there are ten ranks or more.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pwmlff.report import Failure

TIMEOUT = 30  # seconds for an answer to --version


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

    def command(self, wish: Wish) -> list[str]:
        """The command line for a wish."""
        spell = self._hydra if self.family == "hydra" else self._openmpi
        return [self.path, *spell(wish), *wish.extra, *wish.program]

    def _hydra(self, wish: Wish) -> list[str]:
        words = ["-n", str(wish.ranks)]
        if wish.hosts:
            words += ["-hosts", ",".join(f"{h.name}:{h.slots}" for h in wish.hosts)]
        if wish.bind:
            words += ["-bind-to", wish.bind]
        for name, value in wish.environment.items():
            words += ["-genv", name, value]
        if wish.logs:
            stderr = "stdout" if wish.merge_stderr else "stderr"
            words += ["-outfile-pattern", f"{wish.logs}/rank.%r/stdout"]
            words += ["-errfile-pattern", f"{wish.logs}/rank.%r/{stderr}"]
        return words

    def _openmpi(self, wish: Wish) -> list[str]:
        new = self.version[0] >= 5
        words = ["-np", str(wish.ranks)]
        if wish.hosts:
            words += ["--host", ",".join(f"{h.name}:{h.slots}" for h in wish.hosts)]
        else:
            words += ["--map-by", ":oversubscribe"] if new else ["--oversubscribe"]
        if wish.bind:
            words += ["--bind-to", wish.bind]
        for name, value in wish.environment.items():
            words += ["-x", f"{name}={value}"]
        if wish.logs and new:
            merge = ",merge" if wish.merge_stderr else ""
            words += ["--output", f"dir={wish.logs}:nojobid,nocopy{merge}"]
        elif wish.logs:
            words += ["--output-filename", f"{wish.logs}:nojobid,nocopy"]
            words += ["--merge-stderr-to-stdout"] if wish.merge_stderr else []
        return words


def find(path: str | None = None) -> Mpirun:
    """Find mpirun and ask which family it is of.

    Args:
        path: the user's own; the one beside this Python or else the first on PATH when None.

    Raises:
        Failure: there is none, or it is of neither family.
    """
    beside = Path(sys.executable).with_name("mpirun")
    wanted = path or (str(beside) if beside.is_file() else "mpirun")
    found = shutil.which(wanted)
    if found is None:
        raise Failure(f"found no '{wanted}': pip install mpich, or give --mpirun")
    try:
        answer = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=TIMEOUT, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"'{found} --version' does not answer: {error}") from error
    for family, pattern in (
        ("openmpi", r"\((?:Open MPI|OpenRTE)\) (\d+(?:\.\d+)*)"),
        ("hydra", r"HYDRA build details:\s+Version:\s+(\d+(?:\.\d+)*)"),
    ):
        if match := re.search(pattern, answer):
            return Mpirun(found, family, tuple(map(int, match[1].split("."))))
    first = answer.strip().splitlines()[0] if answer.strip() else "nothing"
    raise Failure(f"'{found} --version' says {first}; expected MPICH (hydra) or Open MPI")


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
        Failure: a number of slots is not a positive integer.
    """
    return [_host(word, "") for word in text.split(",") if word]


def read_hostfile(path: Path) -> list[Host]:
    """Hosts of a file: one in a line, `name`, `name:8` (MPICH) or `name slots=8` (Open MPI).

    Raises:
        Failure: the file is empty or a line is of neither form.
    """
    if not path.is_file():
        raise Failure(f"found no hostfile '{path}'")
    hosts = []
    for line in path.read_text().splitlines():
        name, *options = line.partition("#")[0].split() or [""]
        if name:
            slots = [o.removeprefix("slots=") for o in options if o.startswith("slots=")]
            hosts.append(_host(name, slots[0] if slots else ""))
    if not hosts:
        raise Failure(f"hostfile '{path}' names no host; expected lines like 'node1:8'")
    return hosts


def _host(word: str, slots: str) -> Host:
    name, _, after = word.partition(":")
    count = slots or after or "1"
    if not name or not count.isdigit() or int(count) < 1:
        raise Failure(f"host '{word}' has {count} slots; expected name:slots with slots above zero")
    return Host(name, int(count))
