"""`pwmlff compare`: the same structures through the float64 reference and through lmp.

The reference is :mod:`pwmlff.evaluation.reference`, on the CPU. lmp runs each combination of ranks,
device, engine and precision, and writes energies, forces and virial of all ranks with all digits.
All atoms of all frames are compared.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.io import read
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from rich.text import Text

from pwmlff import devices, picture
from pwmlff.evaluation import model_file
from pwmlff.evaluation.engine import PRECISIONS, choose
from pwmlff.evaluation.reference import Result, evaluate
from pwmlff.launch import lmp, mpirun
from pwmlff.report import Failure, console

TIMEOUT = 600  # seconds for one combination
PLAIN = re.compile(r"[\w/.,:+=@%^~-]+", re.ASCII)  # what a word of LAMMPS's input can hold
LAMMPS_DATA = "lammps-data"  # as ase calls that format
QUANTITIES = ("energy", "atom_energy", "force", "force_rms", "virial")
#: Largest difference of the energy per atom, of one atom's energy (eV), of forces and their RMS
#: (eV/angstrom), and of the virial as a share of its largest component (at least 1 eV). Those of
#: "exact" are all shares of the largest value (at least 1), of "mixed" that of one atom's energy.
GATES = {
    "exact": (1e-10, 1e-10, 1e-10, 1e-10, 1e-10),
    "double": (1e-8, 1e-8, 1e-6, 1e-7, 1e-7),
    "mixed": (1e-6, 5e-6, 1e-4, 1e-5, 1e-5),
}


@dataclass(frozen=True)
class Case:
    """One way to run a model."""

    model: str
    ranks: int
    device: str
    engine: str
    precision: str | None  # None: the file's own

    @property
    def keywords(self) -> str:
        """For pair_style pwmlff."""
        precision = f" precision {self.precision}" if self.precision else ""
        return f"engine {self.engine}{precision} device {self.device}"


@dataclass
class Outcome:
    """What a case differs by, and how much it may."""

    case: Case
    gates: dict[str, float]
    worst: dict[str, float] = field(default_factory=dict)
    rms: dict[str, float] = field(default_factory=dict)
    failure: str = ""  # lmp did not run

    @property
    def failed(self) -> list[str]:
        """Quantities that differ by more than they may."""
        return [q for q in QUANTITIES if not self.worst.get(q, np.nan) <= self.gates[q]]

    @property
    def ok(self) -> bool:
        """Whether lmp ran and everything is within its gate."""
        return not self.failure and not self.failed


@dataclass(frozen=True)
class CompareReport:
    """What `pwmlff compare` found."""

    frames: int
    atoms: int
    outcomes: list[Outcome]
    plot: str

    @property
    def ok(self) -> bool:
        """Whether all combinations are within their gates."""
        return all(outcome.ok for outcome in self.outcomes)

    def data(self) -> dict[str, Any]:
        """Plain values."""
        cases = [
            {**asdict(o.case), "ok": o.ok, "failure": o.failure, "failed": o.failed}
            | {"worst": o.worst, "rms": o.rms, "gates": o.gates}
            for o in self.outcomes
        ]
        return {"frames": self.frames, "atoms": self.atoms, "cases": cases, "plot": self.plot}

    def show(self) -> RenderableType:
        """One row for each combination."""
        table = Table(
            title="largest and, below it, RMS difference from the float64 reference, "
            f"{self.frames} frame{'s' * (self.frames > 1)}, {self.atoms} atoms"
        )
        table.add_column("model", overflow="fold")
        for name in ("np", "device", "engine"):
            table.add_column(name)
        for name in ("energy\n/atom", "atom\nenergy", "force", "virial\n(rel.)"):
            table.add_column(name, justify="right")
        table.add_column("")
        notes, names = [], short_names([o.case.model for o in self.outcomes])
        for o in self.outcomes:
            numbers, case, model = ["", "", "", ""], o.case, names[o.case.model]
            if not o.failure:
                numbers = [
                    f"{o.worst[q]:.1e}\n{o.rms[q]:.1e}"
                    for q in ("energy", "atom_energy", "force", "virial")
                ]
            else:
                notes.append(Text(f"{model}, np {case.ranks}: {o.failure}", "red"))
            verdict = Text("pass", "green") if o.ok else Text("FAIL", "bold red")
            notes += [
                Text(
                    f"{model}, np {case.ranks}, {case.keywords}: {name} differs by "
                    f"{o.worst[name]:.1e}, allowed {o.gates[name]:.1e}",
                    "red",
                )
                for name in (() if o.failure else o.failed)
            ]
            engine = " ".join(filter(None, (case.engine, case.precision)))
            table.add_row(model, str(case.ranks), case.device, engine, *numbers, verdict)
        if self.plot:
            notes.append(Text(f"parity plot: {self.plot}"))
        return Group(table, *notes)


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The name of each file, with as many of its folders as it takes to tell it from the others."""
    names: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        parts = Path(path).parts
        tails = ("/".join(parts[-n:]) for n in range(1, len(parts)))
        others = [f"/{other}" for other in paths if other != path]
        alone = (t for t in tails if not any(other.endswith(f"/{t}") for other in others))
        names[path] = next(alone, path)
    return names


