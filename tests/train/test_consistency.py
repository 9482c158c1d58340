"""Wrong signs and units are told from labels that fit, which ase's potential makes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.data import atomic_numbers
from ase.io import write

import genuine
from labelled_structures import crystal, frames_of, labelled, trajectory
from pwmlff.data import consistency, readers, virials
from pwmlff.data import units as wrong_units
from pwmlff.data.frames import Frames
from pwmlff.data.labelled import Labelled, gathered


@pytest.fixture(scope="module")
def frames_in(tmp_path_factory):
    def read(structures, name="run.xyz"):
        path = tmp_path_factory.mktemp("runs") / name
        write(path, structures)
        return readers.read(path)

    return read


@pytest.fixture(scope="module")
def still(frames_in):
    return frames_in(trajectory(12))


@pytest.fixture(scope="module")
def strained(frames_in):
    return frames_in(trajectory(12, step=0.002, strain=0.003))


def texts(frames):
    return [finding.text for finding in consistency.findings(frames) if finding.warning]


def test_labels_that_fit_are_not_warned_of(still, strained):
    assert texts(still) == texts(strained) == []
    assert consistency.findings(still) == consistency.findings(strained) == []
    # In one cell, too few frames do not say which sign the stress has, and that is said.
    assert [f.text for f in consistency.findings(still.select(range(2)))] == [
        "the sign of the stress cannot be told: no frames of one composition differ enough in "
        "volume, or their pressures show no trend"
    ]


@pytest.mark.parametrize("strain", [0.0, 0.003])
@pytest.mark.parametrize("step", [0.003, 0.03])
def test_what_is_left_is_below_its_bound(frames_in, step, strain):
    frames = frames_in(trajectory(6, step, strain))
    (steps,) = consistency._runs(frames, np.arange(6))
    left = steps.energy - steps.work - steps.strain_work
    assert (np.abs(left) < steps.bound + steps.strain_bound).all()
    assert (np.abs(left) < 0.1 * np.abs(steps.energy)).all()


@pytest.mark.parametrize(
    "factor, expected",
    [
        (-1.0, "sign of the forces is wrong; expected"),
        (units.Bohr / units.Hartree, "perhaps hartree/bohr for eV/Å"),
        (-units.Hartree / units.Bohr, "sign of the forces is wrong and the unit"),
        (units.mol / units.kcal, "perhaps kcal/mol/Å for eV/Å"),
    ],
)
def test_wrong_forces(still, factor, expected):
    anywhere = np.random.default_rng(0).normal(0.0, 9.0, 3)  # in the cell or outside of it
    wrong = replace(still, forces=factor * still.forces, positions=still.positions + anywhere)
    (text,) = texts(wrong)
    assert expected in text and "run.xyz" in text


def test_wrong_energies(still):
    wrong = replace(still, energies=still.energies / units.Hartree)
    (text,) = texts(wrong)
    assert "hartree for eV" in text


def test_forces_of_other_atoms(still):
    rng = np.random.default_rng(0)
    wrong = replace(still, forces=rng.normal(size=still.forces.shape) * still.forces.std())
    assert all("forces" in text for text in texts(wrong))


def test_energies_of_the_frame_before(frames_in):
    structures = trajectory(16, step=0.02)
    values = [atoms.calc.results["energy"] for atoms in structures]
    for atoms, value in zip(structures[1:], values, strict=False):
        atoms.calc.results["energy"] = value
    (text,) = texts(frames_in(structures[1:]))
    assert "do not belong together" in text and "look at the order of frames" in text


def test_one_odd_frame_is_named(still):
    energies = still.energies.copy()
    energies[5] += 0.5
    frames = replace(still, energies=energies)
    found = [f for f in consistency.findings(frames) if f.warning]
    assert [f.frame for f in found] == [5, 6]
    assert "frame 5 of" in found[0].text and "not converged" in found[0].text


@pytest.mark.parametrize(
    "factor, expected",
    [(-1.0, "sign of the virial"), (160.21766, "perhaps GPa for eV/angstrom^3")],
)
def test_wrong_stress_along_a_trajectory(strained, factor, expected):
    (text,) = texts(replace(strained, virials=factor * strained.virials))
    assert expected in text


def test_a_constant_along_a_trajectory_is_none_of_the_unit(strained):
    frames = replace(strained, virials=strained.virials + 32 * 9.0 * np.eye(3))
    assert [finding.kind for finding in consistency.findings(frames)] == ["virial offset"]


def test_the_sign_of_the_stress_by_volumes(frames_in):
    """Where there are no forces, pressures and volumes tell."""
    frames = frames_in([labelled(crystal(scale, seed=1)) for scale in (1.1, 0.95, 1.0, 1.05, 0.97)])
    frames = replace(frames, forces=np.full_like(frames.forces, np.nan))
    assert consistency.findings(frames) == []
    (text,) = texts(replace(frames, virials=-frames.virials))
    assert "grows with the volume" in text
    (text,) = texts(replace(frames, virials=1602.0 * 160.2 * frames.virials))
    assert "bulk modulus" in text


def with_virials(structures):
    """Frames with the labels of their calculators; the virial where a cell has no volume, too."""
    return frames_of(
        structures,
        [a.get_potential_energy() for a in structures],
        [a.get_forces() for a in structures],
        [-a.get_volume() * a.get_stress(voigt=False) for a in structures],
    )


@pytest.fixture(scope="module")
def molecules():
    """In two boxes, at any place, wrapped; some frames hold two of them."""
    rng, result = np.random.default_rng(3), []
    for k in range(8):
        atoms = molecule(("CH3CH2OH", "CH4")[k % 2], vacuum=6.0 + k % 3, pbc=True)
        if k > 5:
            atoms = atoms.repeat((2, 1, 1))
        atoms.positions += rng.normal(0.0, 0.08, atoms.positions.shape) + rng.uniform(0, 9, 3)
        atoms.wrap()
        atoms.calc = EMT()
        result.append(atoms)
    return with_virials(result)


@pytest.fixture(scope="module")
def copper():
    """Copper of ase's effective medium potential, in one cell and in strained ones."""
    result = []
    for strain in (0.0, 0.02):
        rng, structures = np.random.default_rng(2), []
        for _ in range(10):
            atoms = bulk("Cu", cubic=True).repeat(2)
            change = rng.normal(0.0, strain, (3, 3))
            atoms.set_cell(atoms.cell @ (np.eye(3) + (change + change.T) / 2.0), scale_atoms=True)
            atoms.positions += rng.normal(0.0, 0.08, atoms.positions.shape)
            atoms.calc = EMT()
            structures.append(atoms)
        result.append(with_virials(structures))
    return result


