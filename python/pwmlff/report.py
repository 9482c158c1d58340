"""How the commands speak: tables for people, JSON for programs, one exit code for both.

A command returns a :class:`Report`; :func:`finish` shows it and leaves with 0 where all is well, 1
where the report says that something is not, and 2 where the command could not do its work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
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
    """Console on stdout or stderr, wide enough for tables where that is a file or a pipe."""
    result = Console(stderr=stderr, highlight=False)
    return result if result.is_terminal else Console(stderr=stderr, width=WIDTH, highlight=False)


def finish(work: Callable[[], Report], as_json: bool) -> NoReturn:
    """Do the work of a command, show its report and exit."""
    try:
        report = work()
    except (Failure, OSError, ValueError, ImportError) as error:
        if as_json:
            sys.stdout.write(json.dumps({"ok": False, "error": str(error)}, indent=1) + "\n")
        else:
            console(stderr=True).print(Text.assemble(("error: ", "bold red"), str(error)))
        raise SystemExit(2) from error
    if as_json:
        text = json.dumps({"ok": report.ok, **report.data()}, indent=1)
        sys.stdout.write(text + "\n")
    else:
        console().print(report.show())
    raise SystemExit(0 if report.ok else 1)
