"""`pwmlff compare --with`: a model beside ase's own Lennard-Jones potential, as it is and bent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.io import write

from edge_models import LennardJones
from pwmlff.evaluation import agreement, model_file

CUTOFF = 2.5  # between two shells of the crystal: each atom has 54 neighbors
#: By which ase's energy of a pair is higher: it is zero at the cutoff, and that of lj/cut is not.
SHIFT = -4.0 * (CUTOFF**-12 - CUTOFF**-6)
ASE = f"ase.calculators.lj:LennardJones(rc={CUTOFF},smooth=False)"
BENT = "bent.py:Bent"
#: A calculator with the fault that its word names.
SOURCE = """
import sys

import numpy as np
from ase.calculators.lj import LennardJones


class Bent(LennardJones):
    def __init__(self, fault, number=0):
        super().__init__(rc=2.5, smooth=False)
        self.fault, self.number, self.calls = fault, number, 0
        if fault == "no stress":
            self.implemented_properties = ["energy", "forces"]

    def calculate(self, atoms=None, properties=None, system_changes=()):
        if self.fault == "prints":
            print("hello from the calculator")
        if self.calls == self.number and self.fault == "sorts":
            order = np.argsort(atoms.positions[:, 0])
            atoms.positions = atoms.positions[order]
        super().calculate(atoms, properties, system_changes)
        call, self.calls = self.calls, self.calls + 1
        forces, stress = self.results["forces"], self.results.get("stress")
        if self.fault == "sign of stress":
            stress *= -1
        elif self.fault == "GPa":
            stress *= 160.21766208
        elif self.fault == "kcal":
            forces *= 23.06
        elif self.fault == "order":
            self.results["forces"] = forces[::-1].copy()
        elif self.fault == "charge":
            self.results["free_energy"] += atoms.info["charge"]
        elif call == self.number:
            if self.fault == "one force":
                forces[5, 1] += 0.25
            elif self.fault == "raises":
                raise RuntimeError("no convergence")
            elif self.fault == "exits":
                sys.exit("license expired")
            elif self.fault == "NaN":
                forces[3, 2] = np.nan
            elif self.fault == "other atoms":
                self.results["forces"] = forces[:-1]


