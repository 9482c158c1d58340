"""Whether `pwmlff data check` finds what is wrong with data, and leaves sound data alone.

    python benchmarks/wrong_data.py [--only NAME] [--texts]
    python benchmarks/wrong_data.py --units 8 30 200 [--seed SEED] [--only NAME] [--texts]

Each set of files is made here: labels are those of ase's EMT and Lennard-Jones potentials, in
which one mistake is made, or none. A mistake is found where a problem of a kind that is expected
says a word that is expected; a sound set has no problem at all. With --units whole sources, alone
and beside a sound one, are in other units: how many are an error, and name the quantities.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms, units
from ase.build import bulk, fcc111, molecule
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read, write
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.md.verlet import VelocityVerlet
from ase.stress import full_3x3_to_voigt_6_stress
from rich.console import Console
from rich.table import Table
from scipy.special import erfc

from pwmlff.data import check, consistency, readers
from pwmlff.data.frames import Frames
from pwmlff.evaluation.structures import neighbor_list
from pwmlff.report import Failure

Files = dict[str, list[Atoms]] | list[Atoms]  # one file
KCAL, KJ = units.kcal / units.mol, units.kJ / units.mol


# ---- structures with labels


def labelled(atoms: Atoms, calculator: Any = EMT) -> Atoms:
    """A copy with energy, forces and, in a cell, stress."""
    copy = atoms.copy()
    copy.calc = calculator()
    results = {"energy": copy.get_potential_energy(), "forces": copy.get_forces()}
    if copy.pbc.all():
        results["stress"] = copy.get_stress()
    copy.calc = SinglePointCalculator(copy, **results)
    return copy


def argon() -> LennardJones:
    """In reduced units."""
    return LennardJones(sigma=1.0, epsilon=1.0, rc=2.5, smooth=True)


def copper(repeat: tuple[int, int, int] = (2, 2, 2), a: float = 3.61) -> Atoms:
    """A crystal in a cubic cell."""
    return bulk("Cu", "fcc", a=a, cubic=True).repeat(repeat)


def alloy(gold: float = 0.5, seed: int = 0) -> Atoms:
    """Copper and gold at random places."""
    atoms = copper(a=3.85)
    chosen = np.random.default_rng(seed).permutation(len(atoms))[: round(gold * len(atoms))]
    atoms.numbers[chosen] = 79
    return atoms


def motion(
    start: Atoms,
    kelvin: float = 300.0,
    frames: int = 15,
    every: int = 2,
    seed: int = 0,
    calculator: Any = EMT,
    femtoseconds: float = 3.0,
) -> list[Atoms]:
    """Frames of molecular dynamics."""
    atoms = start.copy()
    atoms.calc = calculator()
    rng = np.random.default_rng(seed)
    MaxwellBoltzmannDistribution(atoms, temperature_K=2.0 * kelvin, rng=rng)
    dynamics = VelocityVerlet(atoms, femtoseconds * units.fs)
    dynamics.run(40)
    result = []
    for _ in range(frames):
        dynamics.run(every)
        frame = labelled(atoms, calculator)
        frame.info["kinetic"] = atoms.get_kinetic_energy()
        del frame.arrays["momenta"]
        result.append(frame)
    return result


def rattled(
    start: Atoms,
    size: float = 0.05,
    frames: int = 12,
    seed: int = 0,
    strain: float = 0.0,
    calculator: Any = EMT,
) -> list[Atoms]:
    """Copies with atoms off their places, in angstrom, in cells that are strained."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(frames):
        atoms = start.copy()
        change = rng.normal(0.0, strain, (3, 3)) if strain else np.zeros((3, 3))
        atoms.set_cell(np.asarray(atoms.cell) @ (np.eye(3) + (change + change.T) / 2.0), True)
        atoms.positions += rng.normal(0.0, size, atoms.positions.shape)
        result.append(labelled(atoms, calculator))
    return result


