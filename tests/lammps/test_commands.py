"""What users do with a pair style in LAMMPS besides one energy."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

from harness import ENGINES, Lammps, Run, thorough
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, forces
from pwmlff.launch.script import quoted, words_alone
from pwmlff.report import Failure
from systems import SYSTEMS, crystal, other_activation

ROOT = Path(__file__).resolve().parents[2]
BINARY = SYSTEMS["two elements, triclinic"]
READ = "units metal\natom_modify map yes\nread_data atoms.data\n"
STYLE = "pair_style pwmlff model.pt\npair_coeff * * O Hf\n"


@pytest.fixture
def binary(lammps: Lammps) -> Lammps:
    """A folder with model.pt, other.pt and a two-element crystal of 64 atoms in atoms.data."""
    lammps.save(BINARY.model(isotropic=True))
    lammps.save(BINARY.model(seed=1, isotropic=True), "other.pt")
    lammps.data(crystal(2), [8, 72])
    return lammps


def numbers(run, which: int = -1):
    return run.thermo(which)["PotEng"][-1], forces(run.atoms()), run.vector("c_press", which)


def test_overlay_is_the_sum(binary: Lammps):
    pair = "lj/cut 3.0\npair_coeff * * {}0.01 2.0\n"
    styles = {
        "ours": STYLE,
        "theirs": "pair_style " + pair.format(""),
        "both": "pair_style hybrid/overlay pwmlff model.pt " + pair.format("lj/cut ")
        + "pair_coeff * * pwmlff O Hf\n",
    }  # fmt: skip
    found = {k: numbers(binary.run(f"{READ}{v}{MEASURE}run 0\n{DUMP}")) for k, v in styles.items()}
    for ours, theirs, both in zip(*found.values(), strict=True):
        np.testing.assert_allclose(both, np.add(ours, theirs), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("engine", ["double", "device"])
def test_centroid_virials_in_a_hybrid_style(binary: Lammps):
    """Such a style asks its parts whether they have them before their models are chosen."""
    measure = (
        "compute of all centroid/stress/atom NULL pair\n"
        "compute sum all reduce sum c_of[*]\nthermo_style custom step c_sum[*]\n"
        "thermo_modify format float %.17g\nrun 0\n"
    )
    alone = binary.run(f"{READ}{STYLE}{measure}").vector("c_sum")
    part = "pair_style hybrid/overlay pwmlff model.pt zero 3.0\npair_coeff * * pwmlff O Hf\n"
    both = binary.run(f"{READ}{part}pair_coeff * * zero\n{measure}").vector("c_sum")
    scale = np.abs(alone).max()
    assert scale > 0
    np.testing.assert_allclose(both, alone, rtol=0, atol=1e-10 * scale)


def run_hybrid_with_null(lammps: Lammps) -> tuple[Run, Atoms, np.ndarray]:
    """A run of model.pt, its atoms, and which of them are of another style."""
    atoms = crystal(2)
    strange = np.arange(len(atoms)) % 5 == 0
    labelled = atoms.copy()
    labelled.numbers[strange] = 18
    lammps.data(labelled, [8, 18, 72])
    run = lammps.run(
        f"{READ}pair_style hybrid pwmlff model.pt zero 3.0 nocoeff\n"
        "pair_coeff * * pwmlff O NULL Hf\npair_coeff 2 * zero\npair_coeff 1 2 zero\n"
        f"{MEASURE}run 0\n{DUMP}",
        ranks=2,
    )
    return run, atoms, strange


def test_hybrid_with_null(lammps: Lammps):
    """The style computes the atoms of its own types as if the others were not there."""
    model = BINARY.model(isotropic=True)
    lammps.save(model)
    run, atoms, strange = run_hybrid_with_null(lammps)
    expected = evaluate(model, atoms[~strange])
    gate = lammps.engine
    assert run.thermo()["PotEng"][0] == pytest.approx(expected.energy, abs=64 * gate.energy)
    found = run.atoms()
    np.testing.assert_allclose(forces(found)[~strange], expected.forces, rtol=0, atol=gate.force)
    energies = found.c_peatom[~strange]
    np.testing.assert_allclose(energies, expected.atom_energy, rtol=0, atol=gate.energy)
    assert not forces(found)[strange].any()


def test_second_pair_style_and_clear(binary: Lammps):
    """Another model after `clear`, and in the same box, leaves nothing of the first."""
    other = STYLE.replace("model", "other")
    alone = numbers(binary.run(f"{READ}{other}{MEASURE}run 0\n{DUMP}"))
    for text in (
        f"{READ}{STYLE}{MEASURE}run 0\nclear\n{READ}{other}{MEASURE}run 0\n{DUMP}",
        f"{READ}{STYLE}{MEASURE}run 0\n{other}run 0\n{DUMP}",
        f"{READ}{STYLE}{MEASURE}run 0\npair_style none\n{other}run 0\n{DUMP}",
    ):
        for found, expected in zip(numbers(binary.run(text)), alone, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_excluded_from_all_is_not_there(binary: Lammps):
    """What fix gcmc asks for when it tries to delete an atom; ghosts are excluded as well."""
    atoms = crystal(2)
    model = BINARY.model(isotropic=True)
    expected = evaluate(model, atoms[1:])
    run = binary.run(
        f"{READ}group one id 1\nneigh_modify exclude group one all\n{STYLE}{MEASURE}run 0\n{DUMP}",
        ranks=2,
    )
    gate = binary.engine
    assert run.thermo()["PotEng"][0] == pytest.approx(expected.energy, abs=63 * gate.energy)
    found = run.atoms()
    np.testing.assert_allclose(forces(found)[1:], expected.forces, rtol=0, atol=gate.force)
    assert not forces(found)[0].any() and found.c_peatom[0] == 0


GAS = """
units lj
atom_modify map yes
region box block 0 12 0 12 0 12
create_box 1 box
lattice sc 0.1
create_atoms 1 box
mass 1 1.0
pair_style pwmlff {model}
pair_coeff * * Ar
fix g all gcmc 1 60 40 1 29494 2.0 -4 0.1 full_energy
thermo 1
"""


@pytest.mark.parametrize("engine", ["torchscript", "double", "device"])
def test_gcmc(lammps: Lammps, lj_models):
    """In equilibrium a move back is as likely as the move, and a small one is nearly always taken.

    Where deleting an atom left its own energy behind, the energy that moves are compared with would
    be another one, and most of them refused.
    """
    run = lammps.run(
        f"{GAS.format(model=lj_models[0])}thermo_style custom step atoms "
        f"{' '.join(f'f_g[{k}]' for k in range(1, 7))}\nrun 2\n"
    )
    thermo = run.thermo()
    tried, moved, inserts, inserted, deletes, deleted = (
        thermo[f"f_g[{k}]"][-1] for k in range(1, 7)
    )
    assert moved > 0.8 * tried > 40
    assert inserts > 20 and deletes > 20
    assert thermo["Atoms"][-1] - thermo["Atoms"][0] == inserted - deleted != 0


MELT = """
units lj
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style pwmlff {models}
pair_coeff * * Ar
neighbor 0.3 bin
neigh_modify delay 0 every 5 check no
fix 1 all nve
thermo 10
"""


def test_several_runs_are_one(lammps: Lammps, lj_models):
    text = MELT.format(models=lj_models[0]) + MEASURE
    whole = lammps.run(f"{text}run 20\n{DUMP}").thermo()["PotEng"][-1]
    for runs in ("run 10\nrun 10\n", "run 7\nrun 3 pre no\nrun 10 every 5 NULL\n"):
        parts = lammps.run(f"{text}{runs}{DUMP}", ranks=2)
        assert parts.thermo()["PotEng"][-1] == pytest.approx(whole, rel=1e-10)


def test_minimize(lammps: Lammps, lj_models):
    run = lammps.run(
        MELT.format(models=lj_models[0])
        + f"displace_atoms all random 0.1 0.1 0.1 1\n{MEASURE}minimize 0 1e-6 200 2000\n{DUMP}"
    )
    energies = run.thermo()["PotEng"]
    assert energies[-1] < energies[0]
    assert np.abs(forces(run.atoms())).max() < 1e-2


def test_rerun(lammps: Lammps, lj_models):
    text = MELT.format(models=lj_models[0]) + MEASURE
    run = lammps.run(
        f"{text}dump 1 all custom 10 traj.dump id type x y z\n"
        "dump_modify 1 format float %.17g\nrun 30\nrerun traj.dump dump x y z\n"
    )
    np.testing.assert_allclose(run.thermo(1)["PotEng"], run.thermo(0)["PotEng"], rtol=1e-10)


def test_npt(lammps: Lammps, lj_models):
    run = lammps.run(
        MELT.format(models=lj_models[0]).replace(
            "fix 1 all nve", "fix 1 all npt temp 1.0 1.0 0.5 iso 5.0 5.0 5.0"
        )
        + f"{MEASURE}run 50\n",
        ranks=2,
    )
    thermo = run.thermo()
    assert np.isfinite(thermo["PotEng"]).all()
    assert thermo["Volume"][-1] != thermo["Volume"][0]


def test_partitions(lammps: Lammps, lj_models):
    """Replicas run independently; their deviation files do not clash."""
    text = "variable t world 1.0 2.0\n" + MELT.format(models=" ".join(lj_models) + " out_freq 10")
    lammps.run(
        text.replace("create 1.44", "create $t") + "log log.$t\nrun 20\n",
        ranks=2,
        arguments="-partition 2x1",
    )
    files = [lammps.folder / f"model_devi.out.{world}" for world in (0, 1)]
    first, second = (np.loadtxt(file) for file in files)
    assert first.shape == second.shape == (3, 7)
    assert not np.allclose(first[2], second[2])


def deviation_of(models, atoms):
    """Population standard deviation over models: average, minimum, maximum over atoms."""
    results = [evaluate(model, atoms) for model in models]
    force = np.sqrt(np.var([r.forces for r in results], axis=0).sum(axis=1))
    energy = np.std([r.atom_energy for r in results], axis=0)
    return [f(x) for x in (force, energy) for f in (np.mean, np.min, np.max)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_deviation(binary: Lammps, ranks):
    atoms = crystal(2)
    binary.save(BINARY.model(seed=2, isotropic=True), "third.pt")
    text = (
        f"{READ}pair_style pwmlff 3 model.pt other.pt third.pt out_freq 1 out_file devi.txt\n"
        f"pair_coeff * * O Hf\n{MEASURE}run 0\nrun 0\n"  # the same step twice: one line
    )
    run = binary.run(text, ranks)
    header, *lines = (run.folder / "devi.txt").read_text().splitlines()
    assert header.split() == ["#", "step", "avg_devi_f", "min_devi_f", "max_devi_f", "avg_devi_e", "min_devi_e", "max_devi_e"]  # fmt: skip # noqa: E501
    assert len(lines) == 1
    step, *values = map(float, lines[0].split())
    assert step == 0
    models = [BINARY.model(seed=seed, isotropic=True) for seed in (0, 1, 2)]
    np.testing.assert_allclose(values, deviation_of(models, atoms), rtol=0, atol=2e-9)
    alone = binary.run(f"{READ}{STYLE}{MEASURE}run 0\n")
    assert run.thermo()["PotEng"][0] == pytest.approx(alone.thermo()["PotEng"][0], rel=1e-12)


def test_deviation_of_the_last_structure(binary: Lammps):
    """Of a step that is computed many times the last counts; each run has its own first line."""
    style = (
        "pair_style pwmlff model.pt other.pt out_freq 1\npair_coeff * * O Hf\n"
        "displace_atoms all random 0.05 0.05 0.05 1\n"
    )
    models = [BINARY.model(seed=seed, isotropic=True) for seed in (0, 1)]
    path = binary.folder / "model_devi.out"

    def expected(run: Run) -> list[float]:
        atoms = crystal(2)
        last = run.atoms()
        atoms.positions = np.c_[last.x, last.y, last.z]
        return deviation_of(models, atoms)

    text = f"{READ}{style}{MEASURE}minimize 0 0 4 40\n{DUMP}"
    run = binary.run(text, ranks=2)
    lines = np.loadtxt(path)
    assert lines[:, 0].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(lines[-1, 1:], expected(run), rtol=0, atol=1e-6)

    run = binary.run(
        f"{READ}{style}{MEASURE}run 0\nrun 0\ndisplace_atoms all random 0.05 0.05 0.05 2\nrun 0\n"
        f"{DUMP}"
    )
    lines = np.loadtxt(path)
    assert lines[:, 0].tolist() == [0, 0]  # two structures
    np.testing.assert_allclose(lines[-1, 1:], expected(run), rtol=0, atol=1e-6)
    assert not np.allclose(lines[0, 1:], lines[1, 1:], rtol=1e-2)


def test_ensembles_of_a_hybrid_style(binary: Lammps):
    """Each has a file of its own, or it is an error."""
    two = (
        f"{READ}pair_style hybrid/overlay pwmlff model.pt other.pt out_freq 1 &\n"
        "  pwmlff other.pt model.pt out_freq 2 {}\n"
        "pair_coeff * * pwmlff 1 O Hf\npair_coeff * * pwmlff 2 O Hf\nrun 2\n"
    )
    run = binary(two.format(""))
    assert run.returncode != 0
    assert "two ensembles write to 'model_devi.out'" in run.output
    binary.run(two.format("out_file second.out"))
    first, second = (np.loadtxt(binary.folder / n) for n in ("model_devi.out", "second.out"))
    assert first[:, 0].tolist() == [0, 1, 2]
    np.testing.assert_allclose(second, first[::2], rtol=0, atol=2e-9)


def test_from_python(binary: Lammps):
    """Where errors are caught, nothing half done is left, and the next command works."""
    run = binary.python(
        "lmp = start()\n"
        f"lmp.commands_string({READ!r})\n"
        "for bad in ('absent.pt', 'model.pt bogus 3'):\n"
        "    assert 'cannot read' in refused(lmp, 'pair_style pwmlff ' + bad)\n"
        "    assert 'repeat it' in refused(lmp, 'pair_coeff * * O Hf')\n"
        "    assert 'coeffs are not set' in refused(lmp, 'run 0')\n"
        f"    lmp.commands_string({STYLE!r})\n"
        "    lmp.command('run 0')\n"
        "print(lmp.get_thermo('pe'))\n"
    )
    energy = binary.run(f"{READ}{STYLE}{MEASURE}run 0\n").thermo()["PotEng"][0]
    assert float(run.output.split()[-1]) == pytest.approx(energy, rel=1e-12)


@pytest.mark.parametrize("engine", ["torchscript", "double", "device"])
def test_refused_pair_coeff_changes_nothing(binary: Lammps):
    """The mapping is that of the last command that was accepted, or there is none."""
    binary.save(replace(BINARY, units="lj").model(), "reduced.pt")
    binary.python(
        "lmp = start()\n"
        f"lmp.commands_string({READ!r})\n"
        "lmp.command('pair_style pwmlff model.pt')\n"
        "for bad in ('O Xx', 'Hf Ti', 'O', 'NULL NULL'): refused(lmp, 'pair_coeff * * ' + bad)\n"
        "assert 'coeffs are not set' in refused(lmp, 'run 0')\n"
        "lmp.command('pair_coeff * * O Hf')\n"
        "lmp.command('run 0')\n"
        "energy = lmp.get_thermo('pe')\n"
        "for bad in ('O Xx', 'Hf Xx', 'Hf Ti', 'O', 'NULL NULL'):\n"
        "    refused(lmp, 'pair_coeff * * ' + bad)\n"
        "    lmp.command('run 0')\n"
        "    assert abs(lmp.get_thermo('pe') - energy) < 1e-9, bad\n"
        "lmp.command('pair_style pwmlff reduced.pt')\n"
        "assert 'units lj' in refused(lmp, 'pair_coeff * * O Hf')\n"
        "assert 'coeffs are not set' in refused(lmp, 'run 0')\n"
    )


@pytest.mark.parametrize("engine", ["exact"])
def test_elements_that_the_engine_cannot_run(binary: Lammps):
    """Refused after models have changed: they go back to the elements before."""
    binary.save(other_activation(BINARY.model(isotropic=True)), "partly.pt")  # pair Hf-Hf alone
    binary.python(
        "lmp = start()\n"
        f"lmp.commands_string({READ!r})\n"
        "lmp.command('pair_style pwmlff model.pt partly.pt')\n"
        "assert 'not what the fused engine' in refused(lmp, 'pair_coeff * * O Hf')\n"
        "assert 'coeffs are not set' in refused(lmp, 'run 0')\n"
        "lmp.command('pair_coeff * * O O')\n"
        "lmp.command('run 0')\n"
        "energy = lmp.get_thermo('pe')\n"
        "assert 'not what the fused engine' in refused(lmp, 'pair_coeff * * O Hf')\n"
        "lmp.command('run 0')\n"
        "assert lmp.get_thermo('pe') == energy\n"
    )


def test_failed_evaluation_leaves_nothing(binary: Lammps):
    """After a structure that the model refuses, another one has its own energy."""
    binary.save(replace(BINARY, max_neighbor=12).model(isotropic=True))
    binary.python(
        "lmp = start()\n"
        f"lmp.commands_string({READ + STYLE!r})\n"
        "lmp.command('run 0')\n"
        "energy = lmp.get_thermo('pe')\n"
        "for scale in (0.8, 1.25):\n"
        "    lmp.command(f'change_box all x scale {scale} y scale {scale} z scale {scale} remap')\n"
        "    if scale < 1: assert 'the model allows 12' in refused(lmp, 'run 0')\n"
        "lmp.command('run 0')\n"
        "assert abs(lmp.get_thermo('pe') - energy) < 1e-9, (lmp.get_thermo('pe'), energy)\n"
    )


def test_pair_coeff_takes_a_scale_off(binary: Lammps):
    """That fix adapt has left, as LAMMPS's own styles do."""
    adapted = (
        "variable s equal 0.5\nfix a all adapt 1 pair pwmlff scale * * v_s\nrun 0\nunfix a\nrun 0\n"
    )
    run = binary.run(f"{READ}{STYLE}{MEASURE}run 0\n{adapted}pair_coeff * * O Hf\nrun 0\n")
    energies = np.array([run.thermo(k)["PotEng"][0] for k in range(4)])
    np.testing.assert_allclose(energies / energies[0], [1.0, 0.5, 0.5, 1.0], rtol=1e-12)


