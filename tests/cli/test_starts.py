"""What one start of lmp leaves to the next: dumps, logs, and which restart files count."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pwmlff.launch import outputs, run_state, supervisor
from pwmlff.launch.mpirun import Mpirun, Wish
from pwmlff.launch.restarts import MAGIC
from pwmlff.launch.run_state import Attempt, lock
from pwmlff.launch.script import UNKNOWN, Script
from pwmlff.launch.supervisor import Plan, RunReport
from pwmlff.launch.watcher import Watcher
from pwmlff.report import Failure

INPUT = """
if "$(is_defined(variable,restart))" then "read_restart ${restart}" else "read_restart equil.data"
restart 10 r.*
"""
APPENDED = "dump 1 all atom 10 a.dump\ndump_modify 1 append yes\n"


def frames(*steps: int) -> str:
    """A text dump."""
    return "".join(
        f"ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n1\nITEM: ATOMS id\n1\n" for step in steps
    )


def write_restart(path: str, step: int) -> None:
    """A restart file with nothing but what tells its step."""
    header = struct.pack("=2i", 1, 3) + struct.pack("=iq", 5, step)
    Path(path).write_bytes(MAGIC + header + MAGIC)


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch) -> Callable[..., RunReport]:
    """All starts of one `pwmlff run`, of which each does what a function says in place of lmp."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "DELAY", 0.0)

    def started(
        *starts: Callable[[Attempt], None],
        text: str = INPUT,
        resume: str = "auto",
        changed: Sequence[str] = (),
        words: Sequence[str] = (),
    ) -> RunReport:
        Path("in.x").write_text(text)
        left = list(starts)

        def run_one(_: Watcher, attempt: Attempt, *__: object) -> None:
            attempt.returncode = 0
            left.pop(0)(attempt)

        monkeypatch.setattr(Watcher, "run", run_one)
        wish = Wish(["lmp"], 1, environment={"OMP_NUM_THREADS": "1"})
        script = Script(["-in", "in.x", *words])
        meant = list(map(Path, changed))
        plan = Plan(script, wish, retries=9, resume=resume, changed=meant)
        with lock(plan.folder) as handle:
            runner = supervisor._Supervisor(plan, Mpirun("mpiexec", "hydra", (4,)), handle)
            report = runner.run()
        assert not left, f"{len(left)} start(s) less than expected"
        return report

    return started


def append(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text)


def die(attempt: Attempt) -> None:
    """As a rank that is killed after some steps."""
    attempt.returncode, attempt.began, attempt.step = 9, True, 1


def finish(attempt: Attempt) -> None:
    """Nothing but the end."""
    attempt.step = 1


def test_frames_from_before_the_simulation_stay(simulate):
    """A beginning need not be step 0, nor what is in the file of this simulation."""
    before = frames(0, 500, 1000)
    Path("a.dump").write_text(before)

    def first(attempt: Attempt) -> None:
        append("a.dump", frames(1000, 1010) + "ITEM: TIME")
        die(attempt)

    def second(_: Attempt) -> None:
        assert Path("a.dump").read_text() == before
        append("a.dump", frames(1000, 1010, 1020))

    simulate(first, second, text=INPUT + APPENDED)
    assert Path("a.dump").read_text() == before + frames(1000, 1010, 1020)


def test_frames_from_before_stay_where_a_step_is_known(simulate):
    """Steps of another trajectory may be later than the one that is gone on from."""
    Path("a.dump").write_text(frames(0, 500, 1000))

    def first(attempt: Attempt) -> None:
        append("a.dump", frames(1000, 1010))
        write_restart("r.20", 20)  # after reset_timestep
        die(attempt)

    def second(attempt: Attempt) -> None:
        assert attempt.restart == "r.20"
        assert Path("a.dump").read_text() == frames(0, 500, 1000)

    simulate(first, second, text=INPUT + APPENDED)


