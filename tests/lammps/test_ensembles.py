"""Deviations of ensembles as data of LAMMPS, in files of other programs, and captured structures.

What is compared with is NumPy on the reference evaluation of each model.
"""

from __future__ import annotations

import hashlib
import re
import signal
import time
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import read

import mace_oracle
from edge_models import MessagePassing
from harness import Lammps, thorough
from nep_files import HEADS, random_text
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, forces, read_dump
from pwmlff.models import save_model
from pwmlff.train.uncertainty import Bounds, hashes
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
FILES = [f"{seed}.pt" for seed in range(4)]
MODELS = [BINARY.model(seed=seed, isotropic=True) for seed in range(4)]
READ = "units metal\natom_modify map yes\nread_data atoms.data\n"
STYLE = f"pair_style pwmlff {' '.join(FILES)} {{}}\npair_coeff * * O Hf\n"
COMPUTE = "compute devi all pair pwmlff\n"
UNITS = {"metal": (1.0, 1.0), "real": (23.060549, 1000.0)}  # of an eV, and of a ps
MOVE = "velocity all create 1000 1\nfix 1 all nve\ntimestep 0.001\n"


@pytest.fixture
def four(lammps: Lammps) -> Lammps:
    """A folder with four models and a two-element crystal of 64 atoms in atoms.data."""
    for name, model in zip(FILES, MODELS, strict=True):
        lammps.save(model, name)
    lammps.data(crystal(2), [8, 72])
    return lammps


@dataclass
class Deviation:
    """Of models on a structure, by NumPy."""

    force: np.ndarray
    energy: np.ndarray
    relative: np.ndarray
    virial: np.ndarray
    total: float
    mean_force: np.ndarray
    mean_energy: float


def deviation_of(force: np.ndarray, energy: np.ndarray, virial: np.ndarray) -> Deviation:
    """Of [nmodels, n, 3], [nmodels, n] and [nmodels, components]; relative to 0.1 eV/angstrom."""
    natoms = energy.shape[1]
    deviation = np.sqrt(force.var(axis=0).sum(axis=1))
    return Deviation(
        deviation,
        energy.std(axis=0),
        deviation / (np.linalg.norm(force.mean(axis=0), axis=1) + 0.1),
        virial.std(axis=0) / natoms,
        energy.sum(axis=1).std() / natoms,
        force.mean(axis=0),
        energy.sum(axis=1).mean(),
    )


def deviation(atoms: Atoms) -> Deviation:
    """By the reference evaluation of the four models."""
    results = [evaluate(model, atoms) for model in MODELS]
    return deviation_of(
        np.array([result.forces for result in results]),
        np.array([result.atom_energy for result in results]),
        np.array([result.virial.ravel() for result in results]),
    )


def potentials(folder: Path) -> list[str]:
    """Deep Potentials, one of which is divided by the slots of all elements."""
    for name, system in (
        ("a.pt", BINARY),
        ("b.pt", replace(BINARY, elements=(72, 8))),
        ("c.pt", replace(BINARY, elements=(72, 8), sel=(40, 35))),
    ):
        system.model(seed=ord(name[0]), isotropic=True).save(folder / name)
    return ["a.pt", "b.pt", "c.pt"]


def neps(folder: Path) -> list[str]:
    for seed, (name, elements) in enumerate((("a.txt", "O Hf"), ("b.txt", "Hf O"))):
        head = HEADS["nep5"].replace("O Hf", elements)
        (folder / name).write_bytes(random_text(head, seed))
    return ["a.txt", "b.txt"]


def message_passing(folder: Path) -> list[str]:
    """By its own code, and fused, with features of other ranks."""
    save_model(MessagePassing([8, 72], 3.0, 2, 0), folder / "a.pt")
    save_model(MessagePassing([72, 8], 3.0, 2, 1), folder / "b.pt")
    mace_oracle.save(folder / "c.pt", mace_oracle.Shape(elements=(72, 8)))
    return ["a.pt", "b.pt", "c.pt"]


ORDERS = [("torchscript", potentials), ("double", potentials), ("device", potentials)]
ORDERS += [("automatic", neps), ("device", neps), ("automatic", message_passing)]


