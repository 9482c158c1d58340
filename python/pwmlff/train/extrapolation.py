"""How far an atom is from what a Deep Potential was trained on: the extrapolation grade gamma.

The last hidden layer y [n] of the fitting net of an element has a mean m and a covariance C over
the atoms of that element in the training data. With the square root of the inverse of C::

    g = |C^(-1/2) (y - m)| / q

q is the distance that QUANTILE of these atoms are below, each as if left out of m and C by its
leverage (Cook & Weisberg 1982, Residuals and Influence in Regression). g is below 1 for what is
like the data, and grows with the distance. The model file keeps m and F / q, where F is the
triangle of which |F v| = |C^(-1/2) v|.

That is the grade of the energy of an atom. The force on it is a derivative of the energies of all
atoms within the cutoff R. So its grade is the root mean square of theirs, the near ones first::

    gamma_i^2 = (g_i^2 + sum_j w_ij g_j^2) / (1 + sum_j w_ij), w_ij = (1 - r_ij^2 / R^2)^8

The energy is linear in y. So this is to the last layer what the grade of Podryabinkin and Shapeev
(2017, doi:10.1016/j.commatsci.2017.08.031) is to a linear potential. The covariance takes the place
of their active set, as it does in Bigi et al. 2024, doi:10.1088/2632-2153/ad805f.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import torch
from ase.data import chemical_symbols

from pwmlff.data.frames import Frames
from pwmlff.evaluation import model_file
from pwmlff.evaluation.padding import pad_neighbors
from pwmlff.models import DP, save_model
from pwmlff.threads import torch_threads
from pwmlff.train import potential

log = logging.getLogger(__name__)

QUANTILE = 0.999
#: Smallest eigenvalue of a covariance, as a share of the largest: below, float32 is noise.
FLOOR = 1e-6
MOST_ATOMS = 5_000  # that are looked at, of frames all over the data
FEWEST = 4  # atoms of an element for each number of the layer


def add(path: Path, frames: Frames) -> None:
    """Let a model file of kind DP tell gamma; it stays as it is where the data are too few.

    Args:
        path: of the file, which is written anew.
        frames: that the model has learned from.
    """
    model, card = potential.of_file(path), model_file.describe_unopened(path).card
    with torch_threads(1):  # others wait for each other at each product, long on a busy machine
        layers = last_hidden(model, frames)
    for z, rows in zip(model.atom_type, layers, strict=True):
        needed = FEWEST * rows.shape[1]
        if len(rows) < needed:
            log.info(
                "'%s' tells no extrapolation grade: %s has %d atoms in the data, expected %d",
                *(path.name, chemical_symbols[z], len(rows), needed),
            )
            return
    grades = [grade(rows) for rows in layers]
    model.grade_mean = torch.from_numpy(np.stack([mean for mean, _ in grades]))
    model.grade_factor = torch.from_numpy(np.stack([factor for _, factor in grades]))
    save_model(model, path, card, record=False)


def last_hidden(model: DP, frames: Frames) -> list[np.ndarray]:
    """The last hidden layer [natoms, n] of the atoms of each element, of some of the frames."""
    layers: list[list[np.ndarray]] = [[] for _ in model.atom_type]
    hooks = [
        net.layers[-1].register_forward_pre_hook(
            lambda _, inputs, k=k: layers[k].append(inputs[0].detach().numpy())
        )
        for k, net in enumerate(model.fitting_net)
    ]
    every = -(-len(frames.numbers) // MOST_ATOMS)
    for k in range(0, len(frames), every):
        inputs = pad_neighbors(
            frames.structure(k), model.atom_type, model.Rmax, model.maxNeighborNum
        )
        model(*inputs, is_calc_f=False)
    for hook in hooks:
        hook.remove()
    widths = [net.layers[-1].weight.shape[0] for net in model.fitting_net]
    return [
        np.concatenate([np.zeros((0, width)), *parts])
        for width, parts in zip(widths, layers, strict=True)
    ]


def grade(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean [n] and the factor [n, n] of g = |factor (y - mean)|.

    Args:
        rows: [natoms, n], more than n.
    """
    natoms = len(rows)
    mean = rows.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(rows, rowvar=False, ddof=1).reshape(rows.shape[1], -1))
    # The covariance of numbers that are all the same is zero.
    values = np.maximum(values, FLOOR * max(values[-1], np.finfo(float).tiny / FLOOR))
    # Of a triangle there is half as much to multiply as of the root.
    factor = np.linalg.qr((vectors / np.sqrt(values)).T)[1]
    squares = np.square((rows - mean) @ factor.T).sum(axis=1)
    leverage = squares * natoms / (natoms - 1) ** 2
    left_out = squares * (natoms - 2) / (natoms - 1) * (natoms / (natoms - 1)) ** 2
    distances = np.sqrt(left_out / np.maximum(1.0 - leverage, 1e-12))
    return mean, factor / (np.quantile(distances, QUANTILE) or 1.0)
