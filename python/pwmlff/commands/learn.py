"""`pwmlff learn`: models that explore, doubt, get labels and train again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pwmlff import report
from pwmlff.commands.base import Json


def learn(
    toml: Annotated[
        Path, Argument(metavar="LEARN.TOML", help="What to do; its keys are in docs/learn_toml.md.")
    ],
    set: Annotated[
        list[str] | None,
        Option("--set", help="Key of learn.toml, like loop.rounds=3; may be given again."),
    ] = None,
    json: Json = False,
) -> None:
    """Train an ensemble, explore with LAMMPS, label what it doubts, and train again.

    Until the models agree on what they explore, or the rounds or the time are spent. All is in the
    folder that learn.toml names. Ctrl-C or SIGTERM ends it with exit code 75; the same command goes
    on, wherever it was ended or killed.

    Example: pwmlff learn learn.toml --set loop.max_time=60
    """
    from pwmlff.learn import learn as work
    from pwmlff.train.command import Stop, say_on_stderr

    say_on_stderr()
    with Stop(leaves=True) as stop:
        stop.listen()
        report.finish(lambda: work(toml, set or [], stop.asked), json)
