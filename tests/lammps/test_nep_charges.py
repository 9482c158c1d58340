"""NEP with charges in lmp: numbers on any ranks, data of atoms, the mesh, others' words."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk
from ase.data import chemical_symbols
from ase.io.lammpsdata import read_lammps_data

from genuine import DATA
from harness import Lammps, Run, thorough
from nep_files import CHARGED, HEADS, random_structure, random_text
from nep_parser import parse_nep
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.nep_file import Nep, nep_text
from pwmlff.evaluation.nep_reference import NepResult, evaluate_nep
from pwmlff.launch.lmp import CHARGES, DUMP, MEASURE, forces, read_command, virial_to_lammps

SUMS = """
compute even all stress/atom NULL pair
compute centroid all centroid/stress/atom NULL pair
compute sums all reduce sum c_even[*] c_centroid[*]
thermo_style custom step pe etotal press vol c_press[*] c_sums[*]
thermo_modify format float %.17g norm no
"""
FIX = "fix born all pair 1 pwmlff charge 1 born 1 potential 1\n"
CHARGE_DUMP = DUMP.replace("c_peatom", "c_peatom q f_born[*]")


@pytest.fixture(params=["automatic", "device"])
def engine(request) -> str:
    """Keywords stand in the inputs."""
    return request.param


def structure(n: int = 8) -> Atoms:
    return random_structure([8, 72], n)


def large(seed: int = 5) -> Atoms:
    """A crystal of 64 atoms that LAMMPS's decomposition has something to do with."""
    atoms = structure().repeat(2)
    atoms.rattle(0.05, seed=seed)
    return atoms


def text_of(name: str, seed: int = 1) -> bytes:
    return random_text(CHARGED[name], seed)


def expected(text: bytes, atoms: Atoms) -> NepResult:
    return evaluate_nep(parse_nep(text), atoms)


def setup(lammps: Lammps, atoms: Atoms, *texts: bytes) -> str:
    """Write files a.txt, b.txt .. and the structure; the lines that read it."""
    for name, text in zip("abc", texts, strict=False):
        (lammps.folder / f"{name}.txt").write_bytes(text)
    lammps.data(atoms, [8, 72])
    return read_command(atoms, "atoms.data", charges=True) + "set type 1 charge 0.5\n"


def pair(line: str = "", files: str = "a.txt") -> str:
    return f"pair_style pwmlff {files} engine fused {line}\npair_coeff * * O Hf\n"


def agrees(lammps: Lammps, run: Run, wanted: NepResult, atoms: Atoms, gate: float = 1e-10):
    """Energies, forces, charges, Born charges and virials of the last run."""
    prism = lammps.data(atoms, [8, 72], "again.data")
    found = run.atoms()
    assert abs(found.c_peatom - wanted.atom_energy).max() < gate
    assert abs(forces(found) - prism.vector_to_lammps(wanted.forces)).max() < gate
    for charges in (found.q, found["f_born[1]"]):
        assert abs(charges - wanted.charges).max() < gate
    born = np.stack([found[f"f_born[{k}]"] for k in range(2, 11)], axis=1).reshape(-1, 3, 3)
    assert abs(found["f_born[11]"] - wanted.potentials).max() < 100 * gate
    turn = prism.rot_mat
    assert abs(born - turn.T @ wanted.born @ turn).max() < gate
    virial = virial_to_lammps(wanted.virial, prism)
    assert abs(run.virial() - virial).max() < 100 * gate
    sums = run.vector("c_sums") * -units.bar
    assert abs(sums[:6] - virial).max() < 1e-4 * abs(virial).max()
    assert abs(sums[6:12] - virial).max() < 1e-4 * abs(virial).max()


@pytest.mark.parametrize("ranks", [1, 2, thorough(4), 5])
@pytest.mark.parametrize("name", [n for n in CHARGED if "O Hf" in CHARGED[n]])
def test_numbers(lammps: Lammps, engine: str, name: str, ranks: int):
    """A tilted cell smaller than the cutoff; ranks without atoms take part."""
    text, atoms = text_of(name), structure()
    read = setup(lammps, atoms, text)
    run = lammps.run(f"{read}{pair()}{MEASURE}{SUMS}{FIX}run 0\n{CHARGE_DUMP}", ranks)
    agrees(lammps, run, expected(text, atoms), atoms)
    by_cpu = re.search("precision double, (avx|baseline)", run.output) is not None
    assert by_cpu == (engine == "automatic")


