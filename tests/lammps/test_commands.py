"""What users do with a pair style in LAMMPS besides one energy."""

from __future__ import annotations

import io

import numpy as np
import pytest
from ase import Atoms

from harness import Lammps, Run
from pwmlff.lmp import DUMP, MEASURE, forces
from pwmlff.reference import evaluate
from systems import SYSTEMS, crystal

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


@pytest.mark.parametrize("engine,steps", [("torchscript", 500), ("double", 2000), ("mixed", 2000)])
def test_nve_conserves_energy(lammps: Lammps, hfo2_folder, hfo2_model, steps: int):
    """HfO2 at 300 K, 0.5 fs: no drift of the total energy beyond its fluctuation."""
    lammps.save(hfo2_model)
    run = lammps.run(
        f"units metal\nread_data {hfo2_folder}/hfo2.data\nmass 1 178.49\nmass 2 15.999\n"
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
