"""The code for GPUs inside lmp: on a GPU, or on the CPU in its place where there is none."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch

from edge_models import MessagePassing
from harness import ENGINES, ON_DEVICE, PROGRAMS, Lammps, Run
from pwmlff.launch.lmp import DUMP, MEASURE, forces
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
STYLE = "pair_style pwmlff model.pt\npair_coeff * * O Hf\n"
READ = "units metal\nread_data atoms.data\n"
LIST_OF_LAMMPS = "pair pwmlff, perpetual"


@pytest.fixture
def engine() -> str:
    """Double precision, with a list of its own."""
    return "device"


@pytest.fixture
def folder(lammps: Lammps) -> Lammps:
    lammps.save(BINARY.model(isotropic=True))
    lammps.data(crystal(2), [8, 72])
    return lammps


@pytest.fixture
def on_cpu(folder: Lammps) -> Lammps:
    """The same folder with the engine for the CPU."""
    return Lammps(folder.folder, ENGINES["double"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_moving_atoms(folder: Lammps, on_cpu: Lammps, ranks):
    """Lists are made anew as atoms move, and the run stays that of the CPU."""
    text = (
        f"{READ}{STYLE}velocity all create 1500 11 mom yes\nneighbor 0.3 bin\n"
        f"neigh_modify every 1 delay 0 check yes\nfix 1 all nve\n{MEASURE}thermo 20\nrun 60\n{DUMP}"
    )
    expected = on_cpu.run(text, ranks)
    energy, force = expected.thermo()["PotEng"], forces(expected.atoms())
    run = folder.run(text, ranks)
    builds = int(run.output.split("Neighbor list builds = ")[1].split()[0])
    assert builds >= 3
    assert LIST_OF_LAMMPS not in run.output
    np.testing.assert_allclose(run.thermo()["PotEng"], energy, rtol=1e-9)
    np.testing.assert_allclose(forces(run.atoms()), force, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "style",
    [
        "pair_style pwmlff model.pt neighbors lammps\npair_coeff * * O Hf\n",
        f"neigh_modify exclude type 1 2\n{STYLE}",
        "pair_style hybrid/overlay pwmlff model.pt zbl 0.5 1.0\npair_coeff * * pwmlff O Hf\n"
        "pair_coeff 1 1 zbl 8 8\npair_coeff 1 2 zbl 8 72\npair_coeff 2 2 zbl 72 72\n",
    ],
    ids=["on demand", "exclude", "hybrid"],
)
def test_lists_of_lammps(folder: Lammps, on_cpu: Lammps, style):
    """Where not all pairs of all atoms count, the list of LAMMPS does."""
    text = f"{READ}{style}{MEASURE}run 0\n{DUMP}"
    plain = text.replace(" neighbors lammps", "")
    expected = on_cpu.run(plain, 2)
    energy, force = expected.thermo()["PotEng"], forces(expected.atoms())
    run = folder.run(text, 2)
    assert LIST_OF_LAMMPS in run.output
    np.testing.assert_allclose(run.thermo()["PotEng"], energy, rtol=1e-10)
    np.testing.assert_allclose(forces(run.atoms()), force, rtol=0, atol=1e-6)


def test_ranks_on_different_devices(folder: Lammps, on_cpu: Lammps):
    """Nodes with and without GPUs in one run: LAMMPS makes the list for all."""
    text = f"{READ}{STYLE}compute even all stress/atom NULL pair\n{MEASURE}run 0\n{DUMP}"
    expected = on_cpu.run(text, 2)
    energy, force = expected.thermo()["PotEng"], forces(expected.atoms())
    (folder.folder / "in.lmp").write_text(text)
    lmp = [PROGRAMS / "lmp", "-in", "in.lmp"]
    ours = [word for name, value in ON_DEVICE.items() for word in ("-env", name, value)]
    none = ["-env", "CUDA_VISIBLE_DEVICES", ""]
    done = subprocess.run(
        [PROGRAMS / "mpirun", "-np", "1", *none, *lmp, ":", "-np", "1", *ours, *lmp],
        cwd=folder.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert LIST_OF_LAMMPS in done.stdout
    run = Run(folder.folder, 0, done.stdout)
    np.testing.assert_allclose(run.thermo()["PotEng"], energy, rtol=1e-10)
    np.testing.assert_allclose(forces(run.atoms()), force, rtol=0, atol=1e-6)


def test_ensemble(folder: Lammps, on_cpu: Lammps):
    """Models of an ensemble share one list; the deviation is that of the CPU."""
    folder.save(BINARY.model(isotropic=True, seed=7), "b.pt")
    text = (
        f"{READ}pair_style pwmlff model.pt b.pt out_freq 2\npair_coeff * * O Hf\n"
        "velocity all create 300 11 mom yes\nfix 1 all nve\nrun 4\n"
    )
    deviation = []
    for lammps in (on_cpu, folder):
        lammps.run(text, 2)
        deviation.append(np.loadtxt(lammps.folder / "model_devi.out"))
    assert deviation[0].shape[0] == 3
    np.testing.assert_allclose(deviation[1], deviation[0], rtol=1e-5, atol=1e-8)


@pytest.mark.skipif(not ON_DEVICE, reason="there is a GPU")
def test_stand_in_is_a_gpu(folder: Lammps, on_cpu: Lammps):
    """What runs with device auto runs with device gpu."""
    expected = on_cpu.run(f"{READ}{STYLE}{MEASURE}run 0\n").thermo()["PotEng"]
    demanded = STYLE.replace("model.pt", "model.pt device gpu")
    found = folder.run(f"{READ}{demanded}{MEASURE}run 0\n").thermo()["PotEng"]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    torch.jit.script(MessagePassing([8, 72], 3.0)).save(folder.folder / "model.pt")
    plain = Lammps(folder.folder, replace(folder.engine, keywords=""))
    run = plain(f"{READ}{demanded}run 0\n")
    assert run.returncode != 0
    assert "cannot run on a GPU: what stands in for one" in run.output


LEFT_OUT = {
    "include": (
        "{read}group some id <= 40\natom_modify first some\nneigh_modify include some\n{style}"
    ),
    "second run": "{read}{style}run 0\ngroup one id 1\nneigh_modify exclude group one all\n",
    "by a fix": "{read}{style}fix w all widom 1 5 1 29494 300.0\n",
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_atoms_left_out(folder: Lammps, on_cpu: Lammps, case):
    """Whoever leaves atoms out of the list of LAMMPS, and whenever: the model does not see them."""
    measure = MEASURE
    if "widom" in LEFT_OUT[case]:
        measure = MEASURE.replace("custom step", "custom step f_w[1] f_w[2] f_w[3]")
    text = LEFT_OUT[case].format(read=READ, style=STYLE) + f"{measure}thermo 1\nrun 2\n{DUMP}"
    expected = on_cpu.run(text, 2)
    columns, force = expected.thermo(), forces(expected.atoms())
    run = folder.run(text, 2)
    for name, values in columns.items():
        np.testing.assert_allclose(run.thermo()[name], values, rtol=1e-8, err_msg=name)
    np.testing.assert_allclose(forces(run.atoms()), force, rtol=0, atol=1e-6)


def test_too_many_neighbors(folder: Lammps):
    folder.save(replace(BINARY, max_neighbor=3).model(isotropic=True))
    run = folder(f"{READ}{STYLE}run 0\n", 2)
    assert run.returncode != 0
    assert "the model allows 3" in run.output


def test_unknown_value(folder: Lammps):
    run = folder(f"{READ}pair_style pwmlff model.pt neighbors mine\n")
    assert run.returncode != 0
    assert "neighbors is 'mine', expected auto or lammps" in run.output
