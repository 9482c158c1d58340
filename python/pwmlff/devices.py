"""The GPUs that this process sees, and which rank gets which.

The answers come from the compiled library that the pair style itself asks (kernels/placement),
opened without torch and without MPI. Listing the GPUs takes no memory on any of them.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from pwmlff.plugin import open_library

#: In place of the index of a GPU.
CPU = -1

_ERROR = -2
_TEXT = 512  # bytes for a message
_MOST_GPUS = 64  # of a node


class _Gpu(ctypes.Structure):
    """``pwmlff_gpu`` of kernels/placement/inventory.h."""

    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("pci_bus_id", ctypes.c_char * 32),
        ("uuid", ctypes.c_char * 48),
        ("total_memory", ctypes.c_uint64),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        ("supported", ctypes.c_int32),
    )


class _Cuda(ctypes.Structure):
    """``pwmlff_cuda`` of kernels/placement/inventory.h."""

    _fields_ = (
        ("driver_version", ctypes.c_int32),
        ("runtime_version", ctypes.c_int32),
        ("oldest_supported", ctypes.c_int32),
        ("reason", ctypes.c_char * 256),
    )


@dataclass(frozen=True)
class GPU:
    """A visible GPU.

    Attributes:
        index: its number among the visible ones, from 0.
        name: product name.
        pci_bus_id: place in the node, like 0000:18:00.0.
        uuid: name that no other GPU has, like GPU-..., as nvidia-smi prints it.
        capability: compute capability, (major, minor).
        total_memory: bytes.
        supported: whether the compiled kernels run on it.
    """

    index: int
    name: str
    pci_bus_id: str
    uuid: str
    capability: tuple[int, int]
    total_memory: int
    supported: bool


@dataclass(frozen=True)
class Inventory:
    """All visible GPUs, and the CUDA that shows them.

    Attributes:
        gpus: in the order of their numbers.
        driver: newest CUDA that the driver can run, (major, minor); None without a driver.
        runtime: CUDA of the compiled kernels; None where they have none.
        oldest_supported: oldest compute capability that they were compiled for; None likewise.
        reason: why there is no GPU, in one line; empty where there is one.
    """

    gpus: tuple[GPU, ...]
    driver: tuple[int, int] | None
    runtime: tuple[int, int] | None
    oldest_supported: tuple[int, int] | None
    reason: str


@functools.cache
def _compiled() -> ctypes.CDLL:
    return open_library("pwmlff_placement", "ask it for GPUs")


def inventory() -> Inventory:
    """List the visible GPUs; makes no CUDA context.

    Raises:
        ImportError: pair-pwmlff is not compiled.
    """
    gpus, cuda = (_Gpu * _MOST_GPUS)(), _Cuda()
    count = _compiled().pwmlff_gpus(gpus, _MOST_GPUS, ctypes.byref(cuda))

    def version(number: int, unit: int, part: int) -> tuple[int, int] | None:
        return (number // unit, number % unit // part) if number else None

    return Inventory(
        gpus=tuple(
            GPU(
                index=k,
                name=gpus[k].name.decode(),
                pci_bus_id=gpus[k].pci_bus_id.decode(),
                uuid=gpus[k].uuid.decode(),
                capability=(gpus[k].major, gpus[k].minor),
                total_memory=gpus[k].total_memory,
                supported=bool(gpus[k].supported),
            )
            for k in range(min(count, _MOST_GPUS))
        ),
        driver=version(cuda.driver_version, 1000, 10),
        runtime=version(cuda.runtime_version, 1000, 10),
        oldest_supported=version(cuda.oldest_supported, 10, 1),
        reason=cuda.reason.decode(),
    )


def memory(gpu: int) -> tuple[int, int]:
    """Free and total memory of a GPU in bytes; makes a CUDA context on that GPU alone.

    Raises:
        ImportError: pair-pwmlff is not compiled.
        RuntimeError: there is no such GPU, or it does not answer.
    """
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    message = ctypes.create_string_buffer(_TEXT)
    if _compiled().pwmlff_gpu_memory(
        gpu, ctypes.byref(free), ctypes.byref(total), message, len(message)
    ):
        raise RuntimeError(message.value.decode())
    return free.value, total.value


def device_of_rank(local_rank: int, local_size: int, nvisible: int, policy: str = "auto") -> int:
    """Index of the GPU of a rank among those it sees, or :data:`CPU`.

    The function that the pair style uses. GPUs are dealt out in turn: ranks per GPU differ by one
    at most, and a rank keeps its GPU however many ranks come after it.

    Args:
        local_rank: index of the rank, from 0, among the ranks of its node that see the same GPUs.
        local_size: number of these ranks.
        nvisible: number of GPUs that they see.
        policy: "auto" (a GPU where there is one), "cpu", "gpu", or numbers of GPUs like "0,1",
            which are used in turn.

    Raises:
        ImportError: pair-pwmlff is not compiled.
        ValueError: a GPU is demanded that is not there, or the arguments make no sense.
    """
    message = ctypes.create_string_buffer(_TEXT)
    device: int = _compiled().pwmlff_device_of_rank(
        local_rank, local_size, nvisible, policy.encode(), message, len(message)
    )
    if device == _ERROR:
        raise ValueError(message.value.decode())
    return device
