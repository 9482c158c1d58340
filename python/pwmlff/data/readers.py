"""Files with labelled structures, of many formats, as one set of `Frames`.

Signs and units are those of `Frames`: eV, angstrom, forces -dE/dx, virials positive when
compressed. Which names of labels are known, and how a stress becomes a virial, is in `labels`.
"""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import read as ase_read
from ase.io.formats import UnknownFileTypeError, filetype, iread

from pwmlff.data import convergence, extxyz, movement
from pwmlff.data import deepmd_npy as deepmd
from pwmlff.data.frames import Frames
from pwmlff.data.labelled import Labelled, element_numbers, gathered, require_elements
from pwmlff.data.labels import labels_of, value_of
from pwmlff.files import without_mark
from pwmlff.report import Failure, ranges

log = logging.getLogger(__name__)

DPDATA = "dpdata:"
#: Which energy is taken where a file has two: that which forces belong to, or that at sigma -> 0.
FREE, ZERO = "free", "zero"
#: Formats of which dpdata reads the free energy alone, and those where it reads another one.
FREE_OF_DPDATA = ("vasp/outcar", "outcar", "vasp/xml", "xml")
NOT_FREE_OF_DPDATA = ("fhi_aims/", "siesta/")
#: The least root mean square force, and torque over the root sum of squares, of what is no cluster.
WEAK, TORQUE = 0.05, 0.3
KEEP = "--keep-unconverged"
NO_KINDS: Mapping[str, str] = MappingProxyType({})
NONE = "none of {} frames of '{}' has a converged SCF, expected one or more"
#: Formats of which dpdata leaves out frames without a converged SCF, as they have no energy.
DROPPING = f"{DPDATA}abacus/"
#: What dpdata says of those that it is asked to keep.
SAID_OF_UNCONVERGED = "The following structures were unconverged"
APART = 1e-6  # energies per atom that differ by more are two
#: Formats with a reader of this project: dpdata's lose frames, or mix atoms up.
OWN: dict[str, Callable[[Path], Iterator[Labelled]]] = {
    "extxyz": extxyz.frames,
    "movement": movement.frames,
    "deepmd": deepmd.frames,
}
#: What dpdata calls what one of these readers reads.
REPLACED = {
    "xyz": "extxyz", "extxyz": "extxyz", "quip/gap/xyz": "extxyz", "quip/gap/xyz_file": "extxyz",
    "gap/xyz": "extxyz", "mace/xyz": "extxyz", "nequip/xyz": "extxyz", "gpumd/xyz": "extxyz",
    "movement": "movement", "mlmd": "movement", "pwmat/movement": "movement",
    "pwmat/mlmd": "movement", "pwmat/output": "movement",
    "deepmd/npy": "deepmd", "deepmd/comp": "deepmd", "deepmd/npy/mixed": "deepmd",
    "ase/traj": "traj",  # of which dpdata has the free energy alone
}  # fmt: skip


def read(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    format: str | None = None,
    energy: str = FREE,
    warn: Callable[[str], None] = log.warning,
    keep_unconverged: bool = False,
    kinds: Mapping[str, str] = NO_KINDS,
) -> Frames:
    """Read labelled structures.

    Args:
        files: names of files, or folders of DeePMD-kit systems; `FILE@0:100:2` takes a slice of
            the frames and `FILE@-1` one of them, as ase has it.
        format: extxyz, movement, deepmd, a format of ase's, or `dpdata:` and one of dpdata's;
            by the file when None.
        energy: which one is taken of frames that have two: "free" for the free energy, which
            forces belong to, or "zero" for that at sigma -> 0.
        warn: is told what is odd, once for all structures of which it is.
        keep_unconverged: take frames whose SCF did not converge, too.
        kinds: chemical symbols of what files call atoms, like Fe of Fe1.

    Returns:
        All frames, in the order of the files; the group of one is its key `group` or `config_type`,
        or its file where it has none.

    Raises:
        Failure: a file cannot be read; the text names it and the frame.
    """
    if energy not in {FREE, ZERO}:
        raise Failure(f"energy is '{energy}', expected {FREE} or {ZERO}")
    require_elements(kinds)
    specs = [files] if isinstance(files, str | PathLike) else list(files)
    if not specs:
        raise Failure("found no DATA, expected files or folders with labelled structures")
    parts = []
    odd: dict[str, list[str]] = defaultdict(list)  # where, by the rest of the sentence
    differing: list[tuple[float, str]] = []
    try:
        for spec in specs:
            path, wanted = split(fspath(spec))
            kind = reader_of(path, format)
            if text := _odd_of_dpdata(kind, energy, path):
                odd[text].append(f"'{path}'")
            for source in deepmd.systems(path) if kind == "deepmd" else [path]:
                structures = _taken(_frames(source, kind), wanted, fspath(spec))
                structures = _converged(structures, source, keep_unconverged, odd)
                for structure in structures:
                    where = f"frame {structure.index} of '{source}'"
                    structure.species = element_numbers(structure.species, kinds, where)
                    for text in structure.odd:
                        odd[text].append(where)
                    if (difference := _choose_energy(structure, energy)) > APART:
                        differing.append((difference, where))
                name = source.name if kind == "deepmd" else source.stem
                parts.append(gathered(structures, str(source), name))
        frames = Frames.joined(parts)
        for text, chosen in _odd_of_cells(frames):
            odd[text] += map(frames.where, chosen)
    finally:  # what is odd may be why the rest fails
        if differing:
            odd[_two_energies(max(differing)[0], energy)] += [where for _, where in differing]
        for text, places in odd.items():
            others = f" ({len(places)} structures)" if len(places) > 1 else ""
            warn(f"{places[0]}{others} {text}")
    return frames


