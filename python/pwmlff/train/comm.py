"""What the ranks of a training tell each other, over one interface.

Serial, mpi4py or torch.distributed: whichever launched the process, see :func:`connect`. Arrays
are NumPy's, on the host.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import socket
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import numpy as np

from pwmlff import plugin, report
from pwmlff.launch import rank_survey
from pwmlff.report import Failure
from pwmlff.threads import TORCHRUN
from pwmlff.train import steps

if TYPE_CHECKING:
    import torch

#: How many ranks a launcher of MPI has started, as it says it.
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
#: What torch.distributed needs to know, where another launcher than torchrun says it.
TORCH_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

Result = TypeVar("Result")


class Communicator(Protocol):
    """The ranks of one job. All calls but the attributes and :meth:`abort` are collective."""

    name: str  # "serial", "mpi" or "torch"
    rank: int
    size: int
    local_rank: int  # among the ranks of this node
    local_size: int

    def barrier(self) -> None:
        """Wait for all ranks."""

    def broadcast(self, value: Any, root: int = 0) -> Any:
        """Give the value of one rank to all."""

    def allgather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""

    def exchange(self, array: np.ndarray, partner: int) -> np.ndarray:
        """Swap arrays of one shape and type with another rank, which calls this too."""

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """Return [size, ...], the arrays of all ranks; all of one shape and type."""

    def abort(self, message: str, code: int = 1) -> NoReturn:
        """End all ranks, from one that cannot go on; of several messages the first is shown.

        The exit code is that of the job where the launcher hands it on, as mpirun does.
        """


class SharedFailure(Failure):
    """A failure that all ranks know of, so that all of them leave in step."""


class Serial:
    """One rank."""

    name = "serial"
    rank = local_rank = 0
    size = local_size = 1

    def barrier(self) -> None:
        """Return at once."""

    def broadcast(self, value: Any, root: int = 0) -> Any:
        """Return the value."""
        return value

    def allgather(self, value: Any) -> list[Any]:
        """Return the value in a list."""
        return [value]

    def exchange(self, array: np.ndarray, partner: int) -> np.ndarray:
        """Return a copy: the partner can only be the rank itself."""
        return array.copy()

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """Return [1, ...], a copy."""
        return array[None].copy()

    def abort(self, message: str, code: int = 1) -> NoReturn:
        """Say the message and leave."""
        _complain(message)
        raise SystemExit(code)


class _Mpi:
    """The ranks of mpirun or srun, by mpi4py; arrays travel as buffers.

    Raises:
        Failure: mpi4py finds no MPI, or the launcher has started more ranks than it sees.
    """

    name = "mpi"

    def __init__(self) -> None:
        try:
            self._mpi = rank_survey.mpi()
        except (ImportError, RuntimeError) as error:
            raise Failure(
                f"mpi4py cannot be used: {error}; reinstall mpi4py and mpich, or start it with "
                "torchrun; see pwmlff doctor"
            ) from error
        world = self._mpi.COMM_WORLD
        started = next((os.environ[name] for name in SIZE_VARIABLES if name in os.environ), "1")
        if int(started) > world.size:
            raise Failure(
                f"the launcher started {started} ranks, but mpi4py sees {world.size} of them: they "
                "are of different MPI families; take the mpirun beside this Python, see pwmlff "
                "doctor"
            )
        self._comm = world.Dup()  # apart from what models or LAMMPS send
        node = world.Split_type(self._mpi.COMM_TYPE_SHARED)
        self.rank, self.size = world.rank, world.size
        self.local_rank, self.local_size = node.rank, node.size
        node.Free()

    def barrier(self) -> None:
        self._comm.Barrier()

    def broadcast(self, value: Any, root: int = 0) -> Any:
        return self._comm.bcast(value, root)

    def allgather(self, value: Any) -> list[Any]:
        values: list[Any] = self._comm.allgather(value)
        return values

    def exchange(self, array: np.ndarray, partner: int) -> np.ndarray:
        array = np.ascontiguousarray(array)
        result = np.empty_like(array)
        self._comm.Sendrecv(_bytes(array), partner, recvbuf=_bytes(result), source=partner)
        return result

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        array = np.ascontiguousarray(array)
        result = np.empty((self.size, *array.shape), array.dtype)
        self._comm.Allgather(_bytes(array), _bytes(result))
        return result

    def abort(self, message: str, code: int = 1) -> NoReturn:
        _complain(message)
        self._comm.Abort(code)
        raise SystemExit(code)


class _Torch:
    """The ranks of torchrun, or of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; by gloo.

    Arrays lie on the host, so gloo carries them wherever the model lies.

    Raises:
        Failure: the environment does not tell the ranks, or they do not find each other.
    """

    name = "torch"
    _FAILED = "pwmlff/failed"

    def __init__(self) -> None:
        import torch.distributed as dist  # noqa: PLC0415  2 s

        missing = [name for name in TORCH_VARIABLES if name not in os.environ]
        if missing:
            raise Failure(
                f"found no {' and no '.join(missing)} in the environment, expected what torchrun "
                "sets: start it with torchrun, or choose another communication"
            )
        self._dist = dist
        try:
            self._store, self.rank, self.size = next(dist.rendezvous("env://"))
            dist.init_process_group("gloo", store=self._store, rank=self.rank, world_size=self.size)
        except (ValueError, RuntimeError) as error:
            where = ":".join(os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT"))
            raise Failure(f"the ranks do not find each other at {where}: {error}") from error
        self._lent: list[weakref.ref[np.ndarray]] = []
        atexit.register(self._take_back)
        self.local_rank, self.local_size = self._rank_on_node()

    def _rank_on_node(self) -> tuple[int, int]:
        """Rank and number of ranks on this node, by the launcher or else by the host's name."""
        if "LOCAL_RANK" in os.environ and "LOCAL_WORLD_SIZE" in os.environ:
            return int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        hosts = self.allgather(socket.gethostname())
        here = hosts[self.rank]
        return hosts[: self.rank].count(here), hosts.count(here)

    def barrier(self) -> None:
        self._dist.barrier()

    def broadcast(self, value: Any, root: int = 0) -> Any:
        data = _pickled(value if self.rank == root else None)
        size = np.array([data.size])
        self._dist.broadcast(self._tensor(size), root)
        data = np.resize(data, size)
        self._dist.broadcast(self._tensor(data), root)
        return pickle.loads(data.data)

    def allgather(self, value: Any) -> list[Any]:
        data = _pickled(value)
        sizes = self.allgather_array(np.array([data.size]))[:, 0]
        rows = self.allgather_array(np.resize(data, sizes.max()))
        return [pickle.loads(row[:size].data) for row, size in zip(rows, sizes, strict=True)]

    def exchange(self, array: np.ndarray, partner: int) -> np.ndarray:
        array = np.ascontiguousarray(array)
        result = np.empty_like(array)
        sent = self._dist.isend(self._tensor(array), partner)
        self._dist.recv(self._tensor(result), partner)
        if sent is not None:  # None is for those that are no part of a group
            sent.wait()
        return result

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        array = np.ascontiguousarray(array)
        result = np.empty((self.size, *array.shape), array.dtype)
        if array.size:
            rows = [self._tensor(row) for row in result.reshape(self.size, -1)]
            self._dist.all_gather(rows, self._tensor(array))
        return result

    def abort(self, message: str, code: int = 1) -> NoReturn:
        first = True
        with contextlib.suppress(RuntimeError):  # the store is gone with the rank that held it
            first = self._store.add(self._FAILED, 1) == 1
        if first:
            _complain(message)
        sys.stdout.flush()
        os._exit(code)  # the threads of gloo could wait for the others here

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        """The array's memory as uint8 [bytes]."""
        import torch  # noqa: PLC0415

        data = _bytes(array)
        self._lent = [one for one in self._lent if one() is not None]
        self._lent.append(weakref.ref(data))
        return torch.from_numpy(data)

    def _take_back(self) -> None:
        """Wait until gloo holds no array of Python.

        Its threads give arrays back a moment after an operation has ended, which takes Python's
        lock. A thread that waits for the lock when Python ends is ended as well (until Python
        3.14). It cannot be unwound, and aborts the process.
        """
        late = time.monotonic() + 1.0  # what another rank never took part in stays lent
        while any(one() is not None for one in self._lent) and time.monotonic() < late:
            time.sleep(0.001)


