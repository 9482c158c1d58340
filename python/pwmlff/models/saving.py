"""Model files of modules."""

from __future__ import annotations

import io
import itertools
import json
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from ase.data import atomic_numbers
from torch import nn

from pwmlff import arrays
from pwmlff.evaluation import model_file, reference, self_test
from pwmlff.evaluation.archive import CARD, companion
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.structures import random_cluster
from pwmlff.files import write_whole
from pwmlff.report import plain
from pwmlff.threads import torch_threads

CLOSEST = "closest_distances"  # extra file, which lmp reads (models/model_file.cpp)
WITHOUT_DATA = "elements_without_data"  # likewise (models/record.cpp)
RECORD = "engine-record"  # likewise (models/record.h)
MACE_ARRAYS = "mace-arrays"  # likewise (convert/mace_network.py)
#: Of so many elements a record has each selection, and of so many all together.
FEW_ELEMENTS, SOME_ELEMENTS = 3, 8
CLOSE = 0.1  # cutoffs between atoms where ZBL counts
#: Of a ZIP archive: bytes before a member's name; an extra field's number and length, and the
#: number that torch uses for padding.
HEADER, FIELD, PADDING, ALIGNMENT = 30, struct.Struct("<HH"), 0x4246, 64


def save_model(
    module: nn.Module,
    path: str | PathLike[str],
    card: Mapping[str, Any] | None = None,
    added: Mapping[str, bytes] | None = None,
    together: Sequence[int] = (),
    record: bool = True,
) -> str | PathLike[str]:
    """Script a module in eval mode and write it; the training flag stays as it was.

    Args:
        module: of a kind of the model contract.
        path: the file, which is there as a whole or not at all.
        card: what the file carries for people (`train.card.make`): plain values for JSON. Its
            `closest`, distances by pairs of elements like "Hf-O", and `without_data`, symbols of
            elements that the data have no atom of, are there for lmp, too.
        added: further members of those that torch calls extra files.
        together: atomic numbers of elements that are to have a record besides all of the model's.
        record: whether what a fused engine runs gets a record, with which lmp runs it without
            torch. It takes some evaluations of the model.

    Returns:
        `path`, for `torch.jit.load` or `pair_style pwmlff`.

    Raises:
        OSError: the file cannot be written; one of that name is as it was.
    """
    extra = {} if card is None else {CARD: json.dumps(plain(dict(card)), allow_nan=False)}
    if card is not None and card.get("closest"):
        extra[CLOSEST] = _closest(card["closest"])
    if card is not None and card.get("without_data"):
        numbers = (str(atomic_numbers[symbol]) for symbol in card["without_data"])
        extra[WITHOUT_DATA] = " ".join(numbers)
    training = module.training
    try:
        with warnings.catch_warnings():
            # That torch has formats other than TorchScript by now is no news to users.
            warnings.simplefilter("ignore", DeprecationWarning)
            # In memory: where torch itself finds a disk full, it ends the process.
            contents = torch.jit.script(module.eval()).save_to_buffer(_extra_files=extra)
    finally:
        module.train(training)
    contents = without_source_paths(contents, added)
    if record and (hasattr(module, "davg") or MACE_ARRAYS in (added or {})):
        elements: Any = module.atom_type
        contents = with_record(contents, elements, together)
    write_whole(path, contents)
    return path


def add_self_test(path: Path, values: Sequence[self_test.Values] = (), room: float = 0.0) -> None:
    """Give a model file what tells later whether it has changed; a record has to come after.

    Args:
        path: of the file. Of a nep.txt it is another one beside it.
        values: of its clusters, by the original; of the reference where there are none.
        room: what the file differs from them by, as self_test.difference tells.
    """
    module, info = model_file.open_any(path)
    if info.takes_temperature:
        return
    structures = self_test.clusters(info)
    if not values:
        results = [reference.evaluate(module, atoms) for atoms in structures]
        values = [(one.atom_energy, one.forces) for one in results]
    single = info.scripted and model_file.dtype_of(cast("Any", module)) == torch.float32
    tolerance = max(self_test.TOLERANCES[single], self_test.ROOM * room)
    kept = self_test.made(structures, values, tolerance)
    if not info.scripted:
        write_companion(path, info.card, kept)
        return
    name = f"extra/{self_test.SELF_TEST}"
    write_whole(path, rewritten(path.read_bytes(), {name: json.dumps(kept).encode()}))


