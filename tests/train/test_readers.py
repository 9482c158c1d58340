"""Files of many formats give the frames that ase and dpdata give; mistakes are named."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read as ase_read
from ase.io import write

from labelled_structures import (
    crystal,
    frames_of,
    labelled,
    movement,
    trajectory,
    vasprun_head,
    write_deepmd,
)
from pwmlff.data import cache, check, readers
from pwmlff.data.choices import write_frames
from pwmlff.data.frames import Frames
from pwmlff.report import Failure

#: With a smearing of 0.125 eV per atom.
VASPRUN = f"""{vasprun_head(60)}\
 <calculation>
  <scstep><energy>
   <i name="e_fr_energy"> -6.5 </i><i name="e_wo_entrp"> -6.0 </i><i name="e_0_energy"> -6.25 </i>
  </energy></scstep>
  <structure>
   <crystal><varray name="basis"><v>4 0 0</v><v>0 4 0</v><v>0 0 4</v></varray></crystal>
   <varray name="positions"><v>0 0 0</v><v>0.5 0.5 0.5</v></varray>
  </structure>
  <varray name="forces"><v>0.1 0 0</v><v>-0.1 0 0</v></varray>
  <varray name="stress"><v>1 0 0</v><v>0 1 0</v><v>0 0 1</v></varray>
  <energy>
   <i name="e_fr_energy"> -6.5 </i><i name="e_wo_entrp"> -6.0 </i><i name="e_0_energy"> -6.0 </i>
  </energy>
 </calculation>
</modeling>
"""


def assert_like_ase(frames, structures):
    """Compare frames with structures of ase that have single-point calculators."""
    assert len(frames) == len(structures)
    for k, atoms in enumerate(structures):
        mine = frames.atoms(k)
        np.testing.assert_array_equal(mine.numbers, atoms.numbers)
        np.testing.assert_allclose(mine.positions, atoms.positions, atol=1e-8)
        np.testing.assert_allclose(mine.cell, atoms.cell, atol=1e-8)
        np.testing.assert_array_equal(mine.pbc, atoms.pbc)
        expected, found = atoms.calc.results, mine.calc.results
        assert expected.keys() >= found.keys() and {"energy", "forces"} <= found.keys()
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], atol=1e-8, err_msg=name)


@pytest.fixture(scope="module")
def mixed():
    """Frames of several sizes, compositions and boundaries, all with labels."""
    slab = crystal(seed=3)
    slab.pbc = (True, False, True)
    small = crystal(seed=4)[:5]
    return [labelled(crystal(seed=1)), labelled(small), labelled(slab)]


def test_extended_xyz_is_what_ase_reads(tmp_path, mixed):
    write(tmp_path / "a.xyz", mixed)
    frames = readers.read(tmp_path / "a.xyz")
    assert_like_ase(frames, ase_read(tmp_path / "a.xyz", ":"))
    assert_like_ase(frames, mixed)
    assert frames.files == (str(tmp_path / "a.xyz"),)
    assert frames.group_names == ("a",)
    assert frames.index.tolist() == [0, 1, 2]


def test_the_sign_of_stress_and_virial(tmp_path):
    # Energy per strain is -virial: compressed, it is positive.
    squeezed = crystal(0.9)
    energies = []
    for scale in (1.0 - 1e-5, 1.0 + 1e-5):
        atoms = squeezed.copy()
        atoms.set_cell(scale * np.asarray(atoms.cell), True)
        energies.append(labelled(atoms).get_potential_energy())
    slope = (energies[1] - energies[0]) / 2e-5
    atoms = labelled(squeezed)
    write(tmp_path / "stress.extxyz", atoms)
    virial = readers.read(tmp_path / "stress.extxyz").virials[0]
    assert np.trace(virial) == pytest.approx(-slope, rel=1e-4) and np.trace(virial) > 0
    # A key `virial` is that as it stands.
    text = (tmp_path / "stress.extxyz").read_text()
    nine = " ".join(f"{x:.12g}" for x in virial.ravel())
    line = text.splitlines()[1]
    start = line.index("stress=")
    end = line.index('"', line.index('"', start) + 1) + 1
    (tmp_path / "virial.extxyz").write_text(text.replace(line[start:end], f'virial="{nine}"'))
    np.testing.assert_allclose(readers.read(tmp_path / "virial.extxyz").virials[0], virial)
    six = " ".join(f"{x:.12g}" for x in atoms.get_stress())
    for key in ("stress", "REF_stress"):
        (tmp_path / "voigt.extxyz").write_text(text.replace(line[start:end], f'{key}="{six}"'))
        np.testing.assert_allclose(readers.read(tmp_path / "voigt.extxyz").virials[0], virial)


@pytest.mark.parametrize("energy", ["energy", "Energy", "REF_energy", "dft_energy", "free_energy"])
@pytest.mark.parametrize("forces", ["forces", "force", "REF_forces"])
def test_spellings_of_labels(tmp_path, energy, forces):
    path = tmp_path / "a.xyz"
    path.write_text(
        f"2\n{energy}=-1.5 Properties=species:S:1:pos:R:3:{forces}:R:3\n"
        "H 0 0 0 1 2 3\nhE 0 0 1.5 -1 -2 -3\n"
    )
    frames = readers.read(path)
    assert frames.energies.tolist() == [-1.5]
    assert frames.forces.tolist() == [[1, 2, 3], [-1, -2, -3]]
    assert frames.numbers.tolist() == [1, 2]
    assert not frames.pbc.any() and not frames.cells.any()
    assert np.isnan(frames.virials).all()


LATTICE = "5 0 0 0.5 6 0 0 0.25 7"


@pytest.mark.parametrize(
    "header",
    [
        f'lattice="{LATTICE}" energy=-1.5 properties=species:S:1:pos:R:3:force:R:3',
        f"LATTICE = [{LATTICE}] ENERGY=-1.5 PROPERTIES=Species:s:1:Pos:r:3:Force:r:3",
        f'stress= Lattice="{LATTICE}" Properties=species:S:1:pos:R:3:force:R:3 energy= -1.5',
        f'virial="" Lattice={{{LATTICE}}} free_energy=\t Properties=species:S:1:pos:R:3:force:R:3 '
        'name="a \\" b=2" energy=-1.5 stress=',
        f"\ufeffcomment='it\\'s x=1' energy=-1.5 Lattice='{LATTICE}' "
        "Properties=species:S:1:pos:R:3:force:R:3 don't",
    ],
)
def test_headers_in_any_case_and_with_empty_values(tmp_path, header):
    """As GPUMD's manual writes them; a crystal never becomes a cluster, an empty value is none."""
    path = tmp_path / "a.xyz"
    path.write_text(f"\ufeff2\n{header.lstrip(chr(0xFEFF))}\nH 0 0 0 1 2 3\nO 0 0 1.5 -1 -2 -3\n")
    frames = readers.read(path)
    assert frames.cells.ravel().tolist() == [float(word) for word in LATTICE.split()]
    assert frames.pbc.all() and frames.energies.tolist() == [-1.5]
    assert frames.forces.tolist() == [[1, 2, 3], [-1, -2, -3]]
    assert np.isnan(frames.virials).all()
    (atoms,) = readers.structures(str(path))  # what compare, bench and learn take
    np.testing.assert_array_equal(atoms.cell, frames.cells[0])
    assert atoms.get_potential_energy() == -1.5


