"""The log of a training, also of one that was killed or ran out of disk; its pictures."""

from __future__ import annotations

import csv
import errno
import io
import json
import logging
import os
import re
import resource
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from labelled_structures import frames_of
from pwmlff import files, picture, report
from pwmlff.report import Failure
from pwmlff.train import record
from pwmlff.train.errors import QUANTITIES, compute
from pwmlff.train.record import Display, LogRow, TrainingLog
from pwmlff.train.start import Options, claimed


def row(step: int, **values) -> LogRow:
    values = {"energy_valid": 5.0 / step, "force_train": 100.0 / step, **values}
    return LogRow(step=step, epoch=step / 10, time=1.5 * step, loss=0.1 + step / 3, **values)


def on_disk(folder: Path) -> tuple[list[dict], list[dict]]:
    """What other programs read: CSV and JSON lines."""
    with (folder / "log.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = (folder / "log.jsonl").read_text().splitlines()
    return table, [json.loads(line) for line in lines]


def test_rows_are_in_both_files(tmp_path: Path):
    log = TrainingLog(tmp_path)
    for step in (1, 2, 5):
        log.add(row(step))
        table, lines = on_disk(tmp_path)  # while it is open
        assert int(table[-1]["step"]) == lines[-1]["step"] == step
    assert [float(entry["loss"]) for entry in table] == [0.1 + step / 3 for step in (1, 2, 5)]
    assert [entry["loss"] for entry in lines] == [0.1 + step / 3 for step in (1, 2, 5)]
    assert table[0]["force_valid"] == "" and lines[0]["force_valid"] is None
    assert list(table[0]) == list(lines[0]) == [field.name for field in fields(LogRow)]
    log.add(row(6, energy_train=np.nan))
    table, lines = on_disk(tmp_path)
    assert table[-1]["energy_train"] == "nan" and lines[-1]["energy_train"] is None


def test_errors_become_columns():
    frames = frames_of([Atoms("O2"), Atoms("O2")], [1.0, 2.0], [np.ones((2, 3))] * 2)
    found = compute(frames, np.array([1.2, 2.0]), np.zeros((4, 3)), np.zeros((2, 3, 3)))
    made = LogRow.from_errors(step=3, epoch=0.5, time=2.0, valid=found)
    assert made.energy_valid == pytest.approx(100.0 / np.sqrt(2))
    assert made.force_valid == pytest.approx(1000.0)
    assert made.virial_valid is None and made.energy_train is None
    assert made.quantities == ("energy", "force")
    assert made.line(made.quantities).split()[2:] == ["0:00:02", "-", "70.7", "-", "1000", "-"]


def test_resume_cuts_what_came_after_the_checkpoint(tmp_path: Path):
    with TrainingLog(tmp_path) as log:
        for step in range(1, 8):
            log.add(row(step))
    with TrainingLog(tmp_path, step=4) as log:
        assert [r.step for r in log.rows] == [1, 2, 3, 4]
        log.add(row(4, energy_train=1.0))  # told again: it is there
        for step in (5, 6):
            log.add(row(step, energy_train=7.0))
    whole = [row(s) for s in range(1, 5)] + [row(s, energy_train=7.0) for s in (5, 6)]
    assert record.read(tmp_path / "log.jsonl") == whole
    table, lines = on_disk(tmp_path)
    assert [int(entry["step"]) for entry in table] == [e["step"] for e in lines] == [*range(1, 7)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "log.jsonl"]


def test_another_training_is_not_overwritten(tmp_path: Path):
    with TrainingLog(tmp_path) as log:
        log.add(row(1))
    before = on_disk(tmp_path)
    with pytest.raises(Failure, match=r"the log of another training.*--resume"):
        TrainingLog(tmp_path)
    assert on_disk(tmp_path) == before


@pytest.mark.parametrize("cut", [1, 10, 80])
def test_torn_last_line(tmp_path: Path, cut: int):
    """As a kill leaves it: any part of the last line in either file."""
    with TrainingLog(tmp_path) as log:
        for step in (1, 2, 3):
            log.add(row(step))
    for name in ("log.jsonl", "log.csv"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: -min(cut, len(data.splitlines()[-1]))])
    with TrainingLog(tmp_path, step=3) as log:
        assert [r.step for r in log.rows] == [1, 2]
        log.add(row(3))
    table, lines = on_disk(tmp_path)
    assert [int(entry["step"]) for entry in table] == [e["step"] for e in lines] == [1, 2, 3]


