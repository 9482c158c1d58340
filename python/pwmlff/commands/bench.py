"""`pwmlff bench`: how fast a model runs on a structure, in lmp or through its engine from Python.

All cases take turns, round after round, so that a busy machine slows all of them alike, and the
best of each is reported: what disturbs a run can only slow it down. In lmp a case is a run in the
NVE ensemble from 300 K (units lj: temperature 1), of which the loop time counts; from Python it is
one evaluation after the other.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.progress import track
from rich.table import Table

from pwmlff.commands.base import Elements, Engines, Lmp, Mpirun, Plugin, Precisions
from pwmlff.commands.compare import structures, ways
from pwmlff.commands.options import names, positive_integers, seconds_of
from pwmlff.launch import mpirun as launcher
from pwmlff.launch import program
from pwmlff.report import Failure, console

if TYPE_CHECKING:
    from ase import Atoms

    from pwmlff.evaluation import model_file

LMP, ENGINE = "lmp", "engine"  # ways to run a model
#: Temperature and time step by the units of a model, in LAMMPS's units.
DYNAMICS = {"metal": (300.0, 0.0005), "lj": (1.0, 0.002)}
FIRST = 4  # steps of the run that tells how many fit into the time
RUN = """{read}replicate {copies} {copies} {copies}
pair_style pwmlff {model} {keywords}
pair_coeff * * {symbols}
velocity all create {temperature} 4711 mom yes
fix 1 all nve
timestep {timestep}
thermo 1000000
run {warm}
run {steps}
"""


@dataclass
class Timed:
    """One way to run a model, and what its rounds measured."""

    way: str  # LMP or ENGINE
    engine: str
    precision: str | None  # None: the file's own
    ranks: int
    threads: int
    device: str
    atoms: int
    rates: list[float] = field(default_factory=list)  # atom-steps/s

    @property
    def keywords(self) -> str:
        """For pair_style pwmlff."""
        precision = f" precision {self.precision}" if self.precision else ""
        return f"engine {self.engine}{precision} device {self.device}"


@dataclass(frozen=True)
class BenchReport:
    """What was measured."""

    model: str
    structure: str
    cases: list[Timed]
    left_out: int  # cases that did not fit into the time

    ok = True

    def data(self) -> dict[str, Any]:
        """Plain values."""
        cases = [{**asdict(case), "rate": max(case.rates)} for case in self.cases]
        return {**vars(self), "cases": cases}

    def show(self) -> RenderableType:
        """One row for each case."""
        table = Table(title=f"{self.model} on {self.structure}", caption_justify="left")
        for name in ("through", "engine", "device"):
            table.add_column(name)
        for name in ("ranks", "threads", "atoms", "atom-steps/s", "ms a step"):
            table.add_column(name, justify="right")
        for case in self.cases:
            rate = max(case.rates)
            engine = " ".join(filter(None, (case.engine, case.precision)))
            counts = (str(n) for n in (case.ranks, case.threads, case.atoms))
            step = f"{1e3 * case.atoms / rate:.4g}"
            table.add_row(case.way, engine, case.device, *counts, f"{rate:.4g}", step)
        if self.left_out:
            table.caption = f"{self.left_out} cases did not fit into the time"
        return table


def bench(
    model: Annotated[Path, typer.Argument(help="TorchScript model file.")],
    structure: Annotated[
        str, typer.Argument(help="Structure, any file ase reads, FILE@0 for the first one.")
    ],
    elements: Elements = "",
    through: Annotated[
        str, typer.Option(help="What runs the model: lmp, engine (from Python), or both.")
    ] = LMP,
    engine: Engines = "",
    precision: Precisions = "exact,double,mixed",
    np: Annotated[str, typer.Option("--np", help="Numbers of ranks of lmp.")] = "1",
    threads: Annotated[str, typer.Option(help="Numbers of threads of a rank.")] = "1",
    device: Annotated[str, typer.Option(help="Devices: cpu, gpu.")] = "cpu",
    replicate: Annotated[
        int, typer.Option(min=1, help="Copies of the structure along each cell vector.")
    ] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each case, in turns.")] = 3,
    duration: Annotated[str, typer.Option(help="Time of a run, like 4s.")] = "4s",
    max_time: Annotated[
        str, typer.Option(help="Time after which later cases are left out, like 10m.")
    ] = "",
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
) -> BenchReport:
    """Time a model on a structure: engines, precisions, ranks and threads in turns.

    Example: pwmlff bench a.pt structure.xyz --precision double,mixed --np 1,2
    """
    from pwmlff.evaluation import model_file
    from pwmlff.evaluation.structures import require_elements, require_usable

    began = time.monotonic()
    length = seconds_of("--duration", duration)
    limit = seconds_of("--max-time", max_time) if max_time else None
    means, devices = names(through), names(device)
    for option, given, known in (
        ("--through", means, (LMP, ENGINE)),
        ("--device", devices, ("cpu", "gpu")),
    ):
        if bad := sorted({*given} - {*known}):
            raise Failure(f"{option} holds {', '.join(bad)}; expected {', '.join(known)}")
    ranks, nthreads = positive_integers("--np", np), positive_integers("--threads", threads)
    launcher.require_possible(max(ranks))
    _, info = model_file.open_model(model)
    symbols = elements.replace(",", " ").split()
    numbers = info.numbers_of(symbols)
    atoms = structures(structure, symbols)[0][0]
    require_elements(atoms, numbers)
    require_usable(atoms, info.cutoff)
    evaluated_by = ways(str(model), names(engine), names(precision))
    cases = [
        Timed(mean, *way, n, count, place, len(atoms) * replicate**3)
        for mean in means
        for place in devices
        for n in (ranks if mean == LMP else [1])
        for count in nthreads
        for way in evaluated_by
    ]
    with tempfile.TemporaryDirectory(prefix="pwmlff-") as name:
        runner = None
        if LMP in means:
            programs = program.find(lmp, plugin), launcher.find(mpirun)
            runner = _LmpRunner(Path(name), model, info, atoms, numbers, *programs)
        screen = console(stderr=True)
        for case in track(
            [case for _ in range(rounds) for case in cases], "timing", console=screen,
            transient=True, disable=not screen.is_terminal,
        ):  # fmt: skip
            if limit is not None and time.monotonic() - began >= limit:
                continue
            if case.way == LMP and runner is not None:
                case.rates.append(runner.rate(case, replicate, length))
            else:
                case.rates.append(_engine_rate(case, model, numbers, atoms * replicate, length))
    done = [case for case in cases if case.rates]
    return BenchReport(str(model), structure, done, len(cases) - len(done))


def _engine_rate(
    case: Timed, model: Path, elements: Sequence[int], atoms: Atoms, length: float
) -> float:
    """Atom-steps/s of evaluations from Python, one after the other."""
    from pwmlff.evaluation.engine import choose

    device = "cuda" if case.device == "gpu" else "cpu"
    engine = choose(
        model, case.engine, case.precision or "double", elements, case.threads, device=device
    ).engine
    engine(atoms)
    count, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < length or not count:
        engine(atoms)
        count += 1
    return len(atoms) * count / spent


class _LmpRunner:
    """Runs lmp with one model on one structure."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        info: model_file.ModelInfo,
        atoms: Atoms,
        elements: Sequence[int],
        lmp_program: program.Program,
        starter: launcher.Mpirun,
    ) -> None:
        from pwmlff.launch.lmp import enclosed, plain_name, read_command, write_data

        self.folder, self.program, self.mpirun = folder, lmp_program, starter
        box = enclosed(atoms)
        write_data(folder / "bench.data", box, elements)
        temperature, timestep = DYNAMICS[info.units]
        self.values = {
            "read": read_command(box, "bench.data", info.units),
            "model": plain_name(model, folder),
            "symbols": " ".join(
                s for s, z in zip(info.elements, info.atom_type, strict=True) if z in elements
            ),
            "temperature": temperature,
            "timestep": timestep,
        }

    def rate(self, case: Timed, copies: int, length: float) -> float:
        """Atom-steps/s of a run of about that many seconds."""
        guess = max(case.rates) if case.rates else self._rate(case, copies, FIRST)
        return self._rate(case, copies, max(FIRST, int(length * guess / case.atoms)))

    def _rate(self, case: Timed, copies: int, steps: int) -> float:
        text = RUN.format(
            **self.values, copies=copies, keywords=case.keywords, warm=max(1, steps // 10),
            steps=steps,
        )  # fmt: skip
        starter = self.mpirun if case.ranks > 1 else None
        output = self.program.run(self.folder, text, starter, case.ranks, case.threads)
        return case.atoms * steps / loop_time(output)


def loop_time(output: str) -> float:
    """Seconds of the last run in what lmp says."""
    return float(re.findall(r"Loop time of (\S+) on", output)[-1])
