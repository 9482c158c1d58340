"""`pwmlff convert`: a model file of another program as one that pair_style pwmlff runs."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.data import chemical_symbols
from rich.console import RenderableType

from pwmlff.convert import ace, chgnet, deepmd, mace, matpl, nequip, programs, sevennet
from pwmlff.convert.deepmd_edges import NO_ROOM
from pwmlff.convert.foreign import (
    UNEXPECTED,
    Choices,
    Foreign,
    GradedNumbers,
    Numbers,
    Source,
    saved,
    taken_for,
)
from pwmlff.evaluation import archive, model_file, reference, self_test
from pwmlff.evaluation.ace_file import Ace
from pwmlff.evaluation.engine import Choice, Evaluation, choose
from pwmlff.evaluation.nep_file import Nep, write_nep
from pwmlff.evaluation.structures import Result, crystal
from pwmlff.files import drafted
from pwmlff.launch.script import quoted
from pwmlff.models import save_model
from pwmlff.models.saving import (
    RECORD,
    add_self_test,
    copy_model,
    origin,
    with_record,
    without_source_paths,
)
from pwmlff.native import family_of
from pwmlff.report import Failure, Report, facts, last_line
from pwmlff.threads import torch_threads

#: In the order in which they are asked: what they make of a TorchScript archive, None for files of
#: others.
READERS: dict[str, Callable[[Source], Foreign | None]] = {
    "DeePMD-kit": deepmd.read,
    "MACE": mace.read,
    "NequIP": nequip.read,
    "SevenNet": sevennet.read,
}
#: By which energies of atoms and forces may differ from the original, as a share of the largest (at
#: least 1 eV and 1 eV/angstrom), where it computes in float64 and in float32.
GATES = {False: 1e-9, True: 1e-4}
GRADE_GATE = 1e-6  # of gamma: of the largest, at least 1; its terms cancel
EVALUATIONS = 5  # of which the fastest is told
FUSED = "which the fused engine runs; leave out --compile"


@dataclass(frozen=True)
class ConversionReport(Report):
    """What became of a file; what fails the verification is not written."""

    source: str
    output: str
    family: str
    model: model_file.ModelInfo
    engine: str
    proof: str  # what it was compared with
    energy_difference: float  # from that, largest of an atom, eV
    force_difference: float  # likewise, eV/angstrom
    told: dict[str, str]

    def show(self) -> RenderableType:
        """One table."""
        model = self.model
        size = f"{model.nparameters} parameters in {model.dtype}"
        rows = {
            "file": f"{self.source} -> {self.output}",
            "is": self.family,
            "kind": model.kind,
            "elements": " ".join(model.elements),
            "cutoff": model.reach,
            **self.told,
            # Parameters of a module that was frozen became a part of its code.
            **({"size": size} if model.nparameters else {}),
            "engine": self.engine,
            "differs by": f"{self.energy_difference:.1e} eV (atom), {self.force_difference:.1e} "
            f"eV/Å at most from {self.proof}, on a random cluster",
            "use": f"pair_style pwmlff 1 {quoted(self.output)}",
        }
        return facts(rows)


def convert(
    path: str | PathLike[str],
    output: str | PathLike[str],
    *,
    compiled: bool = False,
    head: str = "",
    charge: int | None = None,
    spin: int | None = None,
    active_set: str | PathLike[str] = "",
    elements: Sequence[str] = (),
) -> ConversionReport:
    """Write a model file of another program as one that pair_style pwmlff runs.

    Args:
        path: a model file that keeps a contract of this project already, which is copied; a
            checkpoint of MatPL or PWMLFF (.ckpt), of which that of a NEP becomes a nep5.txt; one of
            CHGNet (.pth.tar), where a Python with CHGNet is on the PATH; a frozen model of
            DeePMD-kit (.pth) that passes no messages; a MACE model for LAMMPS (-lammps.pt); a
            compiled or deployed model of NequIP or Allegro (.nequip.pth, .pth); a deployed one of
            SevenNet (.pt); with `compiled` a file of kind EDGE, too. Where the commands of MACE,
            NequIP and SevenNet are on the PATH: a model that MACE pickled (.model), or a package or
            checkpoint of NequIP or SevenNet. These run the code in the file. Where a Python with
            python-ace is on the PATH: a potential of pacemaker with its B functions (.yaml).
        output: the file to write, as a whole or not at all.
        compiled: add machine code of a model of kind EDGE, for this torch and CPUs like this one.
        head: of a pickled MACE model that has several, or the modality of such a checkpoint of
            SevenNet.
        charge: of the whole system, e, for a pickled MACE model that embeds it.
        spin: likewise, as the data of its training count it (OMol25: the multiplicity 2S + 1).
        active_set: of a potential of pacemaker or GRACE/FS (.yaml), as pace_activeset writes it
            (.asi): the file that is written tells the extrapolation grade gamma.
        elements: symbols of those that will be simulated together, for the record of a model of
            many elements.

    Raises:
        Failure: the file is not known, or cannot be brought into a contract or be compiled; or the
            result gives other numbers than the original.
        OSError: the file cannot be read or written.
    """
    source, target = fspath(path), Path(output)
    quoted(str(target))  # the name is to stand in an input
    choices = Choices(head, charge, spin, fspath(active_set))
    foreign = _read(source, compiled, choices)
    together = _together(source, foreign, elements)
    converted = {"file": Path(source).name, "family": foreign.family, **choices.embedded}
    card = {**origin(), "converted": converted}
    with drafted(target) as draft:
        if foreign.contents is not None:
            draft.write_bytes(foreign.contents)
        elif isinstance(foreign.module, Nep):
            write_nep(foreign.module, draft)
        elif not isinstance(foreign.module, Ace):  # of which there are contents
            extra = None if compiled else foreign.extra
            save_model(foreign.module, draft, card, extra, record=False)
        with _naming_source(source, draft):
            clusters, expected, grades = _original(source, draft, foreign)
            fixed = {option: f"{n}, of the whole system" for option, n in choices.embedded.items()}
            notes = {**foreign.notes, **fixed, **(_compile(source, draft) if compiled else {})}
            chosen = choose(draft, "auto", "exact")
            if compiled and chosen.engine.name != "compiled":
                raise Failure(f"'{source}' was compiled, but {chosen.reason}; nothing was written")
            with archive.time_limit(f"'{source}': its forward on a random cluster"):
                evaluations = [chosen.engine(one, grade=bool(grades)) for one in clusters]
            differences = _differences(source, foreign, evaluations, expected)
            if grades:
                notes["gamma"] = _grade_difference(source, evaluations, grades)
            if self_test.of_file(draft, chosen.info) is None:
                numbers = [Numbers(one.atom_energy, one.forces) for one in evaluations]
                add_self_test(draft, expected, max(map(self_test.difference, numbers, expected)))
            if chosen.engine.name == "fused" and chosen.info.scripted:
                draft.write_bytes(with_record(draft.read_bytes(), _atom_type(foreign), together))
            notes |= _record(draft, chosen)
            notes |= _speeds(source, chosen, choose(draft, "torchscript") if compiled else None)
        copy_model(draft, target)
    model, engine = model_file.describe_unopened(output), chosen.engine.description
    return ConversionReport(
        source, fspath(output), foreign.family, model, engine, foreign.basis, *differences, notes
    )


def _read(path: str, compiled: bool, choices: Choices) -> Foreign:
    contents = model_file.read_any(path)
    if foreign := ace.read(path, contents, choices) or _of_family(path, contents, choices):
        if compiled:
            raise Failure(f"'{path}' is {foreign.family}, {FUSED}")
        return foreign
    try:
        try:
            archive.check(contents)
        except archive.OtherFileError:
            content = saved(contents)
            translated = programs.translate(path, contents, content, choices)
            for read_saved in (matpl.read, chgnet.read) if translated is None else ():
                if foreign := read_saved(path, contents, content):
                    return foreign
            contents = contents if translated is None else translated
            archive.check(contents)
        else:
            programs.require_no_choice(path, choices)
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error
    class_name = archive.class_name(contents)
    module = model_file.load_contents(path, deepmd.without_operators(contents, class_name))
    source = Source(path, contents, class_name, module)
    for family, read in READERS.items():
        with taken_for(path, family):
            if foreign := read(source):
                return foreign
    if not model_file.is_ours(module):
        raise Failure(
            f"'{path}' is a TorchScript module of class {class_name}, which is not known; expected "
            "a model of MatPL, DeePMD-kit, MACE, NequIP, Allegro or SevenNet. A module of your own "
            "can keep the contract of kind EDGE: see the documentation"
        )
    _require_unchanged(path)
    kind, single = model_file.kind_of(module), model_file.dtype_of(module) == torch.float32
    if kind != "EDGE" and compiled:
        raise Failure(f"'{path}' is of kind {kind}, {FUSED}")
    if compiled:
        return Foreign(f"kind EDGE, class {class_name}", module, None, single)
    note = "needs no conversion: copied"
    note += "; --compile adds machine code" if kind == "EDGE" else ""
    return Foreign(f"a model of kind {kind}", module, None, single, {"note": note}, contents)


def _of_family(path: str, contents: bytes, choices: Choices) -> Foreign | None:
    """A file of a family of models, which is copied; None for others."""
    if not family_of(contents):
        return None
    module, info = model_file.open_any(path)
    programs.require_no_choice(path, choices)
    _require_unchanged(path)
    notes = {"note": "needs no conversion: copied as it is"}
    return Foreign(f"a model of kind {info.kind}", module, None, notes=notes, contents=contents)


def _atom_type(foreign: Foreign) -> list[int]:
    """Atomic numbers of elements; none of a file that is not as it should be, or of a NEP."""
    numbers: Any = getattr(foreign.module, "atom_type", None)
    return list(numbers) if isinstance(numbers, (list, tuple)) else []


def _together(path: str, foreign: Foreign, symbols: Sequence[str]) -> list[int]:
    """Atomic numbers of elements that the model has."""
    known = {chemical_symbols[number]: number for number in _atom_type(foreign)}
    if unknown := [symbol for symbol in symbols if symbol not in known]:
        raise Failure(
            f"--elements names {' '.join(unknown)}, expected some of the elements of '{path}', "
            f"which has {' '.join(known) or 'none that a record is for'}"
        )
    return [known[symbol] for symbol in symbols]


def _compile(path: str, draft: Path) -> dict[str, str]:
    """Add machine code to a file; what is to be told of it."""
    from pwmlff.models.compiled import compile_edges  # noqa: PLC0415  slow to import

    if (kind := model_file.describe_unopened(draft).kind) != "EDGE":
        raise Failure(f"'{path}' becomes a model of kind {kind}, {FUSED}")
    module = model_file.load(draft)
    try:
        members = compile_edges(module)
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error
    draft.write_bytes(without_source_paths(draft.read_bytes(), members))
    return {"compiled": next(iter(members))}


def _record(draft: Path, chosen: Choice) -> dict[str, str]:
    """Whether lmp loads torch for a file that the fused engine runs; empty for others."""
    contents = draft.read_bytes()
    if chosen.engine.name != "fused" or family_of(contents):
        return {}
    if f"extra/{RECORD}" in saved(contents).names:
        return {"record": "lmp runs it without torch"}
    return {"record": "none: lmp loads torch; with --elements not for those that are named"}


def _speeds(source: str, chosen: Choice, scripted: Choice | None) -> dict[str, str]:
    """What an evaluation of a crystal takes; empty where the model takes none like that."""
    atoms, neighbors = crystal(chosen.info.cutoff, chosen.info.atom_type, chosen.info.limit)
    if not len(atoms):
        return {}
    try:
        with torch_threads(1), archive.time_limit(f"'{source}': its forward on a crystal"):
            times = [
                min(timeit.repeat(partial(choice.engine, atoms), number=1, repeat=EVALUATIONS))
                for choice in (chosen, scripted)
                if choice
            ]
    except ValueError as error:
        if NO_ROOM not in str(error):
            raise
        return {"speed": f"not measured with {neighbors} neighbors: {last_line(error)}"}
    system = f"{len(atoms)} atoms with {neighbors} neighbors each, on one thread"
    text = f"{1e3 * times[0]:.3g} ms for {system}"
    return {"speed": text + "".join(f"; {1e3 * time:.3g} ms as TorchScript" for time in times[1:])}


@contextmanager
def _naming_source(source: str, draft: Path) -> Iterator[None]:
    """Let a Failure name the file that was given, not the draft that is made of it."""
    try:
        yield
    except (*UNEXPECTED, Failure) as error:
        raise Failure(str(error).replace(f"'{draft}'", f"'{source}'")) from error


def _original(
    source: str, draft: Path, foreign: Foreign
) -> tuple[list[Atoms], list[Numbers], list[np.ndarray]]:
    """Random clusters for the model, and what its original says of them, of some also gamma."""
    clusters = self_test.clusters(model_file.describe_unopened(draft))
    evaluate: Callable[[Atoms], Numbers | GradedNumbers | Result] = foreign.evaluate or partial(
        reference.evaluate, draft
    )
    try:
        with archive.time_limit(f"'{source}': its forward on a random cluster"):
            results = [evaluate(cluster) for cluster in clusters]
        numbers = [Numbers(one.atom_energy, one.forces) for one in results]
        if not all(np.isfinite(values).all() for one in numbers for values in one):
            raise ValueError("it gives energies or forces that are no numbers")
    except UNEXPECTED as error:
        raise Failure(
            f"'{source}' is a model of {foreign.family} that cannot be evaluated on a random "
            f"cluster: {last_line(error)}"
        ) from error
    return clusters, numbers, [one.gamma for one in results if isinstance(one, GradedNumbers)]


def _require_unchanged(path: str) -> None:
    """Raise Failure for a file of this project that gives other numbers than when it was made."""
    try:
        change = self_test.change_of(Path(path), model_file.describe_unopened(path))
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error
    if change is not None and change.text:
        raise Failure(f"'{path}' {change.text}")


def _differences(
    source: str, foreign: Foreign, evaluations: Sequence[Evaluation], expected: Sequence[Numbers]
) -> tuple[float, float]:
    """The largest of atomic energies and forces, within what is allowed."""
    worst = {"energies of atoms": 0.0, "forces": 0.0}
    for evaluation, numbers in zip(evaluations, expected, strict=True):
        pairs = zip((evaluation.atom_energy, evaluation.forces), numbers, strict=True)
        for what, (ours, theirs) in zip(worst, pairs, strict=True):
            difference = float(np.abs(ours - theirs).max())
            gate = GATES[foreign.single] * max(1.0, float(np.abs(theirs).max()))
            if not difference <= gate:
                raise Failure(
                    f"'{source}' is not what it was taken for ({foreign.family}): {what} differ by "
                    f"{difference:.1e} from those of {foreign.basis} on a random cluster, allowed "
                    f"{gate:.1e}; nothing was written"
                )
            worst[what] = max(worst[what], difference)
    return worst["energies of atoms"], worst["forces"]


def _grade_difference(
    source: str, evaluations: Sequence[Evaluation], expected: Sequence[np.ndarray]
) -> str:
    """By how much the extrapolation grade of atoms differs, within what is allowed."""
    worst = 0.0
    for evaluation, theirs in zip(evaluations, expected, strict=True):
        assert evaluation.gamma is not None
        share = float(np.abs(evaluation.gamma - theirs).max() / max(1.0, np.abs(theirs).max()))
        if not share <= GRADE_GATE:
            raise Failure(
                f"'{source}': gamma differs by {share:.1e} of the largest from that of the "
                f"original on a random cluster, allowed {GRADE_GATE:.0e}; nothing was written"
            )
        worst = max(worst, share)
    return f"differs by {worst:.1e} of the largest at most from that of the original"