def structures(name: str, format: str | None = None, by_ase: bool = False) -> list[Atoms]:
    """Structures of a file: the last one, or those that `FILE@0:5` stands for.

    Those with labels have a calculator that holds them.

    Args:
        name: of the file, with its frames.
        format: as ase calls it; as the file looks when None.
        by_ase: whether ase reads extended XYZ, with all that it keeps, like magnetic moments.

    Raises:
        Failure: the file cannot be read.
    """
    file = name if Path(name).exists() else name.rpartition("@")[0] or name
    if Path(file).exists():
        kind = reader_of(Path(file), format)
        own = kind in OWN and not (by_ase and kind == "extxyz")
        if own or kind.startswith(DPDATA):
            frames = read(name if file != name else f"{name}@-1", format)
            return [frames.atoms(k) for k in range(len(frames))]
    try:
        with without_mark(file) as bare:
            index = name.removeprefix(file)[1:] or None
            images = ase_read(bare, index, format, do_not_split_by_at_sign=True)
    except Exception as error:  # whatever its readers stumble over
        raise Failure(
            f"ase cannot read '{name}' ({_text(error)}); give a file that it knows, FILE@0:5 for "
            "the first five frames"
        ) from error
    return images if isinstance(images, list) else [images]


def split(spec: str) -> tuple[Path, slice]:
    """The file and the frames that a name like 'train.xyz@:100' stands for; all where not said.

    Raises:
        Failure: there is no such file, or what follows the @ is no slice.
    """
    path, name, wanted = Path(spec), spec, slice(None)
    if not path.exists() and "@" in path.name:
        name, _, text = spec.rpartition("@")
        try:
            numbers = [int(word) if word.strip() else None for word in text.split(":")]
            one = int(text) if len(numbers) == 1 else None
            wanted = slice(*numbers) if one is None else slice(one, one + 1 or None)
            wanted.indices(0)  # refuses steps of 0
        except (TypeError, ValueError):
            raise Failure(
                f"'{spec}' asks for the frames '{text}', expected a slice like 0:100:2 or a number"
            ) from None
        path = Path(name)
    if not path.exists():
        raise Failure(f"found no file '{name}'")
    if path.is_file() and path.stat().st_size == 0:
        raise Failure(f"'{name}' is empty, expected labelled structures")
    return path, wanted


def reader_of(path: Path, format: str | None = None) -> str:
    """The format of a file that is read, where this project has one of its own in its place."""
    kind = format or guess(path)
    return REPLACED.get(kind.removeprefix(DPDATA), kind)


def guess(path: Path) -> str:
    """The format of a file, by its name or its first line.

    Raises:
        Failure: it is not known.
    """
    if path.is_dir():
        return "deepmd"
    plain = path.with_suffix("") if path.suffix in {".gz", ".bz2", ".xz"} else path
    if plain.suffix in {".xyz", ".extxyz"}:
        return "extxyz"
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        if movement.HEADER.match(file.readline(1000)):
            return "movement"
    try:
        with without_mark(path) as bare:
            return str(filetype(bare))
    except UnknownFileTypeError:
        raise Failure(
            f"the format of '{path}' is not known from its name or contents; say it: extxyz, "
            "movement, deepmd, one of ase's formats, or dpdata: and one of dpdata's"
        ) from None


def _taken(structures: Iterator[Labelled], wanted: slice, spec: str) -> list[Labelled]:
    """Those that a slice stands for; what comes after them is not read."""
    bounds = wanted.start, wanted.stop, wanted.step
    count = 0

    def counted() -> Iterator[Labelled]:
        nonlocal count
        for count, structure in enumerate(structures, 1):  # noqa: B007
            yield structure

    if any(bound is not None and bound < 0 for bound in bounds):
        chosen = list(counted())[wanted]
    else:
        chosen = list(islice(counted(), *bounds))
    if not chosen:
        count += sum(1 for _ in structures)
        raise Failure(f"found no frame in '{spec}'" + f", which has {count}" * bool(count))
    return chosen


