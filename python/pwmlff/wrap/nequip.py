"""NequIP and Allegro models as `nequip-compile --mode torchscript` writes them (.nequip.pth).

They run with torch alone: of the model in the file, the part that gives energies of atoms.

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

from pwmlff.report import Failure
from pwmlff.structures import neighbor_list
from pwmlff.wrap.foreign import Foreign, Numbers, Source

#: Names of the class; that of a package (torch.package) has the number of the package before it.
CLASS = re.compile(r"(_torch_package_\d+_\.)?nequip\.nn\.graph_model\.GraphModel")
#: Metadata of the file.
CUTOFF, NAMES, DTYPE = "r_max", "type_names", "model_dtype"


class NequipEdges(nn.Module):
    """A NequIP or Allegro model by edges. It casts what it is given, which has to be float64."""

    def __init__(
        self, energies: nn.Module, elements: list[int], cutoff: float, rounds: int, dtype: str
    ) -> None:
        super().__init__()
        self.energies = energies
        self.model_type, self.atom_type, self.dtype = "EDGE", elements, dtype
        self.cutoff, self.interaction_range = cutoff, rounds * cutoff

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of atoms [nlocal], as the model contract has it."""
        data = {
            "pos": torch.zeros(types.size(0), 3, dtype=torch.float64, device=edge_vec.device),
            "edge_index": edge_index,
            "edge_vectors": edge_vec.to(torch.float64),
            "atom_types": types,
        }
        energies: Tensor = self.energies(data)["atomic_energy"]
        return energies.flatten()[:nlocal]


def read(source: Source) -> Foreign | None:
    """The model of a file of NequIP or Allegro; None for files of others.

    Raises:
        Failure: it is of another architecture, or its types are no elements.
    """
    if not CLASS.fullmatch(source.class_name):
        return None
    told: dict[str, Any] = dict.fromkeys((CUTOFF, NAMES, DTYPE), "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as in model_file.load
        module: Any = torch.jit.load(io.BytesIO(source.contents), "cpu", told).eval()
    names, dtype = told[NAMES].decode().split(), told[DTYPE].decode()
    elements = [atomic_numbers.get(name, 0) for name in names]
    if not all(elements):
        raise Failure(
            f"'{source.path}' is a model of NequIP for the types {', '.join(names)}, expected "
            "chemical symbols"
        )
    parts = {part.original_name for part in module.modules()}
    rounds = sum(part.original_name == "ConvNetLayer" for part in module.modules())
    family = "NequIP" if rounds else "Allegro" if "Allegro_Module" in parts else ""
    if not family:
        raise Failure(
            f"'{source.path}' is a model of NequIP's framework whose range cannot be told: it has "
            "neither convolutions of NequIP nor the layers of Allegro"
        )
    cutoff = float(told[CUTOFF])
    return Foreign(
        family=family,
        module=NequipEdges(module.model.func, elements, cutoff, max(1, rounds), dtype),
        evaluate=lambda atoms: _evaluate(module, cutoff, elements, atoms),
        single=dtype == "float32",
        told={"rounds": str(rounds)} if rounds else {},
    )


def _evaluate(module: Any, cutoff: float, elements: list[int], atoms: Atoms) -> Numbers:
    i, j = neighbor_list("ij", atoms, cutoff)
    data = {
        "pos": torch.from_numpy(atoms.positions),
        "edge_index": torch.from_numpy(np.stack((i, j))),
        "atom_types": torch.tensor([elements.index(z) for z in atoms.numbers]),
    }
    with torch.jit.optimized_execution(False):
        found = module(data)
    return Numbers(
        found["atomic_energy"].detach().double().flatten().numpy(),
        found["forces"].detach().double().numpy(),
    )