@pytest.mark.parametrize("engine, write", ORDERS)
def test_elements_in_another_order(lammps: Lammps, write):
    """The mean of an ensemble on two ranks is that of its models, each alone with its own order."""
    keywords = "" if write is not potentials else lammps.engine.keywords
    lammps = Lammps(lammps.folder, replace(lammps.engine, keywords=""))
    lammps.data(crystal(2), [8, 72])
    files = write(lammps.folder)
    text, end = "", f"pair_coeff * * O Hf\n{MEASURE}{MOVE}run 0\n"
    for k, style in enumerate([*files, f"{' '.join(files)} drive mean out_freq 1 check 1"]):
        text += f"clear\n{READ}pair_style pwmlff {style} {keywords}\n{end}"
        text += DUMP.replace("atoms", str(k))
    run = lammps.run(text + f"{COMPUTE}run 3\n", 2)
    alone = [run.atoms(f"{k}.dump") for k in range(len(files))]
    together = run.atoms(f"{len(files)}.dump")
    assert np.abs(forces(alone[0]) - forces(alone[1])).max() > 1e-2
    mean = np.mean([forces(found) for found in alone], axis=0)
    np.testing.assert_allclose(forces(together), mean, atol=1e-9)
    energies = np.mean([found.c_peatom for found in alone], axis=0)
    np.testing.assert_allclose(together.c_peatom, energies, atol=1e-9)
    virial = np.mean([run.virial(k) for k in range(len(files))], axis=0)
    np.testing.assert_allclose(run.virial(len(files)), virial, atol=1e-7)
    assert "more than its precision allows" not in run.output


@pytest.mark.parametrize("engine", [thorough("torchscript"), "double", "mixed", "device"])
@pytest.mark.parametrize("ranks", [thorough(1), 2, thorough(4)])
def test_four_single_runs(four: Lammps, ranks: int):
    """compute pair, fix pair and what is captured, against NumPy on runs of each model alone."""
    single = []
    for name in FILES:
        alone = f"{READ}pair_style pwmlff {name}\npair_coeff * * O Hf\n{MEASURE}run 0\n{DUMP}"
        run = four.run(alone, ranks)
        atoms = run.atoms()
        single.append((forces(atoms), atoms.c_peatom.copy(), run.virial()))
    wanted = deviation_of(*(np.array(values) for values in zip(*single, strict=True)))

    run = four.run(
        f"{READ}{STYLE.format('capture 0 100 doubt.xyz')}{COMPUTE}"
        "fix of all pair 1 pwmlff force_deviation 1 energy_deviation 1\n"
        "thermo_style custom step c_devi[*]\nthermo_modify format float %.17g\nrun 0\n"
        "write_dump all custom atoms.dump id f_of[*] modify format float %.17g\n",
        ranks,
    )
    force, energy = wanted.force, wanted.energy
    totals = [force.max(), force.min(), force.mean(), wanted.total, wanted.virial.max()]
    np.testing.assert_allclose(run.vector("c_devi"), totals, rtol=0, atol=1e-10)
    found, frame = run.atoms(), read(four.folder / "doubt.xyz")
    for values in (found["f_of[1]"], frame.arrays["force_deviation"]):
        np.testing.assert_allclose(values, force, rtol=0, atol=1e-10)
    for values in (found["f_of[2]"], frame.arrays["energy_deviation"]):
        np.testing.assert_allclose(values, energy, rtol=0, atol=1e-10)
    assert frame.info["max_devi_f"] == pytest.approx(force.max(), abs=1e-10)


def test_compute_pair_is_evaluated_where_something_reads_it(four: Lammps):
    """Not on all steps; those of thermo output count, for which LAMMPS schedules every compute."""
    reads = "variable d equal c_devi[1]\nfix read all ave/time 5 1 5 v_d file read.txt\n"
    four.run(f"{READ}{STYLE.format('out_freq 1000')}{COMPUTE}{reads}{MOVE}thermo 100\nrun 12\n")
    steps, values = np.loadtxt(four.folder / "read.txt").T
    assert steps.tolist() == [0, 5, 10]
    assert (values > 0).all() and len(set(values)) == 3
    assert np.loadtxt(four.folder / "model_devi.out", ndmin=2)[:, 0].tolist() == [0]


