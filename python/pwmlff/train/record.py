"""What a training leaves behind and shows: log, learning curve, TensorBoard, progress.

Only one rank holds these. The log is there twice, for people and for programs, a row for each
validation: log.csv and log.jsonl (JSON lines). RMSEs are in meV/atom, meV/angstrom and e, or
reduced in units "lj" (`errors.UNITS`).
"""

from __future__ import annotations

import csv
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from pwmlff import picture
from pwmlff.files import write_whole
from pwmlff.report import Failure, console, plain
from pwmlff.train.errors import QUANTITIES, UNITS, Errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

CSV, JSON, CURVE, TENSORBOARD = "log.csv", "log.jsonl", "learning_curve.png", "tensorboard"
MADE = ("checkpoint-*", "best.*", "last.*")  # what a training leaves beside its log
#: Sets of frames that there are errors of, and the colors of their curves.
SETS = {"train": "C0", "valid": "C1"}
#: Seconds without a row after which there is a line of progress where there is no terminal.
PLAIN_INTERVAL = 300.0


@dataclass(frozen=True)
class LogRow:
    """One validation; None for what was not computed."""

    step: int
    epoch: float  # passes over the data
    time: float  # seconds of training, those before a resumption included
    learning_rate: float | None = None
    loss: float | None = None  # mean of the steps since the last row
    energy_train: float | None = None  # RMSE, as all that follow
    energy_valid: float | None = None
    force_train: float | None = None
    force_valid: float | None = None
    virial_train: float | None = None
    virial_valid: float | None = None
    born_train: float | None = None
    born_valid: float | None = None
    atoms_per_second: float | None = None  # learned from, of all ranks

    @classmethod
    def from_errors(
        cls, *, train: Errors | None = None, valid: Errors | None = None, **values: Any
    ) -> LogRow:
        """LogRow with the RMSEs of both sets; the other values by name."""
        for name, errors in (("train", train), ("valid", valid)):
            for quantity, measure in (errors.measures if errors else {}).items():
                values[f"{quantity}_{name}"] = measure.rmse
        return cls(**values)

    def rmses(self, name: str) -> dict[str, float]:
        """Errors of a set, "train" or "valid", by quantity, as far as they were computed."""
        values = {q: getattr(self, f"{q}_{name}") for q in QUANTITIES}
        return {quantity: value for quantity, value in values.items() if value is not None}

    @property
    def quantities(self) -> tuple[str, ...]:
        """Those of which there are errors."""
        return tuple(q for q in QUANTITIES if q in self.rmses("train") | self.rmses("valid"))

    def line(self, quantities: Sequence[str]) -> str:
        """One line of a table, below a :func:`header` of the same quantities."""
        errors = (
            short(getattr(self, f"{q}_{name}")) for q in quantities for name in ("train", "valid")
        )
        digits = 2 if self.epoch < 10.0 else 1 if self.epoch < 100.0 else 0
        words = [f"{self.epoch:.{digits}f}", str(self.step), duration(self.time), *errors]
        return _columns([*words, short(self.learning_rate, 2)])


COLUMNS = [field.name for field in fields(LogRow)]
#: What quantities are called above its columns.
LETTERS = dict(zip(QUANTITIES, "EFVZ", strict=True))
#: Of the columns of the table on the screen: epoch, step, time, errors, rate; 77 in all without
#: Born charges, 93 with them.
WIDTHS = (5, 7, 8, *(7,) * (2 * len(QUANTITIES)), 6)


def header(quantities: Sequence[str], units: str = "metal") -> list[str]:
    """Lines above the rows of a training on the screen: names, and units of the errors."""
    names = [f"{LETTERS[q]} {name}" for q in quantities for name in ("train", "valid")]
    first = _columns(["epoch", "step", "time", *names, "rate"])
    pair = 2 * WIDTHS[3] + 1
    wanted = (f"{UNITS[units].unit_of(q):^{pair}}" for q in quantities)
    indent = " " * len(_columns(["", "", ""]))
    return [first, " ".join((indent, *wanted)).rstrip()]


def _columns(words: Sequence[str]) -> str:
    widths = (*WIDTHS[: len(words) - 1], WIDTHS[-1]) if len(words) > 3 else WIDTHS
    return " ".join(f"{word:>{width}}" for word, width in zip(words, widths, strict=False))


def short(value: float | None, digits: int = 3) -> str:
    """A number in seven characters, in six with two digits."""
    if value is None:
        return "-"
    text = f"{value:.0f}" if 100.0 <= abs(value) < 1e6 else f"{value:.{digits}g}"
    if len(text) > digits + 4 or "e" in text:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        text = f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return text


