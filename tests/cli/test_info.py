"""`pwmlff info` against what the models were made from."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from edge_models import MessagePassing
from systems import SYSTEMS, other_activation

BINARY = SYSTEMS["two elements, triclinic"]


def test_describes_a_file(pwmlff, binary: Path):
    found = pwmlff("info", "model.pt", "--json")
    assert found.returncode == 0, found.errors
    (model,) = found.json["models"]
    module = BINARY.model()
    assert model["kind"] == "DP"
    assert model["elements"] == ["O", "Hf"]
    assert model["cutoff"] == BINARY.rmax
    assert model["max_neighbor"] == BINARY.max_neighbor
    assert model["nparameters"] == sum(p.numel() for p in module.parameters())
    assert model["dtype"] == "float64"
    assert model["sizes"] == {"embedding": [6, 12, 12], "fitting": [10, 10, 7, 1], "m2": 6}
    assert model["sha256"] == hashlib.sha256(binary.read_bytes()).hexdigest()
    assert model["engine"].startswith("fused, precision double")


def test_table(pwmlff, binary: Path):
    found = pwmlff("info", "model.pt", "model.pt")
    assert found.returncode == 0
    for words in ("O Hf", "3.5", "float64", "can run as an ensemble"):
        assert words in found.output


def test_ensemble_conflict(pwmlff, binary: Path, tmp_path: Path):
    replace(BINARY, rmax=3.2).model().save(tmp_path / "cutoff.pt")
    replace(BINARY, elements=(8, 22)).model().save(tmp_path / "elements.pt")
    found = pwmlff("info", "model.pt", "cutoff.pt", "elements.pt", "--json")
    assert found.returncode == 1
    cutoff, elements = found.json["ensemble_conflicts"]
    assert "'cutoff.pt' has 3.2, 'model.pt' has 3.5" in cutoff
    assert "'elements.pt' has O Ti, 'model.pt' has O Hf" in elements


def test_other_activation(pwmlff, tmp_path: Path):
    """What the fused engine does not compute runs through the file's own code, and says why."""
    other_activation(BINARY.model()).save(tmp_path / "model.pt")
    found = pwmlff("info", "model.pt", "--json")
    assert found.returncode == 0
    (model,) = found.json["models"]
    assert model["engine"] == "torchscript"
    assert "from the file's own code" in model["reason"]


def test_bad_files(pwmlff, binary: Path, tmp_path: Path):
    (tmp_path / "text.pt").write_text("not a model\n")
    found = pwmlff("info", "absent.pt", "text.pt", "model.pt", "--json")
    assert found.returncode == 1
    absent, text = found.json["failures"]
    assert "found no model file 'absent.pt'" in absent
    assert "'text.pt' is not a TorchScript archive" in text
    assert len(found.json["models"]) == 1


def test_bad_precision(pwmlff, binary: Path):
    found = pwmlff("info", "model.pt", "--precision", "half", "--json")
    assert found.returncode == 1
    assert "precision is 'half', expected one of exact, double, mixed" in found.output


def test_edge_model(pwmlff, tmp_path: Path):
    torch.jit.script(MessagePassing([8, 72], 3.0)).save(tmp_path / "edge.pt")
    found = pwmlff("info", "edge.pt", "--json")
    assert found.returncode == 0, found.words
    (model,) = found.json["models"]
    assert (model["kind"], model["engine"], model["max_neighbor"]) == ("EDGE", "torchscript", None)
    assert (model["cutoff"], model["interaction_range"]) == (3.0, 6.0)
    assert "interaction range 6" in pwmlff("info", "edge.pt").words