def test_large_atoms_are_no_clusters():
    """Nearest atoms of potassium are 4.6 angstrom apart, and pull at each other all the same."""
    structures = []
    for seed in range(8):
        atoms = bulk("K", "bcc", 5.33, cubic=True) * (2, 2, 2)
        atoms.rattle(0.2, seed=seed)
        atoms.calc = LennardJones(sigma=4.1, epsilon=0.05, rc=8.0)
        structures.append(atoms)
    frames = with_virials(structures)
    found = virials.judge(frames, np.arange(len(frames)))
    assert found.fits and found.law.name.startswith("the pair potential")
    assert [f.text for f in consistency.findings(frames) if f.warning] == []


@pytest.mark.parametrize("symbol, repeat", [("Au", 2), ("Pt", 2), ("Pd", 2), ("Cu", 1)])
def test_what_pairs_do_not_know_of_a_pressure_is_no_constant(symbol, repeat):
    """What many atoms add to it, and cells so small that forces of many pairs are zero."""
    for size in (0.05, 0.1):
        rng, structures = np.random.default_rng(3), []
        for _ in range(12):
            atoms = bulk(symbol, cubic=True).repeat(repeat)
            atoms.positions += rng.normal(0.0, size, atoms.positions.shape)
            atoms.calc = EMT()
            structures.append(atoms)
        frames = with_virials(structures)
        found = virials.judge(frames, np.arange(len(frames)))
        assert found.fits and not found.apart
        assert [f for f in consistency.findings(frames) if f.kind == "virial offset"] == []


