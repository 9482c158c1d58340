"""The kernels of training against autograd through the model, finite differences and each other."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from labelled_structures import frames_of
from pwmlff.data import neighbors
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.models import DP, pad_neighbors
from pwmlff.train.gradient import DPGradient, spline_coefficients
from systems import System

SYSTEM = System(
    elements=(8, 72),
    numbers=(8, 72, 8, 8, 72, 8),
    cell=((4.6, 0.0, 0.0), (0.9, 4.8, 0.0), (-0.5, 0.6, 5.0)),
    rmax=4.5,
    max_neighbor=60,
)
#: Frames of other sizes: one element alone, one atom without neighbors, a cluster.
SHAPES = (
    SYSTEM,
    replace(SYSTEM, numbers=(72, 72, 72)),
    replace(SYSTEM, numbers=(8,), pbc=(False, False, False)),
    replace(SYSTEM, numbers=(8,) * 9 + (72,) * 8, pbc=(False, False, False),
            cell=((7.0, 0.0, 0.0), (0.0, 7.0, 0.0), (0.0, 0.0, 7.0))),
)  # fmt: skip


def frames_and_edges(atoms: list) -> tuple[Frames, Edges]:
    frames = frames_of(atoms)
    return frames, neighbors.find_edges(frames, SYSTEM.elements, SYSTEM.rmax)


ATOMS = [system.atoms(seed=k) for k, system in enumerate(SHAPES)]


def gradient(nodes: int = 64, precision: str = "float64", threads: int = 1) -> DPGradient:
    return DPGradient(SYSTEM.model(), *frames_and_edges(ATOMS), nodes, precision, threads)


def weights(n: int, natoms: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.normal(size=(natoms, 3)), rng.normal(size=(n, 3, 3))


def by_autograd(model: DP, a, v, w) -> tuple[list, np.ndarray]:
    """E, F, W of each frame, and the gradient of the sum of S by the parameters."""
    model.train()
    total, found, begin = 0.0, [], 0
    for k, atoms in enumerate(ATOMS):
        inputs = pad_neighbors(atoms, SYSTEM.elements, SYSTEM.rmax, SYSTEM.max_neighbor)
        energy, _, force, _, virial = model(*inputs)
        rows = slice(begin, begin + len(atoms))
        begin += len(atoms)
        total = total + a[k] * energy.sum() + (force[0] * torch.from_numpy(v[rows])).sum()
        total = total + (virial[0] * torch.from_numpy(w[k].ravel())).sum()
        found.append([t.detach().numpy() for t in (energy[0, 0], force[0], virial[0])])
    parts = torch.autograd.grad(total, list(model.parameters()))
    return found, np.concatenate([p.numpy().ravel() for p in parts])


def test_autograd_of_the_model() -> None:
    """Splines converge to the nets with the third power of the spacing of nodes, or faster."""
    a, v, w = weights(len(ATOMS), sum(map(len, ATOMS)))
    found, expected = by_autograd(SYSTEM.model(), a, v, w)
    errors = []
    for nodes in (100, 200, 400):
        core = gradient(nodes)
        core.prepare(core.read())
        energy, force, virial = core.evaluate(np.arange(len(ATOMS)))
        row = core.gradients(a, v, w).sum(0)
        difference = core.finish(row) - expected
        errors.append(
            [
                np.abs(energy - [f[0] for f in found]).max(),
                np.abs(force - np.concatenate([f[1] for f in found])).max(),
                np.abs(virial.reshape(-1, 9) - [f[2] for f in found]).max(),
                np.linalg.norm(difference) / np.linalg.norm(expected),
            ]
        )
    largest = [1.0, *(max(np.abs(f[k]).max() for f in found) for k in (1, 2)), 1.0]
    assert (np.array(errors[-1]) / largest < 1e-6).all(), errors
    assert errors[0][3] > 30.0 * errors[-1][3], errors


def test_forces_and_virial_are_derivatives() -> None:
    """Of the energy by positions and strain, with the splines."""
    core = gradient()
    core.prepare(core.read())
    _, force, virial = core.evaluate(np.arange(len(ATOMS)))
    low, rng, step = core.low, np.random.default_rng(3), 1e-5

    def energy(change) -> float:
        moved = [atoms.copy() for atoms in ATOMS]
        change(moved)
        other = DPGradient(SYSTEM.model(), *frames_and_edges(ATOMS + moved), 64, "float64")
        other.low = low
        other.set_nodes(64)
        other.prepare(other.read())
        return float(other.evaluate(np.arange(len(ATOMS), 2 * len(ATOMS)))[0].sum())

    shift = rng.normal(size=force.shape)

    def move(sign: float):
        def change(moved) -> None:
            begin = 0
            for atoms in moved:
                atoms.positions += sign * step * shift[begin : begin + len(atoms)]
                begin += len(atoms)

        return change

    def strain(sign: float):
        def change(moved) -> None:
            for atoms in moved:
                atoms.set_cell(np.asarray(atoms.cell) @ (np.eye(3) + sign * step * e), True)

        return change

    expected = (energy(move(-1.0)) - energy(move(1.0))) / (2 * step)
    assert (force * shift).sum() == pytest.approx(expected, rel=1e-7)
    e = rng.normal(size=(3, 3))
    expected = (energy(strain(-1.0)) - energy(strain(1.0))) / (2 * step)
    assert (virial.sum(0) * e).sum() == pytest.approx(expected, rel=1e-6)


def test_frames_threads_and_order_change_no_bit() -> None:
    core = gradient(threads=1)
    core.prepare(core.read())
    n = len(ATOMS)
    a, v, w = weights(n, sum(map(len, ATOMS)))
    energy, force, virial = core.evaluate(np.arange(n))
    rows = core.gradients(a, v, w)
    begin = np.r_[0, np.cumsum([len(atoms) for atoms in ATOMS])]
    for threads, order in ((3, [2, 0, 3, 1]), (2, [3]), (1, [1, 1])):
        core.threads = threads
        found = core.evaluate(np.array(order))
        atoms = np.concatenate([np.arange(begin[k], begin[k + 1]) for k in order])
        again = core.gradients(a[order], v[atoms], w[order])
        for one, other in zip(
            (energy[order], force[atoms], virial[order], rows[order]), (*found, again), strict=True
        ):
            assert np.array_equal(one, other)


def test_gradients_are_linear_and_may_be_asked_again() -> None:
    core = gradient()
    core.prepare(core.read())
    core.evaluate(np.arange(len(ATOMS)))
    one, other = (weights(len(ATOMS), sum(map(len, ATOMS)), seed) for seed in (4, 5))
    parts = core.gradients(*one) + 2.0 * core.gradients(*other)
    whole = core.gradients(*(x + 2.0 * y for x, y in zip(one, other, strict=True)))
    assert np.abs(parts - whole).max() < 1e-12 * np.abs(whole).max()


def test_every_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline code gives what the best of this processor gives, but for rounding."""
    a, v, w = weights(len(ATOMS), sum(map(len, ATOMS)))
    results = []
    for isa in ("", "baseline"):
        monkeypatch.setenv("PWMLFF_CPU", isa)
        core = gradient()
        core.prepare(core.read())
        found = core.evaluate(np.arange(len(ATOMS)))
        rows = core.gradients(a, v, w)
        results.append((*found, rows, core.finish(rows.sum(0))))
    for best, baseline in zip(*results, strict=True):
        assert np.abs(best - baseline).max() < 1e-11 * np.abs(best).max()


