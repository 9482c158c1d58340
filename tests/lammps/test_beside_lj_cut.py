"""An edge model of Lennard-Jones in the place of lj/cut: bonds and charges, boxes that deform."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from edge_models import LennardJones, MessagePassing
from harness import ENGINES, Lammps, Run, thorough
from pwmlff.launch.lmp import DUMP, MEASURE, forces, read_dump

OURS, THEIRS = "pwmlff model.pt", "lj/cut 2.5"
LENGTH = 4  # atoms of a chain


@pytest.fixture
def lammps(tmp_path: Path) -> Lammps:
    """A folder with the model, and with chains in a crystal, the atoms of which have charges."""
    torch.jit.script(LennardJones()).save(tmp_path / "model.pt")
    (tmp_path / "chains.data").write_text(chains())
    return Lammps(tmp_path, ENGINES["automatic"])


def chains(bonded: int = LENGTH) -> str:
    """A data file of atom_style full; chains of so many atoms lie along x."""
    n, spacing = (2 * LENGTH, 6, 6), 1.1
    grid = np.stack(np.meshgrid(*map(np.arange, n), indexing="ij"), -1).reshape(-1, 3)
    x = spacing * grid + np.random.default_rng(2).normal(scale=0.03, size=grid.shape)
    ids = {tuple(place): k + 1 for k, place in enumerate(grid)}
    ends = [(ids[a, b, c], ids[a + 1, b, c]) for a, b, c in grid if a % LENGTH < bonded - 1]
    lines = [
        "chains", "", f"{len(x)} atoms", f"{len(ends)} bonds", "1 atom types", "1 bond types",
        *(f"0 {n[k] * spacing} {'xyz'[k]}lo {'xyz'[k]}hi" for k in range(3)),
        "", "Masses", "", "1 1.0", "", "Atoms # full", "",
    ]  # fmt: skip
    for k, (place, at) in enumerate(zip(grid, x, strict=True)):
        charge = 0.5 * (-1.0) ** place.sum()
        lines.append(f"{k + 1} 1 1 {charge} {at[0]} {at[1]} {at[2]}")
    if ends:
        lines += ["", "Bonds", "", *(f"{k + 1} 1 {a} {b}" for k, (a, b) in enumerate(ends))]
    return "\n".join([*lines, ""])


BONDED = (
    "units lj\natom_style full\nspecial_bonds {special}\n"
    "bond_style zero\nread_data chains.data\nbond_coeff *\n"
)
ALONE = "pair_style {pair}\npair_coeff * * {coeff}\n"
CHARGED = (
    "pair_style hybrid/overlay {pair} coul/long 3.0\n"
    "pair_coeff * * {name} {coeff}\npair_coeff * * coul/long\nkspace_style pppm 1e-4\n"
)


def numbers(run: Run, which: int = -1, dump: str = "atoms.dump") -> list[np.ndarray]:
    """Energies of all steps, pressure and forces at the end of a run command."""
    assert run.returncode == 0, run.output
    thermo = run.thermo(which)
    energies = [np.array(thermo[name]) for name in ("PotEng", "TotEng", "Press")]
    return [*energies, run.vector("c_press", which), forces(run.atoms(dump))]


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float) -> None:
    """Within a share of the largest number."""
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


def steps(pair: str, special: str, style: str, then: str = "", dump: str = "atoms.dump") -> str:
    """The input of some steps of the chains with one of the two styles."""
    words = {
        "special": special, "pair": pair, "name": pair.split(maxsplit=1)[0],
        "coeff": "Ar" if pair == OURS else "1.0 1.0",
    }  # fmt: skip
    text = (BONDED + style + then).format(**words)
    run = "neigh_modify every 5 delay 0 check no\ntimestep 0.001\nthermo 4\nrun 12\n"
    move = "velocity all create 0.5 7 loop geom\nfix 1 all nve\n"
    end = DUMP.replace("atoms.dump", dump)
    return f"{text}neighbor 0.3 bin\n{move}{MEASURE}{run}{end}"


def bonded(lammps: Lammps, pair: str, special: str, style: str, ranks: int, then: str = "") -> Run:
    return lammps(steps(pair, special, style, then), ranks)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    "special",
    [
        ("lj/coul 0 0 0", "lj 1 0 1 coul 0 0.5 0.5"),
        thorough(("lj/coul 1 1 1", "lj 0 0 1 coul 0 0 0", "lj 0 1 1 coul 1 1 1")),
    ],
)
def test_special_bonds(lammps: Lammps, special, ranks):
    """Pairs are there or not as special_bonds lj says, whatever LAMMPS keeps in its list.

    Alone and with kspace, all in one lmp.
    """
    cases = [*itertools.product(special, (ALONE, CHARGED), (OURS, THEIRS))]
    run = lammps.run(
        "clear\n".join(
            steps(pair, words, style, dump=f"{k}.dump")
            for k, (words, style, pair) in enumerate(cases)
        ),
        ranks,
    )
    for k, (words, _, pair) in enumerate(cases):
        if pair == OURS:
            print(words)  # which of them it was that failed
            assert_same(*(numbers(run, n, f"{n}.dump") for n in (k, k + 1)), 1e-10)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("style", [ALONE, CHARGED], ids=["alone", "with kspace"])
def test_weighted_bonds(lammps: Lammps, style, ranks):
    """A model cannot count a pair by a half; where none is, nothing is wrong."""
    run = bonded(lammps, OURS, "lj/coul 0 0.5 1", style, ranks)
    assert run.returncode != 0
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1
    assert "special_bonds weights pairs 1-3 like that of atoms" in errors[0]
    assert "by 0.5" in errors[0]
    (lammps.folder / "chains.data").write_text(chains(bonded=2))
    ours, theirs = (
        numbers(bonded(lammps, pair, "lj/coul 0 0.5 1", style, ranks)) for pair in (OURS, THEIRS)
    )
    assert_same(ours, theirs, 1e-10)


def test_warning_of_bonds(lammps: Lammps):
    """Where there are pairs that are left out, and only there; once for all ranks."""
    cases = [
        (1, "lj/coul 0 0 0", False), (4, "lj/coul 1 1 1", False), (4, "lj/coul 0 1 1", True),
        (2, "lj/coul 0 0 0", True), (2, "lj/coul 1 0 0", False),
    ]  # fmt: skip
    text = ""
    for k, (bonds, special, _) in enumerate(cases):
        (lammps.folder / f"{k}.data").write_text(chains(bonded=bonds))
        case = steps(OURS, special, ALONE).replace("chains.data", f"{k}.data")
        text += f"print 'the next case'\nclear\n{case}"
    told = lammps.run(text, ranks=2, arguments="-echo none").output.split("the next case\n")[1:]
    for part, case in zip(told, cases, strict=True):
        left_out = part.count("sees no neighbors that special_bonds leaves out")
        assert left_out == case[2], case


def test_special_bonds_of_one_style(lammps: Lammps):
    """What pair_modify says about this style in a hybrid one."""
    then = "pair_modify pair {name} special lj 1 1 0\n"
    ours, theirs = (
        numbers(bonded(lammps, pair, "lj/coul 0.5 0.5 0.5", CHARGED, 2, then))
        for pair in (OURS, THEIRS)
    )
    assert_same(ours, theirs, 1e-10)


def test_messages_between_bonded_atoms(lammps: Lammps):
    """LAMMPS does not say which ghosts are bonded: nothing may be left out on several ranks."""
    model = MessagePassing([18], 1.5)
    model.units = "lj"
    torch.jit.script(model).save(lammps.folder / "model.pt")
    run = bonded(lammps, OURS, "lj/coul 0 0 0", ALONE, 2)
    assert run.returncode != 0
    assert "message passing over several ranks cannot leave out pairs 1-2" in run.output
    one, two = (numbers(bonded(lammps, OURS, "lj/coul 1 1 1", ALONE, ranks)) for ranks in (1, 2))
    assert_same(two, one, 1e-10)
    numbers(bonded(lammps, OURS, "lj/coul 0 0 0", ALONE, 1))
    (lammps.folder / "chains.data").write_text(chains(bonded=1))
    assert_same(numbers(bonded(lammps, OURS, "lj/coul 0 0 0", ALONE, 2)), one, 1e-10)


DEFORMED = """
units lj
lattice fcc 0.8442
region box prism 0 4 0 4 0 4 {tilt} 0.0 0.0
create_box 1 box
create_atoms 1 box
mass 1 1.0
pair_style {pair}
pair_coeff * * {coeff}
velocity all create 1.0 87287 loop geom
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
fix 2 all deform 1 {deform}
timestep 0.002
{measure}
thermo 10
dump 1 all custom 20 frames.dump id type x y z fx fy fz
dump_modify 1 sort id format float %.17g
run 120
{dump}
"""
DEFORMATIONS = {
    "strain": (0.0, "x erate 0.3 y erate -0.2 z scale 1.05 remap x"),
    "shear": (0.0, "xy erate 0.5 remap v"),
    "shear that flips": (1.9, "xy erate 0.8 xz erate 0.3 remap v flip yes"),
    "strain that flips": (1.9, "x scale 0.85 xy erate 0.8 remap x flip yes"),
}


def deformed(lammps: Lammps, pair: str, deformation: str, ranks: int, then: str = "") -> Run:
    """A melt in a box that changes with time."""
    tilt, deform = DEFORMATIONS[deformation]
    coeff = "Ar" if pair == OURS else "1.0 1.0"
    text = DEFORMED.format(
        tilt=tilt, deform=deform, pair=pair, coeff=coeff, measure=MEASURE, dump=DUMP
    )
    return lammps.run(text + then, ranks)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_fix_deform(lammps: Lammps, deformation, ranks):
    """Boxes that change their size and shape, and are flipped."""
    runs = [deformed(lammps, OURS, deformation, ranks)]
    ours = numbers(runs[0])
    assert_same(ours, numbers(deformed(lammps, THEIRS, deformation, ranks)), 1e-8)
    tilts = [frame.split()[2] for frame in boxes(lammps.folder / "frames.dump")]
    assert (min(map(float, tilts)) < 0) == ("flips" in deformation)


def boxes(path: Path) -> list[str]:
    """The line of x of the box of each frame."""
    lines = path.read_text().splitlines()
    return [lines[k + 1] for k, line in enumerate(lines) if line.startswith("ITEM: BOX BOUNDS")]


def test_dumped_box_is_a_step_ahead(lammps: Lammps):
    """Fix deform changes the box after the forces of a step: lj/cut differs from its own rerun."""
    again = (
        "unfix 2\nunfix 1\nundump 1\n"
        "dump 2 all custom 20 again.dump id type x y z fx fy fz\n"
        "dump_modify 2 sort id format float %.17g\n"
        "rerun frames.dump dump x y z box yes\n"
    )
    dumped, rerun = {}, {}
    for pair in (OURS, THEIRS):
        deformed(lammps, pair, "shear", 1, again)
        dumped[pair] = forces(read_dump(lammps.folder / "frames.dump"))
        rerun[pair] = forces(read_dump(lammps.folder / "again.dump"))
    scale = np.abs(dumped[THEIRS]).max()
    off = [np.abs(rerun[pair] - dumped[pair]).max() / scale for pair in (OURS, THEIRS)]
    assert off[1] > 1e-4  # LAMMPS's own style
    assert off[0] == pytest.approx(off[1], rel=1e-4)
    assert_same([dumped[OURS], rerun[OURS]], [dumped[THEIRS], rerun[THEIRS]], 1e-8)
