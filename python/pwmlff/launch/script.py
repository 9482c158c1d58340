"""An input of LAMMPS read as LAMMPS reads it, as far as it can be without running it.

Lines that `&` or a triple quote carries on, comments, quotes, files that others include or jump to,
commands inside *if*, *run ... every* and *partition*; variables where the input or the words for
lmp give them values that do not depend on the run.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pwmlff import plugin
from pwmlff.launch.rank_survey import replicas_of
from pwmlff.report import Failure

UNKNOWN = "\0"  # in place of what is known only when LAMMPS runs; no byte of a name
MOST_VALUES = 4096  # of a word with variables, or of a loop
#: Names of the style, and the deviation file of each where none is named.
STYLES = {
    name + suffix: file
    for names, file in (
        (("pwmlff", "nep", "pace", "grace/fs"), "model_devi.out"),
        (("matpl", "matpl/dp", "matpl/nep"), "explr.error"),
    )
    for name in names
    for suffix in ("", "/kk")
}
#: Keywords of the style, before which the models are.
KEYWORDS = (
    "out_freq", "out_file", "out_append", "engine", "precision", "device", "neighbors",
    "temperature", "out_format", "out_header", "atomic", "relative", "drive", "capture", "check",
    "min_distance", "calibration", "gamma", "chunksize",
)  # fmt: skip
AFTER_NAMES = ("fileper", "nfile")  # keywords of the command restart
YES = ("yes", "on", "true")
#: Any of these in an input uses the variable `restart`.
USES = ("${restart}", "v_restart", "variable,restart")
BEGIN = 'if "$(is_defined(variable,restart))" then "{} ${{restart}}" else "read_data x.data"'
RESTART = "restart 1000 run.*.restart"
#: The same for several partitions, each of which has a file of its own.
RESTART_OF_PARTITIONS = (
    "restart 1000 run.${part}.*.restart, after 'variable part world 0 1' or the like"
)
#: Commands whose words name files that are read; of a fix those of some styles, as others write.
READERS = re.compile(
    "read_data|read_dump|read_restart|rerun|molecule|compute|create_atoms|ndx2group|python|kim|"
    "(?:pair|bond|angle|dihedral|improper|kspace)_(?:style|coeff)"
)
READING_FIXES = re.compile(
    "(?:acks2|electrode|qeq|rigid|ttm)(?:/.*)?|bond/react|cmap|colvars|plumed"
)
#: Commands whose words name files that are written, and words before such a name elsewhere.
WRITERS = ("dump", "restart", "log", "write_data", "write_dump", "write_restart", "write_coeff")
WRITING = {
    "pair_style": ("out_file",),
    **dict.fromkeys(("fix", "print"), ("file", "append", "outfile", "output")),
}
#: Options of lmp, each with its short form.
LOG, PARTITION_LOG = ("-log", "-l"), ("-plog", "-pl")
SCREEN, PARTITION_SCREEN = ("-screen", "-sc"), ("-pscreen", "-ps")

#: What a word of an input can hold without quotes.
PLAIN = re.compile(r"[\w/.,:+=@%^~-]+", re.ASCII)
#: What LAMMPS goes on from, substitutes, and leaves out behind.
_SIGNS = ("&", "$", "#", '"""')
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w)|\$\((?:[^()]|\([^()]*\))*\)")
#: A word, or the sign that begins a comment; a blank inside $(...) does not end a word.
_WORD = re.compile(
    rf'#|(?P<quote>"""|"|\')(?P<quoted>.*?)(?:(?P=quote)|\Z)|(?:{_VARIABLE.pattern}|[^\s#])+',
    re.DOTALL,
)
#: Styles of variables with values that stand in the input; of several, any may be meant.
_LISTS = ("index", "world", "universe", "string", "uloop", "loop")


def words_alone(text: str, what: str) -> str:
    """A text for one line of an input, in which LAMMPS is to read the words that stand there.

    Raises:
        Failure: there is a line break in it, or what LAMMPS goes on from, substitutes or leaves
            out.
    """
    shown = text.replace("\t", " ").isprintable()
    if not shown or any(sign in text for sign in _SIGNS):
        raise Failure(
            f"{what} is {text!r}, expected words of one line of LAMMPS's input, without "
            + ", ".join(_SIGNS)
        )
    return text


def quoted(name: str) -> str:
    """The name of a file as one word of an input.

    Raises:
        Failure: LAMMPS has no quotes for it.
    """
    if PLAIN.fullmatch(name):
        return name
    quote = next((q for q in ('"', "'") if q not in name and name.isprintable()), None)
    if quote is None:
        raise Failure(
            f"the name {name!r} has a line break, or quotes of both kinds, and cannot stand in an "
            "input of LAMMPS; choose another one"
        )
    return f"{quote}{name}{quote}"


