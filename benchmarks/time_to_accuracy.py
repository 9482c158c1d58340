"""Time to accuracy: minutes of training until forces of unseen frames are good enough.

    python benchmarks/time_to_accuracy.py ../shared/data/hfo2_dft --elements 'Hf O' --minutes 10 \\
        --python torchnep=DIR/bin/python --python mace=DIR/bin/python -o hfo2

The folder has train.extxyz, which each program learns from, and valid.extxyz, which it validates
with; or the words are names of data sets of training_defaults.py. One program runs at a time, on
all cores that this process may use, as its own documents and defaults say (other_trainings.py):
programs of this project, and those that --python names, each with the Python that has it. What a
program logs of the errors of forces in valid.extxyz gets the time at which it appears, from the
start of the command on. Rates of learning fall over a number of steps in some. Those run for a part
of the time first, so that the number fits this machine and these frames, and once more where they
end too early. At the end its calculator
evaluates these frames once more, and the result is timed: by its calculator on one core, and by lmp
with pair_style pwmlff where that takes the file. The table, the picture and report.json, with each
command line, version and last words of what failed, go to the folder of -o. What is there already
is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from ase.io import read, write
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from in_turns import step_seconds
from other_trainings import PROGRAMS, Program
from pwmlff.data import statistics
from pwmlff.picture import few_ticks
from training_defaults import DATA, prepare

SCRIPT = Path(__file__).with_name("other_calculators.py")
POLL, GRACE = 0.5, 180.0  # seconds between looks at a log, and to the end after a signal
TRIAL, TRIALS, FULL = 1 / 3, 2, 0.9  # of the minutes, of which a run that has as many takes most
STEPS, EVALUATIONS, LEAST = 20, 5, 500  # of lmp, of a calculator, and atoms of what is timed
WORDS = 30  # lines of what a program that failed said last


class Unusable(Exception):
    """What a program says that does not evaluate its result."""


@dataclass
class Run:
    """One training."""

    program: str
    version: str
    command: list[str]
    minutes: float
    curve: list[tuple[float, float]] = field(default_factory=list)  # seconds, meV/angstrom
    seconds: float = 0.0  # until it had ended
    force: float | None = None  # RMSE of the result, meV/angstrom
    energy: float | None = None  # meV/atom
    own: float | None = None  # thousand atoms/s of its calculator
    lmp: float | None = None  # thousand atom-steps/s of lmp
    failed: str = ""

    def minutes_to(self, level: float) -> float | None:
        """Minutes until the error was there for the first time."""
        return next((seconds / 60 for seconds, error in self.curve if error <= level), None)


def last(said: str) -> str:
    """The last lines of it."""
    return "\n".join(said.splitlines()[-WORDS:])


def watched(program: Program, run: Run, folder: Path) -> None:
    """Run a training to its end, or to that of its time, and note when it logs what."""
    begin = time.monotonic()
    with (folder / "stdout").open("w") as output:
        process = subprocess.Popen(
            run.command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        ends = begin + 60 * program.slack * run.minutes
        while (done := process.poll()) is None and time.monotonic() < ends:
            time.sleep(POLL)
            new = program.errors(folder)[len(run.curve) :]
            run.curve += [(time.monotonic() - begin, error) for error in new]
        if done is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.killpg(process.pid, number)
                try:
                    process.wait(GRACE)
                    break
                except subprocess.TimeoutExpired:
                    continue
    run.seconds = time.monotonic() - begin
    new = program.errors(folder)[len(run.curve) :]
    run.curve += [(run.seconds, error) for error in new]
    if done or not program.model(folder).exists():
        said = (folder / "stdout").read_text(errors="replace")
        run.failed = f"no model after {run.seconds:.0f} s, exit code {done}\n{last(said)}"


def evaluated(program: Program, python: str, model: Path, frames: Path, count: int) -> tuple:
    """Energies [n] and forces [sum, 3] of frames, and seconds of an evaluation of the last one."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        words = [python, SCRIPT, program.calculator, model, frames, str(count), f"{name}/own.npz"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise Unusable(last(f"{shlex.join(map(str, words))}\n{done.stdout}\n{done.stderr}"))
        with np.load(f"{name}/own.npz") as own:
            seconds = float(done.stdout.split()[-1]) if count else 0.0
            return own["energy"], own["forces"], seconds


