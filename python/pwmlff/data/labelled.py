"""One labelled structure, as the readers hand it on, and many of them as `Frames`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from pwmlff.data.frames import Frames
from pwmlff.report import Failure

LAST_ELEMENT = len(chemical_symbols) - 1


@dataclass
class Labelled:
    """One structure with the signs and units of `Frames`; a label that is missing is None."""

    species: np.ndarray  # [n] atomic numbers, or what the file calls its atoms
    positions: np.ndarray  # [n, 3]
    cell: np.ndarray  # [3, 3] cell vectors in rows
    pbc: np.ndarray  # bool [3]
    index: int  # in the file, from 0
    energy: float | None = None
    forces: np.ndarray | None = None  # [n, 3]
    virial: np.ndarray | None = None  # [3, 3]
    born: np.ndarray | None = None  # [n, 3, 3]
    total_charge: float = 0.0  # e
    group: str | None = None  # as the file names it
    free_energy: float | None = None  # where the file has one; `energy` is at sigma -> 0 then
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)  # of energy, forces and virial
    converged: bool = True  # its SCF, as far as the file tells
    odd: list[str] = field(default_factory=list)  # sentences that go on with "frame 3 of 'a.xyz'"


def element_numbers(species: np.ndarray, kinds: Mapping[str, str], where: str) -> np.ndarray:
    """Atomic numbers, int32 [n], of a structure.

    Args:
        species: [n] atomic numbers, or chemical symbols in any case of letters, or kinds.
        kinds: chemical symbols of what files call atoms of other kinds; of elements too.
        where: the structure, in messages.

    Raises:
        Failure: a kind is no element.
    """
    if species.dtype.kind in "iu":
        if not kinds:
            return species.astype(np.int32)
        species = np.array(chemical_symbols)[species]
    names, which = np.unique(species, return_inverse=True)
    numbers = [_number(kinds.get(name, name)) for name in names.tolist()]
    if unknown := [name for name, z in zip(names.tolist(), numbers, strict=True) if not z]:
        options = " ".join(f"--map {shlex.quote(name)}={_likely(name)}" for name in unknown)
        raise Failure(
            f"{where}: {', '.join(map(repr, unknown))} is no element, expected chemical symbols "
            f"like Hf: say of which element it is, as in {options} ([data] map of run.toml)"
        )
    return np.array(numbers, dtype=np.int32)[which.ravel()]


def _number(symbol: str) -> int:
    """Atomic number of a symbol in any case; 0 where it is of no element."""
    return int(atomic_numbers.get(symbol.capitalize(), 0))


def _likely(kind: str) -> str:
    """The element that a kind begins with, or one for an example."""
    letters = re.match("[A-Za-z]{0,2}", kind)
    assert letters is not None
    return next(
        (one.capitalize() for one in (letters[0], letters[0][:1]) if _number(one)), "ELEMENT"
    )


def require_elements(kinds: Mapping[str, str]) -> None:
    """Refuse kinds that are said to be of no element.

    Raises:
        Failure: one is.
    """
    for kind, symbol in kinds.items():
        if not _number(symbol):
            raise Failure(
                f"--map or [data] map says that '{kind}' is '{symbol}', expected a chemical symbol "
                "like Fe"
            )


def checked_numbers(numbers: np.ndarray, where: str) -> np.ndarray:
    """The same as int32.

    Raises:
        Failure: one is no atomic number.
    """
    bad = numbers[(numbers < 1) | (numbers > LAST_ELEMENT)]
    if len(bad):
        raise Failure(f"{where}: {bad[0]} is no atomic number, expected 1 to {LAST_ELEMENT}")
    return numbers.astype(np.int32)


def gathered(structures: Sequence[Labelled], file: str, group: str) -> Frames:
    """All structures of one file.

    Args:
        structures: at least one, with atomic numbers.
        file: how messages name it.
        group: of structures that name none.
    """
    names = [group if s.group is None else s.group for s in structures]
    group_names = tuple(dict.fromkeys(names))
    number_of = {name: k for k, name in enumerate(group_names)}
    natoms = [len(s.species) for s in structures]
    missing = np.full((max(3, *natoms), 3), np.nan)
    some_born = any(s.born is not None for s in structures)
    return Frames(
        numbers=np.concatenate([s.species for s in structures]).astype(np.int32),
        positions=np.concatenate([s.positions for s in structures]).astype(np.float64),
        cells=np.array([s.cell for s in structures], dtype=np.float64),
        pbc=np.array([s.pbc for s in structures], dtype=bool),
        first=np.r_[0, np.cumsum(natoms)].astype(np.int64),
        energies=np.array([np.nan if s.energy is None else s.energy for s in structures], float),
        forces=np.concatenate(
            [missing[: len(s.species)] if s.forces is None else s.forces for s in structures]
        ).astype(np.float64),
        virials=np.array(
            [missing[:3] if s.virial is None else s.virial for s in structures], float
        ),
        born=np.concatenate(
            [
                np.full((n, 3, 3), np.nan) if s.born is None else s.born
                for s, n in zip(structures, natoms, strict=True)
            ]
        )
        if some_born
        else np.zeros((0, 3, 3)),
        total_charges=np.array([s.total_charge for s in structures], dtype=np.float64),
        group=np.array([number_of[name] for name in names], dtype=np.int32),
        group_names=group_names,
        weights=np.array([s.weights for s in structures], dtype=np.float64),
        file=np.zeros(len(structures), dtype=np.int32),
        index=np.array([s.index for s in structures], dtype=np.int64),
        files=(file,),
    )
