"""`pwmlff train`: from a configuration to model files, on the ranks that a launcher started."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import string
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from ase.data import atomic_numbers, chemical_symbols
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff import files, picture
from pwmlff.data import cache, duplicates, offsets, readers, sources, split
from pwmlff.data.frames import Frames, named
from pwmlff.data.neighbors import allowed_threads, available
from pwmlff.data.offsets import Offsets
from pwmlff.launch import interpreter
from pwmlff.report import CONTINUE, INTERRUPTED, Failure, console, typed
from pwmlff.train import card, charts, comm, errors, loop, potential, record
from pwmlff.train.config import Config, MissingElements, from_command
from pwmlff.train.edge import EdgeModel, load_module
from pwmlff.train.kalman import Kalman
from pwmlff.train.learner import Learner
from pwmlff.train.loop import BEST, LAST, Dataset, Trainer
from pwmlff.train.trainable import Predictions, Trainable

log = logging.getLogger(__name__)

Result = TypeVar("Result")

CONFIGURATION, PARITY = "run.toml", "parity.png"
MOST_GROUPS = 5  # that are named one by one
OLD = 0.75  # part of the steps before which the best model is an old one
LEAVING = 1.0  # seconds for what remains to be done when all models of an ensemble are there
#: Set by torchrun: how often it has started this job again.
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
#: Exit codes of a process that a signal has ended.
ENDED_BY_SIGNAL = (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)


class Stop:
    """Whether SIGINT or SIGTERM asked for the end, from :meth:`listen` on; until then both end all.

    A terminal, a scheduler and whoever started this process may each send one: those after the
    first change nothing, to the end of the context, so that what has begun to be written is
    written.

    Args:
        leaves: whether the process ends after the context, so that they change nothing until then.
    """

    def __init__(self, leaves: bool = False) -> None:
        self._leaves = leaves
        self._event = threading.Event()
        self._previous: dict[int, Any] = {}

    def asked(self) -> bool:
        """Whether one came."""
        return self._event.is_set()

    def listen(self) -> None:
        """Take the signals from now on."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous.setdefault(number, signal.getsignal(number))
                signal.signal(number, lambda *_: self._event.set())

    def __enter__(self) -> Stop:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the signals be what they were."""
        ignored = self._leaves and self.asked()
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_IGN if ignored else handler)


@dataclass(frozen=True)
class Options:
    """What the command was given beside the configuration."""

    resume: bool = False
    dry_run: bool = False
    communication: str = "auto"  # as comm.connect takes it
    began: float | None = None  # when the command began, by time.monotonic(); now when None


@dataclass(frozen=True)
class Trained:
    """One model."""

    file: str
    epochs: float
    steps: int
    seconds: float
    stopped: str
    train: dict[str, float]  # RMSEs of the best model by quantity, as they are reported
    valid: dict[str, float]
    elements: list[str]  # in the order of the model's types
    folder: str
    best: int  # step of the file


@dataclass(frozen=True)
class TrainReport:
    """What came of a training, or what would be trained."""

    models: list[Trained]
    plan: dict[str, str]  # of a dry run
    units: str = "metal"
    folder: str = ""  # of all models
    failures: tuple[str, ...] = ()
    unbegun: tuple[str, ...] = ()  # models of an ensemble, as the end was asked for before

    @property
    def ok(self) -> bool:
        """Whether all models are there and came to their end."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0, 1 where a model failed, or CONTINUE where somebody asked for the end."""
        if self.failures:
            return 1
        stopped = bool(self.unbegun) or any(m.stopped == "asked" for m in self.models)
        return CONTINUE if stopped else 0

    def data(self) -> dict[str, Any]:
        """Plain values."""
        units = {name: errors.UNITS[self.units].unit_of(name) for name in errors.QUANTITIES}
        return {
            "models": [asdict(m) for m in self.models],
            "plan": self.plan,
            "reported_in": units,
            "failures": list(self.failures),
            "unbegun": list(self.unbegun),
        }

    def show(self) -> RenderableType:
        """A row for each model, or for each thing to know beforehand."""
        parts: list[RenderableType] = []
        if self.plan:
            table = Table(show_header=False)
            table.add_column(style="bold")
            table.add_column(overflow="fold")
            for name, value in self.plan.items():
                table.add_row(name, Text(value))
            parts.append(table)
        if self.models:
            table = Table("model", "epochs", "minutes", "ended by")
            for name in errors.QUANTITIES:
                if any(name in m.train or name in m.valid for m in self.models):
                    table.add_column(f"{name}\n{errors.UNITS[self.units].unit_of(name)}")
            for m in self.models:
                shown = [
                    " / ".join(
                        record.short(found[name]) for found in (m.train, m.valid) if name in found
                    )
                    for name in errors.QUANTITIES
                    if name in m.train or name in m.valid
                ]
                name = Path(m.file).name
                table.add_row(
                    Text(name), f"{m.epochs:.4g}", f"{m.seconds / 60.0:.3g}", m.stopped, *shown
                )
            parts += [table, Text("RMSE on frames learned from / on frames to validate with")]
            parts += [Text(line, no_wrap=True, overflow="ignore") for line in self._use()]
        parts += [Text(f"model {name} was stopped before its first step") for name in self.unbegun]
        parts += [Text(text, "red") for text in self.failures]
        if self.folder:
            parts.append(Text(self._more(), no_wrap=True, overflow="ignore"))
        return Group(*parts)

    def _use(self) -> list[str]:
        """Which files there are, and the lines that run the models."""
        paths = [_absolute(m.file) for m in self.models]
        words = [f'"{path}"' if " " in path else path for path in paths]
        several = " out_freq 100 out_file model_devi.out" if len(words) > 1 else ""
        lines = ["", "In the input of LAMMPS:", "", f"    units {self.units}"]
        lines += [f"    pair_style pwmlff {len(words)} {' '.join(words)}{several}"]
        lines += [f"    pair_coeff * * {' '.join(self.models[0].elements)}", ""]
        for path, m in zip(paths, self.models, strict=True):
            lines += [f"{path}: the lowest error in validation, of step {m.best}"]
            lines += [f"{Path(_absolute(m.folder), LAST)}.pt: the newest, of step {m.steps}"]
            if m.valid and m.best < OLD * m.steps:
                lines.append(
                    f"  no model after step {m.best} of {m.steps} was better on the frames that "
                    "validate: other data help more than a longer training"
                )
        curves = f"{record.CSV}, {record.CURVE}, {PARITY}"
        return [*lines, *(f"{_absolute(m.folder)}: {curves}, checkpoints" for m in self.models)]

    def _more(self) -> str:
        """How to go on."""
        words = ["pwmlff", "train", "--resume", "-o", _absolute(self.folder)]
        if self.exit_code == CONTINUE:
            return f"To go on: {shlex.join(words)}"
        return f"To go on for longer: {shlex.join(words)} and --max-time or --epochs, in all"


