"""Which rank runs on which GPU, and what is odd about it.

Every rank asks the function that pair_style pwmlff asks (:mod:`pwmlff.devices`) and looks at its
own GPUs, cores and environment; rank 0 gathers with mpi4py. A plan of a cluster that is not there
fills the same records.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType

from pwmlff import devices, plugin
from pwmlff.launch import interpreter, mpirun
from pwmlff.report import Failure, ranges, restored

#: The number of a rank on its node, as launchers say it.
LOCAL_RANK = (
    "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK",
    "SLURM_LOCALID",
)  # fmt: skip
#: Variable and value that lead mpi4py to Open MPI: else it takes the MPICH beside this Python.
OPEN_MPI_ABI = ("MPI4PY_MPIABI", "openmpi")
TIMEOUT = 120  # seconds for all ranks to answer
#: 0 1 2 5 -> "0-2,5", all of them.
compact = partial(ranges, separator=",", most=mpirun.MOST_RANKS)


@dataclass(frozen=True)
class Rank:
    """One rank, and what it sees."""

    rank: int
    node: int  # lowest rank that shares memory with it
    host: str
    local_rank: int  # among the ranks of its node
    local_size: int
    visible: tuple[devices.GPU, ...]
    device: int  # index into visible, or devices.CPU
    error: str = ""  # instead of a device
    reason: str = ""  # why it sees no GPU
    free: int | None = None  # bytes of memory of that GPU; None where nobody looked
    cpus: tuple[int, ...] = ()  # cores it may run on; empty where nobody looked
    ncpus: int = 0  # cores of the node
    sockets: tuple[int, ...] = ()  # of those cores
    environment: dict[str, str] = field(default_factory=dict)  # CUDA_VISIBLE_DEVICES, local ranks

    @property
    def gpu(self) -> devices.GPU | None:
        """The GPU it runs on."""
        return None if self.device == devices.CPU else self.visible[self.device]


def in_one_line(ranks: Sequence[Rank]) -> str:
    """Which devices the ranks use, and why not a GPU."""
    names: dict[str, list[Rank]] = defaultdict(list)
    for r in ranks:
        names[r.gpu.name if r.gpu else ""].append(r)
    parts = []
    for name, users in names.items():
        gpus = len({r.gpu.uuid for r in users if r.gpu})
        reasons = {r.reason: r.host for r in users if r.reason}
        why = "; ".join(f"{host}: {reason}" for reason, host in reasons.items())
        where = f"{_count(gpus, 'GPU')} ({name})" if gpus else "the CPU" + f" ({why})" * bool(why)
        parts.append(f"{_count(len(users), 'rank')} on {where}")
    return "devices: " + ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def warnings_of(ranks: Sequence[Rank]) -> list[str]:
    """What is odd about a set of ranks: one text for each oddity of each node."""
    nodes: dict[int, list[Rank]] = defaultdict(list)
    for r in ranks:
        nodes[r.node].append(r)
    texts = [text for members in nodes.values() for text in _node_warnings(members)]
    return [*texts, *_unequal(list(nodes.values()))]


def _node_warnings(members: Sequence[Rank]) -> Iterator[str]:
    where = f"host {members[0].host}"
    used: dict[str, list[int]] = defaultdict(list)
    for r in members:
        if r.gpu and not r.error:
            used[r.gpu.uuid].append(r.rank)
    seen = {gpu.uuid: gpu.pci_bus_id for r in members for gpu in r.visible}
    for uuid, sharers in used.items():
        if len(sharers) > 1:
            yield f"{where}: ranks {compact(sharers)} share GPU {seen[uuid]}; they compute in turns"
    idle = [place for uuid, place in seen.items() if uuid not in used]
    if idle:
        yield f"{where}: no rank uses GPU {', '.join(idle)}; start more ranks"
    yield from _views(where, members)
    yield from _cpus(where, members)
    for r in members:
        if r.gpu and not r.error and not r.gpu.supported:
            yield f"rank {r.rank}: GPU {r.gpu.pci_bus_id} is older than the compiled kernels"
        claim = next((name for name in LOCAL_RANK if name in r.environment), None)
        if claim and r.environment[claim] != str(r.local_rank):
            yield (
                f"rank {r.rank}: the launcher says {claim}={r.environment[claim]}, but it is local "
                f"rank {r.local_rank} of host {r.host}; replicas (-partition) go by the former"
            )


def _views(where: str, members: Sequence[Rank]) -> Iterator[str]:
    """Ranks of a node that see different GPUs, unless the launcher gave each its own."""
    views = Counter(frozenset(gpu.uuid for gpu in r.visible) for r in members)
    disjoint = len(frozenset().union(*views)) == sum(map(len, views))
    if len(views) == 1 or (len(views) == len(members) and disjoint and all(views)):
        return  # all see the same, or each has its own: a scheduler narrowed them
    ((usual, _),) = views.most_common(1)
    for r in members:
        if frozenset(gpu.uuid for gpu in r.visible) != usual:
            value = r.environment.get("CUDA_VISIBLE_DEVICES")
            hint = "" if value is None else f" (CUDA_VISIBLE_DEVICES={value})"
            yield (
                f"{where}: rank {r.rank} sees {_count(len(r.visible), 'GPU')}{hint}, most ranks "
                f"see {len(usual)} or other ones"
            )


def _cpus(where: str, members: Sequence[Rank]) -> Iterator[str]:
    """Ranks bound across sockets, or to the same cores."""
    bound = [r for r in members if r.cpus and len(r.cpus) < r.ncpus]
    wide = [r for r in bound if len(r.sockets) > 1]
    for r in wide:
        yield (
            f"{where}: rank {r.rank} is bound to cores {compact(r.cpus)} of sockets "
            f"{compact(r.sockets)}; bind it within one socket"
        )
    sets = Counter(r.cpus for r in bound)
    crowded = {cpus: count for cpus, count in sets.items() if count > len(cpus)}
    for cpus, count in crowded.items():
        yield (
            f"{where}: {count} ranks are bound to {_count(len(cpus), 'core')} ({compact(cpus)}); "
            "start fewer ranks or let the launcher bind each to its own"
        )
    cores = Counter(core for r in bound for core in r.cpus)
    partly = [core for core, count in cores.items() if count > 1]
    if partly and len(set(map(frozenset, sets))) > 1 and not wide and not crowded:
        yield f"{where}: cores {compact(partly)} are bound to several ranks"


def _unequal(nodes: Sequence[Sequence[Rank]]) -> Iterator[str]:
    """Nodes with other numbers of ranks or GPUs: the slowest sets the pace."""
    for what, counts in (
        ("ranks", [len(members) for members in nodes]),
        ("GPUs", [len({g.uuid for r in members for g in r.visible}) for members in nodes]),
    ):
        if len(set(counts)) > 1:
            hosts = [members[0].host for members in nodes]
            listed = (f"{host} {count}" for host, count in zip(hosts, counts, strict=True))
            yield f"nodes have different numbers of {what}: {', '.join(listed)}"


def replicas_of(partition: str, nranks: int) -> list[int]:
    """Number of the replica of each rank, for lmp's `-partition` "8x2" or "4 2 2".

    Raises:
        Failure: the words are no such list, or do not add up to the ranks.
    """
    parts: list[tuple[int, int]] = []  # number of replicas, ranks of each
    for word in partition.split():
        match = re.fullmatch(r"(?:(\d{1,9})x)?(\d{1,9})", word, re.ASCII)
        if match is None or int(match[2]) == 0:
            raise Failure(f"--partition holds '{word}', expected words like 4x2 or 2")
        parts.append((int(match[1] or 1), int(match[2])))
    total = sum(count * size for count, size in parts)
    if parts and total != nranks:
        raise Failure(f"--partition '{partition}' is for {total} ranks, found {nranks}")
    sizes = [size for count, size in parts for _ in range(count)]
    return [k for k, size in enumerate(sizes) for _ in range(size)]


def _choose(local_rank: int, local_size: int, gpus: int, policy: str) -> tuple[int, str]:
    """Device of a rank, or why there is none; the numbers are those of ranks that see the same."""
    try:
        return devices.device_of_rank(local_rank, local_size, gpus, policy), ""
    except ValueError as error:
        return devices.CPU, str(error)


def planned(nodes: int, gpus: int, nranks: int, policy: str) -> list[Rank]:
    """Ranks of a cluster that is not there; the nodes take equal shares, in blocks."""
    result: list[Rank] = []
    for node in range(nodes):
        size = nranks // nodes + (node < nranks % nodes)
        visible = tuple(
            devices.GPU(k, "planned", f"node{node}:GPU{k}", f"node{node}-{k}", (0, 0), 0, True)
            for k in range(gpus)
        )
        first, host = len(result), f"node{node}"
        for k in range(size):
            chosen = _choose(k, size, gpus, policy)
            result.append(Rank(first + k, first, host, k, size, visible, *chosen))
    return result


def mpi() -> ModuleType:
    """mpi4py's MPI, initialized, of the family that started this process."""
    if "OMPI_COMM_WORLD_RANK" in os.environ:  # set by Open MPI's mpirun alone
        os.environ.setdefault(*OPEN_MPI_ABI)
    from mpi4py import MPI  # noqa: PLC0415  initializes MPI

    return MPI