def test_compute_pair_beside_numdiff(four: Lammps):
    """What a fix probes between the forces and the output does not count."""
    text = (
        f"{READ}{STYLE.format('out_freq 1')}{COMPUTE}{MOVE}{{}}"
        "thermo_style custom step c_devi[*]\nthermo 1\nrun 2\n"
    )
    alone = four.run(text.format("")).vector("c_devi")
    beside = four.run(text.format("fix probe all numdiff 1 0.001\n")).vector("c_devi")
    assert beside.tolist() == alone.tolist()


def bounds_of(folder: Path, files: list[str]) -> Bounds:
    """As a training keeps them; deviations of the models here are below and above them."""
    edges = [0.0, 0.01, 0.1, 0.2]
    bounds = Bounds(hashes([folder / name for name in files]), 3, edges, [0.02, 0.3, 0.7])
    bounds.write(folder)
    return bounds


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("units", ["metal", "real"])
def test_expected_error(four: Lammps, ranks: int, units: str):
    """The sixth number of compute pair, as Python reads the file."""
    bounds = bounds_of(four.folder, FILES)
    read = READ.replace("metal", units)
    style = STYLE.format("calibration calibration.txt drive mean")
    print_all = "thermo_style custom step c_devi[*]\nthermo_modify format float %.17g\nthermo 1\n"
    move = MOVE.replace("0.001", "1.0" if units == "real" else "0.001")
    run = four.run(f"{read}{style}{COMPUTE}{move}{print_all}run 10\n", ranks)
    thermo = run.thermo()
    unit = 23.060549 if units == "real" else 1.0
    largest = np.array(thermo["c_devi[1]"]) / unit
    found = np.array(thermo["c_devi[6]"]) / unit
    np.testing.assert_allclose(found, bounds.limits(largest), rtol=1e-6)


@pytest.mark.parametrize(
    "files,contents,options,words",
    [
        (FILES[:3], "", "", "is not of these models, but of 3 files"),
        (FILES, "", "relative 1", "leave out relative or calibration"),
        (FILES, "# model a b\n0.1 0.2\n0.05 0.3\n", "", "has the line '0.05 0.3'"),
        (FILES, "# model a b\n0.1 much\n", "", "has the line '0.1 much'"),
        (FILES, "0.1 0.2\n", "", "names no model"),
    ],
)
def test_calibrations_that_are_none(
    four: Lammps, files: list[str], contents: str, options: str, words: str
):
    bounds_of(four.folder, files)
    if contents:
        (four.folder / "calibration.txt").write_text(contents)
    style = STYLE.format(f"calibration calibration.txt {options}")
    run = four(f"{READ}{style}run 0\n", ranks=2)
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    assert words in run.output, run.output


def test_halt(four: Lammps):
    """A run ends at the very step whose deviation passes a bound."""
    setup = f"{READ}{STYLE.format('out_freq 1')}{COMPUTE}{MOVE}"
    four.run(f"{setup}run 30\n", ranks=2)
    largest = np.loadtxt(four.folder / "model_devi.out")[:, 3]
    bound = np.sort(largest[5:25])[-2:].mean()
    first = int(np.flatnonzero(largest > bound)[0])
    assert 0 < first < 30
    halt = f"variable d equal c_devi[1]\nfix stop all halt 1 v_d > {bound:.9f} error soft\n"
    run = four.run(f"{setup}{halt}run 30\n", ranks=2)
    assert f"Fix halt condition for fix-id stop met on step {first}" in run.output


def test_mean_drives(four: Lammps):
    """Energy and forces are those of the mean, which conserves energy as one model does."""
    atoms = crystal(2)
    wanted = deviation(atoms)
    run = four.run(f"{READ}{STYLE.format('drive mean')}{MEASURE}run 0\n{DUMP}", ranks=2)
    tolerance = four.engine
    assert run.thermo()["PotEng"][0] == pytest.approx(
        wanted.mean_energy, abs=len(atoms) * tolerance.energy
    )
    np.testing.assert_allclose(forces(run.atoms()), wanted.mean_force, rtol=0, atol=tolerance.force)
    assert "the mean drives" in run.output
    spread = {}
    for drive in ("first", "mean"):
        for step in (0.001, 0.0005):
            style = STYLE.format("out_freq 1000 drive " + drive)
            text = f"{READ}{style}{MOVE}timestep {step}\n{MEASURE}thermo 1\nrun {0.1 / step:.0f}\n"
            spread[drive, step] = np.std(four.run(text).thermo()["TotEng"])
        assert spread[drive, 0.001] / spread[drive, 0.0005] == pytest.approx(4, rel=0.05)
    assert spread["mean", 0.001] < spread["first", 0.001]


