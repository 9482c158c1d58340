"""Which engine runs a file: the fused one where the verification passes, never where it fails."""

from __future__ import annotations

import pytest
import torch

from harness import ON_DEVICE, Lammps
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, forces
from systems import SYSTEMS, TOTAL, crystal, edited, other_activation

BINARY = SYSTEMS["two elements, triclinic"]
SETUP = f"""
units metal
read_data atoms.data
pair_style pwmlff model.pt {{}}
pair_coeff * * O Hf
{MEASURE}
run 0
{DUMP}
"""


@pytest.fixture
def engine() -> str:
    """The tests below say it themselves."""
    return "automatic"


@pytest.fixture
def folder(lammps: Lammps) -> Lammps:
    lammps.data(crystal(2), [8, 72])
    return lammps


def numbers(run):
    return run.thermo()["PotEng"][0], forces(run.atoms()).tolist()


def test_fused_where_equal(folder: Lammps):
    folder.save(BINARY.model(isotropic=True))
    assert "engine fused, precision double" in folder.run(SETUP.format("")).output
    assert "engine fused, precision mixed" in folder.run(SETUP.format("precision mixed")).output
    text = SETUP.format("engine torchscript")
    assert "engine torchscript, float64\n" in folder.run(text).output


def test_other_activation(folder: Lammps):
    """Same names, same shapes, other function: the verification at load finds it."""
    folder.save(other_activation(BINARY.model(isotropic=True)))
    run = folder.run(SETUP.format(""), ranks=2)
    assert run.output.count("engine torchscript, float64 (not fused: ") == 1
    assert "from the file's own code" in run.output
    assert numbers(run) == numbers(folder.run(SETUP.format("engine torchscript"), ranks=2))
    run = folder(SETUP.format("engine fused"), ranks=2)
    assert run.returncode != 0
    assert run.output.count("is not what the fused engine computes") == 1


def test_total_energy_counts(folder: Lammps):
    """A file whose Etot is not the sum of its Ei has its own way, with every engine keyword."""
    folder.save(BINARY.model(isotropic=True))
    plain = folder.run(SETUP.format("")).thermo()["PotEng"][0]
    edited(folder.folder / "model.pt", TOTAL, r"torch.add(torch.sum(\1, [1], True), 1.)")
    run = folder.run(SETUP.format(""))
    assert "(not fused: total energies (per atom) differ by" in run.output
    assert run.thermo()["PotEng"][0] == pytest.approx(plain + 1.0, rel=1e-10)


@pytest.mark.parametrize("ranks", [1, 2])
def test_total_energy_that_is_no_number(folder: Lammps, ranks):
    folder.save(BINARY.model(isotropic=True))
    path = folder.folder / "model.pt"
    edited(path, TOTAL, r"torch.log(torch.neg(torch.exp(torch.sum(\1, [1], True))))")
    run = folder(SETUP.format("engine torchscript"), ranks)
    assert run.returncode != 0
    assert "non-finite energy of the whole or virial at step 0" in run.output
    assert "the file's own code gives no numbers" in folder(SETUP.format("engine fused")).output


def test_mixed_precision_where_it_is_not_enough(folder: Lammps):
    """Large terms that nearly cancel: the fused engine goes on in double."""
    model, atoms = BINARY.model(isotropic=True), crystal(2)
    with torch.no_grad():
        for net in model.fitting_net:
            net.layers[-2].bias += 8.0  # saturated
            net.layers[-1].weight *= 1e5
    energies = evaluate(model, atoms).atom_energy
    with torch.no_grad():
        for net, number in zip(model.fitting_net, model.atom_type, strict=True):
            net.layers[-1].bias -= energies[atoms.numbers == number].mean()
    folder.save(model)
    exact = numbers(folder.run(SETUP.format("engine torchscript")))
    run = folder.run(SETUP.format("engine fused precision mixed"))
    assert "engine fused, precision double" in run.output
    assert "(not fused, precision mixed: " in run.output
    assert numbers(run)[0] == pytest.approx(exact[0], abs=64e-8)


def test_mixed_precision_of_the_example(lammps: Lammps, lj_models):
    """Models that were fitted stay with the fused engine, in the precision that is enough."""
    for path in lj_models:
        run = lammps.run(
            "units lj\nregion box block 0 9 0 9 0 9\ncreate_box 1 box\nmass 1 1\n"
            f"pair_style pwmlff {path} precision mixed\nlattice sc 0.5\ncreate_atoms 1 box\n"
            "pair_coeff * * Ar\nrun 0\n"
        )
        assert "engine fused, precision " in run.output


