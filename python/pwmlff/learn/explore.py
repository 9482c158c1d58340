"""Runs of LAMMPS with an ensemble, which capture the structures that its models disagree on."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import surface
from ase.data import chemical_symbols, covalent_radii
from ase.io import read

from pwmlff.data import readers
from pwmlff.evaluation.structures import neighbor_list
from pwmlff.files import read_text, write_whole
from pwmlff.launch import lmp, program
from pwmlff.launch.log import read_deviation
from pwmlff.learn.processes import Ended, Task, Workshop
from pwmlff.learn.settings import Explore
from pwmlff.report import Failure

DEVIATION, CAPTURED, LOG = "model_devi.out", "captured.extxyz", "log.lammps"
ESCAPE = 5  # last structures of a run that leaves the window: they fall already
CUT = "the time for it was up"
#: What LAMMPS says of a run on one process.
LOOP_TIME = re.compile(r"Loop time of (\S+) on 1 procs for (\d+) steps with (\d+) atoms")
LAYERS, VACUUM = 3, 10.0  # of a slab; angstrom
#: The pair_style of an input, with the lines that it goes on to.
PAIR_STYLE = re.compile(r"^[ \t]*pair_style[ \t]+(\S+)(?:[^\n]*&[ \t]*\n)*[^\n]*$", re.MULTILINE)


@dataclass(frozen=True)
class Exploration:
    """One of the explorations, by what it is to do."""

    name: str
    explore: Explore
    structure: Atoms | None  # None for an input of the user's own
    temperature: float
    pressure: float | None


@dataclass(frozen=True)
class Explored:
    """What one has found."""

    name: str
    deviations: np.ndarray  # [structures] largest force deviation, eV/angstrom
    candidates: list[Atoms] = field(default_factory=list)  # in the window, and not on its way out
    died: str = ""  # of what, where it did not come to its end
    pace: float = np.nan  # seconds for an atom and step on one core


def runs(explores: Sequence[Explore], number: int) -> list[Exploration]:
    """All explorations of a round."""
    result: list[Exploration] = []
    for which, explore in enumerate(explores):
        if number < explore.first_round:
            continue
        pressures: Sequence[float | None] = explore.pressure or (None,)
        for temperature, pressure in itertools.product(explore.temperature, pressures):
            for label, structure in _structures(explore):
                state = f"{temperature:g} K" + ("" if pressure is None else f", {pressure:g} bar")
                name = f"{which}: {label}, {state}"
                result.append(Exploration(name, explore, structure, temperature, pressure))
    return result


def require_possible(explores: Sequence[Explore], elements: Sequence[int]) -> None:
    """Refuse what would fail once models are trained.

    Args:
        explores: of learn.toml.
        elements: atomic numbers of the models.

    Raises:
        Failure: an input has no `pair_style pwmlff`, or a structure cannot be read, or has other
            elements, or is not periodic where there is a pressure.
    """
    for run in runs(explores, max(explore.first_round for explore in explores)):
        if run.structure is None:
            _style_in(Path(run.explore.input))
            continue
        others = sorted({chemical_symbols[z] for z in run.structure.numbers if z not in elements})
        if others:
            raise Failure(
                f"[[explore]] '{run.name}' has {' '.join(others)}, which [start] elements does not"
            )
        if run.pressure is not None and not run.structure.pbc.all():
            raise Failure(f"[[explore]] pressure is given for '{run.name}', which is not periodic")


def apart(atoms: Atoms, closest: float) -> bool:
    """Whether no two atoms are closer than so many sums of their covalent radii."""
    radii = closest * covalent_radii[atoms.numbers]
    if not radii.max(initial=0.0) > 0.0:
        return True
    i, j, d = neighbor_list("ijd", atoms, 2.0 * float(radii.max()))
    return bool((d >= radii[i] + radii[j]).all())


def _structures(explore: Explore) -> Iterator[tuple[str, Atoms | None]]:
    if explore.input:
        yield Path(explore.input).name, None
        return
    for name in explore.structures:
        for k, atoms in enumerate(frames := readers.structures(name)):
            label = Path(name.partition("@")[0]).name + (f" {k}" if len(frames) > 1 else "")
            for strain in explore.strain:
                for face in explore.surface or ("",):
                    structure = _slab(atoms, face) if face else atoms.copy()
                    structure = structure.repeat(explore.supercell)
                    structure.set_cell((1.0 + strain) * np.array(structure.cell), scale_atoms=True)
                    words = [label, f"strain {strain:g}" * bool(strain), f"({face})" * bool(face)]
                    yield " ".join(word for word in words if word), structure


def _slab(atoms: Atoms, face: str) -> Atoms:
    try:
        indices = tuple(int(word) for word in face.split())
        slab: Atoms = surface(atoms, indices, LAYERS, vacuum=VACUUM / 2)
    except (ValueError, TypeError) as error:
        raise Failure(
            f"[[explore]] surface has '{face}', expected three Miller indices like '1 0 0': {error}"
        ) from None
    slab.pbc = True
    return slab


def explore(
    wanted: Sequence[Exploration],
    models: Sequence[Path],
    elements: Sequence[int],
    window: tuple[float, float],
    seed: int,
    folder: Path,
    shop: Workshop,
    jobs: int,
    closest: float,
    seconds: float = np.inf,
) -> list[Explored]:
    """Run explorations in folders of their own, all anew.

    Args:
        wanted: of this round.
        models: of the ensemble.
        elements: atomic numbers in the order of types.
        window: of the largest force deviation, eV/angstrom; beyond it a run ends.
        seed: of the first one's velocities.
        folder: made anew.
        shop: that runs programs.
        jobs: how many at a time.
        closest: distance of atoms, in the smallest sum of covalent radii, at which a run ends.
        seconds: that all together may take.

    Raises:
        Failure: there is no lmp, or an input of the user's own has no `pair_style pwmlff`.
        Stopped: the end was asked for.
    """
    shutil.rmtree(folder, ignore_errors=True)
    lmp_program = program.find()
    tasks = []
    each = seconds / max(1, -(-len(wanted) // jobs))
    least = 2.0 * closest * float(covalent_radii[list(elements)].min())
    for k, run in enumerate(wanted):
        cwd = folder / f"{k:03d}"
        cwd.mkdir(parents=True)
        for path in models:
            (cwd / path.name).symlink_to(path)
        names = [path.name for path in models]
        style = (
            f"pair_style pwmlff {len(names)} {' '.join(names)} out_freq {run.explore.every} "
            f"out_file {DEVIATION} capture {window[0]:.6g} {window[1]:.6g} {CAPTURED} "
            "beyond stop" + (f" min_distance {least:.4g} stop" if least > 0.0 else "")
        )
        style = limited(each) + style
        command = [lmp_program.path, "-in", "in.lmp", "-screen", "none", "-log", LOG]
        if run.structure is None:
            text = _own_input(Path(run.explore.input), cwd, style)
            variables = {"temperature": run.temperature, "pressure": run.pressure or 0.0}
            for name, value in {**variables, "seed": seed + k}.items():
                command += ["-var", name, f"{value:.12g}"]
        else:
            text = input_of(run, run.structure, cwd, style, elements, seed + k)
        write_whole(cwd / "in.lmp", text.encode())
        environment = {"OMP_NUM_THREADS": "1", **lmp_program.environment}
        tasks.append(Task(command, cwd, cwd / "lmp.out", environment))
    ended = shop.run(tasks, jobs)
    return [
        _outcome(run.name, task, end, window[1])
        for run, task, end in zip(wanted, tasks, ended, strict=True)
    ]


def limited(seconds: float) -> str:
    """The command that has a run end in time."""
    return f"timer timeout {max(1, int(seconds))} every 10\n" if np.isfinite(seconds) else ""


def pace(text: str) -> float:
    """Seconds for an atom and step, by the log of a run on one core; NaN where it has not ended."""
    if (match := LOOP_TIME.search(text)) is None:
        return np.nan
    seconds, steps, atoms = map(float, match.groups())
    return seconds / (steps * atoms) if steps * atoms else np.nan


def input_of(
    run: Exploration, atoms: Atoms, cwd: Path, style: str, elements: Sequence[int], seed: int
) -> str:
    """Dynamics of a structure at one temperature, and pressure if any; writes its data file.

    Args:
        run: what it is to do.
        atoms: the structure.
        cwd: folder for the data file.
        style: the command pair_style.
        elements: atomic numbers in the order of types.
        seed: of the velocities.
    """
    box, symbols = lmp.enclosed(atoms), [chemical_symbols[z] for z in elements]
    lmp.write_data(cwd / "structure.data", box, elements)
    t, p = run.temperature, run.pressure
    ensemble, triclinic = f"nvt temp {t:g} {t:g} 0.1", ""
    if p is not None:
        ensemble = f"npt temp {t:g} {t:g} 0.1 tri {p:g} {p:g} 1.0"
        triclinic = "change_box all triclinic\n"
    return (
        f"box tilt large\n{lmp.read_command(box, 'structure.data')}{triclinic}"
        f"{style}\npair_coeff * * {' '.join(symbols)}\n"
        f"velocity all create {t:g} {seed} loop geom\n"
        f"timestep {run.explore.timestep / 1000.0:g}\n"
        f"fix dynamics all {ensemble}\n"
        f"thermo {max(1, 10 * run.explore.every)}\n"
        f"run {run.explore.steps}\n"
    )


def _own_input(path: Path, cwd: Path, style: str) -> str:
    """An input with the pair_style of the ensemble; what lies beside it is linked."""
    text, style_match = read_text(path), _style_in(path)
    for other in path.parent.iterdir():
        link = cwd / other.name
        if other != path and not link.exists() and other.name != "in.lmp":
            link.symlink_to(other)
    return text[: style_match.start()] + style + text[style_match.end() :]


def _style_in(path: Path) -> re.Match[str]:
    """Where an input has its pair_style."""
    matches = list(PAIR_STYLE.finditer(read_text(path)))
    if len(matches) != 1 or matches[0][1] != "pwmlff":
        raise Failure(
            f"'{path}' has {len(matches)} lines of pair_style, expected one of pair_style pwmlff, "
            "whose models and keywords are replaced"
        )
    return matches[0]


def _outcome(name: str, task: Task, ended: Ended, high: float) -> Explored:
    """Deviations and candidates of a run, whatever its end was.

    Of one that left the window, the first candidate stays, and those that are not on its way out.
    """
    steps = deviations = np.empty(0)
    with suppress(Failure):  # it has died before its first comparison
        columns = read_deviation(task.folder / DEVIATION)
        steps, deviations = columns["step"], columns["max_devi_f"]
    candidates: list[Atoms] = []
    path = task.folder / CAPTURED
    if path.exists() and path.stat().st_size:
        frames = read(path, index=":", format="extxyz")
        for atoms in frames:
            atoms.info = {"step": atoms.info["step"], "max_devi_f": atoms.info["max_devi_f"]}
            atoms.info["explored"] = name
            candidates.append(atoms)
    log = task.folder / LOG
    text = log.read_text(errors="replace") if log.exists() else ended.text
    left = bool(len(deviations)) and bool(deviations[-1] >= high)
    died = ""
    if ended.code != 0:
        errors = [line for line in text.splitlines() if "ERROR" in line]
        died = (errors or text.splitlines() or [f"it ended with {ended.code}"])[-1]
        died = re.sub(r"^ERROR[^:]*: ", "", died).strip()
    elif not left and "Wall time limit reached" in text:
        died = CUT
    if left or ended.code != 0:
        way_out = steps[-ESCAPE:]
        candidates = [
            a for k, a in enumerate(candidates) if k == 0 or a.info["step"] not in way_out
        ]
    return Explored(name, deviations, candidates, died, pace(text))
