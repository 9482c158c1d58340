"""The last layers of networks by linear least squares.

Energies, forces and virials of a Deep Potential or a NEP are linear in the weights and biases of
the last layers of its networks of atoms. The best of these for all data, with the rest as steps
have left it, solve a linear problem (variable projection, Golub and Pereyra 1973,
doi:10.1137/0710036). Steps of small batches do not come near it in energies: what one frame asks
for changes the energies of all others.

With the errors r of a quantity q, its weights u are those of the smallest product of RMSEs,

    sum_q u_q <r_q^2> -> min,    u_q = 1 / <r_q^2>,

but for less u of energies and virials where forces would be worse than before by more than MARGIN.
Rows beyond FAR times the median error count by the size of their error, not by its square (Huber
1964, doi:10.1214/aoms/1177703732). So wrong labels decide nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pwmlff.data import statistics
from pwmlff.data.frames import rows_of
from pwmlff.train.trainable import Predictions, Trainable

ATOMS = 3000  # whose forces are looked at, in whole frames
FRAMES = 1024  # whose energies are
ROWS = 4  # of forces on atoms of a type for each parameter of its last layer, at least
RIDGE = 1e-7  # of the normal equations, over their diagonal: what data hardly tell stays
PASSES = 12  # until weights and solution agree
FAR = 8.0  # medians
MARGIN = 0.02  # that forces may lose
HALVINGS = 40
SMALLEST = 1e-12  # error, or square of one, below which nothing is to be gained


@dataclass(frozen=True)
class Equations:
    """Linear equations for a change of the parameters, of one quantity."""

    design: np.ndarray  # [rows, n]
    lacks: np.ndarray  # [rows] label - prediction
    weights: np.ndarray  # [rows]

    def robust(self, change: np.ndarray) -> tuple[np.ndarray, float]:
        """Weights of the rows, and the mean square that is left, after a change."""
        left = np.abs(self.lacks - self.design @ change)
        usual = max(float(np.median(left)), SMALLEST)
        weights = self.weights * np.minimum(1.0, FAR * usual / np.maximum(left, usual))
        weights = weights / weights.sum()
        return weights, float(weights @ left**2)


class Layered(Trainable, Protocol):
    """A model with last layers, whose places are `last_layers`."""

    def predictions(self, parameters: np.ndarray, chosen: np.ndarray) -> Predictions:
        """Predictions for some of its frames with these parameters, as steps have them."""

    def energies_and_gradients(
        self, parameters: np.ndarray, chosen: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Energies of some of its frames, and their derivatives by some parameters.

        Returns:
            [len(chosen)] and [len(chosen), len(places)]
        """

    def solved(
        self,
        parameters: np.ndarray,
        free: np.ndarray,
        of_frame: np.ndarray,
        quantities: Collection[str],
        seconds: float = np.inf,
    ) -> np.ndarray:
        """The change of the parameters that is best for the last layers."""
        places = [layer[free[layer]] for layer in self.last_layers]
        return LastLayers(self, parameters, places, of_frame).fitted(quantities, seconds)