def test_cut_is_said(simulate, capsys):
    """Which dump, from which step."""

    def first(attempt: Attempt) -> None:
        append("a.dump", frames(0, 10, 20))
        write_restart("r.10", 10)
        die(attempt)

    simulate(first, finish, text=INPUT + APPENDED)
    said = " ".join(capsys.readouterr().err.split())
    assert "dump 1: frames from step 10 on are removed from 'a.dump', they will come again" in said
    assert not Path("a.dump.start1").exists()


def test_resumed_from_a_file_keeps_later_frames(simulate, capsys):
    """They may be of a simulation that had come to its end."""

    def first(attempt: Attempt) -> None:
        append("a.dump", frames(0, 10, 20))
        write_restart("r.10", 10)

    simulate(first, text=INPUT + APPENDED)
    simulate(finish, text=INPUT + APPENDED, resume="r.10")
    assert Path("a.dump").read_text() == frames(0)
    assert Path("a.dump.start1").read_text() == frames(10, 20)
    assert "those of now are kept in 'a.dump.start1'" in " ".join(capsys.readouterr().err.split())


def test_unknown_step_keeps_dumps(simulate, capsys):
    """Of a restart file without a step where it is to be: nothing is overwritten or cut."""

    def first(attempt: Attempt) -> None:
        append("a.dump", frames(0, 10))
        append("b.dump", frames(0, 10))
        Path("r.10").write_bytes(MAGIC + MAGIC)
        die(attempt)

    def second(attempt: Attempt) -> None:
        assert attempt.restart == "r.10"
        assert not Path("b.dump").exists()

    simulate(first, second, text=INPUT + APPENDED + "dump 2 all atom 10 b.dump\n")
    assert Path("a.dump").read_text() == Path("b.dump.start1").read_text() == frames(0, 10)
    said = " ".join(capsys.readouterr().err.split())
    assert "goes on in 'a.dump' from a step that is not known: frames may be in it twice" in said


def test_dump_modify_is_of_the_dump_that_is_there(tmp_path: Path, monkeypatch):
    """An ID may be used again; of several values of a keyword, LAMMPS takes the last."""
    monkeypatch.chdir(tmp_path)
    Path("in.x").write_text(
        """
dump 1 all atom 10 equil.dump
dump_modify 1 every v_t
undump 1
dump 1 all atom 10 prod.dump
dump_modify 1 append yes
clear
dump 1 all atom 10 cleared.dump
dump_modify 1 append yes
dump_modify 1 append no every 5
if "$x" then "dump 2 all atom 10 a.dump" else "dump 2 all atom 10 b.dump"
dump_modify 2 append no append yes every v_t
"""
    )
    found = [(str(d.files[0]), d.appends, d.multiples) for d in Script(["-in", "in.x"]).dumps()]
    assert found == [
        ("equil.dump", False, False),
        ("prod.dump", True, True),
        ("cleared.dump", False, True),
        ("a.dump", True, False),
        ("b.dump", True, False),
    ]


def test_files_of_ranks_are_no_others(simulate):
    """Of a name with %: those that have a number there."""
    own, others = ["d.0.txt", "d.12.txt"], ["d.start.1.txt", "d.0.txt.old", "d..txt", "d.x.txt"]

    def first(attempt: Attempt) -> None:
        for name in (*own, *others):
            Path(name).write_text(frames(0))
        die(attempt)

    def second(_: Attempt) -> None:
        assert all(map(os.path.exists, others))
        assert not any(map(os.path.exists, own))

    simulate(first, second, text=INPUT + "dump 1 all atom 10 d.%.txt\n")


def test_beginning_anew_spares_what_an_unfinished_one_wrote(simulate):
    """Where there is no restart file yet: logs, dumps with `append` and those without."""
    text = INPUT + APPENDED + "dump 2 all atom 10 b.dump\nlog my.log\n"
    names = ("log.lammps", "my.log", "b.dump")
    Path("a.dump").write_text(frames(0, 500))

    def first(attempt: Attempt) -> None:
        for name in names:
            Path(name).write_text(frames(0, 10))
        append("a.dump", frames(0, 10))
        die(attempt)
        attempt.errors = ["ERROR: Illegal run command"]  # not tried again

    def second(_: Attempt) -> None:
        assert not any(map(os.path.exists, names))
        assert Path("a.dump").read_text() == frames(0, 500)

    simulate(first, text=text)
    simulate(second, text=text)
    for name in ("a.dump", *names):
        assert Path(f"{name}.start1").read_text() == frames(0, 10)


