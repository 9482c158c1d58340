"""What other parts of LAMMPS ask a pair style for: numbers of atoms, the cutoff, its memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from harness import Lammps, Run
from pwmlff.launch.lmp import forces
from systems import SYSTEMS, crystal

SYSTEM = SYSTEMS["two elements, triclinic"]
INPUT = """
units metal
atom_modify map yes
read_data atoms.data
pair_style {pair}
pair_coeff * * {coeff}
compute peatom all pe/atom pair
velocity all create 300 1
fix move all nve
thermo 1
"""


@pytest.fixture
def binary(lammps: Lammps) -> Lammps:
    """A folder with model.pt, other.pt and a two-element crystal of 64 atoms in atoms.data."""
    lammps.save(SYSTEM.model(isotropic=True))
    lammps.save(SYSTEM.model(seed=1, isotropic=True), "other.pt")
    lammps.data(crystal(2), [8, 72])
    return lammps


def text(pair: str, rest: str, coeff: str = "O Hf") -> str:
    return INPUT.format(pair=pair, coeff=coeff) + rest


def dump(columns: str) -> str:
    return (
        f"dump out all custom 1 atoms.dump id type x y z fx fy fz c_peatom {columns}\n"
        "dump_modify out sort id format float %.17g\n"
    )


def log_rows(run: Run) -> str:
    return (run.folder / "log.lammps").read_text()


@pytest.mark.parametrize("engine", ["torchscript", "double", "device"])
def test_energies_of_fix_pair(binary: Lammps):
    """They are those of compute pe/atom, with the flag and without, while atoms change ranks."""
    fixes = "fix with all pair 1 pwmlff energy 1\nfix without all pair 1 pwmlff energy 0\n"
    run = binary.run(
        text("pwmlff model.pt", fixes + dump("f_with f_without") + "run 20\n"), ranks=2
    )
    found = run.atoms()
    assert np.abs(found.c_peatom).min() > 0
    np.testing.assert_array_equal(found.f_with, found.c_peatom)
    np.testing.assert_array_equal(found.f_without, found.c_peatom)


def test_energies_of_fix_pair_in_a_hybrid_style(binary: Lammps):
    """They are those of this style alone."""
    pair = "hybrid/overlay pwmlff model.pt lj/cut 3.0\npair_coeff * * lj/cut 0.01 2.0"
    fixes = "fix own all pair 1 pwmlff energy 0\n"
    both = binary.run(text(pair, fixes + dump("f_own") + "run 0\n", "pwmlff O Hf")).atoms()
    alone = binary.run(text("pwmlff model.pt", dump("") + "run 0\n")).atoms()
    np.testing.assert_allclose(both.f_own, alone.c_peatom, rtol=1e-12, atol=1e-12)
    assert np.abs(both.c_peatom - both.f_own).max() > 1e-6


def deviations(binary: Lammps, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of forces and energies by the definition, from a run of each model alone."""
    single = [
        binary.run(text(f"pwmlff {name}.pt", dump("") + f"run {steps}\n"), ranks=2).atoms()
        for name in ("model", "other")
    ]
    force = np.array([forces(atoms) for atoms in single])
    energy = np.array([atoms.c_peatom for atoms in single])
    sigma = np.sqrt(((force - force.mean(0)) ** 2).sum(-1).mean(0))
    return sigma, energy.std(0)


def test_deviations_of_fix_pair(binary: Lammps):
    """Against the definition, and against the lines of the file."""
    fixes = "fix devi all pair 1 pwmlff force_deviation 0 energy_deviation 0\n"
    run = binary.run(
        text(
            "pwmlff model.pt other.pt out_freq 1", fixes + dump("f_devi[1] f_devi[2]") + "run 0\n"
        ),
        ranks=2,
    )
    found = run.atoms()
    force, energy = deviations(binary, 0)
    assert force.min() > 0 and energy.min() > 0
    np.testing.assert_allclose(found["f_devi[1]"], force, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["f_devi[2]"], energy, rtol=1e-9, atol=1e-12)
    line = np.loadtxt(run.folder / "model_devi.out")
    expected = [f(sigma) for sigma in (force, energy) for f in (np.mean, np.min, np.max)]
    np.testing.assert_allclose(line[1:], expected, atol=1e-9)


FIELDS = "energy 1 force_deviation 1 energy_deviation 1"


