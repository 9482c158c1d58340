"""Named random models and structures, the same for the tests of all folders."""

from __future__ import annotations

import hashlib
import itertools
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.neighborlist import neighbor_list

import dp_oracle
from pwmlff.models import DP, DPConfig

TRICLINIC = ((4.0, 0.0, 0.0), (1.5, 3.6, 0.0), (-0.9, 1.1, 3.9))


@dataclass(frozen=True)
class System:
    """A random model and a random structure for it."""

    elements: tuple[int, ...] = (14,)  # of the model
    numbers: tuple[int, ...] = (14,) * 5  # of the atoms
    cell: tuple[tuple[float, ...], ...] = ((4.0, 0.0, 0.0), (0.0, 4.2, 0.0), (0.0, 0.0, 3.8))
    pbc: tuple[bool, bool, bool] = (True, True, True)
    rmax: float = 3.5
    rmin: float = 1.2
    embedding: tuple[int, ...] = (6, 12, 12)  # plain, doubling, matching
    fitting: tuple[int, ...] = (10, 10, 7)  # plain, matching, plain
    max_neighbor: int = 40
    units: str = "metal"
    embedding_bias: bool = True
    fitting_bias: bool = True
    embedding_resnet_dt: bool = False
    fitting_resnet_dt: bool = True
    sel: tuple[int, ...] = ()
    zbl: float = 0.0  # outer radius between the first element and all, and half of it inner
    properties: int = 0  # of elements, for one embedding net of all pairs
    as_of_matpl: bool = False  # with the attributes of files of MatPL

    def model(self, seed: int = 0, isotropic: bool = False) -> DP:
        """Random parameters; isotropic: an energy that rotations do not change."""
        rng = np.random.default_rng(seed)
        n, slots = len(self.elements), self.max_neighbor
        config = DPConfig(
            atom_type=self.elements,
            rmax=self.rmax,
            rmin=self.rmin,
            max_neighbor=slots,
            m2=self.embedding[-1] // 2,
            embedding=self.embedding,
            fitting=self.fitting,
            units=self.units,
            embedding_bias=self.embedding_bias,
            fitting_bias=self.fitting_bias,
            embedding_resnet_dt=self.embedding_resnet_dt,
            fitting_resnet_dt=self.fitting_resnet_dt,
            sel=self.sel,
            type_vector={z: rng.random(self.properties).tolist() for z in self.elements}
            if self.properties
            else None,
            zbl_radii=[
                (self.zbl / 2, self.zbl) if pair < n or pair % n == 0 else (0.0, 0.0)
                for pair in range(n * n * (self.zbl > 0.0))
            ],
        )
        # One value per pair of types and component, repeated over the slots of the pair.
        davg = rng.normal(0.0, 0.04, (n, n, 1, 4)).repeat(slots, axis=2).reshape(n, -1)
        dstd = rng.uniform(0.02, 0.08, (n, n, 1, 4)).repeat(slots, axis=2).reshape(n, -1)
        if isotropic:
            davg = (davg.reshape(n, -1, 4) * (1, 0, 0, 0)).reshape(n, -1)
            dstd = dstd.reshape(n, -1, 4)[:, :, (0, 1, 1, 1)].reshape(n, -1)
        model = DP(config, davg=davg, dstd=dstd, energy_shift=rng.normal(size=n), seed=seed).eval()
        return with_attributes_of_matpl(model) if self.as_of_matpl else model

    def atoms(self, seed: int = 0) -> Atoms:
        """No two atoms closer than 1 angstrom, images included."""
        rng = np.random.default_rng(seed)
        atoms = Atoms(cell=self.cell, pbc=self.pbc)
        while len(atoms) < len(self.numbers):
            trial = atoms.copy()
            trial.append(self.numbers[len(atoms)])
            trial.positions[-1] = rng.random(3) @ trial.cell
            if len(neighbor_list("i", trial, 1.0)) == 0:
                atoms = trial
        return atoms


