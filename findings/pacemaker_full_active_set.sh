#!/usr/bin/env bash
# python-ace 0.4.0rc1: pace_activeset --full writes 1e16 times the identity, whatever potential and data are.
#
# One would guess that --full selects the active set from the derivatives of atomic energies by all
# coefficients, dE/dc, as its help says. These stay zero unless an active set of that size has been loaded
# before: only then does the evaluator leave its mode of linear grades. The matrix of zeros is
# regularized and inverted, and the command ends well. With such a set each atom of the data has a grade of 1e14
# and more, so that a run with pair_style pace/extrapolation takes all for extrapolation.
# A stand-in, such as the identity of the right size, makes dE/dc come; rows that are
# selected from these give grades up to 1, as the linear set does.
#
# Seen with python-ace 0.4.0rc1, a random potential of Si with two densities, 40 frames:
#     pace_activeset:         grades of the data up to 1.0
#     pace_activeset --full:  up to 1.4e+17; 99 % of its numbers are zero
#     from dE/dc that came with a stand-in: up to 1.0
# Exit status 0 while that is so; 1 where grades with --full are below 10.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check python-ace==0.4.0rc1
cd "$folder"
cat > potential.py <<'PYTHON'
import numpy as np
import pandas as pd
from ase.build import bulk
from pyace import ACEBBasisSet, PyACECalculator, create_multispecies_basis_config

rng = np.random.default_rng(1)
bond = {"radbase": "SBessel", "radparameters": [5.25], "rcut": 5.0, "dcut": 0.01, "NameOfCutoffFunction": "cos"}
embedding = {"npot": "FinnisSinclairShiftedScaled", "fs_parameters": [1, 1, 1, 0.5], "ndensity": 2}
basis = ACEBBasisSet(create_multispecies_basis_config({
    "deltaSplineBins": 0.001, "elements": ["Si"], "embeddings": {"ALL": embedding}, "bonds": {"ALL": bond},
    "functions": {"ALL": {"nradmax_by_orders": [8, 3, 2], "lmax_by_orders": [0, 2, 1]}},
}))
start = np.array(basis.all_coeffs)
basis.all_coeffs = (start + rng.normal(0, 0.05, start.size)).tolist()
basis.to_BBasisConfiguration().save("Si.yaml")
frames = []
for k in range(40):
    atoms = bulk("Si", cubic=True)
    atoms.set_cell(atoms.cell * rng.uniform(0.9, 1.1), scale_atoms=True)
    atoms.rattle(0.2, seed=k)
    atoms.calc = PyACECalculator("Si.yaml")
    frames.append({"ase_atoms": atoms, "energy": atoms.get_potential_energy(), "forces": atoms.get_forces()})
    atoms.calc = None
pd.DataFrame(frames).to_pickle("data.pckl.gzip", compression="gzip", protocol=4)
PYTHON
venv/bin/python potential.py
venv/bin/pace_activeset Si.yaml -d data.pckl.gzip -a > log 2>&1
venv/bin/pace_activeset Si.yaml -d data.pckl.gzip -a --full >> log 2>&1
venv/bin/python - <<'PYTHON'
import numpy as np
import pandas as pd
from pyace import PyACECalculator
from pyace.activelearning import compute_A_active_inverse, compute_active_set

frames = pd.read_pickle("data.pckl.gzip", compression="gzip")["ase_atoms"]


def largest(path):
    calculator, rows, most = PyACECalculator("Si.yaml"), [], 0.0
    calculator.set_active_set(path)
    for atoms in frames:
        calculator.calculate(atoms)
        rows += [np.ravel(row) for row in calculator.ace.dE_dc]
        most = max(most, calculator.results["gamma"].max())
    return most, np.array(rows)


linear, _ = largest("Si.asi")
full, _ = largest("Si.asi.nonlinear")
with np.load("Si.asi.nonlinear") as matrices:
    zeros, size = (matrices["Si"] == 0).mean(), len(matrices["Si"])
with open("stand_in.asi", "wb") as file:
    np.savez(file, Si=np.eye(size))
_, rows = largest("stand_in.asi")
inverse = compute_A_active_inverse(compute_active_set({0: rows}, tol=1.01, max_iters=300))
with open("own.asi", "wb") as file:
    np.savez(file, Si=inverse[0])
own, _ = largest("own.asi")
print(f"pace_activeset:         grades of the data up to {linear:.1f}")
print(f"pace_activeset --full:  up to {full:.1e}; {100 * zeros:.0f} % of its numbers are zero")
print(f"from dE/dc that came with a stand-in: up to {own:.1f}")
raise SystemExit(not (linear < 2 and own < 2 and full > 1e10))
PYTHON
