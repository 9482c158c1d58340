"""The cases that docs/performance.md quotes: engines, precisions, sizes, ranks, ensembles in turns.

    python benchmarks/standard_cases.py --json > docs/benchmarks/NAME.json
    python benchmarks/standard_cases.py --gpu --json > docs/benchmarks/NAME-gpu.json

The user's own model and structure are timed by `pwmlff bench`.

Each case is a whole lmp run of the same structure; the cases take turns, round after round, so
that a busy machine slows all of them alike, and the best of each is reported: what disturbs a run
can only slow it down. HfO2 is a fluorite crystal at 300 K, with the model of the folder
PWMLFF_TEST_DATA (hfo2_dp/parameters.npz) or, where there is none, random parameters of the same
shape: the time does not depend on their values. LJ is the melt of examples/lj, with a random model
of its shape where that folder is not there. Memory is the growth of the resident size from the
small to the large box, per atom, beyond that of `pair_style zero` with a full neighbor list.

With a GPU, the time of each kernel is measured as well, without lmp: events around every launch,
for the inner atoms of a block of HfO2; `--kernels` evaluates it twice and does nothing else, for a
profiler. Models of MACE have parameters by chance and the code of
tests/mace_oracle.py; `--mace FOLDER` has MACE's own from benchmarks/mace_models.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase.build import bulk
from ase.io import write
from rich.console import Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text
from torch import Tensor

from pwmlff import devices
from pwmlff.arrays import written
from pwmlff.commands.bench import loop_times
from pwmlff.commands.options import names, positive_integers
from pwmlff.launch import mpirun, program
from pwmlff.models import DP, DPConfig
from pwmlff.native import Network, NetworkEngine
from pwmlff.report import Failure, console
from pwmlff.train.potential import of_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from mace_oracle import Shape, save

LJ = Path(__file__).resolve().parents[1] / "examples" / "lj"
DOUBLE = "engine fused precision double"
MIXED = "engine fused precision mixed"
GPU = " device gpu"
LARGEST_FILE = 6144  # atoms; larger boxes are replicas of this one
ENGINES = ("torchscript", "fused")
PRECISIONS = ("exact", "double", "mixed")
HFO2_CELL = 12  # atoms of a fluorite cell
#: Models with parameters by chance in the shapes of MACE's own, and energies near zero.
MACE = {
    f"MACE {features}": Shape(
        cutoff=cutoff, channels=channels, largest=3, leaving=(degree, 0), terms=60,
        hidden=(64, 64, 64), residual=(False, True), scale=1e-3,
    )
    for features, cutoff, channels, degree in (
        ("32x0e+32x1o", 5.0, 32, 1), ("128x0e", 6.0, 128, 0), ("128x0e+128x1o", 6.0, 128, 1)
    )
}  # fmt: skip
BYTES_PER_ATOM = 4096  # of an lmp with neighbors up to 8 angstrom, and of the structure in Python
PHASES = ("Pair", "Neigh", "Comm", "Modify", "Output", "Other")
CORES = os.cpu_count() or 1

HFO2 = """
units metal
read_data hfo2-{base}.data
replicate {copies} {copies} {copies}
{style}
velocity all create 300 4711 mom yes
fix 1 all nve
timestep 0.0005
thermo 1000000
run {warm}
run {steps}
shell 'grep VmRSS /proc/$PPID/status'
"""
MELT = """
units lj
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
{style}
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 1000000
run {warm}
run {steps}
shell 'grep VmRSS /proc/$PPID/status'
"""


class PaddedDP(DP):
    """A DP whose forward evaluates every slot, empty or not, as files of older exporters do."""

    def _last_used(self, used: Tensor) -> Tensor:
        return torch.full([self.ntypes], self.maxNeighborNum, device=used.device)


def phases(said: str) -> dict[str, float]:
    """Share of the time of the last run that lmp tells of, %, of each of PHASES."""
    last = said[said.rindex("Loop time of") :]
    found = {}
    for phase in PHASES:
        share = re.search(rf"^{phase} .*\|\s*(\S+)\s*$", last, re.MULTILINE)
        found[phase] = float(share[1]) if share else 0.0
    return found


def model_file(system: str) -> str:
    """Name of the file that prepare() writes for a system."""
    return f"{system.lower().replace(' ', '-')}.pt"


@dataclass
class Case:
    """One kind of run, and what its repetitions measured."""

    system: str
    atoms: int
    engine: str
    models: int = 1
    ranks: int = 1
    threads: int = 1
    padded: bool = False  # a file that evaluates empty slots
    may_fail: bool = False  # as the GPU may have too little memory for it
    failed: str = ""  # what lmp said then
    rates: list[float] = field(default_factory=list)  # katom-step/s
    kilobytes: list[int] = field(default_factory=list)  # resident size of lmp after the run
    phases: dict[str, float] = field(default_factory=dict)  # share of the time, %

    @property
    def rate(self) -> float:
        """Best rate in katom-step/s."""
        return max(self.rates)

    @property
    def guess(self) -> float:
        """Rate to expect before the first run."""
        if self.rates:
            return max(self.rates)
        rate = 2.0 if "torchscript" in self.engine else 50.0
        return rate * (20.0 if GPU in self.engine else 1.0)

    @property
    def copies(self) -> int:
        """Replicas of the file along each side of the box."""
        for copies in range(1, 7):
            base, rest = divmod(self.atoms, copies**3)
            if base <= LARGEST_FILE and rest == base % HFO2_CELL == 0:
                return copies
        return 1

    @property
    def base(self) -> int:
        """Atoms in the file."""
        return self.atoms // self.copies**3

    def text(self, steps: int) -> str:
        """Input of the run."""
        if self.engine == "zero":
            style = "pair_style zero 6.0 full\npair_coeff * *"
        else:
            name = "padded.pt" if self.padded else model_file(self.system)
            elements = "Ar" if self.system == "LJ" else "Hf O"
            style = (
                f"pair_style pwmlff {' '.join([name] * self.models)} {self.engine} out_freq 100\n"
            )
            style += f"pair_coeff * * {elements}"
        warm = max(1, steps // 10)
        if self.system != "LJ":
            return HFO2.format(
                base=self.base, copies=self.copies, style=style, steps=steps, warm=warm
            )
        cells = round((self.atoms / 4) ** (1 / 3))
        return MELT.format(cells=cells, style=style, steps=steps, warm=warm)

    def attempt(self, folder: Path, seconds: float, programs: Programs) -> None:
        """Run once; one that may fail is not run again after it has.

        Raises:
            Failure: lmp fails at one that may not.
        """
        if self.failed:
            return
        try:
            self.run(folder, seconds, programs)
        except Failure as failure:
            if not self.may_fail:
                raise
            self.failed = str(failure).strip().splitlines()[-1]

    def run(self, folder: Path, seconds: float, programs: Programs) -> None:
        """Run once, about as long as asked for, and keep what it measured.

        Raises:
            Failure: lmp fails.
        """
        steps = max(2, int(seconds * 1000 * self.guess / self.atoms))
        if self.models > 1:
            steps = max(100, steps // 100 * 100)
        starter = programs.mpirun if self.ranks > 1 else None
        text = programs.lmp.run(folder, self.text(steps), starter, self.ranks, self.threads)
        loop = loop_times(text)[-1]
        self.rates.append(self.atoms * steps / loop / 1000)
        self.kilobytes.append(int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]))
        self.phases = phases(text)


@dataclass(frozen=True)
class Programs:
    """What is started."""

    lmp: program.Program
    mpirun: mpirun.Mpirun


@dataclass(frozen=True)
class Choice:
    """What to time; empty lists stand for the standard cases."""

    atoms: Sequence[int] = ()
    engines: Sequence[str] = ()
    precisions: Sequence[str] = ()
    ranks: Sequence[int] = ()
    rounds: int = 3
    seconds: float = 4.0
    quick: bool = False
    gpu: bool = False
    limit: float | None = None  # seconds; cases whose turn does not come are left out
    lmp: str | None = None
    mpirun: str | None = None
    plugin: Path | None = None  # pwmlffplugin.so or its folder
    mace: Path | None = None  # folder of models

    @property
    def standard(self) -> bool:
        """Whether nothing special is asked for."""
        return not (self.atoms or self.engines or self.precisions or self.ranks)


def cases(options: Choice) -> list[Case]:
    """All cases, in the order of the table."""
    if not options.standard:
        return chosen_cases(options)
    return gpu_cases(options.quick) if options.gpu else standard_cases(options.quick)


def chosen_cases(options: Choice) -> list[Case]:
    """HfO2 in every combination that is asked for.

    Raises:
        Failure: a word that there is no case for, or more atoms or ranks than this machine takes.
    """
    engines, precisions = options.engines or ENGINES, options.precisions or PRECISIONS
    bad = sorted({*engines} - {*ENGINES}) + sorted({*precisions} - {*PRECISIONS})
    if bad:
        raise Failure(
            f"found {', '.join(bad)}; expected engines {', '.join(ENGINES)} and precisions "
            f"{', '.join(PRECISIONS)}"
        )
    words = [f"engine fused precision {p}" for p in precisions] if "fused" in engines else []
    words = ["engine torchscript"] * ("torchscript" in engines) + words
    words = [word + GPU * options.gpu for word in words]
    mpirun.require_possible(max(options.ranks, default=1))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = memory // BYTES_PER_ATOM
    if max(options.atoms, default=0) > most:
        raise Failure(
            f"found {max(options.atoms)} atoms, expected at most {most}: an atom takes about "
            f"{BYTES_PER_ATOM} bytes, and this machine has {memory / 2**30:.0f} GiB"
        )
    return [
        Case("HfO2", HFO2_CELL * repeats(n) ** 3, word, ranks=ranks)
        for n in options.atoms or (768,)
        for ranks in options.ranks or (1,)
        for word in words
    ]


def repeats(atoms: int) -> int:
    """Cells along each side of the cube of HfO2 that is nearest to a number of atoms."""
    cells: float = (atoms / HFO2_CELL) ** (1 / 3)
    return max(2, round(cells))


def sides(atoms: int) -> tuple[int, int, int]:
    """Cells along each side of the box of HfO2 with so many atoms that is most like a cube."""
    cells = atoms // HFO2_CELL
    divisors = [n for n in range(1, cells + 1) if cells % n == 0]
    boxes = [(a, b, cells // (a * b)) for a in divisors for b in divisors if cells % (a * b) == 0]
    return min(boxes, key=sum)


def standard_cases(quick: bool) -> list[Case]:
    """What docs/performance.md quotes."""
    fused = [f"engine fused precision {p}" for p in PRECISIONS]
    sizes = (96, 768) if quick else (96, 768, 6144)
    chosen = [Case("HfO2", n, "engine torchscript") for n in sizes[:2]]
    chosen += [Case("HfO2", 768, "engine torchscript", padded=True)]
    chosen += [Case("HfO2", n, engine) for engine in fused for n in sizes]
    chosen += [Case("HfO2", n, "zero") for n in (sizes[0], sizes[-1])]
    chosen += [Case("HfO2", 768, DOUBLE, models=4)]
    if CORES > 1:
        chosen += [
            Case("HfO2", sizes[-1], DOUBLE, ranks=2),
            Case("HfO2", sizes[-1], DOUBLE, threads=2),
        ]
    chosen += [Case("LJ", 4000, engine) for engine in ("engine torchscript", *fused[1:])]
    if not quick:
        chosen += [Case("LJ", 32000, DOUBLE, ranks=min(2, CORES))]
    return chosen


def gpu_cases(quick: bool) -> list[Case]:
    """What the reports of GPUs hold; the first two run on the CPU, to compare with."""
    sizes = [96, 768, LARGEST_FILE, 8 * LARGEST_FILE]
    sizes += [] if quick else [64 * LARGEST_FILE, 216 * LARGEST_FILE]
    large = sizes[-2]
    chosen = [Case("HfO2", LARGEST_FILE, engine) for engine in (DOUBLE, MIXED)]
    chosen += [Case("HfO2", n, "engine torchscript" + GPU) for n in sizes[:3]]
    chosen += [Case("HfO2", LARGEST_FILE, "engine fused precision exact" + GPU)]
    chosen += [Case("HfO2", n, engine + GPU) for engine in (DOUBLE, MIXED) for n in sizes]
    chosen += [
        Case("HfO2", large, engine + GPU + " neighbors lammps") for engine in (DOUBLE, MIXED)
    ]
    chosen += [Case("HfO2", LARGEST_FILE, DOUBLE + GPU, models=4)]
    ranks = [n for n in (2, 4, 8) if n <= CORES]
    chosen += [
        Case("HfO2", large, engine + GPU, ranks=n) for engine in (DOUBLE, MIXED) for n in ranks
    ]
    chosen += [Case("LJ", n, DOUBLE + GPU) for n in (4000, 32000, 864000)[: 2 if quick else 3]]
    for system in MACE:
        chosen += [Case(system, n, MIXED + GPU) for n in (96, 3072, 24576, 196608)]
        chosen += [Case(system, n, DOUBLE + GPU) for n in (96, 3072)]
        chosen += [
            Case(system, n, "engine torchscript" + GPU, may_fail=True)
            for n in (96, 3072, 24576, 196608)
        ]
    return chosen


def prepare(folder: Path, atoms_of: set[int], systems: set[str], mace: Path | None = None) -> str:
    """Write structures of these sizes and all models; return where the parameters come from.

    Args:
        mace: a folder with models for the systems of MACE.
    """
    for system in systems & MACE.keys():
        path = folder / model_file(system)
        if mace is None:
            save(path, MACE[system])
        else:
            shutil.copy(mace / path.name, path)
    rng = np.random.default_rng(0)
    cell = bulk("HfO2", "fluorite", a=5.08, cubic=True)
    for natoms in sorted(atoms_of):
        atoms = cell.repeat(sides(natoms))
        atoms.positions += rng.normal(scale=0.05, size=atoms.positions.shape)
        name = folder / f"hfo2-{len(atoms)}.data"
        write(name, atoms, format="lammps-data", specorder=["Hf", "O"], masses=True)
    if (LJ / "a.pt").is_file():
        shutil.copy(LJ / "a.pt", folder / "lj.pt")
    else:
        config = DPConfig((18,), 2.5, 2.0, 96, 4, (8, 16), (16, 16), units="lj")
        DP(config, seed=0).save(folder / "lj.pt")
    shape = DPConfig((8, 72), rmax=6.0, rmin=0.5, max_neighbor=100, m2=16)
    kinds = {"hfo2.pt": DP, "padded.pt": PaddedDP}
    source = Path(os.environ.get("PWMLFF_TEST_DATA", "."), "hfo2_dp", "parameters.npz")
    if source.is_file():
        with np.load(source) as parameters:
            for file, kind in kinds.items():
                kind.from_parameters(
                    parameters,
                    atom_type=shape.atom_type,
                    rmax=shape.rmax,
                    rmin=shape.rmin,
                    max_neighbor=shape.max_neighbor,
                    m2=shape.m2,
                ).save(folder / file)
        return "hfo2_dp"
    davg, dstd = [[0.03, 0, 0, 0]] * 2, [[0.07, 0.05, 0.05, 0.05]] * 2
    for file, kind in kinds.items():
        kind(shape, davg=davg, dstd=dstd, seed=0).eval().save(folder / file)
    return "random"


def processor() -> str:
    """Name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def find(done: list[Case], **wanted: str | int) -> Case:
    """The one case with these values, on one rank and thread with one model unless said."""
    wanted = {"models": 1, "ranks": 1, "threads": 1, "padded": False, **wanted}
    return next(c for c in done if all(getattr(c, k) == v for k, v in wanted.items()))


