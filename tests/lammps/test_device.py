"""The keyword device, on a machine without GPUs or with all of them hidden."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from harness import Lammps
from pwmlff import devices
from pwmlff.launch.lmp import DUMP, MEASURE, forces
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
SETUP = f"""
units metal
read_data atoms.data
pair_style pwmlff model.pt {{}}
pair_coeff * * O Hf
{MEASURE}
run 0
"""


@pytest.fixture
def engine() -> str:
    """What users have who say nothing."""
    return "visible"


@pytest.fixture
def folder(lammps: Lammps) -> Lammps:
    lammps.save(BINARY.model(isotropic=True))
    lammps.data(crystal(1), [8, 72])
    return lammps


def test_auto_says_why_it_is_the_cpu(folder: Lammps):
    run = folder.run(SETUP.format(""), 2, **HIDDEN)
    assert re.search(r"host \S+: ranks 0-1 on cpu, 1 thread each\n", run.output)
    assert len(re.findall(r"host \S+: no GPU: \S", run.output)) == 1
    same = folder.run(SETUP.format("device auto"), 2, **HIDDEN)
    assert same.thermo()["PotEng"] == run.thermo()["PotEng"]


def test_cpu_asks_no_driver(folder: Lammps):
    run = folder.run(SETUP.format("device cpu"), 2)
    assert re.search(r"host \S+: ranks 0-1 on cpu, 1 thread each\n", run.output)
    assert "GPU" not in run.output


@pytest.mark.parametrize("device", ["gpu", "0", "0,3"])
def test_gpu_without_one_is_an_error(folder: Lammps, device):
    run = folder(SETUP.format(f"device {device}"), 2, **HIDDEN)
    assert run.returncode != 0
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1, run.output
    assert "no GPU is visible" in errors[0] and "rank 0 on host" in errors[0]


def test_partitions_do_not_wait_for_each_other(folder: Lammps):
    """One replica gives the command once, the other three times."""
    text = (
        "variable times world 1 3\nvariable k loop ${times}\nlabel again\nclear\n"
        f"{SETUP.format('')}next k\njump SELF again\n"
    )
    folder.run(text, 2, "-partition 2x1", **HIDDEN)
    logs = [(folder.folder / f"log.lammps.{k}").read_text() for k in (0, 1)]
    assert [log.count("on cpu, 1 thread each") for log in logs] == [1, 3]


def gpus_for_torch() -> bool:
    return bool(devices.inventory().gpus) and torch.version.cuda is not None


@pytest.mark.skipif(gpus_for_torch(), reason="has a GPU that torch can use")
@pytest.mark.skipif(not devices.inventory().gpus, reason="needs a GPU")
def test_torch_without_cuda(folder: Lammps):
    run = folder.run(SETUP.format("engine torchscript"))
    assert "(not torchscript on the GPU: this torch has no CUDA" in run.output
    run = folder(SETUP.format("engine torchscript device gpu"))
    assert run.returncode != 0
    assert "cannot run on a GPU: not torchscript on the GPU: this torch has no" in run.output


@pytest.mark.skipif(not gpus_for_torch(), reason="needs a GPU and a torch with CUDA")
@pytest.mark.parametrize("ranks", [1, 2])
def test_torchscript_on_gpu(folder: Lammps, ranks):
    text = SETUP.format("engine torchscript device {}") + DUMP
    expected = folder.run(text.format("cpu"), ranks)
    energy, force = expected.thermo()["PotEng"][0], forces(expected.atoms())
    for device in ("gpu", "auto", "0"):
        run = folder.run(text.format(device), ranks)
        assert "torchscript, float64, on the GPU" in run.output
        assert re.search(r"rank\S* \S+ on GPU 0 \(", run.output)
        assert ("share GPU 0" in run.output) == (ranks > len(devices.inventory().gpus))
        assert run.thermo()["PotEng"][0] == pytest.approx(energy, rel=1e-12)
        np.testing.assert_allclose(forces(run.atoms()), force, rtol=0, atol=1e-10)
        np.testing.assert_allclose(
            run.vector("c_press"), expected.vector("c_press"), rtol=1e-10, atol=1e-6
        )


@pytest.mark.skipif(len(devices.inventory().gpus) < 2, reason="needs two GPUs")
def test_other_gpus_are_left_alone(folder: Lammps):
    """While a run is on GPU 1, no process of it has a context on another one."""
    query = "nvidia-smi --query-compute-apps=gpu_uuid,process_name --format=csv,noheader"
    text = SETUP.format("device 1").replace("run 0", f"run 0\nshell {query}")
    used = [line for line in folder.run(text).output.splitlines() if line.endswith("lmp")]
    assert {line.split(",")[0] for line in used} == {devices.inventory().gpus[1].uuid}


def test_several_of_srun_are_told(folder: Lammps):
    """Each of them is rank 0 of 1; the ranks of mpirun are not."""
    warning = "srun has started lmp 4 times"
    text = SETUP.format("")
    assert warning not in folder.run(text, 2, SLURM_STEP_NUM_TASKS="4").output
    script = f"lammps().commands_string('''{text}''')\n"
    assert warning in folder.python(script, SLURM_STEP_NUM_TASKS="4").output
    assert warning not in folder.python(script, SLURM_STEP_NUM_TASKS="1").output
