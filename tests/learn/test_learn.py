"""pwmlff learn: a small loop with a potential of ase, killed, stopped, and with labels that fail.

PWMLFF_KILLS=20 kills the loop more often.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import covalent_radii
from ase.io import read, write
from rich.console import Console

from harness import forked
from labelled_structures import copper_gold
from nep_files import CHARGED, HEADS, random_structure, random_text
from pwmlff.data import readers
from pwmlff.evaluation.nep_file import read_nep
from pwmlff.evaluation.nep_reference import evaluate_nep
from pwmlff.learn import explore, labelling, learn, rounds
from pwmlff.learn.processes import Ended, Task, Workshop
from pwmlff.learn.rounds import Rounds
from pwmlff.learn.settings import INTRODUCTION, SECTIONS, Explore, Label, Learning
from pwmlff.learn.state import State
from pwmlff.learn.verdict import LearnReport
from pwmlff.report import Failure
from pwmlff.train.config import from_command

KILLS = int(os.environ.get("PWMLFF_KILLS", "1"))
SMALL = """
[loop]
rounds = 2
[start]
elements = ["Cu", "Au"]
structures = ["start.xyz"]
frames = 6
[train]
set = ["model.rmax=4.5", "model.embedding=[4]", "model.fitting=[4]", "model.m2=2"]
epochs = 3
[label]
calculator = "ase.calculators.emt:EMT()"
[choose]
window = [1e-3, 50.0]
most = 4
[[explore]]
temperature = [300, 600]
steps = 50
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "start.xyz", copper_gold(), format="extxyz")
    (tmp_path / "learn.toml").write_text(SMALL)
    return tmp_path


