"""Device auto between two engines: what is timed, and which one all ranks take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.neighborlist import neighbor_list

from cpp import compiled, mpi
from harness import PROGRAMS


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """try_devices.cpp with the source that the plugin has."""
    include, library = mpi()
    return compiled(
        "device/try_devices.cpp", tmp_path_factory.mktemp("trial"), f"-I{include}",
        "pair_pwmlff/device_trial.cpp", str(library), f"-Wl,-rpath,{library.parent}",
    )  # fmt: skip


def trial(program: Path, *ranks: str) -> list[str]:
    """Device, seconds on the GPU and the CPU, atoms, failures: the same on all ranks."""
    command = [PROGRAMS / "mpirun", "-n", str(len(ranks)), program, "trial"]
    words = [word for rank in ranks for word in rank.split()]
    run = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=True)
    lines = run.stdout.splitlines()
    assert lines == [lines[0]] * len(ranks)
    return lines[0].split("|")


def test_slowest_rank_counts(program: Path):
    """The first calls do not, which compile and fill caches."""
    assert trial(program, "2 3 4") == ["GPU", "2", "3", "4", "", ""]
    assert trial(program, "3 2 4") == ["CPU", "3", "2", "4", "", ""]
    assert trial(program, "1 4 4", "6 4 3") == ["CPU", "6", "4", "4", "", ""]
    assert trial(program, "5 1 4", "5 6 4") == ["GPU", "5", "6", "4", "", ""]
    assert trial(program, "5 5 1")[0] == "GPU"


def test_rank_without_atoms(program: Path):
    """It has nothing to time, and waits for nobody."""
    assert trial(program, "9 9 0", "3 2 4", "2 1 4") == ["CPU", "3", "2", "4", "", ""]
    assert trial(program, "1 1 0", "1 1 0")[0] == "GPU"


@pytest.mark.parametrize("when", ["warm", "late"])
def test_out_of_memory(program: Path, when: str):
    """On one of the ranks: all take the other device; where both fail, that of a run without."""
    device, *_, on_gpu, on_cpu = trial(program, "1 2 4", f"{when} 2 4", "1 2 0")
    assert (device, on_gpu, on_cpu) == ("CPU", "out of memory", "")
    device, *_, on_gpu, on_cpu = trial(program, f"2 {when} 4", "2 1 4")
    assert (device, on_gpu, on_cpu) == ("GPU", "", "out of memory")
    assert trial(program, f"{when} 2 4", f"2 {when} 4")[0] == "GPU"


def piece(
    program: Path, atoms: Atoms, reach: float, shell: float = 0.0, most: int = 8000
) -> list[float]:
    """How many atoms, centers, edges and nodes, and the sum of the squares of the edges."""
    lines = [" ".join(map(repr, edge)) for edge in atoms.cell.tolist()]
    lines.append(" ".join(str(int(periodic)) for periodic in atoms.pbc))
    lines += [f"{k % 2} {x!r} {y!r} {z!r}" for k, (x, y, z) in enumerate(atoms.positions.tolist())]
    run = subprocess.run(
        [program, "piece", str(reach), str(shell), str(most)], input="\n".join(lines),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [float(word) for word in run.stdout.split()]


def spread(natoms: int, cell: list[list[float]], pbc: list[bool], least: float = -0.1) -> Atoms:
    """Atoms anywhere in a cell, or a little outside."""
    places = np.random.default_rng(natoms).uniform(least, 1.0, (natoms, 3))
    return Atoms(f"H{natoms}", cell=cell, pbc=pbc, positions=places @ cell)


def seen(atoms: Atoms, reach: float) -> np.ndarray:
    """The lengths of edges, by ase."""
    distances = neighbor_list("d", atoms, reach)
    return distances[distances > 0.5]


TRICLINIC = [[4.0, 0.0, 0.0], [1.5, 5.0, 0.0], [-1.0, 2.0, 6.0]]


@pytest.mark.parametrize("pbc", [[True] * 3, [True, False, True], [False] * 3])
def test_edges_of_a_piece(program: Path, pbc: list[bool]):
    """Those of ase, in a cell smaller than their reach; what coincides is not seen."""
    atoms = spread(9, TRICLINIC, pbc)
    expected = seen(atoms, 5.5)
    natoms, ncenters, nedges, nnodes, square = piece(program, atoms, 5.5)
    assert (natoms, ncenters, nedges, nnodes) == (9, 9, len(expected), 9)
    assert square == pytest.approx((expected**2).sum())


def test_edges_of_ghosts(program: Path):
    """Of message passing over several ranks: they start up to the shell beyond the share."""
    atoms, shell, reach = spread(5, TRICLINIC, [True] * 3), 2.5, 3.0
    fractions = atoms.positions @ np.linalg.inv(atoms.cell)
    height = atoms.cell.volume / np.array(
        [np.linalg.norm(np.cross(atoms.cell[d - 2], atoms.cell[d - 1])) for d in range(3)]
    )
    steps = np.array(list(np.ndindex(7, 7, 7))) - 3
    images = (fractions + steps[:, None]).reshape(-1, 3)
    beyond = np.maximum(images - fractions.max(axis=0), fractions.min(axis=0) - images) * height
    starts = images[beyond.max(axis=1) <= shell] @ atoms.cell
    distances = np.linalg.norm(starts[:, None] - images @ atoms.cell, axis=2)
    expected = distances[(distances < reach) & (distances > 0.5)]
    natoms, ncenters, nedges, _, square = piece(program, atoms, reach, shell)
    assert (natoms, ncenters, nedges) == (5, len(starts), len(expected))
    assert square == pytest.approx((expected**2).sum())


def test_part_of_many_atoms(program: Path):
    """As dense as the whole; a sheet with nothing above it is cut within itself."""
    atoms = spread(6000, np.diag([40.0, 25.0, 30.0]).tolist(), [True] * 3, 0.0)
    edges = seen(atoms, 3.0)
    natoms, _, found, *_ = piece(program, atoms, 3.0, most=1000)
    assert 500 <= natoms <= 1000
    assert found / natoms == pytest.approx(len(edges) / len(atoms), rel=0.1)
    atoms.positions[:, 2] = 1.0
    edges = seen(atoms, 1.5)
    natoms, _, found, *_ = piece(program, atoms, 1.5, most=1000)
    assert 500 <= natoms <= 1000
    assert found / natoms == pytest.approx(len(edges) / len(atoms), rel=0.1)
