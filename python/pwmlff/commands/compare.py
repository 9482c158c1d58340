"""`pwmlff compare`: the same structures through the float64 reference and through lmp.

The reference is :mod:`pwmlff.evaluation.reference`, on the CPU. lmp runs each combination of ranks,
device, engine and precision, and writes energies, forces and virial of all ranks with all digits.
All atoms of all frames are compared. A calculator of ase can take the place of lmp
(:mod:`pwmlff.evaluation.agreement`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from typer import Argument, Option

from pwmlff import devices, picture
from pwmlff.commands.base import Elements, Engines, Lmp, Mpirun, Parity, Plugin, Precisions
from pwmlff.commands.options import elements_of, names, numbers, positive_integers
from pwmlff.launch import mpirun as launcher
from pwmlff.launch import program
from pwmlff.report import Failure, Report, tracked

if TYPE_CHECKING:
    from ase import Atoms
    from numpy import ndarray

    from pwmlff.evaluation import model_file
    from pwmlff.evaluation.agreement import AgreementReport
    from pwmlff.evaluation.structures import Result

RANKS, PRECISIONS = "1,2", "exact,double,mixed"  # that lmp runs with where nothing else is said
TIMEOUT = 600  # seconds for one combination
QUANTITIES = ("energy", "atom_energy", "force", "force_rms", "virial")
#: Largest difference of the energy per atom, of one atom's energy (eV), of forces and their RMS
#: (eV/angstrom), and of the virial as a share of its largest component (at least 1 eV). Those of
#: "exact" are all shares of the largest value (at least 1), of "mixed" that of one atom's energy.
GATES = {
    "exact": (1e-10, 1e-10, 1e-10, 1e-10, 1e-10),
    "double": (1e-8, 1e-8, 1e-6, 1e-7, 1e-7),
    "mixed": (1e-6, 5e-6, 1e-4, 1e-5, 1e-5),
}


@dataclass
class Way:
    """One way to run a model."""

    ranks: int
    device: str
    engine: str
    precision: str | None  # None: the file's own

    @property
    def evaluator(self) -> str:
        """Engine and precision."""
        return " ".join(filter(None, (self.engine, self.precision)))

    @property
    def keywords(self) -> str:
        """For pair_style pwmlff."""
        precision = f" precision {self.precision}" if self.precision else ""
        return f"engine {self.engine}{precision} device {self.device}"

    def style(self, name: str, elements: Sequence[int]) -> str:
        """Lines of an input, for the name of a model file there and atomic numbers."""
        from ase.data import chemical_symbols

        symbols = " ".join(chemical_symbols[z] for z in elements)
        return f"pair_style pwmlff {name} {self.keywords}\npair_coeff * * {symbols}\n"


@dataclass
class Compared(Way):
    """What a model run in one way differs by, and how much it may."""

    model: str
    gates: dict[str, float]
    worst: dict[str, float] = field(default_factory=dict)
    rms: dict[str, float] = field(default_factory=dict)
    failure: str = ""  # lmp did not run

    @property
    def failed(self) -> list[str]:
        """Quantities that differ by more than they may."""
        return [q for q in QUANTITIES if not self.worst.get(q, math.nan) <= self.gates[q]]

    @property
    def ok(self) -> bool:
        """Whether lmp ran and everything is within its gate."""
        return not self.failure and not self.failed


@dataclass(frozen=True)
class CompareReport(Report):
    """What `pwmlff compare` found."""

    frames: int
    atoms: int
    cases: list[Compared]
    plot: str

    @property
    def ok(self) -> bool:
        """Whether all combinations are within their gates."""
        return all(case.ok for case in self.cases)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        cases = [{**vars(case), "ok": case.ok, "failed": case.failed} for case in self.cases]
        return {**vars(self), "cases": cases}

    def show(self) -> RenderableType:
        """One row for each combination."""
        shown = {
            "energy": "energy\n/atom", "atom_energy": "atom\nenergy", "force": "force",
            "virial": "virial\n(rel.)",
        }  # fmt: skip
        table = Table(
            Column("model", overflow="fold"), "np", "device", "engine",
            *(Column(name, justify="right") for name in shown.values()), "",
            title="largest and, below it, RMS difference from the float64 reference, "
            f"{self.frames} frame{'s' * (self.frames > 1)}, {self.atoms} atoms",
        )  # fmt: skip
        notes, short = [], short_names([case.model for case in self.cases])
        for case in self.cases:
            model = short[case.model]
            values = ["" for _ in shown]
            if case.failure:
                notes.append(Text(f"{model}, np {case.ranks}: {case.failure}", "red"))
            else:
                values = [f"{case.worst[q]:.1e}\n{case.rms[q]:.1e}" for q in shown]
                notes += [
                    Text(
                        f"{model}, np {case.ranks}, {case.keywords}: {name} differs by "
                        f"{case.worst[name]:.1e}, allowed {case.gates[name]:.1e}",
                        "red",
                    )
                    for name in case.failed
                ]
            verdict = Text("pass", "green") if case.ok else Text("FAIL", "bold red")
            table.add_row(model, str(case.ranks), case.device, case.evaluator, *values, verdict)
        if self.plot:
            notes.append(Text(f"parity plot: {self.plot}"))
        return Group(table, *notes)


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The name of each file, with as many of its folders as it takes to tell it from the others."""
    names: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        parts = Path(path).parts
        tails = ("/".join(parts[-n:]) for n in range(1, len(parts)))
        others = [f"/{other}" for other in paths if other != path]
        alone = (t for t in tails if not any(other.endswith(f"/{t}") for other in others))
        names[path] = next(alone, path)
    return names