def volumes(frames: int = 10) -> list[Atoms]:
    """Crystals from dense to wide, atoms a little off their places."""
    return [
        rattled(copper(a=a), 0.03, 1, k)[0] for k, a in enumerate(np.linspace(3.5, 3.75, frames))
    ]


@cache
def _crystal() -> tuple[Atoms, ...]:
    return tuple(motion(copper()))


def crystal() -> list[Atoms]:
    """A trajectory, a copy for each use."""
    result = []
    for frame in _crystal():
        atoms = frame.copy()
        atoms.calc = SinglePointCalculator(atoms, **dict(frame.calc.results))
        result.append(atoms)
    return result


def changed(structures: list[Atoms], **factors: float) -> list[Atoms]:
    """Labels times factors."""
    for atoms in structures:
        for label, factor in factors.items():
            atoms.calc.results[label] = atoms.calc.results[label] * factor
    return structures


def raised(structures: list[Atoms], **energies: float) -> list[Atoms]:
    """Energies of atoms by element on top."""
    for atoms in structures:
        more = sum(energies.get(symbol, 0.0) for symbol in atoms.get_chemical_symbols())
        atoms.calc.results["energy"] += more
    return structures


def moved_on(structures: list[Atoms], label: str) -> list[Atoms]:
    """A label of the frame before."""
    values = [atoms.calc.results[label] for atoms in structures]
    for atoms, value in zip(structures[1:], values, strict=False):
        atoms.calc.results[label] = value
    return structures[1:]


def one_of(structures: list[Atoms], change: Callable[[Atoms], object], k: int = 4) -> list[Atoms]:
    """With something done to one frame."""
    change(structures[k])
    return structures


def with_results(atoms: Atoms, **values: Any) -> Atoms:
    """Set labels; None takes one away."""
    for label, value in values.items():
        if value is None:
            atoms.calc.results.pop(label)
        else:
            atoms.calc.results[label] = value
    return atoms


# ---- mistakes


@dataclass(frozen=True)
class Case:
    """Files with one mistake, or none."""

    make: Callable[[], Files]
    kinds: tuple[str, ...] = ()  # of problems that name it; none of a sound set
    words: str = ""  # that one of them says
    options: Sequence[tuple[str, Any]] = ()
    cut: int = 0  # lines at the end that are left out


