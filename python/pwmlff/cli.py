"""The `pwmlff` command: what surrounds a run on real machines.

This module holds the options and their help. What a command does is in a module of its own, which
is imported when the command runs: `pwmlff --help` loads neither torch nor ase nor mpi4py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pwmlff.report import finish

app = typer.Typer(
    name="pwmlff",
    help="Machine-learned potentials stored as TorchScript, run inside LAMMPS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")]
Precision = Annotated[
    str, typer.Option(help="Precision of the fused engine: exact, double or mixed.")
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"pair-pwmlff {version('pair-pwmlff')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def info(
    models: Annotated[list[Path], typer.Argument(help="TorchScript model files.")],
    precision: Precision = "double",
    json: Json = False,
) -> None:
    """Describe model files: kind, elements, cutoff, sizes, engine, ensemble compatibility.

    Loading a model file executes code that it brings along.

    Example: pwmlff info a.pt b.pt
    """
    from pwmlff.info import describe_files  # noqa: PLC0415

    finish(lambda: describe_files(models, precision), json)
