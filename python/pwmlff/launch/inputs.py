"""What the words for lmp and its input say, as far as they say it in so many words."""

from __future__ import annotations

import glob
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pwmlff import plugin
from pwmlff.launch.ranks import replicas_of
from pwmlff.launch.script import UNKNOWN, Script, read
from pwmlff.report import Failure

#: Names of the style, and the deviation file of each where none is named.
STYLES = {"pwmlff": "model_devi.out", "matpl": "explr.error", "matpl/dp": "explr.error"}
#: Keywords of the style, before which the models are.
KEYWORDS = ("out_freq", "out_file", "out_append", "engine", "precision", "device", "neighbors")
#: Keywords of the command restart.
AFTER_NAMES = ("fileper", "nfile")
YES = ("yes", "on", "true")
#: Any of these in an input uses the variable `restart`.
USES = ("${restart}", "v_restart", "variable,restart")
BEGIN = 'if "$(is_defined(variable,restart))" then "{} ${{restart}}" else "read_data x.data"'
LINES = {
    "variable": BEGIN.format("read_restart"),
    "restart": "restart 1000 run.*.restart",
}
#: The same for several partitions, each of which has a file of its own.
LINES_OF_PARTITIONS = {
    "variable": BEGIN.format("include"),
    "restart": "restart 1000 run.${part}.*.restart, after 'variable part world 0 1' or the like",
}