def cannot_read(attempt: Attempt) -> None:
    """As lmp that dies on its restart file."""
    attempt.returncode, attempt.began, attempt.unreadable = 1, True, True


def write_both(attempt: Attempt) -> None:
    """Two restart files in turn, of which the later one is b."""
    write_restart("a", 10)
    write_restart("b", 20)
    os.utime("a", (1e9, time.time() - 0.01))
    die(attempt)


def test_later_version_of_an_unreadable_restart_file_counts(simulate):
    """With two names in turn, it is written again."""

    def third(attempt: Attempt) -> None:
        assert attempt.restart == "a"
        write_restart("b", 40)
        die(attempt)

    def fourth(attempt: Attempt) -> None:
        assert attempt.restart == "b"

    simulate(write_both, cannot_read, third, fourth, text=INPUT.replace("r.*", "a b"))


def test_only_what_another_start_got_past_is_damaged(simulate):
    """Where the next one ends before it reads anything, nothing is known of the first file."""

    def third(attempt: Attempt) -> None:
        assert attempt.restart == "a"
        attempt.returncode, attempt.began, attempt.errors = 1, True, ["ERROR: Illegal command"]

    def last(attempt: Attempt) -> None:
        assert attempt.restart == "b"

    text = INPUT.replace("r.*", "a b")
    simulate(write_both, cannot_read, third, text=text)
    simulate(last, text=text)


def test_unreadable_files_of_another_streak_do_not_count(simulate):
    """The limit is for those in a row."""

    def write(attempt: Attempt) -> None:
        for k in range(8):
            write_restart(f"r.{k}", k)
            os.utime(f"r.{k}", (1e9, time.time() - 0.01 + 0.001 * k))
        die(attempt)

    fail = [cannot_read] * 2
    seen: list[str | None] = []

    def end(attempt: Attempt) -> None:
        seen.append(attempt.restart)

    def die_here(attempt: Attempt) -> None:
        seen.append(attempt.restart)
        die(attempt)
        write_restart("r.9", 9)
        write_restart("r.8", 8)

    simulate(write, *fail, die_here, *fail, end)
    assert seen[0] == "r.5"
    assert seen[1] not in ("r.8", "r.9")


def test_unreadable_file_that_is_named_ends_it(simulate):
    """Another one would be another simulation."""
    write_restart("mine", 10)
    report = simulate(cannot_read, resume="mine")
    assert report.exit_code == 1
    assert report.attempts[-1].cause == "lmp cannot read 'mine', which --resume names"


def test_retry_goes_on_from_the_file_that_is_named(simulate):
    """Not from the beginning, where there is no newer one yet."""
    write_restart("mine", 10)

    def second(attempt: Attempt) -> None:
        assert attempt.restart == "mine"

    os.utime("mine", (1e9, 1e9))
    simulate(die, second, resume="mine")


def test_an_input_with_a_byte_order_mark(tmp_path: Path, monkeypatch):
    """LAMMPS takes it for a blank, also before the commands of an include."""
    monkeypatch.chdir(tmp_path)
    Path("in.x").write_text("\ufeffvariable i index 3 4\ninclude in.more\n", encoding="utf-8")
    Path("in.more").write_text("\ufeffvariable k index 5\n", encoding="utf-8")
    assert Script(["-in", "in.x"]).variables == {"i": ["3", "4"], "k": ["5"]}


def test_loop_of_many_values(tmp_path: Path, monkeypatch):
    """They are as good as unknown."""
    monkeypatch.chdir(tmp_path)
    Path("in.x").write_text("variable i loop 20000\nvariable k loop 3\nvariable k index 3 4\n")
    variables = Script(["-in", "in.x"]).variables
    assert variables == {"i": [UNKNOWN], "k": ["1", "2", "3", "4"]}


