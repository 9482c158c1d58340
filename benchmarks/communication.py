"""Time what the ranks of a training tell each other, for a gradient of a usual Deep Potential.

    mpirun -np 2 python benchmarks/communication.py
    torchrun --nproc-per-node 2 benchmarks/communication.py

Rank 0 prints the median over repetitions of the slowest rank, in microseconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from pwmlff.train.comm import Communicator, connect, ordered_sum, owned, together


def median(comm: Communicator, work: Callable[[], object], repeat: int) -> float:
    """Microseconds of work, which is collective."""
    times = []
    for _ in range(repeat):
        comm.barrier()
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(comm.allgather_array(np.array(times)).max(axis=0)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=int, default=51_000)
    parser.add_argument("--slots", type=int, default=8, help="frames of a batch")
    parser.add_argument("--repeat", type=int, default=200)
    options = parser.parse_args()
    comm = connect()
    table = Table("what", "float32", "float64", title=f"{comm.name}, {comm.size} ranks, us")
    slots = owned(comm, options.slots)

    def row(what: str, work: Callable[[np.ndarray], object]) -> None:
        times = []
        for dtype in (np.float32, np.float64):
            rows = np.ones((max(slots.stop - slots.start, 1), options.parameters), dtype)
            times.append(median(comm, lambda rows=rows: work(rows), options.repeat))
        table.add_row(what, *(f"{t:.0f}" for t in times))

    with together(comm):
        if comm.size % 2 == 0:
            row("exchange", lambda rows: comm.exchange(rows[0], comm.rank ^ 1))
        row("allgather_array", lambda rows: comm.allgather_array(rows[0]))
        row(
            f"ordered_sum of {options.slots} slots",
            lambda rows: ordered_sum(comm, options.slots, rows[: len(slots)]),
        )
    if comm.rank == 0:
        Console().print(table)


if __name__ == "__main__":
    main()
