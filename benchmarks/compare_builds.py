"""Time of a step in two installations, as a ratio, runs taking turns.

    python benchmarks/compare_builds.py OLD NEW MODEL --elements 'Hf O' [--engine torchscript]
                                        [--threads 2 | --ranks 2]

OLD and NEW are virtual environments with pair-pwmlff in them; the Python that runs this has it too.
lmp of both runs a crystal in turn: the fused engine for each instruction set of the processor and
each precision, the file's own TorchScript (of any kind of model) as it is. Other work on the
machine only makes steps slower, so fast ones are compared: percentiles 1, 5 and 10 of the time of a
step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pwmlff.launch.log import runs

CRYSTAL = """units metal
lattice fcc {constant}
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 2 box
create_atoms 1 box
lattice sc {half} origin 0.5 0.5 0.5
create_atoms 2 box
mass * 50.0
pair_style pwmlff 1 {model} {keywords}
pair_coeff * * {elements}
velocity all create 300 4711
fix 1 all nve
timestep 0.0001
neigh_modify delay 0 every 1000000 check no
"""
RUN = """thermo_style custom step cpu
thermo 1
run {steps}
"""
STEPS = {"exact": 40, "double": 200, "mixed": 300}
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")
PERCENTILES = (1, 5, 10)


@dataclass(frozen=True)
class Case:
    """What is run."""

    name: str
    keywords: str  # of pair_style
    steps: int
    environment: dict[str, str]


def cases(engine: str) -> Iterator[Case]:
    """All cases of an engine, also those that this processor cannot run."""
    if engine == "torchscript":
        yield Case("torchscript", "engine torchscript", 20, {})
        return
    for instruction_set in INSTRUCTION_SETS:
        for precision, steps in STEPS.items():
            keywords = f"engine fused precision {precision}"
            environment = {"PWMLFF_CPU": instruction_set}
            yield Case(f"{instruction_set} {precision}", keywords, steps, environment)


def add_crystal(parser: argparse.ArgumentParser, cells: int) -> None:
    """Options of :func:`crystal`; so many cells by default."""
    parser.add_argument("--elements", required=True, help="cation and anion, like 'Hf O'")
    parser.add_argument("--constant", type=float, default=5.07, help="of the fluorite lattice")
    parser.add_argument("--cells", type=int, default=cells, help="of 12 atoms, along each side")


def crystal(options: argparse.Namespace, model: Path, keywords: str) -> str:
    """Commands up to the first run.

    Args:
        options: of :func:`add_crystal`.
        model: the model file.
        keywords: of pair_style.
    """
    return CRYSTAL.format(
        model=model.absolute(),
        keywords=keywords,
        elements=options.elements,
        constant=options.constant,
        half=options.constant / 2,
        cells=options.cells,
    )


def times(
    environment: Path, text: str, case: Case, options: argparse.Namespace
) -> np.ndarray | None:
    """Seconds of each step; None where the processor lacks the instructions."""
    programs = environment / "bin"
    mpirun = [programs / "mpirun", "-np", str(options.ranks)] if options.ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.lmp").write_text(text)
        done = subprocess.run(
            [*mpirun, programs / "lmp", "-in", "in.lmp", "-screen", "none"],
            cwd=folder,
            env={**os.environ, **case.environment, "OMP_NUM_THREADS": str(options.threads)},
            capture_output=True,
            text=True,
            check=False,
        )
        log = Path(folder, "log.lammps").read_text()
    if "this processor runs" in log:
        return None
    if done.returncode != 0:
        raise SystemExit(log[-2000:] + done.stderr[-2000:])
    return np.diff(runs(log)[-1].columns["CPU"])


def in_turns(case: Case, options: argparse.Namespace) -> list[np.ndarray]:
    """Seconds of all steps of each environment; nothing where the processor cannot run the case."""
    environments = [options.old.absolute(), options.new.absolute()]
    texts = [
        crystal(options, model, case.keywords + " device cpu") + RUN.format(steps=case.steps)
        for model in (options.old_model or options.model, options.model)
    ]
    found: list[list[np.ndarray]] = [[] for _ in environments]
    for turn in range(options.rounds):
        for which in range(len(environments))[:: 1 if turn % 2 else -1]:
            seconds = times(environments[which], texts[which], case, options)
            if seconds is None:
                return []
            found[which].append(seconds)
    return [np.concatenate(seconds) for seconds in found]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("model", type=Path)
    add_crystal(parser, cells=4)
    parser.add_argument("--engine", choices=("fused", "torchscript"), default="fused")
    parser.add_argument("--old-model", type=Path, help="the same model in a form that OLD reads")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    print(f"{'case':18}{'old, ms':>9}{'new, ms':>9}   new/old at {PERCENTILES} %")
    for case in cases(options.engine):
        found = in_turns(case, options)
        if not found:
            continue
        old, new = (1e3 * np.percentile(seconds, PERCENTILES) for seconds in found)
        ratios = "  ".join(f"{ratio:.3f}" for ratio in new / old)
        print(f"{case.name:18}{old[0]:9.2f}{new[0]:9.2f}   {ratios}", flush=True)


if __name__ == "__main__":
    main()
