"""What a model has to offer to be trained: energies, forces, virials, and one gradient."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from pwmlff.data import statistics
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
    energy_biases: np.ndarray  # where energies of single atoms are in it; none if steps learn all
    #: Where the last layer of each type is in it, `energy_biases` among them: energies are linear
    #: in these.
    last_layers: Sequence[np.ndarray] = ()
    suffix: ClassVar[str] = ".pt"  # of its files
    groups: ClassVar[Mapping[str, str]] = {}  # names that stand for patterns of names

    def free(self, freeze: Sequence[str]) -> np.ndarray:
        """Which parameters learn, bool [nparameters], where some are frozen.

        Args:
            freeze: names of arrays, `*` stands for any letters; or of `groups`.

        Raises:
            Failure: a pattern fits no parameter.
        """
        frozen: set[str] = set()
        for word in freeze:
            matches = fnmatch.filter(self.names, self.groups.get(word, word))
            if not matches:
                raise Failure(
                    f"[model] freeze has '{word}', which no parameter is called; they are named "
                    f"like {self.names[0]} and {self.names[-1]}"
                )
            frozen.update(matches)
        free = np.ones(len(self.parameters), bool)
        for name, part in zip(self.names, self.parts(free), strict=True):
            part[:] = name not in frozen
        return free

    def parts(self, values: np.ndarray) -> list[np.ndarray]:
        """The part of each array of parameters in such a vector, in its memory."""
        return np.split(values, np.cumsum([math.prod(shape) for shape in self.shapes])[:-1])

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

    def save(
        self, path: str | PathLike[str], parameters: np.ndarray, card: Mapping[str, Any] | None
    ) -> None:
        """Write the model with these parameters, in float64, and what it carries for people."""

    def predict(self, parameters: np.ndarray, frames: Frames, edges: Edges) -> Predictions:
        """Predictions of the model that would be saved with these parameters."""

    def born_charges(
        self, parameters: np.ndarray, frames: Frames, edges: Edges
    ) -> np.ndarray | None:
        """Born charges of that model [natoms, 3, 3], NaN in frames without labels of them.

        None of a model without charges, and where no frame has labels.
        """
        return None

    def lacking_energies(self) -> np.ndarray:
        """What energies of single atoms lack to fit the data, [ntypes]; zero without energies.

        Another code or setting of the calculation behind the data moves all energies by an amount
        per atom of a type; to learn that by steps would spoil what a model knows.
        """
        frames, edges = self.frames, self.edges
        if np.isnan(frames.energies).all():
            return np.zeros(edges.ntypes)
        left = frames.energies - self.predict(self.parameters, frames, edges)[0]
        if not frames.isolated.all():
            left[frames.isolated] = np.nan  # of which the model may know nothing
        return statistics.shifts(replace(frames, energies=left), edges)

    def take_energies(self) -> None:
        """Move the energies of single atoms to those of the data, before a fine-tuning."""
        self.parameters[self.energy_biases] += self.lacking_energies()

    def solved(
        self,
        parameters: np.ndarray,
        free: np.ndarray,
        of_frame: np.ndarray,
        quantities: Collection[str],
        seconds: float = np.inf,
    ) -> np.ndarray:
        """The change of the parameters that is best by a linear problem, [nparameters].

        Args:
            parameters: as they are.
            free: those that may change.
            of_frame: [nframes] weights of the frames.
            quantities: those that weigh.
            seconds: there is none where it would take longer.
        """
        return np.zeros(len(parameters))

    def refine(self, parameters: np.ndarray, sample: np.ndarray, forces: np.ndarray | None) -> None:
        """Look whether what steps are computed with is close enough to the model. Collective.

        Nothing where steps are computed with the model itself.

        Args:
            parameters: to look at.
            sample: some frames that are learned from.
            forces: what `predict` gives for them, on rank 0.
        """
        return

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs beside the parameters."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""


def read(module: nn.Module) -> np.ndarray:
    """All parameters of a module as one vector, float64."""
    parts = [p.detach().double().flatten() for p in module.parameters()]
    values: np.ndarray = torch.cat(parts).cpu().numpy()
    return values


def write(module: nn.Module, values: np.ndarray) -> None:
    """Put such a vector into a module."""
    parameters = list(module.parameters())
    parts = torch.from_numpy(values).split([p.numel() for p in parameters])
    with torch.no_grad():
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))
