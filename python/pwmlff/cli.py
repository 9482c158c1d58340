"""The `pwmlff` command: what surrounds a run on real machines.

Each command is in a module of :mod:`pwmlff.commands`, with its options. `pwmlff --help` loads
neither torch nor ase nor mpi4py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from pwmlff import report
from pwmlff.commands.base import reporting
from pwmlff.commands.bench import bench
from pwmlff.commands.build import build
from pwmlff.commands.compare import compare
from pwmlff.commands.convert import convert
from pwmlff.commands.data import cache, check, dedupe, outliers, select
from pwmlff.commands.distill import distill
from pwmlff.commands.doctor import doctor
from pwmlff.commands.info import info
from pwmlff.commands.learn import learn
from pwmlff.commands.options import with_elements_joined
from pwmlff.commands.plot import plot
from pwmlff.commands.ranks import ranks
from pwmlff.commands.run import run
from pwmlff.commands.test import test
from pwmlff.commands.train import train
from pwmlff.commands.verify import verify


class Commands(typer.core.TyperGroup):
    """All commands: no error leaves them unexplained, wherever it comes from."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command that the words say, by default those that this process was given."""
        args = with_elements_joined(sys.argv[1:] if args is None else args)
        report.begin(args)
        with report.errors_said():
            return super().main(args, *rest, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; typer would say nothing of an interruption while modules are loaded."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            with report.errors_said():
                raise


app = typer.Typer(
    name="pwmlff",
    cls=Commands,
    help="Machine-learned potentials stored as TorchScript, run inside LAMMPS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's takes a third of the time of `pwmlff --help`
)


def _version(wanted: bool) -> None:
    if wanted:
        from pwmlff import __version__, plugin  # noqa: PLC0415

        typer.echo(plugin.origin(plugin.library()) or f"pair-pwmlff {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error too; before COMMAND.")
    ] = False,
) -> None:
    if debug:
        report.Command.debug = True
    if os.environ.get("PWMLFF_GPU_STAND_IN") == "none":
        raise report.Failure(
            "the environment has PWMLFF_GPU_STAND_IN=none, with which forces are zero, expected it "
            "for timing lmp alone; unset it"
        )


data = typer.Typer(
    help="Training data: look at it, and choose of it, before a training does.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
OF_LMP = {"allow_extra_args": True, "ignore_unknown_options": True}

for work in (info, convert, compare, verify, test, ranks, doctor, run, build, plot, bench):
    app.command(context_settings=OF_LMP if work is run else None)(reporting(work))
for own_report in (train, learn, distill):
    app.command()(own_report)
app.command("wrap", hidden=True)(reporting(convert))  # its name in releases before 0.2
app.add_typer(data, name="data")
for data_work in (check, select, outliers, dedupe, cache):
    data.command()(reporting(data_work))
