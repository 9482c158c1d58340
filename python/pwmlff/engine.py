"""What evaluates a model file outside LAMMPS, and the choice between them.

- fused: this project's own code for Deep Potentials, on the CPU or on a GPU,
  `torch.classes.pwmlff.DPEngine` and `DPDeviceEngine`
- torchscript: the file's own forward, with neighbours padded as it wants them (kind DP)
- reference: the plain float64 reference (:mod:`pwmlff.reference`), any kind

:func:`choose` takes the fused engine where it proves to be the same as the file's own code on a
random cluster, as pair_style pwmlff does, and that code otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Protocol

import numpy as np
import torch
from ase import Atoms

from pwmlff import devices, model_file, reference
from pwmlff.models import pad_neighbors
from pwmlff.report import Failure
from pwmlff.structures import neighbor_list, require_finite, require_usable

ENGINES = ("auto", "fused", "torchscript", "reference")
#: Environment variable that names the code for the processor (kernels/dp/engine.cpp).
CPU_VARIABLE = "PWMLFF_CPU"
#: Largest error of the energy of the whole (per atom), of one atom's energy and of forces, as a
#: share of the largest energy of an atom or force (at least 1).
PROOF_GATES = {
    "exact": (1e-10, 1e-10, 1e-10), "double": (1e-8, 1e-8, 1e-6), "mixed": (1e-6, 5e-6, 1e-4),
}  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """Energies and derivatives of one structure, float64, in the units of the model."""

    energy: float  # of the whole
    atom_energy: np.ndarray  # [n] in atom order
    forces: np.ndarray  # [n, 3] -dE/dx
    virial: np.ndarray  # [3, 3] sum of r_ij (x) f_ij, the sign of LAMMPS's virial
    #: [n, 6] xx yy zz xy xz yz, half to each end of a pair; None where not wanted or not known
    atom_virial: np.ndarray | None = None

    @classmethod
    def of_nothing(cls) -> Evaluation:
        """No atoms: no energy, as LAMMPS has it."""
        return cls(0.0, np.zeros(0), np.zeros((0, 3)), np.zeros((3, 3)), np.zeros((0, 6)))

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

    def __call__(self, atoms: Atoms, atom_virial: bool = False) -> Evaluation:
        """Evaluate a structure.

        Args:
            atoms: the structure; without atoms there is no energy, as in LAMMPS.
            atom_virial: whether virials of atoms are wanted, of an engine that computes them.

        Raises:
            ValueError: the structure is outside what the model takes, or it or the result is not
                finite.
        """


@dataclass(frozen=True)
class Rows:
    """Atoms and those of their periodic images that are neighbours, as the fused engine wants."""

    x: torch.Tensor  # [nrows, 3]
    species: torch.Tensor  # int32 [nrows] index into the model's elements, or -1
    first: torch.Tensor  # int32 [n*nspecies + 1]
    candidate: torch.Tensor  # int32
    atom: np.ndarray  # [nrows] the atom that a row is, or is an image of; the first n are the atoms
    image: np.ndarray  # [nrows, 3] in cell vectors

    @classmethod
    def of(cls, atoms: Atoms, elements: Sequence[int], reach: float) -> Rows:
        """Rows of all pairs nearer than reach; any cell, boxes smaller than reach too."""
        kind = np.full(len(atoms), -1)
        for index, number in enumerate(elements):
            kind[atoms.numbers == number] = index
        i, j, image = neighbor_list("ijS", atoms, reach)
        keep = kind[j] >= 0
        i, j, image = i[keep], j[keep], image[keep]
        is_image = image.any(axis=1)
        ghosts, which = _distinct(np.c_[j[is_image], image[is_image]].reshape(-1, 4))
        row = j.copy()
        row[is_image] = len(atoms) + which.ravel()
        block = i * len(elements) + kind[j]
        order = np.argsort(block, kind="stable")
        counts = np.bincount(block, minlength=len(atoms) * len(elements))
        atom = np.r_[np.arange(len(atoms)), ghosts[:, 0]].astype(int)
        image = np.r_[np.zeros((len(atoms), 3)), ghosts[:, 1:]]
        return cls(
            torch.from_numpy(atoms.positions[atom] + image @ np.asarray(atoms.cell)),
            torch.from_numpy(kind[atom].astype(np.int32)),
            torch.from_numpy(np.r_[0, np.cumsum(counts)].astype(np.int32)),
            torch.from_numpy(row[order].astype(np.int32)),
            atom,
            image,
        )

    def moved(self, atoms: Atoms) -> Rows:
        """The same rows where the atoms are now, in the same cell."""
        x = atoms.positions[self.atom] + self.image @ np.asarray(atoms.cell)
        return replace(self, x=torch.from_numpy(x))

    def fold(self, values: torch.Tensor) -> np.ndarray:
        """Sum over the images of each atom, [nrows, k] -> [n, k]."""
        natoms = int((self.image == 0).all(axis=1).sum())
        folded = np.zeros((natoms, values.shape[1]))
        np.add.at(folded, self.atom, values.numpy())
        return folded


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each of the rows of integers [n, k] once, in their order, and where each row is among them.

    As np.unique(rows, axis=0, return_inverse=True), which takes five times as long.
    """
    if not len(rows):
        return rows, np.zeros(0, dtype=np.int64)
    least = rows.min(axis=0)
    # One number for each row, which sorts like it.
    numbers = np.ravel_multi_index(tuple((rows - least).T), tuple(np.ptp(rows, axis=0) + 1))
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    return rows[first], which


