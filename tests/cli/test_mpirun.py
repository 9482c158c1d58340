"""What both families of mpirun are told, and where they leave what ranks write."""

from __future__ import annotations

from pathlib import Path

import pytest

from pwmlff.launch.causes import lammps_errors, written
from pwmlff.launch.mpirun import Host, Mpirun, Wish, outputs

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
            path.write_text(f"ERROR: {k} in {'err' in name} (src/pair.cpp:7)\n")
    (tmp_path / "retry.1" / "rank.0").mkdir(parents=True)
    (tmp_path / "retry.1" / "rank.0" / "stdout").touch()
    (tmp_path / "rank.notes").touch()
    for stream, name in zip(("stdout", "stderr"), LAYOUTS[layout], strict=True):
        expected = {k: tmp_path / name.format(k) for k in range(11)}
        assert outputs(tmp_path, stream) == expected
        assert list(outputs(tmp_path, stream)) == list(range(11))
    assert len(lammps_errors(written(tmp_path))) == 22


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


def test_hosts_that_ssh_leads_to(monkeypatch):
    """Only there is a host that ssh does not reach a lost one."""
    for name in ("SLURM_JOB_ID", "HYDRA_LAUNCHER"):
        monkeypatch.delenv(name, raising=False)
    hydra = Mpirun("mpirun", "hydra", (5, 0))
    assert hydra.by_ssh(["-iface", "eth0"])
    assert not hydra.by_ssh(["-launcher", "fork"])
    assert not Mpirun("mpirun", "openmpi", (5, 0)).by_ssh([])
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert not hydra.by_ssh([])
    monkeypatch.delenv("SLURM_JOB_ID")
    monkeypatch.setenv("HYDRA_LAUNCHER", "rsh")
    assert not hydra.by_ssh([])
