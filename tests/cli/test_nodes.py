"""`pwmlff run` on three nodes that fail: it ends as if nothing had been, and says what was.

PWMLFF_FAULTS is the number of faults, drawn at random; one by default, and all kinds from 11 on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from test_run import GO, MELT, Started, energy, progress_of, wait_for

from nodes import BRIDGE, Nodes, require

STEPS = 600
FAULTS = ("rank", "cut", "SIGHUP", "proxy", "mpirun", "pwmlff", "hang", "cut for a while", "crash",
          "time limit", "requeue")  # fmt: skip
#: What the report says, for those that it can know of.
WORDS = {
    "rank": "ended",
    "hang": "no sign of life",
    "cut": "cannot be reached",
    "cut for a while": "no sign of life",
}
#: At these the command ends, and is given again.
GIVEN_AGAIN = ("pwmlff", "SIGHUP", "time limit", "requeue")


def drawn() -> list[str]:
    generator = random.Random(20261122)
    wanted = int(os.environ.get("PWMLFF_FAULTS", "1"))
    if wanted < len(FAULTS):
        return list(FAULTS[:wanted])
    faults = [*FAULTS, *generator.choices(FAULTS, k=wanted - len(FAULTS))]
    generator.shuffle(faults)
    return faults


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    require()
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    yield made
    made.remove()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, lj_models) -> Path:
    folder = tmp_path_factory.mktemp("quiet")
    (folder / "in.melt").write_text(MELT.format(models=" ".join(lj_models), steps=STEPS))
    (folder / GO).touch()
    done = Started(folder, "-np", 3, "--no-preflight", "-in", "in.melt").finish()
    assert done["returncode"] == 0
    return folder


def start(folder: Path, nodes: Nodes, *more: object) -> Started:
    return Started(
        folder, "-np", 3, "-H", nodes.hosts, "--mpirun-options", f"-iface {BRIDGE}",
        "--no-preflight", "--retries", 3, "--hang-timeout", "15s", "--drop-hosts", *more, "-in",
        "in.melt",
        **nodes.environment,
    )  # fmt: skip


def inflict(fault: str, nodes: Nodes, started: Started, generator: random.Random) -> None:
    node = generator.choice(nodes.all[1:])  # rank 0 writes what the test waits for
    if fault in ("rank", "hang"):
        (pid,) = node.processes("lmp")
        os.kill(pid, signal.SIGKILL if fault == "rank" else signal.SIGSTOP)
    elif fault == "proxy":
        os.kill(node.processes("hydra_pmi_proxy")[0], signal.SIGKILL)
    elif fault == "mpirun":
        (mpirun,) = subprocess.run(
            ["pgrep", "-P", str(started.process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        os.kill(int(mpirun), signal.SIGKILL)
    elif fault == "pwmlff":
        started.process.kill()
        started.process.communicate()
    elif fault.startswith("cut"):
        node.cut()
        if fault == "cut for a while":
            time.sleep(20)
            node.cut(False)
    elif fault == "crash":
        node.crash()
        time.sleep(30)
        node.boot()
    elif fault in ("SIGHUP", "requeue"):
        started.process.send_signal(signal.SIGHUP if fault == "SIGHUP" else signal.SIGTERM)


@pytest.mark.thorough
@pytest.mark.xdist_group("nodes")
@pytest.mark.parametrize("number,fault", list(enumerate(drawn())))
def test_fault(nodes: Nodes, undisturbed: Path, tmp_path: Path, lj_models, number: int, fault: str):
    generator = random.Random(number)
    text, limit = MELT.format(models=" ".join(lj_models), steps=STEPS), ()
    if fault == "time limit":  # which has to come before the end, on any machine
        text, limit = text.replace("sleep 0.25", "sleep 0.5"), ("--time-limit", 8)
    (tmp_path / "in.melt").write_text(text)
    started = start(tmp_path, nodes, *limit)
    said = tmp_path / "logs" / "rank.0" / "stdout"
    target = generator.randrange(20, STEPS // 3)

    def came() -> bool:
        assert started.process.poll() is None, started.process.communicate()
        return (progress_of(said).step or 0) >= target

    wait_for(came, f"never came to step {target}")
    wait_for((tmp_path / "logs" / "heartbeat.0").exists, "no heartbeat")
    inflict(fault, nodes, started, generator)
    if fault in GIVEN_AGAIN:
        if fault != "pwmlff":
            found = started.finish()
            assert found["returncode"] == 75, found
        (tmp_path / GO).touch()
        found = start(tmp_path, nodes).finish()
    else:
        (tmp_path / GO).touch()
        found = started.finish()
    assert found["returncode"] == 0, found
    attempts = found["attempts"]
    assert len(attempts) > 1
    assert WORDS.get(fault, "") in " ".join(attempt["cause"] for attempt in attempts), attempts
    assert energy(tmp_path, len(attempts) - 1) == pytest.approx(energy(undisturbed), rel=1e-8)
    steps = np.loadtxt(tmp_path / "model_devi.out")[:, 0]
    assert list(steps) == list(range(0, STEPS + 1, 10))  # each once
    nodes.heal()
    wait_for(lambda: not any(node.processes() for node in nodes.all), "processes are left")
