"""Potentials of ACE by chance, and what python-ace gives for some structures; run by its Python.

PYTHON tests/models/python_ace.py FOLDER [GRACE.yaml] writes NAME.yace and NAME.traj there for each
of CASES, and for GRADED the B functions (NAME.yaml), active sets (NAME.asi, NAME.nonlinear) and
their gamma. Likewise of a file of GRACE/FS, which knows linear sets alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from pyace import ACEBBasisSet, PyACECalculator, create_multispecies_basis_config
from pyace.activelearning import (
    compute_A_active_inverse,
    compute_active_set,
    compute_number_of_functions,
    save_active_inverse_set,
)
from pyace.asecalc import PyGRACEFSCalculator

SHIFTED = "FinnisSinclairShiftedScaled"
#: Elements, embedding, densities, largest n and l by order, radial functions; whether cores repel.
CASES = {
    "one linear": (["Cu"], SHIFTED, 1, [12, 5, 4, 3, 2], [0, 4, 3, 2, 1], "ChebExpCos", False),
    "one": (["Si"], "FinnisSinclair", 2, [10, 4, 3], [0, 3, 2], "ChebPow", False),
    "one of order five": (["Al"], SHIFTED, 2, [10, 5, 3, 2, 1], [0, 5, 3, 2, 1], "SBessel", False),
    "two linear": (["Hf", "O"], SHIFTED, 1, [8, 4, 3, 2], [0, 3, 2, 1], "ChebLinear", False),
    "two": (["Al", "Ni"], SHIFTED, 2, [9, 4, 3, 2], [0, 4, 2, 1], "SBessel", False),
    "two with cores": (["C", "H"], SHIFTED, 2, [8, 4, 2], [0, 3, 2], "ChebExpCos", True),
    "three": (["Li", "Si", "O"], SHIFTED, 2, [6, 3, 2], [0, 3, 1], "SBessel", False),
    "three of old form": (
        ["Li", "P", "S"], "FinnisSinclair", 2, [6, 3, 2, 1], [0, 2, 2, 1], "ChebPow", False,
    ),
    "four": (["C", "H", "N", "O"], SHIFTED, 2, [5, 2, 1], [0, 2, 1], "SBessel", False),
    "four linear": (["Ti", "Al", "V", "O"], SHIFTED, 1, [6, 3, 2], [0, 2, 1], "ChebExpCos", False),
}  # fmt: skip
GRADED = ("one", "two with cores", "three")
EDGE = 7.5  # of a box, angstrom, which is below twice the cutoff


def potential(case: tuple, rng: np.random.Generator) -> ACEBBasisSet:
    """Of a case, with coefficients by chance."""
    elements, embedding, ndensity, nradial, degrees, radial, cores = case
    bond = {
        "radbase": radial, "radparameters": [2.0 if radial == "ChebPow" else 5.25], "rcut": 5.5,
        "dcut": 0.01, "NameOfCutoffFunction": "cos",
    }  # fmt: skip
    if cores:
        bond |= {"r_in": 1.0, "delta_in": 0.2, "core-repulsion": [100.0, 1.5]}
        bond |= {"inner_cutoff_type": "zbl"}
    embeddings = {
        "npot": embedding, "fs_parameters": [1, 1, 1, 0.5][: 2 * ndensity], "ndensity": ndensity,
    }  # fmt: skip
    orders = {"nradmax_by_orders": nradial, "lmax_by_orders": degrees}
    basis = ACEBBasisSet(
        create_multispecies_basis_config(
            {
                "deltaSplineBins": 0.001, "elements": elements, "embeddings": {"ALL": embeddings},
                "bonds": {"ALL": bond}, "functions": {"ALL": orders},
            }
        )
    )  # fmt: skip
    start = np.array(basis.all_coeffs)
    basis.all_coeffs = (start + rng.normal(0, 0.05, start.size)).tolist()
    return basis


def structures(elements: list[str], rng: np.random.Generator) -> list[Atoms]:
    """Triclinic, one with closer atoms than the other."""
    result = []
    for closest in (1.4, 0.9):
        places: list[np.ndarray] = []
        while len(places) < 24:
            place = rng.uniform(0, EDGE, 3)
            apart = np.array([place - other for other in places]).reshape(-1, 3)
            apart -= EDGE * np.round(apart / EDGE)
            if (np.linalg.norm(apart, axis=1) > closest).all():
                places.append(place)
        cell = EDGE * np.eye(3) + np.triu(rng.normal(0, 0.4, (3, 3)), 1)
        result.append(Atoms(rng.choice(elements, 24), places, cell=cell, pbc=True))
    return result


def write_active_sets(path: Path, frames: list[Atoms], grace: bool = False) -> None:
    """Of random structures, and gamma of others (NAME.gamma.npz)."""
    calculator, gamma = (PyGRACEFSCalculator if grace else PyACECalculator)(str(path)), {}
    basis = calculator.basis
    elements = list(basis.elements_name)
    atoms = [one for k in range(60) for one in structures(elements, np.random.default_rng(k))]
    sizes = compute_number_of_functions(basis)
    for name, vectors in {"asi": 1, **({} if grace else {"nonlinear": basis.ndensitymax})}.items():
        target = path.with_suffix(f".{name}")
        # What a nonlinear set is selected from is there only with a set of that size.
        stand_in = {k: np.eye(size * vectors) for k, size in enumerate(sizes)}
        save_active_inverse_set(target, stand_in, elements)
        calculator.set_active_set(str(target))
        rows: dict[int, list[np.ndarray]] = {k: [] for k in stand_in}
        for one in atoms:
            calculator.calculate(one)
            found = calculator.ace.dE_dc if vectors > 1 else calculator.ace.projections
            for symbol, row in zip(one.symbols, found, strict=True):
                rows[basis.elements_to_index_map[symbol]].append(np.ravel(row))
        selected = compute_active_set(
            {k: np.array(each) for k, each in rows.items()}, tol=1.01, max_iters=300
        )
        save_active_inverse_set(target, compute_A_active_inverse(selected), elements)
        calculator.set_active_set(str(target))
        for k, one in enumerate(frames):
            calculator.calculate(one)
            gamma[f"{name}{k}"] = calculator.results["gamma"]
    np.savez(path.with_suffix(".gamma.npz"), **gamma)


def main(folder: Path) -> None:
    """Make all."""
    for seed, (name, case) in enumerate(CASES.items()):
        rng = np.random.default_rng(seed)
        path = folder / f"{name.replace(' ', '_')}.yace"
        basis = potential(case, rng)
        basis.to_ACECTildeBasisSet().save_yaml(str(path))
        frames = []
        for atoms in structures(case[0], rng):
            atoms.calc = PyACECalculator(str(path))
            labels = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
            atoms.calc = SinglePointCalculator(atoms, **labels)
            frames.append(atoms)
        write(path.with_suffix(".traj"), frames)
        if name in GRADED:
            basis.to_BBasisConfiguration().save(str(path.with_suffix(".yaml")))
            write_active_sets(path.with_suffix(".yaml"), frames)


def main_grace(folder: Path, source: Path) -> None:
    """The active set of a file of GRACE/FS, which is copied."""
    path = folder / "grace.yaml"
    path.write_bytes(source.read_bytes())
    elements = list(PyGRACEFSCalculator(str(path)).basis.elements_name)
    frames = structures(elements, np.random.default_rng(100))
    write(path.with_suffix(".traj"), frames)
    write_active_sets(path, frames, grace=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    for file in sys.argv[2:]:
        main_grace(Path(sys.argv[1]), Path(file))
