"""Machine code beside the TorchScript of edge models: the same numbers, or passed over and told."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from test_numbers import assert_equal, assert_same_on_any_number_of_ranks, read

from edge_models import MessagePassing
from harness import Lammps
from pwmlff.convert import convert
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE
from pwmlff.models.saving import without_source_paths
from pwmlff.report import Failure
from systems import SYSTEMS

STYLE = "pair_style pwmlff model.pt\npair_coeff * * O Hf\n"
BINARY = SYSTEMS["two elements, triclinic"]


@pytest.fixture
def engine() -> str:
    """There is one only."""
    return "automatic"


def compiler(folder: Path, line: str):
    """Compile with the usual compiler, but have it run this line of a shell script first."""
    from torch._inductor import config  # slow to import

    usual = config.cpp.cxx[1]
    script = folder / Path(usual).name  # torch goes by the name
    script.write_text(f'#!/bin/sh\n{line}\nexec {usual} "$@"\n')
    script.chmod(0o755)
    return config.patch({"cpp.cxx": (None, str(script))})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A file with machine code, and the members that hold it; the file it was made of; another."""
    from torch._inductor import config

    if not hasattr(config.cpp, "march"):
        pytest.skip("this torch compiles for CPUs like this one alone")
    folder = tmp_path_factory.mktemp("compiled")
    for name, seed in (("plain", 0), ("other", 1)):
        model = MessagePassing([8, 72], 3.0, 2, seed)
        torch.jit.script(model).save(folder / f"{name}.pt")
    # The code is to ask for libraries that it does not call, as that of most compilers does.
    linking = 'case $* in *-shared*) set -- -Wl,--no-as-needed "$@";; esac'
    with compiler(folder, linking):
        report = convert(folder / "plain.pt", folder / "compiled.pt", compiled=True)
    assert report.engine == "compiled, float64"
    assert report.force_difference < 1e-12
    assert report.told["speed"].endswith(" ms as TorchScript")
    with zipfile.ZipFile(folder / "compiled.pt") as archive:
        members = {
            name.rpartition("/")[2]: archive.read(name)
            for name in archive.namelist()
            if "/extra/compiled-" in name
        }
    name = min(members, key=len)
    assert members.keys() == {name, name + ".sha256"}
    return folder, name, members[name]


def with_hash(name: str, package: bytes) -> dict[str, bytes]:
    return {name: package, name + ".sha256": hashlib.sha256(package).hexdigest().encode()}


def place(lammps: Lammps, models, name: str, extra: dict[str, bytes] | None = None) -> None:
    contents = (models[0] / name).read_bytes()
    (lammps.folder / "model.pt").write_bytes(without_source_paths(contents, extra))


def start(lammps: Lammps, ranks: int = 1):
    atoms = BINARY.atoms()
    prism = lammps.data(atoms, [8, 72])
    return lammps.run(f"{read(atoms)}{STYLE}{MEASURE}run 0\n{DUMP}", ranks), prism


@pytest.mark.parametrize("ranks", [1, 2])
def test_reference(lammps: Lammps, models, ranks):
    place(lammps, models, "compiled.pt")
    run, prism = start(lammps, ranks)
    assert re.search(r"engine +compiled, float64\n", run.output)
    assert_equal(lammps, run, evaluate(models[0] / "plain.pt", BINARY.atoms()), prism)


def test_any_number_of_ranks(lammps: Lammps, models):
    place(lammps, models, "compiled.pt")
    assert_same_on_any_number_of_ranks(lammps, share=1e-10)


def test_atoms_with_few_neighbors(models):
    """No edge, a pair, which compilers take for other programs than many."""
    engine = choose(models[0] / "compiled.pt").engine
    assert engine.name == "compiled"
    system = BINARY.atoms()[:3]
    system.pbc = False
    for near in range(4):
        system.positions = [[10.0 * (k >= near) * k + 1.5 * k, 0.1 * k, 0.0] for k in range(3)]
        found, expected = engine(system), evaluate(models[0] / "plain.pt", system)
        np.testing.assert_allclose(found.atom_energy, expected.atom_energy, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=1e-12)