SYSTEMS = {
    "one element, orthorhombic": System(),
    "one element, not periodic": System(pbc=(False, False, False)),
    "cutoff beyond the box": System(
        numbers=(14, 14), cell=((2.5, 0.0, 0.0), (0.3, 2.6, 0.0), (0.0, 0.4, 2.7)), rmax=4.1
    ),
    "two elements, triclinic": System((8, 72), (72, 8, 8, 72, 8, 8), TRICLINIC),
    "two elements, slab": System((8, 72), (8, 72, 8, 8, 72), pbc=(True, True, False)),
    "three elements, triclinic": System((22, 8, 38), (8, 38, 22, 8, 22, 38, 8), TRICLINIC),
    "three elements, one without atoms": System((22, 8, 38), (38, 22, 38, 22)),
    "no neighbors": System(
        (8, 72), (72, 8, 8), ((90.0, 0.0, 0.0), (0.0, 90.0, 0.0), (0.0, 0.0, 90.0)), rmax=2.0
    ),
    "embedding from width one": System(embedding=(1, 2, 5), fitting=(9,)),
    "single layers": System((8, 72), (8, 72, 72), embedding=(2,), fitting=(4, 4)),
    "type embedding": System((22, 8, 38), (8, 38, 22, 8, 22, 38, 8), TRICLINIC, properties=3),
    "steps of embedding nets": System((8, 72), (72, 8, 72), embedding_resnet_dt=True),
    "no steps of fitting nets": System((8, 72), (72, 8, 72), fitting_resnet_dt=False),
    "no bias": System((8, 72), (72, 8, 72, 8), embedding_bias=False, fitting_bias=False),
    "slots by element": System((22, 8, 38), (38, 22, 38, 22), sel=(31, 17, 40)),
    "ZBL": System((8, 72), (72, 8, 8, 72, 8, 8), TRICLINIC, zbl=3.1),
    "attributes of MatPL": System((8, 72), (72, 8, 8, 72, 8, 8), TRICLINIC, as_of_matpl=True),
    "four elements, all switches": System(
        (8, 22, 38, 72),
        (8, 38, 22, 8, 72, 38, 8, 22),
        TRICLINIC,
        embedding=(5, 10, 10, 20),
        fitting=(8, 8, 8),
        embedding_bias=False,
        embedding_resnet_dt=True,
        fitting_resnet_dt=False,
        sel=(40, 33, 38, 36),
        zbl=2.5,
        properties=2,
    ),
}


#: Boundaries and elements of all sorts, and the last one, in which all switches of nets are on.
SOME = (
    "one element, not periodic", "cutoff beyond the box", "two elements, slab",
    "three elements, one without atoms", "no neighbors", "embedding from width one",
    "attributes of MatPL", "four elements, all switches",
)  # fmt: skip


_FILES: dict[str, bytes] = {}


def save(model: DP, path: Path, record: bool = True) -> Path:
    """Write a model as its method does; one that has been written here is not scripted again."""
    known = hashlib.sha256(repr(record).encode())
    for name, part in model.named_modules():
        values = [item for item in vars(part).items() if not item[0].startswith("_")]
        known.update(repr((name, type(part), values)).encode())
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        known.update(repr((name, tensor.dtype, tensor.shape)).encode())
        known.update(tensor.detach().numpy().tobytes())
    key = known.hexdigest()
    if key not in _FILES:
        model.save(path, record=record)
        _FILES[key] = path.read_bytes()
    path.write_bytes(_FILES[key])
    return path


def crystal(n: int = 3) -> Atoms:
    """A distorted two-element crystal of 8 n^3 atoms, dense enough for cutoff 3.5."""
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(*[np.arange(2 * n)] * 3, indexing="ij"), -1).reshape(-1, 3)
    atoms = Atoms(
        [8 if i.sum() % 2 else 72 for i in grid], grid * 2.2, cell=[4.4 * n] * 3, pbc=True
    )
    atoms.positions += rng.normal(scale=0.1, size=(len(atoms), 3))
    atoms.wrap()
    return atoms


def graded(model: DP, seed: int) -> DP:
    """The model with a random grade of the last hidden layers; one factor is a triangle."""
    rng = np.random.default_rng(seed)
    n = model.fitting_net[0].layers[-1].weight.shape[0]
    model.grade_mean = torch.from_numpy(rng.normal(size=(model.ntypes, n)))
    factors = rng.normal(size=(model.ntypes, n, n))
    factors[-1] = np.triu(factors[-1])
    model.grade_factor = torch.from_numpy(factors)
    return model


