"""What ranks tell each other: as threads of this process, under mpirun and under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import PROGRAMS
from pwmlff.launch import interpreter
from pwmlff.report import Failure
from pwmlff.train import comm as communication
from pwmlff.train.comm import Serial, SharedFailure
from thread_ranks import TIMEOUT, Thread, on_ranks


def by_definition(rows: np.ndarray) -> np.ndarray:
    """The tree as the docstring states it, over rows padded to a power of two with None."""
    level = [row.astype(np.float64) for row in rows]
    level += [None] * ((1 << (len(rows) - 1).bit_length()) - len(rows))
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [left if right is None else left + right for left, right in pairs]
    return level[0]


def rows_of(nslots: int, dtype: type) -> np.ndarray:
    """Numbers of many magnitudes, whose sum depends on the order."""
    rng = np.random.default_rng(nslots)
    return (rng.normal(size=(nslots, 9000)) * 10.0 ** rng.integers(-8, 8, (nslots, 1))).astype(
        dtype
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nslots", [1, 2, 3, 5, 7, 8, 12, 13, 16, 32])
def test_sum_has_the_same_bits_on_any_number_of_ranks(nslots: int, dtype: type):
    rows = rows_of(nslots, dtype)
    expected = by_definition(rows)
    for size in (1, 2, 3, 4, 5, 8, 11, nslots + 3):
        kept = rows.copy()
        results = on_ranks(
            size,
            lambda comm, kept=kept: communication.ordered_sum(
                comm, nslots, kept[communication.owned(comm, nslots)]
            ),
        )
        for result in results:
            assert result.tobytes() == expected.tobytes(), f"{nslots} slots on {size} ranks"
        assert kept.tobytes() == rows.tobytes()


def test_sum_depends_on_the_order():
    """Else the test above would say nothing."""
    rows = rows_of(12, np.float64)
    assert rows[::-1].sum(axis=0).tobytes() != by_definition(rows).tobytes()


def test_equal_shares_are_exchanged():
    rows = rows_of(32, np.float32)

    def work(comm: Thread) -> int:
        communication.ordered_sum(comm, 32, rows[communication.owned(comm, 32)])
        return comm.exchanges

    assert on_ranks(4, work) == [2] * 4
    assert on_ranks(3, work) == [0] * 3


def test_sum_of_nothing_and_of_wrong_rows():
    assert communication.ordered_sum(Serial(), 0, np.zeros((0, 4))).tolist() == [0.0] * 4
    with pytest.raises(ValueError, match=r"float64 \[3, 4\].*\[2, P\] for slots 0 to 2 of 2"):
        communication.ordered_sum(Serial(), 2, np.zeros((3, 4)))
    with pytest.raises(ValueError, match="found rows int64"):
        communication.ordered_sum(Serial(), 2, np.zeros((2, 4), int))


def test_first_error_of_a_rank_ends_all():
    """The others do not wait until they can say no more than that they did."""

    def work(comm: Thread) -> list[int]:
        if comm.rank == 1:
            raise OSError("the disk of rank 1")
        return comm.allgather(comm.rank)

    with pytest.raises(OSError, match="the disk of rank 1"):
        on_ranks(3, work)


def failure(work: Callable[[], Any]) -> str:
    """Text of the failure that work must end in."""
    with pytest.raises(SharedFailure) as caught:
        work()
    return str(caught.value)


def test_failure_of_some_ranks_is_that_of_all():
    def work(comm: Thread) -> str:
        def load() -> int:
            if comm.rank == 1:
                raise Failure("no file 'a'; give another")
            return 3 // (comm.rank - 2)

        return failure(lambda: communication.agreed(comm, load))

    assert set(on_ranks(4, work)) == {"rank 1 (and 1 other rank): no file 'a'; give another"}
    assert on_ranks(3, lambda comm: communication.agreed(comm, lambda: comm.rank)) == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        communication.agreed(Serial(), lambda: 1 // 0)


def test_ranks_that_differ_are_named():
    def work(comm: Thread) -> str:
        numbers = np.arange(6.0)
        communication.same_everywhere(comm, numbers)
        numbers[2] += 1e-15 * (comm.rank in {1, 3})
        return failure(lambda: communication.same_everywhere(comm, numbers))

    assert all(
        "of ranks 1, 3 differ from those of the other 3 of 5" in t for t in on_ranks(5, work)
    )

    def shapes(comm: Thread) -> str:
        numbers = np.zeros(6).reshape((2, 3) if comm.rank else (6,))
        return failure(lambda: communication.same_everywhere(comm, numbers))

    assert "the parameters of rank 0 differ" in on_ranks(3, shapes)[2]


@pytest.mark.parametrize(
    "environment,kind",
    [
        ({}, "serial"),
        ({"PMI_RANK": "0"}, "mpi"),
        ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, "mpi"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "mpi"),
        ({"TORCHELASTIC_RUN_ID": "a", "PMI_RANK": "0"}, "torch"),
        (dict.fromkeys(communication.TORCH_VARIABLES, "1"), "torch"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "serial"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "serial"),  # a batch script
    ],
)
def test_launchers(environment: dict[str, str], kind: str):
    assert communication.launched(environment) == kind


def test_tasks_that_know_nothing_of_each_other(monkeypatch):
    with pytest.raises(Failure, match=r"srun started 4 tasks .* --mpi=pmi2"):
        communication.launched({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"})
    with pytest.raises(Failure, match="'gloo', expected auto, serial, mpi, torch"):
        communication.connect("gloo")
    for name in communication.TORCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Failure, match="no RANK and no WORLD_SIZE"):
        communication.connect("torch")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(Failure, match=r"mpi4py cannot be used: .*; reinstall mpi4py and mpich"):
        communication.connect("mpi")
    monkeypatch.setenv("PMI_SIZE", "3")  # of a launcher whose MPI is another than mpi4py's
    done = run(*interpreter.command("from pwmlff.train.comm import connect; connect('mpi')"))
    assert "the launcher started 3 ranks, but mpi4py sees 1 of them" in done.stderr


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command; one that hangs fails."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_serial_run_loads_neither_mpi4py_nor_torch():
    code = "import pwmlff.train.comm as c; c.connect(); print({*sys.modules} & {'mpi4py', 'torch'})"
    assert run(*interpreter.command(code)).stdout.strip() == "set()"


#: What each rank of a launcher does; it leaves its findings in a file, and then ends in an error.
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from pwmlff.launch import interpreter
from pwmlff.report import Failure
from pwmlff.train import comm as c

comm = c.connect()
numbers = np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * comm.rank
rows = np.random.default_rng(1).normal(size=(9, 500)).astype(np.float32)
sums = [c.ordered_sum(comm, n, rows[:n][c.owned(comm, n)]) for n in (1, 8, 9)]
def shared():
    if comm.rank == 1:
        raise Failure("its disk is full")
try:
    c.agreed(comm, shared)
except c.SharedFailure as error:
    said = str(error)
found = dict(
    name=comm.name, size=comm.size, local=[comm.local_rank, comm.local_size],
    broadcast=comm.broadcast({"of": comm.rank}, 1), allgather=comm.allgather(comm.rank),
    gathered=comm.allgather_array(numbers).tolist(),
    nothing=list(comm.allgather_array(np.zeros((0, 3))).shape),
    swapped=comm.exchange(numbers.T, 1 - comm.rank).tolist(),
    sums=[s.tobytes().hex() for s in sums], said=said, torch="torch" in sys.modules,
)
c.same_everywhere(comm, rows)
Path(sys.argv[1], f"{comm.rank}.json").write_text(json.dumps(found))
comm.barrier()
with c.together(comm):
    if comm.rank == 1:
        raise KeyError("nobody expected that")
    comm.barrier()  # which rank 1 never reaches
"""


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_under_a_launcher(launcher: str, tmp_path: Path):
    size = 2
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    start = {
        "mpirun": ["mpirun", "-np", str(size), sys.executable, program, tmp_path],
        "torchrun": [
            "torchrun",
            "--standalone",
            f"--nproc-per-node={size}",
            program,
            tmp_path,
        ],
    }[launcher]
    done = run(PROGRAMS / start[0], *start[1:])
    assert (tmp_path / "0.json").is_file(), done.stderr
    numbers = np.arange(12.0).reshape(3, 4)
    rows = np.random.default_rng(1).normal(size=(9, 500)).astype(np.float32)
    for rank in range(size):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["name"] == {"mpirun": "mpi", "torchrun": "torch"}[launcher]
        assert found["torch"] is (launcher == "torchrun")
        assert [found["size"], *found["local"]] == [size, rank, size]
        assert found["broadcast"] == {"of": 1}
        assert found["allgather"] == [*range(size)]
        assert np.array_equal(found["gathered"], [numbers + 100 * k for k in range(size)])
        assert found["nothing"] == [size, 0, 3]
        assert np.array_equal(found["swapped"], (numbers + 100 * (1 - rank)).T)
        for n, text in zip((1, 8, 9), found["sums"], strict=True):
            assert text == by_definition(rows[:n]).tobytes().hex()
        assert found["said"] == "rank 1: its disk is full"
    assert done.returncode != 0
    assert done.stderr.count("fault of pwmlff: KeyError: 'nobody expected that'") == 1, done.stderr
    assert f"error: rank 1 of {size}: this is a fault of pwmlff: KeyError" in done.stderr


