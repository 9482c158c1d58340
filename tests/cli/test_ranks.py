"""`pwmlff ranks`: every plan, real ranks on real and invented GPUs, and each warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import pytest

from harness import COMMAND, PROGRAMS, TIMEOUT
from pwmlff import devices
from pwmlff.devices import GPU
from pwmlff.launch import mpirun, rank_survey
from pwmlff.launch.rank_survey import Rank, planned, warnings_of
from pwmlff.report import Failure


def gpu(k: int, node: str = "a") -> GPU:
    return GPU(k, "Test", f"0000:{k:02x}:00.0", f"GPU-{node}{k}", (9, 0), 8 * 2**30, True)


def rank(k: int, gpus: tuple[GPU, ...] = (gpu(0), gpu(1)), size: int = 2, **changes) -> Rank:
    """Local rank k of a node, on the GPU that the plugin would take."""
    device = devices.device_of_rank(k, size, len(gpus))
    return replace(Rank(k, 0, "a", k, size, gpus, device), **changes)


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    """A file with two invented GPUs."""
    (tmp_path / "gpus.json").write_text(json.dumps([asdict(gpu(k)) for k in range(2)]))
    return "gpus.json"


@pytest.mark.parametrize("nodes", range(1, 5))
@pytest.mark.parametrize("gpus", range(9))
def test_every_plan(nodes: int, gpus: int):
    """Balanced to one, on the rank's own node, the same whatever ranks come after it."""
    for nranks in range(1, 65):
        found = planned(nodes, gpus, nranks, "auto")
        assert gpus == 0 or found == planned(nodes, gpus, nranks, "gpu")
        assert {r.device for r in planned(nodes, gpus, nranks, "cpu")} == {devices.CPU}
        assert [r.rank for r in found] == list(range(nranks))
        of_node = [[r for r in found if r.host == f"node{k}"] for k in range(nodes)]
        sizes = [len(members) for members in of_node]
        assert max(sizes) - min(sizes) <= 1
        for members in of_node:
            assert [r.local_rank for r in members] == list(range(len(members)))
            used = Counter(r.gpu and r.gpu.uuid for r in members)
            if gpus == 0:
                assert set(used) <= {None}
                continue
            assert None not in used
            assert all(uuid.startswith(f"{r.host}-") for r in members for uuid in [r.gpu.uuid])
            counts = [used[g.uuid] for g in members[0].visible] if members else [0]
            assert max(counts) - min(counts) <= 1
        more = planned(nodes, gpus, nranks + nodes, "auto")
        for k, members in enumerate(of_node):
            later = [r.device for r in more if r.host == f"node{k}"]
            assert later[: len(members)] == [r.device for r in members]
        words = " ".join(warnings_of(found))
        assert ("share GPU" in words) == (0 < gpus < max(sizes))
        started = [size for size in sizes if size]
        assert ("no rank uses" in words) == (gpus > 0 and min(started) < gpus)
        assert ("different numbers of ranks" in words) == (len(set(started)) > 1)


def test_plan_command(pwmlff):
    found = pwmlff("ranks", "--plan", "2x4", "--json")
    assert found.returncode == 0
    assert [r["gpu"]["index"] for r in found.json["ranks"]] == [0, 1, 2, 3] * 2
    assert [r["host"] for r in found.json["ranks"]] == ["node0"] * 4 + ["node1"] * 4
    shared = pwmlff("ranks", "--plan", "1x2", "-np", 3)
    assert shared.returncode == 0
    assert "ranks 0,2 share GPU" in shared.words
    assert pwmlff("ranks", "--plan", "1x2", "-np", 3, "--strict").returncode == 1
    demanded = pwmlff("ranks", "--plan", "1x0", "-np", 2, "--device", "gpu", "--json")
    assert demanded.returncode == 1
    assert "no GPU is visible" in demanded.json["errors"][1]


def test_devices_in_one_line():
    two = [rank(0), rank(1)]
    assert rank_survey.in_one_line(two) == "devices: 2 ranks on 2 GPUs (Test)"
    without = replace(rank(0), device=devices.CPU, visible=(), host="b", reason="no driver")
    found = rank_survey.in_one_line([rank(0), without, without])
    assert found == "devices: 1 rank on 1 GPU (Test), 2 ranks on the CPU (b: no driver)"


