"""What pair styles meet in LAMMPS, engine by engine and kind by kind, against the reference.

Each case ends with a structure; its energies, forces and virial are those that the reference
gives for the positions and the cell that LAMMPS writes out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms

from edge_models import MessagePassing
from harness import Engine, Lammps, Run, thorough
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, PRESSURE_VOLUME, forces
from systems import SYSTEMS, crystal

KCAL_PER_EV = 23.060549
UNITS = {"metal": (1.0, PRESSURE_VOLUME["metal"]), "real": (KCAL_PER_EV, 68568.415)}
ELEMENTS = {1: 8, 2: 72}  # of the types in atoms.data

MOVE = "velocity all create 900 11 mom yes\nfix move all nve\ntimestep {step}\n"
READ = "units metal\natom_modify map yes\nread_data atoms.data\n"
STYLE = "pair_style pwmlff model.pt\npair_coeff * * O Hf\n"

#: Input up to the last measurement, ranks, and elements of types where they are others.
CASES: dict[str, tuple[str, int, dict[int, int]]] = {
    "style before the box": (
        "units metal\natom_modify map yes\npair_style pwmlff model.pt\nread_data atoms.data\n"
        "pair_coeff * * O Hf\n", 2, ELEMENTS,
    ),
    "units real": (READ.replace("metal", "real") + STYLE, 2, ELEMENTS),
    "one element for all": (READ + STYLE.replace("O Hf", "Hf Hf"), 1, {1: 72, 2: 72}),
    "more types than elements": (
        "units metal\nread_data atoms.data extra/atom/types 2\nmass 3*4 16.0\n"
        "set atom 5*20 type/fraction 3 0.3 77\nset atom 21*40 type/fraction 4 0.3 78\n"
        "pair_style pwmlff model.pt\npair_coeff * * O Hf 8 hf\n", 2, {1: 8, 2: 72, 3: 8, 4: 72},
    ),
    "replicate": (f"{READ}replicate 1 2 1\n{STYLE}", 2, ELEMENTS),
    "restart": (
        f"{READ}{STYLE}{MOVE.format(step=0.001)}run 3\nwrite_restart at.restart\nclear\n"
        f"read_restart at.restart\n{STYLE}", 2, ELEMENTS,
    ),
    "data file written and read": (
        f"{READ}{STYLE}{MOVE.format(step=0.001)}run 3\nwrite_data written.data nocoeff\nclear\n"
        f"units metal\nread_data written.data\n{STYLE}", 2, ELEMENTS,
    ),
    "sorted atoms": (
        f"{READ}atom_modify sort 2 1.0\n{STYLE}{MOVE.format(step=0.002)}"
        "neigh_modify every 1 delay 0 check no\nrun 6\n", 2, ELEMENTS,
    ),
    "hashed IDs": (
        f"{READ.replace('map yes', 'map hash')}{STYLE}{MOVE.format(step=0.001)}run 2\n", 1, ELEMENTS
    ),
    "gaps in IDs": (
        f"{READ}group odd id 1 13 40\ndelete_atoms group odd compress no\n{STYLE}", 2, ELEMENTS
    ),
    "tiled ranks": (
        f"{READ}comm_style tiled\n{STYLE}balance 1.0 rcb\n{MOVE.format(step=0.002)}run 4\n",
        4, ELEMENTS,
    ),
    "ranks without atoms": (
        f"processors 1 1 4\n{READ}change_box all boundary p p f z final 0 40\n{STYLE}", 4, ELEMENTS
    ),
    "triclinic deformation": (
        f"{READ}change_box all triclinic\n{STYLE}{MOVE.format(step=0.001)}"
        "fix shear all deform 1 xy erate 20.0 yz erate -15.0 remap x\nrun 5\n", 2, ELEMENTS,
    ),
    "pressure": (
        f"{READ}{STYLE}velocity all create 900 11\n"
        "fix move all npt temp 900 900 0.1 aniso 0 0 0.5\nrun 5\n", 2, ELEMENTS,
    ),
    "free surfaces": (
        f"{READ}change_box all boundary s s m\n{STYLE}{MOVE.format(step=0.002)}run 4\n", 2, ELEMENTS
    ),
    "all pairs searched": (f"{READ}neighbor 1.5 nsq\n{STYLE}", 2, ELEMENTS),
    "ghosts from afar": (f"{READ}comm_modify cutoff 14.0\n{STYLE}", 2, ELEMENTS),
    "charges": (
        "units metal\natom_style charge\natom_modify map yes\nread_data charged.data\n" + STYLE,
        2, ELEMENTS,
    ),
    "new atoms": (
        f"{READ}{STYLE}run 0\nregion all block EDGE EDGE EDGE EDGE EDGE EDGE\n"
        "group one id 7\ndelete_atoms group one\n"
        "create_atoms 1 random 1 4711 all overlap 1.2 maxtry 500\n", 2, ELEMENTS,
    ),
    "minimization": (f"{READ}{STYLE}min_style fire\nminimize 0 0 4 20\n", 2, ELEMENTS),
    "multiple timescales": (
        f"{READ}{STYLE}run_style respa 2 2 pair 2\n{MOVE.format(step=0.001)}run 2\n", 2, ELEMENTS
    ),
}  # fmt: skip
KINDS = {
    "torchscript": "DP", "double": "DP", "device": "DP", "automatic": "EDGE",
}  # fmt: skip


@pytest.fixture(params=[thorough("torchscript"), "double", thorough("device"), "automatic"])
def engine(request) -> str:
    return request.param


@pytest.fixture
def model(lammps: Lammps, engine: str):
    """Model.pt and a crystal of 64 atoms, in two atom styles."""
    if KINDS[engine] == "EDGE":
        model = MessagePassing([8, 72], 2.6, rounds=2)
        torch.jit.script(model).save(lammps.folder / "model.pt")
    else:
        model = SYSTEMS["two elements, triclinic"].model(isotropic=True)
        lammps.save(model)
    lammps.data(crystal(2), [8, 72])
    head, atoms = (lammps.folder / "atoms.data").read_text().split("Atoms # atomic\n\n")
    rows = [line.split() for line in atoms.splitlines() if line.strip()]
    charged = "".join(f"{a} {t} 0.5 {' '.join(x)}\n" for a, t, *x in rows)
    (lammps.folder / "charged.data").write_text(f"{head}Atoms # charge\n\n{charged}")
    return model


@pytest.mark.parametrize("ranks", sorted({ranks for _, ranks, _ in CASES.values()}))
def test_cases(lammps: Lammps, model, ranks: int):
    """Those of so many ranks, one after the other in one lmp."""
    measure = MEASURE.replace("vol c_press", "vol lx ly lz xy xz yz c_press")
    names = [name for name, (_, its, _) in CASES.items() if its == ranks]
    run = lammps.run(
        "".join(
            f"clear\nlog {k}.log\n{CASES[name][0]}{measure}run 0\n{DUMP.replace('atoms', str(k))}"
            for k, name in enumerate(names)
        ),
        ranks,
    )
    for k, name in enumerate(names):
        print(name)
        assert_reference(replace(run, log=f"{k}.log"), f"{k}.dump", model, name, lammps.engine)


def assert_reference(run: Run, dump: str, model, case: str, gate: Engine) -> None:
    """Compare the end of a case with the reference of its structure."""
    thermo, atoms = {k: v[-1] for k, v in run.thermo().items()}, run.atoms(dump)
    elements = CASES[case][2]
    cell = [
        [thermo["Lx"], 0, 0],
        [thermo["Xy"], thermo["Ly"], 0],
        [thermo["Xz"], thermo["Yz"], thermo["Lz"]],
    ]
    pbc = {"free surfaces": False, "ranks without atoms": (True, True, False)}.get(case, True)
    structure = Atoms(
        [elements[int(t)] for t in atoms.type], np.c_[atoms.x, atoms.y, atoms.z], cell=cell, pbc=pbc
    )
    used = sorted(set(elements.values()))
    expected = evaluate(model, structure, elements=used)
    energy, pressure = UNITS["real" if case == "units real" else "metal"]
    assert thermo["PotEng"] / energy == pytest.approx(expected.energy, abs=len(atoms) * gate.energy)
    np.testing.assert_allclose(
        atoms.c_peatom / energy, expected.atom_energy, rtol=0, atol=gate.atom_energy
    )
    np.testing.assert_allclose(forces(atoms) / energy, expected.forces, rtol=0, atol=gate.force)
    virial = run.vector("c_press") * thermo["Volume"] / pressure / energy
    wanted = [expected.virial[k] for k in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    np.testing.assert_allclose(virial, wanted, rtol=0, atol=10 * gate.virial)