@pytest.mark.parametrize(
    "name, kind",
    [
        *(("a.xyz", None), ("any", None), ("system/type.raw", None), ("system/type_map.raw", None)),
        *(("a.pdb", None), ("a.xsf", None), ("POSCAR", None), ("vasprun.xml", None)),
        ("a.xml", "dpdata:vasp/xml"),
    ],
)
def test_a_byte_order_mark_is_no_text(tmp_path, name, kind):
    """Editors of Windows begin files with one; ase takes the cell of a PDB file for none then."""
    atoms, path = labelled(crystal()), tmp_path / name
    data = path.parent if path.suffix == ".raw" else path
    if path.suffix == ".raw":
        write_deepmd(data, [atoms])
    elif name in {"any", "vasprun.xml", "a.xml"}:
        path.write_text(movement(atoms) if name == "any" else VASPRUN)
    else:
        write(path, atoms)
    expected = readers.read(data, kind)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = readers.read(data, kind)
    for entry in ("numbers", "positions", "cells", "energies", "forces", "virials"):
        np.testing.assert_array_equal(getattr(found, entry), getattr(expected, entry))
    if path.suffix != ".raw":
        (last,) = readers.structures(str(data), kind)
        np.testing.assert_array_equal(last.cell, expected.cells[0])


def test_keys_of_two_cases_that_differ(tmp_path, caplog):
    path = tmp_path / "a.xyz"
    path.write_text("1\nenergy=-1.0 Energy=-2.0\nH 0 0 0\n")
    assert readers.read(path).energies.tolist() == [-1.0]
    assert "'energy' and 'Energy', which differ" in caplog.text
    path.write_text(f'1\nlattice="{LATTICE}" Lattice="5 0 0 0 5 0 0 0 5"\nH 0 0 0\n')
    with pytest.raises(Failure, match="has 'lattice' and 'Lattice', which differ"):
        readers.read(path)


def test_many_quotes_of_a_header_take_no_time(tmp_path):
    (tmp_path / "a.xyz").write_text("1\na= " + "\"'[" * 5000 + "\nH 0 0 0\n")
    assert len(readers.read(tmp_path / "a.xyz")) == 1


