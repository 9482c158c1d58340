"""How long it takes until training data is ready: from the files, and from the cache.

    python benchmarks/training_data.py train.extxyz [--elements 'O Hf'] [--cutoff 6]

Each way several times, the best of them; the cache is a folder of its own and new.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

from ase.data import atomic_numbers
from rich.console import Console
from rich.table import Table

from pwmlff import threads
from pwmlff.data import cache, neighbors, readers, statistics

RMIN = 0.5


def best(work: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of some rounds."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Time and show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="files as pwmlff data check takes them")
    parser.add_argument("--elements", default="", help="all that occur, when not given")
    parser.add_argument("--cutoff", type=float, default=6.0)
    parser.add_argument("--threads", type=int, default=threads.available())
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    frames = readers.read(options.data)
    elements = [atomic_numbers[s] for s in options.elements.split()] or frames.elements
    edges = neighbors.find_edges(frames, elements, options.cutoff, threads=options.threads)

    def ready(place: str | None) -> None:
        found = cache.load(
            options.data,
            elements=elements,
            cutoff=options.cutoff,
            cache=place,
            threads=options.threads,
        )
        statistics.compute(*found, RMIN, options.cutoff)

    table = Table("step", "seconds", box=None)
    with tempfile.TemporaryDirectory() as folder:
        ready(folder)
        for name, work in {
            "read": lambda: readers.read(options.data),
            "neighbors": lambda: neighbors.find_edges(
                frames, elements, options.cutoff, threads=options.threads
            ),
            "statistics": lambda: statistics.compute(frames, edges, RMIN, options.cutoff),
            "ready from the files": lambda: ready(None),
            "ready from the cache": lambda: ready(folder),
        }.items():
            table.add_row(name, f"{best(work, options.rounds):.2f}")
    Console(highlight=False).print(
        f"{len(frames)} frames, {frames.first[-1]} atoms, {len(edges)} edges within "
        f"{options.cutoff:g}, {options.threads} threads",
        table,
    )


if __name__ == "__main__":
    main()