def _choose_energy(structure: Labelled, wanted: str) -> float:
    """Make its energy the one that is wanted, and return how far its two are apart per atom."""
    free, energy = structure.free_energy, structure.energy
    if free is None:
        return 0.0
    if energy is None or wanted == FREE:
        structure.energy = free
    return 0.0 if energy is None else abs(free - energy) / max(1, len(structure.species))


def _two_energies(largest: float, wanted: str) -> str:
    taken, reason, option = (
        ("the free energy", "which forces belong to", ZERO)
        if wanted == FREE
        else ("the energy at sigma -> 0", "as asked for, though forces belong to the other", FREE)
    )
    return (
        f"has a free energy and another energy, up to {largest:.3g} per atom apart: {taken} is "
        f"taken, {reason}; --energy {option} takes the other one"
    )


def _odd_of_cells(frames: Frames) -> Iterator[tuple[str, np.ndarray]]:
    """What is odd about frames without a cell, and which these are."""
    whole = frames.pbc.any(axis=1)
    bare = np.flatnonzero(~whole & (frames.natoms > 1))
    turned = [k for k in bare.tolist() if _turns(frames, k)]
    if turned:
        yield (
            "has no cell, but its forces turn it, as they do in a piece of a crystal and never "
            "in a molecule or cluster: write its Lattice",
            np.array(turned),
        )
    if len(bare) and whole.any():
        yield (
            f"has no cell, beside {whole.sum()} frames with one: right for molecules and clusters "
            "alone",
            bare,
        )


def _turns(frames: Frames, k: int) -> bool:
    """Whether forces have a torque, which those of atoms in free space have not.

    Atoms without a force may be held; a torque of random forces is the root of two thirds of the
    sum of squares of distance times force.
    """
    rows = frames.rows(k)
    forces = frames.forces[rows] - frames.forces[rows].mean(axis=0)
    held = (frames.forces[rows] == 0.0).all(axis=1)
    if held.any() or not np.sqrt((forces**2).sum(axis=1).mean()) > WEAK:
        return False
    x = frames.positions[rows] - frames.positions[rows].mean(axis=0)
    random = np.sqrt(2.0 / 3.0 * ((x**2).sum(axis=1) * (forces**2).sum(axis=1)).sum())
    return bool(np.linalg.norm(np.cross(x, forces).sum(axis=0)) > TORQUE * random)


def _odd_of_dpdata(kind: str, wanted: str, path: Path) -> str:
    """Refuse what dpdata does not read, and say where it reads what forces do not belong to."""
    name = kind.removeprefix(DPDATA) if kind.startswith(DPDATA) else ""
    if name in FREE_OF_DPDATA and wanted == ZERO:
        raise Failure(
            f"dpdata reads the free energy of '{path}' ('{name}') and no other, expected one at "
            "sigma -> 0: let ase read it (--format vasp-out or vasp-xml), or leave out --energy"
        )
    if not name.startswith(NOT_FREE_OF_DPDATA) or wanted != FREE:
        return ""
    return (
        f"is read by dpdata as '{name}', which takes an energy that is not the free energy, "
        "so that forces do not belong to it where there is smearing; let ase read it"
    )


def _converged(
    structures: list[Labelled], source: Path, every: bool, odd: dict[str, list[str]]
) -> list[Labelled]:
    """Those whose SCF converged, or all; tell how many and which did not."""
    bad = [one.index for one in structures if not one.converged]
    if not bad:
        return structures
    if len(bad) == len(structures) and not every:
        raise Failure(NONE.format(len(bad), source) + f"; {KEEP} takes them")
    taken = f"taken all the same ({KEEP})" if every else f"left out; {KEEP} takes them"
    odd[
        f"has {len(bad)} of {len(structures)} frames whose SCF did not converge: {ranges(bad)}; "
        f"they are {taken}"
    ].append(f"'{source}'")
    return structures if every else [one for one in structures if one.converged]


def _frames(path: Path, kind: str) -> Iterator[Labelled]:
    if kind in OWN:
        return OWN[kind](path)
    converged = convergence.outcomes(path, kind)
    drops = kind.startswith(DROPPING)
    if drops and converged and not any(converged):
        raise Failure(NONE.format(len(converged), path))
    frames = _read_by_package(path, kind)
    return frames if all(converged) else _judged(list(frames), converged, path, drops)