@pytest.mark.parametrize("ranks", [1, 2, thorough(4), 5])
@pytest.mark.parametrize("name", ["c01_charge2_HfO2", "c02_zbl_charge1_BaTiO3", "c03_charge1_PbTe"])
def test_genuine_files(lammps: Lammps, name: str, ranks: int):
    """Energies, charges and forces of NEP_CPU, by cells smaller than the cutoff and a slab too."""
    if not (file := DATA / "nep" / "charge" / f"{name}.npz").is_file():
        pytest.skip(f"no {file}")
    (lammps.folder / "a.txt").write_bytes(file.with_suffix(".txt").read_bytes())
    with np.load(file) as data:
        for case in ("rocksalt_prim", "bulk24", "slab", "cubic64"):
            wanted = {key: data[f"{case}.{key}"] for key in ("charges", "forces", "born", "virial")}
            atoms = Atoms(
                data[f"{case}.symbols"], data[f"{case}.positions"], cell=data[f"{case}.cell"], pbc=1
            )
            elements = sorted({*atoms.numbers.tolist()})
            prism, symbols = lammps.data(atoms, elements), [chemical_symbols[z] for z in elements]
            run = lammps.run(
                f"{read_command(atoms, 'atoms.data', charges=True)}pair_style pwmlff a.txt\n"
                f"pair_coeff * * {' '.join(symbols)}\n{MEASURE}{FIX}run 0\n{CHARGE_DUMP}",
                ranks,
            )
            found, turn = run.atoms(), prism.rot_mat
            born = np.stack([found[f"f_born[{k}]"] for k in range(2, 11)], axis=1)
            of_lammps = turn.T @ wanted["born"].reshape(-1, 3, 3) @ turn
            energy = run.thermo()["PotEng"][-1] - data[f"{case}.energy"]
            assert abs(energy) < 1e-11 * len(atoms)
            assert abs(found.q - wanted["charges"]).max() < 1e-12
            assert abs(forces(found) - prism.vector_to_lammps(wanted["forces"])).max() < 1e-10
            assert abs(run.virial() - virial_to_lammps(wanted["virial"], prism)).max() < 1e-9
            assert abs(born.reshape(-1, 3, 3) - of_lammps).max() < 1e-9


@pytest.mark.parametrize("ranks", [1, 2])
def test_charges_move_with_atoms(lammps: Lammps, ranks: int):
    """Through rebuilt lists, another box and a second run, each step as of a fresh engine."""
    text, atoms = text_of("charge 1"), large()
    read = setup(lammps, atoms, text)
    run = lammps.run(
        f"{read}{pair()}{MEASURE}{SUMS}{FIX}velocity all create 900 1\n"
        "fix move all npt temp 900 900 0.05 tri 0 0 0.2\nneigh_modify every 1 delay 0\n"
        f"run 20\nunfix move\nchange_box all x scale 1.01 remap\nrun 0\n{CHARGE_DUMP}"
        "write_data end.data\n",
        ranks,
    )
    found = run.atoms()
    moved = read_lammps_data(lammps.folder / "end.data", atom_style="atomic", units="metal",
                             Z_of_type={1: 8, 2: 72})  # fmt: skip
    wanted = expected(text, moved)
    assert abs(found.q - wanted.charges).max() < 1e-9
    assert abs(forces(found) - wanted.forces).max() < 1e-9
    assert abs(run.thermo()["PotEng"][-1] - wanted.energy) < 1e-9


def test_energy_is_conserved(lammps: Lammps):
    """As without charges."""

    def drift(text: bytes) -> float:
        read = setup(lammps, large(), text)
        run = lammps.run(
            f"{read}{pair()}{MEASURE}velocity all create 300 1\nfix move all nve\n"
            "timestep 0.0005\nthermo 1\nrun 200\n"
        )
        return np.ptp(run.thermo()["TotEng"]) / 64

    charged = text_of("charge 2, zbl")
    model = parse_nep(charged)
    without = Nep(**{**vars(model), "charge_mode": 0, "last_charge": None})
    assert drift(charged) < 3 * drift(nep_text(without)) + 1e-6


