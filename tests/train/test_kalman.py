"""The Kalman filter against textbook equations with dense matrices, and its measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pwmlff import plugin
from pwmlff.data.frames import Frames
from pwmlff.train import kalman, steps
from pwmlff.train.comm import SharedFailure
from pwmlff.train.kalman import GroupOptions, Kalman, KalmanOptions
from thread_ranks import Thread, on_ranks

LAYERS = [("a", (10, 30)), ("b", (30,)), ("c", (30, 13)), ("d", (13,)), ("e", (1,)), ("f", (7,))]
N = 741


def measurements(count: int, n: int = N) -> list[tuple[np.ndarray, float, float]]:
    """Gradients, errors and noises; the gradients lie near a plane of few dimensions."""
    rng = np.random.default_rng(5)
    plane = rng.normal(size=(6, n))
    return [
        (
            plane.T @ rng.normal(size=6) + 0.1 * rng.normal(size=n),
            float(abs(rng.normal())),
            float(rng.uniform(0.5, 2)),
        )
        for _ in range(count)
    ]


class Dense:
    """P as one matrix, zero between the blocks."""

    def __init__(self, sizes: list[int], options: KalmanOptions) -> None:
        n = sum(sizes)
        self.o, self.sizes, self.p, self.forgetting = options, sizes, options.p0 * np.eye(n), None
        owner = np.repeat(np.arange(len(sizes)), sizes)
        self.within = owner[:, None] == owner[None, :]
        self.forgetting = options.lambda0

    def update(self, x: np.ndarray, h: np.ndarray, error: float, noise: float) -> None:
        ph = self.p @ h
        s = self.forgetting * noise * (len(self.sizes) if self.o.matpl else 1) + h @ ph
        x += ph * error / s
        self.p = np.where(self.within, self.p - np.outer(ph, ph) / s, 0) / self.forgetting
        self.forgetting = self.o.nu * self.forgetting + 1 - self.o.nu


@pytest.mark.parametrize(
    "block,matpl", [(7, False), (100, True), (100, False), (320, False), (5120, False)]
)
def test_equals_the_dense_filter(block: int, matpl: bool):
    options = KalmanOptions(block=block, p0=2.0, nu=0.95, matpl=matpl)
    lazy = Kalman(LAYERS, options)
    dense = Dense(lazy.sizes, options)
    x = np.random.default_rng(1).normal(size=N)
    y = x.copy()
    for k, (h, error, noise) in enumerate(measurements(50)):
        expected = h @ dense.p @ h
        assert lazy.update(x, h, error, noise) == pytest.approx(expected, rel=1e-9)
        dense.update(y, h, error, noise)
        if k in {4, 15, 16, 40, 49}:  # within and at the end of what is kept as vectors
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)
            first = np.r_[0, np.cumsum(lazy.sizes)]
            for b in range(len(lazy.sizes)):
                rows = slice(first[b], first[b + 1])
                np.testing.assert_allclose(lazy.covariance(b), dense.p[rows, rows], atol=1e-9)
    assert lazy.forgetting == dense.forgetting


def test_linear_model_is_recursive_least_squares():
    """One block: a ridge with forgetting, solved at once from its normal equations."""
    n, count = 40, 70
    rng = np.random.default_rng(2)
    a, labels, noises = (
        rng.normal(size=(count, n)),
        rng.normal(size=count),
        rng.uniform(1, 3, count),
    )
    options = KalmanOptions(block=64, p0=0.5, lambda0=0.9, nu=0.98)
    lazy = Kalman([("w", (8, 5))], options)
    x0 = rng.normal(size=n)
    x, factors = x0.copy(), []
    for h, label, noise in zip(a, labels, noises, strict=True):
        factors.append(lazy.forgetting)
        lazy.update(x, h, label - h @ x, noise)
    later = np.r_[np.cumprod(factors[::-1])[::-1], 1.0]  # product of all factors from k on
    weights = later[1:] / noises
    prior = later[0] / options.p0
    expected = np.linalg.solve(
        (a.T * weights) @ a + prior * np.eye(n), (a.T * weights) @ labels + prior * x0
    )
    np.testing.assert_allclose(x, expected, rtol=1e-10, atol=1e-10)


def test_what_is_not_measured_grows_as_stated():
    options = KalmanOptions(block=1, lambda0=0.9, nu=0.97)
    lazy, x = Kalman([("w", (2,))], options), np.zeros(2)
    for _ in range(600):
        lazy.update(x, np.array([1.0, 0.0]), 0.1)
    growth = float(lazy.covariance(1)[0, 0])
    assert np.log(growth) == pytest.approx(0.1 / 0.03, rel=0.05)  # -log(lambda) is 1 - lambda
    still = Kalman([("w", (2,))], replace(options, lambda0=1.0))
    for _ in range(600):
        still.update(x, np.array([1.0, 0.0]), 0.1)
    assert still.covariance(1)[0, 0] == 1.0


def test_blocks_by_the_rule_of_the_paper():
    found = kalman.block_sizes
    assert found([300, 30, 390, 13, 1, 7], 320) == [300, 30, 320, 70, 21]
    assert found([300, 30, 390, 13, 1, 7], 5120) == [741]
    assert found([5, 0, 5, 1], 10) == [10, 1]
    assert found([10, 25, 3, 3], 10) == [10, 10, 10, 5, 6]
    assert found([], 10) == []
    assert kalman.shares([3, 5, 4, 4], 2) == [[0, 1], [2, 3]]  # 34 and 32
    assert kalman.shares([3], 3) == [[0], [], []]


def test_same_bits_on_any_number_of_ranks_and_after_a_restart():
    options = KalmanOptions(block=100, nu=0.95)
    updates = measurements(41)
    start = np.random.default_rng(1).normal(size=N)

    def go(filters: Kalman, x: np.ndarray, which: slice) -> None:
        for h, error, noise in updates[which]:
            filters.update(x, h, error, noise)

    def whole(comm: Thread) -> tuple[np.ndarray, dict]:
        x, lazy = start.copy(), Kalman(LAYERS, options, comm, threads=comm.size % 4)
        go(lazy, x, slice(None))
        return x, lazy.state()

    expected, state = on_ranks(1, whole)[0]
    for size in (2, 3, 9):
        for x, part in on_ranks(size, whole):
            assert x.tobytes() == expected.tobytes(), f"{size} ranks"
            assert all(state[name].tobytes() == part[name].tobytes() for name in part)

    def first(comm: Thread) -> tuple[np.ndarray, dict]:
        x, lazy = start.copy(), Kalman(LAYERS, options, comm)
        go(lazy, x, slice(21))
        return x, lazy.state()

    parts = on_ranks(3, first)
    x = parts[0][0]
    assert not {*parts[0][1]} >= {*parts[1][1]}  # each has its own blocks
    joined = {name: array for _, part in parts for name, array in part.items()}

    def second(comm: Thread) -> np.ndarray:
        y, lazy = x.copy(), Kalman(LAYERS, options, comm)
        lazy.restore({name: array for name, array in joined.items() if lazy.wants(name)})
        go(lazy, y, slice(21, None))
        return y

    for size in (1, 2, 3):
        assert all(y.tobytes() == expected.tobytes() for y in on_ranks(size, second))


def test_frozen_parameters_stay():
    """As if they were not there."""
    free = np.ones(N, bool)
    free[300:330] = free[720:734] = False
    layers = [(name, shape) for name, shape in LAYERS if name not in {"b", "d", "e"}]
    options = KalmanOptions(block=100)
    whole, part = Kalman(LAYERS, options, free=free), Kalman(layers, options)
    assert whole.sizes == part.sizes
    x = np.random.default_rng(1).normal(size=N)
    kept, y = x.copy(), x[free]
    for h, error, noise in measurements(20):
        whole.update(x, h, error, noise)
        part.update(y, h[free], error, noise)
    assert np.array_equal(x[~free], kept[~free])
    assert np.array_equal(x[free], y)


def test_memory_is_refused_before_it_is_taken(monkeypatch):
    sizes = kalman.block_sizes([56_002], 5120)
    assert sum(kalman.memory_of(sizes, 1)) == sum(8 * (n * (n + 1) // 2 + 16 * n) for n in sizes)
    two = kalman.memory_of(sizes, 2)
    assert sum(two) == sum(kalman.memory_of(sizes, 1))
    assert max(two) < 1.2 * min(two)
    assert kalman.available_memory() > 0
    monkeypatch.setattr(kalman, "available_memory", lambda: 2**30)

    def refused(comm: Thread) -> str:
        with pytest.raises(SharedFailure) as caught:
            Kalman([("w", (56_002,))], KalmanOptions(block=5120), comm)
        return str(caught.value)

    for text in on_ranks(2, refused):
        assert "block = 5120 needs 1.1 GiB on host" in text
        assert "(2 ranks), which has 1.0 GiB left: take smaller blocks" in text


def test_library_is_missing(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(steps, "library", steps.library.__wrapped__)
    monkeypatch.setattr(plugin, "library", lambda: str(tmp_path / plugin.FILE))
    with pytest.raises(ImportError, match=r"optimizer-.*\.so': .*; reinstall pair-pwmlff"):
        Kalman(LAYERS)
    monkeypatch.setattr(plugin, "library", lambda: None)
    with pytest.raises(ImportError, match="found no compiled pair-pwmlff: install it with pip to"):
        Kalman(LAYERS)


def test_what_does_not_fit_changes_nothing():
    lazy, x = Kalman(LAYERS), np.ones(N)
    (h, error, noise), *_ = measurements(1)
    lazy.update(x, h, error, noise)
    kept, before = x.copy(), {name: a.copy() for name, a in lazy.state().items()}
    for wrong, text in [
        ((h[1:], 1.0, 1.0), r"a gradient \[740\], expected \[741\]"),
        ((h, np.nan, 1.0), "the error nan, the noise 1.0 and a gradient up to .* in update 2"),
        ((h, 1.0, -1.0), "no negative noise"),
        ((h * np.where(np.arange(N) == 3, np.inf, 1), 1.0, 1.0), "a gradient up to inf"),
        ((h * 0, 1.0, 0.0), "one of them positive"),
    ]:
        with pytest.raises(ValueError, match=text):
            lazy.update(x, *wrong)
    others = Kalman(LAYERS, KalmanOptions(block=100))
    with pytest.raises(ValueError, match=r"of 5 blocks with 741 .* expected 9 blocks with 741"):
        others.restore(lazy.state())
    free = np.arange(N) >= 7
    moved = Kalman([*LAYERS[-1:], *LAYERS[:-1]], free=free)
    with pytest.raises(ValueError, match="choice of frozen parameters"):
        moved.restore(Kalman([*LAYERS[-1:], *LAYERS[:-1]], free=free[::-1].copy()).state())
    with pytest.raises(ValueError, match="expected bool"):
        Kalman(LAYERS, free=np.ones(3, bool))
    assert np.array_equal(x, kept)
    assert all(np.array_equal(before[name], a) for name, a in lazy.state().items())


@pytest.mark.parametrize(
    "make",
    [
        lambda: KalmanOptions(block=0),
        lambda: KalmanOptions(p0=0.0),
        lambda: KalmanOptions(lambda0=0.0),
        lambda: KalmanOptions(nu=1.1),
        lambda: GroupOptions(kinds=("stress",)),
        lambda: GroupOptions(groups=0),
        lambda: GroupOptions(group_size=0),
        lambda: GroupOptions(noises={"force": -1.0}),
    ],
)
def test_options_that_are_none(make):
    with pytest.raises(ValueError, match=r"found .*, expected"):
        make()


class Linear:
    """A model whose energies, forces and virials are linear in its parameters."""

    def __init__(self, frames: Frames, n: int) -> None:
        rng = np.random.default_rng(8)
        self.maps = {
            "energy": rng.normal(size=(len(frames), n)),
            "force": rng.normal(size=(*frames.forces.shape, n)),
            "virial": rng.normal(size=(*frames.virials.shape, n)),
        }
        self.x = rng.normal(size=n)

    def predict(self, kind: str) -> np.ndarray:
        return self.maps[kind] @ self.x

    def gradient(self, m: kalman.Measurement) -> np.ndarray:
        vectors = {"energy": m.a, "force": m.v, "virial": m.w}
        return sum(np.tensordot(v, self.maps[kind], v.ndim) for kind, v in vectors.items())


def batch(*natoms: int) -> Frames:
    """Frames of these sizes with random labels."""
    rng = np.random.default_rng(9)
    nframes, total = len(natoms), sum(natoms)
    return Frames(
        numbers=np.ones(total, np.int32), positions=np.zeros((total, 3)),
        cells=np.zeros((nframes, 3, 3)), pbc=np.ones((nframes, 3), bool),
        first=np.r_[0, np.cumsum(natoms)], energies=rng.normal(size=nframes),
        forces=rng.normal(size=(total, 3)), virials=rng.normal(size=(nframes, 3, 3)),
        group=np.zeros(nframes, np.int32), group_names=("",),
        weights=np.ones((nframes, 3)), file=np.zeros(nframes, np.int32),
        index=np.arange(nframes), files=("",),
    )  # fmt: skip


def test_measurements_are_mean_absolute_deviations():
    """The error and the gradient of each, from their definitions, with parameters that move."""
    frames = batch(9, 5, 2)
    model, seen, n = Linear(frames, 12), [], frames.natoms
    options = GroupOptions(("energy", "force", "virial"), groups=3, noises={"energy": 0.3})

    def update(h: np.ndarray, error: float, noise: float) -> None:
        seen.append((model.x.copy(), h, error, noise))
        model.x += 0.1 * h

    made = kalman.group_updates(
        frames, model.predict, model.gradient, update, np.random.default_rng(0), options
    )
    assert [m.kind for m in made] == ["energy", "force", "force", "force", "virial"]
    groups = [np.flatnonzero(m.v.any(axis=1)) for m in made[1:4]]
    assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(16))  # each atom once

    def deviation(kind: str, x: np.ndarray, atoms: np.ndarray) -> float:
        y = model.maps[kind] @ x
        if kind == "energy":
            return np.mean(np.abs(frames.energies - y) / n)
        if kind == "virial":
            return np.mean(np.abs(frames.virials - y) / n[:, None, None])
        return np.mean(np.abs(frames.forces - y)[atoms])

    for m, (x, h, error, noise), atoms in zip(made, seen, [None, *groups, None], strict=True):
        assert error == pytest.approx(deviation(m.kind, x, atoms), rel=1e-12)
        assert noise == (0.3 if m.kind == "energy" else 1.0)
        for k in range(12):  # the error falls along the gradient of the prediction
            step = 1e-6 * np.eye(12)[k]
            difference = deviation(m.kind, x + step, atoms) - deviation(m.kind, x - step, atoms)
            assert difference / 2e-6 == pytest.approx(-h[k], abs=1e-7)


def test_scaling_of_matpl():
    """Error: mean times sqrt(batch). Gradient: sum over the batch, of energies per atom."""
    frames = batch(24, 24, 24, 24)
    model = Linear(frames, 12)
    options = GroupOptions(groups=2, group_size=6, matpl=True)
    calls = []
    made = kalman.group_updates(
        frames, model.predict, model.gradient, lambda *a: calls.append(a),
        np.random.default_rng(0), options,
    )  # fmt: skip
    assert [m.kind for m in made] == ["energy", "force", "force"]
    deviations = frames.energies - model.predict("energy")
    assert calls[0][1] == pytest.approx(2 * np.mean(np.abs(deviations)) / 24)
    expected = np.sum(np.sign(deviations)[:, None] * model.maps["energy"], axis=0) / 24
    np.testing.assert_allclose(calls[0][0], expected, rtol=1e-12)
    for m, (h, error, _) in zip(made[1:], calls[1:], strict=True):
        atoms = np.flatnonzero(m.v.any(axis=1))
        assert np.bincount(atoms // 24).tolist() == [6] * 4
        deviations = (frames.forces - model.predict("force"))[atoms]
        assert error == pytest.approx(2 * np.mean(np.abs(deviations)) / 24)
        expected = np.tensordot(np.sign(deviations), model.maps["force"][atoms], 2) / (24 * 6 * 3)
        np.testing.assert_allclose(h, expected, rtol=1e-12)


def test_missing_labels_are_left_out():
    frames = batch(4, 3, 2)
    frames.energies[:] = np.nan
    frames.forces[4:7] = np.nan
    frames.virials[[0, 2]] = np.nan
    model = Linear(frames, 12)
    options = GroupOptions(("energy", "force", "virial"), groups=6)
    errors = []
    made = kalman.group_updates(
        frames, model.predict, model.gradient, lambda h, e, r: errors.append(e),
        np.random.default_rng(0), options,
    )  # fmt: skip
    assert {m.kind for m in made} == {"force", "virial"}
    assert np.isfinite(errors).all()
    assert not any(m.v[4:7].any() for m in made)
    alone = frames.select([1])
    part = Linear(alone, 12)
    part.maps["virial"] = model.maps["virial"][1:2]
    part.x = model.x
    (only,) = kalman.group_updates(
        alone, part.predict, part.gradient, lambda *a: None, np.random.default_rng(0),
        replace(options, kinds=("energy", "virial")),
    )  # fmt: skip
    assert errors[-1] == pytest.approx(only.error)


def test_training_converges():
    """A net of one hidden layer learns a function that a line cannot describe."""
    rng = np.random.default_rng(4)
    points = rng.uniform(-2, 2, 200)
    x = rng.normal(size=30)
    lazy = Kalman([("w", (10,)), ("b", (10,)), ("v", (10,))], KalmanOptions(block=20))

    def value(x: np.ndarray, t: float) -> float:
        return float(x[20:] @ np.tanh(x[:10] * t + x[10:20]))

    def rmse() -> float:
        return float(np.sqrt(np.mean([(np.sin(2 * t) - value(x, t)) ** 2 for t in points])))

    before = rmse()
    for t in np.tile(points, 5):
        hidden = np.tanh(x[:10] * t + x[10:20])
        slope = x[20:] * (1 - hidden**2)
        error = np.sin(2 * t) - value(x, t)
        sign = 1.0 if error >= 0 else -1.0
        lazy.update(x, sign * np.r_[slope * t, slope, hidden], abs(error), noise=0.1)
    assert before > 0.5
    assert rmse() < 0.02
