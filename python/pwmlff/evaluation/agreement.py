"""How far a model is from a calculator of ase, on the same structures.

Units are ase's: eV, angstrom, eV/angstrom^3; stress is positive under tension, in the order
xx yy zz yz xz xy. Of a model of units "lj" all numbers are reduced ones, and those of the
calculator are taken as they are. A difference is the calculator's number less the model's.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ase import Atoms
from ase.geometry import find_mic
from ase.stress import full_3x3_to_voigt_6_stress
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from pwmlff.evaluation import labeller
from pwmlff.evaluation.model_file import ModelInfo
from pwmlff.evaluation.structures import Result
from pwmlff.report import Failure, last_line

#: Largest difference of the energy per atom (eV), of the same after the mean difference of all
#: frames is taken off, of a component of a force (eV/angstrom), RMS of those, and largest
#: difference of a component of the stress (eV/angstrom^3).
GATES = {
    "energy": 1e-6, "relative_energy": 1e-6, "force": 1e-4, "force_rms": 1e-5, "stress": 1e-6,
}  # fmt: skip
#: How a table calls them, and their units; those of a model of units "lj" have none.
SHOWN = {
    "energy": ("energy / atom", "eV"),
    "relative_energy": ("less its mean difference", "eV"),
    "force": ("force", "eV/Å"),
    "stress": ("stress", "eV/Å³"),
}
COMPONENTS = ("xx", "yy", "zz", "yz", "xz", "xy")  # of a stress
MOVED = 1e-6  # angstrom by which a calculator may move an atom, beside lattice vectors
#: What a frame may have that a calculator may take, and a model does not.
UNSEEN = {
    "initial_magmoms": "magnetic moments", "initial_charges": "charges", "charge": "a total charge",
    "spin": "a total spin",
}  # fmt: skip


@dataclass
class Place:
    """Where a difference is largest."""

    frame: int
    atom: int | None = None
    component: str = ""  # of a stress

    def __str__(self) -> str:
        """For people."""
        atom = "" if self.atom is None else f", atom {self.atom}"
        return f"frame {self.frame}{atom}{self.component and f', {self.component}'}"


@dataclass
class Agreement:
    """What a calculator differs from one model by, and how much it may."""

    model: str
    units: str
    gates: dict[str, float]  # of what is compared
    worst: dict[str, float] = field(default_factory=dict)
    rms: dict[str, float] = field(default_factory=dict)
    where: dict[str, Place] = field(default_factory=dict)
    mean_energy: float = math.nan  # mean difference of the energy per atom
    stresses: int = 0  # frames whose stress is compared
    notes: list[str] = field(default_factory=list)  # what may be behind the differences

    @property
    def failed(self) -> list[str]:
        """Quantities that differ by more than they may, or that there is nothing of."""
        return [q for q, gate in self.gates.items() if not self.worst.get(q, math.nan) <= gate]


@dataclass(frozen=True)
class AgreementReport:
    """What `pwmlff compare --with` found."""

    calculator: str
    frames: int
    atoms: int
    failures: dict[int, str]  # why there are no numbers of the calculator, by frame
    cases: list[Agreement]
    plot: str

    @property
    def ok(self) -> bool:
        """Whether all frames have numbers, which are within the gates."""
        return not self.failures and not any(case.failed for case in self.cases)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        cases = [
            {**vars(case), "ok": not case.failed, "failed": case.failed} for case in self.cases
        ]
        return {**vars(self), "cases": cases}

    def show(self) -> RenderableType:
        """One row for each quantity of each model."""
        table = Table(
            Column("model", overflow="fold"), "", *(Column(name, justify="right") for name in
            ("largest", "RMS", "allowed")), "where it is largest", "",
            title=f"difference of {self.calculator} from the float64 reference, "
            f"{self.frames} frame{'s' * (self.frames > 1)}, {self.atoms} atoms",
        )  # fmt: skip
        notes = [Text(f"frame {k}: {text}", "red") for k, text in self.failures.items()]
        for case in self.cases:
            for name, (title, unit) in SHOWN.items():
                if name not in case.gates:
                    continue
                there, broken = name in case.worst, {name, f"{name}_rms"} & {*case.failed}
                table.add_row(
                    case.model if name == "energy" else "",
                    title if case.units == "lj" else f"{title} ({unit})",
                    *(f"{values[name]:.1e}" if there else "" for values in (case.worst, case.rms)),
                    f"{case.gates[name]:.1e}",
                    str(case.where.get(name, "")),
                    Text("FAIL", "bold red") if broken else Text("pass", "green"),
                )
            notes += [
                Text(
                    f"{case.model}: {name} differs by {case.worst[name]:.1e}, allowed "
                    f"{case.gates[name]:.1e}"
                    if name in case.worst
                    else f"{case.model}: {name} has nothing to compare",
                    "red",
                )
                for name in case.failed
            ]
            notes += [Text(f"{case.model}: {note}") for note in case.notes]
        if self.plot:
            notes.append(Text(f"parity plot: {self.plot}"))
        return Group(table, *notes)


def require_words(words: str) -> None:
    """Refuse words that name no calculator; nothing of them runs.

    Raises:
        Failure: they are of another form.
    """
    try:
        labeller.parsed(words)
    except ValueError as error:
        raise Failure(f"--with: {error}") from None


def opened(words: str) -> Any:
    """The calculator of such words; what it prints goes to stderr.

    Raises:
        Failure: it cannot be made, or is no calculator.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = labeller.make_calculator(words)
    except (Exception, SystemExit) as error:  # whatever it raises
        raise Failure(
            f"cannot make the calculator '{words}': {type(error).__name__}: {last_line(error)}; "
            f"expected a module that {sys.executable} imports, or a file like my_file.py:make(), "
            "and values that it takes"
        ) from error
    if isinstance(found, type) or not hasattr(found, "implemented_properties"):
        raise Failure(
            f"'{words}' is {found!r}, expected a calculator of ase; call what makes one, like "
            "ase.calculators.emt:EMT()"
        )
    return found