def test_hybrid_whose_file_is_not_there(binary: Lammps):
    """A pair_coeff that names the file, caught, and a run: an error in the place of an abort."""
    binary.python(
        "lmp = start()\n"
        f"lmp.commands_string({READ!r})\n"
        "lmp.command('pair_style hybrid/overlay zero 3.0 nep')\n"
        "lmp.command('pair_coeff * * zero')\n"
        "lmp.command('pair_coeff * * nep model.pt O Hf')\n"
        "lmp.command('run 0')\n"
        "assert 'cannot' in refused(lmp, 'pair_coeff * * nep absent.pt O Hf')\n"
        "assert 'repeat it first' in refused(lmp, 'run 0')\n"
        "lmp.command('pair_coeff * * nep model.pt O Hf')\n"
        "lmp.command('run 0')\n"
    )


def test_hybrid_that_unmaps_a_type(binary: Lammps):
    """A type that becomes NULL takes no part any more."""
    style = "pair_style hybrid/overlay zero 3.0 pwmlff model.pt\npair_coeff * * zero\n"
    mapped = "pair_coeff * * pwmlff O {}\n"
    text = f"{READ}{style}{mapped.format('NULL')}{MEASURE}run 0\n"
    alone = binary.run(text).thermo()["PotEng"][0]
    text = f"{READ}{style}{mapped.format('Hf')}{mapped.format('NULL')}{MEASURE}run 0\n"
    assert binary.run(text).thermo()["PotEng"][0] == pytest.approx(alone, rel=1e-12)