@pytest.mark.parametrize(
    "words,files",
    [
        ("matpl/nep a.txt b.txt", ["explr.error"]),
        ("matpl/nep/kk 2 a.txt b.txt out_freq 10 out_file devi", ["devi"]),
        ("nep 2 a.txt b.txt", ["model_devi.out"]),
        ("pwmlff/kk a.pt b.pt", ["model_devi.out"]),
        ("hybrid/overlay matpl/nep a.txt b.txt zbl 0.5 1.5", ["explr.error"]),
        ("pwmlff a.txt temperature 300", []),
        ("nep", []),
    ],
)
def test_names_of_the_style(tmp_path: Path, monkeypatch, words: str, files: list[str]):
    """Those of other programs, and which of their inputs write deviations."""
    monkeypatch.chdir(tmp_path)
    Path("in.x").write_text(f"pair_style {words}\n")
    script = Script(["-in", "in.x"])
    assert script.has_style()
    assert [str(path) for path in script.deviation_files()] == files


def test_a_lock_that_lingers(tmp_path: Path, monkeypatch):
    """That of a lost node is waited for where a simulation goes on; another lmp is not."""
    monkeypatch.chdir(tmp_path)
    Path("in.x").write_text("pair_style pwmlff 2 a.pt b.pt out_file devi.out\n")
    with Path("devi.out").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Failure, match=r"another lmp writes to the deviation file 'devi\.out'"):
            supervisor.require_alone(Script(["-in", "in.x"]))
        release = threading.Timer(0.3, fcntl.flock, (file, fcntl.LOCK_UN))
        release.start()
        supervisor.require_alone(Script(["-in", "in.x"]), wait=60.0)
        assert release.finished.is_set()
        release.join()


#: What an input may read, each in another way; of the rest, what it writes or only looks like it.
READING = """
include setup
variable who index a.pt
variable m index ${who}
variable cut getenv CUT_FILE
variable t file temperatures
pair_style hybrid pwmlff ${m} b.pt out_file devi capture 0.1 0.2 doubt.xyz table linear 100
pair_coeff * * table pair.table LJ 2.5
pair_coeff * * sw Si.sw Si
pair_coeff * * table ${cut} LJ
bond_coeff 1 bond.table
fix c all cmap my.cmap
fix a all ave/time 1 1 1 c_1 file averages
molecule mol mol.txt
write_data equil.data
if "$x" then "read_data x.data"
read_data equil.data
read_restart r.5
"""
READ = ("in.x", "setup", "a.pt", "b.pt", "temperatures", "pair.table", "potentials/Si.sw",
        "cut.table", "bond.table", "my.cmap", "mol.txt", "x.data")  # fmt: skip
WRITTEN = ("devi", "doubt.xyz", "averages", "equil.data", "r.5")


@pytest.fixture
def read_all(monkeypatch, simulate) -> str:
    """Text of an input that reads and writes files, which are there; its simulation was stopped."""
    monkeypatch.setenv("LAMMPS_POTENTIALS", "absent:potentials")
    monkeypatch.setenv("CUT_FILE", "cut.table")
    Path("potentials").mkdir()
    for name in (*READ, *WRITTEN):
        Path(name).write_text(f"# {name}")
    text = INPUT.replace("equil.data", "x.data") + READING

    def first(attempt: Attempt) -> None:
        write_restart("r.10", 10)
        attempt.stopped = True

    simulate(first, text=text)
    for name in WRITTEN:
        Path(name).write_text("by the run")
    return text


