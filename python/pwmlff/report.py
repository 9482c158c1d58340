"""How the commands speak: tables for people, JSON for programs, one exit code for both.

A command returns a :class:`Report`, which :func:`finish` shows. The exit code is 0 where all is
well, 1 where the report says otherwise, and 2 where the command could not do its work. A report
with an `exit_code` says it itself. :func:`explain` has what is said of an error.
"""

from __future__ import annotations

import codecs
import dis
import io
import json
import math
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    NoReturn,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

T = TypeVar("T")

WIDTH = 140  # columns where the output is no terminal
#: Exit codes beside 0, 1 and 2: a fault of this package, and what shells give to a program that
#: SIGINT, or SIGPIPE, has ended.
FAULT, INTERRUPTED, CLOSED = 70, 130, 141
#: Not finished, the same command goes on (EX_TEMPFAIL of sysexits.h).
CONTINUE = 75
PACKAGE = Path(__file__).parent
#: How characters are written that an encoding lacks, by the name of their handler of errors.
SPELT_OUT = "pwmlff.spelt_out"
WORDS = {"Å": "angstrom", "µ": "u", "²": "^2", "³": "^3"}


def _spelt_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeEncodeError) and error.object[error.start] in WORDS:
        return WORDS[error.object[error.start]], error.start + 1
    return codecs.backslashreplace_errors(error)


codecs.register_error(SPELT_OUT, _spelt_out)


class Failure(Exception):
    """The command could not do its work; the text says what was found and what to do."""

    exit_code = 2


class Report(Protocol):
    """What a command found: a dataclass."""

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return True

    def data(self) -> dict[str, Any]:
        """The same for JSON, of which :func:`plain` makes plain values: the fields."""
        return dict(vars(self))

    def show(self) -> RenderableType:
        """The same for people."""


class _Console(Console):
    """A console that leaves it to others what a closed pipe means; rich leaves with 1."""

    def on_broken_pipe(self) -> None:
        """Pass the error on that rich is handling."""
        raise  # noqa: PLE0704


def console(stderr: bool = False) -> Console:
    """Console on stdout or stderr, wide enough for tables where that is a file or a pipe.

    Brackets in a text are brackets: names of files have them.
    """
    plain = partial(_Console, stderr=stderr, highlight=False, markup=False, emoji=False)
    result = plain()
    return result if result.is_terminal else plain(width=WIDTH)


def facts(*columns: Mapping[str, str]) -> Table:
    """A table of what is known of one thing or several, by the same names."""
    values = [Column(overflow="fold") for _ in columns]
    result = Table(Column(style="bold"), *values, show_header=False)
    for name in columns[0]:
        result.add_row(name, *(column[name] for column in columns))
    return result


def ranges(numbers: Iterable[int], separator: str = ", ", most: int = 12) -> str:
    """Numbers for people: 3-17, 40; so many ranges of them, and how many there are beside."""
    ordered = enumerate(sorted(set(numbers)))
    groups = [
        [n for _, n in group] for _, group in groupby(ordered, lambda pair: pair[1] - pair[0])
    ]
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in groups[:most]]
    hidden = sum(map(len, groups[most:]))
    return separator.join([*shown, f"and {hidden} more"] if hidden else shown)


def tracked(items: Sequence[T], title: str) -> Iterable[T]:
    """The items, with a bar on a terminal that tells how many are done."""
    from rich.progress import track  # noqa: PLC0415  slow to import

    screen = console(stderr=True)
    return track(
        items, escape(title), console=screen, transient=True, disable=not screen.is_terminal
    )


class Command:
    """What the user has typed."""

    words: Sequence[str] = ()
    debug = False  # whether the traceback of each error is wanted
    began = 0.0  # by time.monotonic()


def begin(words: Sequence[str]) -> None:
    """Take what the user has typed after `pwmlff`.

    A character that an encoding of stdout or stderr lacks is spelt out from then on, or its number
    is written.
    """
    Command.words, Command.debug, Command.began = words, False, time.monotonic()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELT_OUT)


def typed(*more: str) -> str:
    """The command that the user has typed, with more words, to be typed again."""
    return shlex.join(["pwmlff", *Command.words, *more])


def finish(work: Callable[[], Report], as_json: bool) -> NoReturn:
    """Do the work of a command, show its report and exit."""
    with errors_said(as_json):
        report = work()
        if as_json:
            _write({"ok": report.ok, **report.data()})
        else:
            shown = report.show()
            # What is longer than the screen is wide is to be copied from there as it is.
            _to_stdout(lambda: console().print(shown, crop=False))
        raise SystemExit(getattr(report, "exit_code", 0 if report.ok else 1))


@contextmanager
def errors_said(as_json: bool | None = None) -> Iterator[None]:
    """Say whatever ends the work, and exit; as the user's words ask for where nothing is given."""
    as_json = "--json" in Command.words if as_json is None else as_json
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        show_traceback(error)
        text, code = explain(error)
        if as_json:
            _write({"ok": False, "error": text})
        else:
            _complain(text)
        _give_up_output()
        raise SystemExit(code) from error


