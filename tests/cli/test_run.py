"""`pwmlff run`: command lines of both families, logs, signals, and ranks that die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from harness import COMMAND, TIMEOUT
from pwmlff import lmp, plugin
from pwmlff.mpirun import Host, Mpirun, Wish, outputs
from pwmlff.progress import Progress
from pwmlff.run import MAGIC, clean, lammps_errors, newest_restart

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
run {steps} upto every 20 "shell test -e go || sleep 0.1"
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
    real = lmp.program()
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


class Started:
    """The command in a process of its own, and the processes that it has started."""

    def __init__(self, folder: Path, *arguments: object, **environment: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*COMMAND, "run", "--json", *map(str, arguments)],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **environment},
        )  # fmt: skip
        self.seen: set[int] = set()

    def ranks(self) -> list[int]:
        """Process IDs of all lmp."""
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(stat.parent.name))
        todo, found = [self.process.pid], []
        while todo:
            for child in parents.get(todo.pop(), []):
                todo.append(child)
                self.seen.add(child)
                try:
                    if Path(f"/proc/{child}/exe").readlink() == Path(lmp.program().path).resolve():
                        found.append(child)
                except (FileNotFoundError, PermissionError):
                    continue
        return sorted(found)

    def wait_for_step(self, logs: str, step: int) -> list[int]:
        """Process IDs of the two ranks once the log in a folder has come to a step."""
        deadline = time.monotonic() + TIMEOUT
        path = self.folder / logs / "rank.0" / "stdout"
        ranks: list[int] = []
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.communicate()
            progress = Progress()
            for line in path.read_text().splitlines() if path.is_file() else ():
                progress.feed(line, 0.0)
            if len(ranks) < 2:
                ranks = self.ranks() if progress.units else []
            elif progress.temperature is not None and progress.step >= step:
                return ranks
            time.sleep(0.01)
        raise AssertionError(f"never came to step {step}")

    def finish(self) -> dict:
        """Wait for the end; no process may be left."""
        output, errors = self.process.communicate(timeout=TIMEOUT)
        assert not [pid for pid in self.seen if Path(f"/proc/{pid}").exists()]
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
    melt(20)
    (tmp_path / "out" / "rank.7").mkdir(parents=True)  # of an earlier run
    found = process("run", "-np", 2, "--log-dir", "out", "-in", "in.melt")
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_all_ranks(melt, number: int):
    started = Started(melt(1000000), "-np", 2, "--no-preflight", "-in", "in.melt")
    started.wait_for_step("logs", 20)
    started.process.send_signal(number)
    found = started.finish()
    assert found["returncode"] == 1
    assert found["interrupted"] == signal.Signals(number).name
    assert len(found["attempts"]) == 1


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


@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_die(melt, undisturbed: Path, tmp_path: Path, seed: int):
    """Five times at a random step; twenty in all. The run ends as if nothing had been."""
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


def test_restart_files(tmp_path: Path, monkeypatch):
    """The newest complete one of this run."""
    monkeypatch.chdir(tmp_path)
    body = MAGIC + b"state" * 10
    now = time.time()
    for name, text, age in (
        ("r.100", body + MAGIC, 50), ("r.200", body + MAGIC, 5), ("r.300", body, 1),
        ("r.900", body + MAGIC, 1000), ("r.txt", b"notes", 0), ("empty.1", MAGIC, 0),
    ):  # fmt: skip
        Path(name).write_bytes(text)
        os.utime(name, (now - age, now - age))
    assert newest_restart(["r.*"], now - 100) == "r.200"
    assert newest_restart(["r.*"], now - 2) is None
    assert newest_restart(["empty.*", "absent/r.*"], 0.0) is None
    assert newest_restart(["r.100", "r.900"], 0.0) == "r.100"


def test_restart_files_of_each_rank(process, tmp_path: Path, monkeypatch):
    """As LAMMPS writes them; a part that is missing, cut off or of another step does not do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.r").write_text(
        "region b block 0 5 0 5 0 5\ncreate_box 1 b\ncreate_atoms 1 random 50 1 b\nmass 1 1\n"
        "fix 1 all nve\nrestart 10 a.%.*.r nfile 2\nrun 30\nrestart 0\n"
        "restart 10 turn.%.a turn.%.b\nrun 20\n"
    )
    found = process("run", "-np", 3, "--no-preflight", "-in", "in.r")
    assert found.returncode == 0, found.words
    assert len(list(tmp_path.glob("a.*.30.r"))) == 3  # base, 0 and 1
    assert newest_restart(["a.%.*.r"], 0.0) == "a.%.30.r"
    assert newest_restart(["a.%.*.r"], time.time() + 100) is None
    assert newest_restart(["?.%.*.r"], 0.0) is None  # LAMMPS takes a ? as it is
    Path("a.1.30.r").unlink()
    assert newest_restart(["a.%.*.r"], 0.0) == "a.%.20.r"
    whole = Path("a.0.20.r").read_bytes()
    Path("a.0.20.r").write_bytes(whole[:-1])
    assert newest_restart(["a.%.*.r"], 0.0) == "a.%.10.r"
    turns = ["turn.%.a", "turn.%.b"]
    assert newest_restart(turns, 0.0) == "turn.%.b"
    os.utime("turn.2.b", (1e9, 1e9))  # died before rank 2 wrote anew
    assert newest_restart(turns, 0.0) == "turn.%.a"
    (tmp_path / "in.r").write_text("read_restart turn.%.a\nfix 1 all nve\nrun 0\n")
    found = process("run", "-np", 1, "--no-preflight", "--json", "-in", "in.r")
    assert found.json["attempts"][0]["step"] == 40


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