def judged(program: Program, run: Run, python: str, folder: Path, data: Path, symbols: str) -> None:
    """Errors of the result by its own calculator, and how fast it is.

    Energies count up to those of single atoms, as some programs leave them out.
    """
    model = program.model(folder)
    frames = read(data / "valid.extxyz", ":")
    energies, forces, _ = evaluated(program, python, model, data / "valid.extxyz", 0)
    wrong = forces - np.concatenate([atoms.get_forces() for atoms in frames])
    natoms = np.array([len(atoms) for atoms in frames])
    per_atom = (energies - [atoms.get_potential_energy() for atoms in frames]) / natoms
    counts = [[np.sum(atoms.symbols == symbol) for symbol in symbols.split()] for atoms in frames]
    shares = np.array(counts) / natoms[:, None]
    per_atom -= shares @ statistics.fitted(shares, per_atom)
    run.force = 1e3 * float(np.sqrt(np.mean(wrong**2)))
    run.energy = 1e3 * float(np.sqrt(np.mean(per_atom**2)))
    atoms = next((a for a in frames if set(symbols.split()) == set(a.symbols)), frames[0])
    if atoms.pbc.all():
        atoms = atoms.repeat([2 if len(atoms) < LEAST else 1] * 3)
    atoms.calc = None
    write(folder / "timed.xyz", atoms)
    seconds = evaluated(program, python, model, folder / "timed.xyz", EVALUATIONS)[2]
    run.own = len(atoms) / seconds / 1e3
    converted = folder / f"converted{model.suffix if model.suffix in ('.txt', '.yaml') else '.pt'}"
    path = os.pathsep.join([os.environ["PATH"], str(Path(python).parent)])
    words = [sys.executable, "-P", "-m", "pwmlff", "convert", model, "-o", converted]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path}
    )
    if done.returncode or not atoms.pbc.all():
        return
    run.lmp = len(atoms) / step_seconds(atoms, str(converted), symbols, STEPS) / 1e3


def fitting(trial: Run, counted: float, minutes: float) -> float:
    """Minutes for which as many steps are counted as end in time here.

    A program's start and end are as long whatever their number is. Errors are logged after equal
    parts of the steps, so these take as many intervals as there are errors.

    Args:
        trial: a run that was shorter.
        counted: the minutes that its steps were counted for.
        minutes: those that there are.
    """
    times, work = [seconds for seconds, _ in trial.curve], trial.seconds
    if len(times) > 1:
        work = min(work, (times[-1] - times[0]) * len(times) / (len(times) - 1))
    pace = work / (60 * counted)
    return max(minutes - (trial.seconds - work) / 60, counted) / pace


def trained(name: str, python: str, folder: Path, data: Path, symbols: str, minutes: float) -> Run:
    """A training, or what is there of it."""
    program = PROGRAMS[name]
    kept = folder / "run.json"
    if kept.exists():
        return Run(**json.loads(kept.read_text()))
    folder.mkdir(parents=True)
    files = data / "train.extxyz", data / "valid.extxyz"

    def started(where: Path, counted: float) -> Run:
        command = program.setup(where, python, files, symbols.split(), counted)
        return Run(name, program.version(python), list(map(str, command)), minutes)

    counted, trials = (TRIAL * minutes, TRIALS) if program.counts else (minutes, 0)
    for k in range(trials + 1):
        where = folder / f"{k}"
        where.mkdir()
        latest = started(where, counted)
        watched(program, latest, where)
        if k and latest.failed:
            break  # it took too long, and the one before has a model
        run, own = latest, where
        if run.failed or run.seconds > FULL * 60 * minutes:
            break
        counted = fitting(run, counted, minutes)
    try:
        if not run.failed:
            judged(program, run, python, own, data, symbols)
    except Unusable as reason:
        run.failed = str(reason)
    kept.write_text(json.dumps(asdict(run), indent=1))
    return run