def test_a_crystal_without_its_cell_is_told(tmp_path, caplog):
    """By the torque of its forces, which atoms in free space never have."""
    crystals, clusters, bare = [], [], []
    for seed in range(12):
        atoms = bulk("Cu", cubic=True) * (2, 2, 2)
        atoms.rattle(0.1, seed=seed)
        if seed >= 8:
            atoms.cell, atoms.pbc = None, False
        atoms.calc = EMT()
        results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **results)
        (clusters if seed >= 8 else crystals).append(atoms)
        if seed < 8:
            bare.append(Atoms(atoms.numbers, atoms.positions))
            bare[-1].calc = SinglePointCalculator(bare[-1], **results)
    pairs = [molecule("N2") for _ in range(12)]
    for seed, atoms in enumerate(pairs):  # whose forces are along the bond, to the digits of files
        atoms.rattle(0.1, seed=seed)
        along = atoms.get_distance(0, 1, vector=True)
        atoms.calc = SinglePointCalculator(atoms, energy=0.0, forces=[along, -along])
    write(tmp_path / "clusters.xyz", [*clusters, *pairs, Atoms("Cu")])
    readers.read(tmp_path / "clusters.xyz")
    assert not caplog.text
    write(tmp_path / "mixed.xyz", [*clusters, *crystals, Atoms("Cu")])
    readers.read(tmp_path / "mixed.xyz")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "frame 0 of" in warning and "(4 structures) has no cell, beside 8" in warning
    caplog.clear()
    write(tmp_path / "bare.xyz", bare)
    readers.read(tmp_path / "bare.xyz")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "structures) has no cell, but its forces turn it" in warning
    assert int(warning.split("(")[1].split()[0]) >= 6  # of 8


@pytest.mark.parametrize(
    "of_energy, of_force, of_stress",
    [
        ("kcal/mol", "kcal/mol/angstrom", "kbar"),
        ("kJ_mol", "kJ_mol/nm", "bar"),
        ("hartree", "Hartree/Bohr", "hartree/bohr^3"),
        ("au", "a.u.", "au/bohr^3"),
        ("Ry", "Ry/bohr", "GPa"),
        ("eV", "eV/ang", "eV/A^3"),
    ],
)
def test_units_in_headers_are_those_of_dpdata(tmp_path, of_energy, of_force, of_stress):
    pytest.importorskip("dpdata")
    from dpdata.formats.xyz.quip_gap_xyz import QuipGapxyzSystems

    path = tmp_path / "a.xyz"
    for label in ("stress", "virial", "stresses"):
        path.write_text(
            f'2\nLattice="{LATTICE}" energy=-7 {label}="1 2 3 2 4 5 3 5 6" energy-unit={of_energy} '
            f"force-unit={of_force} stress_unit={of_stress} "
            "Properties=species:S:1:pos:R:3:force:R:3\nH 0 0 0 1 2 3\nO 0 0 1.5 -1 -2 -3\n"
        )
        (expected,) = QuipGapxyzSystems(str(path))
        for reader in ("extxyz", "dpdata:extxyz"):
            found = readers.read(path, reader)
            for name in ("energies", "virials"):
                values = np.asarray(expected[name], float)
                np.testing.assert_allclose(getattr(found, name), values, rtol=1e-6, err_msg=name)
            np.testing.assert_allclose(found.forces, expected["forces"][0], rtol=1e-6)


@pytest.mark.parametrize(
    "keys, message",
    [
        ("energy-unit=nonsense", "its energy-unit is 'nonsense', which is not known"),
        ("energy-unit=eV/angstrom", "energy-unit is 'eV/angstrom', which is not known"),
        ("force-unit=hartree", "force-unit is 'hartree', which is not known"),
        ("stress-unit=eV/angstrom", "stress-unit is 'eV/angstrom', which is not known"),
        ("energy-unit=Ry", "energy-unit is 'Ry', and it has 'force' and no force-unit"),
        ("force-unit=au", "force-unit is 'au', and it has 'energy' and no energy-unit"),
        ("energy-unit=Ry force-unit=Ry/bohr", "has 'stress' and no stress-unit"),
    ],
)
def test_units_that_are_refused(tmp_path, keys, message):
    path = tmp_path / "a.xyz"
    path.write_text(
        f'1\nLattice="{LATTICE}" energy=-7 stress="1 2 3 2 4 5 3 5 6" {keys} '
        "Properties=species:S:1:pos:R:3:force:R:3\nH 0 0 0 1 2 3\n"
    )
    with pytest.raises(Failure, match=f"frame 0 of .*a.xyz': its .*{message}|{message}"):
        readers.read(path)


@pytest.mark.parametrize("energy", [-3.5, np.nan])
def test_the_dump_of_lammps(tmp_path, caplog, energy):
    """Its energy is one, its stress is a pressure in bar with the kinetic part; each may lack."""
    path = tmp_path / "a.extxyz"
    known = "" if np.isnan(energy) else f"Potential_energy={energy}"
    path.write_text(
        f'1\nTimestep=10 Time=0.010000 pbc="T T T" Lattice="{LATTICE}" {known} '
        'Stress="-46074 305 -144 305 -46492 -798 -144 -798 -46202" '
        "Properties=species:S:1:pos:R:3:vel:R:3:forces:R:3\nAl 0 0 0 1 1 1 1 2 3\n" * 3
    )
    frames = readers.read(path)
    np.testing.assert_array_equal(frames.energies, [energy] * 3)
    assert np.isnan(frames.virials).all() and frames.forces[0].tolist() == [1, 2, 3]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "(3 structures) is of LAMMPS's dump extxyz: Potential_energy is taken" in warning
    assert "Stress is a pressure in bar" in warning