def test_splines_are_those_of_scipy() -> None:
    """Of a cubic, which they repeat, where it is flat at its end."""
    nodes = 9
    x = np.linspace(0.0, 1.0, nodes)
    c = spline_coefficients(nodes) @ (1.0 - x) ** 2
    u = 0.3
    basis = np.array(
        [(1 - u) ** 3, 3 * u**3 - 6 * u**2 + 4, -3 * u**3 + 3 * u**2 + 3 * u + 1, u**3]
    )
    for k in range(nodes - 1):
        node = (k + u) / (nodes - 1)
        assert c[k : k + 4] @ basis / 6.0 == pytest.approx((1.0 - node) ** 2, abs=1e-13)


def test_forked_child() -> None:
    """Threads that have started stay with the parent; the child has the same numbers without."""
    core = gradient(threads=3)
    a, v, w = weights(len(ATOMS), sum(map(len, ATOMS)))

    def numbers() -> np.ndarray:
        core.prepare(core.read())
        core.evaluate(np.arange(len(ATOMS)))
        return core.finish(core.gradients(a, v, w).sum(0))

    expected = numbers()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(not np.array_equal(numbers(), expected))
    assert os.waitpid(child, 0)[1] == 0


def test_what_does_not_fit_is_refused() -> None:
    core = gradient()._core
    frames, e = frames_and_edges(ATOMS)
    tensors = [torch.from_numpy(x) for x in (frames.first, e.types, e.count, e.first, e.rij, e.j)]
    for place, bad, text in (
        (1, tensors[1] + 1, "has type 2"),
        (1, tensors[1].long(), "species is"),
        (2, tensors[2] + 1, "edges and counts"),
        (5, tensors[5] + 100, "to atoms 0 to"),
        (0, tensors[0] + 1, "rise from 0"),
        (4, tensors[4].float(), "rij is"),
    ):
        given = list(tensors)
        given[place] = bad
        with pytest.raises(ValueError, match=text):
            core.set_frames(*given)
    core = gradient()
    core.prepare(core.read())
    with pytest.raises(ValueError, match="frame 9 is asked for"):
        core.evaluate(np.array([9]))
    core.evaluate(np.array([0]))
    with pytest.raises(ValueError, match="v is"):
        core.gradients(np.ones(1), np.ones((3, 3)))


def test_nothing_is_taken_for_evaluated_that_is_not() -> None:
    """After an error gradients have no frame to go on from, and write none."""
    core = gradient()
    core.prepare(core.read())
    for call, bad, text in (
        (core.evaluate, np.array([9]), "frame 9"),
        (core.prepare, core.read()[1:], "parameters is"),
    ):
        core.evaluate(np.arange(len(ATOMS)))
        with pytest.raises(ValueError, match=text):
            call(bad)
        if call == core.prepare:
            core.prepare(core.read())
        with pytest.raises(ValueError, match="a is"):
            core.gradients(*weights(len(ATOMS), sum(map(len, ATOMS))))
    assert core.gradients(np.zeros(0), np.zeros((0, 3)), np.zeros((0, 3, 3))).shape[0] == 0
