"""What a loop has done, in one file that people can read: state.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pwmlff.files import write_whole
from pwmlff.report import Failure, plain, restored

NAME = "state.json"
VERSION = 1
LEAST_STEPS = 200  # of a training that its time ends: after fewer, what models say is no matter


@dataclass
class State:
    """Stages that are done; what they have made lies in the folders of the rounds."""

    version: int = VERSION
    seconds: float = 0.0  # of all starts
    first: dict[str, Any] = field(default_factory=dict)  # labels of first structures
    #: Of each round what its stages tell, by their names: train, explore, label.
    rounds: list[dict[str, Any]] = field(default_factory=list)
    end: str = ""  # why it ended; empty before

    @classmethod
    def read(cls, folder: Path) -> State:
        """That of a folder, or one where nothing is done.

        Raises:
            Failure: the file is of another version, or is damaged.
        """
        path = folder / NAME
        if not path.exists():
            return cls()
        try:
            state = restored(cls, vars(cls(**json.loads(path.read_bytes()))))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Failure(
                f"'{path}' is no state of a loop ({error}); choose another folder"
            ) from error
        if state.version != VERSION:
            raise Failure(f"'{path}' is of version {state.version}, expected {VERSION}")
        return state

    def write(self, folder: Path) -> None:
        """Write it whole."""
        write_whole(folder / NAME, (json.dumps(plain(asdict(self)), indent=1) + "\n").encode())
