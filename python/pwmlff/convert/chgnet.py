"""Checkpoints of CHGNet (.pth.tar), by a Python in which CHGNet is installed.

CHGNet has no command, so its Python itself is looked for. It writes the model by edges, and
evaluates what that is compared with (`chgnet_edges.py`).

Source: Deng et al. 2023, doi:10.1038/s42256-023-00716-3.
"""

from __future__ import annotations

import io
from functools import partial
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
    python = programs.python_with("chgnet", "chgnet", path, SOURCE)
    programs.warn_of_code(path, SOURCE, f"the CHGNet of {python}")
    archive = _run(path, contents, python, "model.pt")
    module = model_file.load_contents(path, archive)
    notes = {"pairs": f"bonds up to {module.pair_cutoff:g} \u00c5 have angles"}
    numbers = partial(_evaluate, path, contents, python)
    return Foreign("CHGNet", module, numbers, single=True, notes=notes)


def _run(
    path: str, contents: bytes, python: str, target: str, structure: Atoms | None = None
) -> bytes:
    """What the script writes of a checkpoint."""
    files, words = {"checkpoint": contents}, ["checkpoint", target]
    if structure is not None:
        files["structure.npz"] = programs.structure_file(structure)
        words.append("structure.npz")
    who = f"the CHGNet of {python}"
    return programs.run_script(path, SOURCE, who, (python, SCRIPT, words), files, target)


def _evaluate(path: str, contents: bytes, python: str, cluster: Atoms) -> Numbers:
    """A cluster in free space, by CHGNet, which knows periodic structures alone."""
    apart = cluster.copy()
    apart.center(vacuum=APART / 2)
    stream = io.BytesIO(_run(path, contents, python, "numbers.npz", apart))
    with np.load(stream) as numbers:
        energies, forces = (numbers[name].astype(np.float64) for name in ("atom_energy", "forces"))
    return Numbers(energies.ravel(), forces)
