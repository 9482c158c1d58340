"""Muon: a step moves all directions of a matrix of weights alike; Adam moves what is no matrix.

With gradient g, rate r and the moment m of Adam (:mod:`pwmlff.train.adam`), a matrix X whose two
sides are at least 8 changes by

    X <- X (1 - r weight_decay) - 0.2 r sqrt(max(rows, columns)) orthogonal(beta1 m + (1 - beta1) g)

where orthogonal(U S V^T) is nearly U V^T: kernels/optimizer/muon.h. It is of K. Jordan et al. 2024
(https://kellerjordan.github.io/posts/muon). doi:10.48550/arXiv.2502.16982 has the factor by which
rates are those of Adam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pwmlff.train import comm, steps
from pwmlff.train.adam import Adam, AdamOptions

LEAST = 8  # of both sides of a matrix
#: Decay of weights times the steps of an epoch. What counts is in how many epochs a parameter that
#: nothing holds decays (Wang and Aitchison 2024, doi:10.48550/arXiv.2405.13698).
DECAY = 0.15
PEAK = 8e-3  # rate of learning after the warm-up
MOMENTUM = 0.95  # beta1; less of it lets noise drive small sets away from where forces were best


def _shared_out(matrices: Sequence[tuple[int, int, int]], n: int) -> list[np.ndarray]:
    """Matrices of each of n that share them, as int64 [k, 3]: first parameter, rows, columns."""

    def cost(matrix: tuple[int, int, int]) -> int:
        return matrix[1] * matrix[2] * min(matrix[1:])

    shares: list[list[tuple[int, int, int]]] = [[] for _ in range(n)]
    for matrix in sorted(matrices, key=cost, reverse=True):
        min(shares, key=lambda share: sum(map(cost, share))).append(matrix)
    return [np.array(share, dtype=np.int64).reshape(-1, 3) for share in shares]


class Muon(Adam):
    """Muon for arrays of parameters that lie one after another.

    Ranks and threads share the matrices; results are the same to the last bit on any number.

    Args:
        shapes: of all arrays.
        options: the constants.
        free, undecayed: as for Adam, of all parameters.
        ranks: of the job.
        threads: of this rank.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        options: AdamOptions | None = None,
        free: np.ndarray | None = None,
        undecayed: np.ndarray | None = None,
        ranks: comm.Communicator | None = None,
        threads: int = 1,
    ) -> None:
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
        super().__init__(ends[-1], options, free, undecayed)
        matrices = [
            (end - math.prod(shape), *shape)
            for end, shape in zip(ends, shapes, strict=True)
            if len(shape) == 2 and min(shape) >= LEAST
        ]
        self._ranks = ranks or comm.Serial()
        rank_shares = _shared_out(matrices, self._ranks.size)
        parameters = np.arange(self.n)
        self._written = [
            np.concatenate([parameters[:0], *(parameters[k : k + r * c] for k, r, c in share)])
            for share in rank_shares
        ]
        self._shares = _shared_out(rank_shares[self._ranks.rank].tolist(), threads)
        self._map = ThreadPoolExecutor(threads).map if threads > 1 else map

    def _change(
        self,
        parameters: np.ndarray,
        gradient: np.ndarray,
        constants: steps.AdamConstants,
        rate: float,
    ) -> None:
        old = parameters.copy()
        super()._change(parameters, gradient, constants, rate)
        own = steps.MuonConstants(self.options.beta1, constants.shrink, constants.factor, rate)
        moments = self._arrays["m"], self._arrays["v"]

        def change(share: np.ndarray) -> None:
            steps.call("muon_step", len(share), share, old, gradient, *moments, parameters, own)

        list(self._map(change, self._shares))
        comm.share(self._ranks, self._written, parameters)
