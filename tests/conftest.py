"""Data and models that several test folders use."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

DATA_VARIABLE = "PWMLFF_TEST_DATA"
#: Few tests that take a minute each (a compiler reads torch's headers, hundreds of runs).
LONG = (
    "test_input_sequences.py", "test_verification.py", "test_damaged_files.py", "test_scripted.py"
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """Files with the most tests come first, as pytest-xdist would have it, but after the long ones.

    At the end of the queue they would keep one process busy while the other has nothing left.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.name not in LONG, -tests[item.path]))


@pytest.fixture(scope="session")
def hfo2_folder() -> Path:
    """Folder with parameters.npz and reference.npz of an HfO2 DP; skips where there is none."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get(DATA_VARIABLE, default)) / "hfo2_dp"
    if not (folder / "reference.npz").is_file():
        pytest.skip(f"no {folder}/reference.npz; set {DATA_VARIABLE} to the folder of hfo2_dp")
    return folder


@pytest.fixture(scope="session")
def hfo2_model(hfo2_folder):
    """DP with the HfO2 parameters."""
    from pwmlff.models import DP

    with np.load(hfo2_folder / "parameters.npz") as params:
        return DP.from_parameters(
            params, atom_type=(8, 72), rmax=6.0, rmin=0.5, max_neighbor=100, m2=16
        )


@pytest.fixture(scope="session")
def lj_models() -> list[str]:
    """The two models of examples/lj."""
    folder = Path(__file__).resolve().parents[1] / "examples" / "lj"
    return [str(folder / name) for name in ("a.pt", "b.pt")]