def survey(
    wish: mpirun.Wish, policy: str, inventory: Path | None = None, path: str | None = None
) -> list[Rank]:
    """Gather the ranks that a launcher started, or start them, one thread each.

    Under a launcher all its ranks call this; those that do not report leave with SystemExit(0).

    Args:
        wish: ranks, hosts and how they are bound; no ranks: one for each slot, GPU or core,
            whichever is known first.
        policy: the devices, as pair_style pwmlff takes them.
        inventory: file of the GPUs, of which CUDA_VISIBLE_DEVICES leaves some; none: real ones.
        path: of mpirun, as :func:`pwmlff.launch.mpirun.find` takes it.
    """
    if any(name in os.environ for name in plugin.RANK_VARIABLES):
        gathered = gather(policy, inventory)
        if gathered is None:
            raise SystemExit(0)
        return gathered
    mpirun.require_one_task()
    nranks = wish.ranks or sum(h.slots for h in wish.hosts)
    if not nranks:
        nranks = len(_look(inventory)[0]) or os.cpu_count() or 1
    program = interpreter.command(AS_RANK, policy, *([str(inventory)] if inventory else []))
    launcher = mpirun.find(path)
    wish = replace(wish, program=program, ranks=nranks, environment={"OMP_NUM_THREADS": "1"})
    command = launcher.command(wish)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)  # srun and ssh among them
            raise Failure(f"{' '.join(command)}: no answer within {TIMEOUT} s") from error
    marked = [line for line in output.splitlines() if line.startswith(MARK)]
    if process.returncode != 0 or not marked:
        lines = (errors + output).strip().splitlines()[-8:]
        raise Failure("\n".join([f"{' '.join(command)}: exit code {process.returncode}", *lines]))
    ranks = restored(list[Rank], json.loads(marked[0].removeprefix(MARK)))
    if len(ranks) != nranks:
        raise Failure(
            f"{launcher.description} started {nranks} ranks, but mpi4py sees {len(ranks)} of them: "
            "they are of different MPI families; see pwmlff doctor"
        )
    return ranks