def read(path: Path) -> list[LogRow]:
    """Rows of a log.jsonl, up to a line that was cut short; none where there is no file.

    Raises:
        Failure: the file cannot be read, or a line before the last is not one of a log.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Failure(f"cannot read '{path}': {error.strerror}") from error
    # What is behind the last end of a line was not finished.
    return [_row(path, number, line) for number, line in enumerate(lines[:-1], 1)]


def _read_csv(path: Path) -> list[LogRow]:
    """Rows of a log.csv as long as they are whole; none where there is no file of this layout."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    except OSError:
        return []
    rows: list[LogRow] = []
    table = csv.reader(lines)
    if next(table, None) == COLUMNS:
        with suppress(ValueError, TypeError):
            for words in table:
                values: dict[str, Any] = {
                    name: int(word) if name == "step" else float(word)
                    for name, word in zip(COLUMNS, words, strict=True)
                    if word
                }
                rows.append(LogRow(**values))
    return rows


def _row(path: Path, number: int, line: bytes) -> LogRow:
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        values = json.loads(line)
        known = {name: values[name] for name in COLUMNS if name in values}
        numeric = all(v is None or type(v) in (int, float) for v in known.values())
        if numeric and type(known["step"]) is int:
            return LogRow(**known)
    raise Failure(
        f"line {number} of '{path}' is {line[:60].decode(errors='replace')!r}, expected a row of "
        "the log of a training; move the file away to go on without it"
    )


def require_unused(folder: Path) -> None:
    """Refuse a folder with the log of another training.

    One that has neither a row nor anything else of it is of a training that could not begin.

    Raises:
        Failure: there is one.
    """
    made = any(path for pattern in MADE for path in folder.glob(pattern))
    for name, begun in ((CSV, _head()), (JSON, "")):
        path = folder / name
        if path.exists() and (made or path.read_bytes() not in (b"", f"{begun}\n".encode())):
            raise Failure(
                f"'{folder / name}' is the log of another training; go on with that one by "
                "--resume, or choose another folder (-o)"
            )


class TrainingLog(AbstractContextManager["TrainingLog"]):
    """The log of a training in its folder, one row for each validation.

    A row is in the files when `add` returns. Where one cannot be written (a full disk), training
    goes on, with a warning, and the row is written with the next one; no file ever has half a row
    in its middle.

    Args:
        folder: that is there.
        step: of the checkpoint that the training goes on from, whose later rows are cut away; None
            for a training from its beginning.
        units: of the structures, a key of UNITS.
        tensorboard: whether to write events, where TensorBoard is installed.

    Raises:
        Failure: the folder holds the log of another training, or cannot be written to.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        step: int | None = None,
        units: str = "metal",
        tensorboard: bool = False,
    ) -> None:
        self.folder, self.units = Path(folder), units
        self.rows: list[LogRow] = []
        if step is None:
            require_unused(self.folder)
        else:
            rows = read(self.folder / JSON)
            last = rows[-1].step if rows else -1
            # One of the files may have been cut.
            rows += [row for row in _read_csv(self.folder / CSV) if row.step > last]
            self.rows = [row for row in rows if row.step <= step]
        self._json = _LineFile(self.folder / JSON, [_json(row) for row in self.rows])
        self._csv = _LineFile(self.folder / CSV, [_head(), *map(_csv, self.rows)])
        self._events = _events(self.folder / TENSORBOARD, step) if tensorboard else None

    def add(self, row: LogRow) -> None:
        """Write a row, unless it is of a step that is in the log already."""
        if self.rows and row.step <= self.rows[-1].step:
            return
        self.rows.append(row)
        self._json.add(_json(row))
        self._csv.add(_csv(row))
        if self._events is not None:
            for name, value in asdict(row).items():
                if name != "step" and value is not None:
                    quantity, _, which = name.rpartition("_")
                    tag = f"{quantity}/{which}" if which in SETS else name
                    self._events.add_scalar(tag, value, row.step)
            self._events.flush()

    def draw(self) -> Path:
        """Write the learning curve.

        Raises:
            Failure: there is no row, or the picture cannot be written.
        """
        if not self.rows:
            raise Failure(f"'{self.folder / JSON}' has no row to draw a learning curve of")
        path = picture.destination(self.folder / CURVE)
        picture.save(learning_curve(self.rows, self.units), path, dpi=120)
        return path

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._json.close()
        self._csv.close()
        if self._events is not None:
            self._events.close()


def _json(row: LogRow) -> str:
    return json.dumps(plain(asdict(row)), allow_nan=False)


def _head() -> str:
    return ",".join(COLUMNS)


def _csv(row: LogRow) -> str:
    return ",".join("" if value is None else str(value) for value in astuple(row))


class _LineFile:
    """A file that holds whole lines only, but for the last where the process was killed."""

    def __init__(self, path: Path, lines: Sequence[str]) -> None:
        self._path, self._waiting, self._warned = path, b"", False
        text = "".join(f"{line}\n" for line in lines).encode()
        try:
            write_whole(path, text)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise Failure(f"cannot write '{path}': {error.strerror}") from error
        self._size = len(text)

    def add(self, line: str) -> None:
        self._waiting += f"{line}\n".encode()
        rest = memoryview(self._waiting)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._size)
            if not self._warned:
                log.warning("cannot write '%s': %s; training goes on", self._path, error.strerror)
            self._warned = True
            return
        self._size += len(self._waiting)
        self._waiting, self._warned = b"", False

    def close(self) -> None:
        self._file.close()


def _events(folder: Path, step: int | None) -> Any:
    """Writer for TensorBoard; None, with a warning, where that is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  not always installed
    except ImportError:
        log.warning("TensorBoard is not installed (pip install tensorboard): no events for it")
        return None
    return SummaryWriter(str(folder), purge_step=None if step is None else step + 1)