def test_opened_once(models):
    """The system never lets go of a library of g++: each further copy would stay in memory."""

    def libraries() -> int:
        return len(re.findall(r"\.wrapper.*\.so", Path("/proc/self/maps").read_text()))

    path = models[0] / "compiled.pt"
    first = choose(path).engine(BINARY.atoms())
    mapped = libraries()
    assert mapped > 0
    for _ in range(3):
        assert choose(path).engine(BINARY.atoms()).energy == first.energy
    assert libraries() == mapped


@pytest.mark.parametrize(
    "case",
    ["of another model", "for another torch", "cut off", "altered", "of an older release",
     "not asked"],
)  # fmt: skip
def test_passed_over(lammps: Lammps, models, case):
    """The TorchScript runs where machine code gives other numbers or cannot be used."""
    folder, member, package = models
    whole = with_hash(member, package)
    altered = bytearray(package)
    altered[len(package) // 2] ^= 1
    name, extra, words = {
        "of another model": ("other.pt", whole, r"energies differ by"),
        "for another torch": (
            "plain.pt", with_hash("compiled-1.0-Z80.pt2", package),
            r"of its compiled code \(compiled-1\.0-Z80\.pt2\) nothing is for torch 2\.\d+ on a CPU",
        ),
        "cut off": ("plain.pt", with_hash(member, package[:1000]), r""),
        "altered": ("plain.pt", {**whole, member: bytes(altered)}, r"has another SHA-256"),
        "of an older release": ("plain.pt", {member: package}, r"gave it no SHA-256"),
        "not asked": ("compiled.pt", None, r""),
    }[case]  # fmt: skip
    place(lammps, models, name, extra)
    keywords = " engine torchscript" * (case == "not asked")
    atoms = BINARY.atoms()
    prism = lammps.data(atoms, [8, 72])
    style = STYLE.replace("model.pt", "model.pt" + keywords)
    run = lammps.run(f"{read(atoms)}{style}{MEASURE}run 0\n{DUMP}")
    told = re.search(r"engine +torchscript, float64(.*)\n", run.output)
    assert told
    assert re.match(rf" \(.*{words}" if case != "not asked" else r"$", told[1]), told[1]
    assert_equal(lammps, run, evaluate(folder / name, atoms), prism)


class Odd(MessagePassing):
    """What it does depends on the lengths of edges."""

    def forward(
        self, edge_vec: torch.Tensor, edge_index: torch.Tensor, types: torch.Tensor, nlocal: int
    ) -> torch.Tensor:
        length = torch.linalg.vector_norm(edge_vec, dim=1)
        if bool((length > 2.0).any()):
            length = length.clamp(max=2.0)
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype)
        return energies.index_add(0, edge_index[0], length)


def test_what_cannot_be_compiled_is_told(tmp_path, models):
    torch.jit.script(Odd([8, 72], 3.0)).save(tmp_path / "odd.pt")
    with pytest.raises(Failure, match=r"odd.pt' cannot be compiled by torch: "):
        convert(tmp_path / "odd.pt", tmp_path / "a.pt", compiled=True)
    told = "a.h:4:10: fatal error: no omp.h\n1 error generated."
    broken = f"case $* in *--version*) ;; *) echo '{told}'; exit 1;; esac"
    refused = pytest.raises(Failure, match=r"by torch: error: no omp.h$")
    with compiler(tmp_path, broken), refused:
        convert(models[0] / "other.pt", tmp_path / "a.pt", compiled=True)
    BINARY.model().save(tmp_path / "dp.pt")
    with pytest.raises(
        Failure, match=r"is of kind DP, which the fused engine runs; leave out --comp"
    ):
        convert(tmp_path / "dp.pt", tmp_path / "a.pt", compiled=True)
    assert not (tmp_path / "a.pt").exists()
