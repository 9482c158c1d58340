"""Checkpoints of MatPL and PWMLFF (.ckpt), read with torch and NumPy alone.

A checkpoint holds settings of a training (`json_file`) and parameters (`state_dict`), but no code.
Of kind DP it has the statistics of the environment (`davg`, `dstd`), too: what its training
program would script is the model contract of kind DP. Of kind NEP it is what a nep.txt holds.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from ase.data import atomic_numbers, chemical_symbols

from pwmlff.convert.elements import scaled
from pwmlff.convert.foreign import UNEXPECTED, Foreign, Saved
from pwmlff.evaluation.nep_file import INVARIANTS, Nep, universal_zbl
from pwmlff.models import DP
from pwmlff.report import Failure

#: What a training takes where its settings do not say.
RMAX, RMIN, AXIS, SLOTS = 6.0, 0.5, 16, 100
#: Properties of the neighbor's element that a type embedding takes, likewise.
EMBEDDED = ("atomic_number", "atom_radius", "atom_mass", "electron_affin", "pauling")


def read(path: str, contents: bytes, content: Saved) -> Foreign | None:
    """The model of a checkpoint; None for other files.

    Raises:
        Failure: it is a checkpoint of another kind of model, or not what the trainings write.
    """
    checkpoint = _load(path, contents) if b"json_file" in content.table else None
    if checkpoint is None:
        return None
    try:
        kind = str(checkpoint["json_file"]["model_type"]).upper()
        if kind not in {"DP", "NEP"}:
            raise ValueError(f"it is of kind {kind}; expected DP or NEP")
        model = _nep(checkpoint) if kind == "NEP" else _deep_potential(checkpoint)
    except KeyError as error:
        raise Failure(f"'{path}' is a checkpoint of MatPL or PWMLFF without {error}") from error
    except UNEXPECTED as error:
        raise Failure(
            f"'{path}' is a checkpoint of MatPL or PWMLFF that cannot be converted: {error}"
        ) from error
    notes = {"epoch": str(checkpoint["epoch"])} if "epoch" in checkpoint else {}
    if "compress" in checkpoint:
        notes["compression"] = (
            "left out: the nets are in the file, and tables are made of them here"
        )
    return Foreign(family="MatPL or PWMLFF, checkpoint", module=model, evaluate=None, notes=notes)


def _load(path: str, contents: bytes) -> dict[str, Any] | None:
    """The dictionary in a checkpoint of these programs; nothing but data is unpickled."""
    # What arrays and numbers of NumPy are made with, by the names that its releases 1 and 2 wrote.
    makers: list[Any] = [value.__reduce__()[0] for value in (np.zeros(1), np.float64(0.0))]
    modules = ("numpy.core.multiarray", "numpy._core.multiarray")
    named = [(maker, f"{module}.{maker.__name__}") for maker in makers for module in modules]
    dtypes = [type(np.dtype(name)) for name in ("f8", "f4", "i8", "i4")]
    try:
        with torch.serialization.safe_globals([np.ndarray, np.dtype, *named, *dtypes]):
            checkpoint = torch.load(io.BytesIO(contents), map_location="cpu", weights_only=True)
    except (*UNEXPECTED, EOFError, pickle.UnpicklingError) as error:
        raise Failure(
            f"'{path}' is a checkpoint of MatPL or PWMLFF with more than data in it, which is not "
            f"read: {str(error).splitlines()[0]}"
        ) from error
    if isinstance(checkpoint, dict) and {"json_file", "state_dict"} <= checkpoint.keys():
        return checkpoint
    return None


def _arrays(checkpoint: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters by their names, without the prefix of a data-parallel training."""
    return {
        re.sub(r"^module\.", "", name): values.detach().double().numpy()
        for name, values in checkpoint["state_dict"].items()
    }