def without_folders(run: Run, folders: Sequence[str]) -> Run:
    """The same without names of folders here in what it says."""

    def told(text: str) -> str:
        for folder in folders:
            text = text.replace(f"{folder}/", "").replace(folder, ".")
        return text

    return replace(run, command=[told(word) for word in run.command], failed=told(run.failed))


def shown(value: float | None, digits: int = 1) -> str:
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def table(runs: Sequence[Run], levels: Sequence[float]) -> Table:
    """A row for each training."""
    result = Table(
        "program", "min", *(f"to {level:g}" for level in levels), "meV/A", "meV/atom",
        "own, k/s", "lmp, k/s", box=None,
    )  # fmt: skip
    for run in runs:
        times = [shown(run.minutes_to(level)) for level in levels]
        errors = [shown(run.force), shown(run.energy, 2)]
        name = f"{run.program} {run.version}"
        rates = [shown(run.own), shown(run.lmp)]
        result.add_row(name, f"{run.seconds / 60:.1f}", *times, *errors, *rates)
    return result


def draw(runs: Sequence[Run], levels: Sequence[float], path: Path) -> None:
    """Time against error, both by logarithms."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for run in (run for run in runs if run.curve):
        seconds, errors = np.array(run.curve).T
        label = f"{run.program} {run.version}, {run.minutes:.0f} minutes"
        axes.loglog(seconds / 60, np.minimum.accumulate(errors), ".-", label=label)
    for level in levels:
        axes.axhline(level, color="0.85", zorder=0)
    axes.set(xlabel="minutes of training", ylabel="RMSE of unseen forces, meV/Å")
    for axis in (axes.xaxis, axes.yaxis):
        few_ticks(axis, 100.0)
    figure.legend(loc="outside upper center", ncols=2, fontsize="small")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help=f"folder, or one of {', '.join(DATA)}")
    parser.add_argument("--elements", default="", help="of a folder")
    parser.add_argument("--minutes", nargs="+", type=float, default=[10.0])
    parser.add_argument(
        "--levels", nargs="+", type=float, default=[60.0, 40.0, 30.0, 25.0], help="meV/angstrom"
    )
    parser.add_argument("--python", action="append", default=[], metavar="PROGRAM=PYTHON")
    parser.add_argument("-o", dest="output", type=Path, required=True)
    options = parser.parse_args()
    output = options.output.resolve()
    symbols, data = options.elements, Path(options.data).resolve()
    if options.data in DATA:
        symbols = DATA[options.data].elements
        data = prepare(output, options.data, DATA[options.data])
    pythons = dict(words.split("=", 1) for words in options.python)
    if unknown := set(pythons) - set(PROGRAMS):
        parser.error(f"there is no {', '.join(unknown)}, expected {', '.join(PROGRAMS)}")
    runs: list[Run] = []
    for name, program in PROGRAMS.items():
        python = pythons.get(name, sys.executable if program.own else "")
        if not python:
            continue
        for minutes in options.minutes:
            run = trained(name, python, output / f"{name}-{minutes:g}", data, symbols, minutes)
            own = Path(python).parent
            runs.append(without_folders(run, [*map(str, (own, own.parent, output, data))]))
            print(name, minutes, run.seconds, run.force, run.energy, run.own, run.lmp, flush=True)
    report = [asdict(run) for run in runs]
    (output / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    draw(runs, options.levels, output / "time_to_accuracy.png")
    console = Console(width=160)
    console.print(table(runs, options.levels))
    for run in runs:
        console.print(f"{run.program}: {shlex.join(run.command)}", markup=False)
        if run.failed:
            console.print(run.failed, markup=False)


if __name__ == "__main__":
    main()
