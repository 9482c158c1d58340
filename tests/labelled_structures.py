"""Structures to train on: with labels that fit together, and random ones in any cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator

from pwmlff.data.frames import Frames
from pwmlff.data.labelled import Labelled, gathered


def crystal(scale: float = 1.0, seed: int = 0) -> Atoms:
    """32 atoms of argon and neon at random, a little off their places, cell not orthogonal."""
    rng = np.random.default_rng(seed)
    atoms = bulk("Ar", "fcc", a=3.45, cubic=True).repeat(2)
    atoms.set_cell(atoms.cell @ (np.eye(3) + np.triu(rng.normal(0, 0.01, (3, 3)), 1)), True)
    atoms.set_cell(scale * np.asarray(atoms.cell), True)
    atoms.numbers[rng.random(len(atoms)) < 0.4] = 10
    atoms.positions += rng.normal(0.0, 0.05, atoms.positions.shape)
    return atoms


def copper_gold() -> Atoms:
    """32 atoms on the places of an ordered crystal."""
    atoms = bulk("Cu", a=3.7, cubic=True).repeat(2)
    atoms.numbers[::4] = 79
    return atoms


def labelled(atoms: Atoms) -> Atoms:
    """A copy with the labels of ase's Lennard-Jones potential."""
    atoms = atoms.copy()
    atoms.calc = LennardJones(sigma=2.2, epsilon=0.3, rc=5.0, smooth=True)
    results = {
        "energy": atoms.get_potential_energy(),
        "forces": atoms.get_forces(),
        "stress": atoms.get_stress(),
    }
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def trajectory(
    count: int = 8, step: float = 0.01, strain: float = 0.0, seed: int = 0
) -> list[Atoms]:
    """Frames that swing about a crystal, about `step` angstrom each; of the cell `strain`."""
    rng = np.random.default_rng(seed)
    start = crystal(seed=seed)
    speed, size = step / 0.1, 0.1  # radian a frame, angstrom
    phases, of_cell = rng.uniform(0.0, 2.0 * np.pi, (len(start), 3)), rng.uniform(0.0, 6.0, (3, 3))
    frames = []
    for t in range(count):
        atoms = start.copy()
        atoms.positions += size * np.sin(phases + speed * (1.0 + 0.1 * np.cos(phases)) * t)
        change = 0.02 * np.sin(of_cell + strain / 0.02 * t) if strain else np.zeros((3, 3))
        atoms.set_cell(np.asarray(atoms.cell) @ (np.eye(3) + (change + change.T) / 2.0), True)
        atoms.wrap()  # as programs do
        frames.append(labelled(atoms))
    return frames


def frames_of(
    structures: Sequence[Atoms],
    energies: Sequence[float] | None = None,
    forces: Sequence[np.ndarray] | None = None,
    virials: Sequence[np.ndarray] | None = None,
    groups: Sequence[str] | None = None,
    file: str = "file.xyz",
    born: Sequence[np.ndarray | None] | None = None,
) -> Frames:
    """The same as those of one file, with the labels that are given."""

    def label_of(values, k: int):
        return None if values is None else values[k]

    return gathered(
        [
            Labelled(
                *(a.numbers, a.positions, np.asarray(a.cell), a.pbc, k),
                *(label_of(values, k) for values in (energies, forces, virials)),
                born=label_of(born, k),
                group=label_of(groups, k),
            )
            for k, a in enumerate(structures)
        ],
        file,
        "file",
    )


def random_structures(count: int) -> list[Atoms]:
    """Any cell, also thin ones and ones with vectors that lack; atoms outside the cell too."""
    rng = np.random.default_rng(5)
    result = []
    for _ in range(count):
        length = rng.uniform(1.5, 7.0)
        cell = length * (np.eye(3) + 0.25 * rng.normal(size=(3, 3)))
        pbc = rng.random(3) < 0.7
        cell[~pbc & (rng.random(3) < 0.5)] = 0.0
        n = rng.integers(0, 9)
        positions = rng.uniform(-1.0, 2.0, (n, 3)) * length
        result.append(Atoms(rng.choice([8, 72], n), positions, cell=cell, pbc=pbc))
    return result


MOVEMENT_HEADER = (
    " {n} atoms,Iteration (fs) =   {t:.10E}, Etot,Ep,Ek (eV) = {etot:.10E} {ep:.10E} {ek:.10E}"
)


