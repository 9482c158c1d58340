"""min_distance: atoms that come closer than a distance, or than any that a model has seen.

What is compared with is ase's distances in the frames of a dump, or in the data.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import read

import pwmlff.train
from edge_models import LennardJones
from harness import Lammps, thorough
from labelled_structures import trajectory
from pwmlff.models.saving import save_model
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
READ = "units metal\natom_modify map yes\nread_data atoms.data\n"
MOVE = "velocity all create 6000 1\nfix 1 all nve\ntimestep 0.001\n"


@pytest.fixture
def moving(lammps: Lammps) -> Lammps:
    lammps.save(BINARY.model(isotropic=True), "0.pt")
    lammps.data(crystal(2), [8, 72])
    return lammps


def nearest(atoms: Atoms) -> float:
    distances = atoms.get_all_distances(mic=True)
    np.fill_diagonal(distances, np.inf)
    return float(distances.min())


def script(options: str, steps: int = 60) -> str:
    style = f"pair_style pwmlff 0.pt {options}\npair_coeff * * O Hf\n"
    dump = "dump 1 all custom 1 all.dump id element x y z\ndump_modify 1 sort id element O Hf\n"
    return f"{READ}{style}{MOVE}{dump}run {steps}\n"


@pytest.mark.parametrize("engine", [thorough("torchscript"), "double", "device"])
@pytest.mark.parametrize("ranks", [1, 2, thorough(4)])
def test_stops_at_the_very_step(moving: Lammps, ranks: int):
    moving.run(script(""), ranks)
    frames = read(moving.folder / "all.dump", index=":", format="lammps-dump-text")
    closest = np.array([nearest(atoms) for atoms in frames])
    limit = float(np.sort(closest)[10])  # not of the first frame, and not of the closest one
    step = int(np.flatnonzero(closest < limit)[0])
    assert 0 < step < 60
    run = moving(script(f"min_distance {limit:.12g} stop"), ranks)
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    found = re.search(r"are (\S+) apart at step (\d+), closer than the min_distance", run.output)
    assert found and int(found[2]) == step
    assert float(found[1]) == pytest.approx(closest[step], abs=1e-3 * limit) or ranks > 1
    warned = moving.run(script(f"min_distance {limit:.12g} warn"), ranks)
    assert f"at step {step}, closer than" in warned.output
    assert "WARNING: Pair style pwmlff: atoms" in warned.output


def test_a_second_pair_style(moving: Lammps):
    """It looks at pairs of its own, though the list is the first one of each."""
    style = "pair_style pwmlff 0.pt min_distance 3.0 {}\npair_coeff * * O Hf\nrun 0\n"
    run = moving(READ + style.format("warn") + style.format("stop"))
    assert run.returncode != 0 and "closer than the min_distance" in run.output


def test_the_structure_is_stored(moving: Lammps):
    moving.save(BINARY.model(seed=1, isotropic=True), "1.pt")
    text = script("min_distance 3.0 stop capture 0 1e9 doubt.xyz").replace("0.pt", "0.pt 1.pt")
    run = moving(text, 2)
    assert run.returncode != 0
    assert "the structure is in 'doubt.failed.xyz'" in run.output
    assert len(read(moving.folder / "doubt.failed.xyz")) == 64


def test_distances_of_the_data(lammps: Lammps, tmp_path: Path):
    """Of each pair of elements: what a training has seen, and no warning within it."""
    frames = trajectory(6, step=0.05)
    settings = ["model.embedding=[4]", "model.fitting=[4]", "model.m2=2", "model.rmax=5.0"]
    settings += ["data.valid_fraction=0"]
    pwmlff.train.train(frames, ["Ne", "Ar"], tmp_path / "run", epochs=1, settings=settings)
    closest = {}
    for one, other in product((10, 18), repeat=2):
        distances = []
        for atoms in frames:
            among = atoms.get_all_distances(mic=True)
            np.fill_diagonal(among, np.inf)
            distances.append(among[np.ix_(atoms.numbers == one, atoms.numbers == other)].min())
        closest[one, other] = min(distances)
    (tmp_path / "0.pt").write_bytes((tmp_path / "run" / "best.pt").read_bytes())
    style = "pair_style pwmlff 0.pt min_distance auto {}\npair_coeff * * Ne Ar\nrun 0\n"

    def output(atoms: Atoms, action: str = "warn") -> str:
        lammps.data(atoms, [10, 18])
        return lammps(f"{READ}{style.format(action)}", ranks=2).output

    assert not any("closer than" in output(atoms) for atoms in frames[:2])
    atoms = frames[0].copy()
    i = int(np.flatnonzero(atoms.numbers == 10)[0])
    j = int(np.flatnonzero(atoms.numbers == 18)[0])
    atoms.set_distance(i, j, closest[10, 18] - 0.02, fix=0, mic=True)
    said = output(atoms, "stop")
    assert f"closer than any of the model's data, {closest[10, 18]:.4g}" in said


@pytest.mark.parametrize(
    "options,words",
    [
        ("min_distance 0 warn", ["min_distance is 0", "or auto"]),
        ("min_distance 1 perhaps", ["'perhaps'", "warn or stop"]),
        ("min_distance 1", ["min_distance"]),
        ("min_distance auto stop", ["does not say how close", "give a distance"]),
    ],
)
def test_errors(moving: Lammps, options: str, words: list[str]):
    run = moving(f"{READ}pair_style pwmlff 0.pt {options}\npair_coeff * * O Hf\nrun 0\n", 2)
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    for word in words:
        assert word in run.output, run.output


@pytest.mark.parametrize("engine", ["torchscript"])
def test_models_of_edges(lammps: Lammps):
    """Which make no candidates by species without it."""
    save_model(LennardJones(2.5), lammps.folder / "lj.pt")
    atoms = Atoms("Ar2", [(1, 1, 1), (1.95, 1, 1)], cell=[8, 8, 8], pbc=True)
    lammps.data(atoms, [18])
    style = "units lj\natom_modify map yes\nread_data atoms.data\npair_style pwmlff lj.pt {}\n"
    run = lammps(style.format("min_distance 0.96 stop") + "pair_coeff * * Ar\nrun 0\n")
    assert run.returncode != 0 and "are 0.95 apart at step 0" in run.output
