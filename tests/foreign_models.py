"""Files as DeePMD-kit, MACE and NequIP write them, in small: their names, a forward of its own.

What those programs themselves write is compared by benchmarks/families.py.
"""

import io
import itertools
import math
import sys
import zipfile
from collections.abc import Sequence
from functools import partial
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dp_oracle
from pwmlff.evaluation.nep_file import Nep


def save(model: nn.Module, path):
    """Write a file; a model of DeePMD-kit calls its operator there, which torch alone has not."""
    torch.jit.script(model.eval()).save(str(path))
    if not isinstance(model, EnergyModel):
        return path
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in members.items():
            before, after = b"__torch__.foreign_models.tabulate", b"ops.deepmd.tabulate"
            archive.writestr(name, member.replace(before, after))
    return path


def called(module: str, name: str):
    """Let a class be of that module and name, as TorchScript writes it to files."""

    def rename(cls):
        cls.__module__, cls.__name__, cls.__qualname__ = module, name, name
        return cls

    return rename


def random(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, dtype=torch.float64) / math.sqrt(shape[0]))


# DeePMD-kit, descriptor se_e2_a


@called("deepmd.pt.utils.utils", "ActivationFn")
class ActivationFn(nn.Module):
    def __init__(self, activation: str):
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) if self.activation == "tanh" else torch.relu(x)


@called("deepmd.pt.model.network.mlp", "MLPLayer")
class MLPLayer(nn.Module):
    def __init__(self, n_in: int, n_out: int, resnet: bool, step: bool, activation: str):
        super().__init__()
        self.matrix, self.bias = random(n_in, n_out), random(n_out)
        self.idt = random(n_out) if step and resnet and n_out in (n_in, 2 * n_in) else None
        self.resnet, self.num_in, self.num_out = resnet, n_in, n_out
        self.activate = ActivationFn(activation)

    def forward(self, x: Tensor) -> Tensor:
        y = self.activate(x @ self.matrix + self.bias)
        if hasattr(self, "idt"):
            idt = self.idt
            if idt is not None:
                y = y * idt
        if self.resnet and self.num_out == self.num_in:
            y = y + x
        elif self.resnet and self.num_out == 2 * self.num_in:
            y = y + torch.cat((x, x), -1)
        return y


@called("deepmd.pt.model.network.mlp", "Last")
class Last(nn.Module):
    def __init__(self, n_in: int):
        super().__init__()
        self.matrix, self.bias, self.idt, self.resnet = random(n_in, 1), random(1), None, False
        self.activate = ActivationFn("linear")

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix + self.bias


@called("deepmd.pt.model.network.network", "Net")
class Net(nn.Module):
    def __init__(self, layers: list[nn.Module]):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@called("deepmd.pt.model.network.network", "NetworkCollection")
