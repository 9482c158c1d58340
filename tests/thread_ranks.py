"""Ranks that are threads of this process, for what they compute together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

TIMEOUT = 60  # seconds; a rank that waits longer hangs


class Thread:
    """A rank that is a thread of this process."""

    name = "thread"

    def __init__(self, rank: int, size: int, shared: dict) -> None:
        self.rank = self.local_rank = rank
        self.size = self.local_size = size
        self._shared = shared
        self.exchanges = 0

    def barrier(self) -> None:
        self._shared["barrier"].wait(TIMEOUT)

    def allgather(self, value: Any) -> list[Any]:
        self._shared[self.rank] = value
        self.barrier()
        values = [self._shared[rank] for rank in range(self.size)]
        self.barrier()
        return values

    def broadcast(self, value: Any, root: int = 0) -> Any:
        return self.allgather(value)[root]

    def exchange(self, array: np.ndarray, partner: int) -> np.ndarray:
        self.exchanges += 1
        return self.allgather(array.copy())[partner]

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        return np.stack(self.allgather(array.copy()))

    def abort(self, message: str, code: int = 1) -> None:
        raise AssertionError(message)


def on_ranks(size: int, work: Callable[[Thread], Any]) -> list[Any]:
    """What work returns on each of some ranks; the first error of one ends all."""
    barrier = threading.Barrier(size)
    shared = {"barrier": barrier}
    errors: list[BaseException] = []

    def on_rank(rank: int) -> Any:
        try:
            return work(Thread(rank, size, shared))
        except BaseException as error:
            errors.append(error)
            barrier.abort()  # the others would wait, and could say nothing but that they did
            raise

    with ThreadPoolExecutor(size) as pool:
        results = [pool.submit(on_rank, rank) for rank in range(size)]
    if errors:
        raise errors[0]
    return [result.result() for result in results]