def write_companion(
    path: str | PathLike[str],
    card: Mapping[str, Any] | None,
    kept: Mapping[str, Any] | None = None,
) -> None:
    """Write beside a nep.txt what it has no place for: a card, and what is kept as a self-test."""
    extra = {CARD: card and plain(dict(card)), self_test.SELF_TEST: kept}
    text = json.dumps({name: value for name, value in extra.items() if value}, allow_nan=False)
    write_whole(companion(path), text.encode())


def copy_model(source: Path, target: Path) -> None:
    """Copy a model file, and what is beside a nep.txt."""
    companion(target).unlink(missing_ok=True)  # of an older one
    write_whole(target, source.read_bytes())
    if companion(source).exists():
        write_whole(companion(target), companion(source).read_bytes())


def add_record(path: Path, atom_type: Sequence[int]) -> None:
    """Give a model file a record, see :func:`with_record`."""
    write_whole(path, with_record(path.read_bytes(), atom_type))


def with_record(contents: bytes, atom_type: Sequence[int], together: Sequence[int] = ()) -> bytes:
    """A model file with the numbers of its own code that lmp compares a fused engine with.

    With them, and the arrays of the model, lmp needs torch only where it simulates a selection of
    elements that has none: there are some for each selection of a model of few elements, else for
    all together and for each selection of those given.

    Args:
        contents: of a model file, which is given back as it is where no fused engine runs it.
        atom_type: atomic numbers of the model's elements.
        together: some of them.
    """
    try:
        import pwmlff.kernels  # noqa: F401, PLC0415  registers the operator; needs what is compiled
    except ImportError:
        return contents
    selections = _selections(range(len(atom_type))) if len(atom_type) <= SOME_ELEMENTS else []
    selections += _selections([list(atom_type).index(number) for number in together])
    if not selections:
        return contents
    present = torch.zeros(len(selections), len(atom_type), dtype=torch.bool)
    for row, selection in zip(present, selections, strict=True):
        row[list(selection)] = True
    try:
        with torch_threads(1):
            record = torch.ops.pwmlff.engine_record(_bytes(contents), present.unique(dim=0))
    except ValueError:  # no fused engine gives what its own code does
        return contents
    return rewritten(contents, {f"extra/{RECORD}": record.numpy().tobytes()})


def fault_of_record(path: Path, info: model_file.ModelInfo) -> str:
    """What the record in a file says other than the file's own code, which runs; or empty.

    Args:
        path: of a model file of TorchScript.
        info: what its tables say.
    """
    contents, name = path.read_bytes(), f"extra/{RECORD}"
    recorded = _recorded(contents)
    if recorded is None:
        return ""
    _, numbers, texts = recorded
    limits = [numbers.get(name) for name in ("cutoff", "interaction_range")]
    if [texts.get("kind"), texts.get("units"), *limits] != [
        info.kind,
        info.units,
        info.cutoff,
        info.interaction_range,
    ] or numbers["atom_type"].tolist() != list(info.atom_type):
        return "it has another kind, cutoff or list of elements"
    n = len(info.atom_type)
    every = [tuple(range(n)), *(_selections(range(n)) if n <= FEW_ELEMENTS else [])]
    tolerance = self_test.TOLERANCES[info.kind == "EDGE" and "float32" in info.dtype]
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder, path.name)
        bare.write_bytes(rewritten(contents, {name: b""}))
        for selection in dict.fromkeys(every):
            elements = tuple(info.atom_type[k] for k in selection)
            told, untold, own = (
                choose(file, engine, "exact", elements).engine
                for file, engine in ((path, "auto"), (bare, "auto"), (bare, "torchscript"))
            )
            if (told.name, told.has_grade) != (untold.name, untold.has_grade):
                return f"with it the engine is {told.name}, and without {untold.name}"
            close = random_cluster(info.cutoff, elements, info.limit, apart=CLOSE)
            for atoms in (close, *self_test.clusters(replace(info, atom_type=elements))):
                one, other = told(atoms, grade=told.has_grade), own(atoms)
                pair = [(each.atom_energy, each.forces) for each in (one, other)]
                if not self_test.difference(pair[0], pair[1]) <= tolerance:
                    return "its arrays give other energies and forces"
                gamma = untold(atoms, grade=untold.has_grade).gamma
                if gamma is not None and not _same(one.gamma, gamma):
                    return "its arrays give another gamma"
    return ""


