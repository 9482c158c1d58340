"""Where a training computes: on which device, and with how many threads."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import torch

from pwmlff import devices
from pwmlff.report import Failure
from pwmlff.threads import allowed_threads
from pwmlff.train import comm
from pwmlff.train.config import Run


@dataclass(frozen=True)
class Place:
    """Where the steps of one rank are computed.

    Attributes:
        device: where torch computes; None for the CPU, with compiled kernels where there are any.
        threads: of what is computed on the CPU.
    """

    device: torch.device | None
    threads: int


def threads_of(run: Run, ranks: comm.Communicator, together: int = 1) -> int:
    """Threads of a rank, as [run] threads or the environment has them.

    Args:
        together: how many trainings share the rank.
    """
    return run.threads or max(1, allowed_threads(ranks.local_size) // together)


def place_of(run: Run, ranks: comm.Communicator) -> Place:
    """Where this rank computes, as [run] device says; the GPUs of a node are dealt out in turn.

    The environment variable PWMLFF_GPU_STAND_IN names what stands in for a GPU, for tests.

    Raises:
        Failure: it is another word, or a GPU is asked for that torch does not see.
    """
    threads = threads_of(run, ranks)
    if not re.fullmatch(r"cpu|auto|cuda(:\d+)?", run.device):
        raise Failure(f"[run] device is '{run.device}', expected cpu, cuda, cuda:N or auto")
    if run.device == "cpu":
        return Place(None, threads)
    if stand_in := os.environ.get("PWMLFF_GPU_STAND_IN"):
        return Place(torch.device(stand_in), threads)
    visible = torch.cuda.device_count()
    if run.device == "auto" and not visible:
        return Place(None, threads)
    number = re.sub(r"\D", "", run.device)
    if visible <= int(number or 0):
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise Failure(
            f"[run] device is '{run.device}', and torch {torch.__version__} ({built}) sees "
            f"{visible} GPU(s); expected a GPU that nvidia-smi lists and CUDA_VISIBLE_DEVICES "
            "does not hide, and a torch with CUDA (pip install torch has it); or leave out "
            "--device, which trains on the CPU"
        )
    index = devices.device_of_rank(ranks.local_rank, ranks.local_size, visible, number or "gpu")
    return Place(torch.device("cuda", index), threads)


def device_of_member(device: str, k: int) -> str:
    """[run] device of the k-th model of an ensemble: the visible GPUs in turn."""
    visible = torch.cuda.device_count()
    return f"cuda:{k % visible}" if device in ("auto", "cuda") and visible else device
