"""A fast model of what a slow one knows: the learning loop with a teacher, and a card of both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms, units
from ase.data import atomic_numbers, chemical_symbols
from ase.eos import EquationOfState
from ase.io import read
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff.data import extxyz, readers
from pwmlff.evaluation import many
from pwmlff.evaluation.engine import Evaluation
from pwmlff.evaluation.structures import neighbor_list
from pwmlff.files import write_whole
from pwmlff.launch import interpreter, lmp, program
from pwmlff.learn import explore, labelling
from pwmlff.learn.processes import Task, Workshop
from pwmlff.learn.rounds import Rounds, json_in
from pwmlff.learn.settings import Choose, Explore, Label, Learning, Loop, Start, Train
from pwmlff.learn.state import State
from pwmlff.learn.verdict import LearnReport
from pwmlff.report import Failure, plain
from pwmlff.threads import available

CARD = "card.json"
#: Shares of the time: of training and labels in each round, of the last training, of the card as
#: long as nothing tells what it takes, and at most.
OF_ROUND, OF_LABELS, OF_LAST, OF_CARD, MOST_OF_CARD = 0.06, 0.03, 0.30, 0.15, 0.30
VERIFYING = 0.5  # minutes that `pwmlff verify` takes
#: A NEP learns more of few labels than a Deep Potential, and runs faster.
STUDENT = ("model.kind=nep", "model.repulsion=zbl")
MOST_LABELS = 200  # of a round, however fast the teacher is
ROUNDS = 8
WINDOW = (0.03, 1.0)  # in RMS forces
TESTED, EVERY, STEPS = 20, 100, 1000  # structures held out; steps between them and before the first
FEWEST = 4  # of a set that is held out, where there is no time for more
#: What else is held out, of half as many structures: beyond the strains that are explored, and NPT.
OTHERS = {"cell vectors 3 % longer": {"strain": (0.03,)}, "at 0 bar": {"pressure": (0.0,)}}
STRAINS = (-0.04, -0.03, -0.02, -0.01, 0.0, 0.01, 0.02, 0.03, 0.04)  # of the curve of the density
BAD = 0.25  # error of forces beside their RMS, beyond which a student is none
GONE = 2.0  # distances to the nearest atom, in the largest one at the start: an atom has left
GROWN = 1.5  # volumes of the start: what is this large at 0 bar evaporates
GPA = 1.0 / units.GPa
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
    stress: float  # RMSE of a component, GPa; NaN where the teacher or the cell has none
    #: The same of what else is held out, by name: structures, rms, rmse, energy, stress, and
    #: pressure, what the teacher's is more, GPa.
    others: dict[str, dict[str, float]]
    #: g/cm^3 at rest, where the energy of the scaled first structure is lowest: teacher, student,
    #: and start, what it has; NaN where there is no lowest one. Empty without a cell.
    density: dict[str, float]
    teacher_seconds: float  # for an atom and step on one core
    student_seconds: float  # NaN where the last run has not come to its end
    highest: float  # K, of the last run
    picoseconds: float  # that it went on for
    event: str  # what ended it, or what is odd in its last structure; empty where nothing is
    grown: float  # volume in the run at 0 bar over that at its start; NaN without
    grades: dict[str, str]  # of pwmlff verify, by check; empty where there was no time

    @property
    def share(self) -> float:
        """Error of forces beside their RMS."""
        return self.rmse["all"] / max(self.rms["all"], 1e-12)

    @property
    def faster(self) -> float:
        """How many times."""
        return self.teacher_seconds / self.student_seconds

    @property
    def grade(self) -> str:
        """The worst of all checks; empty where there is none."""
        return max(self.grades.values(), default="")

    def faults(self) -> list[str]:
        """What makes it no student."""
        shares = {f"at {self.temperature:g} K": self.share}
        shares |= {
            name: rmses["rmse"] / max(rmses["rms"], 1e-12) for name, rmses in self.others.items()
        }
        result = [
            f"the error of forces {name} is {100 * share:.3g} % of their RMS, expected at most "
            f"{100 * BAD:g} %"
            for name, share in shares.items()
            if not share <= BAD
        ]
        failed = [name for name, grade in self.grades.items() if grade == "F"]
        if failed:
            result.append(f"pwmlff verify gives F for {', '.join(failed)}")
        if self.event:
            result.append(f"at {self.highest:g} K, after {self.picoseconds:g} ps: {self.event}")
        if self.grown > GROWN:
            result.append(f"at 0 bar it evaporates: the volume is {self.grown:.3g} times the first")
        return result


@dataclass(frozen=True)
class DistillReport:
    """The loop, and the card."""

    loop: LearnReport
    teacher: str
    card: Card

    @property
    def ok(self) -> bool:
        """Whether the student can take the teacher's place."""
        return not self.card.faults()

    def data(self) -> dict[str, Any]:
        """Plain values."""
        names = ("share", "faster", "grade")
        card = {**asdict(self.card), **{name: getattr(self.card, name) for name in names}}
        faults = self.card.faults()
        return {"teacher": self.teacher, "card": card, "faults": faults, "loop": self.loop.data()}

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
        lines = [f"RMSE of energies: {1000 * card.energy:.3g} meV/atom" + _stress_text(card.stress)]
        for name, rmses in card.others.items():
            part = 100 * rmses["rmse"] / max(rmses["rms"], 1e-12)
            lines.append(
                f"{name}, {rmses['structures']:.0f} structures: forces {1000 * rmses['rmse']:.4g} "
                f"meV/Å, {part:.3g} %; energies {1000 * rmses['energy']:.3g} meV/atom"
                + _stress_text(rmses["stress"])
                + f"; the teacher's pressure is {rmses['pressure']:+.3g} GPa from the student's"
                * bool(np.isfinite(rmses["pressure"]))
            )
        if card.density:
            values = [
                f"{name} {value:.4g}" if np.isfinite(value) else f"{name}: no lowest energy"
                for name, value in card.density.items()
            ]
            lines.append(f"density of the first structure at rest, g/cm³: {', '.join(values)}")
        lines += [
            f"atom-steps/s on one core: teacher {1.0 / card.teacher_seconds:.4g}, {student}",
            f"{card.picoseconds:.4g} ps at {card.highest:g} K: {card.event or 'no event'}",
            f"pwmlff verify: {card.grade or 'no time for it'}",
        ]
        faults = [Text(text, "bold red") for text in card.faults()]
        return Group(table, *map(Text, lines), *faults, self.loop.show())