def test_only_what_ranks_wrote_is_removed(tmp_path: Path):
    for name in ("rank.3", "retry.1", "rank.notes", "data"):
        (tmp_path / name).mkdir()
    for name in ("rank.prterun-n1.x.org-7@1.03.out", "rank.prterun-n1-7@1.3.err", "rank.3.txt"):
        (tmp_path / name).touch()
    clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "rank.3.txt", "rank.notes"]


LAYOUTS = {
    "MPICH, Open MPI 4": ("rank.{:02}/stdout", "rank.{:02}/stderr"),
    "Open MPI 5": ("rank.prterun-n1.x.org-7@1.{:02}.out", "rank.prterun-n1.x.org-7@1.{:02}.err"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_outputs_of_ranks(tmp_path: Path, layout: str):
    """By number, both streams, not those of other starts or other files."""
    for k in range(11):
        for name in LAYOUTS[layout]:
            path = tmp_path / name.format(k)
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"ERROR: {k} in {'err' in name}\n")
    (tmp_path / "retry.1" / "rank.0").mkdir(parents=True)
    (tmp_path / "retry.1" / "rank.0" / "stdout").touch()
    (tmp_path / "rank.notes").touch()
    for stream, name in zip(("stdout", "stderr"), LAYOUTS[layout], strict=True):
        expected = {k: tmp_path / name.format(k) for k in range(11)}
        assert outputs(tmp_path, stream) == expected
        assert list(outputs(tmp_path, stream)) == list(range(11))
    assert len(lammps_errors(tmp_path)) == 22


WISH = Wish(
    ["lmp", "-in", "in.x"], 4, [Host("a", 2), Host("b", 2)], "core", Path("D"), True,
    {"OMP_NUM_THREADS": "2"}, ["-extra"],
)  # fmt: skip
LINES = {
    ("hydra", (5, 0)): "-n 4 -hosts a:2,b:2 -bind-to core -genv OMP_NUM_THREADS 2 "
    "-outfile-pattern D/rank.%r/stdout -errfile-pattern D/rank.%r/stdout",
    ("openmpi", (4, 1, 4)): "-np 4 --host a:2,b:2 --bind-to core -x OMP_NUM_THREADS=2 "
    "--output-filename D:nojobid,nocopy --merge-stderr-to-stdout",
    ("openmpi", (5, 0, 1)): "-np 4 --host a:2,b:2 --bind-to core -x OMP_NUM_THREADS=2 "
    "--output file=D/rank:nocopy,merge",
}


@pytest.mark.parametrize("family,version", LINES)
def test_command_lines(family: str, version: tuple[int, ...]):
    found = Mpirun("mpirun", family, version).command(WISH)
    assert " ".join(found) == f"mpirun {LINES[family, version]} -extra lmp -in in.x"


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
        LD_LIBRARY_PATH=lmp.program().environment["LD_LIBRARY_PATH"],
        LAMMPS_PLUGIN_PATH=lmp.program().environment["LAMMPS_PLUGIN_PATH"],
    )  # fmt: skip
    assert found.returncode == 0, found.words
    recorded = (tmp_path / "words").read_text().split("\n")
    assert recorded[:5] == ["-np", "1", "--oversubscribe", "-x", "OMP_NUM_THREADS=2"]
    assert "--output-filename" in recorded
    assert found.json["attempts"][0]["step"] == 20


def test_progress():
    progress = Progress()
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
    assert progress.restarts == ["r.%.*"]
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


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["-in", "in.plain", "--retries", 1], "--retries sets the variable restart"),
        (["-in", "absent", "--retries", 1], "found no input 'absent'"),
        (["--retries", 1], "needs the input in a file"),
        (["-in", "in.plain", "--retries", 1, "-partition", "1x1"], "does not go with -partition"),
        (["-in", "in.outer"], "device is gpu, but no GPU is visible"),
        (["-in", "in.gpu"], "device is gpu, but no GPU is visible"),
        (["-in", "in.plain", "--lmp", "absent"], "found no program 'absent'"),
        (["-in", "in.plain", "-partition", "2x1"], "is for 2 ranks, found 1"),
    ],
)
def test_errors_before_the_start(pwmlff, tmp_path: Path, arguments, words: str, monkeypatch):
    (tmp_path / "in.plain").write_text("units lj\n")
    (tmp_path / "in.gpu").write_text("pair_style pwmlff a.pt device gpu\n")
    (tmp_path / "in.outer").write_text("units lj\ninclude in.gpu\n")
    found = pwmlff("run", "-np", 1, *arguments)
    assert found.returncode == 2
    assert words in found.words
    assert not (tmp_path / "logs").exists()


def test_dry_run(pwmlff, melt):
    melt(20)
    found = pwmlff("run", "-np", 2, "--dry-run", "--json", "-in", "in.melt", "-var", "x", "1")
    assert found.returncode == 0, found.words
    command = found.json["attempts"][0]["command"]
    assert " ".join(command).endswith("-in in.melt -var x 1 -echo both -nonbuf")
