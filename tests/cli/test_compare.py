"""`pwmlff compare`: passes what is the same, fails what is not, reads what ase reads."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.io import write

import dp_oracle
from cpp import ROOT
from edge_models import MessagePassing
from pwmlff import plugin
from pwmlff.commands import compare
from pwmlff.commands.compare import short_names
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch import lmp
from pwmlff.models import DP
from systems import SYSTEMS, crystal, other_activation

BINARY = SYSTEMS["two elements, triclinic"]
FAST = ("--np", "1", "--engine", "fused", "--precision", "exact", "--json")


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


def test_plugin_of_the_users_own(pwmlff, binary: Path, tmp_path: Path):
    """What is compared is what --plugin names."""
    write(tmp_path / "POSCAR", crystal(1))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / plugin.FILE).write_text("no library")
    command = ("compare", "model.pt", "--data", "POSCAR", "--np", "1", "--precision", "double")
    found = pwmlff(*command, "--engine", "fused", "--plugin", "broken", "--json")
    assert found.returncode == 1
    assert "Unrecognized pair style" in found.json["cases"][0]["failure"]
    assert pwmlff(*command, "--plugin", plugin.library()).returncode == 0


def test_names_that_lammps_would_split(pwmlff, binary: Path, tmp_path: Path):
    """Spaces, dollars, brackets: a folder of the user's may have any."""
    write(tmp_path / "POSCAR", crystal(1))
    folder = tmp_path / "my $models & d[/b] # one"
    folder.mkdir(parents=True)
    binary.rename(folder / "a b.pt")
    command = ("compare", folder / "a b.pt", "--data", "POSCAR", "--np", "1", "--engine", "fused")
    found = pwmlff(*command, "--precision", "exact")
    assert found.returncode == 0, found.words
    assert "a b.pt" in found.output


def test_picture_that_cannot_be_written(pwmlff, tmp_path: Path):
    """Said before the work: here there is not even a model."""
    found = pwmlff("compare", "absent.pt", "--data", "POSCAR", "--plot", "nodir/x.png")
    assert found.returncode == 2
    assert "cannot write 'nodir/x.png': found no folder 'nodir'" in found.words


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


def test_gate_of_one_atom_in_mixed_precision(pwmlff, tmp_path: Path):
    """A share of the largest, as when the pair style loads it: float32 nets and moments round."""
    atoms = bulk("HfO2", "fluorite", a=5.08, cubic=True).repeat(2)
    atoms.rattle(0.1)
    write(tmp_path / "a.extxyz", atoms)
    model = ROOT / "examples" / "hfo2" / "a.pt"
    found = pwmlff("compare", model, "--data", "a.extxyz", *FAST, "--precision", "mixed")
    assert found.returncode == 0, found.words
    (case,) = found.json["cases"]
    largest = np.abs(evaluate(model, atoms).atom_energy).max()
    assert case["gates"]["atom_energy"] == pytest.approx(5e-6 * largest)
    assert case["gates"]["energy"] == 1e-6


def test_own_gates(pwmlff, binary: Path, tmp_path: Path):
    write(tmp_path / "a.xyz", BINARY.atoms(), format="extxyz")
    arguments = ("compare", "model.pt", "--data", "a.xyz", "--np", "1", "--engine", "fused")
    found = pwmlff(*arguments, "--precision", "double", "--tol", "force=1e-16", "--json")
    assert found.returncode == 1
    assert found.json["cases"][0]["failed"] == ["force"]


def test_elements_of_each_structure(pwmlff, tmp_path: Path, monkeypatch):
    """Of a model of PWMLFF or MatPL; lmp is told them, too, and energies are those by NumPy."""
    told = []

    def noted(*arguments):
        told.append((arguments[5], results := run_in_lmp(*arguments)))
        return results

    run_in_lmp = compare.run_in_lmp
    monkeypatch.setattr(compare, "run_in_lmp", noted)
    arrays = dp_oracle.read()[0]
    DP.from_parameters(arrays, **vars(dp_oracle.TINY)).save(tmp_path / "model.pt")
    places = [[0.3, 0.2, 0.1], [2.2, 0.4, 0.3], [0.5, 2.3, 0.9]]
    frames = [Atoms(s, places, cell=[9.0] * 3, pbc=True) for s in ("Si3", "OSiO", "O3")]
    write(tmp_path / "a.extxyz", frames)
    assert pwmlff("compare", "model.pt", "--data", "a.extxyz@:", *FAST).returncode == 0
    ((elements, results),) = told
    assert elements == [[14], [14, 8], [8]]
    for atoms, counted, found in zip(frames, elements, results, strict=True):
        place = atoms.numbers, atoms.positions + 0j, np.asarray(atoms.cell) + 0j
        wanted = dp_oracle.atom_energies(arrays, *place, counted=counted).real
        np.testing.assert_allclose(found.atom_energy, wanted, atol=1e-10)


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


