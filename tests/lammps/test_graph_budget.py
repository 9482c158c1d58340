"""Nodes, edges and memory in the log, against ase's neighbors and numbers known beforehand."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from ase.neighborlist import neighbor_list
from test_numbers import read

from cpp import compiled
from edge_models import MessagePassing, Reserving, Wide
from harness import PROGRAMS, TIMEOUT, Lammps, find_lmp
from systems import crystal

STYLE = "pair_style pwmlff model.pt\npair_coeff * * O Hf\n"
CUTOFF = 3.0
ONE = r"  edges: (\d+) of (\d+) nodes; ([\d.]+ [MG]B) of memory"
SEVERAL = (
    r"  edges: (\d+) of (\d+) nodes on a rank at most, where one rank alone has (\d+) of (\d+): "
    r"([\d.]+) times its time for a step, ([\d.]+) times its work in all; ([\d.]+ [MG]B) of memory "
    r"on a host at most\n"
)


@pytest.fixture
def engine() -> str:
    """There is one only."""
    return "automatic"


def reserving(width: int) -> Reserving:
    return Reserving(MessagePassing([8, 72], CUTOFF), width)


def start(lammps: Lammps, model: torch.nn.Module, ranks: int = 1, run: str = "run 0\n"):
    torch.jit.script(model).save(lammps.folder / "model.pt")
    atoms = crystal(4)
    lammps.data(atoms, [8, 72])
    return atoms, lammps(f"{read(atoms)}{STYLE}{run}", ranks)


def found(pattern: str, output: str) -> list[float]:
    line = re.search(pattern, output)
    assert line, output
    return [
        float(number) * {"": 1.0, "MB": 1e6, "GB": 1e9}[unit]
        for number, _, unit in (group.partition(" ") for group in line.groups())
    ]


def test_one_rank(lammps: Lammps):
    """The memory is that of the tensor that is much larger than all others; said once."""
    width = 4000
    atoms, run = start(lammps, reserving(width), run="run 0\nrun 0\n")
    nedges = len(neighbor_list("i", atoms, CUTOFF))
    edges, nodes, memory = found(ONE, run.output)
    assert (edges, nodes) == (nedges, len(atoms))
    assert memory == pytest.approx(8 * width * nedges, rel=0.02)
    assert run.output.count("  edges: ") == 1


def test_two_ranks(lammps: Lammps):
    """The second round needs the edges of all atoms that are near the other half."""
    width = 4000
    atoms, run = start(lammps, reserving(width), 2)
    nedges = len(neighbor_list("i", atoms, CUTOFF))
    edges, nodes, alone, natoms, time, work, memory = found(SEVERAL, run.output)
    assert (alone, natoms) == (nedges, len(atoms))
    assert nedges / 2 < edges <= nedges and len(atoms) / 2 < nodes <= len(atoms)
    assert time == pytest.approx(edges / nedges, abs=0.006)
    assert work <= 2 * time + 0.02
    assert memory == pytest.approx(8 * width * work * nedges, rel=0.02)


@pytest.mark.parametrize("ranks", [1, 2])
def test_too_little_memory(lammps: Lammps, ranks: int):
    """Three times of what there is: one error, before anything of that is taken."""
    nedges = len(neighbor_list("i", crystal(4), CUTOFF))
    room = psutil.virtual_memory().available
    _, run = start(lammps, reserving(3 * room // (8 * nedges)), ranks)
    assert run.returncode != 0
    (text,) = set(re.findall(r"ERROR: (.*)", run.output))
    needed, _, _, left = found(
        r"on host \S+ the ranks need about ([\d.]+ [MG]B) of memory more for the edges of model "
        r"'model.pt' \(this one has (\d+) edges of (\d+) nodes\), but ([\d.]+ [MG]B) are left "
        r"there; use more hosts with fewer ranks each, or fewer atoms",
        text,
    )
    assert left <= 1.05 * room and needed > 2.9 * room


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_control_groups(tmp_path: Path):
    """Of both versions, of the group itself and of one around it, less what can be given up."""
    program = compiled("lammps/available_memory.cpp", tmp_path, "pair_pwmlff/available_memory.cpp")

    def left(root: Path) -> float:
        return float(subprocess.check_output([program, root], text=True))

    assert left(tmp_path / "nothing") == np.inf
    root = tmp_path / "root"
    write(root / "proc", meminfo="MemTotal: 9000 kB\nMemAvailable:   8000 kB\n")
    assert left(root) == 8000 * 1024
    write(root / "proc/self", cgroup="4:memory:/job/step\n0::/job/step\n")
    first, second = root / "sys/fs/cgroup/memory", root / "sys/fs/cgroup"
    write(first / "job", memory__limit_in_bytes="700000\n", memory__usage_in_bytes="200000\n",
          memory__stat="inactive_file 9\ntotal_inactive_file 50000\n")  # fmt: skip
    assert left(root) == 550000
    write(second / "job/step", memory__max="max\n", memory__current="100000\n")
    assert left(root) == 550000
    write(second / "job/step", memory__max="500000\n", memory__stat="anon 3\ninactive_file 20\n")
    assert left(root) == 400020


def test_the_limit_of_a_group(lammps: Lammps):
    """Refused where a control group leaves too little, rather than killed there.

    With little more than the tensors, freed memory goes back at once, as gaps between them would
    take more than there is.
    """
    path = re.search(r"^\d+:memory:/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    group = Path("/sys/fs/cgroup/memory") / (path[1] if path else "") / f"test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    torch.jit.script(Wide()).save(lammps.folder / "model.pt")
    atoms = crystal(14)
    lammps.data(atoms, [8, 72])
    (lammps.folder / "in.lmp").write_text(
        f"{read(atoms)}{STYLE}run 0\nrun 0\nprint 'twice'\nreplicate 2 2 1\nrun 0\n"
    )
    lmp = find_lmp()
    limit = 1_000_000_000
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        done = subprocess.run(
            ["sh", "-c", f'echo $$ > "{group}/cgroup.procs"; exec "$0" "$@"',
             PROGRAMS / "mpirun", "-np", "1", lmp.path, "-in", "in.lmp"],
            cwd=lammps.folder, text=True,
            env={**os.environ, **lammps.engine.environment, **lmp.environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT,
        )  # fmt: skip
    finally:
        group.rmdir()
    assert "twice" in done.stdout, done.stdout
    _, _, memory = found(ONE, done.stdout)
    assert 0.5 * limit < memory < 0.7 * limit
    assert "freed memory is given back at each step, which is slower" in done.stdout
    assert " of memory more for the edges" in done.stdout, done.stdout