def learning_curve(rows: Sequence[LogRow], units: str = "metal") -> Figure:
    """RMSE of each quantity over the step, of both sets, and the loss.

    Args:
        rows: of a log, in the order of their steps; one or more.
        units: of the structures, a key of UNITS.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    panels: dict[str, dict[str, list[float | None]]] = {}
    for quantity in QUANTITIES:
        curves = {name: [getattr(row, f"{quantity}_{name}") for row in rows] for name in SETS}
        if any(value is not None for values in curves.values() for value in values):
            panels[quantity] = curves
    if any(row.loss is not None for row in rows):
        panels["loss"] = {"train": [row.loss for row in rows]}
    figure = Figure(figsize=(6.4, 0.8 + 1.9 * max(len(panels), 1)), layout="constrained")
    every = figure.subplots(max(len(panels), 1), sharex=True, squeeze=False)[:, 0]
    steps = [row.step for row in rows]
    for (name, curves), axes in zip(panels.items(), every, strict=False):
        axes.set_label(name)
        for which, values in curves.items():
            # Only errors above 0 have a place on a logarithmic axis.
            shown = [np.nan if v is None or not v > 0.0 else v for v in values]
            if not np.isnan(shown).all():
                marker = "." if len(rows) < 50 else ""
                axes.plot(steps, shown, color=SETS[which], label=which, marker=marker)
        unit = "" if name == "loss" else f"\n({UNITS[units].unit_of(name)})"
        axes.set_ylabel(("loss" if name == "loss" else f"{QUANTITIES[name]} RMSE") + unit)
        if axes.lines:
            axes.legend(fontsize="small")
            _scale(axes)
    every[-1].set_xlabel("step")
    return figure


def _scale(axes: Axes) -> None:
    """Make the y axis logarithmic where it spans a decade, and so has ticks enough."""
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    if np.nanmax(values) < 10.0 * np.nanmin(values):
        return
    axes.set_yscale("log")
    picture.few_ticks(axes.yaxis, np.nanmax(values) / np.nanmin(values))


class Display:
    """The progress of a training on stderr: a table, and a bar on a terminal.

    Elsewhere there is a line where the table has not grown for some minutes.

    Args:
        units: of the structures, a key of UNITS.
        screen: where to show it; stderr when None.
        clock: seconds, from any beginning.
    """

    def __init__(
        self,
        units: str = "metal",
        screen: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._units, self._clock = units, clock
        self._screen = screen or console(stderr=True)
        self._begin: tuple[float, float] | None = None  # fraction and time of the first step seen
        self._shown = self._clock()  # when the last line was
        self._quantities: tuple[str, ...] | None = None  # of the table that has begun
        self._bar: Progress | None = None
        if self._screen.is_terminal:
            self._bar = Progress(
                BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False),
                console=self._screen, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("starting", total=1.0)

    def __enter__(self) -> Display:
        """Begin to show."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def step(
        self,
        fraction: float,
        *,
        epoch: float,
        step: int,
        loss: float | None = None,
        atoms_per_second: float | None = None,
    ) -> None:
        """Tell of a step; cheap enough for each of them.

        Args:
            fraction: of the training that is done, 0 to 1.
            epoch, step, loss, atoms_per_second: as in LogRow.
        """
        now = self._clock()
        self._begin = self._begin or (fraction, now)
        first, begin = self._begin
        if self._bar is None and now - self._shown < PLAIN_INTERVAL:
            return
        self._shown = now
        parts = [f"epoch {epoch:.1f}, step {step}"]
        if loss is not None:
            parts.append(f"loss {loss:.3g}")
        if atoms_per_second is not None:
            parts.append(f"{atoms_per_second:.3g} atoms/s")
        if fraction > first:  # at the speed since the first step that was told of
            left = max(0.0, 1.0 - fraction) * (now - begin) / (fraction - first)
            parts.append(f"{duration(left)} left")
        text = ", ".join(parts)
        if self._bar is not None:
            self._bar.update(self._task, completed=fraction, description=text)
        else:
            self._screen.print(Text(f"{100.0 * fraction:.0f} %, {text}"))

    def row(self, row: LogRow) -> None:
        """Show a validation, in a line that stays."""
        self._shown = self._clock()
        lines = [row.line(row.quantities)]
        if row.quantities != self._quantities:
            self._quantities = row.quantities
            lines = [*header(row.quantities, self._units), *lines]
        self._screen.print(Text("\n".join(lines)), soft_wrap=True)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