make = 7
"""


def crystals(count: int = 3) -> list[Atoms]:
    frames = [bulk("Ar", "fcc", a=1.7, cubic=True).repeat(2) for _ in range(count)]
    for seed, atoms in enumerate(frames):
        atoms.rattle(0.02, seed=seed)
    return frames


@pytest.fixture
def compare(pwmlff, tmp_path: Path):
    """Run the comparison on frames: compare(frames, words of the calculator, further words)."""
    torch.jit.script(LennardJones(CUTOFF, "metal")).save(tmp_path / "lj.pt")
    (tmp_path / "bent.py").write_text(SOURCE)

    def run(
        frames: list[Atoms], words: str, *more: str, tol="energy=inf", file="frames.traj"
    ):  # fmt: skip
        write(tmp_path / file, frames)
        command = ("compare", "lj.pt", "--data", f"{file}@:", "--with", words)
        return pwmlff(*command, "--tol", tol, *more)

    return run


def test_the_same_potential(compare, tmp_path: Path):
    """Energies differ by the shift of 27 pairs for each atom, which is said; the rest does not."""
    found = compare(crystals(), ASE, "--json", "--plot", "parity.png", tol="")
    assert found.returncode == 1
    (case,) = found.json["cases"]
    assert case["failed"] == ["energy"]
    assert case["worst"]["energy"] == pytest.approx(27 * SHIFT, rel=1e-12)
    assert case["mean_energy"] == pytest.approx(27 * SHIFT, rel=1e-12)
    assert max(case["worst"][q] for q in ("relative_energy", "force", "stress")) < 1e-12
    assert case["stresses"] == found.json["frames"] == 3
    assert "their references differ, and --tol energy=inf passes over that" in case["notes"][0]
    assert (tmp_path / "parity.png").read_bytes().startswith(b"\x89PNG")
    found = compare(crystals(), ASE)
    assert found.returncode == 0, found.words
    assert "FAIL" not in found.output
    for name in ("energy / atom (eV)", "less its mean difference (eV)", "force", "stress"):
        assert name in found.words


def test_one_frame_has_no_mean_to_take_off(compare):
    found = compare(crystals(1), ASE, "--json")
    assert found.returncode == 0, found.words
    (case,) = found.json["cases"]
    assert set(case["worst"]) == {"energy", "force", "force_rms", "stress"}


def test_what_frames_bring_along(compare):
    """Constraints and labels do not count; there is no stress of a slab; moments are mentioned.

    A calculator sees those of extended XYZ, too.
    """
    frames = crystals(2)
    frames[0].set_constraint(FixAtoms(range(20)))
    frames[0].set_initial_magnetic_moments(np.ones(32))
    frames[1].pbc = (True, True, False)
    frames[1].cell[2, 2] = 20.0
    frames[1].calc = SinglePointCalculator(frames[1], energy=5.0, forces=np.ones((32, 3)))
    cluster = frames[1].copy()
    cluster.pbc = False
    cluster.cell[:] = 0.0
    found = compare([*frames, cluster], ASE, "--json", tol="energy=inf,relative_energy=inf")
    assert found.returncode == 0, found.words
    (case,) = found.json["cases"]
    assert case["worst"]["force"] < 1e-12
    assert case["worst"]["stress"] < 1e-12
    assert case["stresses"] == 1
    moments = "frames have magnetic moments, which the calculator may take and the model does not"
    assert case["notes"] == [
        "no stress is compared of 2 frames: they are not periodic in all directions",
        moments,
    ]
    found = compare(frames[:1], ASE, "--json", file="frames.xyz")
    assert found.json["cases"][0]["notes"] == [moments]


def test_where_it_is_worst(compare):
    found = compare(crystals(), f"{BENT}('one force',1)", "--json")
    assert found.returncode == 1
    (case,) = found.json["cases"]
    assert case["failed"] == ["force", "force_rms"]
    assert case["worst"]["force"] == pytest.approx(0.25)
    assert case["rms"]["force"] == pytest.approx(0.25 / np.sqrt(3 * 96))
    assert case["where"]["force"] == {"frame": 1, "atom": 5, "component": ""}
    assert not any("times that of the model" in note for note in case["notes"])
    shown = compare(crystals(), f"{BENT}('one force',1)")
    assert "frame 1, atom 5" in shown.words
    assert "force differs by 2.5e-01, allowed 1.0e-04" in shown.words


@pytest.mark.parametrize(
    "fault,failed,note",
    [
        ("sign of stress", ["stress"], "stress of the calculator is -1 times that of the model"),
        ("GPa", ["stress"], "stress of the calculator is 160.218 times"),
        ("kcal", ["force", "force_rms"], "force of the calculator is 23.06 times"),
        ("order", ["force", "force_rms"], "in another order of atoms"),
    ],
)
def test_faults_that_have_a_name(compare, fault: str, failed: list[str], note: str):
    found = compare(crystals(), f"{BENT}({fault!r})", "--json")
    assert found.returncode == 1
    (case,) = found.json["cases"]
    assert case["failed"] == failed
    assert len(case["notes"]) == 1
    assert note in case["notes"][0]


@pytest.mark.parametrize(
    "fault,words",
    [
        ("raises", "the calculator failed: RuntimeError: no convergence"),
        ("exits", "the calculator failed: SystemExit: license expired"),
        ("NaN", "gives energies, forces or others that are no numbers"),
        ("other atoms", "gives forces of shape (31, 3), expected (32, 3)"),
        ("sorts", "moves atoms or changes their order"),
    ],
)
def test_a_frame_without_numbers(compare, fault: str, words: str):
    """One row says why; the other frames are compared."""
    found = compare(crystals(), f"{BENT}({fault!r},1)", "--json")
    assert found.returncode == 1
    assert words in found.json["failures"]["1"]
    assert len(found.json["failures"]) == 1
    (case,) = found.json["cases"]
    assert case["ok"]
    assert case["stresses"] == 2
    alone = compare(crystals(1), f"{BENT}({fault!r},0)").words
    assert f"frame 0: {found.json['failures']['1']}" in alone
    assert "another order of atoms" not in alone


def test_nothing_is_no_agreement(compare):
    found = compare(crystals(1), f"{BENT}('raises',0)", "--json", tol="energy=inf,force=inf")
    assert found.returncode == 1
    assert found.json["cases"][0]["failed"] == ["energy", "force", "force_rms"]


def test_a_baseline_is_mentioned(lj_models):
    """What was taken off the labels of a training the calculator may have."""
    info = model_file.open_any(lj_models[0])[1]
    card = {"configuration": {"data": {"baseline": "zbl 3.0 4.0"}}}
    notes = agreement.compared(replace(info, card=card), [], [], {}, {}).notes
    assert any("'zbl 3.0 4.0' was taken off the labels" in note for note in notes)


def test_no_stress(compare):
    """That is said; it is a fault where somebody asks for it."""
    found = compare(crystals(), f"{BENT}('no stress')", "--json")
    assert found.returncode == 0, found.words
    (case,) = found.json["cases"]
    assert "stress" not in case["gates"]
    assert case["notes"] == ["no stress is compared of 3 frames: the calculator gives none"]
    found = compare(crystals(), f"{BENT}('no stress')", tol="energy=inf,stress=1")
    assert found.returncode == 1
    assert "stress has nothing to compare" in found.words


def test_results_are_of_this_frame(compare):
    """Of two frames that differ in a charge alone, which ase's calculators do not look at."""
    frames = [crystals(1)[0] for _ in range(2)]
    for charge, atoms in enumerate(frames):
        atoms.info["charge"] = charge
    found = compare(frames, f"{BENT}('charge')", "--json", file="frames.xyz")
    (case,) = found.json["cases"]
    assert case["worst"]["relative_energy"] == pytest.approx(0.5 / 32)
    assert "frames have a total charge, which the calculator may take" in case["notes"][0]


