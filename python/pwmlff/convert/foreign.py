"""What a module for one family of files is given, and what it returns."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from ase import Atoms
from torch import nn

from pwmlff.evaluation.ace_file import Ace
from pwmlff.evaluation.nep_file import Nep
from pwmlff.report import Failure, last_line

#: What code and contents of a file raise where they are not as their program writes them.
UNEXPECTED = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
    torch.jit.Error,
)  # fmt: skip


@contextmanager
def taken_for(path: str, family: str) -> Iterator[None]:
    """Let what is not as that family writes it be a Failure, in one line that names the file."""
    try:
        yield
    except UNEXPECTED as error:
        missing = "it has no " if isinstance(error, KeyError) else ""
        raise Failure(
            f"'{path}' was taken for a model of {family}, but is not as that program writes it: "
            f"{missing}{last_line(error)}"
        ) from error


def in_rounds(whole: nn.Module, parts: Callable[[], nn.Module]) -> nn.Module:
    """A module of kind EDGE with its forward in rounds, or whole where that cannot be made.

    Args:
        whole: the module as it is.
        parts: makes the other; it raises one of UNEXPECTED where the parts are not as those of the
            releases that are known.
    """
    try:
        module = parts()
        torch.jit.script(module)
    except UNEXPECTED:
        return whole
    return module


def widths(module: Any, rounds: int, dtype: torch.dtype) -> list[int]:
    """How many features each of the rounds of a module takes, from two atoms that see each other.

    Args:
        module: with the methods start and round of the model contract.
        rounds: how many times round is called.
        dtype: of the vectors that it takes.
    """
    types, edges = torch.tensor([0, 0]), torch.tensor([[0, 1], [1, 0]])
    vectors = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], dtype=dtype)
    features, result = module.start(vectors, edges, types, 2), []
    for k in range(rounds):
        result.append(features.size(1))
        features = module.round(k, features, vectors, edges, types, 2)
    return result


class Numbers(NamedTuple):
    """Of a structure, by the code of the original; float64."""

    atom_energy: np.ndarray  # [n] eV
    forces: np.ndarray  # [n, 3] -dE/dx, eV/angstrom

    @classmethod
    def from_tensors(cls, energies: torch.Tensor, forces: torch.Tensor) -> Numbers:
        """From tensors of any type, of n and of [n, 3] numbers."""
        flat, vectors = (values.detach().double() for values in (energies, forces))
        return cls(flat.flatten().numpy(), vectors.numpy())


class GradedNumbers(NamedTuple):
    """Likewise, with the extrapolation grade."""

    atom_energy: np.ndarray  # [n] eV
    forces: np.ndarray  # [n, 3] -dE/dx, eV/angstrom
    gamma: np.ndarray  # [n]


@dataclass(frozen=True)
class Source:
    """A sound TorchScript archive."""

    path: str  # for messages
    contents: bytes
    class_name: str  # of its module, as Python has it
    module: torch.jit.ScriptModule  # on the CPU, in evaluation mode


@dataclass(frozen=True)
class Choices:
    """What a file leaves to its user; what is not said is empty or None."""

    head: str = ""  # of a MACE model that has several, or the modality of such a model of SevenNet
    charge: int | None = None  # of the whole system, e, for a MACE model that embeds it
    spin: int | None = None  # likewise, as the data of its training count it
    active_set: str = ""  # a file, of an ACE (ace.read() refuses it with others)

    @property
    def embedded(self) -> dict[str, int]:
        """Charge and spin, as far as they are said, by their options."""
        said = {"charge": self.charge, "spin": self.spin}
        return {option: value for option, value in said.items() if value is not None}


@dataclass(frozen=True)
class Saved:
    """What is in a sound zip file that is no TorchScript archive."""

    names: frozenset[str]  # of its members, without the folder that is named after the file
    table: bytes  # of objects, of what torch.save wrote; empty in other files


def saved(contents: bytes) -> Saved:
    """Look into a zip file in which :func:`pwmlff.evaluation.archive.check` has found no damage.

    Raises:
        ValueError: Python cannot read it; the text goes on after the name of the file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(contents)) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            table = archive.read(names["data.pkl"]) if "data.pkl" in names else b""
    except (*UNEXPECTED, zipfile.BadZipFile) as error:
        raise ValueError(f"is damaged: {last_line(error)}; copy or export it again") from error
    return Saved(frozenset(names), table)


@dataclass(frozen=True)
class Foreign:
    """A file of another program."""

    family: str  # what it is, for people
    module: nn.Module | Nep | Ace  # the same model, in a contract of this project, or as a text
    #: The code of the original, on a cluster in free space; None where there is none.
    evaluate: Callable[[Atoms], Numbers | GradedNumbers] | None
    single: bool = False  # whether the original computes in float32
    notes: dict[str, str] = field(default_factory=dict)  # further lines for people, by their names
    contents: bytes | None = None  # of a file that is written as it is
    extra: dict[str, bytes] = field(default_factory=dict)  # extra files that the result gets

    @property
    def basis(self) -> str:
        """What the file that is written is compared with."""
        return "the code of the original" if self.evaluate else "the reference of this project"
