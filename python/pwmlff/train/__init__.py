"""Training: from labelled structures to model files for `pair_style pwmlff`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ase import Atoms

    from pwmlff.train.outcome import TrainReport

__all__ = ["train"]


def train(
    frames: Sequence[Atoms | str | PathLike[str]],
    elements: Sequence[str],
    output: str | PathLike[str],
    *,
    valid: Sequence[Atoms | str | PathLike[str]] = (),
    model: str = "",
    max_time: float | None = None,
    epochs: int | None = None,
    models: int | None = None,
    finetune: str | PathLike[str] | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
) -> TrainReport:
    """Train models in this process, as `pwmlff train` does; progress is shown on stderr.

    Args:
        frames: structures to learn from: files, as the command takes them, or structures of ase
            with energies, forces and stresses as results of a calculator (eV, eV/angstrom,
            eV/angstrom^3). Structures are written to `output`, as train.extxyz.
        elements: chemical symbols, in the order of the model's types; may be empty with `finetune`.
        output: folder for models, log, pictures and checkpoints.
        valid: structures to validate with, as `frames`; a tenth of the frames if empty.
        model: kind, "dp" or "nep"; that of `finetune`, or "dp" if empty.
        max_time: minutes.
        epochs: passes over the frames; without a limit the training takes the default time.
        models: models of an ensemble; one when None.
        finetune: model file to start from.
        settings: other keys of run.toml, like "model.rmax=5.0".
        resume: continue from the checkpoint in `output`, if there is one.

    Returns:
        `models`, an entry for each with `file` and the errors `train` and `valid` (RMSE of energy
        in meV/atom, force in meV/angstrom, virial in meV/atom, born in e; reduced in units "lj").

    Raises:
        pwmlff.report.Failure: data, elements or settings cannot be used, `output` holds another
            training, or a model failed.
        ValueError: the calculator of a structure holds the results of another structure.
    """
    from pwmlff.report import Failure  # noqa: PLC0415
    from pwmlff.train import command, memory  # noqa: PLC0415

    given = {
        "settings": settings,
        "data": memory.as_files(frames, output, "train"),
        "valid": memory.as_files(valid, output, "valid"),
        "model": model,
        "elements": " ".join(elements),
        "output": output,
        "max_time": max_time,
        "epochs": epochs,
        "models": models,
        "finetune": finetune,
    }
    report = command.train(None, given, command.Options(resume, communication="serial"))
    if report.failures:
        raise Failure("; ".join(report.failures))
    return report