def test_other_files_than_before(simulate, read_all: str, capsys):
    """Each that the input reads counts by its contents, whatever it is read by."""
    simulate(die, finish, text=read_all)
    for name in READ:
        record = Path("logs/run.json").read_text().replace('"finished"', '"failed"')
        Path("logs/run.json").write_text(record)
        path = Path(name)
        before = path.stat()
        os.utime(path)
        read = read_all + "# 1\n" * (name == "in.x")
        other = Path("new")
        other.write_text(path.read_text().upper() + "\n" * (name == "Si.sw"))
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))  # a copy of the same size
        if name == "b.pt":  # another target
            path.unlink()
            path.symlink_to(other.rename("target"))
        else:
            other.replace(path)
        said = Path(name).name if "Si" in name else name
        with pytest.raises(Failure, match=rf"not the same as now: {said}; give --changed {said} "):
            simulate(text=read)
        simulate(finish, text=read, changed=[said])
        assert f"going on with another {said} than before" in capsys.readouterr().err
        if name == "in.x":
            read_all = read


def test_same_files_as_before(simulate, read_all: str, monkeypatch):
    """Times, places and what is gone do not count, nor does a file that was not there."""
    Path("a.pt").rename("c.pt")
    Path("x.data").unlink()
    Path("LJ").write_text("no file before, nor read")
    for name in ("b.pt", "setup"):
        os.utime(name, (1e9, 1e9))
    simulate(die, finish, text=read_all, words=["-var", "who", "c.pt"])


def test_another_file_by_another_word(simulate, read_all: str, monkeypatch):
    """A variable of the words for lmp, or of the environment, names it."""
    Path("c.pt").write_text("another model")
    with pytest.raises(Failure, match=r"as now: c\.pt; give --changed c\.pt or --resume r\.10"):
        simulate(text=read_all, words=["-var", "who", "c.pt"])
    monkeypatch.setenv("CUT_FILE", "c.pt")
    with pytest.raises(Failure, match=r"as now: c\.pt; give --changed c\.pt "):
        simulate(text=read_all)
    with pytest.raises(
        Failure, match=r"--changed names 'd\.pt', which the input does not read; it"
    ):
        simulate(text=read_all, changed=["d.pt"])
    simulate(finish, text=read_all, resume="r.10")


def test_replaced_between_two_starts(simulate, capsys):
    """Of one `pwmlff run`, too: the next start would be another simulation."""
    Path("m.pt").write_text("one")
    text = INPUT + "pair_style pwmlff m.pt\n"

    def first(attempt: Attempt) -> None:
        write_restart("r.10", 10)
        Path("m.pt").write_text("two")
        die(attempt)

    report = simulate(first, text=text)
    assert report.exit_code == 1
    cause = "m.pt: no longer the same; give --changed m.pt if that is meant"
    assert report.attempts[-1].cause == cause
    with pytest.raises(Failure, match=r"m\.pt"):
        simulate(text=text)
    simulate(finish, text=text, changed=["m.pt"])


def test_record_of_an_earlier_release(simulate):
    """It has the lines of the input alone."""
    Path("m.pt").write_text("one")
    text = INPUT + "pair_style pwmlff m.pt\n"

    def first(attempt: Attempt) -> None:
        write_restart("r.10", 10)
        attempt.stopped = True

    simulate(first, text=text)
    record = json.loads(Path("logs/run.json").read_text())
    del record["inputs"]
    Path("logs/run.json").write_text(json.dumps(record))
    with pytest.raises(Failure, match=r"not the same as now: in\.x;"):
        simulate(text=text + "#\n")
    Path("m.pt").write_text("two")
    simulate(finish, text=text)


HOUR = 3600.0


def write_all(steps: Sequence[int], later: float = 0.0, dump: bool = True) -> None:
    """Restart files of some steps, and frames up to the last one, by a clock that is ahead."""
    for step in steps:
        write_restart(f"r.{step}", step)
        os.utime(f"r.{step}", (1e9, time.time() + later - 0.02 + 1e-5 * step))
    if dump:
        append("a.dump", frames(*steps))


def stop_after(*steps: int, later: float = 0.0) -> Callable[[Attempt], None]:
    """A start that writes restart files and stops."""

    def start(attempt: Attempt) -> None:
        write_all(steps, later)
        attempt.stopped, attempt.step = True, steps[-1]

    return start