def grade_alone(model: DP, atoms: Atoms) -> np.ndarray:
    """The distance [n] of the last hidden layer of each atom from the mean, by NumPy."""
    arrays = {key: value.detach().numpy() for key, value in model.named_parameters()}
    arrays |= {"davg": model.davg.numpy(), "dstd": model.dstd.numpy()}
    contract = dp_oracle.Contract(
        tuple(model.atom_type), model.Rmax, model.Rmin, model.maxNeighborNum, model.M2
    )
    layers = dp_oracle.last_hidden(
        arrays, atoms.numbers, atoms.positions, np.asarray(atoms.cell), contract
    )
    found = []
    for z, layer in zip(atoms.numbers, layers, strict=True):
        a = contract.atom_type.index(z)
        factor, mean = model.grade_factor[a].numpy(), model.grade_mean[a].numpy()
        found.append(np.linalg.norm(factor @ (layer - mean)))
    return np.array(found)


def gamma_alone(model: DP, atoms: Atoms) -> np.ndarray:
    """By NumPy: the root mean square of the grades of each atom and those near."""
    alone = grade_alone(model, atoms)
    squares, weights = np.square(alone), np.ones(len(atoms))
    for i, j, r in zip(*neighbor_list("ijd", atoms, model.Rmax), strict=True):
        weight = (1.0 - (r / model.Rmax) ** 2) ** 8
        weights[i] += weight
        squares[i] += weight * alone[j] ** 2
    return np.sqrt(squares / weights)


def with_attributes_of_matpl(model: DP) -> DP:
    """The model with all attributes that a file of MatPL has, of their types, and without `units`.

    It is scripted in training mode there, and torch.float64 becomes the number 7.
    """
    model.dtype, model.compress_tab = torch.float64, None
    for nets, steps in ((model.embedding_net, False), (model.fitting_net, True)):
        for net in nets:
            shapes = [layer.weight.shape for layer in net.layers]
            net.network_size = [shapes[0][0], *(n_out for _, n_out in shapes)]
            net.bias_flag, net.resnet_dt_flag = True, steps
            net.layers[-1].resnet_dt = getattr(net.layers[-1], "resnet_dt", None)
    del model.units
    return model.train()


class Sigmoid(torch.nn.Module):
    """A layer with the names and shapes of the contract, but another activation."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sigmoid of x weight + bias."""
        return torch.sigmoid(torch.addmm(self.bias, x, self.weight))


#: In the code of a DP file: the sum that it returns as Etot.
TOTAL = r"torch\.sum\((\w+), \[1\], True\)"


def edited(path: Path, pattern: str, replacement: str) -> None:
    """Change the code in a TorchScript file, at the one place that the pattern finds."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    changes = 0
    for name, contents in members.items():
        if name.endswith(".py"):
            text, count = re.subn(pattern, replacement, contents.decode(), flags=re.DOTALL)
            members[name], changes = text.encode(), changes + count
    assert changes == 1, f"{changes} places"
    with zipfile.ZipFile(path, "w") as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)


def other_activation(model: DP) -> DP:
    """The model with one layer replaced: same names, same shapes, other function."""
    net = model.embedding_net[-1]
    net.layers[0] = Sigmoid(net.layers[0])
    return model


class Layer(torch.nn.Module):
    """Layers that other exporters write: hidden ones x + tanh(..), or without bias."""

    def __init__(self, layer: torch.nn.Module, residual: bool = True, scale: float = 1.0) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.residual, self.scale = residual, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.scale * torch.tanh(torch.addmm(self.bias, x, self.weight))
        return x + y if self.residual else y


def with_layers(model: DP, dtype: torch.dtype = torch.float64, **changes) -> DP:
    """The model with its fitting layers that have resnet_dt replaced."""
    for net in model.fitting_net:
        net.layers[1] = Layer(net.layers[1], **changes)
    return model.to(dtype)