def test_style_that_failed_in_its_init_is_forgotten(binary: Lammps):
    """LAMMPS keeps what a style has asked it for, also where the style is gone."""
    one = "pair_style pwmlff model.pt other.pt out_file absent/devi.out"
    binary.python(
        "lmp = start()\n"
        f"lmp.commands_string({READ!r})\n"
        "for k in range(20):\n"
        f"    lmp.command({one!r})\n"
        "    lmp.command('pair_coeff * * O Hf')\n"
        "    assert 'absent/devi.out' in refused(lmp, 'run 0')\n"
        "    lmp.command('pair_style zero 3.0')\n"
        "    lmp.command('pair_coeff * *')\n"
        "    lmp.command('run 0')\n"
    )


def test_threads_of_python_come_back(binary: Lammps):
    torch = STYLE.replace("model.pt", "model.pt engine torchscript")
    binary.python(
        "import os, torch\n"
        "del os.environ['OMP_NUM_THREADS']  # LAMMPS takes one then\n"
        "torch.set_num_threads(3)\n"
        "lmp = start()\n"
        f"lmp.commands_string({READ + torch!r})\n"
        "lmp.command('run 0')\n"
        "assert torch.get_num_threads() == 1\n"
        "lmp.close()\n"
        "assert torch.get_num_threads() == 3\n"
    )


