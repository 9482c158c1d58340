"""Energy, per-atom energy, forces and virial of lmp against independent computations."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.lammps import Prism

from edge_models import MessagePassing
from harness import ENGINES, Lammps, Run, thorough
from pwmlff.evaluation.reference import Result, evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, forces, read_command, virial_to_lammps
from systems import SYSTEMS, crystal


def read(atoms: Atoms, name: str = "atoms.data") -> str:
    return read_command(atoms, name)


def symbols(elements) -> str:
    return " ".join(Atoms(numbers=elements).get_chemical_symbols())


NAMED = [name for name in ENGINES if name not in {"automatic", "visible"}]
every_engine = pytest.mark.parametrize("engine", NAMED)
same_numbers = pytest.mark.parametrize(
    "engine", [thorough("torchscript"), thorough("exact"), "double"]
)


def assert_equal(
    lammps: Lammps, run: Run, expected: Result, prism: Prism, dump="atoms.dump", which=-1
):
    """Compare a run with a Result, turned into the cell that LAMMPS uses."""
    gate = lammps.engine
    thermo, atoms = run.thermo(which), run.atoms(dump)
    worst = {
        "energy": abs(thermo["PotEng"][-1] - expected.energy) / len(atoms),
        "atom_energy": np.abs(atoms.c_peatom - expected.atom_energy).max(),
        "force": np.abs(forces(atoms) - prism.vector_to_lammps(expected.forces)).max(),
        "virial": np.abs(run.virial(which) - virial_to_lammps(expected.virial, prism)).max(),
    }
    print({name: f"{error:.1e}" for name, error in worst.items()})
    for name, error in worst.items():
        assert error < getattr(gate, name), name


@every_engine
@pytest.mark.parametrize("ranks", [1, thorough(2)])
def test_oracle(lammps: Lammps, oracle, ranks):
    """Numbers that are not this project's, frame after frame with `clear` between them."""
    lammps.save(oracle.model)
    types = oracle.model.atom_type[::-1]
    text, prisms = "", []
    for k, (atoms, _) in enumerate(oracle.frames):
        prisms.append(lammps.data(atoms, types, f"{k}.data"))
        text += f"clear\n{read(atoms, f'{k}.data')}pair_style pwmlff model.pt\n"
        text += f"pair_coeff * * {symbols(types)}\n{MEASURE}run 0\n"
        text += DUMP.replace("atoms", str(k))
    run = lammps.run(text, ranks)
    for k, (prism, (_, expected)) in enumerate(zip(prisms, oracle.frames, strict=True)):
        assert_equal(lammps, run, expected, prism, f"{k}.dump", k)


@pytest.mark.parametrize("engine", ["automatic"])
def test_reference(lammps: Lammps):
    """Random models: triclinic, slabs, boxes smaller than the cutoff, atoms without neighbors."""
    text, prisms, wanted = "", [], []
    for k, system in enumerate(SYSTEMS.values()):
        model, atoms = system.model(), system.atoms()
        lammps.save(model, f"{k}.pt")
        wanted.append(evaluate(model, atoms, elements=system.elements))
        prisms.append(lammps.data(atoms, list(system.elements), f"{k}.data"))
        text += f"clear\n{read(atoms, f'{k}.data')}pair_style pwmlff 1 {k}.pt\n"
        text += f"pair_coeff * * {symbols(system.elements)}\n{MEASURE}run 0\n"
        text += DUMP.replace("atoms", str(k))
    for engine in NAMED:
        each = Lammps(lammps.folder, ENGINES[engine])
        run = each.run(text)
        for k, name in enumerate(SYSTEMS):
            print(engine, name, end=" ")
            assert_equal(each, run, wanted[k], prisms[k], f"{k}.dump", k)


# A slab: with four ranks along z, two of them own no atom.
SLAB = """
units metal
boundary p p f
processors 1 1 {ranks}
read_data atoms.data
change_box all z final 0 400
pair_style pwmlff model.pt
pair_coeff * * O Hf
"""


def assert_same_on_any_number_of_ranks(lammps: Lammps, share: float = 0.0) -> None:
    """1, 2 and 4 ranks, also where ranks own no atom, give the same numbers with model.pt.

    Args:
        lammps: its engine runs the model.
        share: of the largest component of the pressure, by which each may differ beyond 1e-10.
    """
    atoms = crystal()
    lammps.data(atoms, [8, 72])
    periodic = f"{read(atoms)}pair_style pwmlff model.pt\npair_coeff * * O Hf\n"
    measure = f"{MEASURE}run 0\n{DUMP}"
    text = f"{periodic}{measure}clear\n{SLAB}{measure.replace('atoms.', 'slab.')}"
    expected: list[tuple] = []
    for ranks in (1, 2, 4):
        run = lammps.run(text.replace("{ranks}", str(ranks)), ranks)
        for which, dump in enumerate(("atoms.dump", "slab.dump")):
            energy, pressure = run.thermo(which)["PotEng"][0], run.vector("c_press", which)
            found = (energy, forces(run.atoms(dump)), pressure)
            if ranks == 1:
                expected.append(found)
            wanted = expected[which]
            assert energy == pytest.approx(wanted[0], rel=1e-12, abs=0)
            np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=1e-10)
            atol = share * np.abs(wanted[2]).max()
            np.testing.assert_allclose(pressure, wanted[2], rtol=1e-10, atol=atol)
    assert re.search(r"Nlocal: +54 ave +\d+ max +0 min", run.output)


