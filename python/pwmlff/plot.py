"""`pwmlff plot`: energy, temperature, pressure and model deviation of a run, as a picture.

    pwmlff plot log.lammps model_devi.out -o run.png

A quantity has one colour, in whatever panel and of whatever log; another log is dashed. All runs of
a log follow each other, an unfinished one included. Units are those of the log.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from pwmlff import lmp
from pwmlff.report import Failure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Units:
    """What LAMMPS's numbers are in, for labels of axes, and its time step where none is set."""

    energy: str
    force: str
    pressure: str
    time: str
    timestep: float
    temperature: str = "K"


UNITS = {
    "lj": Units(
        r"$\epsilon$", r"$\epsilon/\sigma$", r"$\epsilon/\sigma^3$", r"$\tau$", 0.005,
        r"$\epsilon/k_B$",
    ),
    "metal": Units("eV", "eV/Å", "bar", "ps", 0.001),
    "real": Units("kcal/mol", "kcal/mol/Å", "atm", "fs", 1.0),
    "si": Units("J", "N", "Pa", "s", 1e-8),
    "cgs": Units("erg", "dyn", "dyn/cm²", "s", 1e-8),
    "electron": Units("Ha", "Ha/bohr", "Pa", "fs", 0.001),
    "micro": Units("pg µm²/µs²", "pg µm/µs²", "pg/(µm µs²)", "µs", 2.0),
    "nano": Units("ag nm²/ns²", "ag nm/ns²", "ag/(nm ns²)", "ns", 0.00045),
}  # fmt: skip
#: Quantities by the names that thermo output has for them, panel by panel.
PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "energy": {"potential energy": ("PotEng", "E_pair"), "total energy": ("TotEng",)},
    "temperature": {"temperature": ("Temp",)},
    "pressure": {"pressure": ("Press",)},
}
DEVIATIONS = ("force deviation", "energy deviation")
COLOURS = {
    "potential energy": "C0",
    "total energy": "C1",
    "temperature": "C3",
    "pressure": "C2",
    "force deviation": "C4",
    "energy deviation": "C5",
}
#: Columns of the deviation file after the step, and how they are drawn.
SPREAD = {"average of atoms": "-.", "smallest": ":", "largest": "-"}
UNIT_STYLE = re.compile(r"\s*units\s+(\w+)")
TIME_STEP = re.compile(r"\s*timestep\s+([-+.\deE]+)\s*(?:#.*)?$")
#: After these, the time step is one that the log does not tell.
OTHER_TIME_STEP = re.compile(r"\s*(?:read_restart\s|fix\s+\S+\s+\S+\s+dt/reset\s)")
NORM = re.compile(r"\s*thermo_modify\s.*\bnorm\s+(yes|no)\b")
HEADER, END = re.compile(r"(?: *Step |-+ Step )"), "Loop time of"


@dataclass(frozen=True)
class Log:
    """Thermo output of a log file.

    Attributes:
        name: of the file.
        units: LAMMPS's unit style; None where the log does not say.
        per_atom: whether energies are those of an atom.
        runs: columns of each run, arrays of one length.
        timesteps: of each run; None where the log does not say.
    """

    name: str
    units: str | None
    per_atom: bool
    runs: list[dict[str, np.ndarray]]
    timesteps: list[float | None]

    @classmethod
    def read(cls, path: Path) -> Log:
        """Read a log file; the last run need not have come to its end.

        Raises:
            Failure: there is no such file, or no thermo output in it.
        """
        if not path.is_file():
            raise Failure(f"found no log file '{path}'")
        text = path.read_text(errors="replace")
        said = _scan(text)
        with tempfile.TemporaryDirectory(prefix="pwmlff-") as folder:
            whole = Path(folder, "log")
            if said.unfinished:  # the reader takes finished runs, to their last whole line
                text = text[: text.rindex("\n") + 1] + f"{END} 0\n"
            whole.write_text(text, encoding="utf-8")
            try:
                found = lmp.Thermo(whole).runs()
            except (ValueError, RuntimeError, KeyError, UnboundLocalError) as error:
                raise Failure(f"cannot read the thermo output of '{path}': {error}") from error
        runs = []
        for columns in found:
            rows = min(map(len, columns.values()), default=0)
            runs.append({name: np.array(values[:rows]) for name, values in columns.items()})
        if not any("Step" in run and len(run["Step"]) for run in runs):
            raise Failure(f"'{path}' has no thermo output; expected the log file of a LAMMPS run")
        timesteps = said.timesteps
        if len(timesteps) != len(runs):
            timesteps = [None] * len(runs)
        per_atom = said.units == "lj" if said.per_atom is None else said.per_atom
        return cls(path.name, said.units, per_atom, runs, timesteps)

    def chosen(self, run: int | None) -> Log:
        """With one run alone, 1 the first and -1 the last; all when None.

        Raises:
            Failure: there is no such run.
        """
        if run is None:
            return self
        if not 1 <= abs(run) <= len(self.runs):
            raise Failure(f"--run is {run}; '{self.name}' has {len(self.runs)} runs, from 1 on")
        k = run - 1 if run > 0 else run
        return Log(self.name, self.units, self.per_atom, [self.runs[k]], [self.timesteps[k]])

    def times(self) -> list[np.ndarray]:
        """Simulation time of each row of each run: its column Time, or steps times the time step.

        Raises:
            Failure: the log tells neither.
        """
        result: list[np.ndarray] = []
        last: tuple[float, float] | None = None  # step and time
        for run, timestep in zip(self.runs, self.timesteps, strict=True):
            if "Time" in run:
                times = run["Time"]
            elif timestep is None:
                raise Failure(
                    f"'{self.name}' tells no time step (it may be that of a restart file); let "
                    "thermo_style print the column time, or leave out --time"
                )
            else:
                step = run["Step"]
                first = step[:1] if len(step) else np.zeros(1)
                goes_on = last is not None and last[0] == first[0]
                times = (last[1] if goes_on else first[0] * timestep) + (step - first) * timestep
            if len(times):
                last = float(run["Step"][-1]), float(times[-1])
            result.append(times)
        return result


