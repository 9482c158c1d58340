"""Write the page of the options of `pwmlff` from the code that reads them.

Run as `python docs/command_page.py > docs/cli_options.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from pwmlff.cli import app

HEAD = """# Options of the pwmlff command

Every command with its words and options, as `--help` shows them; what they do and mean is in
[the pwmlff command](cli.md). This page is made from the code that reads them:
`python docs/command_page.py > docs/cli_options.md`."""


def page() -> str:
    """All commands in the order of `pwmlff --help`, in Markdown."""
    root = _root()
    found = [("pwmlff", root), *_commands("pwmlff", root)]
    return "\n\n".join([HEAD, *(_section(*one) for one in found)]) + "\n"


def _root() -> Any:
    return typer.main.get_command(app)


def _commands(name: str, group: Any) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(f"{name} {word}", command)
        elif not command.hidden:
            yield f"{name} {word}", command


def _section(name: str, command: Any) -> str:
    parts = [f"## {name}"]
    examples = []
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("Example: "):
            examples.append("    " + paragraph.removeprefix("Example: "))
        else:
            parts.append(_plain(paragraph))
    parts += ["\n".join(examples)] if examples else []
    rows = [_row(entry) for entry in command.params if not entry.hidden]
    parts.append(
        "\n".join(["| word or option | default | meaning |", "| --- | --- | --- |", *rows])
    )
    return "\n\n".join(parts)


def _row(entry: Any) -> str:
    if entry.param_type_name == "argument":
        names = f"`{(entry.metavar or entry.name.upper()).strip('[]')}`"
    else:
        value = "" if entry.is_flag else f" {(entry.metavar or entry.name.upper())}"
        names = ", ".join(f"`{name}{value}`" for name in [*entry.opts, *entry.secondary_opts])
    told = getattr(entry, "show_default", None)
    hidden = entry.default in (None, "") or isinstance(entry.default, bool)
    shown = told if isinstance(told, str) else "" if hidden else f"`{entry.default}`"
    default = "required" if entry.required else shown
    if entry.secondary_opts:
        default = f"`{(entry.opts if entry.default else entry.secondary_opts)[0]}`"
    return f"| {names} | {default} | {_plain(entry.help or '')} |".replace("  ", " ")


def _plain(text: str) -> str:
    """Text in one line, in which no sign means anything to Markdown but backquotes."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


if __name__ == "__main__":
    sys.stdout.write(page())