def goes_on_from(restart: str | None, *, whole: str = "") -> Callable[[Attempt], None]:
    """A start that comes to the end of the simulation."""

    def start(attempt: Attempt) -> None:
        assert attempt.restart == restart
        assert not whole or Path("a.dump").read_text() == whole
        attempt.step = 1000

    return start


def test_clock_that_is_set_back(simulate, monkeypatch, capsys):
    """It was an hour ahead during the first start: steps tell which file is the newest."""
    text = INPUT + APPENDED
    with monkeypatch.context() as ahead:
        ahead.setattr(run_state, "now", lambda _: time.time() + HOUR)
        simulate(stop_after(50, 100, 150, 156, later=HOUR), text=text)

    def second(attempt: Attempt) -> None:
        assert attempt.restart == "r.156"
        stop_after(200, 250, 300, 350, 356)(attempt)

    simulate(second, text=text)
    stay = frames(50, 100, 150, 200, 250, 300, 350)
    simulate(goes_on_from("r.356", whole=stay), text=text)
    assert "going on from r.356, after 2 start(s)" in capsys.readouterr().err


def test_copies_have_other_times(simulate):
    """In an order that tells nothing."""
    simulate(stop_after(50, 100, 356))
    for k, step in enumerate((356, 100, 50)):
        os.utime(f"r.{step}", (1e9, time.time() + HOUR + k))
    simulate(goes_on_from("r.356"))


def test_what_was_gone_back_from_does_not_count(simulate):
    """A later step of it is of another trajectory."""
    simulate(stop_after(50, 100, 356))
    simulate(stop_after(60, 70), resume="r.50")
    simulate(stop_after(80))
    Path("r.80").unlink()
    simulate(goes_on_from("r.70"))


def test_steps_that_the_input_sets_back(simulate):
    """What is written last counts (reset_timestep)."""

    def first(attempt: Attempt) -> None:
        write_all([10, 20, 30])
        time.sleep(0.02)
        write_restart("p.10", 10)
        attempt.stopped, attempt.step = True, 10

    simulate(first, text=INPUT.replace("r.*", "r.*\nrestart 10 p.*"))
    simulate(goes_on_from("p.10"), text=INPUT.replace("r.*", "r.*\nrestart 10 p.*"))


def test_restart_files_of_another_simulation(simulate, monkeypatch):
    """They were there before, with new times; where `pwmlff run` is killed it looks later."""
    write_all([900], later=HOUR, dump=False)

    class KilledError(Exception):
        pass

    def killed(attempt: Attempt) -> None:
        write_all([10, 20], later=-HOUR)
        attempt.returncode = None
        raise KilledError

    with pytest.raises(KilledError):
        simulate(killed)
    os.utime("r.900", (1e9, time.time() + 2 * HOUR))
    simulate(goes_on_from("r.20"))


def test_restart_files_of_an_earlier_release(simulate):
    """Its record does not tell of them: their times do, and their steps."""
    simulate(stop_after(50, 100))
    write_all([900], later=-HOUR, dump=False)
    record = json.loads(Path("logs/run.json").read_text())
    for attempt in record["attempts"]:
        del attempt["wrote"], attempt["first"]
    Path("logs/run.json").write_text(json.dumps(record))
    simulate(goes_on_from("r.100"))


def test_what_is_removed_is_said_before(simulate, monkeypatch, capsys):
    """With the last step of it, and from which step all comes again."""
    removed = []
    shorten = outputs._shorten

    def remove(path: Path, *rest: Any) -> None:
        size = path.stat().st_size
        tell = rest[2]
        said = lambda last: (tell(last), removed.append(path.stat().st_size == size))  # noqa: E731
        shorten(path, *rest[:2], said, *rest[3:])

    monkeypatch.setattr(outputs, "_shorten", remove)

    def first(attempt: Attempt) -> None:
        append("a.dump", frames(0, 10, 20, 30))
        write_restart("r.10", 10)
        die(attempt)
        attempt.step = 35

    simulate(first, finish, text=INPUT + APPENDED)
    assert removed == [True]
    said = " ".join(capsys.readouterr().err.split())
    assert "'a.dump', they will come again (the last is of step 30)" in said
    assert "steps 10 to 35 will come again, with their rows in the logs" in said


