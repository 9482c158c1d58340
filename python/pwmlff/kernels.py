"""The compiled kernels as ``torch.ops.pwmlff.*`` and ``torch.classes.pwmlff.*``.

Importing this module loads them:

    import pwmlff.kernels
    force = torch.ops.pwmlff.edge_force(edge_grad, edge_index, nall)

Ops on edges (r_ij = x_j - x_i; edge_grad = dE/dr_ij; edge_index int64 [2, E], row 0 the centre i,
row 1 the neighbour j), differentiable to any order, float32 and float64:

- ``edge_force(edge_grad [E, 3], edge_index, nall) -> [nall, 3]``: -dE/dx
- ``edge_virial(edge_vec [E, 3], edge_grad) -> [3, 3]``: -sum of r_ij (x) dE/dr_ij
- ``edge_atom_virial(edge_vec, edge_grad, edge_index, nall, centroid) -> [nall, 3, 3]``: each term
  half to both ends, or (centroid) all to the neighbour
- ``edge_scatter(values [E, w], edge_index, nall, centre, neighbor) -> [nall, w]`` and its transpose
  ``edge_gather(atoms [nall, w], edge_index, centre, neighbor) -> [E, w]``: what the others are
  made of

``torch.classes.pwmlff.DPEngine(model_file, precision, present)`` is the fused engine for Deep
Potentials; its methods are described in kernels/dp/binding.cpp.
"""

from __future__ import annotations

import os

import torch

from pwmlff.plugin import library

_plugin = library()
if _plugin is None:
    raise ImportError(
        "pair-pwmlff is not compiled: install it with pip before importing its kernels"
    )

#: Path of the library with the kernels.
LIBRARY = os.path.join(os.path.dirname(_plugin), "libpwmlff_kernels.so")
torch.ops.load_library(LIBRARY)
