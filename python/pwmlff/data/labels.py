"""Which of the many names of a label are the same thing, and with which sign.

Energies are of the whole structure (eV), forces -dE/dx (eV/angstrom), virials the sum of
r_ij (x) f_ij (eV): positive diagonal when compressed. With smearing, forces belong to the free
energy, and the energy at sigma -> 0 is another number: both are kept, and `readers` chooses. A
stress (eV/angstrom^3) has the sign of ase, stress = -virial / volume, and six numbers are in the
order xx yy zz yz xz xy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from ase.stress import voigt_6_to_full_3x3_stress

from pwmlff.report import Failure

#: Who names a label so means it: these go before names without a prefix.
PREFIXES = ("ref_", "dft_", "")
#: Names in lower case without a prefix, those that go first first.
NAMES = {
    "energy": ("energy", "total_energy", "etot"),
    "free_energy": ("free_energy",),
    "forces": ("forces", "force"),
    "virial": ("virial", "virials"),
    "stress": ("stress",),
    "group": ("group", "config_type"),
}


def _names(values: Mapping[str, Any], label: str) -> list[tuple[int, Any]]:
    """Keys that a label has in `values`, the one to take first, each with that of its prefix."""
    known = {str(key).lower().replace("-", "_"): key for key in values}
    return [
        (rank, known[prefix + name])
        for rank, prefix in enumerate(PREFIXES)
        for name in NAMES[label]
        if prefix + name in known
    ]


def value_of(values: Mapping[str, Any], label: str, odd: list[str]) -> Any:
    """The value of a label under any of its names, or None.

    Where others of its names have other numbers, `odd` is told so.
    """
    names = [name for _, name in _names(values, label)]
    odd += [
        f"has '{names[0]}' and '{other}', which differ: '{names[0]}' is taken; leave the other one "
        "out if that is right"
        for other in names[1:]
        if not np.array_equal(values[names[0]], values[other])
    ]
    return values[names[0]] if names else None


def labels_of(
    info: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    cell: np.ndarray,
    natoms: int,
    where: str,
) -> dict[str, Any]:
    """The labels and the group of a structure, and what is odd about them, for `Labelled`.

    Args:
        info: values of the structure by name.
        arrays: values of its atoms by name.
        cell: [3, 3]
        natoms: atoms of the structure.
        where: the structure, in messages.

    Raises:
        Failure: a label has the wrong shape or is no number.
    """
    odd: list[str] = []
    result: dict[str, Any] = {"odd": odd}
    # A free energy without a prefix is none of an energy that has one.
    energies = {label: _names(info, label) for label in ("energy", "free_energy")}
    rank = min((rank for names in energies.values() for rank, _ in names), default=0)
    for label, names in energies.items():
        if names and names[0][0] == rank:
            result[label] = float(_numbers(value_of(info, label, odd), (), label, where))
    forces = value_of(arrays, "forces", odd)
    if forces is not None:
        result["forces"] = _numbers(forces, (natoms, 3), "forces", where)
    virial, stress = value_of(info, "virial", odd), value_of(info, "stress", odd)
    volume = abs(np.linalg.det(cell))
    if stress is not None and volume != 0.0:
        result["virial"] = -volume * _tensor(stress, "stress", where)
    elif stress is not None and virial is None:
        raise Failure(f"{where} has a stress but no volume; expected three cell vectors")
    if virial is not None:
        tensor = _tensor(virial, "virial", where)
        scale = np.abs(tensor).max()
        if "virial" in result and np.abs(tensor - result["virial"]).max() > 1e-3 * scale:
            odd.append(
                "has a virial and a stress, and the virial is not -volume * stress: the virial is "
                "taken; leave the other one out if that is right"
            )
        result["virial"] = tensor
    group = value_of(info, "group", odd)
    if group is not None:
        result["group"] = str(group)
    return result


def _numbers(value: Any, shape: tuple[int, ...], name: str, where: str) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise Failure(f"{where}: its {name} is '{value}', expected numbers") from None
    if array.shape != shape or isinstance(value, bool | np.bool_):
        raise Failure(
            f"{where}: its {name} has the shape {list(array.shape)}, expected {list(shape)}"
        )
    return array


def _tensor(value: Any, name: str, where: str) -> np.ndarray:
    """[3, 3] of nine numbers, column by column where they are flat, or of six."""
    size = np.size(value)
    if size == 6:
        six = _numbers(np.ravel(value), (6,), name, where)
        full: np.ndarray = voigt_6_to_full_3x3_stress(six)
        return full
    if size != 9:
        raise Failure(f"{where}: its {name} has {size} numbers, expected nine or six")
    nine = value if np.shape(value) == (3, 3) else np.reshape(value, (3, 3), order="F")
    return _numbers(nine, (3, 3), name, where)