def connect(kind: str = "auto") -> Communicator:
    """Join the ranks that a launcher started.

    auto takes the first that holds:

    1. torch, under torchrun, which sets TORCHELASTIC_RUN_ID.
    2. mpi, where a variable tells the number of an MPI rank, as mpirun and srun set it; it is
       several times faster than gloo (benchmarks/communication.py).
    3. torch, where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set (operators of Kubernetes).
    4. serial; neither mpi4py nor torch is imported.

    Args:
        kind: auto, serial, mpi or torch.

    Raises:
        Failure: the kind is unknown, the ranks do not find each other, or srun has started
            several tasks that know nothing of each other.
    """
    if kind == "auto":
        kind = launched(os.environ)
    kinds: dict[str, type[Communicator]] = {"serial": Serial, "mpi": _Mpi, "torch": _Torch}
    if kind not in kinds:
        raise Failure(f"found the communication '{kind}', expected auto, {', '.join(kinds)}")
    return kinds[kind]()


def launched(environment: Mapping[str, str]) -> str:
    """What :func:`connect` takes by itself: serial, mpi or torch.

    Raises:
        Failure: as :func:`connect`.
    """
    if TORCHRUN in environment:
        return "torch"
    if any(name in environment for name in plugin.RANK_VARIABLES):
        return "mpi"
    if all(name in environment for name in TORCH_VARIABLES):
        return "torch"
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1" and "SLURM_PROCID" in environment:
        raise Failure(
            f"srun started {tasks} tasks that know nothing of each other: start it with "
            "srun --mpi=pmi2 or --mpi=pmix, as `srun --mpi=list` says, or with mpirun or torchrun"
        )
    return "serial"


