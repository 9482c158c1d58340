"""Where a training computes: on which device, and with how many threads."""

from __future__ import annotations

import os
import re

import torch

from pwmlff import devices
from pwmlff.report import Failure
from pwmlff.threads import allowed_threads
from pwmlff.train import comm
from pwmlff.train.config import Run


def threads_of(run: Run, ranks: comm.Communicator, together: int = 1) -> int:
    """Threads of a rank, as [run] threads or the environment has them.

    Args:
        together: how many trainings share the rank.
    """
    return run.threads or max(1, allowed_threads(ranks.local_size) // together)


def device_of(run: Run, ranks: comm.Communicator) -> torch.device | None:
    """Where torch computes on this rank, as [run] device says; GPUs are dealt out in turn.

    The environment variable PWMLFF_GPU_STAND_IN names what stands in for a GPU, for tests.

    Returns:
        None for the CPU, with compiled kernels where there are any.

    Raises:
        Failure: it is another word, or a GPU is asked for that torch does not see.
    """
    if not re.fullmatch(r"cpu|auto|cuda(:\d+)?", run.device):
        raise Failure(f"[run] device is '{run.device}', expected cpu, cuda, cuda:N or auto")
    if run.device == "cpu":
        return None
    if stand_in := os.environ.get("PWMLFF_GPU_STAND_IN"):
        return torch.device(stand_in)
    visible = torch.cuda.device_count()
    if run.device == "auto" and not visible:
        return None
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
    return torch.device("cuda", index)


def device_of_member(device: str, k: int) -> str:
    """[run] device of the k-th model of an ensemble: the visible GPUs in turn."""
    visible = torch.cuda.device_count()
    return f"cuda:{k % visible}" if device in ("auto", "cuda") and visible else device
