"""The verification that two evaluations are the same: what differs is found, wherever it is."""

from __future__ import annotations

from cpp import compile_and_run


def test_every_number_counts(tmp_path):
    lines = compile_and_run("models/verify_numbers.cpp", tmp_path)
    said = dict(line.split(": ", 1) for line in lines)
    assert {name for name, text in said.items() if not text} == {
        "same", "rounding", "file NaN at overlap",
    }  # fmt: skip
    assert said["energy NaN"].startswith("energies differ by nan")
    assert said["force NaN"].startswith("forces differ by nan")
    assert said["virial NaN"].startswith("virials differ by nan")
    for name in ("total", "total NaN"):
        assert said[name].startswith("total energies (per atom) differ by ")
    assert said["force"].startswith("forces differ by 1.0e-05")
    assert "gives no numbers" in said["file NaN"]