def test_instances_of_one_process(binary: Lammps):
    """They take turns, but do not write to one file."""
    style = "pair_style pwmlff model.pt other.pt out_freq 1"
    binary.python(
        "first, second = start(), start()\n"
        f"for lmp in first, second: lmp.commands_string({READ!r})\n"
        f"first.command({style!r})\n"
        "for name in 'model_devi.out', './model_devi.out':\n"
        f"    error = refused(second, {style!r} + ' out_file ' + name)\n"
        "    assert 'two ensembles write to' in error, error\n"
        f"second.command({style + ' out_file second.out'!r})\n"
        "for lmp in first, second, first:\n"
        "    lmp.commands_string('pair_coeff * * O Hf\\nrun 0')\n"
        "first.close()\n"
        f"second.command({style!r})\n"
        "second.commands_string('pair_coeff * * O Hf\\nrun 0')\n"
    )
    files = [binary.folder / name for name in ("model_devi.out", "second.out")]
    assert files[0].read_text() == files[1].read_text()


def test_deviation_beside_numdiff(binary: Lammps):
    """Structures that a fix probes are not those of the run."""
    binary.data(crystal(1), [8, 72])
    style = (
        "pair_style pwmlff model.pt other.pt out_freq 1\npair_coeff * * O Hf\n"
        "velocity all create 300 1 mom yes\nfix 1 all nve\nthermo 1\n"
    )
    lines = []
    for probe in ("", "fix n all numdiff 1 0.01\nfix v all numdiff/virial 1 0.01\n"):
        binary.run(f"{READ}{style}{probe}run 2\n", ranks=2)
        lines.append(np.loadtxt(binary.folder / "model_devi.out"))
    assert lines[0][:, 0].tolist() == [0, 1, 2]
    np.testing.assert_allclose(lines[1], lines[0], rtol=0, atol=2e-9)