def test_charges_reach_ghosts(lammps: Lammps):
    """A potential of charges has the same energy in a cell and in eight of them."""
    pair = (
        "pair_style coul/dsf 0.2 5.0\npair_coeff * *\nset type 1 charge -1\nset type 2 charge 2\n"
    )
    energies = []
    for repeats in (1, 2):
        atoms = structure().repeat(repeats)
        lammps.data(atoms, [8, 72])
        run = lammps.run(
            f"{read_command(atoms, 'atoms.data', charges=True)}{pair}"
            "thermo_style custom step pe\nthermo_modify format float %.17g\nrun 0\n"
        )
        energies.append(run.thermo()["PotEng"][-1] / len(atoms))
    assert abs(energies[0]) > 1.0
    assert abs(energies[1] - energies[0]) < 1e-10


@pytest.mark.parametrize("ranks", [1, 2])
def test_atoms_that_take_no_part(lammps: Lammps, ranks: int):
    """Atoms that are NULL: their charges are the input's own, and no part of the mean."""
    text, atoms = text_of("charge 1"), structure()
    read = setup(lammps, atoms, text)
    style = "pair_style hybrid/overlay pwmlff a.txt zero 5\npair_coeff * * zero\n"
    run = lammps.run(
        f"{read}{style}pair_coeff * * pwmlff NULL Hf\n{MEASURE}run 0\n"
        f"{DUMP.replace('c_peatom', 'c_peatom q')}",
        ranks,
    )
    found, part = run.atoms(), atoms[atoms.numbers == 72]
    wanted = expected(text, part)
    here = atoms.numbers == 72
    assert abs(found.q[here] - wanted.charges).max() < 1e-10
    assert (found.q[~here] == 0.5).all()
    assert abs(found.c_peatom[here] - wanted.atom_energy).max() < 1e-10


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("drive", ["first", "mean"])
def test_ensemble(lammps: Lammps, ranks: int, drive: str):
    """Each model has its own charges; atoms have those of what drives."""
    texts = [text_of("charge 1"), text_of("charge 1", 2)]
    atoms = structure()
    read = setup(lammps, atoms, *texts)
    line = f"out_freq 1 drive {drive}"
    run = lammps.run(
        f"{read}{pair(line, '2 a.txt b.txt')}{MEASURE}{FIX}run 0\n{CHARGE_DUMP}", ranks
    )
    one, two = (expected(text, atoms) for text in texts)
    weight = 0.5 if drive == "mean" else 1.0
    found = run.atoms()
    assert abs(found.q - weight * one.charges - (1 - weight) * two.charges).max() < 1e-10
    last = np.loadtxt(lammps.folder / "model_devi.out", ndmin=2)[-1]
    deviation = np.linalg.norm(one.forces - two.forces, axis=1) / 2
    assert np.isclose(last, deviation.max(), rtol=1e-5).any()


def test_other_parts_of_lammps(lammps: Lammps):
    """The dipole moment is that of the charges; fix pair keeps them up to date."""
    text, atoms = text_of("charge 2, five"), structure()
    read = setup(lammps, atoms, text)
    run = lammps.run(
        f"{read}{pair()}{MEASURE}fix flags all pair 1 pwmlff charge 0\n"
        "compute unwrapped all property/atom xu yu zu\n"
        "variable x atom q*c_unwrapped[1]\ncompute moment all reduce sum v_x\n"
        "compute total all reduce sum f_flags\n"
        "thermo_style custom step pe c_moment c_total\nthermo_modify format float %.17g\n"
        "velocity all create 300 1\nfix move all nve\nthermo 1\nrun 3\n"
        f"{DUMP.replace('c_peatom', 'c_peatom q')}"
    )
    found = run.atoms()
    assert np.abs(run.thermo()["c_total"]).max() < 1e-12
    assert run.thermo()["c_moment"][-1] == pytest.approx((found.q * found.x).sum(), abs=20)
    assert abs(found.q).max() > 0.05


# ---- the mesh


