"""`pwmlff info` against what the models were made from."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.io import write
from torch import Tensor, nn

import mace_oracle
from edge_models import Adjacent, LennardJones, MessagePassing
from labelled_structures import frames_of
from pwmlff import arrays
from pwmlff.evaluation import model_file
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.reference import evaluate
from pwmlff.models.saving import RECORD, rewritten
from pwmlff.report import Failure
from pwmlff.train.card import make
from pwmlff.train.config import from_command
from pwmlff.train.errors import compute as errors_of
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
    assert model["engine"] is None
    assert "--trust" in model["reason"]
    trusted = pwmlff("info", "model.pt", "--trust", "--json")
    (other,) = trusted.json["models"]
    assert other.pop("engine").startswith("fused, precision double")
    assert other.pop("reason") == ""
    assert model.items() >= other.items()  # what the loaded module says


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
    found = pwmlff("info", "model.pt", "--trust", "--json")
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
    assert found.returncode == 2
    assert "precision is 'half', expected one of exact, double, mixed" in found.output


def test_edge_model(pwmlff, tmp_path: Path):
    torch.jit.script(MessagePassing([8, 72], 3.0)).save(tmp_path / "edge.pt")
    for trust in ([], ["--trust"]):
        found = pwmlff("info", "edge.pt", *trust, "--json")
        assert found.returncode == 0, found.words
        (model,) = found.json["models"]
        assert (model["kind"], model["max_neighbor"]) == ("EDGE", None)
        assert (model["cutoff"], model["interaction_range"]) == (3.0, 6.0)
        assert (model["nparameters"], model["dtype"]) == (2, "float64")
        assert model["engine"] == ("torchscript" if trust else None)
    assert "interaction range 6" in pwmlff("info", "edge.pt").words


def test_precision_goes_with_trust(pwmlff, binary: Path):
    """Without, nothing would come of it."""
    found = pwmlff("info", "model.pt", "--precision", "mixed")
    assert found.returncode == 2
    assert "--precision mixed is that of the engine" in found.words and "--trust" in found.words
    found = pwmlff("info", "model.pt", "--precision", "mixed", "--trust", "--json")
    assert found.json["models"][0]["engine"].startswith("fused, precision mixed")


def test_no_file_is_there(pwmlff, tmp_path: Path):
    found = pwmlff("info", "a.pt", "b.pt", "--json")
    assert found.returncode == 2
    assert found.json["error"] == "found no model file 'a.pt'\nfound no model file 'b.pt'"


@pytest.mark.parametrize("name", ["m[a].pt", "d[/b].pt", ":smile:.pt"])
def test_names_with_brackets(pwmlff, binary: Path, tmp_path: Path, name: str):
    """No markup: neither swallowed nor an error."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    binary.rename(tmp_path / name)
    found = pwmlff("info", name)
    assert found.returncode == 0, found.words
    assert name in found.output


class Parts(nn.Module):
    """Constants, a tensor of elements, a module that is there twice, parameters of two types."""

    __constants__ = ("cutoff", "model_type")

    def __init__(self):
        super().__init__()
        self.model_type, self.cutoff, self.interaction_range = "EDGE", 4.0, 8
        self.atom_type = torch.tensor([[72, 0], [8, 0]])[:, 0]
        self.one = self.other = nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 2).double())
        self.register_buffer("buffer", torch.zeros(7))
        self.plain = torch.zeros(5)

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        return self.one(edge_vec) + self.other(edge_vec) + self.cutoff + len(self.model_type)


def test_tables_say_what_the_loaded_module_says(tmp_path: Path):
    path = tmp_path / "parts.pt"
    torch.jit.script(Parts()).save(path)
    found = model_file.describe_unopened(path)
    assert found == model_file.open_model(path)[1]
    assert found.atom_type == (72, 8)
    assert (found.cutoff, found.interaction_range) == (4.0, 8.0)
    assert (found.nparameters, found.dtype) == (3 + 3 + 6 + 2, "float32, float64")


