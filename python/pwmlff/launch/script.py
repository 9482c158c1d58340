"""An input of LAMMPS read as LAMMPS reads it, as far as it can be without running it.

Lines that `&` or a triple quote carries on, comments, quotes, files that others include or jump to,
commands inside *if*, *run ... every* and *partition*; variables where the input or the words for
lmp give them values that do not depend on the run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: In place of what is known only when LAMMPS runs; no byte of a name.
UNKNOWN = "\0"
MOST_VALUES = 4096  # of a word with variables, or of a loop

_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w)|\$\((?:[^()]|\([^()]*\))*\)")
_QUOTES = ('"""', '"', "'")
#: Styles of variables with values that stand in the input; of several, any may be meant.
_LISTS = ("index", "world", "universe", "string", "uloop", "loop")


@dataclass
class Script:
    """Commands of an input, in the order of their lines.

    Attributes:
        lines: as they are in the files.
        commands: the words of each, without quotes; those inside other commands after those.
        folders: of each command, where *shell cd* has led to until then; "" is where lmp started.
        variables: values that are known.
        whole: whether all files that it includes were read.
    """

    lines: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    variables: dict[str, list[str]] = field(default_factory=dict)
    whole: bool = True

    def named(self, *names: str) -> Iterator[tuple[list[str], str]]:
        """Commands of these names, and where lmp is then."""
        for command, folder in zip(self.commands, self.folders, strict=True):
            if command[0] in names:
                yield command, folder

    def values(self, word: str) -> list[str]:
        """What a word may stand for; with UNKNOWN for what cannot be known."""
        return _expanded(word, self.variables)


def read(paths: Sequence[Path], variables: Mapping[str, Sequence[str]]) -> Script:
    """Read inputs and what they include; a file that is not there is empty.

    Args:
        paths: the inputs.
        variables: values from the words for lmp, which those of the input do not replace.
    """
    script = Script(variables={name: list(values) for name, values in variables.items()})
    reader = _Reader(script, set(variables))
    for path in paths:
        reader.file(path, ())
    return script


class _Reader:
    """Takes files and commands; `fixed` are the variables that the input does not set."""

    def __init__(self, script: Script, fixed: set[str]) -> None:
        self.script, self.fixed = script, fixed
        self.folder = ""

    def file(self, path: Path, including: Sequence[Path]) -> None:
        if not path.is_file():
            return
        including = (*including, path.resolve())
        for lines in logical(path.read_text(errors="replace").splitlines()):
            self.script.lines += lines
            self.command(words("\n".join(lines)), including)

    def command(self, command: list[str], including: Sequence[Path]) -> None:
        if not command:
            return
        self.script.commands.append(command)
        self.script.folders.append(self.folder)
        name, rest = command[0], command[1:]
        if name in ("include", "jump") and rest:
            self._include(rest[0], including)
        elif name == "variable" and len(rest) >= 3:
            self._set(*rest)
        elif name == "shell" and len(rest) >= 2 and rest[0] == "cd":
            self.folder = str(Path(self.folder, self.script.values(rest[1])[0]))
        for inner in _inner(command):
            self.command(inner, including)

    def _include(self, word: str, including: Sequence[Path]) -> None:
        for value in self.script.values(word):
            path = Path(self.folder, value)
            if UNKNOWN in str(path) or not path.is_file():
                # The variable restart of several partitions names a file that is yet to be made.
                self.script.whole &= value == "SELF" or "restart" in _names(word)
            elif path.resolve() not in including:
                self.file(path, including)

    def _set(self, name: str, style: str, *values: str) -> None:
        if name in self.fixed:
            return
        found = [one for word in values for one in self.script.values(word)]
        if style not in _LISTS or (style.endswith("loop") and len(values) > 1):
            found = [UNKNOWN]
        elif style.endswith("loop"):
            last = int(found[0]) if found[0].isdecimal() else 0
            found = list(map(str, range(1, last + 1))) if 0 < last <= MOST_VALUES else [UNKNOWN]
        known = self.script.variables.get(name, ())
        self.script.variables[name] = list(dict.fromkeys([*known, *found]))


def _inner(command: list[str]) -> list[list[str]]:
    """Commands that are words of another one."""
    name, rest = command[0], command[1:]
    if name == "partition" and len(rest) > 2:
        return [rest[2:]]
    if name == "if":  # any word is one, but for the conditions
        texts = [
            word for previous, word in itertools.pairwise(rest)
            if previous != "elif" and word not in ("then", "else", "elif")
        ]  # fmt: skip
    elif name == "run" and "every" in rest:
        texts = rest[rest.index("every") + 2 :]
    else:
        return []
    return [words(text) for text in texts if text != "NULL"]


def logical(lines: Sequence[str]) -> Iterator[list[str]]:
    """Lines of a file, those together that LAMMPS reads as one."""
    taken: list[str] = []
    for line in lines:
        taken.append(line)
        text = "\n".join(taken)
        if not text.rstrip().endswith("&") and text.count('"""') % 2 == 0:
            yield taken
            taken = []
    if taken:
        yield taken


def words(text: str) -> list[str]:
    """The words of a command, without its comment and their quotes."""
    text = re.sub(r"&[ \t]*(?:\n|\Z)", "", text)
    found: list[str] = []
    k = 0
    while k < len(text):
        if text[k].isspace():
            k += 1
            continue
        if text[k] == "#":
            break
        quote = next((q for q in _QUOTES if text.startswith(q, k)), None)
        if quote:
            end = text.find(quote, k + len(quote))
            end = len(text) if end < 0 else end
            found.append(text[k + len(quote) : end])
            k = end + len(quote)
            continue
        begin = k
        while k < len(text) and not text[k].isspace() and text[k] != "#":
            match = _VARIABLE.match(text, k)  # a blank inside $(...) does not end the word
            k = match.end() if match else k + 1
        found.append(text[begin:k])
    return found


def _names(word: str) -> set[str]:
    """Variables that a word names."""
    return {match[1] or match[2] for match in _VARIABLE.finditer(word) if match[1] or match[2]}


def _expanded(word: str, variables: Mapping[str, Sequence[str]]) -> list[str]:
    parts: list[Sequence[str]] = []
    end = 0
    for match in _VARIABLE.finditer(word):
        parts.append([word[end : match.start()]])
        parts.append(variables.get(match[1] or match[2] or "") or [UNKNOWN])
        end = match.end()
    parts.append([word[end:]])
    product = itertools.islice(itertools.product(*parts), MOST_VALUES)
    return list(dict.fromkeys("".join(one) for one in product))
