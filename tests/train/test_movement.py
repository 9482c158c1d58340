"""PWmat's MOVEMENT: what was written by formula comes back, as dpdata has it."""

from __future__ import annotations

import numpy as np
import pytest
from ase.build import molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from labelled_structures import movement, trajectory
from pwmlff.data import consistency, readers
from pwmlff.report import Failure


@pytest.fixture(scope="module")
def structures():
    return trajectory(5, strain=0.01)


def test_frames_come_back(tmp_path, structures):
    path = tmp_path / "MOVEMENT"
    path.write_text("".join(movement(atoms, t) for t, atoms in enumerate(structures)))
    frames = readers.read(path)  # by its first line
    assert len(frames) == 5 and frames.pbc.all()
    for k, atoms in enumerate(structures):
        mine = frames.atoms(k)
        np.testing.assert_array_equal(mine.numbers, atoms.numbers)
        np.testing.assert_allclose(mine.positions, atoms.positions, atol=1e-10)
        np.testing.assert_allclose(mine.get_forces(), atoms.get_forces(), atol=1e-10)
        np.testing.assert_allclose(mine.get_stress(), atoms.get_stress(), atol=1e-10)
        assert mine.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), rel=1e-9)
    assert not consistency.findings(frames)


def test_virial_of_a_molecule(tmp_path):
    """Far from its images, sum x_i (x) F_i; PWmat's lines hold dE/dstrain, its negative.

    dE/dstrain is taken by differences of energies here, and no stress of a calculator.
    """
    atoms = molecule("CH3CH2OH", vacuum=6.0, pbc=True)
    atoms.calc = EMT()
    atoms.rattle(0.1, seed=1)
    x, forces, energy = atoms.positions.copy(), atoms.get_forces(), atoms.get_potential_energy()
    law = x.T @ forces
    step = 1e-5
    derivative = np.zeros((3, 3))
    for a, b in np.ndindex(3, 3):
        for sign in (1.0, -1.0):
            strain = np.eye(3)
            strain[b, a] += sign * step
            strained = atoms.copy()
            strained.set_cell(atoms.cell @ strain, scale_atoms=True)
            strained.calc = EMT()
            derivative[a, b] += sign * strained.get_potential_energy() / (2.0 * step)
    atoms.positions += 0.5 * np.asarray(atoms.cell).sum(axis=0)
    atoms.wrap()  # it lies across the boundary, as programs write it
    derivative = (derivative + derivative.T) / 2.0  # without torque
    atoms.calc = SinglePointCalculator(
        atoms, energy=energy, forces=forces, stress=derivative / atoms.get_volume()
    )
    path = tmp_path / "MOVEMENT"
    path.write_text(movement(atoms))
    (virial,) = readers.read(path).virials
    assert np.abs(law).max() > 1.0
    np.testing.assert_allclose(virial, law, atol=1e-6)


def test_dpdata_has_the_same_but_for_the_sign_of_virials_after_its_first_frame(
    tmp_path, structures
):
    dpdata = pytest.importorskip("dpdata")
    path = tmp_path / "MOVEMENT"
    path.write_text("".join(movement(atoms, t) for t, atoms in enumerate(structures)))
    frames = readers.read(path)
    theirs = dpdata.LabeledSystem(str(path), fmt="pwmat/movement")
    # It sorts atoms by element, keeping no order among them, and turns the cell.
    for k in range(1, 5):
        rows = slice(frames.first[k], frames.first[k + 1])
        np.testing.assert_allclose(frames.energies[k], theirs["energies"][k], rtol=1e-9)
        np.testing.assert_allclose(
            np.sort(np.linalg.norm(frames.forces[rows], axis=1)),
            np.sort(np.linalg.norm(theirs["forces"][k], axis=1)),
            atol=1e-8,
        )
        # It takes the stress lines for the virial, where they are its negative; and 160.2 for
        # eV/angstrom^3 in GPa, where it is 160.21766.
        np.testing.assert_allclose(
            np.trace(frames.virials[k]), -np.trace(theirs["virials"][k]), rtol=2e-4
        )


def test_older_headers_and_missing_blocks(tmp_path, structures):
    path = tmp_path / "OUT.MLMD"
    atoms = structures[0]
    text = (
        movement(atoms, stress=False, scf=False)
        .replace("Iteration (fs) =", "Iteration=")
        .replace("Ek (eV) =", "Ek=")
    )
    path.write_text(" " + "-" * 50 + "\n" + text)
    frames = readers.read(path, format="movement")
    assert frames.energies[0] == pytest.approx(atoms.get_potential_energy(), rel=1e-9)
    assert np.isnan(frames.virials).all() and np.isfinite(frames.forces).all()
    begin, end = text.index(" Force"), text.index(" Velocity")
    path.write_text(text[:begin] + text[end:])
    assert np.isnan(readers.read(path).forces).all()


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda t: t[: int(0.8 * len(t))], "frame 1 .*cut off.*@:1"),
        (lambda t: "nonsense\n" + t, "frame 0 .*begins with 'nonsense'"),
        (lambda t: t.replace(" Lattice", " Latice", 1), "frame 0 .*no block 'Lattice'"),
        (lambda t: t[: t.index("\n") + 1] + " " + "-" * 50 + "\n", "frame 0 .*no block 'Lattice'"),
        (lambda t: t.replace(" 32 atoms", " 33 atoms", 1), "frame 0 .*has 32 lines, expected 33"),
        (lambda t: t.replace(" 32 atoms", " 31 atoms", 1), "frame 0 .*has 32 lines, expected 31"),
        (lambda t: t[: t.index(" Force") + 900] + t, "frame 0 .*line 1 and .* in line 53: "),
        (lambda t: t.replace(" 1  1  1", " 1  1  1  1", 1), "frame 0 .*line 0 of the block 'Pos"),
        (lambda t: t.replace(" 1  1  1", "", 1), "frame 0 .*line 1 of the block 'Pos"),
        (lambda t: t.replace("  18   ", "  1_8   ", 1), "frame 0 .*line 0 of the block 'Pos"),
        (lambda t: t.replace("E+00", "E+999"), "frame 0 .*E[+]999"),
        (lambda t: t.replace(" Etot,Ep", " Etot", 1), "frame 0 .*three numbers after 'Etot,Ep,Ek"),
        (lambda t: t.replace(" (eV) = -", " (eV) = ***** -", 1), "frame 0 .*three numbers after"),
        (lambda t: t.replace(" Force", " Farce", 1), "frame 0 .*no block 'Force' but .*'Farce"),
        (lambda t: t.replace(" Velocity", " Force", 1), "frame 0 .*two blocks 'Force'"),
        (lambda t: t.replace("stress (eV)", "strss (eV)", 1), "frame 0 .*three lines of three"),
        (lambda t: t.replace("  18   ", "  180   ", 1), "frame 0 .*atom .* 180 in"),
        (lambda t: t.replace("  18   ", "  0   "), "0 is no atomic number"),
        (lambda t: t.replace("(eV):", "(eV): x", 1), "frame 0 .*three lines of three"),
    ],
)  # fmt: skip
def test_damaged_frames_are_named(tmp_path, structures, damage, message):
    path = tmp_path / "MOVEMENT"
    path.write_text(damage("".join(movement(atoms) for atoms in structures[:2])))
    with pytest.raises(Failure, match=message):
        readers.read(path, format="movement")
