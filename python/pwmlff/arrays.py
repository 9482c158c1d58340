"""Arrays of float64 and lines of text by name, in the form of kernels/core/arrays.h.

Networks of the fused engines, and what a model file records, have this form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LAST = b"\nnumbers\n"  # behind the table


class Arrays(NamedTuple):
    """What such contents hold.

    Attributes:
        family: of which family of models they are, or "record".
        numbers: arrays by name; a number alone has no dimension.
        texts: one line each.
    """

    family: str
    numbers: dict[str, np.ndarray]
    texts: dict[str, str]


def written(family: str, numbers: Mapping[str, ArrayLike]) -> bytes:
    """Such contents, without texts.

    Args:
        family: of which family of models they are.
        numbers: by name.
    """
    arrays = {name: np.asarray(values, "<f8") for name, values in numbers.items()}
    table = [f"pwmlff-{family} 1"]
    table += [" ".join(["array", name, *map(str, a.shape)]) for name, a in arrays.items()]
    return b"".join(["\n".join(table).encode(), LAST, *(a.tobytes() for a in arrays.values())])


def read(contents: bytes) -> Arrays:
    """Take such contents apart.

    Raises:
        ValueError: they are cut off, or something else.
    """
    table, _, rest = contents.partition(LAST)
    head, *lines = table.decode(errors="surrogateescape").split("\n")
    result = Arrays(head.removeprefix("pwmlff-").rpartition(" ")[0], {}, {})
    start = 0
    for line in lines:
        word, name, values = [*line.split(" ", 2), ""][:3]
        if word == "text":
            result.texts[name] = values
            continue
        shape = tuple(int(n) for n in values.split())
        size = math.prod(shape)
        result.numbers[name] = np.frombuffer(rest, "<f8", size, start).reshape(shape).copy()
        start += 8 * size
    return result
