"""How the commands speak: tables for people, JSON for programs, one exit code for both.

A command returns a :class:`Report`; :func:`finish` shows it and leaves with 0 where all is well, 1
where the report says that something is not, and 2 where the command could not do its work; a report
with an `exit_code` says it itself.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Protocol

from rich.console import Console, RenderableType
from rich.text import Text

WIDTH = 140  # columns where the output is no terminal


class Failure(Exception):
    """The command could not do its work; the text says what was found and what to do."""


class Report(Protocol):
    """What a command found."""

    @property
    def ok(self) -> bool:
        """Whether all is well."""

    def data(self) -> dict[str, Any]:
        """The same as plain values for JSON."""

    def show(self) -> RenderableType:
        """The same for people."""


def console(stderr: bool = False) -> Console:
    """Console on stdout or stderr, wide enough for tables where that is a file or a pipe.

    Brackets in a text are brackets: names of files have them.
    """
    plain = partial(Console, stderr=stderr, highlight=False, markup=False, emoji=False)
    result = plain()
    return result if result.is_terminal else plain(width=WIDTH)


def finish(work: Callable[[], Report], as_json: bool) -> NoReturn:
    """Do the work of a command, show its report and exit."""
    try:
        report = work()
    except _expected_errors() as error:
        if as_json:
            _write({"ok": False, "error": str(error)})
        else:
            _complain(str(error))
        raise SystemExit(2) from error
    if as_json:
        _write({"ok": report.ok, **report.data()})
    else:
        _to_stdout(lambda: console().print(report.show()))
    raise SystemExit(getattr(report, "exit_code", 0 if report.ok else 1))


def _expected_errors() -> tuple[type[Exception], ...]:
    """Errors that are for users; what code of a model file raises is among them, with torch."""
    torch = sys.modules.get("torch")
    of_models = (RuntimeError, torch.jit.Error) if torch else ()
    return Failure, OSError, ValueError, ImportError, *of_models


def _complain(text: str) -> None:
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), text))


def _write(data: dict[str, Any]) -> None:
    text = json.dumps(plain(data), indent=1, allow_nan=False)
    _to_stdout(lambda: print(text, flush=True))  # noqa: T201  JSON, as it is


def plain(value: Any) -> Any:
    """The same with None for numbers that JSON does not have: NaN and the infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def _to_stdout(show: Callable[[], None]) -> None:
    """Show something, or say that it could not be written: a full disk, not a closed pipe."""
    try:
        show()
    except BrokenPipeError:
        raise
    except OSError as error:
        _complain(f"cannot write the output: {error.strerror}")
        # What is left in the buffer would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(2) from error