@pytest.mark.parametrize("drive", ["first", "mean"])
def test_energies_of_what_drives(four: Lammps, drive: str):
    """fix pair gives the energies of atoms that add up to the energy of the simulation."""
    energies = np.array([evaluate(model, crystal(2)).atom_energy for model in MODELS])
    run = four.run(
        f"{READ}{STYLE.format('drive ' + drive)}{MEASURE}fix of all pair 1 pwmlff energy 0\nrun 0\n"
        "write_dump all custom atoms.dump id f_of modify format float %.17g\n",
        ranks=2,
    )
    found = run.atoms().f_of
    wanted = energies.mean(axis=0) if drive == "mean" else energies[0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=four.engine.atom_energy)
    assert found.sum() == pytest.approx(run.thermo()["PotEng"][0], abs=1e-9)


@pytest.mark.parametrize("engine", ["double"])  # TorchScript gives no virials of atoms
def test_virials_of_atoms_where_the_mean_drives(four: Lammps):
    measure = (
        "compute of all stress/atom NULL pair\ncompute sum all reduce sum c_of[*]\n"
        "thermo_style custom step c_sum[*]\nthermo_modify format float %.17g\nrun 0\n"
    )
    each = [
        four.run(f"{READ}pair_style pwmlff {name}\npair_coeff * * O Hf\n{measure}").vector("c_sum")
        for name in FILES
    ]
    found = four.run(f"{READ}{STYLE.format('drive mean')}{measure}").vector("c_sum")
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("ranks", [1, 2])
def test_columns_of_dpgen(four: Lammps, ranks: int):
    """As its readers take them: by number, and by the names in the first line."""
    options = "out_format dpgen atomic yes relative 0.1 out_freq 1"
    four.run(f"{READ}{STYLE.format(options)}run 0\n", ranks)
    text = (four.folder / "model_devi.out").read_text()
    (row,) = np.loadtxt(StringIO(text), ndmin=2)  # DP-GEN: 1 is max_devi_v, 4 max_devi_f
    wanted = deviation(crystal(2))
    virial, force = wanted.virial, wanted.relative
    columns = [
        0, virial.max(), virial.min(), np.sqrt(np.mean(virial**2)),
        force.max(), force.min(), force.mean(), *force,
    ]  # fmt: skip
    np.testing.assert_allclose(row, columns, rtol=0, atol=1e-6)
    names = ["step", *(f"{k}_devi_{q}" for q in "vf" for k in ("max", "min", "avg"))]
    assert text.splitlines()[0].split() == ["#", *names]


@pytest.mark.parametrize("form", ["matpl", "dpgen"])
def test_names_of_columns(four: Lammps, form: str):
    """Of readers that take the first line for a header; the models follow it where asked for."""
    four.run(f"{READ}{STYLE.format(f'out_format {form} out_freq 1')}{MOVE}run 3\n")
    path = four.folder / "model_devi.out"
    table = np.genfromtxt(StringIO(path.read_text().lstrip("#")), names=True)
    assert table["step"].tolist() == [0, 1, 2, 3]
    assert (table["max_devi_f"] > table["avg_devi_f"]).all()
    assert (table["avg_devi_f"] > table["min_devi_f"]).all()
    four.run(f"{READ}{STYLE.format(f'out_format {form} out_header yes')}run 0\n")
    lines = path.read_text().splitlines()[1:5]
    for name, line in zip(FILES, lines, strict=True):
        assert line.startswith("# model")
        digest = hashlib.sha256((four.folder / name).read_bytes()).hexdigest()
        assert digest in line and name in line
    fourth = "max_devi_f" if form == "dpgen" else "avg_devi_e"
    assert np.loadtxt(path)[4] == pytest.approx(table[fourth][0], rel=1e-6)


