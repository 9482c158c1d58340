"""`pwmlff plot`: energy, temperature, pressure and model deviation of a run, as a picture.

    pwmlff plot log.lammps model_devi.out -o run.png

A quantity has one color, in whatever panel and of whatever log; another log is dashed. All runs of
a log follow each other, an unfinished one included. Units are those of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from pwmlff import picture
from pwmlff.report import Failure, Report

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pwmlff.launch.log import Log


@dataclass(frozen=True)
class LogUnits:
    """What LAMMPS's numbers are in, for labels of axes."""

    energy: str
    force: str
    pressure: str
    time: str
    temperature: str = "K"


UNITS = {
    "lj": LogUnits(
        r"$\epsilon$", r"$\epsilon/\sigma$", r"$\epsilon/\sigma^3$", r"$\tau$",
        r"$\epsilon/k_B$",
    ),
    "metal": LogUnits("eV", "eV/Å", "bar", "ps"),
    "real": LogUnits("kcal/mol", "kcal/mol/Å", "atm", "fs"),
    "si": LogUnits("J", "N", "Pa", "s"),
    "cgs": LogUnits("erg", "dyn", "dyn/cm²", "s"),
    "electron": LogUnits("Ha", "Ha/bohr", "Pa", "fs"),
    "micro": LogUnits("pg µm²/µs²", "pg µm/µs²", "pg/(µm µs²)", "µs"),
    "nano": LogUnits("ag nm²/ns²", "ag nm/ns²", "ag/(nm ns²)", "ns"),
}  # fmt: skip
#: Quantities by the names that thermo output has for them, panel by panel.
PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "energy": {"potential energy": ("PotEng", "E_pair"), "total energy": ("TotEng",)},
    "temperature": {"temperature": ("Temp",)},
    "pressure": {"pressure": ("Press",)},
}
DEVIATIONS = {"force deviation": "f", "energy deviation": "e", "virial deviation": "v"}
COLORS = {
    "potential energy": "C0",
    "total energy": "C1",
    "temperature": "C3",
    "pressure": "C2",
    "force deviation": "C4",
    "energy deviation": "C5",
    "virial deviation": "C6",
}
#: Columns of the deviation file for each of them, their names, and how they are drawn.
SPREAD = {
    "avg": ("average of atoms", "-."), "min": ("smallest", ":"), "max": ("largest", "-"),
}  # fmt: skip


@dataclass(frozen=True)
class PlotReport(Report):
    """What was drawn."""

    picture: str
    units: str | None
    runs: int
    steps: tuple[int, int]  # the first and the last
    panels: list[str]

    def show(self) -> RenderableType:
        """One line."""
        first, last = self.steps
        return Text(
            f"{self.picture}: {', '.join(self.panels)}; {self.runs} run{'s' * (self.runs > 1)}, "
            f"steps {first} to {last}, units {self.units or 'not known'}"
        )


def plot(
    log: Annotated[Path, Argument(help="Log file of a LAMMPS run.")],
    deviation: Annotated[
        Path | None, Argument(help="Its deviation file, like model_devi.out.")
    ] = None,
    compare: Annotated[
        list[Path] | None, Option(help="Another log to compare with, dashed.")
    ] = None,
    earlier: Annotated[list[Path] | None, Option("--beside", hidden=True)] = None,
    output: Annotated[Path, Option("-o", "--output", help="The picture.")] = Path("run.png"),
    time: Annotated[bool, Option("--time", help="Draw over time instead of steps.")] = False,
    run: Annotated[
        int | None, Option(help="One run of the log: 1 the first, -1 the last.", show_default="all")
    ] = None,
) -> PlotReport:
    """Draw energy, temperature, pressure and model deviation of a run.

    Also of one that is under way. Units are those of the log.

    Example: pwmlff plot log.lammps model_devi.out -o run.png
    """
    import numpy as np

    from pwmlff.launch.log import Log, read_deviation

    output = picture.destination(output)
    chosen = Log.read(log).chosen(run)
    others = [Log.read(path) for path in (*(compare or ()), *(earlier or ()))]
    steps = np.concatenate(chosen.steps())
    rows = read_deviation(deviation) if deviation else None
    if rows is not None and run is not None:
        first, last = steps.min(), steps.max()
        of_run = (first <= rows["step"]) & (rows["step"] <= last)
        rows = {name: values[of_run] for name, values in rows.items()}
        if not of_run.any():
            raise Failure(
                f"'{deviation}' has no step of run {run} of '{chosen.name}', whose steps are "
                f"{first:.0f} to {last:.0f}"
            )
    figure = draw(chosen, rows, others, time)
    picture.save(figure, output, dpi=120)
    return PlotReport(
        str(output),
        _convention(chosen)[0],
        len(chosen.runs),
        (int(steps.min()), int(steps.max())),
        [str(axes.get_label()) for axes in figure.axes],
    )


