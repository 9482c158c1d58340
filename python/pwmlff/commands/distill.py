"""`pwmlff distill`: a fast model of what a slow one knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from pwmlff import report
from pwmlff.commands.base import Json
from pwmlff.commands.options import seconds_of


def distill(
    teacher: Annotated[
        str,
        Option(
            help="Calculator of ase, like 'mace.calculators:mace_mp(model=\"small\")' or "
            "my_file.py:make()."
        ),
    ],
    start: Annotated[str, Option(help="Files with structures to start from, like a.cif,b.xyz.")],
    temperature: Annotated[
        str, Option(help="Lowest and highest temperature in K, like 300:1500.")
    ] = "300:1500",
    max_time: Annotated[
        str, Option(help="Time of everything, like 60m; a plain number is of minutes.")
    ] = "60m",
    output: Annotated[Path, Option("-o", "--output", help="Folder for the results.")] = Path(
        "distilled"
    ),
    python: Annotated[
        str, Option(help="Python that has the teacher, which needs ase.", show_default="this one")
    ] = "",
    frames: Annotated[int, Option(min=4, help="First structures made of each one.")] = 20,
    check: Annotated[
        float, Option(min=0.001, help="Length of the last run at the highest temperature, in ps.")
    ] = 100.0,
    set: Annotated[
        list[str] | None,
        Option("--set", help="Key of run.toml, like model.kind=dp; may be given again."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a fast model of what a slow one knows, and a card of both.

    First structures by rattling and straining, then dynamics of the student, labels of the teacher
    where an ensemble doubts, and rounds of it. The card has errors at a temperature that was never
    explored, the speed of both on one core, and a run at the highest temperature. The same command
    goes on, wherever it was ended or killed.

    Example: pwmlff distill --teacher ase.calculators.emt:EMT() --start cu.cif --max-time 10m
    """
    from pwmlff.learn.student import Teaching
    from pwmlff.learn.student import distill as work
    from pwmlff.train.command import Stop, say_on_stderr

    def distilled() -> report.Report:
        low, _, high = temperature.partition(":")
        try:
            temperatures = float(low), float(high)
        except ValueError:
            raise report.Failure(
                f"--temperature is '{temperature}', expected two numbers like 300:1500"
            ) from None
        teaching = Teaching(
            teacher,
            tuple(name for name in start.split(",") if name),
            temperatures,
            seconds_of("--max-time", max_time, 60.0) / 60.0,
            output.absolute(),
            python,
            tuple(set or ()),
            frames,
            check,
        )
        return work(teaching, stop.asked)

    say_on_stderr()
    with Stop(leaves=True) as stop:
        stop.listen()
        report.finish(distilled, json)
