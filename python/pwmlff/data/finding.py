"""What is odd about labels, as the checks of training data say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line about a file or a frame."""

    text: str
    kind: str  # forces, energy, stress, sources or virial offset
    warning: bool = True  # otherwise it is good to know
    frame: int | None = None  # in the set
    virials: tuple[int, ...] = ()  # frames whose virials are wrong
    source: str = ""  # a file that is in other units