@same_numbers
def test_any_number_of_ranks(lammps: Lammps):
    lammps.save(SYSTEMS["two elements, triclinic"].model())
    assert_same_on_any_number_of_ranks(lammps)


def heat_flux(model, atoms: Atoms) -> np.ndarray:
    """Times the volume, eV angstrom/ps: sum_i E_i v_i + sum_ij (r_j - r_i) (dU_j/dr_i . v_i).

    The derivative is a difference of energies of atoms along the velocity of one, in angstrom/ps.
    """
    v, step = atoms.arrays["velocity"], 1e-5
    kinetic = 0.5 * 1.0364269e-4 * atoms.get_masses() * (v**2).sum(axis=1)
    flux = (kinetic + evaluate(model, atoms).atom_energy) @ v
    for i in np.flatnonzero(kinetic):
        ends = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions[i] += sign * step * v[i]
            ends.append(evaluate(model, moved).atom_energy)
        to_others = atoms.get_distances(i, range(len(atoms)), mic=True, vector=True)
        flux += (ends[0] - ends[1]) / (2 * step) @ to_others
    return flux


EVEN, MESSAGES = "is wrong with the virials of compute stress/atom", "with message passing"
FLUX = """
group some id 1:99:17
velocity some create 3000 7
compute ke all ke/atom
compute pe all pe/atom
compute s all {style} NULL virial
compute flux all heat/flux ke pe s
thermo_style custom step c_flux[*]
thermo_modify format float %.17g
run 0
write_dump all custom v.dump id vx vy vz modify format float %.17g
"""


@pytest.mark.parametrize("engine", ["automatic"])
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_heat_flux(lammps: Lammps, rounds: int):
    """Right with the centroid virials where energies are local; said where it is wrong.

    `rounds` of messages, or a Deep Potential.
    """
    model = MessagePassing([8, 72], 3.0, rounds)
    if rounds == 0:
        model = SYSTEMS["two elements, triclinic"].model(isotropic=True)
    torch.jit.script(model).save(lammps.folder / "model.pt")
    atoms = crystal(3)
    lammps.data(atoms, [8, 72])
    style = f"{read(atoms)}pair_style pwmlff model.pt\npair_coeff * * O Hf\n"
    said, found = {}, {}
    for name in ("stress/atom", "centroid/stress/atom"):
        run = lammps.run(style + FLUX.format(style=name), ranks=2)
        said[name], found[name] = run.output, run.vector("c_flux")[:3]
    dumped = run.atoms("v.dump")
    atoms.arrays["velocity"] = np.array([dumped.vx, dumped.vy, dumped.vz]).T
    wanted = heat_flux(model, atoms)
    scale = np.abs(wanted).max()
    off = {name: np.abs(flux - wanted).max() / scale for name, flux in found.items()}
    print(off)
    assert off["stress/atom"] > 1e-3
    assert EVEN in said["stress/atom"] and EVEN not in said["centroid/stress/atom"]
    assert (MESSAGES in said["centroid/stress/atom"]) == (rounds > 1)
    if rounds > 1:
        assert off["centroid/stress/atom"] > 1e-3
    else:
        assert off["centroid/stress/atom"] < 1e-6


@pytest.mark.parametrize("engine", ["exact", "double", "mixed"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_virials_of_atoms(lammps: Lammps, ranks):
    """Virials of atoms, shared evenly or centroid with nine components, add up to the virial."""
    lammps.save(SYSTEMS["two elements, triclinic"].model(isotropic=True))
    atoms = crystal(2)
    lammps.data(atoms, [8, 72])
    run = lammps.run(
        f"{read(atoms)}pair_style pwmlff model.pt\npair_coeff * * O Hf\n{MEASURE}"
        "compute even all stress/atom NULL pair\n"
        "compute centroid all centroid/stress/atom NULL pair\n"
        "compute sums all reduce sum c_even[*] c_centroid[*]\n"
        "thermo_style custom step vol c_press[*] c_sums[*]\n"
        "thermo_modify format float %.17g\nrun 0\n",
        ranks,
    )
    expected = run.vector("c_press") * run.thermo()["Volume"][0]
    found = -run.vector("c_sums")
    tolerance = 1e-9 * np.abs(expected).max()
    np.testing.assert_allclose(found[:6], expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found[6:12], expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found[12:], expected[3:], rtol=0, atol=tolerance)  # yx zx zy
