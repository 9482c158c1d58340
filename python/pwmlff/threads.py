"""How many threads a process may use."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TORCHRUN = "TORCHELASTIC_RUN_ID"  # a variable of each rank that torchrun has started


def available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def allowed_threads(local_size: int = 1) -> int:
    """Threads for a process: OMP_NUM_THREADS, or its share of the cores where that is not set.

    Args:
        local_size: processes that share the cores of this machine.
    """
    value = os.environ.get("OMP_NUM_THREADS")
    # torchrun sets 1 for every rank where its user has set nothing.
    if value == "1" and TORCHRUN in os.environ:
        value = None
    given = openmp_threads(value) if value is not None else None
    return given or max(1, available() // local_size)


def default_threads() -> int:
    """As many as torch uses; where that is not loaded, :func:`allowed_threads`."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch else allowed_threads()


def openmp_threads(value: str) -> int | None:
    """Threads that OMP_NUM_THREADS asks for; None where OpenMP ignores the value."""
    # A list is for nested levels; nothing here has more than one.
    first = re.fullmatch(r"\s*\+?0*([1-9][0-9]*)\s*(,\s*\+?0*[1-9][0-9]*\s*)*", value)
    return int(first[1]) if first else None


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads here, and as many as before afterwards."""
    import torch  # noqa: PLC0415  slow to import

    previous = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
