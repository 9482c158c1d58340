"""The choice of devices under a real launcher, on nodes whose GPUs are made up."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from cpp import mpi
from harness import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """report_devices.cpp with the sources that the plugin has, and an inventory of its own."""
    include, library = mpi()
    target = tmp_path_factory.mktemp("report") / "report_devices"
    sources = ["kernels/placement/device_mapping.cpp", "pair_pwmlff/rank_placement.cpp"]
    subprocess.run(
        [
            "c++", "-std=c++20", "-I.", "-Ikernels", f"-I{include}",
            "tests/device/report_devices.cpp", *sources, "-o", target,
            library, f"-Wl,-rpath,{library.parent}",
        ],
        cwd=ROOT, check=True,
    )  # fmt: skip
    return target


def report(
    program: Path,
    *launch: str,
    policy: str = "auto",
    partitions: int = 1,
    without: tuple[str, ...] = (),
    **environment: str,
) -> dict[int, str]:
    """What each partition prints, without these environment variables of the launcher."""
    unset = [word for name in without for word in ("-u", name)]
    run = subprocess.run(
        [PROGRAMS / "mpirun", *launch, "env", *unset, program, policy, str(partitions)],
        env={k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    parts = re.split(r"partition (\d+)\n", run.stdout)[1:]
    return {int(parts[k]): parts[k + 1] for k in range(0, len(parts), 2)}


def devices(text: str) -> dict[str, str]:
    """Ranks of each device, without the host."""
    found = re.findall(r"host \S+: ranks? ([\d -]+) on (cpu|GPU \d+ \(Fake, bus \d+\))", text)
    return {re.sub(r".*bus (\d+).*", r"\1", device): ranks for ranks, device in found}


def test_in_turn(program):
    text = report(program, "-n", "4", FAKE_GPUS="4")[0]
    assert devices(text) == {"0": "0", "1": "1", "2": "2", "3": "3"}
    assert "rank 2 on GPU 2 (Fake, bus 2), 1 thread each" in text
    assert "warning" not in text


def test_more_ranks_than_gpus(program):
    text = report(program, "-n", "5", FAKE_GPUS="2")[0]
    assert devices(text) == {"0": "0 2 4", "1": "1 3"}
    assert "warning: ranks 0 2 4 share GPU 0 (Fake, bus 0) of host" in text
    assert "idle" not in text


def test_idle_gpus(program):
    text = report(program, "-n", "2", FAKE_GPUS="4")[0]
    assert "has idle GPUs: GPU 2 (Fake, bus 2), GPU 3 (Fake, bus 3); start one rank" in text
    text = report(program, "-n", "2", policy="1,3", FAKE_GPUS="4")[0]
    assert devices(text) == {"1": "0", "3": "1"}
    assert "warning" not in text  # the user chose


def test_rank_that_cannot_use_its_gpu(program):
    """Said even where rank 0 is well."""
    text = report(program, "-n", "3", FAKE_GPUS="3", FAKE_IDLE_RANK="2")[0]
    assert devices(text) == {"0": "0", "1": "1", "cpu": "2"}
    assert re.search(r"host \S+: no GPU: out of memory\n", text)
    assert "has idle GPUs: GPU 2" in text


def test_cpu(program):
    text = report(program, "-n", "3", FAKE_GPUS="2", policy="cpu")[0]
    assert devices(text) == {"cpu": "0-2"}
    assert "warning" not in text and "no GPU" not in text
    text = report(program, "-n", "2")[0]
    assert devices(text) == {"cpu": "0-1"}
    assert re.search(r"host \S+: no GPU: none in this test\n", text)


def test_two_nodes(program):
    """Two nodes of the launcher on one machine: ranks 0 and 3 are the first of their nodes."""
    text = report(
        program, "-launcher", "fork", "-hosts", "127.0.0.1:3,127.0.0.2:2", "-n", "5", FAKE_GPUS="2"
    )[0]
    assert devices(text) == {"0": "0 2-3", "1": "1 4"}


def test_launcher_gives_each_rank_a_gpu(program):
    launch = [f"-n 1 -env CUDA_VISIBLE_DEVICES {k} {program} auto 1".split() for k in (2, 0, 1)]
    words = [word for part in launch for word in [":", *part]][1:]
    run = subprocess.run(
        [PROGRAMS / "mpirun", *words], capture_output=True, text=True, timeout=60, check=True
    )
    assert devices(run.stdout) == {"2": "0", "0": "1", "1": "2"}
    assert run.stdout.count("on GPU 0 (") == 3
    assert "warning" not in run.stdout


def test_launcher_gives_each_half_of_the_ranks_gpus(program):
    """Ranks 0 and 2 see other GPUs than ranks 1 and 3: they are counted apart."""
    launch = [
        f"-n 1 -env CUDA_VISIBLE_DEVICES {gpus} {program} auto 1".split()
        for gpus in ("0,1", "2,3", "0,1", "2,3")
    ]
    words = [word for part in launch for word in [":", *part]][1:]
    run = subprocess.run(
        [PROGRAMS / "mpirun", *words], capture_output=True, text=True, timeout=60, check=True
    )
    assert devices(run.stdout) == {"0": "0", "2": "1", "1": "2", "3": "3"}


def test_partitions_spread(program):
    """Ranks of a partition are numbered from 0, their places on the node are not."""
    found = report(program, "-n", "4", partitions=2, FAKE_GPUS="4")
    assert devices(found[0]) == {"0": "0", "1": "1"}
    assert devices(found[1]) == {"2": "0", "3": "1"}
    assert "idle" not in found[0] + found[1]
    nodes = ["-launcher", "fork", "-hosts", "127.0.0.1:2,127.0.0.2:2", "-n", "4"]
    found = report(program, *nodes, partitions=4, FAKE_GPUS="2")
    assert [devices(found[k]) for k in range(4)] == [{"0": "0"}, {"1": "0"}] * 2


def test_partitions_without_help_of_the_launcher(program):
    found = report(
        program, "-n", "4", partitions=2, FAKE_GPUS="4", without=(*LAUNCHERS, "PMI_LOCAL_RANK")
    )
    assert devices(found[1]) == {"2": "0", "3": "1"}
    assert "the launcher does not tell ranks their place" in found[0]


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"])
def test_launcher_that_tells_all_ranks_the_same(program, variable):
    """Slurm's number of an outer job step: believed only where ranks differ."""
    without = (*LAUNCHERS, "PMI_LOCAL_RANK")
    run = subprocess.run(
        [
            PROGRAMS / "mpirun", "-n", "4", "env",
            *[word for name in without for word in ("-u", name)],
            f"{variable}=0", "FAKE_GPUS=4", program, "auto", "2",
        ],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert run.stdout.count("the launcher does not tell") == 2
    assert devices(run.stdout.split("partition 1")[1]) == {"2": "0", "3": "1"}


def test_errors(program):
    text = report(program, "-n", "2", policy="gpu")[0]
    assert text.startswith("error: device is gpu, but no GPU is visible; use device auto or cpu")
    assert "(none in this test) [rank 0 on host " in text
    text = report(program, "-n", "2", policy="0,5", FAKE_GPUS="2")[0]
    assert "device names GPU 5, but 2 GPUs are visible, numbers 0 to 1" in text
    text = report(program, "-n", "1", policy="gpu", FAKE_GPUS="1", FAKE_OLD="1")[0]
    assert "error: GPU 0 (Fake, bus 0) has compute capability 7.0, and this build" in text
    text = report(program, "-n", "1", FAKE_GPUS="1", FAKE_OLD="1")[0]
    assert devices(text) == {"cpu": "0"} and "no GPU: GPU 0 (Fake, bus 0) has compute" in text
