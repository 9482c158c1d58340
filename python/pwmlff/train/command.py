"""`pwmlff train`: from a configuration to model files, on the ranks that a launcher started."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ase.data import chemical_symbols
from rich.text import Text

from pwmlff import files, picture
from pwmlff.data import neighbors, readers
from pwmlff.data.frames import Frames
from pwmlff.evaluation import model_file
from pwmlff.models.saving import add_record, add_self_test, copy_model
from pwmlff.report import Failure, console, explain, last_line, typed
from pwmlff.threads import torch_threads
from pwmlff.train import (
    card,
    charts,
    comm,
    ensemble,
    errors,
    evaluate,
    extrapolation,
    prepare,
    record,
    uncertainty,
)
from pwmlff.train.config import Config, MissingElements, from_command
from pwmlff.train.hardware import threads_of
from pwmlff.train.learner import Learner
from pwmlff.train.loop import BEST, LAST, Trainer
from pwmlff.train.outcome import PARITY, Trained, TrainReport
from pwmlff.train.potential import Potential
from pwmlff.train.prepare import Dataset
from pwmlff.train.start import CONFIGURATION, Options, Stop, claimed, write_configuration
from pwmlff.train.trainable import Predictions

__all__ = ["Options", "Stop", "train"]

log = logging.getLogger(__name__)

#: Set by torchrun: how often it has started this job again.
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
#: What the end of a training does where there is time for it.
GRADE, PICTURES = "the extrapolation grade", "the pictures"


def train(
    toml: Path | None, arguments: dict[str, Any], options: Options, stop: Stop | None = None
) -> TrainReport:
    """Train what the configuration says, on the ranks of the job.

    Args:
        toml: run.toml, or None.
        arguments: the other arguments of :func:`pwmlff.train.config.from_command`.
        options: of the command.
        stop: that is entered already; one for this call alone when None.

    Raises:
        Failure: on all ranks, or on rank 0 with the others gone.
    """
    if options.began is None:
        options = replace(options, began=time.monotonic())
    ranks = comm.connect(options.communication)
    # Products of matrices must not depend on the number of threads; frames are in parallel.
    with Stop() as own, torch_threads(1), comm.together(ranks), ExitStack() as stack:
        say_on_stderr(ranks.rank == 0)
        if int(os.environ.get(RESTARTS, "0")) > 0:
            options = replace(options, resume=True)
        config = comm.agreed(ranks, lambda: _configured(toml, arguments, options))
        handles: list[int] = []

        def claim() -> None:
            handles.append(stack.enter_context(claimed(Path(config.output.folder), options)))

        if not options.dry_run:
            comm.by_rank_0(ranks, claim)
        if config.run.models > 1 and not options.dry_run:
            report = ensemble.train(config, options, ranks, stop or own, handles)
        else:
            report = _train_one(config, options, ranks, stop or own)
        ranks.barrier()
    if ranks.rank:
        raise SystemExit(0)
    return report


def say_on_stderr(first: bool = True) -> None:
    """Show what the parts of this package have to say; errors alone where this is not rank 0."""
    logging.basicConfig(
        level=logging.WARNING if first else logging.ERROR,
        format="%(message)s",
        handlers=[_StderrHandler()],
    )
    # Of other packages warnings alone: matplotlib has news of its fonts.
    logging.getLogger("pwmlff").setLevel(logging.INFO if first else logging.ERROR)


class _StderrHandler(logging.Handler):
    """What the parts of training have to say, on stderr."""

    def emit(self, entry: logging.LogRecord) -> None:
        prefix = "warning: " if entry.levelno >= logging.WARNING else ""
        console(stderr=True).print(Text(prefix + entry.getMessage()))


def _configured(toml: Path | None, arguments: dict[str, Any], options: Options) -> Config:
    """The configuration; a training that goes on finds its own in the folder."""
    output = arguments.get("output")
    if toml is None and options.resume and output is not None and not arguments.get("data"):
        toml = Path(output) / CONFIGURATION
        if not toml.is_file():
            raise Failure(
                f"found no '{toml}' of a training to go on with, expected the folder of one (-o), "
                "or its run.toml or --data"
            )
    try:
        return from_command(toml=toml, **arguments)
    except MissingElements as error:
        frames = readers.read(
            error.data.train,
            error.data.format or None,
            keep_unconverged=error.data.keep_unconverged,
            kinds=error.data.map,
        )
        symbols = [chemical_symbols[z] for z in dict.fromkeys(frames.numbers.tolist())]
        raise Failure(
            f"found no [model] elements, and {' '.join(symbols)} in {len(frames)} frames; expected "
            f"those of the model, in the order of its types: {typed('--elements', *symbols)}"
        ) from error


def _train_one(
    config: Config, options: Options, ranks: comm.Communicator, stop: Stop
) -> TrainReport:
    folder = Path(config.output.folder)
    config, learner, valid, constants = prepare.learner(config, ranks)
    elements = learner.model.edges.elements
    without_data = prepare.without_data(config, elements, learner.frames)
    if without_data:
        symbols = " ".join(chemical_symbols[z] for z in without_data)
        log.warning(
            "the data have no atom of %s: the numbers of the model for %s mean nothing; leave %s "
            "out of [model] elements, or add frames with it",
            *(symbols,) * 3,
        )
    if options.dry_run:
        return TrainReport(plan=_plan(config, learner, valid, ranks), units=config.model.units)

    suffix = learner.model.suffix
    every = Dataset(learner.frames, learner.model.edges)
    alone = every.select(np.flatnonzero(learner.frames.isolated))

    def keep(
        names: Sequence[str], train_errors: errors.Errors | None, judged: errors.Errors | None
    ) -> None:
        contents = card.make(
            config,
            learner.frames,
            valid.frames if valid else None,
            train_errors=train_errors,
            valid_errors=judged,
            step=trainer.progress.step,
            epochs=trainer.epoch,
            closest=neighbors.by_pair(elements.tolist(), learner.model.edges.closest),
            without_data=[chemical_symbols[z] for z in without_data],
            virial_offsets=constants.values,
            isolated_atoms=errors.isolated_atoms(
                alone.frames, learner.predict(alone.frames, alone.edges)[0]
            )
            if len(alone.frames)
            else {},
        )
        first, *others = (folder / f"{name}{suffix}" for name in names)
        learner.save(first, contents)
        for path in others:
            copy_model(first, path)

    def predicted_by_last(frames: Frames) -> Predictions:
        """Where the last step was made by an earlier start, the file knows what came after it."""
        info = model_file.describe_unopened(paths[1])
        threads = threads_of(config.run, ranks)
        return evaluate.predict_by(paths[1], info, info.atom_type, frames, threads)[2]

    def draw() -> None:
        assert logged is not None  # on rank 0
        try:
            for name in (record.CURVE, PARITY):  # of other models: they are not to seem of these
                (folder / name).unlink(missing_ok=True)
            logged.draw()
            if valid is not None:
                path = picture.destination(folder / PARITY)
                predicted = trainer.judged or predicted_by_last(valid.frames)
                born = learner.born_charges(valid.frames, valid.edges)
                judged = errors.compute(valid.frames, *predicted, config.model.units, born)
                drawn = charts.parity(valid.frames, *predicted, judged, str(paths[1]), born)
                picture.save(drawn, path, dpi=120)
        except (Failure, OSError) as error:  # the model is there
            log.warning("%s", explain(error)[0])

    def grade() -> None:
        judge = valid.frames if valid else None
        _grade(paths, learner.frames, judge, threads_of(config.run, ranks))

    paths = [folder / f"{name}{suffix}" for name in (BEST, LAST)]
    has_grade = isinstance(learner.model, Potential)
    extras = {**({GRADE: grade} if has_grade else {}), PICTURES: draw}
    own = ranks.rank == 0
    stop.listen()
    trainer = Trainer(
        config, learner, valid, ranks, folder, keep, stop.asked, extras, options.began, constants
    )
    step = None
    if options.resume:
        begin = "going on" if trainer.resume() else "found no checkpoint:"
        step = trainer.progress.step
        log.info("%s from step %d", begin, step)
    plan = _plan(config, learner, valid, ranks)
    for name in ("learns from", "validates with", "steps", "ranks"):
        log.info("%s: %s", name, plan[name])

    def log_of_rank_0() -> record.TrainingLog | None:
        units, events = config.model.units, config.run.tensorboard
        return (
            record.TrainingLog(folder, step=step, units=units, tensorboard=events) if own else None
        )

    logged = comm.agreed(ranks, log_of_rank_0)
    comm.by_rank_0(ranks, lambda: write_configuration(config))
    shown = record.Display(config.model.units) if own else None
    try:
        with logged or nullcontext(), shown or nullcontext():
            stopped = trainer.run(logged, shown)
        for source, value in constants.values.items():
            log.info("the virials of '%s' had %.4g eV per atom too much in the end", source, value)
    except Failure:
        patterns = (f"*{suffix}", "checkpoint-*.npz")
        if left := sorted(path.name for pattern in patterns for path in folder.glob(pattern)):
            log.warning("left in '%s': %s; --resume goes on from there", folder, ", ".join(left))
        raise
    if logged is None:  # on all ranks but the first
        return TrainReport()
    _finish(trainer, paths)
    if not logged.rows:
        raise Failure(
            f"found no row in the log of '{folder}': the training was stopped before its first "
            "validation, or the log was removed; --resume goes on"
        )
    rows = [row for row in logged.rows if row.step == trainer.progress.kept] or logged.rows
    row = rows[-1]
    trained = Trained(
        str(folder / f"{BEST}{suffix}"),
        trainer.epoch,
        trainer.progress.step,
        trainer.progress.seconds,
        stopped,
        row.rmses("train"),
        row.rmses("valid"),
        [chemical_symbols[z] for z in learner.model.edges.elements],
        str(folder),
        row.step,
        model_file.describe_unopened(paths[0]).isolated_atoms if paths[0].exists() else {},
    )
    baseline = (config.data.baseline, config.data.baseline_coeff)
    return TrainReport([trained], units=config.model.units, folder=str(folder), baseline=baseline)


def _finish(trainer: Trainer, paths: Sequence[Path]) -> None:
    """Do what the end has time for, and leave nothing of what it has none for."""
    trainer.finish()
    left_out = trainer.progress.left_out
    if PICTURES in left_out:  # those that are there are of an earlier model
        for name in (record.CURVE, PARITY):
            (trainer.folder / name).unlink(missing_ok=True)
    has_grade = isinstance(trainer.learner.model, Potential)
    if GRADE in left_out or not has_grade:
        for path in filter(Path.exists, paths):
            _complete(path, has_grade)


def _complete(path: Path, deep_potential: bool) -> None:
    """Let a file tell whether it changes. A record comes last, as it is of all that is there."""
    try:
        add_self_test(path)
    except (ValueError, RuntimeError) as wrong:  # of a module of the user's own
        log.warning("'%s' has no self-test: %s", path.name, last_line(wrong))
    if deep_potential:
        add_record(path, model_file.describe_unopened(path).atom_type)


def _grade(paths: Sequence[Path], learned: Frames, valid: Frames | None, threads: int) -> None:
    """Let files tell gamma, and keep what frames that validate tell of that of the first.

    And complete them, before sums of the files are told.
    """
    best, *others = filter(Path.exists, paths)
    other = [path for path in others if path.read_bytes() != best.read_bytes()]
    for path in (best, *other):
        extrapolation.add(path, learned)
        _complete(path, deep_potential=True)
    for path in others:
        if path not in other:
            files.write_whole(path, best.read_bytes())
    if valid is not None and (info := model_file.describe_unopened(best)).has_grade:
        *_, predicted, gamma = evaluate.predict_by(best, info, info.atom_type, valid, threads)
        assert gamma is not None
        error = np.linalg.norm(predicted[1] - valid.forces, axis=1)
        uncertainty.keep(best.parent, [best], valid, gamma, error)


def _plan(
    config: Config, learner: Learner, valid: Dataset | None, ranks: comm.Communicator
) -> dict[str, str]:
    """What a training would be, for people."""
    frames = learner.frames
    batches = config.run.steps_of_epoch(len(frames))
    limits = [f"{config.run.epochs} epochs"] if config.run.epochs else []
    limits += [f"{config.run.max_time:.4g} minutes"] if config.run.max_time else []
    names = frames.group_names
    groups = f"groups {', '.join(names)}" if len(names) <= 5 else f"{len(names)} groups"
    return {
        "learns from": f"{len(frames)} frames, {len(frames.numbers)} atoms, "
        f"{len(learner.model.edges)} neighbors, {groups}",
        "validates with": f"{len(valid.frames)} frames" if valid else "nothing",
        "parameters": f"{len(learner.parameters)}, {len(learner.model.names)} arrays",
        "steps": f"{batches} of {config.run.batch} frames in an epoch; ends after "
        + " or ".join(limits),
        "ranks": f"{ranks.size} ({ranks.name}), {threads_of(config.run, ranks)} threads each, "
        f"device {config.run.device}",
        "memory of neighbors": f"{learner.model.edges.rij.nbytes / 2**20:.0f} MiB on a rank",
        "models": f"{config.run.models} like this, with other seeds"
        if config.run.models > 1
        else "1",
        "results": f"in {config.output.folder}",
    }