def _read_by_package(path: Path, kind: str) -> Iterator[Labelled]:
    """Frames of a format that another package reads, of which few know a byte order mark."""
    with without_mark(path) as bare:
        if kind.startswith(DPDATA):
            yield from _read_by_dpdata(path, bare, kind.removeprefix(DPDATA))
        else:
            yield from _read_by_ase(path, bare, kind)


def _judged(
    frames: list[Labelled], converged: list[bool], path: Path, drops: bool
) -> Iterator[Labelled]:
    """The same, and which of them have converged.

    Raises:
        Failure: there are other frames than the steps that the file tells of.
    """
    bad = [step for step, good in enumerate(converged) if not good]
    if not frames:
        raise Failure(NONE.format(len(bad), path))
    if drops and len(frames) == len(converged) - len(bad):
        frames[0].odd.append(
            f"stands beside {len(bad)} whose SCF did not converge, steps {ranges(bad)}: dpdata "
            "leaves these out"
        )
    elif len(frames) in {1, len(converged)}:
        for frame, good in zip(frames, converged[-len(frames) :], strict=True):
            frame.converged = good
    else:
        raise Failure(
            f"'{path}' tells of {len(converged)} steps, {len(bad)} of which have no converged SCF, "
            f"and its reader finds {len(frames)} frames, expected as many: let another one read it "
            "(--format)"
        )
    return iter(frames)


def _read_by_ase(path: Path, bare: str, kind: str) -> Iterator[Labelled]:
    """Frames of any other format that ase reads, with the results of its calculators."""
    index = 0
    frames: Iterator[Atoms] = iread(bare, index=":", format=kind, do_not_split_by_at_sign=True)
    while True:
        try:
            atoms = next(frames)
        except StopIteration:
            return
        except UnknownFileTypeError as error:
            raise Failure(f"'{kind}' is no format of '{path}' that is known: {error}") from None
        except Exception as error:  # whatever its readers stumble over
            hint = f"; try --format {DPDATA}vasp/outcar" if kind == "vasp-out" else ""
            raise Failure(
                f"ase cannot read frame {index} of '{path}' as '{kind}': {_text(error)}{hint}"
            ) from error
        results = getattr(atoms.calc, "results", {})
        name = "born_effective_charges"
        born = {name: results[name]} if name in results else {}
        labels = labels_of(
            {**atoms.info, **_only(results, "energy", "free_energy", "stress")},
            {**atoms.arrays, **_only(results, "forces"), **born},
            np.asarray(atoms.cell),
            len(atoms),
            f"frame {index} of '{path}'",
        )
        yield Labelled(
            atoms.numbers, atoms.positions, np.asarray(atoms.cell), atoms.pbc, index, **labels
        )
        index += 1


def _only(results: dict[str, Any], *labels: str) -> dict[str, Any]:
    values = {label: value_of(results, label, []) for label in labels}
    return {label: value for label, value in values.items() if value is not None}


def _read_by_dpdata(path: Path, bare: str, kind: str) -> Iterator[Labelled]:
    """Frames of a format that dpdata reads; its virials are in eV, positive when compressed."""
    try:
        import dpdata  # noqa: PLC0415  an optional dependency
    except ImportError:
        raise Failure(
            f"'{path}' is to be read by dpdata, which is not installed: pip install dpdata"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", SAID_OF_UNCONVERGED)
            data = _systems(dpdata, bare, kind)
    except Exception as error:  # whatever its readers stumble over
        raise Failure(f"dpdata cannot read '{path}' as '{kind}': {_text(error)}") from error
    index = 0
    for system in data:
        species = np.array(system["atom_names"], dtype=str)[system["atom_types"]]
        periodic = not system.get("nopbc", False)
        for k in range(len(system["coords"])):
            yield Labelled(
                species,
                system["coords"][k],
                system["cells"][k] if periodic else np.zeros((3, 3)),
                np.full(3, periodic),
                index,
                float(system["energies"][k]) if "energies" in system else None,
                system["forces"][k] if "forces" in system else None,
                system["virials"][k] if "virials" in system else None,
            )
            index += 1


def _systems(dpdata: Any, path: str, kind: str) -> list[dict[str, Any]]:
    """All systems of a file. As one alone, dpdata keeps a single composition, or none."""
    try:
        systems: Any = dpdata.MultiSystems().load_systems_from_file(path, fmt=kind)
        every = [system.data for system in systems]
    except (NotImplementedError, TypeError):  # of a file of HDF5 with one system the latter
        every = []
    if not every:
        every = [dpdata.LabeledSystem(path, fmt=kind, convergence_check=False).data]
    return every


def _text(error: Exception) -> str:
    """What an error of another package says, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
