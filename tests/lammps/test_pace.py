"""ACE in lmp, by this project's names and those of ML-PACE."""

from __future__ import annotations

import pytest
from ase import Atoms

from ace_files import FORMS, random_text
from harness import Lammps
from nep_files import random_structure
from pwmlff.evaluation import reference
from pwmlff.launch.lmp import DUMP, MEASURE, forces, read_command


@pytest.fixture
def engine() -> str:
    """Keywords stand in the inputs."""
    return "automatic"


def structure() -> Atoms:
    return random_structure([8, 72])


STYLES = {
    "pwmlff": "pair_style pwmlff a.yace\npair_coeff * * O Hf\n",
    "pace": "pair_style pace\npair_coeff * * a.yace O Hf\n",
    "pace with words": "pair_style pace recursive chunksize 4096\npair_coeff * * a.yace O Hf\n",
    "pace of KOKKOS": "pair_style pace/kk product\npair_coeff * * a.yace O Hf\n",
    "grace/fs": "pair_style grace/fs\npair_coeff * * a.yace O Hf\n",
    "hybrid": "pair_style hybrid/overlay pace zero 3.0 nocoeff\n"
    "pair_coeff * * pace a.yace O Hf\npair_coeff * * zero\n",
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("ranks", [1, 2])
def test_lmp(lammps: Lammps, style: str, ranks: int):
    form = "GRACE/FS" if style == "grace/fs" else "density"
    path = lammps.folder / "a.yace"
    path.write_text(random_text(**FORMS[form]))
    wanted = reference.evaluate(path, structure())
    prism = lammps.data(structure(), [8, 72])
    text = f"{read_command(structure(), 'atoms.data')}{STYLES[style]}{MEASURE}run 0\n{DUMP}"
    run = lammps.run(text, ranks)
    found = run.atoms()
    assert abs(found.c_peatom - wanted.atom_energy).max() < 1e-10
    assert abs(forces(found) - prism.vector_to_lammps(wanted.forces)).max() < 1e-9
    assert "kind ACE, elements O Hf, units metal, cutoff 4.5" in run.output
    if style != "pwmlff":
        assert "is run by pair_style pwmlff" in run.output


@pytest.mark.parametrize(
    "commands, words",
    [
        ("pair_style pace\npair_coeff * *\n", "Illegal pair_coeff command: missing argument"),
        ("pair_style pace\npair_coeff * * a.yace O\n", "names 1 element(s), but there are 2 atom"),
        ("pair_style pace\npair_coeff * * b.yace O Hf\n", "model file 'b.yace' cannot be read"),
        ("pair_style pace chunksize\n", "cannot read model file 'chunksize'"),
    ],
)
def test_errors_in_lmp(lammps: Lammps, commands: str, words: str):
    (lammps.folder / "a.yace").write_text(random_text())
    (lammps.folder / "b.yace").write_text(random_text()[:3000])
    lammps.data(structure(), [8, 72])
    run = lammps(f"{read_command(structure(), 'atoms.data')}{commands}run 0\n", 2)
    assert run.returncode != 0, run.output
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1 and words in errors[0], run.output
