"""Damaged training data is refused by name, or read; nothing else, and nothing crashes.

Of PWmat's files, what is read is what was written: no frame is made of parts of several.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import write

from harness import python
from labelled_structures import movement, trajectory
from pwmlff.data import readers
from pwmlff.data.frames import Frames
from pwmlff.report import Failure

#: How many, and of which series: PWMLFF_MUTANTS=10000 PWMLFF_SEED=1 pytest tests/fuzz
COUNT = int(os.environ.get("PWMLFF_MUTANTS", "60"))
SEED = int(os.environ.get("PWMLFF_SEED", "0"))

# In a process of its own: a crash is a result, too. It names each mutant before it opens it.
WORKER = """
import json, random, sys, warnings
from collections import Counter
from pathlib import Path
from pwmlff.report import Failure
from pwmlff.data.check import check

warnings.simplefilter("ignore")
folder, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
formats = {"a.xyz": "extxyz", "MOVEMENT": "movement", "system": "deepmd"}
words = [b"nan", b"1e999", b"1e6", b"-", b'"', b"\\n", b" ", b"=", b"0", b"9" * 20, b"[", b"T"]

def mutant(contents):
    contents = bytearray(contents)
    for _ in range(rng.choice([1, 1, 2, 5])):
        begin = rng.randrange(len(contents) + 1)
        end = min(len(contents), begin + rng.choice([1, 1, 4, 30, 400]))
        kind = rng.randrange(5)
        if kind == 0:
            del contents[begin:end]
        elif kind == 1:
            contents[begin:begin] = contents[begin:end]
        elif kind == 2:
            contents[begin:end] = rng.choice(words)
        elif kind == 3:
            contents[begin:begin + 1] = bytes([rng.randrange(256)])
        else:
            del contents[rng.choice([begin, 500]):rng.choice([end, len(contents)])]
    return bytes(contents)

found = Counter()
for n in range(count):
    name = rng.choice(sorted(formats))
    path = folder / name
    if path.is_dir():
        path = rng.choice(sorted(p for p in path.rglob("*") if p.is_file()))
    original = path.read_bytes()
    path.write_bytes(mutant(original))
    print("# mutant", n, "of", path.relative_to(folder), flush=True)
    try:
        report = check([str(folder / name)], format=formats[name], cutoff=3.0)
        report.show()
        found["read"] += 1
    except Failure as failure:
        assert str(folder) in str(failure), failure
        found["refused"] += 1
    path.write_bytes(original)
print(json.dumps(found))
"""


def test_damaged_data_is_named_or_read(tmp_path: Path):
    dpdata = pytest.importorskip("dpdata")
    structures = trajectory(3)
    write(tmp_path / "a.xyz", structures)
    (tmp_path / "MOVEMENT").write_text("".join(map(movement, structures)))
    system = dpdata.LabeledSystem()
    for atoms in structures:
        system.append(dpdata.LabeledSystem(atoms, fmt="ase/structure"))
    system.to("deepmd/npy", str(tmp_path / "system"))
    done = subprocess.run(
        python("-c", WORKER, tmp_path, COUNT, SEED),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert '"read"' in done.stdout and '"refused"' in done.stdout


#: What Python or C take for a number, and Fortran never writes; and what it writes in place of one.
NO_NUMBERS = (
    *(
        "1_0",
        "nan",
        "inf",
        "-Infinity",
        "0x1",
        "1.2.3",
        "--1",
        "1e999",
        "0.1,",
        "\u0663",
        "1d",
        ".",
    ),
    *("**********", "0.1-0.2", "T", "1.0 1.0", ""),
)


def damaged(lines: list[str], natoms: int, rng: random.Random) -> str:
    """A MOVEMENT whose frames were cut, joined or written over.

    Digits stay as they are, and never does a part vanish that is as long as a block: nothing in
    such a file tells that it was another.

    Args:
        lines: of a sound file whose frames have as many lines each.
        natoms: in each frame.
        rng: what happens to it.
    """
    headers = [row for row, line in enumerate(lines) if "Iteration" in line]
    size = headers[1] - headers[0]
    begin = rng.choice(headers)
    row = begin + rng.randrange(size)
    count = rng.choice([1, 1, 2, rng.randrange(1, natoms)])
    kind = rng.randrange(7)
    if kind == 0:  # killed, and a run after it
        cut = "".join(lines[:row]) + lines[row][: rng.randrange(len(lines[row]))]
        return cut + "".join(lines[rng.choice(headers) :])
    if kind == 1:
        lines[begin] = lines[begin].replace(f" {natoms} ", f" {rng.randrange(2 * natoms)} ", 1)
    elif kind == 2:
        del lines[row : min(row + count, begin + size)]
    elif kind == 3:
        place = begin + rng.randrange(size)
        lines[place:place] = lines[row : min(row + count, begin + size)]
    elif kind == 4:  # a word of a line
        words = lines[row].split(" ")
        words[rng.choice([n for n, word in enumerate(words) if word])] = rng.choice(NO_NUMBERS)
        lines[row] = " ".join(words).rstrip("\n") + "\n"
    elif kind == 5:
        words = lines[row].split()
        words.insert(rng.randrange(len(words) + 1), rng.choice(words))
        lines[row] = " " + " ".join(words) + "\n"
    else:  # a name of a block, or the end of a line
        names = [n for n in range(begin, begin + size) if lines[n].lstrip()[:1].isalpha()]
        name = rng.choice([*names, row])
        place = rng.choice([len(lines[name]) - 1, rng.randrange(len(lines[name]))])
        before, letter, after = lines[name][:place], lines[name][place], lines[name][place + 1 :]
        if letter not in "0123456789+-.E":
            lines[name] = before + rng.choice(["", "x", "*"]) + after
    return "".join(lines)


def is_one(frames: Frames, k: int, structures: list[Atoms]) -> bool:
    """Whether frame k has the energy, atoms, forces and virial of one of the structures."""
    found = frames.atoms(k)
    return any(
        np.array_equal(found.numbers, atoms.numbers)
        and np.allclose(found.positions, atoms.positions, atol=1e-9)
        and np.allclose(np.asarray(found.cell), np.asarray(atoms.cell), atol=1e-9)
        and np.isclose(frames.energies[k], atoms.get_potential_energy(), rtol=1e-9)
        and np.allclose(
            frames.forces[frames.first[k] : frames.first[k + 1]], atoms.get_forces(), atol=1e-9
        )
        and np.allclose(
            frames.virials[k], -atoms.get_volume() * atoms.get_stress(voigt=False), atol=1e-8
        )
        for atoms in structures
    )


def test_no_frame_of_a_damaged_movement_is_made_of_others(tmp_path: Path):
    structures = trajectory(4, strain=0.01, seed=SEED)
    lines = "".join(movement(s, t) for t, s in enumerate(structures)).splitlines(keepends=True)
    path = tmp_path / "MOVEMENT"
    rng = random.Random(SEED + 23)
    was_read = refused = 0
    for n in range(10 * COUNT):
        text = damaged(list(lines), len(structures[0]), rng)
        path.write_text(text)
        try:
            frames = readers.read(path, format="movement")
        except Failure as failure:
            assert f"of '{path}'" in str(failure) and "frame " in str(failure), failure
            refused += 1
        else:
            assert all(is_one(frames, k, structures) for k in range(len(frames))), (n, text)
            was_read += 1
    assert was_read and refused