def test_deviation_beside_probes_that_are_announced(binary: Lammps):
    """The line of the last run stays, whatever a command tries afterwards."""
    style = "pair_style pwmlff model.pt other.pt out_freq 1\npair_coeff * * O Hf\n"
    lines = []
    for probe in ("", "group one id 1\ndynamical_matrix one regular 0.01 file matrix.dat\n"):
        binary.run(f"{READ}{style}run 0\n{probe}", ranks=2)
        lines.append((binary.folder / "model_devi.out").read_text())
    assert lines[0] == lines[1]
    assert (binary.folder / "matrix.dat").stat().st_size > 0


def test_deviation_after_unfix_of_all(binary: Lammps):
    """Users of Python remove all fixes that there are."""
    style = "pair_style pwmlff model.pt other.pt out_freq 1\npair_coeff * * O Hf\n"
    binary.python(
        "lmp = start()\n"
        f"lmp.commands_string({READ + style!r})\n"
        "lmp.commands_string('fix 1 all nve\\nrun 1')\n"
        "for name in lmp.available_ids('fix'): lmp.command('unfix ' + name)\n"
        "lmp.commands_string('fix 1 all nve\\nrun 1')\n"
        "lmp.command('pair_style none')\n"
        "assert lmp.available_ids('fix') == ['1'], lmp.available_ids('fix')\n"
    )
    assert np.loadtxt(binary.folder / "model_devi.out")[:, 0].tolist() == [0, 1, 2]