#: What each rank runs, with the words POLICY [INVENTORY].
AS_RANK = "from pwmlff.launch.rank_survey import as_rank; as_rank(*sys.argv[1:])"
MARK = "pwmlff-ranks "  # before the line with what was gathered: launchers write to stdout too


def _look(inventory: Path | None) -> tuple[tuple[devices.GPU, ...], str]:
    """GPUs that this process sees, or those of a file; or why there is none."""
    if inventory is None:
        detected = devices.inventory()
        return detected.gpus, detected.reason
    try:
        gpus = restored(list[devices.GPU], json.loads(inventory.read_bytes()))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Failure(f"'{inventory}' is no inventory of GPUs: {error}") from error
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        gpus = [gpus[int(k)] for k in chosen.split(",") if k.strip().isdigit()]
    return tuple(replace(gpu, index=k) for k, gpu in enumerate(gpus)), ""


def gather(policy: str, inventory: Path | None = None) -> list[Rank] | None:
    """What all ranks of MPI_COMM_WORLD see, on rank 0; None elsewhere. Collective."""
    MPI = mpi()
    world = MPI.COMM_WORLD
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    visible: tuple[devices.GPU, ...] = ()
    error = reason = ""
    try:
        visible, reason = _look(inventory)
    except (Failure, ImportError, OSError, ValueError, IndexError) as failure:
        error = str(failure)
    # The pair style counts the ranks of a node that see the same GPUs.
    views: list[list[str]] = node.allgather([gpu.uuid for gpu in visible])
    same = [k for k, view in enumerate(views) if view == views[node.rank]]
    device = devices.CPU
    if not error:
        device, error = _choose(same.index(node.rank), len(same), len(visible), policy)
    free = None
    if device != devices.CPU and not error and inventory is None:
        try:
            free, _ = devices.memory(device)
        except RuntimeError as failure:
            error = str(failure)
    cpus = sorted(os.sched_getaffinity(0))
    names = ("CUDA_VISIBLE_DEVICES", *LOCAL_RANK)
    mine = Rank(
        rank=world.rank,
        node=node.bcast(world.rank),
        host=MPI.Get_processor_name(),
        local_rank=node.rank,
        local_size=node.size,
        visible=visible,
        device=device,
        error=error,
        reason=reason,
        free=free,
        cpus=tuple(cpus),
        ncpus=os.cpu_count() or len(cpus),
        sockets=tuple(sorted({_socket(cpu) for cpu in cpus})),
        environment={name: os.environ[name] for name in names if name in os.environ},
    )
    node.Free()
    gathered: list[Rank] | None = world.gather(mine)
    return gathered


def _socket(cpu: int) -> int:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
    return int(path.read_text()) if path.is_file() else 0


def as_rank(policy: str, inventory: str | None = None) -> None:
    """Gather on each rank, and write on rank 0 what :func:`survey` reads."""
    gathered = gather(policy, Path(inventory) if inventory else None)
    if gathered is not None:
        sys.stdout.write(MARK + json.dumps([asdict(rank) for rank in gathered]) + "\n")