def agreed(comm: Communicator, work: Callable[[], Result]) -> Result:
    """Do what may fail on some ranks only, so that all ranks go on or none does. Collective.

    Args:
        comm: the ranks.
        work: not collective, or what other ranks wait for in it would never come.

    Returns:
        What work returned on this rank.

    Raises:
        SharedFailure: it failed on some rank; the text names the first one and how many others.
            On one rank alone, its own error is raised as it is.
    """
    if comm.size == 1:
        return work()
    mine: Exception | None = None
    try:
        result = work()
    except Exception as error:  # noqa: BLE001  the others are waiting
        mine = error
        report.show_traceback(error)
    failures = comm.allgather(None if mine is None else report.explain(mine))
    failed = [(rank, *explained) for rank, explained in enumerate(failures) if explained]
    if failed:
        (rank, text, code), *others = failed
        more = f" (and {len(others)} other rank{'s' * (len(others) > 1)})" if others else ""
        failure = SharedFailure(f"rank {rank}{more}: {text}")
        failure.exit_code = code
        raise failure from mine
    return result


def by_rank_0(comm: Communicator, work: Callable[[], Result]) -> Result:
    """Do work on rank 0 alone, as :func:`agreed` does, and give its result to all. Collective."""
    result_here = agreed(comm, lambda: None if comm.rank else work())
    result: Result = comm.broadcast(result_here)
    return result


@contextlib.contextmanager
def together(comm: Communicator) -> Iterator[None]:
    """End all ranks when one ends in an error, and say why once.

    A :class:`SharedFailure` leaves on rank 0 as it is; the other ranks leave with 0, since what
    rank 0 says and returns is enough. Any other error ends all ranks by
    :meth:`Communicator.abort`; so does SystemExit with another code than 0.
    """
    try:
        yield
    except SharedFailure:
        if comm.rank:
            raise SystemExit(0) from None
        raise
    except BaseException as error:
        if comm.size == 1 or (isinstance(error, SystemExit) and not error.code):
            raise
        if isinstance(error, SystemExit):
            text, code = f"left with {error.code}", 1
        else:
            report.show_traceback(error)
            text, code = report.explain(error)
        comm.abort(f"rank {comm.rank} of {comm.size}: {text}", code)


def owned(comm: Communicator, nslots: int) -> slice:
    """Slots of this rank: [rank * nslots // size, (rank + 1) * nslots // size)."""
    slots = _owned(comm.rank, comm.size, nslots)
    return slice(slots.start, slots.stop)


def ordered_sum(comm: Communicator, nslots: int, mine: np.ndarray) -> np.ndarray:
    """Add the rows of all slots, with the same bits on any number of ranks. Collective.

    The order is that of a binary tree over slot numbers. A node of width w = 2^l holds the slots
    [k w, (k + 1) w) that there are. Its sum is that of its left half plus that of its right half,
    if there is one. Who holds which slot does not matter to it. Each rank adds up the largest
    nodes that lie within its slots. Then

    - where each rank holds one node and all are of one width, neighbors exchange and add their
      sums, log2(size) times. That is for a power of two of ranks and nslots = size * 2^l;
    - otherwise all ranks gather those nodes, at most 2 log2(nslots) of a rank, and add the rest.

    Args:
        comm: the ranks; more of them than slots is fine.
        nslots: of all ranks.
        mine: [nmine, P] rows of the slots :func:`owned`, float32 or float64; of one type and
            one P everywhere, also where nmine is 0. Not changed.

    Returns:
        float64 [P], added in float64; zeros where there are no slots.

    Raises:
        ValueError: mine has another shape or type than that.
    """
    slots = _owned(comm.rank, comm.size, nslots)
    if mine.ndim != 2 or len(mine) != len(slots) or mine.dtype not in (np.float32, np.float64):
        raise ValueError(
            f"found rows {mine.dtype} {list(mine.shape)}, expected float32 or float64 "
            f"[{len(slots)}, P] for slots {slots.start} to {slots.stop} of {nslots}"
        )
    if nslots == 0:
        return np.zeros(mine.shape[1])
    root = 0, 1 << (nslots - 1).bit_length()  # as wide as the next power of two
    held = [_nodes(_owned(rank, comm.size, nslots), root, nslots) for rank in range(comm.size)]
    sums = [
        steps.sum_rows(mine[first - slots.start : first - slots.start + width])
        for first, width in held[comm.rank]
    ]
    like_first = all(len(nodes) == 1 and nodes[0][1] == held[0][0][1] for nodes in held)
    if like_first and comm.size & (comm.size - 1) == 0:
        return _doubled(comm, sums[0])
    most = max(map(len, held))
    padded = np.zeros((most, mine.shape[1]))
    padded[: len(sums)] = sums or 0.0
    gathered = comm.allgather_array(padded)
    parts = {
        node: gathered[rank, k] for rank, nodes in enumerate(held) for k, node in enumerate(nodes)
    }
    return _tree_sum(parts, root, nslots)