def _absolute(name: str) -> str:
    """A path with its folders."""
    return str(Path(name).absolute())


def train(
    toml: Path | None,
    given: dict[str, Any],
    options: Options,
    stop: Stop | None = None,
) -> TrainReport:
    """Train what the configuration says, on the ranks of the job.

    Args:
        toml: run.toml, or None.
        given: the other arguments of :func:`pwmlff.train.config.from_command`.
        options: of the command.
        stop: that is entered already; one for this call alone when None.

    Raises:
        Failure: on all ranks, or on rank 0 with the others gone.
    """
    if options.began is None:
        options = replace(options, began=time.monotonic())
    ranks = comm.connect(options.communication)
    with Stop() as own, comm.together(ranks):
        logging.basicConfig(
            level=logging.WARNING if ranks.rank == 0 else logging.ERROR,
            format="%(message)s",
            handlers=[_Lines()],
        )
        # Of other packages warnings alone: matplotlib has news of its fonts.
        logging.getLogger("pwmlff").setLevel(logging.INFO if ranks.rank == 0 else logging.ERROR)
        if int(os.environ.get(RESTARTS, "0")) > 0:
            options = replace(options, resume=True)
        config = comm.agreed(ranks, lambda: _configured(toml, given, options))
        # Products of matrices must not depend on the number of threads; frames are in parallel.
        torch.set_num_threads(1)
        if config.run.models > 1 and not options.dry_run:
            report = _ensemble(config, options, ranks, stop or own)
        else:
            report = _one(config, options, ranks, stop or own)
        ranks.barrier()
    if ranks.rank:
        raise SystemExit(0)
    return report


class _Lines(logging.Handler):
    """What the parts of training have to say, on stderr."""

    def emit(self, entry: logging.LogRecord) -> None:
        prefix = "warning: " if entry.levelno >= logging.WARNING else ""
        console(stderr=True).print(Text(prefix + entry.getMessage()))