def test_fix_pair_where_ranks_have_no_atoms(binary: Lammps):
    """Three atoms on four ranks: each rank has an array, some of length 0."""
    sparse = SYSTEMS["no neighbors"]
    binary.save(sparse.model(isotropic=True))
    binary.save(sparse.model(seed=1, isotropic=True), "other.pt")
    binary.data(sparse.atoms(), [8, 72])
    fixes = f"fix own all pair 1 pwmlff {FIELDS}\n"
    run = binary.run(
        text("pwmlff model.pt other.pt", fixes + dump("f_own[1] f_own[2] f_own[3]") + "run 2\n"),
        ranks=4,
    )
    found = run.atoms()
    np.testing.assert_array_equal(found["f_own[1]"], found.c_peatom)
    assert not found["f_own[2]"].any() and found["f_own[3]"].min() > 0


def test_fix_pair_where_types_are_null(binary: Lammps):
    """Atoms that the style does not compute have zeros, the others what they are."""
    atoms = crystal(2)
    strange = np.arange(len(atoms)) % 5 == 0
    atoms.numbers[strange] = 18
    binary.data(atoms, [8, 18, 72])
    pair = (
        "hybrid pwmlff model.pt other.pt zero 3.0 nocoeff\npair_coeff 2 * zero\npair_coeff 1 2 zero"
    )
    fixes = f"fix own all pair 1 pwmlff {FIELDS}\n"
    run = binary.run(
        text(
            pair, fixes + dump("f_own[1] f_own[2] f_own[3]") + "run 0\n", "pwmlff O NULL Hf"
        ),
        ranks=2,
    )  # fmt: skip
    found = run.atoms()
    np.testing.assert_array_equal(found["f_own[1]"], found.c_peatom)
    for column in ("f_own[1]", "f_own[2]", "f_own[3]"):
        assert not found[column][strange].any() and found[column][~strange].all()


def test_flag_of_fix_pair_compares_models_between_lines(binary: Lammps):
    """On its own steps, which add no lines; what it gives is averaged like anything of atoms."""
    fixes = (
        "fix devi all pair 5 pwmlff force_deviation 1 energy_deviation 1\n"
        "fix mean all ave/atom 5 1 5 f_devi[1]\n"
    )
    columns = dump("f_devi[1] f_devi[2] f_mean").replace("custom 1", "custom 5")
    run = binary.run(
        text("pwmlff model.pt other.pt out_freq 10", fixes + columns + "run 15\n"), ranks=2
    )
    at_15 = run.atoms()
    np.testing.assert_array_equal(at_15.f_mean, at_15["f_devi[1]"])
    assert np.loadtxt(run.folder / "model_devi.out")[:, 0].tolist() == [0, 10]
    often = binary.run(
        text(
            "pwmlff model.pt other.pt out_freq 1",
            fixes.replace("devi all pair 5", "devi all pair 1").replace("n 1", "n 0")
            + columns + "run 15\n",
        ),
        ranks=2,
    ).atoms()  # fmt: skip
    for column in ("f_devi[1]", "f_devi[2]"):
        np.testing.assert_allclose(at_15[column], often[column], rtol=1e-9, atol=1e-12)


def test_deviations_that_are_not_there(binary: Lammps):
    """No number of another step, and none of a single model, is given out.

    On one rank: of several that end at once MPI may lose what they say.
    """
    fixes = "fix devi all pair 1 pwmlff force_deviation {}\nrun 2\n"
    run = binary(text("pwmlff model.pt other.pt", fixes.format(0)))
    assert run.returncode != 0
    assert "cannot extract property force_deviation from pair style" in run.output
    assert "Step" in log_rows(run)  # step 0 has a line, and so deviations
    run = binary(text("pwmlff model.pt", fixes.format(1)))
    assert run.returncode != 0
    assert "cannot extract force_deviation_flag" in run.output


def test_cutoff_in_python(binary: Lammps):
    binary.python(
        "lmp = start()\n"
        f"lmp.commands_string('''{text('pwmlff model.pt', 'run 0')}''')\n"
        f"assert lmp.extract_pair('cutoff') == {SYSTEM.rmax}\n"
        "assert lmp.extract_pair_dimension('scale') == 2\n"
        "assert lmp.extract_pair_dimension('charge') is None\n"
    )


def test_memory(binary: Lammps):
    """LAMMPS's account has the style's list of neighbors and what an ensemble keeps."""

    def megabytes(pair: str) -> float:
        run = binary.run(text(pair, "run 0\nrun 0\n"))
        return float(re.findall(r"allocation .* = [\d.]+ \| ([\d.]+) \|", log_rows(run))[-1])

    one, two = megabytes("pwmlff model.pt"), megabytes("pwmlff model.pt other.pt")
    nparameters = sum(p.numel() for p in SYSTEM.model(isotropic=True).parameters())
    assert one > 0 and two - one > 8 * nparameters / 2**20
