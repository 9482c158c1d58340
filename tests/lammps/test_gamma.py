"""gamma: how far atoms are from what a model was trained on, for fix pair, compute pair and limits.

What is compared with is gamma of pwmlff.Calculator on the frames of a dump, which
tests/kernels/test_dp_engine.py compares with NumPy.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from ase.io import read

import ace_files
from edge_models import LennardJones
from harness import ENGINES, Lammps, thorough
from nep_files import HEADS, random_text
from pwmlff import Calculator
from pwmlff.models.saving import save_model
from pwmlff.train.uncertainty import Bounds, hashes, in_place_of_deviation
from systems import SYSTEMS, crystal, graded

BINARY = SYSTEMS["two elements, triclinic"]
READ = "units metal\natom_modify map yes\nread_data atoms.data\n"
MOVE = "velocity all create 3000 1\nfix 1 all nve\ntimestep 0.001\n"
DUMP = "dump 1 all custom 1 all.dump id element x y z\ndump_modify 1 sort id element O Hf "
DUMP += "format float %.17g\n"
STEPS = 20
FUSED = pytest.mark.parametrize("engine", ["exact"])  # TorchScript gives no gamma


def limit_of(largest: np.ndarray) -> tuple[float, int]:
    """Between what two frames have, and the first frame beyond it."""
    limit = float(np.sort(largest)[-4:-2].mean())
    return limit, int(np.flatnonzero(largest > limit)[0])


@pytest.fixture
def moving(lammps: Lammps) -> Lammps:
    lammps.save(graded(BINARY.model(isotropic=True), 2), "0.pt")
    lammps.save(BINARY.model(seed=1, isotropic=True), "plain.pt")
    lammps.data(crystal(2), [8, 72])
    return lammps


def script(options: str = "", more: str = "", files: str = "0.pt") -> str:
    style = f"pair_style pwmlff {files} {options}\npair_coeff * * O Hf\n"
    return f"{READ}{style}{MOVE}{DUMP}{more}run {STEPS}\n"


def of_frames(lammps: Lammps, file: str = "0.pt") -> np.ndarray:
    """[frames, atoms] by the calculator."""
    calculator = Calculator(lammps.folder / file, precision="exact")
    frames = read(lammps.folder / "all.dump", index=":", format="lammps-dump-text")
    return np.array([calculator.get_property("gamma", atoms) for atoms in frames])


def of_fix(moving: Lammps, ranks: int, file: str = "0.pt") -> np.ndarray:
    """[frames, atoms] as users of ML-PACE ask for it."""
    fix = "fix g all pair 1 pwmlff gamma 1\ncompute most all reduce max f_g\n"
    fix += "thermo_style custom step c_most\nthermo_modify format float %.17g\nthermo 1\n"
    fix += "dump g all custom 1 g.dump id f_g\ndump_modify g sort id format float %.17g\n"
    moving.run(script(more=fix, files=file), ranks, OMP_NUM_THREADS="2")
    found = [
        float(line.split()[1])
        for line in (moving.folder / "g.dump").read_text().splitlines()
        if re.fullmatch(r"\d+ \S+ ?", line)
    ]
    return np.array(found).reshape(STEPS + 1, -1)


@pytest.mark.parametrize("engine", ["exact", "double", "mixed", "device", "device mixed"])
@pytest.mark.parametrize("ranks", [thorough(1), 2, thorough(4)])
def test_each_atom(moving: Lammps, engine: str, ranks: int):
    """Atoms move between ranks."""
    found = of_fix(moving, ranks)
    tolerance = {"exact": 1e-9, "double": 1e-7, "device": 1e-7}.get(engine, 1e-4)
    np.testing.assert_allclose(found, of_frames(moving), rtol=tolerance)


@FUSED
@pytest.mark.parametrize("ranks", [1, 2, thorough(4)])
def test_of_an_ace(moving: Lammps, ranks: int):
    """By its active set; gamma of Calculator is compared in tests/ace."""
    (moving.folder / "a.yace").write_text(ace_files.random_text(vectors=2))
    found = of_fix(moving, ranks, "a.yace")
    np.testing.assert_allclose(found, of_frames(moving, "a.yace"), rtol=1e-9)
    limit, step = limit_of(found.max(axis=1))
    run = moving(script(f"gamma {limit:.12g} stop", files="a.yace"), ranks)
    assert run.returncode != 0 and f"at step {step}, more than {limit:.4g}" in run.output


@pytest.mark.parametrize("engine", ["double", thorough("device")])
@pytest.mark.parametrize("ranks", [1, 2, thorough(4)])
def test_limit(moving: Lammps, ranks: int):
    """Stops at the very step, warns once for each element; compute pair has the largest."""
    more = "compute most all pair pwmlff\nthermo_style custom step c_most[1]\n"
    more += "thermo_modify format float %.17g\nthermo 1\n"
    run = moving.run(script("gamma 1e9 stop", more), ranks)
    gamma = of_frames(moving)
    np.testing.assert_allclose(run.thermo()["c_most[1]"], gamma.max(axis=1), rtol=1e-6)
    largest = gamma.max(axis=1)
    limit, step = limit_of(largest)
    assert step > 0
    run = moving(script(f"gamma {limit:.12g} stop"), ranks)
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    assert f"at step {step}, more than {limit:.4g}" in run.output
    assert f"extrapolation grade gamma of {largest[step]:.4g}" in run.output
    run = moving.run(script(f"gamma {gamma.min():.12g} warn"), ranks)
    assert 1 <= run.output.count("WARNING: Pair style pwmlff: atom") <= 2 * ranks


@FUSED
@pytest.mark.parametrize("ranks", [1, 2, thorough(4)])
@pytest.mark.parametrize("units", ["metal", "real"])
def test_expected_error(moving: Lammps, ranks: int, units: str):
    """The second number of compute pair, as Python reads the file."""
    path = moving.folder / "0.pt"
    errors = {"O": 0.3, "Hf": 0.1}
    bounds = Bounds(hashes([path]), 3, [0.0, 1.0, 1.83, 1.845], [0.02, 0.3, 0.7], errors)
    bounds.write(moving.folder)
    more = "compute most all pair pwmlff\nthermo_style custom step c_most[*]\n"
    more += "thermo_modify format float %.17g\nthermo 1\n"
    text = script("calibration calibration.txt", more).replace("metal", units)
    thermo = moving.run(
        text.replace("0.001", "0.001" if units == "metal" else "1.0"), ranks
    ).thermo()
    gamma = of_frames(moving)
    np.testing.assert_allclose(thermo["c_most[1]"], gamma.max(axis=1), rtol=1e-6)
    unit = 23.060549 if units == "real" else 1.0
    numbers = read(moving.folder / "all.dump", format="lammps-dump-text").numbers
    sizes = np.array([in_place_of_deviation(one, numbers, errors).max() for one in gamma])
    wanted = unit * bounds.limits(sizes)
    assert len(set(np.searchsorted(bounds.edges, sizes))) > 1
    np.testing.assert_allclose(thermo["c_most[2]"], wanted, rtol=1e-6)


@FUSED
def test_halt(moving: Lammps):
    more = "compute most all pair pwmlff\nvariable g equal c_most[1]\n"
    moving.run(script())
    largest = of_frames(moving).max(axis=1)
    limit, step = limit_of(largest)
    more += f"fix stop all halt 1 v_g > {limit:.12g} error soft\n"
    run = moving.run(script("gamma 1e9 stop", more), 2)
    assert f"Fix halt condition for fix-id stop met on step {step}" in run.output


@FUSED
def test_the_structure_is_stored(moving: Lammps):
    run = moving(script("gamma 1e-6 stop capture 0 1e9 doubt.xyz", files="0.pt plain.pt"), 2)
    assert run.returncode != 0 and "the structure is in 'doubt.failed.xyz'" in run.output
    assert len(read(moving.folder / "doubt.failed.xyz")) == 64


@pytest.mark.parametrize(
    "options,words",
    [
        ("gamma 0 stop", ["gamma is 0", "more than 0"]),
        ("gamma 1 perhaps", ["'perhaps'", "warn or stop"]),
        ("gamma 1", ["gamma"]),
        ("engine torchscript gamma 1 stop", ["keyword gamma needs", "engine torchscript"]),
    ],
)
def test_errors(moving: Lammps, options: str, words: list[str]):
    moving.engine = ENGINES["automatic"]
    run = moving(script(options), 2)
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    for word in words:
        assert word in run.output, run.output


def test_a_file_that_pair_coeff_names(moving: Lammps):
    """Which comes after the keywords: a calibration of one model all the same."""
    (moving.folder / "nep.txt").write_bytes(random_text(HEADS["nep5"]))
    Bounds(hashes([moving.folder / "nep.txt"]), 3, [0.0, 1.0], [0.1]).write(moving.folder)
    moving.engine = ENGINES["automatic"]
    style = "pair_style nep calibration calibration.txt\npair_coeff * * nep.txt O Hf\n"
    run = moving(f"{READ}{style}run 0\n", 2)
    assert run.returncode != 0 and "the keyword calibration needs the extrapol" in run.output


@pytest.mark.parametrize("file", ["plain.pt", "lj.pt"])
def test_files_without(moving: Lammps, file: str):
    """A limit, and a fix that asks for gamma."""
    moving.engine = ENGINES["automatic"]
    save_model(LennardJones(2.5), moving.folder / "lj.pt")
    units = "lj" if file == "lj.pt" else "metal"
    elements = "Ar Ar" if file == "lj.pt" else "O Hf"
    style = f"units {units}\natom_modify map yes\nread_data atoms.data\n"
    style += f"pair_style pwmlff {file} {{}}\npair_coeff * * {elements}\n"
    run = moving(f"{style.format('gamma 1 stop')}run 0\n", 2)
    assert run.returncode != 0 and "the keyword gamma needs the extrapolation grade" in run.output
    bounds = Bounds(hashes([moving.folder / file]), 3, [0.0, 1.0], [0.1])
    bounds.write(moving.folder)
    run = moving(f"{style.format('calibration calibration.txt')}run 0\n", 2)
    assert run.returncode != 0 and "the keyword calibration needs the extrapol" in run.output
    run = moving(f"{style.format('')}fix g all pair 1 pwmlff gamma 1\nrun 0\n", 2)
    assert run.returncode != 0 and run.output.count("ERROR") == 1 and "gamma" in run.output
