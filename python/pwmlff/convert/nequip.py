"""NequIP and Allegro models as `nequip-compile --mode torchscript` writes them (.nequip.pth).

They run with torch alone: of the model in the file, the part that gives energies of atoms. So do
those of `nequip-deploy` (.pth), of releases 0.6: there what scales the energies is around the part
that makes forces of them.

Sources: Batzner et al. 2022, doi:10.1038/s41467-022-29939-5 (NequIP);
Musaelian et al. 2023, doi:10.1038/s41467-023-36329-y (Allegro).
"""

import io
import re
import warnings
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.data import atomic_numbers
from torch import Tensor, nn

from pwmlff.convert.foreign import Foreign, Numbers, Source, in_rounds, widths
from pwmlff.evaluation.structures import neighbor_list
from pwmlff.report import Failure

#: Names of the class; that of a package (torch.package) has the number of the package before it.
PACKAGE = r"(_torch_package_\d+_\.)?nequip\."
CLASS = re.compile(PACKAGE + r"nn\.graph_model\.GraphModel")
DEPLOYED = "nequip.nn._graph_model.GraphModel"  # by releases 0.6
#: Metadata of the file.
CUTOFF, NAMES, DTYPE = "r_max", "type_names", "model_dtype"
ATOMS, ALL = "atomic_energy", "total_energy"  # what models give
SEQUENCE, CONVOLUTION = "SequentialGraphNetwork", "ConvNetLayer"  # classes of parts


class NequipEdges(nn.Module):
    """A NequIP or Allegro model by edges.

    Args:
        energies: the part of it that gives energies of atoms.
        elements: atomic numbers, in the order of its types.
        cutoff: angstrom.
        rounds: of message passing, of which each reaches as far as the cutoff.
        dtype: name of the type in which it computes.
        wants: the type of the vectors that it is given.
        scale, shift: what its energies of atoms are multiplied by, and what is added then.
    """

    def __init__(self, energies: nn.Module, elements: list[int], cutoff: float, rounds: int,
                 dtype: str, wants: torch.dtype, scale: float, shift: float) -> None:  # fmt: skip
        super().__init__()
        self.energies, self.wants, self.scale, self.shift = energies, wants, scale, shift
        self.model_type, self.atom_type, self.dtype = "EDGE", elements, dtype
        self.cutoff, self.interaction_range = cutoff, rounds * cutoff

    def data(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor) -> dict[str, Tensor]:
        """Atoms and edges, by the names that NequIP has for them."""
        return {
            "pos": torch.zeros(types.size(0), 3, dtype=self.wants, device=edge_vec.device),
            "edge_index": edge_index,
            "edge_vectors": edge_vec.to(self.wants),
            "atom_types": types,
        }

    def scaled(self, data: dict[str, Tensor], nlocal: int) -> Tensor:
        """Energies of atoms [nlocal] from what the model gives."""
        return data["atomic_energy"].flatten()[:nlocal] * self.scale + self.shift

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of atoms [nlocal], as the model contract has it."""
        return self.scaled(self.energies(self.data(edge_vec, edge_index, types)), nlocal)


class NequipRounds(NequipEdges):
    """The same with its forward once more in rounds, one convolution each.

    Args:
        whole: a model of NequIP whose parts follow each other, convolutions among them.
    """

    def __init__(self, whole: NequipEdges) -> None:
        rounds = round(whole.interaction_range / whole.cutoff)
        super().__init__(whole.energies, whole.atom_type, whole.cutoff, rounds, whole.dtype,
                         whole.wants, whole.scale, whole.shift)  # fmt: skip
        parts = list(whole.energies.children())
        convolutions = [n for n, part in enumerate(parts) if part.original_name == CONVOLUTION]
        first, end = convolutions[0], convolutions[-1] + 1
        if convolutions != list(range(first, end)) or whole.energies.original_name != SEQUENCE:
            raise ValueError("its convolutions do not follow each other")
        self.embedding = nn.ModuleList(parts[:first])
        self.convolutions = nn.ModuleList(parts[first:end])
        self.readout = nn.ModuleList(parts[end:])
        self.widths = widths(self, len(convolutions) - 1, whole.wants)

    def prepared(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor) -> dict[str, Tensor]:
        """What convolutions take."""
        data = self.data(edge_vec, edge_index, types)
        for part in self.embedding:
            data = part(data)
        return data

    def convolved(self, data: dict[str, Tensor], k: int, nlocal: int) -> Tensor:
        """Features of atoms [nlocal, n] after convolution k."""
        for n, part in enumerate(self.convolutions):
            if n == k:
                data = part(data)
        return data["node_features"][:nlocal]

    @torch.jit.export
    def start(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Features of atoms [nlocal, widths[0]], after the first convolution."""
        return self.convolved(self.prepared(edge_vec, edge_index, types), 0, nlocal)

    @torch.jit.export
    def round(self, k: int, features: Tensor, edge_vec: Tensor, edge_index: Tensor, types: Tensor,
              nlocal: int) -> Tensor:  # fmt: skip
        """Features of atoms [nlocal, n] after one more, from those of all atoms."""
        data = self.prepared(edge_vec, edge_index, types)
        data["node_features"] = features
        return self.convolved(data, k + 1, nlocal)

    @torch.jit.export
    def finish(self, features: Tensor, edge_vec: Tensor, edge_index: Tensor, types: Tensor,
               nlocal: int) -> Tensor:  # fmt: skip
        """Energies of atoms [nlocal]; they have no edges any more."""
        data = self.prepared(edge_vec[:0], edge_index[:, :0], types[:nlocal])
        data["node_features"] = features
        for part in self.readout:
            data = part(data)
        return self.scaled(data, nlocal)


