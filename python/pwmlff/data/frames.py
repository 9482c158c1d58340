"""Labelled structures, one after another in plain arrays."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.stress import full_3x3_to_voigt_6_stress

from pwmlff.report import ranges

#: Groups of atoms in free space, by their letters alone.
ISOLATED = ("isolatedatom", "isolatedatoms")
#: Labels, in the order of `Frames.weights`, and what a header calls their weights.
QUANTITIES = {
    "energy": "config_energy_weight",
    "force": "config_forces_weight",
    "virial": "config_stress_weight",
}


def rows_of(first: np.ndarray, chosen: Iterable[int]) -> np.ndarray:
    """What belongs to some frames, one frame after another.

    Args:
        first: int64 [nframes + 1] where the atoms, or the edges, of a frame begin.
        chosen: frames.
    """
    spans = [np.arange(first[k], first[k + 1]) for k in chosen]
    return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)


def _padded(born: np.ndarray, natoms: int) -> np.ndarray:
    """Born charges of a set without them as those of one where others have some."""
    return born if len(born) else np.full((natoms, 3, 3), np.nan)


def named(frames: Frames, chosen: Iterable[int]) -> str:
    """Frames for a message: frames 3-17, 40 of 'a.xyz'; frame 2 of 'b.xyz'."""
    by_file: dict[str, list[int]] = {}
    for k in chosen:
        by_file.setdefault(frames.files[frames.file[k]], []).append(int(frames.index[k]))
    return "; ".join(
        f"frame{'s' * (len(numbers) > 1)} {ranges(numbers)} of '{file}'"
        for file, numbers in by_file.items()
    )


@dataclass(frozen=True)
class Frames:
    """Structures of any size and composition with energies, forces and virials.

    Energies and lengths are in eV and angstrom, or reduced for a model of units "lj". A label that
    is missing is NaN: the energy, the forces of all atoms of a frame, the whole virial.
    """

    numbers: np.ndarray  # int32 [natoms] atomic numbers
    positions: np.ndarray  # [natoms, 3]
    cells: np.ndarray  # [nframes, 3, 3] cell vectors in rows
    pbc: np.ndarray  # bool [nframes, 3]
    first: np.ndarray  # int64 [nframes + 1] where the atoms of a frame begin
    energies: np.ndarray  # [nframes] of the whole structure
    forces: np.ndarray  # [natoms, 3] -dE/dx
    virials: (
        np.ndarray
    )  # [nframes, 3, 3] sum of r_ij (x) f_ij: LAMMPS's sign, -volume * ase's stress
    born: np.ndarray  # [natoms, 3, 3] e, Born charges: component of the dipole moment, then of the
    #   position; NaN where a frame has none; [0, 3, 3] where no frame has
    total_charges: np.ndarray  # [nframes] e; 0 where a file does not say
    group: np.ndarray  # int32 [nframes] index into group_names
    group_names: tuple[str, ...]  # what users weight and report by
    weights: np.ndarray  # [nframes, 3] of energy, forces and virial, as files say; else 1
    file: np.ndarray  # int32 [nframes] index into files
    index: np.ndarray  # int64 [nframes] of the frame in its file, from 0
    files: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.energies)

    @cached_property
    def natoms(self) -> np.ndarray:
        """Atoms of each frame, int64 [nframes]."""
        return np.diff(self.first)

    @property
    def energies_per_atom(self) -> np.ndarray:
        """Energy over the number of atoms of each frame [nframes]."""
        per_atom: np.ndarray = self.energies / np.maximum(self.natoms, 1)
        return per_atom

    @property
    def volumes(self) -> np.ndarray:
        """Volume of the cell of each frame [nframes]; zero where it has none."""
        volumes: np.ndarray = np.abs(np.linalg.det(self.cells))
        return volumes

    @property
    def force_sizes(self) -> np.ndarray:
        """Length of the force on each atom [natoms]."""
        with np.errstate(invalid="ignore"):
            sizes: np.ndarray = np.sqrt((self.forces**2).sum(axis=1))
        return sizes

    def reduce_atoms(
        self, values: np.ndarray, combine: np.ufunc, empty: float = np.nan
    ) -> np.ndarray:
        """Values of atoms [natoms] combined over each frame, [nframes]; `empty` without atoms."""
        result = np.full(len(self), empty, dtype=values.dtype)
        filled = self.natoms > 0
        if filled.any():
            result[filled] = combine.reduceat(values, self.first[:-1][filled])
        return result

    @property
    def group_sizes(self) -> dict[str, int]:
        """Frames of each group by its name."""
        sizes = np.bincount(self.group, minlength=len(self.group_names))
        return dict(zip(self.group_names, sizes.tolist(), strict=True))

    @cached_property
    def counts(self) -> np.ndarray:
        """Atoms of each of `elements` in each frame, int64 [nframes, nelements]."""
        counts = np.zeros((len(self), len(self.elements)), dtype=np.int64)
        frame = np.repeat(np.arange(len(self)), self.natoms)
        np.add.at(counts, (frame, np.searchsorted(self.elements, self.numbers)), 1)
        return counts

    @cached_property
    def isolated(self) -> np.ndarray:
        """Which frames are one atom in free space, by cell or by name, bool [nframes]."""
        names = [re.sub("[^a-z]", "", name.lower()) for name in self.group_names]
        called = np.array([name in ISOLATED for name in names], dtype=bool)[self.group]
        result: np.ndarray = (self.natoms == 1) & (called | ~self.pbc.any(axis=1))
        return result

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of structures and labels, in their order; not of names of files and groups."""
        digest = hashlib.sha256()
        for entry in fields(self):
            if entry.name in {"group", "file", "index"}:
                continue
            value = getattr(self, entry.name)
            usual = {"weights": 1.0, "total_charges": 0.0}.get(entry.name)
            if usual is not None and (value == usual).all():
                continue  # as data without them always had it
            if entry.name == "born" and not self.has_born.any():
                continue
            if isinstance(value, np.ndarray):
                # Of one byte order and one width on every machine.
                kind = "<f8" if value.dtype.kind == "f" else "<i8"
                digest.update(f"{entry.name} {value.shape} ".encode())
                digest.update(np.ascontiguousarray(value, dtype=kind).tobytes())
        return digest.hexdigest()

    @cached_property
    def labelled(self) -> dict[str, np.ndarray]:
        """Which frames have a label, bool [nframes], by "energy", "force" and "virial"."""
        # All forces of a frame are there, or none is.
        has_atoms = self.natoms > 0
        force = has_atoms.copy()
        force[has_atoms] = ~np.isnan(self.forces[self.first[:-1][has_atoms], 0])
        return {
            "energy": ~np.isnan(self.energies),
            "force": force,
            "virial": ~np.isnan(self.virials[:, 0, 0]),
        }

    @cached_property
    def has_born(self) -> np.ndarray:
        """Which frames have Born charges, bool [nframes]."""
        result = np.zeros(len(self), dtype=bool)
        if len(self.born):
            filled = self.natoms > 0
            result[filled] = ~np.isnan(self.born[self.first[:-1][filled], 0, 0])
        return result

    def shares(
        self,
        quantity: str,
        batch: np.ndarray,
        of_frame: np.ndarray,
        weight: float,
        *,
        batchwise: bool = False,
    ) -> np.ndarray:
        """What the error of each frame of a batch counts in a loss; 0 without a label.

        Args:
            quantity: of `labelled`, or "born" for Born charges, which have the weights of forces.
            batch: frames.
            of_frame: [nframes] weights of the frames, beside their own.
            weight: what the shares add up to, but for batches whose frames weigh less than the mean
                of all: weights hold between batches too. Those that weigh more do not get more, or
                steps would jump.
            batchwise: whether the shares of each batch add up to the weight.
        """
        has_label = self.has_born if quantity == "born" else self.labelled[quantity]
        own = self._own_weights[quantity]
        share = of_frame[batch] * own[batch]
        total = share.sum()
        if not batchwise:
            mean = (of_frame @ own) / max(1, np.count_nonzero(has_label))
            total = max(total, mean * np.count_nonzero(has_label[batch]))
        result: np.ndarray = share * (weight / total if total > 0.0 else 0.0)
        return result

    @cached_property
    def _own_weights(self) -> dict[str, np.ndarray]:
        """Weights that files give to labels, [nframes], 0 without one; named as in `shares`."""
        columns = dict(zip(QUANTITIES, self.weights.T, strict=True))
        result = {k: np.where(self.labelled[k], columns[k], 0.0) for k in QUANTITIES}
        return result | {"born": np.where(self.has_born, columns["force"], 0.0)}

    @cached_property
    def elements(self) -> list[int]:
        """Atomic numbers that occur, ascending."""
        return [int(z) for z in np.unique(self.numbers)]

    def where(self, k: int) -> str:
        """Name frame k for a message."""
        return f"frame {self.index[k]} of '{self.files[self.file[k]]}'"

    def rows(self, k: int) -> slice:
        """Where the atoms of frame k are."""
        return slice(self.first[k], self.first[k + 1])

    def frame_of(self, atom: int) -> int:
        """The frame that holds an atom of the set."""
        return int(np.searchsorted(self.first, atom, side="right")) - 1

    def structure(self, k: int) -> Atoms:
        """Frame k for ase, without its labels."""
        rows = self.rows(k)
        return Atoms(self.numbers[rows], self.positions[rows], cell=self.cells[k], pbc=self.pbc[k])

    def atoms(self, k: int) -> Atoms:
        """Frame k for ase, with its labels in a SinglePointCalculator, and its weights.

        A virial becomes a stress, which only a cell with a volume has.
        """
        rows, atoms = self.rows(k), self.structure(k)
        labels: dict[str, Any] = {}
        if not np.isnan(self.energies[k]):
            labels["energy"] = float(self.energies[k])
        if not np.isnan(self.forces[rows]).any():
            labels["forces"] = self.forces[rows]
        if atoms.cell.rank == 3 and not np.isnan(self.virials[k]).any():
            labels["stress"] = full_3x3_to_voigt_6_stress(-self.virials[k] / atoms.get_volume())
        atoms.calc = SinglePointCalculator(atoms, **labels)
        weights = zip(QUANTITIES.values(), self.weights[k].tolist(), strict=True)
        atoms.info |= {name: weight for name, weight in weights if weight != 1.0}
        if self.has_born[k]:
            atoms.arrays["born_effective_charges"] = self.born[rows].reshape(-1, 9)
        if self.total_charges[k]:
            atoms.info["charge"] = float(self.total_charges[k])
        return atoms

    def select(self, frames: Sequence[int] | np.ndarray) -> Frames:
        """Some of the frames, in the order given."""
        frames = np.asarray(frames, dtype=np.int64)
        rows = rows_of(self.first, frames)
        per_atom = {"numbers", "positions", "forces"}
        values = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name in per_atom or (entry.name == "born" and len(value)):
                value = value[rows]
            elif entry.name == "first":
                value = np.r_[0, np.cumsum(self.natoms[frames])].astype(np.int64)
            elif isinstance(value, np.ndarray) and entry.name != "born":  # of no frame
                value = value[frames]
            values[entry.name] = value
        return Frames(**values)

    @classmethod
    def joined(cls, parts: Iterable[Frames]) -> Frames:
        """Frames of several sets, one after another; groups and files of one name are one."""
        parts = list(parts)
        counts = np.concatenate([p.natoms for p in parts])
        values: dict[str, Any] = {"first": np.r_[0, np.cumsum(counts)].astype(np.int64)}
        for number, names in (("group", "group_names"), ("file", "files")):
            every = tuple(dict.fromkeys(name for p in parts for name in getattr(p, names)))
            renumbered = [
                np.array([every.index(name) for name in getattr(p, names)], dtype=np.int32)
                for p in parts
            ]
            values[names] = every
            values[number] = np.concatenate(
                [new[getattr(p, number)] for new, p in zip(renumbered, parts, strict=True)]
            )
        some = any(len(p.born) for p in parts)
        values["born"] = np.concatenate(
            [_padded(p.born, len(p.numbers)) if some else p.born for p in parts]
        )
        for name in {entry.name for entry in fields(cls)} - values.keys():
            values[name] = np.concatenate([getattr(p, name) for p in parts])
        return cls(**values)
