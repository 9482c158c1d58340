"""`pwmlff test`: the errors of models on labelled structures."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from pwmlff.commands.base import Elements, Energy, Format, KeepUnconverged, Map, Parity
from pwmlff.commands.options import elements_of, kinds_of
from pwmlff.report import Failure, Report


def test(
    words: Annotated[
        list[str],
        Argument(
            metavar="MODEL... [DATA]...",
            help="TorchScript model files, and files with labels; FILE@0:5 for five frames.",
        ),
    ],
    data: Annotated[list[str] | None, Option(help="File with labels; may be given again.")] = None,
    format: Format = None,
    elements: Elements = "",
    plot: Parity = None,
    worst: Annotated[int, Option(min=0, help="Frames and atoms to list.")] = 5,
    threads: Annotated[
        int | None, Option(min=1, help="Threads of this process.", show_default="all cores")
    ] = None,
    energy: Energy = "free",
    keep_unconverged: KeepUnconverged = False,
    map: Map = None,
    baseline: Annotated[
        str,
        Option(
            help="What to take off the labels, as [data] baseline of run.toml, or none. Needed for "
            "a file that tells of one."
        ),
    ] = "",
    baseline_coeff: Annotated[
        list[str] | None,
        Option(help="What follows pair_coeff of that pair style; may be given again."),
    ] = None,
    trust: Annotated[
        bool,
        Option("--trust", help="Take the baseline that the file tells of: it may be any code."),
    ] = False,
) -> Report:
    """Tell the errors of models on labelled structures.

    RMSE and MAE of energy, force and virial, by element, group and magnitude of the force, and
    where the largest are. Those of the energy also after a constant for each element is taken off.
    Of several models, each and the mean of their predictions.

    Example: pwmlff test model.pt --data valid.extxyz --plot parity.png
    """
    from pwmlff.data.baseline import Baseline
    from pwmlff.train import evaluate

    if trust and baseline:
        raise Failure("found both --baseline and --trust, which is for that of the file; give one")
    user_baseline = None
    if baseline:
        user_baseline = Baseline(
            "" if baseline == "none" else baseline, tuple(baseline_coeff or ())
        )
    models, files = evaluate.models_and_data(words, data or [])
    chosen = elements_of(elements)
    kinds = kinds_of(map)
    return evaluate.test(
        models, files, chosen, format, plot, worst, threads, energy, user_baseline, trust,
        keep_unconverged, kinds,
    )  # fmt: skip
