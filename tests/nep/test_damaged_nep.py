"""A damaged nep.txt is refused, with its line, or read as the model that it is now.

Two readers say the same: that of the kernels and that in Python.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ase import Atoms

from nep_files import CHARGED, HEADS, random_text

#: How many, and of which series: PWMLFF_MUTANTS=3000 PWMLFF_SEED=1 pytest tests/nep
COUNT = int(os.environ.get("PWMLFF_MUTANTS", "200"))
SEED = int(os.environ.get("PWMLFF_SEED", "0"))
HEAD_LINES = 8
WORDS = [
    b"nan", b"inf", b"-1", b"0", b"1e308", b"1e-320", b"1e999", b"99999999999999999999",
    b"2147483648", b"2.5", b"", b"\xc3\xa9", b"\x00", b"nep4_charge1", b"zbl", b"_", b"1 2", b"-",
    b"+", b"0x10", b"1e",
]  # fmt: skip

# In a process of its own: a crash is a result, too. It names each mutant before it opens it.
WORKER = r"""
import json, re, sys
from pathlib import Path
import numpy as np
from plain import PlainNep
from nep_parser import parse_nep
from pwmlff.evaluation.nep_file import of_network
from pwmlff.evaluation.nep_reference import evaluate_nep
from pwmlff.native import Network
from test_damaged_nep import cluster, mutants

def peak():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])

count, seed = int(sys.argv[1]), int(sys.argv[2])
Path("/proc/self/clear_refs").write_text("5")  # begins with what is resident now
before = peak()
refused = read = 0
for name, text in mutants(count, seed):
    print("# mutant", name, flush=True)
    try:
        model = PlainNep(text)
    except ValueError as error:
        assert re.search(r"line \d+ (found|says)", str(error)), error
        assert len(str(error).splitlines()) == 1, error
        model = None
    try:
        other = parse_nep(text)
    except ValueError as error:
        assert re.match(r"line \d+: found ", str(error)), error
        other = None
    assert (model is None) == (other is None), "one reader reads what the other one refuses"
    if model is None:
        refused += 1
        continue
    read += 1
    if other.last_charge is not None:  # test_charges.py evaluates them: these are no crystals
        own = of_network(Network(text, "nep"))
        for name in ("charge_mode", "last_charge", "root_epsilon", "last", "shift", "q_scaler"):
            assert np.array_equal(getattr(own, name), getattr(other, name)), name
        continue
    atoms = cluster(model.elements)
    found = model.evaluate(atoms, 300.0)
    try:
        same = evaluate_nep(other, atoms, 300.0)
    except ValueError:  # not finite
        continue
    assert np.allclose(found.energies, same.atom_energy, rtol=1e-9, atol=1e-9), "other numbers"
print(json.dumps({"refused": refused, "read": read, "grown": peak() - before}))
"""


def mutated(text: bytes, rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Damaged copies of one file, without an end."""
    lines = text.split(b"\n")

    def line() -> int:
        return int(rng.integers(HEAD_LINES if rng.random() < 0.6 else len(lines)))

    while True:
        changed = list(lines)
        one, two = line(), line()
        words = changed[one].split()
        if words:
            word = int(rng.integers(len(words)))
            others = changed[two].split() or [b""]
            new = [*WORDS, others[0], others[-1]][rng.integers(len(WORDS) + 2)]
            words[word] = new
            changed[one] = b" ".join(words)
            yield f"word {word} of line {one + 1} is {new!r}", b"\n".join(changed)
        changed = list(lines)
        changed[one], changed[two] = changed[two], changed[one]
        yield f"lines {one + 1} and {two + 1} exchanged", b"\n".join(changed)
        yield f"line {one + 1} is missing", b"\n".join(lines[:one] + lines[one + 1 :])
        yield f"line {one + 1} twice", b"\n".join([*lines[:one], lines[one], *lines[one:]])
        end = sum(len(part) + 1 for part in lines[: one + 1])
        yield f"line {one + 1} without end", text[: end - 1] + b" " + text[end:]
        place = int(rng.integers(len(text)))
        yield f"truncate {place}", text[:place]
        flipped = bytearray(text)
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(200 if rng.random() < 0.5 else len(text)))
            flipped[place] ^= 1 << int(rng.integers(8))
        yield f"flip {place}", bytes(flipped)
        size = int(2 ** rng.uniform(0, 8))
        place = int(rng.integers(len(text) - size))
        yield f"zero {place} {size}", text[:place] + bytes(size) + text[place + size :]
        yield f"append {size}", text + rng.bytes(size)


def mutants(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """The same ones for the same seed, of all forms in turns."""
    rng = np.random.default_rng(seed)
    texts = {name: random_text(head) for name, head in {**HEADS, **CHARGED}.items()}
    streams = {name: mutated(text, rng) for name, text in texts.items()}
    damaged = (
        (f"{name}: {what}", text)
        for name in itertools.cycle(streams)
        for what, text in [next(streams[name])]
        if text != texts[name]
    )
    return itertools.islice(damaged, count)


def cluster(elements: list[int]) -> Atoms:
    rng = np.random.default_rng(0)
    return Atoms([elements[k % len(elements)] for k in range(6)], rng.uniform(0, 4, (6, 3)))


def test_damaged_nep(tmp_path: Path):
    folder = Path(__file__).parent
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{folder.parent}", "OMP_NUM_THREADS": "1"}
    with (tmp_path / "output").open("w+") as stream:
        worker = subprocess.run(
            [sys.executable, "-c", WORKER, str(COUNT), str(SEED)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            timeout=60 + COUNT, check=False,
        )  # fmt: skip
        stream.seek(0)
        said = stream.read()
    assert worker.returncode == 0, said[max(0, said.rfind("# mutant")) :]
    found = json.loads(said.splitlines()[-1])
    assert found["refused"] + found["read"] == COUNT
    assert found["refused"] > COUNT / 2
    assert found["read"] > 0
    assert found["grown"] < 200_000, found  # KiB