def _configured(toml: Path | None, given: dict[str, Any], options: Options) -> Config:
    """The configuration; a training that goes on finds its own in the folder."""
    output = given.get("output")
    if toml is None and options.resume and output is not None and not given.get("data"):
        toml = Path(output) / CONFIGURATION
        if not toml.is_file():
            raise Failure(
                f"found no '{toml}' of a training to go on with, expected the folder of one (-o), "
                "or its run.toml or --data"
            )
    try:
        return from_command(toml=toml, **given)
    except MissingElements as error:
        frames = readers.read(error.data.train, error.data.format or None)
        symbols = [chemical_symbols[z] for z in dict.fromkeys(frames.numbers.tolist())]
        raise Failure(
            f"found no [model] elements, and {' '.join(symbols)} in {len(frames)} frames; expected "
            f"those of the model, in the order of its types: {typed('--elements', *symbols)}"
        ) from error


# ---- one model


def _one(config: Config, options: Options, ranks: comm.Communicator, stop: Stop) -> TrainReport:
    """Train one model on all ranks."""
    folder = Path(config.output.folder)
    if not options.dry_run:
        comm.agreed(ranks, lambda: _claim(folder, options) if ranks.rank == 0 else None)
    config, learner, valid, constants = _learner(config, ranks)
    if options.dry_run:
        return TrainReport([], _plan(config, learner, valid, ranks), config.model.units)

    def keep(
        names: Sequence[str], found: errors.Errors | None, judged: errors.Errors | None
    ) -> None:
        contents = card.make(
            config,
            learner.frames,
            valid.frames if valid else None,
            train_errors=found,
            valid_errors=judged,
            step=training.progress.step,
            epochs=training.epoch,
        )
        first, *others = (folder / f"{name}.pt" for name in names)
        learner.save(first, contents)
        for path in others:
            files.write_whole(path, first.read_bytes())

    def draw() -> None:
        assert logged is not None  # on rank 0
        try:
            logged.draw()
            if valid is not None and training.judged is not None:
                _draw_parity(config, valid.frames, training.judged)
        except (Failure, OSError) as error:  # the model is there
            log.warning("%s", error)

    own = ranks.rank == 0
    stop.listen()
    training = Trainer(
        config, learner, valid, ranks, folder, keep, stop.asked, draw, options.began, constants
    )
    resumed = training.resume() if options.resume else False
    if own and options.resume:
        log.info(
            "going on from step %d" if resumed else "found no checkpoint: from step %d",
            training.progress.step,
        )
    if own:
        plan = _plan(config, learner, valid, ranks)
        for name in ("learns from", "validates with", "steps", "ranks"):
            log.info("%s: %s", name, plan[name])
    step = training.progress.step if options.resume else None
    logged = comm.agreed(
        ranks,
        lambda: (
            record.Record(
                folder,
                step=step,
                units=config.model.units,
                tensorboard=config.run.tensorboard,
            )
            if own
            else None
        ),
    )
    comm.agreed(ranks, lambda: _write_configuration(config) if own else None)
    shown = record.Display(config.model.units) if own else None
    try:
        with logged or nullcontext(), shown or nullcontext():
            outcome = training.run(logged, shown)
        for source, value in constants.values.items():
            log.info("the virials of '%s' had %.4g eV per atom too much in the end", source, value)
    except Failure:
        if own and (left := _left_in(folder)):
            log.warning("left in '%s': %s; --resume goes on from there", folder, ", ".join(left))
        raise
    if logged is None:  # on all ranks but the first
        return TrainReport([], {})
    draw()
    if not logged.rows:
        raise Failure(
            f"found no row in the log of '{folder}': the training was stopped before its first "
            "validation, or the log was removed; --resume goes on"
        )
    rows = [row for row in logged.rows if row.step == training.progress.kept] or logged.rows
    row = rows[-1]
    trained = Trained(
        str(folder / f"{BEST}.pt"),
        outcome.epochs,
        outcome.step,
        outcome.seconds,
        outcome.stopped,
        _of_row(row, "train"),
        _of_row(row, "valid"),
        [chemical_symbols[z] for z in learner.model.edges.elements],
        str(folder),
        row.step,
    )
    return TrainReport([trained], {}, config.model.units, str(folder))


