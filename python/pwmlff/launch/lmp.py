"""What lmp is given to run on structures made in Python, and what it has computed."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from ase import Atoms
from ase.calculators.lammps import Prism
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import atomic_masses, atomic_numbers, chemical_symbols

from pwmlff.launch import mpirun, program
from pwmlff.launch.log import ThermoRun, number, runs
from pwmlff.launch.script import PLAIN
from pwmlff.report import Failure

#: Characters at the begin of a data file, with its header among them.
HEADER = 65536
#: LAMMPS's pressure times volume in its energy: bar angstrom^3 per eV in units metal.
PRESSURE_VOLUME = {"metal": 1.6021765e6, "lj": 1.0}
#: Components in LAMMPS's order xx yy zz xy xz yz.
VOIGT = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
#: The same in ase's order xx yy zz yz xz xy.
ASE_VOIGT = (*VOIGT[:3], *VOIGT[:2:-1])

#: Everything that is compared: energies, forces and pressure with all digits.
MEASURE = """
compute peatom all pe/atom pair
compute press all pressure NULL pair
thermo_style custom step pe etotal temp press vol c_press[1] c_press[2] c_press[3] c_press[4] &
  c_press[5] c_press[6]
thermo_modify format float %.17g norm no
"""
DUMP = (
    "write_dump all custom atoms.dump id type x y z fx fy fz c_peatom modify format float %.17g\n"
)


def write_data(path: str | PathLike[str], atoms: Atoms, elements: Sequence[int]) -> Prism:
    """Write a data file in which LAMMPS type t is elements[t-1].

    Only elements, positions and cell go into it.

    Returns:
        The rotation between ase's cell and the one that LAMMPS wants.
    """
    from ase.io import write  # noqa: PLC0415  slow to import

    symbols = [chemical_symbols[z] for z in elements]
    prism = Prism(atoms.cell, pbc=atoms.pbc)
    # ase would rather take types from an array of that name, which structures bring along.
    bare = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
    write(
        fspath(path), bare, format="lammps-data", specorder=symbols, masses=True, prismobj=prism,
        force_skew=True,
    )  # fmt: skip
    return prism


def is_data_file(path: str | PathLike[str]) -> bool:
    """Whether a file is a LAMMPS data file: one whose header counts atom types."""
    if not Path(path).is_file():
        return False
    with Path(path).open(errors="replace") as file:
        return _count_of_types(_bare(file.read(HEADER).splitlines())) is not None


def read_data(
    path: str | PathLike[str], elements: Sequence[str] = (), atom_style: str | None = None
) -> Atoms:
    """Read a LAMMPS data file, with lengths as they are; every direction is taken as periodic.

    Args:
        path: the file.
        elements: chemical symbols of the types in order. When empty, they are those of the section
            Atom Type Labels, or the ones with the masses of the section Masses.
        atom_style: of the section Atoms, where neither a comment there nor its columns tell.

    Raises:
        ValueError: the file is no data file that ase reads, or the elements of its types are not
            known.
    """
    from ase.io import read  # noqa: PLC0415  slow to import

    raw = Path(path).read_text(errors="replace").splitlines()
    lines = _bare(raw)
    ntypes = _count_of_types(lines)
    if ntypes is None:
        raise ValueError(f"'{path}' is no LAMMPS data file: its header has no 'N atom types'")
    numbers = [atomic_numbers.get(symbol, 0) for symbol in elements]
    if elements and (len(numbers) != ntypes or 0 in numbers):
        raise ValueError(
            f"the elements of the types are given as {' '.join(elements)}; '{path}' has {ntypes} "
            "types: give one chemical symbol for each, in order"
        )
    known = dict(enumerate(numbers, 1)) or _elements_of_types(path, lines, ntypes)
    for k in _section(lines, "Masses", ntypes):  # which ase reads with numbers of types alone
        raw[k] = ""
    text = StringIO("\n".join(raw))
    try:
        atoms = read(text, format="lammps-data", Z_of_type=known, atom_style=atom_style)
    except Exception as error:  # ase's readers raise whatever they like
        raise ValueError(
            f"ase cannot read the LAMMPS data file '{path}' ({type(error).__name__}: {error}); "
            f"atom_style is {atom_style or 'not given'}: give that of the file, and look whether "
            "the section Atoms is complete"
        ) from error
    return cast("Atoms", atoms)  # ase's annotation has a list of structures too


def _bare(lines: Sequence[str]) -> list[str]:
    """Lines without comments."""
    return [line.partition("#")[0].strip() for line in lines]


def _count_of_types(lines: Sequence[str]) -> int | None:
    """N of the line `N atom types`, which stands in the header; None without that line."""
    header = itertools.takewhile(lambda line: line != "Atoms", lines)
    matches = (re.fullmatch(r"(\d+)\s+atom\s+types", line) for line in header)
    return next((int(match[1]) for match in matches if match), None)


def _section(lines: Sequence[str], name: str, ntypes: int) -> list[int]:
    """Indices of the heading of a section and of its lines, one for each type; or none."""
    begin = next((k for k, line in enumerate(lines) if line.split() == name.split()), len(lines))
    return [k for k in range(begin, len(lines)) if lines[k]][: ntypes + 1]


def _words_by_type(lines: Sequence[str], name: str, ntypes: int) -> dict[str, str]:
    """First and second word of the lines of a section."""
    rows = [lines[k].split() for k in _section(lines, name, ntypes)[1:]]
    return {words[0]: words[1] for words in rows if len(words) > 1}


def _elements_of_types(
    path: str | PathLike[str], lines: Sequence[str], ntypes: int
) -> dict[int, int]:
    """Atomic numbers of the types, from their labels or their masses."""
    labels = _words_by_type(lines, "Atom Type Labels", ntypes)
    if len(labels) == ntypes and all(label in atomic_numbers for label in labels.values()):
        return {int(key): atomic_numbers[label] for key, label in labels.items()}
    types = {label: key for key, label in labels.items()}
    elements: dict[int, int] = {}
    for key, word in _words_by_type(lines, "Masses", ntypes).items():
        mass = number(word)
        if mass is None:
            raise ValueError(f"'{path}' has the mass '{word}', expected a number")
        nearest = 1 + int(np.argmin(np.abs(atomic_masses[1:] - mass)))
        if abs(mass - atomic_masses[nearest]) < 0.1 * mass:
            elements[int(types.get(key, key))] = nearest
    if len(elements) != ntypes:
        raise ValueError(
            f"'{path}' tells the elements of {len(elements)} of its {ntypes} types, by labels or "
            "masses: give the elements of the types in order"
        )
    return elements


def enclosed(atoms: Atoms) -> Atoms:
    """The same structure in a box that holds all its atoms, as LAMMPS needs it.

    Along directions that are not periodic, cell vectors may be missing or too short: they are made
    long enough, and the atoms moved inside where they are not. Neither changes energies or forces.
    """
    result: Atoms = atoms.copy()
    result.set_cell(result.cell.complete())
    result.wrap()
    margin = 1.0  # of free space, angstrom
    for axis in np.flatnonzero(~result.pbc):
        height = result.get_volume() / result.cell.areas()[axis]
        heights = result.cell.scaled_positions(result.positions)[:, axis] * height
        needed = np.ptp(heights) + 2 * margin
        direction = result.cell[axis] / height  # one angstrom of height
        if heights.min() < margin or heights.max() > height - margin:
            result.positions += (margin - heights.min()) * direction
        result.cell[axis] = max(needed, height) * direction
    return result


#: Gives atoms charges, and their images, with ``atom_style atomic``.
CHARGES = "fix q all property/atom q ghost yes\n"


def read_command(
    atoms: Atoms, name: str, units: str = "metal", *, charges: bool = False, grows: bool = False
) -> str:
    """Input lines that read a data file of such a structure, whose atoms may get charges.

    Open directions of the box may grow with the atoms, as those that move want it.
    """
    boundary = " ".join("p" if periodic else "fm"[grows] for periodic in atoms.pbc)
    fix = CHARGES if charges else ""
    return f"units {units}\nboundary {boundary}\natom_modify map yes\n{fix}read_data {name}\n"


def plain_name(model: Path, folder: Path) -> str:
    """A name of a model file for an input that runs in a folder.

    LAMMPS would split, expand or cut names with some characters: of those there is a link.
    """
    name = str(model.resolve())
    if PLAIN.fullmatch(name):
        return name
    (folder / "model.pt").symlink_to(name)
    return "model.pt"


def read_dump(path: str | PathLike[str]) -> np.recarray:
    """Last frame of a text dump as a record array, sorted by atom ID."""
    *_, last = Path(path).read_text().split("ITEM: ATOMS ")
    head, *rows = last.strip().splitlines()
    data = np.array([tuple(map(float, row.split())) for row in rows]).reshape(len(rows), -1)
    names = head.split()
    data = data[np.argsort(data[:, names.index("id")])]
    return np.rec.fromarrays(list(data.T), dtype=[(name, float) for name in names])


def forces(atoms: np.recarray) -> np.ndarray:
    """Forces [n, 3] of a dump."""
    return np.stack([atoms.fx, atoms.fy, atoms.fz], axis=1)


def virial_to_lammps(virial: np.ndarray, prism: Prism) -> np.ndarray:
    """Six components, in LAMMPS's order and cell, of a virial [3, 3] in ase's cell."""
    turned = prism.vector_to_lammps(prism.vector_to_lammps(virial).T).T
    return np.array([turned[index] for index in VOIGT])


@dataclass(frozen=True)
class Thermo:
    """The thermo output in a log file, as it is when it is first asked for."""

    log: Path

    @functools.cached_property
    def _runs(self) -> list[ThermoRun]:
        return runs(self.log.read_text(errors="replace"))

    def columns(self, run: int = -1) -> dict[str, list[float]]:
        """Columns of one run command."""
        return {name: values.tolist() for name, values in self._runs[run].columns.items()}

    def vector(self, prefix: str, run: int = -1) -> np.ndarray:
        """Last row of the columns prefix[1], prefix[2], ..."""
        columns = self.columns(run)
        return np.array([columns[name][-1] for name in columns if name.startswith(prefix + "[")])

    def virial(self, units: str = "metal", run: int = -1) -> np.ndarray:
        """Virial of the pair style, six components in the order of VOIGT, in units of energy."""
        volume = self.columns(run)["Volume"][-1]
        return self.vector("c_press", run) * volume / PRESSURE_VOLUME[units]


class Measured(NamedTuple):
    """What lmp gives for a structure, in its cell."""

    energy: float
    atom_energy: np.ndarray  # [n]
    forces: np.ndarray  # [n, 3]
    virial: np.ndarray  # [6] in the order of VOIGT
    charges: np.ndarray | None = None  # [n] where wanted


def evaluate(
    lmp_program: program.Program,
    folder: Path,
    boxes: Sequence[Atoms],
    elements: Sequence[int],
    style: str,
    units: str = "metal",
    starter: mpirun.Mpirun | None = None,
    ranks: int = 1,
    timeout: float | None = None,
    charges: bool = False,
) -> list[Measured]:
    """Evaluate structures by a pair style, in one run.

    Args:
        lmp_program: the lmp.
        folder: for its files.
        boxes: structures that :func:`enclosed` has made.
        elements: atomic numbers of the types in order.
        style: lines with pair_style and pair_coeff.
        units: LAMMPS's.
        starter: of the ranks, or None for lmp alone.
        ranks: how many.
        timeout: seconds.
        charges: whether atoms have them.

    Raises:
        Failure: lmp fails, or does not finish in time.
    """
    text = ""
    for k, atoms in enumerate(boxes):
        write_data(folder / f"{k}.data", atoms, elements)
        read = read_command(atoms, f"{k}.data", units, charges=charges)
        dump = DUMP.replace("atoms.dump", f"{k}.dump")
        dump = dump.replace("c_peatom", "c_peatom q") if charges else dump
        text += f"clear\nbox tilt large\n{read}{style}{MEASURE}run 0\n{dump}"
    lmp_program.run(folder, text, starter, ranks, timeout=timeout)
    log = Thermo(folder / "log.lammps")
    dumps = [read_dump(folder / f"{k}.dump") for k in range(len(boxes))]
    return [
        Measured(
            log.columns(k)["PotEng"][-1],
            dump.c_peatom,
            forces(dump),
            log.virial(units, k),
            dump.q if charges else None,
        )
        for k, dump in enumerate(dumps)
    ]


def labelled(dump: Path, log: Path, units: str = "metal") -> list[Atoms]:
    """Frames of a dump with the energies, forces and stresses of the run that wrote it.

    Thermo output must come at the same steps as the frames, with *norm no* and the column PotEng.
    Stresses need c_press[1] to c_press[6] of `compute press all pressure NULL virial`, too.

    Args:
        dump: of style custom, sorted by id, with id element x y z fx fy fz.
        log: of a single run.
        units: LAMMPS's, metal or lj; stresses are in energy per volume, as ase has their sign.

    Raises:
        Failure: the numbers of frames and lines differ, or there is no column PotEng.
    """
    from ase.io import read  # noqa: PLC0415  slow to import

    # ase gives a list for a slice; its annotation has a single structure too.
    frames = cast("list[Atoms]", read(dump, index=":", format="lammps-dump-text"))
    columns = Thermo(log).columns(0)
    energies = columns.get("PotEng", [])
    if len(frames) != len(energies):
        raise Failure(
            f"found {len(frames)} frames in '{dump}' and {len(energies)} potential energies in "
            f"'{log}', expected as many: dump and thermo every so many steps, with pe"
        )
    pressures = [columns.get(f"c_press[{1 + VOIGT.index(k)}]", []) for k in ASE_VOIGT]
    for k, (atoms, energy) in enumerate(zip(frames, energies, strict=True)):
        results = {"energy": energy, "forces": atoms.get_forces()}
        if all(pressures):
            pressure = np.array([column[k] for column in pressures])
            results["stress"] = -(pressure / PRESSURE_VOLUME[units])
        atoms.calc = SinglePointCalculator(atoms, **results)
    return frames
