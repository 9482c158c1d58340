"""The time of a step of lmp with one pair style over that with another, in turns."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from ase import Atoms

from pwmlff.commands.bench import loop_time
from pwmlff.launch import lmp, program

TIMED = """{read}replicate {times}
pair_style pwmlff {style} precision {precision}
pair_coeff * * {elements}
{command}velocity all create 300 4711 mom yes rot yes loop geom
fix 1 all nve
run {timed}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What :func:`step_ratio` reads, beside `elements` and `numbers` of the types."""
    parser.add_argument("--precision", default="double", choices=("exact", "double", "mixed"))
    parser.add_argument("--atoms", type=int, default=768, help="of the timed structure")
    parser.add_argument("--timed", type=int, default=300, help="steps")
    parser.add_argument("--rounds", type=int, default=9)


def step_ratio(
    atoms: Atoms, one: str, other: str, options: argparse.Namespace, command: str = ""
) -> str:
    """The ratio in words: its median and range over rounds.

    Args:
        atoms: repeated to about as many as the options say.
        one, other: what follows `pair_style pwmlff`.
        options: of :func:`add_arguments`.
        command: of LAMMPS, in the input of the first one.
    """
    times = max(1, round((options.atoms / len(atoms)) ** (1 / 3)))
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lmp.write_data(folder / "timed.data", atoms, options.numbers)
        for _ in range(options.rounds):
            seconds = []
            for style, more in ((one, command), (other, "")):
                text = TIMED.format(
                    read=lmp.read_command(atoms, "timed.data"), times=f"{times} {times} {times}",
                    style=style, command=more, **vars(options),
                )  # fmt: skip
                program.find().run(folder, text)
                seconds.append(loop_time((folder / "log.lammps").read_text()))
            ratios.append(seconds[0] / seconds[1])
    return (
        f"median {statistics.median(ratios):.4f} of {len(ratios)} rounds, {min(ratios):.4f} to "
        f"{max(ratios):.4f}, {len(atoms) * times**3} atoms"
    )
