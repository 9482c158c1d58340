"""Restart files of LAMMPS: the newest complete one, of one partition and of several."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path

import pytest

from pwmlff.launch.restarts import MAGIC, newest_restart, step_of
from pwmlff.launch.script import Script


def newest(patterns: list[str], began: float) -> str | None:
    """Of one partition."""
    return next(iter(newest_restart([patterns], began)), None)


def test_restart_files(tmp_path: Path, monkeypatch):
    """The newest complete one of this run."""
    monkeypatch.chdir(tmp_path)
    body = MAGIC + b"state" * 10
    now = time.time()
    for name, text, age in (
        ("r.100", body + MAGIC, 50), ("r.200", body + MAGIC, 5), ("r.300", body, 1),
        ("r.900", body + MAGIC, 1000), ("r.txt", b"notes", 0), ("empty.1", MAGIC, 0),
        ("r.50%.copy", body, 0),
    ):  # fmt: skip
        Path(name).write_bytes(text)
        os.utime(name, (now - age, now - age))
    assert newest(["r.*"], now - 100) == "r.200"
    assert newest(["r.*"], now - 2) is None
    assert newest(["empty.*", "absent/r.*"], 0.0) is None
    assert newest(["r.100", "r.900"], 0.0) == "r.100"


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
    assert newest(["a.%.*.r"], 0.0) == "a.%.30.r"
    assert newest(["a.%.*.r"], time.time() + 100) is None
    assert newest(["?.%.*.r"], 0.0) is None  # LAMMPS takes a ? as it is
    Path("a.1.30.r").unlink()
    assert newest(["a.%.*.r"], 0.0) == "a.%.20.r"
    whole = Path("a.0.20.r").read_bytes()
    Path("a.0.20.r").write_bytes(whole[:-1])
    assert newest(["a.%.*.r"], 0.0) == "a.%.10.r"
    turns = ["turn.%.a", "turn.%.b"]
    assert newest(turns, 0.0) == "turn.%.b"
    assert [step_of(name) for name in ("a.%.10.r", *turns)] == [10, 40, 50]
    os.utime("turn.2.b", (1e9, 1e9))  # died before rank 2 wrote anew
    assert newest(turns, 0.0) == "turn.%.a"
    (tmp_path / "in.r").write_text("read_restart turn.%.a\nfix 1 all nve\nrun 0\n")
    found = process("run", "-np", 1, "--no-preflight", "--json", "-in", "in.r")
    assert found.json["attempts"][0]["step"] == 40


def test_restart_files_of_partitions(tmp_path: Path, monkeypatch):
    """Of one step, and not of a later one than partitions have gone back to since."""
    monkeypatch.chdir(tmp_path)
    revision, step = struct.pack("=2i", 1, 3), "=iq"
    for k, found, when in ((0, 20, 2), (0, 40, 4), (1, 20, 3), (1, 40, 7)):
        header = MAGIC + revision + struct.pack(step, 5, found)
        Path(f"r.{k}.{found}").write_bytes(header + MAGIC)
        os.utime(f"r.{k}.{found}", (when, when))
    patterns = [["r.0.*"], ["r.1.*"]]
    assert newest_restart(patterns, 0.0) == ("r.0.40", "r.1.40")
    assert newest_restart(patterns, 0.0, [(1.0, 0), (5.0, 20)]) == ("r.0.20", "r.1.20")
    os.utime("r.0.40", (6, 6))
    assert newest_restart(patterns, 0.0, [(1.0, 0), (5.0, 20)]) == ("r.0.40", "r.1.40")
    assert newest_restart(patterns, 0.0, [(1.0, 0), (8.0, 0)]) == ()


BOX = """
region b block 0 5 0 5 0 5
create_box 1 b
create_atoms 1 random 50 1 b
mass 1 1
fix 1 all nve
"""
#: Commands as LAMMPS takes them, and the pattern of the files that it writes then.
LAYOUTS = (
    ("  restart 100 indented.*", "indented.*"),
    ("restart 100 &\n   'quoted.*'  # comment", "quoted.*"),
    ('if "1 == 1" then &\n  "restart 100 inner.*"', "inner.*"),
    ("variable n equal 100\nvariable s string name\nrestart ${n} ${s}.$n.*", "name.100.*"),
    ("restart 100 bare", "bare.*"),
    ("restart 100 two.a two.b", "two.a"),
    ("restart 100 ranks.%.*", "ranks.%.*"),
    ("restart 100 'a [1]{x}.*'", "a [1]{x}.*"),
    ("include in.restart", "included.*"),
    ("shell cd sub\nrestart 100 moved.*", "sub/moved.*"),
)


def write_layouts(folder: Path, before: str) -> None:
    (folder / "in.restart").write_text("restart 100 included.*\n")
    (folder / "sub").mkdir()
    text = f"units lj\n{BOX}{before}" + 'print "restart 100 printed.*"\n'
    for layout, _ in LAYOUTS:  # the first part writes nothing, as the command follows it
        text += f"run 0\n{layout}\nrun 0\nrestart 0\n"
    (folder / "in.r").write_text(text)


@pytest.mark.parametrize(
    "options,echo",
    [("-screen none", ""), ("", "echo none\n"), ("-screen s.txt -echo log -log none", "")],
)
def test_restart_command_in_any_layout(process, lj_models, tmp_path, options, echo):
    """What the style tells is what LAMMPS has, whatever the input looks like and prints."""
    write_layouts(tmp_path, f"{echo}pair_style pwmlff {lj_models[0]}\npair_coeff * * Ar\n")
    text = (tmp_path / "in.r").read_text()  # what was printed is read before the first restart
    (tmp_path / "in.r").write_text(text.replace("run 0\n", "run 0\nshell sleep 1\n", 1))
    found = process("run", "-np", 1, "--no-preflight", "-in", "in.r", *options.split())
    assert found.returncode == 0, found.words
    (known,) = json.loads((tmp_path / "logs" / "run.json").read_text())["restarts"]
    moved = {"sub/moved.*", str(tmp_path / "sub" / "moved.*")}
    assert set(known) - moved == {"two.b", *(pattern for _, pattern in LAYOUTS)} - moved
    assert moved & set(known) == {str(tmp_path / "sub" / "moved.*")}


def test_restart_command_in_an_input(tmp_path, monkeypatch):
    """Where nothing tells more than the input, the files that it names are found."""
    monkeypatch.chdir(tmp_path)
    write_layouts(tmp_path, "")
    known = Script(["-in", "in.r"]).restarts()
    for _, pattern in LAYOUTS:
        file = Path(pattern.replace("*", "7").replace("%", "base"))
        file.write_bytes(MAGIC + struct.pack("=3i", 44, 0, -1) + MAGIC)
        assert newest(known, 0.0) == pattern.replace("*", "7")
        file.unlink()
    assert not any("printed" in pattern for pattern in known)


def test_highest_step_counts(tmp_path: Path, monkeypatch):
    """By the header or else by the name; times of files tell nothing where both are silent."""
    monkeypatch.chdir(tmp_path)
    header = MAGIC + struct.pack("=2i", 1, 3) + struct.pack("=iq", 5, 300)
    lower = MAGIC + struct.pack("=2i", 1, 3) + struct.pack("=iq", 5, 200)
    for name, text, when in (
        ("r.100", MAGIC + b"state", 9), ("r.200", MAGIC + b"state", 4),
        ("turn.a", header, 4), ("turn.b", lower, 9),
    ):  # fmt: skip
        Path(name).write_bytes(text + MAGIC)
        os.utime(name, (when, when))
    assert newest(["r.*"], 0.0) == "r.200"
    assert newest(["turn.a", "turn.b"], 0.0) == "turn.a"
    assert newest(["r.*", "turn.a"], 0.0) == "turn.a"


def test_copied_parts(tmp_path: Path, monkeypatch):
    """Where it is known that they were complete, their times tell nothing."""
    monkeypatch.chdir(tmp_path)
    header = MAGIC + struct.pack("=2i", 1, 3) + struct.pack("=iq", 5, 300)
    Path("r.base.300").write_bytes(header + struct.pack("=3i", 44, 1, -1) + MAGIC)
    Path("r.0.300").write_bytes(b"atoms" + MAGIC)
    os.utime("r.0.300", (5, 5))
    assert newest(["r.%.*"], 0.0) is None
    assert newest_restart([["r.%.*"]], 0.0, written={"r.%.300": (0, 300)}) == ("r.%.300",)
    assert newest_restart([["r.%.*"]], 0.0, written={"r.%.300": (0, 200)}) == ()