def share(comm: Communicator, indices: Sequence[np.ndarray], array: np.ndarray) -> None:
    """Give all ranks what each has at its own places of an array. Collective.

    Args:
        comm: the ranks.
        indices: of each rank, where its numbers are.
        array: float64 [n], of which the rest is filled in.
    """
    if comm.size == 1:
        return
    row = np.zeros(max(map(len, indices)))
    row[: len(indices[comm.rank])] = array[indices[comm.rank]]
    for where, numbers in zip(indices, comm.allgather_array(row), strict=True):
        array[where] = numbers[: len(where)]


def same_everywhere(comm: Communicator, array: np.ndarray) -> None:
    """Check that all ranks hold the same bits. Collective.

    Args:
        comm: the ranks.
        array: the parameters, of any shape and type.

    Raises:
        SharedFailure: some rank holds others; the text names those that differ from most.
    """
    array = np.ascontiguousarray(array)
    digest = blake2b(f"{array.dtype.str} {array.shape}".encode())
    digest.update(_bytes(array).data)
    digests = comm.allgather(digest.hexdigest())
    (usual, _), *others = Counter(digests).most_common()  # of equals, the first rank's
    if others:
        differ = [str(rank) for rank, rank_digest in enumerate(digests) if rank_digest != usual]
        raise SharedFailure(
            f"the parameters of rank{'s' * (len(differ) > 1)} {', '.join(differ)} differ from "
            f"those of the other {comm.size - len(differ)} of {comm.size} ranks, expected the same "
            "bits: go on from the last checkpoint, on nodes with one kind of CPU and one "
            "installation"
        )


def _owned(rank: int, size: int, nslots: int) -> range:
    return range(rank * nslots // size, (rank + 1) * nslots // size)


def _nodes(slots: range, node: tuple[int, int], nslots: int) -> list[tuple[int, int]]:
    """Largest nodes (first slot, width) within a range, of one and those below it, in order."""
    first, half = node[0], node[1] // 2
    end = min(first + node[1], nslots)
    if first >= slots.stop or end <= slots.start:
        return []
    if slots.start <= first and end <= slots.stop:
        return [node]
    return _nodes(slots, (first, half), nslots) + _nodes(slots, (first + half, half), nslots)


def _tree_sum(
    parts: Mapping[tuple[int, int], np.ndarray], node: tuple[int, int], nslots: int
) -> np.ndarray:
    """Sum [P] of a node from the sums of nodes below it that cover it."""
    if node in parts:
        return parts[node]
    first, half = node[0], node[1] // 2
    left = _tree_sum(parts, (first, half), nslots)
    if first + half >= nslots:
        return left
    total: np.ndarray = left + _tree_sum(parts, (first + half, half), nslots)
    return total


def _doubled(comm: Communicator, total: np.ndarray) -> np.ndarray:
    """Sum over a power of two of ranks in the order of the tree, by recursive doubling."""
    step = 1
    while step < comm.size:
        received = comm.exchange(total, comm.rank ^ step)
        left, right = (received, total) if comm.rank & step else (total, received)
        total = np.add(left, right, out=received)
        step *= 2
    return total


def _bytes(array: np.ndarray) -> np.ndarray:
    """The same memory as uint8 [bytes]."""
    return array.reshape(-1).view(np.uint8)


def _pickled(value: Any) -> np.ndarray:
    """A value as uint8 [bytes]."""
    return np.frombuffer(bytearray(pickle.dumps(value)), np.uint8)


def _complain(message: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"error: {message.rstrip()}\n")
    sys.stderr.flush()
