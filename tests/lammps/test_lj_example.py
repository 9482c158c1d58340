"""The models of examples/lj against the lj/cut that they were fitted to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness import PROGRAMS, Lammps

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "lj" / "in.lj"
CUT = "pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0\n"


@pytest.mark.parametrize("place", [".", "examples/lj", "elsewhere"])
def test_from_any_folder(tmp_path, place):
    """The root of the repository, the folder of the example, and one that is told."""
    folder = tmp_path if place == "elsewhere" else EXAMPLE.parents[2] / place
    command = [PROGRAMS / "lmp", "-log", "none", "-var", "steps", "1"]
    for axis in "xyz":
        command += ["-var", axis, "0.1"]
    if place == "elsewhere":
        command += ["-var", "dir", str(EXAMPLE.parent)]
    text = EXAMPLE.read_text().replace("out_freq 10", f"out_freq 10 out_file {tmp_path}/devi.out")
    done = subprocess.run(
        command, input=text, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a.pt" in done.stdout


def frames(run, name: str) -> np.ndarray:
    """Forces [frames, n, 3] of a dump of id fx fy fz, sorted by id."""
    parts = (run.folder / name).read_text().split("ITEM: ATOMS id fx fy fz\n")[1:]
    rows = [[row.split() for row in part.split("ITEM:")[0].splitlines()] for part in parts]
    return np.array(rows, dtype=float)[:, :, 1:]


@pytest.fixture(scope="module")
def melt() -> str:
    """The input of the example with 5 x 5 x 5 cells and another seed, up to the pair style."""
    text = EXAMPLE.read_text().replace("20*", "5*").replace("87287", "4242")
    return text.split("pair_style")[0]


@pytest.mark.parametrize("model", [0, 1])
def test_forces_on_unseen_configurations(lammps: Lammps, lj_models, melt, model):
    dump = "id fx fy fz\ndump_modify {} sort id format float %.10g\n"
    run = lammps.run(
        f"{melt}{CUT}fix 1 all nve\n"
        "dump x all custom 50 x.dump id type x y z\ndump_modify x format float %.17g\n"
        f"dump f all custom 50 cut.dump {dump.format('f')}run 400\nundump x\nundump f\n"
        f"pair_style pwmlff {lj_models[model]}\npair_coeff * * Ar\n"
        f"dump m all custom 50 model.dump {dump.format('m')}rerun x.dump first 50 dump x y z\n",
        ranks=2,
    )
    exact = frames(run, "cut.dump")[1:]  # without the crystal, on which all forces are zero
    fitted = frames(run, "model.dump")
    assert exact.shape == fitted.shape == (8, 500, 3)
    error = np.sqrt(np.mean((fitted - exact) ** 2) / np.mean(exact**2))
    print(f"force RMSE / RMS force: {100 * error:.2f} %")
    assert error < 0.03


@pytest.mark.parametrize("engine", ["double"])  # other tests have engines agree
def test_mean_energy_of_the_melt(lammps: Lammps, lj_models, melt):
    styles = {"cut": CUT, "model": f"pair_style pwmlff {lj_models[0]}\npair_coeff * * Ar\n"}
    mean = {}
    for name, style in styles.items():
        run = lammps.run(f"{melt}{style}fix 1 all nve\nthermo 10\nrun 300\n", ranks=2)
        mean[name] = np.mean(run.thermo()["E_pair"][10:])
    print(f"mean energy per atom: lj/cut {mean['cut']:.4f}, model {mean['model']:.4f}")
    assert mean["model"] == pytest.approx(mean["cut"], rel=0.01)
