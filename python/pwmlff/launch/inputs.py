"""What the input of a simulation reads, and whether that is the same as before.

The contents decide, by their SHA-256. A file whose place on the disk, size and times are those that
were seen is not read again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pwmlff.files import sha256
from pwmlff.launch.script import Script
from pwmlff.report import Failure

#: SHA-256 of each file by its name in the input, and what told that it needs not be read again;
#: None where there is no such file.
Seen = dict[str, list[Any] | None]


def look(script: Script, known: Mapping[str, list[Any] | None]) -> Seen:
    """What the input reads now; files that are known are not read again."""
    return {name: _seen(path, known.get(name)) for name, path in script.reads().items()}


def changes(known: Mapping[str, list[Any] | None], now: Seen) -> list[str]:
    """Names of files with other contents than before, or with contents that no file had.

    A file that is gone is left to LAMMPS, which may not want it again. One that was not there is
    taken as it is: the input may make it.
    """
    contents = {seen[0] for seen in known.values() if seen}
    names = []
    for name, seen in now.items():
        old = known.get(name)
        # A file of another name may be the same one.
        of_others = name not in known and seen is not None and seen[0] not in contents
        if of_others or (old and seen and seen[0] != old[0]):
            names.append(name)
    return names


def require_read(names: Iterable[Path], now: Seen) -> set[str]:
    """Names in the input of files that somebody names.

    Raises:
        Failure: the input reads none of that name.
    """
    known_names = set()
    for path in names:
        same = {name for name in now if Path(name).resolve() == path.resolve()}
        if not same:
            there = ", ".join(f"'{name}'" for name, seen in now.items() if seen)
            raise Failure(
                f"--changed names '{path}', which the input does not read; it reads {there}"
            )
        known_names |= same
    return known_names


def options(names: Iterable[str]) -> str:
    """Words that say that changes are meant."""
    return " ".join(f"--changed {shlex.quote(name)}" for name in names)


def _seen(path: Path, old: list[Any] | None) -> list[Any] | None:
    if not path.is_file():  # a pipe would wait for who writes to it
        return None
    with suppress(OSError):
        state = path.stat()
        # A copy may have the size and the time of another file, but not when and where it was made.
        marks = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        if old and old[1:] == marks:
            return old
        return [sha256([path]), *marks]
    return None