class Fused:
    """The fused engine; neighbours are looked for anew when an atom has moved by half the skin.

    Args:
        path: a DP file.
        precision: exact, double or mixed.
        atom_type: the model's atomic numbers.
        elements: those of them that take part.
        nthreads: threads of an evaluation.
        skin: how far beyond the cutoff neighbours are kept.
        device: "cuda:N", where neighbours go only when they are looked for anew, or "cpu", the code
            for GPUs on the CPU (kernels/common/device.h); None for the engine for CPUs.
    """

    name = "fused"

    def __init__(
        self,
        path: str | PathLike[str],
        precision: str,
        atom_type: Sequence[int],
        elements: Sequence[int],
        nthreads: int = 1,
        skin: float = 0.5,
        device: str | None = None,
    ) -> None:
        import pwmlff.kernels  # noqa: F401, PLC0415  registers the classes

        classes, present = torch.classes.pwmlff, [int(z in elements) for z in atom_type]
        self.core = (
            classes.DPEngine(fspath(path), precision, present)
            if device is None
            else classes.DPDeviceEngine(fspath(path), precision, present, device)
        )
        self.atom_type, self.elements = list(atom_type), list(elements)
        self.precision = precision
        self.nthreads, self.skin, self.device = nthreads, skin, device
        self._built: tuple[Atoms, Rows] | None = None
        self._sent: torch.Tensor | None = None  # the list that is on the device

    def compute(self, rows: Rows, atom_virial: bool) -> tuple[torch.Tensor, ...]:
        """Energies of atoms, forces of rows, virial and, where wanted, virials of rows."""
        if self.device is None:
            return self.core.evaluate(
                rows.x, rows.species, rows.first, rows.candidate, self.nthreads, atom_virial, False
            )[:4]
        if self._sent is not rows.candidate:  # moved() keeps it
            self._sent = None
            self.core.set_neighbors(rows.species, rows.first, rows.candidate)
            self._sent = rows.candidate
        return self.core.evaluate(rows.x, atom_virial, False)[:4]

    def rows(self, atoms: Atoms) -> Rows:
        """Rows that hold for the structure as it is now."""
        if self._built is not None:
            old, rows = self._built
            if (
                len(old) == len(atoms)
                and np.array_equal(old.numbers, atoms.numbers)
                and np.array_equal(old.pbc, atoms.pbc)
                and np.array_equal(old.cell, atoms.cell)
                and 2 * np.linalg.norm(old.positions - atoms.positions, axis=1).max(initial=0.0)
                < self.skin
            ):
                return rows.moved(atoms)
        rows = Rows.of(atoms, self.atom_type, self.core.cutoff() + self.skin)
        # The constructor copies; atoms.copy() would take constraints and arrays along.
        old = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
        self._built = old, rows
        return rows

    def __call__(self, atoms: Atoms, atom_virial: bool = False) -> Evaluation:
        """Evaluate a structure."""
        require_elements(atoms, self.elements)
        require_usable(atoms, self.core.cutoff() + self.skin)
        if len(atoms) == 0:
            return Evaluation.of_nothing()
        rows = self.rows(atoms)
        atom_energy, force, virial, virials = self.compute(rows, atom_virial)
        return Evaluation(
            float(atom_energy.sum()),
            atom_energy.numpy(),
            rows.fold(force),
            virial.numpy().reshape(3, 3),
            rows.fold(virials) if atom_virial else None,
        )


