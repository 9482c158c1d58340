"""`pwmlff run`: logs, signals, time limits, partitions, and ranks that die."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness import COMMAND, TIMEOUT, thorough
from pwmlff import plugin
from pwmlff.commands.options import seconds_of
from pwmlff.launch import lmp, program, watcher
from pwmlff.launch.causes import begins_input, explain, lammps_errors, will_recur
from pwmlff.launch.log import runs
from pwmlff.launch.progress import LmpProgress
from pwmlff.launch.run_state import Attempt, Simulation, clean
from pwmlff.launch.supervisor import end_of_time
from pwmlff.report import Failure

# The state that another start goes on from is in the restart file; the rest is said again.
MELT = """
units lj
restart 20 melt.*
if "$(is_defined(variable,restart))" then "read_restart ${{restart}}" else &
  "lattice fcc 0.8442" "region box block 0 3 0 3 0 3" "create_box 1 box" "create_atoms 1 box" &
  "mass 1 1.0" "velocity all create 1.44 87287 loop geom"
pair_style pwmlff {models} out_freq 10 out_append yes
pair_coeff * * Ar
fix 1 all nve
timestep 0.0005
thermo 10
thermo_modify format float %.17g
run {steps} upto every 20 "shell test -e go || sleep 0.5"
"""
GO = "go"  # a run waits now and then while there is no file of this name


@pytest.fixture
def own_plugin(tmp_path: Path) -> Path:
    """A plugin of the user's own, which says that it was compiled for another LAMMPS."""
    own = tmp_path / "own" / "lib"
    own.mkdir(parents=True)
    installed = Path(plugin.library())
    for file in installed.parent.glob("*.so"):
        (own / file.name).symlink_to(file)
    facts = json.loads(installed.with_name("build.json").read_text())
    (own / "build.json").write_text(json.dumps(facts | {"update": "Update 99"}))
    return own / plugin.FILE


def own_release(own_plugin: Path) -> str:
    return plugin.facts(str(own_plugin))["lammps"]


def test_plugin_of_the_users_own(pwmlff, own_plugin: Path, tmp_path: Path):
    """The one that is named is loaded, on all ranks, and judged before."""
    (tmp_path / "in.x").write_text("plugin list\n")
    arguments = ("run", "--plugin", own_plugin.parents[1], "-np", 2, "-in", "in.x")
    found = pwmlff(*arguments)
    assert found.returncode == 2
    assert f"the plugin was compiled for {own_release(own_plugin)} - Update 99" in found.words
    assert pwmlff(*arguments, "--no-preflight").returncode == 0
    said = (tmp_path / "logs" / "rank.0" / "stdout").read_text()
    assert f"Loaded 1 plugins from {own_plugin.parent}" in said
    line = pwmlff(*arguments, "--no-preflight", "--dry-run").errors
    assert f"-genv LAMMPS_PLUGIN_PATH {own_plugin.parent} " in " ".join(line.split())


def test_plugin_that_the_input_loads(pwmlff, own_plugin: Path, tmp_path: Path, monkeypatch):
    """Where lmp loads none by itself, the line of the input says which one will run."""
    (tmp_path / "in.x").write_text(f"plugin load {own_plugin}\n")
    real = program.find()
    monkeypatch.setenv("LD_LIBRARY_PATH", real.environment["LD_LIBRARY_PATH"])
    arguments = ("run", "--lmp", real.path, "-in", "in.x")
    found = pwmlff(*arguments)
    assert found.returncode == 2
    assert f"the plugin was compiled for {own_release(own_plugin)} - Update 99" in found.words
    assert pwmlff(*arguments, LAMMPS_PLUGIN_PATH=str(Path(plugin.library()).parent)).returncode == 0


def test_input_that_is_no_utf8(pwmlff, tmp_path: Path):
    """A comment may hold any byte: LAMMPS does not mind."""
    (tmp_path / "in.x").write_bytes(b"# \xc5ngstr\xf6m\nprint alive\n")
    found = pwmlff("run", "-in", "in.x", "--dry-run")
    assert found.returncode == 0, found.words


def progress_of(screen: Path) -> LmpProgress:
    """How far lmp is, from what rank 0 has written so far."""
    progress = LmpProgress()
    for line in screen.read_text().splitlines() if screen.is_file() else ():
        progress.feed(line, 0.0)
    return progress