def test_virials_of_clusters_are_those_of_their_forces(molecules):
    found = virials.judge(molecules, np.arange(len(molecules)))
    assert found.slope == pytest.approx(1.0, abs=1e-6)
    assert found.offset == pytest.approx(0.0, abs=1e-6)
    for k in (0, 6):  # EMT's stress is made of the derivatives of the energy by its pairs
        np.testing.assert_allclose(
            virials._cluster_virial(molecules, k), molecules.virials[k], atol=1e-8
        )
    assert virials._cluster_virial(frames_of([bulk("Cu", cubic=True)]), 0) is None


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda w, volume: -w, "the sign of the virials or of the forces is wrong;"),
        (lambda w, volume: 1602.1766 * w, "unit of the virials or stresses is wrong, perhaps kbar"),
        (lambda w, volume: -160.21766 * w, "is wrong and the unit .* perhaps GPa for eV/angstrom"),
        (lambda w, volume: w / volume, "perhaps a stress in eV/angstrom.3 for a virial"),
        (lambda w, volume: 0.0 * w, "zero in all components"),
    ],
)
@pytest.mark.parametrize("kind", ["molecules", "one cell", "strained"])
def test_wrong_virials_where_there_is_no_trajectory(molecules, copper, kind, change, expected):
    sound = {"molecules": molecules, "one cell": copper[0], "strained": copper[1]}[kind]
    assert texts(sound) == []
    sound = sound.select([k for k in range(len(sound)) if k not in (2, 5)])
    volume = np.abs(np.linalg.det(sound.cells)).mean()
    (text,) = texts(replace(sound, virials=change(sound.virials, volume)))
    assert re.search(expected, text) and "file.xyz" in text


@pytest.mark.parametrize(
    "kind, constant", [("molecules", 0.2), ("one cell", 9.0), ("strained", 2.0)]
)
def test_a_constant_beside_the_virials(molecules, copper, kind, constant):
    sound = {"molecules": molecules, "one cell": copper[0], "strained": copper[1]}[kind]
    added = constant * sound.natoms[:, None, None] * np.eye(3)
    frames = replace(sound, virials=sound.virials + added)
    (finding,) = consistency.findings(frames)
    assert finding.kind == "virial offset" and finding.warning
    found = virials.judge(frames, np.arange(len(frames)))
    assert found.shifted and found.offset == pytest.approx(constant, abs=0.3 * constant)
    gpa = found.pressure / units.GPa
    assert f"{found.offset:.3g} eV per atom" in finding.text and f"{gpa:.3g} GPa" in finding.text
    mean_volume = np.abs(np.linalg.det(frames.cells)).mean()
    assert found.pressure * mean_volume == pytest.approx(found.offset * frames.natoms.mean())


def test_wrong_virials_of_three_frames(copper):
    sound = copper[1].select(range(3))
    assert texts(sound) == []
    (text,) = texts(replace(sound, virials=-1602.1766 * sound.virials))
    assert "sign of the virials" in text and "perhaps kbar" in text


def test_pressures_that_nothing_has(copper):
    """One frame is enough; bar for eV/angstrom^3, as LAMMPS writes them."""
    one = copper[1].select([0])
    assert texts(one) == []
    wrong = replace(one, virials=one.virials / units.bar)
    pressure = np.trace(wrong.virials[0]) / 3.0 / one.volumes[0] / units.GPa
    (finding,) = [f for f in consistency.findings(wrong) if f.warning]
    assert finding.kind == "stress" and f"means {pressure:.3g} GPa" in finding.text
    assert finding.virials == (0,)


def test_forces_that_are_all_zero(copper):
    """Those of a perfect crystal are; others were not computed."""
    forces = copper[1].forces.copy()
    forces[copper[1].rows(4)] = 0.0
    (text,) = texts(replace(copper[1], forces=forces))
    assert "forces of 1 of 10 frames" in text and "the first of them 4" in text
    crystals = [bulk("Cu", cubic=True), bulk("NaCl", "rocksalt", a=5.64), Atoms("Cu")]
    crystals.append(Atoms("Cu2", [[0, 0, 0], [0, 0, 7.0]]))  # farther than they reach
    frames = frames_of(crystals, [0.0] * 4, [np.zeros((len(a), 3)) for a in crystals])
    (finding,) = consistency.findings(frames)
    assert not finding.warning and "3 of 4" in finding.text
    dimer = Atoms("Cu2", [[0, 0, 0], [0, 0, 2.2]])
    assert len(texts(frames_of([dimer], [0.0], [np.zeros((2, 3))]))) == 1


