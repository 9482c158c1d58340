"""Run the code of a model file once, as lmp will, and say plainly what is wrong with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from ase import Atoms

from pwmlff.evaluation import archive
from pwmlff.evaluation.edge_graph import further_inputs
from pwmlff.evaluation.engine import Engine
from pwmlff.evaluation.model_file import ModelInfo, to_its_dtype
from pwmlff.evaluation.structures import neighbor_list, random_cluster
from pwmlff.report import last_line

#: Largest difference of the derivative and of differences of the energy, as a share of the former.
#: Float64 gives 1e-7; float32 inside, or a part that is detached, far more.
DERIVATIVE_GATE = 1e-5
#: Largest difference of energies of atoms in another order, as a share of the largest of them (at
#: least 1): that of models/verification.cpp.
ORDER_GATES = {torch.float64: 1e-10, torch.float32: 5e-6}
ROUNDED = 8  # roundings of an energy that its difference may hold
STEP = 1e-5  # of a difference of the energy, in cutoffs
ROUNDING = 1e-9  # of a range that is a multiple of the cutoff


def padded(engine: Engine, info: ModelInfo) -> str:
    """What keeps the forward of a DP from running; empty where nothing does."""
    try:
        with archive.time_limit(f"'{info.file}': its forward on a test cluster"):
            engine(random_cluster(info.cutoff, info.atom_type, info.limit))
    except (RuntimeError, ValueError, TypeError, torch.jit.Error) as error:
        return f"its forward failed on a test cluster: {last_line(error)}"
    return ""


def edges(module: torch.jit.ScriptModule, info: ModelInfo) -> str:
    """What keeps the forward of an EDGE model from running or from being right; or empty.

    Its range is tried by the pair style itself (models/verification.cpp). The cluster has as many
    atoms whose energies are asked for as others, and only those edges that lmp would pass for the
    interaction_range of the file. The module is of the type afterwards in which it computes.
    """
    try:
        _check_signature(module)
        with archive.time_limit(f"'{info.file}': its forward on a test cluster"):
            _check_energies(module, info, to_its_dtype(module))
    except _Wrong as wrong:
        return str(wrong)
    except (RuntimeError, ValueError, TypeError, torch.jit.Error) as error:
        reason = last_line(error)
        hint = "; inputs are float64: make tensors with dtype=edge_vec.dtype" * ("type" in reason)
        return f"its forward failed on a test cluster: {reason}{hint}"
    return ""


class _Wrong(Exception):
    """The model does not keep to the contract; the text says how."""


def _check_signature(module: torch.jit.ScriptModule) -> None:
    expected = "forward(Tensor edge_vec, Tensor edge_index, Tensor types, int nlocal) -> Tensor"
    if not hasattr(module, "forward"):
        raise _Wrong(f"it has no forward, expected {expected}")
    forward: Any = module.forward  # of which torch tells no more than that it can be called
    schema = forward.schema
    kinds = [argument.type.kind() for argument in schema.arguments[1:]]
    first = kinds[:4] == ["TensorType"] * 3 + ["IntType"]
    rest = all(argument.has_default_value() for argument in schema.arguments[5:])
    if not (first and rest and [r.type.kind() for r in schema.returns] == ["TensorType"]):
        hint = "; an argument without a type is a Tensor: write nlocal: int" * (
            kinds[:4] == ["TensorType"] * 4
        )
        raise _Wrong(f"its signature is {schema}, expected {expected}{hint}")


def _check_energies(module: torch.jit.ScriptModule, info: ModelInfo, dtype: torch.dtype) -> None:
    cluster = random_cluster(info.cutoff, info.atom_type, None)
    edge_vec, edge_index, types, nlocal = _inputs(cluster, info, dtype)
    nall = len(cluster)
    further = further_inputs(module, edge_vec, edge_index)

    energies = module(edge_vec.requires_grad_(), edge_index, types, nlocal, **further)
    if energies.shape != (nlocal,):
        hint = {
            (nall,): "; return energies[:nlocal]",
            (): "; return the energies of atoms, not their sum",
        }.get(tuple(energies.shape), "")
        raise _Wrong(
            f"its forward gives energies of shape {list(energies.shape)} for {nlocal} of {nall} "
            f"atoms, expected [{nlocal}]{hint}"
        )
    if energies.dtype not in (dtype, torch.float64):
        raise _Wrong(
            f"its forward gives energies in {energies.dtype}, expected {edge_vec.dtype} as the "
            "inputs are: make tensors with dtype=edge_vec.dtype"
        )
    gradient = None
    if energies.requires_grad:
        (gradient,) = torch.autograd.grad(energies.sum(), edge_vec, allow_unused=True)
    if gradient is None:
        raise _Wrong(
            "its energies do not depend on edge_vec, so there are no forces; look for detach(), "
            "torch.no_grad() or item() in its forward"
        )
    if not energies.isfinite().all() or not gradient.isfinite().all():
        raise _Wrong("its forward gives energies or forces that are no numbers on a test cluster")

    generator = torch.Generator().manual_seed(0)
    step = STEP * info.cutoff * torch.randn(edge_vec.shape, generator=generator).to(dtype)
    with torch.no_grad():
        plus, minus = (
            module(edge_vec + s, edge_index, types, nlocal, **further) for s in (step, -step)
        )
    change = gradient * step
    # Atom by atom, as the energies of atoms may be so large that their sum keeps no digit of it;
    # what rounding leaves of each is no fault.
    difference = ((plus - minus) / 2).sum() - change.sum()
    rounding = torch.finfo(dtype).eps * energies.detach().abs().sum()
    scale = change.norm().clamp(min=1e-300)
    error = float(difference.abs() / scale)
    if not difference.abs() <= DERIVATIVE_GATE * scale + ROUNDED * rounding:
        raise _Wrong(
            f"the derivative of its energies is off by {error:.0e} on a test cluster; look for "
            "float32, detach() or item() in its forward"
        )

    # The same atoms in another order, and the edges of each center in another one.
    rng = np.random.default_rng(1)
    order = np.r_[rng.permutation(nlocal), nlocal + rng.permutation(nall - nlocal)]
    shuffled = Atoms(cluster.numbers[order], cluster.positions[order])
    with torch.no_grad():
        inputs = _inputs(shuffled, info, dtype, rng)
        again = module(*inputs, **further_inputs(module, *inputs[:2]))
    expected = energies.detach()[torch.from_numpy(order[:nlocal])]
    gate = ORDER_GATES[dtype] * max(1.0, float(expected.abs().max()))
    if not (again - expected).abs().max() <= gate:
        raise _Wrong(
            "its energies depend on the order of the atoms; look for indices of atoms or edges in "
            "its forward"
        )


def _inputs(
    cluster: Atoms, info: ModelInfo, dtype: torch.dtype, shuffle: np.random.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Arguments of the forward: the edges that energies of the first half may depend on.

    Edges are in ascending order of centers; with `shuffle` those of one center are in any.
    """
    nlocal = len(cluster) // 2
    i, j, vectors = neighbor_list("ijD", cluster, info.cutoff)
    if shuffle is not None:
        order = shuffle.permutation(len(i))
        order = order[np.argsort(i[order], kind="stable")]
        i, j, vectors = i[order], j[order], vectors[order]
    starts = np.arange(len(cluster)) < nlocal
    for _ in range(math.ceil(info.interaction_range / info.cutoff - ROUNDING) - 1):
        starts[j[starts[i]]] = True
    keep = starts[i]
    types = torch.tensor([info.atom_type.index(z) for z in cluster.numbers])
    ends = torch.from_numpy(np.stack((i, j))[:, keep])
    return torch.from_numpy(vectors[keep]).to(dtype), ends, types, nlocal
