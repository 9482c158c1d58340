"""What a cell list on a GPU has to look at: a few atoms far away change nothing for the others."""

from __future__ import annotations

from cpp import compile_and_run


def test_atoms_far_away(tmp_path):
    lines = compile_and_run("kernels/cell_occupancy.cpp", tmp_path)
    found = {}
    for name, counts in (line.split(": ") for line in lines):
        fullest, seen, places = map(int, counts.split())
        found[name] = {"fullest": fullest, "seen": seen, "places": places}
    dense = found.pop("dense")
    assert len(found) == 4
    # In cells of 3 angstrom at 0.1 atoms each: a cube of 15 angstrom, less at the boundaries.
    assert dense["fullest"] < 15 and 200 < dense["seen"] < 345
    for name, counts in found.items():
        assert counts["fullest"] <= 2 * dense["fullest"], name
        assert counts["seen"] <= 1.1 * dense["seen"], name
        assert counts["places"] <= 8, name  # for each row
