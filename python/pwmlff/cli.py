"""The `pwmlff` command: what surrounds a run on real machines.

This module holds the options and their help. What a command does is in a module of its own, which
is imported when the command runs: `pwmlff --help` loads neither torch nor ase nor mpi4py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pwmlff.options import names, numbers, positive_integers
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
Lmp = Annotated[
    str | None, typer.Option(help="The lmp to run; that of this Python's lammps package.")
]
Mpirun = Annotated[str | None, typer.Option(help="The mpirun to use; the one beside this Python.")]


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


@app.command()
def compare(
    models: Annotated[list[Path], typer.Argument(help="TorchScript model files.")],
    data: Annotated[str, typer.Option(help="Structures, any file ase reads; FILE@: for all.")],
    elements: Annotated[
        str, typer.Option(help="Elements that take part, like 'Hf O'; all of the model's.")
    ] = "",
    np: Annotated[str, typer.Option("--np", help="Numbers of ranks.")] = "1,2",
    device: Annotated[str, typer.Option(help="Devices: cpu, gpu.")] = "cpu",
    engine: Annotated[
        str, typer.Option(help="Engines: fused, torchscript, auto; those that run the file.")
    ] = "",
    precision: Annotated[
        str, typer.Option(help="Precisions of the fused engine.")
    ] = "exact,double,mixed",
    tol: Annotated[str, typer.Option(help="Other gates, like 'force=1e-5,energy=1e-7'.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Parity plot of the forces, PNG.")] = None,
    lmp: Lmp = None,
    mpirun: Mpirun = None,
    json: Json = False,
) -> None:
    """Compare lmp in every combination with the plain float64 reference on the CPU.

    Energies, energies of atoms, forces and virial, against the gates of each precision.

    Example: pwmlff compare model.pt --data structures.extxyz@0:5 --np 1,2,4 --plot parity.png
    """
    from pwmlff import compare as work  # noqa: PLC0415

    def run() -> work.CompareReport:
        return work.compare(
            work.Options(
                models,
                data,
                elements.replace(",", " ").split(),
                positive_integers("--np", np),
                names(device),
                names(engine),
                names(precision),
                numbers("--tol", tol),
                plot,
                lmp,
                mpirun,
            )
        )

    finish(run, json)