class Started:
    """The command in a process of its own, and the processes that it has started."""

    def __init__(self, folder: Path, *arguments: object, **environment: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*COMMAND, "run", "--json", *map(str, arguments)],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **environment},
        )  # fmt: skip
        self.seen: set[psutil.Process] = set()

    def ranks(self) -> list[int]:
        """Process IDs of all lmp."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            self.seen.add(child)
            with suppress(psutil.Error):
                if Path(child.exe()) == Path(program.find().path).resolve():
                    found.append(child.pid)
        return sorted(found)

    def left(self) -> list[psutil.Process]:
        """What still runs of that; not what init has only not yet taken notice of the end of."""
        found = []
        for child in self.seen:
            with suppress(psutil.NoSuchProcess):
                if child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
        return found

    def wait_for_step(self, logs: str, step: int) -> list[int]:
        """Process IDs of the two ranks once the log in a folder has come to a step."""
        deadline = time.monotonic() + TIMEOUT
        path = self.folder / logs / "rank.0" / "stdout"
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.communicate()
            progress = progress_of(path)
            if progress.temperature is not None and progress.step >= step:
                ranks = self.ranks()
                if len(ranks) == 2:
                    return ranks
            time.sleep(0.01)
        raise AssertionError(f"never came to step {step}")

    def finish(self) -> dict:
        """Wait for the end; no process may be left."""
        output, errors = self.process.communicate(timeout=TIMEOUT)
        assert not self.left()
        assert output, errors
        return json.loads(output) | {"returncode": self.process.returncode}


@pytest.fixture
def melt(tmp_path: Path, lj_models):
    """A folder with in.melt, an ensemble of two."""

    def write(steps: int, folder: Path = tmp_path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "in.melt").write_text(MELT.format(models=" ".join(lj_models), steps=steps))
        return folder

    return write


def energy(folder: Path, attempt: int = 0) -> float:
    """Potential energy of the last step: unlike the total one, it is another one at every step."""
    name = "log.lammps" + (f".retry{attempt}" if attempt else "")
    return lmp.Thermo(folder / name).columns()["E_pair"][-1]


def test_logs_of_ranks(process, melt, tmp_path: Path):
    melt(0)
    arguments = ("run", "--log-dir", "out", "-in", "in.melt", "-np")
    assert process(*arguments, 3).returncode == 0
    assert (tmp_path / "out" / "rank.2").exists()  # of an earlier run
    melt(20)
    found = process(*arguments, 2)
    assert found.returncode == 0, found.words
    assert "-outfile-pattern" in found.errors
    assert "start 1: finished at step 20" in found.output
    assert sorted(path.name for path in (tmp_path / "out").glob("rank.*")) == ["rank.0", "rank.1"]
    assert "Loop time of" in (tmp_path / "out" / "rank.0" / "stdout").read_text()


def test_two_nodes_on_one_machine(process, melt, tmp_path: Path):
    """The plugin included; the energy is that of one rank."""
    melt(20)
    (tmp_path / "hosts").write_text("127.0.0.1:2\n127.0.0.2:2\n")
    found = process(
        "run", "-np", 4, "--hostfile", "hosts", "--mpirun-options", "-launcher fork", "--bind",
        "none", "--merge-stderr", "--json", "-in", "in.melt",
    )  # fmt: skip
    assert found.returncode == 0, found.words
    four = energy(tmp_path)
    assert len(list((tmp_path / "logs").glob("rank.*"))) == 4  # files come with the first words
    assert not list((tmp_path / "logs").glob("rank.*/stderr"))
    assert process("run", "-np", 1, "-in", "in.melt").returncode == 0
    assert energy(tmp_path) == pytest.approx(four, rel=1e-10)


def test_error_of_lammps_is_not_tried_again(process, melt, tmp_path: Path):
    melt(20)
    text = (tmp_path / "in.melt").read_text()
    (tmp_path / "in.melt").write_text(text.replace("fix 1 all nve", "fix 1 all nvt"))
    found = process("run", "-np", 2, "--retries", 3, "--json", "-in", "in.melt")
    assert found.returncode == 1
    (attempt,) = found.json["attempts"]
    assert any("fix nvt" in error for error in attempt["errors"])


KILLS = 5
STEPS = 800


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, lj_models) -> Path:
    """The folder of a run in which nobody dies."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "in.melt").write_text(MELT.format(models=" ".join(lj_models), steps=STEPS))
    (folder / GO).touch()
    assert Started(folder, "-np", 2, "--no-preflight", "-in", "in.melt").finish()["returncode"] == 0
    return folder


@pytest.mark.parametrize("seed", [0, thorough(1), thorough(2), thorough(3)])
def test_ranks_that_die(melt, undisturbed: Path, tmp_path: Path, seed: int):
    """Five times at a random step, twenty in all. The run ends as if nothing had been."""
    rng = random.Random(seed)
    started = Started(
        melt(STEPS),
        "-np",
        2,
        "--no-preflight",
        "--retries",
        KILLS,
        "-in",
        "in.melt",
    )
    targets = sorted(rng.sample(range(20, STEPS // 5), KILLS))
    for k, step in enumerate(targets):
        victim = rng.choice(started.wait_for_step(f"logs/retry.{k}" if k else "logs", step))
        os.kill(victim, signal.SIGKILL)
    (tmp_path / GO).touch()
    found = started.finish()
    assert found["returncode"] == 0
    attempts = found["attempts"]
    assert len(attempts) == KILLS + 1
    assert all(attempt["restart"] for attempt in attempts[1:])
    assert energy(tmp_path, KILLS) == pytest.approx(energy(undisturbed), rel=1e-8)
    quiet, disturbed = (np.loadtxt(x / "model_devi.out") for x in (undisturbed, tmp_path))
    assert list(disturbed[:, 0]) == list(range(0, STEPS + 1, 10))  # each step once
    np.testing.assert_allclose(disturbed, quiet, rtol=0, atol=1e-6)


SUPERVISED = ("-np", 2, "--no-preflight", "-in", "in.melt")


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def assert_as_if_nothing_had_been(folder: Path, undisturbed: Path, starts: int) -> None:
    """The same energy at the end, and each deviation once."""
    assert energy(folder, starts - 1) == pytest.approx(energy(undisturbed), rel=1e-8)
    steps = np.loadtxt(folder / "model_devi.out")[:, 0]
    assert list(steps) == list(range(0, STEPS + 1, 10))


@pytest.mark.parametrize("how", ["SIGUSR1", "time limit"])
def test_stops_and_goes_on(melt, undisturbed: Path, tmp_path: Path, how: str):
    """With a restart file of the step at which it was asked, and by the same command."""
    melt(STEPS)
    limit = ("--time-limit", "4") if how == "time limit" else ()
    first = Started(tmp_path, *SUPERVISED, *limit)
    first.wait_for_step("logs", 20)
    wait_for((tmp_path / "logs" / "heartbeat.0").exists, "no heartbeat")
    if not limit:
        first.process.send_signal(signal.Signals[how])
    found = first.finish()
    assert found["returncode"] == 75
    assert found["interrupted"] == ("the time limit" if limit else how)
    (attempt,) = found["attempts"]
    assert attempt["stopped"]
    assert not attempt["errors"]
    said = (tmp_path / "logs" / "rank.0" / "stdout").read_text()
    assert "asked to stop, after step" in said and "with a restart file" in said
    (tmp_path / GO).touch()
    second = Started(tmp_path, *SUPERVISED).finish()
    assert second["returncode"] == 0
    assert second["earlier"] == 1
    assert (tmp_path / "logs" / "rank.0" / "stdout").read_text() == said  # nothing is lost
    restart = second["attempts"][1]["restart"]
    asked = int(said.partition("asked to stop, after step ")[2].split()[0].rstrip(","))
    assert restart == f"melt.{asked}"
    assert_as_if_nothing_had_been(tmp_path, undisturbed, starts=2)


def test_second_signal_ends_at_once(melt):
    folder = melt(1000000)
    started = Started(folder, *SUPERVISED)
    ranks = started.wait_for_step("logs", 20)
    wait_for((folder / "logs" / "heartbeat.0").exists, "no heartbeat")
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)  # would never stop
    started.process.send_signal(signal.SIGINT)
    wait_for((folder / "logs" / "stop").exists, "was not asked")
    started.process.send_signal(signal.SIGINT)
    found = started.finish()
    assert found["returncode"] == 75  # from the last restart file
    assert found["attempts"][0]["returncode"] != 0
    assert found["interrupted"] == "SIGINT"


def test_hang_is_ended(melt, undisturbed: Path, tmp_path: Path):
    """A rank that is stopped gives no sign of life, nor do those that wait for it."""
    melt(STEPS)
    started = Started(tmp_path, *SUPERVISED, "--hang-timeout", "4s", "--retries", 1)
    os.kill(started.wait_for_step("logs", 40)[1], signal.SIGSTOP)
    started.wait_for_step("logs/retry.1", 40)
    (tmp_path / GO).touch()
    found = started.finish()
    assert found["returncode"] == 0
    assert "no sign of life for 4 s" in found["attempts"][0]["cause"]
    assert_as_if_nothing_had_been(tmp_path, undisturbed, starts=2)


def test_killed_itself(melt, undisturbed: Path, tmp_path: Path):
    """lmp does not outlive it; another one waits for that, and goes on; two at a time are not."""
    melt(STEPS)
    first = Started(tmp_path, *SUPERVISED)
    ranks = first.wait_for_step("logs", 60)
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)  # takes its time
    other = subprocess.run(
        [*COMMAND, "run", *map(str, SUPERVISED)], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert other.returncode == 2
    assert f"another pwmlff run, pid {first.process.pid} on " in " ".join(other.stderr.split())
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    first.process.kill()
    first.process.communicate(timeout=TIMEOUT)
    (tmp_path / GO).touch()
    second = Started(tmp_path, *SUPERVISED).finish()
    assert not first.left()
    assert second["returncode"] == 0
    assert second["attempts"][1]["restart"]
    assert_as_if_nothing_had_been(tmp_path, undisturbed, starts=2)


def set_failed(folder: Path, **values: object) -> None:
    """Let the record say that the simulation has not come to its end, and other values."""
    path = folder / "logs" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "failed"} | values))


