"""The cache gives what was put in, never anything else, and is no condition for work."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from ase.io import write
from typer.testing import CliRunner

from labelled_structures import trajectory, write_deepmd
from pwmlff.cli import app
from pwmlff.data import cache, readers
from pwmlff.report import Failure

OPTIONS = {"elements": (18, 10), "cutoff": 4.0}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.xyz"
    write(path, trajectory(6))
    return path


@pytest.fixture
def reads(monkeypatch):
    """How often files were read."""
    calls = []
    real = readers.read
    monkeypatch.setattr(readers, "read", lambda *a: calls.append(a) or real(*a))
    return calls


def assert_same(one, two):
    for a, b in zip(one, two, strict=True):
        for entry in fields(a):
            x, y = getattr(a, entry.name), getattr(b, entry.name)
            np.testing.assert_array_equal(x, y, err_msg=entry.name)
            if isinstance(x, np.ndarray):
                assert x.dtype == y.dtype and not x.flags.writeable and not y.flags.writeable


def test_the_second_time_comes_from_disk_and_is_the_same(data, tmp_path, reads, monkeypatch):
    place = tmp_path / "cache"
    monkeypatch.chdir(tmp_path)
    plain = cache.load(data, cache=None, **OPTIONS)
    cache.load(data, cache="none", **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == [data.name]
    first = cache.load(data, cache=place, **OPTIONS)
    assert len(reads) == 3
    second = cache.load([data], cache=place, **OPTIONS)
    assert len(reads) == 3
    assert_same(plain, first)
    assert_same(first, second)
    frames = readers.read(data)
    np.testing.assert_array_equal(second[0].forces, frames.forces)
    (entry,) = place.iterdir()
    assert not entry.name.startswith(".")


def test_anything_else_makes_another_entry(data, tmp_path, reads):
    place = tmp_path / "cache"
    cache.load(data, cache=place, **OPTIONS)
    others = [
        {"elements": (10, 18)}, {"cutoff": 4.5},
        {"format": "extxyz"}, {"energy": "zero"}, {"kinds": {"Ar1": "Ar"}},
    ]  # fmt: skip
    for n, other in enumerate(others, 2):
        cache.load(data, cache=place, **{**OPTIONS, **other})
        assert len(reads) == n
    cache.load(f"{data}@:3", cache=place, **OPTIONS)
    assert len(reads) == 7
    # The contents count, not the time of the file.
    times = data.stat()
    text = data.read_text()
    data.write_text(text.replace("energy=-", "energy=-1", 1))
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    cache.load(data, cache=place, **OPTIONS)
    assert len(reads) == 8
    data.write_text(text)
    cache.load(data, cache=place, **OPTIONS)
    assert len(reads) == 8


def test_what_is_odd_about_labels_is_said_each_time(tmp_path, caplog):
    """Also where nothing is read."""
    path = tmp_path / "a.xyz"
    path.write_text("1\nenergy=-1.0 free_energy=-1.25\nAr 0 0 0\n" * 2)
    for _ in range(2):
        caplog.clear()
        frames, _ = cache.load(path, cache=tmp_path / "cache", **OPTIONS)
        assert frames.energies.tolist() == [-1.25, -1.25]
        assert "has a free energy and another energy" in caplog.text


def test_the_place_of_a_file_does_not_count(data, tmp_path, reads, monkeypatch):
    """Whatever it was called by; messages and groups have the names that it has now."""
    place = tmp_path / "cache"
    first, _ = cache.load(data, cache=place, **OPTIONS)
    monkeypatch.chdir(tmp_path)
    again, _ = cache.load("data.xyz", cache=place, **OPTIONS)
    (tmp_path / "other").mkdir()
    moved = data.rename(tmp_path / "other" / "data.xyz")
    there, _ = cache.load([f"{moved}@:"], cache=place, **OPTIONS)
    assert len(reads) == 1
    assert [f.files for f in (first, again, there)] == [(str(data),), ("data.xyz",), (str(moved),)]
    renamed = moved.rename(tmp_path / "b.xyz")
    assert cache.load(renamed, cache=place, **OPTIONS)[0].group_names == ("b",)
    assert len(reads) == 2


def test_a_folder_with_systems(tmp_path, reads):
    for name in ("one", "two"):
        write_deepmd(tmp_path / "all" / name, trajectory(2))
    first, _ = cache.load(tmp_path / "all", cache=tmp_path / "cache", **OPTIONS)
    (tmp_path / "new").mkdir()
    moved = (tmp_path / "all").rename(tmp_path / "new" / "all")
    again, _ = cache.load(moved, cache=tmp_path / "cache", **OPTIONS)
    assert len(reads) == 1
    assert again.files == tuple(str(moved / name) for name in ("one", "two"))
    assert again.group_names == first.group_names == ("one", "two")
    # By a link, what is in it counts too.
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "one").symlink_to(moved / "one")
    before, _ = cache.load(tmp_path / "links", cache=tmp_path / "cache", **OPTIONS)
    path = moved / "one" / "set.000" / "energy.npy"
    np.save(path, np.load(path) + 100.0)
    after, _ = cache.load(tmp_path / "links", cache=tmp_path / "cache", **OPTIONS)
    np.testing.assert_allclose(after.energies, before.energies + 100.0)


def test_what_was_not_used_for_longest_goes(data, tmp_path, reads, monkeypatch):
    place = tmp_path / "cache"
    (place / "of a user").mkdir(parents=True)
    for k, cutoff in enumerate((3.0, 3.1, 3.2)):
        cache.load(data, cache=place, elements=(18, 10), cutoff=cutoff)
        for entry in cache.entries(place)[-1:]:
            os.utime(Path(entry.folder, "description.json"), (k, k))
    cache.load(data, cache=place, elements=(18, 10), cutoff=3.0)  # now the newest
    sizes = {e.folder: e.bytes for e in cache.entries(place)}
    assert len(sizes) == 3 and len(reads) == 3
    monkeypatch.setenv("PWMLFF_CACHE_LIMIT", str(2.5 * max(sizes.values()) / 2**30))
    cache.load(data, cache=place, elements=(18, 10), cutoff=3.3)
    assert len(cache.entries(place)) == 2
    for cutoff, count in ((3.0, 4), (3.3, 4), (3.1, 5)):
        cache.load(data, cache=place, elements=(18, 10), cutoff=cutoff)
        assert len(reads) == count
    assert (place / "of a user").is_dir()


def test_the_command_shows_and_clears(data, tmp_path):
    place = tmp_path / "cache"
    cache.load(data, cache=place, **OPTIONS)
    (place / "of a user").mkdir()
    words = ["data", "cache", "--folder", str(place)]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    (entry,) = found["entries"]
    files = [file for path in place.iterdir() for file in path.iterdir()]
    assert entry["files"] == [str(data)]
    assert entry["bytes"] == sum(file.stat().st_size for file in files)
    assert "1 entry in" in CliRunner().invoke(app, [*words, "--clear"]).stdout
    assert [path.name for path in place.iterdir()] == ["of a user"]
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["entries"] == []


def flipped(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


def other_pickle(path):
    np.save(path, np.array([{"a": 1}]), allow_pickle=True)


@pytest.mark.parametrize(
    "name, damage",
    [
        ("edges.rij.npy", flipped),
        ("frames.energies.npy", flipped),
        ("frames.numbers.npy", lambda path: path.unlink()),
        ("edges.j.npy", lambda path: path.write_bytes(path.read_bytes()[:-8])),
        ("edges.j.npy", lambda path: path.write_bytes(b"")),
        ("edges.j.npy", other_pickle),
        ("description.json", lambda path: path.write_text("{")),
        ("description.json", lambda path: path.write_text("[]")),
        ("description.json", lambda path: path.write_text('{"options": {}}')),
        ("description.json", lambda path: path.unlink()),
    ],
)
def test_a_damaged_entry_is_made_anew(data, tmp_path, reads, caplog, name, damage):
    place = tmp_path / "cache"
    first = cache.load(data, cache=place, **OPTIONS)
    (entry,) = place.iterdir()
    damage(entry / name)
    assert_same(first, cache.load(data, cache=place, **OPTIONS))
    assert len(reads) == 2
    assert "made anew" in caplog.text or (name, damage.__name__) == ("description.json", "<lambda>")
    assert_same(first, cache.load(data, cache=place, **OPTIONS))
    assert len(reads) == 2
    assert [path.name for path in place.iterdir()] == [entry.name]


def test_an_entry_of_other_options_is_not_taken(data, tmp_path, reads):
    place = tmp_path / "cache"
    cache.load(data, cache=place, **OPTIONS)
    (entry,) = place.iterdir()
    description = json.loads((entry / "description.json").read_text())
    description["options"]["cutoff"] = 5.0
    (entry / "description.json").write_text(json.dumps(description))
    cache.load(data, cache=place, **OPTIONS)
    assert len(reads) == 2


def test_where_nothing_can_be_written_work_goes_on(data, tmp_path, caplog, monkeypatch):
    (tmp_path / "file").write_text("")
    frames, edges = cache.load(data, cache=tmp_path / "file" / "cache", **OPTIONS)
    assert len(frames) == 6 and len(edges)
    assert "going on without a cache" in caplog.text

    caplog.clear()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    place = tmp_path / "cache"
    assert len(cache.load(data, cache=place, **OPTIONS)[0]) == 6
    assert "No space left on device; going on without a cache" in caplog.text
    assert not list(place.iterdir())


def test_a_file_that_cannot_be_used_leaves_nothing(data, tmp_path):
    place = tmp_path / "cache"
    with pytest.raises(Failure, match="holds Ne"):
        cache.load(data, cache=place, elements=(18,), cutoff=4.0)
    assert not place.exists() or not list(place.iterdir())


def test_the_default_place(data, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    cache.load(data, **OPTIONS)
    assert len(list((tmp_path / "xdg" / "pwmlff").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / ".cache" / "pwmlff"


def test_warnings_come_from_the_cache_too(data, tmp_path, caplog):
    lines = data.read_text().splitlines()
    for k in range(1, len(lines), 34):  # the energies turn round
        before, _, after = lines[k].partition(" energy=")
        value, _, rest = after.partition(" ")
        lines[k] = f"{before} energy={-float(value)} {rest}"
    data.write_text("\n".join(lines) + "\n")
    for _ in range(2):
        caplog.clear()
        cache.load(data, cache=tmp_path / "cache", **OPTIONS)
        (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert "sign of the forces is wrong" in record.getMessage()
        assert f"'{data}'" in record.getMessage() or "frame" not in record.getMessage()
        (tmp_path / "new").mkdir(exist_ok=True)
        data = data.rename(tmp_path / "new" / data.name)


def test_no_edges_and_no_labels(tmp_path):
    path = tmp_path / "far.xyz"
    path.write_text("2\n\nAr 0 0 0\nNe 0 0 90\n")
    first = cache.load(path, cache=tmp_path / "cache", **OPTIONS)
    assert len(first[1]) == 0
    assert_same(first, cache.load(path, cache=tmp_path / "cache", **OPTIONS))


def test_writers_at_the_same_time(data, tmp_path, caplog):
    place = tmp_path / "cache"
    start = threading.Barrier(4)
    results = []

    def work():
        start.wait()
        results.append(cache.load(data, cache=place, threads=1, **OPTIONS))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and len(list(place.iterdir())) == 1
    for other in results[1:]:
        assert_same(results[0], other)
    assert not [r for r in caplog.records if r.levelno == logging.WARNING]


def test_a_killed_writer_leaves_no_entry_and_its_rest_goes(data, tmp_path, monkeypatch):
    place = tmp_path / "cache"
    program = (
        "import os, numpy as np\n"
        "from pwmlff.data import cache\n"
        "real = np.save\n"
        "def save(path, array, **options):\n"
        "    real(path, array, **options)\n"
        "    if 'edges' in str(path): os.kill(os.getpid(), 9)\n"
        "np.save = save\n"
        f"cache.load({str(data)!r}, cache={str(place)!r}, elements=(18, 10), cutoff=4.0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -9
    (rest,) = place.iterdir()
    assert rest.name.startswith(cache.TEMPORARY)
    cache.load(data, cache=place, **OPTIONS)
    assert len(list(place.iterdir())) == 2  # the rest may be of a process that still writes
    os.utime(rest, (time.time() - 2 * cache.ABANDONED,) * 2)
    cache.load(data, cache=place, elements=(10, 18), cutoff=4.0)
    assert all(not path.name.startswith(".") for path in place.iterdir())
