"""Energies and forces of structures: by a calculator of ase, or by a command for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import read, write

from pwmlff.data import extxyz, readers
from pwmlff.evaluation import labeller
from pwmlff.learn import cluster
from pwmlff.learn.processes import Task, Workshop
from pwmlff.learn.settings import Label
from pwmlff.report import Failure, last_line
from pwmlff.threads import available

RESULT = "extxyz"


@dataclass(frozen=True)
class Labels:
    """What came of it."""

    frames: list[Atoms]  # in the order of the structures, with labels as ase has them
    failures: list[str]  # what went wrong, by structure
    seconds: float  # that one took of the time of all, of those without labels before; 0 if none


def make(
    structures: Sequence[Atoms],
    elements: Sequence[int],
    how: Label,
    folder: Path,
    shop: Workshop,
    jobs: int,
    threads: int = 0,
    born: bool = False,
) -> Labels:
    """Label structures; those that have labels in the folder already keep them.

    Args:
        structures: to label.
        elements: atomic numbers, in the order in which a command gets the atoms: files like POSCAR
            name each element once.
        how: of learn.toml.
        folder: for files of each, made if need be.
        shop: that runs programs.
        jobs: how many at a time.
        threads: of a calculator; the cores are shared out if 0.
        born: whether labels have Born charges, where the calculator gives them.

    Raises:
        Failure: no structure gets labels.
        Stopped: the end was asked for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{k:05d}" for k in range(len(structures))]
    missing = [k for k, name in enumerate(names) if not (folder / f"{name}.{RESULT}").exists()]
    began = time.monotonic()
    if how.command:
        reasons = _by_command(
            [_sorted(one, elements) for one in structures], missing, how, folder, shop, jobs
        )
    else:
        reasons = _by_calculator(structures, missing, how, folder, shop, jobs, threads, born)
    seconds = (time.monotonic() - began) / len(missing) if missing else 0.0
    frames: list[Atoms] = []
    failures: list[str] = []
    for k, name in enumerate(names):
        if (folder / f"{name}.{RESULT}").exists():
            frames += read(folder / f"{name}.{RESULT}", index=":")
            continue
        error = folder / f"{name}.error"
        text = error.read_text() if error.exists() else reasons.get(k, "no result")
        failures.append(f"structure {k}: {text}")
    if structures and not frames:
        raise Failure(
            f"none of {len(structures)} structures got labels in '{folder}': {failures[0]}; run "
            "what [label] says by hand there, mend it, and give the same command again"
        )
    return Labels(frames, failures, seconds)


def _by_calculator(
    structures: Sequence[Atoms],
    missing: Sequence[int],
    how: Label,
    folder: Path,
    shop: Workshop,
    jobs: int,
    threads: int,
    born: bool,
) -> dict[int, str]:
    """One process for each of the jobs, which keeps its calculator."""
    for k in missing:
        write(folder / f"{k:05d}.structure.extxyz", _bare(structures[k]), format="extxyz")
    parts = [part for part in (missing[n::jobs] for n in range(jobs)) if part]
    each = str(threads or max(1, available() // max(1, len(parts))))
    tasks = [
        Task(
            [
                how.python or sys.executable,
                labeller.__file__,
                *["--born"] * born,
                how.calculator,
                str(folder),
                *(f"{k:05d}" for k in part),
            ],
            Path.cwd(),  # from where names of files in the words hold
            folder / f"labeller-{n}.out",
            {"OMP_NUM_THREADS": each},
            60.0 * how.minutes * len(part),
        )
        for n, part in enumerate(parts)
    ]
    ended = shop.run(tasks, jobs)
    return {
        k: _reason(end.code, end.text) for part, end in zip(parts, ended, strict=True) for k in part
    }


def _by_command(
    structures: Sequence[Atoms],
    missing: Sequence[int],
    how: Label,
    folder: Path,
    shop: Workshop,
    jobs: int,
) -> dict[int, str]:
    """A folder and a process for each structure, or a job of a scheduler."""
    tasks = []
    for k in missing:
        cwd = folder / f"{k:05d}"
        cwd.mkdir(exist_ok=True)
        if not (cwd / cluster.NOTE).exists():  # its job may still be at it
            (cwd / how.output).unlink(missing_ok=True)  # half of it, where it was killed
        write(cwd / how.structure, structures[k])
        for name in how.files:
            link = cwd / Path(name).name
            if not link.exists():
                link.symlink_to(name)
        words = ["/bin/sh", "-c", how.command]
        tasks.append(Task(words, cwd, cwd / "label.out", {}, 60.0 * how.minutes))
    ended = cluster.run(tasks, how, shop.asked) if how.scheduler else shop.run(tasks, jobs)
    reasons = {}
    for k, end in zip(missing, ended, strict=True):
        reasons[k] = _reason(end.code, end.text)
        if end.code != 0:
            continue
        try:
            write_result(structures[k], how, folder / f"{k:05d}")
        except Failure as failure:
            reasons[k] = str(failure)
    return reasons


def write_result(structure: Atoms, how: Label, cwd: Path) -> None:
    """Read what a command has left in its folder, and keep it beside that.

    Raises:
        Failure: it has no labels, or other atoms than the structure.
    """
    labels = readers.read(f"{cwd / how.output}@-1", how.format or None).atoms(0)
    if sorted(labels.numbers) != sorted(structure.numbers):
        raise Failure(
            f"'{cwd / how.output}' has {labels.get_chemical_formula()}, expected "
            f"{structure.get_chemical_formula()}"
        )
    if not {"energy", "forces"} <= labels.calc.results.keys():
        raise Failure(f"'{cwd / how.output}' has no energy or no forces")
    extxyz.write_whole(cwd.with_suffix(f".{RESULT}"), [labels])


def _reason(code: int | None, text: str) -> str:
    if code is None:
        return "its time was up"
    message = last_line(RuntimeError(text)) if text.strip() else "it said nothing"
    return f"it ended with {code}: {message}"


def _sorted(atoms: Atoms, elements: Sequence[int]) -> Atoms:
    """Elements, positions and cell alone, one element after another."""
    order = np.argsort([elements.index(z) for z in atoms.numbers], kind="stable")
    sorted_atoms: Atoms = _bare(atoms)[order]
    return sorted_atoms


def _bare(atoms: Atoms) -> Atoms:
    """Elements, positions and cell alone."""
    return Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
