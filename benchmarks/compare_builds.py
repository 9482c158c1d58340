"""Time of a step of the fused engine in two installations, as a ratio, runs taking turns.

    python benchmarks/compare_builds.py OLD NEW MODEL --elements 'Hf O'

OLD and NEW are virtual environments with pair-pwmlff in them. For each instruction set of the
processor and each precision, lmp of both runs a crystal in turn. Other work on the machine only
makes steps slower, so fast ones are compared: percentiles 1, 5 and 10 of the time of a step.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

INPUT = """units metal
lattice fcc {constant}
region box block 0 4 0 4 0 4
create_box 2 box
create_atoms 1 box
lattice sc {half} origin 0.5 0.5 0.5
create_atoms 2 box
mass * 50.0
pair_style pwmlff 1 {model} engine fused precision {precision} device cpu
pair_coeff * * {elements}
velocity all create 300 4711
fix 1 all nve
timestep 0.0001
neigh_modify delay 0 every 1000000 check no
thermo_style custom step cpu
thermo 1
run {steps}
"""
STEPS = {"exact": 40, "double": 200, "mixed": 300}
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")
PERCENTILES = (1, 5, 10)


def times(environment: Path, text: str, instruction_set: str) -> np.ndarray | None:
    """Seconds of each step; None where the processor has no such instructions."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.lmp").write_text(text)
        done = subprocess.run(
            [environment / "bin" / "lmp", "-in", "in.lmp", "-log", "none"],
            cwd=folder,
            env={**os.environ, "PWMLFF_CPU": instruction_set, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if "this processor runs" in done.stdout + done.stderr:
        return None
    if done.returncode != 0:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    rows = re.findall(r"^ *\d+ +([\d.]+) *$", done.stdout, re.MULTILINE)
    return np.diff(np.array(rows, dtype=float))


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--elements", required=True, help="cation and anion, like 'Hf O'")
    parser.add_argument("--constant", type=float, default=5.07, help="of the fluorite lattice")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    environments = {"old": options.old.absolute(), "new": options.new.absolute()}
    print(f"{'code':10}{'precision':10}{'old, ms':>9}{'new, ms':>9}   new/old at {PERCENTILES} %")
    for instruction_set, (precision, steps) in itertools.product(INSTRUCTION_SETS, STEPS.items()):
        text = INPUT.format(
            model=options.model.absolute(),
            precision=precision,
            elements=options.elements,
            constant=options.constant,
            half=options.constant / 2,
            steps=steps,
        )
        found: dict[str, list[np.ndarray]] = {name: [] for name in environments}
        for turn in range(options.rounds):
            for name in list(environments)[:: 1 if turn % 2 else -1]:
                seconds = times(environments[name], text, instruction_set)
                if seconds is not None:
                    found[name].append(seconds)
        if not all(found.values()):
            continue
        old, new = (1e3 * np.percentile(np.concatenate(v), PERCENTILES) for v in found.values())
        ratios = "  ".join(f"{ratio:.3f}" for ratio in new / old)
        print(
            f"{instruction_set:10}{precision:10}{old[0]:9.2f}{new[0]:9.2f}   {ratios}", flush=True
        )


if __name__ == "__main__":
    main()
