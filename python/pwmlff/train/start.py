"""What each start of a training has: its options, signals, and the folder that it claims."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pwmlff import files
from pwmlff.launch.script import quoted
from pwmlff.train import record
from pwmlff.train.config import Config

CONFIGURATION = "run.toml"


class Stop(AbstractContextManager["Stop"]):
    """Whether SIGINT or SIGTERM asked for the end, from :meth:`listen` on; until then both end all.

    A terminal, a scheduler and whoever started this process may each send one: those after the
    first change nothing, to the end of the context, so that what has begun to be written is
    written.

    Args:
        leaves: whether the process ends after the context, so that they change nothing until then.
    """

    def __init__(self, leaves: bool = False) -> None:
        self._leaves = leaves
        self._asked = False  # no threading.Event: a handler amid its locks would wait for itself
        self._previous: dict[int, Any] = {}

    def asked(self) -> bool:
        """Whether one came."""
        return self._asked

    def listen(self) -> None:
        """Take the signals from now on."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous.setdefault(number, signal.getsignal(number))
                signal.signal(number, self._take)

    def _take(self, *_: object) -> None:
        self._asked = True

    def __exit__(self, *_: object) -> None:
        """Let the signals be what they were."""
        ignored = self._leaves and self.asked()
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_IGN if ignored else handler)


@dataclass(frozen=True)
class Options:
    """What the command was given beside the configuration."""

    resume: bool = False
    dry_run: bool = False
    communication: str = "auto"  # as comm.connect takes it
    began: float | None = None  # when the command began, by time.monotonic(); now when None


@contextmanager
def claimed(folder: Path, options: Options) -> Iterator[int]:
    """Have the folder, made if need be; that of another training is refused before any write.

    One that goes on waits for what it had started when it was killed, and finds nothing of files
    that were being written then.

    Yields:
        A handle, to be inherited by what may outlive this process.

    Raises:
        Failure: it is that of another one, or none that an input of LAMMPS can name.
    """
    quoted(str(folder.absolute()))
    handle = files.have(folder, files.PATIENCE if options.resume else 0.0)
    try:
        if options.resume:
            files.remove_scratch(folder)
        else:
            record.require_unused(folder)
        yield handle
    finally:
        os.close(handle)


def write_configuration(config: Config) -> Path:
    """Write run.toml with every default into the folder of a training, made if need be."""
    path = Path(config.output.folder, CONFIGURATION)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_whole(path, config.as_toml().encode())
    return path