def compare(
    models: Annotated[list[Path], Argument(help="Model files.")],
    data: Annotated[str, Option(help="Structures, any file ase reads; FILE@: for all.")],
    elements: Elements = "",
    format: Annotated[
        str | None,
        Option(help="Format of the structures, as ase calls it.", show_default="as they look"),
    ] = None,
    atom_style: Annotated[
        str | None, Option(help="Atom style of a LAMMPS data file that does not say it.")
    ] = None,
    np: Annotated[str, Option("--np", help="Numbers of ranks.")] = RANKS,
    device: Annotated[
        str, Option(help="Devices: cpu, gpu.", show_default="those that there are")
    ] = "",
    engine: Engines = "",
    precision: Precisions = PRECISIONS,
    tol: Annotated[str, Option(help="Other gates, like 'force=1e-5,energy=1e-7'.")] = "",
    plot: Parity = None,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
    calculator: Annotated[
        str,
        Option(
            "--with",
            help="Calculator of ase to compare with instead of lmp, like "
            "ase.calculators.emt:EMT() or my_file.py:make().",
        ),
    ] = "",
) -> Report:
    """Compare lmp in every combination with the plain float64 reference on the CPU.

    Energies, energies of atoms, forces and virial, against the gates of each precision. Of a LAMMPS
    data file the elements are those of its types, in order; without them as its labels or masses
    say. With --with, energies, forces and stress of that calculator instead of lmp's.

    Example: pwmlff compare model.pt --data structures.extxyz@0:5 --np 1,2,4 --plot parity.png
    """
    from pwmlff.launch.lmp import enclosed

    if calculator:
        of_lmp = {
            "--np": np != RANKS, "--device": device, "--engine": engine,
            "--precision": precision != PRECISIONS, "--lmp": lmp, "--plugin": plugin,
            "--mpirun": mpirun,
        }  # fmt: skip
        given = [name for name, is_given in of_lmp.items() if is_given]
        if given:
            raise Failure(f"found --with and {', '.join(given)}: lmp does not run; leave one out")
        source = data, elements_of(elements), format, atom_style
        return _with_calculator(calculator, models, source, tol, plot)
    ranks, tolerances = positive_integers("--np", np), _tolerances(tol, QUANTITIES)
    launcher.require_possible(max(ranks))
    output = picture.destination(plot) if plot else None
    chosen = elements_of(elements)
    frames, lammps_data = structures(data, chosen, format, atom_style)
    cases: list[Compared] = []
    parity: list[tuple[str, ndarray, ndarray]] = []
    starter, lmp_program = launcher.find(mpirun), program.find(lmp, plugin)
    short = short_names([str(path) for path in models])
    places = names(device) or ["cpu", *(["gpu"] if devices.inventory().gpus else [])]
    for path in models:
        info, named, expected = _evaluated(path, chosen, frames, lammps_data)
        taking_part = [
            named or [z for z in info.atom_type if z in atoms.numbers] for atoms in frames
        ]
        boxes = [enclosed(atoms) for atoms in frames]
        in_lammps = [turned(result, box) for result, box in zip(expected, boxes, strict=True)]
        evaluated_by = ways(info.file, names(engine), names(precision))
        combinations = [
            Way(nranks, place, *way) for nranks in ranks for place in places for way in evaluated_by
        ]
        for way in tracked(combinations, f"running {path.name}"):
            case = Compared(
                **vars(way), model=info.file, gates=_gates(way, info, expected, tolerances)
            )
            try:
                results = run_in_lmp(
                    lmp_program, starter, path, info.units, boxes, taking_part, case
                )
                _measure(case, in_lammps, results)
                if output:
                    label = f"{short[str(path)]}, np {case.ranks}, {case.device}, {case.keywords}"
                    ours, theirs = (
                        _components([result.forces for result in side])
                        for side in (in_lammps, results)
                    )
                    parity.append((label, ours, theirs))
            except Failure as failure:
                case.failure = str(failure)
            cases.append(case)
    if output and parity:
        _draw(output, parity, "lmp")
    return CompareReport(len(frames), sum(len(atoms) for atoms in frames), cases, str(output or ""))


