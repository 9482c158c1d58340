"""Pair styles with /kk, against those without, in a LAMMPS with package KOKKOS."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import harness
from harness import ENGINES, ON_DEVICE, Lammps, Run
from mace_oracle import Shape
from mace_oracle import save as save_mace
from nep_files import CHARGED, HEADS, random_text
from pwmlff.launch.lmp import CHARGES, read_dump
from systems import SYSTEMS, crystal

if not harness.OTHER_LMP:
    pytest.skip(
        "the lmp of pip has no KOKKOS; '.ci/matrix kokkos' has one", allow_module_level=True
    )

BINARY = SYSTEMS["two elements, triclinic"]
KOKKOS = "-k on t {} -sf kk"
HOT = (
    "velocity all create 1500 11 mom yes\nneighbor 0.3 bin\n"
    "neigh_modify every 1 delay 0 check yes\n"
)
NVE = HOT + "fix 1 all nve\n"
MEASURE = """
compute e all pe/atom pair
compute s all stress/atom NULL pair
compute c all centroid/stress/atom NULL pair
compute press all pressure NULL pair
thermo_style custom step pe etotal temp press vol c_press[*]
thermo_modify format float %.17g norm no
dump 1 all custom 20 atoms.dump id type x y z fx fy fz c_e c_s[*] c_c[*]
dump_modify 1 sort id format float %.17g
thermo 20
"""


@dataclass(frozen=True)
class Case:
    """An input: the pair style, and what moves the atoms."""

    style: str
    move: str = NVE + "run 40\n"
    stays: bool = True  # positions and forces are on the device of the models, where they have one
    before: str = ""  # the box
    package: str = ""  # options of package kokkos


DP = "pair_style pwmlff 1.pt\npair_coeff * * O Hf\n"
MACE = "pair_style pwmlff m.pt\npair_coeff * * O Hf\n"
CASES = {
    "DP": Case(DP),
    "NEP": Case("pair_style nep\npair_coeff * * a.txt O Hf\n"),
    "MACE": Case(MACE),
    "MACE, rows from device to device": Case(
        MACE, package=" -pk kokkos comm/pair/forward device comm/pair/reverse device"
    ),
    "NPT": Case(DP, f"{HOT}fix 1 all npt temp 900 900 0.1 tri 0 0 1\nrun 40\n"),
    "minimum": Case(DP, "min_style cg\nminimize 0 1e-3 20 40\n"),
    "second run": Case(
        DP, f"group some id < 20\n{NVE}run 20\ndisplace_atoms some move 0.2 0.1 0\nrun 20\n"
    ),
    "one type": Case(
        "pair_style hybrid pwmlff 1.pt lj/cut 3.0\npair_coeff * * pwmlff NULL Hf\n"
        "pair_coeff 1 * lj/cut 0.01 1.5\n",
        stays=False,
    ),
    "ensemble": Case(
        "pair_style pwmlff 1.pt 2.pt 3.pt out_freq 10 atomic yes capture 0 100 c.extxyz\n"
        "pair_coeff * * O Hf\ncompute d all pair pwmlff\n"
        "fix d all ave/time 10 1 10 c_d[*] file d.txt\n"
    ),
    "ensemble of MACE, rows from device to device": Case(
        MACE.replace("m.pt", "m.pt n.pt out_freq 10"),
        package=" -pk kokkos comm/pair/forward device comm/pair/reverse device",
    ),
    "mean": Case("pair_style matpl 2 1.pt 2.pt drive mean out_freq 20\npair_coeff * * 8 72\n"),
    "Monte Carlo": Case(
        DP, f"{NVE}fix 2 all gcmc 5 3 3 1 291 900.0 -3.0 0.2 full_energy\nrun 40\n", False
    ),
    "excluded": Case(f"neigh_modify exclude type 1 2\n{DP}", stays=False),
    "excluded later": Case(
        DP, f"group some id < 20\n{NVE}run 20\nneigh_modify exclude group some some\nrun 20\n"
    ),
    "overlay": Case(
        "pair_style hybrid/overlay pwmlff 1.pt lj/cut 3.0\npair_coeff * * pwmlff O Hf\n"
        "pair_coeff * * lj/cut 0.01 1.5\n",
        stays=False,
    ),
    **{
        f"charges, {sums}": Case(
            f"pair_style pwmlff b.txt kspace {sums}\npair_coeff * * O Hf\n"
            "fix b all pair 1 pwmlff charge 1 born 1\n"
            "compute d all reduce sumsq f_b[*]\nfix d all ave/time 10 1 10 c_d[*] file d.txt\n",
            before=CHARGES,
        )
        for sums in ("ewald", "pppm")
    },
    "list of LAMMPS": Case(DP.replace("1.pt", "1.pt neighbors lammps"), stays=False),
}
FILES = ("explr.error", "model_devi.out", "c.extxyz", "d.txt")


#: Keywords, and how near numbers come after 40 steps.
ENGINES_HERE = {
    "on host": (ENGINES["double"], 1e-10),
    "on device": (ENGINES["device"], 1e-10),
    "on device, mixed": (replace(ENGINES["device"], keywords="precision mixed"), 1e-5),
}


@pytest.fixture(params=ENGINES_HERE)
def folder(request, tmp_path: Path, monkeypatch) -> Lammps:
    lammps = Lammps(tmp_path, ENGINES_HERE[request.param][0])
    monkeypatch.setattr(harness, "OTHER_ARGUMENTS", "")
    for seed in (1, 2, 3):
        lammps.save(BINARY.model(seed=seed, isotropic=True), f"{seed}.pt")
    (lammps.folder / "a.txt").write_bytes(random_text(HEADS["nep5"], 0))
    (lammps.folder / "b.txt").write_bytes(random_text(CHARGED["charge 1"], 0))
    for seed, name in enumerate("mn"):
        shape = Shape(leaving=(0, 2, 0), residual=(True, False, True))
        save_mace(lammps.folder / f"{name}.pt", shape, seed)
    lammps.data(crystal(2), [8, 72])
    return lammps


def results(
    folder: Lammps, case: Case, ranks: int, threads: int = 0
) -> tuple[Run, list[np.ndarray]]:
    """Numbers of a run: thermo output, atoms, what the pair style has written. Without threads, of
    LAMMPS without KOKKOS."""
    for name in FILES:
        (folder.folder / name).unlink(missing_ok=True)
    text = (
        f"units metal\natom_modify map yes\n{case.before}read_data atoms.data\n"
        f"{case.style}{MEASURE}{case.move}"
    )
    run = folder.run(text, ranks, KOKKOS.format(threads) + case.package if threads else "")
    atoms = read_dump(folder.folder / "atoms.dump")
    numbers = [np.array(list(run.thermo().values())).T, np.array(atoms.tolist())]
    for name in FILES:
        if (folder.folder / name).exists():
            words = (folder.folder / name).read_text().split()
            numbers.append(np.array([float(word) for word in words if is_number(word)])[None])
    return run, numbers


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_same_numbers(folder: Lammps, name: str, ranks: int):
    """A run of 40 steps, in which lists are made anew; the device of KOKKOS is the host here."""
    case = CASES[name]
    tolerance = next(near for engine, near in ENGINES_HERE.values() if engine == folder.engine)
    _, wanted = results(folder, case, ranks)
    run, found = results(folder, case, ranks, threads=2 if ranks == 1 else 1)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        scale = np.abs(other).max(axis=0, initial=1.0)  # of each column, eV/angstrom and the like
        assert (np.abs(one - other) < tolerance * scale).all(), np.abs((one - other) / scale).max()
    stays = folder.engine.environment == ON_DEVICE and case.stays
    assert ("positions and forces stay on its device" in run.output) == stays


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    source = Path(__file__).with_name("kokkos_syncs.cpp")
    library = tmp_path / "syncs.so"
    subprocess.run(
        ["c++", "-shared", "-fPIC", "-std=c++20", source, "-o", library, "-ldl"], check=True
    )
    return library


def counted(run: Run) -> list[int]:
    """Of one rank, and what all have alike: what is asked for on the host and on the device, and
    how often rows go through the host."""
    lines = [line for line in run.output.splitlines() if "copies to the host" in line]
    return max([int(word) for word in line.split()[-3:]] for line in lines)  # others: of mpirun


@pytest.mark.parametrize("package", ["no", "device"])
def test_rows_of_ghosts(folder: Lammps, shim: Path, package: str):
    """Features that ranks exchange stay on the device if KOKKOS has buffers there."""
    options = f" -pk kokkos comm/pair/forward {package} comm/pair/reverse {package}"
    text = f"units metal\nread_data atoms.data\n{MACE}{NVE}thermo 1000\nrun 5\n"
    run = folder.run(text, 2, KOKKOS.format(1) + options, LD_PRELOAD=str(shim))
    stay = folder.engine.environment == ON_DEVICE and package == "device"
    assert counted(run)[2] == (0 if stay else 6 * 4)  # steps, and two layers there and back


def test_nothing_is_copied(folder: Lammps, shim: Path):
    """Where positions and forces stay on the device, steps do not ask for them on the host."""
    style = "pair_style pwmlff 1.pt 2.pt drive mean out_freq 1000\npair_coeff * * O Hf\n"
    text = f"units metal\nread_data atoms.data\n{style}{NVE}thermo 1000\nrun {{}}\n"
    counts = []
    for steps in (20, 70):
        run = folder.run(text.format(steps), 2, KOKKOS.format(1), LD_PRELOAD=str(shim))
        counts.append(counted(run)[:2])
        assert "Neighbor list builds = 0" not in run.output
    on_device = folder.engine.environment == ON_DEVICE
    # One for the first step, whose deviation is written.
    assert counts == ([[2, 21], [2, 71]] if on_device else [[23, 0], [73, 0]])