def movement(atoms, t=1.0, stress=True, scf=True, dashes=True, constant=0.0):
    """A frame as PWmat writes it: fractional positions, dE/dx, the negative of the virial in eV.

    Args:
        atoms: with energy, forces and stress of any calculator.
        t: time, fs.
        stress: whether there are stress lines.
        scf: whether the first line ends as newer ones do.
        dashes: whether the frame has its last line.
        constant: what is added to the stress (eV) of each direction, per atom.
    """
    energy = atoms.get_potential_energy()
    lines = [
        MOVEMENT_HEADER.format(n=len(atoms), t=t, etot=energy + 2.5, ep=energy, ek=2.5)
        + ", SCF =     9" * scf,
        " MD_INFO: METHOD(1-VV,2-NH,3-LV,4-LVPR,5-NHRP) TIME(fs) TEMP(K)",
        "          1    0.1000000000E+01   0.29990E+03",
        " Lattice vector (Angstrom)",
    ]
    written = np.zeros((3, 3))
    if stress:  # of ase's sign, times the volume
        written = atoms.get_volume() * atoms.get_stress(voigt=False)
        written += constant * len(atoms) * np.eye(3)
    for vector, row in zip(np.asarray(atoms.cell), written, strict=True):
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


def vasprun_head(most: int) -> str:
    """The beginning of a vasprun.xml of two atoms of copper, as far as ase and dpdata look at it.

    Args:
        most: iterations of an SCF that are allowed (NELM).
    """
    return f"""<?xml version="1.0" encoding="ISO-8859-1"?>
<modeling>
 <incar/>
 <kpoints/>
 <parameters>
  <separator name="electronic">
   <i name="EDIFF"> 0.00000100 </i>
   <separator name="electronic convergence"><i type="int" name="NELM"> {most} </i></separator>
  </separator>
 </parameters>
 <atominfo>
  <atoms> 2 </atoms>
  <types> 1 </types>
  <array name="atoms"><set>
   <rc><c>Cu</c><c> 1</c></rc><rc><c>Cu</c><c> 1</c></rc>
  </set></array>
  <array name="atomtypes"><set>
   <rc><c> 2</c><c>Cu</c><c> 63.5</c><c> 11.0</c><c> PAW_PBE Cu </c></rc>
  </set></array>
 </atominfo>
 <structure name="initialpos">
  <crystal><varray name="basis"><v>4 0 0</v><v>0 4 0</v><v>0 0 4</v></varray></crystal>
  <varray name="positions"><v>0 0 0</v><v>0.5 0.5 0.5</v></varray>
 </structure>
"""


def write_deepmd(
    folder: Path, structures: Sequence[Atoms], sets: int = 1, mixed: bool = False
) -> None:
    """A DeePMD-kit system, written from its documentation; elements in the order Ne, Ar."""
    number = {10: 0, 18: 1}
    folder.mkdir(parents=True)
    (folder / "type_map.raw").write_text("Ne\nAr\n")
    size = max(len(atoms) for atoms in structures)
    types = [0] * size if mixed else [number[z] for z in structures[0].numbers]
    (folder / "type.raw").write_text("\n".join(map(str, types)))
    if not structures[0].pbc.any():
        (folder / "nopbc").touch()
    for n, part in enumerate(np.array_split(np.arange(len(structures)), sets)):
        chosen = [structures[k] for k in part]
        where = folder / f"set.{n:03d}"
        where.mkdir()

        def padded(rows, size=size):
            return [np.pad(row, (0, 3 * size - row.size)) for row in rows]

        np.save(where / "coord.npy", padded([a.positions.ravel() for a in chosen]))
        np.save(where / "box.npy", [np.asarray(a.cell).ravel() for a in chosen])
        np.save(where / "energy.npy", [a.get_potential_energy() for a in chosen])
        np.save(where / "force.npy", padded([a.get_forces().ravel() for a in chosen]))
        np.save(
            where / "virial.npy",
            [-a.get_volume() * a.get_stress(voigt=False).ravel() for a in chosen],
        )
        if mixed:
            real = [[number[z] for z in a.numbers] + [-1] * (size - len(a)) for a in chosen]
            np.save(where / "real_atom_types.npy", real)