class TorchScript:
    """The forward of a DP file."""

    name = "torchscript"

    def __init__(self, module: torch.jit.ScriptModule, elements: Sequence[int]) -> None:
        self.module = module
        self.atom_type = [int(z) for z in module.atom_type]
        self.elements = [z for z in self.atom_type if z in elements]

    def __call__(self, atoms: Atoms, atom_virial: bool = False) -> Evaluation:
        """Evaluate a structure."""
        require_elements(atoms, self.elements)
        require_usable(atoms, self.module.Rmax)
        if len(atoms) == 0:
            return Evaluation.of_nothing()
        module = self.module
        inputs = pad_neighbors(atoms, self.atom_type, module.Rmax, module.maxNeighborNum)
        inputs = inputs._replace(atom_type=torch.tensor(self.elements, dtype=torch.int32))
        # The optimising executor specialises for sizes, which change with every neighbour list.
        with torch.jit.optimized_execution(False):
            total, grouped, forces, _, virial = (
                x if x is None else x.detach().numpy() for x in module(*inputs)
            )
        # Energies come grouped by element in the order of the model.
        atom_energy = np.empty(len(atoms))
        atom_energy[np.argsort(inputs.Imagetype_map.numpy(), kind="stable")] = grouped[0]
        return Evaluation(float(total[0, 0]), atom_energy, forces[0], virial.reshape(3, 3))


class Reference:
    """The plain float64 reference."""

    name = "reference"

    def __init__(self, module: torch.jit.ScriptModule, elements: Sequence[int]) -> None:
        self.module, self.elements = module, list(elements)

    def __call__(self, atoms: Atoms, atom_virial: bool = False) -> Evaluation:
        """Evaluate a structure."""
        result = reference.evaluate(self.module, atoms, self.elements)
        return Evaluation(result.energy, result.atom_energy, result.forces, result.virial)


