"""`pwmlff verify`: what a model must keep to, whatever program it comes from, graded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from pwmlff import picture
from pwmlff.commands.base import Elements, Lmp, Mpirun, Plugin
from pwmlff.commands.compare import Way, run_in_lmp, turned
from pwmlff.commands.options import elements_of, names, positive_integers
from pwmlff.launch import mpirun as launcher
from pwmlff.launch import program
from pwmlff.report import Failure, Report, last_line, tracked

if TYPE_CHECKING:
    from ase import Atoms

    from pwmlff.evaluation import model_file
    from pwmlff.evaluation.physics import Curves
    from pwmlff.evaluation.properties import Properties
    from pwmlff.evaluation.verification import Graded, Verification

COLORS = {"A": "green", "B": "green", "C": "yellow", "D": "yellow", "F": "bold red", "": "dim"}


@dataclass(frozen=True)
class VerifyReport(Report):
    """What `pwmlff verify` found."""

    model: str
    engine: str
    elements: list[str]
    checks: dict[str, Graded]
    seconds: dict[str, float]  # that each check took
    properties: Properties
    plot: str

    @property
    def ok(self) -> bool:
        """Whether nothing has failed."""
        return all(check.grade != "F" for check in self.checks.values())

    def data(self) -> dict[str, Any]:
        """For JSON."""
        checks = [
            {"name": name, **asdict(check), "seconds": self.seconds[name]}
            for name, check in self.checks.items()
        ]
        known = {name: value for name, value in asdict(self.properties).items() if value}
        plain = {name: getattr(self, name) for name in ("model", "engine", "elements", "plot")}
        return {**plain, "checks": checks, "properties": known}

    def show(self) -> RenderableType:
        """A row for each check."""
        title = f"{self.model}, engine {self.engine}, {' '.join(self.elements)}"
        table = Table("check", "measured", "s", "grade", title=title)
        for name, check in self.checks.items():
            grade = Text(check.grade or "-", COLORS[check.grade])
            table.add_row(name, check.measured, f"{self.seconds[name]:.1f}", grade)
        return Group(table, *[Text(f"picture: {self.plot}")] * bool(self.plot))


def verify(
    model: Annotated[Path, Argument(help="Model file.")],
    data: Annotated[
        str | None,
        Option(help="Structures with forces that it should give; FILE@0:5 for five frames."),
    ] = None,
    elements: Elements = "",
    engine: Annotated[str, Option(help="Engine: auto, fused, torchscript.")] = "auto",
    precision: Annotated[str, Option(help="Precision of the fused engine.")] = "double",
    np: Annotated[str, Option("--np", help="Numbers of ranks to compare.")] = "1,2,4",
    check: Annotated[
        str,
        Option(help="Checks to make, by name, like 'objectivity,rank-invariance'; all of them."),
    ] = "",
    quick: Annotated[
        bool, Option("--quick", help="Leave out what takes a minute: properties and long runs.")
    ] = False,
    compared: Annotated[
        Path | None,
        Option(
            "--against",
            metavar="FILE",
            help="What properties of the crystal of --data are compared with: a model file, or "
            "JSON with some of volume, bulk_modulus, elastic_constants, phonons, as --json prints.",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        Option(min=0.0, help="Of the hot run, K; as hot as the data, or 300, if it is not given."),
    ] = None,
    plot: Annotated[
        Path | None,
        Option(
            help="Picture to draw, of dimers, compression and the total energy: a PNG or the like."
        ),
    ] = None,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
) -> VerifyReport:
    """Grade a model: symmetries, derivatives, locality, ranks, engines, curves, dynamics.

    The checks have the names and letters of OpenKIM's: A is best, F fails, and so does the
    command. They need no data; with --data forces are compared with labels too. A file that tells
    what it gave when it was written has to give it still.

    Example: pwmlff verify model.pt --plot verify.png
    """
    from ase.data import chemical_symbols

    from pwmlff.data import readers
    from pwmlff.evaluation import model_file, self_test
    from pwmlff.evaluation.calculator import Calculator
    from pwmlff.evaluation.physics import LONG_CHECKS, PROPERTY_CHECKS, Physics
    from pwmlff.evaluation.properties import Properties
    from pwmlff.evaluation.verification import Graded, Verification, has_forces

    ranks = positive_integers("--np", np)
    launcher.require_possible(max(ranks))
    output = picture.destination(plot) if plot else None
    info = model_file.open_any(model)[1]
    if info.takes_temperature:
        raise Failure(f"'{model}' has the temperature as a descriptor, which verify does not vary")
    symbols = elements_of(elements)
    chosen = info.numbers_of(symbols)
    frames = readers.read([data]) if data else None
    labelled = [frames.atoms(k) for k in range(len(frames))] if frames else []
    if not all(has_forces(atoms) for atoms in labelled):
        raise Failure(f"'{data}' has structures without forces: nothing to compare with")

    def examine(engine: str) -> Verification:
        named = chosen if symbols else None
        options = {"engine": engine, "precision": precision, "elements": named, "nthreads": 1}
        return Verification(info, chosen, partial(Calculator, model, **options), labelled)

    @cache
    def programs() -> tuple[program.Program, launcher.Mpirun]:
        return program.find(lmp, plugin), launcher.find(mpirun)

    if lmp or plugin or mpirun:  # what was asked for has to be there, and none otherwise
        programs()
    try:
        examined = examine(engine)
    except Failure:  # refused when it is loaded; lmp says below why
        examined = examine("reference")
    other: Properties | Calculator | None = None
    if compared is not None:
        if not any(atoms.pbc.all() for atoms in labelled):
            raise Failure("--against compares properties of a crystal, expected one in --data")
        is_json = compared.suffix == ".json"
        other = Properties.read(compared) if is_json else Calculator(compared, nthreads=1)
    physics = Physics(examined, other, temperature)
    work: dict[str, Callable[[], Graded]] = {
        **examined.checks(),
        **physics.checks(),
        "engine-invariance": partial(_engines, examined, model),
        "rank-invariance": partial(_ranks, examined, model, engine, precision, ranks, programs),
    }
    if self_test.of_file(model, info) is not None:
        work["self-test"] = partial(_self_test, model, info)
    wanted = names(check) or [name for name in work if not (quick and name in LONG_CHECKS)]
    if compared is not None and not set(wanted) & set(PROPERTY_CHECKS):
        raise Failure(
            "--against has nothing to compare, expected one of the checks "
            f"{', '.join(PROPERTY_CHECKS)}"
        )
    if unknown := [name for name in wanted if name not in work]:
        raise Failure(
            f"found the check {unknown[0]!r} in --check, expected some of {', '.join(work)}"
        )
    checks, seconds = {}, {}
    for name in tracked(wanted, f"verifying {model.name}"):
        began = time.monotonic()
        try:
            checks[name] = work[name]()
        except (ValueError, RuntimeError) as error:
            checks[name] = Graded("F", f"cannot be evaluated: {last_line(error)}")
        seconds[name] = time.monotonic() - began
    if output:
        _draw(output, physics.curves)
    known = [chemical_symbols[z] for z in chosen]
    return VerifyReport(
        str(model), examined.calculator.engine, known, checks, seconds, physics.properties,
        str(output or ""),
    )  # fmt: skip


def _engines(examined: Verification, model: Path) -> Graded:
    """Energies and forces against the file's own code, or the formulas, in float64."""
    from pwmlff.evaluation import model_file
    from pwmlff.evaluation.reference import evaluate
    from pwmlff.evaluation.verification import Graded

    module, _ = model_file.open_any(model)
    worst = 0.0
    for atoms in (examined.crystal, examined.cluster()):
        try:
            own = evaluate(module, atoms, examined.elements)
        except ValueError as error:  # it is no Deep Potential that the reference can compute
            return Graded("", last_line(error))
        worst = max(worst, examined.error(examined.evaluate(atoms), (own.energy, own.forces)))
    what = f"{examined.calculator.engine} and the file's own code in float64 differ by"
    return examined.graded(worst, what)