@pytest.mark.parametrize("name", ["log.jsonl", "log.csv"])
def test_rows_of_one_file_are_enough(tmp_path: Path, name: str):
    """That of the other was cut, or is gone."""
    with TrainingLog(tmp_path) as log:
        for step in (2, 4, 6):
            log.add(row(step))
    whole = [(tmp_path / file).read_bytes() for file in ("log.jsonl", "log.csv")]
    for left in (whole[name == "log.csv"][:-150], b""):
        (tmp_path / name).write_bytes(left)
        with TrainingLog(tmp_path, step=6) as log:
            assert [r.step for r in log.rows] == [2, 4, 6]
        assert [(tmp_path / file).read_bytes() for file in ("log.jsonl", "log.csv")] == whole


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*best\.pt'"):
        files.write_whole(tmp_path / "best.pt", b"model")
    assert not list(tmp_path.iterdir())


def test_foreign_file(tmp_path: Path):
    for line in (b"hello", b'{"step": "x"}', b'{"epoch": 1}', b"[1]", b'{"step": 1.5, "epoch": 1}'):
        (tmp_path / "log.jsonl").write_bytes(line + b"\n")
        with pytest.raises(Failure, match=r"line 1 of '.*log\.jsonl' is .*, expected a row"):
            TrainingLog(tmp_path, step=3)
        assert (tmp_path / "log.jsonl").read_bytes() == line + b"\n"