def test_deviation_file_is_that_of_the_command(binary: Lammps):
    """A folder that is changed between the command and the run changes nothing."""
    (binary.folder / "below").mkdir()
    style = "pair_style pwmlff model.pt other.pt out_freq 1\npair_coeff * * O Hf\n"
    binary.run(f"{READ}{style}shell cd below\nrun 0\n")
    assert np.loadtxt(binary.folder / "model_devi.out")[0] == 0


def test_elements_in_the_wrong_order(binary: Lammps):
    """They run without an error: masses show it."""
    right = binary.run(f"{READ}{STYLE}run 0\n", ranks=2).output
    assert "  types: 1 O, 2 Hf\n" in right
    assert "has mass" not in right
    wrong = binary.run(f"{READ}{STYLE}pair_coeff * * Hf O\nrun 0\n", ranks=2).output
    assert "  types: 1 Hf, 2 O\n" in wrong
    assert re.search(r"type 1 has mass 15.999, like O, but pair_coeff makes it Hf \(178.49", wrong)
    assert wrong.count("WARNING: Pair style pwmlff: atom type") == 2


@pytest.mark.parametrize("engine", ["automatic"])
@pytest.mark.parametrize("style", ["matpl", "matpl/dp", "matpl/nep", "matpl/nep/kk"])
def test_inputs_of_matpl(binary: Lammps, style):
    """Their names, their defaults, symbols as they write them."""
    dump = DUMP.replace(" c_peatom", "")
    ours = "pair_style pwmlff model.pt other.pt out_freq 1\npair_coeff * * O Hf\n"
    run = binary.run(f"{READ}{ours}run 2\n{dump}")
    force, deviation = forces(run.atoms()), (binary.folder / "model_devi.out").read_text()
    theirs = f"pair_style {style} 2 model.pt other.pt\npair_coeff * * o HF\n"
    run = binary.run(f"{READ}{theirs}run 2\n{dump}")
    assert f"pair_style {style} is run by pair_style pwmlff" in run.output
    without = (
        f"pair_style {style} runs as it does without /kk: the plugin was compiled for a LAMMPS"
    )
    assert (without in run.output) == style.endswith("/kk")
    np.testing.assert_allclose(forces(run.atoms()), force, rtol=0, atol=1e-12)
    assert (binary.folder / "explr.error").read_text() == deviation