@pytest.mark.parametrize(
    "options", [(), ("-screen", "none"), ("-screen", "none", "-log", "none")], ids=" ".join
)
def test_damaged_restart_files(process, melt, tmp_path: Path, options):
    """The newest sound one is gone on from; those that are newer are named."""
    (melt(80) / GO).touch()
    assert process("run", *SUPERVISED, *options).returncode == 0
    set_failed(tmp_path, digests={})  # as an earlier release, which did not look at the contents
    for name, damage in (("melt.80", slice(-1, None)), ("melt.60", slice(400, 1200))):
        times = (tmp_path / name).stat()
        text = bytearray((tmp_path / name).read_bytes())
        text[damage] = b"" if damage.stop is None else bytes(800)
        (tmp_path / name).write_bytes(text)
        os.utime(tmp_path / name, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = process("run", *SUPERVISED, "--json", *options)
    assert found.returncode == 0, found.words
    assert [a["restart"] for a in found.json["attempts"]] == [None, "melt.60", "melt.40"]
    assert "'melt.80' is not complete: an older restart file is taken" in found.words
    assert "lmp cannot read 'melt.60': going on from melt.40" in found.words


def test_what_lmp_says_before_its_input_is_nothing(tmp_path: Path):
    """A log may be flushed after its first lines, or not at all, before a rank dies."""
    log = tmp_path / "log.lammps"
    for text, begins in (
        ("", False),
        ("LAMMPS (22 Jul 2025 - Update 4)\n", False),
        ("LAMMPS (22 Jul 2025 - Update 4)\n  using 1 OpenMP thread(s) per MPI task\n", False),
        ("LAMMPS (22 Jul 2025 - Update 4)\nunits lj\n", True),
    ):
        log.write_text(text)
        assert begins_input(log) == begins


def proxy_of(started: Started) -> psutil.Process:
    """What mpirun has started on this machine."""
    found = psutil.Process(started.process.pid).children(recursive=True)
    return next(child for child in found if child.name() == "hydra_pmi_proxy")


def test_proxy_that_dies(melt, undisturbed: Path, tmp_path: Path):
    """Its ranks end with it, also where none is left to end them; another start goes on."""
    melt(STEPS)
    first = Started(tmp_path, *SUPERVISED, "--retries", 1)
    first.wait_for_step("logs", 40)
    proxy_of(first).kill()
    first.wait_for_step("logs/retry.1", 80)
    os.kill(first.process.pid, signal.SIGSTOP)  # ends nothing by itself
    proxy_of(first).kill()
    first.process.kill()
    first.process.communicate(timeout=TIMEOUT)
    wait_for(lambda: not first.left(), "lmp has outlived what started it")
    (tmp_path / GO).touch()
    assert Started(tmp_path, *SUPERVISED).finish()["returncode"] == 0
    assert_as_if_nothing_had_been(tmp_path, undisturbed, starts=3)


def test_each_sign_of_life_is_read(tmp_path: Path):
    """Also one that a file system gives the time and the inode of one that was read."""
    beat = tmp_path / "heartbeat.0"
    state = {"computes": True, "step": 0, "last": 20, "timestep": 0.005, "units": "lj",
             "stopped": None, "restarts": [], "files": []}  # fmt: skip
    partition = watcher.Partition(0, tmp_path, None, 0.0)
    for step in (0, 10, 20):
        beat.write_text(json.dumps(state | {"step": step}))
        os.utime(beat, ns=(10**18, 10**18))
        assert partition.read(tmp_path, 0.0)
        assert partition.progress.step == step
    # The screen is read after it, and says what was before.
    assert not partition.progress.feed("  Current step  : 0", 0.0)
    assert partition.progress.step == 20
    assert not partition.read(tmp_path, 0.0)


def test_proxy_that_is_gone_is_noticed(tmp_path: Path, monkeypatch):
    """Where mpirun does not notice it by itself."""
    monkeypatch.setattr(watcher, "GRACE", 1.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proxy").symlink_to("/bin/sleep")
    (tmp_path / "logs").mkdir()
    began = time.time()
    attempt = Attempt(["sh", "-c", "./proxy 3 & sleep 100"], None, began)
    watching = watcher.Watcher(print, tmp_path / "logs", proxies=("proxy", "sleep"))
    watching.run(attempt, tmp_path / "logs", Simulation(tmp_path / "logs", "", began))
    assert attempt.seconds < 50
    assert attempt.cause.startswith("a process of mpirun on this machine has died: proxy")


def test_two_runs_and_one_deviation_file(melt):
    """The second is refused before it replaces anything; lmp refuses it where run does not know."""
    folder = melt(1000000)
    first = Started(folder, *SUPERVISED)
    first.wait_for_step("logs", 20)
    log = (folder / "log.lammps").read_bytes()
    again = [*COMMAND, "run", "--log-dir", "other", *map(str, SUPERVISED)]
    other = subprocess.run(again, cwd=folder, capture_output=True, text=True, check=False)
    assert other.returncode == 2
    refused = "another lmp writes to the deviation file 'model_devi.out'"
    assert refused in " ".join(other.stderr.split())
    assert (folder / "log.lammps").read_bytes().startswith(log)
    text = (folder / "in.melt").read_text().replace("out_freq 10", "out_file ${f} out_freq 10")
    (folder / "in.other").write_text(
        "variable f getenv DEVIATION\n" + text.replace("melt.*", "o.*")
    )
    again = [word.replace("in.melt", "in.other") for word in again]
    other = subprocess.run(
        [*again, "-log", "other.log"], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "DEVIATION": "model_devi.out"},
    )  # fmt: skip
    assert other.returncode == 1
    assert "another process writes to the model deviation file" in " ".join(other.stdout.split())
    first.process.send_signal(signal.SIGTERM)
    assert first.finish()["returncode"] == 75


def test_start_over_or_go_on(process, melt, tmp_path: Path):
    """What is finished starts over; what is not, of another input, wants a decision."""
    (melt(40) / GO).touch()
    for _ in range(2):
        found = process("run", *SUPERVISED, "--json")
        assert (found.returncode, len(found.json["attempts"])) == (0, 1)
    record = json.loads((tmp_path / "logs" / "run.json").read_text())
    assert record["state"] == "finished"
    set_failed(tmp_path)
    melt(80)
    found = process("run", *SUPERVISED)
    assert found.returncode == 2
    assert "--resume melt.40 to go on with it, or --resume never to start over" in found.words
    found = process("run", *SUPERVISED, "-var", "restart", "melt.20", "--json")
    assert found.returncode == 0
    assert [a["restart"] for a in found.json["attempts"]] == [None, "melt.20"]
    assert found.json["attempts"][1]["command"].count("restart") == 1
    found = process("run", *SUPERVISED, "--resume", "never", "--json")
    assert [a["restart"] for a in found.json["attempts"]] == [None]
    assert process("run", *SUPERVISED, "--resume", "absent").returncode == 2


def test_partitions(process, tmp_path: Path):
    """The first one tells how far it is; not what an earlier run has left there."""
    (tmp_path / "screen.0").write_text("   Step\n 900\n")
    os.utime(tmp_path / "screen.0", (1e9, 1e9))
    (tmp_path / "in.p").write_text(
        "region b block 0 5 0 5 0 5\ncreate_box 1 b\ncreate_atoms 1 random 50 1 b\nmass 1 1\n"
        "fix 1 all nve\nrun 30\n"
    )
    found = process("run", "-np", 2, "--no-preflight", "--json", "-in", "in.p", "-partition", "2x1")
    assert found.returncode == 0, found.words
    assert found.json["attempts"][0]["step"] == 30


REPLICAS = MELT.replace("units lj", "units lj\nvariable part world 0 1").replace(
    "melt.*", "melt.${{part}}.*").replace('"read_restart', '"include').replace(
    "create 1.44 87287", "create 1.44 8728${{part}}").replace(
    "out_append yes", "out_append yes out_file d.${{part}}")  # fmt: skip
PARTITIONS = ("-np", 2, "--no-preflight", "-in", "in.melt", "-partition", "2x1")


def energies_of_partitions(folder: Path, attempt: int) -> list[float]:
    name = "log.lammps" + (f".retry{attempt}" if attempt else "")
    return [lmp.Thermo(folder / f"{name}.{k}").columns()["E_pair"][-1] for k in (0, 1)]


def test_partitions_go_on(lj_models, tmp_path: Path):
    """Each from its own restart file, of a step that both have, after a death and after a stop."""
    folders = [tmp_path / name for name in ("quiet", "disturbed")]
    for folder in folders:
        folder.mkdir()
        text = REPLICAS.format(models=" ".join(lj_models), steps=STEPS)
        (folder / "in.melt").write_text(text)
    quiet, disturbed = folders
    (quiet / GO).touch()
    assert Started(quiet, *PARTITIONS).finish()["returncode"] == 0

    def reached(step: int) -> bool:
        return all((progress_of(disturbed / f"screen.{k}").step or 0) >= step for k in (0, 1))

    first = Started(disturbed, *PARTITIONS, "--retries", 1)
    wait_for(lambda: reached(60), "never came to step 60")
    os.kill(first.ranks()[1], signal.SIGKILL)
    wait_for((disturbed / "logs" / "retry.1").exists, "did not start again")
    wait_for(lambda: reached(120), "never came to step 120")
    wait_for((disturbed / "logs" / "heartbeat.1").exists, "no heartbeat")
    wait_for((disturbed / "logs" / "heartbeat.0").exists, "no heartbeat")
    first.process.send_signal(signal.SIGTERM)
    found = first.finish()
    assert found["returncode"] == 75, found
    (disturbed / GO).touch()
    found = Started(disturbed, *PARTITIONS).finish()
    assert found["returncode"] == 0, found
    restarts = [attempt["restart"] for attempt in found["attempts"]]
    assert restarts[0] is None
    for name in restarts[1:]:
        step = name.split(".")[1]
        said = (disturbed / name).read_text()
        assert said.startswith(f"variable restart_file world melt.0.{step} melt.1.{step}\n")
    two = energies_of_partitions(quiet, 0)
    assert two[0] != pytest.approx(two[1], rel=1e-6)
    assert energies_of_partitions(disturbed, 2) == pytest.approx(two, rel=1e-8)
    for k in (0, 1):
        steps = np.loadtxt(disturbed / f"d.{k}")[:, 0]
        assert list(steps) == list(range(0, STEPS + 1, 10))


#: With nothing on the screen and a log of its own, no out_append, and dumps of several forms.
UNTOLD = MELT.replace("units lj", "units lj\nlog my.log").replace(" out_append yes", "").replace(
    "thermo 10", "thermo 10\ndump a all custom 10 a.dump id x\ndump_modify a append yes time yes\n"
    "dump b all xyz 10 b.xyz\ndump_modify b append yes\ndump c all custom 10 c.dump id x").replace(
    "  restart", "restart").replace("restart 20 melt.*", "  restart 20 'melt.*'")  # fmt: skip


def frames(*paths: Path) -> list[int]:
    """Steps of a text dump in several files."""
    text = "".join(path.read_text() for path in paths)
    return [int(step) for step in re.findall(r"(?:ITEM: TIMESTEP\n|Timestep: )(\d+)", text)]


def rows(*paths: Path) -> set[int]:
    """Steps of the thermo output in several logs."""
    return {int(step) for path in paths for run in runs(path.read_text()) for step in
            run.columns["Step"]}  # fmt: skip


OF_STARTS = ("{}.start1", "{}.start2", "{}")  # names of a file that each start begins anew


@pytest.mark.parametrize(
    "line,options,logs,screens",
    [
        ("log my.log", ("-screen", "none", "-log", "none"), OF_STARTS, ()),
        thorough(
            "",
            ("-screen", "s.txt", "-log", "logs/a.log"),
            ("logs/a.log", "logs/a.log.retry1", "logs/a.log.retry2"),
            OF_STARTS,
        ),
    ],
)
def test_nothing_is_lost_or_doubled(lj_models, tmp_path: Path, line, options, logs, screens):
    """After a death and a stop: rows of logs, lines of the deviation, frames of dumps."""
    steps = 400
    text = UNTOLD.replace("log my.log", line)
    (tmp_path / "in.melt").write_text(text.format(models=" ".join(lj_models), steps=steps))
    (tmp_path / "logs").mkdir()
    silent = (*SUPERVISED, *options)
    logs = [tmp_path / name.format("my.log") for name in logs]
    first_log, second_log = (logs[2], logs[2]) if line else logs[:2]

    def reached(log: Path, step: int) -> bool:
        """Rows reach the file without the help of the style's end."""
        return log.is_file() and max(rows(log), default=0) >= step

    first = Started(tmp_path, *silent, "--retries", 1)
    wait_for(lambda: reached(first_log, 50), "never came to step 50")
    os.kill(first.ranks()[1], signal.SIGKILL)
    wait_for((tmp_path / "logs" / "retry.1").exists, "did not start again")
    wait_for(lambda: reached(second_log, 110), "never came to step 110")
    first.process.send_signal(signal.SIGTERM)
    first.process.send_signal(signal.SIGTERM)
    found = first.finish()
    assert found["returncode"] == 75, found
    (tmp_path / GO).touch()
    found = Started(tmp_path, *silent).finish()
    assert found["returncode"] == 0, found
    assert all(attempt["restart"] for attempt in found["attempts"][1:])
    every = list(range(0, steps + 1, 10))
    assert set(every) <= rows(*logs)
    assert not screens or set(every) <= rows(*(tmp_path / name.format("s.txt") for name in screens))
    assert list(np.loadtxt(tmp_path / "model_devi.out")[:, 0]) == every
    assert frames(tmp_path / "a.dump") == every
    assert frames(tmp_path / "b.xyz") == every
    kept = [tmp_path / name.format("c.dump") for name in OF_STARTS]
    assert set(every) == set(frames(*kept))
    whole = (tmp_path / "a.dump").read_text().split("ITEM: TIMESTEP\n")[1:-1]
    assert len({len(frame.splitlines()) for frame in whole}) == 1


@pytest.mark.parametrize(
    "line,options,files",
    [
        ("log my.${{part}}.log", (), ("my.{}.log", "my.{}.log.start1")),
        thorough("log my.${{part}}.log append", ("-pscreen", "none"), ("my.{}.log",)),
        ("", ("-plog", "logs/p", "-screen", "none"), ("logs/p.{}", "logs/p.retry1.{}")),
        thorough("", ("-log", "logs/p"), ("logs/p.{}", "logs/p.retry1.{}")),
        thorough("", ("-log", "none"), ("screen.{}", "screen.{}.start1")),
    ],
)  # fmt: skip
def test_rows_of_partitions_stay(lj_models, tmp_path: Path, line, options, files):
    """Of both starts, wherever they are written to."""
    text = REPLICAS.replace("timestep", line + "\ntimestep")
    (tmp_path / "in.melt").write_text(text.format(models=" ".join(lj_models), steps=400))
    (tmp_path / "logs").mkdir()
    first = Started(tmp_path, *PARTITIONS, *options)
    written = [tmp_path / files[0].format(k) for k in (0, 1)]

    def reached(step: int) -> bool:
        return all(path.is_file() and max(rows(path), default=0) >= step for path in written)

    wait_for(lambda: reached(50), "never came to step 50")
    os.kill(first.ranks()[1], signal.SIGKILL)
    assert first.finish()["returncode"] == 1
    (tmp_path / GO).touch()
    found = Started(tmp_path, *PARTITIONS, *options).finish()
    assert found["returncode"] == 0, found
    for k in (0, 1):
        assert rows(*(tmp_path / name.format(k) for name in files)) == set(range(0, 401, 10))


def test_one_partition_after_none(process, lj_models, tmp_path: Path):
    """It includes a file, too; what is known of no partition is not mixed with what is of one."""
    text = REPLICAS.format(models=" ".join(lj_models), steps=40)
    (tmp_path / "in.melt").write_text(text.replace("world 0 1", "world 0"))
    (tmp_path / GO).touch()
    one = (*SUPERVISED, "-partition", "1x2", "--json")
    assert process("run", *SUPERVISED, "--json").returncode == 0
    set_failed(tmp_path)
    assert "of an input that was not the same as now" in process("run", *one).words
    found = process("run", *one, "--resume", "never")
    assert found.returncode == 0, found.words
    set_failed(tmp_path)
    found = process("run", *one)
    assert found.returncode == 0, found.words
    assert found.json["attempts"][1]["restart"] == "logs/restart.40.in"


def test_error_of_a_partition_is_not_tried_again(process, lj_models, tmp_path: Path):
    text = REPLICAS.format(models=" ".join(lj_models), steps=20)
    (tmp_path / "in.melt").write_text(text.replace("fix 1 all nve", "partition yes 2 fix 1 all"))
    found = process("run", *PARTITIONS, "--retries", 3, "--json")
    assert found.returncode == 1
    (attempt,) = found.json["attempts"]
    assert any("fix" in error for error in attempt["errors"])


END = "echo Total wall time: 0:00:01"


@pytest.mark.parametrize(
    "lines,screens,code,least",
    [
        ((END, "sleep 100"), (), 0, 2),
        ((f"{END} > s.0", "sleep 5", f"{END} > s.1"), 2, 0, 5),
        ((f"{END} > s.0", "echo Step > s.1", "sleep 100"), 2, None, 8),
    ],
    ids=["lingers", "partition takes longer", "partition hangs"],
)  # fmt: skip
def test_mpirun_after_the_end(tmp_path: Path, monkeypatch, lines, screens, code, least):
    """It is given some seconds to end once lmp has, all partitions of it; nothing is lost."""
    monkeypatch.setattr(watcher, "FINISHING", 2.0)
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "logs"
    (logs / "rank.0").mkdir(parents=True)
    watching = watcher.Watcher(
        print, logs, [tmp_path / f"s.{k}" for k in range(screens or 0)], hang=8.0
    )
    script = "\n".join([*lines, ""])
    began = time.time()
    attempt = Attempt(["sh", "-c", f"exec > logs/rank.0/stdout; {script}"], None, began)
    watching.run(attempt, logs, Simulation(logs, "", began))
    assert least <= attempt.seconds < 40
    if code is None:
        assert attempt.returncode != 0
        assert "no sign of life" in attempt.cause
    else:
        assert (attempt.returncode, attempt.cause) == (code, "")


def test_only_what_ranks_wrote_is_removed(tmp_path: Path):
    """What the record tells of, and not what has a name of the same kind."""
    for name in ("rank.3", "rank.7", "retry.1", "retry.1/rank.0", "retry.2", "rank.notes", "data"):
        (tmp_path / name).mkdir()
    own = ("rank.prterun-n1.x.org-7@1.03.out", "rank.prterun-n1-7@1.3.err", "retry.1/mpirun.out")
    others = ("rank.3.txt", "restart.2.in", "rank.old.1.out", "retry.1/notes")
    for name in (*own, *others, "restart.40.in", "heartbeat.0"):
        (tmp_path / name).touch()
    began = (tmp_path / own[0]).stat().st_mtime
    os.utime(tmp_path / "rank.old.1.out", (1e9, 1e9))
    attempts = [Attempt([], None, began, logs, 4) for logs in ("", "retry.1")]
    clean(Simulation(tmp_path, "", began, attempts=attempts, made=["restart.40.in"]))
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert sorted(left) == sorted((*others, "data", "rank.7", "rank.notes", "retry.1", "retry.2"))


def test_logs_beside_the_input(process, melt, tmp_path: Path):
    """What no run has made is neither removed nor replaced, in the folder of the input too."""
    (melt(20) / GO).touch()
    arguments = ("run", "--log-dir", ".", *SUPERVISED)
    own = ("restart.2.in", "rank.5/notes", "retry.3/in.x")
    for name in own:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    for name in ("stop", "run.lock", "mpirun.out"):
        (tmp_path / name).write_text("mine")
        found = process(*arguments)
        assert found.returncode == 2
        assert f"found '{name}', which" in found.words
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    for _ in range(2):
        assert process(*arguments).returncode == 0
    assert [(tmp_path / name).read_text() for name in own] == ["mine"] * len(own)


def test_open_mpi_stand_in(process, melt, tmp_path: Path):
    """A stand-in that records its words, and does with them what Open MPI would."""
    melt(20)
    stand_in = tmp_path / "mpirun"
    stand_in.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi\n'
        'printf "%s\\n" "$@" > words\n'
        "mkdir -p logs/rank.0\n"
        'while [ "${1##*/}" != lmp ]; do shift; done\n'
        'exec "$@" > logs/rank.0/stdout\n'
    )
    stand_in.chmod(0o755)
    found = process(
        "run", "-np", 1, "--no-preflight", "--mpirun", stand_in, "--threads", 2, "--json",
        "-in", "in.melt",
        LD_LIBRARY_PATH=program.find().environment["LD_LIBRARY_PATH"],
        LAMMPS_PLUGIN_PATH=program.find().environment["LAMMPS_PLUGIN_PATH"],
    )  # fmt: skip
    assert found.returncode == 0, found.words
    recorded = (tmp_path / "words").read_text().split("\n")
    assert recorded[:5] == ["-np", "1", "--oversubscribe", "-x", "OMP_NUM_THREADS=2"]
    assert "--output-filename" in recorded
    assert found.json["attempts"][0]["step"] == 20


