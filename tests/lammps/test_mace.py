"""The fused engine for MACE in lmp: features of atoms of other ranks come from those."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from test_ensembles import found_by_check
from test_numbers import assert_equal, assert_same_on_any_number_of_ranks, read

from harness import PROGRAMS, Lammps, find_lmp, thorough
from mace_oracle import Shape, save
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE
from systems import SYSTEMS, crystal

STYLE = "pair_style pwmlff model.pt\npair_coeff * * O Hf\n"
SHAPE = Shape()
#: Three rounds, of which the features in the middle are the widest.
DEEP = Shape(leaving=(0, 2, 0), residual=(True, False, True), density=True, zbl=True)


@pytest.mark.parametrize("engine", [thorough("exact"), "double", "mixed", "device", "device mixed"])
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name.startswith("two")])
@pytest.mark.parametrize("ranks", [thorough(1), 2])
def test_reference(lammps: Lammps, name: str, ranks: int):
    """Triclinic cells and slabs smaller than the cutoff."""
    atoms = SYSTEMS[name].atoms()
    model = save(lammps.folder / "model.pt", SHAPE)
    prism = lammps.data(atoms, [8, 72])
    run = lammps.run(f"{read(atoms)}{STYLE}{MEASURE}run 0\n{DUMP}", ranks)
    assert "engine fused" in run.output
    assert_equal(lammps, run, evaluate(model, atoms), prism)


@pytest.mark.parametrize("engine", ["exact", thorough("double"), "device"])
@pytest.mark.parametrize("shape", [thorough(SHAPE), DEEP], ids=["two rounds", "three rounds"])
def test_any_number_of_ranks(lammps: Lammps, shape: Shape):
    save(lammps.folder / "model.pt", shape)
    assert_same_on_any_number_of_ranks(lammps, share=1e-10)


@pytest.mark.parametrize("engine", ["exact", thorough("double")])
def test_gates_on_any_number_of_ranks(lammps: Lammps):
    """Atoms take part by their own features, too, which are never those of a ghost."""
    save(lammps.folder / "model.pt", replace(DEEP, gates=True, edge_channels=7))
    assert_same_on_any_number_of_ranks(lammps, share=1e-10)


@pytest.mark.parametrize("engine", ["exact"])
@pytest.mark.parametrize("ranks", [2])
def test_no_ghosts_of_ghosts(lammps: Lammps, ranks: int):
    """The cutoff alone says how far ghosts reach, whatever the number of rounds."""
    save(lammps.folder / "model.pt", DEEP)
    lammps.data(crystal(2), [8, 72])
    run = lammps.run(f"{read(crystal(2))}{STYLE}run 0\n", ranks)
    assert re.findall(r"ghost atom cutoff = (\S+)", run.output) == ["5"]


@pytest.mark.parametrize("engine", ["exact", "device"])
def test_beside_other_styles(lammps: Lammps):
    """In an ensemble with files that exchange other widths, or nothing; in a hybrid style, whose
    room for exchange was made before; with two threads."""
    atoms = crystal(2)
    prism = lammps.data(atoms, [8, 72])
    model = save(lammps.folder / "model.pt", SHAPE)
    save(lammps.folder / "deep.pt", DEEP)
    save(lammps.folder / "one.pt", Shape(leaving=(0,), residual=(False,)))
    run = lammps.run(
        f"{read(atoms)}"
        "pair_style hybrid/overlay zero 4.0 pwmlff model.pt deep.pt one.pt out_freq 1\n"
        f"pair_coeff * * pwmlff O Hf\npair_coeff * * zero\n{MEASURE}run 0\n{DUMP}",
        2,
        OMP_NUM_THREADS="2",
    )
    assert_equal(lammps, run, evaluate(model, atoms), prism)


TILED, MULTI = "comm_style tiled\n", "neighbor 1.0 multi\ncomm_modify mode multi\n"


@pytest.mark.parametrize(
    "engine,comm",
    [
        *(("double", comm) for comm in ("", MULTI)),
        ("device", ""),
        *(thorough(*each) for each in (("double", TILED), ("device", TILED), ("device", MULTI))),
    ],
)
def test_dynamics(lammps: Lammps, comm: str):
    """Atoms move within the skin and change ranks; with communication of each kind."""
    save(lammps.folder / "model.pt", SHAPE)
    lammps.data(crystal(2), [8, 72])
    text = (
        f"{read(crystal(2))}neighbor 1.0 bin\n{comm}{STYLE}"
        "neigh_modify delay 0 every 1 check yes\n"
        "velocity all create 300 4711 loop geom\nfix 1 all nve\ntimestep 0.0005\n"
        f"{MEASURE}run 100\n"
    )
    energies = [lammps.run(text, ranks).thermo()["TotEng"] for ranks in (1, 4)]
    np.testing.assert_allclose(energies[1], energies[0], rtol=1e-9)
    assert np.ptp(energies[0]) < 0.05


@pytest.mark.parametrize("engine", ["double", "mixed"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_check_in_flight(lammps: Lammps, ranks: int):
    """Pieces of the structures of the run, which differ by what the engine is off by."""
    save(lammps.folder / "model.pt", SHAPE)
    atoms = crystal(3)
    lammps.data(atoms, [8, 72])
    style = STYLE.replace("model.pt", "model.pt check 5")
    run = lammps.run(
        f"{read(atoms)}{style}velocity all create 900 7\nfix 1 all nve\nrun 20\n", ranks
    )
    found = found_by_check(lammps)
    assert {step for step, *_ in found} <= {0, 5, 10, 15, 20}
    smallest = 1e-11 if "mixed" in lammps.engine.keywords else 0.0
    for _, model, energy, force, n in found:
        assert model == 1
        assert smallest < energy < lammps.engine.atom_energy
        assert smallest < force < lammps.engine.force
        assert n == sum(
            min(100, max(24, -(-share // 10))) for share in [len(atoms) // ranks] * ranks
        )
    assert len(found) > 0
    assert "more than its precision allows" not in run.output


LOADS = """
lmp = start()
lmp.commands_string('''
units metal
region box block 0 20 0 20 0 20
create_box 2 box
create_atoms 1 random 20 1 box
create_atoms 2 random 20 2 box
mass 1 16
mass 2 178
''')
for load in range(101):
    lmp.commands_string('pair_style pwmlff model.pt')
    lmp.commands_string('pair_coeff * * O Hf')
    lmp.commands_string('run 0')
    if load in (20, 100):
        print(4096 * int(open('/proc/self/statm').read().split()[1]))
