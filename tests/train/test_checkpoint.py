"""Checkpoints survive what may happen to them."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import zipfile
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from pwmlff.launch import interpreter
from pwmlff.report import Failure
from pwmlff.train import checkpoint
from pwmlff.train.checkpoint import latest, save


def arrays_of(step: int) -> dict[str, np.ndarray]:
    """Arrays of several types and shapes."""
    return {
        "parameters": np.arange(5000.0) + step,
        "adam.steps": np.array(step),
        "optimizer/m": np.full((3, 4), step, np.float32),
        "free": np.array([True, False]),
        "nothing": np.zeros((0, 3)),
    }


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """Whether they are equal to the last bit."""
    return found.keys() == expected.keys() and all(
        found[name].dtype == array.dtype
        and found[name].shape == array.shape
        and found[name].tobytes() == array.tobytes()
        for name, array in expected.items()
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    assert latest(folder) is None
    meta = {"config": {"batch": 4, "rate": 1 / 3}, "elements": ["Hf", "O"], "best": None}
    path = save(folder, 70, arrays_of(70), meta)
    found = latest(folder)
    assert (found.path, found.step, found.meta, found.skipped) == (path, 70, meta, ())
    assert same(found.arrays, arrays_of(70))
    with np.load(path) as archive:  # for people
        assert np.array_equal(archive["parameters"], arrays_of(70)["parameters"])


def test_the_newest_are_kept(tmp_path: Path):
    (tmp_path / "a.pt").write_text("of the user")
    for step in (10, 20, 30, 15):  # the last after going back
        save(tmp_path, step, arrays_of(step), {}, keep=3)
    assert names(tmp_path) == [
        *("a.pt", "checkpoint-000002.npz", "checkpoint-000003.npz", "checkpoint-000004.npz")
    ]
    assert latest(tmp_path).step == 15


def test_damage_anywhere_is_seen(tmp_path: Path):
    old = save(tmp_path, 1, arrays_of(1), {})
    new = save(tmp_path, 2, arrays_of(2), {})
    sound = new.read_bytes()
    rng = np.random.default_rng(0)
    places = [
        0,
        20,
        len(sound) - 1,
        len(sound) - checkpoint.TRAILER,
        *rng.integers(len(sound), size=40),
    ]
    for place in places:
        damaged = bytearray(sound)
        damaged[place] ^= 1 << int(rng.integers(8))
        new.write_bytes(damaged)
        found = latest(tmp_path)
        assert (found.path, found.step) == (old, 1), f"byte {place}"
        assert same(found.arrays, arrays_of(1))
        assert f"'{new}' is damaged" in found.skipped[0]
    for length in (0, 50, len(sound) // 2, len(sound) - 1):
        new.write_bytes(sound[:length])
        assert latest(tmp_path).step == 1
    old.unlink()
    with pytest.raises(Failure, match="found no sound checkpoint in"):
        latest(tmp_path)
    new.write_bytes(sound)
    assert latest(tmp_path).step == 2


def sealed(content: bytes, layout: bytes = checkpoint.FORMAT) -> bytes:
    """An archive with a sound end."""
    digest = blake2b(content + layout, digest_size=checkpoint.DIGEST // 2)
    return content + layout + digest.hexdigest().encode()


def test_another_layout_is_refused(tmp_path: Path):
    save(tmp_path, 1, arrays_of(1), {})
    new = save(tmp_path, 2, arrays_of(2), {})
    content = new.read_bytes()[: -checkpoint.TRAILER]
    new.write_bytes(sealed(content))
    assert latest(tmp_path).step == 2
    new.write_bytes(sealed(content, checkpoint.MARK + b"0001"))
    with pytest.raises(Failure, match=r"layout b'0001' .* expected b'0002': it is of another rel"):
        latest(tmp_path)


class Harmful:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_no_code_is_executed(tmp_path: Path):
    trace, objects = tmp_path / "trace", np.array([Harmful(tmp_path / "trace")])
    with pytest.raises(ValueError, match="allow_pickle"):
        save(tmp_path, 1, {"objects": objects}, {})
    assert names(tmp_path) == []
    path = save(tmp_path, 1, {}, {})
    with zipfile.ZipFile(tmp_path / "made", "w") as archive:
        archive.writestr("meta.json", json.dumps({"step": 1, "meta": {}}))
        with archive.open("objects.npy", "w") as member:
            np.lib.format.write_array(member, objects, allow_pickle=True)
    path.write_bytes(sealed((tmp_path / "made").read_bytes()))
    with pytest.raises(Failure, match=r"holds what is no checkpoint: .*allow_pickle"):
        latest(tmp_path)
    assert not trace.exists()
    with np.load(tmp_path / "made", allow_pickle=True) as archive:
        archive["objects"]
    assert trace.exists()  # it would have


@pytest.mark.parametrize("fails", ["fsync", "rename"])
def test_full_disk(tmp_path: Path, monkeypatch, fails: str):
    save(tmp_path, 1, arrays_of(1), {})
    before = names(tmp_path)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = {"fsync": (os, "fsync"), "rename": (Path, "replace")}[fails]
    monkeypatch.setattr(*target, full)
    with pytest.raises(Failure, match=r"checkpoint-000002.npz': No space left on device; earlier"):
        save(tmp_path, 2, arrays_of(2), {})
    monkeypatch.undo()
    assert names(tmp_path) == before
    assert latest(tmp_path).step == 1
    save(tmp_path, 3, arrays_of(3), {}, keep=1)
    assert names(tmp_path) == ["checkpoint-000002.npz"]


def test_the_system_stops_a_file_halfway(tmp_path: Path):
    """As a full disk or a quota does, within an array."""
    save(tmp_path, 1, arrays_of(1), {})
    before = names(tmp_path)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
    try:
        with pytest.raises(Failure, match="File too large; earlier checkpoints are kept"):
            save(tmp_path, 2, arrays_of(2), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert names(tmp_path) == before
    assert latest(tmp_path).step == 1


#: Children that write checkpoints until they are killed, 20 times; prints how often they were seen.
KILLED = """
import os, random, signal, time
import numpy as np
from pwmlff.files import SCRATCH
from pwmlff.train.checkpoint import latest, save

folder = sys.argv[1]
before = killed_meanwhile = 0
for k in range(20):
    child = os.fork()
    if child == 0:
        step = before
        while True:
            step += 1
            save(folder, step, {"x": np.full(100_000, step), "y": np.array(step)}, {"step": step})
    time.sleep(random.Random(k).uniform(0.01, 0.08))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    killed_meanwhile += any(SCRATCH.fullmatch(name) is not None for name in os.listdir(folder))
    found = latest(folder)
    if found is None:
        continue
    assert found.skipped == (), found.skipped
    assert found.meta == {"step": found.step} and found.arrays["y"] == found.step >= before
    assert (found.arrays["x"] == found.step).all()
    before = found.step
save(folder, before + 1, {}, {})
print(before, killed_meanwhile, *sorted(os.listdir(folder)))
"""


def test_killed_anywhere(tmp_path: Path):
    done = subprocess.run(
        interpreter.command("import sys" + KILLED, str(tmp_path)),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written, meanwhile, *files = done.stdout.split()
    assert int(written) > 0
    assert int(meanwhile) > 0  # else the times of the kills say nothing
    assert len(files) == 2
