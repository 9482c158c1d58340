"""ZBL in a Deep Potential that is trained: for which pairs of elements, and from where to where.

Data of simulations have no atoms that nearly touch, and what a network makes of such pairs can be
anything, a hole included. ZBL ends at the closest distance of each pair of elements in the data, so
that it is zero in all that is learned from, labels included, and rises below.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from ase.data import chemical_symbols, covalent_radii

from pwmlff.data.neighbors import Edges
from pwmlff.models import DP
from pwmlff.report import Failure

log = logging.getLogger(__name__)

#: Pairs of elements that come closer than this share of the sum of their covalent radii (Cordero et
#: al. 2008, doi:10.1039/b801115j) tell themselves how they repel each other.
CLOSE = 0.8
INNER = 0.7  # of the outer radius: from there on inwards ZBL is whole


def choose(
    model: DP, data: Sequence[Edges], repulsion: str, known: list[list[float]] | None
) -> None:
    """Give a model the ZBL that its data ask for, and say so.

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
    closest = np.min([edges.closest for edges in data], axis=0)
    radii = covalent_radii[np.array(model.atom_type)]
    contact = radii[:, None] + radii
    outer = np.where(np.isfinite(closest), closest, np.minimum(contact, model.Rmax))
    wanted = np.full((n, n), True) if repulsion == "zbl" else closest >= CLOSE * contact
    if known:
        old = np.array(known)[:, 1].reshape(n, n)
        if repulsion == "auto":
            wanted = old > 0.0
        outer = np.where(old > 0.0, np.minimum(old, outer), outer)
    if not wanted.any():
        return
    outer = np.where(wanted, outer, 0.0)
    model.zbl_radii = [[INNER * r, r] for r in outer.ravel().tolist()]
    symbols = [chemical_symbols[z] for z in model.atom_type]
    told = [
        f"{symbols[i]}-{symbols[j]} {outer[i, j]:.3g}"
        for i, j in combinations_with_replacement(range(n), 2)
        if wanted[i, j]
    ]
    log.info("ZBL repels atoms below, in Å: %s", ", ".join(told))