def test_what_may_be_a_label_and_is_not_taken_is_named_once(tmp_path, caplog):
    path = tmp_path / "a.xyz"
    path.write_text(
        "1\nCorrected_energy=-3 dipole=1 units=kcal unit_cell=conventional "
        "Properties=species:S:1:pos:R:3:my_forces:R:3:energies:R:1\nH 0 0 0 1 2 3 4\n" * 2
    )
    frames = readers.read(path)
    assert np.isnan(frames.energies).all() and np.isnan(frames.forces).all()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "(2 structures) has 'Corrected_energy', 'my_forces', 'units', which may" in warning


@pytest.mark.parametrize(
    "keys, expected",
    [
        ("", [1, 1, 1]),
        ("config_weight=2 config_energy_weight=0.5 config_stress_weight=3", [1, 2, 6]),
        ("config_forces_weight=0.25 config_virials_weight=0.5", [1, 0.25, 0.5]),
        ("weight=4", [4, 4, 4]),
        ("Weight=4 energy_weight=0.5 force_weight=2 virial_weight=0.25", [2, 8, 1]),
        ("config_energy_weight=0", [0, 1, 1]),
        ("weight=2 energy_weight=0 forces_weight=0.0 stress_weight=0", [0, 0, 0]),
    ],
)
def test_weights_of_frames(tmp_path, caplog, keys, expected):
    """By the keys of MACE and GPUMD; a label without weight is none; what is written has them."""
    path = tmp_path / "a.xyz"
    path.write_text(
        f'1\nLattice="{LATTICE}" energy=-7 free_energy=-7 stress="1 2 3 2 4 5 3 5 6" {keys} '
        "Properties=species:S:1:pos:R:3:force:R:3\nH 0 0 0 1 2 3\n" * 2
    )
    labels = [weight != 0 for weight in expected]
    options = {"elements": [1], "cutoff": 2.0, "cache": tmp_path / "cache"}
    write_frames(tmp_path / "written.xyz", readers.read(path))
    for frames in (
        readers.read(tmp_path / "written.xyz"),
        cache.load(path, **options)[0],
        cache.load(path, **options)[0].select([1, 0]),
        Frames.joined([readers.read(f"{path}@0"), readers.read(f"{path}@1")]),
    ):
        assert frames.weights.tolist() == [expected] * 2
        assert [has.tolist() for has in frames.labelled.values()] == [[has] * 2 for has in labels]
    assert ("has the weight 0 for" in caplog.text) == (0 in expected)
    assert "not taken" not in caplog.text
    report = check.check([str(path)])
    assert report.ok and ("weight 0" in str(report.problems)) == (0 in expected)


