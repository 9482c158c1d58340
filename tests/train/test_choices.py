"""pwmlff data select, outliers, dedupe: against plain loops, and frames made to be found."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read, write
from typer.testing import CliRunner

import pwmlff.train
from harness import forked
from labelled_structures import frames_of
from pwmlff.cli import app
from pwmlff.data import choices, descriptors, neighbors
from pwmlff.data.labelled import Labelled, gathered


def labelled(atoms: Atoms, group: str = "md") -> Atoms:
    """With the energy and the forces of ase's effective medium potential."""
    result = atoms.copy()
    atoms.calc = EMT()
    result.calc = SinglePointCalculator(
        result, energy=atoms.get_potential_energy(), forces=atoms.get_forces()
    )
    result.info["config_type"] = group
    return result


def crystals(count: int, spread: float = 0.1) -> list[Atoms]:
    """Copper and gold with atoms off their places."""
    rng = np.random.default_rng(3)
    frames = []
    for _ in range(count):
        atoms = bulk("Cu", a=3.7, cubic=True).repeat(2)
        atoms.numbers[::3] = 79
        atoms.positions += spread * rng.standard_normal((len(atoms), 3))
        frames.append(labelled(atoms))
    return frames


def bare(atoms: Atoms) -> Labelled:
    return Labelled(atoms.numbers, atoms.positions, np.array(atoms.cell), atoms.pbc, 0)


