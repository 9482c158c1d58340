"""Deep Potential by edges, in float64.

Each edge i -> j inside the cutoff adds the outer product of its normalized environment vector and
its embedding to the moment of atom i; the slots that maxNeighborNum leaves empty add one constant
per pair of types, times their number. Formulas as in the DP model contract (docs).

A parameter, buffer or tensor attribute that is not of the contract is refused. A hidden fitting
layer after the first that keeps the width and has no resnet_dt is tanh(..) in some files and
x + tanh(..) in others: the module's own forward says which, on a chain of atoms, and one that
computes neither is refused.

Sources: Zhang et al. 2018, arXiv:1805.09003 (DeepPot-SE);
Zhang et al. 2018, doi:10.1103/PhysRevLett.120.143001 (Deep Potential molecular dynamics);
Ziegler, Biersack, Littmark 1985, The Stopping and Range of Ions in Matter (ZBL).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ase import Atoms
from torch import Tensor, nn

from pwmlff.evaluation import model_file
from pwmlff.evaluation.nep_file import UNIVERSAL
from pwmlff.evaluation.nep_reference import COULOMB, INVERSE_LENGTH
from pwmlff.evaluation.padding import pad_neighbors
from pwmlff.evaluation.structures import neighbor_list

#: By which atomic energies of the module's own forward may differ, as a share of the largest (at
#: least 1), by the type of its parameters.
SAME = {torch.float64: 1e-8, torch.float32: 1e-4}


class DPReference:
    """Parameters of a DP module and the elements that take part.

    Args:
        module: any module with the attributes and parameter names of the DP contract.
        elements: those of the model that are passed as `atom_type`, atomic numbers; how many they
            are divides the descriptor of a model without `sel`.

    Raises:
        ValueError: davg and dstd differ between the slots of one pair of types, which has no
            meaning without slots; a parameter is missing or has another shape, or a parameter or
            tensor is not one of the contract; or fitting layers are of neither form.
    """

    def __init__(self, module: nn.Module, elements: Sequence[int]) -> None:
        needed = ("Rmax", "Rmin", "maxNeighborNum", "M2", "atom_type")
        if missing := [name for name in needed if not hasattr(module, name)]:
            raise ValueError(f"it has no {', '.join(missing)}, which the contract of a DP names")
        contract: Any = module  # of whose attributes torch says that they are tensors or modules
        self.cutoff = float(contract.Rmax)
        self.rmin = float(contract.Rmin)
        self.max_neighbor = int(contract.maxNeighborNum)
        self.axis = int(contract.M2)
        self.known = [int(z) for z in contract.atom_type]
        self.elements = list(elements)
        self.arrays: dict[str, Tensor] = {
            name: values.detach().to("cpu", torch.float64)
            for name, values in module.state_dict().items()
        }
        sel = getattr(module, "sel", ())
        self.sel = model_file.slots_by_type(sel, len(self.known), self.max_neighbor)
        if self.sel:  # slots of all types count, whatever takes part
            self.elements = self.known
        self.vectors = {  # TorchScript makes float32 of lists
            z: torch.tensor(vector, dtype=torch.float32).double()
            for z, vector in model_file.type_vectors(module).items()
        }
        radii = getattr(module, "zbl_radii", None)
        self.zbl_radii = model_file.zbl_radii(radii, len(self.known))
        self.mean = self._per_pair(module, "davg")
        self.deviation = self._per_pair(module, "dstd")
        unclear = self._account(module)
        self.residual = False  # of those layers
        if unclear and not self._computes(module):
            self.residual = True
            if not self._computes(module):
                raise ValueError(
                    f"{unclear[0]} keeps the width and has no resnet_dt; the reference knows such "
                    "a layer as tanh(..) or x + tanh(..), but the model's own forward gives other "
                    "energies with either"
                )

    def _account(self, module: nn.Module) -> list[str]:
        """Check that all parameters and tensors are there and used.

        Returns:
            The hidden fitting layers whose form they do not tell.
        """
        used = {"davg", "dstd", "grade_mean", "grade_factor"}  # the last two are of no energy
        unclear, types = [], range(len(self.known))
        width: int | None = None
        if self.vectors:  # a file may have an embedding net for types, which nothing uses
            used |= {name for name in self.arrays if name.startswith("embedding_net.")}
        n_in = 1 + len(next(iter(self.vectors.values()), ()))
        for net in sorted({self._net(i, j) for i in types for j in types}):
            layers, last = self._checked_layers(f"embedding_net.{net}", n_in)
            used |= {layer + name for layer in layers for name in ("weight", "bias", "resnet_dt")}
            if last < self.axis or width not in (last, None):
                raise ValueError(
                    f"embedding_net.{net} ends with width {last}; expected the same for all "
                    f"nets, and at least M2, {self.axis}"
                )
            width = last
        for net in types:
            layers, last = self._checked_layers(f"fitting_net.{net}", (width or 0) * self.axis)
            used |= {layer + name for layer in layers for name in ("weight", "bias")}
            if last != 1:
                raise ValueError(f"fitting_net.{net} ends with width {last}; expected 1")
            for layer in layers[1:-1]:
                n_in, n_out = self.arrays[layer + "weight"].shape
                if n_in == n_out:
                    used.add(layer + "resnet_dt")
                    if layer + "resnet_dt" not in self.arrays:
                        unclear.append(layer + "weight")
        unknown = sorted(set(_tensors_of_module(module)) - used)
        if unknown:
            raise ValueError(
                f"this model has {', '.join(unknown[:3])}{', ...' * (len(unknown) > 3)}, which the "
                "reference does not use; it computes embedding_net.*.layers.*.{weight,bias} and "
                "fitting_net.*.layers.*.{weight,bias,resnet_dt} with davg and dstd, no more"
            )
        return unclear

    def _checked_layers(self, net: str, n_in: int) -> tuple[list[str], int]:
        """Layers of a net that takes n_in values, all with a bias from now on; its last width."""
        layers = self._layers(net)
        if not layers:
            raise ValueError(f"this model has no {net}.layers.0.weight; every net needs a layer")
        for layer in layers:
            weight = self.arrays[layer + "weight"]
            bias = self.arrays.setdefault(layer + "bias", weight.new_zeros(1, weight.shape[-1]))
            if weight.ndim != 2 or len(weight) != n_in or bias.numel() != weight.shape[1]:
                raise ValueError(
                    f"{layer}weight and bias have shapes {list(weight.shape)} and "
                    f"{list(bias.shape)}; expected [{n_in}, width] and [1, width]"
                )
            n_in = weight.shape[1]
        return layers, n_in

    def _computes(self, module: nn.Module) -> bool:
        """Whether the module's own forward gives these energies for a chain of atoms."""
        elements = list(dict.fromkeys(self.elements))
        places = [(0.6 * self.cutoff * k, 0.0, 0.0) for k in range(len(elements))]
        chain = Atoms(elements, places)
        inputs = pad_neighbors(chain, self.known, self.cutoff, self.max_neighbor)
        inputs = inputs._replace(atom_type=torch.tensor(elements, dtype=torch.int32))
        try:
            with torch.jit.optimized_execution(False):
                theirs = module(*inputs)[1].detach().to("cpu", torch.float64).flatten()
        except RuntimeError as error:
            raise ValueError(
                "the model's own forward, which has to say what fitting layers without resnet_dt "
                f"are, fails on a chain of {len(chain)} atoms: {error}"
            ) from error
        i, j, vectors = neighbor_list("ijD", chain, self.cutoff)
        own = self.atom_energies(
            torch.from_numpy(vectors),
            torch.from_numpy(np.stack((i, j))),
            torch.from_numpy(chain.numbers),
        )
        gate = SAME[next(iter(module.parameters())).dtype]
        return bool((theirs - own).abs().max() <= gate * max(1.0, float(own.abs().max())))

    def _per_pair(self, module: nn.Module, name: str) -> Tensor:
        """davg or dstd as [center type, neighbor type, 4], from [ntypes, slots*4]."""
        n = len(self.known)
        values = torch.as_tensor(getattr(module, name)).detach().to("cpu", torch.float64)
        values = values.reshape(n, n, self.max_neighbor, 4)
        if not torch.equal(values, values[:, :, :1].expand_as(values)):
            raise ValueError(
                f"{name} differs between slots of one pair of types; the reference needs one value "
                "per pair and component"
            )
        return values[:, :, 0]

    def atom_energies(self, edge_vec: Tensor, edge_index: Tensor, numbers: Tensor) -> Tensor:
        """Energies [n] from edge_vec [E, 3], edge_index [2, E] (center, neighbor), numbers [n].

        Raises:
            ValueError: an atom has more than maxNeighborNum neighbors of one type.
        """
        environment = self._environment(edge_vec)
        distances = edge_vec.norm(dim=1)
        energies = torch.zeros(len(numbers), dtype=torch.float64)
        for a in dict.fromkeys(self.elements):
            centers = torch.nonzero(numbers == a).flatten()
            if len(centers) == 0:
                continue
            row = torch.full((len(numbers),), -1)
            row[centers] = torch.arange(len(centers))
            moment = torch.zeros((), dtype=torch.float64)
            for b in dict.fromkeys(self.elements):
                pick = (numbers[edge_index[0]] == a) & (numbers[edge_index[1]] == b)
                rows = row[edge_index[0][pick]]
                moment = moment + self._moment(a, b, environment[pick], rows, centers)
                if self.zbl_radii:
                    pairs = self._repulsion(a, b, distances[pick])
                    energies = energies.index_add(0, edge_index[0][pick], 0.5 * pairs)
            moment = moment / sum(self._slots(b) for b in self.elements)
            descriptor = torch.einsum("ncm,nck->nmk", moment, moment[:, :, : self.axis])
            energies = energies.index_add(0, centers, self._fit(a, descriptor.flatten(1)))
        return energies

    def _environment(self, edge_vec: Tensor) -> Tensor:
        """s(r) (1, x/r, y/r, z/r) of every edge [E, 4]."""
        r = edge_vec.norm(dim=1)
        u = (r - self.rmin) / (self.cutoff - self.rmin)
        switch = 1.0 - 10.0 * u**3 + 15.0 * u**4 - 6.0 * u**5
        switch = torch.where(r < self.rmin, torch.ones_like(r), switch)
        s = torch.where(r < self.cutoff, switch, torch.zeros_like(r)) / r
        return torch.cat((s[:, None], (s / r)[:, None] * edge_vec), dim=1)

    def _moment(self, a: int, b: int, environment: Tensor, rows: Tensor, centers: Tensor) -> Tensor:
        """Sum of R~ (x) G over all slots for neighbors b of the atoms `centers` of element a.

        environment [E, 4] and rows [E] (index into centers) are those of the edges a -> b.
        Returns [len(centers), 4, M].
        """
        i, j = self.known.index(a), self.known.index(b)
        counts = torch.bincount(rows, minlength=len(centers))
        if int(counts.max()) > self._slots(b):
            raise ValueError(
                f"atom {int(centers[counts.argmax()])} has {int(counts.max())} neighbors of type "
                f"{j} (atomic number {b}) inside the cutoff {self.cutoff}; the model allows "
                f"{self._slots(b)}"
            )
        scaled = (environment - self.mean[i, j]) / self.deviation[i, j]
        outer = torch.einsum("ec,em->ecm", scaled, self._embed(i, j, scaled[:, 0]))
        blank = (-self.mean[i, j] / self.deviation[i, j]).reshape(1, 4)
        constant = torch.einsum("ec,em->cm", blank, self._embed(i, j, blank[:, 0]))
        empty = (self._slots(b) - counts).to(torch.float64)
        return (empty[:, None, None] * constant).index_add(0, rows, outer)

    def _repulsion(self, a: int, b: int, r: Tensor) -> Tensor:
        """ZBL [E] of pairs of the elements a and b at distances r [E]: Ziegler et al. 1985."""
        inner, outer = self.zbl_radii[self.known.index(a) * len(self.known) + self.known.index(b)]
        x = r * (a**0.23 + b**0.23) * INVERSE_LENGTH
        screening = sum(share * torch.exp(-rate * x) for share, rate in UNIVERSAL)
        switch = torch.cos(0.5 * torch.pi * (r - inner) / ((outer - inner) or 1.0)) ** 2
        switch = torch.where(r < inner, 1.0, switch)
        return torch.where(r < outer, COULOMB * a * b * screening * switch / r, 0.0)

    def _slots(self, element: int) -> int:
        """Of neighbors of an element."""
        return self.sel[self.known.index(element)] if self.sel else self.max_neighbor

    def _net(self, i: int, j: int) -> int:
        """The embedding net of the pair (center type i, neighbor type j); the last one of all."""
        if not self.vectors:
            return i * len(self.known) + j
        return max(int(name.split(".")[1]) for name in self.arrays if "embedding_net." in name)

    def _embed(self, i: int, j: int, values: Tensor) -> Tensor:
        """Embedding net of the pair (center type i, neighbor type j), [E] -> [E, M]."""
        x = values[:, None]
        if self.vectors:
            vector = self.vectors[self.known[j]]
            x = torch.cat((x, vector.repeat(len(x), 1)), dim=1)
        for layer in self._layers(f"embedding_net.{self._net(i, j)}"):
            y = torch.tanh(self._linear(layer, x))
            if y.shape[1] in (x.shape[1], 2 * x.shape[1]):
                y = y * self.arrays.get(layer + "resnet_dt", 1.0)
                y = y + x.repeat(1, y.shape[1] // x.shape[1])
            x = y
        return x

    def _fit(self, a: int, descriptor: Tensor) -> Tensor:
        """Fitting net of element a, [n, M*M2] -> [n]."""
        *hidden, last = self._layers(f"fitting_net.{self.known.index(a)}")
        x = descriptor
        for layer in hidden:
            y = torch.tanh(self._linear(layer, x))
            if layer != hidden[0] and x.shape == y.shape:
                if layer + "resnet_dt" in self.arrays:
                    y = x + self.arrays[layer + "resnet_dt"] * y
                elif self.residual:
                    y = x + y
            x = y
        return self._linear(last, x)[:, 0]

    def _linear(self, layer: str, x: Tensor) -> Tensor:
        return x @ self.arrays[layer + "weight"] + self.arrays[layer + "bias"]

    def _layers(self, net: str) -> list[str]:
        """Name prefixes of the layers of a net, in order."""
        prefixes: list[str] = []
        while (prefix := f"{net}.layers.{len(prefixes)}.") + "weight" in self.arrays:
            prefixes.append(prefix)
        return prefixes


def _tensors_of_module(module: nn.Module) -> Iterator[str]:
    """Names of all tensors of a module: parameters, buffers, attributes and what they hold.

    Elements of lists, tuples and dictionaries have their index or key as another part of the name.
    """
    for path, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, torch.jit.ScriptModule):
            names = [*part._concrete_type.get_attributes()]  # noqa: SLF001  no other way
        else:
            own = vars(part).keys() - vars(nn.Module()).keys()
            names = [*part._parameters, *part._buffers, *own]  # noqa: SLF001  all, tensors or None
        for name in names:
            yield from _tensors_of(f"{path}.{name}".lstrip("."), getattr(part, name))


def _tensors_of(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Tensor):
        yield name
    elif isinstance(value, Mapping | list | tuple):
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, entry in entries:
            yield from _tensors_of(f"{name}.{key}", entry)
