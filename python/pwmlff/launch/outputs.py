"""What lmp writes beside restart files, before a start that goes on: nothing of it gets lost.

A log, a screen or a dump that the start begins anew is kept under another name. A dump that it
appends to is cut back to the step that it goes on from, as the frames after it will come again; but
never to less than the simulation has found there.
"""

from __future__ import annotations

import itertools
import mmap
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from pwmlff.files import named
from pwmlff.launch.script import Dump

#: How files of text dumps begin, what stands before the step of a frame, and what before that.
_FORMS = (
    (rb"ITEM: (?:TIMESTEP|UNITS|TIME)\n", b"ITEM: TIMESTEP\n",
     rb"(?:^ITEM: UNITS\n(?:[^\n]*\n)?)?(?:^ITEM: TIME\n(?:[^\n]*\n)?)?\Z"),
    (rb"\d+\n Atoms\. Timestep: ", b" Atoms. Timestep: ", rb"(?:^\d+\n)?\Z"),
    (rb"\d+\nTimestep=", b"Timestep=", rb"(?:^\d+\n)?\Z"),
    (rb"---\n", b"timestep: ", rb"(?:^---\n(?:creator: [^\n]*\n)?)?\Z"),
)  # fmt: skip
PRELUDE = 4096  # bytes that are looked at for what stands before the step of a frame
Tell = Callable[[int | None], None]
_STEP = re.compile(rb"(\d+)[\s,]")


def keep(path: Path, start: int) -> Path:
    """Give a file the name that says of which start it is, from 1; nothing there is replaced.

    Returns:
        The new name.
    """
    return path.rename(_free_name(path, start))


def _free_name(path: Path, start: int) -> Path:
    """The name that says of which start a file is, and that no file has."""
    name = path.with_name(f"{path.name}.start{start}")
    numbered = (name.with_name(f"{name.name}.{k}") for k in itertools.count(2))
    return next(path for path in itertools.chain([name], numbered) if not path.exists())


def renew(
    path: Path,
    dump: Dump,
    start: int,
    least: int,
    step: int | None,
    goes_on: bool,
    spare: bool,
    say: Callable[[str], None],
) -> None:
    """Let a dump go on in a file, or begin again there as before the simulation.

    Args:
        path: the file, which an earlier start has written.
        dump: the command.
        start: number of the last start, from 1.
        least: bytes of the file that were there before the simulation.
        step: that the next start begins with; None where it is not known.
        goes_on: whether it goes on from a restart file.
        spare: keep what is removed, under another name.
        say: takes what people should know, before anything is removed.
    """
    if not dump.appends:
        say(
            f"dump {dump.ident} begins anew: its earlier frames are in '{keep(path, start)}' "
            f"('dump_modify {dump.ident} append yes' lets it go on)"
        )
        return
    prefix = f"dump {dump.ident} goes on in '{path}'"
    if goes_on and step is None:
        say(f"{prefix} from a step that is not known: frames may be in it twice")
        return
    spared = _free_name(path, start) if spare else None
    all_of_them = step is None
    what = "frames of earlier starts"
    if step is not None:
        what = f"frames from step {step if dump.multiples else step + 1} on"

    def tell(last: int | None) -> None:
        known = "" if last is None or all_of_them else f" (the last is of step {last})"
        message = (
            f"dump {dump.ident}: {what} are removed from '{path}', they will come again{known}"
        )
        say(message if spared is None else f"{message}; those of now are kept in '{spared}'")

    if step is None:
        _shorten(path, least, spared, tell)
    elif not cut_back(path, step, not dump.multiples, least, spared, tell):
        say(
            f"{prefix}, which is no text dump of a known form: frames after step {step} may be in "
            "it twice"
        )


def _shorten(
    path: Path, end: int, spared: Path | None, tell: Tell, last: int | None = None
) -> None:
    """Remove what is in a file after some bytes, or move it to another one; tell it first."""
    if path.stat().st_size <= end:
        return
    tell(last)
    with path.open("r+b") as file:
        if spared is not None:
            file.seek(end)
            try:
                with named(spared), spared.open("xb") as rest:
                    shutil.copyfileobj(file, rest)
            except OSError:  # a full disk: all is where it was
                spared.unlink(missing_ok=True)
                raise
        file.truncate(end)


def cut_back(
    path: Path,
    step: int,
    keep_step: bool = False,
    least: int = 0,
    spared: Path | None = None,
    tell: Tell = lambda _: None,
) -> bool:
    """Remove the frames at the end of a text dump that will come again, and one cut off.

    Only those at the end whose steps ascend: what stands before is of another run.

    Args:
        path: of style atom, custom, grid, local, xyz, extxyz or yaml.
        step: that the next start begins with, and dumps again unless keep_step is given.
        keep_step: keep its frame.
        least: bytes that stay in any case.
        spared: file that is made of what is removed, if any is.
        tell: is called before anything is removed, with the last step that is.

    Returns:
        Whether the file is of a form that is known.
    """
    if path.stat().st_size == 0:
        return True
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        forms = (form for head, *form in _FORMS if re.match(head, text))
        mark, prelude = next(forms, (b"", b""))
        if not mark:
            return False
        end, last = _end(text, mark, re.compile(prelude, re.MULTILINE), step + keep_step)
    _shorten(path, max(end, least), spared, tell, last)
    return True


def _end(
    text: mmap.mmap, mark: bytes, prelude: re.Pattern[bytes], first: int
) -> tuple[int, int | None]:
    """Where the frames end that stay, and the last step of the others."""
    end, later, last = len(text), None, None
    mark_offset = text.rfind(mark)
    while mark_offset >= 0:
        if mark_offset == 0 or text[mark_offset - 1 : mark_offset] == b"\n":
            match = _STEP.match(text[mark_offset + len(mark) : mark_offset + len(mark) + 32])
            step = int(match[1]) if match else None  # None: cut off within the number
            if step is not None and (step < first or (later is not None and step > later)):
                break
            later = later if step is None else step
            last = later if last is None else last
            end = _begin(text, mark_offset, prelude)
        mark_offset = text.rfind(mark, 0, mark_offset)
    if end < len(text):
        return end, last
    # What is cut off is of a frame that will come again.
    return _begin(text, text.rfind(b"\n") + 1, prelude), None


def _begin(text: mmap.mmap, mark_offset: int, prelude: re.Pattern[bytes]) -> int:
    """Where a frame begins that tells its step at a place, or was to tell it there."""
    head = text[max(0, mark_offset - PRELUDE) : mark_offset]
    match = prelude.search(head)
    return mark_offset - (len(head) - match.start() if match else 0)
