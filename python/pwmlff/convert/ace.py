"""Potentials of pacemaker as its training leaves them (.yaml), and active sets (.asi).

A Python in which python-ace is installed writes the file and evaluates what it is compared with
(`ace_export.py`). The extrapolation grade needs B functions one by one, which a .yace has not.

Source: Lysogorskiy et al. 2023, doi:10.1103/PhysRevMaterials.7.043801.
"""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms

from pwmlff import native
from pwmlff.convert import programs
from pwmlff.convert.foreign import Choices, Foreign, GradedNumbers, Numbers
from pwmlff.evaluation import ace_file
from pwmlff.report import Failure, last_line

SCRIPT = Path(__file__).with_name("ace_export.py")
TRAINED = re.compile(rb"^(species|global):", re.MULTILINE)  # in files of B functions of pacemaker
POTENTIAL, ACTIVE_SET, STRUCTURE = "potential.yaml", "active_set.asi", "structure.npz"


@dataclass(frozen=True)
class _PythonAce:
    """What python-ace makes of a potential."""

    path: str  # for messages
    source: str  # likewise, what it is
    python: str
    files: dict[str, bytes]  # POTENTIAL, and perhaps ACTIVE_SET
    grace: bool

    def run(self, target: str, structure: Atoms | None = None) -> bytes:
        """What the script writes: a file, or numbers of a structure."""
        files, words = dict(self.files), [POTENTIAL, target, *["--grace"] * self.grace]
        if ACTIVE_SET in files:
            words += ["--active-set", ACTIVE_SET]
        if structure is not None:
            files[STRUCTURE] = programs.structure_file(structure)
            words += ["--structure", STRUCTURE]
        who, command = f"the python-ace of {self.python}", (self.python, SCRIPT, words)
        return programs.run_script(self.path, self.source, who, command, files, target)

    def numbers(self, cluster: Atoms) -> Numbers | GradedNumbers:
        """What it says of a cluster; gamma with an active set."""
        with np.load(io.BytesIO(self.run("numbers.npz", cluster))) as found:
            return (GradedNumbers if ACTIVE_SET in self.files else Numbers)(**found)


def read(path: str, contents: bytes, choices: Choices) -> Foreign | None:
    """The potential, with its active set if there is one; None for other files.

    Raises:
        Failure: an active set for another file; there is no Python with python-ace, or it does not
            make a file of it.
        OSError: the active set cannot be read.
    """
    is_ace = native.family_of(contents) == "ace"
    trained = is_ace and TRAINED.search(contents) is not None
    if not (trained or choices.active_set):
        return None
    of_grace = is_ace and not trained and _network(path, contents).grace
    if not (trained or of_grace):
        raise Failure(
            f"found an active set, '{choices.active_set}', for '{path}', expected one for the "
            ".yaml of pacemaker or GRACE/FS that it was made of"
        )
    programs.require_no_choice(path, choices)
    source = "a potential of GRACE/FS" if of_grace else "B functions of pacemaker"
    files = {POTENTIAL: contents}
    if choices.active_set:
        files[ACTIVE_SET] = _active_set(choices.active_set)
    python = programs.python_with("pyace", "python-ace", path, source)
    original = _PythonAce(path, source, python, files, of_grace)
    written = original.run("potential.yace")
    return Foreign(
        "ACE of GRACE/FS" if of_grace else "ACE of pacemaker",
        _network(path, written),
        original.numbers,
        contents=written,
    )


def _network(path: str, contents: bytes) -> ace_file.Ace:
    try:
        return ace_file.of_network(native.Network(contents, "ace"))
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error


def _active_set(path: str) -> bytes:
    """The file, if it holds matrices that tell atoms apart.

    Those of `pace_activeset --full` of python-ace 0.4.0rc1 do not: they are the identity, times
    1e16, whatever the data are (findings/pacemaker_full_active_set.sh).

    Raises:
        Failure: it is no active set, or such a one.
        OSError: it cannot be read.
    """
    contents = Path(path).read_bytes()
    try:
        with np.load(io.BytesIO(contents), allow_pickle=False) as found:
            matrices = {element: np.asarray(found[element]) for element in found}
    except (ValueError, TypeError, zipfile.BadZipFile) as error:
        raise Failure(
            f"'{path}' cannot be read as an active set: {last_line(error)}; expected the .asi that "
            "pace_activeset writes"
        ) from error
    for element, matrix in matrices.items():
        if matrix.ndim == 2 and len(matrix) > 1 and np.count_nonzero(matrix) <= len(matrix):
            raise Failure(
                f"'{path}' has the identity times {matrix.flat[0]:.0e} for {element}, expected the "
                "inverse of atoms of the data; make it with pace_activeset without --full"
            )
    return contents
