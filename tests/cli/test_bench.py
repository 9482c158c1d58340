"""`pwmlff bench`: a model and a structure are timed as asked for."""

from __future__ import annotations

import pytest
from ase import Atoms

from systems import SYSTEMS

DP = "two elements, triclinic"


@pytest.fixture
def structure(tmp_path, binary) -> str:
    SYSTEMS[DP].atoms().write(tmp_path / "structure.xyz")
    return "structure.xyz"


def test_times_what_is_asked_for(pwmlff, structure):
    """Each combination, every number of rounds; the best rate is told."""
    found = pwmlff(
        "bench", "model.pt", structure, "--through", "lmp,engine", "--engine", "fused",
        "--precision", "mixed", "--np", "1,2", "--threads", "1,2", "--rounds", 2, "--duration",
        "0.05s", "--replicate", 2, "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.words
    ways = [(c["way"], c["ranks"], c["threads"], c["precision"]) for c in found.json["cases"]]
    assert ways == [
        ("lmp", 1, 1, "mixed"), ("lmp", 1, 2, "mixed"), ("lmp", 2, 1, "mixed"),
        ("lmp", 2, 2, "mixed"), ("engine", 1, 1, "mixed"), ("engine", 1, 2, "mixed"),
    ]  # fmt: skip
    for case in found.json["cases"]:
        assert len(case["rates"]) == 2
        assert case["rate"] == max(case["rates"]) > 0
        assert case["atoms"] == 8 * len(SYSTEMS[DP].atoms())


def test_all_that_runs_the_file(pwmlff, structure):
    found = pwmlff("bench", "model.pt", structure, "--rounds", 1, "--duration", "50e-3", "--json")
    assert found.returncode == 2  # of letters, as all times are
    found = pwmlff("bench", "model.pt", structure, "--rounds", 1, "--duration", "0.05")
    assert found.returncode == 0, found.words
    for words in ("torchscript", "fused exact", "fused double", "fused mixed", "atom-steps/s"):
        assert words in found.words


def test_a_hot_cluster(pwmlff, tmp_path, binary):
    """Without a cell; atoms that leave the box it gets are not lost."""
    atoms = SYSTEMS[DP].atoms()
    atoms.cell, atoms.pbc = None, False
    atoms.write(tmp_path / "cluster.xyz")
    found = pwmlff(
        "bench", "model.pt", "cluster.xyz", "--through", "lmp,engine", "--engine", "fused",
        "--rounds", 1, "--duration", "0.5s", "--replicate", 2, "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.words
    assert {case["atoms"] for case in found.json["cases"]} == {8 * len(atoms)}


def test_limit(pwmlff, structure):
    """What does not fit is left out, and said."""
    found = pwmlff("bench", "model.pt", structure, "--engine", "fused", "--max-time", "0s")
    assert found.returncode == 0, found.words
    assert "3 cases did not fit into the time" in found.words


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--engine", "steam"], "found steam; expected engines"),
        (["--precision", "half"], "found half"),
        (["--through", "air"], "--through holds air; expected lmp, engine"),
        (["--threads", "many"], "--threads is 'many'"),
        (["--duration", "long"], "--duration is 'long', expected a time like"),
        (["--np", "1,100000"], "found 100000 ranks, expected at most"),
        (["--np", "1,2", "--mpirun", "absent"], "found no 'absent'"),
    ],
)
def test_errors(pwmlff, structure, arguments, words: str):
    found = pwmlff("bench", "model.pt", structure, *arguments)
    assert found.returncode == 2
    assert words in found.words


def test_another_element(pwmlff, tmp_path, binary):
    Atoms("OTi", positions=[[0, 0, 0], [2, 0, 0]]).write(tmp_path / "ti.xyz")
    found = pwmlff("bench", "model.pt", "ti.xyz", "--engine", "fused")
    assert found.returncode == 2
    assert "the elements that take part are" in found.words
