"""NEP in lmp: numbers of NEP_CPU, what users do with a pair style, errors, and no torch."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from harness import ON_DEVICE, Lammps, thorough
from nep_files import (
    FORCE,
    HEADS,
    REFERENCES,
    Reference,
    random_structure,
    random_text,
    reference,
)
from nep_parser import parse_nep
from pwmlff import plugin
from pwmlff.evaluation.nep_reference import NepResult, evaluate_nep
from pwmlff.launch.lmp import DUMP, MEASURE, forces, read_command, virial_to_lammps
from systems import SYSTEMS

#: The virials of atoms, added up: six of *stress/atom*, nine of *centroid/stress/atom*.
SUMS = """
compute even all stress/atom NULL pair
compute centroid all centroid/stress/atom NULL pair
compute sums all reduce sum c_even[*] c_centroid[*]
thermo_style custom step pe etotal press vol c_press[1] c_press[2] c_press[3] c_press[4] &
  c_press[5] c_press[6] c_sums[*]
thermo_modify format float %.17g norm no
"""
TEMPERATURE = 300.0  # K
DOUBLE, MIXED = (1e-9, 1e-9), (1e-5, 5e-5)  # eV/atom, eV/angstrom


@pytest.fixture
def engine() -> str:
    """Keywords stand in the inputs."""
    return "automatic"


def symbols_of(text: bytes) -> list[str]:
    return text.split(b"\n")[0].decode().split()[2:]


@pytest.fixture
def small(lammps: Lammps) -> Lammps:
    """A folder with a.txt and b.txt of two elements, and random atoms of these in atoms.data."""
    for seed, name in enumerate(("a.txt", "b.txt")):
        (lammps.folder / name).write_bytes(random_text(HEADS["nep5"], seed + 1))
    lammps.data(structure(), [8, 72])
    return lammps


def structure() -> Atoms:
    return random_structure([8, 72])


READ = read_command(structure(), "atoms.data")


def expected(atoms: Atoms, head: str = "nep5", seed: int = 1, temperature=0.0) -> NepResult:
    return evaluate_nep(parse_nep(random_text(HEADS[head], seed)), atoms, temperature)


def agrees(lammps: Lammps, run, wanted: NepResult, atoms: Atoms, gate=DOUBLE, name="atoms.dump"):
    """A run of these atoms, against the reference in NumPy."""
    prism = lammps.data(atoms, sorted(set(atoms.numbers)), "again.data")
    found = run.atoms(name)
    assert np.abs(found.c_peatom - wanted.atom_energy).max() < gate[0]
    assert np.abs(forces(found) - prism.vector_to_lammps(wanted.forces)).max() < gate[1]


def of_nep_cpu() -> dict[str, Reference]:
    found = {}
    for name in REFERENCES:
        try:
            found[name] = reference(name)
        except pytest.skip.Exception as skipped:
            print(skipped)
    return found or pytest.skip("no files with numbers of NEP_CPU")


#: The code for GPUs on one, or on the CPU in its place.
DEVICE = ON_DEVICE or {"CUDA_VISIBLE_DEVICES": "0"}


@pytest.mark.parametrize(
    "ranks, environment", [(1, {}), (2, {}), thorough(4, {}), (1, DEVICE), thorough(2, DEVICE)]
)
def test_numbers_of_nep_cpu(lammps: Lammps, ranks: int, environment: dict[str, str]):
    """All files in one lmp, with both precisions."""
    text, cases = "", []
    for wanted in of_nep_cpu().values():
        symbols = symbols_of(wanted.text)
        present = [s for s in symbols if s in set(wanted.atoms.symbols)]
        elements = [Atoms(s).numbers[0] for s in present]
        k = len(cases)
        prism = lammps.data(wanted.atoms, elements, f"{k}.data")
        (lammps.folder / f"{k}.txt").write_bytes(wanted.text)
        for precision in ("double", "mixed"):
            text += f"clear\n{read_command(wanted.atoms, f'{k}.data')}pair_style pwmlff {k}.txt "
            text += f"engine fused precision {precision}\npair_coeff * * {' '.join(present)}\n"
            text += f"{MEASURE}{SUMS}run 0\n" + DUMP.replace("atoms", str(len(cases)))
            cases.append((wanted, prism, precision == "mixed"))
    run = lammps.run(text, ranks, **environment)
    assert run.output.count("engine fused") == len(cases)
    on_cpu = re.search("precision .*, (avx|baseline)", run.output) is not None
    assert on_cpu is not bool(environment)
    for k, (wanted, prism, mixed) in enumerate(cases):
        found, n = run.atoms(f"{k}.dump"), len(wanted.atoms)
        energy, force = MIXED if mixed else (wanted.energy, FORCE)
        assert abs(found.c_peatom - wanted.energies).max() < energy
        assert abs(run.thermo(k)["PotEng"][-1] / n - wanted.energies.mean()) < energy
        assert abs(forces(found) - prism.vector_to_lammps(wanted.forces)).max() < force
        virial = run.virial(k)
        allowed = (n * force) * (1 if mixed else 1 + 1e-3 * abs(virial).max())
        assert abs(virial - virial_to_lammps(wanted.virial, prism)).max() < allowed
        # Units of pressure times volume, as those of c_press.
        pressures = run.vector("c_press", k) * run.thermo(k)["Volume"][0]
        # In mixed precision the virial of a center is a sum in float32.
        sums = -run.vector("c_sums", k)
        tolerance = (1e-6 if mixed else 1e-9) * abs(pressures).max()
        np.testing.assert_allclose(sums[:6], pressures, rtol=0, atol=tolerance)
        np.testing.assert_allclose(sums[6:12], pressures, rtol=0, atol=tolerance)
        np.testing.assert_allclose(sums[12:], pressures[3:], rtol=0, atol=tolerance)


@pytest.mark.parametrize("options", ["", "precision exact", "precision mixed", "device cpu"])
def test_small_file(small: Lammps, options: str):
    run = small.run(
        f"{READ}pair_style pwmlff a.txt {options}\npair_coeff * * O Hf\n{MEASURE}run 0\n{DUMP}", 2
    )
    assert "kind NEP, elements O Hf, units metal, cutoff 5" in run.output
    agrees(small, run, expected(structure()), structure(), MIXED if "mixed" in options else DOUBLE)


@pytest.mark.parametrize(
    "commands",
    [
        "pair_style matpl a.txt\npair_coeff * * 8 72\n",
        "pair_style matpl/nep a.txt\npair_coeff * * O Hf\n",
        "pair_style matpl/nep/kk 1 a.txt\npair_coeff * * 8 72\n",
        "pair_style nep\npair_coeff * * a.txt O Hf\n",
        "pair_style nep a.txt\npair_coeff * *\n",
    ],
)
def test_inputs_of_others(small: Lammps, commands: str):
    run = small.run(f"{READ}{commands}{MEASURE}run 0\n{DUMP}")
    agrees(small, run, expected(structure()), structure())


def test_two_models(small: Lammps):
    """The first one drives; the deviation is that of both."""
    atoms = structure()
    both = [expected(atoms, seed=seed) for seed in (1, 2)]
    run = small.run(
        f"{READ}pair_style matpl/nep a.txt b.txt out_freq 1\npair_coeff * * O Hf\n"
        f"{MEASURE}run 0\n{DUMP}", 2,
    )  # fmt: skip
    agrees(small, run, both[0], atoms)
    spread = np.linalg.norm(both[0].forces - both[1].forces, axis=1) / 2
    energies = np.abs(both[0].atom_energy - both[1].atom_energy) / 2
    row = np.loadtxt(small.folder / "explr.error")
    for column, values in ((1, spread), (4, energies)):
        wanted = values.mean(), values.min(), values.max()
        np.testing.assert_allclose(row[column : column + 3], wanted, rtol=0, atol=1e-6)


def test_models_of_two_kinds(lammps: Lammps):
    """A Deep Potential and a NEP of the same data: the deviation is that of single runs."""
    examples = Path(__file__).resolve().parents[2] / "examples" / "hfo2"
    atoms = bulk("HfO2", "fluorite", a=5.1, cubic=True).repeat((2, 2, 1))
    atoms.rattle(0.1, seed=1)
    lammps.data(atoms, [72, 8])
    of_each = []
    for files in ("nep.txt", "a.pt", "2 nep.txt a.pt out_freq 1 out_file deviation"):
        style = " ".join(str(examples / w) if "." in w else w for w in files.split())
        run = lammps.run(
            f"{read_command(atoms, 'atoms.data')}pair_style pwmlff {style}\n"
            f"pair_coeff * * Hf O\n{MEASURE}run 0\n{DUMP}", 2,
        )  # fmt: skip
        of_each.append(forces(run.atoms()))
    nep, dp, driven = of_each
    assert np.array_equal(nep, driven)
    spread = np.linalg.norm(nep - dp, axis=1) / 2
    row = np.loadtxt(lammps.folder / "deviation")
    np.testing.assert_allclose(row[1:4], (spread.mean(), spread.min(), spread.max()), atol=1e-8)


def test_hybrid(small: Lammps):
    """An overlay is the sum; a type that is NULL takes no part."""
    atoms = structure()
    strange = np.arange(len(atoms)) == 3
    atoms.numbers[strange] = 18
    small.data(atoms, [8, 18, 72])
    run = small.run(
        f"{READ}pair_style hybrid/overlay pwmlff a.txt lj/cut 4.0\n"
        "pair_coeff * * pwmlff O NULL Hf\npair_coeff * * lj/cut 0.0 2.0\n"
        f"{MEASURE}run 0\n{DUMP}", 2,
    )  # fmt: skip
    found, wanted = run.atoms(), expected(atoms[~strange])
    prism = small.data(atoms[~strange], [8, 72], "again.data")
    assert np.abs(found.c_peatom[~strange] - wanted.atom_energy).max() < DOUBLE[0]
    turned = prism.vector_to_lammps(wanted.forces)
    assert np.abs(forces(found)[~strange] - turned).max() < DOUBLE[1]
    assert not forces(found)[strange].any()


def test_temperature(small: Lammps):
    (small.folder / "t.txt").write_bytes(random_text(HEADS["temperature"]))
    style = f"pair_style pwmlff t.txt temperature {TEMPERATURE}\n"
    run = small.run(f"{READ}{style}pair_coeff * * O Hf\n{MEASURE}run 0\n{DUMP}", 2)
    wanted = expected(structure(), "temperature", temperature=TEMPERATURE)
    agrees(small, run, wanted, structure(), (1e-8, 1e-8))  # ZBL: forces of tens of eV/angstrom


def drift(lammps: Lammps, steps: int) -> float:
    """Of the total energy of HfO2 at about 600 K, eV/atom."""
    wanted = reference("genuine/g04_nep4_HfO2_matpl")
    (lammps.folder / "nep.txt").write_bytes(wanted.text)
    lammps.data(wanted.atoms, [8, 72])
    run = lammps.run(
        f"{read_command(wanted.atoms, 'atoms.data')}mass 1 15.999\nmass 2 178.49\n"
        "pair_style pwmlff nep.txt\npair_coeff * * O Hf\nminimize 0 1e-2 50 500\n"
        f"velocity all create 1200 1\nfix 1 all nve\n{MEASURE}thermo 50\n"
        f"timestep 0.0005\nrun {steps}\n", 2,
    )  # fmt: skip
    total = np.array(run.thermo()["TotEng"])
    return np.ptp(total) / len(wanted.atoms)


def test_energy_is_conserved(lammps: Lammps):
    assert drift(lammps, 500) < 1e-4


ERRORS = {
    "element": (
        "pair_style pwmlff a.txt\npair_coeff * * O Si\n",
        ["element 'Si' of atom type 2 is not in model 'a.txt', which has O Hf"],
    ),
    "damaged": ("pair_style pwmlff damaged.txt\n", ["model file 'damaged.txt'", "line 9"]),
    "other kind": ("pair_style pwmlff charge.txt\n", ["model file 'charge.txt'", "charge"]),
    "torchscript": (
        "pair_style pwmlff a.txt engine torchscript\npair_coeff * * O Hf\n",
        ["model file 'a.txt'", "TorchScript"],
    ),
    "gpu": ("pair_style pwmlff a.txt device gpu\npair_coeff * * O Hf\n", ["GPU"]),
    "no temperature": (
        "pair_style pwmlff t.txt\n",
        ["model 't.txt' has the temperature as a descriptor", "keyword temperature"],
    ),
    "temperature for nothing": (
        "pair_style pwmlff a.txt temperature 300\n",
        ["keyword temperature, but no model"],
    ),
    "cold": ("pair_style pwmlff t.txt temperature -3\n", ["temperature is -3, expected more"]),
    "cutoffs": (
        "pair_style pwmlff a.txt c.txt\n",
        ["models of an ensemble differ in their cutoff: 'c.txt' has 4.5, 'a.txt' has 5"],
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(small: Lammps, case: str):
    """One text for all ranks."""
    lines = random_text(HEADS["nep5"]).split(b"\n")
    (small.folder / "damaged.txt").write_bytes(b"\n".join([*lines[:8], b"x", *lines[9:]]))
    lines[0] = lines[0].replace(b"nep5", b"nep4_charge3")
    (small.folder / "charge.txt").write_bytes(b"\n".join(lines))
    (small.folder / "t.txt").write_bytes(random_text(HEADS["temperature"]))
    other = random_text(HEADS["nep5"].replace("cutoff 5", "cutoff 4.5"))
    (small.folder / "c.txt").write_bytes(other)
    commands, words = ERRORS[case]
    run = small(f"{READ}{commands}run 0\n", 2)
    assert run.returncode != 0, run.output
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1, run.output
    assert all(word in errors[0] for word in words), errors[0]


# ---- without torch


def test_torch_is_not_loaded(small: Lammps):
    """The shell command's parent is lmp: look at what it has mapped."""
    text = f"{READ}pair_style pwmlff a.txt\npair_coeff * * O Hf\nrun 0\n"
    run = small.run(f"{text}shell 'grep -c libtorch /proc/$PPID/maps'\n")
    assert [line for line in run.output.splitlines() if line.strip().isdigit()] == ["0"]