def test_progress():
    progress = LmpProgress()
    lines = """units metal
restart ${n} a.restart b.restart
restart 100 a.restart b.restart
run ${steps}
run 1000
Setting up Verlet run ...
  Unit style    : metal
  Current step  : 500
  Time step     : 0.0005
   Step          Temp          PotEng
       500   300   -12.5""".splitlines()
    for line in lines:
        progress.feed(line, 10.0)
    assert progress.text() == "step 500 of 1500, T 300"
    assert progress.restarts == ["a.restart", "b.restart"]
    progress.feed("restart 100 r.%.* nfile 2", 10.0)
    assert progress.restarts == ["a.restart", "b.restart", "r.%.*"]
    assert progress.feed("       600   301.5   -12.4", 12.0)
    # 50 steps of 0.5 fs per second: 25 fs/s are 2.16 ns/day; 900 steps are left.
    assert progress.ns_per_day == pytest.approx(2.16)
    assert progress.text() == "step 600 of 1500, 2.16 ns/day, T 301.5, 0:00:18 left"
    assert not progress.feed("WARNING: something   12 13", 13.0)
    progress.feed("run 2000 upto", 14.0)
    progress.feed("  Current step  : 1500", 14.0)
    assert progress.target == 2000
    progress.feed("  Current step  : 1600", 15.0)  # with `every`: the same run command
    assert progress.target == 2000


