"""`pwmlff test`: the errors of a model file on labelled structures.

Deep Potentials run through the fused engine in float64 without tables, threads of which share the
cores; other files through their own code, in the precision in which lmp runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from rich.text import Text

from pwmlff import model_file, picture
from pwmlff.engine import Engine, choose
from pwmlff.report import Failure, console
from pwmlff.train import charts, edge, neighbors
from pwmlff.train.errors import (
    UNITS,
    Errors,
    Measure,
    WorstAtom,
    WorstFrame,
    compute,
    worst_atoms,
    worst_frames,
)  # fmt: skip
from pwmlff.train.frames import Frames
from pwmlff.train.readers import read


@dataclass(frozen=True)
class Options:
    """What to test."""

    model: Path
    data: Sequence[str]
    elements: Sequence[str] = ()  # that take part; all of the model's if empty
    format: str | None = None  # of the data; as the files look when None
    plot: Path | None = None
    worst: int = 5  # frames and atoms to list
    threads: int | None = None  # as many as there are cores when None


@dataclass(frozen=True)
class TestReport:
    """What `pwmlff test` found."""

    __test__ = False  # pytest takes what is called Test... for a test

    model: str
    engine: str
    reason: str  # why it is not the fused engine
    errors: Errors
    worst_frames: list[WorstFrame]
    worst_atoms: list[WorstAtom]
    plot: str

    ok = True

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "model": self.model,
            "engine": self.engine,
            "reason": self.reason,
            "errors": self.errors.data(),
            "worst_frames": [asdict(frame) for frame in self.worst_frames],
            "worst_atoms": [asdict(atom) for atom in self.worst_atoms],
            "plot": self.plot,
        }

    def show(self) -> RenderableType:
        """A table for each breakdown."""
        errors, units = self.errors, UNITS[self.errors.units]
        engine = self.engine + f" ({self.reason})" * bool(self.reason)
        parts: list[RenderableType] = [
            Text(
                f"{self.model}, {errors.frames} frame{'s' * (errors.frames > 1)}, "
                f"{errors.atoms} atoms, engine {engine}"
            ),
            _table(
                ("", "RMSE", "MAE", "largest", "labels"),
                [
                    (f"{name} ({units.unit_of(name)})", *_numbers(m), str(m.count))
                    for name, m in errors.measures.items()
                ],
            ),
        ]
        force = f"force ({units.force})"
        if len(errors.by_element) > 1:
            parts.append(
                _table(
                    (force, "RMSE", "MAE", "largest"),
                    [(symbol, *_numbers(m)) for symbol, m in errors.by_element.items()],
                )
            )
        if len(errors.by_group) > 1:
            names = (f"{name} RMSE\n({units.unit_of(name)})" for name in errors.measures)
            parts.append(
                _table(
                    ("group", *names),
                    [
                        (name, *(f"{m[q].rmse:.4g}" if q in m else "" for q in errors.measures))
                        for name, m in errors.by_group.items()
                    ],
                )
            )
        if errors.by_magnitude:
            parts.append(
                _table(
                    (f"reference force ({units.magnitude})", "RMSE", "MAE", "largest", "atoms"),
                    [
                        (
                            f"from {b.low:g}" + f" to {b.high:g}" * bool(np.isfinite(b.high)),
                            *_numbers(b.measure),
                            str(b.atoms),
                        )
                        for b in errors.by_magnitude
                    ],
                )
            )
        if self.worst_frames:
            parts.append(
                _table(
                    (f"energy\n({units.energy})", "frame", "atoms", "file"),
                    [
                        (f"{w.error:.4g}", str(w.index), str(w.atoms), w.file)
                        for w in self.worst_frames
                    ],
                )
            )
        if self.worst_atoms:
            head = (f"force\n({units.force})", f"reference\n({units.magnitude})")
            parts.append(
                _table(
                    (*head, "element", "atom", "frame", "file"),
                    [
                        (f"{w.error:.4g}", f"{w.magnitude:.4g}", w.element, str(w.atom),
                         str(w.index), w.file)
                        for w in self.worst_atoms
                    ],
                )
            )  # fmt: skip
        if self.plot:
            parts.append(Text(f"parity plot: {self.plot}"))
        return Group(*parts)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table()
    words = {"", "file", "element", "group"}
    for k, name in enumerate(names):
        left = name in words or (k == 0 and "\n" not in name)
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _numbers(measure: Measure) -> tuple[str, str, str]:
    return f"{measure.rmse:.4g}", f"{measure.mae:.4g}", f"{measure.largest:.4g}"


def test(options: Options) -> TestReport:
    """Evaluate a model on all frames and compare with their labels.

    Raises:
        Failure: the model, the files or a structure cannot be used, or nothing has a label.
    """
    plot = picture.destination(options.plot) if options.plot else None
    info = model_file.describe_unopened(options.model)
    elements = info.numbers_of(options.elements)
    frames = read(options.data, options.format)
    _require_labels(frames)
    _require_elements(frames, elements, info)
    threads = options.threads or neighbors.allowed_threads()
    if info.kind == "EDGE":
        engine, reason = "torchscript", f"kind {info.kind}"
        found = _predict_edge(options.model, frames, threads)
    else:
        choice = choose(options.model, "auto", "exact", elements, threads, skin=0.0)
        engine, reason = choice.engine.name, choice.reason
        found = predict(choice.engine, frames, f"testing {options.model.name}")
    errors = compute(frames, *found, info.units)
    if plot:
        picture.save(charts.parity(frames, *found, errors, str(options.model)), plot, dpi=150)
    energy, forces, _ = found
    return TestReport(
        str(options.model),
        engine,
        reason,
        errors,
        worst_frames(frames, energy, options.worst, info.units),
        worst_atoms(frames, forces, options.worst, info.units),
        str(plot or ""),
    )


test.__test__ = False  # type: ignore[attr-defined]  # it is none of pytest's


def predict(
    engine: Engine, frames: Frames, label: str = ""
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Evaluate all frames.

    Args:
        engine: what evaluates one structure.
        frames: structures; the labels are not looked at.
        label: of the progress on stderr; none is shown if empty or where that is no terminal.

    Returns:
        Energies [nframes], forces [natoms, 3] and virials [nframes, 3, 3], as in `Frames`.

    Raises:
        Failure: a structure is not one for the model; the text names the frame.
    """
    energy = np.empty(len(frames))
    forces = np.empty((len(frames.numbers), 3))
    virial = np.empty((len(frames), 3, 3))
    screen = console(stderr=True)
    hidden = not label or not screen.is_terminal
    for k in track(
        range(len(frames)), escape(label), console=screen, transient=True, disable=hidden
    ):
        rows = slice(frames.first[k], frames.first[k + 1])
        atoms = Atoms(
            frames.numbers[rows], frames.positions[rows], cell=frames.cells[k], pbc=frames.pbc[k]
        )
        try:
            found = engine(atoms)
        except ValueError as error:
            raise Failure(f"{frames.where(k)}: {error}") from error
        energy[k], forces[rows], virial[k] = found.energy, found.forces, found.virial
    return energy, forces, virial


def _predict_edge(
    path: Path, frames: Frames, threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same by the file's own code, in its precision, many frames at a time."""
    module, info = model_file.open_model(path)
    edges = neighbors.find_edges(frames, info.atom_type, info.cutoff, closest=0.0, threads=threads)
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return edge.predict(module, frames, edges, model_file.to_its_dtype(module))
    finally:
        torch.set_num_threads(previous)


def _require_labels(frames: Frames) -> None:
    labels = (frames.energies, frames.forces, frames.virials)
    if all(np.isnan(values).all() for values in labels):
        raise Failure(
            f"{len(frames)} frames of {', '.join(map(repr, frames.files))} have neither energies "
            "nor forces nor virials, expected one of them to compare with"
        )


def _require_elements(frames: Frames, elements: Sequence[int], info: model_file.ModelInfo) -> None:
    other = ~np.isin(frames.numbers, elements)
    if other.any():
        row = int(np.argmax(other))
        k = int(np.searchsorted(frames.first, row, side="right")) - 1
        raise Failure(
            f"{frames.where(k)}: atom {row - frames.first[k]} has atomic number "
            f"{frames.numbers[row]}, expected one of {list(elements)}, the elements of "
            f"'{info.file}' that take part"
        )