def _of_row(row: record.Row, which: str) -> dict[str, float]:
    values = {name: getattr(row, f"{name}_{which}") for name in errors.QUANTITIES}
    return {name: value for name, value in values.items() if value is not None}


def _claim(folder: Path, options: Options) -> None:
    """Make the folder; refuse that of another training before anything is written."""
    folder.mkdir(parents=True, exist_ok=True)
    if not options.resume:
        record.require_unused(folder)


def _left_in(folder: Path) -> list[str]:
    """Models and checkpoints in a folder."""
    patterns = ("*.pt", "checkpoint-*.npz")
    return sorted(path.name for pattern in patterns for path in folder.glob(pattern))


def _write_configuration(config: Config) -> None:
    folder = Path(config.output.folder)
    files.write_whole(folder / CONFIGURATION, config.as_toml().encode())


def _labelled(
    config: Config, elements: Sequence[int], cutoff: float, ranks: comm.Communicator
) -> tuple[Dataset, Dataset | None, Offsets]:
    """Frames to learn from and to validate with, and what is taken off their virials.

    One rank of a node reads, the others follow.
    """
    data = config.data

    def read() -> list[Dataset]:
        return [
            Dataset(
                *cache.load(
                    names,
                    elements=elements,
                    cutoff=cutoff,
                    format=data.format or None,
                    energy=data.energy,
                    cache=None if data.cache == "none" else data.cache,
                    threads=_threads(config, ranks),
                )
            )
            for names in (data.train, data.valid)
            if names
        ]

    found = comm.agreed(ranks, lambda: read() if ranks.local_rank == 0 else [])
    found = comm.agreed(ranks, lambda: found or read())
    if data.shift_sources:
        found = _aligned(found, ranks)
    learned, valid = found[0], found[1] if len(found) > 1 else None
    if data.valid_fraction > 0.0:
        numbers = duplicates.atom_numbers(learned.frames, learned.edges)
        same = duplicates.first_of_each(learned.frames, numbers)
        chosen = split.validating(learned.frames, same, data.valid_fraction, data.seed)
        if chosen.any():
            valid = _chosen(learned, np.flatnonzero(chosen))
            learned = _chosen(learned, np.flatnonzero(~chosen))
    elif valid is not None:
        _warn_of_both(learned, valid)
    learned, valid, constants = _corrected(config, learned, valid, ranks)
    for part, name in ((learned, "train"), (valid, "valid")):
        if part is not None:
            _shared(partial(_require_labels, part.frames, name, config))
    return learned, valid, constants


def _corrected(
    config: Config, learned: Dataset, valid: Dataset | None, ranks: comm.Communicator
) -> tuple[Dataset, Dataset | None, Offsets]:
    """The same with virials that belong to the energy, as far as that is asked for."""
    data = config.data
    parts = [part.frames for part in (learned, valid) if part is not None]

    def decided() -> tuple[dict[str, float], list[str]]:
        suspects = [
            name
            for name in {name for part in parts for name in part.files}
            if data.virial_offset == "auto"
            and readers.reader_of(Path(name), data.format or None) == "movement"
        ]
        return offsets.decide(parts, data.virial_offset, suspects)

    wanted = max(config.loss.virial) > 0.0
    found = comm.agreed(ranks, lambda: decided() if wanted and ranks.rank == 0 else ({}, []))
    start, left_out = ranks.broadcast(found)  # of one rank: others may round otherwise
    constants = Offsets(start)

    def corrected(part: Dataset) -> Dataset:
        frames = part.frames
        if left_out:
            frames = offsets.without_virials(frames, left_out)
        return Dataset(constants.taken_off(frames) if start else frames, part.edges)

    return corrected(learned), corrected(valid) if valid else None, constants


def _aligned(datasets: Sequence[Dataset], ranks: comm.Communicator) -> list[Dataset]:
    """The same with energies of one zero; the numbers are those of rank 0."""

    def align() -> np.ndarray:
        frames = Frames.joined(one.frames for one in datasets)
        parts = [sources.describe(one.frames, one.edges) for one in datasets]
        offsets = sources.offsets(frames, sources.Description.joined(parts))
        result, texts = sources.aligned(frames, offsets)
        for text in texts or ["no source has another zero of energies than those like it"]:
            log.info("shift_sources: %s", text)
        return result.energies

    energies = ranks.broadcast(comm.agreed(ranks, lambda: align() if ranks.rank == 0 else None))
    first = np.cumsum([0, *(len(one.frames) for one in datasets)])
    return [
        replace(one, frames=replace(one.frames, energies=energies[begin:end]))
        for one, (begin, end) in zip(datasets, pairwise(first), strict=True)
    ]


