"""Energies and forces of three clusters that a model had when its file was written.

They tell whether the file gives them still: whether a weight, or the order of the elements, is
another. They stand in the file, where torch has extra files; of a nep.txt, which has no place for
them, in a file beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ase import Atoms

from pwmlff.evaluation import archive, model_file
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.structures import CLUSTER_BOX, in_box, random_cluster

SELF_TEST = "self-test.json"
#: Of each cluster: the seed, and the shortest distance in cutoffs.
CLUSTERS = ((20250722, 0.4), (1, 0.35), (2, 0.3))
#: By which energies of atoms and forces may differ on another machine, as a share of the largest
#: (at least 1 eV and 1 eV/angstrom), where a model computes in float64 and in float32.
TOLERANCES = {False: 1e-9, True: 1e-5}
#: The same, times what the file differed by from its original when it was written.
ROOM = 10.0

#: Of a structure: energies of atoms [n], eV, and forces [n, 3], eV/angstrom.
Values = tuple[np.ndarray, np.ndarray]


class Change(NamedTuple):
    """What a file gives otherwise than it did."""

    largest: float  # share, as of TOLERANCES
    tolerance: float  # that is allowed

    @property
    def text(self) -> str:
        """What is wrong, to go on after the name of the file; empty where nothing is."""
        if self.largest <= self.tolerance:
            return ""
        return (
            f"gives other numbers than when it was written: they differ by {self.largest:.1e} of "
            f"the largest, allowed {self.tolerance:.1e}; get the file again"
        )


def clusters(info: model_file.ModelInfo) -> list[Atoms]:
    """Structures that a model takes, with all of its elements."""
    structures = [
        random_cluster(info.cutoff, info.atom_type, info.limit, seed, apart)
        for seed, apart in CLUSTERS
    ]
    box = CLUSTER_BOX * info.cutoff
    return [in_box(atoms, box) for atoms in structures] if info.has_charges else structures


def difference(ours: Values, theirs: Values) -> float:
    """The largest of energies of atoms and of forces, as a share of the largest of theirs."""
    shares = []
    for one, other in zip(ours, theirs, strict=True):
        largest = max(1.0, float(np.abs(other).max(initial=0.0)))
        shares.append(float(np.abs(one - other).max(initial=0.0)) / largest)
    return float(np.max(shares))  # no number is the largest


def made(structures: Sequence[Atoms], values: Sequence[Values], tolerance: float) -> dict[str, Any]:
    """What is kept.

    Args:
        structures: as :func:`clusters` makes them.
        values: of each, by the original.
        tolerance: share by which the file may differ from them.
    """
    cases = [
        {
            "numbers": atoms.numbers.tolist(),
            "positions": atoms.positions.tolist(),
            **({"cell": atoms.cell.tolist()} if atoms.pbc.any() else {}),
            "energies": energies.tolist(),
            "forces": forces.tolist(),
        }
        for atoms, (energies, forces) in zip(structures, values, strict=True)
    ]
    return {"tolerance": tolerance, "structures": cases}


def of_file(path: Path, info: model_file.ModelInfo) -> dict[str, Any] | None:
    """What is kept of a file, of unknown types; None where nothing is."""
    if not info.scripted:
        return archive.extra_of_companion(path, SELF_TEST)
    return archive.extra_json(path.read_bytes(), SELF_TEST)


def change_of(path: Path, info: model_file.ModelInfo) -> Change | None:
    """What a file gives otherwise than when it was written; None where it does not tell.

    Its own code runs.

    Raises:
        ValueError: what is kept cannot be read, or the model does not take the structures; the text
            goes on after the name of the file.
    """
    if (record := of_file(path, info)) is None:
        return None
    try:
        tolerance = float(record["tolerance"])
        cases = [
            (
                Atoms(
                    case["numbers"], case["positions"], cell=case.get("cell"), pbc="cell" in case
                ),
                (np.array(case["energies"], dtype=float), np.array(case["forces"], dtype=float)),
            )
            for case in record["structures"]
        ]
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"has a {SELF_TEST} that is not as it is written: {error}") from error
    engine = choose(path, "torchscript" if info.scripted else "auto", "exact").engine
    shares = []
    for atoms, values in cases:
        try:
            result = engine(atoms)
            shares.append(difference((result.atom_energy, result.forces), values))
        except ValueError as error:
            raise ValueError(f"does not take a structure that it took once: {error}") from error
    return Change(float(np.max(shares)), tolerance)