OF_NEP_CPU = {
    "file in pair_coeff": "pair_style nep\npair_coeff * * model.pt o Hf\n",
    "with a keyword": "pair_style nep precision double\npair_coeff * * model.pt 8 72\n",
    "types in turn": "pair_style nep model.pt\npair_coeff * *\n",
    "of KOKKOS": "pair_style nep/kk\npair_coeff * * model.pt O Hf\n",
    "in a hybrid": "pair_style hybrid/overlay nep zero 3.0 nocoeff\n"
    "pair_coeff * * nep model.pt O Hf\npair_coeff * * zero\n",
    "another file before": "pair_style nep\npair_coeff * * other.pt Hf O\n"
    "pair_coeff * * model.pt O Hf\n",
}


@pytest.mark.parametrize("engine", ["automatic"])
@pytest.mark.parametrize("form", OF_NEP_CPU)
def test_inputs_of_nep_cpu(binary: Lammps, form):
    """They name the file in pair_coeff, or name no elements."""
    dump = DUMP.replace(" c_peatom", "")
    force = forces(binary.run(f"{READ}{STYLE}run 0\n{dump}").atoms())
    run = binary.run(f"{READ}{OF_NEP_CPU[form]}run 0\n{dump}", ranks=2)
    style = "nep/kk" if form == "of KOKKOS" else "nep"
    assert f"pair_style {style} is run by pair_style pwmlff" in run.output
    np.testing.assert_allclose(forces(run.atoms()), force, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["automatic"])
@pytest.mark.parametrize(
    "commands,words",
    [
        ("pair_style nep\npair_coeff * *\n", "Illegal pair_coeff command: missing argument"),
        ("pair_style nep\npair_coeff * * model.pt\n", "names 0 element(s), but there are 3 atom"),
        ("pair_style nep model.pt\npair_coeff * *\n", "names 0 element(s), but there are 3 atom"),
        ("pair_style nep\npair_coeff * * none.txt O Hf\n", "cannot read model file 'none.txt'"),
        ("pair_style nep precision\n", "missing argument"),
    ],
)
def test_errors_in_inputs_of_nep_cpu(binary: Lammps, commands, words):
    binary.data(crystal(2), [8, 72, 18])
    run = binary(f"{READ}{commands}run 0\n", ranks=2)
    assert run.returncode != 0
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1 and words in errors[0], run.output


def test_rerun_tells_of_frames_without_a_line(lammps: Lammps, lj_models):
    text = MELT.format(models=" ".join(lj_models) + " out_freq 20")
    rerun = "rerun traj.dump dump x y z\n"
    run = lammps.run(f"{text}dump 1 all custom 10 traj.dump id type x y z\nrun 40\n{rerun}")
    assert run.output.count("frames of other steps, like 10, get no line") == 1
    run = lammps.run(f"{text.replace('out_freq 20', 'out_freq 10')}{rerun}")
    assert "get no line" not in run.output
    assert np.loadtxt(lammps.folder / "model_devi.out")[:, 0].tolist() == [0, 10, 20, 30, 40]


def test_deviation_every_out_freq_steps(lammps: Lammps, lj_models):
    text = MELT.format(models=" ".join(lj_models) + " out_freq 4")
    lammps.run(text + "run 10\nrun 10\n", ranks=2)
    steps = np.loadtxt(lammps.folder / "model_devi.out")[:, 0]
    assert steps.tolist() == [0, 4, 8, 12, 16, 20]