@dataclass
class _Said:
    """What the commands in a log say."""

    units: str | None = None
    per_atom: bool | None = None
    timesteps: list[float | None] = field(default_factory=list)
    unfinished: bool = False  # the last run


def _scan(text: str) -> _Said:
    said = _Said()
    now: float | None = None
    for line in text.splitlines():
        if match := UNIT_STYLE.match(line):
            said.units = match[1]
            now = UNITS[match[1]].timestep if match[1] in UNITS else None
        elif match := NORM.match(line):
            said.per_atom = match[1] == "yes"
        elif match := TIME_STEP.match(line):
            now = float(match[1])
        elif OTHER_TIME_STEP.match(line):
            now = None
        elif HEADER.match(line) and not said.unfinished:
            said.unfinished = True
            said.timesteps.append(now)
        elif line.startswith(END):
            said.unfinished = False
    return said


def read_deviation(path: Path) -> np.ndarray:
    """Rows of a deviation file: step, then average, smallest, largest for forces and for energies.

    Returns:
        [rows, 7]; a last line that is being written is left out.

    Raises:
        Failure: there is no such file, or a line is of another form.
    """
    if not path.is_file():
        raise Failure(f"found no deviation file '{path}'")
    lines = [line.partition("#")[0].split() for line in path.read_text().splitlines()]
    rows: list[list[float]] = []
    filled = [(number, words) for number, words in enumerate(lines, 1) if words]
    for number, words in filled:
        try:
            rows.append([float(word) for word in words])
            if len(words) != 7:
                raise ValueError
        except ValueError:
            if number == filled[-1][0] and rows:
                rows = [row for row in rows if len(row) == 7]
                break
            raise Failure(
                f"line {number} of '{path}' is '{' '.join(words)}'; expected a step and six "
                "numbers, as pair_style pwmlff writes them to out_file"
            ) from None
    if not rows:
        raise Failure(f"'{path}' has no line yet; it gets one every out_freq steps")
    return np.array(rows)


@dataclass(frozen=True)
class Options:
    """What to draw."""

    log: Path
    deviation: Path | None = None
    beside: Sequence[Path] = ()  # other logs
    output: Path = Path("run.png")
    time: bool = False
    run: int | None = None


@dataclass(frozen=True)
class PlotReport:
    """What was drawn."""

    picture: str
    units: str | None
    runs: int
    first_step: int
    last_step: int
    panels: list[str]

    ok = True

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "picture": self.picture,
            "units": self.units,
            "runs": self.runs,
            "steps": [self.first_step, self.last_step],
            "panels": self.panels,
        }

    def show(self) -> RenderableType:
        """One line."""
        return Text(
            f"{self.picture}: {', '.join(self.panels)}; {self.runs} run{'s' * (self.runs > 1)}, "
            f"steps {self.first_step} to {self.last_step}, units {self.units or 'not known'}"
        )


def plot(options: Options) -> PlotReport:
    """Draw a run and write the picture.

    Raises:
        Failure: a file or an option cannot be used.
    """
    log = Log.read(options.log).chosen(options.run)
    beside = [Log.read(path) for path in options.beside]
    deviation = read_deviation(options.deviation) if options.deviation else None
    figure = draw(log, deviation, beside, options.time)
    try:
        figure.savefig(options.output, dpi=120)
    except ValueError as error:  # the ending of the name is no format
        raise Failure(f"cannot write '{options.output}': {error}") from error
    steps = np.concatenate([run["Step"] for run in log.runs])
    return PlotReport(
        str(options.output),
        log.units,
        len(log.runs),
        int(steps.min()),
        int(steps.max()),
        [axes.get_label() for axes in figure.axes],
    )


