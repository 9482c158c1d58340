"""A fast model of what a slow one knows: the learning loop with a teacher, and a card of both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from ase.io import read
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff.data import extxyz, readers
from pwmlff.data.frames import Frames
from pwmlff.evaluation import many
from pwmlff.files import write_whole
from pwmlff.launch import program
from pwmlff.learn import explore, labelling
from pwmlff.learn.processes import Task, Workshop
from pwmlff.learn.rounds import Rounds
from pwmlff.learn.settings import Choose, Explore, Label, Learning, Loop, Start, Train
from pwmlff.learn.verdict import LearnReport
from pwmlff.report import Failure, plain

CARD = "card.json"
#: Shares of the time: of the loop, of training and labels in each round, of the last training.
OF_LOOP, OF_ROUND, OF_LABELS, OF_LAST = 0.85, 0.06, 0.03, 0.30
#: A NEP learns more of few labels than a Deep Potential, and runs faster.
STUDENT = ("model.kind=nep", "model.repulsion=zbl")
MOST_LABELS = 200  # of a round, however fast the teacher is
ROUNDS = 8
WINDOW = (0.03, 1.0)  # in RMS forces
TESTED, EVERY, STEPS = 20, 100, 1000  # structures held out; steps between them and before the first
ATOMS = 64  # at least, of a structure that is explored
SEED = 4711  # of what is held out and of the last run, beside those of the loop


@dataclass(frozen=True)
class Teaching:
    """What is asked for."""

    teacher: str  # calculator, as [label] has it
    start: tuple[str, ...]  # files with structures
    temperatures: tuple[float, float]  # K, the lowest and the highest
    minutes: float  # of everything
    folder: Path
    python: str = ""  # with the teacher; this one if empty
    settings: tuple[str, ...] = ()  # of run.toml
    frames: int = 20  # first structures of each start
    picoseconds: float = 100.0  # of the last run

    @property
    def held_out(self) -> float:
        """The temperature that is never explored, K."""
        low, high = self.temperatures
        return (low + 2.0 * high) / 3.0

    @property
    def steps(self) -> int:
        """Of 1 fs, of the last run."""
        return round(1000.0 * self.picoseconds)


@dataclass(frozen=True)
class Card:
    """What the student is worth, at a temperature that it never saw."""

    temperature: float  # K
    structures: int
    rms: dict[str, float]  # of the teacher's forces, a component, by element and "all", eV/angstrom
    rmse: dict[str, float]  # of the student's, likewise
    energy: float  # RMSE, eV/atom
    teacher_seconds: float  # for an atom and step on one core
    student_seconds: float  # NaN where the last run has not come to its end
    highest: float  # K, of the last run
    picoseconds: float  # that it went on for
    event: str  # what ended it, or what is odd in its last structure; empty where nothing is

    @property
    def share(self) -> float:
        """Error of forces beside their RMS."""
        return self.rmse["all"] / max(self.rms["all"], 1e-12)

    @property
    def faster(self) -> float:
        """How many times."""
        return self.teacher_seconds / self.student_seconds


@dataclass(frozen=True)
class DistillReport:
    """The loop, and the card."""

    loop: LearnReport
    teacher: str
    card: Card
    ok: bool = field(default=True, init=False)

    def data(self) -> dict[str, Any]:
        """Plain values."""
        card = {**asdict(self.card), "share": self.card.share, "faster": self.card.faster}
        return {"teacher": self.teacher, "card": card, "loop": self.loop.data()}

    def show(self) -> RenderableType:
        """The card, then the loop with the lines for LAMMPS."""
        card = self.card
        title = f"{self.teacher} at {card.temperature:g} K, {card.structures} structures held out"
        table = Table("", "RMS force, eV/Å", "RMSE of the student, meV/Å", "%", title=title)
        for name, rms in card.rms.items():
            rmse = card.rmse[name]
            share = f"{100 * rmse / max(rms, 1e-12):.3g}"
            table.add_row(name, f"{rms:.4g}", f"{1000 * rmse:.4g}", share)
        student = "not timed, as its run has not come to its end"
        if np.isfinite(card.student_seconds):
            student = f"student {1.0 / card.student_seconds:.4g}: {card.faster:.0f} times"
        lines = [
            f"RMSE of energies: {1000 * card.energy:.3g} meV/atom",
            f"atom-steps/s on one core: teacher {1.0 / card.teacher_seconds:.4g}, {student}",
            f"{card.picoseconds:g} ps at {card.highest:g} K: {card.event or 'no event'}",
        ]
        return Group(table, *map(Text, lines), self.loop.show())


def learning(teaching: Teaching) -> Learning:
    """The settings of the loop.

    Raises:
        Failure: a structure cannot be read, or temperatures do not rise.
    """
    low, high = teaching.temperatures
    if not 0.0 < low < high:
        raise Failure(f"temperatures are {low:g} to {high:g}, expected rising ones above 0")
    structures = [atoms for name in teaching.start for atoms in readers.structures(name)]
    numbers = sorted({int(z) for atoms in structures for z in atoms.numbers})
    start = teaching.folder / "start.extxyz"
    extxyz.write_whole(start, [repeated(atoms) for atoms in structures])
    made = f"{start}@:"
    strain = (-0.02, 0.0, 0.02)
    return Learning(
        loop=Loop(folder=str(teaching.folder), rounds=ROUNDS, max_time=OF_LOOP * teaching.minutes),
        start=Start(
            elements=tuple(chemical_symbols[z] for z in numbers),
            structures=(made,),
            frames=teaching.frames,
        ),
        train=Train(
            set=(*STUDENT, *teaching.settings),
            minutes=OF_ROUND * teaching.minutes,
            last_minutes=OF_LAST * teaching.minutes,
        ),
        label=Label(calculator=teaching.teacher, python=teaching.python),
        choose=Choose(most=MOST_LABELS, minutes=OF_LABELS * teaching.minutes, relative=WINDOW),
        explore=(
            Explore(temperature=(low, (low + high) / 2.0), strain=strain),
            Explore(temperature=(high,), strain=strain, first_round=1),
            # What takes long to go wrong: the run that the student is judged by.
            Explore(temperature=(high,), steps=teaching.steps, first_round=2),
        ),
    ).checked(Path.cwd())


def repeated(atoms: Atoms) -> Atoms:
    """A supercell of at least ATOMS atoms, as even as can be, where the structure is periodic."""
    result: Atoms = atoms.copy()
    while len(result) < ATOMS and result.pbc.any():
        heights = np.where(result.pbc, result.get_volume() / result.cell.areas(), np.inf)
        times = [1, 1, 1]
        times[int(np.argmin(heights))] = 2
        result = result.repeat(times)
    return result


def distill(teaching: Teaching, asked: Callable[[], bool]) -> DistillReport:
    """Teach, or go on with it, and judge.

    Raises:
        Failure: as of a loop.
        Stopped: the end was asked for.
    """
    teaching.folder.mkdir(parents=True, exist_ok=True)
    config = learning(teaching)
    loop = Rounds(config, asked).run()
    path = teaching.folder / CARD
    if path.exists():
        stored: dict[str, Any] = json.loads(path.read_bytes())
        known: dict[str, Any] = {k: np.nan if v is None else v for k, v in stored.items()}
        return DistillReport(loop, teaching.teacher, Card(**known))
    shop = Workshop(teaching.folder, asked)
    try:
        card = _judged(teaching, config, loop, shop)
    finally:
        shop.close()
    write_whole(path, json.dumps(plain(card), indent=1).encode())
    return DistillReport(loop, teaching.teacher, card)


def _judged(teaching: Teaching, config: Learning, loop: LearnReport, shop: Workshop) -> Card:
    symbols = config.start.elements
    models = [Path(name) for name in loop.models]
    test, seconds = _held_out(teaching, config, models, shop)
    structures = [test.structure(k) for k in range(len(test))]
    results = many.evaluate(models[0], structures)
    errors = np.concatenate([one.forces for one in results]) - test.forces
    energies = np.array([one.energy for one in results]) - test.energies
    which = {"all": np.ones(len(test.numbers), bool)}
    which |= {s: test.numbers == z for s, z in zip(symbols, _numbers(symbols), strict=True)}
    student, event = _last_run(teaching, config, models[0], shop)
    return Card(
        teaching.held_out,
        len(test),
        {name: _rms(test.forces[rows]) for name, rows in which.items() if rows.any()},
        {name: _rms(errors[rows]) for name, rows in which.items() if rows.any()},
        _rms(energies / test.natoms),
        seconds,
        student,
        teaching.temperatures[1],
        teaching.picoseconds,
        event,
    )


def _held_out(
    teaching: Teaching, config: Learning, models: Sequence[Path], shop: Workshop
) -> tuple[Frames, float]:
    """Labels at the temperature that is held out, and the teacher's time for an atom."""
    folder = teaching.folder / "held-out"
    path = folder / "labelled.extxyz"
    if not path.exists():
        steps = STEPS + EVERY * TESTED
        kind = Explore(
            structures=config.start.structures,
            temperature=(teaching.held_out,),
            steps=steps,
            every=EVERY,
        )
        wanted = explore.runs([kind], 0)
        found = explore.explore(
            wanted,
            models,
            _numbers(config.start.elements),
            config.start.elements,
            (0.0, 1e9),
            SEED,
            folder / "explore",
            shop,
            1,
        )
        frames = [a for one in found for a in one.candidates if a.info["step"] > STEPS]
        chosen = frames[:: max(1, len(frames) // TESTED)][:TESTED]
        if not chosen:
            why = found[0].died or "the run was short"
            raise Failure(f"no structure came of {teaching.held_out:g} K: {why}")
        made = labelling.make(
            chosen, _numbers(config.start.elements), config.label, folder / "labels", shop, 1,
            threads=1,
        )  # fmt: skip
        extxyz.write_whole(path, made.frames)
    times = [atoms.info["seconds"] / len(atoms) for atoms in _all(path)]
    return readers.read(path), float(np.median(times))


def _last_run(
    teaching: Teaching, config: Learning, model: Path, shop: Workshop
) -> tuple[float, str]:
    """Dynamics at the highest temperature: seconds for an atom and step, and what happened."""
    folder = teaching.folder / "last"
    folder.mkdir(exist_ok=True)
    kind = Explore(
        structures=config.start.structures,
        temperature=(teaching.temperatures[1],),
        steps=teaching.steps,
    )
    one = explore.runs([kind], 0)[0]
    assert one.structure is not None  # it has no input of its own
    link = folder / model.name
    link.unlink(missing_ok=True)
    link.symlink_to(model)
    symbols = config.start.elements
    text = explore.input_of(
        one, one.structure, folder, f"pair_style pwmlff 1 {model.name}", _numbers(symbols),
        symbols, SEED,
    )  # fmt: skip
    names = " ".join(symbols)
    text += f"write_dump all custom last.dump id element x y z modify sort id element {names}\n"
    (folder / "in.lmp").write_text(text)
    found = program.find()
    command = [found.path, "-in", "in.lmp", "-log", "log.lammps"]
    environment = {"OMP_NUM_THREADS": "1", **found.environment}
    (end,) = shop.run([Task(command, folder, folder / "lmp.out", environment)], 1)
    if end.code != 0:
        errors = [line for line in end.text.splitlines() if "ERROR" in line]
        return np.nan, (errors or [f"lmp ended with {end.code}"])[-1]
    match = re.search(r"Loop time of (\S+) on 1 procs for (\d+) steps with (\d+) atoms", end.text)
    assert match is not None  # of a run that has ended
    seconds = float(match[1]) / int(match[2]) / int(match[3])
    (last,) = _all(folder / "last.dump", "lammps-dump-text")
    event = "" if explore.apart(last, config.choose.closest) else "atoms came too close"
    return seconds, event


def _numbers(symbols: Sequence[str]) -> list[int]:
    return [chemical_symbols.index(symbol) for symbol in symbols]


def _all(path: Path, kind: str = "extxyz") -> list[Atoms]:
    frames = read(path, index=":", format=kind)
    assert isinstance(frames, list)  # as ase gives for a slice
    return frames


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))
