"""Where a running lmp is: from what pair_style pwmlff tells (pair_pwmlff/supervision.h).

Until it has, from what lmp writes, where an input can print anything; later on, only the
temperature is taken from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pwmlff.launch.log import ThermoRows, number
from pwmlff.launch.script import AFTER_NAMES, words

#: Nanoseconds in LAMMPS's unit of time; reduced units have none.
NANOSECONDS = {"metal": 1e-3, "real": 1e-6}
ENDED = re.compile(r"Total wall time: \d+:\d\d:\d\d")  # the last line of lmp


@dataclass
class LmpProgress:
    """Fed line by line, as lmp writes them with `-echo both` or `-echo screen`."""

    step: int | None = None
    target: int | None = None  # last step of the run command
    temperature: float | None = None
    units: str = ""
    timestep: float | None = None
    restarts: list[str] = field(default_factory=list)  # file patterns of the restart command
    began: bool = False  # whether lmp has said anything
    last: str = ""  # line that was not empty
    reported: bool = False  # whether the style has reported anything
    _run: tuple[int, bool] | None = None  # steps of a run command to come, and whether upto
    _rows: ThermoRows = field(default_factory=ThermoRows)
    _first: tuple[int, float] | None = None  # step and time of the first line of the run
    _last: tuple[int, float] | None = None

    def take(self, state: Mapping[str, Any], now: float) -> None:
        """Take what the style has reported, at a time in seconds."""
        self.began = self.reported = True
        self.units, self.timestep = state["units"], state["timestep"]
        # That of a run in parts, with `every`, is known from the command alone.
        if self.target is None or state["last"] > self.target:
            self.target = state["last"]
        self._reached(state["step"], now)

    @property
    def ended(self) -> bool:
        """Whether the last line is that with which lmp ends, if it ends well."""
        return ENDED.fullmatch(self.last) is not None

    def feed(self, line: str, now: float) -> bool:
        """Take a line that was read at a time in seconds; return whether there is news."""
        self.began = True
        self.last = line.strip() or self.last
        if match := re.match(r"\s*run\s+(\d+)(?:\s+(upto)\b)?", line):
            self._run = int(match[1]), match[2] is not None
        elif re.match(r"\s*restart\s", line):
            self._restart(words(line))
        elif match := re.fullmatch(r"\s+Unit style\s+: (\S+)", line):
            self.units = self.units if self.reported else match[1]
        elif match := re.fullmatch(r"\s+Current step\s+: (\d+)", line):
            self._begin(int(match[1]))
        elif match := re.fullmatch(r"\s+Time step\s+: (\S+)", line):
            self.timestep = self.timestep if self.reported else number(match[1])
        else:
            return self._row(self._rows.take(line), now)
        return False

    def _restart(self, command: list[str]) -> None:
        """Take the names of a command *restart* that was carried out."""
        every, *names = [*command[1:], ""]
        names = [name for name in names[:2] if name and name not in AFTER_NAMES]
        if re.fullmatch(r"[1-9]\d*|v_\w+", every) and names and "$" not in "".join(names):
            if len(names) == 1 and "*" not in names[0]:
                names = [f"{names[0]}.*"]
            self.restarts = list(dict.fromkeys([*self.restarts, *names]))

    def _begin(self, step: int) -> None:
        self._first = None
        if not self.reported:  # what the style has reported may be ahead of what the screen says
            self.step = step
        if self._run is not None:
            steps, upto = self._run
            self.target = steps if upto else step + steps
            self._run = None  # with `every`, more than one begin belongs to a run command

    def _row(self, values: Mapping[str, float], now: float) -> bool:
        step = values.get("Step")
        if not values or (step is not None and not step.is_integer()):  # an infinite one is none
            return False
        self.temperature = values.get("Temp", self.temperature)
        if step is not None and not self.reported:
            self._reached(int(step), now)
        return True

    def _reached(self, step: int, now: float) -> None:
        if self._last is not None and step < self._last[0]:
            self._first = None
        self.step = step
        self._last = step, now
        self._first = self._first or self._last

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
        return self.rate * self.timestep * NANOSECONDS[self.units] * 86400.0  # s/day

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
