"""Training data ready for use, kept on disk by what it was made of.

An entry is a folder of .npy files, which are mapped into memory, and a description with their
checksums. Its name is a hash of all options and of the contents and names of the files, wherever
they lie. So nothing is ever out of date. An entry that is damaged or of another layout is made
anew. Entries appear whole, by a rename, whoever else writes the same one. Those that were not used
for longest go when all are larger than the limit. Where nothing can be written, work goes on
without.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff.data import consistency, neighbors, readers, sources
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.files import files_below, sha256
from pwmlff.report import Failure, Report
from pwmlff.threads import allowed_threads

log = logging.getLogger(__name__)

#: Of the entries; another one whenever a reader or the order of edges changes.
LAYOUT = 6
AUTO, NONE = "auto", "none"  # the default place, no cache
DESCRIPTION = "description.json"
TEMPORARY = ".new-"
ABANDONED = 24 * 3600.0  # seconds after which an entry that never got finished is removed
BLOCK = 1 << 24  # bytes of a checksum
#: Bytes that all entries may take, unless this variable says another number of GiB.
LIMIT, LIMIT_VARIABLE = 8 << 30, "PWMLFF_CACHE_LIMIT"
ENTRY = re.compile(r"[0-9a-f]{40}")  # name of an entry


def default_folder() -> Path:
    """Where entries are kept unless said otherwise: $XDG_CACHE_HOME/pwmlff or ~/.cache/pwmlff."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "pwmlff"


def folder_of(cache: str | PathLike[str]) -> Path:
    """The folder that an option names."""
    return default_folder() if fspath(cache) == AUTO else Path(cache)


def load(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    elements: Sequence[int],
    cutoff: float,
    format: str | None = None,
    energy: str = readers.FREE,
    keep_unconverged: bool = False,
    kinds: Mapping[str, str] = readers.NO_KINDS,
    cache: str | PathLike[str] | None = AUTO,
    threads: int | None = None,
) -> tuple[Frames, Edges]:
    """Read training data and find all neighbors, or take both from the cache.

    What is odd about labels, and what :mod:`pwmlff.data.consistency` and
    :mod:`pwmlff.data.sources` find, is logged as warnings, one line each, either way.

    Args:
        files, format, energy, keep_unconverged, kinds: as
            :func:`pwmlff.data.readers.read` takes them.
        elements, cutoff, threads: as :func:`pwmlff.data.neighbors.find_edges` takes them.
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
        "format": format,
        "energy": energy,
        "keep_unconverged": keep_unconverged,
        "kinds": dict(kinds),
    }
    entry = cached = None
    paths: list[str] = []
    if cache is not None and fspath(cache) != NONE:
        split = [readers.split(spec) for spec in specs]
        paths = [str(path) for path, _ in split]
        # Their names count too, as those of groups come from them: as typed, not where links lead.
        options["files"] = [[p.name, repr(wanted), _digest(p)] for p, wanted in split]
        key = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:40]
        entry = folder_of(cache) / key
        cached = _opened(entry, options, paths, threads)
    if cached is None:
        texts: list[str] = []
        frames = readers.read(specs, format, energy, texts.append, keep_unconverged, kinds)
        edges = neighbors.find_edges(frames, elements, cutoff, threads=threads)
        remarks = [(True, text) for text in texts]
        findings = consistency.findings(frames)
        offsets = sources.offsets(frames, sources.describe(frames, edges))
        findings += sources.findings(frames, offsets, findings)
        remarks += [(f.warning, f.text) for f in findings]
        for array in (*_arrays(frames).values(), *_arrays(edges).values()):
            array.flags.writeable = False
        if entry is not None:
            _keep(entry, options, paths, frames, edges, remarks)
    else:
        frames, edges, remarks = cached
    for warning, text in remarks:
        log.log(logging.WARNING if warning else logging.INFO, "%s", text)
    return frames, edges


def _digest(path: Path) -> str:
    """SHA-256 of the contents of a file, or of all files in a folder and their names."""
    if path.is_file():
        return sha256([path])
    files = sorted(files_below(path))
    text = "".join(f"{sha256([file])} {file.relative_to(path)}\n" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()


def _arrays(data: Frames | Edges) -> dict[str, np.ndarray]:
    """The arrays among the fields of a dataclass."""
    values = {entry.name: getattr(data, entry.name) for entry in fields(data)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _described(array: np.ndarray, pool: ThreadPoolExecutor) -> list[Any]:
    """Type, shape and checksums of an array, block by block, as JSON has them."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    blocks = (data[begin : begin + BLOCK] for begin in range(0, len(data), BLOCK))
    return [array.dtype.str, list(array.shape), list(pool.map(zlib.crc32, blocks))]