#: Once a rank has its last array it holds Python's lock, which gloo needs, until Python ends.
LEAVING = """
import sys, time
import numpy as np
from pwmlff.train import comm as c

comm = c.connect("torch")
sys.setswitchinterval(60)
for _ in range(20):
    comm.allgather_array(np.zeros(4))
late = time.monotonic() + 0.1
while time.monotonic() < late:
    pass
"""


def test_ranks_leave_in_peace(tmp_path: Path):
    """No thread of gloo is left waiting for Python's lock: that aborted most of such runs."""
    program = tmp_path / "program.py"
    program.write_text(LEAVING)
    done = run(PROGRAMS / "torchrun", "--standalone", "--nproc-per-node=4", program)
    assert done.returncode == 0, done.stderr


#: Ranks of two nodes; rank 1 cannot read its file, then ends as a command does.
SHARED = """
from pwmlff.report import Failure, finish
from pwmlff.train import comm as c

comm = c.connect()
assert (comm.size, comm.local_rank, comm.local_size) == (4, comm.rank % 2, 2), comm.local_rank

def read():
    if comm.rank % 2:
        raise Failure(f"found no file {comm.rank}")

def work():
    with c.together(comm):
        c.agreed(comm, read)

finish(work, as_json=False)
"""


def test_failure_is_said_once():
    nodes = ["-launcher", "fork", "-hosts", "127.0.0.1:2,127.0.0.2:2"]
    command = interpreter.command("import sys" + SHARED)
    done = run(PROGRAMS / "mpirun", *nodes, "-n", "4", *command)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("error: rank 1 (and 1 other rank): found no file 1") == 1, done.stderr
    assert "Traceback" not in done.stderr