def test_a_part_of_a_hybrid_style(four: Lammps):
    """LAMMPS ends its words at the name of a pair style, which matpl is; another word is none."""
    columns = {}
    for form in ("", "out_format pwact", "out_format dpgen"):
        style = f"pair_style hybrid/overlay pwmlff {' '.join(FILES)} {form} zero 3.0\n"
        coeff = "pair_coeff * * pwmlff O Hf\npair_coeff * * zero\n"
        four.run(f"{READ}{style}{coeff}run 0\n")
        columns[form] = (four.folder / "model_devi.out").read_text()
    assert columns[""] == columns["out_format pwact"] != columns["out_format dpgen"]
    run = four(f"{READ}{style.replace('dpgen', 'matpl')}{coeff}run 0\n", ranks=2)
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    assert "keyword out_format has no value" in run.output
    assert "which matpl is: write out_format pwact" in run.output


def test_a_file_of_the_other_format_is_not_continued(four: Lammps):
    four.run(f"{READ}{STYLE.format('out_append yes')}run 0\n")
    run = four(f"{READ}{STYLE.format('out_append yes out_format dpgen')}run 0\n")
    assert run.returncode != 0
    assert "not those of this out_format" in run.output


@pytest.mark.parametrize("ranks", [thorough(1), thorough(2), 4])
def test_captured_structures(four: Lammps, ranks: int):
    """Those of a window and no others, as they were."""
    setup = f"{READ}{STYLE.format('out_freq 1 {}')}{MOVE}"
    four.run(f"{setup.format('')}run 20\n", ranks)
    largest = np.loadtxt(four.folder / "model_devi.out")[:, 3]
    lo, hi = np.quantile(largest, [0.33, 0.81])
    dump = "dump 1 all custom 1 all.dump id type x y z\ndump_modify 1 sort id format float %.17g\n"
    four.run(f"{setup.format(f'capture {lo:.9f} {hi:.9f} doubt.xyz')}{dump}run 20\n", ranks)
    inside = np.flatnonzero((largest >= lo) & (largest < hi))
    frames = read(four.folder / "doubt.xyz", ":")
    assert [frame.info["step"] for frame in frames] == inside.tolist()
    every = read(four.folder / "all.dump", ":", format="lammps-dump-text")
    for step, frame in zip(inside, frames, strict=True):
        same = crystal(2)
        assert (frame.numbers == same.numbers).all()
        apart = frame.get_positions() - every[step].get_positions()
        apart -= apart.mean(axis=0)
        fractions = np.linalg.solve(np.array(frame.cell).T, apart.T)
        assert np.abs(fractions - np.rint(fractions)).max() < 1e-10
        wanted = deviation(frame)
        found = frame.arrays["force_deviation"]
        np.testing.assert_allclose(found, wanted.force, rtol=0, atol=1e-6)
        assert frame.info["max_devi_f"] == pytest.approx(largest[step], abs=1e-8)
        assert "energy" not in frame.info and frame.calc is None


@pytest.mark.parametrize("engine", ["double"])
@pytest.mark.parametrize("units", UNITS)
def test_units_of_captured_structures(four: Lammps, units: str):
    """A relative deviation has no unit, in the window neither; what has one is in eV, A and ps."""
    unit, time = UNITS[units]
    wanted = deviation(crystal(2))
    lo, hi = 0.999 * wanted.relative.max(), 1.001 * wanted.relative.max()
    options = f"out_freq 1 relative {0.1 * unit} capture {lo} {hi} doubt.xyz"
    velocity = f"velocity all set {1 / time} 0 {2 / time}\n"
    four.run(f"{READ.replace('metal', units)}{STYLE.format(options)}{velocity}run 0\n", ranks=2)
    frame = read(four.folder / "doubt.xyz")
    assert frame.info["max_devi_f"] == pytest.approx(wanted.relative.max(), rel=1e-5)
    assert frame.info["avg_devi_f"] == pytest.approx(wanted.relative.mean(), rel=1e-5)
    assert frame.info["devi_e"] == pytest.approx(wanted.total, rel=1e-5)
    found = frame.arrays
    np.testing.assert_allclose(found["force_deviation"], wanted.relative, rtol=1e-5)
    np.testing.assert_allclose(found["energy_deviation"], wanted.energy, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found["velocity"], [[1, 0, 2]] * 64, rtol=1e-12)