def test_what_a_calculator_prints(compare):
    found = compare(crystals(1), f"{BENT}('prints')", "--json")
    assert found.json["ok"]
    assert "hello" in found.errors


def test_reduced_units_and_wider_gates(pwmlff, lj_models, tmp_path: Path):
    """A model that has learned lj/cut, within what it has learned it to."""
    write(tmp_path / "frames.traj", crystals())
    command = ("compare", *lj_models, "--data", "frames.traj@:", "--with", ASE)
    found = pwmlff(*command, "--json")
    assert found.returncode == 1
    gates = "energy=inf,relative_energy=1e-3,force=0.5,force_rms=0.2,stress=1"
    found = pwmlff(*command, "--tol", gates)
    assert found.returncode == 0, found.words
    assert found.output.count("reduced units") == 2
    assert "eV/" not in found.output


@pytest.mark.parametrize(
    "words,more,message",
    [
        ("absent:X()", (), "ModuleNotFoundError: No module named 'absent'; expected a module that"),
        ("absent.py:X()", (), "cannot make the calculator 'absent.py:X()'"),
        (f"{BENT}()", (), "TypeError"),
        (BENT, (), "expected a calculator of ase; call what makes one"),
        ("bent.py:make", (), "is 7, expected a calculator of ase"),
        ("bent.py:absent()", (), "AttributeError"),
        ("bent.py:Bent(open('made','w'))", (), "expected module:name, called with plain values"),
        ("bent.py:__import__('os').system('touch made')", (), "expected module:name, called with"),
        (ASE, ("--np", "2"), "found --with and --np: lmp does not run; leave one out"),
        (ASE, ("--tol", "virial=1"), "--tol names virial; expected one of energy, relative_energy"),
        (ASE, ("--plot", "absent/a.png"), "cannot write 'absent/a.png'"),
    ],
)
def test_errors(compare, tmp_path: Path, words: str, more: tuple[str, ...], message: str):
    found = compare(crystals(1), words, *more)
    assert found.returncode == 2
    assert message in found.words
    assert not (tmp_path / "made").exists()