FORCES, STRESS, SOURCES = ("forces",), ("stress",), ("sources",)
#: Single kinds, as the table of docs/training_data.md has them.
WRONG: dict[str, Case] = {
    "energies in kcal/mol": Case(lambda: changed(crystal(), energy=1 / KCAL), FORCES, "kcal"),
    "energies in kJ/mol": Case(lambda: changed(crystal(), energy=1 / KJ), FORCES, "kJ/mol"),
    "energies in hartree": Case(
        lambda: changed(crystal(), energy=1 / units.Hartree), FORCES, "hartree"
    ),
    "energies in rydberg": Case(
        lambda: changed(crystal(), energy=1 / units.Rydberg), FORCES, "rydberg"
    ),
    "energies per atom": Case(lambda: changed(crystal(), energy=1 / 32), FORCES, "unit"),
    "energies of the wrong sign": Case(lambda: changed(crystal(), energy=-1), FORCES, "sign"),
    "kinetic energies included": Case(
        lambda: [
            with_results(a, energy=a.calc.results["energy"] + a.info["kinetic"])
            for a in motion(copper())
        ],
        FORCES,
    ),
    "energies of the frame before": Case(lambda: moved_on(crystal(), "energy"), FORCES),
    "forces of the frame before": Case(
        lambda: moved_on(motion(copper(), every=5), "forces"), ("forces", "energy")
    ),
    "forces in hartree/bohr": Case(
        lambda: changed(crystal(), forces=units.Bohr / units.Hartree), FORCES, "hartree/bohr"
    ),
    "forces in rydberg/bohr": Case(
        lambda: changed(crystal(), forces=units.Bohr / units.Rydberg), FORCES, "rydberg/bohr"
    ),
    "forces in kcal/mol/angstrom": Case(
        lambda: changed(crystal(), forces=1 / KCAL), FORCES, "kcal"
    ),
    "gradients for forces": Case(lambda: changed(crystal(), forces=-1), FORCES, "sign"),
    "gradients, frames far apart": Case(
        lambda: changed(motion(copper(), every=12, frames=24), forces=-1), FORCES, "sign"
    ),
    "gradients of a molecule": Case(
        lambda: changed(motion(molecule("CH3CH2OH"), femtoseconds=0.4, every=1), forces=-1),
        FORCES,
        "sign",
    ),
    "forces of other atoms": Case(
        lambda: [
            with_results(
                a, forces=a.calc.results["forces"][np.random.default_rng(0).permutation(len(a))]
            )
            for a in crystal()
        ],
        FORCES,
    ),
    "positions and cells in bohr": Case(
        lambda: [with_results(_in_bohr(a), stress=None) for a in crystal()],
        FORCES,
        "bohr for angstrom",
    ),
    "stress of the wrong sign": Case(lambda: changed(volumes(), stress=-1), STRESS, "sign"),
    "stress in kbar": Case(lambda: changed(volumes(), stress=10 / units.GPa), STRESS, "kbar"),
    "stress in GPa": Case(lambda: changed(volumes(), stress=1 / units.GPa), STRESS, "GPa"),
    "stress all zero": Case(lambda: changed(volumes(), stress=0), STRESS, "zero"),
    "stress of the wrong sign in one cell": Case(
        lambda: changed(crystal(), stress=-1), STRESS, "sign"
    ),
    "stress in GPa in one cell": Case(
        lambda: changed(crystal(), stress=1 / units.GPa), STRESS, "GPa"
    ),
    "frames twice": Case(lambda: [*crystal(), *crystal()[3:6]], ("duplicate",), "frame 4 of"),
    "frames in two files, other digits": Case(
        lambda: {"a.xyz": crystal(), "b.xyz": [_rounded(atoms) for atoms in crystal()[2:5]]},
        ("duplicate",),
        "frame 3 of",
    ),
    "one structure with two energies": Case(
        lambda: [*crystal(), *one_of(crystal()[7:8], lambda a: raised([a], Cu=0.1), 0)],
        ("duplicate with another energy",),
        "0.1 per atom",
    ),
    "two sources of one composition": Case(
        lambda: {"a.xyz": crystal(), "b.xyz": raised(rattled(copper()), Cu=0.5)}, SOURCES, "b.xyz"
    ),
    "two sources in one file": Case(
        lambda: [*rattled(copper()), *raised(rattled(copper(), seed=1, frames=6), Cu=-1.0)],
        SOURCES,
        "frames 12-17",
    ),
    "atoms alone subtracted in one source": Case(
        lambda: {
            "a.xyz": [a for x in (0.25, 0.5, 0.75) for a in rattled(alloy(x), frames=5)],
            "b.xyz": raised(
                [a for x in (0.25, 0.5, 0.75) for a in rattled(alloy(x), frames=5, seed=1)],
                Cu=3.7,
                Au=3.3,
            ),
        },
        SOURCES,
        "Cu +3.",
    ),
    "one source in hartree": Case(
        lambda: {
            "a.xyz": raised(rattled(copper()), Cu=-3.7),
            "b.xyz": changed(raised(rattled(copper(), seed=1), Cu=-3.7), energy=1 / units.Hartree),
        },
        SOURCES,
        "b.xyz",
    ),
    "two energies in a file": Case(
        lambda: [with_results(a, free_energy=a.calc.results["energy"] - 0.1) for a in crystal()],
        ("ambiguous labels",),
        "free energy",
    ),
    "forces missing in some frames": Case(
        lambda: one_of(crystal(), lambda a: with_results(a, forces=None)),
        ("missing labels",),
        "forces",
    ),
    "no labels": Case(lambda: one_of(crystal(), lambda a: a.calc.results.clear()), ("no labels",)),
    "NaN for a force": Case(
        lambda: one_of(crystal(), lambda a: a.calc.results["forces"].__setitem__(3, np.nan)),
        ("not finite",),
        "atom 3",
    ),
    "a frame that is not converged": Case(
        lambda: one_of(crystal(), lambda a: raised([a], Cu=0.01)), ("energy",), "frame 4"
    ),
    "an energy far off": Case(
        lambda: one_of(rattled(copper(), 0.1, 20), lambda a: raised([a], Cu=1.0)),
        ("energy outlier",),
        "frame 4",
    ),
    "a force far off": Case(
        lambda: one_of(
            rattled(copper(), 0.05, 20),
            lambda a: a.calc.results["forces"].__setitem__(0, (99.0, 0.0, 0.0)),
        ),
        ("force outlier",),
        "frame 4",
    ),
    "overlapping atoms": Case(
        lambda: one_of(
            crystal(), lambda a: a.positions.__setitem__(1, a.positions[0] + [0.1, 0.0, 0.0])
        ),
        ("overlapping atoms",),
    ),
    "another element": Case(
        lambda: one_of(crystal(), lambda a: a.numbers.__setitem__(0, 79)),
        ("unknown element",),
        "Au",
        options=(("elements", ("Cu",)),),
    ),
    "a file that is cut off": Case(crystal, ("refused",), "cut off", cut=7),
}


