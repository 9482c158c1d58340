"""`pwmlff bench`: what is asked for is timed, and the numbers belong together."""

from __future__ import annotations

import pytest

from pwmlff import devices
from pwmlff.commands.bench import Case, Options, cases, gpu_ratios, kernel_times, prepare


def test_times_what_is_asked_for(pwmlff):
    found = pwmlff(
        "bench", "--atoms", "96", "--engine", "fused", "--precision", "mixed", "--np", "1,2",
        "--rounds", 2, "--seconds", 0.1, "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.words
    ways = [(c["atoms"], c["ranks"], c["engine"].split()[-1]) for c in found.json["cases"]]
    assert ways == [(96, 1, "mixed"), (96, 2, "mixed")]
    for case in found.json["cases"]:
        assert len(case["rates"]) == 2
        assert case["rate"] == max(case["rates"]) > 0
        assert 0 < case["phases"]["Pair"] <= 100


def test_limit(pwmlff):
    """What does not fit is left out, and said."""
    found = pwmlff("bench", "--atoms", "96", "--engine", "fused", "--limit", 0, "--json")
    assert found.returncode == 0, found.words
    assert found.json["cases"] == []
    assert "3 of 3 cases did not fit into 0 s" in found.errors


def test_standard_cases():
    full, quick = cases(Options()), cases(Options(quick=True))
    assert {c.system for c in full} == {"HfO2", "LJ"}
    assert max(c.atoms for c in quick) < max(c.atoms for c in full)
    assert {c.models for c in full} == {1, 4}


def test_gpu_cases():
    """What a report of a GPU quotes is found among its cases."""
    full = cases(Options(gpu=True))
    for case in full:
        case.rates = [float(case.atoms)]
    assert all(ratio > 0 for ratio in gpu_ratios(full).values())
    assert max(c.atoms for c in full) > 1_000_000
    assert {c.base for c in full if c.system == "HfO2"} == {96, 768, 6144}
    assert "replicate 4 4 4" in Case("HfO2", 64 * 6144, "zero").text(10)


def test_kernel_times(tmp_path):
    """On the CPU in place of a GPU."""
    prepare(tmp_path, set())
    times = kernel_times(tmp_path / "hfo2.pt", "mixed", 2, "cpu", rounds=1)
    assert {"EdgeMoments", "Fit", "Differentiate"} < set(times)
    assert min(times.values()) > 0


@pytest.mark.skipif(bool(devices.inventory().gpus), reason="has a GPU")
def test_needs_a_gpu(pwmlff):
    found = pwmlff("bench", "--gpu")
    assert found.returncode == 2
    assert "found no GPU" in found.words


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--engine", "steam"], "found steam; expected engines"),
        (["--precision", "half"], "found half"),
        (["--atoms", "many"], "--atoms is 'many'"),
        (["--atoms", "96,1000000000"], "found 1000000000 atoms, expected at most"),
        (["--np", "1,100000"], "found 100000 ranks, expected at most"),
        (["--np", "1,2", "--mpirun", "absent"], "found no 'absent'"),
    ],
)
def test_errors(pwmlff, arguments, words: str):
    found = pwmlff("bench", *arguments)
    assert found.returncode == 2
    assert words in found.words