def _opened(
    entry: Path, options: Mapping[str, Any], paths: Sequence[str], threads: int | None
) -> tuple[Frames, Edges, list[tuple[bool, str]]] | None:
    """An entry, or None where there is none that can be trusted; then nothing is left of it."""
    try:
        if not entry.exists():
            return None
        description = json.loads((entry / DESCRIPTION).read_text(encoding="utf-8"))
        if description["options"] != options:
            raise ValueError("it was made with other options")
        arrays: dict[str, dict[str, np.ndarray]] = {"frames": {}, "edges": {}}
        with ThreadPoolExecutor(threads or allowed_threads()) as pool:
            for name, expected in description["arrays"].items():
                # An empty file cannot be mapped.
                mode: Literal["r"] | None = "r" if all(expected[1]) else None
                array = np.load(entry / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
                if _described(array, pool) != expected:
                    raise ValueError(f"'{name}' is not what was written")
                kind, _, attribute = name.partition(".")
                arrays[kind][attribute] = np.asarray(array)
                arrays[kind][attribute].flags.writeable = False
        frames = Frames(
            **arrays["frames"],
            group_names=tuple(description["group_names"]),
            files=_moved(description["files"], description["paths"], paths),
        )
        edges = Edges(**arrays["edges"], cutoff=float(description["cutoff"]))
        moved = list(zip(map(repr, description["files"]), map(repr, frames.files), strict=True))
        remarks = []
        for warning, text in description["findings"]:
            for old, new in moved:
                text = text.replace(old, new)  # noqa: PLW2901
            remarks.append((bool(warning), text))
        with suppress(OSError):
            os.utime(entry / DESCRIPTION)  # when it was used last
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
        log.warning("the cache '%s' is damaged (%s): it is made anew", entry, error)
        shutil.rmtree(entry, ignore_errors=True)
        with suppress(OSError):
            entry.unlink()  # it was no folder
        return None
    return frames, edges, remarks


def _moved(files: Sequence[str], old_paths: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Names of files, or of systems in folders, where they lie now."""
    result = []
    for name in files:
        both = zip(old_paths, paths, strict=True)
        match = next((pair for pair in both if Path(name).is_relative_to(pair[0])), None)
        if match is None:
            raise ValueError(f"'{name}' is none of {old_paths}")
        result.append(str(Path(match[1], Path(name).relative_to(match[0]))))
    return tuple(result)


def _keep(
    entry: Path,
    options: Mapping[str, Any],
    paths: Sequence[str],
    frames: Frames,
    edges: Edges,
    remarks: Sequence[tuple[bool, str]],
) -> None:
    """Write an entry; where that fails, say so and leave nothing behind."""
    parent = entry.parent
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clean(parent)
        # Once it has its name, there is nothing to clean up.
        with tempfile.TemporaryDirectory(
            prefix=TEMPORARY, dir=parent, ignore_cleanup_errors=True
        ) as folder:
            arrays = {
                **{f"frames.{name}": array for name, array in _arrays(frames).items()},
                **{f"edges.{name}": array for name, array in _arrays(edges).items()},
            }
            with ThreadPoolExecutor(allowed_threads()) as pool:
                described = {name: _described(array, pool) for name, array in arrays.items()}
            for name, array in arrays.items():
                np.save(Path(folder, f"{name}.npy"), array, allow_pickle=False)
            description = {
                "options": options,
                "arrays": described,
                "group_names": frames.group_names,
                "files": frames.files,
                "paths": paths,
                "cutoff": edges.cutoff,
                "findings": remarks,
            }
            text = json.dumps(description, indent=1)
            Path(folder, DESCRIPTION).write_text(text, encoding="utf-8")
            try:
                Path(folder).rename(entry)
            except OSError:
                if not (entry / DESCRIPTION).exists():
                    raise  # otherwise another process was first, with the same
        _shrink(entry)
    except OSError as error:
        log.warning(
            "cannot keep the training data in '%s': %s; going on without a cache",
            *(parent, error.strerror or error),
        )


def _clean(parent: Path) -> None:
    """Remove what processes that were killed have left."""
    for path in parent.glob(f"{TEMPORARY}*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)


# ---- how large it is


def limit() -> int:
    """Bytes that all entries may take.

    Raises:
        Failure: the environment says no number.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return LIMIT
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise Failure(f"{LIMIT_VARIABLE} is '{text}', expected a number of GiB like 8")
    return int(value * (1 << 30))


@dataclass(frozen=True)
class Entry:
    """One set of training data that is kept."""

    folder: str
    files: tuple[str, ...]
    bytes: int
    used: float  # when it was last, in seconds since 1970


def entries(folder: Path) -> list[Entry]:
    """What is kept in a folder, that which was not used for longest first."""
    result = []
    for path in folder.glob("*"):
        if not ENTRY.fullmatch(path.name):
            continue
        # Another process may remove it meanwhile, and a damaged one counts too.
        with suppress(OSError):
            description = path / DESCRIPTION
            used = (description if description.exists() else path).stat().st_mtime
            size = sum(file.stat().st_size for file in path.iterdir())
            result.append(Entry(str(path), _files(description), size, used))
    return sorted(result, key=lambda entry: entry.used)


def _files(description: Path) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads(description.read_text(encoding="utf-8"))["files"]))
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def _shrink(newest: Path) -> None:
    """Remove entries that were not used for longest until all are within the limit, but not one."""
    listed = entries(newest.parent)
    total = sum(entry.bytes for entry in listed)
    most = limit()
    for entry in listed:
        if total <= most:
            return
        if Path(entry.folder) != newest:
            shutil.rmtree(entry.folder, ignore_errors=True)
            total -= entry.bytes


