"""Start this Python with a few lines of code, and find what is installed beside it.

Python looks for modules in the current folder first when it is started with ``-c`` or ``-m``: a
file ``json.py`` that lies beside somebody's input would be executed. ``-P`` prevents that from
Python 3.11 on, and ``-I`` also hides PYTHONPATH and the user's site-packages.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_FORGET_CURRENT_FOLDER = "import sys; sys.path[:1] == [''] and sys.path.pop(0); "
#: PR_SET_PDEATHSIG of prctl(2) is 1, SIGTERM 15.
_ENDING_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)


def command(code: str, *arguments: str) -> list[str]:
    """Words that run code in this Python, with sys.argv[1:] = arguments."""
    return [sys.executable, "-c", _FORGET_CURRENT_FOLDER + code, *arguments]


def pwmlff(*arguments: str) -> list[str]:
    """Words that run the `pwmlff` command of this very Python; `-m pwmlff` would look there."""
    return command("import pwmlff.__main__", *arguments)


def ending_with_parent(words: Sequence[str]) -> list[str]:
    """Words that run others; the kernel ends that program, too, where this process is killed."""
    return command(_ENDING_WITH_PARENT, str(os.getpid()), *words)


def find_program(name: str) -> str | None:
    """A program beside this Python, or else the first of that name on the PATH."""
    own = str(Path(sys.executable).with_name(name))
    return shutil.which(own) or shutil.which(name)
