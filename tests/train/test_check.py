"""`pwmlff data check` names what was put in: each kind of mistake, by file and frame."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from typer.testing import CliRunner

import wrong_data
from labelled_structures import crystal, labelled, trajectory
from pwmlff.cli import app
from pwmlff.data import check


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(app, ["data", "check", *map(str, arguments)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    return run


@pytest.fixture
def report(run):
    def report(*arguments):
        code, output, _ = run(*arguments, "--json")
        return code, json.loads(output)

    return report


def problems(data, kind):
    return [(p["file"], p["index"]) for p in data["problems"] if p["kind"] == kind]


def test_good_data(tmp_path, run, report):
    structures = trajectory(12)
    write(tmp_path / "a.xyz", structures)
    code, data = report("a.xyz", "--elements", "Ar Ne", "--cutoff", 4.0, "--plot", "data.png")
    assert code == 0 and data["ok"] and data["problems"] == []
    counts = np.bincount(structures[0].numbers)
    assert data["compositions"] == {f"Ne{counts[10]} Ar{counts[18]}": 12}
    assert data["files"]["a.xyz"] == {
        "frames": 12, "atoms": "32", "energies": 12, "forces": 12, "virials": 12, "Born charges": 0,
    }  # fmt: skip
    energies = [a.get_potential_energy() / 32 for a in structures]
    assert data["ranges"]["energy per atom"] == pytest.approx([min(energies), max(energies)])
    pressures = [-a.get_stress()[:3].mean() / units.GPa for a in structures]
    found = data["ranges"]["pressure, GPa of eV and angstrom"]
    assert found == pytest.approx([min(pressures), max(pressures)])
    nearest = min(a.get_all_distances(mic=True)[~np.eye(32, dtype=bool)].min() for a in structures)
    assert min(data["shortest"].values()) == pytest.approx(nearest)
    assert (tmp_path / "data.png").read_bytes().startswith(b"\x89PNG")
    code, output, _ = run("a.xyz")
    assert code == 0 and "nothing odd was found" in output and "note:" not in output
    assert "Born" not in output and not any("rule" in name for name in data["ranges"])


def test_labels(tmp_path, report):
    structures = trajectory(5)
    del structures[1].calc.results["forces"]
    structures[2].calc.results["forces"][3, 1] = np.nan
    structures[3].calc.results.clear()
    structures[4].calc.results["energy"] = np.inf
    write(tmp_path / "a.xyz", structures)
    code, data = report("a.xyz")
    assert code == 1
    assert problems(data, "missing labels") == [("a.xyz", 1)]
    assert problems(data, "not finite") == [("a.xyz", 2), ("a.xyz", 4)]
    assert problems(data, "no labels") == [("a.xyz", 3)]
    assert "the force of atom 3 is" in str(data["problems"])


def test_two_energies(tmp_path, report):
    """One line for all frames; the option says which one is taken."""
    structures = trajectory(5)
    energies = [a.get_potential_energy() for a in structures]
    for atoms in structures:
        atoms.calc.results["free_energy"] = atoms.calc.results["energy"] - 0.32
    write(tmp_path / "a.xyz", structures)
    for words, shift in (((), 0.32), (("--energy", "zero"), 0.0)):
        code, data = report("a.xyz", *words)
        (problem,) = data["problems"]
        assert code == 0 and problem["kind"] == "ambiguous labels"
        assert "(5 structures) has a free energy and another energy, up to 0.01" in problem["text"]
        lowest = data["ranges"]["energy per atom"][0]
        assert lowest == pytest.approx((min(energies) - shift) / 32)


def test_structures(tmp_path, report):
    structures = trajectory(6)
    structures[1].positions[4] = structures[1].positions[5] + [0.0, 0.1, 0.0]
    structures[2].numbers[0] = 36
    structures[3].positions[0, 0] = np.nan
    write(tmp_path / "a.xyz", structures[:3])
    write(tmp_path / "b.xyz", structures[3:])
    code, data = report("a.xyz", "b.xyz", "--elements", "Ar,Ne")
    assert code == 1
    assert problems(data, "overlapping atoms") == [("a.xyz", 1)]
    assert problems(data, "unknown element") == [("a.xyz", 2)]
    assert problems(data, "cannot be used") == [("b.xyz", 0)]
    code, data = report("a.xyz", "--closest", 0.05)
    assert problems(data, "overlapping atoms") == problems(data, "unknown element") == []


def test_elements_without_data(tmp_path, report):
    write(tmp_path / "a.xyz", trajectory(6))
    code, data = report("a.xyz", "--elements", "Ar Kr Ne Xe")
    assert code == 0 and [p["text"] for p in data["problems"]] == [
        f"no frame holds {symbol}, which --elements names" for symbol in ("Kr", "Xe")
    ]


def test_duplicates_in_any_frame_of_reference(tmp_path, report):
    structures = trajectory(4, seed=2)
    first = structures[1]
    turned = first.copy()
    turned.rotate(33.0, (1.0, 2.0, 3.0), rotate_cell=True)
    turned.positions += (1.0, 2.0, 0.3)
    turned.wrap()
    turned = turned[np.random.default_rng(0).permutation(len(turned))]
    other = labelled(first)
    other.calc.results["energy"] += 1.0
    moved = first.copy()
    moved.positions[3, 0] += 1e-3
    write(tmp_path / "a.xyz", [*structures, labelled(turned), other, labelled(moved)])
    code, data = report("a.xyz")
    assert problems(data, "duplicate") == [("a.xyz", 4)]
    assert problems(data, "duplicate with another energy") == [("a.xyz", 5)]
    assert code == 1


def test_duplicates_at_the_digits_of_files(tmp_path, report):
    """In whatever format: six decimals, ten, single precision, fractions of the cell."""
    structures = trajectory(6, step=0.002)  # frames that nearly are the same
    write(tmp_path / "whole.xyz", structures[:4])
    few = [a.copy() for a in structures[2:5]]
    for atoms in few:
        atoms.positions = atoms.positions.round(5)
        atoms.set_cell(np.round(atoms.cell, 5))
    write(tmp_path / "few.xyz", [labelled(a) for a in few])
    system = tmp_path / "single" / "set.000"
    system.mkdir(parents=True)
    atoms = structures[5]
    system.with_name("type.raw").write_text("\n".join(map(str, atoms.numbers // 11)))
    system.with_name("type_map.raw").write_text("Ne\nAr\n")
    np.save(system / "coord.npy", np.float32([atoms.positions.ravel()]))
    np.save(system / "box.npy", np.float32([np.ravel(atoms.cell)]))
    np.save(system / "energy.npy", np.float32([atoms.get_potential_energy()]))
    fractions = atoms.get_scaled_positions(wrap=False)
    for decimals, name in ((10, "fractions"), (16, "all")):
        lines = [
            f"{z} {' '.join(f'{x:.{decimals}f}' for x in row)} 1 1 1"
            for z, row in zip(atoms.numbers, fractions, strict=True)
        ]
        energy = atoms.get_potential_energy()
        (tmp_path / name).write_text(
            f"32 atoms, Iteration (fs) = 0.0, Etot,Ep,Ek (eV) = {energy} {energy} 0.0\n"
            "Lattice vector (Angstrom)\n"
            + "".join(" ".join(f"{x:.12f}" for x in row) + "\n" for row in atoms.cell)
            + "Position (normalized)\n"
            + "\n".join([*lines, 50 * "-", ""])
        )
    _, data = report("whole.xyz", "few.xyz", "single", "fractions", "all")
    assert problems(data, "duplicate") == [
        ("few.xyz", 0), ("few.xyz", 1), ("fractions", 0), ("all", 0),
    ]  # fmt: skip


def test_what_is_no_duplicate(tmp_path, report):
    """One atom a little off its place, either way, and pairs that are farther than the cutoff."""
    displaced = []
    for k, move in ((3, 0.001), (3, 0.002), (4, 0.001)):
        atoms = crystal()
        atoms.positions[k, 1] += move
        displaced.append(labelled(atoms))
    boxes = [Atoms("Ar2", [[0, 0, 0], [0, 0, d]], cell=[99] * 3) for d in (7.0, 7.5, 8.0)]
    pairs = [labelled(atoms) for atoms in boxes]
    write(tmp_path / "displaced.xyz", displaced)
    write(tmp_path / "pairs.xyz", pairs)
    _, data = report("displaced.xyz", "pairs.xyz")
    assert problems(data, "duplicate") == []


def test_outliers(tmp_path, report):
    rng = np.random.default_rng(0)
    structures = trajectory(30, step=0.1)
    structures[7].calc.results["energy"] += 64.0
    structures[9].calc.results["forces"][5] = (300.0, 0.0, 0.0)
    rng.shuffle(structures)
    places = {
        kind: next(k for k, a in enumerate(structures) if test(a))
        for kind, test in {
            "energy outlier": lambda a: a.get_potential_energy() > np.median(
                [b.get_potential_energy() for b in structures]
            ) + 50,
            "force outlier": lambda a: a.get_forces().max() == 300.0,
        }.items()
    }  # fmt: skip
    write(tmp_path / "a.xyz", structures)
    _, data = report("a.xyz")
    for kind, index in places.items():
        assert problems(data, kind) == [("a.xyz", index)]


def with_born_charges(count: int) -> list[Atoms]:
    """Frames whose Born charges, nearly 2.5 e and -2.5 e, add up to zero."""
    rng = np.random.default_rng(3)
    structures = trajectory(count, step=0.1)
    for atoms in structures:
        atoms.numbers[:] = np.repeat([10, 18], 16)
        charges = np.repeat([2.5, -2.5], 16)[:, None, None] * np.eye(3)
        charges = charges + rng.normal(0.0, 0.2, (32, 3, 3))
        charges -= charges.mean(axis=0)
        atoms.arrays["bec"] = charges.reshape(32, 9)
    return structures


def test_born_charges(tmp_path, run, report):
    """How many there are, their sum over a frame, and those far from others of their element."""
    structures = with_born_charges(14)
    for atoms in structures[:2]:
        del atoms.arrays["bec"]
    write(tmp_path / "sound.xyz", structures)
    code, data = report("sound.xyz")
    assert code == 0 and data["problems"] == []
    assert data["files"]["sound.xyz"]["Born charges"] == 12
    largest = [abs(atoms.arrays["bec"]).max() for atoms in structures[2:]]
    found = data["ranges"]["largest component of a Born charge, e"]
    assert found == pytest.approx([min(largest), max(largest)], abs=1e-7)
    assert data["ranges"]["off the acoustic sum rule, e"][1] < 1e-6
    lines = run("sound.xyz")[1].splitlines()
    assert "Born charges" in lines[0] and lines[1].split()[-1] == "12"

    structures[3].arrays["bec"] *= -1.0
    structures[5].arrays["bec"][7, 3] += 9.0  # the yx component
    structures[6].arrays["bec"][:, [0, 4, 8]] += 4.0 / 32
    structures[6].info["charge"] = 4.0  # which its Born charges add up to
    structures[8].arrays["bec"][20:] *= 0.5
    write(tmp_path / "a.xyz", structures)
    code, data = report("a.xyz")
    sums = [a.arrays["bec"].sum(axis=0) for a in structures[2:] if "charge" not in a.info]
    worst = max(abs(total).max() for total in sums)
    assert data["ranges"]["off the acoustic sum rule, e"][1] == pytest.approx(worst)
    assert problems(data, "Born charge outlier") == [("a.xyz", 3), ("a.xyz", 5)]
    assert problems(data, "acoustic sum rule") == [("a.xyz", 5), ("a.xyz", 8)]
    assert code == 0
    text = next(p["text"] for p in data["problems"] if p["index"] == 5 and "add up" in p["text"])
    rms = np.sqrt((structures[5].arrays["bec"] ** 2).mean())
    assert "add up to 9 e beside the total charge, in 32 atoms" in text and f"{rms:.3g} e" in text


def test_born_charges_that_are_none(tmp_path, run):
    structures = with_born_charges(3)
    structures[1].arrays["bec"][4, 2] = np.nan
    write(tmp_path / "a.xyz", structures)
    code, _, said = run("a.xyz")
    assert code == 2 and "frame 1 of 'a.xyz'" in said and "not finite" in said
    structures[1].arrays["bec"] = structures[0].arrays["bec"][:, :6]
    write(tmp_path / "a.xyz", structures)
    code, _, said = run("a.xyz")
    assert code == 2 and "frame 1 of 'a.xyz'" in said and "[32, 6], expected [32, 9]" in said


def test_isolated_atoms_are_odd_beside_each_other_alone(tmp_path, report):
    """Their energies, cells and missing labels are none of those of crystals of their element."""
    crystals = [bulk("Cu", a=3.5 + 0.02 * k) for k in range(12)]
    alone = [Atoms("Cu", info={"energy": 3.51, "config_type": "IsolatedAtom"})]
    alone += [Atoms("Cu", cell=(20.0, 20.0, 20.0), pbc=True) for _ in range(2)]
    for atoms, energy in zip(alone[1:], (3.51, 3.6), strict=True):
        results = {"energy": energy, "forces": np.zeros((1, 3)), "stress": np.zeros(6)}
        atoms.calc = SinglePointCalculator(atoms, **results)
        atoms.info["config_type"] = "isolated_atom"
    structures = [*map(labelled, crystals), alone[0]]
    write(tmp_path / "a.xyz", structures, format="extxyz")
    assert report("a.xyz")[1]["problems"] == []
    write(tmp_path / "b.xyz", [*structures[:-1], alone[1]], format="extxyz")
    assert report("b.xyz")[1]["problems"] == []
    write(tmp_path / "c.xyz", [*structures, alone[2]], format="extxyz")
    code, data = report("c.xyz")
    assert code == 1
    assert problems(data, "duplicate with another energy") == [("c.xyz", 13)]


def test_a_large_force_of_few_frames(tmp_path, report):
    structures = trajectory(8, step=0.1)
    write(tmp_path / "sound.xyz", structures)
    assert report("sound.xyz")[1]["problems"] == []
    structures[3].calc.results["forces"][5] = (5000.0, 0.0, 0.0)
    write(tmp_path / "a.xyz", structures)
    assert problems(report("a.xyz")[1], "force outlier") == [("a.xyz", 3)]
    structures[3].calc.results["forces"][5] = (1e8, 0.0, 0.0)
    write(tmp_path / "a.xyz", structures)
    code, data = report("a.xyz")
    assert code == 1 and ("a.xyz", 3) in problems(data, "forces")


def test_wrong_forces_and_stress(tmp_path, report):
    structures = trajectory(12, step=0.002, strain=0.003)
    for atoms in structures:
        atoms.calc.results["stress"] *= -1.0
    write(tmp_path / "stress.xyz", structures)
    structures = trajectory(12)
    for atoms in structures:
        atoms.calc.results["forces"] *= -1.0
    write(tmp_path / "forces.xyz", structures)
    code, data = report("stress.xyz", "forces.xyz")
    kinds = {p["kind"]: p["text"] for p in data["problems"]}
    assert code == 1 and kinds.keys() == {"stress", "forces"}
    assert "stress.xyz" in kinds["stress"] and "forces.xyz" in kinds["forces"]


def test_molecules_and_frames_without_atoms(tmp_path, report):
    atoms = [Atoms("Ar2", [[0, 0, 0], [0, 0, d]], cell=[99] * 3) for d in (2.4, 2.5)]
    atoms = [labelled(a) for a in atoms]
    write(tmp_path / "a.xyz", [*atoms, Atoms()])
    code, data = report("a.xyz")
    assert code == 1 and problems(data, "cannot be used") == [("a.xyz", 2)]
    assert len(data["problems"]) == 1
    assert data["compositions"] == {"no atoms": 1, "Ar2": 2}
    assert data["shortest"] == {"Ar-Ar": pytest.approx(2.4)}
    write(tmp_path / "none.xyz", Atoms())
    code, data = report("none.xyz")
    assert code == 1 and problems(data, "cannot be used") == [("none.xyz", 0)]


def test_what_cannot_be_checked(tmp_path, run):
    write(tmp_path / "a.xyz", trajectory(2))
    for arguments, message in {
        ("none.xyz",): "found no file",
        ("a.xyz", "--elements", "Ar Foo"): "holds 'Foo'",
        ("a.xyz", "--cutoff", "0"): "--cutoff is 0",
        ("a.xyz", "--plot", "a.nothing"): "its ending is",
    }.items():
        code, _, errors = run(*arguments)
        assert code == 2 and message in " ".join(errors.split())


def test_all_problems_are_in_json_but_the_table_is_short(tmp_path, run, report):
    structures = trajectory(30)
    for atoms in structures:
        atoms.calc.results.clear()
    write(tmp_path / "a.xyz", structures)
    _, data = report("a.xyz")
    assert len(problems(data, "no labels")) == 30
    _, output, _ = run("a.xyz")
    assert "frames 0-29 of 'a.xyz' have neither energy nor forces" in output


def test_frames_with_one_problem_are_one_line(tmp_path, run):
    structures = trajectory(30)
    for k in (3, 4, 5, 9):
        structures[k].calc.results["forces"][k] = np.nan
    for k in range(10, 30):
        structures[k].calc.results["energy"] = (np.inf, -np.inf)[k % 2]
    write(tmp_path / "a.xyz", structures)
    _, output, _ = run("a.xyz")
    lines = [line for line in output.splitlines() if line.startswith("error:")]
    assert len(lines) == 2
    assert lines[0].startswith("error: frames 3-5, 9 of 'a.xyz': frame 3 of 'a.xyz': the force of")
    assert lines[1].startswith("error: frames 10-29 of 'a.xyz': frame 10 of 'a.xyz': energy")


def test_each_file_has_lines_of_its_own(tmp_path, run):
    names = [f"{k}.xyz" for k in range(check.SHOWN + 5)]
    for name in names:
        structures = trajectory(2)
        for atoms in structures:
            atoms.calc.results.clear()
        write(tmp_path / name, structures)
    _, output, _ = run(*names)
    assert output.count("have neither energy nor forces") == check.SHOWN
    assert "5 more of 'no labels'" in output


@pytest.mark.parametrize(
    "name",
    ["energies of the frame before", "two sources in one file", "an energy far off", "a liquid"],
)
def test_a_sample_of_wrong_and_sound_data(tmp_path, name):
    """All of them: benchmarks/wrong_data.py."""
    case = {**wrong_data.WRONG, **wrong_data.SOUND}[name]
    problems = wrong_data.problems_of(case, tmp_path)
    assert wrong_data.found(case, problems)
    assert {problem.kind for problem in problems} <= set(case.kinds)
