"""`pwmlff compare`: passes what is the same, fails what is not, reads what ase reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ase import Atoms
from ase.io import write

from edge_models import MessagePassing
from systems import SYSTEMS, crystal, other_activation

BINARY = SYSTEMS["two elements, triclinic"]


def test_every_combination(pwmlff, binary: Path, tmp_path: Path):
    """Crystal, slab and cluster in one file; two numbers of ranks, all engines and precisions."""
    cluster = Atoms("OHfO", positions=[(0, 0, 0), (1.9, 0, 0), (0, 2.1, 0)])
    frames = [crystal(1), SYSTEMS["two elements, slab"].atoms(), BINARY.atoms(), cluster]
    write(tmp_path / "frames.extxyz", frames)
    found = pwmlff(
        "compare", "model.pt", "--data", "frames.extxyz@:", "--np", "1,2", "--plot", "parity.png",
        "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.output + found.errors
    cases = found.json["cases"]
    ways = {(c["ranks"], c["engine"], c["precision"]) for c in cases}
    assert ways == {
        (ranks, *way)
        for ranks in (1, 2)
        for way in (
            ("torchscript", None), ("fused", "exact"), ("fused", "double"), ("fused", "mixed"),
        )
    }  # fmt: skip
    assert found.json["frames"] == 4
    worst = {c["precision"]: c["worst"]["force"] for c in cases}
    assert worst["exact"] < 1e-10 < worst["mixed"] < 1e-4
    assert (tmp_path / "parity.png").read_bytes().startswith(b"\x89PNG")


def test_fails_where_the_file_is_something_else(pwmlff, tmp_path: Path):
    """The reference computes tanh; this file does not."""
    other_activation(BINARY.model()).save(tmp_path / "model.pt")
    write(tmp_path / "POSCAR", crystal(1))
    found = pwmlff("compare", "model.pt", "--data", "POSCAR", "--np", "1")
    assert found.returncode == 1
    assert "FAIL" in found.output
    assert "engine torchscript device cpu: force differs by" in found.words
    asked = pwmlff(
        "compare", "model.pt", "--data", "POSCAR", "--np", "1", "--engine", "fused",
        "--precision", "double", "--json",
    )  # fmt: skip
    assert asked.returncode == 1
    assert "is not what the fused engine computes" in asked.json["cases"][0]["failure"]


def test_own_gates(pwmlff, binary: Path, tmp_path: Path):
    write(tmp_path / "a.xyz", BINARY.atoms(), format="extxyz")
    arguments = ("compare", "model.pt", "--data", "a.xyz", "--np", "1", "--engine", "fused")
    found = pwmlff(*arguments, "--precision", "double", "--tol", "force=1e-16", "--json")
    assert found.returncode == 1
    assert found.json["cases"][0]["failed"] == ["force"]


def test_elements_and_reduced_units(pwmlff, lj_models, tmp_path: Path):
    SYSTEMS["three elements, triclinic"].model().save(tmp_path / "three.pt")
    write(tmp_path / "a.extxyz", SYSTEMS["three elements, one without atoms"].atoms())
    fast = ("--np", "1", "--engine", "fused", "--precision", "exact", "--json")
    found = pwmlff("compare", "three.pt", "--data", "a.extxyz", "--elements", "Ti Sr", *fast)
    assert found.returncode == 0, found.output
    write(tmp_path / "ar.extxyz", Atoms("Ar4", cell=[2.5] * 3, pbc=True, scaled_positions=[
        (0, 0, 0), (0.5, 0.5, 0.02), (0.5, 0, 0.5), (0, 0.47, 0.5),
    ]))  # fmt: skip
    found = pwmlff("compare", lj_models[0], "--data", "ar.extxyz", *fast)
    assert found.returncode == 0, found.output


def test_edge_model(pwmlff, tmp_path: Path):
    """Messages over two rounds, across ranks and periodic boundaries."""
    torch.jit.script(MessagePassing([8, 72], 3.0)).save(tmp_path / "edge.pt")
    write(tmp_path / "a.extxyz", crystal(1))
    found = pwmlff("compare", "edge.pt", "--data", "a.extxyz", "--json")
    assert found.returncode == 0, found.output
    assert [(c["ranks"], c["engine"]) for c in found.json["cases"]] == [
        (1, "torchscript"),
        (2, "torchscript"),
    ]


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["absent.pt", "--data", "a.xyz"], "found no model file 'absent.pt'"),
        (["model.pt", "--data", "absent.xyz"], "ase cannot read 'absent.xyz'"),
        (["model.pt", "--data", "a.xyz", "--tol", "speed=1"], "--tol names speed"),
        (["model.pt", "--data", "a.xyz", "--tol", "force"], "--tol holds 'force'"),
        (["model.pt", "--data", "a.xyz", "--np", "0"], "--np is '0'"),
        (["model.pt", "--data", "a.xyz", "--engine", "steam"], "found steam; expected engines"),
        (["model.pt", "--data", "a.xyz", "--elements", "Hf Si"], "--elements names Hf Si"),
        (["model.pt", "--data", "ar.xyz"], "atom 0 has atomic number 18"),
        (["model.pt", "--data", "a.xyz", "--lmp", "absent/lmp"], "found no program 'absent/lmp'"),
        (
            ["model.pt", "--data", "a.xyz", "--mpirun", "true"],
            "; expected MPICH (hydra) or Open MPI",
        ),
    ],
)
def test_errors(pwmlff, binary: Path, tmp_path: Path, arguments, words):
    write(tmp_path / "a.xyz", BINARY.atoms(), format="extxyz")
    write(tmp_path / "ar.xyz", Atoms("Ar", cell=[9] * 3, pbc=True), format="extxyz")
    found = pwmlff("compare", *arguments)
    assert found.returncode == 2
    assert words in found.words