def test_structures_that_bring_types_along(pwmlff, binary: Path, tmp_path: Path):
    """Types of another order than the model's are none of LAMMPS's business."""
    atoms = crystal(1)
    atoms.arrays["type"] = np.where(atoms.numbers == 72, 1, 2)
    write(tmp_path / "a.extxyz", atoms)
    found = pwmlff("compare", "model.pt", "--data", "a.extxyz", *FAST)
    assert found.returncode == 0, found.output


DATA = """made by hand

{n} atoms
2 atom types
0.0 4.4 xlo xhi
0.0 4.4 ylo yhi
-1.0 3.4 zlo zhi
{sections}
Atoms {style}

{rows}
"""
SECTIONS = {
    "masses": "\nMasses\n\n1 178.5  # hafnium\n2 15.9994\n\nPair Coeffs # lj\n\n1 1 1\n2 1 1\n",
    "labels": "\nAtom Type Labels\n\n1 Hf\n2 O\n\nMasses\n\nHf 1.0\nO 1.0\n",
    "other labels": "\nAtom Type Labels\n\n1 big\n2 small\n\nMasses\n\nsmall 16\nbig 178\n",
    "nothing": "",
}


def data_file(
    path: Path, sections: str, style: str = "# atomic", form: str = "{i} {t} {x}"
) -> None:
    """The crystal with Hf as type 1 and O as type 2, atoms in another order."""
    atoms = crystal(1)
    rows = [
        form.format(i=k + 1, t=1 if atoms.numbers[k] == 72 else 2, x=" ".join(map(str, x)))
        for k, x in enumerate(atoms.positions)
    ]
    path.write_text(
        DATA.format(n=len(atoms), sections=sections, style=style, rows="\n".join(rows[::-1]))
    )


def test_only_the_head_tells_a_data_file(tmp_path: Path):
    """A file of a tebibyte, with its holes, is told at once; so is one with a long body."""
    data_file(tmp_path / "long.data", SECTIONS["masses"])
    for name, begin in (("long.data", (tmp_path / "long.data").read_bytes()), ("none", b"8\n")):
        (tmp_path / name).write_bytes(begin)
        os.truncate(tmp_path / name, 1 << 40)
        assert lmp.is_data_file(tmp_path / name) is (name == "long.data")


@pytest.mark.parametrize("name", SECTIONS)
def test_lammps_data(pwmlff, binary: Path, tmp_path: Path, name: str):
    """Elements of the types from the file, or from --elements; by itself, and with --format."""
    data_file(tmp_path / "hfo2.lmp", SECTIONS[name])
    given = ("--elements", "Hf O") if name == "nothing" else ()
    found = pwmlff("compare", "model.pt", "--data", "hfo2.lmp", *given, *FAST)
    assert found.returncode == 0, found.output
    read = lmp.read_data(tmp_path / "hfo2.lmp", ("Hf", "O") if given else ())
    assert list(read.numbers) == list(crystal(1).numbers)
    np.testing.assert_allclose(read.positions, crystal(1).positions)
    found = pwmlff(
        "compare", "model.pt", "--data", "hfo2.lmp", "--format", "lammps-data", "--elements",
        "O,Hf", *FAST,
    )  # fmt: skip
    assert found.returncode == 0, found.output  # swapped by the user, in both
    assert list(lmp.read_data(tmp_path / "hfo2.lmp", ("O", "Hf")).numbers) == [
        {8: 72, 72: 8}[z] for z in crystal(1).numbers
    ]


def test_atom_styles_of_lammps_data(pwmlff, binary: Path, tmp_path: Path):
    """A comment says it, or the number of columns; else the user."""
    for style, form in (("# charge", "{i} {t} 0.5 {x} 0 0 1"), ("", "{i} 7 {t} 0.5 {x}")):
        data_file(tmp_path / "a.data", SECTIONS["masses"], style, form)
        found = pwmlff("compare", "model.pt", "--data", "a.data", *FAST)
        assert found.returncode == 0, found.output
    data_file(tmp_path / "a.data", SECTIONS["masses"], "", "{i} {t} 0.5 {x}")
    found = pwmlff("compare", "model.pt", "--data", "a.data")
    assert found.returncode == 2
    assert "atom_style is not given: give that of the file" in found.words
    found = pwmlff("compare", "model.pt", "--data", "a.data", "--atom-style", "charge", *FAST)
    assert found.returncode == 0, found.output


