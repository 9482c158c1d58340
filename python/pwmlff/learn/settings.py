"""What a learning loop is told: learn.toml, checked key by key, as frozen dataclasses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import get_type_hints

from ase.data import atomic_numbers

from pwmlff.evaluation.labeller import parsed
from pwmlff.launch.script import PLAIN, quoted
from pwmlff.report import Failure
from pwmlff.toml_keys import Faults, Sections, key


@dataclass(frozen=True)
class Loop:
    """When it ends, and where its results go."""

    folder: str = key("learn", "for everything that is made; its `state.json` tells what is done")
    rounds: int = key(10, "of training, exploration and labels, at most", least=1)
    max_time: float = key(
        0.0, "minutes of all rounds and the last training, of all starts together; 0: any", least=0
    )
    converged: float = key(
        0.995,
        "share of the explored structures whose largest force deviation is below the window, with "
        "no exploration that fails, where it ends",
        least=0,
        most=1,
    )
    jobs: int = key(0, "explorations and labels at a time; 0: as many as there are cores", least=0)
    seed: int = key(1, "of velocities, and of the first structures", least=0)


@dataclass(frozen=True)
class Start:
    """What there is before the first round. Names of files hold from the folder of learn.toml."""

    elements: tuple[str, ...] = key((), "chemical symbols, in the order of types", shown="required")
    data: tuple[str, ...] = key((), "labelled structures, of any format that `pwmlff data` reads")
    valid: tuple[str, ...] = key((), "labelled structures that validate and never train")
    structures: tuple[str, ...] = key(
        (), "files that ase reads, to explore from, and to make first structures of"
    )
    frames: int = key(
        20,
        "first structures, made of each of `structures`, that get labels; without `data`",
        least=1,
    )
    rattle: float = key(0.1, "of first structures: deviation of positions, angstrom", least=0)
    strain: float = key(
        0.03, "of first structures: deviation of each strain of the cell", least=0, most=0.5
    )


@dataclass(frozen=True)
class Train:
    """The models; each round goes on from those of the last one."""

    models: int = key(2, "of the ensemble", least=2)
    run: str = key("", "run.toml with other keys; defaults if empty")
    set: tuple[str, ...] = key((), "keys of run.toml, like `model.kind=nep`, above the file")
    epochs: int = key(0, "passes over the data in each round; 0: as long as `minutes`", least=0)
    minutes: float = key(0.0, "of each round's training", least=0, shown="2 without `epochs`")
    last_epochs: int = key(0, "of the last training, with all labels; 0: as each round", least=0)
    last_minutes: float = key(0.0, "likewise", least=0)


@dataclass(frozen=True)
class Label:
    """What gives energies and forces: a calculator of ase, or a command."""

    calculator: str = key(
        "", "like `ase.calculators.emt:EMT()` or `my_file.py:make(size=3)`: what it is called with"
    )
    python: str = key("", "Python that has it, which needs ase; this one if empty")
    command: str = key(
        "", "run by the shell in a folder of its own for each structure, instead of a calculator"
    )
    structure: str = key(
        "POSCAR", "file that the command finds the structure in; ase knows its format by the name"
    )
    output: str = key("OUTCAR", "file that it leaves, of any format that `pwmlff data` reads")
    format: str = key("", "of that; as its name and contents say if empty")
    files: tuple[str, ...] = key((), "files that the command finds beside it")
    jobs: int = key(0, "labels at a time; 0: `jobs` of [loop]", least=0)
    minutes: float = key(0.0, "that a structure may take; 0: any", least=0)
    scheduler: str = key(
        "",
        "of a cluster, as psij names it: slurm, pbs, lsf, ...; each structure is a job; here if "
        "empty",
    )
    queue: str = key("", "of the scheduler")
    processes: int = key(1, "of a job of the scheduler", least=1)


@dataclass(frozen=True)
class Choose:
    """Which of the structures that were found get labels."""

    window: tuple[float, float] = key(
        (0.0, 0.0), "of the largest force deviation, eV/Å", least=0, shown="made of `relative`"
    )
    relative: tuple[float, float] = key(
        (0.1, 1.0),
        "the window, where it is not given, in RMS forces on an atom of the data to start with, "
        "of at least 0.5 eV/Å",
        least=0,
    )
    most: int = key(20, "of a round, those farthest from each other and from the data", least=1)
    minutes: float = key(
        0.0,
        "that the labels of a round may take: fewer than `most` are chosen where more would take "
        "longer, by the time of those before; 0: any",
        least=0,
    )
    cutoff: float = key(6.0, "of the neighbors that they are compared by, angstrom", above=0)
    closest: float = key(
        0.6,
        "distance of atoms, in sums of covalent radii, below which one is no structure; an "
        "exploration ends at that of the smallest sum",
        least=0,
    )


@dataclass(frozen=True)
class Explore:
    """LAMMPS runs with the models, one for each combination of what is listed."""

    input: str = key(
        "",
        "an input of your own, whose pair_style is replaced; it gets the variables temperature, "
        "pressure and seed, and links to the files beside it",
        shown="a run that is made of the keys below",
    )
    structures: tuple[str, ...] = key((), "to start from", shown="those of [start]")
    supercell: tuple[int, int, int] = key((1, 1, 1), "of each structure", least=1)
    strain: tuple[float, ...] = key((0.0,), "of all cell vectors, like -0.03, 0.0, 0.03", above=-1)
    surface: tuple[str, ...] = key(
        (), "Miller indices, like `1 0 0`: a slab of three layers with 10 Å of vacuum instead"
    )
    temperature: tuple[float, ...] = key((300.0,), "K", above=0)
    pressure: tuple[float, ...] = key((), "bar; at constant volume if empty")
    steps: int = key(2000, "of a run", least=1)
    timestep: float = key(1.0, "fs", above=0)
    every: int = key(10, "steps between structures that are looked at", least=1)
    first_round: int = key(0, "in which it takes part", least=0)


@dataclass(frozen=True)
class Learning:
    """All that a loop is told.

    Raises:
        Failure: (from what reads it) as for run.toml.
    """

    loop: Loop = field(default_factory=Loop)
    start: Start = field(default_factory=Start)
    train: Train = field(default_factory=Train)
    label: Label = field(default_factory=Label)
    choose: Choose = field(default_factory=Choose)
    explore: tuple[Explore, ...] = ()

    @classmethod
    def read(cls, path: str | PathLike[str], settings: Sequence[str] = ()) -> Learning:
        """From a file, with `section.key=value` laid over it; names of files become absolute."""
        read = cls(**SECTIONS.read(path, settings))
        return read.checked(Path(path).absolute().parent)

    def as_toml(self) -> str:
        """The complete settings as text that :meth:`read` takes."""
        return SECTIONS.text(self)

    def checked(self, folder: Path) -> Learning:
        """The same with names of files from a folder on, and defaults that depend on other keys.

        Raises:
            Failure: two keys do not go together, or a file is not there.
        """
        start, label, train = self.start, self.label, self.train
        faults = Faults()
        unknown = [s for s in start.elements if s not in atomic_numbers or s == "X"]
        if not start.elements or unknown:
            faults.add(
                f"[start] elements is {list(start.elements)}, expected chemical symbols in the "
                'order of types, like ["Hf", "O"]'
            )
        if not start.data and not start.structures:
            faults.add("[start] has neither data nor structures, expected one or both")
        if bool(label.calculator) == bool(label.command):
            faults.add(
                f"[label] has calculator '{label.calculator}' and command '{label.command}', "
                "expected one of them"
            )
        home = str(folder / self.loop.folder)
        with faults.collected():
            quoted(home)  # of the models, which an input is to name
        try:
            _ = label.calculator and parsed(label.calculator)
        except ValueError as error:
            faults.add(f"[label] {error}")
        if label.scheduler and not label.command:
            faults.add("[label] has a scheduler and no command, which jobs are made of")
        for text in _unsafe(label, home):
            faults.add(text)
        for name in ("window", "relative"):
            low, high = getattr(self.choose, name)
            if (high or name == "relative") and not low < high:
                faults.add(f"[choose] {name} is {low:g} to {high:g}, expected a rising one")
        if not self.explore:
            faults.add("found no section [[explore]], expected one or more")
        if not train.epochs and not train.minutes:
            train = replace(train, minutes=2.0)
        explore, files = [], {}
        for one in self.explore:
            with faults.collected():
                explore.append(_resolved(one, start, folder))
        paths = {name: getattr(start, name) for name in ("data", "valid", "structures")}
        for name, names in {**paths, "files": label.files}.items():
            with faults.collected():
                files[name] = _absolute(folder, names)
        faults.say()
        return replace(
            self,
            loop=replace(self.loop, folder=home),
            start=replace(
                start, data=files["data"], valid=files["valid"], structures=files["structures"]
            ),
            train=replace(train, run=str(folder / train.run) if train.run else ""),
            label=replace(label, files=files["files"]),
            explore=tuple(explore),
        )


def _unsafe(label: Label, home: str) -> Iterator[str]:
    """What psij would write into the script of a job, where a shell would take it apart."""
    for what, text in (("[loop] folder", home), ("[label] queue", label.queue)):
        if label.scheduler and text and not PLAIN.fullmatch(text):
            yield (
                f"{what} is {text!r}, expected one without blanks, quotes and other signs for "
                f"the jobs of [label] scheduler '{label.scheduler}'"
            )


def _resolved(explore: Explore, start: Start, folder: Path) -> Explore:
    structures = explore.structures or start.structures
    if not explore.input and not structures:
        raise Failure("[[explore]] has neither input nor structures, expected one of them")
    if explore.input and not (folder / explore.input).is_file():
        raise Failure(f"[[explore]] input: found no file '{folder / explore.input}'")
    return replace(
        explore,
        input=str(folder / explore.input) if explore.input else "",
        structures=_absolute(folder, structures),
    )


def _absolute(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Names from a folder on.

    Raises:
        Failure: there is no such file.
    """
    for name in names:
        path = folder / name
        if not path.exists() and not path.with_name(path.name.rpartition("@")[0] or "?").exists():
            raise Failure(f"found no file '{path}'")
    return tuple(str(folder / name) for name in names)


SECTIONS = Sections(get_type_hints(Learning))
INTRODUCTION = """\
# Keys of learn.toml

What [pwmlff learn](active_learning.md) reads; `--set section.key=value` stands above it. This page
is made from the code that checks them: `python -m pwmlff.learn.settings > docs/learn_toml.md`."""

if __name__ == "__main__":
    sys.stdout.write(SECTIONS.page(INTRODUCTION.splitlines()))
