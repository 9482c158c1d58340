#!/usr/bin/env bash
# torchnep 1.0.7 takes a nep5 file of GPUMD for nep4, without an error or a warning.
#
# A nep5.txt has one bias more for each element, behind its network. One would guess that a reader
# of nep4 refuses the word "nep5" in the first line, as it does for versions in nep.in ("torchnep
# only implements NEP4"). NEPCalculator does not look at the version (torchnep/nep.py, _load_model):
# it takes the bias of the element for the common one, and each number behind it for the one before.
#
# The files below have an output weight of 0, so each atom has the energy -(sum of its biases).
# Seen for two atoms, with torchnep 1.0.7 and torch 2.13.0 on a CPU:
#     nep4: -1.0 eV, expected -1.0 eV
#     nep5: -0.5 eV, expected -1.5 eV
# Exit status 0 while that is so; 1 where nep5 is refused, or its energy is right.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 torchnep==1.0.7 numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from torchnep.nep import NEPCalculator

HEAD = "cutoff 5 4 100 100\nn_max 0 0\nbasis_size 0 0\nl_max 1 0 0\nANN 1 0\n"
FIRST = [0.1, 0.1, 0.2, 0.0]  # w0 of two descriptors, b0, w1
LAST = [0.3, 0.4, 1.0, 1.0]  # c of the radial and of the angular part, q_scaler
COMMON, OWN = 0.5, 0.25  # biases

energies = {}
for version, biases in (("nep4", [COMMON]), ("nep5", [OWN, COMMON])):
    numbers = "\n".join(map(str, [*FIRST, *biases, *LAST]))
    with open(f"{version}.txt", "w") as file:
        file.write(f"{version} 1 Ar\n{HEAD}{numbers}\n")
    pair = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    found = NEPCalculator(f"{version}.txt").compute(["Ar", "Ar"], pair, 30.0 * np.eye(3))
    energies[version] = float(found["energy"].sum())
    print(f"{version}: {energies[version]} eV, expected {-2 * sum(biases)} eV")
assert abs(energies["nep4"] + 2 * COMMON) < 1e-12, "nep4 changed"
assert abs(energies["nep5"] + 2 * OWN) < 1e-12, "nep5 changed"
PYTHON
