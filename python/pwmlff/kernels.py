"""The compiled kernels as ``torch.ops.pwmlff.*`` and ``torch.classes.pwmlff.*``.

Importing this module loads them:

    import pwmlff.kernels
    force = torch.ops.pwmlff.edge_force(edge_grad, edge_index, nall)

Ops on edges (r_ij = x_j - x_i; edge_grad = dE/dr_ij; edge_index int64 [2, E], row 0 the center i,
row 1 the neighbor j), differentiable to any order, float32 and float64:

- ``edge_force(edge_grad [E, 3], edge_index, nall) -> [nall, 3]``: -dE/dx
- ``edge_virial(edge_vec [E, 3], edge_grad) -> [3, 3]``: -sum of r_ij (x) dE/dr_ij
- ``edge_atom_virial(edge_vec, edge_grad, edge_index, nall, centroid) -> [nall, 3, 3]``: each term
  half to both ends, or (centroid) all to the neighbor
- ``edge_scatter(values [E, w], edge_index, nall, center, neighbor) -> [nall, w]`` and its transpose
  ``edge_gather(atoms [nall, w], edge_index, center, neighbor) -> [E, w]``: what the others are
  made of

``torch.classes.pwmlff.DPEngine(model_file, precision, present)`` is the fused engine for Deep
Potentials; its methods are described in kernels/dp/binding.cpp. ``torch.classes.pwmlff.DPTraining``
has gradients of energies, forces and virials by the parameters (kernels/training/binding.cpp).
"""

from __future__ import annotations

import os

import torch

from pwmlff.plugin import library


def _find() -> str:
    plugin = library()
    default = plugin and os.path.join(os.path.dirname(plugin), "libpwmlff_kernels.so")
    path = os.environ.get("PWMLFF_KERNELS_LIB", default)
    if path is None:
        raise ImportError("found no compiled pair-pwmlff: install it with pip to have its kernels")
    return path


#: Path of the library with the kernels; the environment variable PWMLFF_KERNELS_LIB names another.
LIBRARY = _find()
torch.ops.load_library(LIBRARY)