def _stress_text(stress: float) -> str:
    return f"; stress {stress:.3g} GPa" if np.isfinite(stress) else ""


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
    first_structures = f"{start}@:"
    strain = (-0.02, 0.0, 0.02)
    return Learning(
        loop=Loop(folder=str(teaching.folder), rounds=ROUNDS, max_time=teaching.minutes),
        start=Start(
            elements=tuple(chemical_symbols[z] for z in numbers),
            structures=(first_structures,),
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
    with closing(Workshop(teaching.folder, asked)) as shop:
        return _distilled(teaching, shop)


def _distilled(teaching: Teaching, shop: Workshop) -> DistillReport:
    """The same in a folder that nobody else has."""
    config = learning(teaching)
    rounds = Rounds(
        config, shop.asked, lambda state: _minutes_of_card(teaching, config, state), shop
    )
    loop = rounds.run()
    path = teaching.folder / CARD
    stored = _numbers_in(json.loads(path.read_bytes())) if path.exists() else {}
    if stored.keys() == {one.name for one in fields(Card)}:  # and not of another release
        return DistillReport(loop, teaching.teacher, Card(**stored))
    # A start after the time was up gets what the card was to have.
    left = max(teaching.minutes - loop.state.seconds / 60.0, OF_CARD * teaching.minutes)
    end = time.monotonic() + 60.0 * left
    judge = _Judge(teaching, config, [Path(name) for name in loop.models], shop, rounds.jobs, end)
    report = DistillReport(loop, teaching.teacher, judge.judged())
    write_whole(path, json.dumps(plain(report.card), indent=1).encode())
    return report


def _minutes_of_card(teaching: Teaching, config: Learning, state: State) -> float:
    """What the card will take, by what labels and runs have taken."""
    paces = [one["explore"]["pace"] for one in state.rounds if "explore" in one]
    each = state.first.get("seconds_each")
    if not each or not paces or not paces[-1]:
        return OF_CARD * teaching.minutes
    natoms = max(
        len(atoms) for name in config.start.structures for atoms in readers.structures(name)
    )
    steps = teaching.steps + (1 + len(OTHERS)) * (STEPS + EVERY * TESTED)
    cores = config.loop.jobs or available()
    labels = each * (TESTED * cores + len(OTHERS) * TESTED / 2 + len(STRAINS))
    needed = float(labels + steps * natoms * paces[-1]) / 60.0 + VERIFYING
    return min(needed, MOST_OF_CARD * teaching.minutes)


def _numbers_in(stored: Any) -> Any:
    """What JSON has as null is no number."""
    if isinstance(stored, dict):
        return {name: _numbers_in(value) for name, value in stored.items()}
    return np.nan if stored is None else stored


@dataclass(frozen=True)
class _Judge:
    """Makes the card."""

    teaching: Teaching
    config: Learning
    models: Sequence[Path]
    shop: Workshop
    jobs: int
    end: float  # by time.monotonic()

    def left(self) -> float:
        """Seconds, at least some."""
        return max(5.0, self.end - time.monotonic())

    def judged(self) -> Card:
        """All of it, in the order of what is missed most where the time is short."""
        teaching, numbers = self.teaching, self.numbers
        first = readers.structures(self.config.start.structures[0])[0]
        periodic = bool(first.pbc.all())
        by_set = self._explored(OTHERS if periodic else {})
        each = self._seconds_of_label()
        most = int(0.4 * self.left() / (2.0 * each)) if each else TESTED
        count = max(FEWEST, min(TESTED, most))
        test = self._labelled(
            "", by_set[""][:: max(1, len(by_set[""]) // count)][:count], alone=True
        )
        seconds = float(np.median([one.info["seconds"] / len(one) for one in test]))
        others, grown = {}, np.nan
        for name in list(by_set)[1:]:
            frames = by_set[name]
            if "pressure" in OTHERS[name] and frames:
                grown = max(atoms.info["grown"] for atoms in frames)
            chosen = frames[:: max(1, 2 * len(frames) // count)][: max(1, count // 2)]
            if chosen:
                others[name] = self._errors(self._labelled(name, chosen))
        own = self._errors(test)
        forces = np.concatenate([one.get_forces() for one in test])
        wrong = np.concatenate([one.forces for one in self._student(test)]) - forces
        z = np.concatenate([one.numbers for one in test])
        which = {"all": np.ones(len(z), bool)}
        which |= {chemical_symbols[k]: z == k for k in numbers if (z == k).any()}
        density = self._density(first) if periodic else {}
        student, steps, event = self._last_run(self.left() - 60.0 * VERIFYING)
        return Card(
            temperature=teaching.held_out,
            structures=len(test),
            rms={name: _rms(forces[rows]) for name, rows in which.items()},
            rmse={name: _rms(wrong[rows]) for name, rows in which.items()},
            energy=own["energy"],
            stress=own["stress"],
            others=others,
            density=density,
            teacher_seconds=seconds,
            student_seconds=student,
            highest=teaching.temperatures[1],
            picoseconds=steps / 1000.0,
            event=event,
            grown=grown,
            grades=self._grades(),
        )

    @property
    def numbers(self) -> list[int]:
        """Of the elements, in the order of types."""
        return [atomic_numbers[symbol] for symbol in self.config.start.elements]

    def _explored(self, others: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Atoms]]:
        """Structures of the student's dynamics at the temperature that is held out, by set.

        Raises:
            NoStudent: it does not get as far as one of the first set.
        """
        path, periodic = self.teaching.folder / "held-out" / "structures.extxyz", bool(others)
        kind = Explore(
            structures=self.config.start.structures,
            temperature=(self.teaching.held_out,),
            steps=STEPS + EVERY * TESTED,
            every=EVERY,
        )
        names = ["", *others]
        kinds = [kind, *(replace(kind, **changed) for changed in others.values())]
        if not path.exists():
            wanted = explore.runs(kinds, 0)
            results = explore.explore(
                wanted,
                self.models,
                self.numbers,
                (0.0, 1e9),
                SEED,
                path.parent / "explore",
                self.shop,
                self.jobs,
                self.config.choose.closest,
                0.3 * self.left(),
            )
            frames = []
            for one, run in zip(results, wanted, strict=True):
                for atoms in one.candidates:
                    atoms.info["set"] = kinds.index(run.explore)
                    if run.structure is not None and periodic:
                        atoms.info["grown"] = atoms.get_volume() / run.structure.get_volume()
                frames += [atoms for atoms in one.candidates if atoms.info["step"] > STEPS]
            if not any(atoms.info["set"] == 0 for atoms in frames):
                raise NoStudent(
                    f"no structure came of {self.teaching.held_out:g} K: "
                    f"{results[0].died or 'the run was short'}; give it more time, or lower the "
                    "temperatures"
                )
            extxyz.write_whole(path, frames)
        frames = _all(path)
        return {name: [a for a in frames if a.info["set"] == k] for k, name in enumerate(names)}

    def _seconds_of_label(self) -> float:
        """That the teacher has taken for one of the first structures; 0 where it has not said."""
        first = _all(self.teaching.folder / "first" / "labelled.extxyz")
        return float(np.median([atoms.info.get("seconds", 0.0) for atoms in first]))

    def _labelled(self, name: str, structures: Sequence[Atoms], alone: bool = False) -> list[Atoms]:
        """Structures with the teacher's labels; alone on the machine where they are timed."""
        folder = self.teaching.folder / "held-out" / "-".join(name.split()).replace("%", "percent")
        jobs = 1 if alone else self.jobs
        path = folder / "labelled.extxyz"
        if not path.exists():
            labels = labelling.make(
                structures, self.numbers, self.config.label, folder / "labels", self.shop, jobs,
                threads=1,
            )  # fmt: skip
            extxyz.write_whole(path, labels.frames)
        return _all(path)

    def _student(self, structures: Sequence[Atoms]) -> list[Evaluation]:
        return many.evaluate(self.models[0], structures)

    def _errors(self, labelled: Sequence[Atoms]) -> dict[str, float]:
        """RMS and RMSE of forces, errors of energies and stresses, of one set."""
        evaluations = self._student(labelled)
        forces = np.concatenate([atoms.get_forces() for atoms in labelled])
        wrong = np.concatenate([one.forces for one in evaluations]) - forces
        energies = [
            (one.energy - atoms.get_potential_energy()) / len(atoms)
            for one, atoms in zip(evaluations, labelled, strict=True)
        ]
        stresses = np.array(
            [
                -one.virial / atoms.get_volume() - atoms.get_stress(voigt=False)
                for one, atoms in zip(evaluations, labelled, strict=True)
                if "stress" in atoms.calc.results and atoms.pbc.all()
            ]
        )
        return {
            "structures": len(labelled),
            "rms": _rms(forces),
            "rmse": _rms(wrong),
            "energy": _rms(np.array(energies)),
            "stress": GPA * _rms(stresses) if len(stresses) else np.nan,
            "pressure": GPA * float(np.trace(stresses.mean(axis=0))) / 3.0
            if len(stresses)
            else np.nan,
        }

    def _density(self, atoms: Atoms) -> dict[str, float]:
        """Of a structure at rest: where the energy of both is lowest, and as it is."""
        scaled = []
        for strain in STRAINS:
            scaled.append(atoms.copy())
            scaled[-1].set_cell((1.0 + strain) * np.array(atoms.cell), scale_atoms=True)
        labelled = self._labelled("at rest", scaled)
        volumes = [one.get_volume() for one in labelled]
        curves = {
            "teacher": [one.get_potential_energy() for one in labelled],
            "student": [one.energy for one in self._student(labelled)],
        }
        mass = float(atoms.get_masses().sum()) * 1e24 / units.mol  # of g/cm^3 angstrom^3
        result = {"start": mass / atoms.get_volume()}
        for name, energies in curves.items():
            try:
                result[name] = mass / EquationOfState(volumes, energies).fit(warn=False)[0]
            except (ValueError, np.linalg.LinAlgError):  # none is lowest
                result[name] = np.nan
        return result

    def _last_run(self, limit: float) -> tuple[float, int, str]:
        """Dynamics at the highest temperature: seconds for an atom and step, steps, its end."""
        teaching, model = self.teaching, self.models[0]
        folder = teaching.folder / "last"
        folder.mkdir(exist_ok=True)
        kind = Explore(
            structures=self.config.start.structures,
            temperature=(teaching.temperatures[1],),
            steps=teaching.steps,
        )
        run = explore.runs([kind], 0)[0]
        assert run.structure is not None  # it has no input of its own
        link = folder / model.name
        link.unlink(missing_ok=True)
        link.symlink_to(model)
        style = f"{explore.limited(max(limit, 5.0))}pair_style pwmlff 1 {model.name}"
        text = explore.input_of(run, run.structure, folder, style, self.numbers, SEED)
        names = " ".join(self.config.start.elements)
        text += f"write_dump all custom last.dump id element x y z modify sort id element {names}\n"
        write_whole(folder / "in.lmp", text.encode())
        lmp_program = program.find()
        command = [lmp_program.path, "-in", "in.lmp", "-log", "log.lammps"]
        environment = {"OMP_NUM_THREADS": "1", **lmp_program.environment}
        (end,) = self.shop.run([Task(command, folder, folder / "lmp.out", environment)], 1)
        if end.code != 0:
            errors = [line for line in end.text.splitlines() if "ERROR" in line]
            steps = [0.0]
            with suppress(IndexError, KeyError, OSError):  # before the first line of thermo output
                steps = lmp.Thermo(folder / "log.lammps").columns()["Step"]
            return np.nan, int(steps[-1]), (errors or [f"lmp ended with {end.code}"])[-1]
        match = explore.LOOP_TIME.search(end.text)
        assert match is not None  # of a run that has ended
        (last,) = _all(folder / "last.dump", "lammps-dump-text")
        event = ""
        if not explore.apart(last, self.config.choose.closest):
            event = "atoms came too close"
        elif _nearest(last) > GONE * _nearest(run.structure):
            event = "an atom has left the others"
        return explore.pace(end.text), int(match[2]), event

    def _grades(self) -> dict[str, str]:
        """What `pwmlff verify` says of the first model, with the labels that were held out."""
        data = self.teaching.folder / "held-out" / "labelled.extxyz"
        words = ["verify", self.models[0], "--data", f"{data}@:", "--np", "1", "--quick", "--json"]
        output = self.teaching.folder / "held-out" / "verify.json"
        task = Task(
            interpreter.pwmlff(*map(str, words)),
            output.parent,
            output,
            timeout=max(20.0, self.left()),
        )
        (end,) = self.shop.run([task], 1)
        if end.code is None:
            return {}
        report = json_in(end.text)
        if "checks" not in report:
            raise Failure(f"pwmlff verify failed, see '{output}': {end.text[-200:]}")
        return {one["name"]: one["grade"] for one in report["checks"] if one["grade"]}


class NoStudent(Failure):
    """It is so bad that there is no card."""

    exit_code = 1


def _nearest(atoms: Atoms) -> float:
    """The largest distance of an atom to the one nearest to it; infinite where that is far."""
    nearest = np.full(len(atoms), np.inf)
    for cutoff in (4.0, 8.0, 16.0):
        i, d = neighbor_list("id", atoms, cutoff)
        np.minimum.at(nearest, i, d)
        if np.isfinite(nearest).all():
            break
    return float(nearest.max())


def _all(path: Path, kind: str = "extxyz") -> list[Atoms]:
    frames = read(path, index=":", format=kind)
    assert isinstance(frames, list)  # as ase gives for a slice
    return frames


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))