def _warn_of_both(learned: Dataset, valid: Dataset) -> None:
    """Say which structures are validated with and learned from."""
    both = [learned, valid]
    frames = Frames.joined(one.frames for one in both)
    numbers = [duplicates.atom_numbers(one.frames, one.edges) for one in both]
    first = duplicates.first_of_each(frames, np.concatenate(numbers))
    n = len(learned.frames)
    known = np.flatnonzero(first[n:] < n)
    if len(known):
        log.warning(
            "%d of the %d frames of [data] valid are in [data] train, too: %s; their errors say "
            "nothing of frames that are not learned from; leave them out of one of the two",
            *(len(known), len(valid.frames), named(valid.frames, known)),
        )


def _chosen(dataset: Dataset, frames: np.ndarray) -> Dataset:
    return Dataset(
        dataset.frames.select(frames), loop.select_edges(dataset.edges, dataset.frames, frames)
    )


def _require_labels(frames: Frames, name: str, config: Config) -> None:
    """Refuse frames of which no label counts, as the loss would be of nothing."""
    if not len(frames):
        raise Failure(f"[data] {name} has no frame, expected one or more")
    has = {
        "energy": ~np.isnan(frames.energies),
        "force": ~np.isnan(frames.forces[:, :1]) if len(frames.forces) else np.zeros(0, bool),
        "virial": ~np.isnan(frames.virials[:, 0, 0]),
    }
    wanted = [q for q in errors.QUANTITIES if max(getattr(config.loss, q)) > 0.0]
    if not any(has[quantity].any() for quantity in wanted):
        raise Failure(
            f"the {len(frames)} frames of [data] {name} have no label of {', '.join(wanted)}, "
            "expected one to learn by; see pwmlff data check"
        )
    for quantity in wanted if name == "train" else ():
        missing = int((~has[quantity]).sum())
        # Virials are often not there at all, and weigh by default.
        if missing and has[quantity].any():
            what = "atoms" if quantity == "force" else "frames"
            log.warning("%d of %d %s have no %s", missing, has[quantity].size, what, quantity)


def _threads(config: Config, ranks: comm.Communicator) -> int:
    return config.run.threads or allowed_threads(ranks.local_size)


def _learner(
    config: Config, ranks: comm.Communicator
) -> tuple[Config, Learner, Dataset | None, Offsets]:
    """The configuration with the units of the model; that in training; what validates; offsets."""
    of_kind = _edge_model if config.model.module else _deep_potential
    config, model, valid, constants = of_kind(config, ranks)
    return config, _shared(lambda: Learner(model, config, ranks)), valid, constants


_Prepared = tuple[Config, Trainable, Dataset | None, Offsets]


def _edge_model(config: Config, ranks: comm.Communicator) -> _Prepared:
    """A module of kind EDGE and its data."""
    settings, run = config.model, config.run
    module, info = comm.agreed(
        ranks, lambda: load_module(settings.module, settings.arguments, settings.seed)
    )
    config = replace(config, model=replace(settings, units=info.units))
    learned, valid, constants = _labelled(config, info.atom_type, info.cutoff, ranks)
    threads = _threads(config, ranks)
    model = _shared(
        lambda: EdgeModel(module, learned.frames, learned.edges, run.precision, threads, ranks)
    )
    if settings.finetune:
        comm.agreed(ranks, lambda: model.start_from(settings.finetune))
    return config, model, valid, constants


def _deep_potential(config: Config, ranks: comm.Communicator) -> _Prepared:
    """A Deep Potential, new or from a file, and its data."""
    settings, run = config.model, config.run
    if settings.finetune:
        model = comm.agreed(ranks, lambda: potential.of_file(settings.finetune))
        _shared(lambda: _require_same_elements(config, model.atom_type))
        config = replace(config, model=replace(settings, units=model.units))
        learned, valid, constants = _labelled(config, model.atom_type, model.Rmax, ranks)
    else:
        elements = [atomic_numbers[symbol] for symbol in settings.elements]
        learned, valid, constants = _labelled(config, elements, settings.rmax, ranks)
        others = valid.edges if valid else None
        model = comm.agreed(
            ranks,
            lambda: potential.new(config, learned.frames, learned.edges, settings.seed, others),
        )
    threads = _threads(config, ranks)
    trained = comm.agreed(
        ranks,
        lambda: potential.Potential(
            model, learned.frames, learned.edges, run.nodes, run.precision, threads, ranks
        ),
    )
    if settings.finetune:
        comm.agreed(ranks, lambda: potential.shift(trained))
    if valid is not None:
        _shared(lambda: potential.require_slots(model, valid.frames, valid.edges))
    return config, trained, valid, constants