class Runs(nn.Module):
    """Its code runs when it is loaded."""

    def __init__(self):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", 4.0, [8]
        self.part = Trap()

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        return self.part(edge_vec)


class Trap(nn.Module):
    def __init__(self):
        super().__init__()
        self.training = False

    @torch.jit.export
    def __getstate__(self) -> int:
        return 0

    @torch.jit.export
    def __setstate__(self, state: int) -> None:
        self.training = False
        print("the code of the file runs")

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_code_is_not_run(process, tmp_path: Path):
    torch.jit.script(Runs()).save(tmp_path / "model.pt")
    found = process("info", "model.pt")
    assert found.returncode == 0, found.words
    assert "code of the file runs" not in found.words
    assert "--trust" in found.words
    assert "the code of the file runs" in process("info", "model.pt", "--trust").words


def test_no_parameters(pwmlff, tmp_path: Path):
    torch.jit.script(LennardJones()).save(tmp_path / "lj.pt")
    assert ", 0 parameters," in pwmlff("info", "lj.pt").words.replace("│ 0", ", 0")


class Edge(nn.Module):
    """An EDGE model; those below differ from it by one fault."""

    def __init__(self, cutoff: float = 4.0, reach: float = 4.0):
        super().__init__()
        self.model_type, self.cutoff, self.atom_type = "EDGE", cutoff, [8, 72]
        self.interaction_range = reach
        self.weight = nn.Parameter(torch.tensor(1.5))

    def edge_energies(self, edge_vec: Tensor) -> Tensor:
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        return self.weight * torch.exp(-r) * (1.0 - (r / self.cutoff).square()).clamp(min=0.0) ** 3

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        result = torch.zeros(nlocal, dtype=edge_vec.dtype)
        inside = edge_index[0] < nlocal
        return result.index_add(0, edge_index[0][inside], self.edge_energies(edge_vec)[inside])


class Huge(Edge):
    """Energies of which the forces are the last digits."""

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        result = torch.full([nlocal], -1.0e7, dtype=edge_vec.dtype)
        inside = edge_index[0] < nlocal
        return result.index_add(0, edge_index[0][inside], self.edge_energies(edge_vec)[inside])


class HugeDetached(Huge):
    def edge_energies(self, edge_vec: Tensor) -> Tensor:
        r = torch.linalg.vector_norm(edge_vec, dim=1)
        smooth = (1.0 - (r / self.cutoff).square()).clamp(min=0.0) ** 3
        return self.weight * torch.exp(-r.detach()) * smooth


class Unannotated(Edge):
    def forward(self, edge_vec, edge_index, types, nlocal):
        return self.edge_energies(edge_vec)[nlocal:]