@pytest.mark.parametrize("name", ["bec", "Born_effective_charges", "REF_born_charges"])
def test_born_charges(tmp_path, caplog, name):
    """Row by row, of some frames; kept by the cache, by what is written, selected and joined."""
    path, nine = tmp_path / "a.xyz", "1 2 3 4 5 6 7 8 9"
    head = f'Lattice="{LATTICE}" energy=-7'
    with_born = f"{head} charge=-1.5 Properties=species:S:1:pos:R:3:{name}:R:9"
    path.write_text(f"1\n{with_born}\nH 0 0 0 {nine}\n1\n{head}\nH 0 0 0\n")
    options = {"elements": [1], "cutoff": 2.0, "cache": tmp_path / "cache"}
    write_frames(tmp_path / "written.xyz", readers.read(path))
    for frames in (
        readers.read(tmp_path / "written.xyz"),
        cache.load(path, **options)[0],
        cache.load(path, **options)[0],
        Frames.joined([readers.read(f"{path}@0"), readers.read(f"{path}@1")]),
        readers.read(path).select([1, 0]).select([1, 0]),
    ):
        assert frames.has_born.tolist() == [True, False]
        assert frames.born[0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
        assert np.isnan(frames.born[1]).all()
        assert frames.total_charges.tolist() == [-1.5, 0]
    without = readers.read(path).select([1])
    bare = readers.read(f"{path}@1")
    assert len(bare.born) == 0 and not bare.has_born.any()
    assert without.fingerprint == bare.fingerprint != readers.read(f"{path}@0").fingerprint
    assert not caplog.records


@pytest.mark.parametrize(
    "columns, numbers, text",
    [
        ("bec:R:6", "1 2 3 4 5 6", r"Born charges has the shape \[1, 6\], expected \[1, 9\]"),
        ("bec:R:9", "1 2 3 4 nan 6 7 8 9", "Born charges have a number that is not finite"),
    ],
)
def test_born_charges_that_are_refused(tmp_path, columns, numbers, text):
    path = tmp_path / "a.xyz"
    path.write_text(f"1\nProperties=species:S:1:pos:R:3:{columns}\nH 0 0 0 {numbers}\n")
    with pytest.raises(Failure, match=text):
        readers.read(path)


@pytest.mark.parametrize("keys", ["weight=-1", "config_energy_weight=nan", "weight=inf"])
def test_weights_that_are_refused(tmp_path, keys):
    path = tmp_path / "a.xyz"
    path.write_text(f"1\n{keys} energy=-7\nH 0 0 0\n")
    with pytest.raises(Failure, match=r"weight is (-1|nan|inf), expected 0 or more"):
        readers.read(path)


def test_a_warning_is_for_all_frames_of_all_files(tmp_path, caplog):
    paths = [tmp_path / name for name in ("a.xyz", "b.xyz")]
    for path in paths:
        path.write_text("1\nenergy=-1.0 REF_energy=-2.0\nH 0 0 0\n" * 3)
    frames = readers.read(paths)
    np.testing.assert_array_equal(frames.energies, -2.0)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(
        f"frame 0 of '{paths[0]}' (6 structures) has 'REF_energy' and 'energy'"
    )


def test_labels_under_two_names_that_differ_are_warned_of(tmp_path, caplog):
    path = tmp_path / "a.xyz"
    path.write_text("1\nenergy=-1.0 REF_energy=-2.0\nH 0 0 0\n")
    assert readers.read(path).energies.tolist() == [-2.0]
    assert "'REF_energy' and 'energy', which differ" in caplog.text


def test_the_energy_is_the_one_that_forces_belong_to(tmp_path, caplog):
    """In all formats that have it and the one at sigma -> 0; a prefix still goes first."""
    path = tmp_path / "a.xyz"
    path.write_text("1\nenergy=-1.0 free_energy=-1.25\nH 0 0 0\n" * 3)
    atoms = Atoms("H", calculator=None)
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, free_energy=-1.25)
    write(tmp_path / "a.traj", atoms)
    for file, count in ((path, 3), (tmp_path / "a.traj", 1)):
        for wanted, expected in (("free", -1.25), ("zero", -1.0)):
            caplog.clear()
            found = readers.read(file, None, wanted).energies
            np.testing.assert_array_equal(found, [expected] * count)
            (warning,) = [record.getMessage() for record in caplog.records]
            assert warning.startswith(f"frame 0 of '{file}'") and "up to 0.25 per atom" in warning
            assert ("(3 structures)" in warning) == (count == 3)
    caplog.clear()
    path.write_text(
        "1\nREF_energy=-2.0 energy=-1.0 free_energy=-1.0\nH 0 0 0\n"
        "1\nfree_energy=-3.0\nH 0 0 0\n1\nenergy=-4.0 free_energy=-4.0\nH 0 0 0\n"
    )
    with caplog.at_level(logging.WARNING):
        assert readers.read(path).energies.tolist() == [-2.0, -3.0, -4.0]
    assert "free energy" not in caplog.text
    with pytest.raises(Failure, match="energy is 'any', expected free or zero"):
        readers.read(path, None, "any")


def test_both_energies_of_vasp(tmp_path, caplog):
    """ase and dpdata read the same free energy of a vasprun.xml; dpdata has no other."""
    path = tmp_path / "vasprun.xml"
    path.write_text(VASPRUN)
    by_ase = {energy: readers.read(path, "vasp-xml", energy) for energy in ("free", "zero")}
    assert [by_ase[energy].energies.tolist() for energy in by_ase] == [[-6.5], [-6.25]]
    assert "up to 0.125 per atom" in caplog.text
    np.testing.assert_array_equal(by_ase["free"].forces, by_ase["zero"].forces)
    caplog.clear()
    pytest.importorskip("dpdata")
    assert readers.read(path, "dpdata:vasp/xml").energies.tolist() == [-6.5]
    with pytest.raises(Failure, match="let ase read it"):
        readers.read(path, "dpdata:vasp/xml", "zero")
    assert not caplog.text


def test_missing_labels_are_nan_and_groups_are_named(tmp_path):
    path = tmp_path / "set.xyz"
    path.write_text(
        "1\nconfig_type=bulk energy=-1\nH 0 0 0\n\n"
        "1\ngroup=7 Properties=species:S:1:pos:R:3:forces:R:3\nH 0 0 0 1 1 1\n"
        "2\n\nH 0 0 0\nO 0 0 1\n"
    )
    frames = readers.read(path)
    assert frames.group_names == ("bulk", "7", "set")
    np.testing.assert_array_equal(frames.energies, [-1, np.nan, np.nan])
    np.testing.assert_array_equal(np.isnan(frames.forces).all(axis=1), [True, False, True, True])
    assert frames.natoms.tolist() == [1, 1, 2]