@dataclass(frozen=True)
class Options:
    """What to compare; empty lists stand for everything that there is."""

    models: Sequence[Path]
    data: str  # any file ase reads, with its @index
    elements: Sequence[
        str
    ] = ()  # that take part; of a LAMMPS data file those of its types, in order
    format: str | None = None  # of the data, as ase calls it; None: as it looks
    atom_style: str | None = None  # of a LAMMPS data file; None: as it says itself
    ranks: Sequence[int] = (1, 2)
    devices: Sequence[str] = ()
    engines: Sequence[str] = ()
    precisions: Sequence[str] = ("exact", "double", "mixed")
    tolerances: dict[str, float] = field(default_factory=dict)
    plot: Path | None = None
    lmp: str | None = None
    mpirun: str | None = None
    plugin: Path | None = None  # pwmlffplugin.so or its folder


def compare(options: Options) -> CompareReport:
    """Run all combinations.

    Raises:
        Failure: an option, the models or the structures cannot be used.
    """
    unknown = sorted(set(options.tolerances) - set(QUANTITIES))
    if unknown:
        raise Failure(f"--tol names {', '.join(unknown)}; expected one of {', '.join(QUANTITIES)}")
    mpirun.require_possible(max(options.ranks))
    plot = picture.destination(options.plot) if options.plot else None
    frames = _frames(options)
    empty = [k for k, atoms in enumerate(frames) if len(atoms) == 0]
    if empty:
        raise Failure(f"frame {empty[0]} of '{options.data}' has no atoms: nothing to compare")
    outcomes: list[Outcome] = []
    parity: list[tuple[Case, np.ndarray, np.ndarray]] = []
    for path in options.models:
        module, info = model_file.open_model(path)
        elements = info.numbers_of(options.elements)
        expected = _expected(path, module, frames, elements, _is_lammps_data(options))
        runner = _Runner(options, path, info, elements, frames)
        screen = console(stderr=True)
        for case in track(
            _cases(options, info), escape(f"running {path.name}"), console=screen, transient=True,
            disable=not screen.is_terminal,
        ):  # fmt: skip
            outcome = Outcome(case, _gates(case, info, expected, options.tolerances))
            try:
                found = runner.run(case)
                _measure(outcome, expected, found, runner.prisms)
                if plot:
                    parity.append((case, *_pairs(expected, found, runner.prisms)))
            except Failure as failure:
                outcome.failure = str(failure)
            outcomes.append(outcome)
    if plot and parity:
        _draw(plot, parity)
    natoms = sum(len(atoms) for atoms in frames)
    return CompareReport(len(frames), natoms, outcomes, str(plot or ""))


def _is_lammps_data(options: Options) -> bool:
    if options.format is not None:
        return options.format == LAMMPS_DATA
    return lmp.is_data_file(options.data)


