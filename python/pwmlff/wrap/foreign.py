"""What a module for one family of files returns."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from ase import Atoms
from torch import nn

from pwmlff.model_file import dtype_of


class Numbers(NamedTuple):
    """Of a structure, by the code of the original; float64."""

    atom_energy: np.ndarray  # [n] eV
    forces: np.ndarray  # [n, 3] -dE/dx, eV/angstrom


@dataclass(frozen=True)
class Source:
    """A sound TorchScript archive."""

    path: str  # for messages
    contents: bytes
    class_name: str  # of its module, as Python has it
    module: torch.jit.ScriptModule  # on the CPU, in evaluation mode

    @property
    def single(self) -> bool:
        """Whether it computes in float32, where it keeps a contract of this project."""
        return dtype_of(self.module) == torch.float32


def members(archive: zipfile.ZipFile) -> dict[str, str]:
    """Names of what is in an archive of torch, without the folder that is named after the file."""
    return {name.partition("/")[2]: name for name in archive.namelist()}


def saved_table(archive: zipfile.ZipFile) -> bytes | None:
    """The table of objects of what torch.save wrote; None for other archives."""
    names = members(archive)
    if "data.pkl" not in names or "constants.pkl" in names:
        return None
    return archive.read(names["data.pkl"])


@dataclass(frozen=True)
class Foreign:
    """A file of another program.

    Attributes:
        family: what it is, for people.
        module: the same model as a module that keeps a contract of this project.
        evaluate: the code of the original, on a cluster in free space; None where there is none.
        single: whether the original computes in float32.
        told: further lines for people, by their names.
    """

    family: str
    module: nn.Module
    evaluate: Callable[[Atoms], Numbers] | None
    single: bool = False
    told: dict[str, str] = field(default_factory=dict)