def _rounded(atoms: Atoms) -> Atoms:
    atoms.positions = atoms.positions.round(6)
    return atoms


def _in_bohr(atoms: Atoms) -> Atoms:
    atoms.set_cell(np.asarray(atoms.cell) / units.Bohr, scale_atoms=True)
    return atoms


SOUND: dict[str, Case] = {
    name: Case(make)
    for name, make in {
        "a metal": crystal,
        "a hot metal": lambda: motion(copper(), 900.0, 25, 5),
        "a liquid": lambda: motion(copper(a=3.85), 3000.0, 20, 10, femtoseconds=2.0),
        "an alloy": lambda: motion(alloy()),
        "alloys of many compositions": lambda: [
            a for k in range(9) for a in rattled(alloy(k / 8, k), frames=3)
        ],
        "volumes": volumes,
        "strained cells": lambda: rattled(copper(), strain=0.03, frames=20),
        "wide volumes": lambda: [labelled(copper(a=a)) for a in np.linspace(3.3, 4.4, 15)],
        "phases in files of their own": lambda: {
            "fcc.xyz": motion(copper(), 100.0),
            "bcc.xyz": rattled(bulk("Cu", "bcc", a=2.87, cubic=True).repeat((3, 3, 2))),
            "hcp.xyz": rattled(bulk("Cu", "hcp", a=2.55, c=4.16).repeat((3, 3, 2))),
        },
        "temperatures in files of their own": lambda: {
            f"{kelvin}.xyz": motion(copper(), kelvin, seed=kelvin) for kelvin in (50, 300, 900)
        },
        "a crystal and its surfaces": lambda: {
            "bulk.xyz": motion(copper()),
            "slab.xyz": motion(fcc111("Cu", (3, 3, 4), vacuum=7.0, periodic=True)),
        },
        "a crystal and atoms alone": lambda: {
            "bulk.xyz": rattled(copper()),
            "atom.xyz": [labelled(Atoms("Cu", cell=[12.0] * 3, pbc=True))],
        },
        "elements and their alloy": lambda: {
            "cu.xyz": rattled(copper()),
            "au.xyz": rattled(bulk("Au", cubic=True).repeat(2)),
            "cuau.xyz": rattled(alloy()),
        },
        "sizes of cells": lambda: {
            "small.xyz": rattled(copper((1, 1, 1)), frames=10),
            "large.xyz": rattled(copper((3, 2, 2)), frames=6, seed=1),
        },
        "a molecule": lambda: motion(molecule("CH3CH2OH"), femtoseconds=0.4, every=1),
        "molecules": lambda: [
            a
            for name in ("H2O", "CH4", "NH3", "C2H6", "CO2")
            for a in rattled(molecule(name), 0.04, 5)
        ],
        "Lennard-Jones": lambda: motion(
            bulk("Ar", "fcc", a=1.6, cubic=True).repeat(3),
            0.3 / units.kB,
            15,
            5,
            calculator=argon,
            femtoseconds=0.2,
        ),
        "Lennard-Jones, two densities": lambda: {
            f"{a}.xyz": rattled(
                bulk("Ar", "fcc", a=a, cubic=True).repeat(3), 0.04, 10, calculator=argon
            )
            for a in (1.5, 1.7)
        },
        "three frames": lambda: rattled(copper(), frames=3),
        "files of one frame": lambda: {
            f"{k}.xyz": rattled(copper(), 0.1, 1, seed=k) for k in range(6)
        },
    }.items()
}