def ratios(done: list[Case]) -> dict[str, float]:
    """The numbers that are promised, from one set of cases."""
    double, mixed = DOUBLE, MIXED
    large = max(case.atoms for case in done if case.system == "HfO2")
    middle = find(done, system="HfO2", atoms=768, engine=double)
    small = find(done, system="HfO2", atoms=96, engine=double)
    big = find(done, system="HfO2", atoms=large, engine=double)
    slow = find(done, system="HfO2", atoms=768, engine="engine torchscript")
    padded = find(done, system="HfO2", atoms=768, engine="engine torchscript", padded=True)
    result = {
        "double / torchscript, 768 atoms": middle.rate / slow.rate,
        "double / torchscript with padding, 768 atoms": middle.rate / padded.rate,
        "mixed / double, 768 atoms": find(done, system="HfO2", atoms=768, engine=mixed).rate
        / middle.rate,
        f"{large} / 768 atoms, double": big.rate / middle.rate,
        "cost of an ensemble of 4, out_freq 100": middle.rate
        / find(done, system="HfO2", atoms=768, engine=double, models=4).rate,
    }
    if CORES > 1:
        for kind in ("ranks", "threads"):
            two = find(done, system="HfO2", atoms=large, engine=double, **{kind: 2})
            result[f"2 {kind} / 1, {large} atoms, double"] = two.rate / big.rate
    if large > small.atoms:
        zero = [find(done, system="HfO2", atoms=n, engine="zero") for n in (small.atoms, large)]
        growth = [min(c.kilobytes) for c in (small, big)]
        base = [min(c.kilobytes) for c in zero]
        kilobytes = (growth[1] - growth[0]) - (base[1] - base[0])
        result["KB per atom beyond LAMMPS"] = kilobytes * 1.024 / (large - small.atoms)
    return result


