"""Where a running lmp is, from what it writes to its screen."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from pwmlff.log import Rows

#: Nanoseconds in LAMMPS's unit of time; reduced units have none.
NANOSECONDS = {"metal": 1e-3, "real": 1e-6}
SECONDS_PER_DAY = 86400.0


@dataclass
class Progress:
    """Fed line by line, as lmp writes them with `-echo both` or `-echo screen`."""

    step: int | None = None
    target: int | None = None  # last step of the run command
    temperature: float | None = None
    units: str = ""
    timestep: float | None = None
    restarts: list[str] = field(default_factory=list)  # file patterns of the restart command
    errors: list[str] = field(default_factory=list)  # lines in which LAMMPS gave up
    began: bool = False  # whether lmp has said anything
    stopped: bool = False  # whether pair_style pwmlff was asked to stop
    ended: bool = False  # whether lmp has said its last line
    _run: tuple[int, bool] | None = None  # steps of a run command to come, and whether upto
    _rows: Rows = field(default_factory=Rows)
    _first: tuple[int, float] | None = None  # step and time of the first line of the run
    _last: tuple[int, float] | None = None

    def feed(self, line: str, now: float) -> bool:
        """Take a line that was read at a time in seconds; return whether there is news."""
        self.began = True
        if match := re.match(r"run\s+(\d+)(?:\s+(upto)\b)?", line):
            self._run = int(match[1]), match[2] is not None
        elif match := re.match(r"restart\s+(?:[1-9]\d*|v_\w+)\s+(\S+)(?:\s+(\S+))?", line):
            names = [name for name in match.groups() if name and "$" not in name]
            self.restarts = [name for name in names if name not in ("fileper", "nfile")]
        elif match := re.match(r"\s+Unit style\s+: (\S+)", line):
            self.units = match[1]
        elif match := re.match(r"\s+Current step\s+: (\d+)", line):
            self._begin(int(match[1]))
        elif match := re.match(r"\s+Time step\s+: (\S+)", line):
            self.timestep = float(match[1])
        elif line.startswith("ERROR"):
            self.errors.append(line.strip())
        elif line.startswith("Pair style pwmlff: asked to stop"):
            self.stopped = True
        elif line.startswith("Total wall time"):
            self.ended = True
        else:
            return self._row(self._rows.take(line), now)
        return False

    def _begin(self, step: int) -> None:
        self.step, self._first = step, None
        if self._run is not None:
            steps, upto = self._run
            self.target = steps if upto else step + steps
            self._run = None  # with `every`, more than one begin belongs to a run command

    def _row(self, values: dict[str, float], now: float) -> bool:
        self.temperature = values.get("Temp", self.temperature)
        if "Step" in values and values["Step"].is_integer():
            self.step = int(values["Step"])
            self._last = self.step, now
            self._first = self._first or self._last
        return bool(values)

    @property
    def rate(self) -> float | None:
        """Steps per second since the run command began; None until two lines are there."""
        if self._first is None or self._last is None or self._last[0] <= self._first[0]:
            return None
        return (self._last[0] - self._first[0]) / max(self._last[1] - self._first[1], 1e-9)

    @property
    def ns_per_day(self) -> float | None:
        """Simulated nanoseconds per day; None in reduced units."""
        if self.rate is None or self.timestep is None or self.units not in NANOSECONDS:
            return None
        return self.rate * self.timestep * NANOSECONDS[self.units] * SECONDS_PER_DAY

    @property
    def seconds_left(self) -> float | None:
        """Until the end of the run command."""
        if self.rate is None or self.target is None or self.step is None:
            return None
        return max(self.target - self.step, 0) / self.rate

    def text(self) -> str:
        """One line: step, speed, temperature, time left."""
        if self.step is None:
            return "starting"
        parts = [f"step {self.step}" + (f" of {self.target}" if self.target else "")]
        if self.ns_per_day is not None:
            parts.append(f"{self.ns_per_day:.3g} ns/day")
        elif self.rate is not None:
            parts.append(f"{self.rate:.3g} steps/s")
        if self.temperature is not None:
            parts.append(f"T {self.temperature:.4g}")
        if self.seconds_left is not None:
            parts.append(f"{timedelta(seconds=round(self.seconds_left))} left")
        return ", ".join(parts)
