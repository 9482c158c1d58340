"""Learning loops: models that explore, doubt, get labels and train again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pwmlff.learn.verdict import LearnReport

__all__ = ["learn"]


def learn(
    toml: str | PathLike[str],
    settings: Sequence[str] = (),
    asked: Callable[[], bool] = lambda: False,
) -> LearnReport:
    """Run a learning loop, or go on with one, as `pwmlff learn` does.

    Args:
        toml: learn.toml; its keys are in docs/learn_toml.md.
        settings: other keys, like "loop.rounds=3".
        asked: is asked now and then whether to stop.

    Returns:
        `models`, the files of the last training; `state`, what each round has told.

    Raises:
        pwmlff.report.Failure: a setting cannot be used, a training failed, no structure got
            labels, or the end was asked for; the same call goes on.
    """
    from pwmlff.learn.rounds import Rounds  # noqa: PLC0415
    from pwmlff.learn.settings import Learning  # noqa: PLC0415

    return Rounds(Learning.read(toml, settings), asked).run()