def _shared(work: Callable[[], Result]) -> Result:
    """Do what fails on all ranks or on none, so that it is said once.

    Raises:
        comm.SharedFailure: it has failed.
    """
    try:
        return work()
    except Failure as error:
        raise comm.SharedFailure(str(error)) from error


def _require_same_elements(config: Config, atom_type: Sequence[int]) -> None:
    given, own = list(config.model.elements), [chemical_symbols[z] for z in atom_type]
    if given and given != own:
        raise Failure(
            f"[model] elements is {' '.join(given)}, and '{config.model.finetune}' is for "
            f"{' '.join(own)}; expected the same, in the same order, or none"
        )


def _plan(
    config: Config, learner: Learner, valid: Dataset | None, ranks: comm.Communicator
) -> dict[str, str]:
    """What a training would be, for people."""
    frames = learner.frames
    batches = -(-len(frames) // config.run.batch)
    limits = [f"{config.run.epochs} epochs"] if config.run.epochs else []
    limits += [f"{config.run.max_time:.4g} minutes"] if config.run.max_time else []
    names = frames.group_names
    groups = f"groups {', '.join(names)}" if len(names) <= MOST_GROUPS else f"{len(names)} groups"
    plan = {
        "learns from": f"{len(frames)} frames, {len(frames.numbers)} atoms, "
        f"{len(learner.model.edges)} neighbors, {groups}",
        "validates with": f"{len(valid.frames)} frames" if valid else "nothing",
        "parameters": f"{len(learner.parameters)}, {len(learner.model.names)} arrays",
        "steps": f"{batches} of {config.run.batch} frames in an epoch; ends after "
        + " or ".join(limits),
        "ranks": f"{ranks.size} ({ranks.name}), {_threads(config, ranks)} threads each",
        "memory of neighbors": f"{learner.model.edges.rij.nbytes / 2**20:.0f} MiB on a rank",
        "models": f"{config.run.models} like this, with other seeds"
        if config.run.models > 1
        else "1",
        "results": f"in {config.output.folder}",
    }
    if isinstance(learner.optimizer, Kalman):
        needed, blocks = max(learner.optimizer.memory()), len(learner.optimizer.sizes)
        plan["memory of the filter"] = f"{needed / 2**20:.0f} MiB on a rank, {blocks} blocks"
    return plan


def _draw_parity(config: Config, frames: Frames, found: Predictions) -> None:
    """Parity of what validates."""
    path = picture.destination(Path(config.output.folder) / PARITY)
    judged = errors.compute(frames, *found, config.model.units)
    name = str(Path(config.output.folder, f"{LAST}.pt"))
    picture.save(charts.parity(frames, *found, judged, name), path, dpi=120)


# ---- several models


def member_name(k: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    letters = string.ascii_lowercase
    name = ""
    k += 1
    while k:
        k, digit = divmod(k - 1, len(letters))
        name = letters[digit] + name
    return name


def _member(config: Config, k: int, threads: int, max_time: float) -> Config:
    """The configuration of one model of an ensemble: other seeds, a folder and a time of its own.

    Args:
        config: of all.
        k: which one.
        threads, max_time: of one.
    """
    return replace(
        config,
        model=replace(config.model, seed=config.model.seed + k),
        run=replace(
            config.run, seed=config.run.seed + k, models=1, threads=threads, max_time=max_time
        ),
        output=replace(config.output, folder=str(Path(config.output.folder) / member_name(k))),
    )


def _ensemble(
    config: Config, options: Options, ranks: comm.Communicator, stop: Stop
) -> TrainReport:
    """Train models side by side, each in a process of its own: none needs to know of the others.

    On one rank the processes are started here; on several each rank trains its share.
    """
    n = config.run.models
    if ranks.size > n:
        raise comm.SharedFailure(
            f"found {ranks.size} ranks for {n} models, expected at most {n}: each model of an "
            "ensemble trains on one rank; start fewer, or train one model on all (--models 1)"
        )
    folder = Path(config.output.folder)
    comm.agreed(ranks, lambda: _begin(config, options) if ranks.rank == 0 else None)
    mine = range(ranks.rank, n, ranks.size)
    together = min(n, available()) if ranks.size == 1 else 1
    threads = config.run.threads or max(1, allowed_threads(ranks.local_size) // together)
    members = [_member(config, k, threads, _share(config, options, ranks, together)) for k in mine]
    found = _in_processes(members, options, together, stop)
    parts = ranks.allgather(list(zip(mine, found, strict=True)))
    trained, failures, unbegun = [], [], []
    for k, result in sorted((pair for part in parts for pair in part), key=lambda pair: pair[0]):
        name = member_name(k)
        if isinstance(result, Trained):
            trained.append(result)
        elif result is None:
            unbegun.append(name)
        else:
            failures.append(f"model {name}: {result}")
    if ranks.rank == 0:
        for k, one in enumerate(trained):
            target = folder / f"{Path(one.file).parent.name}.pt"
            files.write_whole(target, Path(one.file).read_bytes())
            trained[k] = replace(one, file=str(target))
    units, failed = config.model.units, tuple(failures)
    return TrainReport(trained, {}, units, str(folder), failed, tuple(unbegun))


def _share(config: Config, options: Options, ranks: comm.Communicator, together: int) -> float:
    """Minutes of one model of an ensemble, of which some train at a time; 0 for no limit."""
    if not config.run.max_time:
        return 0.0
    assert options.began is not None
    turns = -(-config.run.models // (ranks.size * together))
    spent = time.monotonic() - options.began + LEAVING
    return max(1e-3, (config.run.max_time - spent / 60.0) / turns)


def _begin(config: Config, options: Options) -> None:
    """Folders of the members, and the configuration of all."""
    folder = Path(config.output.folder)
    for k in range(config.run.models):
        _claim(folder / member_name(k), options)
    _write_configuration(config)


def _in_processes(
    members: Sequence[Config], options: Options, together: int, stop: Stop
) -> list[Trained | str | None]:
    """Train each member by a command of its own, some at a time.

    Returns:
        What came of each, or its error, or None where the end was asked for before it began.
    """
    results: list[Trained | str | None] = [None] * len(members)
    turn = threading.Semaphore(together)
    lock = threading.Lock()
    running: list[subprocess.Popen[str]] = []
    said: set[str] = set()  # lines: the head of the table stands above the rows of all
    ended = False  # somebody asked to stop

    def started(member: Config) -> subprocess.Popen[str] | None:
        command = interpreter.pwmlff("train", "--json", "--communication", "serial")
        command += ["--resume"] if options.resume else []
        with lock:  # all that run are told to stop, and none begins after that
            if ended:
                return None
            path = Path(member.output.folder) / CONFIGURATION
            files.write_whole(path, member.as_toml().encode())
            process = subprocess.Popen(
                [*command, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            running.append(process)
            return process

    def one(k: int, member: Config) -> None:
        with turn:
            try:
                process = started(member)
            except OSError as error:
                results[k] = str(error)
                return
            if process is not None:
                found = _result(process, Path(member.output.folder).name, said)
                # One that was still reading has nothing to keep, and ends at once.
                early = stop.asked() and process.returncode in ENDED_BY_SIGNAL
                results[k] = None if early and isinstance(found, str) else found

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(members)]
    stop.listen()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.2)
        if stop.asked() and not ended:
            with lock:
                ended = True
                for process in running:
                    process.send_signal(signal.SIGTERM)
    return results


def _result(process: subprocess.Popen[str], name: str, said: set[str]) -> Trained | str:
    """Show what a member says that none has said yet; what came of it, or its error."""
    screen = console(stderr=True)
    assert process.stdout is not None and process.stderr is not None  # both are pipes
    for line in process.stderr:
        if line not in said:
            said.add(line)
            screen.print(Text(f"{name}: {line.rstrip()}"))
    output = process.stdout.read()
    code = process.wait()
    try:
        found = json.loads(output)
    except ValueError:
        return f"ended with {code}"
    models = found.get("models") or []
    return Trained(**models[0]) if models else found.get("error", f"ended with {code}")
