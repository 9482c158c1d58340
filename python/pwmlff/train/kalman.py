"""The layer-wise extended Kalman filter of this family of models, RLEKF (arXiv:2212.06989).

The parameters x are the state, and it does not move; one scalar prediction y(x), with the gradient
h = dy/dx and the error e = label - y, is a measurement. P is the covariance of the parameters,
block by block; L is the number of blocks. One update:

    S = lambda R + sum over blocks of h^T P h
    x <- x + P h e / S
    P <- (P - P h h^T P / S) / lambda
    lambda <- nu lambda + 1 - nu

R is the variance of the noise of the measurement, in the square of the unit of y: (eV/angstrom)^2
for forces. P / lambda, with the P before the update, is the covariance that has forgotten, and
h^T P h / lambda + R is the variance of e; S is lambda times that. R = 1 is the plain filter of the
literature, whose S is lambda + h^T P h. For a linear y and one block it is recursive least squares:
x minimizes (x - x0)^T P0^-1 (x - x0) prod(lambda) + sum_k e_k^2 / R_k prod_{j > k}(lambda_j).

What no measurement has seen yet grows in variance by each lambda, in the end to
exp((1 - lambda0) / (1 - nu)) p0, which is 5e6 p0 for the values of the literature: noises must then
be far above the squares of errors. With lambda0 = 1 nothing is forgotten, and R is what it says.

MatPL adds lambda for each block, so its R is L: option `matpl`.

A scalar prediction is made of many numbers y_i with weights w_i > 0 and the signs s_i of their
errors e_i: y = sum_i w_i s_i y_i, so that e = sum_i w_i |e_i|. :func:`group_updates` states them.
"""

from __future__ import annotations

import itertools
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from pwmlff.train import comm, steps
from pwmlff.train.adam import free_mask, require
from pwmlff.train.comm import Communicator, Serial, SharedFailure

if TYPE_CHECKING:
    from pwmlff.data.frames import Frames

#: Updates that are kept as vectors before they are put into P.
PENDING = 16
#: What is left to others of the memory that is available.
RESERVE = 0.05
KINDS = ("energy", "force", "virial")
#: What MatPL takes for `block` and `lambda0`.
MATPL_BLOCK, MATPL_LAMBDA0 = 5120, 0.98


@dataclass(frozen=True)
class KalmanOptions:
    """Constants of the filter.

    Raises:
        ValueError: a value is out of its range.
    """

    block: int = 320  # parameters of the largest block
    p0: float = 1.0  # first variance of each parameter
    lambda0: float = 1.0  # first factor of forgetting
    nu: float = 0.9987  # how slowly that goes to 1
    matpl: bool = False  # noise once per block, as in MatPL

    def __post_init__(self) -> None:
        """Check the values."""
        require(self, "block", lambda n: n >= 1, "1 or more parameters")
        require(self, "p0", lambda p: 0 < p < math.inf, "a positive variance")
        require(self, "lambda0", lambda x: 0 < x <= 1, "more than 0, and at most 1")
        require(self, "nu", lambda x: 0 <= x <= 1, "0 to 1")


def block_sizes(layers: Sequence[int], block: int) -> list[int]:
    """How many parameters the blocks of P have, by the rule of the paper.

    Successive layers (tensors of weights or of biases) are gathered as long as together they have
    at most `block` parameters; a layer with more is a group of its own, which is split into blocks
    of that size and a smaller last one.

    Args:
        layers: number of parameters of each, in the order of the flat vector; zeros are fine.
        block: most parameters of one block.
    """
    groups: list[int] = []
    for size in filter(None, layers):
        if groups and groups[-1] + size <= block:
            groups[-1] += size
        else:
            groups.append(size)
    return [min(block, group - first) for group in groups for first in range(0, group, block)]


def shares(sizes: Sequence[int], nranks: int) -> list[list[int]]:
    """Blocks of each rank, in ascending order; the largest go first, each to the least loaded.

    The load is the sum of size^2, which is what a block costs in memory and time.
    """
    load = [0] * nranks
    mine: list[list[int]] = [[] for _ in range(nranks)]
    for k in sorted(range(len(sizes)), key=lambda k: (-sizes[k], k)):
        rank = min(range(nranks), key=lambda r: (load[r], r))
        load[rank] += sizes[k] ** 2
        mine[rank].append(k)
    return [sorted(blocks) for blocks in mine]