def test_slices(tmp_path):
    write(tmp_path / "a.xyz", structures := trajectory(6))
    for text, chosen in {
        "1:5:2": [1, 3], ":": range(6), "-2:": [4, 5], "4": [4], "-1": [5], "::-2": [5, 3, 1],
    }.items():  # fmt: skip
        frames = readers.read(f"{tmp_path}/a.xyz@{text}")
        assert frames.index.tolist() == list(chosen), text
        assert_like_ase(frames, [structures[k] for k in chosen])
    for text in ("6", "-7", "9:"):
        with pytest.raises(Failure, match=r"found no frame in .*, which has 6"):
            readers.read(f"{tmp_path}/a.xyz@{text}")
    for text in ("a", "1:2:3:4", "::0"):
        with pytest.raises(Failure, match="expected a slice like"):
            readers.read(f"{tmp_path}/a.xyz@{text}")
    write(tmp_path / "b@1.xyz", structures[0])  # a name is a name
    assert len(readers.read(tmp_path / "b@1.xyz")) == 1
    write(tmp_path / "run.traj", structures)
    write(tmp_path / "run.traj@2", structures[5], format="traj")
    for name, chosen in (("run.traj@2", 5), ("run.traj@3", 3), ("run.traj", -1)):
        (found,) = readers.structures(str(tmp_path / name))
        np.testing.assert_array_equal(found.positions, structures[chosen].positions)


def test_other_formats_of_ase_by_name_and_ending(tmp_path, mixed):
    write(tmp_path / "a.traj", mixed)
    assert_like_ase(readers.read(tmp_path / "a.traj"), mixed)
    write(tmp_path / "frames", mixed, format="traj")
    assert_like_ase(readers.read(tmp_path / "frames", format="traj"), mixed)
    write(tmp_path / "a.xyz.gz", mixed, format="extxyz")
    assert_like_ase(readers.read(tmp_path / "a.xyz.gz"), mixed)


def test_several_files_are_one_set(tmp_path, mixed):
    write(tmp_path / "a.xyz", mixed)
    write(tmp_path / "b.traj", mixed[:1])
    frames = readers.read([tmp_path / "a.xyz", f"{tmp_path}/b.traj@0"])
    assert_like_ase(frames, [*mixed, mixed[0]])
    assert frames.file.tolist() == [0, 0, 0, 1] and frames.group.tolist() == [0, 0, 0, 1]


def test_folders_of_deepmd(tmp_path, mixed):
    runs = [trajectory(5, seed=1), trajectory(3, seed=2)]
    write_deepmd(tmp_path / "data" / "one", runs[0], sets=2)
    write_deepmd(tmp_path / "data" / "more" / "two", runs[1])
    frames = readers.read(tmp_path / "data")
    assert_like_ase(frames, runs[1] + runs[0])  # by name: more/two, one
    assert frames.group_names == ("two", "one")
    assert frames.index.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    write_deepmd(tmp_path / "mixed", periodic := [mixed[1], mixed[0]], mixed=True)
    assert_like_ase(readers.read(tmp_path / "mixed"), periodic)
    dpdata = pytest.importorskip("dpdata")
    system = dpdata.LabeledSystem(str(tmp_path / "data" / "one"), fmt="deepmd/npy")
    np.testing.assert_allclose(
        system["virials"], readers.read(tmp_path / "data" / "one").virials, atol=1e-10
    )


def test_links_to_folders_of_deepmd(tmp_path):
    """Of systems and of sets; those that lead back are entered once."""
    runs = [trajectory(5, seed=1), trajectory(3, seed=2)]
    for name, run in zip(("one", "two"), runs, strict=True):
        write_deepmd(tmp_path / "kept" / name, run)
    (tmp_path / "data" / "sets").mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / "data" / name).symlink_to(tmp_path / "kept" / "two")
    (tmp_path / "data" / "back").symlink_to(tmp_path / "data")
    for path in (tmp_path / "kept" / "one").iterdir():
        (tmp_path / "data" / "sets" / path.name).symlink_to(path)
    assert_like_ase(readers.read(tmp_path / "data"), runs[1] + runs[1] + runs[0])


def test_what_dpdata_reads(tmp_path):
    dpdata = pytest.importorskip("dpdata")
    structures = trajectory(3)
    write_deepmd(tmp_path / "system", structures)
    system = dpdata.LabeledSystem(str(tmp_path / "system"), fmt="deepmd/npy")
    system.to("deepmd/hdf5", str(tmp_path / "a.hdf5"))
    frames = readers.read(tmp_path / "a.hdf5", format="dpdata:deepmd/hdf5")
    np.testing.assert_allclose(frames.energies, system["energies"], rtol=1e-6)
    np.testing.assert_allclose(frames.forces, system["forces"].reshape(-1, 3), atol=1e-5)
    np.testing.assert_allclose(frames.virials, system["virials"], atol=1e-5)
    np.testing.assert_array_equal(frames.numbers[:32], structures[0].numbers)
    # What it reads wrongly is read by this project's own readers.
    write(tmp_path / "a.xyz", structures)
    assert_like_ase(readers.read(tmp_path / "a.xyz", format="dpdata:extxyz"), structures)
    with pytest.raises(Failure, match=r"dpdata cannot read .*a.xyz' as 'vasp/outcar'"):
        readers.read(tmp_path / "a.xyz", format="dpdata:vasp/outcar")


