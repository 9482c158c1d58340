"""Why lmp did not come to its end: from what the launcher and the ranks have written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pwmlff.launch import mpirun

LAUNCHER = "mpirun.out"  # in the folder of a start
ANSWER = 5  # seconds for ssh to connect

#: What helps where nodes cannot resolve the name of mpirun's host, or not to an address of it.
BY_ADDRESS = "--mpirun-options '-iface eth0' has it give the address of that interface instead"
#: What a launcher says of a node or a rank: pattern with the names `host` and `why`, and a text.
LAUNCHER_ERRORS = (
    (r"ssh: (?:connect to host|Could not resolve hostname) (?P<host>\S+?)(?: port \d+)?: "
     r"(?P<why>.*)", "{host} cannot be reached: {why}"),
    (r"Connection to (?P<host>\S+) closed by remote host(?P<why>)", "{host} closed its connection"),
    (r"Timeout, server (?P<host>\S+) not responding(?P<why>)", "{host} does not answer"),
    (r"(?P<host>\S+): Permission denied \((?P<why>.*)\)", "{host} refuses the login: {why}"),
    (r"PID \d+ RUNNING AT (?P<host>\S+)[\s\S]*?EXIT STRING: (?P<why>.*)",
     "a rank on {host} ended: {why}"),
    (r"PID \d+ RUNNING AT (?P<host>\S+)[\s\S]*?EXIT CODE: (?P<why>\d+)",
     "a rank on {host} ended with exit code {why}"),
    (r"on node (?P<host>\S+) exited on signal (?P<why>\d+ \([^)]*\))",
     "a rank on {host} ended by signal {why}"),
    (r'unable to connect from "(?P<host>[^"]+)" to "(?P<why>[^"]+)"',
     f"{{host}} cannot reach the host of mpirun by its name {{why}}; {BY_ADDRESS}"),
    (r"@(?P<host>[^\]]+)\].*unable to get host address for (?P<why>\S+)",
     f"{{host}} does not know the host of mpirun by its name {{why}}; {BY_ADDRESS}"),
    (r"lost communication with a remote daemon[\s\S]*?Remote daemon:.* on node (?P<host>\S+)"
     r"(?P<why>)", "the daemon of Open MPI on {host} was lost"),
    (r"srun: error: (?P<host>[\w.-]+): (?P<why>task.*)", "Slurm says of {host}: {why}"),
    (r"slurmstepd: error: (?P<why>.*) ON (?P<host>\S+)", "Slurm says of {host}: {why}"),
)  # fmt: skip
#: What mpirun says where it does not find its proxy on a node, and what is said of it.
PROXY = "hydra_pmi_proxy"
NO_PROXY = re.compile(rf"{PROXY}['\"]?: (No such file or directory|not found)")
#: An error of LAMMPS: with its place in the source, then the command. Nothing follows.
ERROR = re.compile(r"^(?=ERROR(?: on proc \d+)?: )", re.MULTILINE)
PLACE = re.compile(r"\([^\s()]+:\d+\)$", re.MULTILINE)
TRAILER = re.compile(r"Last (?:input line|command): .*|For more information .*|-->.*|[\s^~]*")
TAIL = 65536  # bytes at the end of a file, in which an error is looked for
#: What LAMMPS writes before and after it reads a restart file.
READS, READ = b"Reading restart file", b"  read_restart CPU ="
BEFORE_INPUT = re.compile(r"LAMMPS \(|\s+using \d+ OpenMP thread|Loaded \d+ plugins|\s*$")
#: Errors that a machine makes, not an input: these are worth another try.
MACHINE_ERRORS = re.compile(
    r"CUDA|cuda|NCCL|GPU \d|out of memory|Input/output error|Stale file handle|No space left|"
    r"Connection (?:reset|refused|timed out)|No route to host|Transport endpoint|"
    r"did not come here within|another process writes to the |"
    r"MPI_ERR|uncorrectable"
)


@dataclass(frozen=True)
class Cause:
    """What is known; empty where nothing is."""

    text: str = ""
    host: str = ""  # to blame


def failing(hosts: Sequence[str], *command: str) -> list[str]:
    """Those on which a command does not succeed within a few seconds, by ssh as hydra calls it."""
    extra = shlex.split(os.environ.get("HYDRA_LAUNCHER_EXTRA_ARGS", ""))
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={ANSWER}", *extra]
    asked = [
        subprocess.Popen(
            ["ssh", *options, host, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for host in hosts
    ]  # fmt: skip
    silent = []
    deadline = time.monotonic() + 2 * ANSWER
    for host, process in zip(hosts, asked, strict=True):
        with suppress(subprocess.TimeoutExpired):
            if process.wait(max(0.0, deadline - time.monotonic())) == 0:
                continue
        process.kill()
        process.wait()
        silent.append(host)
    return silent


def written(logs: Path, logs_of_lmp: Iterable[Path] = ()) -> list[Path]:
    """What ranks and partitions of a start have written, each file once."""
    paths = (path for path in (*mpirun.all_outputs(logs), *logs_of_lmp) if path.is_file())
    return list({path.resolve(): path for path in paths}.values())


def lammps_errors(paths: Iterable[Path]) -> list[str]:
    """Errors in which LAMMPS gave up: the last that it wrote to one of these files."""
    all_errors: dict[str, None] = {}  # each once, in their order
    for path in paths:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            text = file.read().decode(errors="replace")
        errors: list[str] = []
        for part in reversed(ERROR.split(text)[1:]):
            site = PLACE.search(part)
            if site is None or not all(map(TRAILER.fullmatch, part[site.end() :].splitlines())):
                break
            errors.insert(0, " ".join(part[: site.end()].split()))
        all_errors |= dict.fromkeys(errors)
    return list(all_errors)


def begins_input(path: Path) -> bool:
    """Whether lmp has written more than what it says before it reads its input."""
    with path.open("rb") as file:
        lines = file.read(TAIL).decode(errors="replace").splitlines()
    return not all(map(BEFORE_INPUT.match, lines))


def died_reading(path: Path) -> bool:
    """Whether lmp had begun to read a restart file, and not come to its end, by what it wrote."""
    text = path.read_bytes()
    return b"\n" + READ not in text[text.rfind(b"\n" + READS) :] and b"\n" + READS in text


def will_recur(errors: list[str]) -> bool:
    """Whether errors of LAMMPS would come again: none of them is of a machine."""
    return bool(errors) and not any(MACHINE_ERRORS.search(error) for error in errors)


def explain(logs: Path) -> Cause:
    """What the launcher of a start has reported of its end."""
    path = logs / LAUNCHER
    text = path.read_text(errors="replace") if path.is_file() else ""
    if NO_PROXY.search(text):
        return Cause(
            f"mpirun's {PROXY} was not found on a node: the environment with mpirun has to be in "
            "the same place on all"
        )
    for pattern, words in LAUNCHER_ERRORS:
        if match := re.search(pattern, text):
            groups = {name: value.strip() for name, value in match.groupdict().items()}
            return Cause(words.format(**groups), groups["host"])
    lines = [line.strip() for line in text.splitlines() if line.strip(" =\n")]
    return Cause(f"mpirun says: {lines[-1]}" if lines else "")
