"""Checkpoints of CHGNet (.pth.tar), by a Python in which CHGNet is installed.

CHGNet has no command, so its Python itself is looked for. It writes the model by edges, and
evaluates what that is compared with (`chgnet_edges.py`).

Source: Deng et al. 2023, doi:10.1038/s42256-023-00716-3.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from ase import Atoms

from pwmlff.convert import programs
from pwmlff.convert.foreign import Foreign, Numbers, Saved
from pwmlff.evaluation import model_file

MARK = b"bond_basis_expansion.rbf_expansion_ag"  # a name among its parameters
SOURCE = "a checkpoint of CHGNet"  # for messages
SCRIPT = Path(__file__).with_name("chgnet_edges.py")
APART = 30.0  # angstrom between a cluster and its images, beyond the reach of any bond


def read(path: str, contents: bytes, content: Saved) -> Foreign | None:
    """The model of a checkpoint; None for other files.

    Raises:
        Failure: there is no Python with CHGNet, or it does not make a model of it.
    """
    if MARK not in content.table:
        return None
    python = _python(path)
    programs.warn_of_code(path, SOURCE, f"the CHGNet of {python}")
    archive = _run(path, contents, python, "model.pt")
    module = model_file.load_contents(path, archive)
    notes = {"pairs": f"bonds up to {module.pair_cutoff:g} \u00c5 have angles"}
    numbers = partial(_evaluate, path, contents, python)
    return Foreign("CHGNet", module, numbers, single=True, notes=notes)


def _python(path: str) -> str:
    """A Python with CHGNet: this one, or the first whose folder is on the PATH."""
    if find_spec("chgnet") is not None:
        return sys.executable
    for folder in os.get_exec_path():
        program = Path(folder, "python3")
        if program.is_file() and any(
            Path(folder).parent.glob("lib/python3*/site-packages/chgnet/__init__.py")
        ):
            return str(program)
    raise programs.missing(path, SOURCE, "Python with chgnet", "chgnet")


def _run(
    path: str, contents: bytes, python: str, target: str, structure: Atoms | None = None
) -> bytes:
    """What the script writes of a checkpoint."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = shutil.copy(SCRIPT, folder)  # beside it, Python would look for modules
        (folder / "checkpoint").write_bytes(contents)
        words = [str(script), "checkpoint", target]
        if structure is not None:
            np.savez(
                folder / "structure.npz", numbers=structure.numbers, positions=structure.positions,
                cell=structure.cell.array,
            )  # fmt: skip
            words.append("structure.npz")
        process = programs.run([python, *words], folder)
        if process.returncode or not (folder / target).is_file():
            output = process.stdout + process.stderr
            raise programs.makes_nothing(path, SOURCE, f"the CHGNet of {python}", output)
        return (folder / target).read_bytes()


def _evaluate(path: str, contents: bytes, python: str, cluster: Atoms) -> Numbers:
    """A cluster in free space, by CHGNet, which knows periodic structures alone."""
    apart = cluster.copy()
    apart.center(vacuum=APART / 2)
    stream = io.BytesIO(_run(path, contents, python, "numbers.npz", apart))
    with np.load(stream) as numbers:
        energies, forces = (numbers[name].astype(np.float64) for name in ("atom_energy", "forces"))
    return Numbers(energies.ravel(), forces)
