"""Many structures at once, over threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from queue import SimpleQueue

from ase import Atoms

from pwmlff.evaluation.engine import Engine, Evaluation, choose
from pwmlff.threads import allowed_threads


def evaluate(
    model: str | PathLike[str],
    structures: Sequence[Atoms],
    *,
    threads: int | None = None,
    engine: str = "auto",
    precision: str = "double",
    elements: Sequence[int] | None = None,
    device: str = "cpu",
) -> list[Evaluation]:
    """Energies, forces and virials of many structures, in their order.

    Each thread opens the file and evaluates one structure at a time. The results do not depend on
    the number of threads.

    Args:
        model: a model file. Loading it executes code that it brings along.
        structures: of any sizes and cells.
        threads: OMP_NUM_THREADS, or as many as there are cores, when None. On a GPU always one.
        engine, precision, elements, device: as :class:`pwmlff.Calculator` takes them.

    Returns:
        For each structure `energy` (eV), `atom_energy` [n], `forces` [n, 3] (eV/angstrom) and
        `virial` [3, 3] (eV, the sum of r_ij f_ij, as LAMMPS has it); reduced in units "lj".

    Raises:
        pwmlff.report.Failure: the file or a value cannot be used.
        ValueError: the model does not take a structure, or a result is not finite.
    """
    count = max(1, min(threads or allowed_threads(), len(structures)))
    idle: SimpleQueue[Engine] = SimpleQueue()
    for _ in range(count if device == "cpu" else 1):
        idle.put(choose(model, engine, precision, elements, skin=0.0, device=device).engine)

    def one(k: int) -> Evaluation:
        own = idle.get()
        try:
            return own(structures[k])
        except ValueError as error:
            raise ValueError(f"structure {k}: {error}") from error
        finally:
            idle.put(own)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(len(structures))))