def draw(
    log: Log, deviation: np.ndarray | None = None, beside: Sequence[Log] = (), time: bool = False
) -> Figure:
    """Panels of what the log and the deviation file hold, over steps or time.

    Args:
        log: solid lines.
        deviation: as :func:`read_deviation` returns it.
        beside: logs to compare with, dashed, in the same colours.
        time: over simulation time; over steps else.

    Raises:
        Failure: there is nothing to draw, no time step, or logs have other units or energies.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    for other in beside:
        if (other.units, other.per_atom) != (log.units, log.per_atom):
            raise Failure(
                f"'{other.name}' has units {other.units} and energies {_per(other)}; '{log.name}' "
                f"has units {log.units} and energies {_per(log)}"
            )
    present = {name for each in (log, *beside) for run in each.runs for name in run}
    panels = [
        panel
        for panel, quantities in PANELS.items()
        if any(present & set(names) for names in quantities.values())
    ]
    panels += DEVIATIONS if deviation is not None else ()
    if not panels:
        raise Failure(
            f"'{log.name}' has the columns {', '.join(sorted(present))}; expected one of "
            + ", ".join(name for q in PANELS.values() for names in q.values() for name in names)
        )
    figure = Figure(figsize=(8.0, 0.8 + 1.7 * len(panels)), layout="constrained")
    units = UNITS.get(log.units or "")
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for panel, axes in zip(panels, all_axes, strict=True):
        axes.set_label(panel)
        axes.set_ylabel(_label(panel, units, log.per_atom))
        if panel in PANELS:
            _draw_thermo(axes, panel, [log, *beside], time)
        else:
            _draw_deviation(axes, panel, deviation, log if time else None)
        for begin in _places(log, time)[1:]:
            if len(begin):
                axes.axvline(begin[0], color="0.85", linewidth=0.8, zorder=0)
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    unit = f" ({units.time})" if units else ""
    all_axes[-1].set_xlabel(f"time{unit}" if time else "step")
    return figure


def _per(log: Log) -> str:
    return "per atom" if log.per_atom else "of all atoms"


def _label(panel: str, units: Units | None, per_atom: bool) -> str:
    """Quantity and unit."""
    name = panel.replace(" ", "\n")
    if panel == "energy" and per_atom:
        name = "energy\nper atom"
    if units is None:
        return name
    unit = getattr(units, panel.partition(" ")[0])
    return f"{name} ({unit})"


def _places(log: Log, time: bool) -> list[np.ndarray]:
    """Where the rows of each run are on the axis."""
    return log.times() if time else [run["Step"] for run in log.runs]


def _draw_thermo(axes: Axes, panel: str, logs: Sequence[Log], time: bool) -> None:
    for quantity, names in PANELS[panel].items():
        for number, log in enumerate(logs):
            label: str | None = quantity + (f", {log.name}" if len(logs) > 1 else "")
            for x, run in zip(_places(log, time), log.runs, strict=True):
                name = next((name for name in names if name in run), None)
                if name is None:
                    continue
                style: dict[str, Any] = {"marker": "." if len(x) == 1 else ""}
                if number:
                    style |= {"linestyle": "--"}
                elif len(logs) > 1:  # so that what is beside it shows where they agree
                    style |= {"linewidth": 3.0, "alpha": 0.5}
                axes.plot(x, run[name], label=label, color=COLOURS[quantity], **style)
                label = None  # one entry for all runs


def _draw_deviation(axes: Axes, panel: str, rows: np.ndarray, log: Log | None) -> None:
    """Of a panel over steps, or over time where a log is given."""
    x = rows[:, 0]
    if log is not None:
        x = np.full(len(rows), np.nan)
        for run, times in zip(log.runs, log.times(), strict=True):
            step = run["Step"]
            inside = (rows[:, 0] >= step.min(initial=np.inf)) & (
                rows[:, 0] <= step.max(initial=-np.inf)
            )
            x[inside] = np.interp(rows[inside, 0], step, times)
    first = 1 + 3 * DEVIATIONS.index(panel)
    for k, (name, style) in enumerate(SPREAD.items()):
        # All models agree where symmetry leaves no force: no place for zero on the axis.
        values = np.where(rows[:, first + k] > 0.0, rows[:, first + k], np.nan)
        marker = "." if len(rows) == 1 else ""
        axes.plot(x, values, style, color=COLOURS[panel], label=name, marker=marker)
    if (rows[:, first : first + 3] > 0.0).any():
        axes.set_yscale("log")