def test_progress_of_what_an_input_prints():
    """Text of its own is no thermo output, no setting and no end."""
    progress = LmpProgress()
    for line in (
        "  Time step     : 0.0005tau",
        "Step Temp",
        "inf 3",
        "nan 3",
        "Total wall time so far",
    ):
        assert not progress.feed(line, 1.0)
    assert (progress.step, progress.timestep, progress.ended) == (None, None, False)
    progress.feed("Total wall time: 0:00:07", 1.0)
    assert progress.ended


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["-in", "in.plain", "--retries", 1], "does not use the variable restart, which names"),
        (["-in", "in.going", "--retries", 1], "writes no restart files; let it say restart 1000"),
        (["-in", "in.cycle", "--retries", 1], "'in.cycle' does not use the variable restart"),
        (["-in", "in.plain", "--time-limit", "1x"], "--time-limit is '1x', expected a time like"),
        (["-in", "absent", "--retries", 1], "found no input 'absent'"),
        (["--retries", 1], "needs the input in a file"),
        (
            ["-in", "in.plain", "--retries", 1, "-partition", "1x1"],
            'then "include ${restart}" else "read_data x.data" restart 1000 run.${part}.*.restart',
        ),
        (
            ["-in", "in.plain", "--retries", 1, "-partition", "1x1", "-screen", "none"],
            "leave '-screen none' or '-pscreen none' out",
        ),
        (["-in", "in.outer"], "device is gpu, but no GPU is visible"),
        (["-in", "in.gpu"], "device is gpu, but no GPU is visible"),
        (["-in", "in.plain", "--lmp", "absent"], "found no program 'absent'"),
        (["-in", "in.plain", "-partition", "2x1"], "is for 2 ranks, found 1"),
    ],
)
def test_errors_before_the_start(pwmlff, tmp_path: Path, arguments, words: str, monkeypatch):
    (tmp_path / "in.plain").write_text("units lj\n")
    (tmp_path / "in.going").write_text("read_restart ${restart}\n")
    (tmp_path / "in.cycle").write_text("include in.other\n")
    (tmp_path / "in.other").write_text("include in.cycle\n")
    (tmp_path / "in.gpu").write_text("pair_style pwmlff a.pt device gpu\n")
    (tmp_path / "in.outer").write_text("units lj\ninclude in.gpu\n")
    found = pwmlff("run", "-np", 1, *arguments)
    assert found.returncode == 2
    assert words in found.words
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("command", [("run", "-in", "in.melt"), ("ranks",)])
def test_several_of_srun(pwmlff, melt, command):
    melt(20)
    found = pwmlff(*command, SLURM_STEP_NUM_TASKS="4")
    assert found.returncode == 2
    assert "srun has started this command 4 times" in found.words


