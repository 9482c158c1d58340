"""What options and variables hold: words, numbers, name=value pairs, with commas between them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pwmlff.report import Failure

SYMBOL = "[A-Z][a-z]?"  # of an element, by its looks


def names(text: str) -> list[str]:
    """a,b -> ["a", "b"]."""
    return [word.strip() for word in text.split(",") if word.strip()]


def elements_of(text: str) -> list[str]:
    """Hf,O or Hf O -> ["Hf", "O"]."""
    return text.replace(",", " ").split()


def positive_integers(option: str, text: str) -> list[int]:
    """1,2 -> [1, 2].

    Raises:
        Failure: a word is no positive integer.
    """
    words = names(text)
    if not words or not all(word.isdigit() and int(word) > 0 for word in words):
        raise Failure(f"{option} is '{text}', expected positive integers like 1,2,4")
    return [int(word) for word in words]


def numbers(option: str, text: str) -> dict[str, float]:
    """a=1,b=2 -> {"a": 1.0, "b": 2.0}.

    Raises:
        Failure: a word is of another form.
    """
    result = {}
    for word in names(text):
        name, _, value = word.partition("=")
        try:
            result[name] = float(value)
        except ValueError:
            raise Failure(f"{option} holds '{word}', expected name=number") from None
    return result


def kinds_of(words: Sequence[str] | None) -> dict[str, str]:
    """Fe1=Fe, Fe2=Fe -> {"Fe1": "Fe", "Fe2": "Fe"}, of --map.

    Raises:
        Failure: a word is of another form, or a kind is said to be two elements.
    """
    result: dict[str, str] = {}
    for word in words or ():
        kind, _, element = word.rpartition("=")
        if not kind or not element:
            raise Failure(f"--map is '{word}', expected what files say and an element, like Fe1=Fe")
        if result.setdefault(kind, element) != element:
            raise Failure(f"--map says that '{kind}' is {result[kind]} and {element}, expected one")
    return result


def with_elements_joined(arguments: Sequence[str]) -> list[str]:
    """--elements Hf O -> --elements "Hf O": of options one word alone is the value."""
    result: list[str] = []
    gathering = False
    for word in arguments:
        if gathering and re.fullmatch(rf"{SYMBOL}([\s,]+{SYMBOL})*[\s,]*", word):
            result[-1] += f" {word}"
            continue
        gathering = result[-1:] == ["--elements"] or word.startswith("--elements=")
        result.append(word)
    return result


def seconds_of(option: str, text: str, unit: float = 1.0) -> float:
    """Seconds of a time like 90s, 20m, 2h, 1d, 1h30m, 23:50:00, 1-12:00:00 or 90.

    Args:
        option: that holds it, for messages.
        text: the time.
        unit: seconds that a number without a letter is of.

    Raises:
        Failure: it is of another form.
    """
    clock = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    amount = r"(?:\d+(?:\.\d*)?|\.\d+)"
    letters = re.fullmatch("".join(f"(?:({amount}){letter})?" for letter in "dhms"), text)
    if re.fullmatch(amount, text):
        return unit * float(text)
    if text and (match := clock or letters):
        parts = zip((86400, 3600, 60, 1), match.groups(), strict=True)
        return float(sum(seconds * float(count or 0) for seconds, count in parts))
    raise Failure(
        f"{option} is '{text}', expected a time like 90s, 20m, 2h or 23:50:00 "
        "(hours:minutes:seconds)"
    )
