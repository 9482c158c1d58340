"""Deep Potential (DP) with smooth environment matrix, in the TorchScript contract of PWMLFF files.

For atom i of type a, with neighbors j of type b and r_ij = x_j - x_i (M embedding width, M2 axis
width, n the number of entries of the forward argument `atom_type`)::

    s(r)   = 1/r                                    r < Rmin
           = (1/r) (u^3 (-6 u^2 + 15 u - 10) + 1)   Rmin <= r < Rmax, u = (r - Rmin) / (Rmax - Rmin)
           = 0                                      r >= Rmax
    R_j    = s (1, x/r, y/r, z/r)                   [4]
    R~_j   = (R_j - davg[a]) / dstd[a]              [4]; an empty slot holds -davg[a] / dstd[a]
    G_j    = embedding_net[a, b](R~_j[0])           [M]; of (R~_j[0], v_b) with type_vector
    T      = sum over slots of R~_j (x) G_j / (maxNeighborNum n)                [4, M]
    E_i    = fitting_net[a](T^T T[:, :M2]) + sum over j of V_ab(r_ij) / 2

With `sel`, type b has sel[b] slots whether it takes part or not, and T is divided by sum(sel).

With `zbl_radii`, V is the universal repulsion of Ziegler, Biersack and Littmark, else it is zero::

    V(r)   = k Z_a Z_b / r * sum over n of A_n exp(-B_n r/l) * S(r)
    S(r)   = 1 up to inner, (1 + cos(pi (r - inner) / (outer - inner))) / 2 up to outer, 0 beyond

with inner and outer for each pair of types, k = e^2 / (4 pi epsilon_0) and the screening length
l = 1 angstrom / (2.134563 (Z_a^0.23 + Z_b^0.23)), constants as in GPUMD.

Lengths and energies are angstrom and eV (`units` "metal") or reduced ("lj").

Sources: Zhang et al. 2018, arXiv:1805.09003 (DeepPot-SE);
Zhang et al. 2018, doi:10.1103/PhysRevLett.120.143001 (Deep Potential molecular dynamics);
Ziegler, Biersack, Littmark 1985, The Stopping and Range of Ions in Matter (ZBL).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pwmlff.models.nets import Net, members
from pwmlff.models.saving import save_model

UNITS = ("metal", "lj")


@dataclass(frozen=True)
class DPConfig:
    """What defines a DP apart from its parameters.

    Attributes:
        atom_type: atomic numbers, in the order of the model's types.
        rmax: cutoff radius; the environment matrix is zero from here on.
        rmin: radius at which the switch from 1/r to zero starts.
        max_neighbor: slots per neighbor type.
        m2: axis width, at most the last embedding width.
        embedding: widths of the embedding layers; the last one is M.
        fitting: widths of the hidden fitting layers.
        units: LAMMPS unit style of lengths and energies, "metal" or "lj".
        embedding_bias, fitting_bias: whether hidden layers have a bias.
        embedding_resnet_dt, fitting_resnet_dt: whether the steps of residual layers are learned.
        sel: slots of each type where it is not max_neighbor for all, which has to be the largest.
        type_vector: by atomic number, what the one embedding net of all pairs takes of the
            neighbor's element; without it each pair has a net of its own.
        zbl_radii: inner and outer radius of ZBL for each pair of types, [ntypes*ntypes][2], center
            first; (0, 0) for a pair without; empty where there is none. For units "metal".

    Raises:
        ValueError: a value is outside its range; the text names it.
    """

    atom_type: Sequence[int]
    rmax: float
    rmin: float
    max_neighbor: int
    m2: int
    embedding: Sequence[int] = (25, 25, 25)
    fitting: Sequence[int] = (50, 50, 50)
    units: str = "metal"
    embedding_bias: bool = True
    fitting_bias: bool = True
    embedding_resnet_dt: bool = False
    fitting_resnet_dt: bool = True
    sel: Sequence[int] = ()
    type_vector: Mapping[int, Sequence[float]] | None = None
    zbl_radii: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        """Check the values."""
        elements = list(self.atom_type)
        if not elements or len(set(elements)) != len(elements) or min(elements) < 1:
            raise ValueError(
                f"atom_type is {elements}; give at least one atomic number (>= 1), each once"
            )
        if not 0.0 <= self.rmin < self.rmax < math.inf:
            raise ValueError(
                f"rmin is {self.rmin} and rmax is {self.rmax}; 0 <= rmin < rmax is needed"
            )
        if self.max_neighbor < 1:
            raise ValueError(f"max_neighbor is {self.max_neighbor}; give at least 1")
        for name, widths in (("embedding", self.embedding), ("fitting", self.fitting)):
            if not widths or min(widths) < 1:
                raise ValueError(f"{name} is {list(widths)}; give one or more widths >= 1")
        if not 1 <= self.m2 <= self.embedding[-1]:
            raise ValueError(
                f"m2 is {self.m2}; choose it from 1 to the last embedding width, "
                f"{self.embedding[-1]}"
            )
        if self.units not in UNITS:
            raise ValueError(f"units is {self.units!r}; choose one of {', '.join(UNITS)}")
        if self.sel and (
            len(self.sel) != len(elements)
            or min(self.sel) < 1
            or max(self.sel) != self.max_neighbor
        ):
            raise ValueError(
                f"sel is {list(self.sel)}; give a number of slots >= 1 for each of {len(elements)} "
                f"types, the largest being max_neighbor, {self.max_neighbor}"
            )
        if self.type_vector is not None:
            lengths = {len(self.type_vector.get(z, ())) for z in elements}
            if len(lengths) != 1 or 0 in lengths:
                raise ValueError(
                    f"type_vector has vectors of {len(self.type_vector)} elements; give one of the "
                    f"same length for each of {elements}"
                )
        self._check_zbl(len(elements))

    def _check_zbl(self, n: int) -> None:
        if len(self.zbl_radii) not in (0, n * n):
            raise ValueError(
                f"zbl_radii has {len(self.zbl_radii)} pairs; give {n * n}, or none without ZBL"
            )
        if self.zbl_radii and self.units != "metal":
            raise ValueError(f"units is {self.units!r}; zbl_radii is for metal")
        for pair, (inner, outer) in enumerate(self.zbl_radii):
            there = 0.0 <= inner < outer <= self.rmax or inner == outer == 0.0
            if not there or tuple(self.zbl_radii[pair % n * n + pair // n]) != (inner, outer):
                raise ValueError(
                    f"zbl_radii has {inner} and {outer} for types {pair // n} and {pair % n}; give "
                    f"0 <= inner < outer <= {self.rmax}, or 0 and 0, for both orders alike"
                )


def _widths(arrays: Mapping[str, np.ndarray], net: str) -> tuple[int, ...]:
    """Output widths of the layers of a net, from the shapes of its weights."""
    widths: list[int] = []
    while (name := f"{net}.layers.{len(widths)}.weight") in arrays:
        widths.append(arrays[name].shape[-1])
    if not widths:
        raise ValueError(f"the parameters lack {name}; their names start {list(arrays)[:3]}")
    return tuple(widths)


def _has_steps(arrays: Mapping[str, np.ndarray], net: str) -> bool:
    return any(name.startswith(net + ".") and name.endswith("resnet_dt") for name in arrays)


class DP(nn.Module):
    """Deep Potential that scripts to the "DP" contract of PWMLFF and MatPL model files.

    The attributes `Rmax`, `Rmin`, `maxNeighborNum`, `atom_type`, `model_type`, `M2`, `ntypes`,
    `davg`, `dstd` and the names of the parameters are those of that contract. `davg` and `dstd`
    are plain tensors: `to()` does not move them and `state_dict()` does not hold them; forward
    takes them to the device and dtype of the parameters.

    Attributes:
        sel: slots of each type; empty where all have maxNeighborNum.
        type_vector: by atomic number, what the embedding net takes beside R~[0], in float32 as
            TorchScript makes tensors of lists; empty where each pair of types has its own net.
        pairs: of types, center first, that each embedding net is for.
        zbl_radii: as in `DPConfig`.
        grade_mean, grade_factor: float64 [ntypes, n] and [ntypes, n, n] of the last hidden layer of
            the fitting nets (:mod:`pwmlff.train.extrapolation`), for the fused engine; or empty.

    Args:
        config: cutoff, widths and elements.
        davg: mean of the environment matrix; [ntypes, 4] (one row per center type) or
            [ntypes, ntypes*max_neighbor*4]; zero when not given.
        dstd: its standard deviation, same shapes, all positive; one when not given.
        energy_shift: energy per atom to start from [ntypes], the bias of the last fitting layer.
        seed: of the random parameters; the same seed gives the same model.

    Raises:
        ValueError: an array has the wrong shape, or dstd is not positive.
    """

    sel: list[int]
    type_vector: dict[int, list[float]]
    pairs: list[list[int]]
    zbl_radii: list[list[float]]

    def __init__(
        self,
        config: DPConfig,
        *,
        davg: Any = None,
        dstd: Any = None,
        energy_shift: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.Rmax = float(config.rmax)
        self.Rmin = float(config.rmin)
        self.maxNeighborNum = int(config.max_neighbor)
        self.atom_type = [int(z) for z in config.atom_type]
        self.model_type = "DP"
        self.M2 = int(config.m2)
        self.ntypes = len(self.atom_type)
        self.units: str = config.units
        self.sel = [int(n) for n in config.sel]
        vectors = config.type_vector or {}
        self.type_vector = {
            z: np.asarray(vectors[z], np.float32).tolist() for z in self.atom_type if vectors
        }
        self.zbl_radii = [[float(r) for r in radii] for radii in config.zbl_radii]
        self.davg = self._statistics("davg", davg, 0.0)
        self.dstd = self._statistics("dstd", dstd, 1.0)
        self.grade_mean = torch.zeros(0, dtype=torch.float64)
        self.grade_factor = torch.zeros(0, dtype=torch.float64)
        if self.sel:
            shape = (self.ntypes, self.ntypes, self.maxNeighborNum, 4)
            for name, values in (("davg", self.davg), ("dstd", self.dstd)):
                slots = values.view(shape)
                if not torch.equal(slots, slots[:, :, :1].expand(shape)):
                    raise ValueError(
                        f"{name} differs between the slots of one pair of types, which sel does "
                        "not allow"
                    )
        if not bool((self.dstd > 0.0).all()):
            raise ValueError(
                f"dstd has the smallest entry {float(self.dstd.min())}; all must be positive"
            )

        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        embedding, fitting = tuple(config.embedding), tuple(config.fitting)
        pairs = list(range(self.ntypes**2))
        self.pairs = [pairs] if vectors else [[pair] for pair in pairs]
        n_in = 1 + len(next(iter(vectors.values()), ()))
        of_embedding = {"bias": config.embedding_bias, "resnet_dt": config.embedding_resnet_dt}
        of_fitting = {"bias": config.fitting_bias, "resnet_dt": config.fitting_resnet_dt}
        self.embedding_net = members(
            Net(n_in, embedding, generator, fitting=False, **of_embedding) for _ in self.pairs
        )
        self.fitting_net = members(
            Net(embedding[-1] * self.M2, fitting, generator, fitting=True, **of_fitting)
            for _ in range(self.ntypes)
        )
        shift = np.zeros(self.ntypes) if energy_shift is None else np.asarray(energy_shift, float)
        if shift.shape != (self.ntypes,):
            raise ValueError(
                f"energy_shift has shape {shift.shape}; give one energy for each of the "
                f"{self.ntypes} types"
            )
        with torch.no_grad():
            for net, value in zip(self.fitting_net, shift, strict=True):
                net.energy_bias().fill_(float(value))

    def _statistics(self, name: str, values: Any, default: float) -> Tensor:
        """One number per type and component, or the full array, as [ntypes, slots*4]."""
        slots = self.ntypes * self.maxNeighborNum
        full = (self.ntypes, slots * 4)
        if values is None:
            return torch.full(full, default, dtype=torch.float64)
        array = torch.as_tensor(values, dtype=torch.float64).detach().clone()
        if array.shape == (self.ntypes, 4):
            return array.repeat(1, slots)
        if array.shape != full:
            raise ValueError(
                f"{name} has shape {tuple(array.shape)}; expected {full} or {(self.ntypes, 4)}"
            )
        return array

    def arrays(self) -> dict[str, np.ndarray]:
        """What the fused engine is made of (kernels/families/dp/read_dp.h), in float64."""
        n, slots = self.ntypes, self.maxNeighborNum
        arrays: dict[str, Any] = {
            "rmin": self.Rmin,
            "rmax": self.Rmax,
            "m2": self.M2,
            "atom_type": self.atom_type,
            "all_species": bool(self.sel),
            "sel": self.sel or [slots] * n,
            "davg": self.davg.view(n, n, slots, 4)[:, :, 0],
            "dstd": self.dstd.view(n, n, slots, 4)[:, :, 0],
            **{name: parameter.detach() for name, parameter in self.named_parameters()},
        }
        if self.zbl_radii:
            arrays["zbl_radii"] = self.zbl_radii
        if self.type_vector:
            arrays["type_vector"] = [self.type_vector[z] for z in self.atom_type]
        if len(self.grade_mean):
            arrays |= {"grade_mean": self.grade_mean, "grade_factor": self.grade_factor}
        return {name: np.asarray(values, np.float64) for name, values in arrays.items()}

    @classmethod
    def from_parameters(cls, params: Mapping[str, Any], **settings: Any) -> "DP":
        """Model from plain arrays with the names of the parameters, `davg` and `dstd`.

        Args:
            params: `embedding_net.{i*ntypes+j}.layers.{k}.{weight,bias}`,
                `fitting_net.{i}.layers.{k}.{weight,bias,resnet_dt}`, `davg`, `dstd`;
                an npz file that numpy opened will do. Widths come from the shapes, what the layers
                have from the names.
            settings: atom_type, rmax, rmin, max_neighbor, m2, units, sel, type_vector,
                zbl_radii, as in `DPConfig`.

        Raises:
            ValueError: an array is missing, left over or has the wrong shape.
        """
        arrays = {name: np.asarray(params[name], dtype=np.float64) for name in params}
        settings["sel"] = tuple(settings.get("sel", ()))
        config = DPConfig(
            **settings,
            embedding=_widths(arrays, "embedding_net.0"),
            fitting=_widths(arrays, "fitting_net.0")[:-1],
            embedding_bias="embedding_net.0.layers.0.bias" in arrays,
            fitting_bias="fitting_net.0.layers.0.bias" in arrays,
            embedding_resnet_dt=_has_steps(arrays, "embedding_net.0"),
            fitting_resnet_dt=_has_steps(arrays, "fitting_net.0"),
        )
        for name in ("davg", "dstd"):
            if name not in arrays:
                raise ValueError(
                    f"the parameters lack {name}; give it with shape [ntypes, slots*4]"
                )
        model = cls(config, davg=arrays.pop("davg"), dstd=arrays.pop("dstd"), seed=0)
        own = dict(model.named_parameters())
        if own.keys() != arrays.keys():
            missing = sorted(own.keys() - arrays.keys())
            extra = sorted(arrays.keys() - own.keys())
            raise ValueError(
                f"the parameters do not fit {len(config.atom_type)} types with embedding "
                f"{list(config.embedding)} and fitting {list(config.fitting)}: "
                f"missing {missing or 'none'}, unknown {extra or 'none'}"
            )
        with torch.no_grad():
            for name, parameter in own.items():
                if arrays[name].shape != tuple(parameter.shape):
                    raise ValueError(
                        f"{name} has shape {arrays[name].shape}; expected {tuple(parameter.shape)}"
                    )
                parameter.copy_(torch.from_numpy(arrays[name]))
        return model.eval()

    def save(
        self, path: str | PathLike[str], card: Mapping[str, Any] | None = None, record: bool = True
    ) -> str | PathLike[str]:
        """Write the model file, as :func:`pwmlff.models.save_model` does."""
        return save_model(self, path, card, record=record)

    def forward(
        self,
        list_neigh: Tensor,
        Imagetype_map: Tensor,
        atom_type: Tensor,
        ImageDR: Tensor,
        nghost: int,
        Egroup_weight: Tensor | None = None,
        divider: Tensor | None = None,
        is_calc_f: bool | None = True,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Energies, forces = -dE/dx and virial = -sum over edges of r_ij (x) dE/dr_ij.

        Args:
            list_neigh: [B, nlocal, ntypes*maxNeighborNum] 1-based index of the neighbor into
                local and ghost atoms, 0 for an empty slot; the slots of model type t are
                t*maxNeighborNum ... (t+1)*maxNeighborNum - 1.
            Imagetype_map: [nlocal] 0-based index into the model's `atom_type`.
            atom_type: [n] atomic numbers that take part; slots of others are ignored, and the
                descriptor is divided by maxNeighborNum * n.
            ImageDR: [B, nlocal, ntypes*maxNeighborNum, 4] r, dx, dy, dz of r_ij = x_j - x_i.
            nghost: number of ghost atoms.
            Egroup_weight: [B, m, nlocal] weights of the group energies.
            divider: [B, m] what the group energies are divided by.
            is_calc_f: whether forces and virial are wanted.

        Returns:
            Etot [B, 1]; Ei [B, nlocal], grouped by type in the order of `atom_type`, atoms of a
            type in their own order; Force [B, nlocal+nghost, 3]; Egroup [B, m] or None;
            Virial [B, 9] row-major, with the sign of LAMMPS's `virial`. Force and Virial are None
            without is_calc_f. All in the dtype of the parameters. Outputs carry a graph only in
            training mode or when ImageDR requires a gradient. Forces come from autograd: call this
            with gradients enabled, not inside torch.no_grad().

        Raises:
            ValueError: (torch.jit.Error once scripted) an element or an atom does not belong to
                the model or to `atom_type`.
        """
        width = self.maxNeighborNum
        dtype = self.fitting_net[0].layers[0].weight.dtype
        nbatch, nlocal = list_neigh.size(0), list_neigh.size(1)
        present = self._present(atom_type)
        used = (list_neigh > 0) & (ImageDR[:, :, :, 0] < self.Rmax)
        order, natoms, nslots = self._extent(present, Imagetype_map, used)

        # Atoms sorted by species; slots of the species present, each cut at its last one in use.
        columns: list[Tensor] = []
        for species, n in zip(present, nslots):  # noqa: B905 (TorchScript knows no strict)
            columns.append(torch.arange(species * width, species * width + n, device=used.device))
        slots = torch.cat(columns)
        neigh = list_neigh.index_select(2, slots).index_select(1, order)
        dr = ImageDR.index_select(2, slots).index_select(1, order).to(dtype)
        used = used.index_select(2, slots).index_select(1, order)

        # Slots not in use take 0/1 for 1/r: nothing divides by zero, also in the gradients.
        inv_r = used.to(dtype) / torch.where(used, dr[..., 0], 1.0)  # [B, nlocal, slots]
        d = dr[..., 1:]  # [B, nlocal, slots, 3]
        s, s_prime = self._switch(dr[..., 0], inv_r)
        s_over_r = s * inv_r
        env = torch.cat((s.unsqueeze(-1), s_over_r.unsqueeze(-1) * d), -1)

        keep_graph = self.training or ImageDR.requires_grad
        want_force = is_calc_f is None or is_calc_f
        force: Tensor | None = None
        virial: Tensor | None = None
        blocks, dstd_blocks = self._blocks(env, present, natoms, nslots, keep_graph)
        scale = 1.0 / (sum(self.sel) if len(self.sel) > 0 else width * atom_type.size(0))
        energy = self._energies(blocks, present, natoms, nslots, scale)  # [B, nlocal]
        of_nets = energy.sum()
        repulsion, by_r = self._repulsion(dr[..., 0], inv_r, present, natoms, nslots)
        energy = energy + repulsion
        if want_force:
            grad_env = torch.zeros_like(env)
            if nlocal > 0:
                gradients = torch.autograd.grad(
                    [of_nets], blocks, create_graph=keep_graph, allow_unused=True
                )
                grad_env = _assemble(list(gradients), blocks, dstd_blocks, len(present))
            # dE/dr_ij, with q = s/r: q a + ((a0 s' + (a.d) q') / r) d for dE/denv = (a0, a)
            a0, a = grad_env[..., 0], grad_env[..., 1:]
            q_prime = (s_prime - s_over_r) * inv_r
            radial = (a0 * s_prime + (a * d).sum(-1) * q_prime + by_r) * inv_r
            edge = s_over_r.unsqueeze(-1) * a + radial.unsqueeze(-1) * d
            force = _scatter_force(edge, neigh, order, nlocal + nghost)
            virial = -torch.matmul(
                d.reshape(nbatch, -1, 3).transpose(1, 2), edge.reshape(nbatch, -1, 3)
            ).reshape(nbatch, 9)
        if not keep_graph:
            energy = energy.detach()
        group: Tensor | None = None
        if Egroup_weight is not None:
            group = torch.matmul(Egroup_weight.to(dtype), energy.unsqueeze(-1)).squeeze(-1)
            if divider is not None:
                group = group / divider
        return energy.sum(1, keepdim=True), energy, force, group, virial

    def _present(self, atom_type: Tensor) -> list[int]:
        """Species that take part, each once, in the order of the argument; with sel all."""
        numbers: list[int] = atom_type.to(torch.int64).tolist()
        present: list[int] = []
        for number in numbers:
            if number not in self.atom_type:
                raise ValueError(
                    f"atom_type holds {number}; this model knows the elements {self.atom_type}"
                )
            species = self.atom_type.index(number)
            if species not in present:
                present.append(species)
        for species in range(self.ntypes):
            if len(self.sel) > 0 and species not in present:
                present.append(species)
        return present

    def _extent(
        self, present: list[int], image_type: Tensor, used: Tensor
    ) -> tuple[Tensor, list[int], list[int]]:
        """Order of the atoms by species [nlocal]; of each its atoms and its last used slot + 1."""
        device = used.device
        ranks = [-1] * self.ntypes
        for position, species in enumerate(present):
            ranks[species] = position
        rank = torch.tensor(ranks, device=device)[image_type.to(torch.int64)]
        last = self._last_used(used)
        # The only transfer to the host.
        sizes: list[int] = torch.cat(
            (torch.bincount(rank + 1, minlength=len(present) + 1), last, self._most_used(used))
        ).tolist()
        if sizes[0] > 0:
            raise ValueError(
                f"{sizes[0]} local atoms are of elements that the argument atom_type lacks; "
                "pass the elements of all local atoms"
            )
        natoms = sizes[1 : len(present) + 1]
        nslots = [sizes[len(present) + 1 + species] for species in present]
        for species, most in enumerate(sizes[len(present) + 1 + self.ntypes :]):
            if most > self.sel[species]:
                raise ValueError(
                    f"an atom has {most} neighbors of atomic number {self.atom_type[species]}; "
                    f"the model allows {self.sel[species]}"
                )
        return torch.argsort(rank, stable=True), natoms, nslots

    def _last_used(self, used: Tensor) -> Tensor:
        """Per type, how many slots to evaluate [ntypes]: none of any atom is in use after these."""
        slot = torch.arange(1, self.maxNeighborNum + 1, device=used.device)
        columns = used.reshape(-1, self.ntypes, self.maxNeighborNum).any(0).to(torch.int64)
        return (columns * slot).max(1)[0]

    def _most_used(self, used: Tensor) -> Tensor:
        """Per type, the most slots that an atom uses [ntypes]; nothing without sel [0]."""
        if len(self.sel) == 0:
            return torch.zeros(0, dtype=torch.int64, device=used.device)
        counts = used.reshape(-1, self.ntypes, self.maxNeighborNum).sum(2)
        return torch.cat((counts, counts.new_zeros(1, self.ntypes))).max(0)[0]

    def _switch(self, r: Tensor, inv_r: Tensor) -> tuple[Tensor, Tensor]:
        """s(r) and ds/dr; zero where inv_r is zero."""
        width = self.Rmax - self.Rmin
        u = ((r - self.Rmin) / width).clamp(0.0, 1.0)
        decay = u * u * u * (u * (15.0 - 6.0 * u) - 10.0) + 1.0
        slope = u * (1.0 - u)
        s = inv_r * decay
        return s, -inv_r * (s + (30.0 / width) * slope * slope)

    def _repulsion(
        self, r: Tensor, inv_r: Tensor, present: list[int], natoms: list[int], nslots: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Half of ZBL of all pairs: energies [B, nlocal] and derivatives by r [B, nlocal, slots].

        Args:
            r, inv_r: [B, nlocal, slots], atoms and slots by species; inv_r is zero in those that
                are not in use.
            present, natoms, nslots: as :meth:`_blocks` takes them.
        """
        if len(self.zbl_radii) == 0:
            return r.new_zeros(r.size(0), r.size(1)), torch.zeros_like(r)
        energies: list[Tensor] = []
        slopes: list[Tensor] = []
        first_atom = 0
        for center, n in zip(present, natoms):  # noqa: B905
            energy = r.new_zeros(r.size(0), n)
            parts: list[Tensor] = []
            first_slot = 0
            for species, m in zip(present, nslots):  # noqa: B905
                part = r[:, first_atom : first_atom + n, first_slot : first_slot + m]
                inverse = inv_r[:, first_atom : first_atom + n, first_slot : first_slot + m]
                value, slope = self._zbl(part, inverse, center, species)
                energy = energy + 0.5 * value.sum(-1)
                parts.append(0.5 * slope)
                first_slot += m
            energies.append(energy)
            slopes.append(torch.cat(parts, 2))
            first_atom += n
        return torch.cat(energies, 1), torch.cat(slopes, 1)

    def _zbl(self, r: Tensor, inv_r: Tensor, center: int, species: int) -> tuple[Tensor, Tensor]:
        """ZBL of pairs of two types and its derivative by r, in the shape of r."""
        inner, outer = self.zbl_radii[center * self.ntypes + species]
        width = max(outer - inner, 1e-9)  # there may be no such pair
        z1, z2 = float(self.atom_type[center]), float(self.atom_type[species])
        scale = 2.134563 * (z1**0.23 + z2**0.23)  # 1/angstrom, as in GPUMD
        repelled = (r < outer) & (inv_r > 0.0)
        r = torch.where(repelled, r, 1.0)
        total, slope = torch.zeros_like(r), torch.zeros_like(r)
        for a, b in ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162)):
            term = a * torch.exp(-b * scale * r)
            total = total + term
            slope = slope - b * scale * term
        bare = 14.399645 * z1 * z2 / r  # e^2 / (4 pi epsilon_0) in eV angstrom, as in GPUMD
        slope = bare * (slope - total / r)
        total = bare * total
        phase = math.pi * ((r - inner) / width).clamp(0.0, 1.0)
        switch = 0.5 * (1.0 + torch.cos(phase))
        slope = slope * switch - total * (0.5 * math.pi / width) * torch.sin(phase)
        return torch.where(repelled, total * switch, 0.0), torch.where(repelled, slope, 0.0)

    def _blocks(
        self,
        env: Tensor,
        present: list[int],
        natoms: list[int],
        nslots: list[int],
        keep_graph: bool,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Normalized environment per pair of species [B, natoms, nslots, 4], and its divisor.

        Without keep_graph the blocks start a graph of their own.
        """
        shape = [self.ntypes, self.ntypes, self.maxNeighborNum, 4]
        davg = self.davg.to(env.device, env.dtype).view(shape)
        dstd = self.dstd.to(env.device, env.dtype).view(shape)
        blocks: list[Tensor] = []
        divisors: list[Tensor] = []
        first_atom = 0
        for center, n in zip(present, natoms):  # noqa: B905
            first_slot = 0
            for species, m in zip(present, nslots):  # noqa: B905
                part = env[:, first_atom : first_atom + n, first_slot : first_slot + m]
                divisor = dstd[center, species, :m]
                block = (part - davg[center, species, :m]) / divisor
                if not keep_graph:
                    block = block.detach()
                if not block.requires_grad:
                    block.requires_grad_(True)
                blocks.append(block)
                divisors.append(divisor)
                first_slot += m
            first_atom += n
        return blocks, divisors

    def _energies(
        self,
        blocks: list[Tensor],
        present: list[int],
        natoms: list[int],
        nslots: list[int],
        scale: float,
    ) -> Tensor:
        """Energies of the atoms sorted by species [B, nlocal]."""
        npresent = len(present)
        shape = [self.ntypes, self.ntypes, self.maxNeighborNum, 4]
        empty = -(self.davg / self.dstd).to(blocks[0].device, blocks[0].dtype).view(shape)
        # Loops over modules are unrolled by TorchScript: they go over all pairs, in model order.
        moments: list[list[Tensor]] = [[] for _ in range(self.ntypes)]
        for index, net in enumerate(self.embedding_net):
            for pair in self.pairs[index]:
                center, species = pair // self.ntypes, pair % self.ntypes
                if center in present and species in present and natoms[present.index(center)] > 0:
                    ci, ki = present.index(center), present.index(species)
                    block = blocks[ci * npresent + ki]
                    # Slots beyond the last one in use are the same for all atoms of a species,
                    # with sel all: there are so many more, or less where there are gaps.
                    rest, times = empty[center, species, nslots[ki] :], 1
                    if len(self.sel) > 0:
                        rest, times = empty[center, species, :1], self.sel[species] - nslots[ki]
                    rows = torch.cat((block.reshape(-1, 4)[:, :1], rest[:, :1]))
                    g = net(self._with_vector(rows, species))  # [B*natoms*nslots + rest, M]
                    n = rows.size(0) - rest.size(0)
                    g_block = g[:n].view(block.size(0), block.size(1), block.size(2), g.size(1))
                    moment = torch.matmul(block.transpose(-1, -2), g_block)
                    moments[center].append(moment + times * torch.matmul(rest.t(), g[n:]))
        energies = [blocks[0].new_zeros(blocks[0].size(0), 0) for _ in range(npresent)]
        for center, net in enumerate(self.fitting_net):
            if len(moments[center]) > 0:
                moment = torch.stack(moments[center]).sum(0) * scale  # [B, natoms, 4, M]
                nbatch, natom = moment.size(0), moment.size(1)
                descriptor = torch.matmul(moment.transpose(-1, -2), moment[..., : self.M2])
                energy = net(descriptor.reshape(nbatch * natom, -1))
                energies[present.index(center)] = energy.view(nbatch, natom)
        return torch.cat(energies, 1)

    def _with_vector(self, rows: Tensor, species: int) -> Tensor:
        """What an embedding net takes: rows [n, 1], and the vector of the neighbor's type."""
        if len(self.type_vector) == 0:
            return rows
        vector = torch.tensor(
            self.type_vector[self.atom_type[species]], dtype=rows.dtype, device=rows.device
        )
        return torch.cat((rows, vector.unsqueeze(0).expand(rows.size(0), -1)), 1)


def _assemble(
    gradients: list[Tensor | None], blocks: list[Tensor], divisors: list[Tensor], npresent: int
) -> Tensor:
    """dE/denv [B, nlocal, slots, 4] from the gradients of the normalized blocks."""
    rows: list[Tensor] = []
    for i in range(npresent):
        parts: list[Tensor] = []
        for j in range(npresent):
            gradient = gradients[i * npresent + j]
            if gradient is None:
                parts.append(torch.zeros_like(blocks[i * npresent + j]))
            else:
                parts.append(gradient / divisors[i * npresent + j])
        rows.append(torch.cat(parts, 2))
    return torch.cat(rows, 1)


def _scatter_force(edge: Tensor, neigh: Tensor, order: Tensor, nall: int) -> Tensor:
    """Force = -dE/dx [B, nall, 3] from dE/dr_ij [B, nlocal, slots, 3], atoms sorted by `order`."""
    nbatch = edge.size(0)
    center = (order + nall * torch.arange(nbatch, device=edge.device).unsqueeze(1)).unsqueeze(-1)
    offset = nall * torch.arange(nbatch, device=edge.device).view(-1, 1, 1)
    # An empty slot adds its zero to its own center: no atom collects all of them.
    target = torch.where(neigh > 0, neigh.to(torch.int64) - 1 + offset, center)
    force = torch.zeros(nbatch * nall, 3, device=edge.device, dtype=edge.dtype)
    force = force.index_add(0, center.reshape(-1), edge.sum(2).reshape(-1, 3))
    force = force.index_add(0, target.reshape(-1), -edge.reshape(-1, 3))
    return force.view(nbatch, nall, 3)