@dataclass(frozen=True)
class CacheReport(Report):
    """What is in the cache, or what was removed from it."""

    folder: str
    limit: int
    cleared: bool
    entries: list[Entry]

    def show(self) -> RenderableType:
        """A row for each entry."""
        table = Table("files", "MiB", "last used", box=None)
        for entry in self.entries:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
            table.add_row(Text(", ".join(entry.files)), f"{entry.bytes / 2**20:.1f}", when)
        total = sum(entry.bytes for entry in self.entries) / 2**20
        what = "removed" if self.cleared else f"of at most {self.limit / 2**20:.0f}"
        noun = "entry" if len(self.entries) == 1 else "entries"
        text = f"{len(self.entries)} {noun} in {self.folder}, {total:.1f} MiB {what}"
        return Group(*([table] if self.entries else []), Text(text))


def survey(name: str = AUTO, clear: bool = False) -> CacheReport:
    """Look what is in the cache of a name, as :func:`load` takes it, and remove it if wanted.

    Raises:
        Failure: an entry cannot be removed.
    """
    folder = folder_of(name)
    listed = entries(folder)
    for entry in listed if clear else ():
        try:
            shutil.rmtree(entry.folder)
        except OSError as error:
            raise Failure(f"cannot remove '{entry.folder}': {error.strerror or error}") from error
    return CacheReport(str(folder), limit(), clear, listed)
