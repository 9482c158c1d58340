"""Frozen models of DeePMD-kit's PyTorch backend (`dp --pt freeze`, .pth), read with torch alone.

Other descriptors than se_e2_a: deepmd_edges.py.
se_e2_a (DeepPot-SE) is the Deep Potential of the model contract in other names. `matrix` and `idt`
of its layers are `weight` and `resnet_dt`. `sel` gives each type its slots. What is added to the
energies of atoms goes into the last bias.

Sources: Zhang et al. 2018, arXiv:1805.09003 (DeepPot-SE); Zeng et al. 2025,
doi:10.1021/acs.jctc.5c00340 (DeePMD-kit v3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.data import atomic_numbers

from pwmlff.convert.deepmd_edges import DeepmdEdges, is_single, reach
from pwmlff.convert.foreign import Foreign, Numbers, Source
from pwmlff.models import DP
from pwmlff.models.saving import rewritten
from pwmlff.report import Failure

CLASS = "deepmd.pt.model.model."
TYPES = {"t": "Tensor", "i": "int", "b": "bool"}
#: Functions in place of the operators that the compiled library of DeePMD-kit 3 has. Models of all
#: descriptors name them, and call them where they are compressed or run on several ranks.
OPERATORS = "".join(
    f"def {name}({', '.join(f'a{k}: {TYPES[letter]}' for k, letter in enumerate(letters))})"
    " -> List[Tensor]:\n"
    f'  ops.prim.RaiseException("{name} is in a library of DeePMD-kit")\n'
    "  return annotate(List[Tensor], [])\n"
    for name, letters in {
        "tabulate_fusion_se_a": "tttti",
        "tabulate_fusion_se_atten": "tttttib",
        "tabulate_fusion_se_r": "ttti",
        "tabulate_fusion_se_t": "tttti",
        "tabulate_fusion_se_t_tebd": "tttti",
        "border_op": "ttttttttt",
    }.items()
)


def without_operators(contents: bytes, class_name: str) -> bytes:
    """An archive of DeePMD-kit as torch alone can load it; those of others as they are.

    Its operators are not defined to torch instead, as DeePMD-kit could then no longer be imported.
    """
    if not class_name.startswith(CLASS):
        return contents

    def edit(name: str, member: bytes) -> bytes:
        if not name.endswith(".py"):
            return member
        return member.replace(b"ops.deepmd.", b"__torch__.deepmd_operators.")

    return rewritten(contents, {"code/__torch__/deepmd_operators.py": OPERATORS.encode()}, edit)


def read(source: Source) -> Foreign | None:
    """The model of a file of DeePMD-kit; None for files of others.

    Raises:
        Failure: it is one that cannot be brought into a contract.
    """
    if not source.class_name.startswith(CLASS):
        return None
    model: Any = source.module
    for parameter in model.parameters():  # its code changes what is made of them in place
        parameter.requires_grad_(False)
    notes = _uncompressed(model)
    atomic = getattr(model, "atomic_model", None)
    kind = getattr(getattr(atomic, "descriptor", None), "original_name", "")
    if kind != "DescrptSeA":
        return _by_edges(source, model, kind, notes)
    reader = _Reader(atomic)
    try:
        module = reader.model()
    except ValueError as reason:
        if hasattr(model, "has_message_passing"):
            return _by_edges(source, model, kind, {"own code": f"runs: {reason}", **notes})
        raise Failure(
            f"'{source.path}' is a model of DeePMD-kit that cannot be converted: {reason}"
        ) from reason
    slots = [f"{n} {symbol}" for n, symbol in zip(reader.sel, reader.type_map, strict=True)]
    return Foreign(
        family="DeePMD-kit, se_e2_a",
        module=module,
        evaluate=lambda atoms: _evaluate(model, reader.type_map, atoms),
        single=is_single(model),
        notes={"slots": ", ".join(slots), **notes},
    )


def _uncompressed(model: Any) -> dict[str, str]:
    """Leave out the tables of `dp --pt compress`: the networks that they were made of count.

    Returns:
        What there is to tell of it.
    """
    tabulated = [
        (part, name)
        for part in model.modules()
        for name in ("compress", "geo_compress")
        if getattr(part, name, False)
    ]
    if not tabulated:
        return {}
    for part, name in tabulated:
        setattr(part, name, False)
    for name, table in model.named_parameters():
        if "compress_data." in name:
            table.data = table.new_zeros(0)
    return {"compression": "left out: the networks that its tables were made of are in the file"}


def _by_edges(source: Source, model: Any, kind: str, notes: dict[str, str]) -> Foreign:
    """A model that is evaluated by its own code."""
    what = f"'{source.path}' is a model of DeePMD-kit"
    if not (hasattr(model, "has_message_passing") and hasattr(model, "atomic_model")):
        raise Failure(f"{what} of class {source.class_name}, which does not say what it sees")
    gives = [name for name in model.model_output_type() if name != "mask"]
    if gives != ["energy"]:
        raise Failure(f"{what} that gives {', '.join(gives)}, expected energy")
    interaction_range = reach(model)
    if not interaction_range:
        raise Failure(
            f"{what} with a descriptor of class {kind}, which passes messages in a way that is not "
            "known here; its own pair style deepmd runs it"
        )
    for name in ("fparam", "aparam"):
        if getattr(model, f"get_dim_{name}")() > 0:
            raise Failure(f"{what} with {name}, which the model contract does not have")
    if any(map(_depends_on_order, model.modules())):
        raise Failure(
            f"{what} with se_atten and set_davg_zero false. Its energies depend on the order of "
            "atoms: empty places among neighbors count with the type of the first one. Train it "
            "with set_davg_zero, or with a stripped and smooth type embedding"
        )
    type_map = list(model.get_type_map())
    elements = [atomic_numbers.get(symbol, 0) for symbol in type_map]
    if min(elements) < 1:
        raise Failure(
            f"{what} whose type_map holds {', '.join(map(repr, type_map))}, expected chemical "
            "symbols"
        )
    edges = DeepmdEdges(model, elements, interaction_range)
    return Foreign(
        family=f"DeePMD-kit, {kind or 'several models'}",
        module=edges,
        evaluate=lambda atoms: _evaluate(model, type_map, atoms),
        single=is_single(model),
        notes={"neighbors": f"at most {' and '.join(map(str, model.get_sel()))}", **notes},
    )


def _depends_on_order(block: Any) -> bool:
    """Whether se_atten counts empty places (findings/deepmd_se_atten_order_of_atoms.sh)."""
    if getattr(block, "original_name", "") != "DescrptBlockSeAtten" or not block.mean.any():
        return False
    return not (block.tebd_input_mode == "strip" and block.smooth)


def _evaluate(model: Any, type_map: list[str], atoms: Atoms) -> Numbers:
    types = [type_map.index(symbol) for symbol in atoms.symbols]
    with torch.jit.optimized_execution(False):
        results = model(torch.from_numpy(atoms.positions)[None], torch.tensor([types]), None)
    return Numbers.from_tensors(results["atom_energy"], results["force"][0])


def _excludes(mask: Any) -> bool:
    """Whether a mask of excluded types, None where a release has none, leaves out anything."""
    if hasattr(mask, "no_exclusion"):
        return not mask.no_exclusion
    return bool((getattr(mask, "type_mask", torch.ones(1)) == 0).any())


class _Reader:
    """Takes the arrays of an se_e2_a model.

    Releases differ in what their models hold. What one lacks, others have added since, with a
    default that changes nothing.
    """

    def __init__(self, atomic: Any) -> None:
        self.atomic = atomic
        self.descriptor, self.fitting = atomic.descriptor.sea, atomic.fitting_net
        self.type_map = list(atomic.type_map)
        self.ntypes = len(self.type_map)
        self.sel = [int(n) for n in self.descriptor.sel]
        self.arrays: dict[str, np.ndarray] = {}

    def model(self) -> DP:
        """The same in our names.

        Raises:
            ValueError: it has what the contract does not.
        """
        self._require_known()
        descriptor, ntypes = self.descriptor, self.ntypes
        networks = list(descriptor.filter_layers.networks.children())
        one_sided = len(networks) == ntypes
        for a in range(ntypes):
            for b in range(ntypes):
                net = networks[b if one_sided else b * ntypes + a]
                self._take(f"embedding_net.{a * ntypes + b}", net, fitting=False)
        for a, net in enumerate(self.fitting.filter_layers.networks.children()):
            last = self._take(f"fitting_net.{a}", net, fitting=True)
            bias = f"fitting_net.{a}.layers.{last}.bias"
            self.arrays[bias] = self.arrays.get(bias, 0.0) + self._constant(a, net)
        for name, values in (("davg", descriptor.mean), ("dstd", descriptor.stddev)):
            self.arrays[name] = self._statistics(name, _array(values))
        return DP.from_parameters(
            self.arrays,
            atom_type=[atomic_numbers[symbol] for symbol in self.type_map],
            rmax=float(descriptor.rcut),
            rmin=float(descriptor.rcut_smth),
            max_neighbor=max(self.sel),
            m2=int(descriptor.axis_neuron),
            sel=self.sel,
        )

    def _require_known(self) -> None:
        """Refuse what the contract does not have."""
        unknown = [t for t in self.type_map if atomic_numbers.get(t, 0) < 1]
        if unknown:
            raise ValueError(
                f"its type_map holds {', '.join(map(repr, unknown))}, expected chemical symbols"
            )
        atomic, descriptor, fitting = self.atomic, self.descriptor, self.fitting
        if (quantity := getattr(fitting, "var_name", "energy")) != "energy":
            raise ValueError(f"its fitting net gives {quantity}, expected energy")
        odd = {
            "exclude_types of its descriptor": _excludes(getattr(descriptor, "emask", None)),
            "pair_exclude_types": _excludes(getattr(atomic, "pair_excl", None)),
            "atom_exclude_types": _excludes(getattr(atomic, "atom_excl", None)),
            "exclude_types of its fitting net": len(getattr(fitting, "exclude_types", ())),
            "env_protection": float(getattr(descriptor, "env_protection", 0.0)),
            "frame parameters (numb_fparam)": getattr(fitting, "numb_fparam", 0) > 0,
            "atomic parameters (numb_aparam)": getattr(fitting, "numb_aparam", 0) > 0,
            "a case embedding (dim_case_embd)": getattr(fitting, "dim_case_embd", 0) > 0,
            "one fitting net for all types (mixed_types)": getattr(fitting, "mixed_types", False),
        }
        if name := next((name for name, present in odd.items() if present), None):
            raise ValueError(f"it has {name}, which the model contract does not")

    def _take(self, name: str, net: Any, fitting: bool) -> int:
        """Add the layers of a net, by our names; return the index of the last one."""
        layers = list(net.layers.children())
        for k, layer in enumerate(layers):
            hidden = not fitting or k + 1 < len(layers)
            if hidden and (activation := layer.activate.activation).lower() != "tanh":
                raise ValueError(f"its activation function is {activation}, expected tanh")
            prefix, (n_in, n_out) = f"{name}.layers.{k}.", layer.matrix.shape
            self.arrays[prefix + "weight"] = _array(layer.matrix)
            bias, idt = getattr(layer, "bias", None), getattr(layer, "idt", None)
            if bias is not None:
                self.arrays[prefix + "bias"] = _array(bias).reshape(1, -1)
            adds = bool(getattr(layer, "resnet", False)) and n_out in (n_in, 2 * n_in)
            expected = n_out == n_in and k > 0 if fitting else n_out in (n_in, 2 * n_in)
            if hidden and adds != expected:
                raise ValueError(
                    f"layer {k} of {name}, from width {n_in} to {n_out}, "
                    f"{'adds' if adds else 'does not add'} its input to the result"
                )
            if hidden and adds and idt is not None:
                self.arrays[prefix + "resnet_dt"] = _array(idt).reshape(1, -1)
        return len(layers) - 1

    def _constant(self, a: int, net: Any) -> np.ndarray:
        """What is added to the energy of an atom of type a [1, 1]."""
        constant = np.zeros(1)
        for holder, name in ((self.atomic, "out_bias"), (self.fitting, "bias_atom_e")):
            if (bias := getattr(holder, name, None)) is not None:
                constant = constant + _array(bias).reshape(self.ntypes)[a]
        vacuum = getattr(self.fitting, "remove_vaccum_contribution", None) or ()  # spelt so
        if a < len(vacuum) and vacuum[a]:
            matrix = next(net.layers.children()).matrix
            nothing = matrix.new_zeros(1, 1, matrix.shape[0])
            constant = constant - _array(net(nothing)).reshape(-1)
        result: np.ndarray = constant.reshape(1, 1)
        return result

    def _statistics(self, name: str, values: np.ndarray) -> np.ndarray:
        """Of the slots of each type [ntypes, ntypes*max(sel)*4], from [ntypes, sum(sel), 4]."""
        blocks = []
        for block in np.split(values, np.cumsum(self.sel)[:-1], axis=1):
            if not (block == block[:, :1]).all():
                raise ValueError(f"{name} differs between the slots of one pair of types")
            blocks.append(block[:, :1].repeat(max(self.sel), axis=1))
        return np.concatenate(blocks, axis=1).reshape(self.ntypes, -1)


def _array(tensor: torch.Tensor) -> np.ndarray:
    values: np.ndarray = tensor.detach().double().numpy()
    return values