def values(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """The words that follow an option of lmp, up to the next option."""
    found: list[str] = []
    for k, word in enumerate(arguments):
        if word in names:
            for value in arguments[k + 1 :]:
                if value.startswith("-"):
                    break
                found.append(value)
    return found


def partitions(arguments: Sequence[str]) -> str:
    """What follows -partition."""
    return " ".join(values(arguments, ("-partition", "-p")))


def screens(arguments: Sequence[str], nranks: int) -> list[Path | None]:
    """Where each partition writes what it does; None for the standard output of rank 0.

    That is its screen, or where it has none, its log.

    Raises:
        Failure: the partitions do not add up to the ranks.
    """
    options = (("-pscreen", "-ps"), ("-screen", "-sc"))
    default = "screen" if partitions(arguments) else ""
    name = _option(arguments, options if default else options[1:], default)
    if name == "none":
        name = _log(arguments)
    if not default:
        return [None if name in ("", "none") else Path(name)]
    return [Path(f"{name}.{k}") for k in sorted(set(replicas_of(partitions(arguments), nranks)))]


def logs(arguments: Sequence[str]) -> list[Path]:
    """Log files that the options of lmp name, of all partitions."""
    names = {_log(arguments), _option(arguments, (("-log", "-l"),), "log.lammps")} - {"none"}
    numbered = (Path(name).parent.glob(f"{glob.escape(Path(name).name)}.*[0-9]") for name in names)
    found = (path for paths in numbered for path in paths if path.suffix[1:].isdigit())
    return [*map(Path, names), *(found if partitions(arguments) else ())]


def _log(arguments: Sequence[str]) -> str:
    options = (("-plog", "-pl"), ("-log", "-l"))
    return _option(arguments, options if partitions(arguments) else options[1:], "log.lammps")


def _option(arguments: Sequence[str], options: Sequence[Sequence[str]], default: str) -> str:
    """The word that follows the first one of several options that is there."""
    found = (value for names in options for value in values(arguments, names)[:1])
    return next(found, default)


def files(arguments: Sequence[str]) -> list[Path]:
    """The input of lmp."""
    return [Path(name) for name in values(arguments, ("-in", "-i"))]


def script(arguments: Sequence[str]) -> Script:
    """The input, with the variables that the words for lmp set."""
    variables: dict[str, list[str]] = {}
    for k, word in enumerate(arguments):
        if word in ("-var", "-v") and len(arguments) > k + 2:
            variables.setdefault(arguments[k + 1], values(arguments[k:], (word,))[1:])
    return read(files(arguments), variables)


def digest(arguments: Sequence[str]) -> str:
    """SHA-256 of the lines of the input and of the partitions that run it."""
    return hashlib.sha256(
        "\n".join([*script(arguments).lines, partitions(arguments)]).encode()
    ).hexdigest()


def device_policy(arguments: Sequence[str]) -> str:
    """The keyword device of pair_style pwmlff."""
    for words in _styles(arguments):
        if "device" in words[:-1]:
            value = words[words.index("device") + 1]
            return "auto" if "$" in value else value
    return "auto"


def plugin_of(arguments: Sequence[str]) -> Path | None:
    """The plugin that the input loads."""
    for words, _ in script(arguments).named("plugin"):
        if words[1:2] == ["load"] and words[2:] and words[2].endswith(plugin.FILE):
            return None if "$" in words[2] else Path(words[2])
    return None


def has_style(arguments: Sequence[str]) -> bool:
    """Whether the input uses pair_style pwmlff, or one of its other names."""
    return bool(_styles(arguments))


def _styles(arguments: Sequence[str]) -> list[list[str]]:
    """Commands pair_style of this style."""
    return [
        words for words, _ in script(arguments).named("pair_style") if STYLES.keys() & set(words)
    ]


def can_go_on(arguments: Sequence[str]) -> bool:
    """Whether the input uses the variable `restart`; or may, in a file that is not known yet."""
    inp = script(arguments)
    said = (" ".join(words) for words in inp.commands if words[0] != "print")
    return not inp.whole or any(use in text for text in said for use in USES)


def deviation_files(arguments: Sequence[str]) -> list[Path]:
    """What ensembles of the input write to, as far as that is known."""
    found, inp = [], script(arguments)
    for words, folder in inp.named("pair_style"):
        for k, style in enumerate(words):
            if style not in STYLES:
                continue
            rest = words[k + 1 :]
            models = itertools.takewhile(lambda word: word not in KEYWORDS, rest)
            if sum(not word.isdigit() for word in models) > 1:
                names = rest[rest.index("out_file") + 1 :][:1] if "out_file" in rest else ()
                found += _paths(inp, folder, names or [STYLES[style]])
    return found


def restarts(arguments: Sequence[str]) -> list[str]:
    """Patterns of the restart files that commands name, with * for what is not known."""
    found, inp = [], script(arguments)
    folders = list(dict.fromkeys(inp.folders))  # where they are may change before they are written
    for words, _ in inp.named("restart"):
        if words[1:2] == ["0"]:
            continue
        names = list(itertools.takewhile(lambda word: word not in AFTER_NAMES, words[2:4]))
        for value in (value for name in names for value in inp.values(name)):
            pattern = value.replace(UNKNOWN, "*")
            if len(names) == 1 and "*" not in pattern:
                pattern += ".*"
            found += [str(Path(folder, pattern)) for folder in folders if UNKNOWN not in folder]
    return list(dict.fromkeys(found))


def logs_of_input(arguments: Sequence[str]) -> list[Path]:
    """Files that commands *log* begin anew, as far as they are known."""
    inp = script(arguments)
    return [
        path
        for words, folder in inp.named("log")
        if words[1:] and words[1] != "none" and "append" not in words[2:]
        for path in _paths(inp, folder, words[1:2])
    ]


@dataclass(frozen=True)
class Dump:
    """A command *dump* that writes many frames to a file, and what *dump_modify* says of it.

    Attributes:
        ident: its ID.
        files: names of the file; with % for the ranks.
        appends: whether it goes on with what is there.
        multiples: whether its frames are those of the multiples of a number of steps.
    """

    ident: str
    files: list[Path]
    appends: bool
    multiples: bool


def dumps(arguments: Sequence[str]) -> list[Dump]:
    """What the input dumps, as far as it is known."""
    found: list[Dump] = []
    inp = script(arguments)
    there: dict[str, list[int]] = {}  # of each ID; several where branches of an if have the same
    for words, folder in inp.named("dump", "dump_modify", "undump", "clear"):
        name, ident = words[0], "".join(words[1:2])
        if name == "clear":
            there.clear()
        elif name == "undump":
            there.pop(ident, None)
        elif name == "dump_modify":
            for k in there.get(ident, ()):
                found[k] = _modified(found[k], words[2:])
        elif len(words) >= 6 and "*" not in words[5]:
            there.setdefault(ident, []).append(len(found))
            found.append(Dump(ident, _paths(inp, folder, words[5:6]), False, True))
    return found


def _modified(dump: Dump, words: Sequence[str]) -> Dump:
    """What a dump is after a command *dump_modify*: the last of its keywords holds."""
    for key, value in itertools.pairwise(words):
        if key == "append":
            dump = replace(dump, appends=value in YES)
        elif key in ("every", "every/time"):
            dump = replace(dump, multiples=key == "every" and not value.startswith("v_"))
    return dump


def _paths(inp: Script, folder: str, names: Sequence[str]) -> list[Path]:
    """Files of these names, without those that are not known."""
    paths = (Path(folder, value) for name in names for value in inp.values(name))
    return [path for path in paths if UNKNOWN not in str(path)]


def require_restartable(arguments: Sequence[str]) -> None:
    """Raise Failure for an input that writes no restart files, or does not go on from one."""
    silent = _option(arguments, (("-pscreen", "-ps"), ("-screen", "-sc")), "") == "none"
    if partitions(arguments) and silent and not has_style(arguments):
        raise Failure(
            "--retries needs the screens of the partitions, which tell of restart files where "
            "pair_style pwmlff does not: leave '-screen none' or '-pscreen none' out"
        )
    if not files(arguments):
        raise Failure("--retries needs the input in a file: give -in FILE")
    for path in files(arguments):
        if not path.is_file():
            raise Failure(f"found no input '{path}'")
    missing = []
    if not can_go_on(arguments):
        missing.append(("does not use the variable restart, which names the file", "variable"))
    inp = script(arguments)
    if inp.whole and not any(inp.named("restart")):
        missing.append(("writes no restart files", "restart"))
    if missing:
        say = LINES_OF_PARTITIONS if partitions(arguments) else LINES
        what = " and ".join(text for text, _ in missing)
        raise Failure(
            f"--retries goes on from a restart file, but '{files(arguments)[0]}' {what}; "
            "let it say\n" + "\n".join(f"  {say[name]}" for _, name in missing)
        )


def without_restart(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The words without a value for the variable `restart`, and that value: LAMMPS keeps the first.

    Each start has another one.
    """
    words = list(arguments)
    for k in range(len(words) - 2):
        if words[k] in ("-var", "-v") and words[k + 1] == "restart":
            return [*words[:k], *words[k + 3 :]], words[k + 2]
    return words, None
