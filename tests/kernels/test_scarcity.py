"""Where memory or threads run out there is an error, and what comes after works."""

from __future__ import annotations

from cpp import compile_and_run


def test_errors_and_no_traces(tmp_path):
    lines = compile_and_run("kernels/scarcity.cpp", tmp_path)
    assert lines[:2] == ["room for 4: 1", "room for 16: 1"]
    assert lines[2].startswith("error: cannot start 8 threads for kernel Count: ")
    assert lines[3:] == ["counted 888", "enough memory: 1, counted 888"]