class NetworkCollection(nn.Module):
    def __init__(self, networks: list[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)


@called("deepmd.pt.utils.exclude_mask", "PairExcludeMask")
class PairExcludeMask(nn.Module):
    def __init__(self, no_exclusion: bool):
        super().__init__()
        self.no_exclusion = no_exclusion


@torch.jit.script
def tabulate_fusion_se_a(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: int) -> list[Tensor]:
    """In the place of DeePMD-kit's operator until the model is in a file."""
    return [a]


@called("deepmd.pt.model.descriptor.se_a", "DescrptBlockSeA")
class DescrptBlockSeA(nn.Module):
    def __init__(self, sel: list[int], one_sided: bool, step: bool, activation: str, **changes):
        super().__init__()
        n = len(sel)
        self.sel, self.rcut, self.rcut_smth, self.axis_neuron = sel, 4.0, 1.0, 3
        self.env_protection, self.compress = 0.0, changes.get("compress", False)
        self.emask = PairExcludeMask(changes.get("no_exclusion", True))
        widths = [1, 4, 8, 8]
        self.filter_layers = NetworkCollection(
            [
                Net([MLPLayer(a, b, True, step, activation) for a, b in itertools.pairwise(widths)])
                for _ in range(n if one_sided else n * n)
            ]
        )
        mean, deviation = 0.1 * torch.randn(n, 1, 4), 0.1 + 0.2 * torch.rand(n, 1, 4)
        self.register_buffer("mean", mean.double().repeat(1, sum(sel), 1))
        self.register_buffer("stddev", deviation.double().repeat(1, sum(sel), 1))

    def forward(self, vectors: list[Tensor], center: int) -> Tensor:
        """The descriptor from the vectors [n, 3] to the neighbors of each type."""
        moments = torch.zeros(4, 8, dtype=torch.float64)
        if hasattr(self, "compress"):
            compressed = self.compress
            if compressed:
                return tabulate_fusion_se_a(moments, moments, moments, moments, 8)[0]
        for k, net in enumerate(self.filter_layers.networks):
            ntypes = len(self.sel)
            one_sided = len(self.filter_layers.networks) == ntypes
            kind = k if one_sided else k // ntypes
            if one_sided or k % ntypes == center:
                d = vectors[kind]
                r = torch.linalg.vector_norm(d, dim=1, keepdim=True)
                u = ((r - self.rcut_smth) / (self.rcut - self.rcut_smth)).clamp(0.0, 1.0)
                s = (1.0 - 10.0 * u**3 + 15.0 * u**4 - 6.0 * u**5) / r
                empty = torch.zeros(self.sel[kind] - d.size(0), 4, dtype=torch.float64)
                rows = torch.cat((torch.cat((s, s * d / r), 1), empty))
                rows = (rows - self.mean[center, 0]) / self.stddev[center, 0]
                moments = moments + rows.t() @ net(rows[:, :1])
        moments = moments / sum(self.sel)
        return (moments.t() @ moments[:, : self.axis_neuron]).reshape(-1)


@called("deepmd.pt.model.descriptor.se_a", "DescrptSeA")
class DescrptSeA(nn.Module):
    def __init__(self, sea: nn.Module):
        super().__init__()
        self.sea = sea


@called("deepmd.pt.model.task.ener", "EnergyFittingNet")
class EnergyFittingNet(nn.Module):
    def __init__(self, n: int, step: bool, activation: str, vacuum: bool, **changes):
        super().__init__()
        widths = [24, 6, 6, 6]
        self.filter_layers = NetworkCollection(
            [
                Net(
                    [MLPLayer(a, b, True, step, activation) for a, b in itertools.pairwise(widths)]
                    + [Last(6)]
                )
                for _ in range(n)
            ]
        )
        self.register_buffer("bias_atom_e", torch.randn(n, 1, dtype=torch.float64))
        self.exclude_types = torch.jit.Attribute(changes.get("exclude_types", []), list[int])
        self.numb_fparam, self.numb_aparam = changes.get("numb_fparam", 0), 0
        self.dim_case_embd, self.mixed_types = 0, False
        self.remove_vaccum_contribution = [vacuum] * n


@called("deepmd.pt.model.atomic_model.energy_atomic_model", "DPEnergyAtomicModel")
class DPEnergyAtomicModel(nn.Module):
    def __init__(self, type_map: list[str], sel: list[int], descriptor: nn.Module, fitting):
        super().__init__()
        self.type_map, self.sel = type_map, sel
        self.descriptor, self.fitting_net = descriptor, fitting
        self.pair_excl, self.atom_excl = None, None
        self.register_buffer("out_bias", torch.randn(1, len(sel), 1, dtype=torch.float64))


@called("deepmd.pt.model.model.ener_model", "EnergyModel")
class EnergyModel(nn.Module):
    def __init__(self, atomic_model: nn.Module):
        super().__init__()
        self.atomic_model = atomic_model

    def forward(self, coord: Tensor, atype: Tensor, box: Tensor | None = None) -> dict[str, Tensor]:
        x = coord[0].detach().requires_grad_()
        types: list[int] = atype[0].tolist()
        ntypes = len(self.atomic_model.sel)
        energies: list[Tensor] = []
        for i in range(len(types)):
            vectors: list[Tensor] = []
            for kind in range(ntypes):
                near: list[Tensor] = []
                for j in range(len(types)):
                    d = x[j] - x[i]
                    distance = float(torch.linalg.vector_norm(d))
                    if (
                        j != i
                        and types[j] == kind
                        and distance < self.atomic_model.descriptor.sea.rcut
                    ):
                        near.append(d)
                empty = torch.zeros(0, 3, dtype=torch.float64)
                vectors.append(torch.stack(near) if len(near) > 0 else empty)
            descriptor = self.atomic_model.descriptor.sea(vectors, types[i])
            energy = torch.zeros([], dtype=torch.float64)
            if hasattr(self.atomic_model, "out_bias"):
                energy = energy + self.atomic_model.out_bias[0, types[i], 0]
            if hasattr(self.atomic_model.fitting_net, "bias_atom_e"):
                energy = energy + self.atomic_model.fitting_net.bias_atom_e[types[i], 0]
            for k, net in enumerate(self.atomic_model.fitting_net.filter_layers.networks):
                if k == types[i]:
                    energy = energy + net(descriptor[None])[0, 0]
                    if hasattr(self.atomic_model.fitting_net, "remove_vaccum_contribution"):
                        removed = self.atomic_model.fitting_net.remove_vaccum_contribution[k]
                        if removed:
                            energy = energy - net(torch.zeros_like(descriptor)[None])[0, 0]
            energies.append(energy)
        energy = torch.stack(energies)
        gradient = torch.autograd.grad([energy.sum()], [x])[0]
        assert gradient is not None
        return {"atom_energy": energy[None, :, None], "force": -gradient[None]}


def deepmd(
    sel: tuple[int, ...] = (16, 20), one_sided: bool = False, step: bool = True,
    activation: str = "tanh", vacuum: bool = False, seed: int = 0, lacks: Sequence[str] = (),
    **changes,
) -> EnergyModel:  # fmt: skip
    """A random model of O and Hf, or more elements, of a release that lacks some attributes."""
    torch.manual_seed(seed)
    descriptor = DescrptSeA(DescrptBlockSeA(list(sel), one_sided, step, activation, **changes))
    fitting = EnergyFittingNet(len(sel), step, activation, vacuum, **changes)
    atomic = DPEnergyAtomicModel(["O", "Hf", "Zr"][: len(sel)], list(sel), descriptor, fitting)
    model = EnergyModel(atomic)
    for module in model.modules():
        for name in filter(partial(hasattr, module), lacks):
            delattr(module, name)
    return model


# DeePMD-kit, other descriptors


@called("deepmd.pt.model.descriptor.dpa1", "DescrptDPA1")
class DescrptDPA1(nn.Module):
    def __init__(self, compressed: bool) -> None:
        super().__init__()
        self.geo_compress = compressed
        table = nn.Parameter(torch.zeros(1000, dtype=torch.float64))
        self.compress_data = nn.ParameterList([table] * compressed)


@called("deepmd.pt.model.descriptor.se_atten", "DescrptBlockSeAtten")
class DescrptBlockSeAtten(nn.Module):
    def __init__(self, slots: int) -> None:
        super().__init__()
        self.rcut, self.sel = 4.0, [slots]
        self.register_buffer("mean", torch.zeros(2, slots, 4))


@called("deepmd.pt.model.descriptor.repformers", "DescrptBlockRepformers")
class DescrptBlockRepformers(nn.Module):
    """Two layers, within less than the list has."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.rcut, self.sel, self.nlayers = 3.5, [slots], 2


@called("deepmd.pt.model.descriptor.others", "DescrptBlockOthers")
class DescrptBlockOthers(DescrptBlockRepformers):
    """A way of passing messages that is not known."""


@called("deepmd.pt.model.atomic_model.dp_atomic_model", "DPAtomicModel")
class LocalAtomicModel(nn.Module):
    """Pairs and triples of neighbors in slots, and twice what neighbors have if messages pass."""

    def __init__(self, compressed: bool, messages: type | None) -> None:
        super().__init__()
        self.descriptor, self.charge = DescrptDPA1(compressed), random(2)
        self.messages = messages is not None
        self.repinit = DescrptBlockSeAtten(60)
        self.repformers = (messages or DescrptBlockRepformers)(60)

    def forward_common_atomic(
        self, extended_coord: Tensor, extended_atype: Tensor, nlist: Tensor,
        mapping: Tensor | None = None,
    ) -> dict[str, Tensor]:  # fmt: skip
        nframes, nlocal, nslots = nlist.shape
        x = extended_coord
        if hasattr(self.descriptor, "geo_compress"):
            compressed = self.descriptor.geo_compress
            if compressed:
                return {"energy": tabulate_fusion_se_a(x, x, x, x, 1)[0]}
        used = (nlist >= 0).to(extended_coord.dtype)
        index = nlist.clamp(min=0).reshape(nframes, nlocal * nslots)
        x = extended_coord.gather(1, index.unsqueeze(2).expand(-1, -1, 3))
        d = x.reshape(nframes, nlocal, nslots, 3) - extended_coord[:, :nlocal].unsqueeze(2)
        weight = used * (1.0 - d.square().sum(3) / 16.0).clamp(min=0.0) ** 3
        kinds = extended_atype.gather(1, index).reshape(nframes, nlocal, nslots)
        weight = weight * self.charge[kinds]
        energy = self.charge[extended_atype[:, :nlocal]] * weight.sum(2)
        energy = energy + (weight.unsqueeze(3) * d).sum(2).square().sum(2)
        if self.messages:
            assert mapping is not None
            near = used * (1.0 - d.square().sum(3) / self.repformers.rcut**2).clamp(min=0.0) ** 3
            for _ in range(self.repformers.nlayers):
                of_neighbor = energy.gather(1, mapping.gather(1, index)).reshape(weight.shape)
                energy = energy + (near * of_neighbor).sum(2).tanh()
        return {"energy": energy.unsqueeze(2)}


@called("deepmd.pt.model.model.ener_model", "EnergyModel")
class LocalEnergyModel(nn.Module):
    """What deepmd_edges.py asks of a model."""

    def __init__(
        self, sel: list[int], mixed: bool, messages: type | None, gives: str, parameters: int,
        compressed: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.atomic_model = LocalAtomicModel(compressed, messages)
        self.sel, self.mixed, self.messages = sel, mixed, messages is not None
        self.gives, self.parameters_of_frame = gives, parameters

    @torch.jit.export
    def get_rcut(self) -> float:
        return 4.0

    @torch.jit.export
    def get_sel(self) -> list[int]:
        return self.sel

    @torch.jit.export
    def get_type_map(self) -> list[str]:
        return ["O", "Hf"]

    @torch.jit.export
    def mixed_types(self) -> bool:
        return self.mixed

    @torch.jit.export
    def has_message_passing(self) -> bool:
        return self.messages

    @torch.jit.export
    def need_sorted_nlist_for_lower(self) -> bool:
        return False

    @torch.jit.export
    def model_output_type(self) -> list[str]:
        return [self.gives, "mask"]

    @torch.jit.export
    def get_dim_fparam(self) -> int:
        return self.parameters_of_frame

    @torch.jit.export
    def get_dim_aparam(self) -> int:
        return 0

    @torch.jit.export
    def format_nlist(
        self, extended_coord: Tensor, extended_atype: Tensor, nlist: Tensor,
        extra_nlist_sort: bool = False,
    ) -> Tensor:  # fmt: skip
        missing = max(sum(self.sel) - nlist.size(2), 0)
        return torch.nn.functional.pad(nlist, [0, missing], value=-1.0)

    def forward(self, coord: Tensor, atype: Tensor, box: Tensor | None = None) -> dict[str, Tensor]:
        x = coord.detach().requires_grad_()
        n = x.size(1)
        near = (torch.cdist(x[0], x[0]) < 4.0) & (torch.eye(n) == 0)
        every = torch.arange(n).expand(n, n)
        nlist = torch.where(near, every, torch.full_like(every, -1)).unsqueeze(0)
        mapping = torch.arange(n).unsqueeze(0)
        energy = self.atomic_model.forward_common_atomic(x, atype, nlist, mapping)["energy"]
        gradient = torch.autograd.grad([energy.sum()], [x])[0]
        assert gradient is not None
        return {"atom_energy": energy, "force": -gradient}


def local_deepmd(
    sel: Sequence[int] = (60, 60), mixed: bool = False, messages: type | None = None,
    gives: str = "energy", parameters: int = 0, compressed: bool = False, activation: str = "",
) -> LocalEnergyModel:  # fmt: skip
    """A random model of O and Hf; with an activation it has the parts of se_e2_a, too."""
    torch.manual_seed(1)
    model = LocalEnergyModel(list(sel), mixed, messages, gives, parameters, compressed)
    if activation:
        atomic = model.atomic_model
        atomic.descriptor = DescrptSeA(DescrptBlockSeA(list(sel), False, True, activation))
        atomic.fitting_net = EnergyFittingNet(len(sel), True, activation, False)
        atomic.type_map = ["O", "Hf"]
    return model


# MACE


class Messages(nn.Module):
    """Energies of atoms from what arrives at edge_index[1], in two rounds."""

    def __init__(self, heads: list[str]):
        super().__init__()
        if heads:
            self.heads = heads
        self.charge = random(2)

    def forward(
        self, data: dict[str, Tensor], training: bool = False, compute_force: bool = True
    ) -> dict[str, Tensor | None]:
        sender, receiver = data["edge_index"][0], data["edge_index"][1]
        vectors = data["positions"][receiver] - data["positions"][sender] + data["shifts"]
        weight = (1.0 - vectors.square().sum(1) / 16.0).clamp(min=0.0) ** 3
        feature = data["node_attrs"] @ self.charge.to(vectors.dtype)
        for _ in range(2):
            sums = torch.zeros_like(feature).index_add(0, receiver, weight * feature[sender])
            feature = torch.tanh(sums + feature)
        if hasattr(self, "heads"):
            feature = feature * (1.0 + data["head"][data["batch"]])
        return {"node_energy": feature.double()}


@called("mace.calculators.lammps_mace", "LAMMPS_MACE")
class LammpsMace(nn.Module):
    def __init__(self, dtype: torch.dtype, head: int | None, heads: list[str]):
        super().__init__()
        self.model = Messages(heads).to(dtype)
        self.register_buffer("atomic_numbers", torch.tensor([8, 72]))
        self.register_buffer("r_max", torch.tensor(4.0, dtype=dtype))
        self.register_buffer("num_interactions", torch.tensor(2))
        if head is not None:
            self.register_buffer("head", torch.tensor([head]))

    def forward(
        self, data: dict[str, Tensor], local_or_ghost: Tensor, compute_virials: bool = False
    ) -> dict[str, Tensor | None]:
        if hasattr(self, "head"):
            data["head"] = self.head
        data["positions"].requires_grad_(True)
        energy = self.model(data)["node_energy"]
        assert energy is not None
        gradient = torch.autograd.grad([(energy * local_or_ghost).sum()], [data["positions"]])[0]
        assert gradient is not None
        return {"node_energy": energy, "forces": -gradient}


def mace(
    dtype: torch.dtype = torch.float64, head: int | None = 1, heads: Sequence[str] = ("a", "b")
) -> LammpsMace:
    """A random model of O and Hf with some heads, one of which is in use; older ones have none."""
    torch.manual_seed(0)
    return LammpsMace(dtype, head, list(heads))


def pickled_mace() -> bytes:
    """What torch.save writes of an object of a class of MACE, in float32."""
    models = ModuleType("mace.modules.models")
    models.Model = type("Model", (), {"__module__": models.__name__})
    value, stream = models.Model(), io.BytesIO()
    value.weights = torch.zeros(2, dtype=torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mace", "mace.modules", models.__name__):
            patch.setitem(sys.modules, name, models)
        torch.save(value, stream)
    return stream.getvalue()


# NequIP


@called("nequip.nn.convnetlayer", "ConvNetLayer")
class ConvNetLayer(nn.Module):
    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        edge_index, feature = data["edge_index"], data["node_features"]
        arriving = data["edge_embedding"] * feature[edge_index[1]]
        sums = torch.zeros_like(feature).index_add(0, edge_index[0], arriving)
        data["node_features"] = torch.tanh(sums + feature)
        return data


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.charge = random(2).float()

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        edge_index = data["edge_index"]
        if "edge_vectors" not in data:
            data["edge_vectors"] = data["pos"][edge_index[1]] - data["pos"][edge_index[0]]
        weight = (1.0 - data["edge_vectors"].square().sum(1) / 16.0).clamp(min=0.0).float() ** 3
        data["edge_embedding"] = weight.unsqueeze(1)
        data["node_features"] = self.charge[data["atom_types"]].unsqueeze(1)
        return data


class Readout(nn.Module):
    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        data["atomic_energy"] = data["node_features"].double()
        return data


@called("nequip.nn._graph_mixin", "SequentialGraphNetwork")
class Energies(nn.Module):
    """Parts that follow each other, two convolutions among them."""

    def __init__(self):
        super().__init__()
        self.embedding, self.one = Embedding(), ConvNetLayer()
        self.two, self.readout = ConvNetLayer(), Readout()

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        data = self.one(self.embedding(data))
        return self.readout(self.two(data))


@called("nequip.nn._graph_mixin", "SequentialGraphNetwork")
class Interleaved(Energies):
    """The same, where a part that does nothing comes between the convolutions."""

    def __init__(self):
        super().__init__()
        two, readout = self.two, self.readout
        del self.two, self.readout
        self.between, self.two, self.readout = nn.Identity(), two, readout


class ForceOutput(nn.Module):
    def __init__(self, func: nn.Module):
        super().__init__()
        self.func = func

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        data["pos"].requires_grad_(True)
        data = self.func(data)
        gradient = torch.autograd.grad([data["atomic_energy"].sum()], [data["pos"]])[0]
        assert gradient is not None
        data["forces"] = -gradient
        return data


@called("nequip.nn._rescale", "RescaleOutput")
class RescaleOutput(nn.Module):
    """Scales by 3, and adds a constant to the energy of all atoms."""

    def __init__(self, model: nn.Module, constant: float):
        super().__init__()
        self.model, self.has_scale, self.has_shift = model, True, True
        self.scale_keys, self.shift_keys = ["atomic_energy", "forces"], ["total_energy"]
        self.register_buffer("scale_by", torch.tensor(3.0))
        self.register_buffer("shift_by", torch.tensor(constant))

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        data = self.model(data)
        for key in self.scale_keys:
            data[key] = data[key] * self.scale_by
        data["total_energy"] = data["atomic_energy"].sum() + self.shift_by
        return data


class GraphModel(nn.Module):
    """Of both programs, which differ in its module; the older one scales and shifts."""

    def __init__(self, func: nn.Module, constant: float | None = None):
        super().__init__()
        self.model = ForceOutput(func)
        if constant is not None:
            self.model = RescaleOutput(self.model, constant)

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.model(data)


@called("nequip.nn.graph_model", "GraphModel")
class Compiled(GraphModel):
    pass


@called("nequip.nn._graph_model", "GraphModel")
class Deployed(GraphModel):
    pass


def save_nequip(
    path, names: str = "O Hf", func: nn.Module | None = None, constant: float | None = None, **told
) -> None:
    """A random model that computes in float32; with a constant as nequip-deploy writes it."""
    torch.manual_seed(0)
    told = {"r_max": "4.0", "type_names": names, "model_dtype": "float32", **told}
    energies = Energies() if func is None else func
    model = Compiled(energies) if constant is None else Deployed(energies, constant)
    torch.jit.script(model).save(str(path), _extra_files=told)


# SevenNet


@called("sevenn.nn.sequential", "AtomGraphSequential")
class AtomGraphSequential(nn.Module):
    """Rounds of message passing in float32, which freezing makes one function."""

    def __init__(self, rounds: int):
        super().__init__()
        self.charge, self.rounds = random(2).float(), rounds

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        i, j = data["edge_index"][0], data["edge_index"][1]
        weight = (1.0 - data["edge_vec"].square().sum(1) / 16.0).clamp(min=0.0) ** 3
        feature = self.charge[data["x"]]
        for _ in range(self.rounds):
            sums = torch.zeros_like(feature).index_add(0, i, weight * feature[j])
            feature = torch.tanh(sums + feature)
        data["atomic_energy"] = feature.unsqueeze(-1)
        data["inferred_total_energy"] = feature.sum()
        return data


@called("sevenn.nn.sequential", "AtomGraphSequential")
class WithForces(nn.Module):
    """Of releases up to 0.11, which take positions and derive the energy by themselves."""

    def __init__(self, model: AtomGraphSequential):
        super().__init__()
        self.model = model

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        pos = data["pos"].requires_grad_()
        strain = torch.zeros(3, 3).requires_grad_()
        cell = data["cell_lattice_vectors"] + data["cell_lattice_vectors"] @ strain
        pos_here = pos + pos @ strain
        source, end = data["edge_index"][0], data["edge_index"][1]
        data["edge_vec"] = pos_here[end] - pos_here[source] + data["pbc_shift"] @ cell
        data = self.model(data)
        energy = data["inferred_total_energy"].sum()
        slopes = torch.autograd.grad([energy], [pos, strain])
        of_pos, of_strain = slopes[0], slopes[1]
        if of_pos is not None and of_strain is not None:
            data["inferred_force"] = -of_pos
            data["inferred_stress"] = -of_strain / data["cell_volume"]
        return data


def save_sevennet(path, rounds: int = 2, older: bool = False, **told) -> None:
    """As sevenn_get_model writes it, of now or of releases up to 0.11."""
    torch.manual_seed(0)
    told = {"cutoff": "4.0", "chemical_symbols_to_index": "O Hf ", "dtype": "single", **told}
    model = AtomGraphSequential(rounds)
    whole = WithForces(model) if older else model
    frozen = torch.jit.freeze(torch.jit.script(whole.eval()))
    torch.jit.save(frozen, str(path), _extra_files=told)


# MatPL and PWMLFF


def matpl_nep_checkpoint(model: Nep, zbl: float = 0.0, prefix: str = "") -> dict:
    """What a training of a NEP by MatPL saves, with q_scaler where `prefix` says that it lies."""
    state = {f"{prefix}c_param_2": model.c_radial, f"{prefix}c_param_3": model.c_angular}
    ((weights, biases),) = model.layers
    for k, layer in enumerate(zip(weights, biases, model.last, model.shift, strict=True)):
        net, (weight, bias, last, shift) = f"{prefix}fitting_net.{k}.layers", layer
        state |= {f"{net}.0.weight": weight.T, f"{net}.0.bias": bias[None]}
        state |= {f"{net}.1.weight": last[:, None], f"{net}.1.bias": shift.reshape(1, 1)}
    descriptor = {
        "cutoff": [float(model.cut_radial[0, 0]), float(model.cut_angular[0, 0])],
        "n_max": [n - 1 for n in (model.c_radial.shape[2], model.c_angular.shape[2])],
        "basis_size": [n - 1 for n in (model.c_radial.shape[3], model.c_angular.shape[3])],
        "l_max": [model.l_max, 2 * ("222" in model.invariants), int("1111" in model.invariants)],
    }
    settings = {
        "model_type": "NEP",
        "atom_type": list(model.elements),
        "model": {"descriptor": descriptor | ({"zbl": zbl} if zbl else {})},
    }
    scaler = {} if prefix else {"q_scaler": model.q_scaler.tolist()}
    if prefix:
        state[f"{prefix}q_scaler"] = model.q_scaler
    tensors = {name: torch.tensor(values) for name, values in state.items()}
    return {"json_file": settings, "epoch": 7, "state_dict": tensors, **scaler}


def matpl_checkpoint(contract: dp_oracle.Contract, arrays, **changes):
    """What a training of MatPL saves; settings that are the defaults are not in it."""
    parameters = {name: torch.tensor(v) for name, v in arrays.items() if name[0] in "ef"}
    descriptor = {"Rmax": contract.rmax, "Rmin": contract.rmin, "M2": contract.m2}
    settings = {
        "model_type": "DP",
        "atom_type": list(contract.atom_type),
        "max_neigh_num": contract.max_neighbor,
        "model": {"descriptor": descriptor, "fitting_net": {"network_size": [8, 8, 6, 6, 1]}},
    }
    return {
        "json_file": settings,
        "epoch": 7,
        "state_dict": parameters,
        "davg": arrays["davg"],
        "dstd": arrays["dstd"],
        "energy_shift": [1.0] * len(contract.atom_type),
        "atom_type_order": np.array(contract.atom_type),
        "sij_max": np.float64(3.0),
        **changes,
    }
