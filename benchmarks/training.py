"""Time training of potentials: gradients of a loss of energies and forces by all parameters.

    python benchmarks/training.py DATA --elements 'O Hf'

Thousand atoms per second on one core, best of several rounds in which all cases take turns: the
gradients of this project at several precisions, batches and nodes of the splines; the way of
padded neighbors with autograd (`models.DP`, every slot); evaluations of energy and forces by the
fused engine, which a gradient is to cost at most four of; gradients of a NEP of the default form.
Then whole steps, optimizer included, of one process, of two under mpirun, and of two that know
nothing of each other, which is what the machine gives; these take turns too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ase.data import atomic_numbers
from rich.console import Console
from rich.table import Table

from pwmlff.data import cache
from pwmlff.evaluation.engine import AtomsAndGhosts, NativeModel, choose
from pwmlff.models import pad_neighbors
from pwmlff.train import comm, config, nep, potential
from pwmlff.train.learner import Learner
from pwmlff.train.loss import LossWeights, slopes
from pwmlff.train.trainable import Trainable
from standard_cases import PaddedDP

FRAMES, NODES, PRECISIONS = (1, 8), (64, 128), ("float64", "float32")


class Bench:
    """A random model for some frames of a file."""

    def __init__(self, data: str, elements: str) -> None:
        self.config = config.from_command(data=[data], elements=elements, settings=["run.epochs=1"])
        self.numbers = [atomic_numbers[symbol] for symbol in self.config.model.elements]
        frames, edges = cache.load(
            f"{data}@:64", elements=self.numbers, cutoff=self.config.model.rmax, cache=None
        )
        self.frames, self.edges = frames, edges
        self.model = potential.new(self.config, frames, edges, seed=1)

    def gradients(self, nodes: int, precision: str, n: int) -> Callable[[], int]:
        """A step but for the optimizer; returns the number of atoms."""
        return self.gradients_of(
            potential.Potential(self.model, self.frames, self.edges, nodes, precision, 1), n
        )

    def nep_gradients(self, precision: str, n: int) -> Callable[[], int]:
        """The same of a NEP."""
        model = nep.initial(config.NepForm(), self.frames, self.edges, seed=1)
        return self.gradients_of(nep.NepModel(model, self.frames, self.edges, precision), n)

    def gradients_of(self, trained: Trainable, n: int) -> Callable[[], int]:
        """A step of n frames but for the optimizer."""
        weights, batch, ones = LossWeights(1.0, 1.0, 0.0), np.arange(n), np.ones(len(self.frames))

        def work() -> int:
            found = trained.evaluate(batch)
            of_batch = slopes(self.frames, batch, slice(n), found, weights, ones)
            trained.pullback(of_batch.a, of_batch.v, of_batch.w)
            return int(self.frames.natoms[batch].sum())

        return work

    def padded(self, precision: str) -> Callable[[], int]:
        """Forward and double backward over all slots, empty or not, of one frame."""
        atoms = self.frames.atoms(0)
        inputs = pad_neighbors(atoms, self.numbers, self.model.Rmax, self.model.maxNeighborNum)
        dtype = getattr(torch, precision)
        arrays = {name: p.detach().numpy() for name, p in self.model.named_parameters()}
        model = PaddedDP.from_parameters(
            {**arrays, "davg": self.model.davg, "dstd": self.model.dstd},
            atom_type=self.numbers,
            rmax=self.model.Rmax,
            rmin=self.model.Rmin,
            max_neighbor=self.model.maxNeighborNum,
            m2=self.model.M2,
        )
        model.to(dtype).train()
        energy = torch.tensor(self.frames.energies[0], dtype=dtype)
        forces = torch.from_numpy(self.frames.forces[: len(atoms)].copy()).to(dtype)

        def work() -> int:
            total, _, force, _, _ = model(*inputs)
            loss = ((total.sum() - energy) / len(atoms)) ** 2 + (force[0] - forces).square().mean()
            torch.autograd.grad(loss, list(model.parameters()))
            return len(atoms)

        return work

    def fused(self, precision: str, folder: Path) -> Callable[[], int]:
        """Energy and forces of one frame."""
        path = folder / "model.pt"
        self.model.save(path)
        engine = choose(path, "fused", precision).engine
        assert isinstance(engine, NativeModel)
        wanted = dict.fromkeys(("atom_virial", "grade", "born"), False)
        atoms = self.frames.atoms(0)
        rows = AtomsAndGhosts.find(atoms, self.numbers, self.model.Rmax)

        def work() -> int:
            engine.compute(rows, None, **wanted)
            return len(atoms)

        return work


def best_rates(
    cases: dict[str, Callable[[], int]], seconds: float, rounds: int
) -> dict[str, float]:
    """Thousand atoms per second of each case, the best of some rounds."""
    rates = dict.fromkeys(cases, 0.0)
    for work in cases.values():
        work()
    for _ in range(rounds):
        for name, work in cases.items():
            atoms, begin = 0, time.perf_counter()
            while (passed := time.perf_counter() - begin) < seconds or not atoms:
                atoms += work()
            rates[name] = max(rates[name], atoms / passed / 1e3)
    return rates


def steps(bench: Bench, seconds: float, rounds: int) -> None:
    """Print rates of whole steps of all ranks, thousand atoms per second.

    By precision, for batches of 8 frames and of 8 on each rank.
    """
    ranks = comm.connect()
    cases = {}
    for precision in PRECISIONS:
        trained = potential.Potential(
            bench.model, bench.frames, bench.edges, 64, precision, 1, ranks
        )
        learner = Learner(trained, bench.config, ranks)
        cases |= {(precision, batch): (learner, batch) for batch in (8, 8 * ranks.size)}
    rates = dict.fromkeys(cases, 0.0)
    for _ in range(rounds):
        for case, (learner, batch) in cases.items():
            ranks.barrier()
            begin, n = time.perf_counter(), 0
            while ranks.broadcast(time.perf_counter() - begin) < seconds:
                for k in range(4):
                    learner.step((np.arange(batch) + k * batch) % len(bench.frames), 0.5)
                n += 4 * batch
            atoms = int(bench.frames.natoms[0]) * n
            rates[case] = max(rates[case], atoms / (time.perf_counter() - begin) / 1e3)
    if ranks.rank == 0:
        print(
            json.dumps(
                [
                    [rates[precision, 8], rates[precision, 8 * ranks.size]]
                    for precision in PRECISIONS
                ]
            )
        )


def whole_steps(options: argparse.Namespace) -> np.ndarray:
    """Rates of :func:`steps`, [launch, precision, batch]: medians of rounds that take turns.

    The launches are one process, two ranks, and two processes at once, whose rates are added.
    """
    command = [sys.executable, __file__, options.data, "--elements", options.elements, "--steps"]
    command += ["--rounds", "1", "--seconds", str(options.seconds)]
    mpirun = [str(Path(sys.executable).parent / "mpirun"), "-np", "2"]
    found = []
    for _ in range(options.rounds):
        for launched in ([command], [[*mpirun, *command]], [command] * 2):
            with contextlib.ExitStack() as stack:
                started = [
                    stack.enter_context(subprocess.Popen(one, stdout=subprocess.PIPE, text=True))
                    for one in launched
                ]
                printed = [one.communicate()[0] for one in started]
            found.append(np.sum([json.loads(text.splitlines()[-1]) for text in printed], axis=0))
    medians: np.ndarray = np.median(np.reshape(found, (options.rounds, 3, 2, 2)), axis=0)
    return medians


def main() -> None:
    """Print the table, and the ratios that matter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="structures of one size, with energies and forces")
    parser.add_argument("--elements", required=True)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a case in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", action="store_true", help="whole steps alone, for mpirun")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.data, options.elements)
    if options.steps:
        steps(bench, options.seconds, options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        cases: dict[str, Callable[[], int]] = {}
        for precision in PRECISIONS:
            for nodes in NODES:
                for n in FRAMES:
                    name = f"gradient, {precision}, {nodes} nodes, {n} frames"
                    cases[name] = bench.gradients(nodes, precision, n)
            cases[f"padded, autograd, {precision}"] = bench.padded(precision)
            for n in FRAMES:
                cases[f"gradient of a NEP, {precision}, {n} frames"] = bench.nep_gradients(
                    precision, n
                )
        for precision in ("double", "mixed"):
            cases[f"evaluation, fused {precision}"] = bench.fused(precision, Path(folder))
        rates = best_rates(cases, options.seconds, options.rounds)
    table = Table("case", "katom/s")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:.1f}")
    for precision, (one, _), (shared, each), (alone, _) in zip(
        PRECISIONS, *whole_steps(options), strict=True
    ):
        table.add_row(f"step, {precision}, 64 nodes, 8 frames", f"{one:.1f}")
        table.add_row("  on two ranks, 8 frames each", f"{each:.1f}, {each / one:.2f} times")
        table.add_row("  on two ranks, 4 frames each", f"{shared:.1f}, {shared / one:.2f} times")
        table.add_row("  of two processes at once", f"{alone:.1f}, {alone / one:.2f} times")
    for precision, fused in (("float64", "double"), ("float32", "mixed")):
        rate = rates[f"gradient, {precision}, 64 nodes, 8 frames"]
        evaluation = rates[f"evaluation, fused {fused}"]
        padded = rates[f"padded, autograd, {precision}"]
        table.add_row(f"evaluations that a gradient costs, {precision}", f"{evaluation / rate:.2f}")
        table.add_row(f"times the padded way, {precision}", f"{rate / padded:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