# ---- whole sources in other units


class Ions(Calculator):
    """Born and Mayer's repulsion, dispersion, and charges that are cut off smoothly."""

    implemented_properties = ("energy", "forces", "stress")
    charges: ClassVar = {"Mg": 1.7, "O": -1.7, "Na": 1.0, "Cl": -1.0}
    sizes: ClassVar = {"Mg": 0.95, "O": 1.51, "Na": 1.1, "Cl": 1.53}

    def calculate(self, atoms: Atoms, *_: Any) -> None:  # type: ignore[override]  # of ase
        """Pairs within 9 angstrom."""
        i, j, d, vectors = neighbor_list("ijdD", atoms, 9.0, threads=1)
        q = np.array([self.charges[s] for s in atoms.symbols])
        a = np.array([self.sizes[s] for s in atoms.symbols])
        ee, k, rho, cut = units.Hartree * units.Bohr * q[i] * q[j], 0.25, 0.3, 9.0
        shift = erfc(k * cut) / cut
        slope = erfc(k * cut) / cut**2 + 2 * k / np.sqrt(np.pi) * np.exp(-((k * cut) ** 2)) / cut
        near = 0.25 * np.exp((a[i] + a[j] - d) / rho)
        energy = near + ee * (erfc(k * d) / d - shift + slope * (d - cut))
        force = near / rho + ee * (
            erfc(k * d) / d**2 + 2 * k / np.sqrt(np.pi) * np.exp(-((k * d) ** 2)) / d - slope
        )
        on_j = (force / d)[:, None] * vectors
        forces = np.stack([-np.bincount(i, on_j[:, c], len(atoms)) for c in range(3)], axis=1)
        virial = 0.5 * np.einsum("ek,el->kl", vectors, on_j)
        self.results = {"energy": 0.5 * energy.sum(), "forces": forces}
        if atoms.pbc.all():
            self.results["stress"] = full_3x3_to_voigt_6_stress(-virial / atoms.get_volume())


def materials(seed: int) -> dict[str, tuple[Atoms, Any, float]]:
    """Start, calculator and time step, fs: none of these is what the check was made with."""
    rng = np.random.default_rng(seed)
    nickel = bulk("Al", cubic=True).repeat(2)
    nickel.numbers[rng.permutation(len(nickel))[:8]] = 28
    salt = bulk("NaCl", "rocksalt", a=5.5, cubic=True).repeat((2, 2, 1))
    oxide = bulk("MgO", "rocksalt", a=4.2, cubic=True).repeat((2, 2, 1))
    return {
        "Pd (EMT)": (bulk("Pd", cubic=True).repeat(2), EMT, 3.0),
        "AlNi (EMT)": (nickel, EMT, 3.0),
        "NaCl (pairs)": (salt, Ions, 2.0),
        "MgO (pairs)": (oxide, Ions, 2.0),
        "C2H6 (EMT)": (molecule("C2H6"), EMT, 0.4),
    }


