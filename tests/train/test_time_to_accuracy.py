"""Watching a training: when errors were there, an end that a program does not find, a failure."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import other_trainings
import time_to_accuracy

LOGS = """import time
for error in (90.0, 50.0, 55.0, 20.0):
    time.sleep(0.4)
    open('log', 'a').write(f'{error}\\n')
open('model', 'w').close()
"""
ENDS = {"runs on": "time.sleep(100)", "ends": "", "fails": "raise SystemExit('out of luck')"}


class Script(other_trainings.Program):
    """A program that logs errors, and ends in some way."""

    package, calculator, slack = "numpy", "none", 1.0

    def __init__(self, end: str) -> None:
        self.end = end

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        return [python, "-c", LOGS + ENDS[self.end]]

    def errors(self, folder: Path) -> list[float]:
        log = folder / "log"
        return [float(line) for line in log.read_text().split()] if log.exists() else []

    def model(self, folder: Path) -> Path:
        return folder / "model"


@pytest.mark.parametrize("end", ENDS)
def test_watched(end: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(other_trainings.PROGRAMS, "script", Script(end))
    monkeypatch.setattr(time_to_accuracy, "judged", lambda *_: None)
    monkeypatch.setattr(time_to_accuracy, "POLL", 0.02)
    folder = tmp_path / "run"

    def trained() -> time_to_accuracy.Run:
        return time_to_accuracy.trained("script", sys.executable, folder, tmp_path, "Hf O", 0.12)

    run = trained()
    assert [error for _, error in run.curve] == [90.0, 50.0, 55.0, 20.0]
    seconds = [second for second, _ in run.curve]
    assert all(second > 0.4 * k for k, second in enumerate(seconds, 1))  # as each is logged later
    assert run.minutes_to(60.0) == seconds[1] / 60 and run.minutes_to(10.0) is None
    assert ("out of luck" in run.failed) is (end == "fails")
    assert (end == "runs on") is (run.seconds > 7.2)
    kept = json.loads((folder / "run.json").read_text())
    assert trained().curve == kept["curve"] and len(kept["curve"]) == 4  # it is not run again


def run_with(times: Sequence[float], seconds: float) -> time_to_accuracy.Run:
    curve = [(time, 1.0) for time in times]
    return time_to_accuracy.Run("script", "1", [], 1.0, curve, seconds)


@pytest.mark.parametrize(
    "times, seconds, wanted",
    [
        ([15, 20, 25, 30], 30.0, 25.0),  # starts for 10 s, then 20 s of steps that count for 10 s
        ([50, 55], 55.0, 15.0),  # 45 s of 60 s are over when it starts
        ([70, 75], 75.0, 10.0),  # nothing is left: as in the trial
        ([4], 20.0, 30.0),  # a single error does not tell
        ([5, 10], 40.0, 30.0),  # it writes for 30 s at the end
        ([1, 20], 20.0, 30.0),  # it starts at once
    ],
)
def test_steps_that_fit(times: list[float], seconds: float, wanted: float) -> None:
    """How many there are for a minute, after a trial with as many as are counted for 10 s."""
    found = time_to_accuracy.fitting(run_with(times, seconds), 10 / 60, 1.0)
    assert 60 * found == pytest.approx(wanted)


@pytest.mark.parametrize("full, runs", [(0.01, 1), (0.99, 3)])
def test_trials(tmp_path: Path, monkeypatch, full: float, runs: int) -> None:
    """The first is counted for a part of the minutes; each tells that of the next one."""
    counted: list[float] = []

    class Counting(Script):
        counts = True

        def setup(self, folder, python, files, elements, minutes) -> list[str]:
            counted.append(minutes)
            return super().setup(folder, python, files, elements, minutes)

    def told(trial: time_to_accuracy.Run, counted: float, minutes: float) -> float:
        return 10 * counted + minutes + len(trial.curve)

    monkeypatch.setitem(other_trainings.PROGRAMS, "script", Counting("ends"))
    monkeypatch.setattr(time_to_accuracy, "judged", lambda *_: None)
    monkeypatch.setattr(time_to_accuracy, "fitting", told)
    monkeypatch.setattr(time_to_accuracy, "FULL", full)
    run = time_to_accuracy.trained("script", sys.executable, tmp_path / "run", tmp_path, "H", 0.3)
    assert counted == pytest.approx([0.1, 10 * 0.1 + 0.3 + 4, 10 * 5.3 + 0.3 + 4][:runs])
    assert len(run.curve) == 4 and run.minutes == 0.3


def test_too_long_after_a_trial(tmp_path: Path, monkeypatch) -> None:
    """What the trial has made is kept."""

    class Longer(Script):
        counts = True

        def setup(self, folder, python, files, elements, minutes) -> list[str]:
            return [python, "-c", LOGS + ENDS["ends" if folder.name == "0" else "fails"]]

    monkeypatch.setitem(other_trainings.PROGRAMS, "script", Longer("ends"))
    monkeypatch.setattr(time_to_accuracy, "judged", lambda *words: seen.append(words[3].name))
    seen: list[str] = []
    run = time_to_accuracy.trained("script", sys.executable, tmp_path / "run", tmp_path, "H", 0.3)
    assert (run.failed, len(run.curve), seen) == ("", 4, ["0"])