def command(folder: Path, *settings: str) -> subprocess.Popen[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    return subprocess.Popen(
        forked("learn", "learn.toml", "--json", *words),
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(folder: Path, *settings: str, code: int = 0) -> dict[str, Any]:
    process = command(folder, *settings)
    output, said = process.communicate(timeout=300)
    assert process.returncode == code, output + said
    return json.loads(output)


def parameters(path: Path) -> list[torch.Tensor]:
    module = torch.jit.load(str(path))
    return [*module.parameters(), *module.buffers()]


@pytest.mark.thorough
def test_killed_anywhere_it_comes_to_the_same_models(folder: Path):
    undisturbed = run(folder)
    assert undisturbed["end"] == "2 rounds" and len(undisturbed["rounds"]) == 3
    for name in ("first", "round-000", "round-001"):
        for atoms in read(folder / "learn" / name / "labelled.extxyz", index=":"):
            again = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
            again.calc = EMT()
            assert np.allclose(again.get_forces(), atoms.get_forces(), atol=1e-7)
            assert again.get_potential_energy() == pytest.approx(atoms.get_potential_energy())
    # Its errors on fresh labels are those of the models that it had.
    told = undisturbed["rounds"][0]
    chosen = read(folder / "learn" / "round-000" / "labelled.extxyz", index=":")
    assert told["explore"]["chosen"] == told["label"]["frames"] == len(chosen) == 4
    rng = random.Random(3)
    for _ in range(KILLS):
        process = command(folder, "loop.folder=again")
        time.sleep(rng.uniform(1.0, 12.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    again = run(folder, "loop.folder=again")
    assert [one["train"]["frames"] for one in again["rounds"]] == [6, 10, 14]
    for name in ("a.pt", "b.pt"):
        pairs = zip(
            parameters(folder / "learn" / name), parameters(folder / "again" / name), strict=True
        )
        assert all(torch.equal(one, two) for one, two in pairs)
    for path in (folder / "learn").glob("round-*/round.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_labels_that_fit_into_their_time(folder: Path):
    """As many as there is time for, by that of the first ones."""
    (folder / "slow.py").write_text(
        "import time\nfrom ase.calculators.emt import EMT\nclass Slow(EMT):\n"
        "    def calculate(self, *words):\n        time.sleep(0.5)\n"
        "        super().calculate(*words)\n"
    )
    settings = ["loop.rounds=1", "loop.jobs=1", "label.calculator='slow.py:Slow()'"]
    settings += ["choose.most=12", "choose.minutes=0.05"]
    told = run(folder, *settings)["rounds"][0]
    each = State.read(folder / "learn").first["seconds_each"]
    assert each >= 0.5 and told["explore"]["candidates"] > 6
    assert told["explore"]["chosen"] == told["label"]["frames"] == max(1, int(3.0 / each))


def test_own_input_stop_and_no_window(folder: Path):
    """An input of the user's own; SIGTERM ends the loop with 75, and nothing is in the window."""
    (folder / "in.own").write_text(
        "units metal\nread_data own.data\npair_style pwmlff 1 old.pt &\n  out_freq 7\n"
        "pair_coeff * * Cu Au\nvelocity all create ${temperature} ${seed}\n"
        "fix 1 all nve\nrun 20\n"
    )
    write(
        folder / "own.data",
        copper_gold(),
        format="lammps-data",
        specorder=["Cu", "Au"],
        masses=True,
    )
    text = SMALL.replace("[[explore]]\ntemperature = [300, 600]\nsteps = 50", "")
    text = text.replace("window = [1e-3, 50.0]", "window = [90.0, 91.0]")
    (folder / "learn.toml").write_text(text + '[[explore]]\ninput = "in.own"\ntemperature = [10]\n')
    process = command(folder)
    while not (folder / "learn").exists() and process.poll() is None:
        time.sleep(0.05)  # until then it loads what it needs, and a signal just ends it
    process.send_signal(signal.SIGTERM)
    output, said = process.communicate(timeout=60)
    assert process.returncode == 75, output + said
    report = learn(folder / "learn.toml")
    assert report.converged and [Path(name).name for name in report.models] == ["a.pt", "b.pt"]
    assert report.state.rounds[0]["explore"]["structures"] == 3  # steps 0, 10, 20
    text = (folder / "learn" / "round-000" / "explore" / "000" / "in.lmp").read_text()
    assert "pair_style pwmlff 2 a.pt b.pt out_freq 10" in text and "out_freq 7" not in text


LABEL = """
import sys
from ase.calculators.emt import EMT
from ase.io import read, write
atoms = read("POSCAR")
if len(atoms) == 31:
    sys.exit("scf did not converge")
atoms.calc = EMT()
atoms.get_forces()
write("out.xyz", atoms, format="extxyz")
"""


@pytest.mark.parametrize("scheduler", ["", "local"])
def test_labels_by_a_command(tmp_path: Path, scheduler: str):
    """One that fails is told, the others are there, and nothing is computed twice."""
    (tmp_path / "label.py").write_text(LABEL)
    structures = [copper_gold() for _ in range(3)]
    del structures[1][4]
    structures[2].rattle(0.1, seed=3)
    how = Label(
        command=f"{sys.executable} label.py && date +%s%N >> times", output="out.xyz",
        files=(str(tmp_path / "label.py"),), scheduler=scheduler,
    )  # fmt: skip
    shop = Workshop(tmp_path / "shop", lambda: False)
    for _ in range(2):
        made = labelling.make(structures, [29, 79], how, tmp_path / "labels", shop, 2)
        assert len(made.frames) == 2 and len(made.failures) == 1
        assert "structure 1: " in made.failures[0]
    assert "scf did not converge" in made.failures[0] or scheduler
    structures[2].calc = EMT()
    found = made.frames[1]
    order = np.argsort(structures[2].numbers, kind="stable")
    assert np.allclose(found.get_forces(), structures[2].get_forces()[order], atol=1e-6)
    assert len((tmp_path / "labels" / "00000" / "times").read_text().split()) == 1
    lines = (tmp_path / "labels" / "00000" / "POSCAR").read_text().splitlines()
    assert lines[5].split() == ["Cu", "Au"] and lines[6].split() == ["24", "8"]
    shop.close()


def test_minutes_of_a_job_on_this_machine(tmp_path: Path):
    """It is ended with all that it has started, and that it was late is told; others are not."""
    how = Label(
        command="sleep 100 & echo $! > pid; wait", output="out.xyz", scheduler="local",
        minutes=0.02,
    )  # fmt: skip
    shop = Workshop(tmp_path / "shop", lambda: False)
    labels = tmp_path / "labels"
    with pytest.raises(Failure, match="its time was up"):
        labelling.make([copper_gold()], [29, 79], how, labels, shop, 1)
    with suppress(psutil.NoSuchProcess):
        left = psutil.Process(int((labels / "00000" / "pid").read_text()))
        assert left.status() == psutil.STATUS_ZOMBIE  # that nobody has waited for
    # A number that a killed loop has left, which is that of another process by now.
    other = subprocess.Popen(["sleep", "60"])
    (labels / "00000" / "job").write_text(str(other.pid))
    with pytest.raises(Failure, match="found no"):
        labelling.make([copper_gold()], [29, 79], how, labels, shop, 1)
    assert other.poll() is None
    other.kill()
    other.wait()
    shop.close()


def test_no_labels_at_all(folder: Path):
    (folder / "learn.toml").write_text(SMALL.replace("EMT()", "Nothing()"))
    error = run(folder, code=2)["error"]
    assert "none of 6 structures got labels" in error and "Nothing" in error


def test_programs_end_with_their_parent(tmp_path: Path):
    """Also where that is killed, and until then nobody else gets the folder."""
    script = (
        "import sys; from pathlib import Path; from pwmlff.learn.processes import *\n"
        "p = Path(sys.argv[1]); shop = Workshop(p, lambda: False)\n"
        "shop.run([Task(['sh', '-c', 'echo $$ > pid; exec sleep 100'], p, p / 'out')], 1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.05)
    asked = iter([False, True])
    with pytest.raises(Failure, match="another process is at work"):
        Workshop(tmp_path, lambda: next(asked))
    process.kill()
    process.wait()
    shop = Workshop(tmp_path, lambda: False)
    state = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"  # that nobody has waited for
    (late,) = shop.run([Task(["sleep", "60"], tmp_path, tmp_path / "late", timeout=0.3)], 1)
    assert late.code is None
    shop.close()


def test_settings(folder: Path):
    def refused(text: str, message: str) -> None:
        (folder / "learn.toml").write_text(text)
        with pytest.raises(Failure, match=message):
            Learning.read(folder / "learn.toml")

    refused(SMALL.replace('["Cu", "Au"]', '["Cu", "Xx"]'), "expected chemical symbols")
    refused(SMALL + "[label2]\na = 1\n", r"no section \[label2\].*did you mean 'label'")
    refused(SMALL.replace("steps = 50", "stepz = 50"), r"\[explore\] has no key 'stepz'.*steps")
    refused(SMALL.replace("start.xyz", "gone.xyz"), "found no file '.*gone.xyz'")
    refused(SMALL.replace("window = [1e-3, 50.0]", "window = [2, 1]"), "expected a rising one")
    refused(SMALL.split("[[explore]]", maxsplit=1)[0], r"no section \[\[explore\]\]")
    refused(
        SMALL.replace("[[explore]]", "[explore]").replace("steps = 50", "steps = 0"), "steps is 0"
    )
    refused(SMALL.replace('calculator = "ase.calculators.emt:EMT()"', ""), "expected one of them")
    for call in ("EMT(open('x'))", "EMT().set", "[EMT][0]()"):
        text = SMALL.replace('emt:EMT()"', f'emt:{call}"')
        refused(text, "expected module:name, called with plain values")
    job = SMALL.replace('calculator = "ase.calculators.emt:EMT()"', 'command = "true"\n{}')
    job = job.replace("command", 'scheduler = "slurm"\ncommand')
    refused(job.format(r'queue = "short\ntouch ran"'), r"\[label\] queue is 'short\\ntouch ran'")
    named = job.format("").replace("[loop]", '[loop]\nfolder = "a b"')
    refused(named, r"\[loop\] folder is '.*a b', expected")
    refused(SMALL.replace("[loop]", '[loop]\nfolder = "a\\nb"'), "has a line break")
    # All at once, however many.
    text = SMALL.replace("window = [1e-3, 50.0]", "window = [2, 1]").replace("Au", "Xx")
    refused(text.replace("start.xyz", "no.xyz"), r"chemical symbols.*rising one.*file '.*no\.xyz'")
    text = SMALL.replace("steps = 50", "stepz = 50") + "[label2]\na = 1\n"
    refused(text, r"no section \[label2\].*\[explore\] has no key 'stepz'")
    (folder / "learn.toml").write_text(SMALL)
    config = Learning.read(folder / "learn.toml", ["loop.rounds=7"])
    (folder / "again.toml").write_text(config.as_toml())
    assert Learning.read(folder / "again.toml") == config and config.loop.rounds == 7
    (folder / "learn").mkdir()
    (folder / "learn" / "state.json").write_text('{"version": 1, "rou')
    with pytest.raises(Failure, match="is no state of a loop"):
        State.read(folder / "learn")


def test_explorations_that_are_not_possible(folder: Path):
    """Said before anything is trained."""
    (folder / "in.own").write_text("pair_style lj/cut 2.5\n")
    for text, message in (
        (
            SMALL.replace("temperature", 'input = "in.own"\ntemperature'),
            "expected one of pair_style",
        ),
        (SMALL.replace("rmax=4.5", "rmaks=4.5"), "did you mean 'rmax'"),
        (SMALL.replace("set = [", 'set = ["data.baseline=zbl 1 2", '), "leave it out"),
        (
            SMALL.replace("set = [", 'set = ["data.energy=zero", '),
            "are free energies: leave it out",
        ),
        (SMALL.replace('["Cu", "Au"]', '["Cu"]'), "has Au, which"),
        (SMALL.replace("steps = 50", 'surface = ["1 0"]'), "three Miller indices"),
    ):
        (folder / "learn.toml").write_text(text)
        with pytest.raises(Failure, match=message):
            learn(folder / "learn.toml")
    assert not (folder / "learn" / "round-000").exists()


@pytest.mark.thorough
def test_it_does_not_end_before_all_explorations_take_part(folder: Path):
    text = SMALL.replace("window = [1e-3, 50.0]", "window = [90.0, 91.0]")
    more = "[[explore]]\ntemperature = [900]\nsteps = 20\nfirst_round = 1\n"
    (folder / "learn.toml").write_text(text + more)
    found = run(folder)
    assert found["converged"] and [len(one["explore"]["runs"]) for one in found["rounds"]] == [2, 3]


def looped(folder: Path, monkeypatch, *settings: str) -> tuple[Rounds, list[Path]]:
    """A loop with three frames of its own to start with, and trainings that make 3, 300, ... steps.

    Returns:
        It, and the folders of the trainings, which have not run.
    """
    frames = []
    for k in range(3):
        frames.append(copper_gold())
        frames[-1].rattle(0.1, seed=k)
        frames[-1].calc = EMT()
        frames[-1].get_stress()
    write(folder / "frames.xyz", frames, format="extxyz")
    given = ["start.data=['frames.xyz']", "train.epochs=0", "train.minutes=1", *settings]
    loop = Rounds(Learning.read(folder / "learn.toml", given), lambda: False)
    trained: list[Path] = []

    def report(config) -> tuple[Path, list[dict[str, Any]]]:
        trained.append(Path(config.output.folder))
        steps = (3, 300)[(len(trained) - 1) % 2]
        made = {"steps": steps, "stopped": "time", "file": "a.pt", "valid": {"force": 1.0}}
        return trained[-1], [made]

    monkeypatch.setattr(loop, "_report", report)
    return loop, trained


def test_no_training_of_a_handful_of_steps(folder: Path, monkeypatch):
    """It gets twice the time, or the loop ends before labels are spent."""
    loop, trained = looped(folder, monkeypatch, "loop.max_time=10")
    told = loop._trained(0, last=False)
    assert len(trained) == 2 and (told["steps"], told["minutes"]) == (300, 2.0)
    loop.state.rounds.append({"train": told})
    trained.clear()
    assert loop._training(0, False, told["minutes"]).run.max_time == 2.0
    # Of the last one 3 steps are told of, as there is nothing left to take from.
    loop.state.rounds.append({"train": loop._trained(0, last=True)})
    assert len(trained) == 1
    reasons = LearnReport("f", State(rounds=loop.state.rounds, end="x"), ["a.pt"]).reasons()
    assert any("last training made 3 steps" in text for text in reasons)
    loop.shop.close()
    short, _ = looped(folder, monkeypatch, "loop.max_time=1.5", "loop.folder=short")
    with pytest.raises(Failure, match=r"made 3 steps in 1 minutes, expected 200.*more time"):
        short._trained(0, last=False)
    short.shop.close()
    own = ("train.minutes=0", "train.epochs=2", "loop.folder=own")  # and a time in run.toml
    other, trained = looped(folder, monkeypatch, *own)
    assert other._trained(0, last=False)["steps"] == 3 and len(trained) == 1
    other.shop.close()


def test_the_time_of_the_last_training_is_kept(folder: Path, monkeypatch):
    """Rounds have what it and what comes after it leave."""
    settings = ("loop.max_time=10", "train.minutes=5", "train.last_minutes=6")
    loop, _ = looped(folder, monkeypatch, *settings)
    loop.reserve = lambda _: 1.0
    assert loop._training(0, False, 5.0).run.max_time == pytest.approx(3.0, abs=0.3)
    assert loop._training(0, True, 6.0).run.max_time == 6.0
    loop.state.seconds = 60.0 * 2.0
    assert loop._training(0, False, 5.0).run.max_time == pytest.approx(1.0, abs=0.3)
    assert loop._training(0, True, 6.0).run.max_time == 6.0
    loop.state.first = {"seconds_each": 6.0}
    loop.config = replace(loop.config, choose=replace(loop.config.choose, most=1000))
    assert 7 <= loop._most() <= 10  # labels of 6 s in a minute
    loop.shop.close()


def test_the_window_stays_that_of_the_data_to_start_with(folder: Path, monkeypatch):
    """Whatever forces later labels have."""
    loop, _ = looped(folder, monkeypatch, "choose.window=[0.0, 0.0]", "choose.relative=[0.1, 1.0]")
    frames = read(folder / "frames.xyz", index=":")
    sizes = np.concatenate([np.linalg.norm(one.get_forces(), axis=1) for one in frames])
    rms = np.sqrt((sizes**2).mean())
    assert rms > 0.5
    loop.round_folder(0).mkdir()
    for one in frames:
        results = {"energy": 0.0, "forces": 50.0 * one.get_forces()}
        one.calc = SinglePointCalculator(one, **results)
    write(loop.round_folder(0) / "labelled.extxyz", frames, format="extxyz")
    loop.state.rounds = [{"train": {"models": ["a.pt"], "seconds": 1.0}, "label": {"frames": 3}}]
    assert len(loop._data(1)) == 2
    assert loop._trained(1, last=True)["window"] == pytest.approx([0.1 * rms, rms], rel=1e-6)
    loop.shop.close()


def test_data_are_read_as_trainings_read_them(folder: Path, monkeypatch):
    """Also to count frames, for the window, and to look for what is odd."""
    read_so = """train.set=['data.format=extxyz', 'data.map={Cu1="Cu"}']"""
    data = "start.data=['frames.dat']"
    (folder / "frames.dat").touch()
    loop, _ = looped(folder, monkeypatch, "choose.window=[0.0, 0.0]", data, read_so)
    text = (folder / "frames.xyz").read_text()
    (folder / "frames.dat").write_text(re.sub(r"^Cu ", "Cu1 ", text, flags=re.MULTILINE))
    assert loop._trained(0, last=True)["frames"] == 3
    assert loop._contradictions() == []
    loop.shop.close()


def test_what_just_left_the_window_is_not_chosen(tmp_path: Path):
    """Of a run that ends beyond it the last structures are none, but for the first of all."""
    frames = [copper_gold() for _ in range(8)]
    for k, atoms in enumerate(frames):
        atoms.info = {"step": 10 * k, "max_devi_f": 0.1 * k + 0.1}

    def found(code: int, last: float, first: int = 0) -> list[int]:
        write(tmp_path / explore.CAPTURED, frames[first:], format="extxyz")
        rows = [f"{10 * k} 0 0 {0.1 * k + 0.1:g} 0 0 0" for k in range(8)]
        lines = ["# step avg_devi_f min_devi_f max_devi_f avg_devi_e min_devi_e max_devi_e", *rows]
        lines.append(f"80 0 0 {last:g} 0 0 0")
        (tmp_path / explore.DEVIATION).write_text("\n".join(lines) + "\n")
        (tmp_path / explore.LOG).write_text("ERROR: closer than the min_distance\n" * bool(code))
        ended = Ended(code, "")
        one = explore._outcome("name", Task([], tmp_path, tmp_path / "o"), ended, 1.0)
        assert bool(one.died) is bool(code) and len(one.deviations) == 9
        return [atoms.info["step"] for atoms in one.candidates]

    every = [10 * k for k in range(8)]
    assert found(0, 0.9) == every  # it came to its end
    assert found(0, 1.1) == found(1, 0.9) == every[:4]  # those of 40 to 80 are its way out
    assert found(1, 0.9, first=6) == [60]


def test_explorations_end_where_atoms_come_too_close(folder: Path):
    """By the smallest sum of covalent radii, and in time; their pace is that of LAMMPS's log."""

    class Idle:
        def run(self, tasks: list[Task], jobs: int) -> list[Ended]:
            words = "Loop time of 6.4 on 1 procs for 100 steps with 32 atoms"
            return [Ended(0, words) for _ in tasks]

    wanted = explore.runs([Explore(structures=(str(folder / "start.xyz"),), strain=(0, 1, 2))], 0)
    found = explore.explore(
        wanted, [Path("a.pt"), Path("b.pt")], [29, 79], (0.1, 1.0), 1,
        folder / "explore", Idle(), 2, 0.6, 100.0,
    )  # fmt: skip
    assert [one.pace for one in found] == [pytest.approx(0.002)] * 3
    text = (folder / "explore" / "002" / "in.lmp").read_text()
    assert f"beyond stop min_distance {0.6 * 2 * covalent_radii[29]:.4g} stop\n" in text
    assert "timer timeout 50 every 10\npair_style pwmlff 2" in text  # two at a time, one after


def test_page_of_keys():
    page = Path(__file__).resolve().parents[2] / "docs" / "learn_toml.md"
    assert page.read_text() == SECTIONS.page(INTRODUCTION.splitlines())


def test_reasons(tmp_path: Path):
    """Each that can be told is told."""
    runs = [
        {"name": "0", "structures": 9, "largest": 3.0, "died": "model 'a.pt': too many neighbors"}
    ]
    explored = {
        "runs": runs, "structures": 9, "below": 1, "beyond": 6, "candidates": 4, "unsound": 2,
        "chosen": 2, "seconds": 1.0,
    }  # fmt: skip
    label = {"frames": 1, "failures": ["structure 0: it ended with 1: no"]}
    train = {"models": ["a.pt"], "frames": 3, "valid": [{"force": 3.0}], "window": [0.1, 1.0]}
    rounds = [{"train": train | {"seconds": 2.0}, "explore": explored, "label": label}]
    state = State(rounds=rounds, end="1 rounds")
    report = LearnReport("f", state, ["a.pt"], ["frame 3 of 'x' is"], ("Cu",))
    for drawn in (0, 1):  # the picture of a round that met a full disk is not listed
        here = LearnReport(str(tmp_path), state, ["a.pt"], (), ("Cu",))
        lines = Console(record=True, file=io.StringIO(), width=400)
        lines.print(here.show())
        assert ("labels; round.png of 1" in lines.export_text()) == bool(drawn)
        (tmp_path / "round-001").mkdir(exist_ok=True)
        (tmp_path / "round-001" / "round.png").touch()
    reasons = "\n".join(report.reasons())
    for text in (
        "1 structures got no labels", "66.7 % of the structures were beyond", "closer than",
        "explorations died: model 'a.pt': too many neighbors; raise [model] max_neighbor",
        "contradict each other: frame 3",
    ):  # fmt: skip
        assert text in reasons


def test_labels_of_a_calculator_that_fails_once(tmp_path: Path):
    (tmp_path / "odd.py").write_text(
        "from ase.calculators.emt import EMT\n"
        "class Odd(EMT):\n"
        "    implemented_properties = ['energy', 'forces']\n"
        "    def calculate(self, atoms=None, *rest):\n"
        "        if len(atoms) == 31: raise RuntimeError('a bad one')\n"
        "        super().calculate(atoms, *rest)\n"
    )
    structures = [copper_gold() for _ in range(3)]
    del structures[1][4]
    shop = Workshop(tmp_path / "shop", lambda: False)
    how = Label(calculator=f"{tmp_path / 'odd.py'}:Odd()")
    made = labelling.make(structures, [29, 79], how, tmp_path / "labels", shop, 2)
    assert made.failures == ["structure 1: RuntimeError: a bad one"] and len(made.frames) == 2
    assert all(isinstance(one.calc, SinglePointCalculator) for one in made.frames)
    shop.close()


@pytest.mark.parametrize("student, wanted", [("charge=1", True), ("charge=0", False)])
def test_labels_have_born_charges_where_models_learn_them(folder: Path, student: str, wanted: bool):
    """Those of the reference, of a teacher that gives them; what else it gives is the same."""
    (folder / "teacher.txt").write_bytes(random_text(CHARGED["charge 1"]))
    teacher = read_nep(folder / "teacher.txt")
    write(folder / "start.xyz", random_structure([8, 72]), format="extxyz")
    given = [
        f"train.set=['model.kind=nep','nep.{student}']", "start.elements=['O','Hf']",
        "start.frames=2", f"label.calculator=\"pwmlff:Calculator('{folder / 'teacher.txt'}')\"",
    ]  # fmt: skip
    loop = Rounds(Learning.read(folder / "learn.toml", given), lambda: False)
    loop._first_labels()
    loop.shop.close()
    frames = readers.read([loop.folder / "first" / "labelled.extxyz"])
    assert len(frames) == 2 and frames.has_born.all() == wanted
    for k in range(2):
        found = evaluate_nep(teacher, frames.structure(k))
        assert abs(frames.forces[frames.rows(k)] - found.forces).max() < 1e-6
        assert frames.energies[k] == pytest.approx(found.energy)
        if wanted:
            born = frames.born[frames.rows(k)]
            assert abs(born - found.born).max() < 1e-6 < abs(found.born).max()


def test_models_that_learn_born_charges(tmp_path: Path):
    """Also those that go on from a file with charges, and not where they weigh nothing."""
    start = tmp_path / "a.txt"
    for words, settings, expected in (
        ("charge 1", (), True),
        ("charge 1", ("nep.born=0",), False),
        ("nep5", (), False),
        ("nep5", ("nep.charge=2",), True),
    ):
        start.write_bytes(random_text({**HEADS, **CHARGED}[words]))
        for finetune in (start, tmp_path / "{model}.txt"):
            run = from_command(
                settings=("model.kind=nep", *settings), data=["any"], finetune=str(finetune),
                elements="O Hf",
            )  # fmt: skip
            assert rounds._learns_born(run) is expected
    assert not rounds._learns_born(from_command(data=["any"], elements="O Hf"))
