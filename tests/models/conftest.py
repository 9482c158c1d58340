"""The named systems of ../systems.py as fixtures."""

from __future__ import annotations

import pytest
from ase import Atoms

from harness import some
from systems import SYSTEMS, System


@pytest.fixture(params=some(SYSTEMS), scope="session")
def system(request) -> System:
    """Each of the named systems in turn."""
    return SYSTEMS[request.param]


@pytest.fixture(scope="session")
def binary() -> System:
    """The two-element triclinic system."""
    return SYSTEMS["two elements, triclinic"]


@pytest.fixture
def crowd() -> Atoms:
    """Hafnium, index 2, has three oxygen neighbors within 1.5 angstrom; no atom has more."""
    return Atoms([8, 8, 72, 8], positions=[[1, 0, 0], [-1, 0, 0], [0, 0, 0], [0, 0, 1]])
