"""What came of a training, for people and programs."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff.data.baseline import Baseline
from pwmlff.launch.script import quoted
from pwmlff.report import CONTINUE, facts
from pwmlff.train import errors, record
from pwmlff.train.loop import LAST

PARITY = "parity.png"
OLD = 0.75  # part of the steps before which the best model is an old one


@dataclass(frozen=True)
class Trained:
    """One model."""

    file: str
    epochs: float
    steps: int
    seconds: float
    stopped: str
    train: dict[str, float]  # RMSEs of the best model by quantity, as they are reported
    valid: dict[str, float]
    elements: list[str]  # in the order of the model's types
    folder: str
    best: int  # step of the file
    isolated_atoms: dict[str, tuple[float, float]]  # their energies, of the data and the model


@dataclass(frozen=True)
class TrainReport:
    """What came of a training, or what would be trained."""

    models: list[Trained] = field(default_factory=list)
    plan: dict[str, str] = field(default_factory=dict)  # of a dry run
    units: str = "metal"
    folder: str = ""  # of all models
    failures: tuple[str, ...] = ()
    baseline: tuple[str, tuple[str, ...]] = ("", ())  # as of Baseline; empty without
    unbegun: tuple[str, ...] = ()  # models of an ensemble, as the end was asked for before

    @property
    def ok(self) -> bool:
        """Whether all models are there and came to their end."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0, 1 where a model failed, or CONTINUE where somebody asked for the end."""
        if self.failures:
            return 1
        stopped = bool(self.unbegun) or any(m.stopped == "asked" for m in self.models)
        return CONTINUE if stopped else 0

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "models": [asdict(m) for m in self.models],
            "plan": self.plan,
            "reported_in": errors.UNITS[self.units].reported_in,
            "failures": list(self.failures),
            "baseline": self.baseline[0],
            "unbegun": list(self.unbegun),
        }

    def show(self) -> RenderableType:
        """A row for each model, or for each thing to know beforehand."""
        parts: list[RenderableType] = []
        if self.plan:
            parts.append(facts(self.plan))
        if self.models:
            table = Table("model", "epochs", "minutes", "ended by")
            for name, called in errors.QUANTITIES.items():
                if any(name in m.train or name in m.valid for m in self.models):
                    table.add_column(f"{called}\n{errors.UNITS[self.units].unit_of(name)}")
            for m in self.models:
                shown = [
                    " / ".join(
                        record.short(rmses[name]) for rmses in (m.train, m.valid) if name in rmses
                    )
                    for name in errors.QUANTITIES
                    if name in m.train or name in m.valid
                ]
                name = Path(m.file).name
                table.add_row(
                    Text(name), f"{m.epochs:.4g}", f"{m.seconds / 60.0:.3g}", m.stopped, *shown
                )
            parts += [table, Text("RMSE on frames learned from / on frames to validate with")]
            unit = errors.UNITS[self.units].whole
            for m in self.models:
                alone = (f"{z} {e:.7g} / {own:.7g}" for z, (e, own) in m.isolated_atoms.items())
                if m.isolated_atoms:
                    name = Path(m.file).name
                    text = f"isolated atoms ({unit}), data / {name}: {', '.join(alone)}"
                    parts.append(Text(text))
            parts += [Text(line, no_wrap=True, overflow="ignore") for line in self._use()]
        parts += [Text(f"model {name} was stopped before its first step") for name in self.unbegun]
        parts += [Text(text, "red") for text in self.failures]
        if self.folder:
            parts.append(Text(self._more(), no_wrap=True, overflow="ignore"))
        return Group(*parts)

    def _use(self) -> list[str]:
        """Which files there are, and the lines that run the models."""
        paths = [_absolute(m.file) for m in self.models]
        words = [quoted(path) for path in paths]
        several = " out_freq 100 out_file model_devi.out" if len(words) > 1 else ""
        lines = ["", "In the input of LAMMPS:", "", f"    units {self.units}"]
        model = f"{len(words)} {' '.join(words)}{several}"
        commands = Baseline(*self.baseline).lines(model, self.models[0].elements)
        lines += [*(f"    {line}" for line in commands), ""]
        for path, m in zip(paths, self.models, strict=True):
            lines += [f"{path}: the lowest error in validation, of step {m.best}"]
            newest = Path(_absolute(m.folder), LAST).with_suffix(Path(m.file).suffix)
            lines += [f"{newest}: the newest, of step {m.steps}"]
            if m.valid and m.best < OLD * m.steps:
                lines.append(
                    f"  no model after step {m.best} of {m.steps} was better on the frames that "
                    "validate: other data help more than a longer training"
                )
        for m in self.models:
            names = (record.CSV, record.CURVE, PARITY)
            there = [name for name in names if Path(m.folder, name).exists()]
            lines.append(f"{_absolute(m.folder)}: {', '.join([*there, 'checkpoints'])}")
        return lines

    def _more(self) -> str:
        words = ["pwmlff", "train", "--resume", "-o", _absolute(self.folder)]
        if self.exit_code == CONTINUE:
            return f"To go on: {shlex.join(words)}"
        return f"To go on for longer: {shlex.join(words)} and --max-time or --epochs, in all"


def _absolute(name: str) -> str:
    return str(Path(name).absolute())