def _recorded(contents: bytes) -> arrays.Arrays | None:
    """What the record in a file holds; None where there is none that can be read."""
    with zipfile.ZipFile(io.BytesIO(contents)) as archive:
        found = [archive.read(n) for n in archive.namelist() if n.endswith(f"/extra/{RECORD}")]
    try:
        return arrays.read(found[0].split(b"\n", 2)[-1]) if found else None
    except ValueError:  # of an older release, or damaged: it counts for nothing
        return None


def _same(one: np.ndarray | None, other: np.ndarray) -> bool:
    return one is not None and np.allclose(one, other, rtol=1e-6)


def _bytes(contents: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(contents), dtype=torch.uint8)


def _selections(species: Sequence[int]) -> list[tuple[int, ...]]:
    """Those of some species that are likely to be simulated."""
    least = 1 if len(species) <= FEW_ELEMENTS else len(species)
    return [
        selection
        for size in range(least, len(species) + 1)
        for selection in itertools.combinations(species, size)
    ]


def _closest(distances: Mapping[str, float]) -> str:
    """Lines of two atomic numbers and a distance."""
    lines = []
    for pair, distance in distances.items():
        first, _, second = pair.partition("-")
        lines.append(f"{atomic_numbers[first]} {atomic_numbers[second]} {distance!r}\n")
    return "".join(lines)


def origin() -> dict[str, Any]:
    """What each card begins with: date and time, UTC, and versions."""
    return {
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("pair-pwmlff", "torch", "numpy")},
    }


def without_source_paths(contents: bytes, extra: Mapping[str, bytes] | None = None) -> bytes:
    """An archive of torch's without its notes for error messages, with paths of the machine.

    Args:
        extra: members to add to those that torch calls extra files.
    """
    return rewritten(contents, {f"extra/{name}": added for name, added in (extra or {}).items()})


def rewritten(
    contents: bytes,
    added: Mapping[str, bytes],
    edit: Callable[[str, bytes], bytes] = lambda _, member: member,
) -> bytes:
    """An archive of torch's with other members, and without notes on places in its code.

    The bytes of members are at multiples of 64, as torch has them.

    Args:
        added: contents of new members, which are packed, by their names in the archive's folder;
            they replace old ones of these names.
        edit: contents of an old member, from its whole name and its contents.
    """
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(contents)) as source, zipfile.ZipFile(result, "w") as archive:
        root = source.namelist()[0].split("/")[0]
        replaced = {f"{root}/{name}" for name in added}
        for member in source.infolist():
            if member.filename.endswith(".debug_pkl") or member.filename in replaced:
                continue
            kept = zipfile.ZipInfo(member.filename)
            kept.compress_type = member.compress_type
            begin = result.tell() + HEADER + len(member.filename.encode())
            padding = -(begin + FIELD.size) % ALIGNMENT
            kept.extra = FIELD.pack(PADDING, padding) + bytes(padding)
            archive.writestr(kept, edit(member.filename, source.read(member)))
        for name, new in added.items():
            # Without the time, so that the same model is the same file.
            archive.writestr(zipfile.ZipInfo(f"{root}/{name}"), new, zipfile.ZIP_DEFLATED)
    return result.getvalue()