def gpu_ratios(done: list[Case]) -> dict[str, float]:
    """The same for the cases on a GPU."""
    hfo2 = [c for c in done if c.system == "HfO2"]
    best = {
        word: max((c for c in hfo2 if c.engine == engine + GPU), key=lambda c: c.rate)
        for word, engine in (("double", DOUBLE), ("mixed", MIXED))
    }
    slow = find(done, system="HfO2", atoms=LARGEST_FILE, engine="engine torchscript" + GPU)
    same = find(done, system="HfO2", atoms=LARGEST_FILE, engine=DOUBLE + GPU)
    four = find(done, system="HfO2", atoms=LARGEST_FILE, engine=DOUBLE + GPU, models=4)
    host = find(done, system="HfO2", atoms=LARGEST_FILE, engine=DOUBLE)
    given = next(c for c in hfo2 if c.engine == DOUBLE + GPU + " neighbors lammps")
    found = find(done, system="HfO2", atoms=given.atoms, engine=DOUBLE + GPU)
    result = {
        f"million atom-steps/s, {word}, {c.atoms} atoms, {c.ranks} ranks": c.rate / 1000
        for word, c in best.items()
    }
    return result | {
        f"double / torchscript, {LARGEST_FILE} atoms": same.rate / slow.rate,
        f"GPU / one core, double, {LARGEST_FILE} atoms": same.rate / host.rate,
        f"cost of an ensemble of 4, {LARGEST_FILE} atoms": same.rate / four.rate,
        f"own list / list of LAMMPS, {given.atoms} atoms": found.rate / given.rate,
    }


