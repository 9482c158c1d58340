"""Model files of modules."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from os import PathLike
from typing import Any

import torch
from ase.data import atomic_numbers
from torch import nn

from pwmlff.evaluation.archive import CARD
from pwmlff.files import write_whole
from pwmlff.report import plain

CLOSEST = "closest_distances"  # extra file, which lmp reads (models/model_file.cpp)
#: Of a ZIP archive: bytes before a member's name; an extra field's number and length, and the
#: number that torch uses for padding.
HEADER, FIELD, PADDING, ALIGNMENT = 30, struct.Struct("<HH"), 0x4246, 64


def save_model(
    module: nn.Module,
    path: str | PathLike[str],
    card: Mapping[str, Any] | None = None,
    added: Mapping[str, bytes] | None = None,
) -> str | PathLike[str]:
    """Script a module in eval mode and write it; the training flag stays as it was.

    Args:
        module: of a kind of the model contract.
        path: the file, which is there as a whole or not at all.
        card: what the file carries for people (`train.card.make`): plain values for JSON. Its
            `closest`, distances by pairs of elements like "Hf-O", is there for lmp, too.
        added: further members of those that torch calls extra files.

    Returns:
        `path`, for `torch.jit.load` or `pair_style pwmlff`.

    Raises:
        OSError: the file cannot be written; one of that name is as it was.
    """
    extra = {} if card is None else {CARD: json.dumps(plain(dict(card)), allow_nan=False)}
    if card is not None and card.get("closest"):
        extra[CLOSEST] = _closest(card["closest"])
    training = module.training
    try:
        with warnings.catch_warnings():
            # That torch has formats other than TorchScript by now is no news to users.
            warnings.simplefilter("ignore", DeprecationWarning)
            # In memory: where torch itself finds a disk full, it ends the process.
            contents = torch.jit.script(module.eval()).save_to_buffer(_extra_files=extra)
    finally:
        module.train(training)
    write_whole(path, without_source_paths(contents, added))
    return path


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
        added: contents of new members, which are packed, by their names in the archive's folder.
        edit: contents of an old member, from its whole name and its contents.
    """
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(contents)) as source, zipfile.ZipFile(result, "w") as archive:
        for member in source.infolist():
            if member.filename.endswith(".debug_pkl"):
                continue
            kept = zipfile.ZipInfo(member.filename)
            kept.compress_type = member.compress_type
            begin = result.tell() + HEADER + len(member.filename.encode())
            padding = -(begin + FIELD.size) % ALIGNMENT
            kept.extra = FIELD.pack(PADDING, padding) + bytes(padding)
            archive.writestr(kept, edit(member.filename, source.read(member)))
        root = source.namelist()[0].split("/")[0]
        for name, new in added.items():
            archive.writestr(f"{root}/{name}", new, zipfile.ZIP_DEFLATED)
    return result.getvalue()