@pytest.mark.parametrize(
    "sections,arguments,words",
    [
        ("nothing", (), "tells the elements of 0 of its 2 types"),
        ("masses", ("--elements", "Hf"), "given as Hf; 'a.data' has 2 types"),
        ("masses", ("--elements", "Hf,Oo"), "given as Hf Oo; 'a.data' has 2 types"),
        ("masses", ("--elements", "Hf,Si"), "--elements names Hf Si; 'model.pt' has O Hf"),
        ("masses", ("--atom-style", "dipole"), "atom_style is dipole"),
        ("masses", ("--format", "extxyz"), "expected a line with the number of atoms"),
        ("\nMasses\n\n1 178.49\n2 1.0\n", (), "atomic number 1; the elements that take part are "
         "[8, 72]; --elements gives the elements of the types in order"),
    ],
)  # fmt: skip
def test_errors_of_lammps_data(pwmlff, binary: Path, tmp_path: Path, sections, arguments, words):
    data_file(tmp_path / "a.data", SECTIONS.get(sections, sections))
    found = pwmlff("compare", "model.pt", "--data", "a.data", *arguments)
    assert found.returncode == 2
    assert words in found.words


def test_edge_model(pwmlff, tmp_path: Path):
    """Messages over two rounds, across ranks and periodic boundaries; no warning of torch's."""
    torch.jit.script(MessagePassing([8, 72], 3.0)).save(tmp_path / "edge.pt")
    write(tmp_path / "a.extxyz", crystal(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = pwmlff("compare", "edge.pt", "--data", "a.extxyz", "--json")
    assert found.returncode == 0, found.output
    assert [(c["ranks"], c["engine"]) for c in found.json["cases"]] == [
        (1, "torchscript"),
        (2, "torchscript"),
    ]


def test_table_fits_into_100_columns(pwmlff, binary: Path, tmp_path: Path):
    """Long paths of models do not push the numbers out; every word is in one piece."""
    write(tmp_path / "a.extxyz", crystal(1))
    deep = tmp_path / "a-long-name-of-a-folder-of-results" / "another-long-name-of-a-folder"
    deep.mkdir(parents=True)
    binary.rename(deep / "model.pt")
    found = pwmlff("compare", deep / "model.pt", "--data", "a.extxyz", "--np", "1", COLUMNS="100")
    assert found.returncode == 0, found.output
    rows = [line for line in found.output.splitlines() if "│" in line]
    assert len(rows) == 2 * 4  # largest and RMS
    assert max(map(len, rows)) <= 100
    assert all(" model.pt " in row and " pass " in row for row in rows[::2])
    assert all(len(re.findall(r"\d\.\de[-+]\d\d", row)) == 4 for row in rows)
    assert "fused double" in found.output


def test_short_names():
    paths = ["runs/a/model.pt", "runs/b/model.pt", "/x/best.pt", "model.pt"]
    assert list(short_names(paths).values()) == ["a/model.pt", "b/model.pt", "best.pt", "model.pt"]
    assert short_names(["./x/m.pt", "/y/x/m.pt"]) == {
        "./x/m.pt": "./x/m.pt",
        "/y/x/m.pt": "y/x/m.pt",
    }


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["absent.pt", "--data", "a.xyz"], "found no model file 'absent.pt'"),
        (["model.pt", "--data", "absent.xyz"], "ase cannot read 'absent.xyz'"),
        (["model.pt", "--data", "a.xyz", "--tol", "speed=1"], "--tol names speed"),
        (["model.pt", "--data", "a.xyz", "--tol", "force"], "--tol holds 'force'"),
        (["model.pt", "--data", "a.xyz", "--np", "0"], "--np is '0'"),
        (["model.pt", "--data", "a.xyz", "--np", "1,100000"], "found 100000 ranks, expected at"),
        (["model.pt", "--data", "a.xyz", "--engine", "steam"], "found steam; expected engines"),
        (["model.pt", "--data", "a.xyz", "--elements", "Hf Si"], "--elements names Hf Si"),
        (["model.pt", "--data", "ar.xyz"], "atom 0 has atomic number 18"),
        (["model.pt", "--data", "none.xyz"], "frame 0 of 'none.xyz' has no atoms"),
        (["model.pt", "--data", "a.xyz", "--lmp", "absent/lmp"], "found no program 'absent/lmp'"),
        (
            ["model.pt", "--data", "a.xyz", "--mpirun", "true"],
            "; expected MPICH (hydra) or Open MPI",
        ),
    ],
)
def test_errors(pwmlff, binary: Path, tmp_path: Path, arguments, words):
    write(tmp_path / "a.xyz", BINARY.atoms(), format="extxyz")
    write(tmp_path / "none.xyz", Atoms(cell=[9] * 3, pbc=True), format="extxyz")
    write(tmp_path / "ar.xyz", Atoms("Ar", cell=[9] * 3, pbc=True), format="extxyz")
    found = pwmlff("compare", *arguments)
    assert found.returncode == 2
    assert words in found.words
