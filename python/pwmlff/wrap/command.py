"""`pwmlff wrap`: a model file of another program as one that pair_style pwmlff runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table

from pwmlff import archive, model_file
from pwmlff.engine import Choice, choose
from pwmlff.files import write_whole
from pwmlff.models import save_model
from pwmlff.models.saving import origin
from pwmlff.report import Failure
from pwmlff.trial import random_cluster
from pwmlff.wrap import deepmd, mace, nequip
from pwmlff.wrap.foreign import Foreign, Source

#: In the order in which they are asked: what they make of a file, None for files of others.
READERS: tuple[Callable[[Source], Foreign | None], ...] = (deepmd.read, mace.read, nequip.read)
#: By which energies of atoms and forces may differ from the original, as a share of the largest (at
#: least 1 eV and 1 eV/angstrom), where it computes in float64 and in float32.
GATES = {False: 1e-9, True: 1e-4}


@dataclass(frozen=True)
class WrapReport:
    """What became of a file."""

    source: str
    output: str
    family: str
    model: model_file.ModelInfo
    engine: str
    energy_difference: float  # from the original, largest of an atom, eV
    force_difference: float  # likewise, eV/angstrom
    told: dict[str, str]

    @property
    def ok(self) -> bool:
        """Always: what is not proved is not written."""
        return True

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "model": vars(self.model), "ok": self.ok}

    def show(self) -> RenderableType:
        """One table."""
        table = Table(show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        model = self.model
        rows = {
            "file": f"{self.source} -> {self.output}",
            "is": self.family,
            "kind": model.kind,
            "elements": " ".join(model.elements),
            "cutoff": f"{model.cutoff:g}"
            + f", interaction range {model.interaction_range:g}"
            * (model.interaction_range > model.cutoff),
            **self.told,
            "size": f"{model.nparameters} parameters in {model.dtype}",
            "engine": self.engine,
            "differs by": f"{self.energy_difference:.1e} eV (atom), {self.force_difference:.1e} "
            "eV/angstrom at most from the code of the original, on a random cluster",
            "use": f"pair_style pwmlff 1 {self.output}",
        }
        for name, text in rows.items():
            table.add_row(name, text)
        return table


def wrap(path: str | PathLike[str], output: str | PathLike[str]) -> WrapReport:
    """Write a model file of another program as one that pair_style pwmlff runs.

    Args:
        path: a frozen model of DeePMD-kit (.pth, se_e2_a), a MACE model for LAMMPS (-lammps.pt), or
            a compiled model of NequIP or Allegro (.nequip.pth).
        output: the file to write, as a whole or not at all.

    Raises:
        Failure: the file is not known, or cannot be brought into a contract, or what would be
            written gives other numbers than the original.
        OSError: the file cannot be read or written.
    """
    source, target = fspath(path), Path(output)
    foreign = _read(source)
    card = {**origin(), "wrapped": {"file": Path(source).name, "family": foreign.family}}
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        draft = Path(folder) / target.name
        save_model(foreign.module, draft, card)
        chosen = choose(draft, "auto", "exact")
        energy, force = _differences(source, foreign, chosen)
        write_whole(target, draft.read_bytes())
    return WrapReport(
        source=source,
        output=fspath(output),
        family=foreign.family,
        model=replace(chosen.info, file=fspath(output)),
        engine=chosen.engine.description,
        energy_difference=energy,
        force_difference=force,
        told=foreign.told,
    )


def _read(path: str) -> Foreign:
    contents = model_file.read(path)
    class_name = archive.class_name(contents)
    source = Source(path, contents, class_name, model_file.load_contents(path, contents))
    for read in READERS:
        if foreign := read(source):
            return foreign
    if hasattr(source.module, "model_type"):
        raise Failure(f"'{path}' keeps a contract of this project: use it as it is")
    raise Failure(
        f"'{path}' is a TorchScript module of class {class_name}, which is not known; expected a "
        "model of DeePMD-kit, MACE, NequIP or Allegro. A module of your own can keep the contract "
        "of kind EDGE: see the documentation"
    )


def _differences(source: str, foreign: Foreign, chosen: Choice) -> tuple[float, float]:
    """The largest of atomic energies and forces on a random cluster.

    Raises:
        Failure: one of them is too large.
    """
    cluster = random_cluster(chosen.info.cutoff, chosen.info.atom_type, chosen.info.limit)
    expected, found = foreign.evaluate(cluster), chosen.engine(cluster)
    differences = []
    for what, ours, theirs in (
        ("energies of atoms", found.atom_energy, expected.atom_energy),
        ("forces", found.forces, expected.forces),
    ):
        difference = float(np.abs(ours - theirs).max())
        gate = GATES[foreign.single] * max(1.0, float(np.abs(theirs).max()))
        if not difference <= gate:
            raise Failure(
                f"'{source}' is not what it was taken for ({foreign.family}): {what} differ by "
                f"{difference:.1e} from those of its own code on a random cluster, allowed "
                f"{gate:.1e}; nothing was written"
            )
        differences.append(difference)
    return differences[0], differences[1]