def _tolerances(text: str, quantities: Iterable[str]) -> dict[str, float]:
    """Gates of the option --tol, for some of these quantities."""
    tolerances = numbers("--tol", text)
    unknown = sorted(set(tolerances) - set(quantities))
    if unknown:
        raise Failure(f"--tol names {', '.join(unknown)}; expected one of {', '.join(quantities)}")
    return tolerances


def _with_calculator(
    words: str,
    models: Sequence[Path],
    source: tuple[str, list[str], str | None, str | None],
    tol: str,
    plot: Path | None,
) -> AgreementReport:
    """Compare with a calculator of ase.

    Args:
        words: that name it.
        models: files.
        source: of the structures, as :func:`structures` takes it.
        tol: other gates.
        plot: picture to draw.
    """
    from pwmlff.evaluation import agreement

    agreement.require_words(words)
    tolerances = _tolerances(tol, agreement.GATES)
    output = picture.destination(plot) if plot else None
    frames, lammps_data = structures(*source, by_ase=True)
    # Before the calculator is made, which may set a precision for all of torch.
    evaluated = [_evaluated(path, source[1], frames, lammps_data) for path in models]
    calculator = agreement.opened(words)
    found, failures = {}, {}
    for k, atoms in enumerate(tracked(frames, "running the calculator")):
        try:
            found[k] = agreement.results_of(calculator, atoms)
        except Failure as failure:
            failures[k] = str(failure)
    cases = [
        agreement.compared(info, frames, expected, found, tolerances)
        for info, _, expected in evaluated
    ]
    if output and found:
        short = short_names([str(path) for path in models])
        theirs = _components([results["forces"] for results in found.values()])
        parity = [
            (short[str(path)], _components([expected[k].forces for k in found]), theirs)
            for path, (_, _, expected) in zip(models, evaluated, strict=True)
        ]
        _draw(output, parity, "the calculator")
    drawn = str(output) if output and found else ""
    natoms = sum(len(atoms) for atoms in frames)
    return agreement.AgreementReport(words, len(frames), natoms, failures, cases, drawn)