def draw(
    log: Log,
    deviation: Mapping[str, np.ndarray] | None = None,
    others: Sequence[Log] = (),
    time: bool = False,
) -> Figure:
    """Panels of what the log and the deviation file hold, over steps or time.

    Args:
        log: solid lines.
        deviation: as :func:`read_deviation` returns it.
        others: logs to compare with, dashed, in the same colors.
        time: over simulation time; over steps else.

    Raises:
        Failure: there is nothing to draw, no time step, or logs have other units or energies.
    """
    from matplotlib.figure import Figure

    style, per_atom = _convention(log, *others)
    present = {name for each in (log, *others) for run in each.runs for name in run.columns}
    panels = [
        panel
        for panel, quantities in PANELS.items()
        if any(present & set(names) for names in quantities.values())
    ]
    panels += [name for name, key in DEVIATIONS.items() if f"max_devi_{key}" in (deviation or {})]
    if not panels:
        raise Failure(
            f"'{log.name}' has the columns {', '.join(sorted(present))}; expected one of "
            + ", ".join(name for q in PANELS.values() for names in q.values() for name in names)
        )
    figure = Figure(figsize=(8.0, 0.8 + 1.7 * len(panels)), layout="constrained")
    units = UNITS.get(style or "")
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for panel, axes in zip(panels, all_axes, strict=True):
        axes.set_label(panel)
        axes.set_ylabel(_label(panel, units, per_atom))
        if panel in PANELS:
            _draw_thermo(axes, panel, [log, *others], time)
        elif deviation is not None:
            _draw_deviation(axes, panel, deviation, log if time else None)
        for begin in _abscissas(log, time)[1:]:
            if len(begin):
                axes.axvline(begin[0], color="0.85", linewidth=0.8, zorder=0)
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    unit = f" ({units.time})" if units else ""
    all_axes[-1].set_xlabel(f"time{unit}" if time else "step")
    return figure


def _convention(*logs: Log) -> tuple[str | None, bool]:
    """Units of all runs, None where no log says them, and whether energies are those of an atom.

    What a log does not say is taken to be as in the others.

    Raises:
        Failure: they differ.
    """
    styles: dict[str, str] = {}
    norms: dict[bool, str] = {}
    for log in logs:
        for k, run in enumerate(log.runs, 1):
            where = f"run {k} of '{log.name}'"
            if run.units is not None:
                styles.setdefault(run.units, where)
            if run.per_atom is not None:
                norms.setdefault(run.per_atom, where)
    energies = {"per atom" if norm else "of all atoms": where for norm, where in norms.items()}
    for what, values in (("units", styles), ("energies", energies)):
        if len(values) > 1:
            listed = ", ".join(f"{what} {value} in {where}" for value, where in values.items())
            raise Failure(f"found {listed}: draw them apart (--run takes one run of a log)")
    return next(iter(styles), None), next(iter(norms), False)


def _label(panel: str, units: LogUnits | None, per_atom: bool) -> str:
    name = panel.replace(" ", "\n")
    if panel == "energy" and per_atom:
        name = "energy\nper atom"
    if units is None:
        return name
    quantity = panel.partition(" ")[0]
    return f"{name} ({getattr(units, 'energy' if quantity == 'virial' else quantity)})"


def _abscissas(log: Log, time: bool) -> list[np.ndarray]:
    return log.times() if time else log.steps()


def _draw_thermo(axes: Axes, panel: str, logs: Sequence[Log], time: bool) -> None:
    for quantity, names in PANELS[panel].items():
        for number, log in enumerate(logs):
            label: str | None = quantity + (f", {log.name}" if len(logs) > 1 else "")
            for x, run in zip(_abscissas(log, time), log.runs, strict=True):
                name = next((name for name in names if name in run.columns), None)
                if name is None:
                    continue
                style: dict[str, Any] = {"marker": "." if len(x) == 1 else ""}
                if number:
                    style |= {"linestyle": "--"}
                elif len(logs) > 1:  # so that another one shows where they agree
                    style |= {"linewidth": 3.0, "alpha": 0.5}
                axes.plot(x, run.columns[name], label=label, color=COLORS[quantity], **style)
                label = None  # one entry for all runs


def _draw_deviation(
    axes: Axes, panel: str, rows: Mapping[str, np.ndarray], log: Log | None
) -> None:
    """Of a panel over steps, or over time where a log is given."""
    import numpy as np

    steps = x = rows["step"]
    if log is not None:
        x = np.full(len(steps), np.nan)
        for of_run, times in zip(log.steps(), log.times(), strict=True):
            first, last = of_run.min(initial=np.inf), of_run.max(initial=-np.inf)
            covered = (first <= steps) & (steps <= last)
            x[covered] = np.interp(steps[covered], of_run, times)
    marker = "." if len(steps) == 1 else ""
    for kind, (name, style) in SPREAD.items():
        values, label = rows[f"{kind}_devi_{DEVIATIONS[panel]}"], name
        if panel == "energy deviation" and len(steps) > 1 and np.isfinite(values).any():
            # Data fix the energies of atoms up to a constant for each element, so models differ by
            # one, which says nothing of the run.
            constant = values[np.isfinite(values)].min()
            values, label = values - constant, f"{name}, less {constant:.3g}"
        elif panel != "energy deviation":
            # All models agree where symmetry leaves no force: no place for zero on the axis.
            values = np.where(values > 0.0, values, np.nan)
        axes.plot(x, values, style, color=COLORS[panel], label=label, marker=marker)
    if panel != "energy deviation" and (rows[f"max_devi_{DEVIATIONS[panel]}"] > 0.0).any():
        axes.set_yscale("log")
