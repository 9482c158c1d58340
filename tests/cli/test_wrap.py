"""`pwmlff wrap`: files of other programs give the same numbers here, or are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import foreign_models
from pwmlff.engine import choose
from pwmlff.report import Failure
from pwmlff.trial import random_cluster
from pwmlff.wrap import command, wrap


def save(model: nn.Module, path):
    torch.jit.script(model.eval()).save(str(path))
    return path


DEEPMD = {
    "plain": {},
    "one-sided": {"one_sided": True},
    "no steps": {"step": False},
    "three elements": {"sel": (14, 17, 20), "vacuum": True, "seed": 3},
}


@pytest.mark.parametrize("name", DEEPMD)
def test_deepmd(tmp_path, name):
    """All that the project proves of a DP holds of it: the fused engine takes it."""
    path = save(foreign_models.deepmd(**DEEPMD[name]), tmp_path / "graph.pth")
    report = wrap(path, tmp_path / "a.pt")
    assert report.family == "DeePMD-kit, se_e2_a"
    assert report.engine.startswith("fused")
    assert report.energy_difference < 1e-12
    assert report.force_difference < 1e-12
    found = choose(tmp_path / "a.pt", "fused", "double").engine(
        random_cluster(4.0, report.model.atom_type, report.model.limit)
    )
    assert np.abs(found.forces).max() > 1e-2


def test_mace_and_nequip(tmp_path):
    rounds = {}
    for name, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        save(foreign_models.mace(dtype), tmp_path / f"{name}.pt")
    foreign_models.save_nequip(tmp_path / "nequip.pth")
    for name in ("f64.pt", "f32.pt", "nequip.pth"):
        report = wrap(tmp_path / name, tmp_path / f"our_{name}")
        assert report.energy_difference < (1e-12 if name == "f64.pt" else 1e-5)
        assert report.model.interaction_range == 8.0
        rounds[report.family] = report.told["rounds"]
        dtype = "float64" if name == "f64.pt" else "float32"
        assert report.engine == f"torchscript, {dtype}"
        engine = choose(tmp_path / f"our_{name}", "reference").engine
        cluster = random_cluster(4.0, [8, 72], None)
        expected = engine(cluster)
        found = choose(tmp_path / f"our_{name}").engine(cluster)
        close = 1e-10 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=close)
        assert np.abs(expected.forces).max() > 1e-2
    assert rounds == {"MACE": "2", "NequIP": "2"}


REFUSED = {
    "activation": (lambda: foreign_models.deepmd(activation="relu"), "function is relu"),
    "exclusion": (lambda: foreign_models.deepmd(no_exclusion=False), "exclude_types of its desc"),
    "no energy": (lambda: foreign_models.deepmd(exclude_types=[1]), "exclude_types of its fitting"),
    "parameters": (lambda: foreign_models.deepmd(numb_fparam=2), "numb_fparam"),
    "another": (lambda: nn.Linear(2, 2), r"class torch\.nn\.modules\.linear\.Linear, which is not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_wrapped_is_named(tmp_path, name):
    make, words = REFUSED[name]
    path = save(make(), tmp_path / "graph.pth")
    with pytest.raises(Failure, match=words):
        wrap(path, tmp_path / "a.pt")
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph.pth"]


def test_types_of_nequip_that_are_no_elements(tmp_path):
    foreign_models.save_nequip(tmp_path / "a.pth", names="O M")
    with pytest.raises(Failure, match="for the types O, M, expected chemical symbols"):
        wrap(tmp_path / "a.pth", tmp_path / "a.pt")


def test_other_numbers_are_not_written(tmp_path, monkeypatch):
    """The proof can fail: a reader that takes the wrong cutoff."""
    path = save(foreign_models.mace(), tmp_path / "mace.pt")

    def read(source):
        foreign = command.mace.read(source)
        foreign.module.cutoff, foreign.module.interaction_range = 3.9, 7.8
        return foreign

    monkeypatch.setattr(command, "READERS", (read,))
    with pytest.raises(Failure, match=r"energies of atoms differ by .*nothing was written"):
        wrap(path, tmp_path / "a.pt")
    assert not (tmp_path / "a.pt").exists()


def test_command(pwmlff, tmp_path):
    save(foreign_models.deepmd(), tmp_path / "graph.pth")
    done = pwmlff("wrap", tmp_path / "graph.pth", "-o", tmp_path / "a.pt", "--json")
    assert done.returncode == 0, done.words
    told = done.json
    assert told["model"]["sel"] == [16, 20]
    assert told["output"] == told["model"]["file"] == str(tmp_path / "a.pt")
    again = pwmlff("wrap", tmp_path / "a.pt", "-o", tmp_path / "b.pt")
    assert again.returncode == 2
    assert "keeps a contract of this project" in again.words
