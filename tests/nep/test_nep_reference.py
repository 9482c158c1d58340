"""The reference of NEP in NumPy: numbers of NEP_CPU, of the compiled evaluation, and its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from plain import PlainNep

from nep_files import FORCE, HEADS, REFERENCES, random_structure, random_text, reference
from nep_parser import parse_nep
from pwmlff.evaluation.nep_file import Nep, nep_text, read_nep, write_nep
from pwmlff.evaluation.nep_reference import evaluate_nep, wigner_3j

TEMPERATURE = 300.0  # K


@pytest.mark.parametrize("name", REFERENCES)
def test_numbers_of_nep_cpu(name: str):
    wanted = reference(name)
    found = evaluate_nep(parse_nep(wanted.text), wanted.atoms)
    assert abs(found.atom_energy - wanted.energies).max() < wanted.energy
    assert abs(found.forces - wanted.forces).max() < FORCE
    assert abs(found.centroid_virials - wanted.centroid_virials).max() < FORCE
    assert abs(found.virial - wanted.virial).max() < FORCE * len(wanted.atoms)
    assert abs(found.descriptors - wanted.descriptors).max() < FORCE


def assert_same(model: Nep, text: bytes) -> None:
    """Numbers of a model and of a file, by the reference and the compiled evaluation."""
    atoms = random_structure(list(model.elements))
    found = evaluate_nep(model, atoms, TEMPERATURE)
    plain = PlainNep(text)
    other = plain.evaluate(atoms, TEMPERATURE)
    assert np.isclose(model.cutoff, plain.cutoff, rtol=1e-15)
    scale = max(1.0, abs(found.forces).max(), abs(found.atom_energy).max())
    assert abs(found.atom_energy - other.energies).max() < 1e-13 * scale
    assert abs(found.forces - other.forces).max() < 1e-13 * scale
    assert abs(found.virial - other.virial).max() < 1e-12 * scale
    assert abs(found.centroid_virials - other.centroid_virials).max() < 1e-12 * scale


@pytest.mark.parametrize("name", HEADS)
def test_numbers_of_the_compiled_evaluation(name: str):
    text = random_text(HEADS[name])
    assert_same(parse_nep(text), text)


def test_symbols_of_wigner():
    """Edmonds 1957, table 2."""
    assert np.isclose(wigner_3j(2, 2, 2)[2, 2, 2], -np.sqrt(2 / 35), rtol=1e-14)
    assert np.isclose(wigner_3j(1, 1, 2)[2, 0, 2], np.sqrt(1 / 30), rtol=1e-14)
    assert np.isclose(wigner_3j(1, 1, 2)[1, 1, 2], np.sqrt(2 / 15), rtol=1e-14)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("name", [name for name in HEADS if name != "cutoffs by radii"])
def test_written_files(tmp_path: Path, name: str, version: int):
    """The same numbers, to the last bit but for shifts in nep4; the compiled reader reads them."""
    model = parse_nep(random_text(HEADS[name]))
    path = tmp_path / "nep.txt"
    write_nep(model, path, version=version)
    found = read_nep(path)
    assert_same(model, path.read_bytes())
    if version == 4 and (model.shift != model.shift[0]).any():
        assert found.last.shape[1] == model.last.shape[1] + 1  # a neuron instead of the shifts
        return
    for field in ("c_radial", "c_angular", "q_scaler", "last", "cut_radial", "cut_angular"):
        assert np.array_equal(getattr(found, field), getattr(model, field)), field
    for one, two in zip(found.layers, model.layers, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert np.array_equal(found.shift, model.shift)
    assert (found.zbl_line, found.neighbors) == (model.zbl_line, model.neighbors)


def test_numbers_of_neighbors_are_written():
    """GPUMD and calorine stop at a line cutoff without them."""
    without = random_text(HEADS["nep5"].replace("5 4 100 80", "5 4"))
    examples = Path(__file__).resolve().parents[2] / "examples"
    texts = [nep_text(parse_nep(without)), *(p.read_bytes() for p in examples.rglob("nep.txt"))]
    assert len(texts) > 2
    for text in texts:
        lines = [line.split() for line in text.split(b"\n", 3)]
        (values,) = [line[1:] for line in lines if line[:1] == [b"cutoff"]]
        assert len(values) in (4, 2 * int(lines[0][1]) + 2)


def test_old_forms_of_zbl(tmp_path: Path):
    """ZBL by a factor of the line cutoff is written pair by pair."""
    head = HEADS["cutoffs by radii"].replace("2 1.6 0.6", "-1 -1 0.6")
    model = parse_nep(random_text(head))
    write_nep(model, tmp_path / "nep.txt")
    assert b"zbl 0.0 0.0\n" in (tmp_path / "nep.txt").read_bytes()
    assert_same(model, (tmp_path / "nep.txt").read_bytes())


def test_cutoffs_that_have_no_form(tmp_path: Path):
    model = parse_nep(random_text(HEADS["cutoffs by radii"]))
    with pytest.raises(ValueError, match="found cutoffs by covalent radii, expected one for all"):
        write_nep(model, tmp_path / "nep.txt")
    assert not (tmp_path / "nep.txt").exists()


def test_biases_of_matpl():
    """As many more numbers as there are elements, less one."""
    lines = random_text(HEADS["zbl"].replace("nep4_zbl", "nep4_zbl")).split(b"\n")
    place = 7 + 2 * (8 + 2) * 5  # behind the head and both networks: the common bias
    lines[place : place + 1] = [b"0.25", b"0.5"]
    text = b"\n".join(lines)
    assert list(parse_nep(text).shift) == [-0.25, -0.5]
    assert_same(parse_nep(text), text)


def test_errors_have_the_line():
    lines = random_text(HEADS["nep5"]).split(b"\n")
    for place, new, message in (
        (0, b"nep4_charge3 1 C", "line 1: found 'nep4_charge3 1 C', expected nep3, nep4 or nep5"),
        (2, b"n_max 1", "line 3: found 'n_max 1', expected 'n_max R A'"),
        (5, b"ANN 5.5 0", "line 6: found 'ANN 5.5 0', expected whole numbers"),
        (20, b"nan", "line 21: found 'nan', expected finite numbers"),
        (20, b"1 2", "line 21: found '1 2', expected one number"),
        (20, b"", "found the end of the file, expected 175 numbers, not 174"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_nep(b"\n".join([*lines[:place], new, *lines[place + 1 :]]))


def test_elements_of_a_structure():
    model = parse_nep(random_text(HEADS["l_max 8"]))
    with pytest.raises(ValueError, match="atomic number 8"):
        evaluate_nep(model, random_structure([14, 8]))
