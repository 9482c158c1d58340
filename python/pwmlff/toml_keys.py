"""Files in TOML that say what to do, checked key by key, as frozen dataclasses.

    @dataclass(frozen=True)
    class Run:
        \"\"\"How long.\"\"\"

        epochs: int = key(0, "passes over the data", least=0)

    sections = Sections({"run": Run})
    sections.read("run.toml", ["run.epochs=20"])["run"].epochs

A key that is not given has its default. What a class says of a key (default, range, meaning) is
what the messages and :meth:`Sections.page` say of it.
"""

from __future__ import annotations

import difflib
import inspect
import json
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, fields
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pwmlff.report import Failure

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: By section and key, values and where they come from; of a section that is there several times, a
#: list of them.
RawSections = dict[str, Any]

#: Ends of the range of a key: in words, and whether a value is on the right side.
LIMITS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "most": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def key(
    default: Any, meaning: str, *, choices: Sequence[str] = (), shown: str = "", **limits: float
) -> Any:  # as what dataclasses.field returns is declared
    """A key: its default, its range (of each number of a list) by LIMITS, and what it means."""
    metadata = {"meaning": meaning, "choices": choices, "shown": shown, "limits": limits}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


class Faults:
    """What is wrong, to be said together."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Go on after an error."""
        try:
            yield
        except Failure as failure:
            self.failures.append(failure)

    def add(self, text: str) -> None:
        """An error that is no exception."""
        self.failures.append(Failure(text))

    def say(self) -> None:
        """End in the errors, if there are any.

        Raises:
            Failure: the one that there is, or one of all texts, each once.
        """
        if len(self.failures) > 1:
            raise Failure("; ".join(dict.fromkeys(map(str, self.failures))))
        if self.failures:
            raise self.failures[0]


