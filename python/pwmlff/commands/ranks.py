"""`pwmlff ranks`: which rank runs on which GPU, and what is odd about it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typer import Option

from pwmlff.commands.base import Bind, Hostfile, Hosts, Mpirun, MpirunOptions
from pwmlff.launch import mpirun as launcher
from pwmlff.launch.rank_survey import Rank, compact, planned, replicas_of, survey, warnings_of
from pwmlff.report import Failure, Report

#: Of a plan: ranks, or nodes, times the GPUs of a node, which every rank of it sees.
MOST_VIEWS = 2**17
GIB = 2**30


@dataclass(frozen=True)
class RanksReport(Report):
    """What `pwmlff ranks` found."""

    ranks: list[Rank]
    strict: bool
    replicas: list[int]  # of -partition, one number for each rank; empty without

    @property
    def errors(self) -> list[str]:
        """What keeps a run from starting."""
        return [f"rank {r.rank}: {r.error}" for r in self.ranks if r.error]

    @property
    def warnings(self) -> list[str]:
        """What is odd."""
        return warnings_of(self.ranks)

    @property
    def ok(self) -> bool:
        """Whether a run can start; with strict, whether nothing is odd either."""
        return not self.errors and not (self.strict and self.warnings)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        ranks = [{**vars(r), "gpu": None if r.error else r.gpu} for r in self.ranks]
        for rank, replica in zip(ranks, self.replicas, strict=False):
            rank["replica"] = replica
        return {"ranks": ranks, "errors": self.errors, "warnings": self.warnings}

    def show(self) -> RenderableType:
        """One row for each rank."""
        rows = [_row(r) for r in self.ranks]
        for row, replica in zip(rows, self.replicas, strict=False):
            row["replica"] = str(replica)
        names = ("rank", "host", "local", *(["replica"] if self.replicas else []), "device")
        names += ("bus", "free / total GiB", "cores")
        table = Table(*names)
        for row in rows:
            table.add_row(*(row[name] for name in names))
        reasons = dict.fromkeys(f"host {r.host}: {r.reason}" for r in self.ranks if r.reason)
        lines = [Text(text) for text in reasons]
        lines += [Text(f"error: {text}", "red") for text in self.errors]
        lines += [Text(f"warning: {text}", "yellow") for text in self.warnings]
        return Group(table, *lines)


def _row(r: Rank) -> dict[str, str]:
    gpu = None if r.error else r.gpu
    memory = f"{gpu.total_memory / GIB:.1f}" if gpu and gpu.total_memory else ""
    cores = "not bound" if len(r.cpus) == r.ncpus else compact(r.cpus)
    return {
        "rank": str(r.rank),
        "host": r.host,
        "local": f"{r.local_rank} of {r.local_size}",
        "device": f"GPU {gpu.index} {gpu.name}" if gpu else "error" if r.error else "cpu",
        "bus": gpu.pci_bus_id if gpu else "",
        "free / total GiB": memory if r.free is None else f"{r.free / GIB:.1f} / {memory}",
        "cores": cores if r.cpus else "",
    }


def parse_plan(text: str) -> tuple[int, int]:
    """2x4 -> (2, 4): nodes and GPUs of each.

    Raises:
        Failure: it is of another form.
    """
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text, re.ASCII)
    if match is None or int(match[1]) == 0:
        raise Failure(f"--plan is '{text}', expected NODESxGPUS like 2x4")
    return int(match[1]), int(match[2])


def ranks(
    np: Annotated[int | None, Option("-np", "--np", min=1, help="Number of ranks.")] = None,
    hosts: Hosts = "",
    hostfile: Hostfile = None,
    strict: Annotated[bool, Option(help="Fail on warnings too.")] = False,
    plan: Annotated[
        str | None, Option(help="Nodes and GPUs of each, not there, to show, like 2x4.")
    ] = None,
    device: Annotated[
        str, Option(help="Devices as pair_style pwmlff takes them: auto, cpu, gpu, or 0,1.")
    ] = "auto",
    partition: Annotated[
        str, Option(help="Replicas, as lmp's -partition takes them, like 4x2.")
    ] = "",
    bind: Bind = None,
    mpirun: Mpirun = None,
    mpirun_options: MpirunOptions = "",
    inventory: Annotated[Path | None, Option(hidden=True)] = None,
) -> RanksReport:
    """Show which rank runs on which GPU and cores, and warn of what is odd.

    Starts itself under mpirun, or can be started by one.

    Example: pwmlff ranks -np 8 --hostfile hosts --strict

    Example: pwmlff ranks --plan 2x4 -np 16
    """
    extra, machines = shlex.split(mpirun_options), launcher.hosts_of(hosts, hostfile)
    if plan:
        nodes, gpus = parse_plan(plan)
        nranks = np or nodes * max(gpus, 1)
        if max(nodes, nranks) * max(gpus, 1) > MOST_VIEWS:
            raise Failure(
                f"--plan {plan} with {nranks} ranks is too large: ranks, and nodes, times the GPUs "
                f"of a node may be {MOST_VIEWS} at most"
            )
        placement = planned(nodes, gpus, nranks, device)
    else:
        wish = launcher.Wish([], np or 0, machines, bind, extra=extra)
        placement = survey(wish, device, inventory, mpirun)
    return RanksReport(placement, strict, replicas_of(partition, len(placement)))
