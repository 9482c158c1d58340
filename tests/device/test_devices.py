"""Rank to GPU: every plan of small clusters, and the errors of plans that cannot be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pwmlff import devices
from pwmlff.devices import device_of_rank


def test_list_is_used_in_turn():
    assert [device_of_rank(r, 5, 4, "3,1") for r in range(5)] == [3, 1, 3, 1, 3]
    assert [device_of_rank(r, 4, 2, "0,0,1") for r in range(4)] == [0, 0, 1, 0]
    assert device_of_rank(7, 8, 1, "0") == 0


def test_one_gpu_for_each_rank_by_the_launcher():
    assert {device_of_rank(r, 1, 1) for r in (0,)} == {0}


WRONG = {
    "no GPU": ((0, 1, 0, "gpu"), "no GPU is visible; use device auto or cpu"),
    "no GPU of a list": ((0, 1, 0, "0"), "GPU 0, but no GPU is visible"),
    "one GPU": ((0, 2, 1, "0,1"), "GPU 1, but 1 GPU is visible, number 0"),
    "not the rank's own": ((0, 2, 3, "0,1,7"), "GPU 7, but 3 GPUs are visible, numbers 0 to 2"),
    "word": ((0, 1, 1, "cuda"), "'cuda', expected auto, cpu, gpu or numbers"),
    "empty": ((0, 1, 1, ""), "''"),
    "empty entry": ((0, 1, 2, "0,,1"), "'0,,1'"),
    "trailing comma": ((0, 1, 2, "0,"), "'0,'"),
    "negative": ((0, 1, 2, "-1"), "'-1'"),
    "blank": ((0, 1, 2, "0, 1"), "'0, 1'"),
    "huge": ((0, 1, 2, "99999999999"), "'99999999999'"),
    "local rank": ((2, 2, 2, "auto"), "local rank is 2, expected 0 or more and less than the 2"),
    "negative rank": ((-1, 2, 2, "auto"), "local rank is -1"),
    "negative number": ((0, 2, -1, "auto"), "number of GPUs is -1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors(case: str):
    arguments, words = WRONG[case]
    with pytest.raises(ValueError, match=r"device|rank|GPU") as error:
        device_of_rank(*arguments)
    assert words in str(error.value)


def test_inventory_says_what_there_is():
    found = devices.inventory()
    assert bool(found.gpus) == (found.reason == "")
    for index, gpu in enumerate(found.gpus):
        assert gpu.index == index
        assert gpu.name and gpu.pci_bus_id and gpu.uuid.startswith("GPU-") and len(gpu.uuid) == 40
        assert gpu.total_memory > 1 << 30
    assert len({gpu.uuid for gpu in found.gpus}) == len(found.gpus)


def test_memory():
    for gpu in devices.inventory().gpus:
        free, total = devices.memory(gpu.index)
        assert 0 < free <= total <= gpu.total_memory
    with pytest.raises(RuntimeError):
        devices.memory(63)


def test_no_visible_gpu():
    """An empty CUDA_VISIBLE_DEVICES hides all GPUs; torch and mpi4py stay out of it."""
    code = (
        "import sys; from pwmlff.devices import inventory; found = inventory()\n"
        "assert found.gpus == () and found.reason and '\\n' not in found.reason\n"
        "assert not {'torch', 'mpi4py', 'numpy', 'ase'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"CUDA_VISIBLE_DEVICES": ""})