@dataclass(frozen=True)
class LastLayers:
    """Last layers of a model."""

    model: Layered  # with the frames that it learns from
    parameters: np.ndarray  # [nparameters] as they are
    of_type: Sequence[np.ndarray]  # places of those of each type that may change
    of_frame: np.ndarray  # [nframes] weights of the frames, beside their own

    def fitted(self, quantities: Collection[str], seconds: float = np.inf) -> np.ndarray:
        """The change of the parameters that fits the data best.

        Args:
            quantities: "energy", "force" and "virial", or some of them.
            seconds: that it may take, by what its first part takes.

        Returns:
            [nparameters], zeros for types that have too few forces to tell, and for all where
            there is too little time.
        """
        frames, wanted = self.model.frames, set(quantities)
        change = np.zeros(len(self.parameters))
        order = np.random.default_rng(0).permutation(len(frames))
        order = order[self.of_frame[order] > 0.0]
        with_energy = order[frames.labelled["energy"][order]][:FRAMES]
        with_forces, told = self._told(order[frames.labelled["force"][order]])
        places = np.concatenate([np.zeros(0, int), *told])
        if "force" not in wanted or not len(places):
            return change
        given = self._force_equations(places, with_forces, seconds)
        if not given:
            return change
        if len(with_energy):
            given["energy"] = self._energy_equations(places, with_energy)
        change[places] = solve({name: given[name] for name in given if name in wanted})
        return change

    def _told(self, order: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Frames whose forces are looked at, and the places of the types that these tell of.

        Frames with rare types come first, as far as those are to be told of.
        """
        frames, edges = self.model.frames, self.model.edges
        counts = statistics.counts_of_types(frames, edges)
        needed = [ROWS * len(places) / 3.0 for places in self.of_type]
        ranked: list[int] = []
        for k in np.argsort(counts.sum(0)):
            having = order[counts[order, k] > 0]
            last = np.searchsorted(np.cumsum(counts[having, k]), needed[k])
            ranked += having[: last + 1].tolist()
        chosen = np.array(list(dict.fromkeys([*ranked, *order.tolist()])), dtype=int)
        chosen = chosen[: np.searchsorted(np.cumsum(frames.natoms[chosen]), ATOMS) + 1]
        enough = counts[chosen].sum(0) >= needed
        return chosen, [part for part, told in zip(self.of_type, enough, strict=True) if told]

    def _energy_equations(self, places: np.ndarray, chosen: np.ndarray) -> Equations:
        """Equations of energies per atom, by the gradients of the energies."""
        frames, natoms = self.model.frames, self.model.frames.natoms[chosen]
        energy, gradients = self.model.energies_and_gradients(self.parameters, chosen, places)
        weights = self.of_frame[chosen] * frames.weights[chosen, 0]
        lacks = (frames.energies[chosen] - energy) / natoms
        return Equations(gradients / natoms[:, None], lacks, weights)

    def _force_equations(
        self, places: np.ndarray, chosen: np.ndarray, seconds: float
    ) -> dict[str, Equations]:
        """Equations of components of forces, and of virials per atom where there are any.

        None at all where they would take longer than so many seconds.
        """
        frames, natoms = self.model.frames, self.model.frames.natoms[chosen]

        def rows_with(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            _, forces, virials = self.model.predictions(values, chosen)
            return forces.ravel(), (virials / natoms[:, None, None]).ravel()

        unit = self.parameters.copy()
        unit[places] = 0.0
        rest = rows_with(unit)  # other layers, charges, and the repulsion of nuclei
        columns: list[tuple[np.ndarray, np.ndarray]] = []
        began = time.monotonic()
        for place in places:
            took = (time.monotonic() - began) / max(1, len(columns))
            if took * len(places) > seconds:
                return {}
            unit[place] = 1.0
            forces, virials = rows_with(unit)
            unit[place] = 0.0
            columns.append((forces - rest[0], virials - rest[1]))
        designs = [np.stack(parts, axis=1) for parts in zip(*columns, strict=True)]
        virials = frames.virials[chosen] / natoms[:, None, None]
        labels = frames.forces[rows_of(frames.first, chosen)].ravel(), virials.ravel()
        _, of_forces, of_virials = self.of_frame[chosen] * frames.weights[chosen].T
        weights = np.repeat(of_forces / natoms, 3 * natoms), np.repeat(of_virials, 9)
        every = zip(designs, labels, rows_with(self.parameters), weights, strict=True)
        result = {}
        for name, (design, label, predicted, weight) in zip(
            ("force", "virial"), every, strict=True
        ):
            known = np.isfinite(label)
            if known.any():
                lacks = (label - predicted)[known]
                result[name] = Equations(design[known], lacks, weight[known])
        return result


def solve(equations_of: Mapping[str, Equations]) -> np.ndarray:
    """The change of the parameters that is best, [n].

    Args:
        equations_of: of forces, and of energies and virials where they count.
    """
    forces = equations_of["force"]
    change = np.zeros(forces.design.shape[1])
    most = (1.0 + MARGIN) ** 2 * forces.robust(change)[1]
    shares = dict.fromkeys(equations_of, 1.0)
    for _ in range(PASSES):
        left = {name: equations.robust(change)[1] for name, equations in equations_of.items()}
        shares = {name: 1.0 / max(value, SMALLEST) for name, value in left.items()}
        change = _solution(equations_of, shares, change)
    for _ in range(HALVINGS):
        if forces.robust(change)[1] <= most:
            return change
        shares |= {name: 0.5 * shares[name] for name in shares if name != "force"}
        change = _solution(equations_of, shares, change)
    return np.zeros_like(change)


def _solution(
    given: Mapping[str, Equations], shares: Mapping[str, float], change: np.ndarray
) -> np.ndarray:
    n = len(change)
    matrix, vector = np.zeros((n, n)), np.zeros(n)
    for name, equations in given.items():
        weights, _ = equations.robust(change)
        weighted = (shares[name] * weights)[:, None] * equations.design
        matrix += equations.design.T @ weighted
        vector += weighted.T @ equations.lacks
    diagonal = np.diag(matrix)
    ridge = np.where(diagonal > 0.0, RIDGE * diagonal, 1.0)
    result: np.ndarray = np.linalg.solve(matrix + np.diag(ridge), vector)
    return result
