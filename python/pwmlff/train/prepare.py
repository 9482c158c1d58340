"""What a training begins with: data that are read, checked and shared out, and a model for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from ase.data import atomic_numbers, chemical_symbols

from pwmlff.data import cache, duplicates, offsets, readers, sources, split
from pwmlff.data.baseline import Baseline
from pwmlff.data.frames import QUANTITIES, Frames, named, rows_of
from pwmlff.data.neighbors import Edges
from pwmlff.data.offsets import Offsets
from pwmlff.evaluation import model_file
from pwmlff.evaluation.nep_file import Nep
from pwmlff.report import Failure
from pwmlff.train import comm, nep, potential, repulsion
from pwmlff.train.config import Config
from pwmlff.train.edge import TrainableModule, load_module
from pwmlff.train.hardware import device_of, threads_of
from pwmlff.train.learner import Learner, frame_weights
from pwmlff.train.trainable import Trainable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dataset:
    """Frames and their neighbors."""

    frames: Frames
    edges: Edges

    def select(self, chosen: np.ndarray) -> Dataset:
        """Some of the frames, by their numbers."""
        edges = self.edges
        rows, atoms = rows_of(edges.first, chosen), rows_of(self.frames.first, chosen)
        some = replace(
            edges,
            rij=edges.rij[rows],
            j=edges.j[rows],
            count=edges.count[atoms],
            first=np.r_[0, np.cumsum(np.diff(edges.first)[chosen])].astype(np.int64),
            types=edges.types[atoms],
        )
        return Dataset(self.frames.select(chosen), some)


def labelled(
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
                    keep_unconverged=data.keep_unconverged,
                    kinds=data.map,
                    cache=None if data.cache == "none" else data.cache,
                    threads=threads_of(config.run, ranks),
                )
            )
            for names in (data.train, data.valid)
            if names
        ]

    datasets = comm.agreed(ranks, lambda: read() if ranks.local_rank == 0 else [])
    datasets = comm.agreed(ranks, lambda: datasets or read())
    if max(config.loss.virial) > 0.0 and data.virial_offset != "none":
        wrong = comm.by_rank_0(
            ranks, lambda: [offsets.wrong_virials(dataset.frames) for dataset in datasets]
        )
        datasets = [
            replace(dataset, frames=offsets.without_virials(dataset.frames, some))
            if some
            else dataset
            for dataset, some in zip(datasets, wrong, strict=True)
        ]
    if data.baseline:
        datasets = _without_baseline(config, datasets, elements, ranks)
    if data.shift_sources:
        datasets = _aligned(datasets, ranks)
    learned, valid = datasets[0], datasets[1] if len(datasets) > 1 else None
    if data.valid_fraction > 0.0:
        numbers = duplicates.atom_numbers(learned.frames, learned.edges)
        same = duplicates.first_of_each(learned.frames, numbers)
        chosen = split.validating(learned.frames, same, data.valid_fraction, data.seed)
        if chosen.any():
            valid, learned = (learned.select(np.flatnonzero(x)) for x in (chosen, ~chosen))
    elif valid is not None:
        alone = valid.frames.isolated
        if alone.any() and not alone.all():
            log.info("%d isolated atoms of [data] valid do not validate", alone.sum())
            valid = valid.select(np.flatnonzero(~alone))
        _warn_of_both(learned, valid)
    learned, valid, constants = _corrected(config, learned, valid, ranks)
    with _shared():
        _require_labels(learned.frames, "train", config)
        if valid is not None:
            _require_labels(valid.frames, "valid", config)
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

    start: dict[str, float] = {}
    left_out: list[str] = []
    if max(config.loss.virial) > 0.0:
        start, left_out = comm.by_rank_0(ranks, decided)  # others may round otherwise
    constants = Offsets(start)

    def corrected(part: Dataset) -> Dataset:
        frames = part.frames
        if left_out:
            chosen = [k for k, name in enumerate(frames.files) if name in left_out]
            frames = offsets.without_virials(frames, np.isin(frames.file, chosen))
        return Dataset(constants.taken_off(frames) if start else frames, part.edges)

    return corrected(learned), corrected(valid) if valid else None, constants


def _without_baseline(
    config: Config, datasets: Sequence[Dataset], elements: Sequence[int], ranks: comm.Communicator
) -> list[Dataset]:
    """The same with labels less the baseline, which rank 0 evaluates."""
    baseline = Baseline(config.data.baseline, config.data.baseline_coeff)

    def less(dataset: Dataset) -> tuple[np.ndarray, ...]:
        frames = baseline.taken_off(dataset.frames, elements)
        return frames.energies, frames.forces, frames.virials

    log.info("taken off the labels: %s", baseline.words)
    labels = comm.by_rank_0(ranks, lambda: [less(dataset) for dataset in datasets])
    return [
        replace(dataset, frames=replace(dataset.frames, energies=e, forces=f, virials=v))
        for dataset, (e, f, v) in zip(datasets, labels, strict=True)
    ]


def _aligned(datasets: Sequence[Dataset], ranks: comm.Communicator) -> list[Dataset]:
    """The same with energies of one zero; the numbers are those of rank 0."""

    def align() -> np.ndarray:
        frames = Frames.joined(dataset.frames for dataset in datasets)
        parts = [sources.describe(dataset.frames, dataset.edges) for dataset in datasets]
        offsets = sources.offsets(frames, sources.Description.joined(parts))
        result, texts = sources.aligned(frames, offsets)
        for text in texts or ["no source has another zero of energies than those like it"]:
            log.info("shift_sources: %s", text)
        return result.energies

    energies = comm.by_rank_0(ranks, align)
    first = np.cumsum([0, *(len(dataset.frames) for dataset in datasets)])
    return [
        replace(dataset, frames=replace(dataset.frames, energies=energies[begin:end]))
        for dataset, (begin, end) in zip(datasets, pairwise(first), strict=True)
    ]


def _warn_of_both(learned: Dataset, valid: Dataset) -> None:
    """Say which structures are validated with and learned from."""
    frames = Frames.joined([learned.frames, valid.frames])
    numbers = [duplicates.atom_numbers(one.frames, one.edges) for one in (learned, valid)]
    first = duplicates.first_of_each(frames, np.concatenate(numbers))
    n = len(learned.frames)
    known = np.flatnonzero(first[n:] < n)
    if len(known):
        log.warning(
            "%d of the %d frames of [data] valid are in [data] train, too: %s; their errors say "
            "nothing of frames that are not learned from; leave them out of one of the two",
            len(known),
            len(valid.frames),
            named(valid.frames, known),
        )


def _require_labels(frames: Frames, name: str, config: Config) -> None:
    """Refuse frames of which no label counts, as the loss would be of nothing."""
    if not len(frames):
        raise Failure(f"[data] {name} has no frame, expected one or more")
    has = {**frames.labelled, "force": ~np.isnan(frames.forces[:, 0])}  # of atoms
    wanted = [q for q in QUANTITIES if max(getattr(config.loss, q)) > 0.0]
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


def learner(
    config: Config, ranks: comm.Communicator
) -> tuple[Config, Learner, Dataset | None, Offsets]:
    """The configuration with what model and data decide; both in training; offsets of virials.

    That are the units of the model, and the decay of weights.
    """
    of_kind = {"dp": _deep_potential, "edge": _edge_model, "nep": _neuroevolution}[
        config.model.kind
    ]
    device = comm.agreed(ranks, lambda: device_of(config.run, ranks))
    config, model, valid, constants = of_kind(config, ranks, device)
    with _shared():
        learner = Learner(model, config, ranks)
        return learner.config, learner, valid, constants


_Prepared = tuple[Config, Trainable, Dataset | None, Offsets]


def _edge_model(config: Config, ranks: comm.Communicator, device: torch.device | None) -> _Prepared:
    settings, run = config.model, config.run
    module, info = comm.agreed(
        ranks, lambda: load_module(settings.module, settings.arguments, settings.seed)
    )
    config = replace(config, model=replace(settings, units=info.units))
    learned, valid, constants = labelled(config, info.atom_type, info.cutoff, ranks)
    frames, edges, threads = learned.frames, learned.edges, threads_of(run, ranks)
    with _shared():
        model = TrainableModule(
            module, frames, edges, run.precision, threads, ranks, device or "cpu", info
        )
    if settings.finetune:
        comm.agreed(ranks, lambda: model.start_from(settings.finetune))
    return config, model, valid, constants


def _deep_potential(
    config: Config, ranks: comm.Communicator, device: torch.device | None
) -> _Prepared:
    settings, run = config.model, config.run
    if settings.finetune:
        model = comm.agreed(ranks, lambda: potential.of_file(settings.finetune))
        with _shared():
            _require_same_elements(config, model.atom_type)
        config = replace(config, model=replace(settings, units=model.units))
        learned, valid, constants = labelled(config, model.atom_type, model.Rmax, ranks)
        _warn_of_divisor(settings.finetune, learned.frames)
    else:
        elements = [atomic_numbers[symbol] for symbol in settings.elements]
        learned, valid, constants = labelled(config, elements, settings.rmax, ranks)
        others = valid.edges if valid else None
        model = comm.agreed(
            ranks,
            lambda: potential.new(config, learned.frames, learned.edges, settings.seed, others),
        )
    frames, edges = learned.frames, learned.edges
    with _shared():
        known = model.zbl_radii if settings.finetune else None
        data = [edges, *([valid.edges] if valid else [])]
        repulsion.choose(model, data, settings.repulsion, known)
    place = threads_of(run, ranks), ranks, device
    trained = comm.agreed(
        ranks, lambda: potential.Potential(model, frames, edges, run.nodes, run.precision, *place)
    )
    if settings.finetune:
        comm.agreed(ranks, trained.take_energies)
    if valid is not None:
        with _shared():
            potential.require_slots(model, valid.frames, valid.edges)
    return config, trained, valid, constants


def _neuroevolution(
    config: Config, ranks: comm.Communicator, device: torch.device | None
) -> _Prepared:
    settings, run = config.model, config.run
    if device is not None:
        raise comm.SharedFailure(
            f"[run] device is '{run.device}', and a NEP is trained on the CPU; expected cpu"
        )
    config = replace(config, model=replace(settings, units="metal"))
    elements = [atomic_numbers[symbol] for symbol in settings.elements]
    start, shape, seed = None, config.nep, settings.seed
    if settings.finetune:
        start = comm.agreed(ranks, lambda: nep.of_file(settings.finetune, elements))
        elements = list(start.elements)
    cutoff = start.cutoff if start else shape.cutoff[0]
    learned, valid, constants = labelled(config, elements, cutoff, ranks)
    frames, edges = learned.frames, learned.edges

    def first() -> Nep:
        if start is None:
            return nep.initial(shape, frames, edges, seed)
        rng = np.random.default_rng(seed)
        return nep.with_charges(start, shape.charge, rng) if shape.charge else start

    model = comm.agreed(ranks, first)
    if model.charge_mode and valid:
        with _shared():
            nep.require_boxes(valid.frames)
    keep_signs = start is not None and start.charge_mode > 0
    if settings.repulsion == "zbl":
        model = repulsion.in_nep(model, [edges, *([valid.edges] if valid else [])])
    elif settings.repulsion == "none":
        model = replace(model, zbl=None, zbl_line=())
    place = threads_of(run, ranks), ranks
    trained = comm.agreed(
        ranks,
        lambda: nep.NepModel(
            model,
            frames,
            edges,
            run.precision,
            *place,
            shape.version,
            shape.neutral,
            shape.born,
            frame_weights(frames, config),
            keep_signs,
        ),
    )
    comm.agreed(ranks, trained.take_signs)
    if settings.finetune:
        comm.agreed(ranks, trained.take_energies)
    return config, trained, valid, constants


@contextmanager
def _shared() -> Iterator[None]:
    """Say once what fails on all ranks or on none."""
    try:
        yield
    except Failure as error:
        raise comm.SharedFailure(str(error)) from error


def without_data(config: Config, elements: Iterable[int], frames: Frames) -> list[int]:
    """Elements of a model that neither the frames nor what it goes on from have had an atom of.

    A file that does not say otherwise has had atoms of all.
    """
    absent = [int(z) for z in elements if z not in frames.elements]
    if not config.model.finetune:
        return absent
    known = model_file.describe_unopened(config.model.finetune).without_data
    return [z for z in absent if z in known]


def _warn_of_divisor(path: str, frames: Frames) -> None:
    """Say that a model of PWMLFF or MatPL has other energies in training where elements lack."""
    info = model_file.describe_unopened(path)
    if not info.counts_present:
        return
    each = (np.unique(frames.numbers[frames.rows(k)]) for k in range(len(frames)))
    fewer = sum(len(numbers) < len(info.atom_type) for numbers in each)
    if fewer:
        log.warning(
            "'%s' was trained with the elements of each frame in the divisor of its descriptor, "
            "which are all %d from here on: %d of %d frames, without some of them, begin with "
            "energies that are not the model's",
            *(path, len(info.atom_type), fewer, len(frames)),
        )


def _require_same_elements(config: Config, atom_type: Sequence[int]) -> None:
    given, own = list(config.model.elements), [chemical_symbols[z] for z in atom_type]
    if given and given != own:
        raise Failure(
            f"[model] elements is {' '.join(given)}, and '{config.model.finetune}' is for "
            f"{' '.join(own)}; expected the same, in the same order, or none"
        )