def test_time_of_a_slurm_job(monkeypatch):
    for name, left in (("SLURM_JOB_END_TIME", 1000.0), ("", None)):
        monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        if name:
            monkeypatch.setenv(name, str(round(time.time() + left)))
        end = end_of_time(None)
        assert end is None if left is None else end - time.time() == pytest.approx(900.0, abs=2)
    assert end_of_time(7200.0) - time.time() == pytest.approx(7080.0, abs=1)


@pytest.mark.parametrize(
    "text,seconds",
    {
        "90": 90, "1.5": 1.5, "90s": 90, "20m": 1200, "1.5h": 5400, "2h": 7200, "1d": 86400,
        "1h30m": 5400, "1:30": 90, "23:50:00": 85800, "1-00:00:01": 86401,
    }.items(),
)  # fmt: skip
def test_times(text: str, seconds: float):
    """One way to write a time for all commands; a plain number is of the unit of its option."""
    assert seconds_of("--x", text) == seconds
    assert seconds_of("--x", text, 60.0) == (60 if text.replace(".", "").isdigit() else 1) * seconds


@pytest.mark.parametrize("text", ["", "1x", "h", "20 m", "-5", "1m2h", "1:2:3:4", "nan"])
def test_what_is_no_time(text: str):
    with pytest.raises(Failure, match=f"--x is '{text}', expected a time like 90s, 20m, 2h or"):
        seconds_of("--x", text)