def converged(text: bytes, atoms: Atoms) -> NepResult:
    """Without an end of the sum over reciprocal vectors, which a mesh has not."""
    return evaluate_nep(parse_nep(text), atoms, largest_wave=12.0)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["charge 1", "charge 2, zbl"])
def test_mesh(lammps: Lammps, name: str, ranks: int):
    """It comes as near as the accuracy says, and nearer with a better one."""
    text, atoms = text_of(name), large()
    read = setup(lammps, atoms, text)
    wanted = converged(text, atoms)
    prism = lammps.data(atoms, [8, 72], "again.data")
    errors = []
    for accuracy in ("1e-4", "1e-5", "1e-7"):
        run = lammps.run(
            f"{read}{pair(f'kspace pppm kspace_accuracy {accuracy}')}{MEASURE}{SUMS}{FIX}run 0\n"
            f"{CHARGE_DUMP}",
            ranks,
        )
        found = run.atoms()
        assert abs(found.q - wanted.charges).max() < 1e-10
        errors.append(abs(forces(found) - prism.vector_to_lammps(wanted.forces)).max())
    assert errors[1] < 1e-4
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 5e-6
    virial = virial_to_lammps(wanted.virial, prism)
    assert abs(run.virial() - virial).max() < 1e-4 * abs(virial).max()
    assert abs(found.c_peatom - wanted.atom_energy).max() < 1e-5


@pytest.mark.parametrize("kspace", ["pppm", "ewald"])
def test_mesh_before_there_are_charges(lammps: Lammps, kspace: str):
    """The input need not set any; and it is made anew when charges have grown."""
    text, atoms = text_of("charge 2, five"), large()
    read = setup(lammps, atoms, text).replace("set type 1 charge 0.5\n", "")
    wanted = converged(text, atoms)
    run = lammps.run(
        f"{read}{pair()}kspace_style {kspace} 1e-6\nkspace_modify compute no\n{MEASURE}run 0\n"
        f"displace_atoms all random 0.3 0.3 0.3 4711\nrun 0\n{DUMP}"
    )
    first = run.thermo(0)["PotEng"][0]
    assert abs(first - wanted.energy) < 1e-4 * len(atoms)
    found = run.atoms()
    prism = lammps.data(atoms, [8, 72], "again.data")
    moved = atoms.copy()
    moved.positions = prism.vector_to_ase(np.stack([found.x, found.y, found.z], axis=1))
    assert abs(run.thermo()["PotEng"][-1] - converged(text, moved).energy) < 1e-4 * len(atoms)


def test_mesh_grows_with_charges(lammps: Lammps):
    """In a perfect crystal of one element there are none; as atoms move, meshes have to follow."""
    text, atoms = text_of("charge 2, no angular part"), bulk("Si", cubic=True).repeat(2)
    (lammps.folder / "a.txt").write_bytes(text)
    lammps.data(atoms, [14])
    read = read_command(atoms, "atoms.data", charges=True)
    run = lammps.run(
        f"{read}pair_style pwmlff a.txt kspace pppm kspace_accuracy 1e-6\npair_coeff * * Si\n"
        f"{MEASURE}velocity all create 3000 1\nfix 1 all nve\nthermo 1\nrun 20\n{DUMP}"
    )
    assert run.output.count("PPPM initialization") > 2
    found = run.atoms()
    prism = lammps.data(atoms, [14], "again.data")
    moved = atoms.copy()
    moved.positions = prism.vector_to_ase(np.stack([found.x, found.y, found.z], axis=1))
    wanted = converged(text, moved)
    assert abs(wanted.charges).max() > 1e-3
    assert abs(forces(found) - prism.vector_to_lammps(wanted.forces)).max() < 1e-5