def test_full_disk_hides_nothing(simulate, monkeypatch, capsys):
    """The error of lmp is told where the record cannot be written after it."""

    def fails(self: run_state.Simulation) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder / run_state.NAME))

    def first(attempt: Attempt) -> None:
        die(attempt)
        attempt.errors = ["ERROR: I/O error while writing restart (write_restart.cpp:375)"]
        monkeypatch.setattr(run_state.Simulation, "save", fails)

    report = simulate(first)
    assert report.exit_code == 1 and "I/O error" in report.attempts[-1].errors[0]
    assert "cannot write 'logs/run.json': No space left on device" in capsys.readouterr().err


def write_parts(path: str, step: int) -> None:
    """A restart file of one rank and its base, as LAMMPS writes them for a name with %."""
    header = MAGIC + struct.pack("=2i", 1, 3) + struct.pack("=iq", 5, step)
    base = header + struct.pack("=3i", 44, 1, -1) + MAGIC
    Path(path.replace("%", "base")).write_bytes(base)
    Path(path.replace("%", "0")).write_bytes(b"atoms and their places" + MAGIC)


@pytest.mark.parametrize(
    "pattern, write, damaged",
    [
        ("r.*", write_restart, "r.20"),
        ("r.%.*", write_parts, "r.0.20"),
    ],
    ids=["whole", "parts"],
)
def test_restart_file_that_is_not_as_it_was_written(simulate, capsys, pattern, write, damaged):
    """LAMMPS would compute with what is in it: one bit is enough to see that."""

    def first(attempt: Attempt) -> None:
        for step in (10, 20):
            write(pattern.replace("*", str(step)), step)
        die(attempt)
        attempt.errors = ["ERROR: Illegal run command"]  # not tried again

    text = INPUT.replace("r.*", pattern)
    older, newest = (pattern.replace("*", step) for step in ("10", "20"))
    simulate(first, text=text)
    contents, before = bytearray(Path(damaged).read_bytes()), Path(damaged).stat()
    contents[-len(MAGIC) - 9] ^= 1
    Path(damaged).write_bytes(contents)
    os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))
    record = Path("logs/run.json").read_text()

    def second(attempt: Attempt) -> None:
        assert attempt.restart == older

    simulate(second, text=text)
    said = capsys.readouterr().err
    assert f"'{newest}' is not as it was written: an older restart file is taken" in said
    Path("logs/run.json").write_text(record)
    Path(older.replace("%", "base")).unlink()
    simulate(finish, text=text)
    said = capsys.readouterr().err
    assert f"'{newest}' is not as it was written\nnothing of earlier starts can be gone" in said
    Path("logs/run.json").write_text(record)
    simulate(finish, text=text, resume=newest)
    assert "it was written; --resume takes it as it is" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "values",
    [
        {"began": "x"}, {"began": 10**400}, {"inputs": [1]}, {"dumps": {"x.dump": 5}},
        {"restarts": "r.*"}, {"unreadable": [["r.10", 1, 2]]}, {"attempts": {}}, {"digests": []},
        *({"attempts": [one]} for one in ({"wrote": [["r.10", "ten"]]}, {"step": "x"})),
    ],
    ids=repr,
)  # fmt: skip
def test_damaged_record(simulate, values):
    """One error tells of it; nothing is started."""

    def first(attempt: Attempt) -> None:
        write_restart("r.10", 10)
        die(attempt)
        attempt.errors = ["ERROR: Illegal run command"]

    simulate(first)
    record = json.loads(Path("logs/run.json").read_text())
    if values.get("attempts"):
        values = {"attempts": [record["attempts"][0] | values["attempts"][0]]}
    Path("logs/run.json").write_text(json.dumps(record | values))
    with pytest.raises(
        Failure, match=r"cannot read 'logs/run\.json', the record of earlier starts"
    ):
        simulate()