def installed_without_torch(folder: Path) -> Path:
    """A copy of the plugin, beside which there is no torch."""
    library = Path(plugin.library())
    copy = folder / "alone" / "lib"
    copy.mkdir(parents=True)
    for path in library.parent.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy / library.name


def test_no_torch_is_needed(small: Lammps, tmp_path):
    """Where none is installed a NEP runs, and a file with a record; what needs it says so."""
    head = f"plugin clear\nplugin load {installed_without_torch(tmp_path)}\n{READ}"
    style = "pair_style pwmlff a.txt\npair_coeff * * O Hf\n"
    nowhere = {"PWMLFF_TORCH_LIB": str(tmp_path / "nowhere")}
    run = small.run(f"{head}{style}{MEASURE}run 0\n{DUMP}", 2, **nowhere)
    agrees(small, run, expected(structure()), structure())
    small.save(SYSTEMS["two elements, triclinic"].model(isotropic=True))
    small.run(f"{head}pair_style pwmlff model.pt\npair_coeff * * O Hf\nrun 0\n", 2, **nowhere)
    run = small(f"{head}pair_style pwmlff model.pt engine torchscript\n", 2, **nowhere)
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1 and "model files of TorchScript need torch" in errors[0], run.output


@pytest.mark.parametrize("files", ["a.txt model.pt", "model.pt a.txt"])
def test_ensemble_with_another_kind(small: Lammps, files: str):
    """A NEP and a Deep Potential of the same elements and cutoff; torch comes with the second."""
    model = SYSTEMS["two elements, triclinic"].model(isotropic=True)
    small.save(model)
    cutoff = SYSTEMS["two elements, triclinic"].rmax
    nep = random_text(HEADS["nep5"].replace("cutoff 5 4", f"cutoff {cutoff} {cutoff - 0.5}"))
    (small.folder / "a.txt").write_bytes(nep)
    found = {}
    for names in (*files.split(), files):
        run = small.run(
            f"{READ}pair_style pwmlff {names} out_freq 1\npair_coeff * * O Hf\n"
            f"{MEASURE}run 0\n{DUMP}", 2,
        )  # fmt: skip
        found[names] = forces(run.atoms())
    first, second = (found[name] for name in files.split())
    np.testing.assert_allclose(found[files], first, rtol=0, atol=1e-10)
    spread = np.linalg.norm(first - second, axis=1) / 2
    row = np.loadtxt(small.folder / "model_devi.out")
    np.testing.assert_allclose(row[1:4], [spread.mean(), spread.min(), spread.max()], rtol=1e-5)


def test_python_that_has_torch(small: Lammps):
    """A NEP beside the torch and the kernels of the same process."""
    script = (
        "import pwmlff.kernels\nlmp = start()\n"
        f"lmp.commands_string('''{READ}pair_style pwmlff a.txt\npair_coeff * * O Hf\nrun 0''')\n"
        "print(repr(lmp.get_thermo('pe')))\n"
    )
    energy = float(small.python(script).output.split()[-1])
    assert abs(energy - expected(structure()).energy) < 1e-8
