"""A Deep Potential by its formulas in NumPy, slot by slot, derivatives by complex steps.

Independent of the project: none of its code is used, neighbors are tried one by one. The formulas
are those of the original's padded form (docs/model_contract.md). `python tests/dp_oracle.py` writes
tests/data/tiny_dp.npz anew: a random model of two elements and the numbers of three structures.

A derivative along a direction is the imaginary part of the energy at a point that is moved by
i STEP in that direction, over STEP: no difference is taken, so it is as exact as the energy
(Squire and Trapp 1998, doi:10.1137/S003614459631241X).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("data") / "tiny_dp.npz"
STEP = 1e-30

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Contract:
    """What a model is beside its arrays; lengths in angstrom."""

    atom_type: tuple[int, ...]  # atomic numbers, in the order of the types
    rmax: float = 4.2
    rmin: float = 0.6
    max_neighbor: int = 24
    m2: int = 3
    sel: tuple[int, ...] = ()  # slots of each type, where not max_neighbor
    type_vector: Mapping[int, tuple[float, ...]] | None = None  # one embedding net for all pairs
    zbl_radii: tuple[tuple[float, float], ...] = ()  # of each pair of types, center first


TINY = Contract((14, 8))


def shifts(cell: np.ndarray, reach: float = TINY.rmax) -> Iterator[np.ndarray]:
    """All translations of the lattice that can lead to neighbors."""
    heights = 1.0 / np.linalg.norm(np.linalg.inv(cell), axis=0)
    most = [int(np.ceil(reach / h)) + 1 for h in heights]
    for k in itertools.product(*(range(-n, n + 1) for n in most)):
        yield np.array(k, float)


def environment(d: np.ndarray, rmin: float, rmax: float) -> np.ndarray:
    """s(r) (1, x/r, y/r, z/r) of a vector."""
    r = np.sqrt((d * d).sum())
    s = 1.0 / r
    if r.real >= rmin:
        u = (r - rmin) / (rmax - rmin)
        s = s * (u**3 * (-6.0 * u**2 + 15.0 * u - 10.0) + 1.0)
    return s * np.array([1.0, d[0] / r, d[1] / r, d[2] / r])


def zbl(z1: int, z2: int, inner: float, outer: float, r: complex) -> complex:
    """The universal repulsion at r, a half-cosine from inner to outer; GPUMD's constants."""
    x = r * 2.134563 * (z1**0.23 + z2**0.23)
    screening = 0.18175 * np.exp(-3.1998 * x) + 0.50986 * np.exp(-0.94229 * x)
    screening += 0.28022 * np.exp(-0.4029 * x) + 0.02817 * np.exp(-0.20162 * x)
    switch = 1.0
    if r.real > inner:
        switch = 0.5 + 0.5 * np.cos(np.pi * (r - inner) / (outer - inner))
    return z1 * z2 * 14.399645 / r * screening * switch


def net(arrays: Arrays, name: str, x: np.ndarray, fitting: bool, last: bool = True) -> np.ndarray:
    """A net of the original, or without the last layer of a fitting net; x [in], or [n, in]."""
    layer = 0
    while f"{name}.layers.{layer + 1}.weight" in arrays or not fitting:
        prefix = f"{name}.layers.{layer}."
        if prefix + "weight" not in arrays:
            return x
        weight = arrays[prefix + "weight"]
        y = np.tanh(x @ weight + arrays.get(prefix + "bias", [0.0])[0])
        y = y * arrays.get(prefix + "resnet_dt", [1.0])[0]
        if weight.shape[1] == weight.shape[0] and (layer > 0 or not fitting):
            y = x + y
        elif weight.shape[1] == 2 * weight.shape[0] and not fitting:
            y = np.concatenate([x, x], axis=-1) + y
        x, layer = y, layer + 1
    if not last:
        return x
    return x @ arrays[f"{name}.layers.{layer}.weight"] + arrays[f"{name}.layers.{layer}.bias"][0]


def atom_energies(
    arrays: Arrays,
    numbers: np.ndarray,
    positions: np.ndarray,
    cell: np.ndarray,
    contract: Contract = TINY,
    counted: Sequence[int] = (),
) -> np.ndarray:
    """Energies [n] of atoms, of complex positions and cell; counted as descriptors() takes it."""
    described = descriptors(arrays, numbers, positions, cell, contract, counted)
    return np.array(
        [
            net(arrays, f"fitting_net.{a}", descriptor, fitting=True)[0] + repulsion
            for a, descriptor, repulsion in described
        ]
    )


def last_hidden(
    arrays: Arrays, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, contract: Contract
) -> list[np.ndarray]:
    """What the last layer of the fitting net takes of each atom."""
    described = descriptors(arrays, numbers, positions + 0j, cell + 0j, contract)
    return [
        net(arrays, f"fitting_net.{a}", descriptor, fitting=True, last=False).real
        for a, descriptor, _ in described
    ]