class Sections:
    """The sections that a file may have.

    Args:
        kinds: a dataclass for each; `tuple[Kind, ...]` for one that is there any number of times,
            as [[name]].
    """

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        self.kinds: dict[str, type[Any]] = {}
        self.repeated: set[str] = set()
        for section, kind in kinds.items():
            several = get_origin(kind) is tuple
            self.kinds[section] = get_args(kind)[0] if several else kind
            if several:
                self.repeated.add(section)

    def read(self, path: str | PathLike[str], settings: Sequence[str] = ()) -> dict[str, Any]:
        """All sections of a file, with `section.key=value` of a command laid over it."""
        return self.laid_over(lambda: self.raw(path), settings)

    def laid_over(
        self,
        load: Callable[[], RawSections],
        settings: Sequence[str],
        prepare: Callable[[RawSections], object] = lambda _: None,
    ) -> dict[str, Any]:
        """All sections, checked, with `section.key=value` of a command laid over what is given.

        Args:
            load: what a file says, or a command.
            settings: what is laid over it.
            prepare: changes or refuses the sum of both, before it is checked.

        Raises:
            Failure: of all that is wrong with them.
        """
        faults = Faults()
        raw: RawSections = {}
        with faults.collected():
            raw = load()
        for text in settings:
            with faults.collected():
                self.set(raw, text)
        values = {}
        with faults.collected():
            prepare(raw)
            values = self.values(raw)
        faults.say()
        return values

    def raw(self, path: str | PathLike[str]) -> RawSections:
        """What a file says, unchecked but for its sections.

        Raises:
            Failure: the file cannot be read, is no TOML, or has another section.
        """
        source = f"'{fspath(path)}'"
        try:
            tables = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
        except OSError as error:
            raise Failure(f"cannot read {source}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Failure(f"{source} is no TOML file: {error}") from error
        raw: RawSections = {}
        faults = Faults()
        for section, table in tables.items():
            with faults.collected():
                raw[section] = self._table(section, table, source)
        if faults.failures:
            with faults.collected():
                self.values(raw)
        faults.say()
        return raw

    def _table(self, section: str, table: Any, source: str) -> Any:
        """Values of a section, with where they come from; a list where it may be repeated."""
        self._require(section, source)
        several = section in self.repeated
        head = f"sections [[{section}]]" if several else f"a section [{section}]"
        ones = table if several and isinstance(table, list) else [table]
        if not all(isinstance(one, dict) for one in ones):
            raise Failure(f"{source}: {section} is {_repr(table)}, expected {head} with keys")
        named = [{name: (value, source) for name, value in one.items()} for one in ones]
        return named if several else named[0]

    def set(self, raw: RawSections, text: str) -> None:
        """Add what `section.key=value` says, the value as in TOML; a bare word is a string.

        Raises:
            Failure: the text is of another form, or there is no such section.
        """
        self.put(raw, *_setting(text), f"--set {text}")

    def put(self, raw: RawSections, path: Sequence[str], value: Any, source: str) -> None:
        """Set a value, or an entry of one that is a table.

        Args:
            raw: to add to.
            path: section, key, and that of an entry.
            value: as TOML has it.
            source: of it, for messages.

        Raises:
            Failure: there is no such section, or the key has no entries.
        """
        section, name, *rest = path
        self._require(section, source)
        if section in self.repeated:
            raise Failure(f"{source}: [[{section}]] may be there several times; set it in a file")
        table = raw.setdefault(section, {})
        if rest:
            entries, _ = table.get(name, ({}, ""))
            if not isinstance(entries, dict) or len(rest) > 1:
                raise Failure(f"{source}: [{section}] {name} has no '{'.'.join(rest)}'")
            value = {**entries, rest[0]: value}
        table[name] = value, source

    def values(self, raw: RawSections) -> dict[str, Any]:
        """All sections by name, checked.

        Raises:
            Failure: a key is not known, or a value is of another type or out of range.
        """
        faults = Faults()
        values = {
            name: tuple(self._section(name, table, faults) for table in raw.get(name, []))
            if name in self.repeated
            else self._section(name, raw.get(name, {}), faults)
            for name in self.kinds
        }
        faults.say()
        return values

    def page(self, introduction: Sequence[str]) -> str:
        """All sections and keys as a page of the documentation, in Markdown.

        Args:
            introduction: its first lines.
        """
        lines = [*introduction, ""]
        for section, kind in self.kinds.items():
            head = f"[[{section}]]" if section in self.repeated else f"[{section}]"
            lines += [f"## {head}", "", inspect.getdoc(kind) or "", ""]
            lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
            hints = get_type_hints(kind)
            for entry in fields(kind):
                name, metadata = entry.name, entry.metadata
                default = metadata["shown"] or f"`{_toml(getattr(kind(), name))}`"
                bounds = _range(metadata).strip(" ,")
                words = metadata["meaning"] + (f" ({bounds})" if bounds else "")
                lines += [f"| `{name}` | {_type(hints[name])} | {default} | {words} |"]
            lines += [""]
        return "\n".join(lines)

    def text(self, values: Any) -> str:
        """Sections, by attributes of their names, as text that :meth:`read` takes."""
        lines: list[str] = []
        for section in self.kinds:
            several = getattr(values, section)
            head = f"[[{section}]]" if section in self.repeated else f"[{section}]"
            for one in several if section in self.repeated else [several]:
                lines += [head]
                for entry in fields(one):
                    text = f"{entry.name} = {_toml(getattr(one, entry.name))}"
                    lines += [f"{text}  # {entry.metadata['meaning']}"]
                lines += [""]
        return "\n".join(lines)

    def _require(self, section: str, source: str) -> None:
        if section not in self.kinds:
            known = ", ".join(f"[{name}]" for name in self.kinds)
            hint = did_you_mean(section, self.kinds)
            raise Failure(
                f"{source}: there is no section [{section}], expected one of {known}{hint}"
            )

    def _section(self, name: str, raw: Mapping[str, tuple[Any, str]], faults: Faults) -> Any:
        """The values of a section, checked one by one."""
        kind = self.kinds[name]
        known = {entry.name: entry for entry in fields(kind)}
        hints = get_type_hints(kind)
        values = {}
        for word, (value, source) in raw.items():
            with faults.collected():
                if word not in known:
                    raise Failure(
                        f"{source}: [{name}] has no key '{word}'{self._hint(name, word, known)}"
                    )
                entry = known[word]
                where = f"{source}: [{name}] {word}"
                values[entry.name] = _checked(where, value, hints[entry.name], entry.metadata)
        return kind(**values)

    def _hint(self, section: str, word: str, known: Iterable[str]) -> str:
        """What may have been meant, in this section or another."""
        for name, kind in self.kinds.items():
            if name != section and word in {entry.name for entry in fields(kind)}:
                return f"; did you mean '{word}' of [{name}]?"
        return did_you_mean(word, known) or f", expected one of {', '.join(known)}"


def plain(value: Any) -> Any:
    """A value as TOML has it: names of files are strings."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return fspath(value) if isinstance(value, PathLike) else value


def _setting(text: str) -> tuple[tuple[str, ...], Any]:
    """Path of the key and value of `section.key=value`."""
    name, equals, value = text.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not equals or len(path) < 2 or not all(path):
        raise Failure(f"--set is '{text}', expected section.key=value like run.epochs=20")
    value = value.strip()
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        parsed = tomllib.loads(f"value = {value}")
        if parsed.keys() == {"value"}:
            return path, parsed["value"]
    if not value or value[0] in "[{\"'" or "\n" in value:
        raise Failure(
            f"--set is '{text}': the value is not TOML, expected a number, true, a word, or a list "
            "like [25,25]"
        )
    return path, value


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that is most like another one, whatever the case; empty if none is."""
    words = {one.lower(): one for one in known}
    matches = difflib.get_close_matches(word.lower(), words, n=1)
    return f"; did you mean '{words[matches[0]]}'?" if matches else ""


#: Types of values, for messages and the page.
_NAMES = {
    str: "a string", int: "an integer", float: "a number", bool: "a boolean",
    list: "a list", tuple: "a list", dict: "a table",
}  # fmt: skip


def _noun(kind: type) -> str:
    return _NAMES[kind].split()[-1]


def _repr(value: Any) -> str:
    """A value and its type, for a message."""
    return f"{value!r:.60} ({_NAMES.get(type(value), type(value).__name__)})"


def _checked(where: str, value: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    """A value of the type of its key, within its range."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _checked_list(where, value, arguments, metadata)
    if origin is not dict:
        return _checked_one(where, value, kind, metadata)
    if not isinstance(value, dict):
        raise Failure(f"{where} is {_repr(value)}, expected a table like {{ name = value }}")
    if arguments[1] is Any:
        _require_writable(where, value)
        return value
    return {
        name: _checked_one(f"{where}.{name}", entry, arguments[1], metadata)
        for name, entry in value.items()
    }


def _checked_list(where: str, value: Any, kinds: Sequence[Any], metadata: Mapping[str, Any]) -> Any:
    pair = kinds[-1] is not Ellipsis
    # One file needs no brackets, and one weight is that of the start and the end.
    one = str if kinds[0] is str else (int, float) if pair else ()
    if isinstance(value, one) and not isinstance(value, bool):
        value = [value, value] if pair else [value]
    if not isinstance(value, list | tuple):
        raise Failure(f"{where} is {_repr(value)}, expected a list of {_noun(kinds[0])}s")
    if pair and len(value) != len(kinds):
        raise Failure(f"{where} has {len(value)} entries, expected {len(kinds)}")
    return tuple(
        _checked_one(f"{where}[{k}]", entry, kinds[0], metadata) for k, entry in enumerate(value)
    )


def _checked_one(where: str, value: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    expected = f"{'true or false' if kind is bool else _NAMES[kind]}{_range(metadata)}"
    accepted = (int, float) if kind is float else kind
    # A boolean is an integer of Python, but none of TOML.
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise Failure(f"{where} is {_repr(value)}, expected {expected}")
    if isinstance(value, str):
        _require_writable(where, value)
        if metadata["choices"] and value not in metadata["choices"]:
            hint = did_you_mean(value, metadata["choices"])
            raise Failure(f"{where} is '{value}', expected{_range(metadata)}{hint}")
    if kind is float:
        if not abs(value) <= sys.float_info.max:
            raise Failure(f"{where} is {value!r:.60}, expected a finite number")
        value = float(value)
    for name, limit in metadata["limits"].items():
        if not LIMITS[name][1](value, limit):
            raise Failure(f"{where} is {value}, expected {expected}")
    return value


def _require_writable(where: str, value: Any) -> None:
    """Refuse what cannot be written back as TOML."""
    try:
        _toml(value).encode()
    except (UnicodeEncodeError, TypeError):
        raise Failure(
            f"{where} is {_repr(value)}, expected text in UTF-8, numbers, booleans, lists and "
            "tables of them"
        ) from None


def _range(metadata: Mapping[str, Any]) -> str:
    """The range of a key in words, with a blank or comma before it; empty where there is none."""
    if metadata["choices"]:
        return f" one of {', '.join(metadata['choices'])}"
    words = [f"{LIMITS[name][0]} {limit:g}" for name, limit in metadata["limits"].items()]
    return f", {' and '.join(words)}" if words else ""


def _toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        entries = (f"{_toml_key(key)} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {', '.join(entries)} }}" if value else "{}"
    if isinstance(value, float):  # also inf and nan
        return repr(value)
    if isinstance(value, str | int):
        # A basic string of TOML is one of JSON, but that DEL is escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"TOML text of {type(value).__name__} is not made here")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _type(kind: Any) -> str:
    first, *others = get_args(kind) or [kind]
    if get_origin(kind) is tuple:
        return f"list of {_noun(first)}s" if others == [...] else f"2 {_noun(first)}s"
    return _noun(get_origin(kind) or kind)