def read(source: Source) -> Foreign | None:
    """The model of a file of NequIP or Allegro; None for files of others.

    Raises:
        Failure: it is of another architecture, or its types are no elements.
    """
    if not re.match(PACKAGE, source.class_name):
        return None
    deployed = source.class_name == DEPLOYED
    if not (deployed or CLASS.fullmatch(source.class_name)):
        raise Failure(
            f"'{source.path}' is a model of NequIP of class {source.class_name}; expected what "
            "nequip-deploy of release 0.6 or nequip-compile writes"
        )
    metadata: dict[str, Any] = dict.fromkeys((CUTOFF, NAMES, DTYPE), "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as in model_file.load
        module: Any = torch.jit.load(io.BytesIO(source.contents), "cpu", metadata).eval()
    if missing := [name for name, text in metadata.items() if not text]:
        raise Failure(
            f"'{source.path}' is a model of NequIP without {', '.join(missing)} in its metadata; "
            "make it again with nequip-compile, or nequip-deploy of release 0.6"
        )
    names, dtype = metadata[NAMES].decode().split(), metadata[DTYPE].decode()
    elements = [atomic_numbers.get(name, 0) for name in names]
    if not all(elements):
        raise Failure(
            f"'{source.path}' is a model of NequIP for the types {', '.join(names)}, expected "
            "chemical symbols"
        )
    parts = {part.original_name for part in module.modules()}
    rounds = sum(part.original_name == CONVOLUTION for part in module.modules())
    family = "NequIP" if rounds else "Allegro" if "Allegro_Module" in parts else ""
    if not family:
        raise Failure(
            f"'{source.path}' is a model of NequIP's framework whose range cannot be told: it has "
            "neither convolutions of NequIP nor the layers of Allegro"
        )
    cutoff = float(metadata[CUTOFF])
    energies, scale, shift = _energies(source.path, module.model)
    wants = torch.float32 if deployed and dtype == "float32" else torch.float64
    edges = NequipEdges(energies, elements, cutoff, max(1, rounds), dtype, wants, scale, shift)
    return Foreign(
        family=family,
        module=in_rounds(edges, lambda: NequipRounds(edges)) if rounds > 1 else edges,
        evaluate=lambda atoms: _evaluate(module, cutoff, elements, atoms),
        single=dtype == "float32",
        notes={"rounds": str(rounds)} if rounds else {},
    )


def _energies(path: str, outermost: Any) -> tuple[nn.Module, float, float]:
    """The part of a model that gives energies of atoms, and what scales and shifts those."""
    part, scalings = outermost, []
    while (rescales := part.original_name == "RescaleOutput") or hasattr(part, "func"):
        if rescales:
            scalings.append(part)
        part = part.model if rescales else part.func
    scale, shift = 1.0, 0.0
    for scaling in reversed(scalings):  # the innermost first
        if scaling.has_scale and ATOMS in scaling.scale_keys:
            scale, shift = scale * float(scaling.scale_by), shift * float(scaling.scale_by)
        if scaling.has_shift:
            constant = float(scaling.shift_by)
            if ATOMS in scaling.shift_keys:
                shift += constant
            elif ALL in scaling.shift_keys and constant != 0.0:
                raise Failure(
                    f"'{path}' is a model of NequIP that adds {constant:g} eV to the energy of any "
                    "number of atoms (global_rescale_shift), which energies of atoms cannot; train "
                    "it with per_species_rescale_shifts instead"
                )
    return part, scale, shift


def _evaluate(module: Any, cutoff: float, elements: list[int], atoms: Atoms) -> Numbers:
    i, j = neighbor_list("ij", atoms, cutoff)
    data = {
        "pos": torch.from_numpy(atoms.positions),
        "edge_index": torch.from_numpy(np.stack((i, j))),
        "atom_types": torch.tensor([elements.index(z) for z in atoms.numbers]),
    }
    with torch.jit.optimized_execution(False):
        results = module(data)
    return Numbers.from_tensors(results["atomic_energy"], results["forces"])
