"""Run by a Python in which python-ace is installed: a potential of pacemaker or GRACE/FS.

    PYTHON ace_export.py POTENTIAL.yaml TARGET.yace [--grace] [--active-set FILE.asi]
    PYTHON ace_export.py POTENTIAL.yaml NUMBERS.npz ... --structure STRUCTURE.npz

writes the potential as python-ace does, or its energies and forces of a structure. With an active
set, the file has the B functions one by one and not summed up, each with its generalized
Clebsch-Gordan coefficients (gen_cgs), rank 1 first; and as active_set the matrices of the .asi, by
element. Numbers have the extrapolation grade gamma too. Nothing of pwmlff is imported, as it need
not be installed there.

Source: Lysogorskiy et al. 2023, doi:10.1103/PhysRevMaterials.7.043801 (the grade).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from pyace import ACEBBasisSet, PyACECalculator
from pyace.asecalc import PyGRACEFSCalculator


def _list(values: Iterable[Any]) -> str:
    return f"[{', '.join(map(repr, values))}]"


def _function(function: Any) -> str:
    """A B function, with the keys of a .yace and gen_cgs."""
    cgs = [1.0] if function.rank == 1 else function.gen_cgs  # as python-ace evaluates rank 1
    ctildes = (cg * c for cg in cgs for c in function.coeffs)
    return (
        f"    - {{mu0: {function.mu0}, rank: {function.rank}, ndensity: {function.ndensity}, "
        f"num_ms_combs: {len(cgs)}, mus: {_list(function.mus)}, ns: {_list(function.ns)}, "
        f"ls: {_list(function.ls)}, ms_combs: {_list(chain.from_iterable(function.ms_combs))}, "
        f"ctildes: {_list(ctildes)}, gen_cgs: {_list(cgs)}}}\n"
    )


def _functions(basis: Any) -> Iterator[str]:
    """Those of all elements; a function of rank 1 has m = 0."""
    for k, (first, others) in enumerate(zip(basis.basis_rank1, basis.basis, strict=True)):
        yield f"  {k}:\n"
        yield from map(_function, [*first, *others])


def _with_matrices(text: str, path: Path, elements: list[str]) -> str:
    """The inverse of the active set of each element, a row for each B function, at the end."""
    with np.load(path, allow_pickle=False) as found:
        matrices = [np.asarray(found[element], dtype=np.float64).tolist() for element in elements]
    lines = [f"{k}: [{', '.join(map(_list, rows))}]" for k, rows in enumerate(matrices)]
    text = text.rstrip()
    if text.startswith("{"):  # flow style
        return f"{text.removesuffix('}')}, active_set: {{{', '.join(lines)}}}}}\n"
    return f"{text}\nactive_set:\n" + "".join(f"  {line}\n" for line in lines)


def write(options: argparse.Namespace) -> None:
    """Write the potential, with B functions where there is an active set."""
    if options.grace:
        text = options.potential.read_text(encoding="utf-8")
        basis = PyGRACEFSCalculator(str(options.potential)).basis
    else:
        basis = ACEBBasisSet(str(options.potential))
        basis.to_ACECTildeBasisSet().save_yaml(str(options.target))
        text = options.target.read_text(encoding="utf-8")
        if options.active_set:
            text = text.partition("\nfunctions:")[0] + "\nfunctions:\n" + "".join(_functions(basis))
    if options.active_set:
        text = _with_matrices(text, options.active_set, list(basis.elements_name))
    options.target.write_text(text, encoding="utf-8")


def evaluate(options: argparse.Namespace) -> None:
    """Write atom_energy [n] eV, forces [n, 3] eV/angstrom, and gamma [n], of a structure."""
    kind = PyGRACEFSCalculator if options.grace else PyACECalculator
    calculator = kind(str(options.potential))
    if options.active_set:
        calculator.set_active_set(str(options.active_set))
    with np.load(options.structure, allow_pickle=False) as atoms:
        calculator.calculate(Atoms(atoms["numbers"], atoms["positions"], cell=atoms["cell"]))
    results = calculator.results
    found = {"atom_energy": results["energies"], "forces": results["forces"]}
    if options.active_set:
        found["gamma"] = results["gamma"]
    np.savez(options.target, **found)


def main() -> None:
    """Do what the words of the command say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("potential", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--grace", action="store_true")
    parser.add_argument("--active-set", type=Path)
    parser.add_argument("--structure", type=Path)
    options = parser.parse_args()
    (evaluate if options.structure else write)(options)


if __name__ == "__main__":
    main()
