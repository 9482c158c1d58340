"""ZBL in a potential that is trained: for which pairs of elements, and from where to where.

Data of simulations have no atoms that nearly touch, and what a network makes of such pairs can be
anything, a hole included. ZBL ends at MARGIN of the closest distance of each pair of elements in
the data. So it is zero in all that is learned from, labels included, and rises below. Between
the two is room for structures like the data: another sample comes a little closer than this one.
ZBL would add eV/angstrom there that no label asks for and no validation sees.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
from ase.data import chemical_symbols, covalent_radii

from pwmlff.data.neighbors import Edges
from pwmlff.evaluation.nep_file import ZBL_TABLE, Nep, universal_zbl
from pwmlff.models import DP
from pwmlff.report import Failure

log = logging.getLogger(__name__)

#: Pairs of elements that come closer than this share of the sum of their covalent radii (Cordero et
#: al. 2008, doi:10.1039/b801115j) tell themselves how they repel each other; hot oxides come to
#: 0.7 of it, and do not.
CLOSE = 0.6
MARGIN = 0.9  # of the closest distance in the data
INNER = 0.7  # of the outer radius: from there on inwards ZBL is whole


def choose(
    model: DP, data: Sequence[Edges], repulsion: str, known: list[list[float]] | None
) -> None:
    """Give a Deep Potential the ZBL that its data ask for, and say so.

    Args:
        model: whose `zbl_radii` are set.
        data: neighbors in the frames that it learns from, and in those to validate with.
        repulsion: [model] repulsion: "zbl", "none", or "auto".
        known: radii of the model that a fine-tuning begins with; None for a new one. With "auto"
            pairs without stay so, and no radius grows.

    Raises:
        Failure: ZBL is asked for, and units are not metal.
    """
    if repulsion == "zbl" and model.units != "metal":
        raise Failure(f"[model] repulsion is 'zbl' and units is '{model.units}', expected metal")
    model.zbl_radii = []
    if repulsion == "none" or model.units != "metal" or (repulsion == "auto" and known == []):
        return
    n = model.ntypes
    closest = _closest(data)
    old = np.array(known)[:, 1].reshape(n, n) if known else np.zeros((n, n))
    if repulsion == "zbl":
        wanted = np.full((n, n), True)
    elif known:
        wanted = old > 0.0
    else:
        wanted = closest >= CLOSE * _contact(model.atom_type)
    outer = _outer(model.atom_type, closest, old, wanted, model.Rmax)
    if wanted.any():
        model.zbl_radii = [[INNER * r, r] for r in outer.ravel().tolist()]


def in_nep(model: Nep, data: Sequence[Edges]) -> Nep:
    """A NEP with a table of ZBL that its data ask for, for all pairs, and say so.

    Args:
        model: new, or of a file; no radius that it has grows.
        data: neighbors in the frames that it learns from, and in those to validate with.
    """
    shape = (len(model.elements),) * 2
    old = np.zeros(shape) if model.zbl is None else model.zbl[..., 1]
    reach = float(model.cut_angular.min())
    outer = _outer(model.elements, _closest(data), old, np.full(shape, True), reach)
    table = universal_zbl(ZBL_TABLE, model.elements)
    table[..., 0], table[..., 1] = INNER * outer, outer
    return replace(model, zbl=table, zbl_line=ZBL_TABLE)


def _closest(data: Sequence[Edges]) -> np.ndarray:
    closest: np.ndarray = np.min([edges.closest for edges in data], axis=0)
    return closest


def _contact(elements: Sequence[int]) -> np.ndarray:
    radii = covalent_radii[np.array(elements)]
    contact: np.ndarray = radii[:, None] + radii
    return contact


def _outer(
    elements: Sequence[int], closest: np.ndarray, old: np.ndarray, wanted: np.ndarray, reach: float
) -> np.ndarray:
    """Outer radii [ntypes, ntypes], zero where none is wanted; said in the log."""
    known = np.isfinite(closest)
    outer = np.minimum(np.where(known, MARGIN * closest, _contact(elements)), reach)
    outer = np.where(old > 0.0, np.minimum(old, outer), outer)
    outer = np.where(wanted, outer, 0.0)
    pairs = [
        f"{chemical_symbols[elements[i]]}-{chemical_symbols[elements[j]]} {outer[i, j]:.3g}"
        for i, j in combinations_with_replacement(range(len(elements)), 2)
        if wanted[i, j]
    ]
    if pairs:
        log.info("ZBL repels atoms below, in Å: %s", ", ".join(pairs))
    return outer
