"""The time of a step of lmp, and that with one pair style over that with another, in turns."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from ase import Atoms
from ase.data import atomic_numbers

from pwmlff.commands.bench import loop_times
from pwmlff.launch import lmp, mpirun, program

START = """{read}replicate {times}
velocity all create 300 4711 mom yes rot yes loop geom
fix 1 all nve
thermo 1000000
"""
TURN = """pair_style pwmlff {style} precision {precision}
pair_coeff * * {elements}
{command}
run {warm}
run {timed}
{undo}
"""
STEPS = """{read}pair_style pwmlff {style}
pair_coeff * * {elements}
velocity all create 300 4711 mom yes rot yes loop geom
fix 1 all nve
timestep {timestep}
thermo 1000000
run {warm}
run {steps}
"""
WARM = 10  # steps after a pair style is set, which fill its tables


def step_seconds(
    atoms: Atoms,
    style: str,
    elements: str,
    steps: int,
    ranks: int = 1,
    charges: bool = False,
    threads: int = 1,
    timestep: float = 0.001,
) -> float:
    """Seconds of a whole step of lmp.

    Args:
        style: what follows `pair_style pwmlff`; files by absolute paths.
        elements: of the types, in order, apart by blanks.
        charges: whether atoms have them as data.
        threads: of each rank, which integrate as well where there are several.
        timestep: ps.
    """
    numbers = [atomic_numbers[symbol] for symbol in elements.split()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lmp.write_data(folder / "timed.data", atoms, numbers)
        read = lmp.read_command(atoms, "timed.data", charges=charges)
        text = STEPS.format(
            read=read, style=style, elements=elements, steps=steps, timestep=timestep, warm=WARM
        )
        if threads > 1:
            text = f"package omp {threads}\nsuffix omp\n{text}"
        said = program.find().run(folder, text, mpirun.find(), ranks, threads=threads)
    return loop_times(said)[-1] / steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What :func:`step_ratio` reads, beside `elements` and `numbers` of the types."""
    parser.add_argument("--precision", default="double", choices=("exact", "double", "mixed"))
    parser.add_argument("--atoms", type=int, default=768, help="of the timed structure")
    parser.add_argument("--timed", type=int, default=50, help="steps of a turn")
    parser.add_argument("--rounds", type=int, default=40, help="of two turns")


def step_ratio(
    atoms: Atoms,
    one: str,
    other: str,
    options: argparse.Namespace,
    command: str = "",
    undo: str = "",
) -> str:
    """The ratio in words: its median over rounds, the quarters around it, and of the fastest turns.

    Turns are short, and of one run of lmp, so that what else a machine does falls on both.

    Args:
        atoms: repeated to about as many as the options say.
        one, other: what follows `pair_style pwmlff`.
        options: of :func:`add_arguments`.
        command: of LAMMPS, in the turns of the first one.
        undo: what ends it.
    """
    times = max(1, round((options.atoms / len(atoms)) ** (1 / 3)))
    turns = [
        TURN.format(style=style, command=more, undo=less, warm=WARM, **vars(options))
        for style, more, less in ((one, command, undo), (other, "", ""))
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lmp.write_data(folder / "timed.data", atoms, options.numbers)
        read = lmp.read_command(atoms, "timed.data")
        start = START.format(read=read, times=f"{times} {times} {times}")
        said = program.find().run(folder, start + options.rounds * "".join(turns))
    seconds = loop_times(said)[1::2]
    firsts, others = seconds[::2], seconds[1::2]
    ratios = [first / second for first, second in zip(firsts, others, strict=True)]
    low, middle, high = statistics.quantiles(2 * ratios)  # which a single one has too
    return (
        f"median {middle:.4f} of {len(ratios)} rounds, half of them {low:.4f} to {high:.4f}, "
        f"the fastest {min(firsts) / min(others):.4f}, {len(atoms) * times**3} atoms"
    )