@pytest.mark.parametrize("kind", ["deepmd/hdf5", "deepmd/lmdb"])
def test_all_compositions_of_a_file_of_dpdata(tmp_path, kind):
    dpdata = pytest.importorskip("dpdata")
    pytest.importorskip({"deepmd/hdf5": "h5py", "deepmd/lmdb": "lmdb"}[kind])
    many = dpdata.MultiSystems()
    for k in range(6):
        n = 2 + k % 2
        atoms = Atoms(f"Cu{n}", 2.5 * np.arange(n)[:, None] * [1, 0, 0], cell=[9] * 3, pbc=True)
        atoms.calc = SinglePointCalculator(atoms, energy=-float(k), forces=np.full((n, 3), k))
        many.append(dpdata.LabeledSystem(atoms, fmt="ase/structure"))
    many.to(kind, str(tmp_path / "a"))
    frames = readers.read(tmp_path / "a", f"dpdata:{kind}")
    assert sorted(frames.energies.tolist()) == [-5, -4, -3, -2, -1, 0]
    assert frames.natoms.tolist() == [2 + int(-energy) % 2 for energy in frames.energies]
    np.testing.assert_array_equal(frames.forces[:, 0], np.repeat(-frames.energies, frames.natoms))


def test_both_energies_of_a_trajectory_by_the_name_of_dpdata(tmp_path):
    atoms = Atoms("H")
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, free_energy=-1.25, forces=[[0, 0, 0]])
    write(tmp_path / "a.traj", atoms)
    found = [
        readers.read(tmp_path / "a.traj", "dpdata:ase/traj", energy).energies.tolist()
        for energy in ("free", "zero")
    ]
    assert found == [[-1.25], [-1.0]]


XYZ = "2\nenergy=-1 Properties=species:S:1:pos:R:3:forces:R:3\nH 0 0 0 1 2 3\nHe 0 0 1 -1 -2 -3\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is empty"),
        (XYZ + XYZ[:-20], r"frame 1 .* ends after 1 of 2 atoms.*@:1'"),
        (XYZ + XYZ[:-3], r"frame 1 .*atom 1 has 6 columns, expected 7"),
        (XYZ.replace("1 2 3", "1 2 3 4"), "frame 0 .*atom 0 has 8 columns, expected 7"),
        (XYZ.replace("1 2 3", "1 2 x"), "frame 0 .*line of atom 0 is .*expected species"),
        (XYZ.replace("He ", "Xy "), "frame 0 .*'Xy' is no element"),
        (XYZ.replace("He ", "X "), "frame 0 .*'X' is no element"),
        (XYZ.replace("2\n", "3\n", 1) + XYZ, "frame 0 .*atom 2 has 1 columns"),
        (XYZ.replace("2\n", "1\n", 1), "frame 1 .*begins with 'He 0 0 1.*number of atoms"),
        (XYZ.replace("energy=-1", "energy=low"), "frame 0 .*energy is 'low'"),
        (XYZ.replace("energy=-1", 'energy="1 2"'), r"frame 0 .*energy has the shape \[2\]"),
        (XYZ.replace("energy=-1", 'Lattice="1 2 3"'), "frame 0 .*second line cannot be read"),
        (XYZ.replace("energy=-1", 'virials="1 2 3"'), "frame 0 .*virial has 3 numbers"),
        (XYZ.replace("energy=-1", 'stress="1 2 3 2 4 5 3 5 6"'), "frame 0 .*no volume"),
        (XYZ.replace("forces:R:3", "forces:R:2"), "frame 0 .*7 columns, expected 6"),
        (XYZ.replace("forces:R:3", "forces:R"), "frame 0 .*Properties is"),
        (XYZ.replace("pos:R:3", "xyz:R:3"), "frame 0 .*no three columns of positions"),
        (XYZ.replace("species:S:1", "name:S:1"), "frame 0 .*no column of elements"),
        ("1\n\nH 0 0 0 1 1 1\n", "without Properties"),
    ],
)  # fmt: skip
def test_damaged_xyz_is_named_by_frame(tmp_path, text, message):
    path = tmp_path / "a.xyz"
    path.write_text(text)
    with pytest.raises(Failure, match=message) as failure:
        readers.read(path)
    assert str(path) in str(failure.value)


