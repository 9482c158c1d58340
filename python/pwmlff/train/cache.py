"""Training data ready for use, kept on disk by what it was made of.

An entry is a folder of .npy files, which are mapped into memory, and a description with their
checksums. Its name is a hash of the contents of the files and of all options, so nothing is ever
out of date; an entry that is damaged or of another layout is made anew. Entries appear whole, by a
rename, whoever else writes the same one. Where nothing can be written, work goes on without.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pwmlff.train import consistency, neighbors, readers
from pwmlff.train.checkpoint import subset
from pwmlff.train.frames import Frames
from pwmlff.train.neighbors import Edges

log = logging.getLogger(__name__)

#: Of the entries; another one whenever a reader or the order of edges changes.
LAYOUT = 1
AUTO, NONE = "auto", "none"  # the default place, no cache
DESCRIPTION = "description.json"
TEMPORARY = ".new-"
ABANDONED = 24 * 3600.0  # seconds after which an entry that never got finished is removed
BLOCK = 1 << 24  # bytes of a checksum


def place() -> Path:
    """Where entries are kept unless said otherwise: $XDG_CACHE_HOME/pwmlff or ~/.cache/pwmlff."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "pwmlff"


def load(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    elements: Sequence[int],
    cutoff: float,
    format: str | None = None,
    group_by: str | None = None,
    closest: float = neighbors.CLOSEST,
    cache: str | PathLike[str] | None = AUTO,
    threads: int | None = None,
) -> tuple[Frames, Edges]:
    """Read training data and find all neighbors, or take both from the cache.

    What :mod:`pwmlff.train.consistency` finds is logged as warnings, one line each, either way.

    Args:
        files, format, group_by: as :func:`pwmlff.train.readers.read` takes them.
        elements, cutoff, closest, threads: as :func:`pwmlff.train.neighbors.find_edges` takes them.
        cache: folder of the cache, "auto" for the default one, None or "none" for none.

    Returns:
        Frames and edges; their arrays can not be written to.

    Raises:
        Failure: a file or a frame cannot be used; nothing is kept then.
    """
    specs = [fspath(files)] if isinstance(files, str | PathLike) else [fspath(f) for f in files]
    options = {
        "layout": LAYOUT,
        "version": version("pair-pwmlff"),
        "elements": [int(z) for z in elements],
        "cutoff": float(cutoff),
        "closest": float(closest),
        "format": format,
        "group_by": group_by,
    }
    entry = damaged = None
    if cache is not None and fspath(cache) != NONE:
        options["files"] = [[spec, _digest(readers.split(spec)[0])] for spec in specs]
        key = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:40]
        entry = (place() if fspath(cache) == AUTO else Path(cache)) / key
        damaged = _identity(entry)  # if it cannot be opened
        kept = _opened(entry, options, threads)
        if kept is not None:
            return _announced(*kept)
    frames = readers.read(specs, format, group_by)
    edges = neighbors.find_edges(frames, elements, cutoff, closest, threads)
    found = [(f.warning, f.text) for f in consistency.findings(frames)]
    for array in (*_arrays(frames).values(), *_arrays(edges).values()):
        array.flags.writeable = False
    if entry is not None:
        _keep(entry, options, frames, edges, found, damaged)
    return _announced(frames, edges, found)


def _announced(
    frames: Frames, edges: Edges, found: Sequence[tuple[bool, str]]
) -> tuple[Frames, Edges]:
    for warning, text in found:
        log.log(logging.WARNING if warning else logging.INFO, "%s", text)
    return frames, edges


def _digest(path: Path) -> str:
    """SHA-256 of the contents of a file, or of all files in a folder and their names."""
    result = hashlib.sha256()
    names = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for name in names:
        if name != path:
            result.update(f"\0{name.relative_to(path)}\0{name.stat().st_size}\0".encode())
        with name.open("rb") as file:
            while block := file.read(BLOCK):
                result.update(block)
    return result.hexdigest()


