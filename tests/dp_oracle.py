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
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("data") / "tiny_dp.npz"
STEP = 1e-30
#: Of the model: elements in the order of its types, angstrom, largest number of neighbors, M2.
ATOM_TYPE, RMAX, RMIN, MAX_NEIGHBOR, M2 = (14, 8), 4.2, 0.6, 24, 3

Arrays = Mapping[str, np.ndarray]


def shifts(cell: np.ndarray) -> Iterator[np.ndarray]:
    """All translations of the lattice that can lead to neighbors."""
    heights = 1.0 / np.linalg.norm(np.linalg.inv(cell), axis=0)
    most = [int(np.ceil(RMAX / h)) + 1 for h in heights]
    for k in itertools.product(*(range(-n, n + 1) for n in most)):
        yield np.array(k, float)


def environment(d: np.ndarray) -> np.ndarray:
    """s(r) (1, x/r, y/r, z/r) of a vector."""
    r = np.sqrt((d * d).sum())
    s = 1.0 / r
    if r.real >= RMIN:
        u = (r - RMIN) / (RMAX - RMIN)
        s = s * (u**3 * (-6.0 * u**2 + 15.0 * u - 10.0) + 1.0)
    return s * np.array([1.0, d[0] / r, d[1] / r, d[2] / r])


def net(arrays: Arrays, name: str, x: np.ndarray, fitting: bool) -> np.ndarray:
    """A net of the original; x [in], or [n, in]."""
    layer = 0
    while f"{name}.layers.{layer + 1}.weight" in arrays or not fitting:
        prefix = f"{name}.layers.{layer}."
        if prefix + "weight" not in arrays:
            return x
        weight = arrays[prefix + "weight"]
        y = np.tanh(x @ weight + arrays[prefix + "bias"][0])
        if prefix + "resnet_dt" in arrays:
            y = x + arrays[prefix + "resnet_dt"][0] * y
        elif not fitting and weight.shape[1] == weight.shape[0]:
            y = x + y
        elif not fitting and weight.shape[1] == 2 * weight.shape[0]:
            y = np.concatenate([x, x], axis=-1) + y
        x, layer = y, layer + 1
    return x @ arrays[f"{name}.layers.{layer}.weight"] + arrays[f"{name}.layers.{layer}.bias"][0]


def atom_energies(
    arrays: Arrays, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray
) -> np.ndarray:
    """Energies [n] of atoms, of complex positions and cell."""
    ntypes = len(ATOM_TYPE)
    average = arrays["davg"].reshape(ntypes, ntypes, MAX_NEIGHBOR, 4)
    deviation = arrays["dstd"].reshape(ntypes, ntypes, MAX_NEIGHBOR, 4)
    energies = []
    for i in range(len(numbers)):
        a = ATOM_TYPE.index(numbers[i])
        moments = np.zeros((4, arrays["embedding_net.0.layers.2.weight"].shape[1]), complex)
        for b, element in enumerate(ATOM_TYPE):
            slots = np.zeros((MAX_NEIGHBOR, 4), complex)
            used = 0
            for j in np.flatnonzero(numbers == element):
                for k in shifts(cell.real):
                    d = positions[j] + k @ cell - positions[i]
                    r = np.linalg.norm(d.real)
                    if 0.0 < r < RMAX:
                        slots[used] = environment(d)
                        used += 1
            slots = (slots - average[a, b]) / deviation[a, b]
            g = net(arrays, f"embedding_net.{a * ntypes + b}", slots[:, :1], fitting=False)
            moments += slots.T @ g
        moments /= MAX_NEIGHBOR * ntypes
        descriptor = (moments.T @ moments[:, :M2]).reshape(-1)
        energies.append(net(arrays, f"fitting_net.{a}", descriptor, fitting=True)[0])
    return np.array(energies)


def evaluate(
    arrays: Arrays, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray
) -> dict[str, np.ndarray]:
    """Energy, atom_energy [n], forces -dE/dx [n, 3], virial -dE/d(strain) [3, 3]."""
    numbers, positions, cell = np.asarray(numbers), positions + 0j, cell + 0j
    energy = atom_energies(arrays, numbers, positions, cell).real
    forces, virial = np.zeros((len(numbers), 3)), np.zeros((3, 3))
    for index in np.ndindex(forces.shape):
        moved = positions.copy()
        moved[index] += 1j * STEP
        forces[index] = -atom_energies(arrays, numbers, moved, cell).sum().imag / STEP
    for index in np.ndindex(3, 3):
        strain = np.eye(3) + 0j
        strain[index] += 1j * STEP
        strained = atom_energies(arrays, numbers, positions @ strain, cell @ strain)
        virial[index] = -strained.sum().imag / STEP
    return {"energy": energy.sum(), "atom_energy": energy, "forces": forces, "virial": virial}


def random_parameters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Parameters by their names in the original's files."""
    ntypes, arrays = len(ATOM_TYPE), {}

    def add(name: str, widths: tuple[int, ...], scaled: tuple[int, ...] = ()) -> None:
        for k, (rows, columns) in enumerate(itertools.pairwise(widths)):
            arrays[f"{name}.layers.{k}.weight"] = rng.normal(0.0, rows**-0.5, (rows, columns))
            arrays[f"{name}.layers.{k}.bias"] = rng.normal(0.0, 0.5, (1, columns))
            if k in scaled:
                arrays[f"{name}.layers.{k}.resnet_dt"] = rng.uniform(0.05, 0.2, (1, columns))

    for k in range(ntypes**2):
        add(f"embedding_net.{k}", (1, 5, 5, 10))  # widths that rise, stay and double
    for k in range(ntypes):
        add(f"fitting_net.{k}", (10 * M2, 7, 7, 7, 1), (1, 2))
    statistics = (ntypes, ntypes, 1, 4)
    for name, values in (
        ("davg", rng.normal(0.0, 0.05, statistics)),
        ("dstd", rng.uniform(0.05, 0.2, statistics)),
    ):
        arrays[name] = values.repeat(MAX_NEIGHBOR, axis=2).reshape(ntypes, -1)
    return arrays


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
        numbers = np.array([ATOM_TYPE[k % 2] for k in range(natoms)])
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