def _frames(options: Options) -> list[Atoms]:
    if _is_lammps_data(options):
        if not Path(options.data).is_file():
            raise Failure(f"found no LAMMPS data file '{options.data}'")
        return [lmp.read_data(options.data, options.elements, options.atom_style)]
    try:
        found = read(options.data, format=options.format)
    except Exception as error:  # ase's readers raise whatever they like
        raise Failure(
            f"ase cannot read '{options.data}' ({type(error).__name__}: {error}); give a file that "
            "it knows, FILE@0:5 for the first five frames"
        ) from error
    return found if isinstance(found, list) else [found]


def _expected(
    path: Path,
    module: torch.jit.ScriptModule,
    frames: Sequence[Atoms],
    elements: Sequence[int],
    lammps_data: bool,
) -> list[Result]:
    try:
        return [evaluate(module, atoms, elements) for atoms in frames]
    except ValueError as error:
        hint = "; --elements gives the elements of the types in order" if lammps_data else ""
        raise Failure(
            f"the reference does not compute these structures with '{path}': {error}{hint}"
        ) from error


def _cases(options: Options, info: model_file.ModelInfo) -> list[Case]:
    """All combinations; the file's own code knows no precision."""
    engines = list(options.engines)
    if not engines:
        fused = choose(info.file).engine.name == "fused"
        engines = ["torchscript", *(["fused"] if fused else [])]
    bad = sorted({*engines} - {"auto", "fused", "torchscript"})
    bad += sorted({*options.precisions} - {*PRECISIONS})
    if bad:
        raise Failure(
            f"found {', '.join(bad)}; expected engines auto, fused, torchscript and precisions "
            f"{', '.join(PRECISIONS)}"
        )
    places = options.devices or ("cpu", *(["gpu"] if devices.inventory().gpus else []))
    return [
        Case(info.file, ranks, device, engine, precision)
        for ranks in options.ranks
        for device in places
        for engine in engines
        for precision in ([None] if engine == "torchscript" else options.precisions)
    ]


def _gates(
    case: Case,
    info: model_file.ModelInfo,
    expected: Sequence[Result],
    tolerances: dict[str, float],
) -> dict[str, float]:
    """What a case may differ by; parameters in float32 are as good as the mixed precision."""
    precision = case.precision or ("exact" if info.dtype == "float64" else "mixed")
    gates = dict(zip(QUANTITIES, GATES[precision], strict=True))
    energy = max(1.0, *(np.abs(e.atom_energy).max(initial=0.0) for e in expected))
    force = max(1.0, *(np.abs(e.forces).max(initial=0.0) for e in expected))
    shares = {
        "exact": {"energy": energy, "atom_energy": energy, "force": force, "force_rms": force},
        "mixed": {"atom_energy": energy},
    }
    for name, scale in shares.get(precision, {}).items():
        gates[name] *= scale
    return {**gates, **tolerances}