def sets(seed: int, count: int, only: str) -> Iterator[tuple[str, list[Atoms]]]:
    """Sound sets of so many frames: trajectories, rattled frames, DFT where it lies beside."""
    for name, (start, calculator, step) in materials(seed).items():
        if only in f"{name}, trajectory":
            moved = motion(start, 500.0, count, 3, seed, calculator, step)
            yield f"{name}, trajectory", moved
        if only in f"{name}, rattled":
            strain = 0.015 if start.pbc.all() else 0.0
            yield f"{name}, rattled", rattled(start, 0.08, count, seed, strain, calculator)
    data = Path(os.environ.get("PWMLFF_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    dft = data / "hfo2_dft" / "valid.extxyz"
    if dft.exists() and only in "HfO2 (DFT)":
        yield "HfO2 (DFT)", read(dft, slice(seed % 20, seed % 20 + count))


E, F, S, X = "energies", "forces", "stresses", "positions"
#: Numbers for 1 eV, eV/angstrom, eV/angstrom^3 and angstrom.
UNITS: dict[str, dict[str, float]] = {
    "kcal/mol": {E: 1 / KCAL, F: 1 / KCAL, S: 1 / KCAL},
    "kJ/mol": {E: 1 / KJ, F: 1 / KJ, S: 1 / KJ},
    "meV": {E: 1e3, F: 1e3, S: 1e3},
    "rydberg": {
        E: 1 / units.Rydberg,
        F: units.Bohr / units.Rydberg,
        S: units.Bohr**3 / units.Rydberg,
        X: 1 / units.Bohr,
    },
    "hartree": {
        E: 1 / units.Hartree,
        F: units.Bohr / units.Hartree,
        S: units.Bohr**3 / units.Hartree,
        X: 1 / units.Bohr,
    },
}


def combinations_of_units() -> Iterator[tuple[str, dict[str, float]]]:
    """What is in another unit, alone and together."""
    for name, system in UNITS.items():
        for what in (E, F, S):
            yield f"{what} of {name}", {what: system[what]}
        yield f"energies and forces of {name}", {E: system[E], F: system[F]}
        yield f"all of {name}", system
    yield "positions in bohr", {X: 1 / units.Bohr}
    yield "forces in eV/bohr", {F: units.Bohr}
    yield "positions in bohr, forces in eV/bohr", {X: 1 / units.Bohr, F: units.Bohr}
    for name, unit in (("GPa", units.GPa), ("kbar", 0.1 * units.GPa), ("bar", units.bar)):
        yield f"stresses in {name}", {S: 1 / unit}


def in_units(frames: Frames, factors: dict[str, float], file: str) -> Frames:
    """The same, as a file whose labels and positions are times factors."""
    x = factors.get(X, 1.0)
    return replace(
        frames,
        positions=frames.positions * x,
        cells=frames.cells * x,
        energies=frames.energies * factors.get(E, 1.0),
        forces=frames.forces * factors.get(F, 1.0),
        virials=frames.virials * factors.get(S, 1.0) * x**3,
        files=(file,),
    )


def units_of_sources(seed: int, sizes: Sequence[int], only: str, texts: bool) -> None:
    """Print how many are found, alone and beside a sound source."""
    screen = Console(highlight=False, markup=False, width=160)
    titles = ("frames", "false alarms", "found alone", "blamed", "found of two", "blamed")
    table = Table("set", *titles, box=None)
    every = np.zeros(7, dtype=int)
    for count in sizes:
        second = dict(sets(seed + 1, count, only))
        for name, made in sets(seed, count, only):
            sound, other = (
                in_units(_frames(one), {}, f) for one, f in ((made, "a"), (second[name], "b"))
            )
            alarms = bool(_said(sound)) + bool(_said(Frames.joined([sound, other])))
            counts = np.array([alarms, 0, 0, 0, 0, 0, 0])
            stresses = np.isfinite(sound.virials).any()
            for title, factors in combinations_of_units():
                if factors.keys() <= {S} and not stresses:
                    continue
                wrong = in_units(sound, factors, "a")
                cases = {1: wrong}
                if title.startswith("all"):
                    cases[4] = Frames.joined([wrong, other])
                for column, frames in cases.items():
                    said = _said(frames)
                    text = " ".join(one for one in said if "'a'" in one)
                    blamed = {
                        what
                        for what in (E, F, S, X)
                        if f"unit of the {what}" in text
                        or (what == S and "unit of the virials or stress" in text)
                    }
                    # Virials that tell nothing are not blamed.
                    right = bool(blamed) and blamed | {S} == factors.keys() | {S}
                    right &= blamed <= factors.keys() and len(said) == 1
                    counts[column : column + 3] += (1, bool(text), right)
                    if texts and not right:
                        screen.print(f"{name}, {count}, {title}, {column}: {said}")
            every += counts
            table.add_row(name, str(count), str(counts[0]), *_shares(counts))
    table.add_row("all", "", str(every[0]), *_shares(every))
    screen.print(table)


def _shares(counts: np.ndarray) -> list[str]:
    return [f"{counts[k]} of {counts[n]}" for k, n in ((2, 1), (3, 1), (5, 4), (6, 4))]


def _frames(structures: list[Atoms]) -> Frames:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "a.xyz"), structures, format="extxyz")
        return readers.read(str(Path(folder, "a.xyz")))


