"""What a model has to offer to be trained: energies, forces, virials, and one gradient."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np

from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.report import Failure

#: Energies [nframes], forces [natoms, 3] and virials [nframes, 3, 3] of some frames, in order.
Predictions = tuple[np.ndarray, np.ndarray, np.ndarray]


class Trainable(Protocol):
    """A model, the frames that it learns from, and its parameters as one vector."""

    frames: Frames
    edges: Edges
    threads: int
    names: list[str]  # of the arrays of parameters, in the order of the vector
    shapes: list[tuple[int, ...]]
    parameters: np.ndarray  # float64 [nparameters], the same on all ranks; optimizers change it
    energy_biases: (
        np.ndarray
    )  # places in it of energies of single atoms; none where steps learn all

    def free(self, freeze: Sequence[str]) -> np.ndarray:
        """Which parameters learn, bool [nparameters], as :func:`free_parameters` says."""

    def evaluate(self, batch: np.ndarray) -> Predictions:
        """Predictions for this rank's part (:func:`pwmlff.train.comm.owned`) of a batch."""

    def pullback(self, a: np.ndarray, v: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Gradient by the parameters of S = a E + v . F + w : W, over all ranks. Collective.

        Of the batch that was evaluated last, once for each evaluation.

        Args:
            a, v, w: of the frames that were evaluated here, shaped as their predictions; virials
                count nothing when None.

        Returns:
            float64 [nparameters], the same on all ranks.
        """

    def predict(self, parameters: np.ndarray, frames: Frames, edges: Edges) -> Predictions:
        """Predictions of the model that would be saved with these parameters."""

    def solved(
        self,
        parameters: np.ndarray,
        free: np.ndarray,
        of_frame: np.ndarray,
        quantities: Collection[str],
    ) -> np.ndarray:
        """The change of the parameters that is best by a linear problem, [nparameters].

        Args:
            parameters: as they are.
            free: those that may change.
            of_frame: [nframes] weights of the frames.
            quantities: those that weigh.
        """

    def refine(self, parameters: np.ndarray, sample: np.ndarray, forces: np.ndarray | None) -> None:
        """Look whether what steps are computed with is close enough to the model. Collective.

        Args:
            parameters: to look at.
            sample: some frames that are learned from.
            forces: what `predict` gives for them, on rank 0.
        """

    def save(
        self, path: str | PathLike[str], parameters: np.ndarray, card: Mapping[str, Any] | None
    ) -> object:
        """Write a file for pair_style pwmlff, with a card (:mod:`pwmlff.train.card`)."""

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs beside the parameters."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""


def free_parameters(
    model: Trainable, freeze: Sequence[str], groups: Mapping[str, str] | None = None
) -> np.ndarray:
    """Which parameters learn, bool [nparameters], where some are frozen.

    Args:
        model: with names and shapes.
        freeze: names of arrays; `*` stands for any letters.
        groups: patterns that have a name of their own.

    Raises:
        Failure: a pattern fits no parameter.
    """
    names = model.names
    frozen: set[str] = set()
    for word in freeze:
        matches = fnmatch.filter(names, (groups or {}).get(word, word))
        if not matches:
            raise Failure(
                f"[model] freeze has '{word}', which no parameter is called; they are named like "
                f"{names[0]} and {names[-1]}"
            )
        frozen.update(matches)
    sizes = [math.prod(shape) for shape in model.shapes]
    return np.repeat([name not in frozen for name in names], sizes)