def kernel_times(
    model: Path, precision: str, cells: int, device: str, rounds: int
) -> dict[str, float]:
    """Nanoseconds per atom of each kernel, for the inner cells**3 cells of a block of HfO2.

    Args:
        model: a DP file of elements O, Hf.
        precision: exact, double or mixed.
        cells: inner cells along each side; a shell of ghosts as wide as cutoff and skin is added.
        device: as in kernels/core/device.h.
        rounds: evaluations; one more comes first and is not counted.
    """
    cell, reach = bulk("HfO2", "fluorite", a=5.08, cubic=True), 8.0
    shell = int(np.ceil(reach / cell.cell[0, 0]))
    atoms = cell.repeat(cells + 2 * shell)
    place = atoms.positions / cell.cell[0, 0] + 1e-6
    inner = ((place >= shell) & (place < shell + cells)).all(axis=1)
    order = np.argsort(~inner, kind="stable")
    rng = np.random.default_rng(0)
    x = atoms.positions[order] + rng.normal(scale=0.05, size=(len(atoms), 3))
    species = (atoms.numbers[order] == 72).astype(np.int32)

    network = Network(written("dp", of_file(model).arrays()))
    engine = NetworkEngine(network, precision, [1, 1], device)
    engine.find_neighbors(x, species, int(inner.sum()), reach)
    engine.evaluate(x)
    engine.measure(True)
    for _ in range(rounds):
        engine.evaluate(x)
    seconds = engine.facts["seconds"]
    return {name: 1e9 * t / rounds / int(inner.sum()) for name, t in seconds.items()}