def results_of(calculator: Any, atoms: Atoms) -> dict[str, Any]:
    """What a calculator gives for a structure as if it were the first one.

    Args:
        calculator: of ase; what it prints goes to stderr.
        atoms: stays as it is. Its constraints do not count, and labels that it brings along do not.

    Returns:
        energy, the free one where the calculator knows of it; forces [n, 3]; where the structure is
        periodic in all directions, and the calculator gives it, stress [6].

    Raises:
        Failure: the calculator fails, or gives no numbers, or those of other atoms.
    """
    original = atoms.copy()
    original.set_constraint()
    given = original.copy()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            if hasattr(calculator, "reset"):
                calculator.reset()  # it may not see all that is new, like a charge in info
            found = labeller.label(given, calculator).calc.results
    except (Exception, SystemExit) as error:  # whatever it raises
        raise Failure(
            f"the calculator failed: {type(error).__name__}: {last_line(error)}; take the frame "
            "out, or mend the calculator"
        ) from error
    results = {name: np.array(value, dtype=float) for name, value in found.items()}
    for name, shape in (("forces", (len(atoms), 3)), ("stress", (6,))):
        if name in results and results[name].shape != shape:
            raise Failure(
                f"the calculator gives {name} of shape {results[name].shape}, expected {shape}; "
                "look whether they are those of another structure"
            )
    if (
        list(given.numbers) != list(original.numbers)
        or (
            find_mic(given.positions - original.positions, original.cell, original.pbc)[1] > MOVED
        ).any()
    ):
        raise Failure(
            "the calculator moves atoms or changes their order, expected the structure as it was "
            "given; let it work on a copy, and give forces in the order of the frame"
        )
    return results


def compared(
    info: ModelInfo,
    frames: Sequence[Atoms],
    expected: Sequence[Result],
    found: Mapping[int, Mapping[str, Any]],
    tolerances: Mapping[str, float],
) -> Agreement:
    """Worst and RMS difference over all frames that the calculator has numbers of.

    Args:
        info: of the model.
        frames: structures.
        expected: what the model gives for them.
        found: what :func:`results_of` gives, by frame.
        tolerances: other gates; what has one is to be compared.
    """
    case = Agreement(info.file, info.units, {})
    energies = {k: (r["energy"] - expected[k].energy) / len(frames[k]) for k, r in found.items()}
    forces = {k: (expected[k].forces, r["forces"]) for k, r in found.items()}
    stresses = {
        k: (-full_3x3_to_voigt_6_stress(expected[k].virial) / frames[k].get_volume(), r["stress"])
        for k, r in found.items()
        if "stress" in r
    }
    differences: dict[str, dict[int, np.ndarray]] = {
        "energy": {k: np.array([value]) for k, value in energies.items()},
        "force": {k: theirs - ours for k, (ours, theirs) in forces.items()},
        "stress": {k: theirs - ours for k, (ours, theirs) in stresses.items()},
    }
    if energies:
        case.mean_energy = float(np.mean([*energies.values()]))
    if len(energies) > 1:  # of one frame nothing would be left
        differences["relative_energy"] = {
            k: value - case.mean_energy for k, value in differences["energy"].items()
        }
    for name, parts in differences.items():
        if parts:
            _measure(case, name, parts)
    if "force" in case.rms:
        case.worst["force_rms"] = case.rms["force"]
    case.stresses = len(stresses)
    wanted = {"energy", "force", "force_rms", *case.worst, *tolerances}
    case.gates = {q: tolerances.get(q, gate) for q, gate in GATES.items() if q in wanted}
    case.notes = [
        *_left_out(info, frames, found),
        *_causes(case, [*forces.values()], [*stresses.values()]),
    ]
    return case


