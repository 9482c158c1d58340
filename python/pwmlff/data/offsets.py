"""Constants on the diagonal of virials, by source, that training takes off and learns along.

:mod:`pwmlff.data.virials` says what they are and finds them, more or less closely. Forces, and
energies where volumes differ, tell a model in training the mean pressure better and better. So each
validation moves them towards what the model leaves of the labels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pwmlff.data import consistency, virials
from pwmlff.data.frames import Frames, named

log = logging.getLogger(__name__)

#: Part of what a model leaves that a validation takes; less than all, as early models know little.
SHARE = 0.25


@dataclass
class Offsets:
    """Numbers that are taken off the virials of frames, which change in place with them.

    Attributes:
        values: eV per atom in each direction, by the name of the source.
    """

    values: dict[str, float]
    _followed: list[tuple[Frames, np.ndarray]] = field(default_factory=list)

    def taken_off(self, frames: Frames) -> Frames:
        """A copy whose virials are the labels without the offsets, from now on."""
        own = replace(frames, virials=frames.virials.copy())
        _ = own.fingerprint  # that of the labels, whatever the offsets are
        self._followed.append((own, frames.virials))
        self._apply()
        return own

    def put(self, values: Mapping[str, float]) -> None:
        """Take other numbers, of the same sources."""
        self.values = dict(values)
        self._apply()

    def _apply(self) -> None:
        for frames, labels in self._followed:
            source = np.array([self.values.get(name, 0.0) for name in frames.files])
            diagonal = (source[frames.file] * frames.natoms)[:, None, None] * np.eye(3)
            np.subtract(labels, diagonal, out=frames.virials)

    def moved(self, predictions: Iterable[tuple[Frames, np.ndarray]]) -> dict[str, float]:
        """Values that are nearer to what a model leaves.

        Args:
            predictions: frames with virials as they are here, and those of the model
                [nframes, 3, 3]; of several with frames of one source the first counts.
        """
        result: dict[str, float] = {}
        for frames, predicted in predictions:
            left = left_of(frames, predicted)
            for file, name in enumerate(frames.files):
                chosen = left[(frames.file == file) & np.isfinite(left)]
                if name in self.values and name not in result and len(chosen):
                    result[name] = self.values[name] + SHARE * float(chosen.mean())
        return self.values | result


def left_of(frames: Frames, predicted: np.ndarray) -> np.ndarray:
    """What virials of a model [nframes, 3, 3] leave of labels: isotropic, per atom, [nframes]."""
    left: np.ndarray = np.trace(frames.virials - predicted, axis1=1, axis2=2) / 3.0
    left /= np.maximum(frames.natoms, 1)
    return left


def decide(
    parts: Sequence[Frames], mode: str, suspects: Sequence[str]
) -> tuple[dict[str, float], list[str]]:
    """What to do about the virials of each source.

    Args:
        parts: frames that are learned from, and those that validate.
        mode: `auto`, `none`, `fit` or `leave-out`, as [data] virial_offset has it.
        suspects: names of sources that `auto` judges.

    Returns:
        Offsets to begin with, by source, and sources whose virials are to be left out.
    """
    start: dict[str, float] = {}
    left_out: list[str] = []
    names = dict.fromkeys(name for part in parts for name in part.files)
    for name in names if mode != "none" else ():
        frames = Frames.joined(
            part.select(np.flatnonzero(part.file == part.files.index(name)))
            for part in parts
            if name in part.files
        )
        if np.isnan(frames.virials).all() or (mode == "auto" and name not in suspects):
            continue
        judged = virials.judge(frames, np.arange(len(frames)))
        shifted = judged is not None and judged.shifted
        if mode == "fit" or (mode == "auto" and shifted):
            start[name] = judged.offset if judged is not None and judged.fits else 0.0
            log.info(
                "%.4g eV per atom are taken off the diagonal of the virials of '%s', and learned "
                "along ([data] virial_offset)",
                *(start[name], name),
            )
        elif shifted:
            left_out.append(name)
            log.warning("the virials of '%s' are left out ([data] virial_offset)", name)
    return start, left_out


def wrong_virials(frames: Frames) -> list[int]:
    """Frames whose virials are wrong, as `pwmlff data check` has them, which is logged."""
    findings = consistency.findings(frames) if np.isfinite(frames.virials).any() else []
    wrong = sorted({k for finding in findings for k in finding.virials})
    if wrong:
        log.warning(
            "the virials of %d frames are wrong and left out ([data] virial_offset = none keeps "
            "them): %s",
            *(len(wrong), named(frames, wrong)),
        )
    return wrong


def without_virials(frames: Frames, chosen: np.ndarray | Sequence[int]) -> Frames:
    """The same frames, but for the virials of some."""
    labels = frames.virials.copy()
    labels[chosen] = np.nan
    return replace(frames, virials=labels)
