"""Time an update of the Kalman filter, lazy against the plain expression, by block size.

    OMP_NUM_THREADS=1 python benchmarks/kalman.py

The plain one is P <- (P - P h (P h)^T / S) / lambda as NumPy evaluates it. Under mpirun the lazy
one is spread over the ranks. Medians; whole rounds of 16 updates, with the flush, for the lazy one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from pwmlff.train.comm import connect, together
from pwmlff.train.kalman import PENDING, Kalman, KalmanOptions


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Median over repetitions."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def plain_seconds(sizes: list[int], h: np.ndarray, x: np.ndarray, repeat: int) -> float:
    """Time of an update by the plain expression, with lambda = 0.99, noise 1 and error 0.1."""
    bounds = np.cumsum(sizes)[:-1]
    p, hs, xs = [np.eye(n) for n in sizes], np.split(h, bounds), np.split(x.copy(), bounds)

    def update() -> None:
        gains = [block @ part for block, part in zip(p, hs, strict=True)]
        s = 0.99 + sum(part @ gain for part, gain in zip(hs, gains, strict=True))
        for k, gain in enumerate(gains):
            xs[k] += gain * (0.1 / s)
            p[k] = (p[k] - np.outer(gain, gain) / s) / 0.99

    return seconds(update, repeat)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=int, default=56_002)
    parser.add_argument("--blocks", type=int, nargs="+", default=[320, 1280, 5120])
    parser.add_argument("--rounds", type=int, default=3, help="of 16 updates")
    options = parser.parse_args()
    comm = connect()
    rng = np.random.default_rng(0)
    h, x = rng.normal(size=options.parameters), rng.normal(size=options.parameters)
    table = Table(
        *("block", "lazy, ms", "plain, ms", "plain / lazy", "GiB of all ranks"),
        title=f"{options.parameters} parameters, {comm.name}, {comm.size} ranks",
    )
    with together(comm):
        for block in options.blocks:
            lazy = Kalman([("", (options.parameters,))], KalmanOptions(block=block), comm)

            def go(lazy: Kalman = lazy) -> None:
                for _ in range(PENDING):
                    lazy.update(x, h, 0.1)

            go()
            fast = 1e3 * seconds(go, options.rounds) / PENDING
            words = ["", ""]
            if comm.size == 1:
                slow = 1e3 * plain_seconds(lazy.sizes, h, x, options.rounds)
                words = [f"{slow:.0f}", f"{slow / fast:.1f}"]
            table.add_row(str(block), f"{fast:.1f}", *words, f"{sum(lazy.memory()) / 2**30:.2f}")
    if comm.rank == 0:
        Console().print(table)


if __name__ == "__main__":
    main()