@pytest.mark.parametrize("count", [1, 8])
def test_a_force_larger_than_that_of_nuclei(copper, count):
    forces = copper[0].forces.copy()
    forces[5, 1] = -1e8
    frames = replace(copper[0], forces=forces).select(range(count))
    found = [f for f in consistency.findings(frames) if f.frame is not None]
    assert [f.frame for f in found] == [0] and "the force of atom 5 is 1e+08" in found[0].text
    # Bare nuclei at 0.4 angstrom: what is near may push hard.
    near = Atoms("Cu2", [[0, 0, 0], [0, 0, 0.4]])
    push = 29**2 * 14.399645 / 0.4**2
    frames = frames_of([near], [0.0], [np.array([[0, 0, -push], [0, 0, push]])])
    assert texts(frames) == []


def test_far_frames_still_tell_the_sign(frames_in):
    frames = frames_in(trajectory(24, step=0.13, seed=3))
    (steps,) = consistency._runs(frames, np.arange(24))
    assert (steps.bound < consistency.SMALL * np.abs(steps.work)).sum() < consistency.STEPS
    assert texts(frames) == []
    (text,) = texts(replace(frames, forces=-frames.forces))
    assert "sign of the forces is wrong" in text


def test_frames_that_are_no_trajectory_tell_of_forces_by_virials(frames_in):
    frames = frames_in([labelled(crystal(seed=k)) for k in range(6)])  # other elements, too
    (text,) = texts(replace(frames, forces=-frames.forces))
    assert "sign of the virials or of the forces is wrong" in text
    none = np.full_like(frames.virials, np.nan)
    assert texts(replace(frames, forces=-frames.forces, virials=none)) == []


def test_pieces_and_missing_labels(still, monkeypatch):
    whole = [*consistency._runs(still, np.arange(12))]
    monkeypatch.setattr(consistency, "MOST_FRAMES", 5)
    pieces = [*consistency._runs(still, np.arange(12))]
    assert len(whole) == 1 and len(pieces) == 3
    for name in ("frame", "energy", "work", "bound"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(p, name) for p in pieces]), getattr(whole[0], name)
        )
    energies, forces = still.energies.copy(), still.forces.copy()
    energies[2], forces[still.first[7] : still.first[8]] = np.nan, np.nan
    wrong = replace(still, energies=energies, forces=-forces)
    (text,) = texts(wrong)
    assert "sign of the forces is wrong" in text


def test_clusters_without_a_cell(still):
    # Far from its images, a crystal that is cut out of its cell has energies of its own.
    structures = []
    for atoms in trajectory(10):
        cluster = labelled(Atoms(atoms.numbers, atoms.positions, cell=[90, 90, 90], pbc=False))
        structures.append(cluster)
    frames = gathered(
        [
            Labelled(
                a.numbers, a.positions, np.zeros((3, 3)), a.pbc, k, a.get_potential_energy(),
                a.get_forces(),
            )
            for k, a in enumerate(structures)
        ],
        "clusters.xyz",
        "clusters",
    )  # fmt: skip
    wrong = replace(frames, forces=-frames.forces)
    assert consistency.findings(frames) == []
    (text,) = texts(wrong)
    assert "sign of the forces is wrong" in text
    # The box around them means nothing.
    boxes = np.random.default_rng(0).normal(size=(10, 3, 3)) * [[[9.0], [9.0], [0.0]]]
    (text,) = texts(replace(wrong, cells=boxes))
    assert "sign of the forces is wrong" in text


def test_cells_that_are_none_are_left_out(still):
    cells = still.cells.copy()
    cells[3] = np.nan
    cells[6, 2] = 2.0 * cells[6, 1]
    (text,) = texts(replace(still, cells=cells, forces=-still.forces))
    assert "sign of the forces is wrong" in text


@pytest.mark.parametrize("decimals", [1, 2, 3, 4])
def test_energies_with_few_decimals_are_no_mistake(frames_in, decimals):
    frames = frames_in(trajectory(12, step=0.0005))
    assert texts(replace(frames, energies=frames.energies.round(decimals))) == []


def test_energies_that_stay(still):
    (text,) = texts(replace(still, energies=np.full(12, -3.123456789)))
    assert "the energies are the same" in text


def in_units(frames, energies=1.0, forces=1.0, stresses=1.0, positions=1.0):
    """Labels, positions and cells as another program may have written them."""
    return replace(
        frames,
        energies=frames.energies * energies,
        forces=frames.forces * forces,
        virials=frames.virials * stresses * positions**3,
        positions=frames.positions * positions,
        cells=frames.cells * positions,
    )