def _said(frames: Frames) -> list[str]:
    """Errors of whole files."""
    found = consistency.findings(frames)
    return [one.text for one in found if one.warning and one.kind != "virial offset"]


# ---- the check


def problems_of(case: Case, folder: Path) -> list[check.Problem]:
    """What the check says, or that the files cannot be read."""
    paths = []
    made = case.make()
    for name, structures in (made if isinstance(made, dict) else {"a.xyz": made}).items():
        path = folder / name
        write(path, structures, format="extxyz")
        if case.cut:
            path.write_text("".join(path.read_text().splitlines(True)[: -case.cut]))
        paths.append(str(path))
    try:
        return check.check(paths, **dict(case.options)).problems
    except Failure as failure:
        return [check.Problem("refused", str(failure))]


def found(case: Case, problems: Sequence[check.Problem]) -> bool:
    """Whether the mistake is named, or nothing where there is none."""
    if not case.kinds:
        return not problems
    return any(p.kind in case.kinds and case.words in p.text for p in problems)


def main() -> None:
    """Check all, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="sets with this in their name")
    parser.add_argument("--texts", action="store_true", help="all that is said")
    parser.add_argument(
        "--units", type=int, nargs="+", metavar="FRAMES", help="sources in other units"
    )
    parser.add_argument("--seed", type=int, default=100, help="of the sources in other units")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("pwmlff").setLevel(logging.ERROR)
    if options.units:
        units_of_sources(options.seed, options.units, options.only, options.texts)
        return
    table = Table("data", "", "said", box=None)
    screen = Console(highlight=False, markup=False, width=160)
    counts = {}
    for title, cases in (("wrong", WRONG), ("sound", SOUND)):
        chosen = {name: case for name, case in cases.items() if options.only in name}
        right = 0
        for name, case in chosen.items():
            with tempfile.TemporaryDirectory() as folder:
                problems = problems_of(case, Path(folder))
            well = found(case, problems)
            right += well
            kinds = ", ".join(dict.fromkeys(p.kind for p in problems)) or "nothing"
            table.add_row(name, "" if well else "NOT FOUND" if case.kinds else "FALSE ALARM", kinds)
            for problem in problems[:8] if options.texts or not well else ():
                table.add_row("", "", f"{problem.kind}: {problem.text}"[:150])
        counts[title] = (right, len(chosen))
    screen.print(table)
    screen.print(
        f"found {counts['wrong'][0]} of {counts['wrong'][1]} mistakes; nothing said of "
        f"{counts['sound'][0]} of {counts['sound'][1]} sound sets"
    )


if __name__ == "__main__":
    main()
