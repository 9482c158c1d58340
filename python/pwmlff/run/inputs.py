"""What the words for lmp and its input say, as far as they say it in so many words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pwmlff import plugin
from pwmlff.ranks import replicas_of
from pwmlff.report import Failure

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


def screens(arguments: Sequence[str], nranks: int) -> list[Path]:
    """Where each of several partitions writes its screen; none with one partition.

    Raises:
        Failure: the partitions do not add up to the ranks.
    """
    replicas = replicas_of(partitions(arguments), nranks)
    return [Path(f"{_screen(arguments)}.{k}") for k in sorted(set(replicas))]


def _screen(arguments: Sequence[str]) -> str:
    screen = values(arguments, ("-screen", "-sc")) or ["screen"]
    return (values(arguments, ("-pscreen", "-ps")) or screen)[0]


def files(arguments: Sequence[str]) -> list[Path]:
    """The input of lmp."""
    return [Path(name) for name in values(arguments, ("-in", "-i"))]


def lines(path: Path, including: Sequence[Path] = ()) -> list[str]:
    """Lines of an input and of the files that it includes by name; none where there is no file.

    Args:
        path: the input.
        including: the files that include it, which it does not include again.
    """
    if not path.is_file():
        return []
    found: list[str] = []
    including = (*including, path.resolve())
    for line in path.read_text(errors="replace").splitlines():
        found.append(line)
        words = line.split()
        if words[:1] == ["include"] and words[1:] and Path(words[1]).resolve() not in including:
            found += lines(Path(words[1]), including)
    return found


def of_all(arguments: Sequence[str]) -> list[str]:
    """Lines of all inputs."""
    return [line for path in files(arguments) for line in lines(path)]


def digest(arguments: Sequence[str]) -> str:
    """SHA-256 of the lines of the input and of the partitions that run it."""
    return hashlib.sha256(
        "\n".join([*of_all(arguments), partitions(arguments)]).encode()
    ).hexdigest()


def device_policy(arguments: Sequence[str]) -> str:
    """The keyword device of pair_style pwmlff."""
    for line in of_all(arguments):
        words = line.split()
        if words[:1] == ["pair_style"] and "pwmlff" in words and "device" in words[:-1]:
            value = words[words.index("device") + 1]
            return "auto" if "$" in value else value
    return "auto"


def plugin_of(arguments: Sequence[str]) -> Path | None:
    """The plugin that the input loads."""
    for line in of_all(arguments):
        words = line.split()
        if words[:2] == ["plugin", "load"] and words[2:] and words[2].endswith(plugin.FILE):
            return None if "$" in words[2] else Path(words[2])
    return None


def has_style(arguments: Sequence[str]) -> bool:
    """Whether the input uses pair_style pwmlff, or one of its other names."""
    names = ("pwmlff", "matpl", "matpl/dp")
    return any(
        line.split()[:1] == ["pair_style"] and set(names) & set(line.split())
        for line in of_all(arguments)
    )


def can_go_on(arguments: Sequence[str]) -> bool:
    """Whether the input uses the variable `restart`."""
    return any(word in line for line in of_all(arguments) for word in USES)


def require_restartable(arguments: Sequence[str]) -> None:
    """Raise Failure for an input that writes no restart files, or does not go on from one."""
    if partitions(arguments) and _screen(arguments) == "none":
        raise Failure(
            "--retries needs the screens of the partitions, which tell of their restart files: "
            "leave '-screen none' or '-pscreen none' out"
        )
    if not files(arguments):
        raise Failure("--retries needs the input in a file: give -in FILE")
    for path in files(arguments):
        if not path.is_file():
            raise Failure(f"found no input '{path}'")
    missing = []
    if not can_go_on(arguments):
        missing.append(("does not use the variable restart, which names the file", "variable"))
    if not any(line.split()[:1] == ["restart"] for line in of_all(arguments)):
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