def times_of_kernels(model: Path, cells: int, rounds: int) -> dict[str, dict[str, float]]:
    """:func:`kernel_times` on the first GPU, by precision."""
    return {
        precision: kernel_times(model, precision, cells, "cuda:0", rounds)
        for precision in ("double", "mixed")
    }


@dataclass(frozen=True)
class Measured:
    """What was measured."""

    machine: str
    parameters: str
    cases: list[Case]
    ratios: dict[str, float]
    kernels: dict[str, dict[str, float]]  # ns per atom, by precision and kernel

    ok = True

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "machine": self.machine,
            "date": str(date.today()),
            "parameters": self.parameters,
            "cases": [{**asdict(case), "rate": case.rate} for case in self.cases],
            "ratios": self.ratios,
            "nanoseconds per atom": self.kernels,
        }

    def show(self) -> RenderableType:
        """One row for each case, and what is quoted."""
        title = f"katom-step/s, {self.machine}, {date.today()}, parameters: {self.parameters}"
        table = Table(title=title)
        for column in ("system", "atoms", "engine", "models", "ranks", "threads", "rate", "Pair %"):
            table.add_column(column, justify="left" if column in {"system", "engine"} else "right")
        for c in self.cases:
            numbers = [str(n) for n in (c.models, c.ranks, c.threads)]
            pair = f"{c.phases['Pair']:.1f}"
            engine = c.engine + (", padded file" if c.padded else "")
            table.add_row(c.system, str(c.atoms), engine, *numbers, f"{c.rate:.1f}", pair)
        lines = [Text(f"{name:60} {x:8.2f}") for name, x in self.ratios.items()]
        for precision, times in self.kernels.items():
            total = sum(times.values())
            lines.append(
                Text(
                    f"kernels, {precision}: {1e3 / total:.2f} million atom-steps/s; ns per atom: "
                    + ", ".join(f"{name} {t:.2f}" for name, t in times.items())
                )
            )
        return Group(table, *lines)


