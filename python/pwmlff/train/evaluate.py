"""`pwmlff test`: the errors of model files on labelled structures.

Deep Potentials run through the fused engine in float64 without tables, threads of which share the
cores; other files through their own code, in the precision in which lmp runs them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff import picture
from pwmlff.data import neighbors, readers
from pwmlff.data.baseline import Baseline
from pwmlff.data.frames import Frames
from pwmlff.data.offsets import Offsets, left_of
from pwmlff.data.readers import read
from pwmlff.evaluation import model_file
from pwmlff.evaluation.engine import Engine, choose
from pwmlff.evaluation.nep_file import is_nep
from pwmlff.report import Failure, tracked, typed
from pwmlff.threads import allowed_threads, torch_threads
from pwmlff.train import charts, edge, errors, uncertainty
from pwmlff.train.errors import UNITS, Errors, Measure, Shifted, WorstAtom, WorstFrame
from pwmlff.train.trainable import Predictions

NUMBERS = ("RMSE", "MAE", "largest")

_Row = tuple[str | float, ...]  # of a table


def models_and_data(words: Sequence[str], data: Sequence[str] = ()) -> tuple[list[Path], list[str]]:
    """Models and files with labels, whatever their order; the first word where none is a model.

    Args:
        words: both.
        data: more files with labels.

    Raises:
        Failure: there is nothing beside models.
    """
    models = [word for word in words if _is_model(word)] or list(words[:1])
    data = [*(word for word in words if word not in models), *data]
    if not data:
        raise Failure(
            f"found {' '.join(words)} and no file with labels, expected models and then files with "
            "labelled structures"
        )
    return [Path(word) for word in models], data


def _is_model(word: str) -> bool:
    path = Path(word)
    if path.suffix in {".pt", ".pth", ".ptc"} or is_nep(path):
        return True
    return path.is_file() and zipfile.is_zipfile(path)


@dataclass(frozen=True)
class Tested:
    """One model, or the mean of several."""

    model: str
    engine: str
    reason: str  # why it is not the fused engine
    errors: Errors
    shifted: Shifted | None
    isolated_atoms: dict[str, dict[str, float]]  # as errors.isolated_atoms has them

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "model": self.model,
            "engine": self.engine,
            "reason": self.reason,
            "errors": self.errors.data(),
            "energy_shifted": self.shifted and asdict(self.shifted),
            "isolated_atoms": self.isolated_atoms,
        }

    def rows(self) -> list[_Row]:
        """Its errors, a row for each quantity, for people."""
        units = UNITS[self.errors.units]
        result: list[_Row] = [
            (f"{errors.QUANTITIES[name]} ({units.unit_of(name)})", *_numbers(m), m.count)
            for name, m in self.errors.measures.items()
        ]
        if self.shifted:
            measure = self.shifted.measure
            name = f"energy, shifted ({units.energy})"
            result.insert(1, (name, *_numbers(measure), measure.count))
        return result

    def remark(self) -> str:
        """What a shift of energies explains, or nothing."""
        if self.shifted is None or not self.shifted.explains or self.errors.energy is None:
            return ""
        units = UNITS[self.errors.units]
        of_atoms = ", ".join(f"{z} {e:+.4g}" for z, e in self.shifted.energies.items())
        return (
            f"a constant for each element explains most of the error of energies: without it "
            f"{self.shifted.measure.rmse:.4g} instead of {self.errors.energy.rmse:.4g} "
            f"{units.energy}; energies of the model have another zero ({of_atoms} {units.whole} "
            "above the data)"
        )


@dataclass(frozen=True)
class TestReport:
    """What `pwmlff test` found."""

    __test__ = False  # pytest takes what is called Test... for a test

    models: list[Tested]
    judged: Tested  # the only model, or the mean of all
    worst_frames: list[WorstFrame]  # of that which is judged
    worst_atoms: list[WorstAtom]
    plot: str
    calibration: uncertainty.Calibration | None = None  # of several models
    coverage: float | None = None  # of the bounds that their training has kept
    grade: uncertainty.Calibration | None = None  # of gamma of the first model, if it has that
    baseline: str = ""  # that was taken off the labels
    virial_offsets: dict[str, float] = field(default_factory=dict)  # likewise, by file

    ok = True

    @property
    def errors(self) -> Errors:
        """Of that which is judged."""
        return self.judged.errors

    def data(self) -> dict[str, Any]:
        """Plain values; at the top those of the only model, or of the mean of all."""
        return {
            **self.judged.data(),
            "models": [model.data() for model in self.models],
            "worst_frames": [asdict(frame) for frame in self.worst_frames],
            "worst_atoms": [asdict(atom) for atom in self.worst_atoms],
            "plot": self.plot,
            "calibration": self.calibration and asdict(self.calibration),
            "stored_coverage": self.coverage,
            "gamma": self.grade and asdict(self.grade),
            "baseline": self.baseline,
            "virial_offsets": self.virial_offsets,
        }

    def show(self) -> RenderableType:
        """A table for each breakdown."""
        found, units = self.errors, UNITS[self.errors.units]
        parts: list[RenderableType] = []
        several = len(self.models) > 1
        for one in (*self.models, self.judged) if several else self.models:
            engine = f", engine {one.engine}" + f" ({one.reason})" * bool(one.reason)
            frames = f"{found.frames} frame{'s' * (found.frames > 1)}, {found.atoms} atoms"
            parts.append(Text(f"{one.model}, {frames}{engine if one.engine else ''}"))
            parts += _table(("", *NUMBERS, "labels"), one.rows())
            if remark := one.remark():
                parts.append(Text(remark, "yellow"))
            columns = (f"isolated atom ({units.whole})", "data", "model", "error")
            alone = [
                (element, e["data"], e["model"], e["model"] - e["data"])
                for element, e in one.isolated_atoms.items()
            ]
            parts += _table(columns, alone)
        if self.baseline:
            parts.append(Text(f"labels are without what {self.baseline} gives"))
        for name, value in self.virial_offsets.items():
            parts.append(
                Text(
                    f"virials of '{name}' are without {value:.4g} eV per atom on the diagonal, "
                    "which the training of the model took off its source"
                )
            )
        if several:
            parts.append(Text(f"of the mean of {len(self.models)} models:"))
        force, unit = f"force ({units.force})", units.magnitude
        by_element = [(symbol, *_numbers(m)) for symbol, m in found.by_element.items()]
        parts += _table((force, *NUMBERS), by_element, fewest=2)
        called = errors.QUANTITIES
        heads = (f"{called[q]} RMSE\n({units.unit_of(q)})" for q in found.measures)
        by_group = [
            (name, *(m[q].rmse if q in m else "" for q in found.measures))
            for name, m in found.by_group.items()
        ]
        parts += _table(("group", *heads), by_group, fewest=2)
        by_magnitude = [
            (
                f"from {b.low:g}" + f" to {b.high:g}" * bool(np.isfinite(b.high)),
                *_numbers(b.measure),
                b.atoms,
            )
            for b in found.by_magnitude
        ]
        parts += _table((f"reference force ({unit})", *NUMBERS, "atoms"), by_magnitude)
        parts += self._trust()
        frame_rows = [(w.error, w.index, w.atoms, w.file) for w in self.worst_frames]
        parts += _table((f"energy\n({units.energy})", "frame", "atoms", "file"), frame_rows)
        atom_rows = [
            (w.error, w.magnitude, w.element, w.atom, w.index, w.file) for w in self.worst_atoms
        ]
        pair = (f"force\n({units.force})", f"reference\n({unit})")
        parts += _table((*pair, "element", "atom", "frame", "file"), atom_rows)
        if self.plot:
            parts.append(Text(f"parity plot: {self.plot}"))
        return Group(*parts)

    def _trust(self) -> list[RenderableType]:
        """What the deviation of several models, and gamma of the first, tell of the error."""
        units = UNITS[self.errors.units]
        parts: list[RenderableType] = []
        of_first = f" of {self.models[0].model}" * (len(self.models) > 1)
        for name, found, unit in (
            ("the deviation", self.calibration, f"force deviation ({units.force})"),
            (
                f"gamma{of_first}, times the error of an element,",
                self.grade,
                f"gamma{of_first} times\nRMSE of the element ({units.force})",
            ),
        ):
            if found is None:
                continue
            rows = [(f"{b.low:.4g} to {b.high:.4g}", b.rmse, b.bound, b.atoms) for b in found.bins]
            error = f"RMSE ({units.force})"
            parts += _table((unit, error, "90 % are below", "atoms"), rows)
            if found.coverage is not None:
                parts.append(
                    Text(
                        f"the bounds of structures 0, 2, ... hold for {100 * found.coverage:.1f} % "
                        "of the forces of the others"
                    )
                )
            several = len(self.models) > 1
            if self.coverage is not None and several == (found is self.calibration):
                parts.append(
                    Text(
                        f"the bounds that their training has kept ({uncertainty.NAME}) hold for "
                        f"{100 * self.coverage:.1f} %"
                    )
                )
            if found.auc is not None:
                parts.append(
                    Text(
                        f"{name} tells errors above three times the RMSE ({found.outliers} "
                        f"atoms) from others with an AUC of {found.auc:.3f}"
                    )
                )
        return parts


def _table(names: Sequence[str], rows: Sequence[_Row], fewest: int = 1) -> list[Table]:
    """A table, or none where it would have fewer rows."""
    table = Table()
    for k, name in enumerate(names):
        left = name in {"", "file", "element", "group"} or (k == 0 and "\n" not in name)
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{c:.4g}" if isinstance(c, float) else str(c)) for c in row))
    return [table] if len(rows) >= fewest else []


def _numbers(measure: Measure) -> tuple[float, float, float]:
    """Those of the columns NUMBERS."""
    return measure.rmse, measure.mae, measure.largest


def test(
    models: Sequence[Path],
    data: Sequence[str],
    elements: Sequence[str] = (),
    format: str | None = None,
    plot: Path | None = None,
    worst: int = 5,
    threads: int | None = None,
    energy: str = readers.FREE,
    baseline: Baseline | None = None,
    trust: bool = False,
    keep_unconverged: bool = False,
    kinds: Mapping[str, str] = readers.NO_KINDS,
) -> TestReport:
    """Evaluate models, and the mean of several, on all frames and compare with their labels.

    Args:
        models: files.
        data, format, energy, keep_unconverged, kinds: as
            :func:`pwmlff.data.readers.read` takes them.
        elements: that take part; if empty all of the model's, or those of each structure where the
            model counts them.
        plot: picture to draw.
        worst: frames and atoms to list.
        threads: as many as there are cores when None.
        baseline: what is taken off the labels; nothing when None.
        trust: take the baseline that the files tell of instead, which may run any code.

    Raises:
        Failure: a model, a file or a structure cannot be used, nothing has a label, models are of
            other units, or a file tells of a baseline that nobody has asked for.
    """
    output = picture.destination(plot) if plot else None
    every = [model_file.describe_unopened(path) for path in models]
    units = every[0].units
    for info in every:
        if info.units != units:
            raise Failure(
                f"'{every[0].file}' is of units {units} and '{info.file}' of {info.units}, "
                "expected models of the same units"
            )
    numbers_of = [info.numbers_of(elements) for info in every]
    frames = read(data, format, energy, keep_unconverged=keep_unconverged, kinds=kinds)
    _require_labels(frames)
    if baseline is None:
        baseline = _baseline_of(every, trust)
    if baseline.words:
        frames = baseline.taken_off(frames, every[0].atom_type)
    for info, numbers in zip(every, numbers_of, strict=True):
        _require_elements(frames, numbers, info)
    threads = threads or allowed_threads()
    tested, grades = [], []
    predictions: list[Predictions] = []
    born: list[np.ndarray | None] = []
    taken_off: dict[str, float] = {}
    for path, info, numbers in zip(models, every, numbers_of, strict=True):
        taking_part = numbers if elements else None
        engine, reason, predicted, gamma = predict_by(path, info, taking_part, frames, threads)
        if not predictions:  # the labels are the same for all
            taken_off = _offsets_of(info, frames, predicted[2], format)
            frames = Offsets(taken_off).taken_off(frames) if taken_off else frames
        grades.append(gamma)
        born.append(_born_charges(path, info, taking_part, frames, threads))
        tested.append(_tested(str(path), engine, reason, frames, predicted, units, born[-1]))
        predictions.append(predicted)
    judged, calibration, coverage, grade = tested[0], None, None, None
    if grades[0] is not None:
        grade = uncertainty.calibrate_grade(frames, predictions[0][1], grades[0], units)
        if grade and len(tested) == 1 and (stored := uncertainty.Bounds.stored(models)):
            error = np.linalg.norm(predictions[0][1] - frames.forces, axis=1)
            deviation = uncertainty.in_place_of_deviation(grades[0], frames.numbers, stored.errors)
            coverage = stored.coverage(deviation, error)
    if len(tested) > 1:
        energies, forces, virials = zip(*predictions, strict=True)
        predicted = (np.mean(energies, axis=0), np.mean(forces, axis=0), np.mean(virials, axis=0))
        of_all = [one for one in born if one is not None]
        born[0] = np.mean(of_all, axis=0) if len(of_all) == len(born) else None
        judged = _tested("mean", "", "", frames, predicted, units, born[0])
        calibration = uncertainty.calibrate_ensemble(frames, forces, units)
        if calibration and (stored := uncertainty.Bounds.stored(models)):
            coverage = stored.coverage(*uncertainty.disagreement(frames, forces))
    if output:
        drawn = charts.parity(frames, *predicted, judged.errors, judged.model, born[0])
        picture.save(drawn, output, dpi=150)
    return TestReport(
        tested,
        judged,
        errors.worst_frames(frames, predicted[0], worst, units),
        errors.worst_atoms(frames, predicted[1], worst, units),
        str(output or ""),
        calibration,
        coverage,
        grade,
        baseline.words,
        taken_off,
    )


def _offsets_of(
    info: model_file.ModelInfo, frames: Frames, predicted: np.ndarray, format: str | None
) -> dict[str, float]:
    """Constants on the diagonal of virials that a training has taken off its sources, by file.

    A file has that of the source of its name. Of another file, where a training would look for a
    constant, that one counts, or none, which is nearest to what the model leaves of the labels.

    Args:
        info: of a model, whose card may have some.
        frames: with labels.
        predicted: virials of the model [nframes, 3, 3].
        format: as :func:`test` takes it.

    Returns:
        eV per atom, by the name of the file.
    """
    known = {
        name: value
        for name, value in (info.of_card(dict, "virial_offsets") or {}).items()
        if type(value) is float and np.isfinite(value)
    }
    fitted = info.of_card(str, "configuration", "data", "virial_offset") == "fit"
    left = left_of(frames, predicted)
    result: dict[str, float] = {}
    for k, name in enumerate(frames.files if known else ()):
        chosen = left[(frames.file == k) & np.isfinite(left)]
        candidates = [known[name]] if name in known else [0.0]
        if name not in known and (fitted or readers.reader_of(Path(name), format) == "movement"):
            candidates += known.values()
        if len(chosen):
            apart = np.abs(np.array(candidates) - chosen.mean())
            result[name] = candidates[int(apart.argmin())]
    return {name: value for name, value in result.items() if value}


def _baseline_of(infos: Sequence[model_file.ModelInfo], trust: bool) -> Baseline:
    """What the trainings of models have taken off their labels, if files tell and it is trusted.

    Raises:
        Failure: it is not, or one has another baseline than another.
    """
    found = []
    for info in infos:
        words = info.of_card(str, "configuration", "data", "baseline") or ""
        coeff = info.of_card(list, "configuration", "data", "baseline_coeff") or []
        found.append((words, tuple(map(str, coeff if words else ()))))
    if len({*found}) > 1:
        raise Failure(
            f"the models were trained with the baselines "
            f"{', '.join(repr(words) for words, _ in found)}, expected one of all; test one by one"
        )
    words, coeff = found[0]
    baseline = Baseline(words, coeff)
    if words and not trust:
        options = ("--baseline", words, *(f"--baseline-coeff={one}" for one in coeff))
        raise Failure(
            f"'{infos[0].file}' says that '{words}' was taken off the labels of its training; "
            f"nothing runs because a file says so: expected you to say it, {typed(*options)}, or "
            "--trust, or --baseline none for the labels as they are"
        )
    return baseline


def predict_by(
    path: Path,
    info: model_file.ModelInfo,
    elements: Sequence[int] | None,
    frames: Frames,
    threads: int,
) -> tuple[str, str, Predictions, np.ndarray | None]:
    """Evaluate all frames by a file; elements as :func:`choose` takes them.

    Returns:
        Name of the engine, why it is not the fused one, predictions, gamma [natoms] if it has that.

    Raises:
        Failure: as :func:`predict`.
    """
    if info.kind == "EDGE":
        predicted = _predict_edge(path, frames, threads)
        return "torchscript", f"kind {info.kind}", predicted, None
    choice = choose(path, "auto", "exact", elements, threads, skin=0.0)
    gamma = np.empty(len(frames.numbers)) if choice.engine.has_grade else None
    predicted = predict(choice.engine, frames, f"testing {path.name}", gamma)
    return choice.engine.name, choice.reason, predicted, gamma


def _born_charges(
    path: Path,
    info: model_file.ModelInfo,
    elements: Sequence[int] | None,
    frames: Frames,
    threads: int,
) -> np.ndarray | None:
    """Born charges [natoms, 3, 3] in the frames that have labels of them, NaN elsewhere.

    Arguments are those of :func:`predict_by`.

    Returns:
        None for a model without charges, and where no frame has labels.
    """
    chosen = np.flatnonzero(frames.has_born).tolist()
    if not info.has_charges or not chosen:
        return None
    engine = choose(path, "auto", "exact", elements, threads, skin=0.0).engine
    born = np.full((len(frames.numbers), 3, 3), np.nan)
    for k in chosen:
        born[frames.rows(k)] = engine(frames.structure(k), born=True).born
    return born


def _tested(
    model: str,
    engine: str,
    reason: str,
    frames: Frames,
    predicted: Predictions,
    units: str,
    born: np.ndarray | None,
) -> Tested:
    found = errors.compute(frames, *predicted, units, born)
    shifted = errors.shifted(frames, predicted[0], units)
    alone = errors.isolated_atoms(frames, predicted[0])
    return Tested(model, engine, reason, found, shifted, alone)


test.__test__ = False  # type: ignore[attr-defined]  # it is none of pytest's


def predict(
    engine: Engine, frames: Frames, label: str = "", gamma: np.ndarray | None = None
) -> Predictions:
    """Evaluate all frames.

    Args:
        engine: what evaluates one structure.
        frames: structures; the labels are not looked at.
        label: of the progress on stderr; none is shown if empty or where that is no terminal.
        gamma: [natoms] to write the extrapolation grade to, of an engine that has_grade.

    Returns:
        Energies [nframes], forces [natoms, 3] and virials [nframes, 3, 3], as in `Frames`.

    Raises:
        Failure: a structure is not one for the model; the text names the frame.
    """
    energy = np.empty(len(frames))
    forces = np.empty((len(frames.numbers), 3))
    virial = np.empty((len(frames), 3, 3))
    every = range(len(frames))
    for k in tracked(every, label) if label else every:
        try:
            result = engine(frames.structure(k), grade=gamma is not None)
        except ValueError as error:
            raise Failure(f"{frames.where(k)}: {error}") from error
        energy[k], forces[frames.rows(k)], virial[k] = result.energy, result.forces, result.virial
        if gamma is not None:
            gamma[frames.rows(k)] = result.gamma
    return energy, forces, virial


def _predict_edge(path: Path, frames: Frames, threads: int) -> Predictions:
    """The same by the file's own code, in its precision, many frames at a time."""
    module, info = model_file.open_model(path)
    edges = neighbors.find_edges(frames, info.atom_type, info.cutoff, closest=0.0, threads=threads)
    with torch_threads(threads):
        return edge.predict(module, frames, edges, model_file.to_its_dtype(module))


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
        k = frames.frame_of(row)
        raise Failure(
            f"{frames.where(k)}: atom {row - frames.first[k]} has atomic number "
            f"{frames.numbers[row]}, expected one of {list(elements)}, the elements of "
            f"'{info.file}' that take part"
        )
