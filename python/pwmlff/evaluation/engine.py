"""What evaluates a model file outside LAMMPS, and the choice between them.

- native: what pair_style pwmlff runs (:mod:`pwmlff.native`): the fused engine, on the CPU or on a
  GPU, where it is verified to give the same as the file's own code; else that code. Only that code
  needs torch, and where a file has no record of what it gives (models/record.h), the comparison
- reference: the plain float64 reference (:mod:`pwmlff.evaluation.reference`)
"""

from __future__ import annotations

import math
import os
import re
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from ase import Atoms

from pwmlff import devices, native
from pwmlff.evaluation import model_file
from pwmlff.evaluation.ace_file import Ace
from pwmlff.evaluation.nep_file import Nep
from pwmlff.evaluation.structures import (
    Result,
    cells_away,
    neighbor_list,
    require_elements,
    require_finite,
    require_periodic,
    require_usable,
    slabs,
    types_of,
)
from pwmlff.report import Failure, last_line

if TYPE_CHECKING:
    import torch

#: Where the components of a tensor stand among xx yy zz xy xz yz yx zx zy.
TENSOR = np.array([[0, 3, 4], [6, 1, 5], [7, 8, 2]])
ENGINES = ("auto", "fused", "torchscript", "reference")


@dataclass(frozen=True)
class Evaluation(Result):
    """What an engine gives: a result with all numbers finite, and perhaps virials of atoms."""

    #: [n, 6] xx yy zz xy xz yz, half to each end of a pair; None where not wanted or not known
    atom_virial: np.ndarray | None = None
    #: [n] extrapolation grade (:mod:`pwmlff.train.extrapolation`); None where not wanted
    gamma: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an energy, a force or a virial that is not finite."""
        require_finite(self.atom_energy, self.forces)
        if not (np.isfinite(self.energy) and np.isfinite(self.virial).all()):
            raise ValueError(
                "the model gives finite energies and forces of atoms, but a non-finite energy of "
                "the whole or virial; its file is not sound"
            )


class Engine(Protocol):
    """What can evaluate structures."""

    name: str
    description: str  # the same with precision and code
    has_atom_virial: bool
    has_grade: bool  # whether the file tells how far atoms are from what it was trained on
    has_charges: bool  # whether atoms have charges, so that structures have to be periodic

    def __call__(
        self, atoms: Atoms, atom_virial: bool = False, grade: bool = False, born: bool = False
    ) -> Evaluation:
        """Evaluate a structure.

        Args:
            atoms: the structure; without atoms there is no energy, as in LAMMPS.
            atom_virial: whether virials of atoms are wanted, of an engine that computes them.
            grade: whether gamma is wanted, of an engine that has_grade.
            born: whether Born charges are wanted, of an engine that has_charges.

        Raises:
            ValueError: the structure is outside what the model takes, or it or the result is not
                finite.
        """


@dataclass(frozen=True)
class AtomsAndGhosts:
    """Atoms and those of their periodic images that are neighbors, as NativeModel wants them.

    All stand inside the cell or near it, wherever the structure has its atoms.
    """

    x: np.ndarray  # [nrows, 3]
    species: np.ndarray  # int32 [nrows] index into the model's elements, or -1
    first: np.ndarray  # int32 [n*nspecies + 1]
    candidate: np.ndarray  # int32
    atom: np.ndarray  # [nrows] the atom that a row is, or is an image of; the first n are the atoms
    image: np.ndarray  # [nrows, 3] from where the structure has that atom, in cell vectors
    natoms: int

    @classmethod
    def find(cls, atoms: Atoms, elements: Sequence[int], reach: float) -> AtomsAndGhosts:
        """Rows of all pairs nearer than reach; any cell, boxes smaller than reach too."""
        species = types_of(atoms.numbers, elements)
        cells = cells_away(atoms)
        positions = atoms.positions - cells @ np.asarray(atoms.cell)
        wrapped = Atoms(atoms.numbers, positions, cell=atoms.cell, pbc=atoms.pbc)
        natoms, nspecies = len(atoms), len(elements)
        counts = np.zeros((natoms, nspecies), dtype=np.int64)
        found: list[tuple[np.ndarray, np.ndarray]] = []  # centers, rows of their neighbors
        ghosts: list[np.ndarray] = []
        nghosts = 0
        for slab in slabs(wrapped, reach):
            own = species[slab.members]
            i, j, image = neighbor_list("ijS", slab.atoms, reach, own + 1)
            keep = (own[j] >= 0) & slab.is_center[i]
            i, j, image = i[keep], j[keep], image[keep]
            image += slab.steps[j]
            counts[slab.members] += np.bincount(
                i * nspecies + own[j], minlength=len(slab.members) * nspecies
            ).reshape(-1, nspecies)
            row, is_image = slab.members[j].astype(np.int32), image.any(axis=1)
            fresh, which = _distinct(np.c_[row[is_image], image[is_image]].reshape(-1, 4))
            row[is_image] = natoms + nghosts + which
            found.append((slab.members[slab.is_center], row))
            ghosts.append(fresh)
            nghosts += len(fresh)
        distinct, which = _distinct(np.concatenate(ghosts))
        first = np.r_[0, np.cumsum(counts)]
        candidate = np.empty(first[-1], dtype=np.int32)
        for centers, row in found:
            is_image = row >= natoms
            row[is_image] = natoms + which[row[is_image] - natoms]
            begin, size = first[centers * nspecies], counts[centers].sum(axis=1)
            offset = np.cumsum(size) - size  # of a center, in row
            candidate[np.repeat(begin - offset, size) + np.arange(len(row))] = row
        atom = np.r_[np.arange(natoms), distinct[:, 0]].astype(int)
        image = np.r_[np.zeros((natoms, 3)), distinct[:, 1:]] - cells[atom]
        return cls(
            atoms.positions[atom] + image @ np.asarray(atoms.cell),
            species[atom].astype(np.int32),
            first.astype(np.int32),
            candidate,
            atom,
            image,
            natoms,
        )

    def moved(self, atoms: Atoms) -> AtomsAndGhosts:
        """The same rows where the atoms are now, in the same cell."""
        x = atoms.positions[self.atom] + self.image @ np.asarray(atoms.cell)
        return replace(self, x=x)

    def fold(self, values: np.ndarray) -> np.ndarray:
        """Sum over the images of each atom, [nrows, k] -> [n, k]."""
        folded = np.zeros((self.natoms, values.shape[1]))
        np.add.at(folded, self.atom, values)
        return folded


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each of the rows of integers [n, k] once, in their order, and where each row is among them.

    As np.unique(rows, axis=0, return_inverse=True), which takes three times as long.
    """
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    fresh = np.ones(len(rows), dtype=bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    which = np.empty(len(rows), dtype=np.int64)
    which[order] = np.cumsum(fresh) - 1
    return ordered[fresh], which


class OneAtATime:
    """A lock for a `with`. In a forked child it is open: who held it is in the parent alone."""

    def __init__(self) -> None:
        self.forks = 0  # since this was made
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        """Wait for other threads."""
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        """Let the next thread in."""
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is another lock."""
        return OneAtATime, ()

    def renew(self) -> None:
        """Open it in a child."""
        self.forks += 1
        self._lock = threading.RLock()


_locks: weakref.WeakSet[OneAtATime] = weakref.WeakSet()


def _renew_locks() -> None:
    for lock in _locks:
        lock.renew()


os.register_at_fork(after_in_child=_renew_locks)


class OpenModel:
    """A model file that was opened, for the engines that share it: threads take turns.

    Args:
        path: a model file.
        engine, precision, device: as :func:`choose` takes them; not the reference.
        present: [species of the file] whether it takes part.
        stamp: size and time of the file where it was opened before.

    Raises:
        Failure: what is asked for cannot run the file, or it is another one by now.
    """

    def __init__(
        self,
        path: str,
        engine: str,
        precision: str,
        present: list[int],
        device: str,
        stamp: tuple[int, int] | None = None,
    ) -> None:
        self._others: dict[tuple[int, ...], OpenModel] = {}
        self.device, (gpu, demanded) = device, usable_gpu(device)
        self.on_gpu = gpu >= 0
        asked = path, model_file.read_any(path), engine, precision, present, gpu, demanded
        state = Path(path).stat()
        own = state.st_size, state.st_mtime_ns
        if stamp not in {None, own}:
            raise Failure(f"'{path}' was changed after it was opened; open it once more")
        self._arguments = str(Path(path).absolute()), engine, precision, present, device, own
        try:
            try:
                self.core = native.ModelHandle(*asked)
            except native.TorchNeeded:
                import pwmlff.kernels  # noqa: F401, PLC0415 (loads what runs TorchScript)

                self.core = native.ModelHandle(*asked)
        except (ImportError, OSError, ValueError) as error:
            raise Failure(last_line(error)) from error
        self.lock = OneAtATime()
        self._sent: tuple[np.ndarray, int] | None = None  # the candidates that the model has

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the file once more, in another process."""
        return OpenModel, self._arguments

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenModel:
        """Shared by copies: it keeps nothing of a structure."""
        return self

    def selecting(self, present: list[int]) -> OpenModel:
        """The same file for other species that take part, which stays open for the next time.

        Raises:
            Failure: what was asked for cannot run the file with these.
        """
        path, engine, precision, own, device, stamp = self._arguments
        key = tuple(present)
        with self.lock:
            if present != own and key not in self._others:
                self._others[key] = OpenModel(path, engine, precision, present, device, stamp)
            return self._others.get(key, self)

    def evaluate(
        self,
        rows: AtomsAndGhosts,
        cell: np.ndarray | None,
        nthreads: int,
        atom_virial: bool,
        grade: bool,
        born: bool,
    ) -> native.ModelResult:
        """What :meth:`pwmlff.native.ModelHandle.evaluate` gives.

        Raises:
            Failure: the model is on a GPU, and this process was forked after it was opened.
        """
        with self.lock:
            if self.on_gpu and self.lock.forks:
                raise Failure(
                    f"the model was opened on device '{self.device}' before this process was "
                    "forked, which GPUs do not outlive; start processes by "
                    "multiprocessing.get_context('spawn'), or open the model in them alone"
                )
            candidate, forks = self._sent or (None, 0)
            if candidate is not rows.candidate or forks != self.lock.forks:  # moved() keeps it
                self._sent = None
                self.core.set_neighbors(
                    rows.species, rows.first, rows.candidate, rows.atom, rows.natoms
                )
                self._sent = rows.candidate, self.lock.forks
            return self.core.evaluate(rows.x, cell, nthreads, atom_virial, grade, born)


class NativeModel:
    """What pair_style pwmlff runs.

    Neighbors are looked for anew when an atom has moved by half the skin. Threads that share one
    take turns; a copy shares the opened file, and a pickled one opens it again.

    Args:
        model: the opened file.
        info: what is in it.
        elements, nthreads, skin: as :func:`choose` takes them.
    """

    def __init__(
        self,
        model: OpenModel,
        info: model_file.ModelInfo,
        elements: Sequence[int] | None,
        nthreads: int,
        skin: float,
    ) -> None:
        self._model, facts = model, model.core.facts
        self.name: str = facts["name"]
        self.passed_over: str = facts["passed_over"]
        self.description: str = facts["description"].removesuffix(f" ({self.passed_over})")
        self.has_atom_virial: bool = facts["has_atom_virial"]
        self.has_grade: bool = facts["has_grade"]
        self.has_charges: bool = facts["has_charges"]
        self.cutoff, self.atom_type = info.cutoff, info.atom_type
        self.elements = info.atom_type if elements is None else elements
        self.selects_present = elements is None and info.counts_present
        self.nthreads, self.skin = nthreads, skin
        #: The structure that rows were made for, and they.
        self.built: tuple[Atoms, AtomsAndGhosts] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy is for another structure."""
        return {**self.__dict__, "built": None}

    def compute(
        self, rows: AtomsAndGhosts, cell: np.ndarray | None, **wanted: bool
    ) -> native.ModelResult:
        """What :meth:`OpenModel.evaluate` gives."""
        model = self._model
        if self.selects_present:
            there = set(rows.species[: rows.natoms].tolist())
            model = model.selecting([int(k in there) for k in range(len(self.atom_type))])
        return model.evaluate(rows, cell, self.nthreads, **wanted)

    def rows(self, atoms: Atoms) -> AtomsAndGhosts:
        """Rows that hold for the structure as it is now."""
        if self.built is not None:
            old, rows = self.built
            if (
                len(old) == len(atoms)
                and np.array_equal(old.numbers, atoms.numbers)
                and np.array_equal(old.pbc, atoms.pbc)
                and np.array_equal(old.cell, atoms.cell)
                and 2 * np.linalg.norm(old.positions - atoms.positions, axis=1).max(initial=0.0)
                < self.skin
            ):
                return rows.moved(atoms)
        rows = AtomsAndGhosts.find(atoms, self.atom_type, self.cutoff + self.skin)
        # The constructor copies; atoms.copy() would take constraints and arrays along.
        old = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
        self.built = old, rows
        return rows

    def __call__(
        self, atoms: Atoms, atom_virial: bool = False, grade: bool = False, born: bool = False
    ) -> Evaluation:
        """Evaluate a structure."""
        require_elements(atoms, self.elements)
        require_usable(atoms, self.cutoff + self.skin)
        cell = None
        if self.has_charges:
            cell = np.asarray(atoms.cell)
            if len(atoms) == 1 and not (atoms.pbc.all() and atoms.cell.rank == 3):
                cell = np.eye(3)  # the charge of one atom is 0 in any box
            elif len(atoms):
                require_periodic(atoms)
        if len(atoms) == 0:
            return Evaluation(
                0.0,
                np.zeros(0),
                np.zeros((0, 3)),
                np.zeros((3, 3)),
                charges=np.zeros(0) if self.has_charges else None,
                born=np.zeros((0, 3, 3)) if self.has_charges else None,
                atom_virial=np.zeros((0, 6)),
            )
        with self._model.lock:
            rows = self.rows(atoms)
            found = self.compute(
                rows,
                cell,
                atom_virial=atom_virial,
                grade=grade,
                born=born,
            )
        return Evaluation(
            float(found.energy[0]),
            found.atom_energy,
            rows.fold(found.force),
            found.virial[TENSOR],
            charges=found.charge,
            born=None if found.born is None else rows.fold(found.born).reshape(-1, 3, 3),
            atom_virial=None if found.atom_virial is None else rows.fold(found.atom_virial),
            gamma=found.gamma,
        )


class Reference:
    """The plain float64 reference."""

    name = description = "reference"
    has_atom_virial = has_grade = False

    def __init__(
        self,
        path: str,
        elements: Sequence[int] | None,
        module: torch.jit.ScriptModule | Nep | Ace | None = None,
    ) -> None:
        self.path, self.elements = path, elements
        self.module = model_file.open_any(path)[0] if module is None else module
        self.has_charges = isinstance(self.module, Nep) and self.module.charge_mode > 0

    def __copy__(self) -> Reference:
        """Shared by copies: it keeps nothing of a structure."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Reference:
        """Likewise."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the file once more, in another process."""
        return Reference, (self.path, self.elements)

    def __call__(
        self, atoms: Atoms, atom_virial: bool = False, grade: bool = False, born: bool = False
    ) -> Evaluation:
        """Evaluate a structure."""
        from pwmlff.evaluation import reference  # noqa: PLC0415  imports torch

        return Evaluation(**vars(reference.evaluate(self.module, atoms, self.elements)))


@dataclass(frozen=True)
class Choice:
    """The engine that runs a file, and why it is not the one that was asked for first."""

    engine: Engine
    info: model_file.ModelInfo
    reason: str = ""


def choose(
    path: str | PathLike[str],
    engine: str = "auto",
    precision: str = "double",
    elements: Sequence[int] | None = None,
    nthreads: int = 1,
    skin: float = 0.5,
    device: str = "cpu",
) -> Choice:
    """Open a model file with an engine.

    Args:
        path: a model file.
        engine: one of ENGINES; "auto" is fused where its verification passes.
        precision: of the fused engine, one of `model_file.PRECISIONS`.
        elements: atomic numbers that take part; when None all of the model's, or those of each
            structure where the model counts them (`ModelInfo.counts_present`).
        nthreads: threads of the fused engine.
        skin: how far beyond the cutoff neighbors are kept.
        device: "cpu", "cuda" or "cuda:N"; the reference runs on the CPU.

    Raises:
        Failure: an unknown value, a device or a file that cannot be used, or a file that the fused
            engine, where it is asked for, does not compute.
    """
    if engine not in ENGINES:
        raise Failure(f"engine is '{engine}', expected one of {', '.join(ENGINES)}")
    if precision not in (known := model_file.PRECISIONS):
        raise Failure(f"precision is '{precision}', expected one of {', '.join(known)}")
    if not (math.isfinite(skin) and skin >= 0.0):
        raise Failure(f"skin is {skin}, expected a distance of at least 0")
    if nthreads < 1:
        raise Failure(f"nthreads is {nthreads}, expected at least 1")
    module = None
    if engine == "reference":
        module, info = model_file.open_any(path)
    else:
        try:
            info = model_file.describe_unopened(path)
        except Failure:  # only the code of the file could tell; other failures come again
            info = model_file.describe(path)
    if info.takes_temperature:
        raise Failure(
            f"'{fspath(path)}' has the temperature as a descriptor, which is for lmp alone: the "
            "keyword temperature of pair_style pwmlff"
        )
    chosen = [z for z in info.atom_type if elements is None or z in elements]
    unknown = sorted(set(elements or ()) - set(chosen))
    if unknown or not chosen:
        raise Failure(f"elements holds {unknown}; '{path}' knows {list(info.atom_type)}")
    taking_part = None if elements is None else chosen
    if module is not None:
        return Choice(Reference(fspath(path), taking_part, module), info)
    present = [int(z in chosen) for z in info.atom_type]
    model = OpenModel(fspath(path), engine, precision, present, device)
    native = NativeModel(model, info, taking_part, nthreads, skin)
    return Choice(native, info, native.passed_over)


def usable_gpu(device: str) -> tuple[int, bool]:
    """Index of the GPU, -1 for none, and whether nothing else will do.

    The environment variable PWMLFF_GPU_STAND_IN names what runs in the place of a GPU, for tests.

    Raises:
        Failure: it is another word, or there is no such GPU.
    """
    if device == "cpu":
        return -1, False
    match = re.fullmatch(r"cuda(?::(\d+))?", device)
    if not match:
        raise Failure(f"device is '{device}', expected cpu, cuda or cuda:N")
    if os.environ.get("PWMLFF_GPU_STAND_IN"):
        return -1, True
    index, inventory = int(match[1] or 0), devices.inventory()
    why = ""
    if index >= len(inventory.gpus):
        why = inventory.reason or f"{len(inventory.gpus)} GPU(s) are visible"
    elif not inventory.gpus[index].supported:
        why = f"the kernels were not compiled for {inventory.gpus[index].name}"
    if why:
        raise Failure(f"device '{device}' cannot be used: {why}; choose another or device='cpu'")
    return index, True