"""


@pytest.mark.parametrize("engine", ["automatic"])
def test_loads_leave_no_memory(lammps: Lammps):
    """What one hundred of them take beyond the twentieth: less than a tenth of a file each."""
    save(lammps.folder / "model.pt", SHAPE)
    size = (lammps.folder / "model.pt").stat().st_size
    lines = lammps.python(LOADS).output.splitlines()
    first, last = (int(line) for line in lines if line.isdigit())
    assert last - first < 80 * size / 10


def run_with_other_engines(lammps: Lammps, model: str) -> subprocess.CompletedProcess[str]:
    """Two ranks, of which the second one runs the file's own code."""
    lammps.data(crystal(2), [8, 72])
    (lammps.folder / "in.lmp").write_text(
        f"{read(crystal(2))}variable own getenv OWN\n"
        f"pair_style pwmlff {model} check 1 engine ${{own}}\npair_coeff * * O Hf\nrun 0\n"
    )
    lmp = find_lmp()
    one, other = (
        ["-env", "OWN", engine, "-np", "1", lmp.path, "-in", "in.lmp"]
        for engine in ("fused", "torchscript")
    )
    return subprocess.run(
        [PROGRAMS / "mpirun", *one, ":", *other], cwd=lammps.folder, capture_output=True,
        env={**os.environ, **lammps.engine.environment, **lmp.environment}, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def test_check_of_ranks_that_run_other_engines(lammps: Lammps):
    """That of the first rank alone; the second one has nothing to compare."""
    done = run_with_other_engines(
        lammps, lammps.save(SYSTEMS["two elements, triclinic"].model(isotropic=True))
    )
    assert done.returncode == 0, done.stdout
    ((*_, natoms),) = found_by_check(lammps)
    assert natoms < 0.1 * 64


def test_ranks_that_run_other_engines(lammps: Lammps):
    """Features would be waited for in vain: an error at once instead."""
    save(lammps.folder / "model.pt", SHAPE)
    done = run_with_other_engines(lammps, "model.pt")
    assert done.returncode != 0
    assert re.search(
        r"ERROR: Pair style pwmlff: ranks evaluate model 'model.pt' in ways that cannot exchange "
        r"features with each other \(fused, precision double, .*; torchscript, float64\); "
        r"use 'engine torchscript', or ranks that are alike",
        done.stdout,
    ), done.stdout