def run(*words: object) -> dict:
    done = subprocess.run(
        forked("data", *words, "--json"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_descriptors_do_not_see_frame_or_order():
    atoms = crystals(1)[0]
    rng = np.random.default_rng(1)
    matrix, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    turned = Atoms(atoms.numbers, atoms.positions @ matrix, cell=atoms.cell @ matrix, pbc=True)
    turned.positions += 1.7
    turned = turned[rng.permutation(len(turned))]
    moved = atoms.copy()
    moved.positions[5] += 0.01
    frames = gathered([bare(one) for one in (atoms, turned, moved)], "a", "a")
    one, same, other = descriptors.describe_frames(frames, frames.elements, 5.0)
    assert np.abs(one - same).max() < 1e-10 * np.abs(one).max()
    assert np.abs(one - other).max() > 1e-4 * np.abs(one).max()


def test_moments_against_their_tensors():
    """The norms of moments of the third degree, written out."""
    atoms = crystals(1, spread=0.3)[0]
    edges = neighbors.find_edges(gathered([bare(atoms)], "a", "a"), [29, 79], 4.0)
    found = descriptors.describe_atoms(edges).reshape(len(atoms), 2, 4, 4)
    center, r = edges.centers, edges.distances
    u = edges.rij / r[:, None]
    chosen = (center == 7) & (edges.types[edges.j] == 1)
    weight = (1 - (r / 4.0) ** 2) ** 3 / (1 + r) ** 4
    tensor = np.einsum("e,ei,ej,ek->ijk", *(v[chosen] for v in (weight, u, u, u)))
    assert found[7, 1, 2, 3] == pytest.approx(np.linalg.norm(tensor), rel=1e-12)


@pytest.mark.parametrize("with_known", [False, True])
def test_farthest_points(with_known: bool):
    rng = np.random.default_rng(5)
    points = rng.standard_normal((60, 4))
    known = rng.standard_normal((3, 4)) if with_known else None
    chosen, distances = descriptors.farthest(points, 12, known)
    there = [] if known is None else list(known)
    for k, distance in zip(chosen, distances, strict=True):
        if there:
            away = [min(np.linalg.norm(p - q) for q in there) for p in points]
            assert k == int(np.argmax(away)) and distance == pytest.approx(max(away))
        there.append(points[k])
    twice = np.repeat(points[:3], 2, axis=0)
    assert len(descriptors.farthest(twice, 6)[0]) == 3
    twice[::2] += 1e-8
    assert len(descriptors.farthest(twice, 6)[0]) == 3


def test_select(tmp_path: Path):
    """A compressed crystal among ones that are alike is chosen first, with labels and group."""
    frames = crystals(20, 0.02)
    strange = bulk("Cu", a=3.3, cubic=True).repeat(2)
    strange.numbers[::3] = 79
    frames.insert(11, labelled(strange, "pressed"))
    write(tmp_path / "a.xyz", frames, format="extxyz")
    write(tmp_path / "known.xyz", frames[:5], format="extxyz")
    chosen, rest, png = (tmp_path / name for name in ("c.xyz", "r.xyz", "p.png"))
    found = run(
        "select", tmp_path / "a.xyz", "-n", 3, "--known", tmp_path / "known.xyz", "-o", chosen,
        "--rest", rest, "--plot", png,
    )  # fmt: skip
    assert found["chosen"][0]["index"] == 11 and len(found["chosen"]) == 3
    first = read(chosen, index=0)
    assert first.info["config_type"] == "pressed"
    assert first.get_potential_energy() == pytest.approx(frames[11].get_potential_energy())
    assert np.allclose(first.get_forces(), frames[11].get_forces(), atol=1e-7)
    assert len(read(rest, index=":")) == 18 and png.read_bytes().startswith(b"\x89PNG")


def test_outliers(tmp_path: Path):
    frames = crystals(30)
    frames[17].calc.results["forces"][3] += 60.0
    frames[4].calc.results["energy"] += 40.0
    write(tmp_path / "a.xyz", frames, format="extxyz")
    rest, plot = tmp_path / "r.xyz", tmp_path / "o.png"
    found = run("outliers", tmp_path / "a.xyz", "--rest", rest, "--plot", plot)
    assert {one["index"] for one in found["chosen"]} == {4, 17}
    assert len(read(rest, index=":")) == 28


def test_outliers_of_models(tmp_path: Path):
    """Wrong labels of forces that look like others; a model of these data tells."""
    frames = crystals(30)
    options = {"epochs": 3, "settings": ["model.rmax=4.5"]}
    pwmlff.train.train(frames, ["Cu", "Au"], tmp_path / "run", **options)
    frames[8].calc.results["forces"][:] = frames[8].calc.results["forces"][::-1] * 3
    write(tmp_path / "a.xyz", frames, format="extxyz")
    found = run("outliers", tmp_path / "a.xyz", "--model", tmp_path / "run" / "best.pt")
    assert 8 in {one["index"] for one in found["chosen"]}
    # A wrong energy, where each frame has a composition of its own.
    frames = crystals(30)
    for k, atoms in enumerate(frames):
        atoms.numbers[:] = 29
        atoms.numbers[: k + 1] = 79
        frames[k] = labelled(atoms)
    pwmlff.train.train(frames, ["Cu", "Au"], tmp_path / "alloys", **options)
    frames[8].calc.results["energy"] += 100.0
    write(tmp_path / "a.xyz", frames, format="extxyz")
    found = run("outliers", tmp_path / "a.xyz", "--model", tmp_path / "alloys" / "best.pt")
    assert 8 in {one["index"] for one in found["chosen"]}


def test_dedupe(tmp_path: Path):
    frames = crystals(4)
    again = frames[2].copy()
    again.rotate(37, "z", rotate_cell=True)
    again = again[::-1]
    write(tmp_path / "a.xyz", [*frames, labelled(again)], format="extxyz")
    found = run("dedupe", tmp_path / "a.xyz", "--rest", tmp_path / "r.xyz")
    assert [one["index"] for one in found["chosen"]] == [4]
    assert found["chosen"][0]["value"] < 1e-6 and "frame 2 of" in found["chosen"][0]["why"]
    assert len(read(tmp_path / "r.xyz", index=":")) == 4


def test_dedupe_writes_each_structure_once(tmp_path: Path):
    """All of the input where there are no duplicates."""
    frames = crystals(4)
    for name, structures in (("some", [*frames, frames[1]]), ("none", frames)):
        write(tmp_path / f"{name}.xyz", structures, format="extxyz")
        output = tmp_path / f"{name}_once.xyz"
        found = run("dedupe", tmp_path / f"{name}.xyz", "-o", output)
        assert found["written"] == {str(output): 4}
        for one, other in zip(frames, read(output, index=":"), strict=True):
            np.testing.assert_allclose(one.positions, other.positions, atol=1e-7)
            np.testing.assert_allclose(one.get_forces(), other.get_forces(), atol=1e-7)


@pytest.mark.parametrize("what", ["select", "dedupe"])
def test_a_file_that_finds_no_room(tmp_path: Path, what: str):
    """It is named, and nothing of it is left."""
    data, output = tmp_path / "in.xyz", tmp_path / "out.xyz"
    write(data, crystals(3), format="extxyz")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
    try:
        done = CliRunner().invoke(app, ["data", what, str(data), "-o", str(output)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert done.exit_code == 2
    assert " ".join(done.stderr.split()) == f"error: cannot use '{output}': File too large"
    assert list(tmp_path.iterdir()) == [data]


def test_isolated_atoms_are_beside_no_crystals() -> None:
    """Their energies, eV above those of crystals of one atom, are no outliers."""
    crystals = [Atoms("Cu", cell=(2.5, 2.5, 2.5), pbc=True)] * 3
    frames = frames_of([*crystals, Atoms("Cu")], [-3.0, -3.1, -2.9, 0.0])
    beside = choices.from_usual(frames, frames.energies_per_atom)
    np.testing.assert_allclose(beside, [0.0, -0.1, 0.1, np.nan], atol=1e-12)