def require_elements(atoms: Atoms, elements: Sequence[int]) -> None:
    """Raise ValueError for an atom of another element."""
    other = np.flatnonzero(~np.isin(atoms.numbers, elements))
    if len(other):
        raise ValueError(
            f"atom {other[0]} has atomic number {atoms.numbers[other[0]]}; the elements that take "
            f"part are {list(elements)}"
        )


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
        path: a TorchScript file.
        engine: one of ENGINES; "auto" is fused where that proves equal to the file's own code.
        precision: of the fused engine, one of PROOF_GATES.
        elements: atomic numbers that take part; all of the model's when None.
        nthreads: threads of the fused engine.
        skin: of the fused engine.
        device: where the fused engine runs, "cpu", "cuda" or "cuda:N".

    Raises:
        Failure: an unknown value, a device or a file that cannot be used, or a file that the fused
            engine, where it is asked for, does not compute.
    """
    if engine not in ENGINES:
        raise Failure(f"engine is '{engine}', expected one of {', '.join(ENGINES)}")
    if precision not in PROOF_GATES:
        raise Failure(f"precision is '{precision}', expected one of {', '.join(PROOF_GATES)}")
    gpu = usable_gpu(device)
    module, info = model_file.open_model(path)
    chosen = [z for z in info.atom_type if elements is None or z in elements]
    unknown = sorted(set(elements or ()) - set(chosen))
    if unknown or not chosen:
        raise Failure(f"elements holds {unknown}; '{path}' knows {list(info.atom_type)}")
    if engine == "reference" or (engine == "auto" and info.kind != "DP"):
        reason = "" if info.kind == "DP" else f"kind {info.kind}"
        return Choice(Reference(module, chosen), info, reason)
    if info.kind != "DP":
        raise Failure(f"engine {engine} runs models of kind DP; '{path}' is of kind {info.kind}")
    original = TorchScript(module, chosen)
    if engine == "torchscript":
        return Choice(original, info)
    # Where single precision is not enough for a model, double precision still is the faster way.
    reason = ""
    for possible in (precision, "double") if precision == "mixed" else (precision,):
        before, reason = reason, ""
        try:
            fused = Fused(path, possible, info.atom_type, chosen, nthreads, skin, gpu)
            reason = difference(original, fused, info, chosen, possible)
        except (ImportError, RuntimeError, ValueError, torch.jit.Error) as error:
            reason = model_file.last_line(error)
        if not reason:
            return Choice(fused, info, before and f"not in precision {precision}: {before}")
    if engine == "fused" or CPU_VARIABLE in reason:  # a wrong wish is no reason to do without
        raise Failure(f"'{path}' cannot be run by the fused engine: {reason}")
    return Choice(original, info, reason)


def usable_gpu(device: str) -> str | None:
    """Name of the device for the compiled engine; None for "cpu".

    The environment variable PWMLFF_GPU_STAND_IN names what runs in the place of a GPU, for tests.

    Raises:
        Failure: it is another word, or there is no such GPU.
    """
    if device == "cpu":
        return None
    match = re.fullmatch(r"cuda(?::(\d+))?", device)
    if not match:
        raise Failure(f"device is '{device}', expected cpu, cuda or cuda:N")
    if stand_in := os.environ.get("PWMLFF_GPU_STAND_IN"):
        return stand_in
    index, found = int(match[1] or 0), devices.inventory()
    why = ""
    if index >= len(found.gpus):
        why = found.reason or f"{len(found.gpus)} GPU(s) are visible"
    elif not found.gpus[index].supported:
        why = f"the kernels were not compiled for {found.gpus[index].name}"
    if why:
        raise Failure(f"device '{device}' cannot be used: {why}; choose another or device='cpu'")
    return f"cuda:{index}"


def difference(
    expected: Engine,
    found: Engine,
    info: model_file.ModelInfo,
    elements: Sequence[int],
    precision: str,
) -> str:
    """What differs between two engines on random clusters; empty where nothing does."""
    for shape in SHAPES:
        cluster = random_cluster(info.cutoff, elements, info.max_neighbor, shape)
        try:
            one = expected(cluster)
        except ValueError as error:
            if shape.must_be_finite:
                return f"the file's own code gives no numbers on a test cluster: {error}"
            continue
        text = _difference(one, found(cluster), *PROOF_GATES[precision])
        if text:
            return f"{text} from the file's own code on a test cluster"
    return ""


def _difference(
    one: Evaluation, other: Evaluation, energy: float, atom_energy: float, force: float
) -> str:
    atoms = max(1.0, np.abs(one.atom_energy).max()) * len(one.atom_energy)
    for name, gate, least in (
        ("atom_energy", atom_energy, 1.0), ("forces", force, 1.0), ("virial", force, 1.0),
        ("energy", energy, atoms),  # as far as one atom may be off on the average
    ):  # fmt: skip
        values = np.asarray(getattr(one, name))
        allowed = gate * max(least, np.abs(values).max())
        worst = np.abs(getattr(other, name) - values).max()
        if not worst <= allowed:  # catches NaN
            return f"{name} differs by {worst:.1e} (allowed {allowed:.1e})"
    return ""


@dataclass(frozen=True)
class Shape:
    """Of a random cluster; lengths in units of the cutoff."""

    natoms: int  # more where there are more elements
    shortest: float  # distance of two atoms
    edge: float  # of the cube that natoms fill
    must_be_finite: bool = True  # what the file's own code gives


#: Distances as in condensed matter; shorter ones, and up to the cutoff; atoms that nearly overlap.
SHAPES = (Shape(24, 0.4, 1.5), Shape(24, 0.2, 1.2), Shape(6, 0.04, 0.3, must_be_finite=False))


def random_cluster(
    cutoff: float, elements: Sequence[int], limit: int | None, shape: Shape = SHAPES[0]
) -> Atoms:
    """A cluster of these elements, and an isolated atom; no more than `limit` of one element."""
    rng = np.random.default_rng(20250722)
    wanted = max(shape.natoms, len(elements))
    natoms = wanted if limit is None else min(wanted, limit * len(elements))
    edge = shape.edge * cutoff * (wanted / shape.natoms) ** (1 / 3)
    positions = np.empty((0, 3))
    while len(positions) < natoms:
        trial = edge * rng.random(3)
        if (np.linalg.norm(positions - trial, axis=1) > shape.shortest * cutoff).all():
            positions = np.vstack((positions, trial))
    positions = np.vstack((positions, np.full(3, 10.0 * cutoff)))
    return Atoms([elements[i % len(elements)] for i in range(len(positions))], positions)