def _self_test(model: Path, info: model_file.ModelInfo) -> Graded:
    """Energies and forces against those that the file had when it was written."""
    from pwmlff.evaluation import self_test
    from pwmlff.evaluation.verification import Graded

    change = self_test.change_of(model, info)
    assert change is not None  # as there is one
    what = f"differs by {change.largest:.1e} of the largest from when it was written"
    return Graded("F" if change.text else "A", what)


def _ranks(
    examined: Verification,
    model: Path,
    engine: str,
    precision: str,
    ranks: list[int],
    programs: Callable[[], tuple[program.Program, launcher.Mpirun]],
) -> Graded:
    """lmp on these numbers of ranks against the calculator: energy, forces, virial, charges."""
    from ase.stress import voigt_6_to_full_3x3_stress

    from pwmlff.evaluation.structures import Result
    from pwmlff.evaluation.verification import Graded
    from pwmlff.launch.lmp import enclosed

    try:
        lmp, starter = programs()
    except Failure as failure:
        return Graded("", str(failure))
    atoms: Atoms = examined.crystal
    calculator = examined.calculator
    stress = voigt_6_to_full_3x3_stress(calculator.get_property("stress", atoms))
    energies = calculator.get_property("energies", atoms)
    box = enclosed(atoms)
    energy, forces = examined.evaluate(atoms)
    wanted = turned(Result(energy, energies, forces, -stress * atoms.get_volume()), box)
    charged = examined.info.has_charges
    charges = calculator.get_property("charges", atoms) if charged else None
    worst = 0.0
    for count in ranks:
        way = Way(count, "cpu", engine, None if engine == "torchscript" else precision)
        try:
            (result,) = run_in_lmp(
                lmp, starter, model, examined.info.units, [box], [examined.elements], way, charged
            )
        except Failure as failure:
            return Graded("F", f"lmp on {count} ranks: {last_line(failure)}")
        error = examined.error((result.energy, result.forces), (wanted.energy, wanted.forces))
        scale = max(1.0, abs(wanted.virial).max())
        worst = max(worst, error, float(abs(result.virial - wanted.virial).max() / scale))
        if result.charges is not None:
            worst = max(worst, float(abs(result.charges - charges).max()))
    what = f"lmp on {', '.join(map(str, ranks))} ranks and the calculator differ by"
    return examined.graded(worst, what)


def _draw(path: Path, curves: Curves) -> None:
    """Dimers, compression, and the total energy of the dynamics."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for name, (r, energy) in curves.dimers.items():
        left.plot(r, energy - energy[-1], label=name)
    left.set_yscale("asinh", linear_width=1.0)
    left.set_xlabel("distance (Å)")
    left.set_ylabel("energy of dimers (eV)")
    left.legend(fontsize="x-small")
    middle.plot(*curves.volumes, ".-")
    middle.set_xlabel("volume (Å³/atom)")
    middle.set_ylabel("energy of the crystal (eV/atom)")
    middle.set_yscale("asinh", linear_width=10.0)
    times, energies = curves.total_energy
    if len(energies):
        right.plot(times, 1e6 * (energies - energies[0]))
    right.set_xlabel("time (ps)")
    right.set_ylabel("change of the total energy (µeV/atom)")
    picture.save(figure, path, dpi=150)
