"""The compiled reader of nep.txt: what it reads, what it refuses, and with which words."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from ase.data import chemical_symbols
from plain import PlainNep

from genuine import GENUINE, requires_genuine
from nep_files import HEADS, random_structure, random_text
from nep_parser import parse_nep
from pwmlff import native
from pwmlff.evaluation import nep_file


def changed(head: str, old: str, new: str) -> bytes:
    text = random_text(HEADS[head]).decode()
    assert old in text
    return text.replace(old, new, 1).encode()


@pytest.mark.parametrize("name", HEADS)
def test_forms(name: str):
    text = random_text(HEADS[name])
    assert native.family_of(text) == "nep"
    model = PlainNep(text)
    elements = HEADS[name].split("|", maxsplit=1)[0].split()[2:]
    assert [chemical_symbols[z] for z in model.elements] == elements
    assert model.cutoff == 5.0
    assert model.warnings == []
    assert_same(nep_file.parse_nep(text), parse_nep(text))


def assert_same(found: nep_file.Nep, wanted: nep_file.Nep):
    """All of a model, to the bit."""
    one, two = ({**vars(model), **model.learned()} for model in (found, wanted))
    assert one.keys() == two.keys()
    for name in one.keys() - {"layers"}:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_what_does_not_matter():
    """Blanks, blank lines, ends of lines, a byte order mark, a plus, and a missing last end."""
    text = random_text(HEADS["nep3"])
    other = text.replace(b"\n", b" \r\n").replace(b"nep3 2", b"\n nep3   2").rstrip()
    other = other.replace(b"  1.", b" +1.").replace(b"cutoff 5 4", b"\tcutoff 5.0   4e0")
    for one in (other, b"\xef\xbb\xbf" + other):
        assert native.family_of(one) == "nep"
        assert PlainNep(one).cutoff == PlainNep(text).cutoff
        read = nep_file.parse_nep(one)
        np.testing.assert_array_equal(read.c_radial, nep_file.parse_nep(text).c_radial)


@pytest.mark.parametrize(
    "word",
    ["nep3_dipole", "nep4_polarizability", "nep4_zbl_charge3", "nep4_vdw", "nep4_charge_vdw",
     "nep4_spin", "nep_ilp"],
)  # fmt: skip
def test_kinds_that_are_refused(word: str):
    text = changed("nep5", "nep5", word)
    assert native.family_of(text) == "nep"
    with pytest.raises(
        ValueError, match=rf"^is a NEP .*line 1 says '{word}', (which|whose) .*; run it"
    ):
        PlainNep(text)


#: What is changed in which file, the line that is named, and what was found there.
DAMAGED = {
    "a word": ("nep5", "nep5", "nep5_zlb", 1, "'nep5_zlb'"),
    "a word twice": ("zbl", "nep4_zbl", "nep4_zbl_zbl", 1, "'nep4_zbl_zbl'"),
    "a word without end": ("nep5", "nep5", "nep5_", 1, "'nep5_'"),
    "no radius": ("zbl by radii", "Hf", "Am", 2, "a cutoff by covalent radii for Am"),
    "a version": ("nep5", "nep5", "nep2", 1, "'nep2'"),
    "an element": ("nep5", "Hf", "Hg_", 1, "'Hg_'"),
    "an element twice": ("nep5", "Hf", "O", 1, "'O' twice"),
    "number of elements": ("nep5", "2 O", "3 O", 1, "the number 3 and 2 symbols"),
    "huge number of elements": ("nep5", "2 O", "99999999999 O", 1, "'nep5 99999999999 O Hf'"),
    "a keyword": ("nep5", "n_max", "nmax", 3, "'nmax 1 1'"),
    "a line that is missing": ("nep5", "n_max 1 1\n", "", 3, "'basis_size 3 3'"),
    "a line too many": ("nep5", "n_max", "zbl 1 2\nn_max", 3, "'zbl 1 2'"),
    "zbl that is missing": ("zbl", "zbl 1.2 3.1\n", "", 2, "'cutoff 5 4'"),
    "nan": ("nep5", "cutoff 5 4", "cutoff nan 4", 2, "'nan' in 'cutoff nan 4'"),
    "inf": ("nep5", "cutoff 5 4", "cutoff 5 inf", 2, "'inf' in"),
    "too large for float64": ("nep5", "cutoff 5 4", "cutoff 5 1e999", 2, "'1e999' in"),
    "cutoff": ("nep5", "cutoff 5 4", "cutoff 5 -4", 2, "'cutoff 5 -4'"),
    "number of cutoffs": ("nep5", "cutoff 5 4", "cutoff 5 4 3", 2, "'cutoff 5 4 3'"),
    "factors": ("cutoffs by radii", "2 1.6 0.6", "2 -1 0.6", 3, "'cutoff 5 4 9 9 2 -1 0.6'"),
    "radii of ZBL": ("zbl", "zbl 1.2 3.1", "zbl 1.2 1.1", 2, "'zbl 1.2 1.1'"),
    "factor of ZBL": ("zbl by radii", "2.6 0.9", "2.6 0", 2, "'zbl 1 2.6 0'"),
    "functions": ("nep5", "n_max 1 1", "n_max -1 1", 3, "'n_max -1 1'"),
    "terms": ("nep5", "basis_size 3 3", "basis_size 3 1000000000", 4, "'basis_size"),
    "half a function": ("nep5", "n_max 1 1", "n_max 1.5 1", 3, "'n_max 1.5 1'"),
    "degree": ("nep5", "l_max 2", "l_max 9", 5, "'l_max 9 1 0'"),
    "flags that are missing": ("nep5", "l_max 2 1 0", "l_max 2", 5, "'l_max 2'"),
    "flags too many": ("nep5", "l_max 2 1 0", "l_max 2 1 0 0 0 0 0 0", 5, "'l_max 2 1 0 0 0"),
    "neurons": ("nep5", "ANN 5", "ANN 0", 6, "'ANN 0 0'"),
    "another width": ("nep5", "ANN 5", "ANN 50", 181, "the end of the file after 175 numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_heads(name: str):
    head, old, new, line, found = DAMAGED[name]
    with pytest.raises(ValueError, match=r"^cannot be read as a NEP: in line") as raised:
        PlainNep(changed(head, old, new))
    said = str(raised.value)
    assert f"in line {line} found {found}" in said
    assert ", expected " in said
    assert said.count("; ") == 1
    assert said.endswith(
        ("copy the file again", "made it", "as in the periodic table", "that are numbers")
    )


@pytest.mark.parametrize(
    "line, found, expected",
    [
        ("nan", "'nan'", "a finite number"),
        ("-inf", "'-inf'", "a finite number"),
        ("0x1p3", "'0x1p3'", "a finite number"),
        ("1,5", "'1,5'", "a finite number"),
        ("# c", "'# c'", "a finite number"),
        ("1 2", "'1 2'", "one number"),
        ("\x00\x07", "'..'", "a finite number"),
    ],
)
def test_damaged_numbers(line: str, found: str, expected: str):
    lines = random_text(HEADS["nep5"]).decode().split("\n")
    lines[20] = line
    with pytest.raises(ValueError, match="in line 21 found") as raised:
        PlainNep("\n".join(lines).encode())
    assert f"found {found}, expected {expected}; copy" in str(raised.value)


def test_number_of_numbers():
    lines = random_text(HEADS["nep5"]).decode().rstrip().split("\n")
    count = len(lines) - 6
    counts = rf"expected {count} numbers \(networks .*, bias 1, radial 32, angular 32, q_scaler 8\)"
    with pytest.raises(ValueError, match=f"in line {count + 5} found the end of .* {counts}"):
        PlainNep("\n".join(lines[:-1]).encode())
    with pytest.raises(ValueError, match=f"in line {count + 7} found '0.25', a number .* {counts}"):
        PlainNep("\n".join([*lines, "0.25"]).encode())


def test_flag_with_two_meanings():
    """GPUMD had (1122) in the place of (123) for a time."""
    text = random_text("nep4 1 Si|cutoff 5 4|n_max 1 1|basis_size 3 3|l_max 4 1 1 0 1|ANN 5 0")
    (warning,) = PlainNep(text).warnings
    assert warning.startswith(
        "line 5 says by the last of four flags that the invariant (123) is on"
    )
    assert PlainNep(text.replace(b"1 1 0 1\n", b"1 1 0 1 0 0\n")).warnings == []


def test_table_of_zbl():
    lines = random_text(HEADS["zbl by table"]).decode().rstrip().split("\n")
    lines[-10] = "9.0"
    with pytest.raises(
        ValueError, match=f"in line {len(lines) - 9} found ZBL from 9 to 3.2 for Hf"
    ):
        PlainNep("\n".join(lines).encode())


def test_other_files():
    for contents in (b"", b"nep", b"neptune 4", b"PK\x03\x04", b"1\n\n0.5"):
        assert not native.family_of(contents)
    with pytest.raises(ValueError, match="found no text"):
        PlainNep(b" \n")


def test_many_elements():
    """89 elements: a million numbers."""
    symbols = " ".join(chemical_symbols[1:90])
    head = f"nep4_zbl 89 {symbols}|zbl 1 2|cutoff 6 5 1000 500|n_max 4 4|basis_size 8 8"
    text = random_text(f"{head}|l_max 4 2 1|ANN 80 0")
    begin = time.perf_counter()
    model = PlainNep(text)
    assert time.perf_counter() - begin < 1.0
    assert len(model.elements) == 89


def test_no_torch():
    """The compiled reader does not need it."""
    program = """
from pwmlff import native
assert native.family_of(b"nep4")
assert "libtorch" not in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@requires_genuine
def test_biases_of_matpl():
    """The file in the form of MatPL, and the same as nep5."""
    one, two = (
        PlainNep((GENUINE / name).read_bytes())
        for name in ("g04_nep4_HfO2_matpl.txt", "g04_as_nep5.txt")
    )
    atoms = random_structure([8, 72])
    assert np.allclose(one.evaluate(atoms).energies, two.evaluate(atoms).energies, rtol=1e-14)