def test_inputs_belong_to_all_models(folder: Lammps):
    """One that writes to them is refused, not the one after it."""
    folder.save(BINARY.model(isotropic=True))
    folder.save(BINARY.model(isotropic=True), "writes.pt")
    path = folder.folder / "writes.pt"
    edited(path, r"(\n    \w+ = \()(torch\.sum)", r"\n    _z = torch.fill_(list_neigh, 0)\1\2")
    for files in ("writes.pt model.pt", "model.pt writes.pt"):
        text = SETUP.format("engine torchscript").replace("model.pt", files)
        run = folder(text, ranks=2)
        assert run.returncode != 0
        assert "'writes.pt' changes its argument list_neigh in place" in run.output


def test_unknown_parameters(folder: Lammps):
    """A file with parts that the fused engine does not know is not guessed at."""
    model = BINARY.model(isotropic=True)
    model.type_embedding = torch.nn.Linear(2, 2, dtype=torch.float64)
    folder.save(model)
    run = folder.run(SETUP.format(""))
    assert "(not fused: " in run.output and "type_embedding" in run.output
    run = folder(SETUP.format("engine fused"))
    assert run.returncode != 0
    assert "cannot be run by the fused engine" in run.output


@pytest.mark.parametrize("precision", ["exact", "double", "mixed"])
def test_threads_repeat_to_the_bit(folder: Lammps, precision):
    folder.save(BINARY.model(isotropic=True))
    text = SETUP.format(f"engine fused precision {precision}")
    runs = [numbers(folder.run(text, OMP_NUM_THREADS="3")) for _ in range(2)]
    assert runs[0] == runs[1]
    package = folder.run("package omp 2\n" + text)
    assert "2 threads each" in package.output
    assert numbers(package)[0] == pytest.approx(runs[0][0], rel=1e-6)


@pytest.mark.parametrize("environment", [{}, ON_DEVICE])
def test_threads_take_parts_of_many_atoms(lammps: Lammps, environment):
    """Positions, forces and virials go in parts where they are many: of 20 000 rows here."""
    lammps.data(crystal(11), [8, 72])
    lammps.save(BINARY.model(isotropic=True))
    text = SETUP.format("device auto").replace("run 0", "compute s all stress/atom NULL\nrun 0")
    text = text.replace("z fx fy fz", "z fx fy fz c_s[*]")
    alone = lammps.run(text, OMP_NUM_THREADS="1", **environment).atoms()
    run = lammps.run(text, OMP_NUM_THREADS="3", **environment)
    assert "3 threads each" in run.output
    for name in ("c_peatom", "fx", "fy", "fz", *(f"c_s[{k}]" for k in range(1, 7))):
        assert abs(run.atoms()[name] - alone[name]).max() < 1e-12 * abs(alone[name]).max()


def test_sums_of_many_atoms_on_a_device(lammps: Lammps):
    """A GPU adds up in two stages then, and looks for what is no number."""
    lammps.data(crystal(11), [8, 72])
    lammps.save(BINARY.model(isotropic=True))
    run = lammps.run(SETUP.format("device cpu"))
    energy, virial = run.thermo()["PotEng"][0], run.virial()
    run = lammps.run(SETUP.format("device gpu"), **ON_DEVICE)
    assert run.thermo()["PotEng"][0] == pytest.approx(energy, rel=1e-10)
    assert run.virial() == pytest.approx(virial, rel=1e-7)
    nearby = "set atom 9000 x 0.1 y 0.1 z 0.1\nset atom 10001 x 0.1 y 0.1 z 0.1\nrun 0"
    failed = lammps(SETUP.format("device gpu").replace("run 0", nearby), **ON_DEVICE)
    assert "non-finite energy or force for atom 9000 at step 0" in failed.output


def test_nothing_in_the_place_of_a_gpu(folder: Lammps):
    """What benchmarks/host_share.py times says that it is nothing else."""
    folder.save(BINARY.model(isotropic=True))
    run = folder.run(SETUP.format("device gpu"), PWMLFF_GPU_STAND_IN="none")
    assert "PWMLFF_GPU_STAND_IN=none forces are zero" in run.output
    assert run.thermo()["PotEng"][0] == 0.0
    assert not forces(run.atoms()).any()


@pytest.mark.parametrize("code", ["baseline", "avx2"])
def test_code_for_older_processors(folder: Lammps, code):
    folder.save(BINARY.model(isotropic=True))
    best = numbers(folder.run(SETUP.format("")))
    run = folder.run(SETUP.format(""), PWMLFF_CPU=code)
    assert f"engine fused, precision double, {code}," in run.output
    assert numbers(run)[0] == pytest.approx(best[0], rel=1e-10)


def test_code_for_no_processor(folder: Lammps):
    """A slip of the pen must not mean TorchScript, which is tens of times slower."""
    folder.save(BINARY.model(isotropic=True))
    run = folder(SETUP.format(""), ranks=2, PWMLFF_CPU="AVX2")
    assert run.returncode != 0
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1, run.output
    assert "PWMLFF_CPU is 'AVX2'; this processor runs " in errors[0]
    assert "baseline" in errors[0]
    assert numbers(folder.run(SETUP.format("engine torchscript"), PWMLFF_CPU="AVX2"))
