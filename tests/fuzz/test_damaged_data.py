"""Damaged training data is refused by name, or read; nothing else, and nothing crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ase.io import write

from labelled_structures import trajectory

#: How many, and of which series: PWMLFF_MUTANTS=10000 PWMLFF_SEED=1 pytest tests/fuzz
COUNT = int(os.environ.get("PWMLFF_MUTANTS", "60"))
SEED = int(os.environ.get("PWMLFF_SEED", "0"))

# In a process of its own: a crash is a result, too. It names each mutant before it opens it.
WORKER = """
import json, random, sys, warnings
from collections import Counter
from pathlib import Path
from pwmlff.report import Failure
from pwmlff.train.check import Options, check

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
        report = check(Options([str(folder / name)], format=formats[name], cutoff=3.0))
        report.show()
        found["read"] += 1
    except Failure as failure:
        assert str(folder) in str(failure), failure
        found["refused"] += 1
    path.write_bytes(original)
print(json.dumps(found))
"""


def movement(structures) -> str:
    """Frames in PWmat's format."""
    lines = []
    for atoms in structures:
        energy = atoms.get_potential_energy()
        lines += [
            f" {len(atoms)} atoms,Iteration (fs) = 0.0, Etot,Ep,Ek (eV) = {energy} {energy} 0.0",
            " Lattice vector (Angstrom)",
            *(" {} {} {}".format(*row) for row in atoms.cell),
            " Position (normalized), move_x, move_y, move_z",
        ]
        for z, s in zip(atoms.numbers, atoms.get_scaled_positions(), strict=True):
            lines.append(" {} {} {} {} 1 1 1".format(z, *s))
        lines.append(" Force (-force, eV/Angstrom)")
        for z, f in zip(atoms.numbers, -atoms.get_forces(), strict=True):
            lines.append(" {} {} {} {}".format(z, *f))
        lines.append(" " + "-" * 40)
    return "\n".join(lines) + "\n"


def test_damaged_data_is_named_or_read(tmp_path: Path):
    dpdata = pytest.importorskip("dpdata")
    structures = trajectory(3)
    write(tmp_path / "a.xyz", structures)
    (tmp_path / "MOVEMENT").write_text(movement(structures))
    system = dpdata.LabeledSystem()
    for atoms in structures:
        system.append(dpdata.LabeledSystem(atoms, fmt="ase/structure"))
    system.to("deepmd/npy", str(tmp_path / "system"))
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path), str(COUNT), str(SEED)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert '"read"' in done.stdout and '"refused"' in done.stdout