@dataclass
class Dump:
    """A command *dump* that writes many frames to a file, and what *dump_modify* says of it."""

    ident: str  # its ID
    files: list[Path]  # names of the file; with % for the ranks
    appends: bool = False  # whether it goes on with what is there
    multiples: bool = True  # whether its frames are those of the multiples of a number of steps

    def modify(self, words: Sequence[str]) -> None:
        """Take the words of a *dump_modify*: the last of its keywords holds."""
        for key, value in itertools.pairwise(words):
            if key == "append":
                self.appends = value in YES
            elif key in ("every", "every/time"):
                self.multiples = key == "every" and not value.startswith("v_")


class Script:
    """The words for lmp and the commands of its input, in the order of their lines.

    Read once; a file that is not there is empty.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = list(arguments)
        self.files = [Path(name) for name in _values(arguments, ("-in", "-i"))]
        self.partitions = " ".join(_values(arguments, ("-partition", "-p")))
        self.lines: list[str] = []  # as they are in the files
        # Words of each without quotes, those inside another command after it; and where *shell cd*
        # has led to until then, "" for where lmp started.
        self.commands: list[tuple[list[str], str]] = []
        self.variables: dict[str, list[str]] = {}  # values that are known
        self.whole = True  # whether all files that it includes were read
        self._read_whole: list[Path] = []  # the input and files that it includes
        for k, word in enumerate(arguments):
            if word in ("-var", "-v") and len(arguments) > k + 2:
                values = _values(arguments[k:], (word,))[1:]
                self.variables.setdefault(arguments[k + 1], values)
        # Values from the environment, which may be another one where lmp runs.
        self._environment: dict[str, list[str]] = {}
        self._fixed = set(self.variables)  # which the input does not set
        self._folder = ""
        for path in self.files:
            self._read(path, ())

    # ---- reading

    def _read(self, path: Path, including: Sequence[Path]) -> None:
        if not path.is_file():
            return
        including = (*including, path.resolve())
        self._read_whole.append(path)
        for lines in _logical(path.read_text("utf-8-sig", "replace").splitlines()):
            self.lines += lines
            self._command(words("\n".join(lines)), including)

    def _command(self, command: list[str], including: Sequence[Path]) -> None:
        if not command:
            return
        self.commands.append((command, self._folder))
        name, rest = command[0], command[1:]
        if name in ("include", "jump") and rest:
            self._include(rest[0], including)
        elif name == "variable" and len(rest) >= 3:
            self._set(*rest)
        elif name == "shell" and len(rest) >= 2 and rest[0] == "cd":
            self._folder = str(Path(self._folder, self.values(rest[1])[0]))
        for inner in _inner(command):
            self._command(inner, including)

    def _include(self, word: str, including: Sequence[Path]) -> None:
        for value in self.values(word):
            path = Path(self._folder, value)
            if UNKNOWN in str(path) or not path.is_file():
                # The variable restart of several partitions names a file that is yet to be made.
                self.whole &= value == "SELF" or any(
                    "restart" in match.groups() for match in _VARIABLE.finditer(word)
                )
            elif path.resolve() not in including:
                self._read(path, including)

    def _set(self, name: str, style: str, *values: str) -> None:
        if name in self._fixed:
            return
        added = [one for word in values for one in self.values(word)]
        if style == "getenv":
            self._environment[name] = [os.environ.get(one, "") for one in added]
        if style not in _LISTS or (style.endswith("loop") and len(values) > 1):
            added = [UNKNOWN]
        elif style.endswith("loop"):
            last = int(added[0]) if added[0].isdecimal() else 0
            added = list(map(str, range(1, last + 1))) if 0 < last <= MOST_VALUES else [UNKNOWN]
        known = self.variables.get(name, ())
        self.variables[name] = list(dict.fromkeys([*known, *added]))

    # ---- the words for lmp

    def _option(self, *options: Sequence[str], default: str = "") -> str:
        """The word that follows the first one of several options that is there."""
        candidates = (value for names in options for value in _values(self.arguments, names)[:1])
        return next(candidates, default)

    def _log(self) -> str:
        options = (PARTITION_LOG, LOG) if self.partitions else (LOG,)
        return self._option(*options, default="log.lammps")

    def screens(self, nranks: int) -> list[Path | None]:
        """Where each partition writes what it does; None for the standard output of rank 0.

        That is its screen, or where it has none, its log.

        Raises:
            Failure: the partitions do not add up to the ranks.
        """
        if not self.partitions:
            name = self._option(SCREEN)
            name = self._log() if name == "none" else name
            return [None if name in ("", "none") else Path(name)]
        name = self._option(PARTITION_SCREEN, SCREEN, default="screen")
        name = self._log() if name == "none" else name
        return [Path(f"{name}.{k}") for k in sorted(set(replicas_of(self.partitions, nranks)))]

    def logs(self) -> list[Path]:
        """Log files that the options of lmp name, of all partitions."""
        names = {self._log(), self._option(LOG, default="log.lammps")} - {"none"}
        paths = list(map(Path, names))
        for path in map(Path, names) if self.partitions else ():
            numbered = path.parent.glob(f"{glob.escape(path.name)}.*[0-9]")
            paths += [one for one in numbered if one.suffix[1:].isdigit()]
        return paths

    # ---- the input

    def named(self, *names: str) -> list[tuple[list[str], str]]:
        """Commands of these names, and where lmp is then."""
        return [(command, folder) for command, folder in self.commands if command[0] in names]

    def values(self, word: str, environment: bool = False) -> list[str]:
        """What a word may stand for; with UNKNOWN for what cannot be known.

        Variables of the environment are known where they are asked for.
        """
        of_variables = self.variables | (self._environment if environment else {})
        parts: list[Sequence[str]] = []
        end = 0
        for match in _VARIABLE.finditer(word):
            known = of_variables.get(match[1] or match[2] or "")
            parts += [word[end : match.start()]], known or [UNKNOWN]
            end = match.end()
        parts.append([word[end:]])
        product = itertools.islice(itertools.product(*parts), MOST_VALUES)
        return list(dict.fromkeys(map("".join, product)))

    def digest(self) -> str:
        """SHA-256 of the lines of the input and of the partitions that run it."""
        return hashlib.sha256("\n".join([*self.lines, self.partitions]).encode()).hexdigest()

    def _styles(self) -> list[list[str]]:
        """Commands pair_style of this style."""
        return [words for words, _ in self.named("pair_style") if STYLES.keys() & set(words)]

    def has_style(self) -> bool:
        """Whether the input uses pair_style pwmlff, or one of its other names."""
        return bool(self._styles())

    def device_policy(self) -> str:
        """The keyword device of pair_style pwmlff."""
        named = (words for words in self._styles() if "device" in words[:-1])
        value = next((words[words.index("device") + 1] for words in named), "auto")
        return "auto" if "$" in value else value

    def plugin(self) -> Path | None:
        """The plugin that the input loads."""
        for words, _ in self.named("plugin"):
            if words[1:2] == ["load"] and words[2:] and words[2].endswith(plugin.FILE):
                return None if "$" in words[2] else Path(words[2])
        return None

    def can_go_on(self) -> bool:
        """Whether it uses the variable `restart`; or may, in a file that is not known yet."""
        said = (" ".join(words) for words, _ in self.commands if words[0] != "print")
        return not self.whole or any(use in text for text in said for use in USES)

    def words_after_restart(self) -> list[str]:
        """What the input says to read_restart beside the file."""
        said = (words[2:] for words, _ in self.named("read_restart"))
        return [word for words in said for word in words if word in ("remap", "noremap")][:1]

    def deviation_files(self) -> list[Path]:
        """What ensembles of the input write to, as far as that is known."""
        files = []
        for words, folder in self.named("pair_style"):
            for k, style in enumerate(words):
                if style not in STYLES:
                    continue
                rest = words[k + 1 :]
                models = itertools.takewhile(lambda word: word not in KEYWORDS, rest)
                if sum(not word.isdigit() for word in models) > 1:
                    names = rest[rest.index("out_file") + 1 :][:1] if "out_file" in rest else ()
                    files += self._paths(folder, names or [STYLES[style]])
        return files

    def restarts(self) -> list[str]:
        """Patterns of the restart files that commands name, with * for what is not known."""
        patterns = []
        # Where they are may change before they are written.
        folders = dict.fromkeys(folder for _, folder in self.commands if UNKNOWN not in folder)
        for words, _ in self.named("restart"):
            if words[1:2] == ["0"]:
                continue
            names = list(itertools.takewhile(lambda word: word not in AFTER_NAMES, words[2:4]))
            for value in (value for name in names for value in self.values(name)):
                pattern = value.replace(UNKNOWN, "*")
                if len(names) == 1 and "*" not in pattern:
                    pattern += ".*"
                patterns += [str(Path(folder, pattern)) for folder in folders]
        return list(dict.fromkeys(patterns))

    def reads(self) -> dict[str, Path]:
        """Names that may be those of files that it reads, and where LAMMPS finds them.

        Not those that it writes, nor the restart files that a start goes on from. Files that are
        not there have their place in the current folder.
        """
        paths = {str(path): path for path in self._read_whole}
        written = self._writes()
        patterns = self.restarts()
        for command, folder in self.commands:
            name, rest = command[0], command[1:]
            of_file = name == "variable" and rest[1:2] in (["file"], ["atomfile"])
            fix = name == "fix" and READING_FIXES.fullmatch("".join(rest[2:3]))
            if not (of_file or fix or READERS.fullmatch(name)):
                continue
            for path in self._paths(folder, rest, environment=True):
                is_name = not re.fullmatch(r"[-+*.\d]*(?:[eE][-+]?\d+)?", path.name)
                own = path in written or any(fnmatch.fnmatch(str(path), one) for one in patterns)
                if is_name and not own:
                    paths.setdefault(str(path), _potential_file(path))
        return paths

    def _writes(self) -> set[Path]:
        """Files that commands of the input write, as far as they are known."""
        paths: set[Path] = set()
        for command, folder in self.commands:
            keys = WRITING.get(command[0], ())
            names = command[1:] if command[0] in WRITERS else []
            names += [word for key, word in itertools.pairwise(command) if key in keys]
            if "capture" in command and command[0] == "pair_style":
                names += command[command.index("capture") + 3 :][:1]
            paths.update(self._paths(folder, names, environment=True))
        return paths

    def logs_of_input(self) -> list[Path]:
        """Files that commands *log* begin anew, as far as they are known."""
        return [
            path
            for words, folder in self.named("log")
            if words[1:] and words[1] != "none" and "append" not in words[2:]
            for path in self._paths(folder, words[1:2])
        ]

    def dumps(self) -> list[Dump]:
        """What the input dumps, as far as it is known."""
        all_dumps: list[Dump] = []
        there: dict[str, list[Dump]] = {}  # of each ID; several where branches of an if have it
        for words, folder in self.named("dump", "dump_modify", "undump", "clear"):
            name, ident = words[0], "".join(words[1:2])
            if name == "clear":
                there.clear()
            elif name == "undump":
                there.pop(ident, None)
            elif name == "dump_modify":
                for dump in there.get(ident, ()):
                    dump.modify(words[2:])
            elif len(words) >= 6 and "*" not in words[5]:
                all_dumps.append(Dump(ident, self._paths(folder, words[5:6])))
                there.setdefault(ident, []).append(all_dumps[-1])
        return all_dumps

    def _paths(self, folder: str, names: Sequence[str], environment: bool = False) -> list[Path]:
        """Files of these names, without those that are not known."""
        values = (value for name in names for value in self.values(name, environment))
        paths = (Path(folder, value) for value in values)
        return [path for path in paths if UNKNOWN not in str(path)]

    def require_restartable(self) -> None:
        """Raise Failure where it writes no restart files, or does not go on from one."""
        silent = self._option(PARTITION_SCREEN, SCREEN) == "none"
        if self.partitions and silent and not self.has_style():
            raise Failure(
                "--retries needs the screens of the partitions, which tell of restart files where "
                "pair_style pwmlff does not: leave '-screen none' or '-pscreen none' out"
            )
        if not self.files:
            raise Failure("--retries needs the input in a file: give -in FILE")
        for path in self.files:
            if not path.is_file():
                raise Failure(f"found no input '{path}'")
        missing = {}
        if not self.can_go_on():
            text = "does not use the variable restart, which names the file"
            missing[text] = BEGIN.format("include" if self.partitions else "read_restart")
        if self.whole and not self.named("restart"):
            text = "writes no restart files"
            missing[text] = RESTART_OF_PARTITIONS if self.partitions else RESTART
        if missing:
            raise Failure(
                f"--retries goes on from a restart file, but '{self.files[0]}' "
                f"{' and '.join(missing)}; let it say\n"
                + "\n".join(f"  {line}" for line in missing.values())
            )


def without_restart(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The words without a value for the variable `restart`, and that value; each start sets one."""
    words = list(arguments)
    for k in range(len(words) - 2):
        if words[k] in ("-var", "-v") and words[k + 1] == "restart":
            return [*words[:k], *words[k + 3 :]], words[k + 2]
    return words, None


def _values(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """The words that follow an option of lmp, up to the next option."""
    values: list[str] = []
    for k, word in enumerate(arguments, 1):
        if word in names:
            values += itertools.takewhile(lambda value: not value.startswith("-"), arguments[k:])
    return values


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


def _potential_file(path: Path) -> Path:
    """Where LAMMPS finds a file of a potential: at its name, or by it in LAMMPS_POTENTIALS."""
    folders = os.environ.get("LAMMPS_POTENTIALS", "").split(":")
    others = (Path(folder, path.name) for folder in folders if folder)
    return next((one for one in (path, *others) if one.is_file()), path)


def _logical(lines: Sequence[str]) -> Iterator[list[str]]:
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
    parts = []
    for match in _WORD.finditer(re.sub(r"&[ \t]*(?:\n|\Z)", "", text)):
        if match[0] == "#":
            break
        parts.append(match["quoted"] if match["quote"] else match[0])
    return parts
