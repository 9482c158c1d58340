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

``torch.classes.pwmlff.DPTraining`` has gradients of energies, forces and virials of a Deep
Potential by its parameters. Its methods are described in models/ops/, and one thread may call them
at a time. What opens model files, networks and engines is :mod:`pwmlff.native`.
"""

from __future__ import annotations

import functools
import os

import torch

from pwmlff import native

#: Path of the library with all that; the environment variable PWMLFF_MODELS_LIB names another.
LIBRARY = native.torch_library()
torch.ops.load_library(LIBRARY)
# Threads of torch stay behind in the parent, and would be waited for for ever. The kernels keep to
# one thread there by themselves (kernels/core/threads.h).
os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))
