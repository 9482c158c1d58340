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

``torch.classes.pwmlff.Model`` is a model file with the engine that pair_style pwmlff would choose,
``DPEngine`` a fused engine for Deep Potentials by itself, and ``DPTraining`` has gradients of
energies, forces and virials by the parameters. Their methods are described in models/ops/, and one
thread may call them at a time.
"""

from __future__ import annotations

import functools
import os

import torch

from pwmlff import plugin


def _find() -> str:
    plugin_path = plugin.library()
    default = plugin_path and plugin.sister(plugin_path, "pwmlff_torch")
    path = os.environ.get("PWMLFF_MODELS_LIB", default)
    if path is None:
        raise ImportError("found no compiled pair-pwmlff: install it with pip to have its kernels")
    # torch takes the operators of one library, which registers itself with one library of models.
    # Those of a plugin may serve us, if they are the same.
    for name in ("pwmlff_torch", "pwmlff_models"):
        loaded = plugin.in_process(name)
        if loaded is None:
            continue
        found = plugin.sister(loaded, "pwmlff_torch")
        if os.path.realpath(found) == os.path.realpath(path):
            return path
        ours, theirs = plugin.origin(path), plugin.origin(loaded)
        if not ours or ours != theirs:
            raise ImportError(
                f"this process has '{loaded}' of {theirs or 'another release'} already, and "
                f"'{path}' is {ours or 'of another release'}: use one of them here (import pwmlff "
                "and plugin load would have to be of one installation), or two processes"
            )
        return found
    return path


#: Path of the library with all that; the environment variable PWMLFF_MODELS_LIB names another.
LIBRARY = _find()
torch.ops.load_library(LIBRARY)
# Threads of torch stay behind in the parent, and would be waited for for ever. The kernels keep to
# one thread there by themselves (kernels/common/threads.h).
os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))