def structures(
    data: str,
    elements: Sequence[str],
    format: str | None = None,
    atom_style: str | None = None,
    by_ase: bool = False,
) -> tuple[list[Atoms], bool]:
    """Read structures; tell whether the file is a LAMMPS data file.

    Args:
        data: a file that ase reads, with its @index.
        elements: of a LAMMPS data file, those of its types in order.
        format: as ase calls it; as the file looks when None.
        atom_style: of a LAMMPS data file that does not say it.
        by_ase: as :func:`pwmlff.data.readers.structures` takes it.

    Raises:
        Failure: the file cannot be read, or a structure has no atoms.
    """
    from pwmlff.data import readers
    from pwmlff.launch.lmp import is_data_file, read_data

    lammps_data = is_data_file(data) if format is None else format == "lammps-data"
    if lammps_data:
        if not Path(data).is_file():
            raise Failure(f"found no LAMMPS data file '{data}'")
        frames = [read_data(data, elements, atom_style)]
    else:
        frames = readers.structures(data, format, by_ase)
    empty = [k for k, atoms in enumerate(frames) if len(atoms) == 0]
    if empty:
        raise Failure(f"frame {empty[0]} of '{data}' has no atoms: nothing to compute")
    return frames, lammps_data


def _evaluated(
    path: Path, chosen: Sequence[str], frames: Sequence[Atoms], lammps_data: bool
) -> tuple[model_file.ModelInfo, list[int] | None, list[Result]]:
    """What a model file is, atomic numbers that take part, and what the reference computes.

    The numbers are None where those of each structure take part.
    """
    from pwmlff.evaluation import model_file
    from pwmlff.evaluation.reference import evaluate

    module, info = model_file.open_any(path)
    named = info.numbers_of(chosen)
    elements = None if info.counts_present and not chosen else named
    try:
        return info, elements, [evaluate(module, atoms, elements) for atoms in frames]
    except ValueError as error:
        hint = "; --elements gives the elements of the types in order" if lammps_data else ""
        raise Failure(
            f"the reference does not compute these structures with '{path}': {error}{hint}"
        ) from error


def ways(
    model: str, engines: Sequence[str], precisions: Sequence[str]
) -> list[tuple[str, str | None]]:
    """Engines and their precisions; the file's own code, "torchscript", knows none.

    Args:
        model: a file.
        engines: auto, fused, torchscript; those that run the file when empty.
        precisions: of the fused engine.

    Raises:
        Failure: there is no such engine or precision.
    """
    from pwmlff.evaluation.engine import choose
    from pwmlff.evaluation.model_file import PRECISIONS

    if not engines:
        choice = choose(model)
        fused = choice.engine.name == "fused"
        engines = [*["torchscript"] * choice.info.scripted, *["fused"] * fused]
    bad = sorted({*engines} - {"auto", "fused", "torchscript"})
    bad += sorted({*precisions} - {*PRECISIONS})
    if bad:
        raise Failure(
            f"found {', '.join(bad)}; expected engines auto, fused, torchscript and precisions "
            f"{', '.join(PRECISIONS)}"
        )
    return [
        (engine, precision)
        for engine in engines
        for precision in ([None] if engine == "torchscript" else precisions)
    ]


def _gates(
    case: Way, info: model_file.ModelInfo, expected: Sequence[Result], tolerances: dict[str, float]
) -> dict[str, float]:
    """What a case may differ by; parameters in float32 are as good as the mixed precision."""
    precision = case.precision or ("exact" if info.dtype == "float64" else "mixed")
    gates = dict(zip(QUANTITIES, GATES[precision], strict=True))
    energy = max(1.0, *(abs(e.atom_energy).max(initial=0.0) for e in expected))
    force = max(1.0, *(abs(e.forces).max(initial=0.0) for e in expected))
    shares = {
        "exact": {"energy": energy, "atom_energy": energy, "force": force, "force_rms": force},
        "mixed": {"atom_energy": energy},
    }
    for name, scale in shares.get(precision, {}).items():
        gates[name] *= scale
    return {**gates, **tolerances}