@pytest.mark.parametrize("engine", ["double"])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(
    "integrator", ["fix 1 all nve", "fix 1 all nvt temp 900 900 {}\nrun_style respa 2 2 pair 2"]
)
def test_velocities_of_captured_structures(four: Lammps, units: str, integrator: str):
    """They are those of the step, like positions, as dump has them."""
    time = UNITS[units][1]
    text = (
        f"{READ.replace('metal', units)}{STYLE.format('out_freq 1 capture 0 1e9 doubt.xyz')}"
        f"velocity all create 1000 1\n{integrator.format(0.1 * time)}\ntimestep {0.001 * time}\n"
        "dump 1 all custom 1 *.dump id vx vy vz\ndump_modify 1 format float %.17g\nrun 3\n"
    )
    four.run(text, ranks=2)
    frames = read(four.folder / "doubt.xyz", ":")
    assert [frame.info["step"] for frame in frames] == [0, 1, 2, 3]
    for step, frame in enumerate(frames):
        dumped = read_dump(four.folder / f"{step}.dump")
        wanted = time * np.array([dumped.vx, dumped.vy, dumped.vz]).T
        np.testing.assert_allclose(frame.arrays["velocity"], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("engine", ["double"])
@pytest.mark.parametrize(
    "name,options",
    [
        ("doubt.xyz", "out_freq 1000 capture 0 1e9 doubt.xyz every 1"),
        ("model_devi.out", "out_freq 1 atomic yes"),
    ],
)
def test_a_full_disk(four: Lammps, name: str, options: str):
    """What does not fit is not there in part; one error, on all ranks.

    A limit for the size of files takes the place of the disk.
    """
    path = four.folder / name
    four.run(f"{READ}{STYLE.format(options)}{MOVE}run 6\n", ranks=2)
    whole = path.read_bytes()
    path.unlink()
    limit = f'log none\nshell prlimit "--pid=$PPID" --fsize={len(whole) // 2}\n'  # of rank 0
    text = f"{READ}{limit}{STYLE.format(options)}{MOVE}run 6\n"
    run = four(text, ranks=2, before=["env", "--ignore-signal=XFSZ"])
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    assert name in run.output and "File too large" in run.output, run.output
    left = path.read_bytes()
    assert whole.startswith(left)
    complete = left.splitlines()[1:] if name == "model_devi.out" else read(path, ":")
    assert 0 < len(complete) < 6 and left.endswith(b"\n")


def test_captured_structures_are_limited(four: Lammps):
    options = "out_freq 7 capture 0 100 doubt.xyz max 3 every 2"
    run = four.run(f"{READ}{STYLE.format(options)}{MOVE}run 20\n")
    frames = read(four.folder / "doubt.xyz", ":")
    assert [frame.info["step"] for frame in frames] == [0, 2, 4]
    assert "which is the max of capture" in run.output


def test_beyond_the_window(four: Lammps):
    four.run(f"{READ}{STYLE.format('out_freq 1')}{MOVE}run 20\n")
    largest = np.loadtxt(four.folder / "model_devi.out")[:, 3]
    hi = np.sort(largest)[-3]
    first = int(np.flatnonzero(largest >= hi - 1e-9)[0])
    options = f"out_freq 1 capture 0 {hi - 1e-9:.9f} doubt.xyz beyond {{}}"
    run = four.run(f"{READ}{STYLE.format(options.format('stop'))}{MOVE}run 20\nprint 'goes on'\n")
    assert "beyond" in run.output and "goes on" in run.output
    assert np.loadtxt(four.folder / "model_devi.out")[-1, 0] == first
    four.run(f"{READ}{STYLE.format(options.format('go'))}{MOVE}run 20\n")
    assert np.loadtxt(four.folder / "model_devi.out")[-1, 0] == 20
    assert first not in [f.info["step"] for f in read(four.folder / "doubt.xyz", ":")]


def test_trial_structures_do_not_end_a_run(four: Lammps):
    """Of atoms that swap places and go back; what a step ends with counts."""
    swap = "fix swap all atom/swap 1 5 29494 1e-3 types 1 2\n"
    begin = f"{READ}{STYLE.format('out_freq 1 capture 0 {hi} doubt.xyz beyond stop')}{MOVE}{swap}"
    four.run(begin.replace("{hi}", "1e9") + "run 20\n")
    largest = np.loadtxt(four.folder / "model_devi.out")[:, 3].max()
    run = four.run(begin.replace("{hi}", f"{1.001 * largest:.9f}") + "run 20\n")
    assert "the run ends" not in run.output
    assert np.loadtxt(four.folder / "model_devi.out")[-1, 0] == 20


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_structure_that_ends_a_run(four: Lammps, ranks: int):
    """All of it, whatever rank has found what is wrong."""
    script = (
        f"{READ}{STYLE.format('capture 0 100 doubt.xyz')}"
        "set atom 3 x 0.1 y 0.1 z 0.1\nset atom 5 x 0.1 y 0.1 z 0.1\nrun 0\n"
    )
    run = four(script, ranks)
    assert run.returncode != 0
    failed = read(four.folder / "doubt.failed.xyz")
    assert len(failed) == 64 and "non-finite" in failed.info["error"]


def test_files_survive_kills(four: Lammps):
    """SIGKILL at random moments, and again from the last restart file: each step once."""
    every = "out_freq 1 out_append yes capture 0 100 doubt.xyz"
    style = STYLE.format(every)
    begin = f"{READ}{style}{MOVE}restart 5 one.rs two.rs\nrun 400\n"
    whole = four.run(begin)
    lines, frames = (four.folder / n for n in ("model_devi.out", "doubt.xyz"))
    wanted = np.loadtxt(lines)
    for path in (lines, frames):
        path.unlink()

    def restarts() -> list[Path]:
        return list(four.folder.glob("*.rs"))

    for path in restarts():
        path.unlink()
    rng = np.random.default_rng(1)
    for _ in range(20):
        found = [(path.stat().st_size, path.stat().st_mtime, path) for path in restarts()]
        newest = max(found)[2] if found else None  # one that a kill cut short is smaller
        again = (
            f"read_restart {newest.name}\n{style}fix 1 all nve\n"
            if newest
            else f"{READ}{style}{MOVE}"
        )
        text = f"{again}restart 5 one.rs two.rs\nrun 400 upto\n"
        process = four.begin(text)
        time.sleep(rng.uniform(0.3, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
    four.run(text)
    found = np.loadtxt(lines)
    assert found[:, 0].tolist() == wanted[:, 0].tolist()
    assert [f.info["step"] for f in read(frames, ":")] == wanted[:, 0].tolist()
    assert whole.returncode == 0


def found_by_check(lammps: Lammps) -> list[tuple[int, int, float, float, int]]:
    """Steps, models, differences of energies and of forces, atoms: as the log has them."""
    return [
        (int(step), int(model), float(energy), float(force), int(n))
        for step, model, energy, force, n in re.findall(
            r"check at step (\d+): model (\d) differs from the file's own code by (\S+) eV in the "
            r"energy of an atom and (\S+) eV/angstrom in a force, of (\d+) atoms",
            (lammps.folder / "log.lammps").read_text(),
        )
    ]


@pytest.mark.parametrize("engine", ["double", "mixed", "device"])
@pytest.mark.parametrize("ranks", [1, 2, thorough(4)])
def test_check_in_flight(four: Lammps, ranks: int):
    """What it finds is what the engines are off by, in the structures of the run."""
    run = four.run(f"{READ}{STYLE.format('check 5')}{MOVE}run 20\n", ranks)
    found = found_by_check(four)
    assert {step for step, *_ in found} <= {0, 5, 10, 15, 20}
    assert {model for _, model, *_ in found} == {1, 2, 3, 4}
    for _, _, energy, force, n in found:
        assert 0 < energy < four.engine.atom_energy and 0 < force < four.engine.force
        assert 64 // 10 <= n <= 64 // 10 + ranks
    assert "more than its precision allows" not in run.output


@pytest.mark.parametrize("engine", ["torchscript"])
def test_check_with_nothing_to_compare(four: Lammps):
    run = four.run(f"{READ}{STYLE.format('check 1')}{MOVE}run 2\n", ranks=2)
    for model in (1, 2, 3, 4):
        said = f"check: the file's own code evaluates model {model}: there is nothing to compare"
        assert run.output.count(said) == 1
    assert found_by_check(four) == []


STALE = "more than the skin of 0.4"
TILTED = "change_box all triclinic\n"
SHEAR = "fix 2 all deform 1 xy erate 20 remap none\n"


@pytest.mark.parametrize("engine", ["double"])
@pytest.mark.parametrize(
    "box,modify,stale",
    [
        ("", "every 1 delay 0 check yes", False),
        ("", "every 10 delay 50 check no", True),
        (TILTED, "every 1 delay 0 check yes", False),
        (TILTED, "every 10 delay 50 check no", True),
    ],
)
def test_lists_that_go_stale(four: Lammps, box: str, modify: str, stale: bool):
    """Where a list is older than its atoms allow, forces are wrong and the check says so."""
    style = STYLE.format("check 5 out_freq 1000")
    move = "velocity all create 20000 1\nfix 1 all nve/limit 0.1\n" + (SHEAR if box else "")
    text = f"{READ}{box}neighbor 0.4 bin\nneigh_modify {modify}\n{style}{move}{MEASURE}run 20\n"
    run = four.run(f"{text}{DUMP}", ranks=2)
    assert (STALE in run.output) == stale
    if box:
        return  # fix deform leaves a box that is a step ahead
    atoms = run.atoms()
    moved = crystal(2)
    moved.positions = np.array([atoms.x, atoms.y, atoms.z]).T
    wrong = np.abs(forces(atoms) - evaluate(MODELS[0], moved).forces).max()
    assert wrong > 0.1 if stale else wrong < four.engine.force


@pytest.mark.parametrize("engine", ["double"])
def test_check_changes_nothing(four: Lammps):
    """Forces are those of the engine, checked or not."""
    found = []
    for option in ("", "check 1"):
        style = STYLE.format("out_freq 1 " + option)
        text = f"{READ}{style}{MOVE}compute peatom all pe/atom\nrun 5\n{DUMP}"
        run = four.run(text, ranks=2)
        found.append((forces(run.atoms()).copy(), (four.folder / "model_devi.out").read_text()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize(
    "options,words",
    [
        ("check 0", ["check is 0"]),
        ("capture 1 0.5 a.xyz", ["capture is from 1 to 0.5", "lo < hi"]),
        ("capture 0.1 a.xyz", ["a.xyz"]),
        ("capture 0.1 0.5 a.xyz max 0", ["capture max is 0"]),
        ("capture 0.1 0.5 a.xyz beyond never", ["'never'", "go or stop"]),
        ("out_format vasp", ["'vasp'", "matpl or dpgen"]),
        ("drive second", ["'second'", "first or mean"]),
        ("relative 0", ["relative is 0"]),
        ("capture 0.1 0.5 model_devi.out", ["two ensembles write to 'model_devi.out'"]),
        ("capture 0.1 0.5 absent/a.xyz", ["absent/a.xyz", "choose another one with capture"]),
    ],
)
def test_errors(four: Lammps, options: str, words: list[str]):
    run = four(f"{READ}{STYLE.format(options)}run 0\n", ranks=2)
    assert run.returncode != 0
    assert run.output.count("ERROR") == 1
    for word in words:
        assert word in run.output, run.output


@pytest.mark.parametrize("keyword", ["drive mean", "capture 0 1 a.xyz", "atomic yes", "relative 1"])
def test_one_model_has_no_deviation(four: Lammps, keyword: str):
    run = four(f"{READ}pair_style pwmlff 0.pt {keyword}\npair_coeff * * O Hf\nrun 0\n")
    assert run.returncode != 0
    assert "there is one model file" in run.output


def test_scale(four: Lammps):
    """fix adapt and compute ti: energy and forces times a number that is one for all types."""
    style = "pair_style pwmlff 0.pt\npair_coeff * * O Hf\n"
    adapt = "variable s equal 0.25\nfix a all adapt 1 pair pwmlff scale {} v_s\n"
    found = []
    for factor in ("", adapt.format("* *")):
        run = four.run(f"{READ}{style}{factor}{MEASURE}run 0\n{DUMP}", ranks=2)
        found.append((run.thermo()["PotEng"][0], forces(run.atoms()), run.virial()))
    for plain, scaled in zip(*found, strict=True):
        np.testing.assert_allclose(scaled, 0.25 * plain, rtol=1e-12, atol=1e-9)
    run = four(f"{READ}{style}{adapt.format('1 1')}run 0\n")
    assert run.returncode != 0 and "one for all: use 'scale * *'" in run.output
