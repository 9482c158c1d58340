"""Training by torch, as on a GPU, against the compiled kernels, finite differences and itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.io import write
from typer.testing import CliRunner

from labelled_structures import frames_of, labelled, trajectory
from pwmlff.cli import app
from pwmlff.data import neighbors
from pwmlff.report import Failure
from pwmlff.train import comm, hardware
from pwmlff.train.config import Run
from pwmlff.train.gradient import DPGradient
from systems import SYSTEMS, TRICLINIC, System

pytestmark = pytest.mark.usefixtures("undrawn")

#: Those of the kinds that are trained: biases, nets for pairs, steps in the fitting nets alone.
NETWORKS = {
    name: SYSTEMS[name]
    for name in (
        "one element, orthorhombic",
        "one element, not periodic",
        "two elements, triclinic",
        "three elements, one without atoms",
        "embedding from width one",
        "single layers",
        "cutoff beyond the box",
        "no neighbors",
    )
} | {
    "no two widths alike": System((8, 72), (72, 8, 8), TRICLINIC, embedding=(3, 7), fitting=(9, 8)),
    "a residual in the first layer": System(
        (8, 72), (72, 8, 8), TRICLINIC, embedding=(2, 4), fitting=(8, 8, 8)
    ),
}  # fmt: skip
CPU = torch.device("cpu")


def ways(system: System, seed: int, precision: str = "float64") -> list[DPGradient]:
    """The compiled kernels and torch, over frames of other sizes and elements."""
    few = replace(system, numbers=system.numbers[:2])
    alone = replace(system, numbers=system.numbers[:1])
    atoms = [s.atoms(seed + k) for k, s in enumerate((system, few, alone, system))]
    frames = frames_of(atoms)
    edges = neighbors.find_edges(frames, system.elements, system.rmax)
    model = system.model(seed)
    return [
        DPGradient(model, frames, edges, 32, precision, device=device) for device in (None, CPU)
    ]


def weights(core: DPGradient, batch: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    rng, n = np.random.default_rng(seed), len(batch)
    natoms = int(core.frames.natoms[batch].sum())
    return rng.normal(size=n), rng.normal(size=(natoms, 3)), rng.normal(size=(n, 3, 3))


def results(core: DPGradient, batch: np.ndarray, seed: int) -> list[np.ndarray]:
    """Energies, forces, virials, and the gradient of each frame's S."""
    core.prepare(core.read())
    found = core.evaluate(batch)
    rows = core.gradients(*weights(core, batch, seed))
    return [*found, np.array([core.finish(row) for row in rows])]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_kernels(name: str, seed: int) -> None:
    kernels, by_torch = ways(NETWORKS[name], seed)
    sizes = [np.abs(x).max() for x in results(kernels, np.arange(4), seed)]
    for batch in ([0, 1, 2, 3], [2], [3, 1, 1]):
        expected = results(kernels, np.array(batch), seed)
        found = results(by_torch, np.array(batch), seed)
        for one, other, size in zip(found, expected, sizes, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * size)


def test_no_frames() -> None:
    """As on a rank without a part of the batch."""
    for core in ways(SYSTEMS["two elements, triclinic"], 1):
        found = results(core, np.zeros(0, dtype=int), 1)
        assert [x.shape[:1] for x in found] == [(0,)] * 4


def test_float32() -> None:
    """As far from float64 as the kernels are."""
    system = SYSTEMS["two elements, triclinic"]
    batch = np.arange(4)
    exact = results(ways(system, 1)[0], batch, 1)
    kernels, by_torch = (results(core, batch, 1) for core in ways(system, 1, "float32"))
    for one, other, expected in zip(by_torch, kernels, exact, strict=True):
        assert one.dtype == np.float64
        assert 0.0 < np.abs(one - expected).max() < 4.0 * np.abs(other - expected).max()


