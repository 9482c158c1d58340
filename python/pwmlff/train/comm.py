"""What the ranks of a training tell each other, over one interface.

Serial, mpi4py or torch.distributed: whichever launched the process.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Communicator(Protocol):
    """The ranks of one job. All calls but the attributes are collective."""

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
        """Swap arrays of one shape and type with another rank."""

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """Return [size, ...], the arrays of all ranks; all of one shape and type."""
