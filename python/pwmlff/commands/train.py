"""`pwmlff train`: models from labelled structures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pwmlff import report
from pwmlff.commands.base import Json, KeepUnconverged, Map
from pwmlff.commands.options import kinds_of, seconds_of


def train(
    files: Annotated[
        list[str] | None,
        Argument(
            metavar="[RUN.TOML] [DATA]...",
            help="What to do, where it ends in .toml; structures to learn from.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None, Option(help="Structures to learn from; may be given again.")
    ] = None,
    valid: Annotated[
        list[str] | None,
        Option(
            help="Structures to validate with; may be given again.",
            show_default="a tenth of the others",
        ),
    ] = None,
    energy: Annotated[
        str,
        Option(
            help="Energy to take of frames with two: free or zero, as for data check.",
            show_default="free",
        ),
    ] = "",
    shift_sources: Annotated[
        bool, Option("--shift-sources", help="Give the energies of all files one zero.")
    ] = False,
    keep_unconverged: KeepUnconverged = False,
    map: Map = None,
    model: Annotated[
        str,
        Option(
            help="Kind of model: dp, a Deep Potential, or nep, a neuroevolution potential.",
            show_default="that of --finetune, or dp",
        ),
    ] = "",
    elements: Annotated[str, Option(help="Elements of the model, like Hf O, 'Hf O' or Hf,O.")] = "",
    output: Annotated[Path | None, Option("-o", "--output", help="Folder for the results.")] = None,
    max_time: Annotated[
        str,
        Option(
            help="Time from the start of the command to its end, like 20m, 2h or 23:50:00; a plain "
            "number is of minutes."
        ),
    ] = "",
    epochs: Annotated[int | None, Option(help="Passes over the data.")] = None,
    models: Annotated[int | None, Option(help="Models of an ensemble.")] = None,
    finetune: Annotated[Path | None, Option(help="Model file to start from.")] = None,
    module: Annotated[
        str, Option(help="Module of kind EDGE to train, like my_model.py:Model.")
    ] = "",
    device: Annotated[
        str,
        Option(
            help="Where to train: cpu, cuda, cuda:N, or auto, a GPU where there is one.",
            show_default="cpu",
        ),
    ] = "",
    set: Annotated[
        list[str] | None,
        Option("--set", help="Key of run.toml, like optimizer.name=adam; may be given again."),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Go on from the checkpoint in the folder, if any.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Read and check everything, but train nothing.")
    ] = False,
    communication: Annotated[
        str, Option(help="Communication between ranks: auto, serial, mpi (mpi4py) or torch.")
    ] = "auto",
    json: Json = False,
) -> None:
    """Train models from labelled structures, alone or under mpirun or torchrun.

    Keys of run.toml are in docs/run_toml.md; all of them have defaults but the data and the
    elements. Writes best.pt and last.pt (of a NEP best.txt and last.txt), the log, pictures and
    checkpoints into the folder.

    Ctrl-C or SIGTERM ends it with its models and a checkpoint, and exit code 75; --resume goes on.

    Example: pwmlff train --data frames.extxyz --elements Hf O -o run1 --max-time 20m
    """
    from pwmlff.train import command as work

    def trained() -> report.Report:
        first, *others = files or [""]
        toml = Path(first) if first.endswith(".toml") else None
        given = {
            "settings": set or [],
            "data": [*(data or []), *(others if toml else files or [])],
            "valid": valid or [],
            "energy": energy,
            "shift_sources": shift_sources,
            "keep_unconverged": keep_unconverged,
            "map": kinds_of(map),
            "model": model,
            "elements": elements,
            "output": output,
            "max_time": seconds_of("--max-time", max_time, 60.0) / 60.0 if max_time else None,
            "epochs": epochs,
            "models": models,
            "finetune": finetune,
            "module": module,
            "device": device,
        }
        options = work.Options(resume, dry_run, communication, report.Command.began)
        return work.train(toml, given, options, stop)

    with work.Stop(leaves=True) as stop:
        report.finish(trained, json)