def turned(result: Result, box: Atoms) -> Result:
    """Results in LAMMPS's cell; the virial as six components."""
    from ase.calculators.lammps import Prism

    from pwmlff.launch.lmp import virial_to_lammps

    prism = Prism(box.cell, pbc=box.pbc)
    virial = virial_to_lammps(result.virial, prism)
    return replace(result, forces=prism.vector_to_lammps(result.forces), virial=virial)


def run_in_lmp(
    lmp_program: program.Program,
    starter: launcher.Mpirun,
    path: Path,
    units: str,
    boxes: Sequence[Atoms],
    elements: Sequence[Sequence[int]],
    way: Way,
    charges: bool = False,
) -> list[Result]:
    """Results of lmp for each structure, in LAMMPS's cell; the virial as six components.

    Structures with the same elements are in one run.
    """
    from pwmlff.evaluation.structures import Result
    from pwmlff.launch import lmp

    results: dict[int, Result] = {}
    with tempfile.TemporaryDirectory(prefix="pwmlff-") as name:
        folder = Path(name)
        model = lmp.plain_name(path, folder)
        for named in {tuple(part): None for part in elements}:
            indices = [k for k, part in enumerate(elements) if tuple(part) == named]
            some, style = [boxes[k] for k in indices], way.style(model, named)
            measured = lmp.evaluate(
                lmp_program, folder, some, named, style, units, starter, way.ranks, TIMEOUT, charges
            )
            results |= {k: Result(*part) for k, part in zip(indices, measured, strict=True)}
    return [results[k] for k in range(len(boxes))]


def _measure(case: Compared, expected: Sequence[Result], results: Sequence[Result]) -> None:
    """Worst and RMS difference over all frames and atoms."""
    import numpy as np

    pairs = list(zip(expected, results, strict=True))
    differences = {
        "energy": [np.array([(f.energy - e.energy) / len(e.atom_energy)]) for e, f in pairs],
        "atom_energy": [f.atom_energy - e.atom_energy for e, f in pairs],
        "force": [(f.forces - e.forces).ravel() for e, f in pairs],
        "virial": [(f.virial - e.virial) / max(1.0, np.abs(e.virial).max()) for e, f in pairs],
    }
    for name, parts in differences.items():
        values = np.concatenate(parts)
        case.worst[name] = float(np.abs(values).max())
        case.rms[name] = float(np.sqrt((values**2).mean()))
    case.worst["force_rms"] = case.rms["force"]


def _components(forces: Sequence[ndarray]) -> ndarray:
    """All components of arrays [n, 3]."""
    import numpy as np

    return np.concatenate([array.ravel() for array in forces])


def _draw(path: Path, parity: Sequence[tuple[str, ndarray, ndarray]], whose: str) -> None:
    """Forces of lmp or a calculator against the reference, and below what they differ by."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 7.2), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for label, reference, forces in parity:
        top.plot(reference, forces, ".", markersize=3, label=label)
        bottom.plot(reference, np.maximum(np.abs(forces - reference), 1e-17), ".", markersize=3)
    low, high = top.get_xlim()
    top.plot((low, high), (low, high), "-", color="0.7", linewidth=0.8, zorder=0)
    top.set_ylabel(f"force component of {whose}")
    top.legend(fontsize="x-small")
    bottom.set_yscale("log")
    bottom.set_ylabel("difference")
    bottom.set_xlabel("force component of the reference (eV/Å, or reduced)")
    picture.save(figure, path, dpi=150)
