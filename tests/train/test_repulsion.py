"""[model] repulsion: ZBL of a Deep Potential begins below its data."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.data import covalent_radii
from ase.io import read

from labelled_structures import labelled, trajectory
from pwmlff import Calculator
from pwmlff.evaluation.model_file import open_model
from pwmlff.evaluation.nep_file import read_nep, write_nep
from pwmlff.launch.lmp import enclosed, evaluate
from pwmlff.launch.program import find
from pwmlff.models import DP, DPConfig
from pwmlff.report import Failure
from pwmlff.train import train

pytestmark = pytest.mark.usefixtures("undrawn")

SETTINGS = ["model.embedding=[6,6]", "model.fitting=[8]", "model.m2=2", "model.rmax=5.0",
            "model.max_neighbor=70", "run.validate_every=1", "data.valid_fraction=0.2"]  # fmt: skip
NEON, ARGON = 10, 18


def closest(structures: list[Atoms], pair: tuple[int, int]) -> float:
    """By ase."""
    least = np.inf
    for atoms in structures:
        distances = atoms.get_all_distances(mic=True)
        np.fill_diagonal(distances, np.inf)
        one, other = (atoms.numbers == z for z in pair)
        least = min(least, distances[np.ix_(one, other)].min())
    return float(least)


def trained(folder: Path, structures: list[Atoms], **settings: str) -> list[list[float]]:
    """The radii in the file folder/best.pt."""
    more = [f"model.{name}={value}" for name, value in settings.items()]
    elements = () if "finetune" in settings else ("Ne", "Ar")
    train(structures, elements, folder, epochs=1, settings=[*SETTINGS, *more])
    return open_model(folder / "best.pt")[1].zbl_radii


def scaled(structures: list[Atoms], factor: float) -> list[Atoms]:
    """With all lengths times a factor, labelled anew."""
    result = [atoms.copy() for atoms in structures]
    for atoms in result:
        atoms.set_cell(factor * np.asarray(atoms.cell), True)
    return [labelled(atoms) for atoms in result]


def assert_below_the_data(
    path: Path, bare: Path, outer: dict[tuple[int, int], float], structures: list[Atoms]
) -> None:
    """Dimers rise all the way down, and without ZBL the same parameters give the same for data."""
    calculator = Calculator(path, elements=[NEON, ARGON])
    for pair, begin in outer.items():
        r = np.arange(begin, 0.3, -0.02)
        energies = [calculator.get_potential_energy(Atoms(pair, [(0, 0, 0), (0, 0, x)])) for x in r]
        assert np.diff(energies).min() > 0.0, pair
    both = [Calculator(name) for name in (path, bare)]
    for atoms in structures:
        forces = [one.get_property("forces", atoms) for one in both]
        np.testing.assert_allclose(*forces, rtol=0, atol=1e-12)


def test_it_begins_below_the_data(tmp_path: Path):
    radii = trained(tmp_path / "first", trajectory(10))
    structures = read(tmp_path / "first" / "train.extxyz", index=":")  # as they were rounded
    pairs = [(NEON, NEON), (NEON, ARGON), (ARGON, NEON), (ARGON, ARGON)]
    for (inner, outer), pair in zip(radii, pairs, strict=True):
        assert outer == pytest.approx(0.9 * closest(structures, pair), abs=1e-12)
        assert inner == pytest.approx(0.7 * outer)
    path, bare = tmp_path / "first" / "best.pt", tmp_path / "bare.pt"
    module, info = open_model(path)
    module.zbl_radii = []
    module.save(str(bare))
    begin = {pair: outer for pair, (_, outer) in zip(pairs, radii, strict=True)}
    assert_below_the_data(path, bare, begin, structures)
    # Data of closer atoms move it inwards; those of others do not move it outwards.
    inwards = trained(tmp_path / "near", scaled(structures, 0.9), finetune=f"{path}")
    np.testing.assert_allclose(np.array(inwards)[:, 1], 0.9 * np.array(radii)[:, 1])
    assert info.zbl_radii == radii
    near_file = tmp_path / "near" / "best.pt"
    assert trained(tmp_path / "far", structures, finetune=f"{near_file}") == inwards
    assert trained(tmp_path / "none", structures, finetune=f"{bare}") == []


def test_in_a_nep(tmp_path: Path):
    """A table of the same radii in its file; in a fine-tuning none grows."""
    structures = trajectory(10)
    settings = ["nep.n_max=[2,2]", "nep.basis_size=[4,4]", "nep.neuron=4", "nep.cutoff=[5.0,4.0]",
                "model.kind=nep", "model.repulsion=zbl"]  # fmt: skip
    elements = ("Ne", "Ar")
    train(structures, elements, tmp_path / "first", epochs=1, settings=settings)
    path = tmp_path / "first" / "best.txt"
    found = read_nep(path)
    structures = read(tmp_path / "first" / "train.extxyz", index=":")
    assert found.zbl is not None and found.zbl_line == (0.0, 0.0)
    begin = {}
    for a, b in combinations_with_replacement(range(2), 2):
        pair = (found.elements[a], found.elements[b])
        inner, begin[pair] = found.zbl[a, b, :2]
        assert begin[pair] == pytest.approx(0.9 * closest(structures, pair), abs=1e-12)
        assert inner == pytest.approx(0.7 * begin[pair])
    bare = tmp_path / "bare.txt"
    write_nep(replace(found, zbl=None, zbl_line=()), bare)
    assert_below_the_data(path, bare, begin, structures)
    settings_on = [*settings, f"model.finetune={path}"]
    for factor, shrunk in ((0.9, 0.9), (1.1, 1.0)):
        folder = tmp_path / f"{factor}"
        train(scaled(structures, factor), (), folder, epochs=1, settings=settings_on)
        radii = read_nep(folder / "best.txt").zbl[..., 1]
        np.testing.assert_allclose(radii, shrunk * found.zbl[..., 1], rtol=1e-7)
    without = [*settings_on, "model.repulsion=none"]
    train(structures, (), tmp_path / "none", epochs=1, settings=without)
    assert read_nep(tmp_path / "none" / "best.txt").zbl is None
    for value in ("zbl", "none"):
        both = [*settings, "nep.zbl=2", f"model.repulsion={value}"]
        with pytest.raises(Failure, match=rf"'{value}' and \[nep\] zbl is 2, expected one of them"):
            train(structures, elements, tmp_path / "both", epochs=1, settings=both)


def test_which_pairs(tmp_path: Path):
    """Those that the data have from 0.6 of the sum of covalent radii on, by default."""
    atoms = Atoms("Ne4Ar4", pbc=True, cell=[12.0] * 3)
    sums = {
        pair: covalent_radii[list(pair)].sum()
        for pair in combinations_with_replacement((NEON, ARGON), 2)
    }
    structures = []
    for k, shift in enumerate(np.linspace(0.0, 0.2, 8)):
        atoms.positions = [[3.0 * n, 3.0 * n % 7, 0.5 * n] for n in range(8)]
        atoms.positions[1] = atoms.positions[0] + [0.5 * sums[NEON, NEON] + shift, 0, 0]
        atoms.positions[5] = atoms.positions[4] + [0.65 * sums[ARGON, ARGON] + shift, 0, 0]
        atoms.rattle(0.001, seed=k)
        structures.append(labelled(atoms))
    radii = np.array(trained(tmp_path / "auto", structures))
    assert radii[0].tolist() == [0.0, 0.0] and radii[3, 1] > 0.0
    assert (np.array(trained(tmp_path / "zbl", structures, repulsion="zbl"))[:, 1] > 0.0).all()
    assert trained(tmp_path / "none", structures, repulsion="none") == []
    # No atoms of these two elements near each other: below their contact.
    for one in structures:
        del one[[k for k in range(8) if k not in (0, 4)]]
        one.positions = [[0.0, 0.0, 0.0], [5.9, 6.0, 6.0]]
    structures = [labelled(one) for one in structures]
    radii = np.array(trained(tmp_path / "far", structures))
    np.testing.assert_allclose(radii[[1, 2], 1], sums[NEON, ARGON])
    with pytest.raises(Failure, match="repulsion is 'zbl' and units is 'lj', expected metal"):
        trained(tmp_path / "lj", structures, repulsion="zbl", units="lj")
    assert trained(tmp_path / "lj", structures, units="lj") == []


def test_it_is_what_lammps_calls_zbl(tmp_path: Path):
    """Below the inner radius, where LAMMPS's has no switch either; its constants differ by 4e-5."""
    elements, rng = [8, 72], np.random.default_rng(2)
    atoms = Atoms([8, 72, 8, 72, 8, 72], rng.uniform(0.0, 2.0, (6, 3)), cell=[9.0] * 3, pbc=True)
    shape = {"rmax": 4.5, "rmin": 0.5, "max_neighbor": 20, "m2": 2, "embedding": (4,)}
    forces, energies = [], []
    for radii in ((), [(4.0, 4.4)] * 4):
        path = tmp_path / f"{len(radii)}.pt"
        DP(DPConfig(elements, zbl_radii=radii, **shape), seed=1).save(path)
        style = f"pair_style pwmlff 1 {path}\npair_coeff * * O Hf\n"
        (found,) = evaluate(find(), tmp_path, [enclosed(atoms)], elements, style)
        forces.append(found.forces)
        energies.append(found.energy)
    style = (
        "pair_style zbl 4.0 4.4\npair_coeff 1 1 8 8\npair_coeff 1 2 8 72\npair_coeff 2 2 72 72\n"
    )
    (zbl,) = evaluate(find(), tmp_path, [enclosed(atoms)], elements, style)
    scale = np.abs(zbl.forces).max()
    assert scale > 10.0
    np.testing.assert_allclose(forces[1] - forces[0], zbl.forces, rtol=0, atol=2e-4 * scale)
    # LAMMPS moves each pair by a constant to end at zero: less than 0.1 eV here.
    assert energies[1] - energies[0] == pytest.approx(zbl.energy, rel=2e-4, abs=0.5)
