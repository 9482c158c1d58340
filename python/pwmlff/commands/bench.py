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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from rich.table import Column, Table
from typer import Argument, Option

from pwmlff.commands.base import Elements, Engines, Lmp, Mpirun, Plugin, Precisions
from pwmlff.commands.compare import Way, structures, ways
from pwmlff.commands.options import elements_of, names, positive_integers, seconds_of
from pwmlff.launch import mpirun as launcher
from pwmlff.launch import program
from pwmlff.report import Failure, Report, tracked

if TYPE_CHECKING:
    from ase import Atoms

LMP, ENGINE = "lmp", "engine"  # ways to run a model
#: Temperature and time step by the units of a model, in LAMMPS's units.
DYNAMICS = {"metal": (300.0, 0.0005), "lj": (1.0, 0.002)}
FIRST = 4  # steps of the run that tells how many fit into the time
RUN = """{read}replicate {copies} {copies} {copies}
{style}velocity all create {temperature} 4711 mom yes
fix 1 all nve
timestep {timestep}
thermo 1000000
run {warm}
run {steps}
"""


@dataclass
class Timed(Way):
    """One way to run a model, and what its rounds measured."""

    way: str  # LMP or ENGINE
    threads: int
    atoms: int
    rates: list[float] = field(default_factory=list)  # atom-steps/s


@dataclass(frozen=True)
class BenchReport(Report):
    """What was measured."""

    model: str
    structure: str
    cases: list[Timed]
    left_out: int  # cases that did not fit into the time

    def data(self) -> dict[str, Any]:
        """For JSON."""
        cases = [{**vars(case), "rate": max(case.rates)} for case in self.cases]
        return {**vars(self), "cases": cases}

    def show(self) -> RenderableType:
        """One row for each case."""
        numbers = ("ranks", "threads", "atoms", "atom-steps/s", "ms a step")
        table = Table(
            "through", "engine", "device", *(Column(name, justify="right") for name in numbers),
            title=f"{self.model} on {self.structure}", caption_justify="left",
        )  # fmt: skip
        for case in self.cases:
            rate = max(case.rates)
            counts = (str(n) for n in (case.ranks, case.threads, case.atoms))
            step = f"{1e3 * case.atoms / rate:.4g}"
            table.add_row(case.way, case.evaluator, case.device, *counts, f"{rate:.4g}", step)
        if self.left_out:
            table.caption = f"{self.left_out} cases did not fit into the time"
        return table


def bench(
    model: Annotated[Path, Argument(help="TorchScript model file.")],
    structure: Annotated[
        str, Argument(help="Structure, any file ase reads, FILE@0 for the first one.")
    ],
    elements: Elements = "",
    through: Annotated[
        str, Option(help="What runs the model: lmp, engine (from Python), or both.")
    ] = LMP,
    engine: Engines = "",
    precision: Precisions = "exact,double,mixed",
    np: Annotated[str, Option("--np", help="Numbers of ranks of lmp.")] = "1",
    threads: Annotated[str, Option(help="Numbers of threads of a rank.")] = "1",
    device: Annotated[str, Option(help="Devices: cpu, gpu.")] = "cpu",
    replicate: Annotated[
        int, Option(min=1, help="Copies of the structure along each cell vector.")
    ] = 1,
    rounds: Annotated[int, Option(min=1, help="Runs of each case, in turns.")] = 3,
    duration: Annotated[str, Option(help="Time of a run, like 4s.")] = "4s",
    max_time: Annotated[
        str, Option(help="Time after which later cases are left out, like 10m.")
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
    from pwmlff.launch.lmp import enclosed

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
    info = model_file.describe(model)
    symbols = elements_of(elements)
    numbers = info.numbers_of(symbols)
    atoms = structures(structure, symbols)[0][0]
    require_elements(atoms, numbers)
    require_usable(atoms, info.cutoff)
    box = enclosed(atoms)
    evaluated_by = ways(str(model), names(engine), names(precision))
    cases = [
        Timed(n, place, *way, mean, count, len(atoms) * replicate**3)
        for mean in means
        for place in devices
        for n in (ranks if mean == LMP else [1])
        for count in nthreads
        for way in evaluated_by
    ]
    with tempfile.TemporaryDirectory(prefix="pwmlff-") as folder:
        if LMP in means:
            programs = program.find(lmp, plugin), launcher.find(mpirun)
            run = _prepared(Path(folder), model, info.units, box, numbers, replicate, *programs)
        for case in tracked([case for _ in range(rounds) for case in cases], "timing"):
            if limit is not None and time.monotonic() - began >= limit:
                continue
            if case.way == LMP:
                guess = max(case.rates) if case.rates else run(case, FIRST)
                rate = run(case, max(FIRST, int(length * guess / case.atoms)))
            else:
                rate = _engine_rate(case, model, numbers, box * replicate, length)
            case.rates.append(rate)
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


def _prepared(
    folder: Path,
    model: Path,
    units: str,
    box: Atoms,
    elements: Sequence[int],
    copies: int,
    lmp_program: program.Program,
    starter: launcher.Mpirun,
) -> Callable[[Timed, int], float]:
    """Write the structure; return what runs so many steps of a case in lmp, in atom-steps/s."""
    from pwmlff.launch.lmp import plain_name, read_command, write_data

    write_data(folder / "bench.data", box, elements)
    name = plain_name(model, folder)
    temperature, timestep = DYNAMICS[units]

    def run(case: Timed, steps: int) -> float:
        text = RUN.format(
            read=read_command(box, "bench.data", units, grows=True),
            copies=copies,
            style=case.style(name, elements),
            temperature=temperature,
            timestep=timestep,
            warm=max(1, steps // 10),
            steps=steps,
        )
        mpirun = starter if case.ranks > 1 else None
        output = lmp_program.run(folder, text, mpirun, case.ranks, case.threads)
        return case.atoms * steps / loop_times(output)[-1]

    return run


def loop_times(output: str) -> list[float]:
    """Seconds of each run in what lmp says."""
    return [float(time) for time in re.findall(r"Loop time of (\S+) on", output)]