KCAL, HARTREE, BOHR = units.mol / units.kcal, 1.0 / units.Hartree, 1.0 / units.Bohr


@pytest.mark.parametrize(
    "factors, expected",
    [
        ({"energies": KCAL}, ["energies is wrong, perhaps kcal/mol for eV"]),
        ({"energies": 1.0 / units.Rydberg}, ["energies is wrong, perhaps rydberg for eV"]),
        ({"forces": units.Bohr}, ["forces is wrong, perhaps eV/bohr for eV/"]),
        ({"forces": HARTREE / BOHR}, ["forces is wrong, perhaps hartree/bohr for eV/"]),
        ({"positions": BOHR}, ["positions is wrong, perhaps bohr for angstrom"]),
        ({"energies": KCAL, "forces": KCAL, "stresses": KCAL}, ["kcal/mol for", "kcal/mol/Å for"]),
        (
            {"energies": HARTREE, "forces": HARTREE / BOHR, "stresses": HARTREE / BOHR**3,
             "positions": BOHR},
            ["hartree for eV", "hartree/bohr for eV/", "bohr for angstrom"],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [0, 1])
def test_a_source_in_other_units(copper, kind, factors, expected):
    """Rattled frames, in one cell and in strained ones; forces tell of energies without steps."""
    (finding,) = [f for f in consistency.findings(in_units(copper[kind], **factors)) if f.warning]
    assert finding.kind == "forces" and finding.source == "file.xyz"
    assert finding.text.count("the unit of the") - ("stresses is" in finding.text) == len(expected)
    for words in expected:
        assert words in finding.text


def test_one_source_of_two_in_other_units(copper):
    sound, other = copper
    for factor in (KCAL, 1.0 / KCAL):
        scaled = in_units(other, energies=factor, forces=factor, stresses=factor)
        parts = [replace(scaled, files=("a.xyz",)), replace(sound, files=("b.xyz",))]
        found = [f for f in consistency.findings(Frames.joined(parts)) if f.source]
        assert [f.source for f in found] == ["a.xyz"]


def test_a_source_that_another_one_tells_of():
    """Soft pairs in kcal/mol might be hard ones, but not beside the same in eV."""
    soft = wrong_units.SourceNumbers(
        energy=wrong_units.Known(0.0, 0.06),
        length=wrong_units.Known(0.0, 0.13),
        stiffness=wrong_units.Known(np.log(0.3), 0.5),
        composition=(1.0,),
    )
    hard = replace(soft, stiffness=wrong_units.Known(np.log(0.3 * KCAL), 0.5))
    assert wrong_units.explain(soft) is None and wrong_units.explain(hard) is None
    for first, second in ((soft, hard), (hard, soft)):
        ((name, reference, found),) = wrong_units.stiffness_mismatches({"a": first, "b": second})
        assert {name, reference} == {"a", "b"} and (name == "a") is (first is hard)
        assert found.units.keys() == {"energies", "forces"}
        assert found.units["energies"].name == "kcal/mol"
    far = replace(hard, length=wrong_units.Known(0.1, 0.13))
    assert [*wrong_units.stiffness_mismatches({"a": soft, "b": far})] == []


def test_valence_electrons():
    """By the groups of the periodic table."""
    expected = {"H": 1, "C": 4, "O": 2, "F": 1, "Na": 1, "Mg": 2, "Al": 3, "Cl": 1, "Ti": 4,
                "W": 6, "Zn": 2, "Cu": 4, "La": 3, "Eu": 3, "Hf": 4, "Pb": 4, "U": 3}  # fmt: skip
    assert {symbol: wrong_units._valence(atomic_numbers[symbol]) for symbol in expected} == expected


@pytest.mark.parametrize("file", ["hfo2_dft/valid.extxyz", "agpd/train.extxyz"])
@pytest.mark.parametrize("count", [3, 8, 60])
def test_genuine_data_are_in_their_units(file, count):
    path = genuine.DATA / file
    if not path.exists():
        pytest.skip(f"no {path}")
    frames = readers.read(f"{path}@:{count}")
    assert texts(frames) == []
    if count > 3:
        (text,) = texts(in_units(frames, energies=KCAL))
        assert "kcal/mol for eV" in text
