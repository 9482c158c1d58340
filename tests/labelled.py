"""Labelled structures for tests, without files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from pwmlff.train.frames import Frames


def frames_of(
    structures: Sequence[Atoms],
    energies: Sequence[float] | None = None,
    forces: Sequence[np.ndarray] | None = None,
    virials: Sequence[np.ndarray] | None = None,
    groups: Sequence[str] | None = None,
    file: str = "frames.extxyz",
) -> Frames:
    """Structures with labels; NaN where none are given."""
    n = len(structures)
    counts = [len(atoms) for atoms in structures]
    groups = ["all"] * n if groups is None else groups
    names = tuple(dict.fromkeys(groups))
    nothing = [np.full((count, 3), np.nan) for count in counts]
    return Frames(
        numbers=np.concatenate([atoms.numbers for atoms in structures]).astype(np.int32),
        positions=np.concatenate([atoms.positions for atoms in structures]),
        cells=np.array([np.asarray(atoms.cell) for atoms in structures]),
        pbc=np.array([atoms.pbc for atoms in structures]),
        first=np.r_[0, np.cumsum(counts)].astype(np.int64),
        energies=np.full(n, np.nan) if energies is None else np.array(energies, float),
        forces=np.concatenate(nothing if forces is None else list(forces)),
        virials=np.full((n, 3, 3), np.nan) if virials is None else np.array(virials, float),
        group=np.array([names.index(group) for group in groups], dtype=np.int32),
        group_names=names,
        file=np.zeros(n, dtype=np.int32),
        index=np.arange(n, dtype=np.int64),
        files=(file,),
    )