class AllAtoms(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        result = torch.zeros(len(types), dtype=edge_vec.dtype)
        return result.index_add(0, edge_index[0], self.edge_energies(edge_vec))


class Sum(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        return self.edge_energies(edge_vec).sum()


class Detached(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        result = torch.zeros(nlocal, dtype=edge_vec.dtype)
        return result.index_add(0, edge_index[0], self.edge_energies(edge_vec.detach()))


class PartlyDetached(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        energies = self.edge_energies(edge_vec) + self.edge_energies(0.5 * edge_vec).detach()
        return torch.zeros(nlocal, dtype=edge_vec.dtype).index_add(0, edge_index[0], energies)


class SingleInside(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        energies = self.edge_energies(edge_vec.to(torch.float32)).to(edge_vec.dtype)
        return torch.zeros(nlocal, dtype=edge_vec.dtype).index_add(0, edge_index[0], energies)


class SingleResult(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        energies = self.edge_energies(edge_vec).to(torch.float32)
        return torch.zeros(nlocal, dtype=torch.float32).index_add(0, edge_index[0], energies)


class SingleBuffer(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        return torch.zeros(nlocal).index_add(0, edge_index[0], self.edge_energies(edge_vec))


class ShortRange(MessagePassing):
    def __init__(self):
        super().__init__([8, 72], 3.0)
        self.interaction_range = 3.0


class NotANumber(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        energies = (self.edge_energies(edge_vec) - 2.0).sqrt()
        return torch.zeros(nlocal, dtype=edge_vec.dtype).index_add(0, edge_index[0], energies)


class Fails(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        if nlocal > 0:
            raise ValueError("not today")
        return self.edge_energies(edge_vec)


class Endless(Edge):
    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        step = 0
        while step < nlocal:
            step -= 1
        return self.edge_energies(edge_vec)


FAULTS = {
    Unannotated: ["its signature is", "write nlocal: int"],
    AllAtoms: ["energies of shape [25] for 12 of 25 atoms, expected [12]", "energies[:nlocal]"],
    Sum: ["energies of shape []", "not their sum"],
    Detached: ["do not depend on edge_vec", "detach()"],
    HugeDetached: ["the derivative of its energies is off", "detach()"],
    PartlyDetached: ["the derivative of its energies is off", "detach()"],
    SingleInside: ["the derivative of its energies is off", "float32"],
    SingleResult: ["energies in torch.float32, expected torch.float64"],
    SingleBuffer: ["its forward failed", "dtype=edge_vec.dtype"],
    Adjacent: ["depend on the order of the atoms"],
    ShortRange: ["beyond interaction_range 3", "rounds of message passing"],
    NotANumber: ["no numbers"],
    Fails: ["its forward failed", "not today"],
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_trial_of_an_edge_model(pwmlff, tmp_path: Path, fault):
    torch.jit.script(fault()).save(tmp_path / "edge.pt")
    found = pwmlff("info", "edge.pt", "--trust", "--json")
    assert found.returncode == 1, found.words
    (failure,) = found.json["failures"]
    assert failure.startswith("'edge.pt' does not run: ")
    assert all(words in failure for words in FAULTS[fault]), failure


@pytest.mark.parametrize("reach", [4.0, 8.0])
def test_trial_of_a_sound_edge_model(pwmlff, tmp_path: Path, reach: float):
    torch.jit.script(Edge(reach=reach)).save(tmp_path / "edge.pt")
    found = pwmlff("info", "edge.pt", "--trust")
    assert found.returncode == 0, found.words


def test_trial_of_huge_energies(pwmlff, tmp_path: Path):
    torch.jit.script(Huge()).save(tmp_path / "edge.pt")
    found = pwmlff("info", "edge.pt", "--trust")
    assert found.returncode == 0, found.words


def insert(path: Path, statement: str) -> None:
    """Put a statement of TorchScript at the beginning of the forward of a DP file."""
    with zipfile.ZipFile(path) as found:
        files = {name: found.read(name) for name in found.namelist()}
    first = b"    _0 = __torch__.pwmlff.models.dp._assemble\n"
    (code,) = (name for name in files if first in files[name])
    assert files[code].count(first) == 1
    files[code] = files[code].replace(first, f"    {statement}\n".encode() + first)
    with zipfile.ZipFile(path, "w") as made:
        for name, contents in files.items():
            made.writestr(name, contents)


def test_operation_of_another_program(pwmlff, binary: Path):
    """As models of DeePMD-kit have them: the class tells where it comes from."""
    insert(binary, "ops.deepmd.border_op(nghost)")
    assert pwmlff("info", "model.pt").returncode == 0
    (failure,) = pwmlff("info", "model.pt", "--trust", "--json").json["failures"]
    words = "'model.pt' is sound, but torch cannot load it, of class pwmlff.models.dp.DP: "
    assert failure.startswith(words)
    assert "deepmd::border_op. 'pwmlff convert' is for files of other programs" in failure


class OwnState(nn.Module):
    def __init__(self):
        super().__init__()
        self.cutoff = 4.0
        self.training = False

    @torch.jit.export
    def __getstate__(self) -> float:
        return self.cutoff

    @torch.jit.export
    def __setstate__(self, state: float) -> None:
        self.cutoff = state
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_attributes_that_code_makes(pwmlff, tmp_path: Path):
    torch.jit.script(OwnState()).save(tmp_path / "model.pt")
    (failure,) = pwmlff("info", "model.pt", "--json").json["failures"]
    assert "'model.pt' makes its attributes by code of its own" in failure
    assert "--trust" in failure


def test_code_that_raises(pwmlff, binary: Path):
    """torch.jit.Error is no RuntimeError."""
    insert(binary, 'ops.prim.RaiseException("not today", "builtins.ValueError")')
    found = pwmlff("info", "model.pt", "--trust", "--json")
    assert found.returncode == 1
    assert "its forward failed on a test cluster" in found.json["failures"][0]
    assert "not today" in found.json["failures"][0]
    with pytest.raises(Failure, match="not today"):
        choose(binary, "fused")


class Attributes(nn.Module):
    """Attributes as they are given."""

    def __init__(self, attributes: dict):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return x


VALUES = {
    "tensor": torch.tensor([1.5, 2.5]),
    "text": "6.0",
    "list": [1.5],
    "pair": (1, "a"),
    "switch": True,
    "infinite": math.inf,
    "not a number": math.nan,
    "large": 2**40,
    "negative": -1,
    "zero": 0,
    "nested": {"a": [1]},
    "nothing": None,
}
GOOD = {
    "DP": {"model_type": "DP", "units": "metal", "Rmax": 6.0, "maxNeighborNum": 100, "M2": 4,
           "atom_type": [8], "sel": [90], "dtype": "float64", "type_vector": {8: [1.0]},
           "zbl_radii": [[1.0, 2.0]]},
    "EDGE": {"model_type": "EDGE", "units": "metal", "cutoff": 6.0, "interaction_range": 6.0,
             "atom_type": [8], "dtype": "float64"},
}  # fmt: skip
#: Attributes that other programs may give a file of kind DP with another meaning.
SHARED = {"model_type", "units", "M2", "sel", "dtype", "type_vector", "zbl_radii"}


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("value", VALUES)
def test_attributes_of_other_types(pwmlff, tmp_path: Path, kind: str, value: str):
    """Refused in one line that names the file, loaded or not; of a DP only what it has to have."""
    for name in GOOD[kind]:
        path = tmp_path / f"{name}.pt"
        torch.jit.script(Attributes({**GOOD[kind], name: VALUES[value]})).save(path)
        messages: list[object] = []
        for describe in (
            model_file.describe_unopened,
            lambda path: model_file.open_model(path)[1],
        ):
            try:
                described = describe(path)
            except Failure as failure:
                assert f"'{path}'" in str(failure)
                assert ("expected" in str(failure)) == (name != "model_type" or value == "text")
                assert kind == "EDGE" or name not in SHARED or value == "text"
                messages.append(str(failure).split(" is ")[0])
            else:
                optional = name in SHARED if kind == "DP" else value == "nothing"
                assert optional, described
                messages.append([described.sizes.get("m2"), described.sel, described.units])
        assert messages[0] == messages[1]
    good = tmp_path / "good.pt"
    torch.jit.script(Attributes(GOOD[kind])).save(good)
    assert model_file.describe_unopened(good).cutoff == 6.0


def test_code_that_never_ends(process, tmp_path: Path):
    torch.jit.script(Endless()).save(tmp_path / "edge.pt")
    found = process("info", "edge.pt", "--trust", PWMLFF_TRIAL_SECONDS="2")
    assert found.returncode == 1
    told = "'edge.pt': its forward on a test cluster has not come to an end within 2 seconds"
    assert told in found.words


def test_missing_attributes_name_the_class(pwmlff, tmp_path: Path):
    """As for a model of another program."""
    torch.jit.script(Attributes({})).save(tmp_path / "other.pt")
    found = pwmlff("info", "other.pt", "--json")
    (failure,) = found.json["failures"]
    assert "Attributes, has no attribute atom_type, Rmax, maxNeighborNum" in failure


def carded(tmp_path: Path, card: str | None) -> Path:
    """A model file with this text for its card."""
    path = tmp_path / "model.pt"
    scripted = torch.jit.script(BINARY.model())
    scripted.save(str(path), _extra_files={} if card is None else {"pwmlff.json": card})
    return path


def test_card(pwmlff, tmp_path: Path):
    """Written, shown, and without effect on what the file computes."""
    config = from_command(data=["a.xyz"], elements="O Hf", settings=["optimizer.ema=0.97"])
    structures = [BINARY.atoms(1), BINARY.atoms(2), BINARY.atoms(3)]
    train = frames_of(structures, [1.0, 2.0, 3.0], groups=["x", "y", "x"], file="a.xyz")
    valid = frames_of(structures[:1], [1.0])
    nothing = np.zeros(1), np.zeros((6, 3)), np.zeros((1, 3, 3))
    errors = errors_of(valid, *nothing)
    card = make(config, train, valid, valid_errors=errors, step=1000)
    path = tmp_path / "model.pt"
    BINARY.model().save(path, card)
    found = pwmlff("info", "model.pt", "--json")
    assert found.returncode == 0, found.words
    (model,) = found.json["models"]
    data = model["card"]["data"]
    assert data["train"]["frames"] == 3 and data["train"]["groups"] == {"x": 2, "y": 1}
    assert data["train"]["elements"] == ["O", "Hf"] and data["valid"]["frames"] == 1
    assert model["card"]["configuration"]["optimizer"]["ema"] == 0.97
    assert model["card"]["versions"]["torch"] == torch.__version__
    assert model["card"]["errors"]["valid"]["energy"]["rmse"] == pytest.approx(1000.0 / 6)
    assert model["card"]["errors"]["train"] is None
    assert model["card"]["step"] == 1000
    shown = pwmlff("info", "model.pt").words
    for words in ("3 frames of a.xyz, validated with 1", "energy - / 166.7 meV/atom", "torch 2."):
        assert words in shown
    BINARY.model().save(tmp_path / "plain.pt")
    atoms = BINARY.atoms()
    one, other = (
        choose(tmp_path / n, precision="exact").engine(atoms) for n in ("model.pt", "plain.pt")
    )
    assert one.energy == other.energy and (one.forces == other.forces).all()
    assert pwmlff("info", "plain.pt", "--json").json["models"][0]["card"] is None
    both = pwmlff("info", "plain.pt", "model.pt")
    assert both.returncode == 0 and "can run as an ensemble" in both.words


def record_of(path: Path) -> bytes:
    """The contents of a record behind its digest."""
    with zipfile.ZipFile(path) as archive:
        whole = archive.read(next(n for n in archive.namelist() if n.endswith(RECORD)))
    return whole.split(b"\n", 2)[2]


def sign(path: Path, record: bytes) -> None:
    """Put a record into a file, with the digest that counts there (models/record.h)."""
    with zipfile.ZipFile(path) as archive:
        members = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
    members.pop(f"extra/{RECORD}", None)
    digests = [f"{hashlib.sha256(members[n]).hexdigest()} {n}\n".encode() for n in sorted(members)]
    of_others = hashlib.sha256(b"".join(digests)).hexdigest().encode()
    digest = hashlib.sha256(of_others + record).hexdigest().encode()
    whole = b"pwmlff-record 2\n" + digest + b"\n" + record
    path.write_bytes(rewritten(path.read_bytes(), {f"extra/{RECORD}": whole}))


def test_a_record_that_was_signed_anew(pwmlff, tmp_path: Path):
    """It decides elsewhere; here the code of the file is asked, whatever stands beside it."""
    path, other = tmp_path / "model.pt", BINARY.model(seed=1, isotropic=True)
    other.save(path)
    forged = record_of(path)
    BINARY.model(isotropic=True).save(path)
    own = record_of(path)
    sign(path, own)
    assert pwmlff("info", "model.pt", "--trust").returncode == 0
    sign(path, forged)
    atoms = BINARY.atoms()
    energy = choose(path, precision="exact").engine(atoms).energy
    assert energy == pytest.approx(evaluate(other, atoms).energy)
    numbers = own
    for name, value in arrays.read(own).numbers.items():
        if name.startswith("trial.") and name.endswith(".0.energy"):
            numbers = numbers.replace(value.tobytes(), (value + 1e-3).tobytes())
    swapped = own.replace(np.float64([8, 72]).tobytes(), np.float64([72, 8]).tobytes())
    for record, words in (
        (forged, "its arrays give other energies"),
        (numbers, "with it the engine is torchscript, and without fused"),
        (swapped, "another kind, cutoff or list of elements"),
    ):
        sign(path, record)
        found = pwmlff("info", "model.pt", "--trust", "--json")
        (failure,) = found.json["failures"]
        assert found.returncode == 1
        assert "has a record that is not of its own code" in failure and words in failure


def test_a_sound_record_of_mace(pwmlff, tmp_path: Path):
    mace_oracle.save(tmp_path / "model.pt", mace_oracle.Shape())
    found = pwmlff("info", "model.pt", "--trust", "--json")
    assert found.returncode == 0, found.words
    assert found.json["models"][0]["engine"].startswith("fused")


def test_lmp_takes_a_file_with_a_card(pwmlff, tmp_path: Path):
    BINARY.model(isotropic=True).save(tmp_path / "model.pt", {"made": "today"})
    write(tmp_path / "frame.extxyz", BINARY.atoms())
    found = pwmlff(
        "compare", "model.pt", "--data", "frame.extxyz", "--np", "1", "--precision", "exact"
    )
    assert found.returncode == 0, found.words


def test_fingerprint_of_the_data():
    """Structures and labels count, in whatever width and files they come; names do not."""
    one = frames_of([BINARY.atoms(1), BINARY.atoms(2)], [1.0, 2.0])
    same = frames_of([BINARY.atoms(1), BINARY.atoms(2)], [1.0, 2.0], groups=["x", "y"], file="b")
    assert one.fingerprint == same.fingerprint
    assert replace(one, numbers=one.numbers.astype(np.int64)).fingerprint == one.fingerprint
    moved = one.positions.copy()
    moved[3, 1] += 1e-15
    for other in (
        replace(one, positions=moved),
        replace(one, energies=np.array([1.0, np.nan])),
        one.select([1, 0]),
    ):
        assert other.fingerprint != one.fingerprint


@pytest.mark.parametrize(
    "card",
    [
        "no JSON", "[1]", "{" * 100_000, '{"made": ' * 500 + "1" + "}" * 500, '{"made": 3}',
        '{"made": "\\u001b[31m red \\ud800", "errors": {"train": {"energy": {"rmse": true}}}}',
        '{"errors": {"train": {"energy": {"rmse": 1' + "0" * 400 + '}, "force": {"rmse": 1e999}}}}',
        '{"data": {"train": {"frames": 3, "files": [1, "a", {}]}, "valid": 7}}',
        '{"made": "' + "x" * (5 << 20) + '"}',
    ],
)  # fmt: skip
def test_cards_of_anyone(pwmlff, tmp_path: Path, card: str):
    """Neither an error nor a way to steer the terminal."""
    carded(tmp_path, card)
    for arguments in ([], ["--json"]):
        found = pwmlff("info", "model.pt", *arguments)
        assert found.returncode == 0, found.words
        assert "\x1b" not in found.output and "Hf" in found.output


def test_save_leaves_whole_files(tmp_path: Path, monkeypatch):
    """One that was there stays as it was where the new one cannot be written."""
    path = tmp_path / "model.pt"
    BINARY.model().save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        BINARY.model(seed=1).save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    path.chmod(0o640)
    BINARY.model(seed=1).save(path)
    assert path.read_bytes() != before and path.stat().st_mode & 0o777 == 0o640