@pytest.mark.parametrize("name", ["two elements, triclinic", "three elements, one without atoms"])
def test_central_differences(name: str) -> None:
    core = ways(NETWORKS[name], 4)[1]
    start, batch, rng = core.read(), np.arange(4), np.random.default_rng(0)
    a, v, w = weights(core, batch, 0)

    def sums(parameters: np.ndarray) -> float:
        core.prepare(parameters)
        energy, force, virial = core.evaluate(batch)
        return float(a @ energy + np.vdot(v, force) + np.vdot(w, virial))

    sums(start)
    gradient = core.finish(core.gradients(a, v, w).sum(0))
    for _ in range(5):
        direction = rng.normal(size=len(start))
        expected = (sums(start + 2e-6 * direction) - sums(start - 2e-6 * direction)) / 4e-6
        assert gradient @ direction == pytest.approx(expected, rel=1e-7)


def test_other_nodes_and_parameters() -> None:
    """What was taken before is forgotten."""
    kernels, by_torch = ways(SYSTEMS["two elements, triclinic"], 5)
    for nodes, factor in ((32, 1.0), (64, 1.0), (64, 0.7)):
        found = []
        for core in (kernels, by_torch):
            if core.nodes != nodes:
                core.set_nodes(nodes)
            core.prepare(factor * core.read())
            found.append(core.evaluate(np.array([0, 3])))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six steps, with validations and last layers, on a GPU's stand-in and by the kernels."""
    monkeypatch.setenv("PWMLFF_GPU_STAND_IN", "cpu")
    write(tmp_path / "frames.xyz", [labelled(a) for a in trajectory(6)], format="extxyz")
    settings = [
        *("model.rmax=4.0", "model.rmin=1.5", "model.embedding=[3, 6]", "model.fitting=[5, 5]"),
        *("model.m2=3", "run.batch=2", "run.precision=float64", "data.cache=none"),
        *("loss.virial=[1, 1]", "data.valid_fraction=0.3"),
        *("model.elements=Ne Ar", "run.epochs=3", "model.max_neighbor=17"),
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    parameters = []
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        done = CliRunner().invoke(
            app,
            ["train", str(tmp_path / "frames.xyz"), "-o", str(folder), "--device", device, *words],
        )
        assert done.exit_code == 0, done.output
        assert (folder / "best.pt").is_file() and (folder / "last.pt").is_file()
        # Those of the steps: the last layers of so few frames are not well defined.
        with np.load(max(folder.glob("checkpoint-*.npz"))) as arrays:
            parameters.append(next(arrays[k] for k in arrays if k.endswith("parameters")))
    kernels, by_torch = parameters
    assert np.abs(kernels - by_torch).max() < 1e-9 * np.abs(kernels).max()
    assert not np.array_equal(kernels, by_torch)  # it was another code


def test_which_device(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = comm.Serial()
    ranks.local_rank, ranks.local_size = 3, 4
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for word, index in (("cuda", 1), ("auto", 1), ("cuda:0", 0)):
        assert hardware.device_of(Run(device=word), ranks) == torch.device("cuda", index)
    assert hardware.device_of(Run(device="cpu"), ranks) is None
    assert hardware.threads_of(Run(device="cpu", threads=3), ranks) == 3
    assert [hardware.device_of_member("cuda", k) for k in range(3)] == [
        "cuda:0",
        "cuda:1",
        "cuda:0",
    ]
    for word, message in (
        ("cuda:2", r"sees 2 GPU\(s\)|without CUDA"),
        ("gpu", "expected cpu, cuda"),
    ):
        with pytest.raises(Failure, match=message):
            hardware.device_of(Run(device=word), ranks)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert hardware.device_of(Run(device="auto"), ranks) is None
    assert hardware.device_of_member("cuda", 1) == "cuda"
    with pytest.raises(Failure, match=r"nvidia-smi.*or leave out --device"):
        hardware.device_of(Run(device="cuda"), ranks)
