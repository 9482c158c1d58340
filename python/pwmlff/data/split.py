"""Which frames validate where no file of them is given.

Frames that follow each other in a file and hardly differ are a trajectory: a frame between two that
were learned from would be no test. So a trajectory is cut into blocks of frames, and a block is
learned from or validates as a whole. What is the same structure is on one side, too. The shares of
files and compositions are as equal as blocks let them be, and no composition is only validated.
Blocks of one of them are taken at equal distances in the order of their forces (systematic
sampling, Cochran 1977, Sampling Techniques, chapter 8). So a few blocks stand for all temperatures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from ase.geometry import complete_cell

from pwmlff.data import consistency
from pwmlff.data.frames import Frames

STILL = 0.5  # angstrom, root of the mean square of displacements, from a frame to the next
SHORTEST, LONGEST = 6, 20  # frames of a block
FEWEST = 3  # blocks of a trajectory that are to validate, if they are not shorter than that


def validating(frames: Frames, same: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which frames validate, bool [nframes]: some, and never all, where there are two or more.

    Args:
        frames: all there are.
        same: int64 [nframes] the first frame that is the same structure.
        fraction: of the frames, about.
        seed: of the choice.
    """
    result = np.zeros(len(frames), dtype=bool)
    if fraction <= 0.0 or len(frames) < 2:
        return result
    composition = np.empty(len(frames), dtype=np.int64)
    for number, chosen in enumerate(consistency.compositions(frames).values()):
        composition[chosen] = number
    rng = np.random.default_rng((seed, 2))
    # Isolated atoms set the energies of types, and no model has to be tried on them.
    every = (block[~frames.isolated[block]] for block in _blocks(frames, fraction))
    blocks = [block for block in every if len(block)]
    blocks = list(_in_turns(blocks, frames, composition, rng))
    left = np.bincount(composition)
    due = 0.0
    for block in blocks:
        due += fraction * len(block)
        whole = _with_duplicates(block, same)
        new = whole[~result[whole]]
        if due >= 0.5 * len(block) and _leaves(left, composition[new]):
            result[new] = True
            np.subtract.at(left, composition[new], 1)
            due -= len(new)
    # Few frames, or each of a composition of its own.
    for block in sorted(blocks, key=len):
        whole = _with_duplicates(block, same)
        if not result.any() and len(whole) < len(frames):
            result[whole] = True
    return result


def _with_duplicates(block: np.ndarray, same: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.isin(same, same[block]))


def _leaves(left: np.ndarray, taken: np.ndarray) -> bool:
    """Whether some frames of each composition are left to learn from."""
    return bool((np.bincount(taken, minlength=len(left)) < left)[taken].all())


def _in_turns(
    blocks: Sequence[np.ndarray], frames: Frames, composition: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Blocks of one file and composition one after another, in a circle by their forces."""
    squares = np.nan_to_num(np.square(frames.forces).sum(axis=1))

    def force(block: np.ndarray) -> float:
        return float(np.mean([squares[frames.rows(k)].mean() for k in block]))

    kinds: dict[tuple[int, int], list[np.ndarray]] = {}
    for block in blocks:
        kinds.setdefault((int(frames.file[block[0]]), int(composition[block[0]])), []).append(block)
    names = list(kinds)
    for number in rng.permutation(len(names)):
        members = sorted(kinds[names[number]], key=force)
        start = int(rng.integers(len(members)))
        yield from [*members[start:], *members[:start]]


def _blocks(frames: Frames, fraction: float) -> list[np.ndarray]:
    """Trajectories in blocks, other frames one by one."""
    follows = [False, *(_follows(frames, k) for k in range(1, len(frames)))]
    begins = np.flatnonzero(~np.array(follows))
    result = []
    for begin, end in zip(begins, [*begins[1:], len(frames)], strict=True):
        due = fraction * (end - begin)
        parts = max(np.ceil(due / LONGEST), min(FEWEST, due // SHORTEST), 1)
        length = int(np.ceil(due / parts))
        count = max(1, round((end - begin) / length))
        result += np.array_split(np.arange(begin, end), count)
    return result


def _follows(frames: Frames, k: int) -> bool:
    """Whether a frame is the next one of the frame before it in a trajectory."""
    begin, here, end = frames.first[k - 1 : k + 2]
    if (
        frames.file[k] != frames.file[k - 1]
        or frames.index[k] <= frames.index[k - 1]
        or not np.array_equal(frames.numbers[begin:here], frames.numbers[here:end])
        or not np.array_equal(frames.pbc[k], frames.pbc[k - 1])
    ):
        return False
    old, new = frames.positions[begin:here], frames.positions[here:end]
    move = new - old
    pbc = frames.pbc[k]
    if pbc.any():
        cells = [complete_cell(cell) for cell in frames.cells[k - 1 : k + 1]]
        fractions = [x @ np.linalg.inv(cell) for x, cell in zip((old, new), cells, strict=True)]
        move = fractions[1] - fractions[0]
        move = (move - np.round(move) * pbc) @ cells[1]
    return bool(np.sqrt((move**2).sum(axis=1).mean()) < STILL)
