"""Which of the many names of a label are the same thing, and with which sign.

Energies are of the whole structure (eV), forces -dE/dx (eV/angstrom), virials the sum of
r_ij (x) f_ij (eV): positive diagonal when compressed. With smearing, forces belong to the free
energy, and the energy at sigma -> 0 is another number: both are kept, and `readers` chooses. A
stress (eV/angstrom^3) has the sign of ase, stress = -virial / volume, and six numbers are in the
order xx yy zz yz xz xy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from ase.stress import voigt_6_to_full_3x3_stress

from pwmlff.report import Failure

log = logging.getLogger(__name__)

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


#: What an energy is, as labels have it.
ENERGIES = ("energy", "free_energy")
#: What was odd, with the first structure where it was and the number of them.
_told: ContextVar[dict[str, tuple[str, int]] | None] = ContextVar("_told", default=None)
#: Where warnings go in place of the log.
_texts: ContextVar[list[str] | None] = ContextVar("_texts", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """What is odd in structures that are read here is put into a list, not into the log."""
    texts: list[str] = []
    token = _texts.set(texts)
    try:
        yield texts
    finally:
        _texts.reset(token)


@contextmanager
def one_warning_for_all() -> Iterator[None]:
    """What is odd in many structures that are read here is one warning at the end."""
    told: dict[str, tuple[str, int]] = {}
    token = _told.set(told)
    try:
        yield
    finally:
        _told.reset(token)
        for text, (where, count) in told.items():
            others = f" ({count} structures)" if count > 1 else ""
            _say(f"{where}{others} {text}")


def _say(text: str) -> None:
    texts = _texts.get()
    if texts is None:
        log.warning("%s", text)
    else:
        texts.append(text)


def warn(where: str, text: str) -> None:
    """Say what is odd about a structure.

    Args:
        where: the structure.
        text: the rest of the sentence; what has the same rest is one warning.
    """
    told = _told.get()
    if told is None:
        _say(f"{where} {text}")
    else:
        first, count = told.get(text, (where, 0))
        told[text] = first, count + 1


def _names(values: Mapping[str, Any], label: str) -> list[tuple[int, Any]]:
    """Keys that a label has in `values`, the one to take first, each with that of its prefix."""
    known = {str(key).lower().replace("-", "_"): key for key in values}
    return [
        (rank, known[prefix + name])
        for rank, prefix in enumerate(PREFIXES)
        for name in NAMES[label]
        if prefix + name in known
    ]


def value_of(values: Mapping[str, Any], label: str, where: str = "") -> Any:
    """The value of a label under any of its names, or None.

    A value that is there under two names with different numbers is warned of.
    """
    names = [name for _, name in _names(values, label)]
    if not names:
        return None
    taken = values[names[0]]
    for other in names[1:]:
        if not np.array_equal(taken, values[other]):
            warn(
                where,
                f"has '{names[0]}' and '{other}', which differ: '{names[0]}' is taken; leave the "
                "other one out if that is right",
            )
    return taken


def labels_of(
    info: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    cell: np.ndarray,
    natoms: int,
    where: str,
) -> dict[str, Any]:
    """The labels and the group of a structure, for `Labelled`.

    Args:
        info: values of the structure by name.
        arrays: values of its atoms by name.
        cell: [3, 3]
        natoms: atoms of the structure.
        where: the structure, in messages.

    Raises:
        Failure: a label has the wrong shape or is no number.
    """
    result: dict[str, Any] = {}
    # A free energy without a prefix is none of an energy that has one.
    ranks = [min(_names(info, name), default=(len(PREFIXES), ""))[0] for name in ENERGIES]
    for name, rank in zip(ENERGIES, ranks, strict=True):
        value = value_of(info, name, where) if rank == min(ranks) else None
        if value is not None:
            result[name] = float(_numbers(value, (), name, where))
    forces = value_of(arrays, "forces", where)
    if forces is not None:
        result["forces"] = _numbers(forces, (natoms, 3), "forces", where)
    virial, stress = value_of(info, "virial", where), value_of(info, "stress", where)
    volume = abs(np.linalg.det(cell))
    if stress is not None:
        if volume == 0.0:
            if virial is None:
                raise Failure(f"{where} has a stress but no volume; expected three cell vectors")
        else:
            of_stress = -volume * _tensor(stress, "stress", where)
            result["virial"] = of_stress
    if virial is not None:
        tensor = _tensor(virial, "virial", where)
        scale = np.abs(tensor).max()
        if "virial" in result and np.abs(tensor - result["virial"]).max() > 1e-3 * scale:
            warn(
                where,
                "has a virial and a stress, and the virial is not -volume * stress: the virial is "
                "taken; leave the other one out if that is right",
            )
        result["virial"] = tensor
    group = value_of(info, "group", where)
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