def test_frames_before_the_cut_can_be_had(tmp_path):
    path = tmp_path / "a.xyz"
    path.write_text(XYZ + XYZ[:-20])
    assert len(readers.read(f"{path}@:1")) == 1


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda f: (f / "type_map.raw").unlink(), "found no .*type_map.raw"),
        (lambda f: (f / "type_map.raw").write_text("Ne Foo"), "'Foo' is no element"),
        (lambda f: (f / "type_map.raw").write_text("Ne"), "atom of type 1, expected 0 to 0"),
        (lambda f: (f / "type.raw").write_text("0 a"), "type.raw'.*expected a type"),
        (lambda f: np.save(f / "set.000/force.npy", np.zeros((3, 9))), r"shape \[3, 9\], expected"),
        (lambda f: np.save(f / "set.000/energy.npy", np.zeros(4)), r"\[4\], expected \[3, 1\]"),
        (lambda f: np.save(f / "set.000/box.npy", np.array("a")), "expected numbers"),
        (lambda f: (f / "set.000/coord.npy").write_bytes(b"\x93NUMPY"), "cannot be read"),
        (lambda f: (f / "set.000/coord.npy").unlink(), "found no .*coord.npy"),
        (lambda f: (f / "set.000/box.npy").unlink(), "found no .*box.npy.*nopbc"),
        (lambda f: (f / "set.000").rename(f / "other"), r"found no folder set\.\*"),
        (lambda f: (f / "type.raw").unlink(), "found no type.raw"),
    ],
)
def test_damaged_deepmd_is_named_by_file(tmp_path, damage, message):
    write_deepmd(tmp_path / "system", trajectory(3))
    damage(tmp_path / "system")
    with pytest.raises(Failure, match=message):
        readers.read(tmp_path / "system")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(Failure, match="found no file"):
        readers.read(tmp_path / "none.xyz")
    with pytest.raises(Failure, match="found no DATA"):
        readers.read([])
    (tmp_path / "notes").write_text("nothing\n")
    with pytest.raises(Failure, match=r"format of .* is not known.*extxyz, movement"):
        readers.read(tmp_path / "notes")
    with pytest.raises(Failure, match=r"no format|ase cannot read"):
        readers.read(tmp_path / "notes", format="nonsense")
    with pytest.raises(Failure, match="ase cannot read frame 0"):
        readers.read(tmp_path / "notes", format="vasp-xml")


def test_a_molecule_has_no_cell(tmp_path):
    write(tmp_path / "a.xyz", molecule("H2O"))
    frames = readers.read(tmp_path / "a.xyz")
    assert not frames.pbc.any() and not frames.cells.any() and np.isnan(frames.energies).all()


def test_a_virial_without_a_volume_is_no_stress():
    """As files of DeePMD hold it for a molecule; ase has no place for it."""
    frames = frames_of([molecule("H2O")], [1.0], virials=[np.ones((3, 3))])
    found = frames.atoms(0)
    assert found.get_potential_energy() == 1.0
    assert "stress" not in found.calc.results


@pytest.mark.parametrize("of", ["extxyz", "deepmd", "dpdata"])
def test_kinds_that_are_no_elements(tmp_path, of):
    """Each reader takes what --map says, and names what it does not."""
    atoms = labelled(crystal())
    kinds = np.where(atoms.numbers == 10, "Ne1", np.where(np.arange(32) % 2, "Ar1", "B"))
    path, kind = tmp_path / "a", None
    if of == "extxyz":
        write(path := tmp_path / "a.xyz", atoms)
        first, second, *rows = path.read_text().splitlines()
        rows = [f"{name} {row.split(maxsplit=1)[1]}" for name, row in zip(kinds, rows, strict=True)]
        path.write_text("\n".join([first, second, *rows]))
    elif of == "deepmd":
        write_deepmd(path, [atoms])
        names, types = np.unique(kinds, return_inverse=True)
        np.savetxt(path / "type.raw", types, "%d")
        (path / "type_map.raw").write_text(" ".join([*names, "unused"]))
    else:
        pytest.importorskip("h5py")
        write_deepmd(tmp_path / "system", [atoms])
        dpdata = pytest.importorskip("dpdata")
        system = dpdata.LabeledSystem(str(tmp_path / "system"), fmt="deepmd/npy")
        names, types = np.unique(kinds, return_inverse=True)
        system.data |= {"atom_names": list(names), "atom_types": types}
        system.data["atom_numbs"] = np.bincount(types).tolist()
        system.to("deepmd/hdf5", str(path))
        kind = "dpdata:deepmd/hdf5"
    said = r"frame 0 of .*'Ar1', 'Ne1' is no element.* --map Ar1=Ar --map Ne1=Ne .*run\.toml"
    with pytest.raises(Failure, match=said):
        readers.read(path, kind)
    with pytest.raises(Failure, match="'Ar1' is no element"):
        readers.read(path, kind, kinds={"Ne1": "Ne"})
    with pytest.raises(Failure, match="'Ne1' is 'Neon', expected a chemical symbol"):
        readers.read(path, kind, kinds={"Ne1": "Neon"})
    # A kind may have the name of another element.
    mapped = {"Ar1": "Ar", "Ne1": "ne", "B": "Ar"}
    found = readers.read(path, kind, kinds=mapped)
    np.testing.assert_array_equal(np.sort(found.numbers), np.sort(atoms.numbers))
    np.testing.assert_array_equal(found.numbers == 10, found.numbers != 18)
    if of != "dpdata":  # which sorts atoms
        np.testing.assert_array_equal(found.numbers, atoms.numbers)


def test_kinds_in_files_of_atomic_numbers(tmp_path):
    write(tmp_path / "a.traj", labelled(crystal()))
    assert readers.read(tmp_path / "a.traj", kinds={"Ne": "He"}).elements == [2, 18]
