"""`pwmlff bench`: what is asked for is timed, and the numbers belong together."""

from __future__ import annotations

import pytest

from pwmlff.bench import Options, cases


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


def test_standard_cases():
    full, quick = cases(Options()), cases(Options(quick=True))
    assert {c.system for c in full} == {"HfO2", "LJ"}
    assert max(c.atoms for c in quick) < max(c.atoms for c in full)
    assert {c.models for c in full} == {1, 4}


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--engine", "steam"], "found steam; expected engines"),
        (["--precision", "half"], "found half"),
        (["--atoms", "many"], "--atoms is 'many'"),
        (["--np", "1,2", "--mpirun", "absent"], "found no 'absent'"),
    ],
)
def test_errors(pwmlff, arguments, words: str):
    found = pwmlff("bench", *arguments)
    assert found.returncode == 2
    assert words in found.words
