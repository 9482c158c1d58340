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
