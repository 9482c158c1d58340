"""The files to copy of examples/clusters: they parse, name what is there, and the input runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import typer.main

from pwmlff.cli import app
from pwmlff.launch.mpirun import Host, read_hostfile

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "clusters"


@pytest.mark.parametrize("name", ["slurm.sh", "ssh.sh"])
def test_scripts_parse(name: str):
    subprocess.run(["bash", "-n", FOLDER / name], check=True)


@pytest.mark.parametrize("name", ["mpijob.yaml", "volcano.yaml"])
def test_yaml_parses(name: str):
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((FOLDER / name).read_text())
    assert job["kind"] in {"MPIJob", "Job"}
    text = (FOLDER / name).read_text()
    script = re.search(r"- \|\n((?: {18}.*\n)+)", text)[1]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


POD = {
    "metadata": {},
    "spec": {
        "restartPolicy": "",
        "volumes": [{"name": "", "persistentVolumeClaim": {"claimName": ""}}],
        "containers": [
            {
                "name": "",
                "image": "",
                "command": [""],
                "env": [{"name": "", "value": ""}],
                "readinessProbe": {"tcpSocket": {"port": 0}, "initialDelaySeconds": 0},
                "resources": {"limits": {"cpu": 0, "memory": "", "nvidia.com/gpu": 0}},
                "volumeMounts": [{"name": "", "mountPath": ""}],
            }
        ],
    },
}
POLICY = {"event": "", "action": ""}
REPLICA = {"replicas": 0, "restartPolicy": "", "template": POD}
#: What the schemas of the operators (MPIJob v2beta1, Volcano's Job v1alpha1) and of pods have, as
#: far as the files use them: names of fields, and types of their values.
SCHEMAS = {
    "mpijob.yaml": {
        "apiVersion": "", "kind": "", "metadata": {"name": ""},
        "spec": {
            "mpiImplementation": "", "slotsPerWorker": 0, "sshAuthMountPath": "",
            "launcherCreationPolicy": "",
            "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
            "runPolicy": {"cleanPodPolicy": "", "backoffLimit": 0},
        },
    },
    "volcano.yaml": {
        "apiVersion": "", "kind": "", "metadata": {"name": ""},
        "spec": {
            "schedulerName": "", "minAvailable": 0, "maxRetry": 0,
            "plugins": {"ssh": [""], "svc": [""]},
            "tasks": [{"name": "", "replicas": 0, "policies": [POLICY], "template": POD}],
        },
    },
}  # fmt: skip
CHOICES = {
    "mpiImplementation": {"OpenMPI", "Intel", "MPICH"},
    "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
    "cleanPodPolicy": {"None", "Running", "All"},
    "restartPolicy": {"Never", "OnFailure", "Always"},
    "event": {"TaskCompleted"},
    "action": {"CompleteJob"},
}


def assert_fits(value, schema, where: str) -> None:
    assert type(value) is type(schema), where
    if isinstance(value, dict):
        assert set(value) <= set(schema), (where, set(value) - set(schema))
        for name, entry in value.items():
            assert_fits(entry, schema[name], f"{where}.{name}")
            assert not isinstance(entry, str) or entry in CHOICES.get(name, {entry}), (where, name)
    elif isinstance(value, list):
        for entry in value:
            assert_fits(entry, schema[0], f"{where}[]")


@pytest.mark.parametrize("name", SCHEMAS)
def test_fields_are_those_of_the_operators(name: str):
    yaml = pytest.importorskip("yaml")
    assert_fits(yaml.safe_load((FOLDER / name).read_text()), SCHEMAS[name], name)


def test_options_are_there():
    """Every option of a `pwmlff` line is one of that command."""
    commands = typer.main.get_command(app).commands
    lines = 0
    for path in sorted(FOLDER.iterdir()):
        text = path.read_text().replace("\\\n", " ")
        for line in re.findall(r"^\s*(?:#\s+)?pwmlff (.*)$", text, re.MULTILINE):
            name, *words = line.split()
            known = {option for p in commands[name].params for option in p.opts}
            used = {word for word in words if word.startswith("-")} - {"-in"}
            assert used <= known, (path.name, line)
            lines += 1
    assert lines >= 6


def test_hostfile():
    assert read_hostfile(FOLDER / "hosts") == [Host("node1", 4), Host("node2", 4)]


def test_input_runs(process, tmp_path: Path):
    text = (FOLDER / "in.melt").read_text()
    text = text.replace("0 10 0 10 0 10", "0 4 0 4 0 4").replace("../lj", f"{ROOT}/examples/lj")
    (tmp_path / "in.melt").write_text(text)
    arguments = ("-np", 2, "--retries", 1, "--json", "-in", "in.melt", "-var", "steps", 20)
    found = process("run", *arguments)
    assert found.returncode == 0, found.words
    assert found.json["attempts"][0]["step"] == 20