@pytest.mark.parametrize("ranks", [1, 2])
def test_mesh_of_the_input(lammps: Lammps, ranks: int):
    """kspace_style and kspace_modify are heeded, and nothing is counted twice in any run."""
    text, atoms = text_of("charge 2, five"), large()
    read = setup(lammps, atoms, text)
    moves = "velocity all create 600 1\nfix move all npt temp 600 600 0.05 iso 0 0 0.2\n"
    results = []
    for line, more in (
        ("kspace pppm kspace_accuracy 1e-7", ""),
        ("", "kspace_style pppm 1e-7\nkspace_modify order 7 compute no\n"),
        ("", "kspace_style ewald 1e-7\nkspace_modify compute no\n"),
        ("", ""),
    ):
        run = lammps.run(
            f"{read}{pair(line)}{more}{MEASURE}{SUMS}{moves}run 5\nrun 5\n"
            f"{DUMP.replace('c_peatom', 'c_peatom q')}",
            ranks,
        )
        columns = run.thermo()
        results.append(
            (columns["PotEng"][-1], columns["Press"][-1], forces(run.atoms()), run.virial())
        )
    # LAMMPS's own sums have no end at 2 pi alpha, where that of the model's formula has one.
    for other, tolerance in ((1, 1e-5), (2, 1e-5), (3, 2e-2)):
        for mine, theirs in zip(results[0], results[other], strict=True):
            assert np.max(abs(mine - theirs)) < tolerance * max(1.0, np.max(abs(mine)))


def test_a_slab(lammps: Lammps):
    """Without periodicity across it, by the correction of LAMMPS's mesh."""
    text = text_of("charge 2, five")
    atoms = large()
    atoms.set_cell(np.diag(atoms.cell.lengths()), scale_atoms=True)
    atoms.positions[:, 2] = 0.3 * atoms.positions[:, 2] + 3
    atoms.rattle(0.01)
    atoms.set_cell([*atoms.cell.lengths()[:2], 20.0])
    atoms.pbc = [True, True, False]
    read = setup(lammps, atoms, text) + "change_box all ortho\n"
    run = lammps.run(
        f"{read}{pair()}kspace_style pppm 1e-6\nkspace_modify slab 3.0 compute no\n{MEASURE}"
        "fix move all nve\ntimestep 0.0002\nthermo 1\nrun 10\n"
    )
    total = np.array(run.thermo()["TotEng"])
    assert np.ptp(total) / len(atoms) < 1e-4
    periodic = atoms.copy()
    periodic.set_cell([*atoms.cell.lengths()[:2], 60.0])
    periodic.pbc = True
    (lammps.folder / "a.txt").write_bytes(text)
    found = choose(lammps.folder / "a.txt", "fused").engine(periodic)
    dipole = (found.charges * periodic.positions[:, 2]).sum()
    corrected = found.energy + 2 * math.pi * 14.399645 * dipole**2 / periodic.get_volume()
    assert run.thermo()["PotEng"][0] == pytest.approx(corrected, abs=5e-3)
    assert abs(corrected - found.energy) > 0.02


# ---- inputs of others, errors


@pytest.mark.parametrize(
    "style, words",
    [
        ("matpl/nep", "kspace ewald"),
        ("matpl/nep", "kspace_method ewald"),
        ("matpl/nep/kk", "kspace pppm pppm_mesh friendly"),
        ("matpl/nep", "kspace pppm pppm_spacing 1.0 pppm_mesh 36 36 36"),
        ("nep", ""),
    ],
)
def test_lines_of_others(lammps: Lammps, style: str, words: str):
    text, atoms = text_of("charge 2, five"), structure()
    read = setup(lammps, atoms, text)
    run = lammps.run(
        f"{read}pair_style {style} a.txt {words}\npair_coeff * * O Hf\n{MEASURE}run 0\n{DUMP}"
    )
    wanted = converged(text, atoms) if "pppm" in words else expected(text, atoms)
    gate = 1e-3 if "pppm" in words else 1e-10
    assert abs(run.atoms().c_peatom - wanted.atom_energy).max() < gate


def test_no_room_for_charges(lammps: Lammps):
    """A line of MatPL with atom_style atomic: the exact sum, and a word of it."""
    text, atoms = text_of("charge 2, five"), structure()
    read = setup(lammps, atoms, text).replace(CHARGES, "").replace("set type 1 charge 0.5\n", "")
    run = lammps.run(
        f"{read}pair_style matpl/nep a.txt kspace pppm\npair_coeff * * O Hf\n{MEASURE}run 0\n{DUMP}"
    )
    assert "kspace pppm needs 'atom_style charge'" in run.output
    assert abs(run.atoms().c_peatom - expected(text, atoms).atom_energy).max() < 1e-10