def bench(options: Choice) -> Measured:
    """Run all cases in turns.

    Raises:
        Failure: an option cannot be used, or lmp fails.
    """
    if options.gpu and (reason := devices.inventory().reason):
        raise Failure(f"found no GPU: {reason}; leave out --gpu")
    began = time.monotonic()
    programs = Programs(program.find(options.lmp, options.plugin), mpirun.find(options.mpirun))
    done = cases(options)
    with tempfile.TemporaryDirectory(prefix="pwmlff-") as name:
        folder = Path(name)
        parameters = prepare(
            folder,
            {case.base for case in done if case.system != "LJ"},
            {case.system for case in done},
            options.mace,
        )
        kernels = {}
        if options.gpu:
            kernels = times_of_kernels(folder / "hfo2.pt", 16 if options.quick else 32, 20)
        turns = [case for _ in range(options.rounds) for case in done]
        screen = console(stderr=True)
        quiet = not screen.is_terminal
        for case in track(turns, "timing", console=screen, transient=True, disable=quiet):
            if options.limit is None or time.monotonic() - began < options.limit:
                case.attempt(folder, options.seconds, programs)
    for case in done:
        if case.failed:
            screen.print(f"{case.system}, {case.atoms} atoms, {case.engine}: {case.failed}")
    left_out = [case for case in done if not case.rates and not case.failed]
    if left_out:
        screen.print(f"{len(left_out)} of {len(done)} cases did not fit into {options.limit:g} s")
    done = [case for case in done if case.rates]
    summary = {}
    if options.standard and not left_out:
        summary = gpu_ratios(done) if options.gpu else ratios(done)
    machine = f"{processor()}, {CORES} cores"
    if options.gpu:
        machine += f", {devices.inventory().gpus[0].name}"
    return Measured(machine, parameters, done, summary, kernels)


def main() -> None:
    """Read the options, time and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--atoms", default="", help="numbers of atoms of HfO2, about")
    parser.add_argument("--engine", default="", help="engines: torchscript, fused")
    parser.add_argument("--precision", default="", help="precisions: exact, double, mixed")
    parser.add_argument("--np", default="", help="numbers of ranks")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each case, in turns")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a run")
    parser.add_argument("--quick", action="store_true", help="leave out the large boxes")
    parser.add_argument("--gpu", action="store_true", help="on a GPU, and its kernels alone")
    parser.add_argument("--limit", type=float, help="seconds; later cases are left out")
    parser.add_argument("--lmp", help="the lmp to run")
    parser.add_argument("--plugin", type=Path, help="plugin to load, or its folder")
    parser.add_argument("--mpirun", help="the mpirun to use")
    parser.add_argument("--mace", type=Path, help="a folder of mace_models.py")
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--kernels", action="store_true", help="of the large box, twice and alone")
    given = parser.parse_args()
    if given.kernels:
        with tempfile.TemporaryDirectory(prefix="pwmlff-") as folder:
            prepare(Path(folder), set(), set())
            print(json.dumps(times_of_kernels(Path(folder, "hfo2.pt"), 32, 1), indent=1))
        return
    try:
        found = bench(
            Choice(
                positive_integers("--atoms", given.atoms) if given.atoms else (),
                names(given.engine),
                names(given.precision),
                positive_integers("--np", given.np) if given.np else (),
                given.rounds,
                given.seconds,
                given.quick,
                given.gpu,
                given.limit,
                given.lmp,
                given.mpirun,
                given.plugin,
                given.mace,
            )
        )
    except Failure as failure:
        raise SystemExit(f"error: {failure}") from failure
    if given.json:
        print(json.dumps({"ok": True, **found.data()}, indent=1))
    else:
        console().print(found.show(), crop=False)


if __name__ == "__main__":
    main()
