"""Files of NEP with numbers by chance, and those with numbers of another program."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

from genuine import DATA, DATA_VARIABLE

CELL = np.array([[5.2, 0, 0], [0.7, 4.8, 0], [-0.4, 0.9, 5.5]])

_SMALL = "n_max 1 1|basis_size 3 3|l_max 2 1 0|ANN 5 0"
#: One of each form, small. All parts act at distances of two to five angstrom.
HEADS = {
    "nep3": "nep3 2 O Hf|cutoff 5 4 100 50|n_max 3 2|basis_size 5 4|l_max 4 2 1|ANN 7 0",
    "nep5": f"nep5 2 O Hf|cutoff 5 4|{_SMALL}",
    "all flags": "nep4 1 Si|cutoff 5 4|n_max 2 1|basis_size 3 4|l_max 4 1 1 1 1 1 1|ANN 5 0",
    "beyond l_max": "nep4 1 Si|cutoff 4 5|n_max 1 1|basis_size 3 3|l_max 1 0 0 0 0 0 1|ANN 4 0",
    "l_max 8": "nep4 1 Si|cutoff 5 4|n_max 1 1|basis_size 3 3|l_max 8 0 0|ANN 6 0",
    "fine basis": "nep5 2 O Hf|cutoff 5 4|n_max 3 2|basis_size 16 12|l_max 3 1 0|ANN 6 0",
    "no angular part": "nep4 1 Si|cutoff 5 4|n_max 3 0|basis_size 3 0|l_max 0 0 0|ANN 6 0",
    "cutoffs by element": f"nep4 2 O Hf|cutoff 5 3.5 4 4 9 9|{_SMALL}",
    "cutoffs by radii": f"nep4_zbl 2 O Hf|zbl 1 2|cutoff 5 4 9 9 2 1.6 0.6|{_SMALL}",
    "two layers": "nep5 2 O Hf|cutoff 5 4|n_max 2 2|basis_size 4 4|l_max 3 1 1|ANN 6 5",
    "temperature": f"nep4_zbl_temperature 2 O Hf|zbl 1 2.5|cutoff 5 4|{_SMALL}",
    "zbl": f"nep4_zbl 2 O Hf|zbl 1.2 3.1|cutoff 5 4|{_SMALL}",
    "zbl by radii": f"nep4_zbl 2 O Hf|zbl 1 2.6 0.9|cutoff 5 4|{_SMALL}",
    "zbl by table": f"nep5_zbl 2 O Hf|zbl 0 0|cutoff 5 4|{_SMALL}",
}

#: The same with charges, which want a crystal.
CHARGED = {
    "charge 1": f"nep4_charge1 2 O Hf|cutoff 5 4 100 50|{_SMALL}",
    "charge 2, five": f"nep5_charge2 2 O Hf|cutoff 5 4|{_SMALL}",
    "charge 2, zbl": f"nep4_zbl_charge2 2 O Hf|zbl 1.2 3.1|cutoff 5 4|{_SMALL}",
    "charge 1, cutoffs by element": f"nep4_charge1 2 O Hf|cutoff 5 3.5 4 4 9 9|{_SMALL}",
    "charge 1, angular beyond": "nep5_zbl_charge1 1 Si|zbl 1 2|cutoff 4 5|n_max 1 1|"
    "basis_size 3 3|l_max 2 1 0|ANN 4 0",
    "charge 2, no angular part": "nep4_charge2 1 Si|cutoff 5 4|n_max 3 0|basis_size 3 0|"
    "l_max 0 0 0|ANN 6 0",
}

#: Inner, outer and a, b of four terms of O-O, O-Hf and Hf-Hf.
ZBL_TABLE = [
    [0.8, 2.6, 0.2, 3.1, 0.5, 0.9, 0.3, 0.4, 0.03, 0.2],
    [0.0, 2.9, 0.1, 2.8, 0.4, 1.1, 0.2, 0.5, 0.05, 0.3],
    [1.3, 3.2, 0.3, 2.2, 0.6, 0.7, 0.1, 0.3, 0.02, 0.1],
]


def random_text(head: str, seed: int = 1) -> bytes:
    """A file with these lines, separated by bars, and numbers by chance behind them."""
    rng = np.random.default_rng(seed)
    lines = head.split("|")
    words = {line.split()[0]: line.split()[1:] for line in lines}
    first = lines[0].split()
    version, nspecies = int(first[0][3]), len(first) - 2
    radial, angular = (
        (int(n) + 1) * (int(k) + 1)
        for n, k in zip(words["n_max"], words["basis_size"], strict=True)
    )
    nradial, nangular = (int(n) + 1 for n in words["n_max"])
    flags = sum(word != "0" for word in words["l_max"][1:])
    width = nradial + nangular * (int(words["l_max"][0]) + flags) + ("temperature" in first[0])
    layers = [width, *(int(word) for word in words["ANN"] if word != "0")]

    numbers: list[float] = []
    for _ in range(1 if version == 3 else nspecies):
        for shape in zip(layers[1:], layers[:-1], strict=True):
            numbers += list(rng.normal(0, shape[1] ** -0.5, prod(shape)))
            numbers += list(rng.normal(0, 0.5, shape[0]))
        numbers += list(rng.normal(0, 0.5, layers[-1]))
        if "charge" in first[0]:
            numbers += list(rng.normal(0, 1.0, layers[-1]))
        numbers += [rng.normal(0, 2)] * (version == 5)
    numbers += [rng.uniform(1, 2)] * ("charge" in first[0])
    numbers += [rng.normal(0, 2)]
    numbers += list(rng.normal(0, 0.5, nspecies**2 * (radial + angular)))
    numbers += list(rng.uniform(0.2, 0.6, width))
    if "temperature" in first[0]:
        numbers[-1] = 0.001
    if words.get("zbl") == ["0", "0"]:
        numbers += list(np.ravel(ZBL_TABLE))
    return "\n".join([*lines, *(f"{n:15.7e}" for n in numbers), ""]).encode()


def random_structure(elements: list[int], n: int = 8, seed: int = 2) -> Atoms:
    """Atoms by chance, apart enough that repulsion does not hide everything else."""
    rng = np.random.default_rng(seed)
    atoms = Atoms(pbc=True, cell=CELL)
    for k in range(n):
        for _ in range(1000):
            trial = atoms + Atoms([elements[k % len(elements)]], rng.uniform(0, 1, (1, 3)) @ CELL)
            distances = trial.get_all_distances(mic=True)
            if not k or distances[np.triu_indices(k + 1, 1)].min() > 1.5:
                break
        atoms = trial
    return atoms


@dataclass(frozen=True)
class Reference:
    """Numbers of NEP_CPU in double precision for a structure."""

    text: bytes
    atoms: Atoms
    energies: np.ndarray  # [n] eV
    forces: np.ndarray  # [n, 3] eV/angstrom
    virial: np.ndarray  # [3, 3] eV
    centroid_virials: np.ndarray  # [n, 3, 3] eV
    descriptors: np.ndarray  # [n, D]
    decimals: float = 0.0  # eV/atom, that its constants have too few decimals

    @property
    def energy(self) -> float:
        """By how much energies may differ, eV/atom: distances are rounded at 1e-15 angstrom."""
        return 1e-12 + 1e-15 * abs(self.forces).max() + self.decimals


#: Files that were made for this project, and genuine ones.
REFERENCES = [
    "nep/s01_nep3", "nep/s02_nep4", "nep/s03_nep5", "nep/s04_nep4_zbl", "nep/s05_nep4_zbl_typewise",
    "nep/s06_nep5_zbl_flexible", "nep/s07_nep4_cutoffs_by_type", "nep/s08_nep4_l_max_8",
    "nep/s09_nep4_all_invariants", "nep/s10_nep4_matpl_biases", "nep/s11_nep4_old_typewise",
    "nep/s12_nep4_one_type", "genuine/g01_nep3_PbTe", "genuine/g02_nep4_C_2022",
    "genuine/g04_nep4_HfO2_matpl",
]  # fmt: skip


FORCE = 1e-11  # eV/angstrom, and eV for virials of atoms


def reference(name: str) -> Reference:
    """Skips where the file is not."""
    path = DATA / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"no {path}; set {DATA_VARIABLE} to the folder of {Path(name).parent}")
    text = path.with_suffix(".txt").read_bytes()
    elements = text.split(b"\n")[0].decode().split()[2:]
    with np.load(path) as data:
        symbols = [elements[kind] for kind in data["types"]]
        atoms = Atoms(symbols, data["positions"], cell=data["cell"], pbc=True)
        names = ("energies", "forces", "virial", "atom_virials", "descriptors")
        # NEP_CPU's constants of l = 8 have 12 digits, all others 15.
        decimals = 1e-12 if "l_max_8" in name else 0.0
        return Reference(text, atoms, *(data[n] for n in names), decimals)