ERRORS = {
    "open box": ("boundary p p f\n", pair(), "", "the box is not periodic in all directions"),
    "check": ("", pair("check 10"), "", "the keyword check evaluates a part of the atoms"),
    "words without charges": ("", pair("kspace ewald", "n.txt"), "", "but no model has charges"),
    "screenings": (
        "", pair("kspace pppm", "2 a.txt c.txt"), "", "are screened differently (0.628319 and",
    ),
    "fixes that ask the mesh": (
        "",
        pair(),
        "kspace_style pppm 1e-4\nkspace_modify compute no\n"
        "fix swap all atom/swap 10 1 29494 300 types 1 2\n",
        "fix atom/swap adds the energy of kspace_style",
    ),
    "accuracy of no mesh": ("", pair("kspace_accuracy 1e-4"), "", "kspace_accuracy is of a mesh"),
    "charges of another style": (
        "",
        "pair_style hybrid/overlay pwmlff a.txt coul/cut 5\npair_coeff * * pwmlff O Hf\n"
        "pair_coeff * * coul/cut\n",
        "",
        "its charges are those of atoms, which another pair style",
    ),
    "other charges": (
        "",
        "pair_style hybrid/overlay pwmlff a.txt coul/long 5\npair_coeff * * pwmlff O Hf\n"
        "pair_coeff * * coul/long\n",
        "kspace_style pppm 1e-5\n",
        "its charges are those of atoms, which another pair style",
    ),
    "counted twice": (
        "", pair(), "kspace_style pppm 1e-4\n", "write 'kspace_modify compute no' behind it",
    ),
    "kspace style": (
        "package omp 1\nboundary p p p\n",
        pair(),
        "suffix omp\nkspace_style pppm 1e-4\n",
        "kspace_style is pppm/omp, expected",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors(lammps: Lammps, case: str):
    """One text for both ranks."""
    before, commands, after, text = ERRORS[case]
    atoms = structure()
    other = HEADS["nep5"].replace("nep5", "nep5_charge2").replace("cutoff 5 4", "cutoff 4.5 5")
    read = setup(lammps, atoms, text_of("charge 1"), b"", random_text(other))
    (lammps.folder / "n.txt").write_bytes(random_text(HEADS["nep5"]))
    if before:
        read = read.replace("boundary p p p\n", before)
    run = lammps(f"{read}{commands}{after}run 0\n", 2)
    assert run.returncode != 0, run.output
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1, run.output
    assert text in errors[0]


@pytest.mark.parametrize("factor", [1.0, 0.01])
def test_charges_that_do_not_add_up(lammps: Lammps, factor: float):
    """The mean that is taken off is told where it is large, once."""
    model, atoms = parse_nep(text_of("charge 1")), structure()
    model = Nep(**{**vars(model), "last_charge": factor * model.last_charge})
    mean = evaluate_nep(model, atoms).mean_charge
    read = setup(lammps, atoms, nep_text(model))
    run = lammps.run(f"{read}{pair()}{MEASURE}run 0\nfix 1 all nve\nrun 3\n", 2)
    told = re.findall(r"add up to (\S+) e for an atom", run.output)
    assert [float(number) for number in told] == [pytest.approx(mean, rel=1e-2)] * (factor == 1)


def test_charges_that_are_no_numbers(lammps: Lammps):
    model = parse_nep(text_of("charge 1"))
    text = nep_text(Nep(**{**vars(model), "last_charge": 1e200 * model.last_charge}))
    run = lammps(f"{setup(lammps, structure(), text)}{pair()}run 0\n", 2)
    assert run.returncode != 0
    assert "no numbers on a test cluster" in run.output
    run = lammps(f"{setup(lammps, structure(), text)}{pair().replace('fused', 'auto')}run 0\n", 2)
    assert run.returncode != 0
    assert "model 'a.txt' gives a non-finite energy or force for atom" in run.output


def test_heat_flux(lammps: Lammps):
    read = setup(lammps, structure(), text_of("charge 1"))
    run = lammps.run(
        f"{read}{pair()}{MEASURE}compute ke all ke/atom\ncompute s all centroid/stress/atom NULL "
        "pair\ncompute flux all heat/flux ke peatom s\nrun 0\n"
    )
    assert "compute heat/flux 'flux' is wrong for model 'a.txt': with charges" in run.output