def descriptors(
    arrays: Arrays,
    numbers: np.ndarray,
    positions: np.ndarray,
    cell: np.ndarray,
    contract: Contract,
    counted: Sequence[int] = (),
) -> Iterator[tuple[int, np.ndarray, complex]]:
    """Type, descriptor and ZBL energy of each atom.

    PWMLFF and MatPL pass the elements of a frame, or of pair_coeff, whose slots alone count then:
    these are `counted`; all elements of the model when empty.
    """
    ntypes = len(contract.atom_type)
    sel = contract.sel or (contract.max_neighbor,) * ntypes
    average = arrays["davg"].reshape(ntypes, ntypes, contract.max_neighbor, 4)
    deviation = arrays["dstd"].reshape(ntypes, ntypes, contract.max_neighbor, 4)
    for i in range(len(numbers)):
        a = contract.atom_type.index(numbers[i])
        moments, repulsion = 0.0, 0.0
        for b, element in enumerate(contract.atom_type):
            if counted and element not in counted:
                continue
            slots = np.zeros((sel[b], 4), complex)
            used = 0
            for j in np.flatnonzero(numbers == element):
                for k in shifts(cell.real, contract.rmax):
                    d = positions[j] + k @ cell - positions[i]
                    r = np.linalg.norm(d.real)
                    if 0.0 < r < contract.rmax:
                        slots[used] = environment(d, contract.rmin, contract.rmax)
                        used += 1
                    inner, outer = (contract.zbl_radii or [(0.0, 0.0)] * ntypes**2)[a * ntypes + b]
                    if 0.0 < r < outer:
                        length = np.sqrt((d * d).sum())
                        repulsion += 0.5 * zbl(numbers[i], element, inner, outer, length)
            slots = (slots - average[a, b, : sel[b]]) / deviation[a, b, : sel[b]]
            taken, index = slots[:, :1], a * ntypes + b
            if contract.type_vector:
                vector = np.float32(contract.type_vector[element]).astype(complex)
                taken, index = np.hstack([taken, np.tile(vector, (sel[b], 1))]), 0
            moments = moments + slots.T @ net(arrays, f"embedding_net.{index}", taken, False)
        moments /= sum(
            n
            for n, element in zip(sel, contract.atom_type, strict=True)
            if not counted or element in counted
        )
        descriptor = (moments.T @ moments[:, : contract.m2]).reshape(-1)
        yield a, descriptor, repulsion


def evaluate(
    arrays: Arrays,
    numbers: np.ndarray,
    positions: np.ndarray,
    cell: np.ndarray,
    contract: Contract = TINY,
    counted: Sequence[int] = (),
) -> dict[str, np.ndarray]:
    """Energy, atom_energy [n], forces -dE/dx [n, 3], virial -dE/d(strain) [3, 3]."""
    numbers, positions, cell = np.asarray(numbers), positions + 0j, cell + 0j
    more = contract, counted
    energy = atom_energies(arrays, numbers, positions, cell, *more).real
    forces, virial = np.zeros((len(numbers), 3)), np.zeros((3, 3))
    for index in np.ndindex(forces.shape):
        moved = positions.copy()
        moved[index] += 1j * STEP
        forces[index] = -atom_energies(arrays, numbers, moved, cell, *more).sum().imag / STEP
    for index in np.ndindex(3, 3):
        strain = np.eye(3) + 0j
        strain[index] += 1j * STEP
        strained = atom_energies(arrays, numbers, positions @ strain, cell @ strain, *more)
        virial[index] = -strained.sum().imag / STEP
    return {"energy": energy.sum(), "atom_energy": energy, "forces": forces, "virial": virial}


def random_parameters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Parameters by their names in the original's files."""
    ntypes, arrays = len(TINY.atom_type), {}

    def add(name: str, widths: tuple[int, ...], scaled: tuple[int, ...] = ()) -> None:
        for k, (rows, columns) in enumerate(itertools.pairwise(widths)):
            arrays[f"{name}.layers.{k}.weight"] = rng.normal(0.0, rows**-0.5, (rows, columns))
            arrays[f"{name}.layers.{k}.bias"] = rng.normal(0.0, 0.5, (1, columns))
            if k in scaled:
                arrays[f"{name}.layers.{k}.resnet_dt"] = rng.uniform(0.05, 0.2, (1, columns))

    for k in range(ntypes**2):
        add(f"embedding_net.{k}", (1, 5, 5, 10))  # widths that rise, stay and double
    for k in range(ntypes):
        add(f"fitting_net.{k}", (10 * TINY.m2, 7, 7, 7, 1), (1, 2))
    statistics = (ntypes, ntypes, 1, 4)
    for name, values in (
        ("davg", rng.normal(0.0, 0.05, statistics)),
        ("dstd", rng.uniform(0.05, 0.2, statistics)),
    ):
        arrays[name] = values.repeat(TINY.max_neighbor, axis=2).reshape(ntypes, -1)
    return arrays


