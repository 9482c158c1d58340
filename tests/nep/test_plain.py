"""The plain evaluation of NEP: numbers of NEP_CPU, temperature, cutoffs."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.data import atomic_numbers
from plain import PlainNep

from nep_files import FORCE, HEADS, REFERENCES, random_structure, random_text, reference
from nep_parser import parse_nep
from pwmlff.evaluation.nep_reference import evaluate_nep

TEMPERATURE = 300.0  # K


@pytest.mark.parametrize("name", REFERENCES)
def test_numbers_of_nep_cpu(name: str):
    wanted = reference(name)
    model = PlainNep(wanted.text)
    found = model.evaluate(wanted.atoms)
    assert abs(found.energies - wanted.energies).max() < wanted.energy
    assert abs(found.forces - wanted.forces).max() < FORCE
    assert abs(found.centroid_virials - wanted.centroid_virials).max() < FORCE
    assert abs(found.virial - wanted.virial).max() < FORCE * len(wanted.atoms)


@pytest.fixture(scope="module", params=HEADS)
def model(request) -> PlainNep:
    return PlainNep(random_text(HEADS[request.param]))


def test_virials_of_an_atom(model: PlainNep):
    """Two atoms: each term half to both, or to the neighbor, which is the other one."""
    atoms = Atoms([model.elements[0], model.elements[-1]], [[0, 0, 0], [1.1, 1.3, -1.2]])
    found = model.evaluate(atoms, TEMPERATURE)
    assert np.allclose(found.atom_virials[0], found.atom_virials[1], rtol=1e-13)
    both = found.centroid_virials.sum(axis=0)
    assert np.allclose(both, np.outer(atoms.positions[1], found.forces[1]), atol=1e-12)


def test_temperature():
    model = PlainNep(random_text(HEADS["temperature"]))
    atoms = random_structure(model.elements)
    cold, warm = (model.evaluate(atoms, t) for t in (0.0, 1000.0))
    assert abs(warm.energies - cold.energies).max() > 1e-3
    wanted = evaluate_nep(parse_nep(model.text), atoms, 1000.0)
    assert abs(warm.energies - wanted.atom_energy).max() < 1e-12


@pytest.mark.parametrize(
    "name, pair, distances",
    [
        ("nep3", "OHf", (5.0, 4.0)),
        ("cutoffs by element", "OHf", (4.5, 3.75)),
        ("cutoffs by radii", "OO", (2 * 1.68, 1.6 * 1.68, 0.6 * 1.68, 0.3 * 1.68)),
        ("zbl", "OHf", (1.2, 3.1)),
        ("zbl by radii", "OHf", (0.9 * 2.66667,)),
        ("zbl by table", "HfHf", (1.3, 3.2)),
    ],
)
def test_continuous_at_cutoffs(name: str, pair: str, distances: tuple[float, ...]):
    """Across a cutoff energy and force of a pair change in proportion to the step."""
    model = PlainNep(random_text(HEADS[name]))

    def changes(distance: float, step: float) -> np.ndarray:
        below, above = (
            model.evaluate(Atoms(pair, [[0, 0, 0], [0, 0, r]]))
            for r in (distance - step / 2, distance + step / 2)
        )
        return np.r_[above.energies - below.energies, (above.forces - below.forces)[:, 2]]

    for distance in distances:
        large, small = changes(distance, 1e-4), changes(distance, 1e-5)
        assert (abs(small) < 0.12 * abs(large) + 1e-9).all()


def test_energy_of_zbl():
    """Two Hf within the inner radius, beside the network: the formula of Ziegler et al."""
    with_zbl, without = (
        PlainNep(random_text(HEADS["zbl"].replace(*change)))
        for change in (("", ""), ("nep4_zbl 2 O Hf|zbl 1.2 3.1", "nep4 2 O Hf"))
    )
    r = 1.1
    atoms = Atoms("Hf2", [[0, 0, 0], [0, r, 0]])
    x = 2.134563 * 2 * atomic_numbers["Hf"] ** 0.23 * r
    screening = sum(
        a * np.exp(-b * x)
        for a, b in ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))
    )
    wanted = 14.399645 * atomic_numbers["Hf"] ** 2 / r * screening
    found = with_zbl.evaluate(atoms).energies.sum() - without.evaluate(atoms).energies.sum()
    assert np.isclose(found, wanted, rtol=1e-13)


def test_reach_of_zbl():
    """As in GPUMD, pairs are found up to the angular cutoff."""
    head = HEADS["zbl"].replace("cutoff 5 4", "cutoff 5 2.5")
    model = PlainNep(random_text(head))
    assert len(model.warnings) == 1
    assert "larger than the angular cutoff for 3 pairs" in model.warnings[0]
    inside, outside = (
        model.evaluate(Atoms("OHf", [[0, 0, 0], [0, 0, r]])).energies.sum() for r in (2.499, 2.501)
    )
    assert inside - outside > 0.1
    assert PlainNep(random_text(HEADS["zbl"])).warnings == []