class Kalman:
    """The filter for one flat vector of parameters, its blocks spread over the ranks. Collective.

    An update costs one pass over P: P = c (P0 - U^T U) holds up to PENDING updates as rows of U,
    one each, with c = 1 / prod(lambda), before they are put into P0. Of P0 there is the upper
    triangle alone (kernels/optimizer/covariance.h).

    All ranks get the same bits, whatever their number and threads: the parts of a block are
    computed by the rank that has it in one order, then gathered and added in the order of blocks.

    Args:
        layers: names and shapes of the tensors in the flat vector.
        options: the constants.
        ranks: that take part.
        free: bool [n], the parameters that may change; None: all. Others take no part in P.
        threads: of this rank.

    Raises:
        ImportError: the compiled library is missing.
        SharedFailure: P does not fit into the memory of a node; nothing was allocated.
        ValueError: free has another shape.
    """

    def __init__(
        self,
        layers: Sequence[tuple[str, tuple[int, ...]]],
        options: KalmanOptions | None = None,
        ranks: Communicator | None = None,
        free: np.ndarray | None = None,
        threads: int = 1,
    ) -> None:
        self.options = options or KalmanOptions()
        self._ranks = ranks or Serial()
        sizes = [math.prod(shape) for _, shape in layers]
        self.n = sum(sizes)
        free = free_mask(free, self.n)
        self._free, self._packed = np.flatnonzero(free), np.packbits(free)
        counts = [int(part.sum()) for part in np.split(free, np.cumsum(sizes)[:-1])]
        #: parameters of each block of P
        self.sizes = block_sizes(counts, self.options.block)
        self._shares = shares(self.sizes, self._ranks.size)
        self._mine = self._shares[self._ranks.rank]
        ends = np.cumsum(self.sizes) + len(self.sizes)
        spans = [np.arange(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]
        #: of each rank, where h^T P h of its blocks and then its free parameters are among all
        self._places = [
            np.concatenate([blocks, *(spans[k] for k in blocks)]).astype(int)
            for blocks in self._shares
        ]
        self._require_memory()
        self.updates = 0
        self.forgetting = self.options.lambda0  # lambda of the next update
        self._own = _Blocks([self.sizes[k] for k in self._mine], self.options.p0, threads)

    def memory(self) -> list[int]:
        """Bytes that each rank needs for its blocks, [size]; known before they are allocated."""
        return memory_of(self.sizes, self._ranks.size)

    def _require_memory(self) -> None:
        """Refuse what does not fit into the memory of some node. Collective."""
        needed = self.memory()
        nodes = self._ranks.allgather((socket.gethostname(), available_memory()))
        for host in dict.fromkeys(host for host, _ in nodes):
            here = [rank for rank, (name, _) in enumerate(nodes) if name == host]
            total = sum(needed[rank] for rank in here)
            left = min(nodes[rank][1] for rank in here)
            if total > (1 - RESERVE) * left:
                raise SharedFailure(
                    f"the Kalman filter with block = {self.options.block} needs "
                    f"{total / 2**30:.1f} GiB on host {host} ({len(here)} rank"
                    f"{'s' * (len(here) > 1)}), which has {left / 2**30:.1f} GiB left: take "
                    "smaller blocks, more nodes, or Adam"
                )

    def update(
        self, parameters: np.ndarray, h: np.ndarray, error: float, noise: float = 1.0
    ) -> float:
        """Change the parameters in place by one measurement. Collective.

        Args:
            parameters: float64 [n], the same on all ranks.
            h: [n] gradient of the prediction by the parameters, the same on all ranks.
            error: label minus prediction; of sign-weighted ones the mean absolute deviation.
            noise: R, variance of the measurement, in the square of its unit.

        Returns:
            h^T P h, the variance of the prediction that the filter expected, in that unit.

        Raises:
            ValueError: what is given is not finite or has another shape; nothing has changed
                then.
        """
        if h.shape != (self.n,) or parameters.shape != (self.n,):
            raise ValueError(
                f"found parameters {list(parameters.shape)} and a gradient {list(h.shape)}, "
                f"expected [{self.n}]"
            )
        largest = float(np.abs(h).max(initial=0.0))
        if not (all(map(math.isfinite, (largest, error, noise))) and noise >= 0):
            raise ValueError(
                f"found the error {error}, the noise {noise} and a gradient up to {largest} in "
                f"update {self.updates + 1}, expected finite numbers and no negative noise: raise "
                "the noise if it diverges, or look for bad labels with pwmlff data check"
            )
        h = h[self._free].astype(np.float64)
        nblocks, here = len(self.sizes), self._places[self._ranks.rank]
        every = np.empty(nblocks + len(h))
        products, every[here] = self._own.product(h[here[len(self._mine) :] - nblocks])
        comm.share(self._ranks, self._places, every)
        variances, gain = np.split(every, [nblocks])
        # What has been measured often has a variance of nothing but rounding, of either sign.
        variance = float(np.add.reduce(np.maximum(variances, 0.0)))
        innovation = self.forgetting * noise * (nblocks if self.options.matpl else 1) + variance
        if not (math.isfinite(innovation) and innovation > 0):
            raise ValueError(
                f"found h^T P h = {variance} and the noise {noise} in update {self.updates + 1}, "
                "expected finite numbers, one of them positive: raise the noise, or lower p0"
            )
        parameters[self._free] += gain * (error / innovation)
        self._own.subtract(products, innovation, self.forgetting)
        self.updates += 1
        self.forgetting = self.options.nu * self.forgetting + 1 - self.options.nu
        return variance

    def covariance(self, k: int) -> np.ndarray | None:
        """Block k of P [size, size] where this rank has it; None elsewhere."""
        if k not in self._mine:
            return None
        p, u = self._own.block(self._mine.index(k))
        full = np.zeros((self.sizes[k], self.sizes[k]))
        full[np.triu_indices(self.sizes[k])] = p
        full += np.triu(full, 1).T
        covariance: np.ndarray = self._own.c * (full - u.T @ u)
        return covariance

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs of this rank: its own blocks, not copied, and a few numbers.

        p.K are the rows of the upper triangle of block K, u.K [pending, size] what P lacks yet.
        """
        state = {
            "updates": np.array(self.updates),
            "pending": np.array(self._own.pending),
            "forgetting": np.array(self.forgetting),
            "c": np.array(self._own.c),
            "sizes": np.array(self.sizes),
            "free": self._packed,
        }
        for place, k in enumerate(self._mine):
            state[f"p.{k}"], state[f"u.{k}"] = self._own.block(place)
        return state

    def wants(self, name: str) -> bool:
        """Whether this rank needs an array of a state: its own blocks, and the few numbers."""
        kind, _, block = name.partition(".")
        return kind not in {"p", "u"} or int(block) in self._mine

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from the states of all ranks, joined, to the last bit; on any number of ranks.

        Args:
            state: at least the arrays that :meth:`wants` asks for.

        Raises:
            ValueError: it is of other blocks, or lacks some of this rank's.
        """
        sizes = [int(size) for size in state["sizes"]] if "sizes" in state else []
        missing = [k for k in self._mine if f"p.{k}" not in state or f"u.{k}" not in state]
        same = "free" in state and np.array_equal(state["free"], self._packed)
        if sizes != self.sizes or missing or not same:
            raise ValueError(
                f"found a state of the Kalman filter of {len(sizes)} blocks with {sum(sizes)} "
                f"parameters and without blocks {missing}, expected {len(self.sizes)} blocks with "
                f"{sum(self.sizes)}: the checkpoint is of another model, `block` or choice of "
                "frozen parameters, or incomplete"
            )
        self.updates, self._own.pending = int(state["updates"]), int(state["pending"])
        self.forgetting, self._own.c = float(state["forgetting"]), float(state["c"])
        for place, k in enumerate(self._mine):
            p, u = self._own.block(place)
            p[:], u[:] = state[f"p.{k}"], state[f"u.{k}"]


class _Blocks:
    """The blocks of one rank, one after another; the arrays of kernels/optimizer/covariance.h."""

    def __init__(self, sizes: Sequence[int], p0: float, threads: int) -> None:
        steps.library()  # is there
        self._sizes = np.array(sizes, dtype=np.int64)
        self._first = np.r_[0, np.cumsum(self._sizes)].astype(int)
        self._first_p = np.r_[0, np.cumsum(self._sizes * (self._sizes + 1) // 2)].astype(int)
        self.c, self.pending = 1.0, 0
        self._u = np.zeros((PENDING, self._first[-1]))
        self._p = np.zeros(self._first_p[-1])
        for n, begin in zip(self._sizes, self._first_p[:-1], strict=True):
            rows = np.arange(n)
            self._p[begin + rows * n - rows * (rows - 1) // 2] = p0
        ends = np.searchsorted(
            self._first_p, self._first_p[-1] * np.arange(1, threads + 1) / threads
        )
        #: blocks of each thread, in equal shares of P
        self._parts = [(a, b) for a, b in itertools.pairwise([0, *ends]) if b > a]
        several = len(self._parts) > 1
        self._map = ThreadPoolExecutor(len(self._parts)).map if several else map

    def block(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Upper triangle of P0 [n (n + 1) / 2] and U [pending, n] of one block, as they lie."""
        columns = slice(self._first[k], self._first[k + 1])
        return self._p[self._first_p[k] : self._first_p[k + 1]], self._u[: self.pending, columns]

    def product(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P h [n of this rank]; h^T P h [blocks of this rank] and then the same P h."""
        nblocks = len(self._sizes)
        results = np.empty(nblocks + len(h))
        variances, products = np.split(results, [nblocks])
        self._call(
            "product", lambda a: (h[self._first[a] :], products[self._first[a] :], variances[a:])
        )
        return products, results

    def subtract(self, products: np.ndarray, innovation: float, forgetting: float) -> None:
        """P <- (P - P h h^T P / S) / lambda, with P h, S and lambda."""
        self._u[self.pending] = products * (1 / math.sqrt(self.c * innovation))
        self.c /= forgetting
        self.pending += 1
        if self.pending == PENDING:
            self._call("flush", lambda _: ())
            self.c, self.pending = 1.0, 0

    def _call(self, function: str, more: Callable[[int], Sequence[np.ndarray]]) -> None:
        """Call a function of covariance.h for blocks a .. b-1 in each thread, with `more` of a."""

        def work(part: tuple[int, int]) -> None:
            a, b = part
            blocks = b - a, self._sizes[a:], self._p[self._first_p[a] :]
            updates = self.pending, self._u[:, self._first[a] :], self._u.shape[1], self.c
            steps.call(f"covariance_{function}", *blocks, *updates, *more(a))

        list(self._map(work, self._parts))


def memory_of(sizes: Sequence[int], nranks: int) -> list[int]:
    """Bytes that each rank needs for P in blocks of these sizes, with the pending updates."""
    return [
        sum(4 * sizes[k] * (sizes[k] + 1 + 2 * PENDING) for k in blocks)
        for blocks in shares(sizes, nranks)
    ]


def available_memory() -> int:
    """Bytes that this process can still allocate without swapping: of the node, or its group."""
    left = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            group /= line[3:].strip("/")
    for folder in (group, *group.parents):  # limits above count as well
        try:
            limit = (folder / "memory.max").read_text().strip()
            used = int((folder / "memory.current").read_text())
        except (OSError, ValueError):
            continue
        if limit != "max":
            left = min(left, int(limit) - used)
    return left


@dataclass(frozen=True)
class GroupOptions:
    """How the frames of a batch become scalar measurements.

    Raises:
        ValueError: a value is out of its range.
    """

    kinds: tuple[str, ...] = ("energy", "force")  # in their order; "virial" too
    groups: int = 4  # of atoms, one measurement of forces each
    group_size: int | None = None  # atoms of a group in each frame; None: all are shared out
    noises: Mapping[str, float] = field(default_factory=dict)  # R of a kind; 1 where it says none
    matpl: bool = False  # MatPL's scaling; its group_size is 6

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("kinds", "noises"):
            require(self, name, lambda kinds: {*kinds} <= {*KINDS}, f"some of {', '.join(KINDS)}")
        for name in ("groups", "group_size"):
            require(self, name, lambda n: n is None or n >= 1, "1 or more")
        require(
            self,
            "noises",
            lambda noises: all(0 <= noise < math.inf for noise in noises.values()),
            "no negative number",
        )


@dataclass(frozen=True)
class Measurement:
    """A scalar prediction y = a . E + v . F + w : W, whose gradient by the parameters is wanted."""

    kind: str  # of KINDS
    a: np.ndarray  # [nframes] of the energies
    v: np.ndarray  # [natoms, 3] of the forces
    w: np.ndarray  # [nframes, 3, 3] of the virials
    error: float  # label of y minus y, never negative
    noise: float  # R


def group_updates(
    frames: Frames,
    predict: Callable[[str], np.ndarray],
    gradient: Callable[[Measurement], np.ndarray],
    update: Callable[[np.ndarray, float, float], object],
    rng: np.random.Generator,
    options: GroupOptions | None = None,
) -> list[Measurement]:
    """Measure a batch: energies once, forces by groups of atoms, virials once.

    The numbers y_i of a measurement and their weights w_i, with B frames of n atoms in the batch:

    - energy: E / n of each frame in eV/atom, 1 / B;
    - force: the components of the m atoms of a group, from all frames, in eV/angstrom, 1 / (3 m);
    - virial: the nine components of W / n of each frame in eV/atom, 1 / (9 B).

    With `matpl` the error is the mean over frames of those of a frame, times sqrt(B), but the
    gradient is the sum over frames; forces are divided by n too, as if they were energies.

    Labels that are missing (NaN) are left out, and measurements without labels too. Each one is
    predicted after the update before it.

    Args:
        frames: the batch, with labels.
        predict: present energies [nframes], forces [natoms, 3] or virials [nframes, 3, 3] of the
            batch, for "energy", "force" or "virial".
        gradient: [n] of a measurement by the parameters.
        update: called with that, the error and the noise: :meth:`Kalman.update`.
        rng: makes the groups; in one state on all ranks.
        options: how.

    Returns:
        The measurements made.
    """
    options, made = options or GroupOptions(), []
    for kind in options.kinds:
        groups = [np.arange(len(frames))]  # of the rows that are measured together
        if kind == "force":
            groups = atom_groups(frames.first, options.groups, options.group_size, rng)
        for rows in groups:
            measurement = _measurement(frames, kind, rows, predict(kind), options)
            if measurement is not None:
                update(gradient(measurement), measurement.error, measurement.noise)
                made.append(measurement)
    return made


def atom_groups(
    first: np.ndarray, groups: int, group_size: int | None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Random disjoint groups of atoms, each with its share of every frame.

    Args:
        first: [nframes + 1] where the atoms of a frame begin.
        groups: how many; those that would have no atom are left out.
        group_size: atoms of a frame in one group; None: all atoms of the frame are shared out.
        rng: of the permutations.

    Returns:
        Indices of the atoms of each group, ascending.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(groups)]
    for begin, end in itertools.pairwise(first):
        atoms = begin + rng.permutation(end - begin)
        chosen = atoms if group_size is None else atoms[: groups * group_size]
        for part, share in zip(parts, np.array_split(chosen, groups), strict=True):
            part.append(share)
    joined = [np.sort(np.concatenate(part)) for part in parts if part]
    return [atoms for atoms in joined if len(atoms)]


def _measurement(
    frames: Frames, kind: str, rows: np.ndarray, predicted: np.ndarray, options: GroupOptions
) -> Measurement | None:
    """The measurement of some frames, or atoms, by what the model predicts; None without labels."""
    labels = {"energy": frames.energies, "force": frames.forces, "virial": frames.virials}
    rows = rows[~np.isnan(labels[kind][rows].reshape(len(rows), -1)).any(axis=1)]
    if not len(rows):
        return None
    frame = np.searchsorted(frames.first, rows, side="right") - 1 if kind == "force" else rows
    per_atom = kind != "force" or options.matpl
    divisor = frames.natoms[frame] if per_atom else np.ones(len(rows))
    errors = (labels[kind][rows] - predicted[rows]).reshape(len(rows), -1)
    # w_i of each row: means over the numbers of all frames, or over frames of those of a frame.
    weights, nframes = 1 / (errors.size * divisor), 1
    if options.matpl:
        counts = np.bincount(frame)
        weights = 1 / (counts[frame] * errors.shape[1] * divisor)
        nframes = int(np.count_nonzero(counts))
    vectors = {name: np.zeros(label.shape) for name, label in labels.items()}
    signed = np.where(errors < 0, -1.0, 1.0) * weights[:, None]
    vectors[kind][rows] = signed.reshape(len(rows), *labels[kind].shape[1:])
    return Measurement(
        kind,
        vectors["energy"],
        vectors["force"],
        vectors["virial"],
        error=float((np.abs(errors) * weights[:, None]).ravel().sum())
        * math.sqrt(nframes)
        / nframes,
        noise=options.noises.get(kind, 1.0),
    )