TOLD = {
    "ssh: connect to host n2 port 22: No route to host": "n2 cannot be reached: No route to host",
    "=   PID 77 RUNNING AT n1\n=   EXIT CODE: 9\n=====\nYOUR APPLICATION TERMINATED WITH THE EXIT "
    "STRING: Killed (signal 9)\n": "a rank on n1 ended: Killed (signal 9)",
    "=   PID 77 RUNNING AT n1\n=   EXIT CODE: 15\n": "a rank on n1 ended with exit code 15",
    "mpirun noticed that process rank 1 with PID 0 on node n2 exited on signal 9 (Killed).":
        "a rank on n2 ended by signal 9 (Killed)",
    '[proxy:0@n2] HYDU_sock_connect (sock.c:140): unable to connect from "n2" to "vm" (Connection '
    "refused)": "n2 cannot reach the host of mpirun by its name vm; --mpirun-options '-iface eth0'",
    "[proxy:0@n2] HYDU_sock_connect (sock.c:120): unable to get host address for vm (1)":
        "n2 does not know the host of mpirun by its name vm; --mpirun-options '-iface eth0'",
    "bash: /opt/bin/hydra_pmi_proxy: No such file or directory": "hydra_pmi_proxy was not found",
    "something\nelse\n": "mpirun says: else",
    "": "",
}  # fmt: skip


