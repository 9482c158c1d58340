"""Other zeros of energies are told from other structures, and taken off to the meV."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111
from ase.io import write
from typer.testing import CliRunner

from pwmlff.cli import app
from pwmlff.data import neighbors, readers, sources
from pwmlff.data.frames import Frames
from pwmlff.train import comm, command, prepare
from wrong_data import raised, rattled

COPPER = bulk("Cu", "fcc", a=3.61, cubic=True).repeat((2, 2, 1))


def strained(scale: float) -> Atoms:
    atoms = COPPER.copy()
    atoms.set_cell(scale * np.asarray(atoms.cell), scale_atoms=True)
    return atoms


def alloy(gold: int, seed: int = 0) -> Atoms:
    atoms = bulk("Cu", "fcc", a=3.85, cubic=True).repeat((2, 2, 1))
    atoms.numbers[np.random.default_rng(seed).permutation(len(atoms))[:gold]] = 79
    return atoms


@pytest.fixture
def read(tmp_path: Path):
    def read(**parts: list[Atoms]) -> tuple[Frames, sources.Description]:
        for name, structures in parts.items():
            write(tmp_path / f"{name}.xyz", structures)
        frames = readers.read([tmp_path / f"{name}.xyz" for name in parts])
        edges = neighbors.find_edges(frames, frames.elements, 5.0)
        return frames, sources.describe(frames, edges)

    return read


def test_sound_sources_are_left_alone(read):
    """Temperatures, volumes, phases, surfaces and atoms alone, energies of which differ by eV."""
    frames, description = read(
        cold=rattled(COPPER, 0.02, 12, 0),
        hot=rattled(COPPER, 0.15, 12, 1),
        dense=rattled(strained(0.95), 0.05, 12, 2),
        wide=rattled(strained(1.07), 0.05, 12, 3),
        bcc=rattled(bulk("Cu", "bcc", a=2.87, cubic=True).repeat(2), 0.05, 12, 4),
        slab=rattled(fcc111("Cu", (2, 2, 4), vacuum=6.0, periodic=True), 0.05, 12, 5),
        alone=rattled(Atoms("Cu", cell=[9.0] * 3, pbc=True), 0.1, 4, 6),
        mixed=[atoms for gold in (4, 8, 12) for atoms in rattled(alloy(gold), 0.05, 4, gold)],
        gold=rattled(bulk("Au", "fcc", a=4.08, cubic=True).repeat((2, 2, 1)), 0.05, 8, 7),
    )
    per_atom = frames.energies / frames.natoms
    assert np.ptp(per_atom) > 3.0
    assert sources.findings(frames, sources.offsets(frames, description)) == []
    same, texts = sources.aligned(frames, sources.offsets(frames, description))
    np.testing.assert_array_equal(same.energies, frames.energies)
    assert texts == []


@pytest.mark.parametrize("size", [0.05, 0.1])  # as at the same temperature, and at another one
def test_another_zero_of_one_composition(read, size):
    frames, description = read(
        a=rattled(COPPER, 0.05, 15, 0), b=raised(rattled(COPPER, size, 15, 1), Cu=-0.4)
    )
    (finding,) = sources.findings(frames, sources.offsets(frames, description))
    assert finding.kind == "sources" and "per atom below those of" in finding.text
    assert "energies of atoms Cu -0.4" in finding.text or "Cu -0.39" in finding.text
    moved, (text,) = sources.aligned(frames, sources.offsets(frames, description))
    change = (moved.energies - frames.energies) / frames.natoms
    np.testing.assert_allclose(change, np.repeat([0.0, 0.4], 15), atol=0.01)
    assert "b.xyz" in text and "15 frames" in text


def test_the_energy_of_each_element(read):
    """Of alloys of several compositions; where there is one, what comes to the same."""
    off = {"Cu": 1.5, "Au": -0.7}
    several = (3, 6, 10)
    frames, description = read(
        a=[atoms for gold in several for atoms in rattled(alloy(gold, 1), 0.05, 8, gold)],
        b=raised(
            [atoms for gold in several for atoms in rattled(alloy(gold, 1), 0.05, 8, 50 + gold)],
            **off,
        ),
        c=raised(rattled(alloy(6, 1), 0.05, 8, 90), **off),
    )
    one, other = sources.offsets(frames, description)
    elements = dict(zip(frames.elements, one.energies, strict=True))
    assert elements == pytest.approx({29: 1.5, 79: -0.7}, abs=0.02) and one.compared.by_element
    assert "c.xyz" in other.name
    moved, _ = sources.aligned(frames, sources.offsets(frames, description))
    gold = gold_of(frames)
    expected = frames.energies - (frames.file > 0) * (1.5 * (16 - gold) - 0.7 * gold)
    np.testing.assert_allclose(moved.energies / 16, expected / 16, atol=0.01)


def gold_of(frames: Frames) -> np.ndarray:
    """Atoms of gold of each frame."""
    return np.add.reduceat((frames.numbers == 79).astype(int), frames.first[:-1])


def test_two_zeros_in_one_file(read):
    structures = [*rattled(COPPER, 0.05, 10, 0), *raised(rattled(COPPER, 0.05, 6, 1), Cu=2.0)]
    frames, description = read(a=structures)
    (finding,) = sources.findings(frames, sources.offsets(frames, description))
    assert "frames 10-15 of" in finding.text
    for k, atoms in enumerate(structures):
        atoms.info["config_type"] = "one" if k < 10 else "two"
    frames, description = read(a=structures)
    (finding,) = sources.findings(frames, sources.offsets(frames, description))
    assert "group 'two' of" in finding.text and "group 'one' of" in finding.text


def test_a_training_on_sources_with_other_zeros(tmp_path, caplog):
    """Found by the check, named in the log, and taken off what is learned from."""
    names = []
    for k, off in enumerate((0.0, 3.0, 0.0)):
        names.append(str(tmp_path / f"{k}.xyz"))
        write(names[-1], raised(rattled(COPPER, 0.05, 8, k), Cu=off))
    done = CliRunner().invoke(app, ["data", "check", *names, "--json"])
    (problem,) = json.loads(done.stdout)["problems"]
    assert done.exit_code == 1 and problem["kind"] == "sources" and "1.xyz" in problem["text"]
    given = {"data": names, "elements": "Cu", "output": tmp_path, "shift_sources": True,
             "settings": ["run.epochs=1", "data.cache=none", "model.rmax=4.0"]}  # fmt: skip
    asked = command._configured(None, given, command.Options())
    caplog.set_level(logging.INFO)
    learned, valid, _ = prepare.labelled(asked, [29], 4.0, comm.Serial())
    assert "shift_sources: energies of atoms Cu +" in caplog.text
    for part in (learned.frames, valid.frames):
        np.testing.assert_allclose(part.energies / part.natoms, 0.1, atol=0.15)