def explain(error: BaseException) -> tuple[str, int]:
    """What an error says to users, and the exit code that goes with it.

    Texts are for users where this package raised the error on purpose, and where files, memory or
    what is installed do not do. Anything else is a fault of this package: its place, and what to
    do with the traceback above.
    """
    if isinstance(error, Failure):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else f"cannot use '{error.filename}': "
        return f"{name}{error.strerror}", 2
    if _is_out_of_memory(error):
        return f"there is not enough memory: {last_line(error)}", 2
    if isinstance(error, OSError | ImportError) or _is_raised_here(error):
        return str(error), 2
    text = (
        f"this is a fault of pwmlff: {type(error).__name__}: {last_line(error)} "
        f"({_error_location(error)}); please report it with the lines above and the command: "
        f"{typed()}"
    )
    return " ".join(text.split()), FAULT


def show_traceback(error: BaseException) -> None:
    """Write the traceback of an error to stderr: of a fault, and where --debug asks for it."""
    if Command.debug or explain(error)[1] == FAULT:
        sys.stderr.write("".join(traceback.format_exception(error)))


def last_line(error: BaseException) -> str:
    """The last line that says something: TorchScript puts the call stack before the message."""
    lines = [line for line in str(error).splitlines() if line.strip(" \t\r~<")]
    return lines[-1].strip() if lines else type(error).__name__


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch has asked for more than there is."""
    torch = sys.modules.get("torch")
    kinds = (MemoryError, torch.OutOfMemoryError) if torch else MemoryError
    return isinstance(error, kinds) or "DefaultCPUAllocator: can't allocate" in str(error)


def _is_raised_here(error: BaseException) -> bool:
    """Whether a raise statement of this package made the error: then its text is for users."""
    if not isinstance(error, ValueError) and type(error) is not RuntimeError:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    return _is_ours(code.co_filename) and code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _is_ours(filename: str) -> bool:
    return Path(filename).is_relative_to(PACKAGE)


def _error_location(error: BaseException) -> str:
    """File and line of an error, and those in this package that led there."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "nowhere"
    last = next((k for k in reversed(range(len(frames))) if _is_ours(frames[k].filename)), None)
    ours = [] if last is None else [frames[last]]
    inner = frames[-1:] if last != len(frames) - 1 else []
    names = [f"{'/'.join(Path(f.filename).parts[-2:])}:{f.lineno}" for f in [*inner, *ours]]
    return ", called from ".join(names)


def _complain(text: str) -> None:
    with suppress(OSError):  # nobody reads it
        console(stderr=True).print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def _write(data: dict[str, Any]) -> None:
    text = json.dumps(plain(data), indent=1, allow_nan=False)
    _to_stdout(lambda: print(text, flush=True))  # noqa: T201  JSON, as it is


def plain(value: Any) -> Any:
    """The same as JSON has it: dataclasses are their fields, NaN and the infinities None."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def restored(kind: type[T], value: Any) -> T:
    """A value of a kind from what :func:`plain` made of it; fields that are absent have defaults.

    Args:
        kind: a dataclass, or what annotates its fields.
        value: as JSON has it, or of that kind already.

    Raises:
        TypeError: it is of another kind.
        ValueError: a list is of another length.
        OverflowError: a number is too large.
    """
    origin, kinds = get_origin(kind) or kind, get_args(kind)
    result: Any = value
    if origin in (Union, UnionType):
        origin = next((part for part in kinds if _is_of(part, value)), kinds[0])
        result = restored(origin, value)
    elif not _is_of(kind, value):
        name = getattr(kind, "__name__", kind)
        raise TypeError(f"found {type(value).__name__}, expected {name}")
    elif is_dataclass(origin):
        hints = get_type_hints(origin)
        result = kind(**{k: restored(hints[k], value[k]) for k in hints if k in value})
    elif origin is dict and kinds:
        result = {key: restored(kinds[1], entry) for key, entry in value.items()}
    elif origin is list and kinds:
        result = [restored(kinds[0], entry) for entry in value]
    elif origin is tuple:
        each = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
        result = tuple(restored(part, entry) for part, entry in zip(each, value, strict=True))
    elif origin is float:
        result = float(value)
    return cast(T, result)


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value may be of a kind, as far as it tells without its entries."""
    origin = get_origin(kind) or kind
    if is_dataclass(origin):
        origin = dict
    in_json: dict[Any, Any] = {tuple: list, float: (int, float)}
    return origin is Any or isinstance(value, in_json.get(origin, origin))


def _to_stdout(show: Callable[[], None]) -> None:
    """Show something, or say that it could not be written; that nobody reads on is no news."""
    try:
        show()
    except OSError as error:
        closed = isinstance(error, BrokenPipeError)
        if not closed:
            _complain(f"cannot write the output: {error.strerror}")
        _give_up_output()
        raise SystemExit(CLOSED if closed else 2) from error


def _give_up_output() -> None:
    """See that what is left for stdout does not fail once more at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