@pytest.mark.parametrize("text", TOLD)
def test_causes(tmp_path: Path, text: str):
    (tmp_path / "mpirun.out").write_text(text)
    assert TOLD[text] in explain(tmp_path).text


def test_node_without_mpirun(process, melt, tmp_path: Path):
    """Each node is asked for what mpirun starts on it, and the one that has it not is named."""
    melt(20)
    (tmp_path / "bin").mkdir()
    for name, text in (
        ("ssh", 'case "$*" in *"n2 test -x"*hydra_pmi_proxy) exit 1 ;; esac'),
        (
            "mpirun",
            'case "$1" in --version) printf "HYDRA build details:\\n    Version: 5.0\\n" ;;\n'
            '*) echo "bash: /opt/bin/hydra_pmi_proxy: No such file or directory"; exit 255 ;; esac',
        ),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    found = process(
        "run", "-np", 2, "-H", "n1:1,n2:1", "--no-preflight", "--mpirun", tmp_path / "bin/mpirun",
        "--json", "-in", "in.melt", PATH=f"{tmp_path}/bin:/usr/bin:/bin",
    )  # fmt: skip
    assert found.returncode == 1
    (attempt,) = found.json["attempts"]
    assert attempt["cause"].endswith("in the same place on all; it is not on n2")


ERROR = "ERROR: Unknown command: fixx 1 (src/src/input.cpp:314)"


@pytest.mark.parametrize(
    "text,expected",
    [
        ("ERROR bars are 0.1\n", []),
        ("ERROR: all of (x.py:3)\nStep Temp\n0 1.44\n", []),
        (f"{ERROR}\nLast input line: fixx 1\n", [ERROR]),
        ("ERROR: of two\n lines (a.cpp:1)\nLast input line: x\n\n   ^^^\n",
         ["ERROR: of two lines (a.cpp:1)"]),
        ("ERROR on proc 1: one (a.cpp:1)\nERROR on proc 0: two (a.cpp:1)\n",
         ["ERROR on proc 1: one (a.cpp:1)", "ERROR on proc 0: two (a.cpp:1)"]),
    ],
)  # fmt: skip
def test_errors_of_lammps(tmp_path: Path, text: str, expected: list[str]):
    """Not what an input prints: LAMMPS gives up with its place, and writes no more than a hint."""
    (tmp_path / "log").write_text(f"units lj\nStep Temp\n 0 1.44\n{text}")
    assert lammps_errors([tmp_path / "log"]) == expected


def test_errors_of_machines_are_tried_again():
    of_gpu = "ERROR on proc 3: Pair style pwmlff: GPU 2 failed: an illegal memory access (CUDA)"
    assert will_recur(["ERROR: Unknown command: fxi"])
    assert not will_recur([of_gpu])
    assert not will_recur([])


def test_dry_run(pwmlff, melt):
    melt(20)
    found = pwmlff("run", "-np", 2, "--dry-run", "--json", "-in", "in.melt", "-var", "x", "1")
    assert found.returncode == 0, found.words
    command = found.json["attempts"][0]["command"]
    assert " ".join(command).endswith("-in in.melt -var x 1 -echo both -nonbuf")


#: A crystal at rest, beside the faces of a tilted box until step 40 and then on them, where LAMMPS
#: loses atoms of its own restart files.
ON_FACES = """
units lj
restart 20 r.*
if "$(is_defined(variable,restart))" then "read_restart ${{restart}}" else &
  "lattice fcc 1.1" "region box prism 0 4 0 4 0 4 2 1 0" "create_box 1 box" "create_atoms 1 box" &
  "mass 1 1.0" "displace_atoms all move {to} {to} {to} units box"
pair_style pwmlff {model}
pair_coeff * * Ar
fix 1 all nve
fix 2 all setforce 0 0 0
timestep 0.0005
thermo 20
thermo_modify format float %.17g
run 40 upto
displace_atoms all move {back} {back} {back} units box
run 200 upto every 20 "shell test -e go || sleep 1"
"""


@pytest.mark.parametrize(
    "how,to,back",
    [
        ("SIGTERM", "-1e-16", "0"),
        ("SIGKILL", "0.1", "-0.1000000000000001"),
        thorough("SIGTERM", "0.1", "-0.1000000000000001"),
        thorough("SIGKILL", "-1e-16", "0"),
    ],
)
def test_restart_files_that_lose_atoms(lj_models, tmp_path: Path, how: str, to: str, back: str):
    """They are read back before anything is promised: it goes on from an older one, or says no."""
    (tmp_path / "in.melt").write_text(ON_FACES.format(model=lj_models[0], to=to, back=back))
    first = Started(tmp_path, *SUPERVISED, "--retries", 1)
    ranks = first.wait_for_step("logs", 80)
    wait_for((tmp_path / "logs" / "heartbeat.0").exists, "no heartbeat")
    if how == "SIGKILL":
        (tmp_path / GO).touch()
        os.kill(ranks[0], signal.SIGKILL)
    else:
        first.process.send_signal(signal.SIGTERM)
    found = first.finish()
    if to == "-1e-16":
        assert found["returncode"] == 1 and found["newest"] is None
        cause = found["attempts"][-1]["cause"]
        assert how == "SIGTERM" or "LAMMPS cannot read any of its restart files back" in cause
        return
    if how == "SIGTERM":
        assert found["returncode"] == 75 and found["newest"] == "r.40"
        (tmp_path / GO).touch()
        found = Started(tmp_path, *SUPERVISED).finish()
    assert found["returncode"] == 0
    assert found["attempts"][-1]["restart"] == "r.40"
    starts = len(found["attempts"])
    energies = [energy(tmp_path, k) for k in (0, starts - 1)]
    assert energies[1] == pytest.approx(energies[0], rel=1e-10)