class _Runner:
    """Runs lmp on all frames with one model."""

    def __init__(
        self,
        options: Options,
        model: Path,
        info: model_file.ModelInfo,
        elements: Sequence[int],
        frames: Sequence[Atoms],
    ) -> None:
        self.model, self.info, self.elements, self.frames = model, info, elements, frames
        self.program = lmp.program(options.lmp, options.plugin)
        self.mpirun = mpirun.find(options.mpirun)
        self.prisms: list[Any] = []

    def run(self, case: Case) -> list[Result]:
        """Results of lmp for each frame, in LAMMPS's cell; the virial as six components."""
        with tempfile.TemporaryDirectory(prefix="pwmlff-") as name:
            folder = Path(name)
            symbols = " ".join(
                s for s, z in zip(self.info.elements, self.info.atom_type, strict=True)
                if z in self.elements
            )  # fmt: skip
            # Whatever characters its folders have: LAMMPS would split, expand or cut some.
            model = str(self.model.resolve())
            if not PLAIN.fullmatch(model):
                (folder / "model.pt").symlink_to(model)
                model = "model.pt"
            text, self.prisms = "", []
            for k, frame in enumerate(self.frames):
                atoms = lmp.enclosed(frame)
                self.prisms.append(lmp.write_data(folder / f"{k}.data", atoms, self.elements))
                text += f"clear\n{lmp.read_command(atoms, f'{k}.data', self.info.units)}"
                text += f"pair_style pwmlff {model} {case.keywords}\n"
                text += f"pair_coeff * * {symbols}\n{lmp.MEASURE}run 0\n"
                text += lmp.DUMP.replace("atoms.dump", f"{k}.dump")
            (folder / "in.compare").write_text(text)
            self._start(case, folder)
            log = lmp.Thermo(folder / "log.lammps")
            dumps = [lmp.read_dump(folder / f"{k}.dump") for k in range(len(self.frames))]
            return [
                Result(
                    log.columns(k)["PotEng"][-1],
                    dump.c_peatom,
                    lmp.forces(dump),
                    log.virial(self.info.units, k),
                )
                for k, dump in enumerate(dumps)
            ]

    def _start(self, case: Case, folder: Path) -> None:
        wish = mpirun.Wish([self.program.path, "-in", "in.compare"], case.ranks)
        try:
            done = subprocess.run(
                self.mpirun.command(wish),
                cwd=folder,
                env={"OMP_NUM_THREADS": "1", **os.environ, **self.program.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Failure(f"lmp did not finish within {TIMEOUT} s") from error
        if done.returncode != 0:
            lines = done.stdout.strip().splitlines()
            errors = [line for line in lines if "ERROR" in line]
            raise Failure((errors or lines or ["lmp failed without a word"])[-1])


def _measure(
    outcome: Outcome, expected: Sequence[Result], found: Sequence[Result], prisms: Sequence[Any]
) -> None:
    """Worst and RMS difference over all frames and atoms."""
    differences: dict[str, list[np.ndarray]] = {
        q: [] for q in ("energy", "atom_energy", "force", "virial")
    }
    for e, f, prism in zip(expected, found, prisms, strict=True):
        virial = lmp.virial_to_lammps(e.virial, prism)
        scale = max(1.0, np.abs(virial).max())
        differences["energy"].append(np.array([(f.energy - e.energy) / len(e.atom_energy)]))
        differences["atom_energy"].append(f.atom_energy - e.atom_energy)
        differences["force"].append((f.forces - prism.vector_to_lammps(e.forces)).ravel())
        differences["virial"].append((f.virial - virial) / scale)
    for name, parts in differences.items():
        values = np.concatenate(parts)
        outcome.worst[name] = float(np.abs(values).max())
        outcome.rms[name] = float(np.sqrt((values**2).mean()))
    outcome.worst["force_rms"] = outcome.rms["force"]


def _pairs(
    expected: Sequence[Result], found: Sequence[Result], prisms: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Force components of the reference and of lmp."""
    reference = [
        prism.vector_to_lammps(e.forces).ravel() for e, prism in zip(expected, prisms, strict=True)
    ]
    return np.concatenate(reference), np.concatenate([f.forces.ravel() for f in found])


def _draw(path: Path, parity: Sequence[tuple[Case, np.ndarray, np.ndarray]]) -> None:
    """Forces of lmp against the reference, and below them what they differ by."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import, and not always wanted

    figure = Figure(figsize=(6.4, 7.2), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    names = short_names([case.model for case, *_ in parity])
    for case, reference, found in parity:
        label = f"{names[case.model]}, np {case.ranks}, {case.device}, {case.keywords}"
        top.plot(reference, found, ".", markersize=3, label=label)
        bottom.plot(reference, np.maximum(np.abs(found - reference), 1e-17), ".", markersize=3)
    low, high = top.get_xlim()
    top.plot((low, high), (low, high), "-", color="0.7", linewidth=0.8, zorder=0)
    top.set_ylabel("force component in lmp")
    top.legend(fontsize="x-small")
    bottom.set_yscale("log")
    bottom.set_ylabel("difference")
    bottom.set_xlabel("force component of the reference (eV/Å, or reduced)")
    picture.save(figure, path, dpi=150)