def _arrays(data: Frames | Edges) -> dict[str, np.ndarray]:
    """The arrays among the fields of a dataclass."""
    values = {entry.name: getattr(data, entry.name) for entry in fields(data)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _checksums(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array, block by block."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    for begin in range(0, len(data), BLOCK):
        yield data[begin : begin + BLOCK]


def _described(array: np.ndarray, pool: ThreadPoolExecutor) -> list[Any]:
    """Type, shape and checksums of an array, as JSON has them."""
    return [array.dtype.str, list(array.shape), list(pool.map(zlib.crc32, _checksums(array)))]


def _opened(
    entry: Path, options: Mapping[str, Any], threads: int | None
) -> tuple[Frames, Edges, list[tuple[bool, str]]] | None:
    """An entry, or None where there is none that can be trusted."""
    try:
        description = json.loads((entry / DESCRIPTION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("the cache '%s' cannot be read (%s): it is made anew", entry, error)
        return None
    try:
        if description["options"] != options:
            raise ValueError("it was made with other options")
        arrays: dict[str, np.ndarray] = {}
        with ThreadPoolExecutor(threads or neighbors.available()) as pool:
            for name, expected in description["arrays"].items():
                # An empty file cannot be mapped.
                mode: Literal["r"] | None = "r" if all(expected[1]) else None
                array = np.load(entry / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
                if _described(array, pool) != expected:
                    raise ValueError(f"'{name}' is not what was written")
                arrays[name] = np.asarray(array)
                arrays[name].flags.writeable = False
        frames = Frames(
            **subset("frames.", arrays),
            group_names=tuple(description["group_names"]),
            files=tuple(description["files"]),
        )
        edges = Edges(**subset("edges.", arrays), cutoff=float(description["cutoff"]))
        found = [(bool(warning), str(text)) for warning, text in description["findings"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
        log.warning("the cache '%s' is damaged (%s): it is made anew", entry, error)
        return None
    return frames, edges, found


def _keep(
    entry: Path,
    options: Mapping[str, Any],
    frames: Frames,
    edges: Edges,
    found: Sequence[tuple[bool, str]],
    damaged: int | None,
) -> None:
    """Write an entry; where that fails, say so and leave nothing behind."""
    folder = None
    try:
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clean(entry.parent)
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=entry.parent))
        arrays = {
            **{f"frames.{name}": array for name, array in _arrays(frames).items()},
            **{f"edges.{name}": array for name, array in _arrays(edges).items()},
        }
        with ThreadPoolExecutor(neighbors.available()) as pool:
            described = {name: _described(array, pool) for name, array in arrays.items()}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        description = {
            "options": options,
            "arrays": described,
            "group_names": frames.group_names,
            "files": frames.files,
            "cutoff": edges.cutoff,
            "findings": found,
        }
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=1), encoding="utf-8")
        _put(folder, entry, damaged)
    except OSError as error:
        log.warning(
            "cannot keep the training data in '%s': %s; going on without a cache",
            *(entry.parent, error.strerror or error),
        )
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _identity(entry: Path) -> int | None:
    """What tells a folder from another of its name; None where there is none."""
    try:
        return entry.stat().st_ino
    except OSError:
        return None


def _put(folder: Path, entry: Path, damaged: int | None) -> None:
    """Give a finished folder its name, in place of a damaged entry; another writer may be first."""
    for _ in range(3):
        try:
            folder.rename(entry)
        except OSError:
            if not entry.exists():
                raise
            # What is there now is either what was found damaged, or what another process has just
            # finished, which is the same as this. If all removed that, nothing could be left.
            if _identity(entry) not in (None, damaged):
                return
            old = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=entry.parent))
            try:
                entry.rename(old / entry.name)
            except FileNotFoundError:
                pass
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            return


def _clean(parent: Path) -> None:
    """Remove what processes that were killed have left."""
    for path in parent.glob(f"{TEMPORARY}*"):
        try:
            if time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            continue
