"""Adam against torch's, the schedule against its formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pwmlff.report import Failure
from pwmlff.train.adam import Adam, AdamOptions, Average, Schedule
from pwmlff.train.muon import Muon

N = 500


def problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrix, right-hand side and start of a least-squares problem with uneven scales."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-3, 2, N)
    return rng.normal(size=(N, N)) * scales / N, rng.normal(size=N), rng.normal(size=N)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_equals_torch(weight_decay: float, clip: float | None):
    a, b, start = problem()
    schedule = Schedule(peak=3e-3, warmup=0.1)
    options = AdamOptions(beta1=0.85, beta2=0.99, weight_decay=weight_decay, clip=clip)
    adam, x = Adam(N, options), start.copy()
    theirs = torch.nn.Parameter(torch.tensor(start))
    oracle = torch.optim.AdamW([theirs], betas=(0.85, 0.99), weight_decay=weight_decay)
    clipped = 0
    for step in range(300):
        rate = schedule.learning_rate(step / 300)
        norm = adam.step(x, a.T @ (a @ x - b), rate)
        oracle.param_groups[0]["lr"] = rate
        theirs.grad = torch.tensor(a.T @ (a @ theirs.detach().numpy() - b))
        if clip is not None and norm > clip:
            clipped += 1
            theirs.grad *= clip / theirs.grad.norm()
        oracle.step()
    assert clip is None or clipped > 100
    assert np.abs(x - start).max() > 0.1
    np.testing.assert_allclose(x, theirs.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_average_is_that_of_the_path():
    a, b, x = problem()
    adam, average = Adam(N), Average(N, 0.9)
    assert np.array_equal(average.value(x), x)
    path = []
    for _ in range(30):
        adam.step(x, a.T @ (a @ x - b), 1e-2)
        average.add(x)
        path.append(x.copy())
    # 0.9 is reached in step 82; before, a step weighs 9 / (t + 8), and the earlier ones the rest.
    weights = [
        9 / (t + 8) * np.prod([(k - 1) / (k + 8) for k in range(t + 1, 31)]) for t in range(1, 31)
    ]
    assert sum(weights) == pytest.approx(1.0)
    expected = np.average(path, axis=0, weights=weights)
    np.testing.assert_allclose(average.value(x), expected, rtol=1e-12)


def test_frozen_parameters_stay():
    a, b, start = problem()
    free = np.arange(N) % 3 > 0
    options = AdamOptions(weight_decay=0.1, clip=1.0)
    whole, part = Adam(N, options, free), Adam(int(free.sum()), options)
    x, y = start.copy(), start[free]
    for _ in range(20):
        gradient = a.T @ (a @ x - b)
        kept = gradient.copy()
        assert whole.step(x, gradient, 1e-2) == pytest.approx(part.step(y, gradient[free], 1e-2))
        assert np.array_equal(gradient, kept)
    assert np.array_equal(x[~free], start[~free])
    np.testing.assert_allclose(x[free], y, rtol=1e-12)


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_energies_of_single_atoms_do_not_decay(kind: str):
    """What is not to decay goes as if nothing did; all else as if all did."""
    shapes, rng = [(10, 12), (7,)], np.random.default_rng(3)
    gradients = rng.normal(size=(20, 127))
    kept = np.array([3, 121, 126])

    def path(weight_decay: float, undecayed: np.ndarray | None) -> np.ndarray:
        options, x = AdamOptions(weight_decay=weight_decay), np.linspace(1.0, 9.0, 127)
        rule = (
            Adam(127, options, None, undecayed)
            if kind == "adam"
            else Muon(shapes, options, None, undecayed)
        )
        for gradient in gradients:
            rule.step(x, gradient, 1e-2)
        return x

    found, others = path(0.5, kept), np.delete(np.arange(127), kept)
    np.testing.assert_allclose(found[kept], path(0.0, None)[kept], rtol=1e-12)
    np.testing.assert_allclose(found[others], path(0.5, None)[others], rtol=1e-12)
    assert (found[kept] > path(0.5, None)[kept] + 0.05).all()


def test_ten_and_ten_steps_are_twenty():
    a, b, start = problem()
    Both = tuple[Adam, Average]

    def made() -> Both:
        return Adam(N, AdamOptions(clip=0.1)), Average(N, 0.99)

    def go(both: Both, x: np.ndarray, steps: int) -> None:
        for _ in range(steps):
            both[0].step(x, a.T @ (a @ x - b), 1e-2)
            both[1].add(x)

    once, x = made(), start.copy()
    go(once, x, 20)
    first, y = made(), start.copy()
    go(first, y, 10)
    states = [one.state() for one in first]
    go(first, start.copy(), 5)  # what is kept does not change with it
    second = made()
    for one, state in zip(second, states, strict=True):
        one.restore(state)
    go(second, y, 10)
    assert x.tobytes() == y.tobytes()
    assert once[1].value(x).tobytes() == second[1].value(y).tobytes()
    for one, other in zip(once, second, strict=True):
        assert all(one.state()[k].tobytes() == v.tobytes() for k, v in other.state().items())


def test_schedule():
    linear = Schedule(peak=2.0, warmup=0.1, decay=0.4, start=0.5, final=0.1)
    found = [linear.learning_rate(f) for f in (-1, 0, 0.05, 0.1, 0.3, 0.6, 0.8, 1, 2)]
    assert found == pytest.approx([1, 1, 1.5, 2, 2, 2, 1.1, 0.2, 0.2])
    to_zero = Schedule(peak=2.0, warmup=0, decay=0.5, final=0.0)
    assert to_zero.learning_rate(0) == 2.0
    assert to_zero.learning_rate(0.625) == pytest.approx(1.5)
    assert to_zero.learning_rate(1) == 0.0
    assert [Schedule(decay=0, warmup=0).learning_rate(f) for f in (0, 0.5, 1)] == [2e-3] * 3


def test_what_does_not_fit_changes_nothing():
    a, b, x = problem()
    adam = Adam(N)
    adam.step(x, a.T @ (a @ x - b), 1e-2)
    before, kept = adam.state(), x.copy()
    with pytest.raises(Failure, match=r"norm nan in step 2, expected a finite one"):
        adam.step(x, np.where(np.arange(N) == 7, np.nan, 1.0), 1e-2)
    with pytest.raises(Failure, match=r"of another model, or was written without an average"):
        Average(N, 0.9).restore(Average(2, 0.9).state())
    with pytest.raises(Failure, match=r"with \{'m': \[2\].* of another model or optimizer"):
        adam.restore(Adam(2).state())
    assert np.array_equal(x, kept)
    assert all(np.array_equal(before[k], v) for k, v in adam.state().items())
