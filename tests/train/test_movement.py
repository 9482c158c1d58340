"""PWmat's MOVEMENT: what was written by formula comes back, as dpdata has it."""

from __future__ import annotations

import numpy as np
import pytest

from labelled_structures import trajectory
from pwmlff.report import Failure
from pwmlff.train import consistency, readers

HEADER = " {n} atoms,Iteration (fs) =   {t:.10E}, Etot,Ep,Ek (eV) = {etot:.10E} {ep:.10E} {ek:.10E}"


def block(atoms, t=1.0, stress=True, scf=True, dashes=True):
    """A frame as PWmat writes it: fractional positions, dE/dx, virial in eV."""
    energy = atoms.get_potential_energy()
    lines = [
        HEADER.format(n=len(atoms), t=t, etot=energy + 2.5, ep=energy, ek=2.5)
        + ", SCF =     9" * scf,
        " MD_INFO: METHOD(1-VV,2-NH,3-LV,4-LVPR,5-NHRP) TIME(fs) TEMP(K)",
        "          1    0.1000000000E+01   0.29990E+03",
        " Lattice vector (Angstrom)",
    ]
    virial = -atoms.get_volume() * atoms.get_stress(voigt=False)
    for vector, row in zip(np.asarray(atoms.cell), virial, strict=True):
        line = "   ".join(f"{x:.14E}" for x in vector)
        lines.append(
            line + "     stress (eV):  " * stress + "  ".join(f"{x:.12E}" for x in row) * stress
        )
    lines.append(" Position (normalized), move_x, move_y, move_z")
    for number, s in zip(atoms.numbers, atoms.get_scaled_positions(wrap=False), strict=True):
        lines.append(f"  {number}   " + "  ".join(f"{x:.14f}" for x in s) + "   1  1  1")
    lines.append(" Force (-force, eV/Angstrom)")
    for number, force in zip(atoms.numbers, atoms.get_forces(), strict=True):
        lines.append(f"  {number}   " + "  ".join(f"{-x:.14E}" for x in force))
    lines.append(" Velocity (bohr/fs)")
    lines += [f"  {number}    0.0   0.0   0.0" for number in atoms.numbers]
    lines.append(" Atomic-Energy, Etot(eV),E_nonloc(eV),Q_atom:dE(eV)=  0.1000000000E-01")
    lines += [f"  {number}   -0.1E+02  0.2E+01  0.3E+01" for number in atoms.numbers]
    return "\n".join(lines + [" " + "-" * 50] * dashes) + "\n"


@pytest.fixture(scope="module")
def structures():
    return trajectory(5, strain=0.01)


def test_frames_come_back(tmp_path, structures):
    path = tmp_path / "MOVEMENT"
    path.write_text("".join(block(atoms, t) for t, atoms in enumerate(structures)))
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


def test_dpdata_has_the_same_after_its_first_frame(tmp_path, structures):
    dpdata = pytest.importorskip("dpdata")
    path = tmp_path / "MOVEMENT"
    path.write_text("".join(block(atoms, t) for t, atoms in enumerate(structures)))
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
        # 160.2 for eV/angstrom^3 in GPa, where it is 160.21766
        np.testing.assert_allclose(
            np.trace(frames.virials[k]), np.trace(theirs["virials"][k]), rtol=2e-4
        )
        assert np.trace(frames.virials[k]) * np.trace(theirs["virials"][k]) > 0


def test_older_headers_and_missing_blocks(tmp_path, structures):
    path = tmp_path / "OUT.MLMD"
    atoms = structures[0]
    text = (
        block(atoms, stress=False, scf=False)
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
        (lambda t: t.replace(" 32 atoms", " 33 atoms", 1), "frame 0 .*line 32 of the block"),
        (lambda t: t.replace("  18   ", "  180   ", 1), "frame 0 .*atom .* 180 in"),
        (lambda t: t.replace("  18   ", "  0   "), "0 is no atomic number"),
        (lambda t: t.replace("(eV):", "(eV): x", 1), "frame 0 .*three lines of three"),
    ],
)  # fmt: skip
def test_damaged_frames_are_named(tmp_path, structures, damage, message):
    path = tmp_path / "MOVEMENT"
    path.write_text(damage("".join(block(atoms) for atoms in structures[:2])))
    with pytest.raises(Failure, match=message):
        readers.read(path, format="movement")