def random_member(rng: np.random.Generator) -> tuple[Contract, dict[str, np.ndarray]]:
    """A model of the family with two to four elements, its widths and switches drawn."""
    elements = tuple(int(z) for z in rng.choice(np.arange(1, 90), rng.integers(2, 5), False))
    n = len(elements)
    sel = tuple(int(k) for k in rng.integers(14, 25, n))
    has_sel, has_vector, steps, embedding_bias, fitting_bias = rng.random(5) < 0.5
    contract = Contract(
        elements,
        max_neighbor=max(sel),
        m2=int(rng.integers(2, 5)),
        sel=sel if has_sel else (),
        type_vector={z: tuple(rng.random(2)) for z in elements} if has_vector else None,
    )
    arrays: dict[str, np.ndarray] = {}

    def add(name: str, widths: list[int], bias: bool, scaled: list[int]) -> None:
        for k, (rows, columns) in enumerate(itertools.pairwise(widths)):
            prefix = f"{name}.layers.{k}."
            arrays[prefix + "weight"] = rng.normal(0.0, rows**-0.5, (rows, columns))
            if bias:
                arrays[prefix + "bias"] = rng.normal(0.0, 0.5, (1, columns))
            if k in scaled:
                arrays[prefix + "resnet_dt"] = rng.uniform(0.1, 1.5, (1, columns))

    width = int(rng.choice([4, 5, 7]))
    widths = [1 + 2 * has_vector, width, *(width * k for k in ((1, 2), (2, 2), (2, 4))[n - 2])]
    for k in range(1 if has_vector else n * n):
        add(f"embedding_net.{k}", widths, embedding_bias, [1, 2] if steps else [])
    fitting, dt = [widths[-1] * contract.m2, 8, 8, 6, 6], rng.random() < 0.5
    for k in range(n):
        add(f"fitting_net.{k}", fitting, fitting_bias, [1, 3] if dt else [])
        arrays[f"fitting_net.{k}.layers.4.weight"] = rng.normal(0.0, 0.5, (6, 1))
        arrays[f"fitting_net.{k}.layers.4.bias"] = rng.normal(0.0, 0.5, (1, 1))
    for name, values in (
        ("davg", rng.normal(0.0, 0.05, (n, n, 1, 4))),
        ("dstd", rng.uniform(0.05, 0.2, (n, n, 1, 4))),
    ):
        arrays[name] = values.repeat(contract.max_neighbor, axis=2).reshape(n, -1)
    if rng.random() < 0.5:
        outer = np.triu(rng.uniform(2.6, contract.rmax, (n, n)))
        outer = np.maximum(outer, outer.T)
        radii = tuple((0.7 * r, r) if r > 3.0 else (0.0, 0.0) for r in outer.ravel().tolist())
        contract = replace(contract, zbl_radii=radii)
    return contract, arrays


def random_structures(rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """A cell that neighbors cross several times, a triclinic one, and one with lonely atoms."""
    structures = []
    for natoms, cell, closest in (
        (4, np.diag([3.9, 4.1, 4.3]), 1.6),
        (9, np.array([[6.0, 0.0, 0.0], [1.1, 5.8, 0.0], [-0.7, 0.9, 6.3]]), 1.6),
        (5, np.diag([14.0, 15.0, 16.0]), 3.0),
    ):
        positions: list[np.ndarray] = []
        while len(positions) < natoms:
            here = rng.random(3) @ cell
            images = (here + k @ cell - there for there in positions for k in shifts(cell))
            if all(np.linalg.norm(d) > closest for d in images):
                positions.append(here)
        numbers = np.array([TINY.atom_type[k % 2] for k in range(natoms)])
        structures.append((numbers, np.array(positions), cell))
    return structures


def read() -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Parameters, and for each structure numbers, positions, cell and what evaluate() gives."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FILE) as data:
        for name in data:
            group, key = name.split("/")
            found.setdefault(group, {})[key] = data[name]
    return found.pop("parameters"), list(found.values())


def write() -> None:
    """Write FILE."""
    rng = np.random.default_rng(20261122)
    parameters = random_parameters(rng)
    arrays = {f"parameters/{name}": values for name, values in parameters.items()}
    for k, (numbers, positions, cell) in enumerate(random_structures(rng)):
        found = evaluate(parameters, numbers, positions, cell)
        frame = {"numbers": numbers, "positions": positions, "cell": cell, **found}
        arrays |= {f"frame{k}/{name}": values for name, values in frame.items()}
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    write()
