#!/usr/bin/env bash
# deepmd-kit 3.2.0: with set_davg_zero false, the energy by se_atten (DPA-1) depends on which atom comes first.
#
# One would guess that atoms in another order have the same energy. Empty places in the list of neighbors
# are filled with index 0, so the nets see there the type of atom 0 of the structure. Where the mean that
# is taken off the environment is zero (set_davg_zero, the default), such a place adds nothing. With
# "set_davg_zero": false the mean of the radial column is not zero, and each empty place adds what that type
# gives. Structures whose first atom is of another element, and the same atoms in another order, then
# have other energies. The NumPy backend shows it; the PyTorch backend gives 2.8 eV for a similar model.
# (The stripped type embedding with smooth_type_embedding does not have it.)
#
# Seen with deepmd-kit 3.2.0, a random model and 12 atoms of HfO2, forth and back:
#     mean  0.0: energies differ by 0.000 eV
#     mean -0.1: energies differ by 0.424 eV
# Exit status 0 while that is so; 1 where the second is zero, too.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deepmd-kit==3.2.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import itertools

import numpy as np
from deepmd.dpmodel.model.model import get_model

descriptor = {
    "type": "se_atten", "sel": 100, "rcut": 4.0, "rcut_smth": 0.5, "neuron": [8, 16],
    "axis_neuron": 8, "attn": 16, "attn_layer": 2, "set_davg_zero": False, "seed": 1,
}
model = get_model(
    {"type_map": ["O", "Hf"], "descriptor": descriptor, "fitting_net": {"neuron": [24, 24], "seed": 1}}
)
block = model.atomic_model.descriptor.se_atten
hafnium = [[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
oxygen = list(itertools.product((0.25, 0.75), repeat=3))
cell = 5.08 * np.eye(3)
x = np.array([*hafnium, *oxygen]) @ cell + np.random.default_rng(0).normal(0.0, 0.1, (12, 3))
types = np.array([1] * 4 + [0] * 8)
differences = []
for mean in (0.0, -0.1):
    block.mean[..., 0], block.stddev[...] = mean, 0.1
    forth, back = (
        float(model(x[order][None], types[order][None], cell[None])["energy"].sum())
        for order in (np.arange(12), np.arange(12)[::-1])
    )
    differences.append(abs(back - forth))
    print(f"mean {mean:4.1f}: energies differ by {differences[-1]:.3f} eV")
raise SystemExit(not (differences[0] < 1e-9 < 0.1 < differences[1]))
PYTHON
