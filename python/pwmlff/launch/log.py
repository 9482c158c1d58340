"""What a run of LAMMPS writes while it goes: thermo output in its log, and the deviation file.

Numbers are taken as printed, also NaN and infinite ones. A last line without its end is left out.

Not `lammps.formats.LogFile`: it leaves out rows with NaN and runs that did not come to their end,
tells no units or time step, and needs PyYAML; the tests compare the two where both read a log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pwmlff.report import Failure

#: LAMMPS's unit styles, and the time step of each where none is set, in its unit of time.
TIMESTEPS = {
    "lj": 0.005, "metal": 0.001, "real": 1.0, "si": 1e-8, "cgs": 1e-8, "electron": 0.001,
    "micro": 2.0, "nano": 0.00045,
}  # fmt: skip
#: Columns of which one stands in a header that no line about memory announces.
USUAL = {"Step", "Time", "Temp", "Press", "PotEng", "TotEng", "E_pair"}
#: Columns of a deviation file without a line that names them: the step, forces, energies.
DEVIATION_COLUMNS = (
    "step", "avg_devi_f", "min_devi_f", "max_devi_f", "avg_devi_e", "min_devi_e", "max_devi_e",
)  # fmt: skip

_BEGIN = re.compile(r"LAMMPS \(|\s*clear\s*(?:#|$)")  # nothing said before holds any longer
_UNITS = re.compile(r"\s*units\s+(\w+)")
_TIMESTEP = re.compile(r"\s*timestep\s+([-+.\deE]+)\s*(?:#.*)?$")
#: After these, the time step is one that the log does not tell.
_OTHER_TIMESTEP = re.compile(r"\s*(?:read_restart\s|fix\s+\S+\s+\S+\s+dt/reset\s)")
_THERMO_STYLE = re.compile(r"\s*thermo_style\s")
_NORM = re.compile(r"\s*thermo_modify\s.*\bnorm\s+(yes|no)\b")
_MEMORY, _END, _ERROR = "Per MPI rank memory allocation", "Loop time of", "ERROR"
_MULTI = re.compile(r"-+ Step\s+(\S+) -+ CPU =\s*(\S+) \(sec\) -+")
_PAIR = re.compile(r"(\S+)\s+=\s*(\S+)")
_KEYWORDS = re.compile(r"keywords:\s*\[(.*)\]\s*$")
_YAML_ROW = re.compile(r"\s*- \[(.*)\]\s*$")


@dataclass(frozen=True)
class ThermoRun:
    """Thermo output of one run or minimization."""

    columns: dict[str, np.ndarray]  # numbers [rows] of each column, by the names in the log
    units: str | None = None  # LAMMPS's unit style; None where the log does not say
    per_atom: bool | None = None  # whether energies are of an atom; None: not said
    timestep: float | None = None  # None where the log does not say
    finished: bool = True  # whether it came to its end


@dataclass(frozen=True)
class Log:
    """Runs of a log file, in their order."""

    name: str
    runs: list[ThermoRun]

    @classmethod
    def read(cls, path: Path) -> Log:
        """Read a log and those of later starts, as `pwmlff run` names them: path.retry1, ...

        Runs need not have come to their end. What a start has done anew stands there once, and a
        run that two starts have shared is one.

        Raises:
            Failure: there is no such file, or no thermo output in any of them.
        """
        if not path.is_file():
            raise Failure(f"found no log file '{path}'")
        pattern = re.compile(re.escape(path.name) + r"\.retry(\d+)")
        matches = ((pattern.fullmatch(p.name), p) for p in path.parent.iterdir())
        later = sorted((int(match[1]), p) for match, p in matches if match)
        joined = runs(path.read_text(errors="replace"))
        for _, start in later:
            if _has_rows(some := runs(start.read_text(errors="replace"))):
                joined = _joined(joined, some)
        if not _has_rows(joined):
            raise Failure(f"'{path}' has no thermo output; expected the log file of a LAMMPS run")
        return cls(path.name, joined)

    def chosen(self, run: int | None) -> Log:
        """With one run alone, 1 the first and -1 the last; all when None.

        Raises:
            Failure: there is no such run, or it has not written anything.
        """
        if run is None:
            return self
        if not 1 <= abs(run) <= len(self.runs):
            raise Failure(f"--run is {run}; '{self.name}' has {len(self.runs)} runs, from 1 on")
        selected = self.runs[run - 1 if run > 0 else run]
        if not _has_rows([selected]):
            raise Failure(f"--run is {run}; that run of '{self.name}' has no thermo output yet")
        return replace(self, runs=[selected])

    def steps(self) -> list[np.ndarray]:
        """The step of each row of each run.

        Raises:
            Failure: a run has no column Step.
        """
        for k, run in enumerate(self.runs, 1):
            if "Step" not in run.columns:
                raise Failure(
                    f"run {k} of '{self.name}' has the columns {', '.join(run.columns)}; expected "
                    "Step among them: let thermo_style print the column step, or take another --run"
                )
        return [run.columns["Step"] for run in self.runs]

    def times(self) -> list[np.ndarray]:
        """Simulation time of each row of each run: its column Time, or steps times the time step.

        Raises:
            Failure: the log tells neither.
        """
        result: list[np.ndarray] = []
        last_step, last_time = math.nan, math.nan
        for run, step in zip(self.runs, self.steps(), strict=True):
            if "Time" in run.columns:
                times = run.columns["Time"]
            elif run.timestep is None:
                raise Failure(
                    f"'{self.name}' tells no time step (it may be that of a restart file); let "
                    "thermo_style print the column time, or leave out --time"
                )
            else:
                first = step[:1] if len(step) else np.zeros(1)
                begin = last_time if last_step == first[0] else first[0] * run.timestep
                times = begin + (step - first) * run.timestep
            if len(times):
                last_step, last_time = float(step[-1]), float(times[-1])
            result.append(times)
        return result


def runs(text: str) -> list[ThermoRun]:
    """Thermo output in the text of a log, of the styles one (custom), multi and yaml.

    Of a log to which several LAMMPS have appended, those of all.
    """
    reader = _Runs()
    for line in text[: text.rfind("\n") + 1].splitlines():
        reader.take(line)
    reader.end(finished=False)
    return reader.runs


def _has_rows(thermo_runs: Sequence[ThermoRun]) -> bool:
    return any(len(column) for run in thermo_runs for column in run.columns.values())


def _joined(earlier: Sequence[ThermoRun], later: Sequence[ThermoRun]) -> list[ThermoRun]:
    """Runs of a start and of the next one, which began at an earlier step than the first ended."""
    result = list(earlier)
    firsts = (run.columns["Step"][0] for run in later if len(run.columns.get("Step", ())))
    first = next(firsts, np.inf)
    while result and "Step" in result[-1].columns:
        again = result[-1].columns["Step"] >= first
        if not again.any():
            break
        last = result.pop()
        if count := int(np.argmax(again)):
            columns = {name: values[:count] for name, values in last.columns.items()}
            result.append(replace(last, columns=columns, finished=False))
            break
    if result and not result[-1].finished and _is_same(result[-1], later[0]):
        last, rest = result.pop(), later[0]
        columns = {
            name: np.concatenate((values, rest.columns[name]))
            for name, values in last.columns.items()
        }
        return [*result, replace(last, columns=columns, finished=rest.finished), *later[1:]]
    return [*result, *later]


def _is_same(run: ThermoRun, rest: ThermoRun) -> bool:
    """Whether a run can be the rest of another: what a log does not say is as it was."""
    pairs = ((rest.units, run.units), (rest.per_atom, run.per_atom), (rest.timestep, run.timestep))
    return list(run.columns) == list(rest.columns) and all(a in (None, b) for a, b in pairs)


def _begins_columns(line: str) -> bool:
    words = line.split()
    named = all(number(word) is None for word in words)
    return bool(words) and not line.startswith(("WARNING", "---")) and named


def _values(names: Sequence[str], words: Sequence[str]) -> dict[str, float]:
    """Numbers by name; none where there are not as many words, or where one is no number."""
    try:
        return dict(zip(names, map(float, words), strict=True))
    except ValueError:
        return {}


@dataclass
class _Commands:
    """What the commands so far say."""

    units: str | None = None
    norm: bool | None = None
    timestep: float | None = None

    def take(self, line: str) -> None:
        if match := _UNITS.match(line):
            self.units, self.timestep = match[1], TIMESTEPS.get(match[1])
        elif _THERMO_STYLE.match(line):
            self.norm = None
        elif match := _NORM.match(line):
            self.norm = match[1] == "yes"
        elif match := _TIMESTEP.match(line):
            self.timestep = number(match[1])
        elif _OTHER_TIMESTEP.match(line):
            self.timestep = None

    @property
    def per_atom(self) -> bool | None:
        if self.norm is None and self.units is not None:
            return self.units == "lj"
        return self.norm


@dataclass
class ThermoRows:
    """Rows of thermo output, line by line, of the styles one (custom), multi and yaml."""

    _commands: _Commands = field(default_factory=_Commands)
    _announced: bool = False  # the next line is a header
    _pending: list[str] = field(default_factory=list)  # a header, if numbers follow
    _names: list[str] = field(default_factory=list)  # of the run that is under way
    _last: list[str] = field(default_factory=list)  # names of the run before
    _block: bool = False  # of style multi, which fills several lines

    def take(self, line: str) -> dict[str, float]:
        """Numbers that a line brings, by name; a row of style multi comes in parts."""
        if self._pending and not line.startswith("WARNING"):
            names, self._pending = self._pending, []
            if _values(names, line.split()):
                self.begin(names)
        if _BEGIN.match(line):
            self.end(finished=False)
            self._commands = _Commands()
        elif line.startswith((_MEMORY, _END, _ERROR)):
            self.end(finished=line.startswith(_END))
            self._announced = line.startswith(_MEMORY)
        elif match := _MULTI.match(line):
            if not self._block:
                self.begin(["Step", "CPU"])
                self._block = True
            return self.on_values(_values(["Step", "CPU"], match.groups()), begins=True)
        elif match := _KEYWORDS.match(line):
            self.begin(_yaml_words(match[1]))
        elif self._announced and _begins_columns(line):
            self.begin(line.split())
        elif not line.startswith("WARNING") and (values := self._numbers(line)):
            return self.on_values(values, not self._block)
        else:
            # Nothing announces the header of a run with `pre no`, nor that of a log of its own.
            words = line.split()
            if _begins_columns(line) and (words == self._last or USUAL & set(words)):
                self._pending = words
            self._commands.take(line)
        return {}

    def _numbers(self, line: str) -> dict[str, float]:
        """Numbers of the run that is under way."""
        if self._block:
            pairs = _PAIR.findall(line)
            return _values([name for name, _ in pairs], [word for _, word in pairs])
        match = _YAML_ROW.match(line)
        return _values(self._names, _yaml_words(match[1]) if match else line.split())

    def begin(self, names: list[str]) -> None:
        """A run begins."""
        self.end(finished=False)
        self._names = names

    def end(self, finished: bool) -> None:
        """The run that is under way, if any, is over."""
        self._last = self._names or self._last
        self._names, self._announced, self._block = [], False, False

    def on_values(self, values: dict[str, float], begins: bool) -> dict[str, float]:
        """Numbers of a row; whether it begins with them."""
        return values


@dataclass
class _Runs(ThermoRows):
    """Keeps the rows of all runs."""

    runs: list[ThermoRun] = field(default_factory=list)
    _run: ThermoRun = field(default_factory=lambda: ThermoRun({}))  # that is under way
    _rows: list[dict[str, float]] = field(default_factory=list)

    def begin(self, names: list[str]) -> None:
        super().begin(names)
        commands = self._commands
        self._run = ThermoRun({}, commands.units, commands.per_atom, commands.timestep)

    def on_values(self, values: dict[str, float], begins: bool) -> dict[str, float]:
        if not begins and self._rows:
            self._rows[-1] |= values
        elif values:
            self._rows.append(values)
        return values

    def end(self, finished: bool) -> None:
        if self._pending:
            names, self._pending = self._pending, []
            self.begin(names)
        if self._names:
            first = self._rows[0] if self._block and self._rows else dict.fromkeys(self._names)
            names = list(first)
            rows = [row for row in self._rows if list(row) == names]  # the last may be cut off
            columns = {name: np.array([row[name] for row in rows], float) for name in names}
            self.runs.append(replace(self._run, columns=columns, finished=finished))
        self._rows = []
        super().end(finished)


def number(word: str) -> float | None:
    """The number that a word is; None where it is none."""
    try:
        return float(word)
    except ValueError:
        return None


def _yaml_words(text: str) -> list[str]:
    words = (word.strip().strip("'\"") for word in text.split(","))
    return [word for word in words if word]


def read_deviation(path: Path) -> dict[str, np.ndarray]:
    """Columns of a deviation file by the names in its first line.

    Returns:
        [rows] each: `step`, and `avg_devi_f`, `min_devi_f` and `max_devi_f` of forces, with _e of
        energies or _v of virials. Numbers of atoms behind them are left out.

    Raises:
        Failure: there is no such file, or a line is of another form.
    """
    if not path.is_file():
        raise Failure(f"found no deviation file '{path}'")
    text = path.read_text(errors="replace")
    named = text.partition("\n")[0].lstrip("# ").split()
    names = tuple(named) if len(named) == 7 and named[0] == "step" else DEVIATION_COLUMNS
    rows: list[list[float]] = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        row = _values(names, words[: len(names)])
        if not row:
            raise Failure(
                f"line {number} of '{path}' is '{' '.join(words)}'; expected a step and six "
                "numbers, as pair_style pwmlff writes them to out_file"
            )
        rows.append(list(row.values()))
    if not rows:
        raise Failure(f"'{path}' has no line yet; it gets one every out_freq steps")
    return dict(zip(names, np.array(rows).T, strict=True))