def test_killed_while_writing(tmp_path: Path):
    """A process that only writes rows is killed; all but the last line are whole."""
    code = (
        "import sys; from itertools import count\n"
        "from pwmlff.train.record import TrainingLog, LogRow\n"
        "log = TrainingLog(sys.argv[1]); print(flush=True)\n"
        "for step in count(1): log.add(LogRow(step=step, epoch=step / 10, time=1.0))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while (tmp_path / "log.jsonl").stat().st_size < 20_000:
            assert process.poll() is None
        process.kill()
    rows = record.read(tmp_path / "log.jsonl")
    assert [r.step for r in rows] == [*range(1, len(rows) + 1)] and len(rows) > 50
    with TrainingLog(tmp_path, step=40) as log:
        assert [r.step for r in log.rows] == [*range(1, 41)]


class FullDisk(io.FileIO):
    """Takes half of what it is given, then nothing, as long as `full`."""

    full = True

    def write(self, data) -> int:
        if not self.full:
            return super().write(data)
        if len(data) > 10:
            return super().write(bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk(tmp_path: Path, caplog):
    """Training goes on, no half row is left behind, and nothing is lost once there is room."""
    log = TrainingLog(tmp_path)
    log.add(row(1))
    for lines in (log._json, log._csv):
        lines._file = FullDisk(str(lines._path), "ab")
    with caplog.at_level(logging.WARNING):
        log.add(row(2))
        log.add(row(3))
    assert len(caplog.records) == 2  # one for each file
    assert "No space left on device; training goes on" in caplog.text
    table, lines = on_disk(tmp_path)
    assert [int(entry["step"]) for entry in table] == [e["step"] for e in lines] == [1]
    log._json._file.full = log._csv._file.full = False
    log.add(row(4))
    table, lines = on_disk(tmp_path)
    assert [int(entry["step"]) for entry in table] == [e["step"] for e in lines] == [1, 2, 3, 4]


def test_folder_that_cannot_be_written(tmp_path: Path):
    with pytest.raises(Failure, match=r"cannot write '.*absent.*': No such file"):
        TrainingLog(tmp_path / "absent")


def test_tensorboard(tmp_path: Path, monkeypatch, caplog):
    """Scalars go where they belong; where it is not installed, there is a warning."""
    told = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int | None):
            told.append((folder, purge_step))

        def add_scalar(self, tag: str, value: float, step: int):
            told.append((tag, value, step))

        def flush(self):
            pass

        close = flush

    module = type(sys)("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with TrainingLog(tmp_path, tensorboard=True) as log:
        log.add(row(2))
    assert told[0] == (str(tmp_path / "tensorboard"), None)
    assert ("energy/valid", 2.5, 2) in told and ("force/train", 50.0, 2) in told
    assert ("loss", 0.1 + 2 / 3, 2) in told
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with caplog.at_level(logging.WARNING), TrainingLog(tmp_path, step=2, tensorboard=True) as log:
        log.add(row(3))
    assert "pip install tensorboard" in caplog.text
    assert [entry["step"] for entry in on_disk(tmp_path)[1]] == [2, 3]


def test_learning_curve(tmp_path: Path):
    rows = [row(step, energy_valid=None if step == 2 else 5.0 / step) for step in (1, 2, 5)]
    figure = record.learning_curve(rows)
    axes = {a.get_label(): a for a in figure.axes}
    assert list(axes) == ["energy", "force", "loss"]
    (energy,) = axes["energy"].lines
    assert list(energy.get_xdata()) == [1, 2, 5]
    np.testing.assert_array_equal(energy.get_ydata(), [5.0, np.nan, 1.0])
    assert energy.get_label() == "valid"
    (force,) = axes["force"].lines
    assert force.get_label() == "train" and force.get_color() != energy.get_color()
    assert axes["force"].get_ylabel() == "force RMSE\n(meV/Å)"
    assert axes["loss"].get_xscale() == "linear"
    with TrainingLog(tmp_path) as log:
        with pytest.raises(Failure, match="no row"):
            log.draw()
        for entry in rows:
            log.add(entry)
        assert log.draw() == tmp_path / "learning_curve.png"
    assert (tmp_path / "learning_curve.png").read_bytes()[:4] == b"\x89PNG"
    record.learning_curve([LogRow(step=0, epoch=0.0, time=0.0)]).canvas.draw()  # nothing to show
    figure = record.learning_curve([row(k, born_valid=0.1 / k) for k in (1, 2)])
    assert figure.axes[2].get_ylabel() == "Born charge RMSE\n(e)"


@pytest.mark.parametrize("last", [99.0, 60.0, 30.0, 8.0, 1.0, 0.001])
def test_ticks_of_the_learning_curve(last: float):
    """At least two numbers on each axis, plain ones, none over another."""
    energies = np.geomspace(100.0, last, 8)
    figure = record.learning_curve([row(k + 1, energy_valid=e) for k, e in enumerate(energies)])
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    axes = next(a for a in figure.axes if a.get_label() == "energy")
    low, high = axes.get_ylim()
    for which in (axes.yaxis, figure.axes[-1].xaxis):
        texts = [
            tick.label1
            for tick in (*which.get_major_ticks(), *which.get_minor_ticks())
            if tick.label1.get_text() and (which is not axes.yaxis or low <= tick.get_loc() <= high)
        ]
        assert len(texts) >= 2
        assert all(re.fullmatch(r"-?\d+(\.\d+)?(e-\d+)?", text.get_text()) for text in texts)
        boxes = [text.get_window_extent(renderer) for text in texts]
        assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


@pytest.mark.parametrize("terminal", [True, False])
def test_progress(terminal: bool):
    """On a terminal at each step; elsewhere a line now and then, and one for each validation."""
    now = [100.0]
    text = io.StringIO()
    screen = Console(file=text, force_terminal=terminal, width=140, markup=False)
    with Display(screen=screen, clock=lambda: now[0]) as display:
        for k in range(50, 100):
            now[0] += 20.0
            display.step(k / 100, epoch=k / 10, step=k, loss=0.5, atoms_per_second=4e4)
        display.row(row(99))
        if terminal:
            assert display._bar.tasks[0].completed == 0.99
            shown = display._bar.tasks[0].description
        else:
            shown = text.getvalue()
    lines = text.getvalue().splitlines()
    assert "9.90      99  0:02:28       -  0.0505    1.01       -      -" in text.getvalue()
    if not terminal:
        assert [line[:4] for line in lines[:4]] == ["64 %", "79 %", "94 %", "epoc"]
    # 49 steps of 1 % took 980 seconds; what was done before a resumption does not count.
    assert "epoch 9.9, step 99, loss 0.5, 4e+04 atoms/s, 0:00:20 left" in shown or not terminal
    assert "step 94, loss 0.5, 4e+04 atoms/s, 0:02:00 left" in shown or terminal


@pytest.mark.parametrize("quantities, width", [("EFV", 80), ("EFVZ", 96)])
def test_table_on_the_screen(quantities: str, width: int):
    """One head above all rows; 80 columns with the name of a model of an ensemble.

    Born charges, where there are some, are beyond that, in the same line.
    """
    names_of = [*QUANTITIES][: len(quantities)]
    text = io.StringIO()
    with Display(screen=Console(file=text, width=60)) as display:
        for size in (1.0, 1e-7, 12345.678, 9.99e15):
            errors = {f"{q}_{name}": size for q in names_of for name in ("train", "valid")}
            display.row(LogRow(1234567, 12345.6, 1e5, 1.234e-4, 0.1, **errors))
    names, units, *rows = text.getvalue().splitlines()
    words = re.sub(r"([EFVZ]) ", r"\1_", names).split()
    assert words[3:] == [f"{q}_{n}" for q in quantities for n in ("train", "valid")] + ["rate"]
    assert units.split() == ["meV/atom", "meV/Å", "meV/atom", "e"][: len(quantities)]
    assert len(rows) == 4 and max(map(len, (names, units, *rows))) <= width - len("a: ")
    assert rows[0].split() == [
        "12346",
        "1234567",
        "27:46:40",
        *["1"] * 2 * len(quantities),
        "1.2e-4",
    ]
    found = [float(line.split()[3]) for line in rows]
    assert found == pytest.approx([1.0, 1e-7, 12345.678, 9.99e15], rel=5e-3)


def test_units_where_the_screen_has_no_such_letter(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    report.begin([])
    stream.write("1 meV/Å, 2 Å³, ♥")
    stream.seek(0)
    assert stream.read() == r"1 meV/angstrom, 2 angstrom^3, \u2665"


def test_what_a_killed_training_was_writing_goes(tmp_path: Path):
    """Before it goes on; what others wrote stays."""
    left = [tmp_path / name for name in (".log.jsonl.ab12_x9z", ".best.pt.abcdefgh")]
    kept = [tmp_path / name for name in ("log.jsonl", ".checkpoint-000001.npz", ".lock", ".a.b.c")]
    for path in (*left, *kept):
        path.write_bytes(b"half")
    (tmp_path / ".learning_curve.png.abcdefgh").mkdir()
    with claimed(tmp_path, Options(resume=True)):
        assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_write_that_is_killed_leaves_what_goes(tmp_path: Path):
    """By the names that there are at that moment."""
    words = (
        "import os; from pwmlff import files; from pathlib import Path\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        "files.write_whole(Path('log.jsonl'), b'rows')\n"
    )
    subprocess.run([sys.executable, "-c", words], cwd=tmp_path, check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".log.jsonl.")
    files.remove_scratch(tmp_path)
    assert not left.exists()


def test_a_training_that_could_not_begin_is_none(tmp_path: Path):
    """As on a disk that was full: its log has no row, and nothing else is there."""
    with TrainingLog(tmp_path):
        pass
    (tmp_path / record.JSON).unlink()
    record.require_unused(tmp_path)
    (tmp_path / "checkpoint-000001.npz").touch()
    with pytest.raises(Failure, match="is the log of another training"):
        record.require_unused(tmp_path)
    (tmp_path / "checkpoint-000001.npz").unlink()
    with TrainingLog(tmp_path) as log:
        log.add(row(1))
    with pytest.raises(Failure, match="is the log of another training"):
        record.require_unused(tmp_path)


def test_no_half_of_a_picture_stays(tmp_path: Path) -> None:
    """Where the system stops it halfway."""
    path = tmp_path / "a.png"
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/a\.png'"):
            picture.save(Figure(), path, dpi=120)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert not list(tmp_path.iterdir())
    picture.save(Figure(), path, dpi=120)
    assert path.read_bytes()[:4] == b"\x89PNG"