def test_deviation_file_is_continued(lammps: Lammps, lj_models):
    """From a restart file, each step once: what is computed again replaces what was there."""
    options = " out_freq 4 out_append yes"
    text = MELT.format(models=" ".join(lj_models) + options)
    path = lammps.folder / "model_devi.out"
    lammps.run(text + "run 10\nwrite_restart at.10\nrun 10\n", ranks=2)
    whole = path.read_text()
    assert np.loadtxt(path)[:, 0].tolist() == [0, 4, 8, 12, 16, 20]
    path.write_text(whole[:-30])  # the last line is not complete
    fixes = "".join(line + "\n" for line in text.splitlines() if line.startswith(("fix", "pair")))
    lammps.run(f"read_restart at.10\n{fixes}run 10\n", ranks=2)
    assert np.loadtxt(path)[:, 0].tolist() == [0, 4, 8, 12, 16, 20]
    assert path.read_text().splitlines()[:4] == whole.splitlines()[:4]
    np.testing.assert_allclose(np.loadtxt(path), np.loadtxt(io.StringIO(whole)), atol=1e-7)
    lammps.run(text + "run 4\n", ranks=2)  # another simulation, from step 0
    assert np.loadtxt(path)[:, 0].tolist() == [0, 4]


def test_threads_follow_lammps(lammps: Lammps, lj_models):
    text = MELT.format(models=lj_models[0]) + "run 0\n"
    assert "1 thread each" in lammps.run(text).output
    assert "2 threads each" in lammps.run(text, OMP_NUM_THREADS="2").output


@pytest.mark.parametrize(
    "engine,steps", [thorough("torchscript", 500), ("double", 2000), thorough("mixed", 2000)]
)
def test_nve_conserves_energy(lammps: Lammps, steps: int):
    """HfO2 at 300 K, 0.5 fs: no drift of the total energy beyond its fluctuation."""
    shutil.copy(ROOT / "examples" / "hfo2" / "a.pt", lammps.folder / "model.pt")
    run = lammps.run(
        "units metal\nlattice fcc 5.07\nregion box block 0 2 0 2 0 2\ncreate_box 2 box\n"
        "create_atoms 1 box\nlattice sc 2.535 origin 0.5 0.5 0.5\ncreate_atoms 2 box\n"
        "mass 1 178.49\nmass 2 15.999\n"
        "pair_style pwmlff model.pt\npair_coeff * * Hf O\n"
        "minimize 0 1e-3 200 500\nreset_timestep 0\nvelocity all create 600 4711 mom yes rot yes\n"
        f"fix 1 all nve\ntimestep 0.0005\nthermo 10\n{MEASURE}run {steps}\n",
        ranks=2,
    )
    thermo = run.thermo()
    time = np.array(thermo["Step"]) * 0.0005
    energy = np.array(thermo["TotEng"]) / 96
    assert 200 < np.mean(thermo["Temp"]) < 400
    drift = np.polyfit(time, energy, 1)[0]
    # Standard error of the slope for a fluctuation that is correlated over about 10 samples.
    residual = energy - np.polyval(np.polyfit(time, energy, 1), time)
    error = residual.std() / (time.std() * np.sqrt(len(time) / 10))
    print(f"drift {drift:.2e} +- {error:.1e} eV/atom/ps, fluctuation {residual.std():.1e} eV/atom")
    assert abs(drift) < 1e-6 + 2 * error


@pytest.mark.parametrize("name", ["a b", "$x ${y} $(z) #1 &", "it's", 'a "b" &', "x" * 3])
def test_names_as_lammps_reads_them(tmp_path: Path, name: str):
    """Written for an input by `quoted`, whatever they hold."""
    lammps = Lammps(tmp_path, ENGINES["automatic"])
    lammps.run(f"log {quoted(name)}\nprint done\n")
    assert "done" in (tmp_path / name).read_text()


def test_what_is_no_word_of_an_input():
    for name in ("a\nb", "a\u2028b", "'\""):
        with pytest.raises(Failure, match="cannot stand in an input of LAMMPS"):
            quoted(name)
    assert words_alone("coul/long 'my file' 3.0", "it") == "coul/long 'my file' 3.0"
    for text in ("a\nshell b", "a\rb", "a $(1+1)", "${b}", "a &", "a # b", 'a """', "a\x1b[2J"):
        with pytest.raises(Failure, match=r"it is .* expected words of one line"):
            words_alone(text, "it")