def _measure(case: Agreement, name: str, parts: Mapping[int, np.ndarray]) -> None:
    """Enter the largest value of arrays by frame, [n, 3], [6] or [1], its place, and their RMS."""
    frame = max(parts, key=lambda k: float(np.abs(parts[k]).max()))
    size = np.abs(parts[frame])
    index = np.unravel_index(int(size.argmax()), size.shape)
    case.worst[name] = float(size[index])
    case.rms[name] = float(
        np.sqrt(np.mean(np.concatenate([p.ravel() for p in parts.values()]) ** 2))
    )
    case.where[name] = Place(
        frame,
        int(index[0]) if name == "force" else None,
        COMPONENTS[index[0]] if name == "stress" else "",
    )


def _left_out(
    info: ModelInfo, frames: Sequence[Atoms], found: Mapping[int, Mapping[str, Any]]
) -> list[str]:
    """What the comparison does not see."""
    notes = []
    solids = [k for k in found if frames[k].pbc.all()]
    lacking = len(found) - sum("stress" in found[k] for k in found)
    if lacking:
        notes.append(
            f"no stress is compared of {lacking} frames: "
            + (
                "the calculator gives none"
                if any("stress" not in found[k] for k in solids)
                else "they are not periodic in all directions"
            )
        )
    if info.units == "lj":
        notes.append("the model is in reduced units; those of the calculator are taken as they are")
    if baseline := info.of_card(str, "configuration", "data", "baseline"):
        notes.append(
            f"'{baseline}' was taken off the labels of its training, as the file says; expected a "
            "calculator that leaves it out, too"
        )
    notes += [
        f"frames have {what}, which the calculator may take and the model does not"
        for name, what in UNSEEN.items()
        if any(np.any(atoms.arrays.get(name, atoms.info.get(name, 0))) for atoms in frames)
    ]
    return notes


def _causes(
    case: Agreement,
    forces: Sequence[tuple[np.ndarray, np.ndarray]],
    stresses: Sequence[tuple[np.ndarray, np.ndarray]],
) -> list[str]:
    """What would explain differences that are too large: pairs of the model's and calculator's."""
    notes = []
    if "energy" in case.failed and "relative_energy" in case.worst.keys() - {*case.failed}:
        notes.append(
            f"energies differ by {case.mean_energy:.6g} per atom in all frames: their references "
            "differ, and --tol energy=inf passes over that"
        )
    for name, pairs in (("force", forces), ("stress", stresses)):
        if name not in case.failed or not pairs:
            continue
        ours, theirs = (np.concatenate([p[k].ravel() for p in pairs]) for k in (0, 1))
        square = float(ours @ ours)
        factor = float(ours @ theirs) / square if square else 0.0
        gate = case.gates[name] * max(1.0, abs(factor))
        if np.abs(theirs - factor * ours).max() <= gate and abs(factor) > case.gates[name]:
            notes.append(
                f"{name} of the calculator is {factor:.6g} times that of the model, expected the "
                "units and signs of ase (eV, angstrom; stress is positive under tension)"
            )
    moved = forces and "force" in case.failed
    if moved and all(_reordered(*pair, case.gates["force"]) for pair in forces):
        notes.append(
            "forces of the calculator are those of the model in another order of atoms; let it "
            "give them in the order of the frame"
        )
    return notes


def _reordered(ours: np.ndarray, theirs: np.ndarray, gate: float) -> bool:
    """Whether rows [n, 3] are the same but for their order: then so are the columns."""
    return bool(np.abs(np.sort(theirs, axis=0) - np.sort(ours, axis=0)).max() <= gate)