def _nep(checkpoint: Mapping[str, Any]) -> Nep:
    """A neuroevolution potential; weights are [in, out], and biases are added."""
    settings, arrays = checkpoint["json_file"], _arrays(checkpoint)
    descriptor = settings["model"]["descriptor"]
    if descriptor.get("charge_mode"):
        raise ValueError("it has charges, whose energy is not local; run it with MatPL")
    elements = tuple(_number(element) for element in settings["atom_type"])
    s = len(elements)
    l_max, *flags = (int(value) for value in descriptor["l_max"])
    c_radial, radial, angular = arrays["c_param_2"], *map(float, descriptor["cutoff"])
    c_angular = arrays.get("c_param_3")
    if c_angular is None:
        nangular, kangular = (
            int(key[1]) + 1 for key in (descriptor["n_max"], descriptor["basis_size"])
        )
        c_angular = np.zeros((s, s, nangular, kangular))
    q_scaler = np.ravel(arrays["q_scaler"] if "q_scaler" in arrays else checkpoint["q_scaler"])
    zbl: tuple[float, ...] = ()
    if outer := descriptor.get("zbl"):
        factor = descriptor.get("use_typewise_cutoff_zbl")
        zbl = (outer / 2, float(outer), *([float(factor)] if factor else []))
    nets = [
        [
            arrays[f"fitting_net.{k}.layers.{n}.{name}"]
            for n in (0, 1)
            for name in ("weight", "bias")
        ]
        for k in range(s)
    ]
    weight, bias, last, shift = (np.stack(parts) for parts in zip(*nets, strict=True))
    return Nep(
        elements=elements,
        cut_radial=np.full((s, s), radial),
        cut_angular=np.full((s, s), angular),
        l_max=l_max,
        invariants=tuple(name for name, flag in zip(INVARIANTS, flags, strict=False) if flag),
        temperature=False,
        layers=((weight.transpose(0, 2, 1), bias.reshape(s, -1)),),
        last=last.reshape(s, -1),
        shift=shift.reshape(s),
        c_radial=c_radial,
        c_angular=c_angular,
        q_scaler=q_scaler.astype(float),
        zbl=universal_zbl(zbl, elements) if zbl else None,
        zbl_line=zbl,
    )


def _deep_potential(checkpoint: Mapping[str, Any]) -> DP:
    settings = checkpoint["json_file"]
    descriptor = settings.get("model", {}).get("descriptor", {})
    numbers = [_number(element) for element in settings["atom_type"]]
    order = [int(z) for z in np.ravel(checkpoint.get("atom_type_order", numbers))]
    if order != numbers:
        raise ValueError(f"its atom_type is {numbers}, but its statistics are of {order}")
    arrays = _arrays(checkpoint)
    vectors = None
    if embedded := descriptor.get("type_embedding", settings.get("type_embedding")):
        arrays = _last_net(arrays)
        chosen = embedded if isinstance(embedded, dict) else {}
        names = chosen.get("physical_property", EMBEDDED)
        vectors = {z: [scaled(name, z) for name in names] for z in numbers}
    for name in [name for name in arrays if name.endswith("resnet_dt")]:
        n_in, n_out = arrays[name.replace("resnet_dt", "weight")].shape
        if name.startswith("embedding_net.") and n_out not in (n_in, 2 * n_in):
            del arrays[name]  # such a layer adds nothing to its input
    for name in ("davg", "dstd"):
        arrays[name] = np.asarray(checkpoint[name], float)
    return DP.from_parameters(
        arrays,
        atom_type=numbers,
        rmax=float(descriptor.get("Rmax", RMAX)),
        rmin=float(descriptor.get("Rmin", RMIN)),
        max_neighbor=int(settings.get("max_neigh_num", SLOTS)),
        m2=int(descriptor.get("M2", AXIS)),
        type_vector=vectors,
    )


def _number(element: Any) -> int:
    number = atomic_numbers.get(element, 0) if isinstance(element, str) else int(element)
    if not 0 < number < len(chemical_symbols):
        raise ValueError(f"its atom_type holds {element!r}, expected elements")
    return number


def _last_net(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays with the one net of all pairs: a net for the types before it is made, and not used."""
    numbers = {int(name.split(".")[1]) for name in arrays if name.startswith("embedding_net.")}
    last = f"embedding_net.{max(numbers, default=0)}."
    return {
        name.replace(last, "embedding_net.0."): values
        for name, values in arrays.items()
        if name.startswith((last, "fitting_net."))
    }
