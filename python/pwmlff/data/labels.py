"""Which of the many names of a label are the same thing, and with which sign.

Energies are of the whole structure (eV), forces -dE/dx (eV/angstrom), virials the sum of
r_ij (x) f_ij (eV): positive diagonal when compressed. With smearing, forces belong to the free
energy, and the energy at sigma -> 0 is another number: both are kept, and `readers` chooses. A
stress (eV/angstrom^3) has the sign of ase, stress = -virial / volume, and six numbers are in the
order xx yy zz yz xz xy. Other units are those that keys like `energy-unit` name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from ase import units
from ase.stress import voigt_6_to_full_3x3_stress

from pwmlff.report import Failure

#: Who names a label so means it: these go before names without a prefix.
PREFIXES = ("ref_", "dft_", "")
#: Names in lower case without a prefix, those that go first first.
NAMES = {
    "energy": ("energy", "total_energy", "etot", "potential_energy"),
    "free_energy": ("free_energy",),
    "forces": ("forces", "force"),
    "virial": ("virial", "virials"),
    "stress": ("stress", "stresses"),
    "born": ("born_effective_charges", "born_charges", "bec"),
    "total_charge": ("total_charge", "charge"),
    "group": ("group", "config_type"),
    "weight": ("config_weight", "weight"),
    "energy_weight": ("config_energy_weight", "energy_weight"),
    "force_weight": ("config_forces_weight", "forces_weight", "force_weight"),
    "virial_weight": (
        *("config_stress_weight", "config_virials_weight", "config_virial_weight"),
        *("stress_weight", "virial_weight", "virials_weight"),
    ),
    "energy_unit": ("energy_unit", "energy_units"),
    "force_unit": ("force_unit", "force_units", "forces_unit", "forces_units"),
    "stress_unit": ("stress_unit", "stress_units"),
}
#: What else may be meant to be a label, or to say what one is; ase has `unit_cell` from CIF files.
ALIKE = re.compile("energ|force|stress|virial|unit(?!.?cell)", re.IGNORECASE)
#: Keys of each frame of LAMMPS's `dump extxyz`, and labels that it adds where it knows them at that
#: step; `Stress` is a pressure in bar, with the kinetic part.
OF_LAMMPS, LABELS_OF_LAMMPS = {"Timestep", "Time"}, {"Potential_energy", "Stress"}

#: Units in lower case; "au" and "a.u." are hartree and bohr.
ENERGIES = {
    "ev": 1.0,
    "mev": 1e-3,
    **dict.fromkeys(("hartree", "ha", "au", "a.u."), units.Hartree),
    **dict.fromkeys(("rydberg", "ry"), units.Rydberg),
    **dict.fromkeys(("kcal/mol", "kcal_mol"), units.kcal / units.mol),
    **dict.fromkeys(("kj/mol", "kj_mol"), units.kJ / units.mol),
}
LENGTHS = {
    **dict.fromkeys(("angstrom", "ang", "ang.", "a", "å"), 1.0),
    **dict.fromkeys(("bohr", "a0"), units.Bohr),
    "nm": units.nm,
}
PRESSURES = {
    "gpa": units.GPa, "mpa": 1e-3 * units.GPa, "kpa": 1e3 * units.Pascal, "pa": units.Pascal,
    "kbar": 1e3 * units.bar, "bar": units.bar,
}  # fmt: skip
#: By label: the power of a length that its unit is divided by, and examples.
POWERS = {"energy": 0, "force": 1, "stress": 3}
EXAMPLES = {
    "energy": "eV, hartree, kcal/mol",
    "force": "eV/angstrom, hartree/bohr",
    "stress": "GPa, eV/angstrom^3",
}
COMPOSED = re.compile(
    f"({'|'.join(map(re.escape, ENERGIES))})"
    rf"(?:/({'|'.join(map(re.escape, LENGTHS))})(?:(?:\^|\*\*)?(\d))?)?"
)


def _names(values: Mapping[str, Any], label: str) -> list[tuple[int, Any]]:
    """Keys that a label has in `values`, the one to take first, each with that of its prefix."""
    known = defaultdict(list)
    for key in values:
        known[str(key).lower().replace("-", "_")].append(key)
    return [
        (rank, key)
        for rank, prefix in enumerate(PREFIXES)
        for name in NAMES[label]
        for key in known.get(prefix + name, ())
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
    if info.keys() >= OF_LAMMPS and info.keys() & LABELS_OF_LAMMPS:
        odd.append(
            "is of LAMMPS's dump extxyz: Potential_energy is taken, in eV as in units metal; "
            "Stress is a pressure in bar with the kinetic part, and is left out"
        )
        info = {key: value for key, value in info.items() if key != "Stress"}
    _name_what_is_not_taken(info, arrays, odd)
    factors = _factors(info, arrays, odd, where)
    # A free energy without a prefix is none of an energy that has one.
    energies = {label: _names(info, label) for label in ("energy", "free_energy")}
    rank = min((rank for names in energies.values() for rank, _ in names), default=0)
    for label, names in energies.items():
        if names and names[0][0] == rank:
            energy = float(_numbers(value_of(info, label, odd), (), label, where))
            result[label] = factors["energy"] * energy
    forces = value_of(arrays, "forces", odd)
    if forces is not None:
        result["forces"] = factors["force"] * _numbers(forces, (natoms, 3), "forces", where)
    virial, stress = value_of(info, "virial", odd), value_of(info, "stress", odd)
    volume = abs(np.linalg.det(cell))
    if stress is not None and volume != 0.0:
        result["virial"] = -volume * factors["stress"] * _tensor(stress, "stress", where)
    elif stress is not None and virial is None:
        raise Failure(f"{where} has a stress but no volume; expected three cell vectors")
    if virial is not None:
        tensor = factors["energy"] * _tensor(virial, "virial", where)
        scale = np.abs(tensor).max()
        if "virial" in result and np.abs(tensor - result["virial"]).max() > 1e-3 * scale:
            odd.append(
                "has a virial and a stress, and the virial is not -volume * stress: the virial is "
                "taken; leave the other one out if that is right"
            )
        result["virial"] = tensor
    born, total = value_of(arrays, "born", odd), value_of(info, "total_charge", odd)
    if born is not None and natoms:
        nine = np.reshape(born, (natoms, -1))  # a matrix of each atom, row by row
        result["born"] = _numbers(nine, (natoms, 9), "Born charges", where).reshape(-1, 3, 3)
        if not np.isfinite(result["born"]).all():
            raise Failure(f"{where}: its Born charges have a number that is not finite")
    if np.ndim(total) == 0 and np.asarray(total).dtype.kind in "iuf":  # else it is another thing
        result["total_charge"] = float(total)
    result["weights"] = _weights(info, result, odd, where)
    group = value_of(info, "group", odd)
    if group is not None:
        result["group"] = str(group)
    return result


def _weights(
    info: Mapping[str, Any], labels: dict[str, Any], odd: list[str], where: str
) -> tuple[float, ...]:
    """Weights of energy, forces and virial; labels of which one is 0 go."""
    weights_by_label = {}
    for label in ("weight", "energy_weight", "force_weight", "virial_weight"):
        value = value_of(info, label, odd)
        weight = 1.0 if value is None else float(_numbers(value, (), label, where))
        if not 0.0 <= weight < np.inf:
            raise Failure(f"{where}: its {label} is {weight:g}, expected 0 or more")
        weights_by_label[label] = weight
    whole = weights_by_label.pop("weight")
    weights = tuple(whole * weight for weight in weights_by_label.values())
    by_name = dict(zip(("energy", "forces", "virial"), weights, strict=True))
    gone = [name for name, weight in by_name.items() if name in labels and weight == 0.0]
    for name in [*gone, *["free_energy"] * (by_name["energy"] == 0.0)]:
        labels.pop(name, None)
    if gone:
        odd.append(f"has the weight 0 for {', '.join(gone)}, as if there were none")
    return weights


def _name_what_is_not_taken(
    info: Mapping[str, Any], arrays: Mapping[str, np.ndarray], odd: list[str]
) -> None:
    """Tell of keys that may be meant to be labels; of those of atoms, of vectors."""
    taken = {
        key for label in NAMES for values in (info, arrays) for _, key in _names(values, label)
    }
    vectors = [key for key, value in arrays.items() if np.shape(value)[1:] == (3,)]
    others = sorted(
        f"'{key}'" for key in (*info, *vectors) if key not in taken and ALIKE.search(str(key))
    )
    if others:
        odd.append(
            f"has {', '.join(others)}, which may be meant to be labels or units and are not taken; "
            "rename them to energy, forces, virial, stress, energy-unit ... if they are"
        )


def _factors(
    info: Mapping[str, Any], arrays: Mapping[str, np.ndarray], odd: list[str], where: str
) -> dict[str, float]:
    """By energy, force and stress: what the numbers of the structure are to be multiplied by."""
    unit_of = {label: value_of(info, f"{label}_unit", odd) for label in POWERS}
    factors = {
        label: 1.0 if unit is None else _in_ev(str(unit), label, where)
        for label, unit in unit_of.items()
    }
    foreign = next((label for label in ("energy", "force") if factors[label] != 1.0), None)
    present = {
        "energy": _names(info, "energy") or _names(info, "free_energy") or _names(info, "virial"),
        "force": _names(arrays, "forces"),
        "stress": _names(info, "stress"),
    }
    for label, names in present.items():
        if foreign and names and unit_of[label] is None:
            raise Failure(
                f"{where}: its {foreign}-unit is '{unit_of[foreign]}', and it has "
                f"'{names[0][1]}' and no {label}-unit, expected one of all labels"
            )
    return factors


def _in_ev(unit: str, label: str, where: str) -> float:
    """A unit of an energy, a force or a stress in eV and angstrom."""
    power = POWERS[label]
    text = unit.lower().replace(" ", "")
    if label == "stress" and text in PRESSURES:
        return float(PRESSURES[text])
    parts = COMPOSED.fullmatch(text)
    if parts and text in {"au", "a.u."}:
        return float(units.Hartree / units.Bohr**power)
    if parts is None or (int(parts[3] or 1) if parts[2] else 0) != power:
        raise Failure(
            f"{where}: its {label}-unit is '{unit}', which is not known, expected one like "
            f"{EXAMPLES[label]}"
        )
    return float(ENERGIES[parts[1]] / LENGTHS[parts[2] or "angstrom"] ** power)


def _numbers(value: Any, shape: tuple[int, ...], name: str, where: str) -> np.ndarray:
    if np.ma.is_masked(value):  # what lies under a mask would be learned from
        raise Failure(f"{where}: its {name} is masked, expected numbers; leave out such a frame")
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