def test_replicas(pwmlff):
    """Four replicas of two ranks spread over the GPUs of their node together."""
    found = pwmlff("ranks", "--plan", "1x8", "--partition", "4x2", "--json")
    assert [r["replica"] for r in found.json["ranks"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [r["device"] for r in found.json["ranks"]] == list(range(8))
    assert rank_survey.replicas_of("2x1 3", 5) == [0, 1, 2, 2, 2]
    assert "is for 4 ranks, found 8" in pwmlff("ranks", "--plan", "1x8", "--partition", "2x2").words
    assert "'4y2'" in pwmlff("ranks", "--plan", "1x8", "--partition", "4y2").words


@pytest.mark.parametrize("nranks", [1, 2, 5, 8])
def test_real_ranks(pwmlff, nranks: int):
    found = pwmlff("ranks", "-np", nranks, "--device", "cpu", "--json")
    assert found.returncode == 0, found.words
    assert [r["rank"] for r in found.json["ranks"]] == list(range(nranks))
    assert {r["local_size"] for r in found.json["ranks"]} == {nranks}
    assert {tuple(r["cpus"]) for r in found.json["ranks"]} == {tuple(os.sched_getaffinity(0))}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_bound_ranks(pwmlff):
    found = pwmlff("ranks", "-np", 2, "--bind", "core", "--device", "cpu", "--json")
    assert found.returncode == 0, found.words
    one, other = (set(r["cpus"]) for r in found.json["ranks"])
    assert one and other and not one & other


def test_two_nodes_on_one_machine(pwmlff, inventory: str, tmp_path: Path):
    """Node-local numbers 0 1 0 1, from MPI; a hostfile of either spelling."""
    (tmp_path / "hosts").write_text("127.0.0.1:2  # MPICH\n\n127.0.0.2 slots=2\n")
    found = pwmlff(
        "ranks", "--hostfile", "hosts", "--mpirun-options", "-launcher fork",
        "--inventory", inventory, "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.words
    assert [r["node"] for r in found.json["ranks"]] == [0, 0, 2, 2]
    assert [r["local_rank"] for r in found.json["ranks"]] == [0, 1, 0, 1]
    assert [r["device"] for r in found.json["ranks"]] == [0, 1, 0, 1]
    assert not found.json["warnings"]


def mpmd(folder: Path, *environments: str) -> dict:
    """Start the command by mpirun, one rank with each environment, and read what it says."""
    command: list[object] = [PROGRAMS / "mpirun"]
    for environment in environments:
        name, _, value = environment.partition("=")
        command += [":"] * (len(command) > 1) + ["-n", 1, "-env", name, value, *COMMAND]
        command += ["ranks", "--inventory", "gpus.json", "--json"]
    done = subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT,
        check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_one_gpu_shown_to_each_rank(inventory: str, tmp_path: Path):
    """CUDA_VISIBLE_DEVICES set for each rank: each has its own GPU, as number 0."""
    found = mpmd(tmp_path, "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1")
    assert [r["device"] for r in found["ranks"]] == [0, 0]
    assert [r["gpu"]["uuid"] for r in found["ranks"]] == ["GPU-a0", "GPU-a1"]
    assert not found["warnings"]


def test_ranks_that_see_other_gpus(inventory: str, tmp_path: Path):
    found = mpmd(
        tmp_path, "CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=1"
    )
    (view,) = [text for text in found["warnings"] if "sees" in text]
    assert "rank 2 sees 1 GPU (CUDA_VISIBLE_DEVICES=1)" in view
    assert [r["device"] for r in found["ranks"]] == [0, 1, 0]  # counted among those that see it
    assert any("ranks 1-2 share GPU" in text for text in found["warnings"])


@pytest.mark.parametrize("name", rank_survey.LOCAL_RANK[1:])
def test_launcher_that_counts_otherwise(inventory: str, tmp_path: Path, monkeypatch, name: str):
    """Replicas go by what the launcher says: a wrong number is told."""
    monkeypatch.setattr(rank_survey, "LOCAL_RANK", (name,))
    (text,) = warnings_of([rank(0, environment={name: "0"}), rank(1, environment={name: "0"})])
    assert f"rank 1: the launcher says {name}=0, but it is local rank 1" in text


ODD = {
    "idle": ([rank(0, size=1)], "no rank uses GPU 0000:01:00.0; start more ranks"),
    "shared": ([rank(k, size=3) for k in range(3)], "ranks 0,2 share GPU 0000:00:00.0"),
    "too old": (
        [rank(0, (replace(gpu(0), supported=False),), 1)],
        "GPU 0000:00:00.0 is older than the compiled kernels",
    ),
    "unequal ranks": (
        [rank(0), rank(1), rank(2, (gpu(0, "b"), gpu(1, "b")), 3, node=2, host="b")],
        "different numbers of ranks: a 2, b 1",
    ),
    "unequal GPUs": (
        [rank(0), rank(1), *(
            rank(k, (gpu(0, "b"), gpu(1, "b"), gpu(2, "b")), node=2, host="b") for k in range(2)
        )],
        "different numbers of GPUs: a 2, b 3",
    ),
    "across sockets": (
        [rank(k, cpus=(2 * k, 2 * k + 1), ncpus=8, sockets=(0, 1) if k else (0,)) for k in (0, 1)],
        "rank 1 is bound to cores 2-3 of sockets 0-1",
    ),
    "one core for two": (
        [rank(k, cpus=(3,), ncpus=8, sockets=(0,)) for k in range(2)],
        "2 ranks are bound to 1 core (3)",
    ),
    "overlapping cores": (
        [rank(k, cpus=(k, k + 1), ncpus=8, sockets=(0,)) for k in range(2)],
        "cores 1 are bound to several ranks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_warnings(case: str):
    found, words = ODD[case]
    texts = warnings_of(found)
    assert any(words in text for text in texts), texts


def test_nothing_odd():
    assert warnings_of([rank(0), rank(1)]) == []
    bound = [rank(k, cpus=(k, k + 4), ncpus=8, sockets=(0,)) for k in range(2)]
    assert warnings_of(bound) == []


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--plan", "2"], "--plan is '2', expected NODESxGPUS"),
        (["--plan", "1000000x8", "-np", "1000000"], "may be 131072 at most"),
        (["--plan", "100000000x1"], "--plan 100000000x1 with 100000000 ranks is too large"),
        (["--plan", "1x1000000", "-np", "2"], "is too large: ranks, and nodes, times the GPUs"),
        (["--plan", "9999999999999x1"], "expected NODESxGPUS like 2x4"),
        (["--plan", "1x2", "--partition", "999999999x1"], "is for 999999999 ranks"),
        (["--plan", "1x2", "--partition", "2x0"], "--partition holds '2x0'"),
        (["-np", "1000000"], "found 1000000 ranks, expected at most"),
        (
            ["-H", "n1:8", "-np", "1000000"],
            "found 1000000 ranks, expected at most 131072 for a run",
        ),
        (["-H", "n1:0"], "host 'n1:0' has 0 slots"),
        (
            ["-H", "n1:1000000"],
            "host 'n1:1000000' has 1000000 slots; expected name:slots with 1 to",
        ),
        (["-H", "n1:²"], "host 'n1:²' has ² slots"),
        (
            ["-H", "n1,-oProxyCommand=date:2"],
            "has the name '-oProxyCommand=date'; expected letters",
        ),
        (["-H", "n1 -x:2"], "has the name 'n1 -x'"),
        (["-H", "n1\n"], "has the name 'n1\\n'"),
        (["-H", "n1;date"], "has the name 'n1;date'"),
        (
            ["--hostfile", "options"],
            "host '-oProxyCommand=date' has the name '-oProxyCommand=date'",
        ),
        (["-H", "n1", "--hostfile", "x"], "both a list of hosts and a hostfile"),
        (["--hostfile", "absent"], "found no hostfile 'absent'"),
        (["-np", "1", "--mpirun", "absent"], "found no 'absent'"),
        (["-np", "1", "--mpirun-options", "-nonsense"], "exit code"),
    ],
)
def test_errors(pwmlff, tmp_path: Path, arguments, words):
    (tmp_path / "options").write_text("n1:8\n-oProxyCommand=date slots=2\n")
    found = pwmlff("ranks", *arguments)
    assert found.returncode == 2
    assert words in found.words


def test_hosts():
    """What ssh takes for a host, with a user if need be."""
    names = ("n1", "node-07.cluster.example.org", "10.0.0.7", "gpu_3", "me@n1", "N1")
    assert mpirun.parse_hosts(",".join(f"{name}:2" for name in names)) == [
        mpirun.Host(name, 2) for name in names
    ]


def test_ranks_of_a_job(monkeypatch):
    """A scheduler's job has nodes that are not named here; without one, this machine is all."""
    for name in filter(mpirun.ALLOCATIONS.fullmatch, [*os.environ]):
        monkeypatch.delenv(name)
    most = mpirun.MOST_OF_CORE * len(os.sched_getaffinity(0))
    mpirun.require_possible(most)
    with pytest.raises(Failure, match=f"found {most + 1} ranks, expected at most {most} for this"):
        mpirun.require_possible(most + 1)
    mpirun.require_possible(most + 1, elsewhere=True)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    mpirun.require_possible(most + 1)


@pytest.fixture
def open_mpi(monkeypatch) -> str:
    """An mpirun of Open MPI, where this machine has one."""
    for folder in os.get_exec_path():
        try:
            found = mpirun.find(str(Path(folder, "mpirun")))
        except Failure:
            continue
        if found.family == "openmpi":
            for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
                monkeypatch.setenv(name, "1")
                monkeypatch.setenv(f"{name}_CONFIRM", "1")
            return found.path
    pytest.skip("there is no mpirun of Open MPI on the PATH")


def test_open_mpi(pwmlff, open_mpi: str):
    """Its ranks find each other, started by the command and as what starts the command."""
    found = pwmlff("ranks", "-np", 3, "--device", "cpu", "--mpirun", open_mpi, "--json")
    assert found.returncode == 0, found.words
    assert [r["rank"] for r in found.json["ranks"]] == [0, 1, 2]
    command = [open_mpi, "-np", "2", "--oversubscribe", *COMMAND, "ranks", "--device", "cpu"]
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=TIMEOUT, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert len(json.loads(done.stdout)["ranks"]) == 2, done.stderr


@pytest.mark.parametrize(
    "environment,abi",
    [
        ({"OMPI_COMM_WORLD_RANK": "0"}, "openmpi"),
        ({"OMPI_COMM_WORLD_RANK": "0", "MPI4PY_MPIABI": "mpiabi"}, "mpiabi"),
        ({"PMI_RANK": "0"}, None),
    ],
)
def test_mpi4py_takes_the_mpi_of_the_launcher(monkeypatch, environment: dict, abi: str | None):
    """The choice is made before it is imported, and a choice of the user's stays."""
    for name in ("OMPI_COMM_WORLD_RANK", "MPI4PY_MPIABI", "PMI_RANK"):
        monkeypatch.setenv(name, "")  # so that it is taken back in the end
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seen = []

    class Stand(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name == "MPI":
                seen.append(os.environ.get("MPI4PY_MPIABI"))
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "mpi4py", Stand("mpi4py"))
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)  # of a test before this one
    with pytest.raises(ImportError):
        rank_survey.gather("cpu")
    assert seen[:1] == [abi]


def test_mpirun_of_another_family(pwmlff, tmp_path: Path):
    """Its ranks do not find each other: each believes to be the only one."""
    other = tmp_path / "mpirun"
    other.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi\n'
        'while [ "${1#*python}" = "$1" ]; do shift; done\n'
        '"$@"; "$@"\n'
    )
    other.chmod(0o755)
    found = pwmlff("ranks", "-np", 2, "--mpirun", other)
    assert found.returncode == 2
    assert "started 2 ranks, but mpi4py sees 1 of them" in found.words
