"""What a cell list on a GPU has to look at: a few atoms far away change nothing for the others."""

from __future__ import annotations

from cpp import compile_and_run


def test_atoms_far_away(tmp_path):
    assert len(compile_and_run("kernels/cell_occupancy.cpp", tmp_path)) == 4
